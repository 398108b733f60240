//! `approvals list`, `show` and `decide`.

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use signalbox_proto::v1;
use uuid::Uuid;

use super::view::{ApprovalView, QuestionView, who_may_answer};
use crate::client::{Client, timed, until_answered};
use crate::failure::Failure;
use crate::output::{Out, instant};

/// `approvals`.
#[derive(Debug, Subcommand)]
pub(crate) enum ApprovalsCommand {
    /// Lists the open questions, oldest first.
    #[command(after_help = "Example:
  signalbox approvals list")]
    List,
    #[command(after_help = "Example:
  signalbox approvals show APPROVAL")]
    /// Shows one question, open or not: what it is about, who may answer, and until when.
    Show {
        /// The question.
        id: Uuid,
    },
    /// Answers a question.
    #[command(after_help = "Examples:
  signalbox approvals decide APPROVAL --approve --reason \"read it\"
  signalbox approvals decide APPROVAL --reject --reason \"the second source is missing\"")]
    Decide {
        /// The question.
        id: Uuid,
        /// The answer.
        #[command(flatten)]
        answer: Answer,
        /// Why; kept in the journal.
        #[arg(long, value_name = "TEXT")]
        reason: String,
        /// What you saw: the answer is refused if the question is about something else by now.
        #[arg(long, value_name = "SHA256")]
        subject_digest: Option<String>,
        /// Names the command, so that saying it twice is harmless.
        #[arg(long, value_name = "UUID")]
        command_id: Option<Uuid>,
    },
}

/// Exactly one of three.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Answer {
    /// Yes; for a call whose outcome nobody knows: send it again.
    #[arg(long)]
    pub(crate) approve: bool,
    /// No; for a call whose outcome nobody knows: the step failed.
    #[arg(long)]
    pub(crate) reject: bool,
    /// For a call whose outcome nobody knows: take the step as done.
    #[arg(long)]
    pub(crate) skip: bool,
}

/// Shows or answers questions.
pub(crate) async fn run(client: Client, command: ApprovalsCommand, out: &mut Out) -> Result<(), Failure> {
    match command {
        ApprovalsCommand::List => list(client, out).await,
        ApprovalsCommand::Show { id } => show(client, id, out).await,
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
    if answer.approvals.is_empty() {
        return out.line("no question is open");
    }
    let rows: Vec<Vec<String>> = answer
        .approvals
        .into_iter()
        .map(|open| {
            let expires = format!("{}{}", at(open.expires_at_unix_ms), if open.reminded { " (reminded)" } else { "" });
            let who = who_may_answer(&open);
            vec![open.approval_id, open.run_id, open.step_id, who, expires, open.prompt]
        })
        .collect();
    out.table_with(
        &["QUESTION", "RUN", "STEP", "WHO MAY ANSWER", "EXPIRES", "PROMPT"],
        &["RUN", "STEP", "EXPIRES"],
        &rows,
    )
}

async fn show(mut client: Client, id: Uuid, out: &mut Out) -> Result<(), Failure> {
    let request = v1::GetApprovalRequest { approval_id: id.to_string() };
    let answer = client.get_approval(timed(request)).await?.into_inner();
    let approval = answer.approval.clone().unwrap_or_default();
    let view = QuestionView::of(&answer, &approval)?;
    if out.is_json() {
        return out.json(&view);
    }
    let decided = if answer.decided_by.is_empty() {
        String::new()
    } else {
        format!("by {}: {}", answer.decided_by, answer.decision_reason)
    };
    let open = answer.state == "open";
    let reminder = match (approval.reminded, open) {
        (true, _) => format!("was due at {}", at(approval.remind_at_unix_ms)),
        (false, true) => format!("comes at {}", at(approval.remind_at_unix_ms)),
        (false, false) => String::new(),
    };
    let you = match (open, answer.may_decide) {
        (true, true) => "yes",
        (true, false) => "no",
        (false, _) => "",
    };
    out.fields(&[
        ("question", approval.approval_id.clone()),
        ("asked", approval.prompt.clone()),
        ("because", if approval.reason == "gate" { String::new() } else { approval.reason.clone() }),
        ("state", answer.state.clone()),
        ("decided", decided),
        ("run", approval.run_id.clone()),
        ("step", approval.step_id.clone()),
        ("who may answer", who_may_answer(&approval)),
        ("you may answer", you.to_owned()),
        ("asked at", at(approval.requested_at_unix_ms)),
        ("reminder", reminder),
        ("expires at", at(approval.expires_at_unix_ms)),
        ("digest", approval.subject_digest.clone()),
    ])?;
    for action in &answer.actions {
        out.line(&format!("a yes lets step {} call {} as {}", action.step_id, action.tool_id, action.agent_id))?;
    }
    if answer.subject_json.is_empty() {
        return out.line("what it is about is shown to operators and to those who may answer");
    }
    // All of it, as it is: a summary would leave out what matters once.
    let subject: Value = serde_json::from_slice(&answer.subject_json).map_err(unreadable)?;
    let text = serde_json::to_string_pretty(&subject).map_err(unreadable)?;
    out.line("it is about:")?;
    text.lines().try_for_each(|line| out.line(&format!("  {line}")))
}

fn unreadable(error: serde_json::Error) -> Failure {
    Failure::new("answer-invalid", format!("the server sent something that is not JSON: {error}"))
}

fn at(unix_ms: i64) -> String {
    instant(unix_ms.saturating_mul(1_000))
}

async fn decide(client: Client, request: v1::DecideApprovalRequest, out: &mut Out) -> Result<(), Failure> {
    let approval_id = request.approval_id.clone();
    let answer =
        until_answered(async || client.clone().decide_approval(timed(request.clone())).await).await?.into_inner();
    if out.is_json() {
        return out.json(&json!({
            "approvalId": approval_id, "runId": answer.run_id, "status": answer.status, "seq": answer.seq,
        }));
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
