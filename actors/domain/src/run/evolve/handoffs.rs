//! What follows from the events of hand-offs, in the parent's books.

use crate::governance::budget;
use crate::handoff::ending::failure_code;
use crate::handoff::handed::HandoffRecord;
use crate::quantity::{BudgetCategory, Usage};
use crate::run::envelope::{Checkpoint, RunEnvelope};
use crate::run::event::{DecisionLabel, HandoffDispatched, HandoffReconciled};
use crate::run::status::RunStatus;
use crate::run::step::StepState;

// What a sub-run may spend is held on this run's own meters, so that its own calls cannot spend it too (HND-011).
pub(super) fn dispatched(run: &mut RunEnvelope, dispatched: &HandoffDispatched) {
    let now = dispatched.dispatched_at_unix_ms.0.div_euclid(1_000);
    for own in &mut run.run_budgets {
        budget::roll(&own.budget, &mut own.meter, now);
        own.meter.reserved = own.meter.reserved.plus(dispatched.given.get(own.budget.category));
    }
    run.set_step(&dispatched.step_id, StepState::HandedOff { child_run_id: dispatched.child_run_id });
    run.decided(&dispatched.step_id, DecisionLabel::HandoffDispatched, dispatched.agent_id.to_string());
    run.handoffs.push(HandoffRecord {
        step_id: dispatched.step_id.clone(),
        agent_id: dispatched.agent_id.clone(),
        child_run_id: dispatched.child_run_id,
        child_run_key: dispatched.child_run_key,
        given: dispatched.given.clone(),
        dispatched_at_unix_ms: dispatched.dispatched_at_unix_ms,
        status: None,
        used: None,
    });
}

pub(super) fn reconciled(run: &mut RunEnvelope, reconciled: &HandoffReconciled) {
    let now = run.last_at.ms().0.div_euclid(1_000);
    let of_child = |record: &&mut HandoffRecord| record.child_run_id == reconciled.child_run_id && record.is_live();
    let Some(record) = run.handoffs.iter_mut().find(of_child) else { return };
    let used = BudgetCategory::ALL
        .into_iter()
        .fold(Usage::none(), |used, category| used.with(category, reconciled.ledger.counter(category)));
    record.status = Some(reconciled.status);
    record.used = Some(used.clone());
    let given = record.given.clone();
    for own in &mut run.run_budgets {
        let category = own.budget.category;
        budget::settle(own, given.get(category), used.get(category), now);
    }
    run.cost_ledger.absorb(reconciled.child_run_id, &reconciled.ledger);
    if let Some(simulated) = &reconciled.simulated {
        run.simulated_ledger.get_or_insert_default().absorb(reconciled.child_run_id, simulated);
    }
    let waits = |state: &StepState| matches!(state, StepState::HandedOff { child_run_id } if *child_run_id == reconciled.child_run_id);
    if run.end.is_some() || !run.step_state(&reconciled.step_id).is_some_and(waits) {
        return;
    }
    let step = &reconciled.step_id;
    if reconciled.status == RunStatus::Completed {
        let stage_id = run.stage_of(step);
        // What a sub-run has left behind says itself who made it.
        run.intermediate_artifacts.extend(reconciled.artifacts.iter().map(|made| Checkpoint {
            step_id: step.clone(),
            stage_id: stage_id.clone(),
            artifact: made.artifact.clone(),
            attribution: made.attribution.clone(),
        }));
        return run.finish_step(step, reconciled.output.as_ref(), &[], None);
    }
    let why = match (&reconciled.code, &reconciled.message) {
        (Some(code), Some(message)) => format!("the sub-run {} ended: {code}: {message}", reconciled.child_run_id),
        (_, _) => format!("the sub-run {} did not complete", reconciled.child_run_id),
    };
    run.fail_step(step, failure_code(reconciled.status), &why);
}
