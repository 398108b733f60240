//! Agents and executors, as an operator manages them while a node runs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use serde_json::{Value, json};
use signalbox_domain::catalog::{self, Recovery};
use signalbox_tools::tool::{Answer, Descriptor, Measured, ProgressSink, Tool, ToolCall, ToolOutcome};
use signalbox_tools::{ToolServer, serve};
use tempfile::TempDir;

use crate::harness::{Said, Server, put, run};

pub(crate) const WRITER: &str = r#"
agentId: acme.writer
agentSemver: 1.0.0
title: Writer
family: editing
lifecycle: champion
experimental: false
capabilities: [{capabilityId: shorten, semver: 1.0.0}]
dataScopes: [tenant.private]
toolGrants: [memory.read]
costClass: small
modelBinding:
  providerId: house
  modelId: large
  semver: 1.0.0
  defaultMaxTokens: 1000
  defaultTemperature: 0.25
  fallbackProviderId: house
  fallbackModelId: small
personaBinding: lilith.scribe
tonePolicyId: tone.default
groundingPolicyId: cite-where-available
auditPolicyId: audit.full
tenantScope: {tenantId: default}
visibility: [tenant, creator, customer]
disclosureRequirements: [ai-generated]
"#;

pub(crate) fn file(server_data: &TempDir, name: &str, text: &str) -> String {
    put(server_data.path(), name, text);
    server_data.path().join(name).to_str().unwrap().to_owned()
}

fn act(server: &Server, line: &str) -> Said {
    run(server.command(line).args(["--reason", "a test", "--output", "json"]))
}

fn until_closed(server: &Server, submitted: &Said) -> Value {
    let id = submitted.json()["runId"].as_str().unwrap().to_owned();
    let patience = Instant::now();
    loop {
        let shown = server.json(&format!("runs get {id}")).json();
        if shown["closed"] == true {
            return shown;
        }
        assert!(patience.elapsed() < Duration::from_secs(60), "{shown}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn calls(agent: &str, tool: &str) -> Value {
    let args = if tool == "memory.read" { json!({"key": "k"}) } else { json!({}) };
    json!({"rootAgentId": agent, "plan": [{"stepId": "a", "kind": "tool", "toolId": tool, "args": args}]})
}

#[test]
fn an_agent_that_is_registered_can_be_submitted_at_once_and_survives_a_restart() {
    let files = TempDir::new().unwrap();
    let server = Server::start();
    let writer = file(&files, "writer.yaml", WRITER);
    assert_eq!(server.submit(&calls("acme.writer", "memory.read"), "").code(), "unknown-agent");
    assert_eq!(act(&server, &format!("agents register {writer}")).json()["agent"]["agentId"], "acme.writer");
    let shown = until_closed(&server, &server.submit(&calls("acme.writer", "memory.read"), ""));
    assert_eq!(
        (shown["status"].as_str(), shown["envelope"]["rootAgentSemver"].as_str()),
        (Some("completed"), Some("1.0.0"))
    );
    assert_eq!(shown["envelope"]["agents"]["acme.writer"]["family"], "editing");
    let of_family = server.json("runs list --family editing").json();
    assert_eq!(of_family["runs"].as_array().unwrap().len(), 1, "the family's filter knows it: {of_family}");
    // Its family may use it, and it does not declare it.
    let refused = until_closed(&server, &server.submit(&calls("acme.writer", "sophia.fact_check"), ""));
    assert_eq!(refused["envelope"]["end"]["code"], "agent_tools_not_configured");
    // A switch may be armed on it, and it is listed.
    let armed = act(&server, "switches arm --scope agent --target acme.writer --id no-writer");
    assert_eq!(armed.exit, 0, "{armed:?}");
    let nobody = act(&server, "switches arm --scope agent --target acme.nobody --id no-one");
    assert_eq!(nobody.code(), "switch-target-unknown");

    let (exit, data) = server.end();
    assert_eq!(exit, 0);
    let server = Server::over(data, &[]);
    let listed = server.json("agents list --family editing").json();
    let ids: Vec<_> = listed["agents"].as_array().unwrap().iter().map(|agent| agent["agentId"].clone()).collect();
    assert_eq!(ids, ["acme.writer", "ref.editing"]);
    let acts = server.json("audit list").json();
    assert!(acts.to_string().contains("agent-registered"), "{acts}");
}

#[test]
fn a_configuration_file_may_name_agents_that_are_registered_later() {
    let files = TempDir::new().unwrap();
    let writer = file(&files, "writer.yaml", WRITER);
    let config = file(
        &files,
        "box.toml",
        "[[invocations]]\ntenantId = \"default\"\nagents = [{ agentId = \"acme.writer\", lifecycle = \"retired\" }]\n\
         [[secrets]]\nsecretId = \"mail\"\ntenantId = \"default\"\nagentIds = [\"acme.writer\"]\n\
         toolIds = [\"notify.send\"]\nfrom = { env = \"FAKE_MAIL\" }\n",
    );
    let server = Server::over(TempDir::new().unwrap(), &["--config", &config]);
    assert_eq!(act(&server, &format!("agents register {writer}")).exit, 0);
    let refused = server.submit(&calls("acme.writer", "memory.read"), "");
    assert!(refused.code() == "preflight-failed" && refused.err.contains("retired"), "{refused:?}");
}

#[test]
fn versions_are_published_moved_and_refused_by_their_codes() {
    let files = TempDir::new().unwrap();
    let server = Server::start();
    let writer = file(&files, "writer.yaml", WRITER);
    assert_eq!(act(&server, &format!("agents register {writer}")).exit, 0);
    assert_eq!(act(&server, &format!("agents register {writer}")).code(), "duplicate-agent-id");
    let bad =
        WRITER.replace("editing", "gardening").replace("tenant.private", "all").replace("acme.writer", "acme.bad");
    let bad = file(&files, "bad.yaml", &bad);
    let refused = act(&server, &format!("agents register {bad}"));
    assert_eq!((refused.exit, refused.code()), (1, "unknown-family"));
    assert!(refused.err.contains("/family") && refused.err.contains("/dataScopes/0 unknown-data-scope"), "{refused:?}");
    assert_eq!(server.json("agents show acme.bad").code(), "no-such-agent");

    let twice = file(&files, "twice.json", "{\"agentId\":\"a\",\"agentId\":\"b\"}");
    assert_eq!(act(&server, &format!("agents register {twice}")).code(), "json-duplicate-key");
    let twice = file(&files, "twice.yaml", "agentId: a\nagentId: b\n");
    assert_eq!(act(&server, &format!("agents register {twice}")).code(), "yaml-invalid");

    let next =
        WRITER.replace("agentSemver: 1.0.0", "agentSemver: 1.1.0").replace("lifecycle: champion", "lifecycle: draft");
    let next = file(&files, "next.yaml", &next);
    let stale = act(&server, &format!("agents publish {next} --expected-revision 99"));
    assert_eq!(stale.code(), "stale-revision");
    assert_eq!(act(&server, &format!("agents publish {next}")).json()["agent"]["agentSemver"], "1.1.0");
    assert_eq!(act(&server, &format!("agents publish {next}")).code(), "invalid-semver");
    assert_eq!(act(&server, "agents move acme.writer 1.1.0 --to champion").code(), "lifecycle-move-not-allowed");
    let mut named = calls("acme.writer", "memory.read");
    named["agentVersions"] = json!({"acme.writer": "1.1.0"});
    let refused = server.submit(&named, "");
    assert!(refused.code() == "preflight-failed" && refused.err.contains("draft"), "{refused:?}");
    assert_eq!(act(&server, "agents move acme.writer 1.1.0 --to rehearsal").json()["agent"]["experimental"], true);
    assert_eq!(server.submit(&named, "--mode rehearsal-dry-run").exit, 0);
    named["agentVersions"] = json!({"acme.writer": "7.0.0"});
    assert_eq!(server.submit(&named, "").code(), "unknown-agent-version");
    assert_eq!(act(&server, "agents move acme.writer 1.0.0 --to deprecated").exit, 0);
    assert_eq!(server.submit(&calls("acme.writer", "memory.read"), "").code(), "preflight-failed");
    let versions = server.json("agents show acme.writer").json();
    assert_eq!(versions["versions"].as_array().unwrap().len(), 2);
}

/// Answers everything alike.
struct Adjudicator {
    recovery: Recovery,
}

#[async_trait]
impl Tool for Adjudicator {
    fn descriptor(&self) -> Descriptor {
        let entry = catalog::entry(&"themis.adjudicate".parse().unwrap()).unwrap();
        Descriptor {
            tool_id: "themis.adjudicate".to_owned(),
            semver: "1.3.0".to_owned(),
            input_schema: entry.input_schema.clone(),
            output_schema: entry.output_schema.clone(),
            ceiling: entry.ceiling.clone(),
            has_side_effects: false,
            recovery: self.recovery,
        }
    }
    async fn run(&self, _: ToolCall, _: ProgressSink) -> ToolOutcome {
        ToolOutcome::Ok(Answer::new(json!({"upheld": true}), Measured::new()))
    }
}

/// An executor in this process. It lives as long as the test.
pub(crate) fn executor(recovery: Recovery) -> SocketAddr {
    let (told, address) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            told.send(listener.local_addr().unwrap()).unwrap();
            let tool: Arc<dyn Tool> = Arc::new(Adjudicator { recovery });
            serve(listener, None, ToolServer::new([tool]), std::future::pending()).await.unwrap();
        });
    });
    address.recv().unwrap()
}

#[test]
fn an_executor_is_used_without_a_restart_and_after_one_and_not_once_it_is_retired() {
    let data = TempDir::new().unwrap();
    let config = file(&data, "box.toml", "[[exemptions]]\nhost = \"127.0.0.1\"\ncidr = \"127.0.0.1/32\"\n");
    let server = Server::over(data, &["--config", &config]);
    let plan = calls("ref.moderation-triage", "themis.adjudicate");
    assert_eq!(server.submit(&plan, "").code(), "agent_tools_not_configured");
    let at = |address: SocketAddr, more: &str| format!("executors register judge --address http://{address} {more}");

    let careless = executor(Recovery::Idempotent);
    assert_eq!(act(&server, &at(careless, "--tool themis.adjudicate")).code(), "executor-recovery-differs");
    let good = executor(Recovery::AtMostOnce);
    assert_eq!(act(&server, &at(good, "--tool notify.send")).code(), "executor-tool-not-registered");
    assert_eq!(act(&server, &at(good, "--tool memory.read")).code(), "tool-bound-twice");
    assert_eq!(act(&server, &at(good, "--tool rm.rf")).code(), "executor-tool-unknown");
    let pinned = format!("--tool themis.adjudicate --schemas-digest {}", "0".repeat(64));
    assert_eq!(act(&server, &at(good, &pinned)).code(), "executor-schemas-digest-differs");
    let inside = "executors register judge --address http://10.0.0.1:1 --tool themis.adjudicate";
    assert_eq!(act(&server, inside).code(), "executor-address-refused");
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert_eq!(act(&server, &at(nobody, "--tool themis.adjudicate")).code(), "executor-not-described");

    let registered = act(&server, &at(good, "--tool themis.adjudicate"));
    assert_eq!(registered.json()["executor"]["tools"][0]["semver"], "1.3.0", "{registered:?}");
    let shown = until_closed(&server, &server.submit(&plan, ""));
    assert_eq!(shown["status"], "completed", "{shown}");
    assert_eq!(shown["envelope"]["toolCalls"][0]["toolSemver"], "1.3.0", "{shown}");

    let (_, data) = server.end();
    let server = Server::over(data, &["--config", &config]);
    assert_eq!(until_closed(&server, &server.submit(&plan, ""))["status"], "completed");
    assert_eq!(act(&server, "executors retire judge").exit, 0);
    assert_eq!(server.submit(&plan, "").code(), "agent_tools_not_configured");
    assert_eq!(act(&server, "executors retire judge").code(), "executor-already-retired");
    assert_eq!(server.json("executors list").json()["executors"], json!([]));
    assert_eq!(server.json("executors list --all").json()["executors"][0]["executorId"], "judge");
}

#[test]
fn the_catalog_is_shown_with_what_is_served_and_what_a_tool_needs() {
    let server = Server::start();
    let listed = server.json("tools list").json();
    assert_eq!(listed["tools"].as_array().unwrap().len(), 21);
    assert_eq!(listed["publishedAt"], "2026-05-11T00:00:00Z");
    let deps = server.json("tools deps themis.adjudicate").json();
    assert_eq!(deps["order"], json!(["sophia.ground", "sophia.fact_check", "themis.adjudicate"]));
    assert_eq!(server.json("tools show rm.rf").code(), "unknown-tool");
    assert_eq!(server.json("tools deprecations").json()["tools"], json!([]));
    assert_eq!(server.json("tools deprecations --from someday").code(), "instant-invalid");
}
