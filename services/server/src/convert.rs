//! Domain values out to their wire forms. The wire types stop at this crate.

use signalbox_domain::dashboard::DashboardEntry;
use signalbox_domain::ids::RunId;
use signalbox_domain::invocation::Gap;
use signalbox_domain::quantity::BudgetCategory;
use signalbox_domain::redact::redact_text;
use signalbox_domain::run::advance::projection;
use signalbox_domain::run::append::{OpenApproval, RunProjection};
use signalbox_domain::run::chain::StoredEvent;
use signalbox_domain::run::envelope::{ApprovalRecord, RunEnvelope};
use signalbox_domain::run::event::{ApprovalDecision, ApprovalReason, GuardedAction};
use signalbox_domain::run::plan::ApprovalRequirement;
use signalbox_domain::run::progress::{CustomerSummary, ProgressKind, progress_kind_of_stored};
use signalbox_domain::run::verify::Report;
use signalbox_domain::time::UnixMicros;
use signalbox_proto::v1;

use crate::api::{Caller, ErrorKind, Preflight, Question, WatchItem};
use crate::asks::sees_envelope;
use crate::errors::Refusal;
use crate::listing;

/// One event; the body is the exact bytes that were hashed.
pub(crate) fn event(event: &StoredEvent) -> v1::RunEvent {
    v1::RunEvent {
        seq: event.seq,
        at_unix_micros: event.at.0,
        actor_id: event.actor.actor_id.to_string(),
        actor_role: event.actor.role.as_str().to_owned(),
        visibility: event.visibility.as_str().to_owned(),
        kind: event.kind.clone(),
        version: u32::from(event.version),
        body_json: event.body.clone().into(),
        prev_hash: event.prev_hash.hex(),
        hash: event.hash.hex(),
        progress_kind: String::new(),
        summary: None,
    }
}

/// What a watcher is sent.
pub(crate) fn watched(item: WatchItem) -> v1::WatchRunResponse {
    use v1::watch_run_response::Item;
    let item = match item {
        WatchItem::Event(stored) => {
            Item::Event(v1::RunEvent { progress_kind: kind_of(&stored).as_str().to_owned(), ..event(&stored) })
        }
        WatchItem::Told { event, summary } => Item::Event(told(&event, summary.as_deref())),
        WatchItem::Progress { kind, step_id, message, percent } => Item::Progress(v1::CallProgressLine {
            step_id: step_id.to_string(),
            message,
            percent: percent.map(u32::from),
            progress_kind: kind.as_str().to_owned(),
        }),
    };
    v1::WatchRunResponse { item: Some(item) }
}

/// What a submission lacks.
pub(crate) fn preflight(preflight: Preflight) -> v1::PreflightRunResponse {
    // A category has one budget at most, so this is the one there is.
    let cost = preflight.budgets.iter().find(|budget| budget.category == BudgetCategory::CostUnits);
    let gap = |gap: Gap| {
        let redacted = |text: &str| redact_text(text).into_owned();
        v1::PreflightGap {
            code: gap.code.code().to_owned(),
            subject: redacted(&gap.subject),
            message: redacted(&gap.message),
        }
    };
    v1::PreflightRunResponse {
        warnings: preflight.warnings,
        ok: preflight.gaps.is_empty(),
        mode: preflight.bounds.map(|bounds| bounds.mode.as_str().to_owned()).unwrap_or_default(),
        max_cost_micros: cost.map_or(0, |budget| budget.limit.0),
        estimate_micros: preflight.estimate.0,
        simulated_step_ids: preflight.simulated_steps.iter().map(ToString::to_string).collect(),
        gaps: preflight.gaps.into_iter().map(gap).collect(),
    }
}

/// The kind of progress an event is; one that this version cannot read is for operators.
pub(crate) fn kind_of(stored: &StoredEvent) -> ProgressKind {
    progress_kind_of_stored(stored)
}

/// An event as a customer is told of it: in words alone.
fn told(stored: &StoredEvent, summary: Option<&CustomerSummary>) -> v1::RunEvent {
    v1::RunEvent {
        seq: stored.seq,
        at_unix_micros: stored.at.0,
        visibility: stored.visibility.as_str().to_owned(),
        kind: stored.kind.clone(),
        version: u32::from(stored.version),
        progress_kind: kind_of(stored).as_str().to_owned(),
        summary: summary.map(|summary| v1::CustomerSummary {
            headline: summary.headline.clone(),
            percent: u32::from(summary.percent),
            current_step: summary.current_step.clone().unwrap_or_default(),
            waiting_for: summary.waiting_for.clone().unwrap_or_default(),
        }),
        ..v1::RunEvent::default()
    }
}

/// A run as it stands, as a row of the list it would be in.
pub(crate) fn entry(envelope: &RunEnvelope, read_at: UnixMicros) -> DashboardEntry {
    DashboardEntry {
        run_key: envelope.run_key,
        run_id: envelope.run_id,
        tenant_id: envelope.tenant_id.clone(),
        root_agent_id: envelope.root_agent_id.clone(),
        pipeline_id: envelope.pipeline_id.clone(),
        started_at: envelope.submitted_at,
        ended_at: envelope.finished_at,
        last_seq: envelope.last_seq,
        last_at: envelope.last_at,
        read_at,
        // Where it stands was said by whoever read the envelope.
        projection: RunProjection { slow_at: None, ..projection(envelope) },
    }
}

/// A run as it stands; with its envelope if the caller may see what is in it.
pub(crate) fn run(envelope: &RunEnvelope, read_at: UnixMicros, caller: &Caller) -> Result<v1::Run, Refusal> {
    let envelope_json = if sees_envelope(caller) { envelope_json(envelope)?.into() } else { Default::default() };
    Ok(v1::Run { envelope_json, ..listing::row(&entry(envelope, read_at), caller.actor.role) })
}

/// The envelope as JSON.
pub(crate) fn envelope_json(envelope: &RunEnvelope) -> Result<Vec<u8>, Refusal> {
    serde_json::to_vec(envelope)
        .map_err(|error| Refusal::new(ErrorKind::Internal, "envelope-not-json", error.to_string()))
}

/// What verification found; of many problems the first, which is most often the cause of the others.
pub(crate) fn report(report: Report) -> v1::VerifyRunResponse {
    let finding_count = report.findings.len() as u64;
    let first = report.findings.into_iter().next();
    v1::VerifyRunResponse {
        ok: report.ok,
        events: report.events,
        head_hash: report.head_hash,
        open_call_ids: report.open_calls.iter().map(ToString::to_string).collect(),
        first_finding: first.map(|f| v1::VerifyFinding { seq: f.seq, code: f.code, message: f.message }),
        finding_count,
    }
}

/// An open question.
pub(crate) fn approval((run_id, open): (RunId, OpenApproval)) -> v1::Approval {
    v1::Approval {
        approval_id: open.approval_id.to_string(),
        run_id: run_id.to_string(),
        step_id: open.step_id.to_string(),
        requirement: requirement(open.requirement).to_owned(),
        prompt: open.prompt,
        reason: approval_reason(open.reason).to_owned(),
        subject_digest: open.subject_digest,
        requested_at_unix_ms: open.requested_at_unix_ms.0,
        expires_at_unix_ms: open.expires_at_unix_ms.0,
        remind_at_unix_ms: open.remind_at_unix_ms.0,
        reminded: open.reminded,
        approver_actor_ids: open.approvers.iter().flat_map(|a| &a.actor_ids).map(ToString::to_string).collect(),
        approver_roles: open.approvers.iter().flat_map(|a| &a.roles).map(|role| role.as_str().to_owned()).collect(),
    }
}

/// One question, open or not; with what it is about if the caller may see that.
pub(crate) fn question(question: Question, sees_subject: bool) -> v1::GetApprovalResponse {
    let Question { run_id, asked, shown, may_decide } = question;
    let state = question_state(&asked);
    v1::GetApprovalResponse {
        approval: Some(approval((run_id, asked.open_row()))),
        state: state.to_owned(),
        subject_json: if sees_subject { shown.to_string().into_bytes().into() } else { Default::default() },
        actions: asked.actions.iter().map(action).collect(),
        may_decide,
        decided_by: asked.decided_by.map(|actor| actor.actor_id.to_string()).unwrap_or_default(),
        decision_reason: asked.decision_reason.unwrap_or_default(),
    }
}

/// How a question stands, in one word.
pub(crate) const fn question_state(asked: &ApprovalRecord) -> &'static str {
    match (asked.decision, asked.lapsed) {
        (Some(ApprovalDecision::Approve), _) => "approved",
        (Some(ApprovalDecision::Reject), _) => "rejected",
        (Some(ApprovalDecision::Skip), _) => "skipped",
        (None, true) => "lapsed",
        (None, false) => "open",
    }
}

fn action(action: &GuardedAction) -> v1::GuardedAction {
    v1::GuardedAction {
        step_id: action.step_id.to_string(),
        agent_id: action.agent_id.to_string(),
        tool_id: action.tool_id.to_string(),
        args_hash: action.args_hash.clone(),
    }
}

pub(crate) const fn requirement(requirement: ApprovalRequirement) -> &'static str {
    match requirement {
        ApprovalRequirement::None => "none",
        ApprovalRequirement::Operator => "operator",
        ApprovalRequirement::Teacher => "teacher",
        ApprovalRequirement::Guardian => "guardian",
        ApprovalRequirement::UserConfirmBeforeProceed => "user-confirm-before-proceed",
    }
}

pub(crate) const fn approval_reason(reason: ApprovalReason) -> &'static str {
    match reason {
        ApprovalReason::Gate => "gate",
        ApprovalReason::UnknownCallOutcome => "unknown-call-outcome",
    }
}
