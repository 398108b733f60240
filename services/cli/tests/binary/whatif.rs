//! `whatif` through the binary: recorded runs under other budgets, switches and grants, from a server and from files alone.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{Server, put, run, signalbox};

fn ran(server: &Server, calls: usize) -> String {
    let step = |n: usize| {
        let after: Vec<String> = n.checked_sub(1).map(|before| format!("s{before}")).into_iter().collect();
        json!({ "stepId": format!("s{n}"), "kind": "tool", "toolId": "memory.write", "dependsOnStepIds": after,
            "args": { "key": "k", "value": n } })
    };
    let plan: Vec<Value> = (0..calls).map(step).collect();
    let said = server.submit(&json!({ "rootAgentId": "ref.course-generation", "plan": plan }), "");
    let id = said.json()["runId"].as_str().unwrap().to_owned();
    let patience = Instant::now();
    while server.json(&format!("runs get {id}")).json()["closed"] != true {
        assert!(patience.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(50));
    }
    id
}

#[test]
fn recorded_runs_are_decided_again_under_a_budget_a_switch_and_grants() {
    let server = Server::start();
    let (first, second) = (ran(&server, 3), ran(&server, 3));
    let said = server.json("whatif --budget tenant/default=4 --since 1d");
    let found = said.json();
    assert_eq!((said.exit, &found["runs"], &found["calls"]), (0, &json!(2), &json!(5)), "{said:?}");
    let otherwise = found["otherwise"].as_array().unwrap();
    assert_eq!(otherwise.len(), 1, "{found:#}");
    assert_eq!(
        (otherwise[0]["runId"].as_str(), otherwise[0]["status"].as_str()),
        (Some(second.as_str()), Some("killed"))
    );
    assert_eq!(otherwise[0]["objections"][0]["code"], "budget-exceeded");
    assert_eq!(otherwise[0]["objections"][0]["stepId"], "s1");
    assert_eq!(found["meters"][0]["consumed"], json!(4), "{found:#}");

    let enough = server.json("whatif --budget tenant/default=1000").json();
    assert_eq!(enough["otherwise"], json!([]));
    let switched = server.json("whatif --switch tool:memory.write").json();
    assert_eq!(switched["otherwise"].as_array().unwrap().len(), 2);
    assert_eq!(switched["otherwise"][0]["objections"][0]["code"], "kill-switch");
    // What a run was granted for itself stays.
    let folder = TempDir::new().unwrap();
    put(folder.path(), "none.toml", "grants = []\n");
    let file = folder.path().join("none.toml");
    let granted = server.json(&format!("whatif --grants {}", file.display())).json();
    assert_eq!(granted["otherwise"], json!([]));

    for id in [&first, &second] {
        let exported = run(&mut server.command(&format!("runs export {id}")));
        assert_eq!(exported.exit, 0, "{exported:?}");
        put(folder.path(), &format!("{id}.jsonl"), &exported.out);
    }
    drop(server);
    let offline = run(signalbox()
        .args(["whatif", "--budget", "tenant/default=4", "--output", "json", "--from"])
        .arg(folder.path()));
    assert_eq!(offline.json(), found, "the same without any server");
    let table = run(signalbox().args(["whatif", "--budget", "tenant/default=4", "--from"]).arg(folder.path()));
    assert!(table.out.contains("budget-exceeded") && table.out.contains(&second), "{table:?}");
}

#[test]
fn what_cannot_be_decided_is_said() {
    let folder = TempDir::new().unwrap();
    let refused = |args: &[&str], code: &str, exit: i32| {
        let said = run(signalbox().arg("whatif").args(args).args(["--output", "json", "--from"]).arg(folder.path()));
        assert_eq!((said.exit, said.out.as_str()), (exit, ""), "{args:?} {said:?}");
        assert!(said.err.contains(code), "{args:?} {said:?}");
    };
    refused(&[], "nothing-to-change", 2);
    refused(&["--budget", "acme=1"], "no budget such as", 2);
    refused(&["--switch", "planet:mars"], "no scope", 2);
    refused(&["--budget", "tenant/a=1", "--budget", "tenant/a=2"], "budget-twice", 2);
    refused(&["--grants", "/nowhere.toml"], "config-unreadable", 2);
    put(folder.path(), "broken.jsonl", "{}\n");
    let said = run(signalbox().args(["whatif", "--switch", "global", "--from"]).arg(folder.path()));
    assert!(said.exit != 0, "{said:?}");
}
