//! `serve` and everything that talks to it.

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{Server, put, run, signalbox};

const NOWHERE: &str = "0190d6a8-3c1e-7bbb-8f5e-000000000001";

fn gated() -> Value {
    json!({"rootAgentId": "ref.drafting", "plan": [
        {"stepId": "gate", "kind": "approval", "prompt": "Go on?", "subject": {"n": 1}},
        {"stepId": "done", "kind": "wait", "seconds": 0, "dependsOnStepIds": ["gate"]},
    ]})
}

fn waiting_run(server: &Server) -> String {
    let said = server.submit(&gated(), "--watch");
    assert_eq!((said.exit, said.code()), (3, "waiting-for-decision"), "{said:?}");
    let first: Value = serde_json::from_str(said.out.lines().next().unwrap()).unwrap();
    first["runId"].as_str().unwrap().to_owned()
}

fn open_question(server: &Server) -> String {
    server.json("approvals list").json()["approvals"][0]["approvalId"].as_str().unwrap().to_owned()
}

#[test]
fn a_run_waits_for_its_gate_with_exit_three_and_ends_well_once_it_is_approved() {
    let server = Server::start();
    let run_id = waiting_run(&server);
    let listed = server.json("runs list --status awaiting_approval").json();
    assert_eq!(listed["runs"][0]["runId"], run_id.as_str());
    assert_eq!(listed["nextPageToken"], Value::Null);

    let question = open_question(&server);
    let decided = server.json(&format!("approvals decide {question} --approve --reason ok")).json();
    assert_eq!((&decided["runId"], &decided["approvalId"]), (&json!(run_id), &json!(question)));
    let watched = server.json(&format!("runs watch {run_id}"));
    assert_eq!(watched.exit, 0, "{watched:?}");
    let kinds: Vec<Value> = watched
        .out
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .inspect(|event| assert!(event["hash"].as_str().unwrap().len() == 64 && event["body"].is_object()))
        .map(|event| event["kind"].clone())
        .collect();
    assert_eq!((kinds.first(), kinds.last()), (Some(&json!("run-submitted")), Some(&json!("run-closed"))));

    let shown = server.json(&format!("runs get {run_id}")).json();
    assert_eq!(
        (&shown["status"], &shown["closed"], &shown["percent"]),
        (&json!("completed"), &json!(true), &json!(100))
    );
    assert_eq!(shown["envelope"]["approvals"][0]["decisionReason"], "ok");
    let before = server.json(&format!("runs replay {run_id} --at 3")).json();
    assert_eq!(before["envelope"]["lastSeq"], 3);
}

#[test]
fn a_rejected_gate_fails_the_run_and_the_watch_says_so_with_exit_one() {
    let server = Server::start();
    let run_id = waiting_run(&server);
    let question = open_question(&server);
    assert_eq!(server.json(&format!("approvals decide {question} --reject --reason no")).exit, 0);
    let watched = server.json(&format!("runs watch {run_id}"));
    assert_eq!(watched.exit, 1, "{watched:?}");
    assert_eq!(server.json(&format!("runs get {run_id}")).json()["status"], "failed");
}

#[test]
fn what_a_person_saw_must_still_be_what_the_question_is_about() {
    let server = Server::start();
    waiting_run(&server);
    let question = open_question(&server);
    let other = "0".repeat(64);
    let line = format!("approvals decide {question} --approve --reason ok --subject-digest {other}");
    let refused = server.json(&line);
    assert_eq!((refused.exit, refused.code()), (1, "approval-subject-changed"), "{refused:?}");
}

#[test]
fn controls_answer_with_the_status_and_denials_with_their_code() {
    let server = Server::start();
    let plan = json!({"rootAgentId": "ref.drafting", "plan": [{"stepId": "w", "kind": "wait", "seconds": 600}]});
    let run_id = server.submit(&plan, "").json()["runId"].as_str().unwrap().to_owned();
    let paused = server.json(&format!("runs pause {run_id} --reason lunch")).json();
    assert_eq!(paused["status"], "paused");
    let again = server.json(&format!("runs pause {run_id}"));
    assert_eq!((again.exit, again.code()), (1, "invalid-status-for-pause"));
    assert_ne!(server.json(&format!("runs resume {run_id}")).json()["status"], "paused");
    let killed = server.json(&format!("runs kill {run_id} --reason enough")).json();
    assert_eq!(killed["status"], "killed");
    let late = server.json(&format!("runs cancel {run_id}"));
    assert_eq!((late.exit, late.code()), (1, "run-terminal"));
    assert!(late.err.contains("\nnext: "), "{}", late.err);
}

#[test]
fn submitting_again_under_one_id_is_harmless_and_something_else_under_it_is_refused() {
    let server = Server::start();
    let first = server.submit(&gated(), &format!("--run-id {NOWHERE}")).json();
    assert_eq!((&first["runId"], &first["replayed"]), (&json!(NOWHERE), &json!(false)));
    assert_eq!(server.submit(&gated(), &format!("--run-id {NOWHERE}")).json()["replayed"], true);
    let mut other = gated();
    other["inputs"] = json!(1);
    let refused = server.submit(&other, &format!("--run-id {NOWHERE}"));
    assert_eq!((refused.exit, refused.code()), (1, "run_id_conflict"));
}

#[test]
fn an_exported_journal_verifies_without_a_server_and_a_changed_one_does_not() {
    let server = Server::start();
    let run_id = waiting_run(&server);
    let exported = run(&mut server.command(&format!("runs export {run_id}")));
    assert_eq!(run(&mut server.command(&format!("verify {run_id}"))).exit, 0);
    let (exit, data) = server.end();
    assert_eq!(exit, 0);
    let verify = |text: &str| {
        put(data.path(), "journal.jsonl", text);
        run(signalbox().args(["verify", "--output", "json"]).arg(data.path().join("journal.jsonl")))
    };
    assert_eq!(verify(&exported.out).json()["ok"], true);
    let forged = verify(&exported.out.replace("Go on?", "Go off?"));
    assert_eq!((forged.exit, forged.code()), (1, "journal-not-sound"));
    let cut: Vec<_> = exported.out.lines().take(3).collect();
    assert_eq!(verify(&cut.join("\n")).json()["findings"][0]["code"], "export-cut");
    assert_eq!(verify("nonsense").code(), "export-invalid");
}

#[test]
fn a_server_that_is_cut_off_goes_on_with_its_runs_when_it_is_back() {
    let server = Server::start();
    let run_id = waiting_run(&server);
    let server = Server::over(server.cut(), &[]);
    let question = open_question(&server);
    assert_eq!(server.json(&format!("approvals decide {question} --approve --reason ok")).exit, 0);
    assert_eq!(server.json(&format!("runs watch {run_id}")).exit, 0);
}

#[test]
fn one_data_folder_is_for_one_process() {
    let server = Server::start();
    let data = server.data.path().to_str().unwrap().to_owned();
    let second = run(signalbox().args(["serve", "--listen", "127.0.0.1:0", "--data", &data]));
    assert_eq!((second.exit, second.code()), (1, "data-folder-in-use"), "{second:?}");
    assert!(second.err.contains("next: "));
}

#[test]
fn an_address_that_others_can_reach_is_not_served_without_an_identity() {
    let data = TempDir::new().unwrap();
    for line in ["serve --listen 0.0.0.0:0", "tools serve --listen 0.0.0.0:0"] {
        let refused = run(signalbox().args(line.split(' ')).arg("--data").arg(data.path()));
        assert_eq!((refused.exit, refused.code()), (1, "identity-not-configured"), "{line}");
    }
    assert_eq!(std::fs::read_dir(data.path()).unwrap().count(), 0, "the folder was touched");
}

#[test]
fn a_switch_in_the_configuration_stops_the_calls_it_names() {
    let data = TempDir::new().unwrap();
    put(
        data.path(),
        "signalbox.toml",
        r#"
        [[switches]]
        switchId = "no-memory"
        scope = "tool"
        targetId = "memory.read"
        reason = "maintenance"
        userVisibleStatusCopy = "Memory is switched off."
        "#,
    );
    let config = data.path().join("signalbox.toml").to_str().unwrap().to_owned();
    let server = Server::over(data, &["--config", &config]);
    let step = json!({"stepId": "m", "kind": "tool", "toolId": "memory.read", "args": {"key": "k"}});
    let said = server.submit(&json!({"rootAgentId": "ref.drafting", "plan": [step]}), "--watch");
    assert_eq!(said.exit, 1, "{said:?}");
    let run_id = server.json("runs list").json()["runs"][0]["runId"].as_str().unwrap().to_owned();
    let shown = server.json(&format!("runs get {run_id}")).json();
    assert_eq!(shown["status"], "killed");
    assert_eq!(shown["envelope"]["end"]["userVisibleStatusCopy"], "Memory is switched off.");
}

#[test]
fn usage_errors_exit_with_two_and_have_the_form_of_all_errors() {
    let data = TempDir::new().unwrap();
    put(data.path(), "bad.toml", "[limits]\nwatches = 1\n");
    let bad = data.path().join("bad.toml").to_str().unwrap().to_owned();
    for (line, code) in [
        ("runs get nonsense".to_owned(), "usage"),
        (format!("serve --config {bad}"), "config-invalid"),
        ("verify /nowhere/at/all".to_owned(), "file-unreadable"),
        ("runs list --addr nonsense".to_owned(), "addr-invalid"),
        ("demo --sources /nowhere/at/all".to_owned(), "sources-missing"),
    ] {
        let said = run(signalbox().args(line.split(' ')).current_dir(data.path()));
        assert_eq!((said.exit, said.code()), (2, code), "{line}: {said:?}");
        assert!(said.out.is_empty());
    }
    let unreachable = run(signalbox().args(["runs", "list", "--addr", "http://127.0.0.1:1"]));
    assert_eq!((unreachable.exit, unreachable.code()), (1, "server-unreachable"));
}

#[test]
fn help_and_version_are_answers() {
    for flag in ["--help", "--version"] {
        let said = run(signalbox().arg(flag));
        assert_eq!((said.exit, said.err.as_str()), (0, ""), "{flag}");
        assert!(said.out.contains("signalbox"));
    }
}
