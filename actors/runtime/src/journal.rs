//! Group commit: appends of all runs are collected and written in one transaction while the last one commits.
//!
//! There is no linger timer: the first append goes out at once, and whatever arrives while it commits is the next batch.

use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use signalbox_domain::run::append::Entry;
use signalbox_ports::clock::Clock;
use signalbox_ports::journal::{AppendError, Appended, Journal, StoreError};

/// Most entries of one transaction.
const BATCH_ENTRIES_MAX: usize = 512;

type Answer = Result<Appended, AppendError>;

/// Cheap to clone; appends wait for their transaction.
#[derive(Clone)]
pub(crate) struct JournalHandle {
    actor: ActorRef<Msg>,
}

pub(crate) enum Msg {
    Append { entry: Box<Entry>, reply: RpcReplyPort<Answer> },
    Committed,
}

pub(crate) struct GroupCommit;

pub(crate) struct State {
    journal: Arc<dyn Journal>,
    clock: Arc<dyn Clock>,
    waiting: Vec<(Entry, RpcReplyPort<Answer>)>,
    committing: bool,
}

impl JournalHandle {
    pub(crate) const fn new(actor: ActorRef<Msg>) -> Self {
        Self { actor }
    }

    /// Writes one entry, together with whatever else is waiting.
    pub(crate) async fn append(&self, entry: Entry) -> Answer {
        let ask = |reply| Msg::Append { entry: Box::new(entry), reply };
        match self.actor.call(ask, None).await {
            Ok(ractor::rpc::CallResult::Success(answer)) => answer,
            // The commit was lost with the actor: whether it happened is found out by reading.
            Ok(ractor::rpc::CallResult::Timeout | ractor::rpc::CallResult::SenderError) | Err(_) => {
                Err(StoreError::Unknown("the journal actor went away".to_owned()).into())
            }
        }
    }
}

impl Actor for GroupCommit {
    type Msg = Msg;
    type State = State;
    type Arguments = (Arc<dyn Journal>, Arc<dyn Clock>);

    async fn pre_start(
        &self,
        _: ActorRef<Msg>,
        (journal, clock): Self::Arguments,
    ) -> Result<State, ActorProcessingErr> {
        Ok(State { journal, clock, waiting: Vec::new(), committing: false })
    }

    async fn handle(&self, myself: ActorRef<Msg>, message: Msg, state: &mut State) -> Result<(), ActorProcessingErr> {
        match message {
            Msg::Append { entry, reply } => state.waiting.push((*entry, reply)),
            Msg::Committed => state.committing = false,
        }
        if !state.committing && !state.waiting.is_empty() {
            state.committing = true;
            let rest = state.waiting.split_off(state.waiting.len().min(BATCH_ENTRIES_MAX));
            let batch = std::mem::replace(&mut state.waiting, rest);
            tokio::spawn(commit(myself, state.journal.clone(), state.clock.clone(), batch));
        }
        Ok(())
    }
}

async fn commit(
    actor: ActorRef<Msg>,
    journal: Arc<dyn Journal>,
    clock: Arc<dyn Clock>,
    batch: Vec<(Entry, RpcReplyPort<Answer>)>,
) {
    let (entries, replies): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
    let began = clock.boot();
    // In a task of its own, so that a panic in a store ends this batch and not the group commit.
    let written = tokio::spawn(async move { journal.append(entries, began).await }).await;
    match written {
        Ok(answers) => {
            for (reply, answer) in replies.into_iter().zip(answers) {
                // A run that no longer waits has been stopped; its journal is read when it is loaded again.
                let _ = reply.send(answer);
            }
        }
        Err(error) => {
            tracing::error!(%error, "a store panicked while appending");
            for reply in replies {
                let _ = reply.send(Err(StoreError::Unknown("the store failed while writing".to_owned()).into()));
            }
        }
    }
    let _ = actor.cast(Msg::Committed);
}
