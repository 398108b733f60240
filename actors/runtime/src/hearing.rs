//! What the other nodes say, followed up. Nothing of it is believed: each notice leads to a reading of the store, and a
//! flood of them to no more than one reading at a time.

use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use signalbox_ports::bus::{Bus, Notice};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::elsewhere::Elsewhere;
use crate::governance::GovernanceHandle;
use crate::inboxes;
use crate::progress::{Item, ProgressHub};
use crate::runs;

/// How long the supervisor of the runs may take to pass a poke on before the next notice is looked at.
const POKED_WITHIN: Duration = Duration::from_secs(1);
/// Pause after a notice of an epoch that was not there: whoever lies is believed no more often than this.
const LIED: Duration = Duration::from_millis(20);

pub(crate) struct Hearing;

pub(crate) struct Args {
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) governance: GovernanceHandle,
    pub(crate) runs: ActorRef<runs::Msg>,
    pub(crate) inboxes: ActorRef<inboxes::Msg>,
    pub(crate) hub: ProgressHub,
    pub(crate) elsewhere: Elsewhere,
}

impl Actor for Hearing {
    type Msg = ();
    /// Dropped with the actor, and with it both tasks end.
    type State = JoinSet<()>;
    type Arguments = Args;

    async fn pre_start(&self, _: ActorRef<()>, args: Args) -> Result<JoinSet<()>, ActorProcessingErr> {
        let mut tasks = JoinSet::new();
        let rules = Arc::new(Notify::new());
        tasks.spawn(follow_rules(args.governance.clone(), rules.clone()));
        tasks.spawn(listen(args, rules));
        Ok(tasks)
    }
}

async fn listen(args: Args, rules: Arc<Notify>) {
    loop {
        match args.bus.next().await {
            Notice::Governance(epoch) if epoch > args.governance.view().state.epoch => rules.notify_one(),
            Notice::Governance(_) => {}
            Notice::Inbox(run) => {
                // Waited for, so that a flood does not pile up in a mailbox.
                let _ = args.runs.call(|reply| runs::Msg::Heard(run, reply), Some(POKED_WITHIN)).await;
            }
            Notice::Moved(run) => args.hub.publish(run, Item::Elsewhere),
            Notice::Watched(run) => args.elsewhere.is_followed(run),
            Notice::Missed => {
                rules.notify_one();
                let _ = args.inboxes.cast(inboxes::Msg::Look);
                args.hub.publish_all(&Item::Elsewhere);
            }
        }
    }
}

async fn follow_rules(governance: GovernanceHandle, rules: Arc<Notify>) {
    loop {
        rules.notified().await;
        let before = governance.view().state.epoch;
        governance.refresh().await;
        if governance.view().state.epoch == before {
            tokio::time::sleep(LIED).await;
        }
    }
}
