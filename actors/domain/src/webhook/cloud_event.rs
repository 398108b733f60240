//! What is sent: CloudEvents 1.0 as structured JSON.
//!
//! It says what happened, to which thing, and where it stands in its journal. What customers wrote, asked or were answered is
//! not sent at all: whoever is told may look it up, with the authority that this needs.

use serde_json::{Map, Value, json};

use crate::governance::audit::AuditEvent;
use crate::ids::{RunId, TenantId, WebhookId};
use crate::redact::redact_text;
use crate::run::chain::StoredEvent;
use crate::run::event::{GovernanceAudited, RunEvent};
use crate::time::UnixMicros;
use crate::webhook::EventType;

/// The media type of what is sent.
pub const CONTENT_TYPE: &str = "application/cloudevents+json";

/// The entry of a journal that is told.
#[derive(Debug, Clone, Copy)]
pub enum Entry<'a> {
    /// Of a run's journal.
    Run {
        /// The entry.
        event: &'a StoredEvent,
        /// Whose run.
        tenant_id: &'a TenantId,
        /// The run.
        run_id: RunId,
    },
    /// Of the audit journal.
    Act(&'a AuditEvent),
}

/// The id of what is told: the hash of the journal's entry, so that it is the same at every attempt and on every node, and the
/// entry can be found in an export.
pub fn event_id(hash: &str, part: u32) -> String {
    if part == 0 { format!("evt_{hash}") } else { format!("evt_{hash}_{part}") }
}

/// The id of a ping.
pub fn ping_id(fresh: impl std::fmt::Display) -> String {
    format!("ping_{fresh}")
}

/// The bytes that are sent and signed; `None` if the entry says nothing of this type.
pub fn body(entry: Entry<'_>, event_type: EventType, part: u32) -> Option<Vec<u8>> {
    let (tenant, subject, at, hash, data) = match entry {
        Entry::Run { event, tenant_id, run_id } => {
            let mut data = run_data(&event.event()?, part)?;
            data.insert("tenantId".to_owned(), json!(tenant_id));
            data.insert("runId".to_owned(), json!(run_id));
            data.insert("seq".to_owned(), json!(event.seq));
            (Some(tenant_id), format!("runs/{run_id}"), event.at, event.hash.hex(), data)
        }
        Entry::Act(act) => {
            let said = act.said()?;
            let (kind, id) = act.subject.as_str().split_once(':')?;
            let plural = if kind == "switch" { "switches".to_owned() } else { format!("{kind}s") };
            let mut data = Map::new();
            data.insert(format!("{kind}Id"), json!(id));
            data.insert("auditSeq".to_owned(), json!(act.seq));
            data.insert("actor".to_owned(), json!({ "actorId": act.actor.actor_id, "role": act.actor.role }));
            data.insert("reason".to_owned(), json!(redact_text(&said.reason)));
            for (name, value) in [("before", said.before), ("after", said.after)] {
                if let Some(value) = value {
                    data.insert(name.to_owned(), value);
                }
            }
            if let Some(tenant) = &act.tenant_id {
                data.insert("tenantId".to_owned(), json!(tenant));
            }
            (act.tenant_id.as_ref(), format!("{plural}/{id}"), act.at, act.hash.hex(), data)
        }
    };
    Some(written(&event_id(&hash, part), event_type, tenant, &subject, at, data))
}

/// The bytes of a ping.
pub fn ping(id: &str, webhook: &WebhookId, tenant: Option<&TenantId>, now: UnixMicros) -> Vec<u8> {
    let mut data = Map::new();
    data.insert("webhookId".to_owned(), json!(webhook));
    written(id, EventType::Ping, tenant, &format!("webhooks/{webhook}"), now, data)
}

fn written(
    id: &str,
    event_type: EventType,
    tenant: Option<&TenantId>,
    subject: &str,
    at: UnixMicros,
    data: Map<String, Value>,
) -> Vec<u8> {
    let source = tenant.map_or_else(|| "/platform".to_owned(), |tenant| format!("/tenants/{tenant}"));
    let time = jiff::Timestamp::from_microsecond(at.0).map(|at| at.to_string()).unwrap_or_default();
    let event = json!({
        "specversion": "1.0",
        "id": id,
        "source": source,
        "type": event_type.full_name(),
        "subject": subject,
        "time": time,
        "datacontenttype": "application/json",
        "data": data,
    });
    // Made of JSON alone, so there is nothing in it that cannot be written.
    serde_json::to_vec(&event).unwrap_or_default()
}

fn run_data(event: &RunEvent, part: u32) -> Option<Map<String, Value>> {
    let data = match event {
        RunEvent::RunFinished(end) => json!({
            "status": end.status, "code": end.code, "blamedId": end.blamed_id, "stepId": end.step_id,
            "safeDegradationModeId": end.safe_degradation_mode_id,
        }),
        RunEvent::ApprovalRequested(asked) => json!({
            "approvalId": asked.approval_id, "stepId": asked.step_id, "reason": asked.reason,
            "requirement": asked.requirement, "subjectDigest": asked.subject_digest,
            "toolIds": asked.actions.iter().map(|action| &action.tool_id).collect::<Vec<_>>(),
            "expiresAtUnixMs": asked.expires_at_unix_ms,
        }),
        RunEvent::ApprovalDecided { approval_id, decision, decided_by, .. } => json!({
            "approvalId": approval_id, "decision": decision,
            "decidedBy": { "actorId": decided_by.actor_id, "role": decided_by.role },
        }),
        RunEvent::ApprovalExpired { approval_id } => json!({ "approvalId": approval_id, "decision": "expired" }),
        RunEvent::GovernanceAudited(audited) => match audited.as_ref() {
            GovernanceAudited::Budget { budget_id, readings } => {
                let own = readings.iter().find(|reading| reading.budget_id == *budget_id);
                json!({ "budgetId": budget_id, "reading": own })
            }
            GovernanceAudited::KillSwitch { .. }
            | GovernanceAudited::Overshoot { .. }
            | GovernanceAudited::SubagentBudgetExceeded { .. }
            | GovernanceAudited::IdentityMismatch { .. } => return None,
        },
        RunEvent::CallPending(pending) => {
            let warning = pending.budget_warnings.get(usize::try_from(part).ok()?)?;
            json!({
                "budgetId": warning.budget_id, "verdict": warning.verdict,
                "graceEndUnixSeconds": warning.grace_end_unix_seconds,
            })
        }
        RunEvent::RunSubmitted(_)
        | RunEvent::RunStarted {}
        | RunEvent::CallSettled(_)
        | RunEvent::CallRefused(_)
        | RunEvent::CallRedispatched { .. }
        | RunEvent::LateEvidence(_)
        | RunEvent::StepThrottled { .. }
        | RunEvent::StepSkipped { .. }
        | RunEvent::StepFailed { .. }
        | RunEvent::HandoffDispatched(_)
        | RunEvent::HandoffDenied(_)
        | RunEvent::HandoffReconciled(_)
        | RunEvent::ApprovalReminded { .. }
        | RunEvent::BranchOffered { .. }
        | RunEvent::TimerSet { .. }
        | RunEvent::TimerFired { .. }
        | RunEvent::ModelBegan { .. }
        | RunEvent::ModelAsked(_)
        | RunEvent::ModelAnswered(_)
        | RunEvent::ModelFellBack { .. }
        | RunEvent::ControlApplied(_)
        | RunEvent::RunClosed {} => return None,
    };
    let Value::Object(mut data) = data else { return None };
    data.retain(|_, value| !value.is_null());
    Some(data)
}
