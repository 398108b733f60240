//! `doctor` and `config`: what a node needs, and what it is told.

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{Server, put, run, signalbox};

fn checks(value: &Value) -> Vec<(&str, &str)> {
    let all = value["checks"].as_array().unwrap();
    all.iter().map(|check| (check["check"].as_str().unwrap(), check["state"].as_str().unwrap())).collect()
}

#[test]
fn the_doctor_looks_without_a_node_and_beside_one_and_changes_nothing() {
    let data = TempDir::new().unwrap();
    let folder = data.path().join("data");
    let alone = run(signalbox().args(["doctor", "-o", "json", "--addr", "http://127.0.0.1:1", "--data"]).arg(&folder));
    assert_eq!(alone.exit, 0, "{alone:?}");
    let found = alone.json();
    assert!(checks(&found).contains(&("node", "warn")) && checks(&found).contains(&("store", "ok")), "{found}");
    assert!(!folder.exists(), "it was made");

    let server = Server::start();
    let beside = server.json(&format!("doctor --data {}", server.data.path().display()));
    assert_eq!(beside.exit, 0, "{beside:?}");
    let found = beside.json();
    assert!(checks(&found).contains(&("node", "ok")), "{found}");
    let store = found["checks"].as_array().unwrap().iter().find(|check| check["check"] == "store").unwrap();
    assert!(store["found"].as_str().unwrap().contains("a node uses it"), "{store}");
}

#[test]
fn the_doctor_fails_where_something_is_broken_and_says_what_to_do() {
    let data = TempDir::new().unwrap();
    put(
        data.path(),
        "signalbox.toml",
        "[[executors]]\nuri = \"http://127.0.0.1:1\"\n[[exemptions]]\nhost = \"feeds.internal.example\"\ncidr = \"10.20.0.0/16\"\n",
    );
    let doctor = |more: &[&str]| {
        let mut command = signalbox();
        command.args(["doctor", "--addr", "http://127.0.0.1:1", "--config", "signalbox.toml"]).args(more);
        run(command.current_dir(data.path()))
    };
    let said = doctor(&["-o", "json"]);
    assert_eq!((said.exit, said.code()), (1, "doctor-found-failures"), "{said:?}");
    let found: Value = serde_json::from_str(&said.out).unwrap();
    assert!(checks(&found).contains(&("executors", "fail")) && checks(&found).contains(&("egress", "warn")), "{found}");
    let all = found["checks"].as_array().unwrap();
    assert!(all.iter().all(|check| check["state"] == "ok" || check["next"].is_string()), "{found}");
    assert!(doctor(&[]).out.contains("next: start the executor"));
    put(data.path(), "signalbox.toml", "[limits]\nwatches = 1\n");
    let said = doctor(&["-o", "json"]);
    let found: Value = serde_json::from_str(&said.out).unwrap();
    assert!(said.exit == 1 && checks(&found).contains(&("configuration", "fail")), "{found}");
}

#[test]
fn the_configuration_is_shown_with_its_sources_and_without_its_secrets() {
    let data = TempDir::new().unwrap();
    put(
        data.path(),
        "signalbox.toml",
        "store = \"postgres://ann:FAKE-password@db.example/box\"\n[limits]\nwatchesMax = 7\n",
    );
    let show = |more: &[&str]| {
        run(signalbox()
            .args(["config", "show", "-o", "json", "--config", "signalbox.toml"])
            .args(more)
            .current_dir(data.path()))
    };
    let shown = show(&["--data", "elsewhere"]).json();
    let row = |key: &str| shown["values"].as_array().unwrap().iter().find(|row| row["key"] == key).unwrap().clone();
    assert_eq!(row("data"), json!({"key": "data", "value": "elsewhere", "from": "flag"}));
    assert_eq!(row("limits.watchesMax"), json!({"key": "limits.watchesMax", "value": "7", "from": "file"}));
    assert_eq!(row("store")["from"], "file");
    assert!(!shown.to_string().contains("FAKE"), "{shown}");
}

#[test]
fn a_configuration_is_checked_without_serving_and_a_wrong_key_names_the_right_one() {
    let data = TempDir::new().unwrap();
    let check = |text: &str| {
        put(data.path(), "signalbox.toml", text);
        run(signalbox().args(["config", "check", "signalbox.toml", "-o", "json"]).current_dir(data.path()))
    };
    assert_eq!(check("[limits]\nwatchesMax = 7\n").json()["valid"], true);
    for (text, meant) in [
        ("lisen = \"127.0.0.1:1\"", "`listen` may be meant"),
        ("[limits]\nwatchsMax = 7", "`watchesMax` may be meant"),
        ("[[budgets]]\nbudgetid = \"x\"", "`budgetId` may be meant"),
    ] {
        let said = check(text);
        assert_eq!((said.exit, said.code()), (2, "config-invalid"), "{said:?}");
        assert!(said.err.contains(meant), "{said:?}");
    }
}
