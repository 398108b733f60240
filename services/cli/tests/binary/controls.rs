//! Controls through the binary: every denial by its code, forks, and a server that is asked to end.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{Said, Server, put};

const FRESH: &str = "0190d6a8-3c1e-7bbb-8f5e-00000000000f";

fn submit(server: &Server, steps: Value) -> String {
    let said = server.submit(&json!({"rootAgentId": "ref.drafting", "plan": steps}), "");
    said.json()["runId"].as_str().unwrap().to_owned()
}

fn get(server: &Server, run: &str) -> Value {
    server.json(&format!("runs get {run}")).json()
}

/// Waits until the run stands as asked.
fn until(server: &Server, run: &str, status: &str) -> Value {
    let patience = Instant::now();
    loop {
        let shown = get(server, run);
        if shown["status"] == status {
            return shown;
        }
        assert!(patience.elapsed() < Duration::from_secs(30), "{run} is no {status}: {shown}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn denied(said: &Said, code: &str) {
    assert_eq!((said.exit, said.code(), said.out.as_str()), (1, code, ""), "{said:?}");
}

#[test]
fn every_denial_of_a_control_has_its_code_on_standard_error_and_exit_one() {
    let server = Server::start();
    let run = submit(&server, json!([{"stepId": "w", "kind": "wait", "seconds": 600}]));
    let refused = |line: &str, code| denied(&server.json(&line.replace("RUN", &run)), code);
    refused("runs resume RUN", "invalid-status-for-resume");
    refused("runs choose-branch RUN --branch b", "invalid-status-for-branch");
    refused("runs retry RUN --step w", "invalid-status-for-retry");
    refused("runs step RUN", "invalid-status-for-step");
    refused("runs pause RUN --expected-seq 1", "stale-revision");
    refused("runs fork RUN --run-id RUN", "fork-without-fresh-id");
    refused(&format!("runs fork {FRESH}"), "no-such-run");

    assert_eq!(server.json(&format!("runs pause {run}")).exit, 0);
    refused("runs pause RUN", "invalid-status-for-pause");
    refused("runs step RUN --step nowhere", "no-such-step");
    refused("runs retry RUN --step nowhere", "no-such-step");
    put(server.data.path(), "overrides.json", r#"{"params": {"w": {}}}"#);
    let overrides = server.data.path().join("overrides.json");
    let with_overrides = format!("runs retry RUN --step w --overrides {}", overrides.display());
    refused(&with_overrides, "override-not-allowed");

    let branches = json!([{"branchId": "left", "title": "Left"}, {"branchId": "right", "title": "Right"}]);
    let branching = submit(&server, json!([{"stepId": "b", "kind": "branch", "branches": branches}]));
    until(&server, &branching, "awaiting_branch_selection");
    denied(&server.json(&format!("runs choose-branch {branching} --branch up")), "no-such-branch");
    assert_eq!(server.json(&format!("runs choose-branch {branching} --branch left")).exit, 0);

    assert_eq!(server.json(&format!("runs kill {run} --reason enough")).json()["status"], "killed");
    for line in [
        "runs pause RUN",
        "runs resume RUN",
        "runs cancel RUN",
        "runs kill RUN --reason again",
        "runs choose-branch RUN --branch b",
        "runs retry RUN --step w",
        "runs step RUN",
    ] {
        refused(line, "run-terminal");
    }
}

#[test]
fn a_fork_of_a_failed_run_begins_queued_with_nothing_spent_and_really_runs() {
    let server = Server::start();
    let plan = json!([
        {"stepId": "read", "kind": "tool", "toolId": "memory.read", "args": {"key": "k"}},
        {"stepId": "gate", "kind": "approval", "prompt": "Go on?", "subject": {}, "dependsOnStepIds": ["read"]},
        {"stepId": "again", "kind": "tool", "toolId": "memory.read", "args": {"key": "k"}, "dependsOnStepIds": ["gate"]},
    ]);
    let source = submit(&server, plan);
    until(&server, &source, "awaiting_approval");
    let question = || server.json("approvals list").json()["approvals"][0]["approvalId"].as_str().unwrap().to_owned();
    assert_eq!(server.json(&format!("approvals decide {} --reject --reason no", question())).exit, 0);
    let failed = until(&server, &source, "failed");
    assert_ne!(failed["envelope"]["costLedger"]["totalCostUnits"], json!(0));

    let line = format!("runs fork {source} --run-id {FRESH} --reason retry --command-id {FRESH}");
    let forked = server.json(&line).json();
    assert_eq!((&forked["runId"], &forked["forkedFromRunId"]), (&json!(FRESH), &json!(source)));
    assert_eq!(forked["status"], "queued");
    assert_eq!(server.json(&line).json()["runId"], FRESH, "saying it twice is one fork");
    denied(&server.json(&format!("runs fork {source} --run-id {FRESH}")), "fork-without-fresh-id");

    let asks = until(&server, FRESH, "awaiting_approval");
    let envelope = &asks["envelope"];
    assert_eq!(envelope["forkedFromRunId"], json!(source));
    assert_eq!(envelope["costLedger"]["totalCostUnits"], json!(0), "nothing is spent");
    assert_eq!(envelope["toolCalls"], json!([]), "what was done is taken over and not done again");
    assert_eq!(server.json(&format!("approvals decide {} --approve --reason yes", question())).exit, 0);
    let done = until(&server, FRESH, "completed");
    assert_eq!(done["envelope"]["toolCalls"].as_array().unwrap().len(), 1);
    assert_eq!(server.json(&format!("verify {FRESH}")).exit, 0);
    assert_eq!(get(&server, &source), failed, "the source stays as it is");

    let second = server.json(&format!("runs fork {FRESH}")).json();
    until(&server, second["runId"].as_str().unwrap(), "awaiting_approval");
}

#[test]
fn a_server_that_is_asked_to_end_finishes_the_call_in_flight_and_the_next_goes_on() {
    let site = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = site.local_addr().unwrap().port();
    let (asked, was_asked) = mpsc::channel();
    let (go, may_go) = mpsc::channel();
    // A page that is slow the first time.
    std::thread::spawn(move || {
        for (number, stream) in site.incoming().enumerate() {
            let mut stream = stream.unwrap();
            let mut bytes = [0; 4_096];
            let _ = stream.read(&mut bytes).unwrap();
            asked.send(()).unwrap();
            if number == 0 {
                may_go.recv().unwrap();
            }
            let page =
                b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello";
            stream.write_all(page).unwrap();
        }
    });
    let data = TempDir::new().unwrap();
    let hour = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap() + Duration::from_secs(3_600);
    let text = r#"
        [[exemptions]]
        host = "127.0.0.1"
        cidr = "127.0.0.1/32"

        [[grants]]
        grantId = "local-pages"
        scope = "per-tenant"
        scopeKey = "default"
        tenantId = "default"
        toolId = "web.fetch"
        toolRange = "^1"
        rationale = "a test reads pages of this machine"
        expiresAtUnixMs = HOUR
        [grants.constraints]
        hosts = ["127.0.0.1"]
        schemes = ["http"]
        methods = ["GET"]
        "#;
    put(data.path(), "signalbox.toml", &text.replace("HOUR", &hour.as_millis().to_string()));
    let config = data.path().join("signalbox.toml").to_str().unwrap().to_owned();
    let server = Server::over(data, &["--config", &config]);
    let fetch = |id: &str, after: &[&str]| {
        json!({"stepId": id, "kind": "tool", "toolId": "web.fetch", "args": {"url": format!("http://127.0.0.1:{port}/")},
            "dependsOnStepIds": after})
    };
    let plan = json!({"rootAgentId": "ref.research", "plan": [fetch("one", &[]), fetch("two", &["one"])]});
    let run = server.submit(&plan, "").json()["runId"].as_str().unwrap().to_owned();
    was_asked.recv_timeout(Duration::from_secs(20)).unwrap();

    // The answer comes a second after the server was asked to end.
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(1));
        go.send(()).unwrap();
    });
    let asked_to_end = Instant::now();
    let (exit, data) = server.end();
    assert_eq!(exit, 0);
    assert!(asked_to_end.elapsed() < Duration::from_secs(15), "{:?}", asked_to_end.elapsed());
    assert!(was_asked.try_recv().is_err(), "nothing new began");

    let server = Server::over(data, &["--config", &config]);
    let done = until(&server, &run, "completed");
    let calls = done["envelope"]["toolCalls"].as_array().unwrap();
    assert_eq!(calls.len(), 2);
    assert!(calls.iter().all(|call| call["outcome"] == "ok" && call["attempt"] == 1), "{calls:?}");
    assert_eq!(was_asked.try_iter().count(), 1, "the first page was read once");
}
