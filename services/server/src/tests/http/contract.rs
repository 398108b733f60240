//! Every error, on both edges: one table, and no second opinion.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use signalbox_domain::ids::RunId;
use signalbox_domain::invocation::{Gap, GapCode};
use signalbox_domain::run::decide::Denial;
use signalbox_domain::run::replay::ReplayError;
use signalbox_domain::run::submission::SubmissionError;
use signalbox_ports::journal::StoreError;
use signalbox_ports::sealing::SealError;
use signalbox_proto::v1;
use tonic::Code;
use tonic_types::StatusExt as _;
use uuid::Uuid;

use super::super::{reason, run_id, with_a_run};
use super::{get, post};
use crate::api::ApiError;

/// What HTTP says where gRPC says this (EXE-018).
fn statuses(code: Code) -> &'static [u16] {
    match code {
        Code::InvalidArgument => &[400, 415, 422],
        Code::Unauthenticated => &[401],
        Code::PermissionDenied => &[403],
        Code::NotFound => &[404, 410],
        Code::Aborted | Code::AlreadyExists => &[409],
        // EXE-003 fixes 503 for tools that are not configured.
        Code::FailedPrecondition => &[412, 503],
        // RUN-028 fixes 503 for a node that is full.
        Code::ResourceExhausted => &[402, 413, 429, 503],
        Code::Unavailable => &[503],
        Code::DataLoss | Code::Internal => &[500],
        other @ (Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::OutOfRange
        | Code::Unimplemented) => panic!("{other:?} is nowhere in the table"),
    }
}

fn errors() -> Vec<ApiError> {
    let run = RunId::new(Uuid::from_u128(1));
    let denied = |code: &str| ApiError::DeniedBefore { code: code.to_owned(), message: "no".to_owned() };
    let mut errors = vec![
        ApiError::Submission(SubmissionError::UnknownMode("x".to_owned())),
        ApiError::Submission(SubmissionError::SecretInId("plan")),
        ApiError::Denied(Denial::StaleRevision { expected: 1, actual: 2 }),
        ApiError::Denied(Denial::ForkWithoutFreshId),
        ApiError::Denied(Denial::ReasonRequired),
        ApiError::NoSuchRun("r".to_owned()),
        ApiError::NoSuchApproval("a".to_owned()),
        ApiError::RunIdConflict(run),
        ApiError::CommandIdConflict("c".to_owned()),
        ApiError::ToolsNotConfigured(vec!["`memory.read`".to_owned()]),
        ApiError::ScopeMissing("tool:memory.read".to_owned()),
        ApiError::Preflight(vec![Gap {
            code: GapCode::ConsentRequired,
            subject: "consent".to_owned(),
            message: "confirm one".to_owned(),
        }]),
        ApiError::Unsealable(SealError::NoKey),
        ApiError::Replay(ReplayError::NoSuchPoint),
        ApiError::Overloaded { retry_after_ms: 2_500 },
        ApiError::CursorUnknown { after_seq: 9, last_seq: 3 },
        ApiError::Draining,
        ApiError::AnswerPending,
        ApiError::JournalCorrupt { run_id: run, seq: 4, problem: "gap".to_owned() },
        ApiError::Store(StoreError::Unavailable("secret host".to_owned())),
        ApiError::Store(StoreError::Unknown("secret host".to_owned())),
        ApiError::Internal("secret table".to_owned()),
    ];
    for code in [
        "not-authorized",
        "not-an-approver",
        "stale-revision",
        "reason-required",
        "reason-too-long",
        "override-not-allowed",
        "no-such-branch",
        "no-such-step",
        "decision-not-allowed",
        "run-terminal",
        "invalid-status-for-pause",
        "approval-closed",
        "approval-subject-changed",
    ] {
        errors.push(denied(code));
    }
    errors
}

#[tokio::test]
async fn every_error_has_the_same_code_facts_and_wait_on_both_edges_and_the_statuses_of_one_table() {
    let mut fixture = with_a_run().await;
    let mut codes = BTreeSet::new();
    for error in errors() {
        fixture.node.refuse_with(error.clone());
        let over_http = get(fixture.address, &format!("/v1/runs/{}", run_id(1))).await;
        let run = v1::GetRunRequest { run_id: run_id(1).to_string() };
        let over_grpc = fixture.client.get_run(run).await.unwrap_err();
        let (status, code) = over_http.problem();
        assert_eq!(code, reason(&over_grpc), "{error:?}");
        assert!(statuses(over_grpc.code()).contains(&status), "{error:?}: {status} and {:?}", over_grpc.code());
        let wait = over_grpc.get_details_retry_info().and_then(|info| info.retry_delay);
        let told = wait.map(|delay| delay.as_secs().to_string()).unwrap_or_default();
        assert_eq!(over_http.header("retry-after"), told, "{error:?}");
        let problem = over_http.json();
        let facts = over_grpc.get_details_error_info().unwrap().metadata;
        for (key, fact) in &facts {
            // gRPC names fields as its messages do.
            if key == "field" {
                let ours = problem["details"][key].as_str().unwrap();
                assert!(!ours.is_empty() && !ours.contains('_'), "{error:?}: {ours}");
            } else {
                assert_eq!(problem["details"][key], json!(fact), "{error:?}");
            }
        }
        assert_eq!(problem["details"].as_object().unwrap().len(), facts.len());
        if status == 500 && code == "internal" {
            assert!(!over_http.text().contains("secret"), "{}", over_http.text());
            assert!(problem["detail"].as_str().unwrap().contains(over_http.header("x-request-id")));
        }
        codes.insert(code);
    }
    assert!(codes.len() >= 28, "{codes:?}");
}

#[tokio::test]
async fn a_refusal_of_the_node_reaches_the_client_of_every_route_with_its_code() {
    let fixture = with_a_run().await;
    fixture.node.refuse_with(ApiError::Store(StoreError::Unavailable("away".to_owned())));
    let run = run_id(1);
    let mut answers = Vec::new();
    for rest in ["", "/events", "/replay?atSeq=1", "/export", "/explain"] {
        answers.push((rest.to_owned(), get(fixture.address, &format!("/v1/runs/{run}{rest}")).await));
    }
    let snapshot = "/api/admin/agentic-operations/snapshot".to_owned();
    let compliance = "/api/admin/agentic-operations/mode-compliance?agentId=ref.research&mode=fast".to_owned();
    for target in
        [compliance, "/v1/runs".to_owned(), "/v1/approvals".to_owned(), format!("/v1/approvals/{run}"), snapshot]
    {
        answers.push((target.clone(), get(fixture.address, &target).await));
    }
    let execute =
        json!({"runId": run, "tenantId": "acme", "rootAgentId": "ref.research", "plan": [{"toolId": "memory.read"}]});
    let mut bodies: Vec<(String, Value)> = vec![
        ("/v1/agentic/runs/execute".to_owned(), execute),
        ("/v1/runs".to_owned(), json!({"rootAgentId": "ref.research", "plan": []})),
        ("/v1/runs/preflight".to_owned(), json!({"rootAgentId": "ref.research", "plan": []})),
        (format!("/v1/approvals/{run}/decide"), json!({"decision": "approve"})),
    ];
    for (action, body) in [
        ("pause", json!({})),
        ("resume", json!({})),
        ("cancel", json!({})),
        ("kill", json!({})),
        ("choose-branch", json!({"branchId": "b"})),
        ("retry", json!({"stepId": "s"})),
        ("step", json!({})),
        ("fork", json!({"runId": run_id(9)})),
    ] {
        bodies.push((format!("/v1/runs/{run}/{action}"), body));
    }
    for (target, body) in bodies {
        answers.push((target.clone(), post(fixture.address, &target, &body).await));
    }
    let operations = crate::http::document()["paths"]
        .as_object()
        .unwrap()
        .values()
        .map(|path| path.as_object().unwrap().len())
        .sum::<usize>();
    // Every operation but the document itself, which asks no node, those of kill switches, which ask governance, and
    // the two of feedback.
    assert_eq!(answers.len(), operations - 1 - 3 - 2);
    for (target, answer) in answers {
        assert_eq!(answer.problem(), (503, "store-unavailable".to_owned()), "{target}");
        assert_eq!(answer.header("retry-after"), "1", "{target}");
    }
}

#[tokio::test]
async fn the_document_is_served_as_it_is_committed() {
    let fixture = with_a_run().await;
    let served = get(fixture.address, "/openapi.json").await;
    assert_eq!((served.status, served.header("content-type")), (200, "application/json"));
    let text = serde_json::to_string_pretty(&served.json()).unwrap() + "\n";
    let path = signalbox_tests::root().join("docs/openapi.json");
    if std::env::var_os("UPDATE_OPENAPI").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(text == committed, "run this test once with UPDATE_OPENAPI=1 and commit docs/openapi.json");
}

#[test]
fn everything_in_the_document_is_described_and_every_reference_leads_somewhere() {
    let document = crate::http::document();
    let mut missing = Vec::new();
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        if schema["description"].as_str().unwrap_or_default().is_empty() {
            missing.push(name.clone());
        }
        for (field, described) in schema["properties"].as_object().into_iter().flatten() {
            if described["description"].as_str().unwrap_or_default().is_empty() {
                missing.push(format!("{name}.{field}"));
            }
        }
    }
    // Also what stands inside of a schema, such as the fields of one kind of step; a tag says what it is by its value.
    fn nested(name: &str, schema: &serde_json::Value, missing: &mut Vec<String>) {
        for (field, described) in schema["properties"].as_object().into_iter().flatten() {
            // The one member of a variant is what the variant is, and that is said there.
            let variant = schema["additionalProperties"] == false && schema["required"] == serde_json::json!([field]);
            let is_named = variant || described["$ref"].is_string() || described["const"].is_string();
            if !is_named && described.is_object() && described["description"].as_str().unwrap_or_default().is_empty() {
                missing.push(format!("{name}.{field}"));
            }
            nested(&format!("{name}.{field}"), described, missing);
        }
        for several in ["oneOf", "anyOf"] {
            schema[several].as_array().into_iter().flatten().for_each(|one| nested(name, one, missing));
        }
    }
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        nested(name, schema, &mut missing);
        let collides = name.chars().last().is_some_and(|last| last.is_ascii_digit());
        assert!(!collides, "two types are called {name}: rename one");
    }
    assert_eq!(document["components"]["schemas"]["PlanInput"]["anyOf"].as_array().unwrap().len(), 2);
    assert!(missing.is_empty(), "{missing:?}");
    let text = document.to_string();
    for reference in text.split("\"$ref\":\"#").skip(1) {
        let pointer = reference.split('"').next().unwrap();
        assert!(document.pointer(pointer).is_some(), "{pointer}");
    }
}
