//! Domain values in the form in which HTTP shows them.

use serde_json::Value;
use signalbox_domain::dashboard::DashboardEntry;
use signalbox_domain::governance::kill_switch::degradation_offer;
use signalbox_domain::ids::RunId;
use signalbox_domain::quantity::Micros;
use signalbox_domain::run::append::OpenApproval;
use signalbox_domain::run::chain::StoredEvent;
use signalbox_domain::run::envelope::RunEnvelope;
use signalbox_domain::run::progress::CustomerSummary;

use signalbox_proto::v1;

use super::shapes::{
    Action, Approval, ApproversView, Degradation, Event, GapView, PreflightView, QuestionView, Run, SteeredRun,
    ToldEvent,
};
use crate::api::{Caller, Preflight, Question};
use crate::asks::{Steered, sees_envelope};
use crate::{convert, listing};

/// A run in a list: without its envelope, and for customers without agent and cost.
pub(super) fn row(entry: &DashboardEntry, caller: &Caller) -> Run {
    let shown = listing::row(entry, caller.actor.role);
    // What is not for customers is left out here, where gRPC sends nothing.
    let given = |text: String| Some(text).filter(|text| !text.is_empty());
    Run {
        run_id: shown.run_id,
        status: shown.status,
        tenant_id: shown.tenant_id,
        total_cost_units: (!shown.root_agent_id.is_empty()).then_some(Micros(shown.total_cost_micros)),
        root_agent_id: given(shown.root_agent_id),
        family: given(shown.family),
        pipeline_id: given(shown.pipeline_id),
        submitted_at_unix_micros: shown.submitted_at_unix_micros,
        ended_at_unix_micros: shown.ended_at_unix_micros,
        last_seq: shown.last_seq,
        bucket: shown.bucket,
        cost_band: given(shown.cost_band),
        latency_ms: shown.latency_ms,
        latency_band: shown.latency_band,
        has_warnings: shown.has_warnings,
        percent: shown.percent,
        waiting_for: given(shown.waiting_for),
        closed: shown.closed,
        degradation: None,
        envelope: None,
    }
}

/// A run as it stands; with its envelope if the caller may see what is in it.
pub(super) fn run(envelope: RunEnvelope, caller: &Caller) -> Run {
    let entry = convert::entry(&envelope, envelope.last_at);
    let degradation = degradation(&envelope);
    Run { degradation, envelope: sees_envelope(caller).then(|| Box::new(envelope)), ..row(&entry, caller) }
}

fn degradation(envelope: &RunEnvelope) -> Option<Degradation> {
    let end = envelope.end.as_ref()?;
    let mode_id = end.safe_degradation_mode_id.clone()?;
    let (offer, offer_text) = degradation_offer(&mode_id)?;
    let status_copy = end.user_visible_status_copy.clone().unwrap_or_default();
    Some(Degradation { mode_id, status_copy, offer: offer.to_owned(), offer_text: offer_text.to_owned() })
}

/// What a submission lacks: the same as over gRPC.
pub(super) fn preflight(preflight: Preflight) -> PreflightView {
    let told = convert::preflight(preflight);
    let gap = |gap: v1::PreflightGap| GapView { code: gap.code, subject: gap.subject, message: gap.message };
    PreflightView {
        ok: told.ok,
        gaps: told.gaps.into_iter().map(gap).collect(),
        mode: Some(told.mode).filter(|mode| !mode.is_empty()),
        max_cost_units: Micros(told.max_cost_micros),
        estimate_cost_units: Micros(told.estimate_micros),
        simulated_step_ids: told.simulated_step_ids,
    }
}

/// A run that was steered.
pub(super) fn steered(steered: &Steered) -> SteeredRun {
    SteeredRun { run_id: steered.run_id.to_string(), status: steered.status.as_str().to_owned(), seq: steered.seq }
}

/// An event of the journal.
pub(super) fn event(event: &StoredEvent) -> Event {
    Event {
        seq: event.seq,
        at_unix_micros: event.at.0,
        actor_id: event.actor.actor_id.to_string(),
        actor_role: event.actor.role.as_str().to_owned(),
        visibility: event.visibility.as_str().to_owned(),
        kind: event.kind.clone(),
        version: u32::from(event.version),
        // Bodies are JSON; one that is not is told of as its text, and found by its hash.
        body: serde_json::from_slice(&event.body)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&event.body).into_owned())),
        prev_hash: event.prev_hash.hex(),
        hash: event.hash.hex(),
        progress_kind: convert::kind_of(event).as_str(),
    }
}

/// An event as a customer is told of it: in words alone.
pub(super) fn told<'a>(event: &StoredEvent, summary: Option<&'a CustomerSummary>) -> ToldEvent<'a> {
    ToldEvent {
        seq: event.seq,
        at_unix_micros: event.at.0,
        visibility: event.visibility.as_str(),
        kind: event.kind.clone(),
        progress_kind: convert::kind_of(event).as_str(),
        summary,
    }
}

/// An open question.
pub(super) fn approval((run_id, open): (RunId, OpenApproval)) -> Approval {
    Approval {
        approval_id: open.approval_id.to_string(),
        run_id: run_id.to_string(),
        step_id: open.step_id.to_string(),
        requirement: convert::requirement(open.requirement).to_owned(),
        prompt: open.prompt,
        reason: convert::approval_reason(open.reason).to_owned(),
        approvers: open.approvers.map(|named| ApproversView {
            actor_ids: named.actor_ids.iter().map(ToString::to_string).collect(),
            roles: named.roles.iter().map(|role| role.as_str().to_owned()).collect(),
        }),
        subject_digest: open.subject_digest,
        requested_at_unix_ms: open.requested_at_unix_ms.0,
        remind_at_unix_ms: open.remind_at_unix_ms.0,
        reminded: open.reminded,
        expires_at_unix_ms: open.expires_at_unix_ms.0,
    }
}

/// One question; with what it is about if the caller may see that.
pub(super) fn question(question: Question, caller: &Caller) -> QuestionView {
    let Question { run_id, asked, shown, may_decide } = question;
    QuestionView {
        approval: approval((run_id, asked.open_row())),
        state: convert::question_state(&asked).to_owned(),
        subject: (may_decide || sees_envelope(caller)).then_some(shown),
        actions: asked
            .actions
            .iter()
            .map(|action| Action {
                step_id: action.step_id.to_string(),
                agent_id: action.agent_id.to_string(),
                tool_id: action.tool_id.to_string(),
                args_hash: action.args_hash.clone(),
            })
            .collect(),
        may_decide,
        decided_by: asked.decided_by.map(|actor| actor.actor_id.to_string()),
        decision_reason: asked.decision_reason,
    }
}
