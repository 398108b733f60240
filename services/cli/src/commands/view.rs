//! The forms in which runs, events and questions are shown. The JSON names are stable: scripts rely on them.

use serde::Serialize;
use serde_json::value::RawValue;
use signalbox_domain::quantity::Micros;
use signalbox_domain::run::event::RunEvent;
use signalbox_proto::v1;

use crate::describe::describe;
use crate::failure::Failure;
use crate::output::{cost, instant};

/// A run.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunView<'a> {
    run_id: &'a str,
    status: &'a str,
    root_agent_id: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pipeline_id: &'a str,
    submitted_at_unix_micros: i64,
    last_seq: u64,
    total_cost_units: Micros,
    percent: u32,
    #[serde(skip_serializing_if = "str::is_empty")]
    waiting_for: &'a str,
    closed: bool,
    bucket: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    cost_band: &'a str,
    latency_band: &'a str,
    latency_ms: u64,
    has_warnings: bool,
    #[serde(skip_serializing_if = "str::is_empty")]
    family: &'a str,
    tenant_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_at_unix_micros: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    envelope: Option<&'a RawValue>,
}

impl<'a> RunView<'a> {
    /// The view of a run off the wire.
    pub(crate) fn of(run: &'a v1::Run) -> Result<Self, Failure> {
        let envelope = if run.envelope_json.is_empty() { None } else { Some(raw(&run.envelope_json)?) };
        Ok(Self {
            run_id: &run.run_id,
            status: &run.status,
            root_agent_id: &run.root_agent_id,
            pipeline_id: &run.pipeline_id,
            submitted_at_unix_micros: run.submitted_at_unix_micros,
            last_seq: run.last_seq,
            total_cost_units: cost(run.total_cost_micros),
            percent: run.percent,
            waiting_for: &run.waiting_for,
            closed: run.closed,
            bucket: &run.bucket,
            cost_band: &run.cost_band,
            latency_band: &run.latency_band,
            latency_ms: run.latency_ms,
            has_warnings: run.has_warnings,
            family: &run.family,
            tenant_id: &run.tenant_id,
            ended_at_unix_micros: run.ended_at_unix_micros,
            envelope,
        })
    }
}

/// An event.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EventView<'a> {
    seq: u64,
    at_unix_micros: i64,
    actor_id: &'a str,
    actor_role: &'a str,
    visibility: &'a str,
    kind: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    progress_kind: &'a str,
    version: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<SummaryView<'a>>,
    prev_hash: &'a str,
    hash: &'a str,
}

/// A run as its customer is told of it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SummaryView<'a> {
    headline: &'a str,
    percent: u32,
    #[serde(skip_serializing_if = "str::is_empty")]
    current_step: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    waiting_for: &'a str,
}

impl<'a> EventView<'a> {
    /// The view of an event off the wire.
    pub(crate) fn of(event: &'a v1::RunEvent) -> Result<Self, Failure> {
        Ok(Self {
            seq: event.seq,
            at_unix_micros: event.at_unix_micros,
            actor_id: &event.actor_id,
            actor_role: &event.actor_role,
            visibility: &event.visibility,
            kind: &event.kind,
            progress_kind: &event.progress_kind,
            version: event.version,
            body: if event.body_json.is_empty() { None } else { Some(raw(&event.body_json)?) },
            summary: event.summary.as_ref().map(|summary| SummaryView {
                headline: &summary.headline,
                percent: summary.percent,
                current_step: &summary.current_step,
                waiting_for: &summary.waiting_for,
            }),
            prev_hash: &event.prev_hash,
            hash: &event.hash,
        })
    }
}

/// An event as one line of text: what kind of progress it is, and what happened; for customers how the run stands now.
pub(crate) fn event_line(event: &v1::RunEvent) -> String {
    let words = match &event.summary {
        Some(summary) => told(summary),
        None => RunEvent::decode(&event.kind, &event.body_json).map(|event| describe(&event)).unwrap_or_default(),
    };
    // The kind of the event says more than that of the progress, and is what an operator looks up.
    let kind = if event.summary.is_some() { &event.progress_kind } else { &event.kind };
    let line = format!("{:>5}  {}  {kind:<19}  {words}", event.seq, instant(event.at_unix_micros));
    line.trim_end().to_owned()
}

fn told(summary: &v1::CustomerSummary) -> String {
    let mut words = format!("{} {} %", summary.headline, summary.percent);
    if !summary.current_step.is_empty() {
        words.push_str(&format!(", {}", summary.current_step));
    }
    if !summary.waiting_for.is_empty() {
        words.push_str(&format!(", waiting for {}", summary.waiting_for));
    }
    words
}

/// A line of a running call.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProgressView<'a> {
    /// The line.
    pub(crate) progress: ProgressLine<'a>,
}

/// What a running call says.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProgressLine<'a> {
    step_id: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    percent: Option<u32>,
    #[serde(skip_serializing_if = "str::is_empty")]
    progress_kind: &'a str,
}

impl<'a> ProgressView<'a> {
    /// The view of a line off the wire.
    pub(crate) fn of(line: &'a v1::CallProgressLine) -> Self {
        let progress = ProgressLine {
            step_id: &line.step_id,
            message: &line.message,
            percent: line.percent,
            progress_kind: &line.progress_kind,
        };
        Self { progress }
    }
}

/// An open question.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ApprovalView<'a> {
    approval_id: &'a str,
    run_id: &'a str,
    step_id: &'a str,
    requirement: &'a str,
    prompt: &'a str,
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    approvers: Option<ApproversView<'a>>,
    subject_digest: &'a str,
    requested_at_unix_ms: i64,
    remind_at_unix_ms: i64,
    reminded: bool,
    expires_at_unix_ms: i64,
}

/// Who is named.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ApproversView<'a> {
    actor_ids: &'a [String],
    roles: &'a [String],
}

impl<'a> ApprovalView<'a> {
    /// The view of a question off the wire.
    pub(crate) fn of(approval: &'a v1::Approval) -> Self {
        Self {
            approval_id: &approval.approval_id,
            run_id: &approval.run_id,
            step_id: &approval.step_id,
            requirement: &approval.requirement,
            prompt: &approval.prompt,
            reason: &approval.reason,
            subject_digest: &approval.subject_digest,
            approvers: named(approval)
                .then_some(ApproversView { actor_ids: &approval.approver_actor_ids, roles: &approval.approver_roles }),
            requested_at_unix_ms: approval.requested_at_unix_ms,
            remind_at_unix_ms: approval.remind_at_unix_ms,
            reminded: approval.reminded,
            expires_at_unix_ms: approval.expires_at_unix_ms,
        }
    }
}

fn named(approval: &v1::Approval) -> bool {
    !approval.approver_actor_ids.is_empty() || !approval.approver_roles.is_empty()
}

/// Who may answer a question, in words.
pub(crate) fn who_may_answer(approval: &v1::Approval) -> String {
    if !named(approval) {
        return approval.requirement.clone();
    }
    let roles = approval.approver_roles.iter().map(|role| format!("every {role}"));
    let names: Vec<_> = approval.approver_actor_ids.iter().cloned().chain(roles).collect();
    format!("{}: {}", approval.requirement, names.join(", "))
}

/// A question, open or not, with what it is about.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct QuestionView<'a> {
    #[serde(flatten)]
    approval: ApprovalView<'a>,
    state: &'a str,
    may_decide: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    actions: Vec<ActionView<'a>>,
    #[serde(skip_serializing_if = "str::is_empty")]
    decided_by: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    decision_reason: &'a str,
}

/// A call that waits for a yes.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ActionView<'a> {
    step_id: &'a str,
    agent_id: &'a str,
    tool_id: &'a str,
    args_hash: &'a str,
}

impl<'a> QuestionView<'a> {
    /// The view of a question off the wire.
    pub(crate) fn of(answer: &'a v1::GetApprovalResponse, approval: &'a v1::Approval) -> Result<Self, Failure> {
        let action = |action: &'a v1::GuardedAction| ActionView {
            step_id: &action.step_id,
            agent_id: &action.agent_id,
            tool_id: &action.tool_id,
            args_hash: &action.args_hash,
        };
        Ok(Self {
            approval: ApprovalView::of(approval),
            state: &answer.state,
            may_decide: answer.may_decide,
            subject: if answer.subject_json.is_empty() { None } else { Some(raw(&answer.subject_json)?) },
            actions: answer.actions.iter().map(action).collect(),
            decided_by: &answer.decided_by,
            decision_reason: &answer.decision_reason,
        })
    }
}

/// JSON as the server sent it, neither parsed into numbers nor written anew.
pub(crate) fn raw(bytes: &[u8]) -> Result<&RawValue, Failure> {
    serde_json::from_slice(bytes)
        .map_err(|error| Failure::new("answer-invalid", format!("the server sent something that is not JSON: {error}")))
}
