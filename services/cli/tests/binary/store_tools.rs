//! An operator's tools on a store without a node.

use serde_json::json;

use crate::harness::{Server, run, signalbox};

/// A server's folder in which one run waits for its timer, and the run.
fn waiting_run() -> (tempfile::TempDir, String) {
    let server = Server::start();
    let plan = json!({ "rootAgentId": "ref.research", "plan": [{ "stepId": "w", "kind": "wait", "seconds": 6 }] });
    let said = server.submit(&plan, "");
    let run_id = said.json()["runId"].as_str().unwrap().to_owned();
    (server.end().1, run_id)
}

#[test]
fn after_a_rollback_every_live_run_is_held_until_somebody_resumes_it() {
    let (data, run_id) = waiting_run();
    let tool = |more: &[&str]| {
        run(signalbox()
            .args(["--output", "json", "store", "accept-rollback", "--reason", "Monday's backup", "--data"])
            .arg(data.path())
            .args(more))
    };
    let asked = tool(&[]);
    assert_eq!((asked.exit, asked.code()), (2, "confirmation-required"));
    assert!(asked.err.contains("held: 1") && asked.err.contains("--yes"), "{asked:?}");
    let before = tool(&["--yes"]);
    let again = tool(&["--yes"]);
    assert_eq!((before.exit, again.exit), (0, 0));
    assert_eq!((&before.json()["held"], &again.json()["held"]), (&json!(1), &json!(1)));
    assert_ne!(before.json()["incarnation"], again.json()["incarnation"]);

    let server = Server::over(data, &[]);
    let status = |server: &Server| server.json(&format!("runs get {run_id}")).json()["envelope"]["status"].clone();
    let begun = std::time::Instant::now();
    while status(&server) != json!("paused") {
        assert!(begun.elapsed().as_secs() < 20, "still {}", status(&server));
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let journal = server.json(&format!("runs export {run_id}"));
    assert!(journal.out.contains("Monday's backup") && journal.out.contains("operator:store"), "{journal:?}");
    assert_eq!(server.json(&format!("runs resume {run_id} --reason looked")).exit, 0);
    assert_eq!(server.json(&format!("runs watch {run_id}")).exit, 0, "it goes on to its end");
}

#[test]
fn a_store_in_use_and_an_empty_reason_are_refused() {
    let server = Server::start();
    let data = server.data.path().to_str().unwrap().to_owned();
    let said = run(signalbox().args(["migrate", "--data", &data]));
    assert_eq!((said.exit, said.code()), (1, "data-folder-in-use"), "{said:?}");
    let said = run(signalbox().args(["store", "accept-rollback", "--data", &data, "--reason", " ", "--yes"]));
    assert_eq!((said.exit, said.code()), (2, "reason-required"), "{said:?}");
}

#[test]
fn migrating_makes_a_store_and_does_nothing_to_one_that_is_there() {
    let data = tempfile::TempDir::new().unwrap();
    for _ in 0..2 {
        let said = run(signalbox().args(["--output", "json", "migrate", "--data"]).arg(data.path()));
        assert_eq!(
            (said.exit, said.json()),
            (0, json!({ "schemaVersion": signalbox_store::SCHEMA_VERSION })),
            "{said:?}"
        );
    }
}
