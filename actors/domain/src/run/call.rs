//! From a ready step to the events that admit, refuse, throttle or redispatch its call.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::catalog::Recovery;
use crate::governance::budget::{BudgetVerdict, MeterReading, check_budget};
use crate::governance::gate::{Admissible, Blame, Simulated, StageAnswer};
use crate::governance::kill_switch::KillSwitch;
use crate::governance::target::Target;
use crate::governance::throttle::Throttled;
use crate::identity::Actor;
use crate::ids::{AgentId, BudgetId, CallId, GrantId, SecretId};
use crate::quantity::{Micros, Usage};
use crate::run::append::{Ask, NewEvent, pending_of};
use crate::run::envelope::{RunEnvelope, RunToolCallRecord};
use crate::run::event::{
    CallOutcome, CallPending, CallRefused, CallSettled, ControlApplied, ControlEffect, ControlKind, GovernanceAudited,
    OutputKind, PauseCause, RunControlAuditEvent, RunEvent, RunFinished, StoredValue,
};
use crate::run::model_step;
use crate::run::plan::{Step, StepKind};
use crate::run::status::RunStatus;
use crate::run::step::StepState;
use crate::time::UnixMs;

/// What stands where a call's grant would, of a call that no grant has let through because nobody makes it.
const NO_GRANT: &str = "none.simulated";

/// A step's call with its arguments bound: everything the gate and the journal need.
#[derive(Debug, Clone, PartialEq)]
pub struct Prepared {
    /// What the call will be named.
    pub call_id: CallId,
    /// The step.
    pub step: Step,
    /// What it is aimed at.
    pub target: Target,
    /// The raw arguments.
    pub args: Value,
    /// Their digest.
    pub args_hash: String,
    /// The arguments as they are kept.
    pub redacted_args: StoredValue,
    /// The secrets at the handles in the arguments, by JSON Pointer.
    pub secrets: BTreeMap<String, SecretId>,
}

impl RunEnvelope {
    /// The agent whose authority a step uses.
    pub fn agent_of<'a>(&'a self, step: &'a Step) -> &'a AgentId {
        step.agent_id.as_ref().unwrap_or(&self.root_agent_id)
    }

    /// The id the step's next call will have: the same again after a crash, another after the step was begun anew.
    pub fn next_call_id(&self, step: &Step) -> CallId {
        let ordinal = self.step_attempts.get(&step.step_id).copied().unwrap_or(0);
        CallId::new(self.run_key.derive("call", step.step_id.as_str(), ordinal))
    }

    /// What a call of this step is aimed at; `None` if the step makes no call.
    pub fn target_of(&self, step: &Step) -> Option<Target> {
        let turn = model_step::turn_tool();
        let is_turn = matches!(step.kind, StepKind::Turn { .. });
        let tool_id = if is_turn { &turn } else { step.kind.tool_id()? };
        let agent_id = self.agent_of(step).clone();
        let target = Target {
            tenant_id: self.tenant_id.clone(),
            run_id: self.run_id,
            user_id: self.submitted_by.actor_id.clone(),
            role: self.submitted_by.role,
            family: self.agents.family_of(&agent_id).map(str::to_owned),
            agent_id,
            pipeline_id: self.pipeline_id.clone(),
            tool_id: tool_id.clone(),
            provider_id: None,
            region: None,
        };
        Some(if is_turn { self.target_of_turn(step, target) } else { target })
    }

    /// Steps that may be asked about now and need their arguments bound: tool calls and approvals, in plan order,
    /// no more calls than the plan's fan-out leaves room for.
    pub fn ready_to_bind(&self, now: UnixMs) -> Vec<usize> {
        if self.end.is_some() || !self.started || self.is_failing() {
            return Vec::new();
        }
        let open = self.open_calls().count() + self.live_handoffs().count();
        let mut room = (self.plan.fan_out() as usize).saturating_sub(open);
        let mut free: Vec<usize> = (0..self.plan.steps.len()).filter(|index| self.may_begin(*index, now)).collect();
        // Only several need an order among them.
        if free.len() > 1 {
            let Ok(order) = self.plan.topological_order() else { return Vec::new() };
            free = order.into_iter().filter(|index| free.contains(index)).collect();
        }
        free.into_iter()
            .filter(|index| match &self.plan.steps[*index].kind {
                StepKind::Tool { .. } | StepKind::Turn { .. } | StepKind::Agent { .. } if room == 0 => false,
                StepKind::Tool { .. } | StepKind::Turn { .. } | StepKind::Agent { .. } => {
                    room -= 1;
                    true
                }
                StepKind::Approval { .. } => true,
                StepKind::Model { .. } | StepKind::Branch { .. } | StepKind::Wait { .. } => false,
            })
            .collect()
    }

    /// True if the step is ready, or its throttle is over, and neither a hold nor its branch stands against it.
    pub(crate) fn may_begin(&self, index: usize, now: UnixMs) -> bool {
        let Some(step) = self.plan.steps.get(index) else { return false };
        if self.hold.is_some() && self.permitted_step.as_ref() != Some(&step.step_id) {
            return false;
        }
        match self.steps.get(index) {
            Some(StepState::Throttled { until_unix_ms }) => *until_unix_ms <= now,
            Some(StepState::Pending) => self.is_ready(index) && !self.is_left_out(step),
            _ => false,
        }
    }

    /// True if the step lies on a branch that was not chosen, or only behind such steps.
    pub(crate) fn is_left_out(&self, step: &Step) -> bool {
        if let Some(condition) = &step.when {
            match self.step_state(&condition.step_id) {
                Some(StepState::Done { branch_id: Some(chosen), .. }) if *chosen == condition.branch_id => {}
                _ => return true,
            }
        }
        let mut dependencies = step.dependencies().peekable();
        dependencies.peek().is_some()
            && dependencies
                .all(|on| matches!(self.step_state(on), Some(StepState::Skipped { branch_not_taken: true, .. })))
    }
}

/// The ask that admits a call.
pub fn admit(prepared: &Prepared, admissible: &Admissible, now: UnixMs) -> Ask {
    let pending = CallPending {
        call_id: prepared.call_id,
        step_id: prepared.step.step_id.clone(),
        stage_id: prepared.step.stage(),
        agent_id: prepared.target.agent_id.clone(),
        tool_id: prepared.target.tool_id.clone(),
        tool_semver: admissible.tool_semver.clone(),
        args_hash: prepared.args_hash.clone(),
        redacted_args: prepared.redacted_args.clone(),
        secrets: prepared.secrets.clone(),
        grant_id: admissible.grant.grant_id.clone(),
        attempt: 1,
        recovery: admissible.recovery,
        estimated_usage: admissible.ceiling.clone(),
        reservations: admissible.reservations.clone(),
        scope_check_result_id: format!("{}/scope", prepared.call_id),
        capability_audit_ids: admissible
            .capability_checks
            .iter()
            .map(|check| format!("{}/{check}", prepared.call_id))
            .collect(),
        budget_warnings: admissible.budget_warnings.clone(),
        requested_at_unix_ms: now,
        timeout_ms: admissible.timeout_ms,
        simulated: false,
        answers: Vec::new(),
        epoch: 0,
        meters: Vec::new(),
    };
    let asked = model_step::asked(prepared).map(|asked| RunEvent::ModelAsked(Box::new(asked)));
    let events = asked.into_iter().chain([RunEvent::CallPending(Box::new(pending))]);
    asking(prepared, events.map(NewEvent::system).collect())
}

/// The ask that records a call which a stand-in answers: pending and settled in one append, so that nobody can be handed
/// it in between. It holds nothing, and what it would have cost is booked in the simulated ledger (MOD-007).
pub fn simulate(
    prepared: &Prepared,
    simulated: &Simulated,
    answer: StoredValue,
    answers: Vec<StageAnswer>,
    now: UnixMs,
) -> Ask {
    let pending = CallPending {
        call_id: prepared.call_id,
        step_id: prepared.step.step_id.clone(),
        stage_id: prepared.step.stage(),
        agent_id: prepared.target.agent_id.clone(),
        tool_id: prepared.target.tool_id.clone(),
        tool_semver: simulated.tool_semver.clone(),
        args_hash: prepared.args_hash.clone(),
        redacted_args: prepared.redacted_args.clone(),
        // Nobody is given one.
        secrets: BTreeMap::new(),
        grant_id: GrantId::constant(NO_GRANT),
        attempt: 1,
        // It is settled where it is recorded, so there is nothing to recover.
        recovery: Recovery::Idempotent,
        estimated_usage: simulated.ceiling.clone(),
        reservations: Vec::new(),
        scope_check_result_id: format!("{}/scope", prepared.call_id),
        capability_audit_ids: Vec::new(),
        budget_warnings: Vec::new(),
        requested_at_unix_ms: now,
        timeout_ms: simulated.timeout_ms,
        simulated: true,
        answers,
        epoch: 0,
        meters: Vec::new(),
    };
    let settled = CallSettled {
        call_id: prepared.call_id,
        outcome: CallOutcome::Ok,
        output: Some(answer),
        error: None,
        measured_usage: None,
        charged: simulated.ceiling.clone(),
        evidence: None,
        effects: Vec::new(),
        artifacts: Vec::new(),
        latency_ms: 0,
        simulated: true,
        tone_note: None,
        meters: Vec::new(),
    };
    let events = [RunEvent::CallPending(Box::new(pending)), RunEvent::CallSettled(Box::new(settled))];
    asking(prepared, events.into_iter().map(NewEvent::system).collect())
}

/// True if what belongs to the run alone has room for one more call beside those that are asked for in the same append:
/// the store knows neither the run's own budgets nor how often its grants were used (I4, GRA).
pub fn fits_beside(run: &RunEnvelope, asks: &[Ask], admissible: &Admissible, now: UnixMs) -> bool {
    let beside: Vec<&CallPending> =
        asks.iter().flat_map(|ask| &ask.events).filter_map(|new| pending_of(&new.event)).collect();
    let pays = run.run_budgets.iter().all(|own| {
        let held = beside.iter().flat_map(|pending| &pending.reservations).chain(&admissible.reservations);
        let held = held.filter(|reservation| reservation.budget_id == own.budget.budget_id);
        let sum = held.fold(Micros::ZERO, |sum, reservation| sum.plus(reservation.amount));
        sum == Micros::ZERO
            || check_budget(&own.budget, &own.meter, sum, now.0.div_euclid(1_000)) != BudgetVerdict::Exceeded
    });
    let grant = &admissible.grant;
    let used = run.grant_uses.get(&grant.grant_id).copied().unwrap_or(0)
        + beside.iter().filter(|pending| pending.grant_id == grant.grant_id).count() as u64;
    pays && grant.constraints.max_calls.is_none_or(|max| used < max)
}

/// The ask that sends an open call out again after a crash.
pub fn redispatch(call: &RunToolCallRecord, target: Target, attempt: u32, now: UnixMs) -> Ask {
    let event = RunEvent::CallRedispatched { call_id: call.call_id, attempt, requested_at_unix_ms: now };
    Ask {
        events: vec![NewEvent::system(event)],
        call_id: call.call_id,
        step_id: call.step_id.clone(),
        target,
        sub_run: None,
    }
}

/// A denial: the attempt is recorded and its step fails (ADM-016, ADM-019).
pub fn deny(prepared: &Prepared, code: &str, message: &str, answers: Vec<StageAnswer>, now: UnixMs) -> Ask {
    let refused = refusal(prepared, CallOutcome::Denied, code, message, answers, now);
    asking(prepared, vec![NewEvent::system(RunEvent::CallRefused(Box::new(refused)))])
}

/// A kill by a switch or a budget: the attempt is recorded and the run ends (ADM-003, ADM-004).
pub fn kill(run: &RunEnvelope, prepared: &Prepared, blame: &Blame, answers: Vec<StageAnswer>, now: UnixMs) -> Ask {
    let (code, message, audit) = match blame {
        Blame::Switch(switch) => (KILLED_BY_SWITCH, switch_message(switch), switch_audit(switch)),
        Blame::Budget { budget_id, readings } => {
            ("budget-exceeded", budget_message(budget_id, readings), budget_audit(budget_id, readings))
        }
    };
    let refused = refusal(prepared, CallOutcome::Killed, code, &message, answers, now);
    let end = RunFinished { step_id: Some(prepared.step.step_id.clone()), ..killed(run, blame) };
    asking(
        prepared,
        vec![
            NewEvent::system(RunEvent::CallRefused(Box::new(refused))),
            NewEvent::system(RunEvent::GovernanceAudited(Box::new(audit))),
            NewEvent::system(RunEvent::RunFinished(Box::new(end))),
        ],
    )
}

/// A budget whose `onExceeded` is `pause`: the run parks with cause `quota` and nothing is lost (BUD-011).
pub fn pause_for_quota(
    run: &RunEnvelope,
    prepared: &Prepared,
    budget_id: &BudgetId,
    readings: &[MeterReading],
    now: UnixMs,
) -> Ask {
    let system = Actor::system();
    let audit = RunControlAuditEvent {
        audit_event_id: format!("{}/{}", prepared.call_id, "quota"),
        kind: ControlKind::Pause,
        run_id: run.run_id,
        actor_id: system.actor_id,
        role: system.role,
        at_unix_ms: now,
        from_status: run.status_at(now),
        to_status: RunStatus::Paused,
        reason_text: format!("budget `{budget_id}` is used up"),
        command_hash: crate::canonical::sha256_hex(format!("quota/{budget_id}").as_bytes()),
    };
    let paused = ControlApplied { audit, effect: ControlEffect::Paused { cause: PauseCause::Quota } };
    asking(
        prepared,
        vec![
            NewEvent::system(RunEvent::GovernanceAudited(Box::new(budget_audit(budget_id, readings)))),
            NewEvent::system(RunEvent::ControlApplied(Box::new(paused))),
        ],
    )
}

/// A wait at an empty bucket that is long enough to be journalled (ADM-018).
pub fn throttle(prepared: &Prepared, throttled: &Throttled, now: UnixMs) -> NewEvent {
    let seconds = i64::try_from(throttled.retry_after_seconds).unwrap_or(i64::MAX);
    NewEvent::system(RunEvent::StepThrottled {
        step_id: prepared.step.step_id.clone(),
        bucket_id: throttled.bucket_id.clone(),
        retry_after_seconds: throttled.retry_after_seconds,
        until_unix_ms: now.plus_seconds(seconds),
    })
}

/// A step that fails before there is a call to speak of.
pub fn fail_step(step: &Step, code: &str, message: &str) -> NewEvent {
    let message = crate::redact::redact_text(message).chars().take(2_000).collect();
    NewEvent::system(RunEvent::StepFailed { step_id: step.step_id.clone(), code: code.to_owned(), message })
}

fn asking(prepared: &Prepared, events: Vec<NewEvent>) -> Ask {
    Ask {
        events,
        call_id: prepared.call_id,
        step_id: prepared.step.step_id.clone(),
        target: prepared.target.clone(),
        sub_run: None,
    }
}

fn refusal(
    prepared: &Prepared,
    outcome: CallOutcome,
    code: &str,
    message: &str,
    answers: Vec<StageAnswer>,
    now: UnixMs,
) -> CallRefused {
    CallRefused {
        call_id: prepared.call_id,
        step_id: prepared.step.step_id.clone(),
        stage_id: prepared.step.stage(),
        agent_id: prepared.target.agent_id.clone(),
        tool_id: prepared.target.tool_id.clone(),
        args_hash: prepared.args_hash.clone(),
        redacted_args: prepared.redacted_args.clone(),
        outcome,
        code: code.to_owned(),
        message: message.to_owned(),
        answers,
        // Denied and killed-before-dispatch cost nothing (LED-008).
        charged: Usage::none(),
        at_unix_ms: now,
    }
}

/// The code of a run that a switch has ended.
pub(super) const KILLED_BY_SWITCH: &str = "kill-switch";

pub(super) fn killed(run: &RunEnvelope, blame: &Blame) -> RunFinished {
    // Customers see how a run ended. Who armed a switch and why, and what a budget holds, stands in the audit record.
    let (code, message) = match blame {
        Blame::Switch(switch) => (KILLED_BY_SWITCH, format!("switch `{}` is armed", switch.switch_id)),
        Blame::Budget { budget_id, .. } => ("budget-exceeded", format!("budget `{budget_id}` is used up")),
    };
    RunFinished {
        status: RunStatus::Killed,
        code: Some(code.to_owned()),
        message: Some(message),
        user_visible_status_copy: Some(blame.user_visible_status_copy().to_owned()),
        safe_degradation_mode_id: blame.safe_degradation_mode_id().map(str::to_owned),
        blamed_id: Some(blame.id().to_owned()),
        step_id: None,
        outputs: run.bundle(OutputKind::PartialOnFailure),
    }
}

fn switch_message(switch: &KillSwitch) -> String {
    format!("switch `{}` was armed by {}: {}", switch.switch_id, switch.armed_by, switch.reason)
}

pub(super) fn switch_audit(switch: &KillSwitch) -> GovernanceAudited {
    GovernanceAudited::KillSwitch {
        switch_id: switch.switch_id.clone(),
        armed_by: switch.armed_by.clone(),
        armed_at_unix_ms: switch.armed_at_unix_ms,
        reason: switch.reason.clone(),
    }
}

fn budget_message(budget_id: &BudgetId, readings: &[MeterReading]) -> String {
    match readings.iter().find(|reading| &reading.budget_id == budget_id) {
        Some(r) => format!(
            "budget `{budget_id}` allows {} {}: {} are spent, {} are held by open calls, and this call asks for {}",
            r.limit,
            r.category.as_str(),
            r.consumed,
            r.reserved,
            r.asked
        ),
        None => format!("budget `{budget_id}` is used up"),
    }
}

fn budget_audit(budget_id: &BudgetId, readings: &[MeterReading]) -> GovernanceAudited {
    GovernanceAudited::Budget { budget_id: budget_id.clone(), readings: readings.to_vec() }
}
