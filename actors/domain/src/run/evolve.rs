//! What follows from an event: the fold that makes the envelope (I9).
//!
//! Total on purpose: a stored history must always load, so every "no" lives in `decide`. An event that names something
//! the envelope does not have changes nothing but the position.

mod calls;
mod handoffs;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::governance::budget::{Meter, MeteredBudget};
use crate::handoff::{AttributionChain, derive_attribution_chain};
use crate::ids::{CallId, StepId};
use crate::mode::{self, Mode, ModeBounds};
use crate::quantity::BudgetCategory;
use crate::run::chain::StoredEvent;
use crate::run::envelope::{ApprovalRecord, Checkpoint, Decision, Hold, RunEnvelope, RunToolCallRecord, StageEvidence};
use crate::run::event::{
    ApprovalDecision, ApprovalReason, ApprovalRequested, ArtifactRef, CallOutcome, ControlApplied, ControlEffect,
    DecisionLabel, Evidence, GovernanceAudited, RunEvent, RunFinished, RunSubmitted, StoredValue,
};
use crate::run::ledger::RunCostLedger;
use crate::run::model_step;
use crate::run::status::RunStatus;
use crate::run::step::StepState;
use crate::time::UnixMicros;

/// Why a journal does not fold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("event {seq} does not fold: {problem}")]
pub struct FoldError {
    /// The event.
    pub seq: u64,
    /// What is wrong.
    pub problem: &'static str,
}

/// The envelope after all these events, which must start at 1 and have no gap.
pub fn fold<'a>(events: impl IntoIterator<Item = &'a StoredEvent>) -> Result<RunEnvelope, FoldError> {
    let mut events = events.into_iter();
    let first = events.next().ok_or(FoldError { seq: 0, problem: "the journal is empty" })?;
    let mut run = begin(first)?;
    for event in events {
        fold_one(&mut run, event)?;
    }
    Ok(run)
}

/// The envelope after event 1.
pub fn begin(first: &StoredEvent) -> Result<RunEnvelope, FoldError> {
    let refuse = |problem| FoldError { seq: first.seq, problem };
    if first.seq != 1 {
        return Err(refuse("the first event must have number 1"));
    }
    match first.event() {
        Some(RunEvent::RunSubmitted(submitted)) => Ok(submitted_run(&submitted, first.at)),
        Some(_) => Err(refuse("the first event must be `run-submitted`")),
        None => Err(refuse("its kind or body is unknown to this version")),
    }
}

/// Folds the next event of the journal in; it must be the very next.
pub fn fold_one(run: &mut RunEnvelope, stored: &StoredEvent) -> Result<(), FoldError> {
    let event =
        stored.event().ok_or(FoldError { seq: stored.seq, problem: "its kind or body is unknown to this version" })?;
    fold_read(run, stored, &event)
}

/// The same for an event that has been read from its bytes before.
pub fn fold_read(run: &mut RunEnvelope, stored: &StoredEvent, event: &RunEvent) -> Result<(), FoldError> {
    if stored.seq != run.last_seq + 1 {
        return Err(FoldError { seq: stored.seq, problem: "a gap in the sequence" });
    }
    evolve(run, stored.at, event);
    Ok(())
}

/// The envelope a run begins with.
pub fn submitted_run(submitted: &RunSubmitted, at: UnixMicros) -> RunEnvelope {
    let mut run = RunEnvelope {
        run_key: submitted.run_key,
        run_id: submitted.run_id,
        tenant_id: submitted.tenant_id.clone(),
        root_agent_id: submitted.root_agent_id.clone(),
        root_agent_semver: submitted.root_agent_semver.clone(),
        agents: submitted.agents.clone(),
        routing: submitted.routing.clone(),
        parent_run_id: submitted.parent_run_id,
        forked_from_run_id: submitted.forked_from_run_id,
        pipeline_id: submitted.pipeline_id.clone(),
        pipeline_semver: submitted.pipeline_semver.clone(),
        surface: submitted.surface.clone(),
        mode: submitted.mode.clone(),
        invocation: submitted.invocation.clone(),
        mode_bounds: submitted.mode_bounds,
        submitted_by: submitted.submitted_by.clone(),
        scopes: submitted.scopes.clone(),
        submission_hash: submitted.submission_hash.clone(),
        provenance_bundle_id: submitted.provenance_bundle_id.clone(),
        submitted_at: at,
        status: RunStatus::Queued,
        started: false,
        begun: false,
        hold: None,
        permitted_step: None,
        plan: Arc::new(submitted.plan.clone()),
        inputs: Arc::new(submitted.inputs.clone()),
        sealed: submitted.sealed.clone(),
        steps: vec![StepState::Pending; submitted.plan.steps.len()],
        step_attempts: BTreeMap::new(),
        models: BTreeMap::new(),
        tool_calls: Vec::new(),
        approvals: Vec::new(),
        intermediate_artifacts: Vec::new(),
        evidence_trail: Vec::new(),
        decision_rationale: Vec::new(),
        outputs: Vec::new(),
        cost_ledger: RunCostLedger::default(),
        simulated_ledger: None,
        compliance: None,
        waited_micros: 0,
        grants: submitted.grants.clone(),
        run_budgets: submitted
            .budgets
            .iter()
            .map(|budget| MeteredBudget { budget: budget.clone(), meter: Meter::default() })
            .collect(),
        grant_uses: BTreeMap::new(),
        has_warnings: false,
        handoff_rules: submitted.handoff_rules,
        attribution_chain: submitted
            .handed_off
            .as_ref()
            .map(|handed| derive_attribution_chain(&handed.chain))
            .unwrap_or_default(),
        handed_off: submitted.handed_off.clone(),
        handoffs: Vec::new(),
        end: None,
        finished_at: None,
        closed: false,
        last_seq: 1,
        last_at: at,
    };
    for carried in &submitted.carried_outputs {
        run.finish_step(&carried.step_id, Some(&carried.output), &carried.artifacts, carried.evidence.as_ref());
    }
    run
}

/// Folds one event in. `at` is the instant the store stamped.
pub fn evolve(run: &mut RunEnvelope, at: UnixMicros, event: &RunEvent) {
    run.last_seq += 1;
    if run.end.is_none() && waits_for_people(run.status) {
        run.waited_micros = run.waited_micros.saturating_add(at.0.saturating_sub(run.last_at.0).max(0));
    }
    run.last_at = at;
    match event {
        // Only ever event 1, which `begin` folds.
        RunEvent::RunSubmitted(_) => {}
        RunEvent::RunStarted {} => {
            run.started = true;
            // What was taken over or decided before was not begun here.
            run.begun = false;
        }
        RunEvent::CallPending(pending) => calls::pending(run, pending),
        RunEvent::CallSettled(settled) => calls::settled(run, settled),
        RunEvent::CallRefused(refused) => calls::refused(run, refused),
        RunEvent::CallRedispatched { call_id, attempt, requested_at_unix_ms } => {
            if let Some(call) = run.call_mut(*call_id) {
                call.attempt = *attempt;
                call.requested_at_unix_ms = *requested_at_unix_ms;
            }
        }
        RunEvent::LateEvidence(late) => calls::late_evidence(run, late),
        RunEvent::StepThrottled { step_id, until_unix_ms, .. } => {
            run.set_step(step_id, StepState::Throttled { until_unix_ms: *until_unix_ms });
        }
        RunEvent::StepSkipped { step_id, label, reason, branch_not_taken } => {
            let state = StepState::Skipped { reason: reason.clone(), branch_not_taken: *branch_not_taken };
            run.set_step(step_id, state);
            if let Some(label) = label {
                run.decided(step_id, *label, reason.clone());
            }
        }
        RunEvent::StepFailed { step_id, code, message } => run.fail_step(step_id, code, message),
        RunEvent::ApprovalRequested(asked) => approval_requested(run, asked),
        RunEvent::ApprovalReminded { approval_id } => {
            if let Some(approval) = run.approvals.iter_mut().find(|a| a.approval_id == *approval_id) {
                approval.reminded = true;
            }
        }
        RunEvent::ApprovalDecided { approval_id, decision, decided_by, reason } => {
            let Some(approval) = run.approvals.iter_mut().find(|a| a.approval_id == *approval_id) else { return };
            approval.decision = Some(*decision);
            approval.decided_by = Some(decided_by.clone());
            approval.decision_reason = Some(reason.clone());
            let (step, asked) = (approval.step_id.clone(), approval.reason);
            approval_decided(run, &step, asked, *decision, reason);
        }
        RunEvent::ApprovalExpired { approval_id } => {
            let Some(approval) = run.approvals.iter_mut().find(|a| a.approval_id == *approval_id) else { return };
            approval.lapsed = true;
            let step = approval.step_id.clone();
            run.decided(&step, DecisionLabel::GateFailed, "approval-expired".to_owned());
            let message = "nobody answered in time";
            run.set_step(&step, StepState::Failed { code: "approval-expired".to_owned(), message: message.to_owned() });
        }
        RunEvent::BranchOffered { step_id, .. } => run.set_step(step_id, StepState::AwaitingBranch),
        RunEvent::TimerSet { step_id, due_at_unix_ms } => {
            run.set_step(step_id, StepState::Waiting { due_at_unix_ms: *due_at_unix_ms });
        }
        RunEvent::TimerFired { step_id } => {
            run.set_step(step_id, StepState::Done { output: None, branch_id: None });
        }
        RunEvent::HandoffDispatched(dispatched) => handoffs::dispatched(run, dispatched),
        RunEvent::HandoffDenied(denied) => run.fail_step(&denied.step_id, denied.reason.code(), &denied.message),
        RunEvent::HandoffReconciled(reconciled) => handoffs::reconciled(run, reconciled),
        RunEvent::ModelBegan { step_id, first_turn } => model_step::began(run, step_id, *first_turn),
        RunEvent::ModelAsked(asked) => model_step::fold_asked(run, asked),
        RunEvent::ModelAnswered(answered) => model_step::fold_answered(run, answered),
        RunEvent::ModelFellBack { step_id, reason, .. } => model_step::fell_back(run, step_id, reason),
        RunEvent::ControlApplied(control) => control_applied(run, control),
        RunEvent::GovernanceAudited(audited) => {
            run.has_warnings |= matches!(
                **audited,
                GovernanceAudited::Budget { .. }
                    | GovernanceAudited::Overshoot { .. }
                    | GovernanceAudited::SubagentBudgetExceeded { .. }
            );
        }
        RunEvent::RunFinished(end) => run_finished(run, at, end),
        RunEvent::RunClosed {} => run.closed = true,
    }
    run.status = run.status_at(at.ms());
    if run.end.is_some() && !run.closed {
        run.compliance = mode::compliance_of(run);
    }
}

// What a run is held against is how long it takes, not how long people do.
const fn waits_for_people(status: RunStatus) -> bool {
    matches!(status, RunStatus::Paused | RunStatus::AwaitingApproval | RunStatus::AwaitingBranchSelection)
}

fn approval_requested(run: &mut RunEnvelope, asked: &ApprovalRequested) {
    run.approvals.push(ApprovalRecord {
        approval_id: asked.approval_id,
        step_id: asked.step_id.clone(),
        requirement: asked.requirement,
        approvers: asked.approvers.clone(),
        prompt: asked.prompt.clone(),
        reason: asked.reason,
        call_id: asked.call_id,
        subject: asked.subject.clone(),
        subject_digest: asked.subject_digest.clone(),
        actions: asked.actions.clone(),
        requested_at_unix_ms: asked.requested_at_unix_ms,
        remind_at_unix_ms: asked.remind_at_unix_ms,
        reminded: false,
        expires_at_unix_ms: asked.expires_at_unix_ms,
        decision: None,
        decided_by: None,
        decision_reason: None,
        lapsed: false,
    });
    run.set_step(&asked.step_id, StepState::AwaitingApproval { approval_id: asked.approval_id });
}

fn approval_decided(
    run: &mut RunEnvelope,
    step: &StepId,
    asked: ApprovalReason,
    decision: ApprovalDecision,
    reason: &str,
) {
    match (asked, decision) {
        (ApprovalReason::Gate, ApprovalDecision::Approve | ApprovalDecision::Skip) => {
            run.decided(step, DecisionLabel::GatePassed, reason.to_owned());
            run.set_step(step, StepState::Done { output: None, branch_id: None });
        }
        (ApprovalReason::Gate, ApprovalDecision::Reject) => {
            run.decided(step, DecisionLabel::GateFailed, reason.to_owned());
            // A gate is never optional: whoever says no is obeyed.
            let message = format!("the gate was rejected: {reason}");
            run.set_step(step, StepState::Failed { code: "approval-rejected".to_owned(), message });
        }
        (ApprovalReason::UnknownCallOutcome, ApprovalDecision::Approve) => {
            run.decided(step, DecisionLabel::Retry, reason.to_owned());
            run.again(step);
        }
        (ApprovalReason::UnknownCallOutcome, ApprovalDecision::Skip) => {
            let text = "taken as done without a result".to_owned();
            run.set_step(step, StepState::Skipped { reason: text, branch_not_taken: false });
        }
        (ApprovalReason::UnknownCallOutcome, ApprovalDecision::Reject) => {
            run.fail_step(step, "unknown-call-outcome", "the outcome of the call is not known");
        }
    }
}

fn control_applied(run: &mut RunEnvelope, control: &ControlApplied) {
    match &control.effect {
        ControlEffect::Paused { cause } => {
            // A quota may also stop the one step that was let go of a held run: it came from where the first pause found it.
            let paused_from_status =
                run.hold.as_ref().map_or(control.audit.from_status, |hold| hold.paused_from_status);
            run.hold = Some(Hold { cause: *cause, paused_from_status });
            run.permitted_step = None;
        }
        ControlEffect::Resumed => {
            run.hold = None;
            run.permitted_step = None;
            // What was throttled asks again at once: whoever resumes does not want to wait for the timer.
            for state in &mut run.steps {
                if matches!(state, StepState::Throttled { .. }) {
                    *state = StepState::Pending;
                }
            }
        }
        ControlEffect::Ended | ControlEffect::Forked => {}
        ControlEffect::BranchChosen { step_id, branch_id } => {
            run.decided(step_id, DecisionLabel::BranchChosen, branch_id.to_string());
            run.set_step(step_id, StepState::Done { output: None, branch_id: Some(branch_id.clone()) });
        }
        ControlEffect::Rewound { step_id, overrides } => {
            run.decided(step_id, DecisionLabel::Retry, control.audit.reason_text.clone());
            rewind(run, step_id, overrides);
        }
        ControlEffect::StepPermitted { step_id } => run.permitted_step = Some(step_id.clone()),
    }
}

// Rewinding clears the step and all behind it; ledger and meters stay (CTL-012).
fn rewind(run: &mut RunEnvelope, from: &StepId, overrides: &crate::run::event::Overrides) {
    let mut rewound = run.plan.behind(from);
    for step in &rewound {
        model_step::taken_back(run, step);
    }
    // What model steps have added is proposed anew, or not at all.
    rewound.retain(|step| model_step::added_by(&run.plan, step).is_none());
    for step in &rewound {
        match run.step_state(step) {
            Some(StepState::Pending) | None => {}
            Some(_) => run.again(step),
        }
        for approval in run.approvals.iter_mut().filter(|a| a.step_id == *step && a.is_open()) {
            approval.lapsed = true;
        }
    }
    run.intermediate_artifacts.retain(|checkpoint| !rewound.contains(&checkpoint.step_id));
    run.evidence_trail.retain(|entry| !rewound.contains(&entry.step_id));
    run.hold = None;
    run.permitted_step = None;
    run.begun = true;
    if !overrides.params.is_empty() {
        let mut plan = (*run.plan).clone();
        for step in &mut plan.steps {
            if let (Some(new), crate::run::plan::StepKind::Tool { args, .. }) =
                (overrides.params.get(&step.step_id), &mut step.kind)
            {
                *args = new.clone();
                run.sealed.steps.remove(&step.step_id);
            }
        }
        run.plan = Arc::new(plan);
    }
    if let Some(mode) = &overrides.mode {
        run.mode.clone_from(mode);
        tighten(run);
    }
    if let Some(branch) = &overrides.branch {
        run.decided(from, DecisionLabel::BranchChosen, branch.to_string());
        run.set_step(from, StepState::Done { output: None, branch_id: Some(branch.clone()) });
    }
}

// A tighter mode binds what is left of the run; what was tighter than that stays as it was.
fn tighten(run: &mut RunEnvelope) {
    let Some(meta) = Mode::parse(&run.mode).map(Mode::meta) else { return };
    let mut bounds = ModeBounds::from(meta);
    if let Some(before) = &run.mode_bounds {
        bounds.max_cost_units = bounds.max_cost_units.min(before.max_cost_units);
        bounds.p95_latency_budget_ms = bounds.p95_latency_budget_ms.min(before.p95_latency_budget_ms);
        bounds.min_evaluation_score = bounds.min_evaluation_score.max(before.min_evaluation_score);
        // Only runs whose mode has bound them from the beginning are bound anew: an older journal folds as it always did.
        for own in run.run_budgets.iter_mut().filter(|own| own.budget.category == BudgetCategory::CostUnits) {
            own.budget.limit = own.budget.limit.min(bounds.max_cost_units);
        }
        run.mode_bounds = Some(bounds);
    }
}

fn run_finished(run: &mut RunEnvelope, at: UnixMicros, end: &RunFinished) {
    for call in run.tool_calls.iter_mut().filter(|call| call.open) {
        Arc::make_mut(call).outcome = CallOutcome::Killed;
    }
    for approval in run.approvals.iter_mut().filter(|a| a.is_open()) {
        approval.lapsed = true;
    }
    run.hold = None;
    run.permitted_step = None;
    run.outputs = end.outputs.clone();
    run.end = Some(end.clone());
    run.finished_at = Some(at);
}

impl RunEnvelope {
    fn call_mut(&mut self, id: CallId) -> Option<&mut RunToolCallRecord> {
        self.tool_calls.iter_mut().find(|call| call.call_id == id).map(Arc::make_mut)
    }

    pub(super) fn set_step(&mut self, id: &StepId, state: StepState) {
        let Some(index) = self.plan.steps.iter().position(|step| &step.step_id == id) else { return };
        self.begun = true;
        // A step that has to wait for its turn has not gone yet.
        if self.permitted_step.as_ref() == Some(id) && !matches!(state, StepState::Throttled { .. }) {
            self.permitted_step = None;
        }
        if let Some(slot) = self.steps.get_mut(index) {
            *slot = state;
        }
    }

    // The step is done, and this is what it gives to the run.
    pub(super) fn finish_step(
        &mut self,
        id: &StepId,
        output: Option<&StoredValue>,
        artifacts: &[ArtifactRef],
        evidence: Option<&Evidence>,
    ) {
        let stage_id = self.stage_of(id);
        let attribution = self.plan.step(id).map(|step| self.attribution_of(step)).unwrap_or_default();
        let attribution = if attribution.0.len() > 1 { attribution } else { AttributionChain::default() };
        self.intermediate_artifacts.extend(artifacts.iter().map(|artifact| Checkpoint {
            step_id: id.clone(),
            stage_id: stage_id.clone(),
            artifact: artifact.clone(),
            attribution: attribution.clone(),
        }));
        self.evidence_of(id, evidence);
        self.set_step(id, StepState::Done { output: output.cloned().map(Arc::new), branch_id: None });
    }

    fn evidence_of(&mut self, id: &StepId, evidence: Option<&Evidence>) {
        if let Some(evidence) = evidence {
            let stage_id = self.stage_of(id);
            self.evidence_trail.push(StageEvidence { step_id: id.clone(), stage_id, evidence: evidence.clone() });
        }
    }

    // The step is to be done again, under a call id of its own.
    fn again(&mut self, id: &StepId) {
        *self.step_attempts.entry(id.clone()).or_default() += 1;
        self.set_step(id, StepState::Pending);
    }

    pub(super) fn fail_step(&mut self, id: &StepId, code: &str, message: &str) {
        model_step::left(self, id);
        if self.plan.step(id).is_some_and(|step| matches!(step.kind, crate::run::plan::StepKind::Turn { .. })) {
            // Its model step says what comes of it.
            let reason = format!("{code}: {message}");
            self.set_step(id, StepState::Skipped { reason, branch_not_taken: false });
        } else if self.plan.step(id).is_some_and(|step| step.optional) {
            let reason = format!("{code}: {message}");
            self.decided(id, DecisionLabel::ToolSkipped, reason.clone());
            self.set_step(id, StepState::Skipped { reason, branch_not_taken: false });
        } else {
            self.set_step(id, StepState::Failed { code: code.to_owned(), message: message.to_owned() });
        }
    }

    pub(super) fn decided(&mut self, step: &StepId, decision_label: DecisionLabel, text: String) {
        let stage_id = self.stage_of(step);
        self.decision_rationale.push(Decision { stage_id, decision_label, text });
    }
}
