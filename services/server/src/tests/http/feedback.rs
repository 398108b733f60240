//! The routes of operators for rollouts and gold sets, over a whole node (FBK-014).

use std::time::Duration;

use serde_json::{Value, json};

use super::node::{RUN, Served, body};
use super::{JSON, post, send};

const ROLLOUT: &str = "/api/admin/agentic-operations/champion-challengers/rollout";
const GOLD: &str = "/api/admin/agentic-operations/gold-sets/promote";

fn wish() -> Value {
    json!({"rolloutId": "r", "transition": "start-rollout", "reason": "it reads better", "start": {
        "agentId": "ref.course-generation", "championSemver": "1.0.0", "challengerSemver": "1.1.0",
        "mode": "canary", "canaryFraction": 0.1}})
}

fn with(member: &str, value: Value) -> Value {
    let mut wish = wish();
    wish["start"][member] = value;
    wish
}

fn gold() -> Value {
    json!({"goldSetId": "g", "sourceRunId": RUN, "expectedOutput": {"lessons": 3}, "rubric": "three lessons"})
}

#[tokio::test]
async fn a_run_is_put_into_a_gold_set_once() {
    let served = Served::start().await;
    assert_eq!(post(served.address, GOLD, &gold()).await.problem(), (404, "no-such-run".to_owned()));
    let executed = served.execute(&[("scopes", "tool:memory.read")], &body("memory.read")).await;
    assert!(executed.status < 300, "{}", executed.text());
    for _ in 0..500 {
        if served.run(RUN).await["status"] == "completed" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let put = post(served.address, GOLD, &gold()).await;
    assert_eq!(put.status, 201, "{}", put.text());
    let entry = put.json();
    assert_eq!((&entry["sourceRunId"], &entry["agentSemver"]), (&json!(RUN), &json!("1.0.0")));
    assert_eq!((&entry["expectedOutput"], &entry["schemaVersion"]), (&json!({"lessons": 3}), &json!(1)));
    let again = post(served.address, GOLD, &gold()).await;
    assert_eq!(again.problem(), (409, "gold-set-entry-exists".to_owned()));
    assert_eq!(again.json()["details"]["entryId"], entry["entryId"]);
}

#[tokio::test]
async fn only_operators_reach_rollouts_and_gold_sets() {
    let served = Served::start().await;
    for role in ["customer", "creator"] {
        for (route, body) in [(ROLLOUT, wish()), (GOLD, gold())] {
            let refused = send(served.address, route, &[("role", role), JSON], body.to_string().as_bytes()).await;
            assert_eq!(refused.problem(), (403, "not-authorized".to_owned()), "{role} {route}");
        }
    }
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_with_its_code() {
    let served = Served::start().await;
    let table = [
        (wish(), 400, "agent-version-unknown"),
        (with("canaryFraction", json!(0.51)), 400, "canary-fraction-invalid"),
        (with("canaryFraction", json!(-0.1)), 400, "canary-fraction-invalid"),
        (with("canaryFraction", json!(-0.0)), 400, "canary-fraction-invalid"),
        (with("canaryFraction", json!(0.000_000_1)), 400, "canary-fraction-invalid"),
        (with("challengerSemver", json!("1.0.0")), 400, "rollout-same-arms"),
        (with("challengerSemver", json!("")), 400, "semver-invalid"),
        (with("agentId", json!("ref.nobody")), 400, "agent-version-unknown"),
        (with("surprise", json!(1)), 400, "unknown-field"),
        (json!({"rolloutId": "r", "transition": "start-rollout", "reason": "x"}), 400, "field-missing"),
        (json!({"rolloutId": "r", "transition": "freeze-rollout", "reason": "x"}), 404, "no-such-rollout"),
        (
            json!({"rolloutId": "r", "transition": "freeze-rollout", "reason": "x", "start": wish()["start"]}),
            400,
            "field-unexpected",
        ),
    ];
    for (body, status, code) in table {
        let refused = post(served.address, ROLLOUT, &body).await;
        assert_eq!(refused.problem(), (status, code.to_owned()), "{body}");
    }
    for value in [json!("half"), json!("NaN"), json!([]), Value::Null] {
        let refused = post(served.address, ROLLOUT, &with("canaryFraction", value.clone())).await;
        assert_eq!(refused.problem().0, 400, "{value}");
    }
    let mut silent = gold();
    silent["rubric"] = json!(" ");
    assert_eq!(post(served.address, GOLD, &silent).await.problem(), (400, "rubric-required".to_owned()));
    let mut big = gold();
    big["expectedOutput"] = json!("x".repeat(300 * 1_024));
    assert_eq!(post(served.address, GOLD, &big).await.problem(), (400, "gold-set-entry-too-big".to_owned()));
}
