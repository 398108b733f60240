//! Trying a new version of an agent, and keeping runs to go by, as an operator does it.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Server, put};

const START: &str = "rollouts start r --agent ref.course-generation --champion 1.0.0 --challenger 1.1.0 --reason trial";

/// A server on which the agent has a second version, which is a challenger.
fn server() -> Server {
    let server = Server::start();
    let shown = server.json("agents show ref.course-generation --version 1.0.0").json();
    let mut entry = shown["versions"][0].clone();
    entry["agentSemver"] = json!("1.1.0");
    entry["lifecycle"] = json!("challenger");
    put(server.data.path(), "entry.json", &entry.to_string());
    let file = server.data.path().join("entry.json");
    let published = server.json(&format!("agents publish {} --reason better", file.display()));
    assert_eq!(published.exit, 0, "{published:?}");
    server
}

fn reads(server: &Server) -> String {
    let plan = json!({
        "rootAgentId": "ref.course-generation", "inputs": {"topic": "tides"},
        "plan": [{"stepId": "a", "kind": "tool", "toolId": "memory.read", "args": {"key": "k"}}],
    });
    let said = server.submit(&plan, "");
    assert_eq!(said.exit, 0, "{said:?}");
    let run = said.json()["runId"].as_str().unwrap().to_owned();
    let watched = server.json(&format!("runs watch {run}"));
    assert_eq!(watched.exit, 0, "{watched:?}");
    run
}

fn until(server: &Server, what: impl Fn(&Value) -> bool) -> Value {
    for _ in 0..200 {
        let shown = server.json("rollouts show r").json();
        if what(&shown) {
            return shown;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("{}", server.json("rollouts show r").out);
}

#[test]
fn a_shadow_rollout_counts_both_sides_and_survives_a_kill() {
    let server = server();
    let started = server.json(&format!("{START} --mode shadow --platform-wide"));
    assert_eq!((started.exit, &started.json()["state"]), (0, &json!("live")), "{started:?}");
    let run = reads(&server);
    let shown = until(&server, |shown| shown["readiness"]["challenger"]["n"] == 1);
    assert_eq!(shown["readiness"]["champion"], json!({"successes": 1, "n": 1, "stillOpen": 1}));
    assert_eq!(shown["readiness"]["verdict"], "not-enough-samples");
    let envelope = server.json(&format!("runs get {run}")).out;
    assert!(envelope.contains("\"routing\""), "{envelope}");
    let refused = server.json("rollouts promote r --reason now");
    assert_eq!((refused.exit, refused.code()), (1, "readiness-required"));
    assert_eq!(server.json("rollouts rollback r --reason now").code(), "no-prior-champion");
    assert_eq!(server.json(&format!("runs feedback {run} --negative")).exit, 0);

    let server = Server::over(server.cut(), &[]);
    let shown = server.json("rollouts show r").json();
    assert_eq!(shown["readiness"]["champion"]["successes"], 0, "somebody complained");
    let frozen = server.json("rollouts freeze r --reason look").json();
    assert_eq!(frozen["state"], "frozen");
    let stale = server.json(&format!("rollouts unfreeze r --reason on --expected-revision {}", shown["revision"]));
    assert_eq!((stale.exit, stale.code()), (1, "stale-revision"));
    assert_eq!(server.json("rollouts unfreeze r --reason on").json()["state"], "live");
    assert_eq!(server.json("rollouts end r --reason over").json()["state"], "ended");
    assert_eq!(server.json("rollouts list").json()["rollouts"], json!([]));
    assert_eq!(server.json("rollouts list --all").json()["rollouts"][0]["rolloutId"], "r");
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_begun() {
    let server = server();
    for (more, exit, code) in [
        ("--mode canary --fraction 0.51", 1, "canary-fraction-invalid"),
        ("--mode shadow --fraction 0.1", 1, "canary-fraction-invalid"),
        ("--mode canary --fraction -0", 2, "usage"),
        ("--mode canary --fraction NaN", 2, "usage"),
        ("--mode canary --fraction half", 2, "usage"),
        ("--mode sometimes", 2, "usage"),
    ] {
        let refused = server.json(&format!("{START} {more}"));
        assert_eq!((refused.exit, refused.code()), (exit, code), "{more}");
    }
    let same = START.replace("1.1.0", "1.0.0");
    assert_eq!(server.json(&format!("{same} --mode shadow")).code(), "rollout-same-arms");
    let unknown = START.replace("1.1.0", "7.0.0");
    assert_eq!(server.json(&format!("{unknown} --mode shadow")).code(), "agent-version-unknown");
    assert_eq!(server.json("rollouts show r").code(), "no-such-rollout");
    assert_eq!(server.json(&format!("{START} --mode canary --fraction 0.5")).exit, 0);
    let second = START.replace("start r", "start s");
    assert_eq!(server.json(&format!("{second} --mode shadow")).code(), "rollout-exists");
}

#[test]
fn a_gold_set_is_filled_from_completed_runs_and_exported() {
    let server = Server::start();
    let run = reads(&server);
    put(server.data.path(), "expected.json", r#"{"items": 3}"#);
    let file = server.data.path().join("expected.json");
    let promote = format!("gold-sets promote gold.course {run} --expected {} --rubric three", file.display());
    let entry = server.json(&promote);
    assert_eq!(entry.exit, 0, "{entry:?}");
    let entry = entry.json();
    assert_eq!((&entry["input"], &entry["expectedOutput"]), (&json!({"topic": "tides"}), &json!({"items": 3})));
    assert_eq!(server.json(&promote).code(), "gold-set-entry-exists");
    let server = Server::over(server.cut(), &[]);
    assert_eq!(server.json("gold-sets list gold.course").json()["entries"], json!([entry]));
    let exported = crate::harness::run(&mut server.command("gold-sets export gold.course"));
    assert_eq!(exported.json(), entry);
    assert_eq!(server.json("gold-sets list nowhere").json()["entries"], json!([]));
    let acts = server.json("audit list").json();
    assert_eq!(acts["acts"][0]["kind"], "gold-set-entry-promoted");
    assert_eq!(server.json("verify --audit").exit, 0);
}
