//! Lines in, lines out.

use std::io::BufReader;

use serde_json::{Value, json};

use super::{Kind, LINE_BYTES_MAX, judge_all};

/// The answers to some lines, and how many of the lines could not be judged.
fn answers(kind: Kind, lines: &str) -> (Vec<Value>, u64) {
    let mut out = Vec::new();
    let malformed = judge_all(kind, BufReader::new(lines.as_bytes()), &mut out).unwrap();
    let out = String::from_utf8(out).unwrap();
    (out.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), malformed)
}

/// The answer to one good line.
fn answer(kind: Kind, line: Value) -> Value {
    let (mut answers, malformed) = answers(kind, &line.to_string());
    assert_eq!((answers.len(), malformed), (1, 0), "{answers:?}");
    answers.remove(0)
}

/// What is said of a line that cannot be judged.
fn complaint(kind: Kind, line: Value) -> String {
    let (answers, malformed) = answers(kind, &line.to_string());
    assert_eq!((answers.len(), malformed), (1, 1), "{answers:?}");
    answers[0]["error"].as_str().unwrap().to_owned()
}

#[test]
fn answers_come_in_the_order_of_the_lines_and_repeat_their_ids() {
    let lines = "{\"id\":\"a\",\"version\":\"1.2.3\"}\n\n  \r\n{\"id\":7,\"version\":\"1.2\"}\nnot json\n{\"version\":\"1.2.3\"}\n[]\n\
                 {\"id\":\"b\",\"id\":\"c\",\"version\":\"1\"}\n{\"id\":{\"n\":1},\"version\":\"1.2.3\",\"range\":\"^1\"}";
    let (answers, malformed) = answers(Kind::Semver, lines);
    assert_eq!(malformed, 4);
    assert_eq!(answers[0], json!({ "id": "a", "valid": true }));
    assert_eq!(answers[1], json!({ "id": 7, "valid": false }));
    for at in [2, 3, 4, 5] {
        assert!(answers[at]["error"].is_string() && answers[at].get("id").is_none(), "{}", answers[at]);
    }
    assert_eq!(answers[6], json!({ "id": { "n": 1 }, "match": true }));
    assert_eq!(answers.len(), 7);
}

#[test]
fn a_line_that_is_too_long_or_too_deep_or_no_text_is_told_and_the_next_is_judged() {
    let long = format!("{{\"id\":1,\"version\":\"{}\"}}", "1".repeat(LINE_BYTES_MAX));
    let deep = format!("{{\"id\":2,\"version\":{}{}}}", "[".repeat(500), "]".repeat(500));
    let mut lines = format!("{long}\n{deep}\n").into_bytes();
    lines.extend(b"{\"id\":3,\"version\":\"\xff\xfe\"}\n{\"id\":4,\"version\":\"1.2.3\"}\n");
    let mut out = Vec::new();
    let malformed = judge_all(Kind::Semver, BufReader::new(lines.as_slice()), &mut out).unwrap();
    let out = String::from_utf8(out).unwrap();
    assert_eq!((malformed, out.lines().count()), (3, 4));
    assert_eq!(out.lines().last(), Some("{\"id\":4,\"valid\":true}"));
}

#[test]
fn nothing_in_is_nothing_out() {
    assert_eq!(answers(Kind::Gate, ""), (vec![], 0));
}

#[test]
fn ssrf_walks_redirects_and_what_names_resolve_to() {
    let line = |url: &str, more: Value| {
        let mut line = json!({ "id": 1, "url": url, "allow_hosts": ["@self"], "why": "a note" });
        line.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        answer(Kind::Ssrf, line)
    };
    let deny = |reason: &str| json!({ "id": 1, "verdict": "deny", "reason": reason });
    assert_eq!(line("https://a.example/", json!({})), json!({ "id": 1, "verdict": "allow" }));
    assert_eq!(line("https://127.1/", json!({})), deny("ssrf-loopback"));
    assert_eq!(line("http://a.example/", json!({})), deny("scheme-not-allowed"));
    assert_eq!(line("https://a.example/", json!({ "method": "POST" })), deny("method-not-allowed"));
    assert_eq!(line("https://a.example/", json!({ "allow_hosts": [] })), deny("host-not-in-allowlist"));
    assert_eq!(line("https://a.example/", json!({ "resolved": ["8.8.8.8", "10.0.0.1"] })), deny("ssrf-private-ip"));
    assert_eq!(line("https://a.example/", json!({ "connect_resolved": ["169.254.1.1"] })), deny("ssrf-link-local"));
    assert_eq!(line("https://a.example/", json!({ "redirects": ["/b", "https://[::1]/"] })), deny("ssrf-loopback"));
    assert_eq!(line("not a url", json!({})), deny("invalid-url"));
    let exempt = json!({ "resolved": ["10.0.0.1"], "exempt": [{ "host": "a.example", "cidr": "10.0.0.0/8" }] });
    assert_eq!(line("https://a.example/", exempt), json!({ "id": 1, "verdict": "allow" }));
    assert!(complaint(Kind::Ssrf, json!({ "id": 1, "url": "https://a.example/" })).contains("allow_hosts"));
    let bad = json!({ "id": 1, "url": "https://a.example/", "allow_hosts": [], "resolved": ["here"] });
    assert!(complaint(Kind::Ssrf, bad).contains("IP address"));
}

#[test]
fn cron_tells_the_next_three_or_why_there_are_none() {
    let line = |expr: &str, tz: &str| {
        answer(Kind::Cron, json!({ "id": "c", "expr": expr, "tz": tz, "after": "2026-03-07T12:00:00+01:00" }))
    };
    assert_eq!(
        line("30 2 * * *", "America/New_York")["next"],
        json!(["2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z", "2026-03-10T06:30:00Z"])
    );
    assert_eq!(line("0 0 30 2 *", "UTC"), json!({ "id": "c", "never": true }));
    assert!(line("0 0 * *", "UTC")["invalid"].as_str().unwrap().contains("five fields"));
    assert!(line("0 0 * * *", "Local")["invalid"].as_str().unwrap().contains("IANA"));
    assert!(
        complaint(Kind::Cron, json!({ "id": 1, "expr": "* * * * *", "tz": "UTC", "after": "soon" })).contains("soon")
    );
}

#[test]
fn semver_refuses_a_range_that_is_none() {
    assert!(complaint(Kind::Semver, json!({ "id": 1, "range": "about 1", "version": "1.0.0" })).contains("about 1"));
    assert_eq!(answer(Kind::Semver, json!({ "id": 1, "range": "~1.2", "version": "1.3.0" }))["match"], false);
}

#[test]
fn ztest_answers_p_and_verdict() {
    let line = |k: (u64, u64), c: (u64, u64)| json!({ "id": 1, "champion": { "successes": k.0, "n": k.1 }, "challenger": { "successes": c.0, "n": c.1 } });
    let found = answer(Kind::Ztest, line((50, 100), (64, 100)));
    assert_eq!(found["verdict"], "challenger-ready");
    assert!((found["p"].as_f64().unwrap() - 0.045_544).abs() < 1e-6);
    assert_eq!(
        answer(Kind::Ztest, line((0, 0), (0, 0))),
        json!({ "id": 1, "verdict": "not-enough-samples", "p": null })
    );
    assert!(complaint(Kind::Ztest, line((2, 1), (0, 1))).contains("more successes"));
    assert!(complaint(Kind::Ztest, json!({ "id": 1, "champion": { "successes": -1, "n": 1 } })).contains("-1"));
}

#[test]
fn a_budget_says_each_of_its_four_verdicts() {
    let line = |consumed: f64, estimate: f64| {
        let budget = json!({
            "budgetId": "b", "tenantId": "acme", "scope": "tenant", "scopeKey": "acme", "category": "cost-units",
            "limit": 100, "graceRatio": 1.1, "graceSeconds": 3600, "onExceeded": "pause",
        });
        let meter = json!({ "windowStartUnixSeconds": 0, "consumed": consumed, "reserved": 0 });
        json!({ "id": 1, "budget": budget, "meter": meter, "estimate": estimate, "nowUnixSeconds": 100 })
    };
    assert_eq!(answer(Kind::Budget, line(70.0, 9.0)), json!({ "id": 1, "verdict": "ok" }));
    assert_eq!(answer(Kind::Budget, line(70.0, 10.0)), json!({ "id": 1, "verdict": "warn" }));
    let grace = json!({ "id": 1, "verdict": "grace", "graceEndUnixSeconds": 3700 });
    assert_eq!(answer(Kind::Budget, line(100.0, 10.0)), grace);
    let exceeded = json!({ "id": 1, "verdict": "exceeded", "onExceeded": "pause" });
    assert_eq!(answer(Kind::Budget, line(100.0, 10.000_001)), exceeded);
    let mut negative = line(0.0, 0.0);
    negative["budget"]["limit"] = json!(-1);
    assert!(complaint(Kind::Budget, negative).contains("negative"));
    assert!(complaint(Kind::Budget, line(0.0, 1e-7)).contains("six places"));
}

#[test]
fn a_throttle_answers_how_long_to_wait_and_how_the_bucket_stands() {
    let rule = json!({ "bucketId": "t", "capacity": 2, "refillPerSecond": 0.25 });
    let mut line = json!({ "id": 1, "rule": rule, "nowMs": 0 });
    let mut words = Vec::new();
    for _ in 0..3 {
        let found = answer(Kind::Throttle, line.clone());
        words.push((found["verdict"].clone(), found.get("retryAfterSeconds").cloned()));
        line["bucket"] = found["bucket"].clone();
    }
    assert_eq!(words, [(json!("ok"), None), (json!("ok"), None), (json!("throttled"), Some(json!(4)))]);
    line["tokens"] = json!(3);
    assert!(complaint(Kind::Throttle, line.clone()).contains("capacity"));
    line["rule"]["refillPerSecond"] = json!(0);
    assert!(complaint(Kind::Throttle, line).contains("refillPerSecond"));
}

fn grant() -> Value {
    json!({
        "grantId": "g", "scope": "per-tenant", "scopeKey": "acme", "tenantId": "acme", "toolId": "memory.read",
        "toolRange": "^1", "issuedBy": "ada", "issuedAtUnixMs": 1000, "expiresAtUnixMs": 9000, "rationale": "needed",
        "auditEventId": "audit-1",
    })
}

const RUN: &str = "0190d6a8-3c1e-7bbb-8f5e-000000000001";

#[test]
fn a_grant_is_found_or_denied_by_its_reason() {
    let line = |grants: Value, now: i64| {
        let query = json!({ "tenantId": "acme", "toolId": "memory.read", "toolSemver": "1.0.0", "runId": RUN, "userId": "ada" });
        json!({ "id": 1, "grants": grants, "query": query, "nowUnixMs": now })
    };
    let denied = |reason: &str| json!({ "id": 1, "verdict": "denied", "reason": reason });
    let granted = json!({ "id": 1, "verdict": "granted", "grantId": "g" });
    assert_eq!(answer(Kind::Grant, line(json!([grant()]), 2_000)), granted);
    assert_eq!(answer(Kind::Grant, line(json!([grant()]), 9_000)), denied("all-matches-expired"));
    assert_eq!(answer(Kind::Grant, line(json!([]), 2_000)), denied("no-matching-grant"));
    let mut revoked = grant();
    revoked["revokedAtUnixMs"] = json!(1_500);
    assert_eq!(answer(Kind::Grant, line(json!([revoked]), 2_000)), denied("all-matches-revoked"));
    let mut silent = grant();
    silent["rationale"] = json!(" ");
    assert!(complaint(Kind::Grant, line(json!([silent]), 2_000)).contains("rationale"));
    let mut odd = grant();
    odd["sope"] = json!("per-run");
    assert!(complaint(Kind::Grant, line(json!([odd]), 2_000)).contains("sope"));
}

#[test]
fn the_gate_answers_with_every_stage_and_what_decided() {
    let target = json!({
        "tenantId": "acme", "runId": RUN, "userId": "ada", "role": "service", "agentId": "ref.research", "family": "research",
        "pipelineId": null, "toolId": "memory.read", "providerId": null, "region": null,
    });
    let line = |more: Value| {
        let mut line = json!({ "id": 1, "target": target, "grants": [grant()], "nowUnixMs": 2000 });
        line.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        answer(Kind::Gate, line)
    };
    let admitted = line(json!({}));
    assert_eq!((&admitted["verdict"], &admitted["grantId"]), (&json!("admit"), &json!("g")));
    assert_eq!(admitted["answers"].as_array().unwrap().len(), 7);
    let verdict = |more: Value| {
        let found = line(more);
        (found["verdict"].clone(), found["code"].clone(), found["blamedId"].clone())
    };
    let switch = json!([{
        "switchId": "s", "scope": "global", "armedBy": "ada", "armedAtUnixMs": 1000, "reason": "incident",
        "userVisibleStatusCopy": "stopped",
    }]);
    // A switch comes first, whatever else is missing.
    assert_eq!(
        verdict(json!({ "switches": switch, "grants": [] })),
        (json!("killed"), json!("kill-switch"), json!("s"))
    );
    assert_eq!(verdict(json!({ "grants": [] })), (json!("denied"), json!("no-matching-grant"), Value::Null));
    assert_eq!(verdict(json!({ "scopes": [] })), (json!("denied"), json!("tool_scope_missing"), Value::Null));
    assert_eq!(verdict(json!({ "control": "paused" })), (json!("hold"), json!("run-paused"), Value::Null));
    let bucket = json!([{ "rule": { "bucketId": "t", "capacity": 1, "refillPerSecond": 1 }, "bucket": { "tokens": 0, "lastRefillMs": 2000 } }]);
    assert_eq!(verdict(json!({ "buckets": bucket })), (json!("throttled"), json!("throttled"), json!("t")));
    let budget = json!([{ "budget": {
        "budgetId": "b", "scope": "tenant", "scopeKey": "acme", "category": "retrievals", "limit": 0, "onExceeded": "pause" } }]);
    assert_eq!(verdict(json!({ "budgets": budget })).0, "paused");
    assert!(complaint(Kind::Gate, json!({ "id": 1, "nowUnixMs": 1 })).contains("target"));
}

#[test]
fn a_hand_off_narrows_or_is_denied_by_its_reason() {
    let line = |tools: Value, sub_budget: f64, to: &str| {
        json!({
            "id": 1,
            "parent": { "chain": [{ "agentId": "a" }], "authority": { "toolIds": ["memory.read"] }, "remaining": 40 },
            "dispatch": { "agentId": to, "authority": { "toolIds": tools }, "subBudget": sub_budget },
        })
    };
    let allowed = json!({ "id": 1, "verdict": "allow", "remaining": 9.5 });
    assert_eq!(answer(Kind::Handoff, line(json!(["memory.read"]), 30.5, "b")), allowed);
    for (line, reason) in [
        (line(json!([]), 1.0, "a"), "cycle-detected"),
        (line(json!(["web.fetch"]), 1.0, "b"), "authority-widening-rejected"),
        (line(json!([]), 0.0, "b"), "budget-non-positive"),
        (line(json!([]), 41.0, "b"), "budget-exceeds-parent"),
    ] {
        let found = answer(Kind::Handoff, line);
        assert_eq!((&found["verdict"], &found["reason"]), (&json!("deny"), &json!(reason)));
    }
}

#[test]
fn redaction_takes_either_a_text_or_chunks() {
    let found = answer(Kind::Redact, json!({ "id": 1, "text": "password=FAKE-hunter2-hunter2 and MAX_TOKENS=100" }));
    let text = found["text"].as_str().unwrap();
    assert!(!text.contains("hunter2") && text.contains("MAX_TOKENS=100"), "{text}");
    let cut = json!({ "id": 1, "chunks": ["the key is ghp_FAKEabcdefghij", "klmnopqrstuvwxyzABCDEF", "GHIJ ok"] });
    let found = answer(Kind::Redact, cut);
    let pieces: Vec<&str> = found["chunks"].as_array().unwrap().iter().map(|piece| piece.as_str().unwrap()).collect();
    assert_eq!(pieces.len(), 3);
    assert!(pieces.concat().starts_with("the key is ") && pieces.concat().ends_with(" ok"), "{pieces:?}");
    assert!(!pieces.concat().contains("FAKE") && !pieces.concat().contains("klmn"), "{pieces:?}");
    assert_eq!(answer(Kind::Redact, json!({ "id": 1, "chunks": [] }))["chunks"], json!([]));
    assert!(complaint(Kind::Redact, json!({ "id": 1 })).contains("chunks"));
    assert!(complaint(Kind::Redact, json!({ "id": 1, "text": "a", "chunks": [] })).contains("either"));
}
