//! Agents, executors and rollouts as files.

use std::path::Path;

use serde_json::{Value, json};
use signalbox_domain::catalog::Recovery;
use tempfile::TempDir;

use crate::agents::{WRITER, executor, file};
use crate::harness::{Said, Server, put, run};

fn document(kind: &str, spec: &str) -> String {
    let spec: String = spec.lines().filter(|line| !line.is_empty()).map(|line| format!("  {line}\n")).collect();
    format!("---\nkind: {kind}\nreason: a test\nspec:\n{spec}")
}

fn later() -> String {
    WRITER.replace("agentSemver: 1.0.0", "agentSemver: 1.10.0").replace("lifecycle: champion", "lifecycle: challenger")
}

const ROLLOUT: &str = "\
rolloutId: shorter
agentId: acme.writer
championSemver: 1.0.0
challengerSemver: 1.10.0
mode: canary
canaryFraction: 0.05
";

fn apply(server: &Server, path: &Path, more: &[&str]) -> Said {
    run(server.command("apply --output json -f").arg(path).args(more))
}

fn titles(said: &Said) -> Vec<String> {
    assert_eq!(said.exit, 0, "{said:?}");
    let first: Value = serde_json::from_str(said.out.lines().next().unwrap()).unwrap();
    let changes = first["changes"].as_array().unwrap();
    changes.iter().map(|change| format!("{} {}", change["kind"], change["id"]).replace('"', "")).collect()
}

#[test]
fn versions_of_agents_and_rollouts_are_applied_in_their_order_once_and_exported_whole() {
    let server = Server::start();
    let folder = TempDir::new().unwrap();
    let middle = later().replace("1.10.0", "1.9.0");
    // The file says them in another order than they are entered in.
    let all = [document("rollout", ROLLOUT), document("agent", &later()), document("agent", &middle)].concat();
    put(folder.path(), "b.yaml", &all);
    put(folder.path(), "a.yaml", &document("agent", WRITER));
    let expected =
        ["agent acme.writer@1.0.0", "agent acme.writer@1.9.0", "agent acme.writer@1.10.0", "rollout shorter"];
    assert_eq!(titles(&apply(&server, folder.path(), &["--dry-run"])), expected);
    assert_eq!(server.json("agents show acme.writer").code(), "no-such-agent", "a dry run changes nothing");
    assert_eq!(titles(&apply(&server, folder.path(), &["--yes"])), expected);
    assert_eq!(titles(&apply(&server, folder.path(), &["--yes"])), [""; 0]);
    assert_eq!(server.json("rollouts show shorter").json()["canaryFraction"].to_string(), "0.05");
    let acts = server.json("audit list").out;
    assert!(acts.contains("agent-registered") && acts.contains("agent-published"), "{acts}");

    let exported = folder.path().join("out");
    assert_eq!(run(server.command("export --to").arg(&exported)).exit, 0);
    assert_eq!(titles(&apply(&server, &exported, &["--yes"])), [""; 0]);
    let other = Server::start();
    assert_eq!(titles(&apply(&other, &exported, &["--yes"])), expected);
    assert_eq!(run(&mut other.command("export")).out, run(&mut server.command("export")).out);
}

#[test]
fn a_version_never_changes_and_is_not_moved_back_and_a_rollout_that_is_over_stays_over() {
    let server = Server::start();
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("all.yaml");
    let all = [document("agent", WRITER), document("agent", &later()), document("rollout", ROLLOUT)].concat();
    put(folder.path(), "all.yaml", &all);
    assert_eq!(titles(&apply(&server, &path, &["--yes"])).len(), 3);
    put(folder.path(), "all.yaml", &all.replace("title: Writer", "title: Scribe"));
    let changed = apply(&server, &path, &["--yes"]);
    assert!(changed.code() == "apply-refused" && changed.err.contains("agent-version-fixed"), "{changed:?}");
    assert!(changed.err.contains("title"), "it says what differs: {changed:?}");
    put(folder.path(), "all.yaml", &all.replace("0.05", "0.1"));
    assert!(apply(&server, &path, &["--yes"]).err.contains("rollout-id-conflict"));

    put(folder.path(), "all.yaml", &all);
    assert_eq!(server.json("rollouts end shorter --reason over").exit, 0);
    let retired = server.json("agents move acme.writer 1.10.0 --to retired --reason no");
    assert_eq!(retired.exit, 0, "{retired:?}");
    assert_eq!(titles(&apply(&server, &path, &["--yes"])), [""; 0]);
    assert_eq!(server.json("rollouts list").json()["rollouts"], json!([]));
    let shown = server.json("agents show acme.writer --version 1.10.0").json();
    assert_eq!(shown["versions"][0]["lifecycle"], "retired");
}

#[test]
fn what_an_agent_or_rollout_may_not_be_is_told_before_anything_is_done() {
    let server = Server::start();
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("bad.yaml");
    let champion = later().replace("challenger", "champion");
    for (bad, code) in [
        (document("agent", &WRITER.replace("editing", "gardening")), "unknown-family"),
        (document("agent", &WRITER.replace("agentSemver: 1.0.0", "agentSemver: one")), "invalid-semver"),
        (document("agent", &WRITER.replace("title: Writer", "colour: red")), "colour"),
        (document("agent", &WRITER.replace("acme.writer", "ref.editing")), "duplicate-agent-id"),
        (document("agent", &WRITER.replace("agentSemver: 1.0.0\n", "")), "spec.agentSemver is missing"),
        ([document("agent", WRITER), document("agent", &champion)].concat(), "champion-only-by-promotion"),
        ([document("agent", WRITER), document("agent", WRITER)].concat(), "stands in"),
        (document("agent", WRITER).replace("reason:", "tenant: default\nreason:"), "spec.tenantScope"),
        (document("rollout", ROLLOUT), "acme.writer"),
        (document("rollout", &ROLLOUT.replace("0.05", "0.6")), "0.6"),
        (document("rollout", &ROLLOUT.replace("canary\n", "dark\n")), "rollout-invalid"),
        (
            document("executor", "executorId: cal\naddress: http://127.0.0.1:1\ntoolIds: [rm.rf]"),
            "executor-tool-unknown",
        ),
        (document("executor", "executorId: cal\naddress: http://127.0.0.1:1\ntoolIds: []"), "executor-invalid"),
    ] {
        put(folder.path(), "bad.yaml", &bad);
        let said = apply(&server, &path, &["--yes"]);
        assert!(["apply-refused", "manifest-invalid"].contains(&said.code()), "{bad}\n{said:?}");
        assert!(said.err.contains(code), "{code}\n{said:?}");
    }
    assert_eq!(server.json("agents show acme.writer").code(), "no-such-agent");
}

#[test]
fn an_executor_is_registered_by_a_file_and_not_brought_back_once_it_is_retired() {
    let data = TempDir::new().unwrap();
    let config = file(&data, "box.toml", "[[exemptions]]\nhost = \"127.0.0.1\"\ncidr = \"127.0.0.1/32\"\n");
    let server = Server::over(data, &["--config", &config]);
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("cal.yaml");
    let address = executor(Recovery::AtMostOnce);
    let cal =
        document("executor", &format!("executorId: cal\naddress: http://{address}\ntoolIds: [themis.adjudicate]"));
    put(folder.path(), "cal.yaml", &cal);
    assert_eq!(titles(&apply(&server, &path, &["--dry-run"])), ["executor cal"]);
    assert_eq!(server.json("executors list --all").json()["executors"], json!([]));
    assert_eq!(titles(&apply(&server, &path, &["--yes"])), ["executor cal"]);
    assert_eq!(titles(&apply(&server, &path, &["--yes"])), [""; 0]);
    put(folder.path(), "exported.yaml", &run(&mut server.command("export")).out);
    assert_eq!(titles(&apply(&server, &folder.path().join("exported.yaml"), &["--yes"])), [""; 0]);
    put(folder.path(), "cal.yaml", &cal.replace("themis.adjudicate", "notify.send"));
    assert!(apply(&server, &path, &["--yes"]).err.contains("executor-exists"));
    put(folder.path(), "cal.yaml", &cal.replace("executorId: cal", "executorId: other"));
    assert!(apply(&server, &path, &["--yes"]).err.contains("tool-bound-twice"));
    put(folder.path(), "cal.yaml", &cal);
    assert_eq!(server.json("executors retire cal --reason old").exit, 0);
    assert_eq!(titles(&apply(&server, &path, &["--yes"])), [""; 0]);
    assert_eq!(server.json("executors list").json()["executors"], json!([]));
}
