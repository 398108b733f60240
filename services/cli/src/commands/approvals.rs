//! `approvals list` and `approvals decide`.

use serde_json::json;
use signalbox_proto::v1;
use uuid::Uuid;

use super::view::ApprovalView;
use crate::args::{Answer, ApprovalsCommand};
use crate::client::{Client, timed, until_answered};
use crate::failure::Failure;
use crate::output::{Out, instant};

/// Shows or answers questions.
pub(crate) async fn run(client: Client, command: ApprovalsCommand, out: &mut Out) -> Result<(), Failure> {
    match command {
        ApprovalsCommand::List => list(client, out).await,
        ApprovalsCommand::Decide { id, answer, reason, subject_digest, command_id } => {
            let request = v1::DecideApprovalRequest {
                approval_id: id.to_string(),
                decision: decision(&answer).into(),
                reason,
                subject_digest: subject_digest.unwrap_or_default(),
                command_id: command_id.unwrap_or_else(Uuid::new_v4).to_string(),
            };
            decide(client, request, out).await
        }
    }
}

async fn list(mut client: Client, out: &mut Out) -> Result<(), Failure> {
    let answer = client.list_approvals(timed(v1::ListApprovalsRequest {})).await?.into_inner();
    if out.is_json() {
        let approvals: Vec<_> = answer.approvals.iter().map(ApprovalView::of).collect();
        return out.json(&json!({ "approvals": approvals }));
    }
    let rows: Vec<Vec<String>> = answer
        .approvals
        .into_iter()
        .map(|open| {
            let expires = instant(open.expires_at_unix_ms.saturating_mul(1_000));
            vec![open.approval_id, open.run_id, open.step_id, open.requirement, expires, open.prompt]
        })
        .collect();
    out.table(&["QUESTION", "RUN", "STEP", "WHO MAY ANSWER", "EXPIRES", "PROMPT"], &rows)
}

async fn decide(client: Client, request: v1::DecideApprovalRequest, out: &mut Out) -> Result<(), Failure> {
    let approval_id = request.approval_id.clone();
    let answer =
        until_answered(async || client.clone().decide_approval(timed(request.clone())).await).await?.into_inner();
    if out.is_json() {
        let view = json!({ "approvalId": approval_id, "runId": answer.run_id, "status": answer.status });
        return out.json(&view);
    }
    out.line(&format!("run {} is {}", answer.run_id, answer.status))
}

// The command line lets exactly one of the three through.
const fn decision(answer: &Answer) -> v1::ApprovalDecision {
    match answer {
        Answer { approve: true, .. } => v1::ApprovalDecision::Approve,
        Answer { skip: true, .. } => v1::ApprovalDecision::Skip,
        Answer { .. } => v1::ApprovalDecision::Reject,
    }
}
