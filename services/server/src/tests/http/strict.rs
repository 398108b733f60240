//! Hostile requests: each is answered with a clear problem, and the node hears of none of them.

use serde_json::json;

use super::super::{run_id, with_a_run};
use super::{JSON, ask, get, head, post, raw, send};

const RUNS: &str = "/v1/runs";
const EXECUTE: &str = "/v1/agentic/runs/execute";

fn submission() -> serde_json::Value {
    json!({"rootAgentId": "ref.research", "plan": [{"stepId": "a", "kind": "wait", "seconds": 1}]})
}

#[tokio::test]
async fn a_body_must_be_json_and_say_so() {
    let fixture = with_a_run().await;
    let body = submission().to_string();
    for headers in [
        vec![],
        vec![("content-type", "text/plain")],
        vec![("content-type", "application/x-www-form-urlencoded")],
        vec![("content-type", "application/json; charset=utf-16")],
        vec![("content-type", "application/jsonx")],
        vec![("content-type", "multipart/form-data; boundary=x")],
        vec![JSON, JSON],
        vec![JSON, ("content-encoding", "gzip")],
    ] {
        let refused = send(fixture.address, RUNS, &headers, body.as_bytes()).await;
        assert_eq!(refused.problem(), (415, "content-type-unsupported".to_owned()), "{headers:?}");
    }
    for kind in ["application/json", "Application/JSON; charset=UTF-8", "application/json;charset=\"utf-8\""] {
        let taken = send(fixture.address, RUNS, &[("content-type", kind)], body.as_bytes()).await;
        assert!(matches!(taken.status, 200 | 201), "{kind}: {}", taken.text());
    }
    assert_eq!(fixture.node.submissions().len(), 3);
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_before_it_is_read() {
    let fixture = with_a_run().await;
    let told = format!("{}content-type: application/json\r\ncontent-length: 99999999\r\n\r\n", head("POST", RUNS, &[]));
    assert_eq!(raw(fixture.address, told.as_bytes()).await.problem(), (413, "json-too-large".to_owned()));
    // Without a length the bytes are counted as they come.
    let mut chunked = head("POST", RUNS, &[JSON, ("transfer-encoding", "chunked")]).into_bytes();
    chunked.extend_from_slice(b"\r\n");
    for _ in 0..20 {
        chunked.extend_from_slice(format!("{:x}\r\n{}\r\n", 1 << 16, " ".repeat(1 << 16)).as_bytes());
    }
    chunked.extend_from_slice(b"0\r\n\r\n");
    assert_eq!(raw(fixture.address, &chunked).await.problem(), (413, "json-too-large".to_owned()));
    assert!(fixture.node.submissions().is_empty());
}

#[tokio::test]
async fn whatever_is_wrong_with_the_json_is_said_with_its_code() {
    let fixture = with_a_run().await;
    let deep = format!(r#"{{"rootAgentId":"ref.research","plan":[],"inputs":{}{}}}"#, "[".repeat(80), "]".repeat(80));
    let cases: Vec<(&[u8], &str, &str)> = vec![
        (b"", "json-invalid", "body"),
        (b"{", "json-invalid", "body"),
        (b"[]", "json-invalid", "body"),
        (b"null", "json-invalid", "body"),
        (b"{} {}", "json-invalid", "body"),
        (b"\xff\xfe", "json-not-unicode", "body"),
        (br#"{"rootAgentId":"\ud800"}"#, "json-not-unicode", "body"),
        (br#"{"rootAgentId":"a","rootAgentId":"b","plan":[]}"#, "json-duplicate-key", "body"),
        (br#"{"rootAgentId":"a","plan":[],"inputs":{"n":9007199254740993}}"#, "number-not-exact", "body"),
        (br#"{"rootAgentId":"a","plan":[],"tenantId":"x"}"#, "json-invalid", "tenantId"),
        (br#"{"rootAgentId":"a","plan":[],"grants":[]}"#, "json-invalid", "grants"),
        (br#"{"rootAgentId":"a\u0000b","plan":[]}"#, "json-invalid", "body"),
        (br#"{"rootAgentId":"ref.research"}"#, "json-invalid", "plan"),
        (br#"{"runId":7,"rootAgentId":"ref.research","plan":[]}"#, "id-invalid", "runId"),
        (br#"{"runId":"x","rootAgentId":"ref.research","plan":[]}"#, "id-invalid", "runId"),
        (deep.as_bytes(), "json-too-deep", "body"),
    ];
    for (body, code, field) in cases {
        let refused = send(fixture.address, RUNS, &[JSON], body).await;
        let shown = String::from_utf8_lossy(body);
        assert_eq!((refused.problem(), refused.field().as_str()), ((400, code.to_owned()), field), "{shown}");
    }
    assert!(fixture.node.submissions().is_empty());
}

#[tokio::test]
async fn unknown_fields_are_refused_by_name_on_every_route_that_changes_something() {
    let fixture = with_a_run().await;
    let run = run_id(1);
    let execute =
        json!({"runId": run, "tenantId": "acme", "rootAgentId": "ref.research", "plan": [{"toolId": "memory.read"}]});
    let with = |mut body: serde_json::Value, pointer: &str| {
        body.pointer_mut(pointer).unwrap().as_object_mut().unwrap().insert("sudo".to_owned(), json!(true));
        body
    };
    let control = |action: &str| format!("/v1/runs/{run}/{action}");
    let decide = format!("/v1/approvals/{run}/decide");
    let cases = [
        (EXECUTE.to_owned(), with(execute.clone(), ""), "sudo"),
        (EXECUTE.to_owned(), with(execute, "/plan/0"), "plan[0].sudo"),
        (RUNS.to_owned(), with(submission(), ""), "sudo"),
        (RUNS.to_owned(), with(submission(), "/plan/0"), "plan.steps[0].sudo"),
        (control("pause"), json!({"sudo": true}), "sudo"),
        (control("resume"), json!({"sudo": true}), "sudo"),
        (control("cancel"), json!({"sudo": true}), "sudo"),
        (control("kill"), json!({"sudo": true}), "sudo"),
        (control("choose-branch"), json!({"branchId": "left", "sudo": true}), "sudo"),
        (control("retry"), json!({"stepId": "a", "sudo": true}), "sudo"),
        (control("step"), json!({"sudo": true}), "sudo"),
        (control("fork"), json!({"sudo": true}), "sudo"),
        (decide, json!({"decision": "approve", "sudo": true}), "sudo"),
    ];
    for (target, body, field) in cases {
        let refused = post(fixture.address, &target, &body).await;
        assert_eq!((refused.status, refused.field().as_str()), (400, field), "{target}: {}", refused.text());
    }
    assert!(fixture.node.submissions().is_empty() && fixture.node.commands().is_empty());
}

#[tokio::test]
async fn parameters_of_the_query_are_known_single_and_of_their_type() {
    let fixture = with_a_run().await;
    let run = run_id(1);
    for (target, code, field) in [
        ("/v1/runs?sudo=1".to_owned(), "unknown-field", "sudo"),
        ("/v1/runs?pageSize=5&pageSize=6".to_owned(), "field-repeated", "pageSize"),
        ("/v1/runs?pageSize=-1".to_owned(), "field-invalid", "pageSize"),
        ("/v1/runs?pageSize=x".to_owned(), "field-invalid", "pageSize"),
        ("/v1/runs?pageSize=201".to_owned(), "page-size-invalid", "pageSize"),
        ("/v1/runs?pageSize=99999999999999999999".to_owned(), "field-invalid", "pageSize"),
        ("/v1/runs?pageToken=x".to_owned(), "page-token-invalid", "pageToken"),
        ("/v1/runs?status=done".to_owned(), "status-unknown", "status"),
        ("/v1/runs?pipelineId=%FF".to_owned(), "field-invalid", "pipelineId"),
        (format!("/v1/runs/{run}?x"), "unknown-field", "x"),
        (format!("/v1/runs/{run}/replay"), "field-missing", "atSeq"),
        (format!("/v1/runs/{run}/replay?atSeq=0"), "field-missing", "atSeq"),
        (format!("/v1/runs/{run}/replay?atSeq=1.5"), "field-invalid", "atSeq"),
        ("/v1/runs/nonsense".to_owned(), "id-invalid", "runId"),
        ("/v1/runs/%00".to_owned(), "id-invalid", "runId"),
        ("/v1/approvals/nonsense".to_owned(), "id-invalid", "approvalId"),
    ] {
        let refused = get(fixture.address, &target).await;
        assert_eq!((refused.problem(), refused.field().as_str()), ((400, code.to_owned()), field), "{target}");
        let detail = refused.json()["detail"].as_str().unwrap().to_owned();
        assert!(!detail.contains("page_"), "{detail}");
    }
    assert_eq!(get(fixture.address, "/v1/runs/%FF").await.problem(), (400, "path-invalid".to_owned()));
}

#[tokio::test]
async fn other_methods_are_told_which_there_are_and_other_addresses_that_there_is_nothing() {
    let fixture = with_a_run().await;
    for (method, target, allow) in [
        ("DELETE", RUNS, "OPTIONS, GET, HEAD, POST"),
        ("GET", EXECUTE, "OPTIONS, POST"),
        ("PATCH", EXECUTE, "OPTIONS, POST"),
        ("POST", "/v1/approvals", "OPTIONS, GET, HEAD"),
        ("BREW", "/openapi.json", "OPTIONS, GET, HEAD"),
    ] {
        let refused = ask(fixture.address, method, target, &[]).await;
        assert_eq!(refused.problem(), (405, "method-not-allowed".to_owned()), "{method} {target}");
        let mut told: Vec<&str> = refused.header("allow").split(", ").collect();
        let mut expected: Vec<&str> = allow.split(", ").collect();
        told.sort_unstable();
        expected.sort_unstable();
        assert_eq!(told, expected, "{method} {target}");
    }
    let options = ask(fixture.address, "OPTIONS", RUNS, &[("origin", "https://example.com")]).await;
    assert_eq!((options.status, options.body.len()), (204, 0));
    assert!(options.header("allow").contains("POST"));
    assert_eq!(options.header("access-control-allow-origin"), "", "nobody else's page may call");
    for target in ["/", "/v1", "/v1/runs/", "/v2/runs", "/v1/runs/x/y/z", "//v1/runs"] {
        assert_eq!(get(fixture.address, target).await.problem(), (404, "no-such-route".to_owned()), "{target}");
    }
    let head = ask(fixture.address, "HEAD", &format!("/v1/runs/{}", run_id(1)), &[]).await;
    assert_eq!((head.status, head.body.len(), head.header("content-type")), (200, 0, "application/json"));
}

#[tokio::test]
async fn heads_have_a_bound() {
    let fixture = with_a_run().await;
    let long = "x".repeat(17 << 10);
    let refused = ask(fixture.address, "GET", RUNS, &[("x-long", &long)]).await;
    assert_eq!(refused.problem(), (431, "headers-too-large".to_owned()));
    let refused = get(fixture.address, &format!("/v1/runs?pageToken={}", "0".repeat(9 << 10))).await;
    assert_eq!(refused.problem(), (414, "address-too-long".to_owned()));
}

#[tokio::test]
async fn a_request_is_named_by_its_client_if_the_name_is_sane_and_by_the_server_otherwise() {
    let fixture = with_a_run().await;
    for name in ["req-7", "0190d6a8-3c1e-7bbb-8f5e-000000000001", "a.b:c_d"] {
        let answered = ask(fixture.address, "GET", RUNS, &[("x-request-id", name)]).await;
        assert_eq!(answered.header("x-request-id"), name);
    }
    let long = "x".repeat(129);
    for name in ["", "two words", "<script>", long.as_str()] {
        let answered = ask(fixture.address, "GET", RUNS, &[("x-request-id", name)]).await;
        let fresh = answered.header("x-request-id");
        assert!(fresh != name && uuid::Uuid::parse_str(fresh).is_ok(), "{name:?}: {fresh:?}");
    }
    let answered = get(fixture.address, RUNS).await;
    assert_eq!((answered.header("cache-control"), answered.header("x-content-type-options")), ("no-store", "nosniff"));
}

#[tokio::test]
async fn who_calls_is_asked_before_what_was_sent() {
    let fixture = with_a_run().await;
    let nobody = ("role", "nobody");
    for target in ["/v1/runs?sudo=1", "/v1/runs/nonsense", "/v1/approvals"] {
        let refused = ask(fixture.address, "GET", target, &[nobody]).await;
        assert_eq!(refused.problem(), (401, "unauthenticated".to_owned()), "{target}");
        assert_eq!(refused.header("www-authenticate"), "Bearer");
    }
    for target in [EXECUTE, RUNS, "/v1/runs/nonsense/kill"] {
        let refused = send(fixture.address, target, &[nobody], b"\xff").await;
        assert_eq!(refused.problem(), (401, "unauthenticated".to_owned()), "{target}");
    }
    assert_eq!(ask(fixture.address, "GET", "/openapi.json", &[nobody]).await.status, 200);
}

#[tokio::test]
async fn http_two_and_grpc_live_on_the_same_port() {
    let mut fixture = with_a_run().await;
    assert_eq!(get(fixture.address, &format!("/v1/runs/{}", run_id(1))).await.status, 200);
    let run = signalbox_proto::v1::GetRunRequest { run_id: run_id(1).to_string() };
    assert!(fixture.client.get_run(run).await.is_ok());
    let unknown =
        ask(fixture.address, "POST", "/signalbox.v1.Nothing/Call", &[("content-type", "application/grpc")]).await;
    assert_eq!((unknown.status, unknown.header("grpc-status")), (200, "12"));
}
