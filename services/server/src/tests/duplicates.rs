//! One key twice in one object: two readers could believe two things, so nobody believes anything (C-051).

use serde_json::{Value, json};
use signalbox_proto::v1;
use signalbox_proto::v1::control_run_request::Control;
use tonic::Code;

use super::{reason, run_id, with_a_run};

/// Writes JSON in which the `nth` member, counted from 0 and from the outside in, stands twice.
fn with_one_twice(value: &Value, nth: usize) -> Option<String> {
    let mut left = Some(nth);
    let text = write(value, &mut left);
    left.is_none().then_some(text)
}

fn write(value: &Value, left: &mut Option<usize>) -> String {
    let parts = |parts: Vec<String>| parts.join(",");
    match value {
        Value::Array(items) => format!("[{}]", parts(items.iter().map(|item| write(item, left)).collect())),
        Value::Object(members) => {
            let mut written = Vec::new();
            for (key, member) in members {
                let twice = *left == Some(0);
                *left = left.and_then(|left| left.checked_sub(1));
                let key = Value::String(key.clone());
                if twice {
                    // The same member again, so that nothing but its standing twice is wrong.
                    written.push(format!("{key}:{member}"));
                }
                written.push(format!("{key}:{}", write(member, left)));
            }
            format!("{{{}}}", parts(written))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}

/// A body, and the bodies in which one of its members stands twice: each of them in turn.
fn each_twice(body: &Value) -> Vec<String> {
    (0..).map_while(|nth| with_one_twice(body, nth)).collect()
}

#[tokio::test]
async fn a_key_that_stands_twice_anywhere_in_a_submission_or_in_overrides_is_refused() {
    let mut fixture = with_a_run().await;
    let submission = json!({
        "rootAgentId": "ref.research",
        "mode": "balanced",
        "inputs": { "policy": { "effect": "deny" }, "list": [{ "approved": false }] },
        "budgets": [{ "category": "cost-units", "limit": 1.5 }],
        "plan": [
            { "stepId": "a", "kind": "tool", "toolId": "memory.read", "args": { "key": "k", "deep": [[{ "x": { "y": 1 } }]] } },
            { "stepId": "b", "kind": "approval", "requirement": "operator", "subject": { "approved": false }, "dependsOnStepIds": ["a"] },
        ],
    });
    let request =
        |json: &str| v1::SubmitRunRequest { run_id: String::new(), submission_json: json.as_bytes().to_vec().into() };
    fixture.client.submit_run(request(&submission.to_string())).await.unwrap();
    let doubled = each_twice(&submission);
    assert_eq!(doubled.len(), 25);
    for json in doubled {
        let preflight = v1::PreflightRunRequest { submission_json: json.as_bytes().to_vec().into() };
        let refused = fixture.client.preflight_run(preflight).await.unwrap_err();
        assert_eq!(reason(&refused), "json-duplicate-key", "{json}");
        let refused = fixture.client.submit_run(request(&json)).await.unwrap_err();
        assert_eq!(
            (refused.code(), reason(&refused).as_str()),
            (Code::InvalidArgument, "json-duplicate-key"),
            "{json}"
        );
    }
    let overrides =
        json!({ "mode": "economy", "branch": "left", "params": { "a": { "key": [{ "effect": "deny" }] } } });
    let request = |json: &str| v1::ControlRunRequest {
        run_id: run_id(1).to_string(),
        control: Some(Control::RetryWithChanges(v1::RetryWithChanges {
            step_id: "s1".to_owned(),
            overrides_json: json.as_bytes().to_vec().into(),
        })),
        ..Default::default()
    };
    for json in each_twice(&overrides) {
        let refused = fixture.client.control_run(request(&json)).await.unwrap_err();
        assert_eq!(
            (refused.code(), reason(&refused).as_str()),
            (Code::InvalidArgument, "json-duplicate-key"),
            "{json}"
        );
    }
    assert_eq!((fixture.node.submissions().len(), fixture.node.commands().len()), (1, 0));
}

#[test]
fn no_request_has_json_in_it_that_the_table_above_does_not_know() {
    // A field named *_json is a body of its own; whoever adds one adds its row.
    let proto = include_str!("../../../../proto/signalbox/v1/run_service.proto");
    let mut message = "";
    let mut bodies = Vec::new();
    for line in proto.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix("message ") {
            message = rest.split([' ', '{']).next().unwrap_or_default();
        }
        let field = line.strip_prefix("bytes ").and_then(|rest| rest.split(' ').next());
        if let Some(field) = field.filter(|field| field.ends_with("_json")) {
            bodies.push(format!("{message}.{field}"));
        }
    }
    let answers = ["Run.", "RunEvent.", "Response."];
    bodies.retain(|body| !answers.iter().any(|answer| body.starts_with(answer) || body.contains(answer)));
    assert_eq!(
        bodies,
        ["SubmitRunRequest.submission_json", "PreflightRunRequest.submission_json", "RetryWithChanges.overrides_json"]
    );
}
