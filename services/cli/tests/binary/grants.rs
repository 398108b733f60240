//! Grants and throttles through the binary, as an operator uses them.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{Said, Server, put, run};

fn submit(server: &Server, steps: Value, more: &str) -> Said {
    server.submit(&json!({"rootAgentId": "ref.drafting", "plan": steps}), more)
}

fn reads(count: usize) -> Value {
    let step = |at: usize| {
        let after: Vec<_> = (at > 0).then(|| format!("s{}", at - 1)).into_iter().collect();
        json!({"stepId": format!("s{at}"), "kind": "tool", "toolId": "memory.read", "args": {"key": "k"},
            "dependsOnStepIds": after})
    };
    (0..count).map(step).collect()
}

fn writes(count: usize) -> Value {
    let step = |at: usize| {
        let after: Vec<_> = (at > 0).then(|| format!("s{}", at - 1)).into_iter().collect();
        json!({"stepId": format!("s{at}"), "kind": "tool", "toolId": "file.write",
            "args": {"path": format!("drafts/{at}.txt"), "content": "x"}, "dependsOnStepIds": after})
    };
    (0..count).map(step).collect()
}

fn say(server: &Server, words: &[&str]) -> Said {
    run(server.command("").args(words).args(["--output", "json"]))
}

fn ok(server: &Server, words: &[&str]) -> Value {
    let said = say(server, words);
    assert_eq!(said.exit, 0, "{said:?}");
    said.json()
}

fn refused(server: &Server, words: &[&str], exit: i32, code: &str) {
    let said = say(server, words);
    assert_eq!((said.exit, said.code()), (exit, code), "{said:?}");
}

const ISSUE: [&str; 11] =
    ["grants", "issue", "--tool", "file.write", "--scope", "per-tenant", "--for", "1d", "--reason", "the desk", "--id"];

#[test]
fn a_grant_is_issued_used_renewed_and_revoked_in_the_middle_of_a_run() {
    let server = Server::start();
    let denied = submit(&server, writes(1), "--watch");
    assert_eq!((denied.exit, denied.code()), (1, "no-matching-grant"), "{denied:?}");
    let issue = [&ISSUE[..], &["desk", "--path", "drafts"]].concat();
    let issued = ok(&server, &issue);
    assert_eq!((&issued["grant"]["state"], &issued["replayed"]), (&json!("live"), &json!(false)));
    assert_eq!(issued["grant"]["grant"]["constraints"], json!({"paths": ["drafts"]}));
    assert_eq!(ok(&server, &issue)["replayed"], true);
    let free = submit(&server, writes(2), "--watch");
    assert_eq!(free.exit, 0, "{free:?}");
    let outside =
        json!([{"stepId": "s", "kind": "tool", "toolId": "file.write", "args": {"path": "x.txt", "content": "x"}}]);
    let outside = submit(&server, outside, "--watch");
    assert_eq!((outside.exit, outside.code()), (1, "path-not-allowed"), "{outside:?}");

    let revision = issued["grant"]["revision"].to_string();
    let renew = ["grants", "renew", "desk", "--for", "2d", "--reason", "stays", "--id", "desk-2"];
    let renewed = ok(&server, &[&renew[..], &["--expected-revision", &revision]].concat());
    assert_eq!(renewed["grant"]["grant"]["renewedFromGrantId"], "desk");
    let late = ["grants", "revoke", "desk", "--reason", "closed", "--expected-revision", &revision];
    refused(&server, &late, 1, "stale-revision");

    // Slowed, so that it is in the middle when the grant goes.
    let slow =
        ["throttles", "set", "slow", "--tool", "file.write", "--capacity", "1", "--refill", "2", "--reason", "x"];
    ok(&server, &slow);
    let working = submit(&server, writes(20), "").json()["runId"].as_str().unwrap().to_owned();
    // Twenty calls, two a second: this is in the middle.
    std::thread::sleep(Duration::from_millis(1_500));
    let revoked = ok(&server, &["grants", "revoke", "desk-2", "--reason", "closed"]);
    assert_eq!(revoked["revokedGrantIds"], json!(["desk-2", "desk"]));
    let watched = server.json(&format!("runs watch {working}"));
    assert_eq!((watched.exit, watched.code()), (1, "all-matches-revoked"), "{watched:?}");
    let made = watched.out.matches("\"call-pending\"").count();
    assert!((1..20).contains(&made), "{watched:?}");

    assert_eq!(ok(&server, &["grants", "revoke", "desk", "--reason", "twice"])["already"], true);
    let listed = ok(&server, &["grants", "list"]);
    assert_eq!(listed["grants"], json!([]));
    assert_eq!(listed["revocations"]["grantRevocationSloMissTotal"], 0);
    assert_eq!(ok(&server, &["grants", "list", "--all"])["grants"].as_array().unwrap().len(), 2);
    assert_eq!(ok(&server, &["grants", "show", "desk"])["state"], "revoked");
    refused(&server, &renew, 1, "grant-revoked");
    let acts = ok(&server, &["audit", "list", "--subject", "grant:desk-2"]);
    let kinds: Vec<_> = acts["acts"].as_array().unwrap().iter().map(|act| act["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["grant-renewed", "grant-revoked"]);
    assert_eq!(run(&mut server.command("verify --audit")).exit, 0);
}

#[test]
fn senseless_grants_and_throttles_are_refused_with_their_codes() {
    let server = Server::start();
    let issue = |more: &[&'static str]| [&["grants", "issue", "--reason", "x"], more].concat();
    let of = |scope: &'static str, more: &[&'static str]| {
        [&["grants", "issue", "--reason", "x", "--tool", "web.fetch", "--scope", scope], more].concat()
    };
    refused(&server, &issue(&["--tool", "web.fetchh", "--scope", "per-tenant", "--for", "1d"]), 1, "unknown-tool");
    refused(&server, &issue(&["--tool", "__proto__", "--scope", "per-tenant", "--for", "1d"]), 1, "unknown-tool");
    refused(&server, &of("per-planet", &["--for", "1d"]), 1, "grant-invalid");
    refused(&server, &of("per-tenant", &["--for", "91d"]), 1, "ttl-too-long");
    refused(&server, &of("per-tenant", &[]), 1, "ttl-too-long");
    refused(&server, &of("per-user", &["--key", "ann", "--for", "31d"]), 1, "ttl-too-long");
    refused(&server, &of("per-session", &["--key", "s", "--for", "13h"]), 1, "ttl-too-long");
    refused(&server, &of("per-run", &["--key", "not-a-run"]), 1, "scope-key-invalid");
    refused(&server, &of("per-tenant", &["--for", "0s"]), 2, "usage");
    refused(&server, &of("per-tenant", &["--for", "1d", "--max-calls", "0"]), 1, "grant-bound-invalid");
    refused(&server, &of("per-tenant", &["--for", "1d", "--max-calls", "-1"]), 1, "grant-invalid");
    refused(&server, &of("per-tenant", &["--for", "1d", "--max-calls", "1.5"]), 1, "grant-invalid");
    refused(&server, &of("per-tenant", &["--for", "1d", "--max-calls", "many"]), 2, "number-invalid");
    refused(&server, &of("per-tenant", &["--for", "1d", "--max-cost", "0.0000001"]), 1, "grant-invalid");
    refused(&server, &of("per-tenant", &["--for", "1d", "--range", "newest"]), 1, "tool-range-invalid");
    let wide = ["--for", "1d", "--host", "a.org", "--delegable", r#"{"hosts":["*"]}"#];
    refused(&server, &of("per-tenant", &wide), 1, "grant-delegable-too-wide");
    let twice = ["--for", "1d", "--delegable", r#"{"hosts":["a.org"],"hosts":["*"]}"#];
    refused(&server, &of("per-tenant", &twice), 2, "json-duplicate-key");
    refused(&server, &["grants", "renew", "nothing", "--reason", "x"], 1, "no-such-grant");
    refused(&server, &["grants", "revoke", "nothing", "--reason", "x"], 1, "no-such-grant");
    refused(&server, &["grants", "show", "constructor"], 1, "no-such-grant");

    let set = |more: &[&'static str]| [&["throttles", "set", "t", "--reason", "x"], more].concat();
    refused(&server, &set(&["--capacity", "0.5", "--refill", "1"]), 1, "bucket-too-small");
    refused(&server, &set(&["--capacity", "-1", "--refill", "1"]), 1, "bucket-too-small");
    refused(&server, &set(&["--capacity", "1", "--refill", "0"]), 1, "bucket-no-refill");
    refused(&server, &set(&["--capacity", "2000000000", "--refill", "1"]), 1, "bucket-too-large");
    refused(&server, &set(&["--capacity", "1e300", "--refill", "1"]), 1, "number-not-exact");
    refused(&server, &set(&["--capacity", "1", "--refill", "0.0000001"]), 1, "throttle-invalid");
    refused(&server, &set(&["--capacity", "1", "--refill", "1", "--per", "planet"]), 1, "throttle-invalid");
    refused(
        &server,
        &set(&["--capacity", "1", "--refill", "1", "--per", "tool", "--per", "tool"]),
        1,
        "bucket-key-twice",
    );
    let unknown = set(&["--capacity", "1", "--refill", "1", "--tool", "web.fetchh"]);
    refused(&server, &unknown, 1, "throttle-target-unknown");
    refused(&server, &["throttles", "remove", "nothing", "--reason", "x"], 1, "no-such-throttle");
}

#[test]
fn a_throttle_binds_from_the_next_call_on_and_never_ends_a_run() {
    let server = Server::start();
    assert_eq!(ok(&server, &["throttles", "list"])["throttles"], json!([]));
    let set = ["throttles", "set", "reads", "--tool", "memory.read", "--capacity", "1", "--reason", "x", "--refill"];
    let first = ok(&server, &[&set[..], &["4"]].concat());
    assert_eq!((&first["unchanged"], &first["throttle"]["throttle"]["tenantId"]), (&json!(false), &json!("default")));
    assert_eq!(ok(&server, &[&set[..], &["4"]].concat())["unchanged"], true);
    let began = Instant::now();
    let slowed = submit(&server, reads(5), "--watch");
    assert_eq!(slowed.exit, 0, "{slowed:?}");
    assert!(began.elapsed() >= Duration::from_millis(950), "four waits of a quarter of a second");

    let slower = ok(&server, &[&set[..], &["0.001"]].concat());
    let waiting = submit(&server, reads(3), "").json()["runId"].as_str().unwrap().to_owned();
    let began = Instant::now();
    let status = |server: &Server| server.json(&format!("runs get {waiting}")).json()["status"].clone();
    while status(&server) != "paused" && began.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(status(&server), "paused");
    let revision = first["throttle"]["revision"].to_string();
    let late = ["throttles", "remove", "reads", "--reason", "x", "--expected-revision", &revision];
    refused(&server, &late, 1, "stale-revision");
    let revision = slower["throttle"]["revision"].to_string();
    ok(&server, &["throttles", "remove", "reads", "--reason", "x", "--expected-revision", &revision]);
    // Whoever resumes does not want to wait for the timer.
    ok(&server, &["runs", "resume", &waiting, "--reason", "the throttle is gone"]);
    let watched = server.json(&format!("runs watch {waiting}"));
    assert_eq!(watched.exit, 0, "{watched:?}");
    refused(&server, &["throttles", "show", "reads"], 1, "no-such-throttle");
}

#[test]
fn what_operators_do_to_a_files_grants_and_throttles_outlives_a_restart() {
    let folder = TempDir::new().unwrap();
    put(
        folder.path(),
        "signalbox.toml",
        r#"
        [[grants]]
        grantId = "from-file"
        scope = "per-pipeline-instance"
        scopeKey = "0190d6a8-3c1e-7bbb-8f5e-000000000001"
        tenantId = "default"
        toolId = "web.fetch"
        toolRange = "^1"
        rationale = "reads a feed"
        [[throttles]]
        bucketId = "from-file"
        capacity = 5
        refillPerSecond = 1
    "#,
    );

    let path = folder.path().join("signalbox.toml");
    let more = ["--config", path.to_str().unwrap()];
    let server = Server::over(TempDir::new().unwrap(), &more);
    assert_eq!(ok(&server, &["grants", "show", "from-file"])["state"], "live");
    ok(&server, &["grants", "revoke", "from-file", "--reason", "not any more"]);
    ok(&server, &["throttles", "remove", "from-file", "--reason", "not any more"]);
    let own = ["throttles", "set", "own", "--capacity", "5", "--refill", "1", "--platform-wide", "--reason", "x"];
    ok(&server, &own);
    let (_, data) = server.end();
    let server = Server::over(data, &more);
    assert_eq!(ok(&server, &["grants", "show", "from-file"])["state"], "revoked");
    let left = ok(&server, &["throttles", "list"])["throttles"].clone();
    let left: Vec<_> = left.as_array().unwrap().iter().map(|rule| rule["throttle"]["bucketId"].clone()).collect();
    assert_eq!(left, [json!("own")]);
}
