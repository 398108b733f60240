//! After the journal has accepted: only now the memory changes, and calls go out.

use std::collections::BTreeMap;
use std::sync::Arc;

use ractor::ActorRef;
use signalbox_domain::run::append::AskRefusal;
use signalbox_domain::run::evolve::{FoldError, fold_read};
use signalbox_ports::clock::BootInstant;
use signalbox_ports::journal::{Admitted, Appended, AskOutcome, StoreError};
use signalbox_ports::tools::CallOrder;

use super::asking::Ready;
use super::{Asked, Draft, Held, Msg, Pass, State, backoff_ms};
use crate::dispatch;
use crate::load::{SNAPSHOT_EVERY, corrupt, keep_snapshot};
use crate::progress::Item;

impl State {
    /// The journal has accepted: only now the memory changes and calls go out.
    pub(super) async fn accepted(
        &mut self,
        myself: &ActorRef<Msg>,
        appended: Appended,
        asks: Vec<Asked>,
        mut draft: Draft,
    ) -> Result<Pass, StoreError> {
        self.store_trouble = 0;
        let (run, mut read_back) = (Arc::make_mut(&mut self.run), appended.read_back.iter());
        for event in appended.events {
            // One that cannot be read back is not there.
            let read = read_back.next().ok_or(FoldError { seq: event.seq, problem: "it cannot be read back" });
            read.and_then(|read| fold_read(run, &event, read)).map_err(|error| corrupt(run.run_key, &error))?;
            self.shared.hub.publish(run.run_key, Item::Event(Arc::new(event)));
        }
        self.shared.hub.publish(self.run.run_key, Item::Answered);
        for ended in self.ended.drain(..draft.settled.min(self.ended.len())) {
            self.shared.flights.landed(self.run.run_key, ended.call_id);
        }
        let mut stale = false;
        for (outcome, ask) in appended.asks.into_iter().zip(asks) {
            let ready = draft.calls.remove(&ask.call_id);
            match (outcome, ready) {
                (AskOutcome::Admitted(admitted), Some(ready)) => {
                    self.held.remove(&ask.step_id);
                    self.shared.buckets.used(ask.call_id);
                    self.send(myself, admitted, &ask, ready);
                }
                (AskOutcome::Admitted(_) | AskOutcome::Recorded, _) => {}
                // It asks again, and what was taken for it stays its own until then.
                (AskOutcome::Refused(refusal), _) => stale |= self.refused(&ask, refusal),
            }
        }
        if stale {
            self.shared.governance.refresh().await;
        }
        if self.run.end.is_some() {
            self.shared.buckets.leave_all(self.run.run_key);
            self.cancel_calls(myself);
        }
        if self.run.last_seq >= self.snapshot_at + SNAPSHOT_EVERY {
            self.snapshot_at = self.run.last_seq;
            keep_snapshot(self.shared.store.as_ref(), &self.run).await;
        }
        Ok(Pass::Again)
    }

    pub(super) fn refused(&mut self, ask: &Asked, refusal: AskRefusal) -> bool {
        match refusal {
            AskRefusal::Commanded => {
                self.inbox_waiting = true;
                false
            }
            AskRefusal::Exceeded { budget_id, readings } => {
                self.exceeded.insert(ask.step_id.clone(), (budget_id, readings));
                false
            }
            // Nobody else makes such an id: what stands in the journal is looked at again, a little later.
            AskRefusal::SubRunTaken => {
                let boot = self.shared.clock.boot();
                self.hold(&ask.step_id, boot);
                tracing::error!(run = %self.run.run_id, step = %ask.step_id, "the id of the sub-run is in use");
                false
            }
            AskRefusal::Stale { .. } => {
                // The first times at once; a step that keeps finding the epoch moved backs off.
                let boot = self.shared.clock.boot();
                let held = self.held.entry(ask.step_id.clone()).or_insert(Held { until: boot, times: 0 });
                held.times = held.times.saturating_add(1);
                if held.times > 3 {
                    held.until = BootInstant(boot.0.saturating_add(backoff_ms(held.times) * 1_000_000));
                }
                true
            }
        }
    }

    pub(super) fn send(&mut self, myself: &ActorRef<Msg>, admitted: Admitted, ask: &Asked, ready: Ready) {
        let Some(record) = self.run.call(ask.call_id) else { return };
        let order = CallOrder {
            call_id: record.call_id,
            attempt: record.attempt,
            tenant_id: self.run.tenant_id.clone(),
            run_id: self.run.run_id,
            step_id: record.step_id.clone(),
            tool_id: record.tool_id.clone(),
            tool_semver: record.tool_semver.clone(),
            args: ready.args,
            secrets: BTreeMap::new(),
            ceiling: record.estimated_usage.clone(),
            timeout_ms: record.timeout_ms,
            constraints: ready.constraints,
            trace: None,
        };
        self.is_out(order.call_id, order.tool_id.clone());
        dispatch::send(self.outside(myself), admitted, order, ready.secrets, ready.permit);
    }

    pub(super) fn cancel_calls(&mut self, myself: &ActorRef<Msg>) {
        let outside = self.outside(myself);
        for (call_id, tool) in &self.out {
            if self.cancelled.insert(*call_id) {
                dispatch::cancel(&outside, tool.clone(), *call_id);
            }
        }
    }
}
