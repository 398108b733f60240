//! Many runs at once, as an operator asks for them: lists by every filter, counts, and the dashboard.

use serde_json::{Value, json};

use crate::harness::{Said, Server};

fn ids(said: &Said) -> Vec<String> {
    let runs = said.json()["runs"].as_array().unwrap().clone();
    runs.iter().map(|run| run["runId"].as_str().unwrap().to_owned()).collect()
}

/// A run that is done, one that waits for a decision, and one that was killed.
fn three_runs(server: &Server) -> [String; 3] {
    let submit = |agent: &str, inputs: Value, plan: Value, more: &str| {
        let said = server.submit(&json!({ "rootAgentId": agent, "inputs": inputs, "plan": plan }), more);
        let first: Value = serde_json::from_str(said.out.lines().next().unwrap()).unwrap();
        first["runId"].as_str().unwrap().to_owned()
    };
    let wait = |seconds: u64| json!([{ "stepId": "w", "kind": "wait", "seconds": seconds }]);
    let done = submit("ref.research", json!({ "topic": "Lighthouses, 50 % of_them" }), wait(0), "--watch");
    let gate = json!([{ "stepId": "gate", "kind": "approval", "prompt": "Go on?" }]);
    let waits = submit("ref.narration", json!({}), gate, "--watch");
    let killed = submit("ref.drafting", json!({}), wait(600), "");
    assert_eq!(server.json(&format!("runs kill {killed} --reason drill")).exit, 0);
    [done, waits, killed]
}

#[test]
fn runs_are_found_by_every_filter() {
    let server = Server::start();
    let [done, waits, killed] = three_runs(&server);
    let cases: [(&str, Vec<&String>); 17] = [
        ("runs list", vec![&killed, &waits, &done]),
        ("runs list --bucket attention", vec![&killed]),
        ("runs list --bucket waiting-on-human --bucket done", vec![&waits, &done]),
        ("runs list --status completed", vec![&done]),
        ("runs list --status completed --bucket attention", vec![]),
        ("runs list --agent ref.narration", vec![&waits]),
        ("runs list --family drafting", vec![&killed]),
        ("runs list --pipeline no.such", vec![]),
        ("runs list --cost-band free", vec![&killed, &waits, &done]),
        ("runs list --cost-band high --cost-band extreme", vec![]),
        ("runs list --latency-band stalled", vec![]),
        ("runs list --since 1h", vec![&killed, &waits, &done]),
        ("runs list --until 2020-01-01", vec![]),
        ("runs list --text LIGHTHOUSES", vec![&done]),
        ("runs list --text of_them", vec![&done]),
        ("runs list --text o%m", vec![]),
        ("runs list --warnings=false --limit 1", vec![&killed]),
    ];
    for (line, expected) in cases {
        let said = server.json(line);
        assert_eq!(ids(&said).iter().collect::<Vec<_>>(), expected, "{line}: {said:?}");
    }
    assert_eq!(ids(&server.json("runs list --warnings")), [""; 0]);
    let run = &server.json("runs list --status killed").json()["runs"][0];
    assert_eq!(
        (&run["bucket"], &run["costBand"], &run["family"]),
        (&json!("attention"), &json!("free"), &json!("drafting"))
    );
    assert_eq!((&run["hasWarnings"], &run["tenantId"]), (&json!(false), &json!("default")));
    assert!(run["endedAtUnixMicros"].is_i64() && run["latencyMs"].is_u64() && run["latencyBand"].is_string());
}

#[test]
fn pages_follow_each_other_and_a_token_of_another_list_is_refused() {
    let server = Server::start();
    let [done, waits, killed] = three_runs(&server);
    let first = server.json("runs list --limit 2");
    assert_eq!(ids(&first), [killed, waits]);
    let token = first.json()["nextPageToken"].as_str().unwrap().to_owned();
    let second = server.json(&format!("runs list --limit 2 --page-token {token}"));
    assert_eq!((ids(&second), &second.json()["nextPageToken"]), (vec![done], &Value::Null));
    for forged in [format!("{token} --bucket done"), format!("{token}0"), "x".to_owned(), "f".repeat(64)] {
        let refused = server.json(&format!("runs list --page-token {forged}"));
        assert_eq!((refused.exit, refused.code()), (1, "page-token-invalid"), "{refused:?}");
    }
}

#[test]
fn what_is_wrong_with_a_filter_is_told_with_the_values_there_are() {
    let server = Server::start();
    for (line, code, says) in [
        ("runs list --bucket broken", "bucket-unknown", "waiting-on-human"),
        ("runs list --cost-band dear", "cost-band-unknown", "extreme"),
        ("runs list --latency-band ages", "latency-band-unknown", "stalled"),
        ("runs list --status done", "status-unknown", "awaiting_approval"),
        ("runs list --family weather", "family-unknown", "weather"),
        ("runs list --agent a/b", "id-invalid", "agent_id"),
    ] {
        let refused = server.json(line);
        assert_eq!((refused.exit, refused.code()), (1, code), "{line}: {refused:?}");
        assert!(refused.err.contains(says), "{line}: {refused:?}");
    }
    let long = server.json(&format!("runs list --text {}", "x".repeat(201)));
    assert_eq!(long.code(), "text-too-long");
    assert_eq!(server.json("runs list --since yesterday").exit, 2);
}

#[test]
fn the_dashboard_counts_buckets_and_names_the_switches_in_force() {
    let server = Server::start();
    three_runs(&server);
    let expected = json!([
        { "bucket": "queued", "runs": 0, "atLeast": false },
        { "bucket": "in-flight", "runs": 0, "atLeast": false },
        { "bucket": "waiting-on-human", "runs": 1, "atLeast": false },
        { "bucket": "suspended", "runs": 0, "atLeast": false },
        { "bucket": "done", "runs": 1, "atLeast": false },
        { "bucket": "attention", "runs": 1, "atLeast": false },
    ]);
    assert_eq!(server.json("runs counts").json()["counts"], expected);
    assert_eq!(server.json("runs counts --all-tenants --since 1h").json()["counts"], expected);
    let shown = server.json("dashboard").json();
    assert_eq!(
        (&shown["counts"], &shown["tenantId"], &shown["activeSwitches"]),
        (&expected, &json!("default"), &json!([]))
    );
    let text = crate::harness::run(&mut server.command("dashboard"));
    assert!(text.out.contains("waiting-on-human  1") && text.out.contains("No kill switch is in force."), "{text:?}");
    assert!(text.out.lines().all(|line| line.chars().count() <= 80), "{text:?}");
}
