//! Steps that are ready: arguments are bound, the gate is asked, and what it says becomes asks and facts.

use serde_json::Value;
use signalbox_domain::canonical;
use signalbox_domain::governance::budget::OnExceeded;
use signalbox_domain::governance::gate::{self, Attempt, ControlState, Snapshot, Verdict};
use signalbox_domain::governance::grant::Constraints;
use signalbox_domain::governance::target::Target;
use signalbox_domain::run::append::NewEvent;
use signalbox_domain::run::binding::{self, BindingError};
use signalbox_domain::run::envelope::RunEnvelope;
use signalbox_domain::run::plan::{Step, StepKind};
use signalbox_domain::run::{approval, call};
use signalbox_domain::time::UnixMs;
use signalbox_ports::clock::BootInstant;
use signalbox_ports::journal::StoreError;
use signalbox_ports::tools::Permit;

use super::{Draft, Held, State, add};
use crate::values;

/// A wait at a bucket shorter than this is not journalled (ADM-018).
const THROTTLE_JOURNALLED_FROM_SECONDS: u64 = 5;

/// A call ready to go once it is admitted.
pub(super) struct Ready {
    pub(super) args: Value,
    pub(super) constraints: Constraints,
    pub(super) permit: Permit,
    pub(super) target: Target,
}

/// Whether a call may be sent again.
pub(super) enum Admission {
    Ready(Box<Ready>),
    Later,
    Refused,
}

impl State {
    /// Steps that are ready: their arguments are bound, the gate is asked, and what it says becomes asks and facts.
    pub(super) async fn ask(
        &mut self,
        scratch: &mut RunEnvelope,
        draft: &mut Draft,
        now: UnixMs,
    ) -> Result<(), StoreError> {
        let boot = self.shared.clock.boot();
        for index in scratch.ready_to_bind(now) {
            let step = scratch.plan.steps[index].clone();
            if self.held.get(&step.step_id).is_some_and(|held| held.until > boot) {
                continue;
            }
            if let StepKind::Approval { subject, .. } = &step.kind {
                let events = self.question(scratch, &step, subject, now).await?;
                add(scratch, &mut draft.facts, events, now);
                continue;
            }
            let prepared = match self.prepare(scratch, &step).await? {
                Ok(prepared) => prepared,
                Err(problem) => {
                    add(scratch, &mut draft.facts, vec![problem], now);
                    continue;
                }
            };
            if self.gate(scratch, &prepared, draft, now).await {
                break;
            }
        }
        Ok(())
    }

    pub(super) async fn question(
        &mut self,
        scratch: &RunEnvelope,
        step: &Step,
        subject: &Value,
        now: UnixMs,
    ) -> Result<Vec<NewEvent>, StoreError> {
        Ok(match self.bind(scratch, subject).await? {
            Err(error) => vec![call::fail_step(step, error.code(), &error.to_string())],
            Ok(bound) => {
                let looked = values::look(bound).await?;
                let stored = looked.keep(self.shared.blobs.as_ref(), &self.run.tenant_id).await?;
                approval::request(scratch, step, &looked.value, stored, now).into_iter().collect()
            }
        })
    }

    pub(super) async fn bind(
        &mut self,
        scratch: &RunEnvelope,
        args: &Value,
    ) -> Result<Result<Value, BindingError>, StoreError> {
        self.outputs.load(self.shared.blobs.as_ref(), scratch, binding::steps_bound(args)).await?;
        Ok(binding::bind(args, scratch, &|step| self.outputs.get(step)))
    }

    /// The step's call with its arguments bound; or the event that fails the step.
    pub(super) async fn prepare(
        &mut self,
        scratch: &RunEnvelope,
        step: &Step,
    ) -> Result<Result<call::Prepared, NewEvent>, StoreError> {
        let (StepKind::Tool { args, .. }, Some(target)) = (&step.kind, scratch.target_of(step)) else {
            return Ok(Err(call::fail_step(step, "internal", "the step makes no call")));
        };
        let args = match self.bind(scratch, args).await? {
            Ok(args) => args,
            Err(error) => return Ok(Err(call::fail_step(step, error.code(), &error.to_string()))),
        };
        let looked = values::look(args).await?;
        let args_hash = match &looked.digest {
            Ok(hash) => hash.clone(),
            Err(error) => {
                return Ok(Err(call::fail_step(step, canonical::NumberNotExact::CODE, &error.to_string())));
            }
        };
        let redacted_args = looked.keep(self.shared.blobs.as_ref(), &self.run.tenant_id).await?;
        let args = looked.value;
        let call_id = scratch.next_call_id(step);
        Ok(Ok(call::Prepared { call_id, step: step.clone(), target, args, args_hash, redacted_args }))
    }

    /// Asks the gate about one call; `true` if the run ends or pauses over it and no other may be asked about.
    pub(super) async fn gate(
        &mut self,
        scratch: &mut RunEnvelope,
        prepared: &call::Prepared,
        draft: &mut Draft,
        now: UnixMs,
    ) -> bool {
        let boot = self.shared.clock.boot();
        let view = self.shared.governance.view();
        let step = prepared.step.step_id.clone();
        let mut decision = self.decision(scratch, prepared, now, false).await;
        if let Some((budget_id, readings)) = self.exceeded.remove(&step) {
            // The store's own figures said no: these, and no forecast, may end or pause a run.
            let known = view.budgets.iter().find(|shared| shared.budget.budget_id == budget_id);
            let on_exceeded = known.map_or_else(OnExceeded::default, |shared| shared.budget.on_exceeded);
            decision.verdict = gate::exceeded_by_store(on_exceeded, budget_id, readings);
        }
        if !matches!(decision.verdict, Verdict::Admit(_) | Verdict::Throttle(_)) {
            self.shared.buckets.give_back(&view.state, &prepared.target);
        }
        match decision.verdict {
            // Asked about again at once, when the journal says what became of the calls beside it.
            Verdict::Admit(admissible) if !call::fits_beside(scratch, &draft.asks, &admissible, now) => {
                self.shared.buckets.give_back(&view.state, &prepared.target);
            }
            Verdict::Admit(admissible) => match self.shared.tools.permit(&prepared.target.tool_id) {
                Some(permit) => {
                    let ready = Ready {
                        args: prepared.args.clone(),
                        constraints: admissible.grant.constraints.clone(),
                        permit,
                        target: prepared.target.clone(),
                    };
                    draft.asks.push(call::admit(prepared, &admissible, now));
                    draft.calls.insert(prepared.call_id, ready);
                }
                // hold(executor-busy) is not journalled.
                None => {
                    self.shared.buckets.give_back(&view.state, &prepared.target);
                    self.hold(&step, boot);
                }
            },
            Verdict::Deny { code, message } => {
                draft.asks.push(call::deny(prepared, code, &message, decision.answers, now));
            }
            Verdict::Kill(blame) => {
                draft.asks = vec![call::kill(scratch, prepared, &blame, decision.answers, now)];
                draft.calls.clear();
                return true;
            }
            Verdict::Pause { budget_id, readings } => {
                draft.asks = vec![call::pause_for_quota(scratch, prepared, &budget_id, &readings, now)];
                draft.calls.clear();
                return true;
            }
            Verdict::Throttle(throttled) if throttled.retry_after_seconds < THROTTLE_JOURNALLED_FROM_SECONDS => {
                let until = BootInstant(boot.0.saturating_add(throttled.retry_after_seconds * 1_000_000_000));
                self.held.insert(step, Held { until, times: 0 });
            }
            Verdict::Throttle(throttled) => {
                let waits = call::throttle(prepared, &throttled, now);
                add(scratch, &mut draft.facts, vec![waits], now);
            }
            Verdict::Hold { reason } => {
                tracing::debug!(run = %self.run.run_id, %step, reason = reason.code(), "held");
                self.hold(&step, boot);
            }
        }
        false
    }

    pub(super) async fn decision(
        &self,
        scratch: &RunEnvelope,
        prepared: &call::Prepared,
        now: UnixMs,
        redispatch: bool,
    ) -> gate::Decision {
        let view = self.shared.governance.view();
        let throttled = self.shared.buckets.take(&view.state, &prepared.target).await.err();
        let configured = self.shared.tools.configured();
        let semver = configured.iter().find(|(tool, _)| *tool == prepared.target.tool_id).map(|(_, v)| v.as_str());
        let attempt = Attempt {
            target: &prepared.target,
            tool: signalbox_domain::catalog::entry(&prepared.target.tool_id),
            configured_semver: semver,
            scopes: &scratch.scopes,
            args: &prepared.args,
            control: ControlState::None,
            redispatch,
            now,
        };
        let snapshot = Snapshot {
            governance_current: view.is_current(self.shared.clock.boot())
                && self.shared.lease.is_held(self.shared.clock.boot()),
            state: &view.state,
            shared_budgets: &view.budgets,
            run_budgets: &scratch.run_budgets,
            run_grants: &scratch.grants,
            grant_uses: &scratch.grant_uses,
            throttled,
            exempt: &self.shared.exempt,
        };
        gate::gate(&attempt, &snapshot)
    }

    /// The gate's answer for a call that is to be sent again under a reservation that is still held.
    pub(super) async fn admission(
        &mut self,
        scratch: &RunEnvelope,
        prepared: &call::Prepared,
        now: UnixMs,
    ) -> Admission {
        let view = self.shared.governance.view();
        match self.decision(scratch, prepared, now, true).await.verdict {
            Verdict::Admit(admissible) => match self.shared.tools.permit(&prepared.target.tool_id) {
                Some(permit) => Admission::Ready(Box::new(Ready {
                    args: prepared.args.clone(),
                    constraints: admissible.grant.constraints,
                    permit,
                    target: prepared.target.clone(),
                })),
                None => {
                    self.shared.buckets.give_back(&view.state, &prepared.target);
                    Admission::Later
                }
            },
            Verdict::Throttle(_) | Verdict::Hold { .. } => Admission::Later,
            Verdict::Deny { .. } | Verdict::Kill(_) | Verdict::Pause { .. } => {
                self.shared.buckets.give_back(&view.state, &prepared.target);
                Admission::Refused
            }
        }
    }
}
