//! The server as an executor in any language would be called: raw requests, raw answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::StreamExt as _;
use serde_json::json;
use signalbox_proto::v1;
use signalbox_proto::v1::execute_response::Event;
use signalbox_proto::v1::tool_executor_server::ToolExecutor as _;
use signalbox_proto::v1::tool_result::Outcome;
use tokio::sync::Notify;
use tonic::{Code, Request};

use super::ToolServer;
use crate::client::testing::ScriptedTool;
use crate::tool::{Answer, Measured, Tool, ToolOutcome};

fn done() -> ToolOutcome {
    ToolOutcome::Ok(Answer::new(json!({}), Measured::new()))
}

fn request() -> v1::ExecuteRequest {
    v1::ExecuteRequest {
        call_id: "00000000-0000-0000-0000-000000000001".into(),
        attempt: 1,
        tenant_id: "acme".into(),
        run_id: "00000000-0000-0000-0000-000000000002".into(),
        step_id: "one".into(),
        tool_id: "memory.read".into(),
        tool_semver: "1.0.0".into(),
        args_json: "{}".into(),
        ceiling: None,
        timeout_ms: 1_000,
        constraints_json: "{}".into(),
        secrets: Default::default(),
    }
}

/// The one result of a call.
async fn result(server: &ToolServer, request: v1::ExecuteRequest) -> v1::ToolResult {
    let answers = server.execute(Request::new(request)).await.unwrap().into_inner();
    let mut events: Vec<_> = answers.map(|answer| answer.unwrap().event.unwrap()).collect().await;
    let last = events.pop();
    let Some(Event::Result(result)) = last else { panic!("no result: {last:?}") };
    assert!(!events.iter().any(|event| matches!(event, Event::Result(_))), "exactly one result");
    result
}

#[tokio::test]
async fn a_request_that_makes_no_sense_is_not_begun_and_names_its_field() {
    type Change = fn(&mut v1::ExecuteRequest);
    let ran = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&ran);
    let server = ScriptedTool::new(move |_, _| {
        counter.fetch_add(1, Ordering::SeqCst);
        async { done() }
    })
    .server();
    let ceiling = |name: &str, micros| Some(v1::Usage { micros: [(name.to_owned(), micros)].into() });
    let (negative, unknown) = (ceiling("cost-units", -1), ceiling("euros", 1));
    let changes: [(&str, Change); 13] = [
        ("call_id", |r| r.call_id = "1".into()),
        ("attempt", |r| r.attempt = 0),
        ("tenant_id", |r| r.tenant_id = "a/b".into()),
        ("run_id", |r| r.run_id.clear()),
        ("step_id", |r| r.step_id.clear()),
        ("tool_id", |r| r.tool_id = "a b".into()),
        ("args_json", |r| r.args_json = "{\"a\":1,\"a\":2}".into()),
        ("args_json", |r| r.args_json = "[9007199254740993]".into()),
        ("timeout_ms", |r| r.timeout_ms = 0),
        ("timeout_ms", |r| r.timeout_ms = u64::MAX),
        ("constraints_json", |r| r.constraints_json = bytes::Bytes::new()),
        ("constraints_json", |r| r.constraints_json = "{\"path\":[]}".into()),
        ("constraints_json", |r| r.constraints_json = "{\"hosts\":[],\"hosts\":[\"a.test\"]}".into()),
    ];
    let mut requests: Vec<_> = changes
        .into_iter()
        .map(|(field, change)| {
            let mut request = request();
            change(&mut request);
            (field, request)
        })
        .collect();
    requests.push(("ceiling", v1::ExecuteRequest { ceiling: negative, ..request() }));
    requests.push(("ceiling", v1::ExecuteRequest { ceiling: unknown, ..request() }));
    for (field, request) in requests {
        let result = result(&server, request).await;
        assert_eq!((result.outcome(), result.error_code.as_str()), (Outcome::NotStarted, "request-invalid"), "{field}");
        assert!(result.error_message.starts_with(field), "{field}: {}", result.error_message);
    }
    let other = v1::ExecuteRequest { tool_id: "other.tool".into(), ..request() };
    assert_eq!(result(&server, other).await.error_code, "tool-not-served");
    assert_eq!(ran.load(Ordering::SeqCst), 0);
    let bad = server.cancel(Request::new(v1::CancelRequest { call_id: "1".into() })).await.unwrap_err();
    assert_eq!(bad.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn a_call_sent_twice_at_once_runs_once_and_both_hear_its_end() {
    let (ran, running, go) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (counter, bell, gate) = (Arc::clone(&ran), Arc::clone(&running), Arc::clone(&go));
    let server = ScriptedTool::new(move |_, _| {
        counter.fetch_add(1, Ordering::SeqCst);
        bell.notify_one();
        let gate = Arc::clone(&gate);
        async move {
            gate.notified().await;
            done()
        }
    })
    .server();
    let first = server.execute(Request::new(request())).await.unwrap();
    running.notified().await;
    // The connection of the first is lost; the second joins under the same id.
    drop(first);
    let again = v1::ExecuteRequest { attempt: 2, ..request() };
    let (second, third) = (result(&server, again.clone()), result(&server, again));
    let (second, third, ()) = tokio::join!(second, third, async { go.notify_one() });
    assert_eq!((second.outcome(), third.outcome()), (Outcome::Ok, Outcome::Ok));
    assert_eq!(ran.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn the_value_of_a_secret_takes_the_place_of_its_handle_and_of_nothing_else() {
    let (seen, args) = tokio::sync::mpsc::unbounded_channel();
    let mut args = args;
    let server = ScriptedTool::new(move |call, _| {
        assert!(!format!("{call:?}").contains("FAKE"));
        seen.send(call.args).unwrap();
        async { done() }
    })
    .server();
    let given = json!({"auth": [{"$secret": "mail"}], "data": {"$secret": "mail"}, "n": 1});
    let secrets = |pointer: &str, value: &str| [(pointer.to_owned(), value.to_owned())].into();
    let request = v1::ExecuteRequest {
        args_json: given.to_string().into(),
        secrets: secrets("/auth/0", "FAKE-value-1"),
        ..request()
    };
    assert!(!format!("{request:?}").contains("FAKE"));
    assert_eq!(result(&server, request.clone()).await.outcome(), Outcome::Ok);
    let wanted = json!({"auth": ["FAKE-value-1"], "data": {"$secret": "mail"}, "n": 1});
    assert_eq!(args.recv().await.unwrap(), wanted);
    // The same call with a value that has changed since is still the same call.
    let again = v1::ExecuteRequest { attempt: 2, secrets: secrets("/auth/0", "FAKE-value-2"), ..request.clone() };
    assert_eq!(result(&server, again).await.outcome(), Outcome::Ok);
    for pointer in ["/n", "/nowhere", "", "/auth"] {
        let call_id = "00000000-0000-0000-0000-000000000009".into();
        let astray = v1::ExecuteRequest { call_id, secrets: secrets(pointer, "FAKE-value-1"), ..request.clone() };
        let refused = result(&server, astray).await;
        assert_eq!((refused.outcome(), refused.error_code.as_str()), (Outcome::NotStarted, "request-invalid"));
        assert!(!refused.error_message.contains("FAKE"), "{}", refused.error_message);
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_call_is_heard_of_every_five_seconds() {
    let server = ScriptedTool::new(|_, _| async {
        tokio::time::sleep(std::time::Duration::from_millis(22_000)).await;
        done()
    })
    .server();
    let request = v1::ExecuteRequest { timeout_ms: 60_000, ..request() };
    let answers = server.execute(Request::new(request)).await.unwrap().into_inner();
    let events: Vec<_> = answers.map(|answer| answer.unwrap().event.unwrap()).collect().await;
    let beats = events.iter().filter(|event| matches!(event, Event::Heartbeat(_))).count();
    assert_eq!((beats, events.len()), (4, 5));
}

#[tokio::test]
async fn of_two_tools_with_one_id_the_first_is_served_and_each_is_described_once() {
    let tools = ["first", "second"].map(|name| {
        let tool = ScriptedTool::new(move |_, _| async move { ToolOutcome::refused(name, "") });
        Arc::new(tool) as Arc<dyn Tool>
    });
    let server = ToolServer::new(tools);
    assert_eq!(result(&server, request()).await.error_code, "first");
    let described = server.describe(Request::new(v1::DescribeRequest {})).await.unwrap().into_inner();
    assert_eq!(described.tools.len(), 1);
    assert_eq!(described.tools[0].recovery(), v1::RecoveryPolicy::Idempotent);
}
