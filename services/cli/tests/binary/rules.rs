//! Rules as files: `apply` and `export`, as they run in somebody's pipeline.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use crate::harness::{Said, Server, put, run};

const BUDGET: &str = "\
kind: budget
reason: the contract
spec:
  budgetId: daily
  scope: tenant
  scopeKey: default
  category: cost-units
  limit: 500.5
  calendar: {unit: day, timeZone: Europe/Berlin}
  onExceeded: pause
";

const SWITCH: &str = "\
kind: switch
reason: the proxy leaks
spec: {switchId: no-web, scope: tool, targetId: web.fetch}
";

const THROTTLE: &str = "\
kind: throttle
platformWide: true
reason: fair shares
spec: {bucketId: each-user, per: [user, tool], capacity: 20, refillPerSecond: 0.5}
";

const WEBHOOK: &str = "\
kind: webhook
spec:
  webhookId: pager
  url: https://hooks.example/pager
  eventTypes: [run.failed, dev.signalbox.switch.armed]
  secretIds: [pager-key]
";

fn apply(server: &Server, folder: &Path, more: &[&str]) -> Said {
    run(server.command("apply --output json -f").arg(folder).args(more))
}

fn changes(said: &Said) -> Vec<Value> {
    let first = said.out.lines().next().unwrap_or_else(|| panic!("{said:?}"));
    serde_json::from_str::<Value>(first).unwrap()["changes"].as_array().unwrap().clone()
}

fn done(said: &Said) -> usize {
    assert_eq!(said.exit, 0, "{said:?}");
    changes(said).len()
}

fn armed(server: &Server) -> Vec<String> {
    let list = server.json("switches list").json();
    list["switches"].as_array().unwrap().iter().map(|one| one["switchId"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn what_is_applied_is_in_force_and_applying_it_again_changes_nothing() {
    let server = Server::start();
    let folder = TempDir::new().unwrap();
    put(folder.path(), "rules.yaml", &format!("{BUDGET}---\n{SWITCH}"));
    let dry = apply(&server, folder.path(), &["--dry-run"]);
    assert_eq!(done(&dry), 2);
    assert!(armed(&server).is_empty(), "a dry run changes nothing");
    assert_eq!(done(&apply(&server, folder.path(), &["--yes"])), 2);
    assert_eq!(armed(&server), ["no-web"]);
    let budget = server.json("budgets get daily").json();
    assert_eq!(budget["budget"]["limit"].to_string(), "500.5", "{budget}");
    assert_eq!(done(&apply(&server, folder.path(), &["--yes"])), 0);

    put(folder.path(), "rules.yaml", &format!("{}---\n{SWITCH}", BUDGET.replace("500.5", "600")));
    let shown = run(server.command("apply --dry-run -f").arg(folder.path()));
    assert!(shown.out.contains("~ budget daily") && shown.out.contains("limit: 500.5 -> 600"), "{}", shown.out);
    assert_eq!(done(&apply(&server, folder.path(), &["--yes"])), 1);
    let acts = server.json("audit list --subject budget:daily").json();
    let last = acts["acts"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(last["reason"], "the contract", "{last}");
}

#[test]
fn a_file_that_names_a_switch_no_more_does_not_disarm_it_and_one_that_says_another_is_refused() {
    let server = Server::start();
    let folder = TempDir::new().unwrap();
    put(folder.path(), "a.yaml", SWITCH);
    assert_eq!(done(&apply(&server, folder.path(), &["--yes"])), 1);
    put(folder.path(), "a.yaml", BUDGET);
    assert_eq!(done(&apply(&server, folder.path(), &["--yes"])), 1);
    assert_eq!(armed(&server), ["no-web"]);
    put(folder.path(), "a.yaml", &SWITCH.replace("web.fetch", "file.write"));
    let said = apply(&server, folder.path(), &["--yes"]);
    assert_eq!((said.exit, said.code()), (1, "apply-refused"), "{said:?}");
    assert!(said.err.contains("switch-id-conflict"), "{said:?}");
    // A switch that has ended by itself is not armed again by the file that armed it.
    put(
        folder.path(),
        "a.yaml",
        &SWITCH.replace("no-web", "old").replace("web.fetch", "web.fetch, expiresAtUnixMs: 1000"),
    );
    assert_eq!(done(&apply(&server, folder.path(), &["--yes"])), 0);
}

#[test]
fn what_is_exported_is_applied_without_a_change_here_and_whole_elsewhere() {
    let server = Server::start();
    let folder = TempDir::new().unwrap();
    put(folder.path(), "rules.yaml", &format!("{BUDGET}---\n{SWITCH}"));
    assert_eq!(done(&apply(&server, folder.path(), &["--yes"])), 2);
    let out = folder.path().join("out");
    let said = run(server.command("export --to").arg(&out));
    assert_eq!(said.exit, 0, "{said:?}");
    assert_eq!(done(&apply(&server, &out, &["--yes"])), 0);
    let again = run(server.command("export --to").arg(&out));
    assert_eq!((again.exit, again.code()), (2, "file-unwritable"), "{again:?}");
    let other = Server::start();
    assert_eq!(done(&apply(&other, &out, &["--yes"])), 2);
    let exported = run(&mut server.command("export"));
    assert_eq!(exported.out, run(&mut other.command("export")).out, "{exported:?}");
    put(folder.path(), "again.yaml", &exported.out);
    assert_eq!(done(&apply(&other, &folder.path().join("again.yaml"), &["--yes"])), 0);
    assert_eq!(server.json("export").json().as_array().unwrap().len(), 2);
}

#[test]
fn a_grant_is_issued_by_a_file_and_neither_changed_nor_brought_back() {
    const GRANT: &str = "\
kind: grant
reason: the press desk
spec:
  grantId: press
  scope: per-tenant
  toolId: web.fetch
  constraints: {hosts: ['*.example.org'], maxCalls: 20}
  expiresAtUnixMs: EXPIRES
";
    let server = Server::start();
    let folder = TempDir::new().unwrap();
    let soon = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() + 3_600_000;
    let grant = GRANT.replace("EXPIRES", &soon.to_string());
    put(folder.path(), "grant.yaml", &grant);
    let file = folder.path().join("grant.yaml");
    assert_eq!(done(&apply(&server, &file, &["--dry-run"])), 1);
    assert_eq!(server.json("grants list").json()["grants"], serde_json::json!([]));
    assert_eq!(done(&apply(&server, &file, &["--yes"])), 1);
    assert_eq!(done(&apply(&server, &file, &["--yes"])), 0);
    assert_eq!(server.json("grants show press").json()["state"], "live");
    let exported = folder.path().join("exported.yaml");
    put(folder.path(), "exported.yaml", &run(&mut server.command("export")).out);
    assert_eq!(done(&apply(&server, &exported, &["--yes"])), 0);
    assert_eq!(done(&apply(&Server::start(), &exported, &["--yes"])), 1, "it can be issued elsewhere");
    put(folder.path(), "grant.yaml", &grant.replace("maxCalls: 20", "maxCalls: 30"));
    let changed = apply(&server, &file, &["--yes"]);
    assert!(changed.code() == "apply-refused" && changed.err.contains("grant-id-conflict"), "{changed:?}");
    put(folder.path(), "grant.yaml", &grant.replace("spec:", "platformWide: true\nspec:"));
    assert!(apply(&server, &file, &["--yes"]).err.contains("grant-invalid"));
    put(folder.path(), "grant.yaml", &grant);
    assert_eq!(server.json("grants revoke press --reason closed").exit, 0);
    assert_eq!(done(&apply(&server, &file, &["--yes"])), 0);
    assert_eq!(server.json("grants show press").json()["state"], "revoked");
    put(folder.path(), "grant.yaml", &grant.replace("press", "old").replace(&soon.to_string(), "1000"));
    assert_eq!(done(&apply(&server, &file, &["--yes"])), 0);
}

#[test]
fn throttles_and_webhooks_are_kept_as_files_too() {
    let folder = TempDir::new().unwrap();
    let (key, config) = (folder.path().join("key"), folder.path().join("signalbox.toml"));
    put(folder.path(), "key", &format!("whsec_{}", "RkFLRS1G".repeat(4)));
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let secret = format!(
        "[[webhookSecrets]]\nsecretId = \"pager-key\"\ntenantId = \"default\"\nfrom = {{ file = \"{}\" }}\n",
        key.display()
    );
    put(folder.path(), "signalbox.toml", &secret);
    let server = Server::over(TempDir::new().unwrap(), &["--config", config.to_str().unwrap()]);
    put(folder.path(), "rules.yaml", &format!("{THROTTLE}---\n{WEBHOOK}"));
    let file = folder.path().join("rules.yaml");
    assert_eq!(done(&apply(&server, &file, &["--yes"])), 2);
    assert_eq!(done(&apply(&server, &file, &["--yes"])), 0, "the long name of an event is its short one");
    let throttle = server.json("throttles show each-user").json();
    assert_eq!(throttle["throttle"]["refillPerSecond"].to_string(), "0.5", "{throttle}");
    put(folder.path(), "rules.yaml", &format!("{}---\n{WEBHOOK}  enabled: false\n", THROTTLE.replace("20", "30")));
    let dry = apply(&server, &file, &["--dry-run"]);
    assert_eq!(done(&dry), 2);
    assert_eq!(changes(&dry)[0]["before"]["capacity"], 20, "{dry:?}");
    assert_eq!(done(&apply(&server, &file, &["--yes"])), 2);
    let exported = folder.path().join("exported.yaml");
    put(folder.path(), "exported.yaml", &run(&mut server.command("export")).out);
    assert_eq!(done(&apply(&server, &exported, &["--yes"])), 0);
    for (bad, code) in [
        (THROTTLE.replace("capacity: 20", "capacity: 0.5"), "apply-refused"),
        (THROTTLE.replace("capacity: 20", "capacity: -1"), "apply-refused"),
        (THROTTLE.replace("[user, tool]", "[weather]"), "apply-refused"),
        (WEBHOOK.replace("url:", "uri:"), "apply-refused"),
    ] {
        put(folder.path(), "rules.yaml", &bad);
        assert_eq!(apply(&server, &file, &["--yes"]).code(), code, "{bad}");
    }
}

#[test]
fn one_document_that_makes_no_sense_and_nothing_is_done() {
    let server = Server::start();
    let folder = TempDir::new().unwrap();
    put(folder.path(), "good.yaml", SWITCH);
    for (bad, code) in [
        (BUDGET.replace("500.5", "-1"), "apply-refused"),
        (BUDGET.replace("onExceeded: pause", "onExceeded: shrug"), "apply-refused"),
        (BUDGET.replace("category: cost-units", "category: __proto__"), "apply-refused"),
        (BUDGET.replace("scope: tenant", "scope: galaxy"), "apply-refused"),
        (BUDGET.replace("limit: 500.5", "limit: 1\n  limit: 2"), "manifest-invalid"),
        (BUDGET.replace("kind: budget", "kind: weather"), "manifest-invalid"),
        (SWITCH.replace("no-web", "x").replace("tool,", "tool, colour: red,"), "apply-refused"),
        (SWITCH.replace("no-web", "x").replace("scope: tool", "scope: galaxy"), "apply-refused"),
        (SWITCH.replace("no-web", "x").replace("web.fetch", "no.such"), "apply-refused"),
        (SWITCH.to_owned(), "manifest-invalid"),
        ("kind: budget\ntenant: a\nplatformWide: true\nspec: {budgetId: b}\n".to_owned(), "manifest-invalid"),
    ] {
        put(folder.path(), "bad.yaml", &bad);
        let said = apply(&server, folder.path(), &["--yes"]);
        assert_eq!(said.code(), code, "{bad}\n{said:?}");
        assert!(said.err.contains("bad.yaml"), "{said:?}");
        assert!(armed(&server).is_empty(), "{bad}");
    }
    std::fs::remove_file(folder.path().join("bad.yaml")).unwrap();
    let unasked = apply(&server, folder.path(), &[]);
    assert_eq!((unasked.exit, unasked.code()), (2, "confirmation-required"), "{unasked:?}");
    assert!(armed(&server).is_empty());
    let unreachable =
        run(crate::harness::signalbox().args(["apply", "--addr", "http://127.0.0.1:1", "-f"]).arg(folder.path()));
    assert_eq!(unreachable.exit, 1, "{unreachable:?}");
    assert_ne!(unreachable.code(), "apply-refused");
}
