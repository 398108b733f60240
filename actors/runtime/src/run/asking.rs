//! Steps that are ready: arguments are bound, the gate is asked, and what it says becomes asks and facts.

use std::sync::Arc;

use serde_json::Value;
use signalbox_domain::canonical;
use signalbox_domain::governance::budget::OnExceeded;
use signalbox_domain::governance::change::GovernanceState;
use signalbox_domain::governance::gate::{self, Attempt, ControlState, Snapshot, Verdict};
use signalbox_domain::governance::grant::Constraints;
use signalbox_domain::governance::queue::Claimant;
use signalbox_domain::governance::target::Target;
use signalbox_domain::governance::throttle::Throttled;
use signalbox_domain::ids::{CallId, StepId};
use signalbox_domain::run::append::NewEvent;
use signalbox_domain::run::binding::{self, Bound};
use signalbox_domain::run::envelope::RunEnvelope;
use signalbox_domain::run::plan::{Step, StepKind};
use signalbox_domain::run::sealed::{Part, SealedRef};
use signalbox_domain::run::{approval, call};
use signalbox_domain::time::UnixMs;
use signalbox_ports::clock::BootInstant;
use signalbox_ports::journal::StoreError;
use signalbox_ports::sealing::SealError;
use signalbox_ports::tools::Permit;

use super::{At, Draft, Held, State, add};
use crate::dispatch::Handles;
use crate::values;

/// A wait at a bucket shorter than this is not journalled (ADM-018).
const THROTTLE_JOURNALLED_FROM_SECONDS: u64 = 5;
/// How long after its time a call that waits at a bucket asks although nobody has told it to.
const TURN_SLACK_SECONDS: u64 = 2;

/// A call ready to go once it is admitted.
pub(super) struct Ready {
    pub(super) args: Value,
    pub(super) secrets: Handles,
    pub(super) constraints: Constraints,
    pub(super) permit: Permit,
    pub(super) target: Target,
}

/// Why a step's arguments are not there.
pub(super) enum Unready {
    /// The step fails, by this event.
    Fails(Box<NewEvent>),
    /// What they are sealed with is missing; they are there once it is back.
    Waits,
}

impl Unready {
    pub(super) fn fails(step: &Step, code: &str, message: &str) -> Self {
        Self::Fails(Box::new(call::fail_step(step, code, message)))
    }
}

/// Whether a call may be sent again.
pub(super) enum Admission {
    Ready(Box<Ready>),
    Later,
    /// It is told when its turn comes.
    InLine(Throttled),
    Refused,
}

impl State {
    /// Steps that are ready: their arguments are bound, the gate is asked, and what it says becomes asks and facts.
    pub(super) async fn ask(
        &mut self,
        scratch: &mut Arc<RunEnvelope>,
        draft: &mut Draft,
        at: At,
    ) -> Result<(), StoreError> {
        let At { now, boot } = at;
        for index in scratch.ready_to_bind(now) {
            let step = scratch.plan.steps[index].clone();
            if self.held.get(&step.step_id).is_some_and(|held| held.until > boot) {
                continue;
            }
            if matches!(step.kind, StepKind::Agent { .. }) {
                if self.hand_off(scratch, &step, draft, at).await? {
                    break;
                }
                continue;
            }
            if let Some(fallback) = self.falls_back(scratch, &step, now) {
                add(scratch, &mut draft.facts, vec![fallback], now);
            }
            let prepared = if matches!(step.kind, StepKind::Approval { .. }) {
                self.question(scratch, &step, now).await?.map(Err)
            } else {
                self.prepare(scratch, &step).await?.map(Ok)
            };
            let prepared = match prepared {
                Ok(Ok(prepared)) => prepared,
                Ok(Err(mut question)) => {
                    // A gate that has said no by itself needs no other answer.
                    if question.len() == 1 {
                        let answer = question.first().and_then(|asked| approval::answered_in_rehearsal(scratch, asked));
                        question.extend(answer);
                    }
                    add(scratch, &mut draft.facts, question, now);
                    continue;
                }
                Err(Unready::Fails(problem)) => {
                    add(scratch, &mut draft.facts, vec![*problem], now);
                    continue;
                }
                Err(Unready::Waits) => {
                    self.hold(&step.step_id, boot);
                    continue;
                }
            };
            if self.gate(scratch, &prepared, draft, at).await? {
                break;
            }
        }
        Ok(())
    }

    async fn question(
        &mut self,
        scratch: &RunEnvelope,
        step: &Step,
        now: UnixMs,
    ) -> Result<Result<Vec<NewEvent>, Unready>, StoreError> {
        let subject = match self.bind(scratch, step).await? {
            Ok(bound) => bound.value,
            Err(unready) => return Ok(Err(unready)),
        };
        let mut args = Vec::new();
        for guarded in approval::guarded(scratch, step) {
            match self.bind(scratch, guarded).await? {
                Ok(bound) => args.push(bound.value),
                Err(unready) => return Ok(Err(unready)),
            }
        }
        let looked = values::look(approval::shown(scratch, step, subject, args)).await?;
        let stored = looked.keep(self.shared.blobs.as_ref(), &self.run.tenant_id).await?;
        let asked = approval::request(scratch, step, &looked.value, stored, now);
        let no = asked.as_ref().and_then(|asked| approval::refused_by_itself(step, asked, &looked.value));
        Ok(Ok(asked.into_iter().chain(no).collect()))
    }

    /// What the step's bindings stand in, as the caller said it, with every binding replaced.
    pub(super) async fn bind(
        &mut self,
        scratch: &RunEnvelope,
        step: &Step,
    ) -> Result<Result<Bound, Unready>, StoreError> {
        let Some(document) = step.kind.document() else {
            return Ok(Err(Unready::fails(step, "internal", "the step binds nothing")));
        };
        let opened = match scratch.sealed.steps.get(&step.step_id) {
            Some(at) => Some(self.unsealed(scratch, step, Part::Step(step.step_id.clone()), at).await?),
            None => None,
        };
        let inputs = match &scratch.sealed.inputs {
            Some(at) if binding::reads_inputs(document) => Some(self.unsealed(scratch, step, Part::Inputs, at).await?),
            Some(_) | None => None,
        };
        let (opened, inputs) = match (opened.transpose(), inputs.transpose()) {
            (Ok(opened), Ok(inputs)) => (opened, inputs),
            (Err(unready), _) | (_, Err(unready)) => return Ok(Err(unready)),
        };
        let document = opened.as_deref().unwrap_or(document);
        self.outputs.load(self.shared.blobs.as_ref(), scratch, binding::steps_bound(document)).await?;
        let inputs = inputs.as_deref().unwrap_or(&scratch.inputs);
        let sources = binding::Sources { run: scratch, inputs, output: &|step| self.outputs.get(step) };
        Ok(binding::bind(document, sources).map_err(|error| Unready::fails(step, error.code(), &error.to_string())))
    }

    async fn unsealed(
        &mut self,
        scratch: &RunEnvelope,
        step: &Step,
        part: Part,
        at: &SealedRef,
    ) -> Result<Result<Arc<Value>, Unready>, StoreError> {
        let opened = self.unsealed.open(&self.shared, &scratch.tenant_id, part, at).await?;
        Ok(opened.map_err(|error| match error {
            SealError::Damaged => Unready::fails(step, error.code(), &error.to_string()),
            SealError::NoKey | SealError::UnknownKey(_) | SealError::Failed => {
                tracing::warn!(run = %self.run.run_id, step = %step.step_id, %error, "held");
                Unready::Waits
            }
        }))
    }

    /// The step's call with its arguments bound.
    pub(super) async fn prepare(
        &mut self,
        scratch: &RunEnvelope,
        step: &Step,
    ) -> Result<Result<call::Prepared, Unready>, StoreError> {
        if matches!(step.kind, StepKind::Turn { .. }) {
            return self.prepare_turn(scratch, step).await;
        }
        let Some(target) = scratch.target_of(step) else {
            return Ok(Err(Unready::fails(step, "internal", "the step makes no call")));
        };
        if let Some(unready) = Self::beyond_delegation(scratch, step) {
            return Ok(Err(unready));
        }
        let bound = match self.bind(scratch, step).await? {
            Ok(bound) => bound,
            Err(unready) => return Ok(Err(unready)),
        };
        let looked = values::look(bound.value).await?;
        let args_hash = match &looked.digest {
            Ok(hash) => hash.clone(),
            Err(error) => {
                return Ok(Err(Unready::fails(step, canonical::NumberNotExact::CODE, &error.to_string())));
            }
        };
        let redacted_args = looked.keep(self.shared.blobs.as_ref(), &self.run.tenant_id).await?;
        let (args, secrets) = (looked.value, bound.secrets);
        let call_id = scratch.next_call_id(step);
        Ok(Ok(call::Prepared { call_id, step: step.clone(), target, args, args_hash, redacted_args, secrets }))
    }

    /// Asks the gate about one call; `true` if the run ends or pauses over it and no other may be asked about.
    pub(super) async fn gate(
        &mut self,
        scratch: &mut Arc<RunEnvelope>,
        prepared: &call::Prepared,
        draft: &mut Draft,
        At { now, boot }: At,
    ) -> Result<bool, StoreError> {
        let view = self.shared.governance.view();
        let step = prepared.step.step_id.clone();
        let mut decision = self.decision(scratch, prepared, now, false).await;
        if let Some((budget_id, readings)) = self.exceeded.remove(&step) {
            // The store's own figures said no: these, and no forecast, may end or pause a run.
            let known = view.budgets.iter().find(|shared| shared.budget.budget_id == budget_id);
            let on_exceeded = known.map_or_else(OnExceeded::default, |shared| shared.budget.on_exceeded);
            decision.verdict = gate::exceeded_by_store(on_exceeded, budget_id, readings);
        }
        // What is only held asks again, and keeps its place and its tokens until then.
        if !matches!(decision.verdict, Verdict::Admit(_) | Verdict::Throttle(_) | Verdict::Hold { .. }) {
            self.shared.buckets.leave(prepared.call_id);
        }
        match decision.verdict {
            // Asked about again at once, when the journal says what became of the calls beside it.
            Verdict::Admit(admissible) if !call::fits_beside(scratch, &draft.asks, &admissible, now) => {}
            Verdict::Admit(mut admissible) => match self.shared.tools.permit(&prepared.target.tool_id) {
                Some(permit) => {
                    if let Some(declared) = self.shared.tools.declared(&prepared.target.tool_id) {
                        admissible.recovery = admissible.recovery.as_declared(declared);
                    }
                    let ready = Ready {
                        args: prepared.args.clone(),
                        secrets: prepared.secrets.clone(),
                        constraints: admissible.grant.constraints.clone(),
                        permit,
                        target: prepared.target.clone(),
                    };
                    draft.asks.push(call::admit(prepared, &admissible, now));
                    draft.calls.insert(prepared.call_id, ready);
                }
                // hold(executor-busy) is not journalled.
                None => self.hold(&step, boot),
            },
            Verdict::Simulate(simulated) => {
                draft.asks.push(self.simulated(scratch, prepared, &simulated, decision.answers, now).await?);
            }
            Verdict::Deny { code, message } => {
                draft.asks.push(call::deny(prepared, code, &message, decision.answers, now));
            }
            Verdict::Kill(blame) => {
                draft.asks = vec![call::kill(scratch, prepared, &blame, decision.answers, now)];
                draft.calls.clear();
                return Ok(true);
            }
            Verdict::Pause { budget_id, readings } => {
                draft.asks = vec![call::pause_for_quota(scratch, prepared, &budget_id, &readings, now)];
                draft.calls.clear();
                return Ok(true);
            }
            Verdict::Throttle(throttled) if self.waits_too_long(scratch, &prepared.step, &throttled).is_some() => {
                self.shared.buckets.leave(prepared.call_id);
                let fallback = self.waits_too_long(scratch, &prepared.step, &throttled);
                add(scratch, &mut draft.facts, fallback.into_iter().collect(), now);
            }
            Verdict::Throttle(throttled) if throttled.retry_after_seconds < THROTTLE_JOURNALLED_FROM_SECONDS => {
                self.line_up(prepared.call_id, step, &throttled, boot);
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
        Ok(false)
    }

    /// Nobody asks about the step until its turn has come. The time is for when nobody tells it, because it waits longer than
    /// was foreseen.
    pub(super) fn line_up(&mut self, call_id: CallId, step: StepId, throttled: &Throttled, boot: BootInstant) {
        let wait_ns = throttled.retry_after_seconds.saturating_add(TURN_SLACK_SECONDS).saturating_mul(1_000_000_000);
        self.lined_up.insert(call_id, step.clone());
        self.held.insert(step, Held { until: BootInstant(boot.0.saturating_add(wait_ns)), times: 0 });
    }

    pub(super) async fn decision(
        &self,
        scratch: &RunEnvelope,
        prepared: &call::Prepared,
        now: UnixMs,
        redispatch: bool,
    ) -> gate::Decision {
        let view = self.shared.governance.view();
        let throttled = if !takes_tokens(scratch, &prepared.step) {
            None
        } else {
            let who = Claimant { run_key: scratch.run_key, call_id: prepared.call_id };
            self.shared.buckets.take(&view.state, who, &prepared.target).await.err()
        };
        let turn = self.turn_of(scratch, prepared);
        let semver = match &turn {
            Some((_, semver)) => semver.clone(),
            None => self.shared.tools.semver(&prepared.target.tool_id),
        };
        let unapproved = approval::objection(scratch, &prepared.step, &prepared.args_hash);
        let attempt = Attempt {
            target: &prepared.target,
            declared: scratch.agents.declares(&prepared.target.agent_id, &prepared.target.tool_id),
            tool: match &turn {
                Some((entry, _)) => Some(entry),
                None => signalbox_domain::catalog::entry(&prepared.target.tool_id),
            },
            configured_semver: semver.as_deref(),
            scopes: &scratch.scopes,
            args: &prepared.args,
            secrets: &prepared.secrets,
            unapproved: unapproved.as_deref(),
            control: ControlState::None,
            redispatch,
            rehearsal: scratch.is_rehearsal(),
            guarded: prepared.step.kind.approved_by().is_some(),
            now,
        };
        let handed = Self::handed_grants(scratch, &view.state.grants)
            .map(|grants| GovernanceState { grants, ..GovernanceState::clone(&view.state) });
        let snapshot = Snapshot {
            governance_current: view.is_current(self.shared.clock.boot())
                && self.shared.lease.is_held(self.shared.clock.boot()),
            state: handed.as_ref().unwrap_or(&view.state),
            shared_budgets: &view.budgets,
            run_budgets: &scratch.run_budgets,
            run_grants: &scratch.grants,
            grant_uses: &scratch.grant_uses,
            throttled,
            exempt: &self.shared.exempt,
            secrets: self.shared.secrets.rules(),
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
        match self.decision(scratch, prepared, now, true).await.verdict {
            Verdict::Admit(admissible) => match self.shared.tools.permit(&prepared.target.tool_id) {
                Some(permit) => Admission::Ready(Box::new(Ready {
                    args: prepared.args.clone(),
                    secrets: prepared.secrets.clone(),
                    constraints: admissible.grant.constraints,
                    permit,
                    target: prepared.target.clone(),
                })),
                None => Admission::Later,
            },
            Verdict::Throttle(throttled) => Admission::InLine(throttled),
            Verdict::Hold { .. } => Admission::Later,
            // What a stand-in answers is settled where it is recorded: an open call is none of those.
            Verdict::Simulate(_) => Admission::Refused,
            Verdict::Deny { .. } | Verdict::Kill(_) | Verdict::Pause { .. } => {
                self.shared.buckets.leave(prepared.call_id);
                Admission::Refused
            }
        }
    }
}

/// A call that a stand-in answers takes nothing from a bucket; neither does a shadow, which would take it from the run beside
/// which it works (FBK-009).
fn takes_tokens(scratch: &RunEnvelope, step: &Step) -> bool {
    !scratch.simulates(step) && !scratch.is_shadow()
}
