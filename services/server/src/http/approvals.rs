//! Questions to people: which are open, what each is about, and the answers.

use axum::http::StatusCode;
use signalbox_domain::ids::ApprovalId;
use signalbox_domain::run::event::ApprovalDecision;

use super::call::{Answered, Call, json};
use super::shapes::{ApprovalList, DecideRequest, Decided, Decision};
use super::views;
use crate::validate;

/// `GET /v1/approvals`
pub(super) fn list(call: Call) -> Answered {
    Box::pin(async move {
        let caller = call.caller()?;
        let open = call.runs.api.approvals(&caller).await?;
        json(StatusCode::OK, &ApprovalList { approvals: open.into_iter().map(views::approval).collect() })
    })
}

/// `GET /v1/approvals/{approvalId}`
pub(super) fn get(call: Call) -> Answered {
    Box::pin(async move {
        let caller = call.caller()?;
        let question = call.runs.api.approval(&caller, call.id("approvalId")?).await?;
        json(StatusCode::OK, &views::question(question, &caller))
    })
}

/// `POST /v1/approvals/{approvalId}/decide`
pub(super) fn decide(mut call: Call) -> Answered {
    Box::pin(async move {
        let caller = call.caller()?;
        let approval_id: ApprovalId = call.id("approvalId")?;
        let DecideRequest { decision, reason, subject_digest, command_id } = call.body().await?;
        let decision = match decision {
            Decision::Approve => ApprovalDecision::Approve,
            Decision::Reject => ApprovalDecision::Reject,
            Decision::Skip => ApprovalDecision::Skip,
        };
        let reason = validate::reason(reason)?;
        let digest = validate::digest("subjectDigest", subject_digest)?;
        let command_id = call.runs.command_id(&command_id)?;
        let steered = call.runs.decided(&caller, approval_id, decision, reason, digest, command_id).await?;
        let decided = Decided {
            approval_id: approval_id.to_string(),
            run_id: steered.run_id.to_string(),
            status: steered.status.as_str().to_owned(),
            seq: steered.seq,
        };
        json(StatusCode::OK, &decided)
    })
}
