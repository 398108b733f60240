//! `approvals list`, `show` and `decide`, and gates across the death of their server.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Said, Server, run};

/// How long a test waits for what must happen.
const PATIENCE: Duration = Duration::from_secs(30);

fn guarded() -> Value {
    json!({"rootAgentId": "ref.course-generation", "plan": [
        {"stepId": "read", "kind": "tool", "toolId": "memory.read", "args": {"key": "k"}},
        {"stepId": "gate", "kind": "approval", "prompt": "Keep it?", "dependsOnStepIds": ["read"],
         "approvers": {"roles": ["platform-operator", "tenant-operator"], "actorIds": ["olga"]},
         "subject": {"pages": 3}},
        {"stepId": "keep", "kind": "tool", "toolId": "memory.write", "approvedBy": "gate",
         "args": {"key": "k", "value": {"amount": 10}}},
    ]})
}

impl Server {
    pub(crate) fn waits(&self, plan: &Value) -> String {
        let said = self.submit(plan, "--watch");
        assert_eq!((said.exit, said.code()), (3, "waiting-for-decision"), "{said:?}");
        let first: Value = serde_json::from_str(said.out.lines().next().unwrap()).unwrap();
        first["runId"].as_str().unwrap().to_owned()
    }

    fn open(&self) -> Vec<Value> {
        self.json("approvals list").json()["approvals"].as_array().unwrap().clone()
    }

    pub(crate) fn open_question(&self) -> String {
        self.open()[0]["approvalId"].as_str().unwrap().to_owned()
    }

    fn text(&self, line: &str) -> Said {
        run(&mut self.command(line))
    }

    pub(crate) fn kinds(&self, run_id: &str) -> Vec<String> {
        let exported = self.text(&format!("runs export {run_id}"));
        let event = |line: &str| serde_json::from_str::<Value>(line).unwrap()["kind"].as_str().map(ToOwned::to_owned);
        exported.out.lines().filter_map(event).collect()
    }
}

#[test]
fn a_question_is_shown_with_all_that_it_lets_through() {
    let server = Server::start();
    assert_eq!(server.text("approvals list").out, "no question is open\n");
    let run_id = server.waits(&guarded());
    let listed = &server.open()[0];
    assert_eq!((&listed["runId"], &listed["stepId"]), (&json!(run_id), &json!("gate")));
    assert_eq!(listed["approvers"], json!({"actorIds": ["olga"], "roles": ["tenant-operator", "platform-operator"]}));
    assert_eq!(listed["reminded"], false);
    let half = (listed["requestedAtUnixMs"].as_i64().unwrap() + listed["expiresAtUnixMs"].as_i64().unwrap()) / 2;
    assert_eq!(listed["remindAtUnixMs"], half);

    let id = server.open_question();
    let shown = server.json(&format!("approvals show {id}")).json();
    assert_eq!((&shown["state"], &shown["approvalId"]), (&json!("open"), &json!(id)));
    assert_eq!(shown["subject"]["subject"], json!({"pages": 3}));
    let args = json!({"key": "k", "value": {"amount": 10}});
    assert_eq!(shown["subject"]["actions"][0]["args"], args);
    assert_eq!(
        (&shown["actions"][0]["stepId"], &shown["actions"][0]["toolId"]),
        (&json!("keep"), &json!("memory.write"))
    );
    assert_eq!(shown["subjectDigest"], listed["subjectDigest"]);

    let text = server.text(&format!("approvals show {id}"));
    assert_eq!(text.exit, 0, "{text:?}");
    for part in ["Keep it?", "open", "operator: olga, every tenant-operator", "\"amount\": 10", "call memory.write as"]
    {
        assert!(text.out.contains(part), "{part}: {}", text.out);
    }
    let table = server.text("approvals list").out;
    assert!(table.contains("Keep it?") && table.contains("olga") && !table.contains("reminded"), "{table}");
}

#[test]
fn whoever_submitted_a_run_is_not_among_its_approvers_and_is_told_what_to_do() {
    let server = Server::start();
    server.waits(&guarded());
    let id = server.open_question();
    assert_eq!(server.json(&format!("approvals show {id}")).json()["mayDecide"], false);
    let refused = server.json(&format!("approvals decide {id} --approve --reason ok"));
    assert_eq!((refused.exit, refused.code()), (1, "not-an-approver"), "{refused:?}");
    assert!(refused.err.contains("next: see who may answer with `signalbox approvals show ID`"), "{refused:?}");
    let own = json!({"rootAgentId": "ref.drafting", "plan": [
        {"stepId": "gate", "kind": "approval", "approvers": {"actorIds": [submitter(&server)]}},
    ]});
    let refused = server.submit(&own, "");
    assert_eq!((refused.exit, refused.code()), (1, "bad-step"), "{refused:?}");
}

fn submitter(server: &Server) -> Value {
    let run_id = server.json("runs list").json()["runs"][0]["runId"].as_str().unwrap().to_owned();
    server.json(&format!("runs get {run_id}")).json()["envelope"]["submittedBy"]["actorId"].clone()
}

pub(crate) fn one_gate(seconds: u64) -> Value {
    json!({"rootAgentId": "ref.drafting", "plan": [
        {"stepId": "gate", "kind": "approval", "prompt": "Go on?", "approvalTtlSeconds": seconds},
        {"stepId": "done", "kind": "wait", "seconds": 0, "dependsOnStepIds": ["gate"]},
    ]})
}

#[test]
fn a_decision_said_again_under_its_id_gives_the_same_answer_also_after_a_restart() {
    let server = Server::start();
    let run_id = server.waits(&one_gate(600));
    let id = server.open_question();
    let command = "0190d6a8-3c1e-7bbb-8f5e-0000000000aa";
    let line = format!("approvals decide {id} --approve --reason ok --command-id {command}");
    let first = server.json(&line);
    assert_eq!((first.exit, first.json()["status"].as_str()), (0, Some("running")), "{first:?}");
    assert_eq!(server.json(&format!("runs watch {run_id}")).exit, 0);
    assert_eq!(server.json(&line).json(), first.json());
    let server = Server::over(server.cut(), &[]);
    assert_eq!(server.json(&line).json(), first.json());

    let code = |line: String| {
        let said = server.json(&line);
        assert_eq!(said.exit, 1, "{said:?}");
        said.code().to_owned()
    };
    let other = format!("approvals decide {id} --reject --reason ok --command-id {command}");
    assert_eq!(code(other), "command-id-conflict");
    assert_eq!(code(format!("approvals decide {id} --approve --reason ok")), "approval-closed");
    let never = "0190d6a8-3c1e-7bbb-8f5e-0000000000ab";
    assert_eq!(code(format!("approvals decide {never} --approve --reason ok")), "no-such-approval");
    assert_eq!(code(format!("approvals show {never}")), "no-such-approval");
    let shown = server.json(&format!("approvals show {id}")).json();
    assert_eq!((&shown["state"], &shown["decisionReason"]), (&json!("approved"), &json!("ok")));
    assert!(server.open().is_empty());
}

#[test]
fn silence_is_a_no_after_one_reminder_that_list_and_watch_show_also_across_a_kill() {
    let server = Server::start();
    let run_id = server.waits(&one_gate(6));
    let server = Server::over(server.cut(), &[]);
    let begun = Instant::now();
    while server.open().first().is_some_and(|open| open["reminded"] == false) {
        assert!(begun.elapsed() < PATIENCE, "nobody was reminded");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(server.text("approvals list").out.contains("(reminded)"));
    let server = Server::over(server.cut(), &[]);
    let watched = server.text(&format!("runs watch {run_id} --through-decisions"));
    assert_eq!((watched.exit, watched.code()), (1, "approval-expired"), "{watched:?}");
    assert!(watched.out.contains("half of the time to answer is over"), "{}", watched.out);
    let kinds = server.kinds(&run_id);
    assert_eq!(kinds.iter().filter(|kind| *kind == "approval-reminded").count(), 1, "{kinds:?}");
    assert_eq!(kinds.iter().filter(|kind| *kind == "approval-expired").count(), 1);
}

/// Case C-017: A, a gate, B, a gate, C; the server is killed while each gate waits. How often each step was called.
fn through_two_gates(last: &str) -> BTreeMap<String, usize> {
    let write = |id: &str, after: &[&str]| {
        json!({"stepId": id, "kind": "tool", "toolId": "memory.write", "dependsOnStepIds": after,
            "args": {"key": id, "value": 1}})
    };
    let gate = |id: &str, after: &str| json!({"stepId": id, "kind": "approval", "dependsOnStepIds": [after]});
    let plan = json!({"rootAgentId": "ref.course-generation", "plan": [
        write("a", &[]), gate("gate1", "a"), write("b", &["gate1"]), gate("gate2", "b"), write("c", &["gate2"]),
    ]});
    let mut server = Server::start();
    let run_id = server.waits(&plan);
    for (answer, exit) in [("--approve", 3), (last, i32::from(last == "--reject"))] {
        server = Server::over(server.cut(), &[]);
        let id = server.open_question();
        assert_eq!(server.json(&format!("approvals decide {id} {answer} --reason ok")).exit, 0);
        assert_eq!(server.json(&format!("runs watch {run_id}")).exit, exit);
    }
    let exported = server.text(&format!("runs export {run_id}"));
    let mut calls = BTreeMap::new();
    for line in exported.out.lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        assert_ne!(event["kind"], "call-redispatched");
        if event["kind"] == "call-pending" {
            // The body stands there as the text that was hashed.
            let body: Value = serde_json::from_str(event["body"].as_str().unwrap()).unwrap();
            *calls.entry(body["stepId"].as_str().unwrap().to_owned()).or_default() += 1;
        }
    }
    assert_eq!(run(&mut server.command(&format!("verify {run_id}"))).exit, 0);
    calls
}

#[test]
fn what_lies_before_a_gate_is_never_done_again_though_the_server_is_killed_at_each() {
    let calls = through_two_gates("--approve");
    assert_eq!(calls, BTreeMap::from([("a".into(), 1), ("b".into(), 1), ("c".into(), 1)]));
}

#[test]
fn what_lies_behind_a_rejected_gate_is_never_done_though_the_server_is_killed_at_each() {
    let calls = through_two_gates("--reject");
    assert_eq!(calls, BTreeMap::from([("a".into(), 1), ("b".into(), 1)]));
}

#[test]
fn answers_that_make_no_sense_are_refused_and_change_nothing() {
    let server = Server::start();
    server.waits(&one_gate(600));
    let id = server.open_question();
    let decide = |more: &str| server.json(&format!("approvals decide {id} {more}"));
    for (more, exit, code) in [
        ("--approve --reject --reason x".to_owned(), 2, "usage"),
        ("--approve".to_owned(), 2, "usage"),
        ("--reason x".to_owned(), 2, "usage"),
        (format!("--approve --reason {}", "x".repeat(100_000)), 1, "reason-too-long"),
        (format!("--approve --reason x --subject-digest {}", "A".repeat(64)), 1, "digest-invalid"),
        ("--approve --reason x --subject-digest abc".to_owned(), 1, "digest-invalid"),
        (format!("--approve --reason x --subject-digest {}", "0".repeat(64)), 1, "approval-subject-changed"),
        ("--skip --reason x".to_owned(), 1, "decision-not-allowed"),
    ] {
        let said = decide(&more);
        assert_eq!((said.exit, said.code()), (exit, code), "{}", more.chars().take(60).collect::<String>());
    }
    let mut blank = server.command(&format!("approvals decide {id} --approve --output json"));
    let said = run(blank.args(["--reason", "  "]));
    assert_eq!((said.exit, said.code()), (1, "reason-required"));
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStrExt as _;
        // A lone surrogate is no text.
        let mut surrogate = server.command(&format!("approvals decide {id} --approve"));
        let said = run(surrogate.arg("--reason").arg(std::ffi::OsStr::from_bytes(b"\xed\xa0\x80")));
        assert_eq!((said.exit, said.code()), (2, "usage"), "{said:?}");
    }
    assert_eq!(server.open().len(), 1, "it waits as before");
    assert_eq!(decide("--approve --reason ok").exit, 0);
}

#[test]
fn a_plan_in_which_a_decision_could_be_read_in_two_ways_is_refused() {
    let server = Server::start();
    for (step, code) in [
        (r#"{"stepId":"g","kind":"approval","requirement":"operator","requirement":"none"}"#, "json-duplicate-key"),
        (r#"{"stepId":"g","kind":"approval","subject":{"approved":false,"approved":true}}"#, "json-duplicate-key"),
        (r#"{"stepId":"g","kind":"approval","approved":true}"#, "unknown-field"),
    ] {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), format!(r#"{{"rootAgentId":"ref.drafting","plan":[{step}]}}"#)).unwrap();
        let said = server.json(&format!("runs submit --plan {}", file.path().display()));
        assert_eq!((said.exit, said.code()), (1, code), "{step}");
    }
}
