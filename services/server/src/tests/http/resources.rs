//! Runs and questions as resources: what reaches the node, what is shown to whom.

use serde_json::{Value, json};
use signalbox_domain::identity::Visibility;
use signalbox_domain::run::decide::RunCommand;
use signalbox_domain::run::status::RunStatus;

use super::super::{fixture, run_id, tenant, with_a_run};
use super::{ask, get, post};
use crate::fake::{envelope, event};

fn at(number: u128, rest: &str) -> String {
    format!("/v1/runs/{}{rest}", run_id(number))
}

#[tokio::test]
async fn a_submission_is_created_once_and_replayed_after_that() {
    let fixture = fixture().await;
    let body = json!({"runId": run_id(7), "rootAgentId": "ref.research", "plan": [], "inputs": {"n": 1}});
    let first = post(fixture.address, "/v1/runs", &body).await;
    assert_eq!((first.status, &first.json()["replayed"]), (201, &json!(false)));
    assert_eq!(first.header("location"), at(7, ""));
    let again = post(fixture.address, "/v1/runs", &body).await;
    assert_eq!((again.status, &again.json()["replayed"]), (200, &json!(true)));
    assert_eq!(again.json()["runId"], run_id(7).to_string());
}

#[tokio::test]
async fn each_control_reaches_the_node_as_its_command() {
    let fixture = with_a_run().await;
    let why = json!({"reason": "because"});
    let with = |more: Value| {
        let mut body = why.clone();
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    for (action, body) in [
        ("pause", why.clone()),
        ("resume", why.clone()),
        ("cancel", why.clone()),
        ("kill", why.clone()),
        ("choose-branch", with(json!({"branchId": "left"}))),
        ("retry", with(json!({"stepId": "s1", "overrides": {"mode": "economy"}}))),
        ("step", with(json!({"stepId": "s1"}))),
    ] {
        let answer = post(fixture.address, &at(1, &format!("/{action}")), &body).await;
        assert_eq!(answer.status, 200, "{action}: {}", answer.text());
        assert_eq!(answer.json(), json!({"runId": run_id(1), "status": "running", "seq": 4}));
    }
    // Nothing at all may be said of a control that needs nothing.
    assert_eq!(ask(fixture.address, "POST", &at(1, "/pause"), &[]).await.status, 200);
    let commands: Vec<_> = fixture.node.commands().into_iter().map(|(_, command)| command).collect();
    let reason = "because".to_owned();
    assert_eq!(commands[0], RunCommand::Pause { reason: reason.clone() });
    assert_eq!(commands[3], RunCommand::Kill { reason, blamed_id: None });
    assert!(matches!(&commands[4], RunCommand::ChooseBranch { step_id: None, .. }));
    assert!(
        matches!(&commands[5], RunCommand::RetryWithChanges { overrides, .. } if overrides.mode.as_deref() == Some("economy"))
    );
    assert!(matches!(&commands[6], RunCommand::OperatorStep { step_id: Some(_), .. }));
    assert_eq!(commands[7], RunCommand::Pause { reason: String::new() });
}

#[tokio::test]
async fn controls_that_make_no_sense_never_reach_the_node() {
    let fixture = with_a_run().await;
    for (action, body, code, field) in [
        ("pause", json!({"reason": "x".repeat(5_000)}), "reason-too-long", "reason"),
        ("pause", json!({"reason": "a\u{0}b"}), "reason-invalid", "reason"),
        ("pause", json!({"reason": 7}), "field-invalid", "reason"),
        ("pause", json!({"expectedSeq": -1}), "field-invalid", "expectedSeq"),
        ("pause", json!({"expectedSeq": 0}), "field-invalid", "expectedSeq"),
        ("pause", json!({"commandId": "again"}), "id-invalid", "commandId"),
        ("choose-branch", json!({}), "field-missing", "branchId"),
        ("retry", json!({}), "field-missing", "stepId"),
        ("retry", json!({"stepId": "a", "overrides": {"tenantId": "x"}}), "override-not-allowed", "overrides"),
        ("retry", json!({"stepId": "a", "overrides": 7}), "overrides-invalid", "overrides"),
        ("fork", json!({"runId": "eight"}), "id-invalid", "runId"),
    ] {
        let refused = post(fixture.address, &at(1, &format!("/{action}")), &body).await;
        assert_eq!((refused.problem(), refused.field().as_str()), ((400, code.to_owned()), field), "{action} {body}");
    }
    let stale = post(fixture.address, &at(1, "/pause"), &json!({"expectedSeq": 2})).await;
    assert_eq!(stale.problem(), (409, "stale-revision".to_owned()));
    assert!(fixture.node.commands().is_empty());
}

#[tokio::test]
async fn a_fork_answers_with_the_new_run_and_needs_a_fresh_id() {
    let fixture = with_a_run().await;
    let forked = post(fixture.address, &at(1, "/fork"), &json!({"runId": run_id(8)})).await.json();
    assert_eq!((&forked["runId"], &forked["status"]), (&json!(run_id(8)), &json!("queued")));
    for body in [json!({}), json!({"runId": run_id(1)})] {
        let refused = post(fixture.address, &at(1, "/fork"), &body).await;
        assert_eq!(refused.problem(), (412, "fork-without-fresh-id".to_owned()));
    }
}

#[tokio::test]
async fn pages_follow_each_other_without_loss_or_repeat() {
    let fixture = fixture().await;
    for n in 1..=7 {
        fixture.node.hold(envelope(run_id(n), &tenant("acme"), RunStatus::Running));
    }
    let (mut seen, mut token) = (Vec::new(), String::new());
    loop {
        let target = format!("/v1/runs?pageSize=3&status=running&status=paused{token}");
        let page = get(fixture.address, &target).await.json();
        let runs = page["runs"].as_array().unwrap().clone();
        assert!(runs.len() <= 3 && runs.iter().all(|run| run.get("envelope").is_none()));
        assert!(runs.iter().all(|run| run["totalCostUnits"] == json!(1.5)));
        seen.extend(runs.iter().map(|run| run["runId"].as_str().unwrap().to_owned()));
        match page["nextPageToken"].as_str() {
            Some(next) => token = format!("&pageToken={next}"),
            None => break,
        }
    }
    let expected: Vec<_> = (1..=7).rev().map(|n| run_id(n).to_string()).collect();
    assert_eq!(seen, expected);
    let other = get(fixture.address, &format!("/v1/runs?status=failed{token}")).await;
    assert_eq!(other.problem(), (400, "page-token-invalid".to_owned()));
}

#[tokio::test]
async fn the_envelope_is_shown_from_operators_of_the_tenant_up() {
    let fixture = with_a_run().await;
    for (role, shown) in [("customer", false), ("creator", false), ("tenant-operator", true)] {
        let run = ask(fixture.address, "GET", &at(1, ""), &[("role", role)]).await.json();
        assert_eq!(run["status"], "running");
        assert_eq!(run.get("envelope").is_some(), shown, "{role}");
        let replayed = ask(fixture.address, "GET", &at(1, "/replay?atSeq=2"), &[("role", role)]).await;
        assert_eq!(replayed.status, if shown { 200 } else { 403 }, "{role}");
    }
    let replayed = get(fixture.address, &at(1, "/replay?atSeq=2")).await.json();
    assert_eq!((&replayed["atSeq"], &replayed["envelope"]["lastSeq"]), (&json!(2), &json!(2)));
}

#[tokio::test]
async fn an_export_is_whole_or_refused() {
    let fixture = with_a_run().await;
    fixture.node.record((1..=250).map(|seq| event(seq, Visibility::TenantOperator)).collect());
    let refused = ask(fixture.address, "GET", &at(1, "/export"), &[("role", "customer")]).await;
    assert_eq!(refused.problem(), (403, "not-authorized".to_owned()));
    let whole = get(fixture.address, &at(1, "/export")).await;
    assert_eq!(whole.header("content-type"), "application/jsonl");
    let lines: Vec<Value> = whole.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((lines.len(), &lines[0]["format"]), (252, &json!("signalbox.journal.v1")));
    assert_eq!((&lines[1]["seq"], &lines[1]["body"]), (&json!(1), &json!("{}")));
    assert_eq!((&lines[251]["events"], &lines[251]["headHash"]), (&json!(250), &lines[250]["hash"]));
}

#[tokio::test]
async fn questions_are_listed_shown_and_answered() {
    let fixture = with_a_run().await;
    let listed = get(fixture.address, "/v1/approvals").await.json();
    let question = &listed["approvals"][0];
    assert_eq!((&question["runId"], &question["prompt"]), (&json!(run_id(1)), &json!("Publish?")));
    assert!(question.get("approvers").is_none());
    let target = format!("/v1/approvals/{}", run_id(1));
    let shown = get(fixture.address, &target).await.json();
    assert_eq!((&shown["state"], &shown["decidedBy"]), (&json!("rejected"), &json!("olga")));
    assert_eq!((&shown["subject"], &shown["actions"][0]["toolId"]), (&json!({"amount": 10}), &json!("memory.write")));
    assert_eq!(shown["approvers"], json!({"actorIds": ["olga"], "roles": ["platform-operator"]}));
    for (role, sees) in [("customer", false), ("creator", false), ("tenant-operator", true)] {
        let shown = ask(fixture.address, "GET", &target, &[("role", role)]).await.json();
        assert_eq!(shown.get("subject").is_some(), sees, "{role}");
    }

    let decide = format!("{target}/decide");
    let digest = "0".repeat(64);
    let yes = json!({"decision": "approve", "reason": "read it", "subjectDigest": digest});
    let decided = post(fixture.address, &decide, &yes).await.json();
    assert_eq!(decided, json!({"approvalId": run_id(1), "runId": run_id(1), "status": "running", "seq": 4}));
    for (body, code, field) in [
        (json!({}), "field-missing", "decision"),
        (json!({"decision": "perhaps"}), "field-invalid", "decision"),
        (json!({"decision": 1}), "field-invalid", "decision"),
        (json!({"decision": "approve", "subjectDigest": "ABC"}), "digest-invalid", "subjectDigest"),
        (json!({"decision": "approve", "reason": "x".repeat(5_000)}), "reason-too-long", "reason"),
    ] {
        let refused = post(fixture.address, &decide, &body).await;
        assert_eq!((refused.problem(), refused.field().as_str()), ((400, code.to_owned()), field), "{body}");
    }
}

#[tokio::test]
async fn a_foreign_id_answers_byte_for_byte_like_a_missing_one_on_every_route() {
    let fixture = with_a_run().await;
    let gets = ["", "/events", "/events?after=1", "/replay?atSeq=1", "/export", "/explain"];
    let posts = ["pause", "resume", "cancel", "kill", "choose-branch", "retry", "step", "fork"];
    let mut seen = Vec::new();
    for number in [1, 2] {
        let id = run_id(number).to_string();
        let foreign = [("tenant", "other"), ("x-request-id", "same")];
        let mut answers = Vec::new();
        for rest in gets {
            answers.push(ask(fixture.address, "GET", &at(number, rest), &foreign).await);
        }
        for action in posts {
            let body = match action {
                "choose-branch" => json!({"branchId": "left"}),
                "retry" => json!({"stepId": "a"}),
                "fork" => json!({"runId": run_id(9)}),
                _ => json!({}),
            };
            let headers = [&[super::JSON], foreign.as_slice()].concat();
            let target = at(number, &format!("/{action}"));
            answers.push(super::send(fixture.address, &target, &headers, body.to_string().as_bytes()).await);
        }
        let question = format!("/v1/approvals/{id}");
        answers.push(ask(fixture.address, "GET", &question, &foreign).await);
        let headers = [&[super::JSON], foreign.as_slice()].concat();
        let yes = br#"{"decision":"approve"}"#;
        answers.push(super::send(fixture.address, &format!("{question}/decide"), &headers, yes).await);
        let told = |reply: super::Reply| {
            let headers: Vec<_> = reply.headers.iter().filter(|(name, _)| name != "date").cloned().collect();
            (reply.status, headers, reply.text().replace(&id, "ID"))
        };
        seen.push(answers.into_iter().map(told).collect::<Vec<_>>());
    }
    assert_eq!(seen[0], seen[1]);
    assert!(seen[0].iter().all(|(status, ..)| *status == 404), "{:?}", seen[0]);
}

#[tokio::test]
async fn a_list_is_filtered_as_over_grpc_and_filters_that_make_no_sense_are_refused() {
    let fixture = with_a_run().await;
    let target =
        "/v1/runs?agentId=ref.research&bucket=in-flight&costBand=free&hasWarnings=true&startedAfterUnixMs=5&text=x";
    let listed = get(fixture.address, target).await;
    assert_eq!(listed.status, 200, "{}", listed.text());
    let (_, filter) = fixture.node.filters().pop().unwrap();
    assert_eq!((filter.has_warnings, filter.text.as_deref()), (Some(true), Some("x")));
    assert_eq!((filter.bucket.len(), filter.cost_band.len()), (1, 1));
    for (query, field) in [
        ("bucket=nowhere", "bucket"),
        ("costBand=nowhere", "costBand"),
        ("latencyBand=nowhere", "latencyBand"),
        ("hasWarnings=perhaps", "hasWarnings"),
        ("startedAfterUnixMs=x", "startedAfterUnixMs"),
        ("startedBeforeUnixMs=18446744073709551615", "startedBeforeUnixMs"),
        ("tenantId=acme&allTenants=true", "tenantId"),
        ("agentId=no%20spaces", "agentId"),
    ] {
        let refused = get(fixture.address, &format!("/v1/runs?{query}")).await;
        assert_eq!((refused.status, refused.field().as_str()), (400, field), "{query}: {}", refused.text());
    }
    // What is not for customers is left out, not sent empty.
    let told = ask(fixture.address, "GET", &at(1, ""), &[("role", "customer")]).await.json();
    for field in ["rootAgentId", "family", "totalCostUnits", "costBand", "envelope"] {
        assert!(told.get(field).is_none(), "{field}");
    }
}
