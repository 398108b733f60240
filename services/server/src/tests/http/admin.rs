//! The routes of operators: kill switches and the snapshot (KIL-006, DSH-013).

use serde_json::{Value, json};

use super::{JSON, ask, get, post, send};
use crate::tests::with_a_run;

const SWITCHES: &str = "/api/admin/agentic-operations/kill-switches";
const SNAPSHOT: &str = "/api/admin/agentic-operations/snapshot";

fn order() -> Value {
    json!({"switchId": "a", "scope": "tool", "targetId": "web.fetch", "reason": "a drill", "userVisibleStatusCopy": "Later."})
}

fn with(member: &str, value: Value) -> Value {
    let mut order = order();
    order[member] = value;
    order
}

#[tokio::test]
async fn a_switch_is_armed_once_listed_and_disarmed() {
    let fixture = with_a_run().await;
    let armed = post(fixture.address, SWITCHES, &order()).await;
    assert_eq!(armed.status, 201, "{}", armed.text());
    let said = armed.json();
    assert_eq!((&said["switch"]["switchId"], &said["switch"]["tenantId"]), (&json!("a"), &json!("acme")));
    assert_eq!((&said["switch"]["scope"], &said["switch"]["state"]), (&json!("tool"), &json!("armed")));
    let again = post(fixture.address, SWITCHES, &order()).await;
    assert_eq!((again.status, &again.json()["replayed"]), (200, &json!(true)));
    let listed = get(fixture.address, SWITCHES).await.json();
    assert_eq!(listed["killSwitches"][0]["targetId"], "web.fetch");
    let disarmed = post(fixture.address, &format!("{SWITCHES}/a/disarm"), &json!({"reason": "over"})).await;
    assert_eq!((disarmed.status, &disarmed.json()["disarmed"]), (200, &json!(true)), "{}", disarmed.text());
}

#[tokio::test]
async fn the_snapshot_counts_each_bucket() {
    let fixture = with_a_run().await;
    let snapshot = get(fixture.address, SNAPSHOT).await;
    assert_eq!(snapshot.status, 200, "{}", snapshot.text());
    let buckets: Vec<_> = snapshot.json()["counts"].as_array().unwrap().iter().map(|c| c["bucket"].clone()).collect();
    assert_eq!(buckets, ["queued", "in-flight", "waiting-on-human", "suspended", "done", "attention"]);
    assert!(snapshot.json()["activeSwitches"].is_array() && snapshot.json()["governanceEpoch"].is_u64());
    let both = get(fixture.address, &format!("{SNAPSHOT}?tenantId=acme&allTenants=true")).await;
    assert_eq!((both.problem(), both.field()), ((400, "tenant-ambiguous".to_owned()), "tenantId".to_owned()));
}

#[tokio::test]
async fn only_operators_are_let_in() {
    let fixture = with_a_run().await;
    for role in ["customer", "creator"] {
        let role = ("role", role);
        let listed = ask(fixture.address, "GET", SWITCHES, &[role]).await;
        assert_eq!(listed.problem(), (403, "not-authorized".to_owned()));
        let body = order().to_string();
        let armed = send(fixture.address, SWITCHES, &[role, JSON], body.as_bytes()).await;
        assert_eq!(armed.problem(), (403, "not-authorized".to_owned()));
    }
    assert_eq!(get(fixture.address, SWITCHES).await.json()["killSwitches"], json!([]), "nothing was armed");
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_with_its_code_and_its_field() {
    let fixture = with_a_run().await;
    let late = json!({"expiresAtUnixMs": 1, "expiresAfterSeconds": 1});
    let mut both = order();
    both.as_object_mut().unwrap().extend(late.as_object().unwrap().clone());
    let table = [
        (with("targetId", json!("web.fetchh")), 400, "switch-target-unknown", "targetId"),
        (with("reason", json!(" ")), 422, "reason-required", "reason"),
        (with("userVisibleStatusCopy", json!("")), 400, "status-copy-required", "userVisibleStatusCopy"),
        (with("safeDegradationModeId", json!("panic")), 400, "unknown-degradation-mode", "safeDegradationModeId"),
        (with("expiresAfterSeconds", json!(0)), 400, "expiry-invalid", "expiresAfterSeconds"),
        (with("expiresAtUnixMs", json!(1)), 400, "switch-expires-too-early", "expiresAtUnixMs"),
        (both, 400, "expiry-invalid", "expiresAfterSeconds"),
        (with("surprise", json!(1)), 400, "unknown-field", "surprise"),
    ];
    for (body, status, code, at_fault) in table {
        let refused = post(fixture.address, SWITCHES, &body).await;
        assert_eq!((refused.problem(), refused.field()), ((status, code.to_owned()), at_fault.to_owned()), "{body}");
    }
    let scope = post(fixture.address, SWITCHES, &with("scope", json!("planet"))).await;
    assert_eq!((scope.problem().0, scope.field().as_str()), (400, "scope"));
    let gone = post(fixture.address, &format!("{SWITCHES}/nowhere/disarm"), &json!({"reason": "over"})).await;
    assert_eq!(gone.problem(), (404, "no-such-switch".to_owned()));
}
