//! Domain values out to their wire forms. The wire types stop at this crate.

use signalbox_domain::ids::RunId;
use signalbox_domain::run::append::OpenApproval;
use signalbox_domain::run::chain::StoredEvent;
use signalbox_domain::run::envelope::RunEnvelope;
use signalbox_domain::run::event::ApprovalReason;
use signalbox_domain::run::plan::ApprovalRequirement;
use signalbox_ports::directory::RunRow;
use signalbox_proto::v1;

use crate::api::ErrorKind;
use crate::errors::Refusal;

/// One event; the body is the exact bytes that were hashed.
pub(crate) fn event(event: StoredEvent) -> v1::RunEvent {
    v1::RunEvent {
        seq: event.seq,
        at_unix_micros: event.at.0,
        actor_id: event.actor.actor_id.to_string(),
        actor_role: event.actor.role.as_str().to_owned(),
        visibility: event.visibility.as_str().to_owned(),
        kind: event.kind,
        version: u32::from(event.version),
        body_json: event.body.into(),
        prev_hash: event.prev_hash.hex(),
        hash: event.hash.hex(),
    }
}

/// A run in a list: without its envelope.
pub(crate) fn row(row: RunRow) -> v1::Run {
    v1::Run {
        run_id: row.run_id.to_string(),
        status: row.projection.status.as_str().to_owned(),
        root_agent_id: row.root_agent_id,
        pipeline_id: row.pipeline_id.map(|id| id.to_string()).unwrap_or_default(),
        submitted_at_unix_micros: row.submitted_at.0,
        last_seq: row.last_seq,
        total_cost_micros: row.projection.total_cost_micros,
        percent: u32::from(row.projection.percent),
        waiting_for: row.projection.waiting_for.unwrap_or_default(),
        closed: row.projection.closed,
        envelope_json: Default::default(),
    }
}

/// A run as it stands; with its envelope if the caller may see what is in it.
pub(crate) fn run(envelope: &RunEnvelope, with_envelope: bool) -> Result<v1::Run, Refusal> {
    Ok(v1::Run {
        run_id: envelope.run_id.to_string(),
        status: envelope.status.as_str().to_owned(),
        root_agent_id: envelope.root_agent_id.to_string(),
        pipeline_id: envelope.pipeline_id.as_ref().map(ToString::to_string).unwrap_or_default(),
        submitted_at_unix_micros: envelope.submitted_at.0,
        last_seq: envelope.last_seq,
        total_cost_micros: envelope.cost_ledger.total_cost_units.0,
        percent: u32::from(envelope.percent()),
        waiting_for: envelope.waiting_for().unwrap_or_default(),
        closed: envelope.closed,
        envelope_json: if with_envelope { envelope_json(envelope)?.into() } else { Default::default() },
    })
}

/// The envelope as JSON.
pub(crate) fn envelope_json(envelope: &RunEnvelope) -> Result<Vec<u8>, Refusal> {
    serde_json::to_vec(envelope)
        .map_err(|error| Refusal::new(ErrorKind::Internal, "envelope-not-json", error.to_string()))
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
    }
}

const fn requirement(requirement: ApprovalRequirement) -> &'static str {
    match requirement {
        ApprovalRequirement::None => "none",
        ApprovalRequirement::Operator => "operator",
        ApprovalRequirement::Teacher => "teacher",
        ApprovalRequirement::Guardian => "guardian",
        ApprovalRequirement::UserConfirmBeforeProceed => "user-confirm-before-proceed",
    }
}

const fn approval_reason(reason: ApprovalReason) -> &'static str {
    match reason {
        ApprovalReason::Gate => "gate",
        ApprovalReason::UnknownCallOutcome => "unknown-call-outcome",
    }
}
