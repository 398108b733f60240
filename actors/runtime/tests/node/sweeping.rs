//! An armed switch ends the runs it reaches, wherever they are (KIL-010).

use std::time::Duration;

use serde_json::json;
use signalbox_domain::governance::change::GovernanceChange;
use signalbox_domain::governance::kill_switch::SwitchScope;
use signalbox_domain::identity::Role;
use signalbox_domain::ids::{RunId, SwitchId};
use signalbox_domain::run::event::ApprovalDecision;
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::time::UnixMs;
use signalbox_ports::journal::Journal;
use signalbox_ports::leases::Leases;
use signalbox_ports::memory::FakeTools;
use signalbox_runtime::{Caller, Node, NodeConfig};

use crate::harness::{World, caller, operator, step, switch, tenant_grant, tool};

/// A plan that asks nobody and calls nothing for a day.
fn waiting() -> serde_json::Value {
    json!([{ "stepId": "w", "kind": "wait", "seconds": 86_400 }])
}

fn gated_call() -> serde_json::Value {
    json!([
        { "stepId": "gate", "kind": "approval", "prompt": "Go on?", "subject": {}, "approvalTtlSeconds": 604_800 },
        step("after", "memory.read", &["gate"]),
    ])
}

fn stranger() -> Caller {
    caller("other", "eve", Role::TenantOperator)
}

async fn owned(world: &World, of: &Caller, run: RunId) -> bool {
    Journal::find(world.store.as_ref(), &of.tenant_id, run).await.unwrap().unwrap().owner.is_some()
}

/// Runs that have been parked: no node holds them.
async fn parked(world: &World, of: &Caller, plan: serde_json::Value, count: usize) -> Vec<RunId> {
    let mut runs = Vec::new();
    for _ in 0..count {
        let body = json!({ "rootAgentId": "ref.course-generation", "plan": plan });
        runs.push(world.submit_as(of, body).await.unwrap());
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    for run in &runs {
        assert!(!owned(world, of, *run).await);
    }
    runs
}

async fn statuses(world: &World, of: &Caller, runs: &[RunId]) -> Vec<RunStatus> {
    let mut statuses = Vec::new();
    for run in runs {
        statuses.push(world.node.get(of, *run).await.unwrap().status);
    }
    statuses
}

#[tokio::test(start_paused = true)]
async fn a_run_that_calls_nothing_is_swept_and_the_broadest_switch_is_blamed() {
    let world = World::new().await;
    let run = world.submit(waiting()).await;
    let gated = world.submit(gated_call()).await;
    world.until_status(gated, RunStatus::AwaitingApproval).await;
    world.change(switch("agent", SwitchScope::Agent, Some("ref.course-generation"))).await;
    world.change(switch("all", SwitchScope::Global, None)).await;
    for run in [run, gated] {
        let swept = world.until_closed(run).await;
        assert_eq!((swept.status, swept.end.unwrap().blamed_id.as_deref()), (RunStatus::Killed, Some("all")));
    }
    assert!(world.node.approvals(&operator()).await.unwrap().is_empty(), "nobody is asked any more");
}

#[tokio::test(start_paused = true)]
async fn an_armed_switch_ends_the_parked_runs_it_reaches_within_five_seconds_and_no_others() {
    let world = World::new().await;
    let ours = parked(&world, &operator(), waiting(), 40).await;
    let theirs = parked(&world, &stranger(), waiting(), 3).await;
    world.change(switch("acme", SwitchScope::Tenant, Some("acme"))).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(statuses(&world, &operator(), &ours).await, [RunStatus::Killed; 40]);
    for run in ours {
        let swept = world.until_closed(run).await;
        assert_eq!(swept.end.unwrap().blamed_id.as_deref(), Some("acme"));
    }
    assert!(statuses(&world, &stranger(), &theirs).await.iter().all(|status| !status.is_terminal()));
    for run in theirs {
        assert!(!owned(&world, &stranger(), run).await, "runs of others are not even woken");
    }
}

#[tokio::test(start_paused = true)]
async fn a_switch_on_a_tool_leaves_a_parked_run_until_it_calls_that_tool() {
    let world = World::new().await;
    let run = parked(&world, &operator(), gated_call(), 1).await[0];
    world.change(switch("no-reads", SwitchScope::Tool, Some("memory.read"))).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.get(run).await.status, RunStatus::AwaitingApproval);
    let approval = world.node.approvals(&operator()).await.unwrap()[0].1.approval_id;
    world.decide(approval, ApprovalDecision::Approve).await.unwrap();
    let killed = world.until_closed(run).await;
    assert_eq!((killed.status, killed.end.unwrap().blamed_id.as_deref()), (RunStatus::Killed, Some("no-reads")));
    assert!(world.tools.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_sweep_is_finished_by_another_node_when_the_one_that_had_it_is_gone() {
    let mut world = World::new().await;
    let runs = parked(&world, &operator(), waiting(), 10).await;
    world.node.abandon().await;
    world.change(switch("all", SwitchScope::Global, None)).await;
    // The last thing the dead node did.
    assert_eq!(world.store.sweep(4).await.unwrap().unwrap().woken, 4);
    world.crash().await;
    for run in runs {
        assert_eq!(world.until_closed(run).await.status, RunStatus::Killed);
    }
}

#[tokio::test(start_paused = true)]
async fn two_nodes_share_a_sweep_and_end_each_run_once() {
    let world = World::new().await;
    let runs = parked(&world, &operator(), waiting(), 40).await;
    let (other, _) = Node::start(NodeConfig::default(), world.ports.clone()).await.unwrap();
    world.change(switch("all", SwitchScope::Global, None)).await;
    for run in runs {
        assert_eq!(world.until_closed(run).await.status, RunStatus::Killed);
        let ends = world.kinds(run).await.into_iter().filter(|kind| kind == "run-finished");
        assert_eq!(ends.count(), 1);
    }
    other.drain().await;
}

#[tokio::test(start_paused = true)]
async fn a_switch_that_was_disarmed_or_has_expired_ends_nothing() {
    let world = World::new().await;
    let runs = parked(&world, &operator(), waiting(), 3).await;
    let GovernanceChange::SwitchArmed(mut expired) = switch("expired", SwitchScope::Global, None) else {
        panic!("a switch is armed")
    };
    expired.expires_at_unix_ms = Some(world.ports.clock.now());
    world.change(GovernanceChange::SwitchArmed(expired)).await;
    world.change(switch("short", SwitchScope::Global, None)).await;
    let disarmed =
        GovernanceChange::SwitchDisarmed { switch_id: SwitchId::new("short").unwrap(), at_unix_ms: UnixMs(2) };
    world.change(disarmed).await;
    let live = world.submit(waiting()).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    for run in runs.into_iter().chain([live]) {
        assert!(!world.get(run).await.status.is_terminal());
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_result_of_a_swept_run_is_evidence_and_its_usage_is_settled() {
    let world = World::new().await;
    let (go, gone) = tokio::sync::watch::channel(false);
    world.tools.deafen(&tool("notify.send"));
    world.tools.on(&tool("notify.send"), move |_, _| {
        let mut gone = gone.clone();
        async move {
            let _ = gone.wait_for(|go| *go).await;
            let usage = vec![(signalbox_domain::quantity::BudgetCategory::CostUnits, 0.5)];
            signalbox_domain::run::step::CallResult { measured: Some(usage), ..FakeTools::answered(json!({})) }
        }
    });
    world.change(tenant_grant("notify.send")).await;
    let body = json!({ "rootAgentId": "ref.support-triage", "plan": [step("a", "notify.send", &[])] });
    let run = world.submit_as(&operator(), body).await.unwrap();
    world.tools.begun(1).await;
    let armed = tokio::time::Instant::now();
    world.change(switch("all", SwitchScope::Global, None)).await;
    let killed = world.until_status(run, RunStatus::Killed).await;
    assert!(armed.elapsed() <= Duration::from_secs(5));
    assert!(!killed.closed && killed.tool_calls[0].open, "terminal first, settled when the call is");
    go.send(true).unwrap();
    let closed = world.until_closed(run).await;
    assert_eq!((closed.status, closed.cost_ledger.total_cost_units.to_string().as_str()), (RunStatus::Killed, "0.5"));
    let kinds = world.kinds(run).await;
    let end = kinds.iter().position(|kind| kind == "run-finished").unwrap();
    assert_eq!(kinds[end + 1..], ["call-settled", "late-evidence", "run-closed"]);
}
