//! Requests that are refused before the node hears of them, and those that reach it.

use signalbox_domain::identity::Visibility;
use signalbox_domain::run::decide::RunCommand;
use signalbox_domain::run::status::RunStatus;
use signalbox_proto::v1;
use signalbox_proto::v1::control_run_request::Control;
use tonic::Code;

use super::{as_role, field, fixture, reason, run_id, tenant, with_a_run};
use crate::fake::{envelope, event};

fn submit(json: &str) -> v1::SubmitRunRequest {
    v1::SubmitRunRequest { run_id: String::new(), submission_json: json.as_bytes().to_vec().into() }
}

fn control(control: Control) -> v1::ControlRunRequest {
    v1::ControlRunRequest { run_id: run_id(1).to_string(), control: Some(control), ..Default::default() }
}

#[tokio::test]
async fn a_submission_is_accepted_once_and_replayed_after_that() {
    let mut fixture = fixture().await;
    let mut request = submit(r#"{"rootAgentId":"ref.research","plan":[],"inputs":{"n":1}}"#);
    request.run_id = run_id(7).to_string();
    let first = fixture.client.submit_run(request.clone()).await.unwrap().into_inner();
    assert_eq!((first.run_id, first.replayed), (run_id(7).to_string(), false));
    assert!(fixture.client.submit_run(request).await.unwrap().into_inner().replayed);
    assert_eq!(fixture.node.submissions()[0].mode, "balanced");
}

#[tokio::test]
async fn a_bad_submission_is_refused_with_the_field_named() {
    let mut fixture = fixture().await;
    let deep = format!(r#"{{"rootAgentId":"ref.research","plan":[],"inputs":{}{}}}"#, "[".repeat(80), "]".repeat(80));
    let shape = "json-invalid";
    let cases = [
        ("", shape, "submission_json"),
        ("{", shape, "submission_json"),
        ("[]", shape, "submission_json"),
        (r#"{"plan":[]}"#, shape, "rootAgentId"),
        (r#"{"rootAgentId":"ref.research"}"#, shape, "plan"),
        (r#"{"rootAgentId":"no spaces","plan":[]}"#, shape, "submission_json"),
        (r#"{"rootAgentId":"ref.research","plan":[],"tenantId":"x"}"#, shape, "submission_json"),
        (r#"{"rootAgentId":"ref.research","plan":[],"grants":[]}"#, shape, "submission_json"),
        (r#"{"rootAgentId":"a","rootAgentId":"b","plan":[]}"#, "json-duplicate-key", "submission_json"),
        (r#"{"rootAgentId":"a","plan":[],"inputs":{"n":9007199254740993}}"#, "number-not-exact", "submission_json"),
        (&deep, "json-too-deep", "submission_json"),
    ];
    for (json, code, at) in cases {
        let refused = fixture.client.submit_run(submit(json)).await.unwrap_err();
        assert_eq!((refused.code(), reason(&refused).as_str()), (Code::InvalidArgument, code), "{json}");
        assert_eq!(field(&refused), at, "{json}");
    }
    assert!(fixture.node.submissions().is_empty());
}

#[tokio::test]
async fn ids_that_are_missing_or_no_ids_are_refused_with_the_field_named() {
    let mut fixture = with_a_run().await;
    for (text, code) in [("", "field-missing"), ("1", "id-invalid"), ("\0", "id-invalid"), ("ü", "id-invalid")] {
        let refused = fixture.client.get_run(v1::GetRunRequest { run_id: text.to_owned() }).await.unwrap_err();
        assert_eq!((reason(&refused).as_str(), field(&refused).as_str()), (code, "run_id"), "{text:?}");
        let decide = v1::DecideApprovalRequest { approval_id: text.to_owned(), decision: 1, ..Default::default() };
        let refused = fixture.client.decide_approval(decide).await.unwrap_err();
        assert_eq!((reason(&refused).as_str(), field(&refused).as_str()), (code, "approval_id"), "{text:?}");
    }
    let zero = v1::ReplayRunRequest { run_id: run_id(1).to_string(), at_seq: 0 };
    assert_eq!(field(&fixture.client.replay_run(zero).await.unwrap_err()), "at_seq");
}

#[tokio::test]
async fn each_control_reaches_the_node_as_its_command() {
    let mut fixture = with_a_run().await;
    let branch = v1::ChooseBranch { step_id: String::new(), branch_id: "left".to_owned() };
    let overrides_json = br#"{"mode":"economy"}"#.as_slice().into();
    let retry = v1::RetryWithChanges { step_id: "s1".to_owned(), overrides_json };
    let controls = [
        Control::Pause(v1::Pause {}),
        Control::Resume(v1::Resume {}),
        Control::Cancel(v1::Cancel {}),
        Control::Kill(v1::Kill {}),
        Control::ChooseBranch(branch),
        Control::RetryWithChanges(retry),
        Control::OperatorStep(v1::OperatorStep { step_id: "s1".to_owned() }),
    ];
    for one in controls {
        let mut request = control(one);
        request.reason = "because".to_owned();
        let answer = fixture.client.control_run(request).await.unwrap().into_inner();
        assert_eq!((answer.status.as_str(), answer.seq), ("running", 4));
    }
    let commands: Vec<_> = fixture.node.commands().into_iter().map(|(_, command)| command).collect();
    let reason = "because".to_owned();
    assert_eq!(commands[0], RunCommand::Pause { reason: reason.clone() });
    assert_eq!(commands[3], RunCommand::Kill { reason, blamed_id: None });
    assert!(matches!(&commands[4], RunCommand::ChooseBranch { step_id: None, .. }));
    assert!(
        matches!(&commands[5], RunCommand::RetryWithChanges { overrides, .. } if overrides.mode.as_deref() == Some("economy"))
    );
    assert!(matches!(&commands[6], RunCommand::OperatorStep { step_id: Some(_), .. }));
}

#[tokio::test]
async fn a_fork_answers_with_the_new_run_and_needs_a_fresh_id() {
    let mut fixture = with_a_run().await;
    let fork = |id: String| control(Control::Fork(v1::Fork { run_id: id }));
    let forked = fixture.client.control_run(fork(run_id(8).to_string())).await.unwrap().into_inner();
    assert_eq!((forked.run_id, forked.status.as_str()), (run_id(8).to_string(), "queued"));
    for id in [String::new(), run_id(1).to_string(), run_id(8).to_string()] {
        let refused = fixture.client.control_run(fork(id)).await.unwrap_err();
        assert_eq!((refused.code(), reason(&refused).as_str()), (Code::FailedPrecondition, "fork-without-fresh-id"));
    }
    let refused = fixture.client.control_run(fork("eight".to_owned())).await.unwrap_err();
    assert_eq!((reason(&refused).as_str(), field(&refused).as_str()), ("id-invalid", "fork.run_id"));
}

#[tokio::test]
async fn a_control_for_a_run_as_it_was_is_refused() {
    let mut fixture = with_a_run().await;
    let at = |expected_seq| v1::ControlRunRequest { expected_seq, ..control(Control::Pause(v1::Pause {})) };
    let refused = fixture.client.control_run(at(2)).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::Aborted, "stale-revision"));
    for current in [0, 3] {
        assert_eq!(fixture.client.control_run(at(current)).await.unwrap().into_inner().run_id, run_id(1).to_string());
    }
}

#[tokio::test]
async fn a_command_keeps_the_id_its_caller_gave_it() {
    let mut fixture = with_a_run().await;
    let mut request = control(Control::Pause(v1::Pause {}));
    request.command_id = run_id(42).to_string();
    fixture.client.control_run(request).await.unwrap();
    assert_eq!(fixture.node.commands()[0].0.to_string(), run_id(42).to_string());
}

#[tokio::test]
async fn a_control_that_makes_no_sense_is_refused() {
    let mut fixture = with_a_run().await;
    let retry = |json: &str| {
        let overrides_json = json.as_bytes().to_vec().into();
        control(Control::RetryWithChanges(v1::RetryWithChanges { step_id: "s1".to_owned(), overrides_json }))
    };
    let long = v1::ControlRunRequest { reason: "x".repeat(5_000), ..control(Control::Kill(v1::Kill {})) };
    let nul = v1::ControlRunRequest { reason: "a\0b".to_owned(), ..control(Control::Kill(v1::Kill {})) };
    let none = v1::ControlRunRequest { run_id: run_id(1).to_string(), ..Default::default() };
    let cases = [
        (none, "control-missing"),
        (long, "reason-too-long"),
        (nul, "reason-invalid"),
        (control(Control::ChooseBranch(v1::ChooseBranch::default())), "field-missing"),
        (retry(r#"{"tenantId":"x"}"#), "override-not-allowed"),
        (retry(r#"{"params":7}"#), "overrides-invalid"),
        (retry(r#"{"mode":"a","mode":"b"}"#), "json-duplicate-key"),
    ];
    for (request, code) in cases {
        let refused = fixture.client.control_run(request).await.unwrap_err();
        assert_eq!((refused.code(), reason(&refused).as_str()), (Code::InvalidArgument, code));
    }
    assert!(fixture.node.commands().is_empty());
}

#[tokio::test]
async fn a_decision_must_be_one_and_its_digest_a_digest() {
    let mut fixture = with_a_run().await;
    let approval_id = run_id(1).to_string();
    for (decision, digest, code) in
        [(0, "", "decision-missing"), (77, "", "decision-missing"), (1, "ABC", "digest-invalid")]
    {
        let request = v1::DecideApprovalRequest {
            approval_id: approval_id.clone(),
            decision,
            subject_digest: digest.to_owned(),
            ..Default::default()
        };
        let refused = fixture.client.decide_approval(request).await.unwrap_err();
        assert_eq!((refused.code(), reason(&refused).as_str()), (Code::InvalidArgument, code));
    }
    let open = fixture.client.list_approvals(v1::ListApprovalsRequest {}).await.unwrap().into_inner().approvals;
    let request = v1::DecideApprovalRequest {
        approval_id: open[0].approval_id.clone(),
        decision: 2,
        subject_digest: open[0].subject_digest.clone(),
        ..Default::default()
    };
    let answer = fixture.client.decide_approval(request).await.unwrap().into_inner();
    assert_eq!((answer.run_id, answer.status.as_str()), (approval_id, "running"));
}

#[tokio::test]
async fn pages_follow_each_other_without_loss_or_repeat_and_tokens_fit_their_list_only() {
    let mut fixture = fixture().await;
    for n in 1..=7 {
        fixture.node.hold(envelope(run_id(n), &tenant("acme"), RunStatus::Running));
    }
    let (mut seen, mut token) = (Vec::new(), String::new());
    loop {
        let request = v1::ListRunsRequest { page_size: 3, page_token: token.clone(), ..Default::default() };
        let page = fixture.client.list_runs(request).await.unwrap().into_inner();
        assert!(page.runs.len() <= 3);
        seen.extend(page.runs.into_iter().map(|run| run.run_id));
        if page.next_page_token.is_empty() {
            break;
        }
        token = page.next_page_token;
    }
    let expected: Vec<_> = (1..=7).rev().map(|n| run_id(n).to_string()).collect();
    assert_eq!(seen, expected);
    let other_list = v1::ListRunsRequest { page_token: token, status: vec!["failed".to_owned()], ..Default::default() };
    let refused = fixture.client.list_runs(other_list).await.unwrap_err();
    assert_eq!((reason(&refused).as_str(), field(&refused).as_str()), ("page-token-invalid", "page_token"));
}

#[tokio::test]
async fn the_size_of_a_page_is_bounded_and_statuses_must_exist() {
    let mut fixture = with_a_run().await;
    let refused = fixture.client.list_runs(v1::ListRunsRequest { page_size: 201, ..Default::default() }).await;
    assert_eq!(reason(&refused.unwrap_err()), "page-size-invalid");
    let unknown = v1::ListRunsRequest { status: vec!["done".to_owned()], ..Default::default() };
    assert_eq!(reason(&fixture.client.list_runs(unknown).await.unwrap_err()), "status-unknown");
    let all = v1::ListRunsRequest { page_size: 200, ..Default::default() };
    let page = fixture.client.list_runs(all).await.unwrap().into_inner();
    assert_eq!((page.runs.len(), page.next_page_token.as_str()), (1, ""));
    assert_eq!(fixture.node.filters()[0].1.limit, 200);
}

#[tokio::test]
async fn the_envelope_is_shown_from_operators_of_the_tenant_up() {
    let mut fixture = with_a_run().await;
    for (role, shown) in [("customer", false), ("creator", false), ("tenant-operator", true)] {
        let get = as_role(role, v1::GetRunRequest { run_id: run_id(1).to_string() });
        let run = fixture.client.get_run(get).await.unwrap().into_inner().run.unwrap();
        assert_eq!(run.status, "running");
        assert_eq!(!run.envelope_json.is_empty(), shown, "{role}");
        let replay = as_role(role, v1::ReplayRunRequest { run_id: run_id(1).to_string(), at_seq: 2 });
        let replayed = fixture.client.replay_run(replay).await;
        assert_eq!(replayed.is_ok(), shown, "{role}");
    }
}

#[tokio::test]
async fn an_export_is_whole_or_refused() {
    let mut fixture = with_a_run().await;
    fixture.node.record((1..=250).map(|seq| event(seq, Visibility::TenantOperator)).collect());
    let request = v1::ExportRunRequest { run_id: run_id(1).to_string() };
    let refused = fixture.client.export_run(as_role("customer", request.clone())).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::PermissionDenied, "not-authorized"));
    let mut stream = fixture.client.export_run(as_role("tenant-operator", request)).await.unwrap().into_inner();
    let (mut seqs, mut heads) = (Vec::new(), Vec::new());
    while let Some(message) = stream.message().await.unwrap() {
        heads.push(message.tenant_id);
        seqs.extend(message.events.into_iter().map(|event| event.seq));
    }
    assert_eq!(seqs, (1..=250).collect::<Vec<_>>());
    assert_eq!(heads, ["acme", "", ""]);
}
