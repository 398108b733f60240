//! What follows from the events of calls.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::governance::budget;
use crate::invocation::TONE_BLOCKED;
use crate::quantity::Usage;
use crate::run::envelope::{RunEnvelope, RunToolCallRecord};
use crate::run::event::{CallOutcome, CallPending, CallRefused, CallSettled, DecisionLabel, LateEvidence, Reservation};
use crate::run::settle::ABSTAINED;
use crate::run::step::StepState;

pub(super) fn pending(run: &mut RunEnvelope, pending: &CallPending) {
    run.has_warnings |= !pending.budget_warnings.is_empty();
    run.set_step(&pending.step_id, StepState::InFlight { call_id: pending.call_id });
    if !pending.simulated {
        *run.grant_uses.entry(pending.grant_id.clone()).or_default() += 1;
    }
    let now = pending.requested_at_unix_ms.0.div_euclid(1_000);
    for held in &pending.reservations {
        for own in run.run_budgets.iter_mut().filter(|own| own.budget.budget_id == held.budget_id) {
            budget::roll(&own.budget, &mut own.meter, now);
            own.meter.reserved = own.meter.reserved.plus(held.amount);
        }
    }
    // The append reserves only on meters that are in force, and stamps those; budgets of the run have no other meter.
    let held = |reservation: &&Reservation| {
        pending.meters.iter().any(|meter| meter.budget_id == reservation.budget_id)
            || run.run_budgets.iter().any(|own| own.budget.budget_id == reservation.budget_id)
    };
    let reservations = pending.reservations.iter().filter(held).cloned().collect();
    let audit_event_id = format!("{}/{}", run.run_id, run.last_seq);
    run.tool_calls.push(Arc::new(RunToolCallRecord {
        call_id: pending.call_id,
        step_id: pending.step_id.clone(),
        stage_id: pending.stage_id.clone(),
        agent_id: pending.agent_id.clone(),
        tool_id: pending.tool_id.clone(),
        tool_semver: pending.tool_semver.clone(),
        args_hash: pending.args_hash.clone(),
        redacted_args: pending.redacted_args.clone(),
        secrets: pending.secrets.clone(),
        outcome: CallOutcome::Pending,
        cost_units: crate::quantity::Micros::ZERO,
        scope_check_result_id: pending.scope_check_result_id.clone(),
        audit_event_id,
        capability_audit_ids: pending.capability_audit_ids.clone(),
        grant_id: (!pending.simulated).then(|| pending.grant_id.clone()),
        attempt: pending.attempt,
        recovery: pending.recovery,
        reservations,
        estimated_usage: pending.estimated_usage.clone(),
        charged: Usage::none(),
        output: None,
        error: None,
        evidence: None,
        effects: Vec::new(),
        artifacts: Vec::new(),
        requested_at_unix_ms: pending.requested_at_unix_ms,
        timeout_ms: pending.timeout_ms,
        latency_ms: None,
        simulated: pending.simulated,
        open: true,
    }));
}

pub(super) fn settled(run: &mut RunEnvelope, settled: &CallSettled) {
    let now = run.last_at.ms().0.div_euclid(1_000);
    let Some(call) = run.call_mut(settled.call_id) else { return };
    call.outcome = settled.outcome;
    call.charged = settled.charged.clone();
    call.cost_units = settled.charged.get(crate::quantity::BudgetCategory::CostUnits);
    call.output = settled.output.clone();
    call.error = settled.error.clone();
    call.evidence = settled.evidence.clone();
    call.effects = settled.effects.clone();
    call.artifacts = settled.artifacts.clone();
    call.latency_ms = Some(settled.latency_ms);
    call.open = false;
    let (step, stage, tool) = (call.step_id.clone(), call.stage_id.clone(), call.tool_id.clone());
    let (reservations, grant) = (call.reservations.clone(), call.grant_id.clone());
    let ledger = if settled.simulated { run.simulated_ledger.get_or_insert_default() } else { &mut run.cost_ledger };
    ledger.post(&stage, &tool, &settled.charged);
    release(run, &reservations, &settled.charged, now);
    if run.end.is_some() {
        return;
    }
    match settled.outcome {
        CallOutcome::Ok | CallOutcome::Partial => {
            run.finish_step(&step, settled.output.as_ref(), &settled.artifacts, settled.evidence.as_ref());
        }
        // The approval request that follows in the same append says what happens to the step.
        CallOutcome::Unknown => {}
        // Never begun: the step is as it was, and asks again; its grant was not used.
        CallOutcome::Held | CallOutcome::Throttled => {
            if let Some(uses) = grant.and_then(|grant| run.grant_uses.get_mut(&grant)) {
                *uses = uses.saturating_sub(1);
            }
            run.again(&step);
        }
        CallOutcome::Error | CallOutcome::Denied | CallOutcome::Killed => {
            let (code, message) = match &settled.error {
                Some(error) => (error.code.as_str(), error.message.as_str()),
                None => ("tool-failed", "the tool failed without saying why"),
            };
            if code == TONE_BLOCKED {
                run.decided(&step, DecisionLabel::GateFailed, message.to_owned());
                // Also where the step could be left out: what may not be said ends the run (INV-008).
                run.set_step(&step, StepState::Failed { code: code.to_owned(), message: message.to_owned() });
                return;
            }
            if code == ABSTAINED {
                run.evidence_of(&step, settled.evidence.as_ref());
                run.decided(&step, DecisionLabel::Abstained, message.to_owned());
            }
            run.fail_step(&step, code, message);
        }
        CallOutcome::Pending => {}
    }
}

// Run-scope budgets have no row in the store: their meters are this fold.
fn release(run: &mut RunEnvelope, reservations: &[Reservation], charged: &Usage, now_unix_seconds: i64) {
    for held in reservations {
        for own in run.run_budgets.iter_mut().filter(|own| own.budget.budget_id == held.budget_id) {
            budget::settle(own, held.amount, charged.get(held.category), now_unix_seconds);
        }
    }
}

pub(super) fn refused(run: &mut RunEnvelope, refused: &CallRefused) {
    let audit_event_id = format!("{}/{}", run.run_id, run.last_seq);
    run.cost_ledger.post(&refused.stage_id, &refused.tool_id, &refused.charged);
    run.tool_calls.push(Arc::new(RunToolCallRecord {
        call_id: refused.call_id,
        step_id: refused.step_id.clone(),
        stage_id: refused.stage_id.clone(),
        agent_id: refused.agent_id.clone(),
        tool_id: refused.tool_id.clone(),
        tool_semver: String::new(),
        args_hash: refused.args_hash.clone(),
        redacted_args: refused.redacted_args.clone(),
        secrets: BTreeMap::new(),
        outcome: refused.outcome,
        cost_units: refused.charged.get(crate::quantity::BudgetCategory::CostUnits),
        scope_check_result_id: format!("{}/scope", refused.call_id),
        audit_event_id,
        capability_audit_ids: Vec::new(),
        grant_id: None,
        attempt: 1,
        recovery: crate::catalog::Recovery::default(),
        reservations: Vec::new(),
        estimated_usage: Usage::none(),
        charged: refused.charged.clone(),
        output: None,
        error: Some(crate::run::event::CallError { code: refused.code.clone(), message: refused.message.clone() }),
        evidence: None,
        effects: Vec::new(),
        artifacts: Vec::new(),
        requested_at_unix_ms: refused.at_unix_ms,
        timeout_ms: 0,
        latency_ms: None,
        simulated: false,
        open: false,
    }));
    if refused.outcome == CallOutcome::Denied {
        run.fail_step(&refused.step_id, &refused.code, &refused.message);
    }
}

// A result that arrives after its call was settled as unknown is taken as the answer while the question is still open.
pub(super) fn late_evidence(run: &mut RunEnvelope, late: &LateEvidence) {
    let Some(call) = run.call_mut(late.call_id) else { return };
    let step = call.step_id.clone();
    let answers =
        call.outcome == CallOutcome::Unknown && matches!(late.outcome, CallOutcome::Ok | CallOutcome::Partial);
    if !answers || run.end.is_some() {
        return;
    }
    let Some(approval) = run.approvals.iter_mut().find(|a| a.is_open() && a.call_id == Some(late.call_id)) else {
        return;
    };
    approval.lapsed = true;
    run.finish_step(&step, late.output.as_ref(), &late.artifacts, late.evidence.as_ref());
}
