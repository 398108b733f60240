//! Questions over the wire: what is shown to whom, and which answers never reach the node.

use serde_json::{Value, json};
use signalbox_proto::v1;
use tonic::Code;

use super::{as_role, as_tenant, field, reason, run_id, with_a_run};

fn ask_for(number: u128) -> v1::GetApprovalRequest {
    v1::GetApprovalRequest { approval_id: run_id(number).to_string() }
}

fn yes() -> v1::DecideApprovalRequest {
    let decision = v1::ApprovalDecision::Approve.into();
    v1::DecideApprovalRequest {
        approval_id: run_id(1).to_string(),
        decision,
        reason: "read it".to_owned(),
        ..Default::default()
    }
}

#[tokio::test]
async fn a_question_is_shown_with_all_that_a_decider_needs() {
    let mut fixture = with_a_run().await;
    let shown = fixture.client.get_approval(ask_for(1)).await.unwrap().into_inner();
    let approval = shown.approval.unwrap();
    assert_eq!((approval.run_id.as_str(), approval.step_id.as_str()), (run_id(1).to_string().as_str(), "gate"));
    assert_eq!((approval.requirement.as_str(), approval.approver_actor_ids), ("operator", vec!["olga".to_owned()]));
    assert_eq!(approval.approver_roles, ["platform-operator"]);
    assert_eq!((approval.remind_at_unix_ms, approval.reminded, approval.expires_at_unix_ms), (2, false, 3));
    assert_eq!(
        (shown.state.as_str(), shown.decided_by.as_str(), shown.decision_reason.as_str()),
        ("rejected", "olga", "too much")
    );
    assert_eq!((shown.actions[0].tool_id.as_str(), shown.actions[0].args_hash.len()), ("memory.write", 64));
}

#[tokio::test]
async fn what_a_question_is_about_is_shown_to_operators_and_to_those_who_may_answer() {
    let mut fixture = with_a_run().await;
    for (role, sees) in [("customer", false), ("creator", false), ("tenant-operator", true)] {
        let shown = fixture.client.get_approval(as_role(role, ask_for(1))).await.unwrap().into_inner();
        assert_eq!(!shown.subject_json.is_empty(), sees, "{role}");
        assert!(!shown.may_decide, "{role}: the question names others");
        if sees {
            let subject: Value = serde_json::from_slice(&shown.subject_json).unwrap();
            assert_eq!(subject, json!({"amount": 10}));
        }
    }
}

#[tokio::test]
async fn a_list_says_who_may_answer_and_that_somebody_was_reminded() {
    let mut fixture = with_a_run().await;
    let open = fixture.client.list_approvals(v1::ListApprovalsRequest {}).await.unwrap().into_inner().approvals;
    assert_eq!((open[0].remind_at_unix_ms, open[0].reminded, open[0].expires_at_unix_ms), (2, true, 3));
    assert!(open[0].approver_actor_ids.is_empty() && open[0].approver_roles.is_empty());
}

#[tokio::test]
async fn a_foreign_question_answers_exactly_as_one_that_was_never_asked() {
    let mut fixture = with_a_run().await;
    let foreign = fixture.client.get_approval(as_tenant("other", ask_for(1))).await.unwrap_err();
    let missing = fixture.client.get_approval(as_tenant("other", ask_for(2))).await.unwrap_err();
    let told = |number: u128, status: &tonic::Status| {
        (status.code(), reason(status), status.message().replace(&run_id(number).to_string(), "ID"))
    };
    assert_eq!(told(1, &foreign), told(2, &missing));
    assert_eq!((foreign.code(), reason(&foreign).as_str()), (Code::NotFound, "no-such-approval"));
}

#[tokio::test]
async fn answers_that_make_no_sense_never_reach_the_node() {
    let mut fixture = with_a_run().await;
    let digest = |text: String| v1::DecideApprovalRequest { subject_digest: text, ..yes() };
    let said = |text: &str| v1::DecideApprovalRequest { reason: text.to_owned(), ..yes() };
    let cases = [
        (said(&"x".repeat(1 << 20)), "reason-too-long", "reason"),
        (said("a\0b"), "reason-invalid", "reason"),
        (v1::DecideApprovalRequest { decision: -1, ..yes() }, "decision-missing", "decision"),
        (v1::DecideApprovalRequest { decision: 4, ..yes() }, "decision-missing", "decision"),
        (digest("A".repeat(64)), "digest-invalid", "subject_digest"),
        (digest("a".repeat(63)), "digest-invalid", "subject_digest"),
        (digest("a".repeat(65)), "digest-invalid", "subject_digest"),
        (digest(format!("{} ", "a".repeat(63))), "digest-invalid", "subject_digest"),
        (v1::DecideApprovalRequest { command_id: "again".to_owned(), ..yes() }, "id-invalid", "command_id"),
    ];
    for (request, code, at) in cases {
        let refused = fixture.client.decide_approval(request).await.unwrap_err();
        assert_eq!((refused.code(), reason(&refused).as_str()), (Code::InvalidArgument, code));
        assert_eq!(field(&refused), at);
    }
    assert!(fixture.client.decide_approval(yes()).await.is_ok());
}

#[tokio::test]
async fn each_denial_of_a_decision_has_its_status() {
    let mut fixture = with_a_run().await;
    for (code, status) in [
        ("approval-closed", Code::FailedPrecondition),
        ("approval-subject-changed", Code::FailedPrecondition),
        ("decision-not-allowed", Code::InvalidArgument),
        ("reason-required", Code::InvalidArgument),
        ("not-authorized", Code::PermissionDenied),
        ("not-an-approver", Code::PermissionDenied),
        ("run-terminal", Code::FailedPrecondition),
    ] {
        fixture.node.deny_with(code);
        let refused = fixture.client.decide_approval(yes()).await.unwrap_err();
        assert_eq!((refused.code(), reason(&refused).as_str()), (status, code));
    }
}
