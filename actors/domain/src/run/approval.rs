//! Questions to people: gates of a plan, and calls whose outcome nobody knows.

use serde_json::{Value, json};

use crate::canonical;
use crate::identity::{Actor, Role};
use crate::ids::{ApprovalId, StepId};
use crate::run::append::{NewEvent, OpenApproval};
use crate::run::decide::Denial;
use crate::run::envelope::{ApprovalRecord, RunEnvelope, RunToolCallRecord};
use crate::run::event::{ApprovalDecision, ApprovalReason, ApprovalRequested, RunEvent, StoredValue};
use crate::run::plan::{APPROVAL_TTL_SECONDS_DEFAULT, ApprovalRequirement, Step, StepKind};
use crate::time::UnixMs;

/// The question of an approval step. `subject` is its bound subject, `stored` the redacted copy that is kept.
pub fn request(run: &RunEnvelope, step: &Step, subject: &Value, stored: StoredValue, now: UnixMs) -> Option<NewEvent> {
    let StepKind::Approval { requirement, prompt, approval_ttl_seconds, .. } = &step.kind else { return None };
    if *requirement == ApprovalRequirement::None {
        let reason = "the gate asks nobody".to_owned();
        let step_id = step.step_id.clone();
        return Some(NewEvent::system(RunEvent::StepSkipped { step_id, label: None, reason, branch_not_taken: false }));
    }
    let asked = Asked {
        step: &step.step_id,
        requirement: *requirement,
        prompt: crate::redact::redact_text(prompt).into_owned(),
        reason: ApprovalReason::Gate,
        call: None,
        ttl_seconds: *approval_ttl_seconds,
    };
    Some(ask(run, asked, subject, stored, now))
}

/// The question about a call whose outcome is not known: retry, skip or fail (RUN-026).
pub fn ask_about_unknown(run: &RunEnvelope, call: &RunToolCallRecord, now: UnixMs) -> NewEvent {
    let subject = json!({
        "callId": call.call_id, "toolId": call.tool_id, "stepId": call.step_id, "argsHash": call.args_hash,
        "attempt": call.attempt, "requestedAtUnixMs": call.requested_at_unix_ms,
    });
    let asked = Asked {
        step: &call.step_id,
        requirement: ApprovalRequirement::Operator,
        prompt: format!(
            "It is not known whether call {} of `{}` took effect. Approve to send it anew, skip to take it as done, \
             reject to fail the step.",
            call.call_id, call.tool_id
        ),
        reason: ApprovalReason::UnknownCallOutcome,
        call: Some(call),
        ttl_seconds: APPROVAL_TTL_SECONDS_DEFAULT,
    };
    ask(run, asked, &subject, StoredValue::Inline(subject.clone()), now)
}

struct Asked<'a> {
    step: &'a StepId,
    requirement: ApprovalRequirement,
    prompt: String,
    reason: ApprovalReason,
    call: Option<&'a RunToolCallRecord>,
    ttl_seconds: u64,
}

fn ask(run: &RunEnvelope, asked: Asked<'_>, subject: &Value, stored: StoredValue, now: UnixMs) -> NewEvent {
    let ordinal = run.approvals.len() as u64;
    let ttl_ms = i64::try_from(asked.ttl_seconds).unwrap_or(i64::MAX).saturating_mul(1_000);
    // The digest covers what is decided on, and which step of which run it is decided for.
    let bound = json!({ "runId": run.run_id, "stepId": asked.step, "subject": subject });
    let subject_digest = canonical::digest(&bound).unwrap_or_else(|error| canonical::sha256_hex(error.0.as_bytes()));
    NewEvent::system(RunEvent::ApprovalRequested(Box::new(ApprovalRequested {
        approval_id: ApprovalId::new(run.run_key.derive("approval", asked.step.as_str(), ordinal)),
        step_id: asked.step.clone(),
        requirement: asked.requirement,
        prompt: asked.prompt,
        reason: asked.reason,
        call_id: asked.call.map(|call| call.call_id),
        subject: stored,
        subject_digest,
        requested_at_unix_ms: now,
        remind_at_unix_ms: now.plus_ms(ttl_ms / 2),
        expires_at_unix_ms: now.plus_ms(ttl_ms),
    })))
}

/// An answer, checked: the question is open, the answer fits it, the decider may decide, and it is about what was seen.
pub fn decided(
    run: &RunEnvelope,
    approval_id: ApprovalId,
    decision: ApprovalDecision,
    reason: &str,
    subject_digest: Option<&str>,
    actor: &Actor,
    now: UnixMs,
) -> Result<NewEvent, Denial> {
    let approval =
        run.approvals.iter().find(|a| a.approval_id == approval_id).ok_or(Denial::NoSuchApproval(approval_id))?;
    if run.end.is_some() {
        return Err(Denial::RunTerminal(run.status));
    }
    if !approval.is_open() || now >= approval.expires_at_unix_ms {
        return Err(Denial::ApprovalClosed(approval_id));
    }
    if subject_digest.is_some_and(|digest| digest != approval.subject_digest) {
        return Err(Denial::ApprovalSubjectChanged(approval_id));
    }
    if decision == ApprovalDecision::Skip && approval.reason == ApprovalReason::Gate {
        return Err(Denial::DecisionNotAllowed);
    }
    if !may_decide(approval.requirement, actor, run) {
        return Err(Denial::NotAuthorized { role: actor.role });
    }
    if reason.trim().is_empty() {
        return Err(Denial::ReasonRequired);
    }
    let reason = crate::redact::redact_text(reason).chars().take(2_000).collect();
    Ok(NewEvent::by(
        actor.clone(),
        RunEvent::ApprovalDecided { approval_id, decision, decided_by: actor.clone(), reason },
    ))
}

// Teacher and guardian standing comes with scopes of a token (HND-002); until there are tokens, operators stand in.
fn may_decide(requirement: ApprovalRequirement, actor: &Actor, run: &RunEnvelope) -> bool {
    let operator = matches!(actor.role, Role::TenantOperator | Role::PlatformOperator);
    match requirement {
        ApprovalRequirement::None => true,
        ApprovalRequirement::UserConfirmBeforeProceed => actor.actor_id == run.submitted_by.actor_id,
        ApprovalRequirement::Operator | ApprovalRequirement::Teacher | ApprovalRequirement::Guardian => operator,
    }
}

impl ApprovalRecord {
    /// The row of an open question.
    pub fn open_row(&self) -> OpenApproval {
        OpenApproval {
            approval_id: self.approval_id,
            step_id: self.step_id.clone(),
            requirement: self.requirement,
            prompt: self.prompt.clone(),
            reason: self.reason,
            subject_digest: self.subject_digest.clone(),
            requested_at_unix_ms: self.requested_at_unix_ms,
            expires_at_unix_ms: self.expires_at_unix_ms,
        }
    }
}
