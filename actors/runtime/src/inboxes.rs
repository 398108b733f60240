//! Commands whose notice was lost, or that nobody could announce: the node asks the store which of its runs have some.
//!
//! One query over an index that is empty on most days, for the node and not for each run.

use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use signalbox_domain::ids::NodeIncarnation;
use signalbox_ports::leases::Leases;

use crate::runs;

/// How long a command to a run of another node waits at most before that node finds it by itself.
const EVERY: Duration = Duration::from_millis(500);
/// How long the supervisor of the runs may take to pass a poke on.
const POKED_WITHIN: Duration = Duration::from_secs(1);

pub(crate) enum Msg {
    Look,
}

pub(crate) struct Inboxes;

impl Actor for Inboxes {
    type Msg = Msg;
    type State = (Arc<dyn Leases>, NodeIncarnation, ActorRef<runs::Msg>);
    type Arguments = Self::State;

    async fn pre_start(&self, myself: ActorRef<Msg>, args: Self::State) -> Result<Self::State, ActorProcessingErr> {
        myself.send_interval(EVERY, || Msg::Look);
        Ok(args)
    }

    async fn handle(
        &self,
        _: ActorRef<Msg>,
        Msg::Look: Msg,
        (store, node, runs): &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match store.waiting(*node).await {
            Ok(waiting) => {
                for run in waiting {
                    let _ = runs.call(|reply| runs::Msg::Heard(run, reply), Some(POKED_WITHIN)).await;
                }
            }
            Err(error) => tracing::debug!(%error, "runs with commands cannot be looked for"),
        }
        Ok(())
    }
}
