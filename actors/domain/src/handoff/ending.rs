//! The end of a sub-run, on its way to its parent and in its parent's books: told once, reconciled once (HND-012, HND-013).

use serde::{Deserialize, Serialize};

use crate::handoff::derive_attribution_chain;
use crate::handoff::sub_budget::SubBudgets;
use crate::identity::Actor;
use crate::ids::{CommandId, RunId, RunKey};
use crate::quantity::{BudgetCategory, Micros, Usage};
use crate::run::append::NewEvent;
use crate::run::envelope::{Checkpoint, RunEnvelope};
use crate::run::event::{GovernanceAudited, HandoffReconciled, Made, RunEvent, StoredValue};
use crate::run::ledger::RunCostLedger;
use crate::run::plan::StepKind;
use crate::run::status::RunStatus;
use crate::run::step::StepState;

/// How a sub-run ended: what its closing append puts into its parent's inbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SubRunEnd {
    /// The sub-run.
    pub child_run_id: RunId,
    /// One of the four terminal statuses.
    pub status: RunStatus,
    /// Why, as a code; absent for `completed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// In words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What it cost, its own sub-runs included.
    pub ledger: RunCostLedger,
    /// What its simulated calls would have cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulated: Option<RunCostLedger>,
    /// What the last step of its plan that gave anything gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<StoredValue>,
    /// What it left behind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<Made>,
}

/// What a closed sub-run tells its parent, under an id that is the same however often it is told; `None` for a run that has no
/// parent, or is not closed.
pub fn report(run: &RunEnvelope) -> Option<(RunKey, CommandId, SubRunEnd)> {
    let parent = run.handed_off.as_ref()?.parent.as_ref()?;
    let end = run.end.as_ref().filter(|_| run.closed)?;
    let gave = |(step, state): (_, &StepState)| match (step, state) {
        (StepKind::Approval { .. } | StepKind::Branch { .. } | StepKind::Wait { .. }, _) => None,
        (_, StepState::Done { output: Some(output), .. }) => Some(StoredValue::clone(output)),
        (_, _) => None,
    };
    let own = derive_attribution_chain(&run.chain());
    let made = |checkpoint: &Checkpoint| Made {
        artifact: checkpoint.artifact.clone(),
        attribution: match checkpoint.attribution.is_empty() {
            true => own.clone(),
            false => checkpoint.attribution.clone(),
        },
    };
    let mut steps = run.plan.steps.iter().map(|step| step.kind.clone()).zip(&run.steps).rev();
    let told = SubRunEnd {
        child_run_id: run.run_id,
        status: end.status,
        code: end.code.clone(),
        message: end.message.clone(),
        ledger: RunCostLedger { per_stage_cost_units: Default::default(), ..run.cost_ledger.clone() },
        simulated: run.simulated_ledger.clone(),
        output: if end.status == RunStatus::Completed { steps.find_map(gave) } else { None },
        artifacts: run.intermediate_artifacts.iter().map(made).collect(),
    };
    Some((parent.run_key, CommandId::new(run.run_key.derive("sub-run-ended", "parent", 0)), told))
}

/// What the end of a sub-run brings to its parent: nothing for one that is reconciled already, or was never there (HND-013).
pub fn reconcile(run: &RunEnvelope, end: &SubRunEnd) -> Vec<NewEvent> {
    let used = BudgetCategory::ALL
        .into_iter()
        .fold(Usage::none(), |used, category| used.with(category, end.ledger.counter(category)));
    let mut books = run.sub_budgets();
    let cost = used.get(BudgetCategory::CostUnits);
    let Some(reconciled) = books.reconcile_terminal_budget(end.child_run_id, cost) else { return Vec::new() };
    let Some(record) = run.handoffs.iter().find(|record| record.child_run_id == end.child_run_id) else {
        return Vec::new();
    };
    let mut events = vec![NewEvent::system(RunEvent::HandoffReconciled(Box::new(HandoffReconciled {
        step_id: record.step_id.clone(),
        child_run_id: end.child_run_id,
        status: end.status,
        code: end.code.clone(),
        message: end.message.clone(),
        ledger: end.ledger.clone(),
        simulated: end.simulated.clone(),
        returned: reconciled.returned,
        output: end.output.clone(),
        artifacts: end.artifacts.clone(),
    })))];
    if let Some(beyond) = reconciled.overshoot {
        let given = record.given.get(BudgetCategory::CostUnits);
        let child_run_id = end.child_run_id;
        let audited = GovernanceAudited::SubagentBudgetExceeded { child_run_id, given, used: cost, beyond };
        events.push(NewEvent::system(RunEvent::GovernanceAudited(Box::new(audited))));
    }
    events
}

impl RunEnvelope {
    /// The books between this run and its sub-runs, as its journal says they stand.
    pub fn sub_budgets(&self) -> SubBudgets {
        let remaining = self.left_of(BudgetCategory::CostUnits).unwrap_or(Micros::ZERO);
        let children = self.handoffs.iter().map(|record| {
            let used = record.used.as_ref().map(|used| used.get(BudgetCategory::CostUnits));
            (record.child_run_id, record.given.get(BudgetCategory::CostUnits), used)
        });
        SubBudgets::standing(remaining, children)
    }
}

/// The code of a step whose sub-run did not complete.
pub const fn failure_code(status: RunStatus) -> &'static str {
    match status {
        RunStatus::Cancelled => "sub-run-cancelled",
        RunStatus::Killed => "sub-run-killed",
        RunStatus::Failed
        | RunStatus::Completed
        | RunStatus::Queued
        | RunStatus::Starting
        | RunStatus::Running
        | RunStatus::Paused
        | RunStatus::AwaitingApproval
        | RunStatus::AwaitingTool
        | RunStatus::AwaitingBranchSelection => "sub-run-failed",
    }
}

/// True if the actor may say that a sub-run has ended: the runtime alone.
pub fn may_report(actor: &Actor) -> bool {
    *actor == Actor::system()
}
