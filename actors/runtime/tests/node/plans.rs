use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::json;
use signalbox_domain::run::event::{ApprovalDecision, DecisionLabel, OutputKind, PauseCause};
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::run::step::CallEnding;
use signalbox_domain::time::UnixMs;
use signalbox_ports::clock::{BootInstant, Clock};
use signalbox_ports::memory::FakeTools;
use signalbox_runtime::WatchItem;

use crate::harness::{World, chain, operator, step, tool};

#[tokio::test(start_paused = true)]
async fn a_plan_of_ten_calls_runs_in_order_with_two_more_appends_than_calls() {
    let world = World::new().await;
    let run = world.submit(chain("memory.read", 10)).await;
    let envelope = world.until_closed(run).await;
    assert_eq!(envelope.status, RunStatus::Completed);
    let order: Vec<String> = world.tools.calls().iter().map(|call| call.step_id.to_string()).collect();
    assert_eq!(order, (0..10).map(|i| format!("s{i}")).collect::<Vec<_>>());
    // Each settlement and the next admission share one append; whole batches are counted by the store.
    assert_eq!(world.kinds(run).await.len(), 1 + 1 + 20 + 2);
}

#[tokio::test(start_paused = true)]
async fn steps_without_an_edge_run_side_by_side_up_to_the_fan_out() {
    let world = World::new().await;
    world.tools.hang(&tool("memory.read"));
    let steps: Vec<_> = (0..6).map(|i| step(&format!("s{i}"), "memory.read", &[])).collect();
    let run = world.submit(json!({ "steps": steps, "maxParallel": 4 })).await;
    world.tools.begun(4).await;
    let envelope = world.until(run, |run| run.open_calls().count() == 4).await;
    assert_eq!(envelope.status, RunStatus::Running);
    assert_eq!(world.tools.count(&tool("memory.read")), 4);
    // Five seconds later nobody calls that running any more.
    let later = world.until_status(run, RunStatus::AwaitingTool).await;
    assert_eq!(later.open_calls().count(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_binding_reads_the_stored_redacted_output_of_an_earlier_step() {
    let world = World::new().await;
    let secret = "Authorization: Bearer FAKE-not-a-real-token-0123456789abcdef";
    world.tools.script(&tool("memory.read"), [FakeTools::answered(json!({ "value": [1, { "note": secret }] }))]);
    let second = json!({ "stepId": "b", "kind": "tool", "toolId": "memory.write", "dependsOnStepIds": ["a"],
        "args": { "key": "k", "value": { "$from": "/steps/a/output/value/1" } } });
    let run = world.submit(json!([step("a", "memory.read", &[]), second])).await;
    world.until_closed(run).await;
    let bound = world.tools.calls()[1].args["value"]["note"].as_str().unwrap().to_owned();
    assert!(bound.contains("[redacted:"), "{bound}");
    let (_, _, events) = world.node.export(&operator(), run).await.unwrap();
    assert!(events.iter().all(|event| !String::from_utf8_lossy(&event.body).contains("FAKE-not-a-real")));
}

#[tokio::test(start_paused = true)]
async fn a_big_output_lies_in_the_object_store_and_binds_all_the_same() {
    let world = World::new().await;
    let big = "x".repeat(100_000);
    world.tools.script(&tool("memory.read"), [FakeTools::answered(json!({ "value": big }))]);
    let second = json!({ "stepId": "b", "kind": "tool", "toolId": "memory.write", "dependsOnStepIds": ["a"],
        "args": { "key": "k", "value": { "$from": "/steps/a/output/value" } } });
    let run = world.submit(json!([step("a", "memory.read", &[]), second])).await;
    world.until_closed(run).await;
    assert_eq!(world.tools.calls()[1].args["value"].as_str().unwrap().len(), 100_000);
    let (_, _, events) = world.node.export(&operator(), run).await.unwrap();
    assert!(events.iter().all(|event| event.body.len() < 10_000));
}

#[tokio::test(start_paused = true)]
async fn a_failing_step_fails_the_run_and_an_optional_one_is_skipped_with_its_label() {
    let world = World::new().await;
    let failed = || signalbox_domain::run::step::CallResult {
        ending: CallEnding::Failed { code: "tool-broken".to_owned(), message: "no".to_owned() },
        measured: None,
        latency_ms: 1,
    };
    world.tools.script(&tool("memory.read"), [failed(), failed()]);
    let run = world.submit(chain("memory.read", 2)).await;
    let envelope = world.until_closed(run).await;
    assert_eq!(envelope.status, RunStatus::Failed);
    assert_eq!(envelope.end.unwrap().code.as_deref(), Some("tool-broken"));
    let mut optional = step("a", "memory.read", &[]);
    optional["optional"] = json!(true);
    let run = world.submit(json!([optional, step("b", "memory.write", &["a"])])).await;
    let envelope = world.until_closed(run).await;
    assert_eq!(envelope.status, RunStatus::Completed);
    assert_eq!(envelope.decision_rationale[0].decision_label, DecisionLabel::ToolSkipped);
}

#[tokio::test(start_paused = true)]
async fn a_gate_waits_parks_and_goes_on_with_the_answer() {
    let mut world = World::new().await;
    let gate = json!({ "stepId": "gate", "kind": "approval", "prompt": "Send it?", "dependsOnStepIds": ["a"],
        "subject": { "what": { "$from": "/steps/a/output" } } });
    let plan = json!([step("a", "memory.read", &[]), gate, step("b", "memory.write", &["gate"])]);
    let run = world.submit(plan.clone()).await;
    let envelope = world.until_status(run, RunStatus::AwaitingApproval).await;
    let approval = envelope.approvals[0].approval_id;
    assert_eq!(world.node.approvals(&operator()).await.unwrap().len(), 1);
    // After five seconds its actor is gone, and after a crash the question is still there.
    tokio::time::sleep(std::time::Duration::from_secs(10)).await;
    let head = signalbox_ports::journal::Journal::find(world.store.as_ref(), &operator().tenant_id, run).await.unwrap();
    assert_eq!(head.unwrap().owner, None, "parked");
    world.crash().await;
    assert_eq!(world.decide(approval, ApprovalDecision::Approve).await.unwrap(), run);
    let envelope = world.until_closed(run).await;
    assert_eq!(envelope.status, RunStatus::Completed);
    assert_eq!(world.tools.count(&tool("memory.read")), 1);
    assert_eq!(world.decide(approval, ApprovalDecision::Approve).await.unwrap_err().code(), "approval-closed");

    let run = world.submit(plan).await;
    let envelope = world.until_status(run, RunStatus::AwaitingApproval).await;
    world.decide(envelope.approvals[0].approval_id, ApprovalDecision::Reject).await.unwrap();
    let envelope = world.until_closed(run).await;
    assert_eq!(envelope.status, RunStatus::Failed);
    assert!(envelope.decision_rationale.iter().any(|d| d.decision_label == DecisionLabel::GateFailed));
}

#[tokio::test(start_paused = true)]
async fn silence_becomes_a_no_after_a_reminder_even_while_the_run_is_parked() {
    let world = World::new().await;
    let gate = json!({ "stepId": "gate", "kind": "approval", "prompt": "?", "approvalTtlSeconds": 60 });
    let run = world.submit(json!([gate])).await;
    let envelope = world.until_closed(run).await;
    assert_eq!(envelope.status, RunStatus::Failed);
    assert_eq!(envelope.end.unwrap().code.as_deref(), Some("approval-expired"));
    let kinds = world.kinds(run).await;
    assert!(kinds.contains(&"approval-reminded".to_owned()), "{kinds:?}");
}

#[tokio::test(start_paused = true)]
async fn branches_are_chosen_and_timers_run_down_without_a_worker() {
    let world = World::new().await;
    let plan = json!([
        { "stepId": "pick", "kind": "branch", "branches": [{ "branchId": "left" }, { "branchId": "right" }] },
        { "stepId": "l", "kind": "tool", "toolId": "memory.read", "args": { "key": "l" },
          "when": { "stepId": "pick", "branchId": "left" } },
        { "stepId": "r", "kind": "tool", "toolId": "memory.write", "args": { "key": "r" },
          "when": { "stepId": "pick", "branchId": "right" } },
        { "stepId": "pause", "kind": "wait", "seconds": 3600, "dependsOnStepIds": ["l", "r"] },
        step("end", "memory.read", &["pause"]),
    ]);
    let run = world.submit(plan).await;
    world.until_status(run, RunStatus::AwaitingBranchSelection).await;
    let choose = |branch: &str| signalbox_domain::run::decide::RunCommand::ChooseBranch {
        step_id: None,
        branch_id: signalbox_domain::ids::BranchId::new(branch).unwrap(),
        reason: "because".to_owned(),
    };
    assert_eq!(world.command(run, choose("up")).await.unwrap_err().code(), "no-such-branch");
    world.command(run, choose("right")).await.unwrap();
    // An hour passes before the tests' own patience does: the run is parked and woken by its timer.
    tokio::time::sleep(std::time::Duration::from_secs(3590)).await;
    assert_eq!(world.get(run).await.status, RunStatus::Running);
    let envelope = world.until_closed(run).await;
    assert_eq!(envelope.status, RunStatus::Completed);
    let tools: Vec<String> = world.tools.calls().iter().map(|call| call.step_id.to_string()).collect();
    assert_eq!(tools, ["r", "end"]);
}

#[tokio::test(start_paused = true)]
async fn a_watcher_sees_every_event_once_from_any_cursor_and_the_stream_ends() {
    let world = World::new().await;
    let run = world.submit(chain("memory.read", 5)).await;
    let live = world.node.watch(&operator(), run, 0).await.unwrap();
    let seen = drain(live).await;
    let all = world.kinds(run).await.len() as u64;
    assert_eq!(seen, (1..=all).collect::<Vec<_>>());
    for cursor in 0..all {
        let rest = drain(world.node.watch(&operator(), run, cursor).await.unwrap()).await;
        assert_eq!(rest, (cursor + 1..=all).collect::<Vec<_>>());
    }
}

async fn drain(mut items: tokio::sync::mpsc::Receiver<Result<WatchItem, signalbox_runtime::ApiError>>) -> Vec<u64> {
    let mut seen = Vec::new();
    while let Some(item) = items.recv().await {
        if let WatchItem::Event(event) = item.unwrap() {
            seen.push(event.seq);
        }
    }
    seen
}

#[tokio::test(start_paused = true)]
async fn a_full_executor_holds_calls_without_a_word_in_the_journal() {
    let world = World::new().await;
    world.tools.set_permits(&tool("memory.read"), 0);
    let run = world.submit(chain("memory.read", 1)).await;
    tokio::time::sleep(std::time::Duration::from_secs(30)).await;
    assert_eq!(world.kinds(run).await, ["run-submitted", "run-started"]);
    world.tools.set_permits(&tool("memory.read"), 1);
    assert_eq!(world.until_closed(run).await.status, RunStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_failed_run_keeps_what_it_had_as_a_partial_bundle() {
    let world = World::new().await;
    let artifact = signalbox_domain::run::event::ArtifactRef {
        name: "a.md".to_owned(),
        persisted_key: "packs/a.md".to_owned(),
        media_type: "text/markdown".to_owned(),
        sha256: "0".repeat(64),
        size: 3,
    };
    let answered = signalbox_domain::run::step::CallResult {
        ending: CallEnding::Answered {
            partial: false,
            output: json!({}),
            evidence: None,
            effects: vec![],
            artifacts: vec![artifact.clone()],
        },
        measured: None,
        latency_ms: 1,
    };
    world.tools.script(&tool("memory.write"), [answered]);
    let broken = json!({ "stepId": "b", "kind": "tool", "toolId": "memory.read", "dependsOnStepIds": ["a"],
        "args": { "$from": "/steps/a/output/nothing/here" } });
    let run = world.submit(json!([step("a", "memory.write", &[]), broken])).await;
    let envelope = world.until_closed(run).await;
    assert_eq!(envelope.end.as_ref().unwrap().code.as_deref(), Some("binding-not-found"));
    assert_eq!(envelope.outputs[0].kind, OutputKind::PartialOnFailure);
    assert_eq!(envelope.outputs[0].artifacts, [artifact]);
    assert_eq!(envelope.pause_cause(), None::<PauseCause>);
}

/// A clock on a machine so busy that time passes between any two looks at it.
struct BusyClock {
    clock: Arc<dyn Clock>,
    looks: AtomicU64,
}

impl Clock for BusyClock {
    fn now(&self) -> UnixMs {
        self.clock.now()
    }
    fn boot(&self) -> BootInstant {
        let looks = self.looks.fetch_add(1, Ordering::SeqCst);
        BootInstant(self.clock.boot().0 + looks * 200_000_000)
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_is_over_before_the_pass_that_made_it_is_woken_from_all_the_same() {
    let tools = FakeTools::new([tool("memory.read")]);
    let world = World::with(tools, |ports| {
        ports.clock = Arc::new(BusyClock { clock: ports.clock.clone(), looks: AtomicU64::new(0) });
    })
    .await;
    world.tools.set_permits(&tool("memory.read"), 0);
    let run = world.submit(chain("memory.read", 1)).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    world.tools.set_permits(&tool("memory.read"), 1);
    assert_eq!(world.until_closed(run).await.status, RunStatus::Completed);
}
