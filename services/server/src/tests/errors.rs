//! What the node refuses arrives as the status of the table, whatever method was called.

use signalbox_ports::journal::StoreError;
use signalbox_proto::v1;
use tonic::Code;
use tonic_types::StatusExt;

use super::{as_tenant, reason, run_id, with_a_run};
use crate::api::ApiError;

#[tokio::test]
async fn a_refusal_of_the_node_reaches_the_client_of_every_method_with_its_code() {
    let mut fixture = with_a_run().await;
    fixture.node.refuse_with(ApiError::Store(StoreError::Unavailable("the store is away".to_owned())));
    let run = run_id(1).to_string();
    let client = &mut fixture.client;
    let submission = br#"{"rootAgentId":"ref.research","plan":[]}"#.as_slice().into();
    let control = Some(v1::control_run_request::Control::Pause(v1::Pause {}));
    let decide = v1::DecideApprovalRequest { approval_id: run.clone(), decision: 1, ..Default::default() };
    let statuses = [
        client.submit_run(v1::SubmitRunRequest { run_id: run.clone(), submission_json: submission }).await.err(),
        client.get_run(v1::GetRunRequest { run_id: run.clone() }).await.err(),
        client.list_runs(v1::ListRunsRequest::default()).await.err(),
        client.watch_run(v1::WatchRunRequest { run_id: run.clone(), after_seq: 0 }).await.err(),
        client.control_run(v1::ControlRunRequest { run_id: run.clone(), control, ..Default::default() }).await.err(),
        client.replay_run(v1::ReplayRunRequest { run_id: run.clone(), at_seq: 1 }).await.err(),
        client.export_run(v1::ExportRunRequest { run_id: run.clone() }).await.err(),
        client.list_approvals(v1::ListApprovalsRequest {}).await.err(),
        client.decide_approval(decide).await.err(),
    ];
    for (i, status) in statuses.into_iter().enumerate() {
        let status = status.unwrap_or_else(|| panic!("method {i} was not refused"));
        assert_eq!((status.code(), reason(&status).as_str()), (Code::Unavailable, "store-unavailable"), "method {i}");
        assert!(status.get_details_retry_info().is_some(), "method {i}");
    }
}

#[tokio::test]
async fn a_denied_command_is_an_error_with_the_code_of_the_denial() {
    let mut fixture = with_a_run().await;
    for (code, status) in [
        ("run-terminal", Code::FailedPrecondition),
        ("invalid-status-for-pause", Code::FailedPrecondition),
        ("no-such-branch", Code::InvalidArgument),
        ("not-authorized", Code::PermissionDenied),
    ] {
        fixture.node.deny_with(code);
        let run = run_id(1).to_string();
        let control = Some(v1::control_run_request::Control::Pause(v1::Pause {}));
        let request = v1::ControlRunRequest { run_id: run.clone(), control, ..Default::default() };
        let refused = fixture.client.control_run(request).await.unwrap_err();
        assert_eq!((refused.code(), reason(&refused).as_str()), (status, code));
        let decide = v1::DecideApprovalRequest { approval_id: run, decision: 1, ..Default::default() };
        let refused = fixture.client.decide_approval(decide).await.unwrap_err();
        assert_eq!((refused.code(), reason(&refused).as_str()), (status, code));
    }
}

#[tokio::test]
async fn a_foreign_run_answers_exactly_as_one_that_does_not_exist() {
    let mut fixture = with_a_run().await;
    let foreign = v1::GetRunRequest { run_id: run_id(1).to_string() };
    let missing = v1::GetRunRequest { run_id: run_id(2).to_string() };
    let foreign = fixture.client.get_run(as_tenant("other", foreign)).await.unwrap_err();
    let missing = fixture.client.get_run(as_tenant("other", missing)).await.unwrap_err();
    assert_eq!(foreign.code(), Code::NotFound);
    assert_eq!(
        foreign.message().replace(&run_id(1).to_string(), "ID"),
        missing.message().replace(&run_id(2).to_string(), "ID")
    );
    assert_eq!((foreign.code(), reason(&foreign)), (missing.code(), reason(&missing)));

    let approval = v1::DecideApprovalRequest { approval_id: run_id(1).to_string(), decision: 1, ..Default::default() };
    let refused = fixture.client.decide_approval(as_tenant("other", approval)).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::NotFound, "no-such-approval"));

    let export = v1::ExportRunRequest { run_id: run_id(1).to_string() };
    let refused = fixture.client.export_run(as_tenant("other", export)).await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound);
    let listed = fixture.client.list_runs(as_tenant("other", v1::ListRunsRequest::default())).await.unwrap();
    assert!(listed.into_inner().runs.is_empty());
}

#[tokio::test]
async fn a_caller_without_a_valid_credential_is_refused_before_anything_else() {
    let mut fixture = with_a_run().await;
    let request = super::as_role("nobody", v1::GetRunRequest { run_id: "not even an id".to_owned() });
    let refused = fixture.client.get_run(request).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::Unauthenticated, "unauthenticated"));
}
