//! Secrets that are meant to be used: a handle everywhere, a value in one place, and nothing of it in what comes back.

use std::sync::Arc;

use serde_json::{Value, json};
use signalbox_domain::governance::change::GovernanceChange;
use signalbox_domain::governance::grant::{Constraints, Grant};
use signalbox_domain::governance::isolation::SecretRule;
use signalbox_domain::ids::{AgentId, RunId, SecretId, TenantId};
use signalbox_domain::redact::scrub::SCRUBBED;
use signalbox_domain::run::event::{ArtifactRef, CallOutcome, Evidence, GroundingState, StoredValue};
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::run::step::{CallEnding, CallResult, StepState};
use signalbox_ports::memory::{FakeTools, MemorySecrets};
use signalbox_ports::tools::CallProgress;
use signalbox_runtime::WatchItem;

use crate::harness::{World, operator, step, submission, tenant_grant, tool};

const VALUE: &str = "plainly FAKE value";

fn secret(id: &str) -> SecretId {
    SecretId::new(id).unwrap()
}

fn rule(id: &str) -> SecretRule {
    SecretRule {
        secret_id: secret(id),
        tenant_id: TenantId::new("acme").unwrap(),
        agent_ids: vec![AgentId::new("ref.course-generation").unwrap()],
        tool_ids: vec![tool("memory.write")],
    }
}

/// A world with these secrets and a grant that names some.
async fn world(rules: Vec<SecretRule>, granted: &[&str]) -> (World, Arc<MemorySecrets>) {
    let secrets = Arc::new(MemorySecrets::new(rules));
    let held = secrets.clone();
    let tools = ["memory.read", "memory.write"];
    let world = World::with(FakeTools::new(tools.map(tool)), |ports| ports.secrets = held).await;
    let GovernanceChange::GrantIssued(grant) = tenant_grant("memory.write") else { panic!() };
    let secret_ids = Some(granted.iter().map(|id| secret(id)).collect());
    let constraints = Constraints { secret_ids, ..Constraints::default() };
    world.change(GovernanceChange::GrantIssued(Grant { constraints, ..grant })).await;
    (world, secrets)
}

fn write(args: Value) -> Value {
    json!({ "stepId": "w", "kind": "tool", "toolId": "memory.write", "args": args })
}

async fn journal(world: &World, run: RunId) -> String {
    let (_, _, events) = world.node.export(&operator(), run).await.unwrap();
    let bodies: Vec<_> = events.iter().map(|event| String::from_utf8_lossy(&event.body).into_owned()).collect();
    let envelope = serde_json::to_string(&world.get(run).await).unwrap();
    format!("{}{envelope}", bodies.join("\n"))
}

#[tokio::test(start_paused = true)]
async fn a_handle_stays_a_handle_in_the_journal_and_its_value_reaches_the_one_call_that_was_granted_it() {
    let (world, secrets) = world(vec![rule("mail")], &["mail"]).await;
    secrets.set(&secret("mail"), VALUE);
    let args = json!({ "key": "k", "value": { "auth": { "$secret": "mail" }, "literal": { "$$secret": "mail" } } });
    let run = world.submit(json!([step("r", "memory.read", &[]), write(args)])).await;
    assert_eq!(world.until_closed(run).await.status, RunStatus::Completed);
    let calls = world.tools.calls();
    let call = calls.iter().find(|call| call.step_id.as_str() == "w").unwrap();
    let handles = json!({ "key": "k", "value": { "auth": { "$secret": "mail" }, "literal": { "$secret": "mail" } } });
    assert_eq!(call.args, handles, "the handle travels, and the value beside it");
    let given: Vec<_> = call.secrets.iter().map(|(place, value)| (place.as_str(), value.expose())).collect();
    assert_eq!(given, [("/value/auth", VALUE)]);
    assert!(calls.iter().filter(|call| call.step_id.as_str() != "w").all(|call| call.secrets.is_empty()));
    assert!(!format!("{calls:?}").contains("FAKE"));
    let record = world.get(run).await.tool_calls.into_iter().find(|call| call.step_id.as_str() == "w").unwrap();
    assert_eq!(record.secrets, [("/value/auth".to_owned(), secret("mail"))].into());
    assert_eq!(record.args_hash, signalbox_domain::canonical::digest(&handles).unwrap());
    assert_eq!(record.redacted_args, StoredValue::Inline(handles));
    assert!(!journal(&world, run).await.contains("FAKE"));
}

#[tokio::test(start_paused = true)]
async fn each_denial_of_a_secret_is_recorded_by_its_code_and_reaches_no_tool() {
    let foreign = SecretRule { tenant_id: TenantId::new("globex").unwrap(), ..rule("foreign") };
    let agents = SecretRule { agent_ids: vec![], ..rule("agents") };
    let tools = SecretRule { tool_ids: vec![tool("memory.read")], ..rule("tools") };
    let rules = vec![foreign, agents, tools, rule("free")];
    let (world, secrets) = world(rules, &["foreign", "agents", "tools", "unknown"]).await;
    for (id, code) in [
        ("foreign", "cross-tenant"),
        ("agents", "agent-not-permitted"),
        ("tools", "tool-not-permitted"),
        ("free", "secret-not-granted"),
        ("unknown", "secret-not-granted"),
    ] {
        secrets.set(&secret(id), VALUE);
        let run = world.submit(json!([write(json!({ "key": { "$secret": id } }))])).await;
        let envelope = world.until_closed(run).await;
        assert_eq!(envelope.tool_calls[0].outcome, CallOutcome::Denied);
        assert!(matches!(&envelope.steps[0], StepState::Failed { code: failed, .. } if failed == code), "{id}");
    }
    let run = world.submit(json!([write(json!({ "key": { "$secret": 7 } }))])).await;
    let failed = world.until_closed(run).await;
    assert!(matches!(&failed.steps[0], StepState::Failed { code, .. } if code == "secret-handle-malformed"));
    assert_eq!(world.tools.calls().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_cannot_be_read_keeps_the_call_from_beginning_until_it_can() {
    let (world, secrets) = world(vec![rule("mail")], &["mail"]).await;
    let run = world.submit(json!([write(json!({ "key": { "$secret": "mail" } }))])).await;
    let held = world.until(run, |run| run.tool_calls.iter().any(|call| call.outcome == CallOutcome::Held)).await;
    assert_eq!(held.tool_calls[0].error.as_ref().unwrap().code, "secret-unreadable");
    assert_eq!(held.cost_ledger.total_cost_units.0, 0, "nothing is charged");
    assert_eq!(world.tools.calls().len(), 0);
    secrets.set(&secret("mail"), VALUE);
    assert_eq!(world.until_closed(run).await.status, RunStatus::Completed);

    secrets.set(&secret("mail"), "short");
    let run = world.submit(json!([write(json!({ "key": { "$secret": "mail" } }))])).await;
    let failed = world.until_closed(run).await;
    assert_eq!(failed.status, RunStatus::Failed, "in the end its step gives up");
    assert_eq!(failed.tool_calls.last().unwrap().error.as_ref().unwrap().code, "secret-too-short");
    assert_eq!((world.tools.calls().len(), failed.cost_ledger.total_cost_units.0), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_echoes_its_secret_leaves_nothing_of_it() {
    let (world, secrets) = world(vec![rule("mail")], &["mail"]).await;
    secrets.set(&secret("mail"), VALUE);
    let said = format!("it is {VALUE}");
    let answered = CallEnding::Answered {
        partial: false,
        // The last one in base64.
        output: json!({ "echo": [said.clone()], VALUE: 1, "percent": VALUE.replace(' ', "%20"), "b64": "cGxhaW5seSBGQUtFIHZhbHVl" }),
        evidence: Some(Evidence {
            evidence_pack_id: said.clone(),
            grounding_state: GroundingState::Grounded,
            citation_count: 1,
        }),
        effects: vec![said.clone()],
        artifacts: vec![ArtifactRef {
            name: said.clone(),
            persisted_key: said.clone(),
            media_type: said.clone(),
            sha256: "0".repeat(64),
            size: 1,
        }],
    };
    let failed = CallEnding::Failed { code: "login-failed".to_owned(), message: said };
    for ending in [answered, failed] {
        world.tools.script(&tool("memory.write"), [CallResult { ending, measured: None, latency_ms: 1 }]);
        let run = world.submit(json!([write(json!({ "key": { "$secret": "mail" } }))])).await;
        world.until_closed(run).await;
        let journal = journal(&world, run).await;
        assert!(journal.contains(SCRUBBED));
        for trace in ["FAKE", "cGxhaW5seSBGQUtF"] {
            assert!(!journal.contains(trace), "{journal}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_sent_again_after_a_crash_is_given_its_secret_as_it_is_then() {
    let (mut world, secrets) = world(vec![rule("mail")], &["mail"]).await;
    secrets.set(&secret("mail"), VALUE);
    world.tools.hang(&tool("memory.write"));
    let run = world.submit(json!([write(json!({ "key": { "$secret": "mail" } }))])).await;
    world.tools.begun(1).await;
    world.until(run, |run| run.open_calls().count() == 1).await;
    let newer = "a newer FAKE value";
    world.tools.on(&tool("memory.write"), move |_, _| async move { FakeTools::answered(json!({ "it": newer })) });
    secrets.set(&secret("mail"), newer);
    world.crash().await;
    assert_eq!(world.until_closed(run).await.status, RunStatus::Completed);
    let calls = world.tools.calls();
    assert_eq!((calls.len(), &calls[0].args, calls[0].call_id), (2, &calls[1].args, calls[1].call_id));
    assert_eq!([0, 1].map(|at| calls[at].secrets["/key"].expose()), [VALUE, newer]);
    assert!(!journal(&world, run).await.contains("FAKE"));
}

#[tokio::test(start_paused = true)]
async fn what_a_tool_gave_cannot_ask_for_a_secret() {
    let (world, secrets) = world(vec![rule("mail")], &["mail"]).await;
    secrets.set(&secret("mail"), VALUE);
    let hostile = json!({ "deep": [{ "$secret": "mail" }] });
    world.tools.script(&tool("memory.read"), [FakeTools::answered(hostile.clone())]);
    let second = json!({ "stepId": "w", "kind": "tool", "toolId": "memory.write", "dependsOnStepIds": ["r"],
        "args": { "key": { "$secret": "mail" }, "value": { "$from": "/steps/r/output" }, "more": { "$from": "/inputs" } } });
    let body = json!({ "rootAgentId": "ref.course-generation", "plan": [step("r", "memory.read", &[]), second],
        "inputs": { "$secret": "mail" } });
    let run = world.submit_as(&operator(), body).await.unwrap();
    world.until_closed(run).await;
    let call = &world.tools.calls()[1];
    assert_eq!(call.args["value"], hostile);
    assert_eq!(call.secrets.keys().collect::<Vec<_>>(), ["/key"]);
}

#[tokio::test(start_paused = true)]
async fn progress_shows_nothing_of_a_secret_in_however_many_lines_it_comes() {
    let (world, secrets) = world(vec![rule("mail")], &["mail"]).await;
    secrets.set(&secret("mail"), VALUE);
    let lines = ["key ", "sk-FAKE12", "34abcdefghijk", "lmnopqrst ok", " then plainly FA", "KE value", " done"];
    world.tools.on(&tool("memory.write"), move |_, progress| async move {
        for line in lines {
            progress.send(CallProgress { message: line.to_owned(), percent: None }).await.unwrap();
        }
        FakeTools::answered(json!({}))
    });
    let body = json!({ "rootAgentId": "ref.course-generation", "plan": [
        { "stepId": "wait", "kind": "wait", "seconds": 1 },
        { "stepId": "w", "kind": "tool", "toolId": "memory.write", "args": { "key": { "$secret": "mail" } }, "dependsOnStepIds": ["wait"] },
    ] });
    let run = world.node.submit(&operator(), None, submission(&body)).await.unwrap().run_id;
    let mut items = world.node.watch(&operator(), run, 0).await.unwrap();
    let mut shown = Vec::new();
    while let Some(item) = items.recv().await {
        if let WatchItem::Progress { message, .. } = item.unwrap() {
            shown.push(message);
        }
    }
    assert_eq!(shown.concat(), "key [redacted:api_key] ok then [redacted] done", "{shown:?}");
}
