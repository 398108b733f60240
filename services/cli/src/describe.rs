//! An event in a few words, for people.

use signalbox_domain::run::event::{ApprovalDecision, CallOutcome, ControlKind, GovernanceAudited, RunEvent};
use signalbox_domain::run::model_step::ModelAnswered;

use crate::output::{duration, instant};

/// What happened, in words; empty if the kind says it all.
pub(crate) fn describe(event: &RunEvent) -> String {
    match event {
        RunEvent::RunSubmitted(e) => format!("{} steps for {}", e.plan.steps.len(), e.root_agent_id),
        RunEvent::RunStarted {} | RunEvent::RunClosed {} => String::new(),
        RunEvent::CallPending(e) if e.simulated => format!("{}: {} answered by a stand-in", e.step_id, e.tool_id),
        RunEvent::CallPending(e) => format!("{}: {} admitted by grant {}", e.step_id, e.tool_id, e.grant_id),
        RunEvent::CallSettled(e) => {
            let took = duration(e.latency_ms);
            match (&e.error, e.outcome) {
                (Some(error), _) => format!("{} after {took}: {}: {}", e.outcome.as_str(), error.code, error.message),
                (None, CallOutcome::Ok) => format!("ok after {took}"),
                (None, outcome) => format!("{} after {took}", outcome.as_str()),
            }
        }
        RunEvent::CallRefused(e) => format!("{}: {} refused: {}: {}", e.step_id, e.tool_id, e.code, e.message),
        RunEvent::CallRedispatched { call_id, attempt, .. } => format!("call {call_id}, attempt {attempt}"),
        RunEvent::LateEvidence(e) => format!("call {}: {}", e.call_id, e.outcome.as_str()),
        RunEvent::StepThrottled { step_id, bucket_id, retry_after_seconds, .. } => {
            format!("{step_id}: waits {retry_after_seconds} s for bucket {bucket_id}")
        }
        RunEvent::StepSkipped { step_id, reason, .. } => format!("{step_id}: {reason}"),
        RunEvent::StepFailed { step_id, code, message } => format!("{step_id}: {code}: {message}"),
        RunEvent::ApprovalRequested(e) => {
            let until = instant(e.expires_at_unix_ms.0.saturating_mul(1_000));
            format!("{}: {} (question {}, until {until})", e.step_id, e.prompt, e.approval_id)
        }
        RunEvent::ApprovalReminded { approval_id } => {
            format!("question {approval_id} still waits: half of the time to answer is over")
        }
        RunEvent::ApprovalExpired { approval_id } => format!("nobody answered question {approval_id} in time"),
        RunEvent::ApprovalDecided { decision, decided_by, reason, .. } => {
            format!("{} by {}: {reason}", decided(*decision), decided_by.actor_id)
        }
        RunEvent::BranchOffered { step_id, branches } => {
            let ways: Vec<_> = branches.iter().map(|branch| branch.branch_id.as_str()).collect();
            format!("{step_id}: one of {}", ways.join(", "))
        }
        RunEvent::TimerSet { step_id, .. } | RunEvent::TimerFired { step_id } => step_id.to_string(),
        RunEvent::HandoffDispatched(e) => {
            format!("{}: handed to {} as sub-run {}", e.step_id, e.attribution, e.child_run_id)
        }
        RunEvent::HandoffDenied(e) => {
            format!("{}: not handed to {}: {}: {}", e.step_id, e.agent_id, e.reason.code(), e.in_words())
        }
        RunEvent::HandoffReconciled(e) => {
            let used = e.ledger.total_cost_units;
            format!("{}: sub-run {} {}, used {used}", e.step_id, e.child_run_id, e.status.as_str())
        }
        RunEvent::ModelBegan { step_id, first_turn } => format!("{step_id}: turn {first_turn}"),
        RunEvent::ModelAsked(e) => {
            format!("{}: turn {} asks {} of {}", e.step_id, e.turn, e.model_id, e.provider_id)
        }
        RunEvent::ModelAnswered(e) => model_answered(e),
        RunEvent::ModelFellBack { step_id, turn, reason } => {
            format!("{step_id}: turn {turn} falls back on the other model: {reason}")
        }
        RunEvent::ControlApplied(e) => {
            format!("{} by {}: {}", control(e.audit.kind), e.audit.actor_id, e.audit.reason_text)
        }
        RunEvent::GovernanceAudited(e) => match e.as_ref() {
            GovernanceAudited::KillSwitch { switch_id, armed_by, reason, .. } => {
                format!("switch {switch_id} armed by {armed_by}: {reason}")
            }
            GovernanceAudited::Budget { budget_id, .. } => format!("budget {budget_id} is exhausted"),
            GovernanceAudited::Overshoot { call_id, detail, .. } => format!("call {call_id}: {detail}"),
            GovernanceAudited::SubagentBudgetExceeded { child_run_id, given, used, .. } => {
                format!("sub-run {child_run_id} used {used} of the {given} it was given")
            }
            GovernanceAudited::IdentityMismatch { claimed_tenant_id } => {
                format!("the submission named the tenant `{claimed_tenant_id}`, which is not its credential's")
            }
        },
        RunEvent::RunFinished(e) => {
            let mut text = e.status.as_str().to_owned();
            for part in [&e.code, &e.message].into_iter().flatten() {
                text.push_str(": ");
                text.push_str(part);
            }
            text
        }
    }
}

const fn decided(decision: ApprovalDecision) -> &'static str {
    match decision {
        ApprovalDecision::Approve => "approved",
        ApprovalDecision::Reject => "rejected",
        ApprovalDecision::Skip => "skipped",
    }
}

/// A control as it stands in the journal.
pub(crate) const fn control(kind: ControlKind) -> &'static str {
    match kind {
        ControlKind::Pause => "pause",
        ControlKind::Resume => "resume",
        ControlKind::Cancel => "cancel",
        ControlKind::Kill => "kill",
        ControlKind::BranchChosen => "branch-chosen",
        ControlKind::Fork => "fork",
        ControlKind::RetryWithChanges => "retry-with-changes",
        ControlKind::OperatorStep => "operator-step",
    }
}

fn model_answered(answered: &ModelAnswered) -> String {
    let mut parts = vec![format!("{}: turn {}", answered.step_id, answered.turn)];
    parts.extend(
        answered.proposed.iter().map(|proposed| format!("proposes {} ({})", proposed.tool_id, proposed.step_id)),
    );
    parts.extend(answered.refused.iter().map(|refused| format!("`{}` refused: {}", refused.tool, refused.code)));
    parts.extend(answered.end.iter().map(|end| match &end.code {
        Some(code) => format!("ends: {code}"),
        None => "answers".to_owned(),
    }));
    parts.join("; ")
}
