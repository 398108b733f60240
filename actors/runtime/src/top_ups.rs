//! Top-ups that were recorded, on their way to the runs that their budgets held.
//!
//! A top-up is an act, and what follows from it is not in its transaction: the runs are told afterwards, by the node that did
//! it. That node may die in between, and a run may be held by a decision that did not know of the top-up yet. So every node
//! reads the acts of all, and tells the runs again what the last top-up of each budget said. The command has the same id each
//! time, so a run that was told is not told twice, and one top-up lets a run ask again at most once.

use std::collections::BTreeMap;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use signalbox_domain::governance::audit::{AuditEvent, AuditKind};
use signalbox_ports::acts::{AUDIT_ROWS_MAX, AuditFilter};
use signalbox_ports::journal::StoreError;

use crate::node::NodeHandle;

/// How often acts are looked for. What was seen at one look is carried out at the next: by then whoever did it is done.
const EVERY: Duration = Duration::from_secs(5);

pub(crate) enum Msg {
    Look,
}

pub(crate) struct TopUpsActor;

pub(crate) struct State {
    node: NodeHandle,
    /// The last act that was read.
    seen: u64,
    /// The last top-up of each budget that was not followed up yet.
    due: BTreeMap<String, AuditEvent>,
}

impl Actor for TopUpsActor {
    type Msg = Msg;
    type State = State;
    type Arguments = NodeHandle;

    async fn pre_start(&self, myself: ActorRef<Msg>, node: NodeHandle) -> Result<State, ActorProcessingErr> {
        myself.send_interval(EVERY, || Msg::Look);
        // What was done before this node began is read before its first look, and so carried out by that.
        let mut state = State { node, seen: 0, due: BTreeMap::new() };
        if let Err(error) = state.read().await {
            tracing::warn!(%error, "acts from before cannot be read yet");
        }
        let _ = myself.cast(Msg::Look);
        Ok(state)
    }

    async fn handle(&self, _: ActorRef<Msg>, Msg::Look: Msg, state: &mut State) -> Result<(), ActorProcessingErr> {
        state.follow_up().await;
        if let Err(error) = state.read().await {
            tracing::warn!(%error, "acts cannot be read yet");
        }
        Ok(())
    }
}

impl State {
    /// Tells the runs. What cannot be done yet is tried again.
    async fn follow_up(&mut self) {
        for (subject, act) in std::mem::take(&mut self.due) {
            match self.node.follow_up_top_up(&act).await {
                Ok(0) => {}
                Ok(told) => tracing::info!(%subject, act = act.seq, runs = told, "a top-up is followed up"),
                Err(error) => {
                    tracing::warn!(%error, %subject, "a top-up cannot be followed up yet");
                    self.due.entry(subject).or_insert(act);
                }
            }
        }
    }

    async fn read(&mut self) -> Result<(), StoreError> {
        loop {
            let filter = AuditFilter { after_seq: self.seen, limit: AUDIT_ROWS_MAX, ..AuditFilter::default() };
            let page = self.node.acts().audit(&filter).await?;
            let is_last = page.len() < AUDIT_ROWS_MAX;
            for act in page {
                self.seen = act.seq;
                if act.kind == AuditKind::BudgetToppedUp.as_str() {
                    self.due.insert(act.subject.to_string(), act);
                }
            }
            if is_last {
                return Ok(());
            }
        }
    }
}
