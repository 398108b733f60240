//! Saying something twice: `Idempotency-Key` on submissions.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::node::{Served, tool};
use super::{JSON, Reply, get, head, send};

const SCOPED: (&str, &str) = ("scopes", "tool:memory.read");

fn plan(key: &str) -> Value {
    let step = json!({"stepId": "a", "kind": "tool", "toolId": "memory.read", "args": {"key": key}});
    json!({"rootAgentId": "ref.course-generation", "plan": [step]})
}

async fn submit(served: &Served, headers: &[(&str, &str)], body: &Value) -> Reply {
    let headers = [&[JSON, SCOPED], headers].concat();
    send(served.address, "/v1/runs", &headers, body.to_string().as_bytes()).await
}

fn run_of(reply: &Reply) -> String {
    assert!(matches!(reply.status, 200 | 201), "{}", reply.text());
    reply.json()["runId"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn one_key_and_one_body_are_one_run() {
    let served = Served::start().await;
    let key = ("idempotency-key", "K-1");
    let first = submit(&served, &[key], &plan("k")).await;
    assert_eq!((first.status, &first.json()["replayed"]), (201, &json!(false)));
    assert_eq!(first.header("location"), format!("/v1/runs/{}", run_of(&first)));
    let again = submit(&served, &[key], &plan("k")).await;
    assert_eq!((again.status, &again.json()["replayed"]), (200, &json!(true)));
    assert_eq!(run_of(&first), run_of(&again));
}

#[tokio::test]
async fn one_key_with_another_body_is_refused_with_its_code() {
    let served = Served::start().await;
    let key = ("idempotency-key", "K-1");
    let first = submit(&served, &[key], &plan("k")).await;
    let refused = submit(&served, &[key], &plan("other")).await;
    assert_eq!(refused.problem(), (422, "idempotency-key-reused".to_owned()));
    assert!(!refused.text().contains(&run_of(&first)), "nobody is told whose run it is");
}

#[tokio::test]
async fn a_key_counts_within_its_tenant_its_member_and_its_route() {
    let served = Served::start().await;
    let key = ("idempotency-key", "1");
    let mut runs = vec![
        run_of(&submit(&served, &[key], &plan("k")).await),
        run_of(&submit(&served, &[key, ("tenant", "globex")], &plan("k")).await),
        run_of(&submit(&served, &[key, ("actor", "somebody-else")], &plan("k")).await),
        run_of(&submit(&served, &[("idempotency-key", "2")], &plan("k")).await),
        run_of(&submit(&served, &[], &plan("k")).await),
    ];
    let count = runs.len();
    // Each tenant sees its own run under the key, and nobody else's.
    let own = format!("/v1/runs/{}", runs[1]);
    assert_eq!(get(served.address, &own).await.status, 404);
    runs.sort();
    runs.dedup();
    assert_eq!(runs.len(), count);
}

#[tokio::test]
async fn cutting_the_client_after_its_request_does_not_free_the_key() {
    let served = Served::start().await;
    served.tools.hang(&tool("memory.read"));
    let body = plan("k").to_string();
    let mut request = head("POST", "/v1/runs", &[JSON, SCOPED, ("idempotency-key", "K")]);
    request.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    drop(stream);
    // Whoever tries again, at once or later, finds the run or makes it: never both.
    let again = submit(&served, &[("idempotency-key", "K")], &plan("k")).await;
    let run = run_of(&again);
    for _ in 0..2_000 {
        if served.tools.count(&tool("memory.read")) > 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(run_of(&submit(&served, &[("idempotency-key", "K")], &plan("k")).await), run);
    assert_eq!(served.tools.count(&tool("memory.read")), 1, "the effect came once");
    let other = submit(&served, &[("idempotency-key", "K")], &plan("other")).await;
    assert_eq!(other.problem().0, 422);
    let listed = get(served.address, "/v1/runs").await.json();
    assert_eq!(listed["runs"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_key_is_one_visible_text_and_stands_in_place_of_a_run_id() {
    let served = Served::start().await;
    let long = "x".repeat(256);
    for keys in
        [vec![("idempotency-key", "")], vec![("idempotency-key", long.as_str())], vec![("idempotency-key", "ü")]]
    {
        let refused = submit(&served, &keys, &plan("k")).await;
        assert_eq!(refused.problem(), (400, "idempotency-key-invalid".to_owned()), "{keys:?}");
    }
    let twice = [("idempotency-key", "a"), ("idempotency-key", "b")];
    assert_eq!(submit(&served, &twice, &plan("k")).await.problem().1, "idempotency-key-invalid");
    let mut both = plan("k");
    both["runId"] = json!("0190d6a8-3c1e-7bbb-8f5e-0000000000aa");
    let refused = submit(&served, &[("idempotency-key", "a")], &both).await;
    assert_eq!(refused.problem(), (400, "idempotency-key-and-run-id".to_owned()));
}
