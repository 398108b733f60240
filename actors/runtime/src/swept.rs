//! Saying that this node has swept: every run it has in hand was held against the rules of an epoch, what followed is
//! written, and the calls of runs that a switch has ended are cancelled. Whoever arms a switch waits for that word of every
//! node.
//!
//! A run that comes to this node later needs no word: it holds itself against the rules before it does anything.

use std::sync::Arc;
use std::time::Duration;

use ractor::rpc::CallResult;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use signalbox_domain::ids::NodeIncarnation;
use signalbox_ports::leases::Leases;
use tokio::task::JoinSet;

use crate::governance::GovernanceHandle;
use crate::{run, runs};

/// First pause before the runs that are not there yet are asked again; doubles up to [`AGAIN_MAX`].
const AGAIN: Duration = Duration::from_millis(1);
const AGAIN_MAX: Duration = Duration::from_millis(100);
/// Pause before a word that the store did not take is said again.
const STORE_AGAIN: Duration = Duration::from_secs(1);
/// How long a run, or their supervisor, may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

pub(crate) enum Msg {
    /// The node's rules have moved.
    Moved,
}

pub(crate) struct SweptActor;

pub(crate) struct Args {
    pub(crate) store: Arc<dyn Leases>,
    pub(crate) node: NodeIncarnation,
    pub(crate) governance: GovernanceHandle,
    pub(crate) runs: ActorRef<runs::Msg>,
}

pub(crate) struct State {
    args: Args,
    /// The epoch that was said last.
    said: Option<u64>,
}

impl Actor for SweptActor {
    type Msg = Msg;
    type State = State;
    type Arguments = Args;

    async fn pre_start(&self, myself: ActorRef<Msg>, args: Args) -> Result<State, ActorProcessingErr> {
        let _ = myself.cast(Msg::Moved);
        Ok(State { args, said: None })
    }

    async fn handle(
        &self,
        myself: ActorRef<Msg>,
        Msg::Moved: Msg,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let epoch = state.args.governance.view().state.epoch;
        if state.said.is_some_and(|said| said >= epoch) {
            return Ok(());
        }
        // One that a later change overtakes is said all the same: somebody may wait for it.
        until_swept(&state.args.runs, epoch).await;
        match state.args.store.swept(state.args.node, epoch).await {
            Ok(()) => state.said = Some(epoch),
            Err(error) => {
                tracing::debug!(%error, epoch, "that this node has swept cannot be said yet");
                myself.send_after(STORE_AGAIN, || Msg::Moved);
            }
        }
        Ok(())
    }
}

async fn until_swept(runs: &ActorRef<runs::Msg>, epoch: u64) {
    let mut pause = AGAIN;
    loop {
        let asked = runs.call(runs::Msg::InHand, Some(ANSWER_WITHIN)).await;
        let Ok(CallResult::Success((mut loading, mut active))) = asked else {
            tokio::time::sleep(AGAIN_MAX).await;
            continue;
        };
        loop {
            active = behind(active, epoch, &mut loading).await;
            if active.is_empty() {
                break;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(AGAIN_MAX);
        }
        if loading == 0 {
            return;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(AGAIN_MAX);
    }
}

/// Those that are not there yet. One that has ended may be loaded again, and counts as loading.
async fn behind(asked: Vec<ActorRef<run::Msg>>, epoch: u64, loading: &mut usize) -> Vec<ActorRef<run::Msg>> {
    let mut asking = JoinSet::new();
    for actor in asked {
        asking.spawn(async move {
            let answer = actor.call(|reply| run::Msg::IsBehind(epoch, reply), Some(ANSWER_WITHIN)).await;
            (actor, answer)
        });
    }
    let mut left = Vec::new();
    for (actor, answer) in asking.join_all().await {
        match answer {
            Ok(CallResult::Success(false)) => {}
            Ok(CallResult::Success(true) | CallResult::Timeout) => left.push(actor),
            Ok(CallResult::SenderError) | Err(_) => *loading += 1,
        }
    }
    left
}
