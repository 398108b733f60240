//! Calls that have ended, and calls that nobody will report on: what becomes facts, what is tried again (RUN-026).

use std::collections::VecDeque;
use std::sync::Arc;

use ractor::ActorRef;
use signalbox_domain::ids::CallId;
use signalbox_domain::invocation::ToneVerdict;
use signalbox_domain::run::envelope::RunEnvelope;
use signalbox_domain::run::settle::{Ended, Recover, recover, settle, unknown_result};
use signalbox_domain::run::step::CallEnding;
use signalbox_domain::run::{call, sweep};
use signalbox_domain::time::UnixMs;
use signalbox_ports::journal::StoreError;

use super::asking::{Admission, Unready};
use super::{At, Draft, Msg, State, add};
use crate::dispatch;

impl State {
    /// Facts from finished calls. A call that can be recovered, by sending it again or by asking once what became of it,
    /// is not settled; it is taken up by `recover_orphans`.
    pub(super) fn settle_ended(&mut self, scratch: &mut Arc<RunEnvelope>, draft: &mut Draft, At { now, boot }: At) {
        let mut kept = VecDeque::with_capacity(self.ended.len());
        for ended in std::mem::take(&mut self.ended) {
            let recoverable = scratch.call(ended.call_id).filter(|call| call.open).is_some_and(|call| {
                let lost = match &ended.result.ending {
                    CallEnding::Unknown { .. } => true,
                    // An earlier attempt under this id may have gone through.
                    CallEnding::NotStarted { .. } => call.attempt > 1,
                    CallEnding::Answered { .. } | CallEnding::Failed { .. } | CallEnding::Cancelled => false,
                };
                let more = match recover(scratch, call) {
                    Recover::Redispatch { .. } => !self.given_up.contains(&call.call_id),
                    Recover::AskOutcome => !self.asked.contains(&call.call_id),
                    Recover::Unknown | Recover::Cancel => false,
                };
                lost && more
            });
            if recoverable {
                if let Some(step) = scratch.call(ended.call_id).map(|call| call.step_id.clone()) {
                    self.hold(&step, boot);
                }
                self.shared.flights.landed(scratch.run_key, ended.call_id);
                continue;
            }
            let (events, release) = settle(scratch, &ended, now);
            if events.is_empty() {
                // It tells the journal nothing.
                self.shared.flights.landed(scratch.run_key, ended.call_id);
                continue;
            }
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
    pub(super) fn sweep(&mut self, scratch: &mut Arc<RunEnvelope>, draft: &mut Draft, now: UnixMs) {
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
        At { now, boot }: At,
    ) -> Result<(), StoreError> {
        self.ask_about_unknown(myself);
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
                        Admission::InLine(throttled) => {
                            self.line_up(orphan.call_id, orphan.step_id.clone(), &throttled, boot);
                        }
                        Admission::Later => self.hold(&orphan.step_id, boot),
                        Admission::Refused => self.give_up(&orphan.call_id),
                    }
                }
                Recover::AskOutcome => {
                    self.asked.insert(orphan.call_id);
                    self.is_out(orphan.call_id, orphan.tool_id.clone());
                    dispatch::ask_outcome(self.outside(myself), (&orphan).into());
                }
                Recover::Unknown => self.give_up(&orphan.call_id),
                Recover::Cancel => {
                    self.is_out(orphan.call_id, orphan.tool_id.clone());
                    dispatch::cancel_orphan(self.outside(myself), (&orphan).into());
                }
            }
        }
        if self.ended.len() > draft.settled {
            self.schedule(myself);
        }
        Ok(())
    }

    /// Calls that were given up and whose question is still open: their executors may know more after all.
    fn ask_about_unknown(&mut self, myself: &ActorRef<Msg>) {
        if self.run.approvals.is_empty() {
            return;
        }
        let outside = self.outside(myself);
        let open = self.run.approvals.iter().filter(|approval| approval.is_open());
        for call in open.filter_map(|approval| self.run.call(approval.call_id?)) {
            if self.asked.insert(call.call_id) {
                dispatch::ask_late(outside.clone(), call.into());
            }
        }
    }

    /// The call is not sent again, though its tool would let it be: it is settled as unknown.
    pub(super) fn give_up(&mut self, call_id: &CallId) {
        self.given_up.insert(*call_id);
        let result = unknown_result("the node that made the call went away before its answer was kept");
        self.ended.push_back(Arc::new(Ended {
            call_id: *call_id,
            result,
            stored_output: None,
            tone: ToneVerdict::Pass,
        }));
    }
}
