//! Secrets that were never meant to be said: kept redacted, called with what was said, before a crash and after it.

use std::sync::Arc;

use serde_json::{Value, json};
use signalbox_domain::ids::{RunId, TenantId};
use signalbox_domain::run::decide::RunCommand;
use signalbox_domain::run::event::{ApprovalDecision, Overrides};
use signalbox_domain::run::status::RunStatus;
use signalbox_ports::blobs::Blobs as _;
use signalbox_ports::memory::{FakeSeal, FakeTools, MemoryBlobs};
use signalbox_ports::tools::CallOrder;
use signalbox_runtime::Whose;

use crate::harness::{World, fresh_command, operator, submission, tool};

const KEY: &str = "ghp_FAKE00000000000000000000000000000000";

/// Secrets in arguments, inputs, a prompt and a subject; and an output bound under a name that makes it one.
fn body() -> Value {
    json!({ "rootAgentId": "ref.course-generation", "inputs": { "note": KEY, "plain": "x" }, "plan": [
        { "stepId": "r", "kind": "tool", "toolId": "memory.read", "args": { "key": "k", "auth": KEY } },
        { "stepId": "w", "kind": "tool", "toolId": "memory.write", "dependsOnStepIds": ["r"],
          "args": { "key": { "$from": "/inputs/note" }, "password": { "$from": "/steps/r/output/word" } } },
        { "stepId": "gate", "kind": "approval", "prompt": format!("Send {KEY}?"), "subject": { "key": KEY }, "dependsOnStepIds": ["w"] },
    ] })
}

async fn submitted(world: &World) -> RunId {
    world.tools.on(&tool("memory.read"), |_, _| async { FakeTools::answered(json!({ "word": "open says me" })) });
    world.submit_as(&operator(), body()).await.unwrap()
}

async fn nothing_is_kept_of_it(world: &World, run: RunId) {
    let (_, _, events) = world.node.export(&operator(), run).await.unwrap();
    for event in events {
        assert!(!String::from_utf8_lossy(&event.body).contains("FAKE"), "event {} `{}`", event.seq, event.kind);
    }
    let envelope = serde_json::to_string(&world.get(run).await).unwrap();
    assert!(!envelope.contains("FAKE") && envelope.contains("[redacted:api_key]"), "{envelope}");
}

fn args(calls: &[CallOrder], step: &str) -> Vec<String> {
    calls.iter().filter(|call| call.step_id.as_str() == step).map(|call| call.args.to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_submission_that_holds_a_secret_is_kept_redacted_and_its_calls_are_made_with_what_it_said() {
    let world = World::new().await;
    let run = submitted(&world).await;
    let waiting = world.until_status(run, RunStatus::AwaitingApproval).await;
    let calls = world.tools.calls();
    assert_eq!(args(&calls, "r"), [json!({ "key": "k", "auth": KEY }).to_string()]);
    assert_eq!(args(&calls, "w"), [json!({ "key": KEY, "password": "open says me" }).to_string()]);
    assert_eq!(waiting.tool_calls[0].args_hash, signalbox_domain::canonical::digest(&calls[0].args).unwrap());
    nothing_is_kept_of_it(&world, run).await;
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_the_arguments_are_the_same_bytes_as_without_one() {
    let untroubled = World::new().await;
    let run = submitted(&untroubled).await;
    untroubled.until_status(run, RunStatus::AwaitingApproval).await;

    let mut world = World::new().await;
    world.tools.hang(&tool("memory.write"));
    let run = submitted(&world).await;
    world.tools.begun(2).await;
    world.until(run, |run| run.open_calls().count() == 1 && run.tool_calls.len() == 2).await;
    world.tools.on(&tool("memory.write"), |_, _| async { FakeTools::answered(json!({})) });
    world.crash().await;
    let waiting = world.until_status(run, RunStatus::AwaitingApproval).await;
    assert_eq!(waiting.tool_calls[1].attempt, 2, "sent again under its own id");
    let (calm, crashed) = (untroubled.tools.calls(), world.tools.calls());
    assert_eq!(args(&crashed, "r"), args(&calm, "r"));
    assert_eq!(args(&crashed, "w"), [args(&calm, "w"), args(&calm, "w")].concat());
    nothing_is_kept_of_it(&world, run).await;
}

#[tokio::test(start_paused = true)]
async fn saying_the_same_submission_again_seals_nothing_twice() {
    let world = World::new().await;
    let run = RunId::new(uuid::Uuid::from_u128(7));
    let first = world.node.submit(&operator(), Some(run), submission(&body())).await.unwrap();
    let again = world.node.submit(&operator(), Some(run), submission(&body())).await.unwrap();
    assert_eq!((first.replayed, again.replayed), (false, true));
}

#[tokio::test(start_paused = true)]
async fn without_a_key_a_submission_that_needs_one_is_refused_and_others_are_not() {
    let tools = FakeTools::new(["memory.read", "memory.write"].map(tool));
    let world = World::with(tools, |ports| ports.sealing = Arc::new(FakeSeal::default())).await;
    let refused = world.submit_as(&operator(), body()).await.unwrap_err();
    assert_eq!(refused.code(), "sealing-key-missing");
    let told = refused.to_string();
    assert!(told.contains("$secret") && told.contains("[[sealingKeys]]") && !told.contains("FAKE"), "{told}");
    assert!(
        world.node.list(&operator(), Whose::Own, Default::default()).await.unwrap().rows.is_empty(),
        "nothing was written"
    );
    let run = world.submit(json!([{ "stepId": "r", "kind": "tool", "toolId": "memory.read", "args": {} }])).await;
    assert_eq!(world.until_closed(run).await.status, RunStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_key_is_gone_waits_for_it_and_can_still_be_killed() {
    let mut world = World::new().await;
    world.tools.hang(&tool("memory.read"));
    let (waits, dies) = (submitted(&world).await, submitted(&world).await);
    world.tools.hang(&tool("memory.read"));
    world.crash_and_come_back_with(|ports| ports.sealing = Arc::new(FakeSeal::default())).await;
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    let kill = RunCommand::Kill { reason: "enough".to_owned(), blamed_id: None };
    world.command(dies, kill).await.unwrap();
    assert_eq!(world.until_closed(dies).await.status, RunStatus::Killed);
    assert!(world.get(waits).await.end.is_none());
    world.tools.on(&tool("memory.read"), |_, _| async { FakeTools::answered(json!({ "word": "open" })) });
    world.crash_and_come_back_with(|ports| ports.sealing = Arc::new(FakeSeal::new())).await;
    world.until_status(waits, RunStatus::AwaitingApproval).await;
}

#[tokio::test(start_paused = true)]
async fn a_sealed_document_opens_under_its_own_context_alone() {
    let blobs = Arc::new(MemoryBlobs::default());
    let held = blobs.clone();
    let mut world =
        World::with(FakeTools::new(["memory.read", "memory.write"].map(tool)), |ports| ports.blobs = held).await;
    world.tools.set_permits(&tool("memory.read"), 0);
    let run = submitted(&world).await;
    let sealed = world.get(run).await.sealed;
    let tenant = TenantId::new("acme").unwrap();
    // The document of one step in the place of another's: it opens under its own context alone.
    let other = blobs.get(&tenant, &sealed.steps[&"gate".parse().unwrap()].sha256).await.unwrap().unwrap();
    let context = signalbox_ports::sealing::SealContext {
        tenant_id: tenant,
        run_key: world.get(run).await.run_key,
        part: signalbox_domain::run::sealed::Part::Inputs,
    };
    assert_eq!(world.ports.sealing.open(&context, &other).unwrap_err().code(), "sealed-value-damaged");
    world.tools.set_permits(&tool("memory.read"), 8);
    world.crash().await;
    world.until_status(run, RunStatus::AwaitingApproval).await;
}

#[tokio::test(start_paused = true)]
async fn new_arguments_of_a_rewind_may_hold_no_secret() {
    let world = World::new().await;
    let run = submitted(&world).await;
    world.until_status(run, RunStatus::AwaitingApproval).await;
    let rewind = |args: Value| RunCommand::RetryWithChanges {
        step_id: "w".parse().unwrap(),
        overrides: Overrides { params: [("w".parse().unwrap(), args)].into(), ..Overrides::default() },
        reason: format!("use {KEY}"),
    };
    let refused = world.command(run, rewind(json!({ "key": KEY }))).await.unwrap_err();
    assert_eq!(refused.code(), "override-not-allowed");
    assert!(refused.to_string().contains("$secret") && !refused.to_string().contains("FAKE"));
    world.command(run, rewind(json!({ "key": "plain" }))).await.unwrap();
    let again = world.until(run, |run| run.tool_calls.len() == 3 && run.status == RunStatus::AwaitingApproval).await;
    assert!(again.sealed.steps.keys().all(|step| step.as_str() != "w"));
    assert_eq!(args(&world.tools.calls(), "w").last().unwrap(), &json!({ "key": "plain" }).to_string());
    nothing_is_kept_of_it(&world, run).await;
}

#[tokio::test(start_paused = true)]
async fn a_fork_makes_its_calls_with_what_its_source_was_told() {
    let world = World::new().await;
    let run = submitted(&world).await;
    world.until_status(run, RunStatus::AwaitingApproval).await;
    let fresh = RunId::new(uuid::Uuid::from_u128(9));
    world.command(run, RunCommand::Cancel { reason: "enough".to_owned() }).await.unwrap();
    world.node.fork(&operator(), run, fresh_command(), None, Some(fresh), &format!("with {KEY}")).await.unwrap();
    let forked = world.until_status(fresh, RunStatus::AwaitingApproval).await;
    assert_eq!(forked.sealed, world.get(run).await.sealed);
    assert!(forked.approvals[0].prompt.contains("[redacted:api_key]"));
    nothing_is_kept_of_it(&world, fresh).await;
}

#[tokio::test(start_paused = true)]
async fn an_id_that_looks_like_a_secret_is_refused_and_not_repeated() {
    let world = World::new().await;
    for change in [
        |body: &mut Value| body["plan"][0]["stepId"] = json!(KEY),
        |body: &mut Value| body["plan"][0]["stageId"] = json!(KEY),
        |body: &mut Value| body["pipelineId"] = json!(KEY),
        |body: &mut Value| body["pipelineSemver"] = json!(KEY),
    ] {
        let mut body = json!({ "rootAgentId": "ref.course-generation", "plan": [{ "stepId": "a", "kind": "wait", "seconds": 1 }] });
        change(&mut body);
        let refused = world.submit_as(&operator(), body).await.unwrap_err();
        assert_eq!(refused.code(), "secret-in-id");
        assert!(!refused.to_string().contains("FAKE"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_guarded_call_that_holds_a_secret_is_shown_without_it_and_made_with_it_also_after_a_crash() {
    let mut world = World::new().await;
    let plan = json!({ "rootAgentId": "ref.course-generation", "inputs": { "note": KEY }, "plan": [
        { "stepId": "gate", "kind": "approval", "requirement": "operator", "prompt": "Keep it?" },
        { "stepId": "keep", "kind": "tool", "toolId": "memory.write", "approvedBy": "gate",
          "args": { "key": { "$from": "/inputs/note" }, "auth": KEY } },
    ] });
    let run = world.submit_as(&operator(), plan).await.unwrap();
    let asked = world.until_status(run, RunStatus::AwaitingApproval).await.approvals.remove(0);
    world.crash().await;
    let question = world.node.approval(&operator(), asked.approval_id).await.unwrap();
    let shown = question.shown.to_string();
    assert!(shown.contains("[redacted:api_key]") && !shown.contains("FAKE"), "{shown}");
    world.decide(asked.approval_id, ApprovalDecision::Approve).await.unwrap();
    let ended = world.until_closed(run).await;
    assert_eq!(ended.status, RunStatus::Completed, "{:?}", ended.end);
    assert_eq!(args(&world.tools.calls(), "keep"), [json!({ "key": KEY, "auth": KEY }).to_string()]);
    nothing_is_kept_of_it(&world, run).await;
}
