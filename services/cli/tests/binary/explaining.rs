//! Why a run stopped and why its calls were refused, of the server and of a file.

use serde_json::json;

use crate::harness::{Server, put, run, signalbox};

#[test]
fn a_refused_call_is_explained_stage_by_stage_by_the_server_and_from_a_file_alone() {
    let server = Server::start();
    let plan = json!({ "rootAgentId": "ref.research", "plan": [
        { "stepId": "read", "kind": "tool", "toolId": "memory.read", "args": { "key": "k" } },
        { "stepId": "write", "kind": "tool", "toolId": "memory.write", "dependsOnStepIds": ["read"], "args": { "key": "k", "value": 1 } },
    ] });
    let said = server.submit(&plan, "--watch");
    assert_eq!(said.exit, 1);
    let id = serde_json::from_str::<serde_json::Value>(said.out.lines().next().unwrap()).unwrap()["runId"].clone();
    let id = id.as_str().unwrap();

    let found = server.json(&format!("explain {id}")).json();
    assert_eq!((&found["status"], &found["end"]["stepId"]), (&json!("failed"), &json!("write")));
    let [read, write] = found["calls"].as_array().unwrap().as_slice() else { panic!("{found}") };
    assert_eq!((&read["outcome"], &write["outcome"]), (&json!("ok"), &json!("denied")));
    assert!(read["grantId"].is_string() && read["epoch"].is_u64());
    let answers = write["answers"].as_array().unwrap();
    let objection = answers.iter().find(|answer| answer["passed"] == false).unwrap();
    assert_eq!((&objection["stage"], answers.len()), (&json!("tool"), 7));
    assert!(
        objection["detail"].as_str().unwrap().contains("give the step an agent"),
        "the smallest change: {objection}"
    );

    let words = run(&mut server.command(&format!("explain {id} {}", write["callId"].as_str().unwrap())));
    assert_eq!(words.exit, 0);
    for word in ["failed", "memory.write", "STAGE", "objected", "agent_tools_not_configured"] {
        assert!(words.out.contains(word), "{word}: {words:?}");
    }
    assert!(!words.out.contains("memory.read"), "only the call that was asked for: {words:?}");

    let journal = server.json(&format!("runs export {id}")).out;
    let folder = tempfile::TempDir::new().unwrap();
    put(folder.path(), "run.jsonl", &journal);
    let offline = run(signalbox().args(["--output", "json", "explain"]).arg(folder.path().join("run.jsonl")));
    assert_eq!(offline.json(), found);

    let missing = run(&mut server.command(&format!("explain {id} {}", uuid::Uuid::nil())));
    assert_eq!((missing.exit, missing.code()), (1, "no-such-call"));
    let unknown = run(&mut server.command(&format!("explain {}", uuid::Uuid::nil())));
    assert_eq!((unknown.exit, unknown.code()), (1, "no-such-run"));
    put(folder.path(), "cut.jsonl", journal.lines().next().unwrap());
    let cut = run(signalbox().args(["explain"]).arg(folder.path().join("cut.jsonl")));
    assert_eq!((cut.exit, cut.code()), (1, "journal-not-sound"), "{cut:?}");
}
