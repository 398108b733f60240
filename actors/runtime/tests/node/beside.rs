//! Calls beside others: what they share, and what becomes of those whose answers are lost.

use std::time::Duration;

use serde_json::json;
use signalbox_domain::governance::change::GovernanceChange;
use signalbox_domain::ids::{ActorId, GrantId};
use signalbox_domain::quantity::Micros;
use signalbox_domain::run::event::{ApprovalReason, CallOutcome};
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::run::step::{CallEnding, CallResult};
use signalbox_domain::time::UnixMs;
use signalbox_ports::governance::Governance;

use crate::harness::{World, operator, step, tenant_grant, tool};

fn ends(ending: CallEnding) -> CallResult {
    CallResult { ending, measured: None, latency_ms: 1 }
}

fn lost() -> CallResult {
    ends(CallEnding::Unknown { message: "the conversation broke off".to_owned() })
}

#[tokio::test(start_paused = true)]
async fn calls_that_begin_together_never_pass_the_runs_own_budget() {
    let world = World::new().await;
    let plan = json!([step("a", "memory.read", &[]), step("b", "memory.read", &[]), step("c", "memory.read", &[])]);
    let body = json!({ "rootAgentId": "ref.course-generation", "plan": plan,
        "budgets": [{ "category": "cost-units", "limit": 2.5 }] });
    let run = world.submit_as(&operator(), body).await.unwrap();
    let envelope = world.until_closed(run).await;
    assert_eq!(envelope.status, RunStatus::Killed);
    assert_eq!(world.tools.count(&tool("memory.read")), 2);
    assert!(envelope.run_budgets[0].meter.consumed <= Micros::units(2));
}

#[tokio::test(start_paused = true)]
async fn a_failing_run_does_not_wait_for_ever_for_a_call_whose_answer_is_lost() {
    let world = World::new().await;
    world.tools.on(&tool("memory.read"), |_, _| async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        lost()
    });
    let failed = CallEnding::Failed { code: "tool-broken".to_owned(), message: "no".to_owned() };
    world.tools.script(&tool("memory.write"), [ends(failed)]);
    let run = world.submit(json!([step("a", "memory.read", &[]), step("b", "memory.write", &[])])).await;
    let envelope = world.until_closed(run).await;
    assert_eq!(envelope.end.unwrap().code.as_deref(), Some("tool-broken"));
    assert_eq!(world.tools.count(&tool("memory.read")), 1, "nothing begins once a step has failed");
}

#[tokio::test(start_paused = true)]
async fn a_lost_call_that_the_gate_does_not_let_out_again_is_settled_as_unknown() {
    let world = World::new().await;
    world.change(tenant_grant("web.fetch")).await;
    let store = world.store.clone();
    world.tools.on(&tool("web.fetch"), move |_, _| {
        let store = store.clone();
        async move {
            let grant_id = GrantId::new("grant.web.fetch").unwrap();
            let revoked = GovernanceChange::GrantRevoked { grant_id, at_unix_ms: UnixMs(2) };
            store.change(revoked, &ActorId::new("grace").unwrap()).await.unwrap();
            lost()
        }
    });
    let fetch = json!({ "stepId": "a", "kind": "tool", "toolId": "web.fetch",
        "args": { "url": "https://example.com/page" } });
    let body = json!({ "rootAgentId": "ref.research", "plan": [fetch] });
    let run = world.submit_as(&operator(), body).await.unwrap();
    let envelope = world.until_status(run, RunStatus::AwaitingApproval).await;
    assert_eq!(envelope.tool_calls[0].outcome, CallOutcome::Unknown);
    assert_eq!(envelope.approvals[0].reason, ApprovalReason::UnknownCallOutcome);
    assert_eq!(world.tools.count(&tool("web.fetch")), 1);
}
