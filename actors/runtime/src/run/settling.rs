//! Calls that have ended, and calls that nobody will report on: what becomes facts, what is tried again (RUN-026).

use std::collections::VecDeque;

use ractor::ActorRef;
use signalbox_domain::ids::CallId;
use signalbox_domain::run::envelope::RunEnvelope;
use signalbox_domain::run::settle::{Ended, Recover, recover, settle, unknown_result};
use signalbox_domain::run::step::CallEnding;
use signalbox_domain::run::{call, sweep};
use signalbox_domain::time::UnixMs;
use signalbox_ports::journal::StoreError;

use super::asking::{Admission, Unready};
use super::{Draft, Msg, State, add};
use crate::dispatch;

impl State {
    /// Facts from finished calls. A call that can be recovered is not settled; it is taken up by `recover_orphans`.
    pub(super) fn settle_ended(&mut self, scratch: &mut RunEnvelope, draft: &mut Draft, now: UnixMs) {
        let boot = self.shared.clock.boot();
        let mut kept = VecDeque::with_capacity(self.ended.len());
        for ended in std::mem::take(&mut self.ended) {
            let open = scratch.call(ended.call_id).filter(|call| call.open && !self.given_up.contains(&call.call_id));
            let recoverable = open.is_some_and(|call| {
                let lost = match &ended.result.ending {
                    CallEnding::Unknown { .. } => true,
                    // An earlier attempt under this id may have gone through.
                    CallEnding::NotStarted { .. } => call.attempt > 1,
                    CallEnding::Answered { .. } | CallEnding::Failed { .. } | CallEnding::Cancelled => false,
                };
                let again = matches!(recover(scratch, call), Recover::Redispatch { .. });
                lost && again && scratch.end.is_none() && !self.given_up.contains(&ended.call_id)
            });
            if recoverable {
                if let Some(step) = scratch.call(ended.call_id).map(|call| call.step_id.clone()) {
                    self.hold(&step, boot);
                }
                continue;
            }
            let (events, release) = settle(scratch, &ended, now);
            if let (CallEnding::NotStarted { .. }, Some(call)) = (&ended.result.ending, scratch.call(ended.call_id)) {
                let step = call.step_id.clone();
                self.hold(&step, boot);
            }
            add(scratch, &mut draft.facts, events, now);
            draft.releases.extend(release);
            kept.push_back(ended);
        }
        draft.settled = kept.len();
        // Until the append is accepted they are only spoken for.
        self.ended = kept;
    }

    /// An armed switch ends a matching run at once, also one that asks for nothing (KIL-010).
    pub(super) fn sweep(&mut self, scratch: &mut RunEnvelope, draft: &mut Draft, now: UnixMs) {
        let view = self.shared.governance.view();
        if self.swept_at == Some(view.state.epoch) {
            return;
        }
        self.swept_at = Some(view.state.epoch);
        if let Some(switch) = sweep::swept_by(scratch, &view.state.switches, now) {
            let events = sweep::sweep(scratch, switch);
            add(scratch, &mut draft.facts, events, now);
        }
    }

    /// Calls that are open and that no task of this process will report on (RUN-026).
    pub(super) async fn recover_orphans(
        &mut self,
        myself: &ActorRef<Msg>,
        scratch: &RunEnvelope,
        draft: &mut Draft,
        now: UnixMs,
    ) -> Result<(), StoreError> {
        let boot = self.shared.clock.boot();
        let orphans: Vec<_> = scratch
            .open_calls()
            .filter(|call| !self.out.contains_key(&call.call_id))
            .filter(|call| !self.ended.iter().any(|ended| ended.call_id == call.call_id))
            .filter(|call| self.held.get(&call.step_id).is_none_or(|held| held.until <= boot))
            .cloned()
            .collect();
        for orphan in orphans {
            match recover(scratch, &orphan) {
                Recover::Redispatch { attempt } => {
                    let Some(step) = scratch.plan.step(&orphan.step_id).cloned() else { continue };
                    let again = match self.prepare(scratch, &step).await? {
                        Ok(prepared) if prepared.args_hash == orphan.args_hash => {
                            self.admission(scratch, &prepared, now).await
                        }
                        Err(Unready::Waits) => Admission::Later,
                        Ok(_) | Err(Unready::Fails(_)) => Admission::Refused,
                    };
                    match again {
                        Admission::Ready(ready) => {
                            draft.asks.push(call::redispatch(&orphan, ready.target.clone(), attempt, now));
                            draft.calls.insert(orphan.call_id, *ready);
                        }
                        Admission::Later => self.hold(&orphan.step_id, boot),
                        Admission::Refused => self.give_up(&orphan.call_id),
                    }
                }
                Recover::AskOutcome => {
                    self.out.insert(orphan.call_id, orphan.tool_id.clone());
                    dispatch::ask_outcome(self.outside(myself), orphan.tool_id, orphan.call_id, orphan.secrets);
                }
                Recover::Unknown => self.give_up(&orphan.call_id),
                Recover::Cancel => {
                    self.out.insert(orphan.call_id, orphan.tool_id.clone());
                    dispatch::cancel_orphan(self.outside(myself), orphan.tool_id, orphan.call_id);
                }
            }
        }
        if self.ended.len() > draft.settled {
            self.schedule(myself);
        }
        Ok(())
    }

    /// The call is not sent again, though its tool would let it be: it is settled as unknown.
    pub(super) fn give_up(&mut self, call_id: &CallId) {
        self.given_up.insert(*call_id);
        let result = unknown_result("the node that made the call went away before its answer was kept");
        self.ended.push_back(Ended { call_id: *call_id, result, stored_output: None });
    }
}
