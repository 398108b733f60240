use serde_json::{Value, json};
use signalbox_domain::governance::budget::{Budget, BudgetScope, OnExceeded};
use signalbox_domain::governance::change::GovernanceChange;
use signalbox_domain::governance::kill_switch::SwitchScope;
use signalbox_domain::governance::throttle::BucketRule;
use signalbox_domain::ids::{BucketId, BudgetId, TenantId};
use signalbox_domain::quantity::{BudgetCategory, Micros};
use signalbox_domain::run::decide::RunCommand;
use signalbox_domain::run::event::{CallOutcome, PauseCause};
use signalbox_domain::run::status::RunStatus;
use signalbox_ports::governance::Governance;

use crate::harness::{World, chain, operator, step, switch, tenant_grant, tool};

#[tokio::test(start_paused = true)]
async fn after_a_switch_is_committed_no_matching_call_is_admitted_although_nobody_was_told() {
    let world = World::new().await;
    let store = world.store.clone();
    world.tools.on(&tool("memory.read"), move |order, _| {
        let store = store.clone();
        async move {
            if order.step_id.as_str() == "s2" {
                let armed = switch("no-reads", SwitchScope::Tool, Some("memory.read"));
                store.change(armed, &signalbox_domain::ids::ActorId::new("grace").unwrap()).await.unwrap();
            }
            signalbox_ports::memory::FakeTools::answered(json!({}))
        }
    });
    let run = world.submit(chain("memory.read", 10)).await;
    let envelope = world.until_closed(run).await;
    assert_eq!(envelope.status, RunStatus::Killed);
    assert_eq!(world.tools.count(&tool("memory.read")), 3, "s0, s1, s2 and none after the commit");
    let end = envelope.end.unwrap();
    assert_eq!(end.blamed_id.as_deref(), Some("no-reads"));
    assert_eq!(end.user_visible_status_copy.as_deref(), Some("We paused this for your safety."));
    assert_eq!(end.safe_degradation_mode_id.as_deref(), Some("read-only"));
    let last = envelope.tool_calls.last().unwrap();
    assert_eq!(last.outcome, CallOutcome::Killed);
    assert!(world.kinds(run).await.contains(&"governance-audited".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_switch_sweeps_a_run_whose_call_is_out_and_cancels_it() {
    let world = World::new().await;
    world.tools.hang(&tool("memory.read"));
    let run = world.submit(chain("memory.read", 2)).await;
    world.tools.begun(1).await;
    world.change(switch("all", SwitchScope::Global, None)).await;
    let envelope = world.until_closed(run).await;
    assert_eq!(envelope.status, RunStatus::Killed);
    assert_eq!(world.tools.cancelled().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_switch_on_something_else_stops_nothing() {
    let world = World::new().await;
    world.change(switch("other", SwitchScope::Tool, Some("web.fetch"))).await;
    world.change(switch("family", SwitchScope::Family, Some("narration"))).await;
    let run = world.submit(chain("memory.read", 3)).await;
    assert_eq!(world.until_closed(run).await.status, RunStatus::Completed);
}

fn budget(scope: BudgetScope, key: &str, limit: i64, on_exceeded: OnExceeded) -> Budget {
    Budget {
        budget_id: BudgetId::new("b").unwrap(),
        tenant_id: Some(TenantId::new("acme").unwrap()),
        scope,
        scope_key: key.to_owned(),
        category: BudgetCategory::CostUnits,
        limit: Micros::units(limit),
        calendar: None,
        period_seconds: None,
        anchor_unix_seconds: 0,
        warn_ratio: Micros(800_000),
        grace_ratio: Micros(1_000_000),
        grace_seconds: 0,
        on_exceeded,
    }
}

#[tokio::test(start_paused = true)]
async fn a_shared_budget_kills_on_the_stores_own_figures_and_is_never_overspent() {
    let world = World::new().await;
    world.store.put_budget(budget(BudgetScope::Tenant, "acme", 5, OnExceeded::Kill)).await.unwrap();
    let mut runs = Vec::new();
    for _ in 0..4 {
        runs.push(world.submit(chain("memory.read", 3)).await);
    }
    let mut killed = 0;
    for run in runs {
        let envelope = world.until_closed(run).await;
        if envelope.status == RunStatus::Killed {
            killed += 1;
            let end = envelope.end.unwrap();
            assert_eq!((end.code.as_deref(), end.blamed_id.as_deref()), (Some("budget-exceeded"), Some("b")));
        }
    }
    assert!(killed >= 3, "{killed}");
    assert_eq!(world.tools.count(&tool("memory.read")), 5);
    let meters = world.store.budgets().await.unwrap();
    assert_eq!((meters[0].meter.consumed, meters[0].meter.reserved), (Micros::units(5), Micros::ZERO));
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_pauses_parks_the_run_until_it_is_topped_up() {
    let world = World::new().await;
    world.store.put_budget(budget(BudgetScope::Tenant, "acme", 2, OnExceeded::Pause)).await.unwrap();
    let run = world.submit(chain("memory.read", 3)).await;
    let envelope = world.until_status(run, RunStatus::Paused).await;
    assert_eq!(envelope.pause_cause(), Some(PauseCause::Quota));
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    world.store.put_budget(budget(BudgetScope::Tenant, "acme", 3, OnExceeded::Pause)).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    world.command(run, RunCommand::Resume { reason: "topped up".to_owned() }).await.unwrap();
    assert_eq!(world.until_closed(run).await.status, RunStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_runs_own_budget_stops_it_at_the_call_that_would_pass_the_limit() {
    let world = World::new().await;
    let body = json!({ "rootAgentId": "ref.course-generation", "plan": chain("memory.read", 3),
        "budgets": [{ "category": "cost-units", "limit": 1.5 }] });
    let run = world.submit_as(&operator(), body).await.unwrap();
    let envelope = world.until_closed(run).await;
    assert_eq!(envelope.status, RunStatus::Killed);
    assert_eq!(world.tools.count(&tool("memory.read")), 1);
    assert_eq!(envelope.run_budgets[0].meter.consumed, Micros::units(1));
}

fn bucket(capacity: i64, refill_micros: i64) -> GovernanceChange {
    GovernanceChange::ThrottlesSet(vec![BucketRule {
        bucket_id: BucketId::new("reads").unwrap(),
        tenant_id: None,
        tool_id: Some("memory.read".to_owned()),
        user_id: None,
        provider_id: None,
        agent_id: None,
        per: Vec::new(),
        capacity: Micros::units(capacity),
        refill_per_second: Micros(refill_micros),
    }])
}

#[tokio::test(start_paused = true)]
async fn an_empty_bucket_slows_a_run_and_never_ends_it() {
    let world = World::new().await;
    world.change(bucket(1, 500_000)).await;
    let started = tokio::time::Instant::now();
    let run = world.submit(chain("memory.read", 4)).await;
    assert_eq!(world.until_closed(run).await.status, RunStatus::Completed);
    assert!(started.elapsed().as_secs() >= 6, "three waits of two seconds");
    assert!(!world.kinds(run).await.contains(&"step-throttled".to_owned()), "short waits are not journalled");
}

#[tokio::test(start_paused = true)]
async fn a_long_throttle_parks_the_run_as_paused_while_its_siblings_go_on() {
    let world = World::new().await;
    world.change(bucket(1, 10_000)).await;
    let plan =
        json!([step("a", "memory.read", &[]), step("b", "memory.read", &["a"]), step("c", "memory.write", &["a"])]);
    let run = world.submit(plan).await;
    let envelope = world.until_status(run, RunStatus::Paused).await;
    assert_eq!(envelope.pause_cause(), Some(PauseCause::Throttle));
    assert_eq!(world.tools.count(&tool("memory.write")), 1);
    assert_eq!(world.until_closed(run).await.status, RunStatus::Completed);
    assert!(world.kinds(run).await.contains(&"step-throttled".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn each_denial_is_recorded_with_its_code_and_reaches_no_tool() {
    let world = World::new().await;
    let agent = |agent: &str, tool: &str| -> Value { json!({ "rootAgentId": agent, "plan": [step("a", tool, &[])] }) };
    for (body, code) in [
        (agent("ref.editing", "memory.write"), "agent_tools_not_configured"),
        (agent("ref.support-triage", "notify.send"), "no-matching-grant"),
        (agent("ref.research", "web.fetch"), "no-matching-grant"),
    ] {
        let run = world.submit_as(&operator(), body).await.unwrap();
        let envelope = world.until_closed(run).await;
        assert_eq!(envelope.status, RunStatus::Failed);
        assert_eq!(envelope.end.unwrap().code.as_deref(), Some(code));
        let record = &envelope.tool_calls[0];
        assert_eq!(record.outcome, CallOutcome::Denied);
        assert_eq!(record.error.as_ref().unwrap().code, code);
    }
    assert!(world.tools.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_grant_revoked_between_two_calls_denies_the_second() {
    let world = World::new().await;
    world.change(tenant_grant("notify.send")).await;
    let store = world.store.clone();
    world.tools.on(&tool("notify.send"), move |_, _| {
        let store = store.clone();
        async move {
            let revoked = GovernanceChange::GrantRevoked {
                grant_id: signalbox_domain::ids::GrantId::new("grant.notify.send").unwrap(),
                at_unix_ms: signalbox_domain::time::UnixMs(2),
            };
            store.change(revoked, &signalbox_domain::ids::ActorId::new("grace").unwrap()).await.unwrap();
            signalbox_ports::memory::FakeTools::answered(json!({}))
        }
    });
    let body = json!({ "rootAgentId": "ref.support-triage", "plan": chain("notify.send", 2) });
    let run = world.submit_as(&operator(), body).await.unwrap();
    let envelope = world.until_closed(run).await;
    assert_eq!(envelope.status, RunStatus::Failed);
    assert_eq!(envelope.end.unwrap().code.as_deref(), Some("all-matches-revoked"));
    assert_eq!(world.tools.count(&tool("notify.send")), 1);
}
