//! Isolation: secrets, files and hosts of a call against its grant (CAP-012, CAP-014).

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};
use signalbox_domain::governance::grant::Constraints;
use signalbox_domain::governance::isolation::{
    IsolationGround, SecretDenialReason, SecretRule, check_isolation, check_secret_access, touches,
};
use signalbox_domain::ids::{AgentId, SecretId};

use crate::common::{target, tenant, tool};

fn secret(id: &str) -> SecretId {
    SecretId::new(id).unwrap()
}

fn secret_rule() -> SecretRule {
    SecretRule {
        secret_id: secret("mail"),
        tenant_id: tenant("acme"),
        agent_ids: vec![AgentId::new("ref.research").unwrap()],
        tool_ids: vec![tool("memory.read")],
    }
}

fn paths(paths: &[&str]) -> Constraints {
    Constraints { paths: Some(paths.iter().map(|&path| path.to_owned()).collect()), ..Constraints::default() }
}

fn check(tool_id: &str, args: &Value, constraints: &Constraints) -> Result<(), &'static str> {
    check_with(tool_id, args, &BTreeMap::new(), constraints)
}

fn check_with(
    tool_id: &str,
    args: &Value,
    secrets: &BTreeMap<String, SecretId>,
    constraints: &Constraints,
) -> Result<(), &'static str> {
    let ground = IsolationGround { target: &target(), secrets: &[secret_rule()], exempt: &[] };
    check_isolation(&touches(&tool(tool_id), args, secrets), constraints, &ground).map_err(|denial| {
        assert!(!denial.to_string().is_empty());
        denial.code()
    })
}

#[test]
fn what_a_call_touches_is_read_off_its_arguments() {
    let args = json!({"uris": ["https://a.org/x", "http://b.org", "/data/a.md", "HTTPS://c.org"]});
    let (tool_id, none, mail) = (tool("source.fetch"), BTreeMap::new(), secret("mail"));
    let handles = BTreeMap::from([("/key/0".to_owned(), mail.clone())]);
    let touched = touches(&tool_id, &args, &handles);
    assert_eq!(touched.urls, ["https://a.org/x", "http://b.org"]);
    assert_eq!(touched.paths, ["/data/a.md", "HTTPS://c.org"]);
    assert_eq!((touched.methods, touched.secret_ids, touched.unreadable), (vec!["GET"], vec![&mail], None));
    let args = json!({"url": "https://a.org", "method": "HEAD"});
    assert_eq!(touches(&tool("web.fetch"), &args, &none).methods, ["HEAD"]);
    assert_eq!(touches(&tool("notify.send"), &json!({"url": "https://a.org"}), &none).methods, ["POST"]);
    assert_eq!(touches(&tool("file.write"), &json!({"path": "a.md"}), &none).run_files, ["a.md"]);
    assert_eq!(touches(&tool("calendar.read"), &json!({"uris": ["/data/week.ics"]}), &none).paths, ["/data/week.ics"]);
    assert_eq!(touches(&tool("calendar.read"), &json!({"mode": "sky"}), &none).paths, Vec::<&str>::new());
    assert_eq!(
        touches(&tool("memory.read"), &json!({"key": "url"}), &none),
        touches(&tool("memory.read"), &json!({}), &none)
    );
}

#[test]
fn arguments_that_cannot_be_read_are_refused() {
    for (tool_id, args) in [
        ("web.fetch", json!({})),
        ("web.fetch", json!({"url": 1})),
        ("web.fetch", json!({"url": "https://a.org", "method": 1})),
        ("source.fetch", json!({"uris": "https://a.org"})),
        ("source.fetch", json!({"uris": ["https://a.org", 1]})),
        ("calendar.read", json!({"uris": "/data/week.ics"})),
        ("calendar.read", json!({"uris": [7]})),
        ("file.read", json!(null)),
        ("notify.send", json!({"url": []})),
        ("web.fetch", json!({"url": {"$secret": "mail"}})),
    ] {
        assert_eq!(check(tool_id, &args, &paths(&["/"])), Err("args-unreadable"), "{tool_id} {args}");
    }
}

#[test]
fn each_reason_for_keeping_a_secret_has_its_code() {
    let rule = secret_rule();
    assert_eq!(check_secret_access(&rule, &target()), Ok(()));
    let foreign = SecretRule { tenant_id: tenant("umbrella"), agent_ids: vec![], tool_ids: vec![], ..rule.clone() };
    assert_eq!(check_secret_access(&foreign, &target()), Err(SecretDenialReason::CrossTenant));
    let agents = SecretRule { agent_ids: vec![], tool_ids: vec![], ..rule.clone() };
    assert_eq!(check_secret_access(&agents, &target()), Err(SecretDenialReason::AgentNotPermitted));
    let tools = SecretRule { tool_ids: vec![], ..rule };
    assert_eq!(check_secret_access(&tools, &target()), Err(SecretDenialReason::ToolNotPermitted));
    let codes = ["cross-tenant", "agent-not-permitted", "tool-not-permitted", "secret-not-granted"];
    use SecretDenialReason::{AgentNotPermitted, CrossTenant, SecretNotGranted, ToolNotPermitted};
    assert_eq!(
        [CrossTenant, AgentNotPermitted, ToolNotPermitted, SecretNotGranted].map(SecretDenialReason::code),
        codes
    );
}

#[test]
fn a_secret_needs_its_rule_and_a_grant_that_names_it() {
    let names = |ids: &[&str]| Constraints {
        secret_ids: Some(ids.iter().map(|id| secret(id)).collect()),
        ..Constraints::default()
    };
    let asks = |id: &str, constraints: &Constraints| {
        let handles = BTreeMap::from([("/auth".to_owned(), secret(id))]);
        check_with("memory.read", &json!({"auth": {"$secret": id}}), &handles, constraints)
    };
    assert_eq!(asks("mail", &names(&["mail"])), Ok(()));
    assert_eq!(asks("mail", &names(&["other"])), Err("secret-not-granted"));
    assert_eq!(asks("mail", &Constraints::default()), Err("secret-not-granted"), "silence is no permission");
    assert_eq!(asks("none", &names(&["none"])), Err("secret-not-granted"));
    let data = json!({"auth": {"$secret": "mail"}});
    assert_eq!(check("memory.read", &data, &names(&["mail"])), Ok(()), "data asks for nothing");
}

#[test]
fn a_file_of_the_run_stays_in_the_folder_of_the_run() {
    let free = Constraints::default();
    for path in ["briefing.md", "a/b/c.md", "./a.md", "..a/b..", "a/..."] {
        assert_eq!(check("file.write", &json!({"path": path}), &free), Ok(()), "{path}");
    }
    for path in ["", "/etc/passwd", "..", "../a", "a/../../b", "a\\..\\..\\b", "\\\\host\\a", "a\0b"] {
        assert_eq!(check("file.read", &json!({"path": path}), &free), Err("path-escapes-root"), "{path}");
        assert_eq!(check("file.read", &json!({"path": path}), &paths(&["/", "."])), Err("path-escapes-root"), "{path}");
    }
    assert_eq!(check("file.write", &json!({"path": "out/a.md"}), &paths(&["out"])), Ok(()));
    assert_eq!(check("file.write", &json!({"path": "output/a.md"}), &paths(&["out"])), Err("path-not-allowed"));
    assert_eq!(
        check("file.write", &json!({"path": "a.md"}), &paths(&[])),
        Err("path-not-allowed"),
        "empty allows nothing"
    );
}

#[test]
fn a_file_of_this_machine_needs_a_grant_that_names_it() {
    let read = |path: &str, constraints: &Constraints| check("source.fetch", &json!({"uris": [path]}), constraints);
    assert_eq!(read("/data/a.md", &Constraints::default()), Err("path-not-allowed"), "silence is no permission");
    let bound = paths(&["/data/news", "/data/one.md", "", "/x/../secret"]);
    for path in ["/data/news/a.md", "/data//news/./a.md", "/data/news", "/data/one.md"] {
        assert_eq!(read(path, &bound), Ok(()), "{path}");
    }
    for path in [
        "/data/newspaper",
        "/data/one.md.bak",
        "/data",
        "/data/news/../secret",
        "data/news/a.md",
        "/data/news/a\0.md",
        "",
        "/secret",
        "file:///data/news/a.md",
        "\\data\\news",
        "FTP://a.org",
    ] {
        assert_eq!(read(path, &bound), Err("path-not-allowed"), "{path}");
    }
}

#[test]
fn every_url_of_a_call_is_checked() {
    let hosts = Constraints { hosts: Some(vec!["*.example.com".to_owned()]), ..Constraints::default() };
    let fetch = |uris: &[&str]| check("source.fetch", &json!({"uris": uris}), &hosts);
    assert_eq!(fetch(&["https://a.example.com/", "https://b.example.com/"]), Ok(()));
    assert_eq!(fetch(&["https://a.example.com/", "https://b.example.org/"]), Err("host-not-in-allowlist"));
    assert_eq!(fetch(&["https://a.example.com/", "http://b.example.com/"]), Err("scheme-not-allowed"));
    assert_eq!(fetch(&["https://169.254.169.254/"]), Err("ssrf-link-local"));
    assert_eq!(
        check("web.fetch", &json!({"url": "https://a.example.com", "method": "POST"}), &hosts),
        Err("method-not-allowed")
    );
    assert_eq!(check("web.fetch", &json!({"url": "nowhere"}), &hosts), Err("invalid-url"));
    assert_eq!(check("notify.send", &json!({"to": "ops"}), &hosts), Ok(()), "a bound provider is no egress");
    assert_eq!(check("notify.send", &json!({"url": "https://a.example.com"}), &hosts), Err("method-not-allowed"));
}

proptest! {
    #[test]
    fn no_path_that_climbs_is_ever_allowed(head in "[a-z/.]{0,12}", tail in "[a-z/.]{0,12}") {
        let path = format!("{head}/../{tail}");
        let run_file = check("file.read", &json!({"path": path.clone()}), &paths(&["/", "."]));
        let source = check("source.fetch", &json!({"uris": [path]}), &paths(&["/", "."]));
        prop_assert!(run_file.is_err() && source.is_err());
    }
}
