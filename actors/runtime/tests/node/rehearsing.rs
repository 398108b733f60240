//! Rehearsals on a whole node: executors that count their calls prove that nothing with an effect reaches them (I12).

use std::collections::BTreeSet;

use serde_json::{Value, json};
use signalbox_domain::catalog::catalog;
use signalbox_domain::governance::budget::{Budget, BudgetScope, OnExceeded};
use signalbox_domain::governance::grant::{Grant, GrantScope};
use signalbox_domain::identity::Role;
use signalbox_domain::ids::{BudgetId, GrantId};
use signalbox_domain::mode::{SIMULATED_KEY, is_simulated};
use signalbox_domain::pipeline::{briefing, weekly_briefing};
use signalbox_domain::quantity::{BudgetCategory, Micros};
use signalbox_domain::registry::families;
use signalbox_domain::run::envelope::RunEnvelope;
use signalbox_domain::run::event::{CallOutcome, StoredValue};
use signalbox_domain::run::plan::Plan;
use signalbox_domain::run::status::RunStatus;
use signalbox_ports::governance::Governance as _;
use signalbox_ports::memory::FakeTools;

use crate::harness::{World, caller, operator, step, submission, switch, tenant_grant, tool};

fn shared() -> Budget {
    Budget {
        budget_id: BudgetId::new("acme").unwrap(),
        tenant_id: Some(operator().tenant_id),
        scope: BudgetScope::Tenant,
        scope_key: "acme".to_owned(),
        category: BudgetCategory::CostUnits,
        limit: Micros::units(100_000),
        calendar: None,
        period_seconds: None,
        anchor_unix_seconds: 0,
        warn_ratio: Micros(800_000),
        grace_ratio: Micros(1_000_000),
        grace_seconds: 0,
        on_exceeded: OnExceeded::Kill,
    }
}

/// A node that serves every tool, under a budget of the tenant, with a shared grant for every tool.
async fn generous() -> World {
    let world = World::with(FakeTools::new(catalog().iter().map(|entry| entry.tool_id.clone())), |_| {}).await;
    world.store.put_budget(shared()).await.unwrap();
    for entry in catalog() {
        world.change(tenant_grant(entry.tool_id.as_str())).await;
    }
    world
}

fn boss() -> signalbox_runtime::Caller {
    let mut boss = operator();
    boss.scopes = catalog().iter().flat_map(|entry| entry.required_scopes.clone()).collect();
    boss
}

async fn assert_untouched(world: &World, what: &str) {
    for entry in catalog().iter().filter(|entry| is_simulated(entry)) {
        assert_eq!(world.tools.count(&entry.tool_id), 0, "{what}: {}", entry.tool_id);
    }
    let meter = &world.store.budgets().await.unwrap()[0].meter;
    assert_eq!((meter.consumed, meter.reserved), (Micros::ZERO, Micros::ZERO), "{what}");
}

fn rehearsal(root: &str, plan: &Value) -> Value {
    json!({ "rootAgentId": root, "plan": plan, "mode": "rehearsal-dry-run" })
}

fn output(run: &RunEnvelope, at: usize) -> &Value {
    match &run.tool_calls[at].output {
        Some(StoredValue::Inline(value)) => value,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn i12_a_rehearsal_answers_what_has_an_effect_by_stand_ins_in_the_same_journal() {
    let world = generous().await;
    let plan = json!([
        step("look", "memory.read", &[]),
        step("keep", "memory.write", &["look"]),
        {"stepId": "ask", "kind": "approval", "dependsOnStepIds": ["keep"]},
        {"stepId": "guarded", "kind": "tool", "toolId": "memory.read", "approvedBy": "ask"},
    ]);
    let run = world.submit_as(&operator(), rehearsal("ref.course-generation", &plan)).await.unwrap();
    let run = world.until_closed(run).await;
    assert_eq!(run.status, RunStatus::Completed);
    assert_untouched(&world, "a small plan").await;
    assert_eq!(world.tools.count(&tool("memory.read")), 1, "what only looks is done, unless an approval guards it");
    let simulated: Vec<bool> = run.tool_calls.iter().map(|call| call.simulated).collect();
    assert_eq!(simulated, [false, true, true]);
    for at in [1, 2] {
        let call = &run.tool_calls[at];
        assert_eq!((call.outcome, call.open, call.grant_id.as_ref()), (CallOutcome::Ok, false, None));
        assert_eq!(output(&run, at)[SIMULATED_KEY], json!(true));
    }
    // One unit for the look is booked as spent by the run; the two stand-ins are booked apart, and on no meter.
    assert_eq!(run.cost_ledger.total_cost_units, Micros::units(1));
    assert_eq!(run.simulated_ledger.as_ref().unwrap().total_cost_units, Micros::units(2));
    assert_eq!(run.approvals.len(), 1, "what would have been asked is there to read");
    assert!(run.compliance.as_ref().is_some_and(|kept| kept.breaches.is_empty()));
    let (_, _, events) = world.node.export(&operator(), run.run_id).await.unwrap();
    let told = signalbox_domain::run::explain::explain(&events).unwrap();
    let codes: Vec<&str> = told.calls[1].answers.iter().map(|answer| &*answer.code).collect();
    assert!(told.calls[1].simulated && codes.contains(&"simulated-in-rehearsal"), "{codes:?}");
    let kinds = world.kinds(run.run_id).await;
    let pending = kinds.iter().filter(|kind| *kind == "call-pending").count();
    assert_eq!((pending, kinds.iter().filter(|kind| *kind == "call-settled").count()), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn i12_grants_that_somebody_hands_a_rehearsal_are_not_kept_and_would_not_help() {
    let world = generous().await;
    let by_hand = |tool_id: &str, run: &str| Grant {
        grant_id: GrantId::new(format!("by-hand.{tool_id}")).unwrap(),
        scope: GrantScope::PerRun,
        scope_key: run.to_owned(),
        tenant_id: operator().tenant_id,
        tool_id: tool(tool_id),
        tool_range: "^1.0.0".to_owned(),
        constraints: Default::default(),
        delegable: None,
        issued_by: operator().actor.actor_id,
        issued_at_unix_ms: signalbox_domain::time::UnixMs(1),
        expires_at_unix_ms: None,
        revoked_at_unix_ms: None,
        rationale: "by hand".to_owned(),
        audit_event_id: "audit/1".to_owned(),
        renewed_from_grant_id: None,
    };
    let id = signalbox_domain::ids::RunId::new(uuid::Uuid::from_u128(77));
    let grants = vec![by_hand("memory.write", &id.to_string()), by_hand("memory.read", &id.to_string())];
    let plan = json!([step("look", "memory.read", &[]), step("keep", "memory.write", &["look"])]);
    let body = submission(&rehearsal("ref.course-generation", &plan));
    world.node.submit_with_grants(&operator(), Some(id), body, grants).await.unwrap();
    let run = world.until_closed(id).await;
    assert_eq!(run.status, RunStatus::Completed);
    assert!(run.grants.iter().all(|grant| grant.tool_id != tool("memory.write")), "{:?}", run.grants);
    assert_untouched(&world, "by hand").await;
}

#[tokio::test(start_paused = true)]
async fn a_pipeline_is_rehearsed_to_its_end_with_no_provider_and_no_network() {
    // Only what looks inside is served at all.
    let tools = ["sophia.ground", "sophia.fact_check"].map(tool);
    let world = World::with(FakeTools::new(tools), |_| {}).await;
    world.store.put_budget(shared()).await.unwrap();
    let plan: Plan = briefing(&["https://example.com/feed.xml".to_owned(), "/nowhere/at/all.md".to_owned()], None);
    let grounded = |output| {
        let evidence = signalbox_domain::run::event::Evidence {
            evidence_pack_id: "pack".to_owned(),
            grounding_state: signalbox_domain::run::event::GroundingState::Grounded,
            citation_count: 1,
        };
        let ending = signalbox_domain::run::step::CallEnding::Answered {
            partial: false,
            output,
            evidence: Some(evidence),
            effects: vec![],
            artifacts: vec![],
        };
        signalbox_domain::run::step::CallResult { ending, measured: None, latency_ms: 1 }
    };
    world.tools.script(&tool("sophia.ground"), [grounded(json!({"claims": []}))]);
    world.tools.script(&tool("sophia.fact_check"), [grounded(json!({})), grounded(json!({}))]);
    let body = json!({
        "rootAgentId": "ref.research", "plan": plan, "mode": "rehearsal-dry-run",
        "pipelineId": weekly_briefing::PIPELINE_ID, "pipelineSemver": weekly_briefing::PIPELINE_SEMVER,
    });
    let run = world.submit_as(&boss(), body).await.unwrap();
    let run = world.until_closed(run).await;
    assert_eq!(run.status, RunStatus::Completed, "{:?}", run.end);
    assert_eq!(world.tools.calls().len(), 3);
    assert_untouched(&world, "the weekly briefing").await;
}

#[tokio::test(start_paused = true)]
async fn a_switch_ends_a_rehearsal_like_any_run() {
    let world = generous().await;
    world
        .change(switch("stop", signalbox_domain::governance::kill_switch::SwitchScope::Tool, Some("memory.write")))
        .await;
    let plan = json!([step("keep", "memory.write", &[])]);
    let run = world.submit_as(&operator(), rehearsal("ref.course-generation", &plan)).await.unwrap();
    assert_eq!(world.until_closed(run).await.status, RunStatus::Killed);
}

#[tokio::test(start_paused = true)]
async fn a_rehearsal_stays_one_whatever_it_is_asked_to_become() {
    let world = generous().await;
    let plan = json!([
        {"stepId": "choose", "kind": "branch", "branches": [{"branchId": "on"}]},
        step("keep", "memory.write", &["choose"]),
    ]);
    let run = world.submit_as(&operator(), rehearsal("ref.course-generation", &plan)).await.unwrap();
    world.until_status(run, RunStatus::AwaitingBranchSelection).await;
    for mode in ["fast", "balanced", "exhaustive"] {
        let overrides = serde_json::from_value(json!({ "mode": mode })).unwrap();
        let command = signalbox_domain::run::decide::RunCommand::RetryWithChanges {
            step_id: "choose".parse().unwrap(),
            overrides,
            reason: "for real now".to_owned(),
        };
        let refused = world.command(run, command).await.unwrap_err();
        assert_eq!(refused.code(), "override-not-allowed", "{mode}");
    }
    let fresh = Some(signalbox_domain::ids::RunId::new(uuid::Uuid::from_u128(78)));
    let command = crate::harness::fresh_command();
    let forked = world.node.fork(&operator(), run, command, None, fresh, "again").await.unwrap();
    assert!(world.get(forked.run_id).await.is_rehearsal());
}

/// The same numbers for the same seed: enough to mix plans with.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % most
    }
}

/// A plan of up to a dozen steps over every tool there is, some guarded, some optional, in any order that is one.
fn any_plan(dice: &mut Dice) -> Value {
    let mut steps: Vec<Value> = vec![json!({"stepId": "gate", "kind": "approval"})];
    for n in 0..1 + dice.below(11) {
        let entry = &catalog()[dice.below(catalog().len())];
        let able: Vec<&str> = families().iter().filter(|f| f.allows(&entry.tool_id)).map(|f| f.family).collect();
        // No family may use it: nobody could be asked to.
        let Some(family) = able.get(dice.below(able.len().max(1))) else { continue };
        let after: BTreeSet<String> = (0..dice.below(3)).map(|_| format!("s{}", dice.below(n.max(1)))).collect();
        let there = |id: &&String| steps.iter().any(|step| step["stepId"] == **id);
        let after: Vec<&String> = after.iter().filter(there).collect();
        let mut step = json!({
            "stepId": format!("s{n}"), "kind": "tool", "toolId": entry.tool_id, "agentId": format!("ref.{family}"),
            "dependsOnStepIds": after, "optional": dice.below(3) == 0, "args": {"key": "k", "value": n},
        });
        if dice.below(4) == 0 {
            step["approvedBy"] = json!("gate");
        }
        steps.push(step);
    }
    Value::Array(steps)
}

#[tokio::test(start_paused = true)]
async fn i12_no_executor_is_called_for_a_tool_with_an_effect_whatever_the_plan() {
    let world = generous().await;
    let mut simulated = 0;
    for seed in 0..120 {
        let plan = any_plan(&mut Dice(seed));
        let run = world.submit_as(&boss(), rehearsal("ref.research", &plan)).await;
        let run = run.unwrap_or_else(|error| panic!("seed {seed}: {error}: {plan}"));
        let run = world.until_closed(run).await;
        simulated += run.tool_calls.iter().filter(|call| call.simulated).count();
        assert_untouched(&world, &format!("seed {seed}")).await;
    }
    assert!(simulated > 200, "{simulated}: the plans must have something to simulate");
}

#[tokio::test(start_paused = true)]
async fn a_customer_may_not_rehearse() {
    let world = generous().await;
    let customer = caller("acme", "cleo", Role::Customer);
    let plan = json!([step("look", "memory.read", &[])]);
    let refused = world.submit_as(&customer, rehearsal("ref.course-generation", &plan)).await.unwrap_err();
    let signalbox_runtime::ApiError::Preflight(gaps) = refused else { panic!("{refused:?}") };
    assert_eq!(gaps.iter().map(|gap| gap.code.code()).collect::<Vec<_>>(), ["mode-not-allowed"]);
}
