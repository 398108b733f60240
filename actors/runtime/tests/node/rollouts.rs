//! Rollouts at work: who gets which version, what is counted, and what becomes of the agent (FBK).

use std::time::Duration;

use serde_json::json;
use signalbox_domain::feedback::gold_set::PromoteGold;
use signalbox_domain::feedback::outcome::{FEEDBACK_WINDOW_MS, FeedbackKind};
use signalbox_domain::feedback::readiness::ReadinessVerdict;
use signalbox_domain::feedback::rollout::{RolloutMode, RolloutState, StartRollout};
use signalbox_domain::feedback::routing::RolloutArm;
use signalbox_domain::governance::audit::verify_audit;
use signalbox_domain::governance::budget::{Budget, BudgetScope, OnExceeded};
use signalbox_domain::governance::budgeting::Expected;
use signalbox_domain::governance::change::GovernanceChange;
use signalbox_domain::identity::Role;
use signalbox_domain::ids::{AgentId, BudgetId, GoldSetId, RolloutId, RunId};
use signalbox_domain::quantity::{BudgetCategory, Micros};
use signalbox_domain::registry::{AgentCostClass, AgentLifecycle, AgentRegistry, TenantScope};
use signalbox_domain::run::envelope::RunEnvelope;
use signalbox_domain::run::status::RunStatus;
use signalbox_ports::acts::{Acts as _, AuditFilter};
use signalbox_ports::governance::Governance as _;
use signalbox_runtime::{ApiError, Caller, RolloutStep};
use uuid::Uuid;

use crate::harness::{World, caller, chain, operator, submission, tool};

fn ada() -> Caller {
    caller("acme", "ada.platform", Role::PlatformOperator)
}

fn user(number: usize) -> Caller {
    caller("acme", &format!("user-{number}"), Role::Customer)
}

fn agent() -> AgentId {
    AgentId::new("ref.course-generation").unwrap()
}

fn id() -> RolloutId {
    RolloutId::new("r").unwrap()
}

fn code(error: ApiError) -> String {
    error.code().to_owned()
}

fn canary(fraction: i64) -> StartRollout {
    StartRollout {
        rollout_id: id(),
        tenant_id: None,
        agent_id: agent(),
        champion_semver: "1.0.0".to_owned(),
        challenger_semver: "1.1.0".to_owned(),
        mode: RolloutMode::Canary,
        canary_fraction: Micros(fraction),
        reason: "it reads better".to_owned(),
    }
}

fn shadow() -> StartRollout {
    StartRollout { mode: RolloutMode::Shadow, ..canary(0) }
}

/// A world in which the agent has a second version, which is a challenger.
async fn world() -> World {
    world_with(AgentCostClass::Large).await
}

/// The same, and a run of the challenger may cost so much.
async fn world_with(class: AgentCostClass) -> World {
    let world = World::new().await;
    let shipped = AgentRegistry::default();
    let mut entry = (*shipped.versions(&TenantScope::Platform, &agent())[0]).clone();
    entry.agent_semver = "1.1.0".to_owned();
    entry.lifecycle = AgentLifecycle::Challenger;
    entry.cost_class = class;
    world.change(GovernanceChange::AgentPublished(Box::new(entry))).await;
    world
}

impl World {
    async fn submits(&self, by: &Caller, run: Option<RunId>) -> RunId {
        let body =
            json!({ "rootAgentId": agent(), "plan": chain("memory.read", 1), "inputs": {"topic": by.actor.actor_id} });
        self.node.submit(by, run, submission(&body)).await.unwrap().run_id
    }

    async fn lifecycle(&self, semver: &str) -> AgentLifecycle {
        let versions = self.node.agent(&ada(), None, &agent(), Some(semver)).await.unwrap();
        versions[0].entry.lifecycle
    }

    async fn moves(&self, step: RolloutStep) -> Result<RolloutState, String> {
        let moved = self.node.move_rollout(&ada(), &id(), step, "because", Expected::Any).await;
        moved.map(|standing| standing.rollout.state).map_err(code)
    }

    /// The shadow of a run, once it is over.
    async fn shadow_of(&self, run: RunId) -> RunEnvelope {
        let head = self.ports.journal.find(&ada().tenant_id, run).await.unwrap().unwrap();
        let shadow = RunId::new(head.run_key.derive("shadow", "r", 0));
        for _ in 0..1_000 {
            if let Ok(found) = self.node.get(&ada(), shadow).await
                && found.closed
            {
                self.verify(shadow).await;
                return found;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("no shadow of {run}");
    }
}

fn side(run: &RunEnvelope) -> (RolloutArm, &str) {
    (run.routing.as_ref().unwrap().arm, run.root_agent_semver.as_str())
}

#[tokio::test(start_paused = true)]
async fn a_canary_gives_each_user_one_version_and_counts_each_finished_run_once() {
    let mut world = world().await;
    world.node.start_rollout(&ada(), canary(500_000)).await.unwrap();
    let mut arms = [0_u64; 2];
    for number in 0..20 {
        let first = world.submits(&user(number), None).await;
        let first = world.until_closed(first).await;
        let second = world.submits(&user(number), None).await;
        let second = world.until_closed(second).await;
        assert_eq!(side(&first), side(&second), "the same user has the same version");
        match side(&first) {
            (RolloutArm::Champion, "1.0.0") => arms[0] += 2,
            (RolloutArm::Challenger, "1.1.0") => arms[1] += 2,
            other => panic!("{other:?}"),
        }
    }
    assert!(arms[0] > 0 && arms[1] > 0, "{arms:?}");
    let counted = async |world: &World| {
        let tallies = world.node.rollout(&ada(), &id()).await.unwrap().tallies;
        [(tallies.champion.successes, tallies.champion.n), (tallies.challenger.successes, tallies.challenger.n)]
    };
    let expected = arms.map(|n| (n, n));
    assert_eq!(counted(&world).await, expected);
    world.crash().await;
    assert_eq!(counted(&world).await, expected, "also on another node");
    assert_eq!(world.node.rollouts(&ada()).await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_the_challenger_may_not_cost_is_left_to_the_champion_and_not_compared() {
    for mode in [canary(500_000), shadow()] {
        let world = world_with(AgentCostClass::Micro).await;
        world.node.start_rollout(&ada(), mode).await.unwrap();
        let body = |length| json!({ "rootAgentId": agent(), "plan": chain("memory.read", length) });
        let dear = submission(&body(40));
        assert!(world.node.preflight(&ada(), dear).await.unwrap().estimate > AgentCostClass::Micro.bound());
        for number in 0..6 {
            let run = world.submit_as(&user(number), body(40)).await.unwrap();
            assert_eq!(world.get(run).await.routing, None);
            assert_eq!(world.get(run).await.root_agent_semver, "1.0.0");
        }
        let cheap = world.submit_as(&user(0), body(1)).await.unwrap();
        assert!(world.get(cheap).await.routing.is_some(), "what both may cost is compared");
    }
}

#[tokio::test(start_paused = true)]
async fn a_rehearsal_another_agent_and_a_frozen_rollout_are_not_routed() {
    let world = world().await;
    world.node.start_rollout(&ada(), canary(500_000)).await.unwrap();
    let chosen = {
        let mut number = 0;
        loop {
            let run = world.submits(&user(number), None).await;
            if side(&world.get(run).await).0 == RolloutArm::Challenger {
                break number;
            }
            number += 1;
        }
    };
    let other = json!({ "rootAgentId": "ref.research", "plan": chain("memory.read", 1) });
    let run = world.submit_as(&user(chosen), other).await.unwrap();
    assert_eq!(world.get(run).await.routing, None);
    let rehearsal = json!({ "rootAgentId": agent(), "plan": chain("memory.read", 1), "mode": "rehearsal-dry-run" });
    let run = world.submit_as(&operator(), rehearsal).await.unwrap();
    assert_eq!(world.get(run).await.routing, None);
    assert_eq!(world.moves(RolloutStep::Freeze).await, Ok(RolloutState::Frozen));
    let run = world.submits(&user(chosen), None).await;
    let run = world.get(run).await;
    assert_eq!((run.routing, run.root_agent_semver.as_str()), (None, "1.0.0"));
    assert_eq!(world.moves(RolloutStep::Promote).await, Err("rollout-frozen".to_owned()));
    assert_eq!(world.moves(RolloutStep::Rollback).await, Err("no-prior-champion".to_owned()));
    assert_eq!(world.moves(RolloutStep::Unfreeze).await, Ok(RolloutState::Live));
    let run = world.submits(&user(chosen), None).await;
    assert_eq!(side(&world.get(run).await), (RolloutArm::Challenger, "1.1.0"));
    assert_eq!(world.moves(RolloutStep::End).await, Ok(RolloutState::Ended));
    let run = world.submits(&user(chosen), None).await;
    assert_eq!(world.get(run).await.root_agent_semver, "1.0.0");
}

#[tokio::test(start_paused = true)]
async fn a_shadow_works_unseen_takes_nothing_from_the_champion_and_is_there_once() {
    let world = world().await;
    let budget = Budget {
        budget_id: BudgetId::new("acme").unwrap(),
        tenant_id: Some(ada().tenant_id),
        scope: BudgetScope::Tenant,
        scope_key: "acme".to_owned(),
        category: BudgetCategory::CostUnits,
        limit: Micros::units(1_000),
        calendar: None,
        period_seconds: None,
        anchor_unix_seconds: 0,
        warn_ratio: Micros(800_000),
        grace_ratio: Micros(1_000_000),
        grace_seconds: 0,
        on_exceeded: OnExceeded::Kill,
    };
    world.store.put_budget(budget).await.unwrap();
    world.node.start_rollout(&ada(), shadow()).await.unwrap();
    let customer = user(1);
    let plan = json!([
        { "stepId": "a", "kind": "tool", "toolId": "memory.read", "args": { "key": "k" } },
        { "stepId": "b", "kind": "tool", "toolId": "memory.write", "args": { "key": "k", "value": 1 }, "dependsOnStepIds": ["a"] },
    ]);
    let body = json!({ "rootAgentId": agent(), "plan": plan });
    let named = RunId::new(Uuid::from_u128(77));
    let run = world.node.submit(&customer, Some(named), submission(&body)).await.unwrap().run_id;
    let run = world.until_closed(run).await;
    assert_eq!((run.status, side(&run)), (RunStatus::Completed, (RolloutArm::Champion, "1.0.0")));
    let shadow = world.shadow_of(named).await;
    assert_eq!((shadow.status, side(&shadow)), (RunStatus::Completed, (RolloutArm::Challenger, "1.1.0")));
    assert_eq!((shadow.mode.as_str(), shadow.routing.as_ref().unwrap().shadow_of), ("rehearsal-dry-run", Some(named)));
    // It can act nowhere (I12), and no meter of the champion's shows it (FBK-009).
    assert_eq!(world.tools.count(&tool("memory.write")), 1);
    let spent = world.store.budgets().await.unwrap()[0].meter.clone();
    assert_eq!((spent.consumed, spent.reserved), (run.cost_ledger.total_cost_units, Micros::ZERO));
    // Its answer reaches nobody.
    assert_eq!(code(world.node.get(&customer, shadow.run_id).await.unwrap_err()), "no-such-run");
    assert_eq!(world.node.get(&operator(), shadow.run_id).await.unwrap().run_id, shadow.run_id);
    let again = world.node.submit(&customer, Some(named), submission(&body)).await.unwrap();
    assert!(again.replayed);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let standing = world.node.rollout(&ada(), &id()).await.unwrap();
    assert_eq!((standing.tallies.champion.n, standing.tallies.challenger.n), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn only_a_challenger_that_does_better_becomes_champion_and_the_way_back_is_open() {
    let mut world = world().await;
    world.node.start_rollout(&ada(), canary(500_000)).await.unwrap();
    assert_eq!(world.moves(RolloutStep::Promote).await, Err("readiness-required".to_owned()));
    assert_eq!(world.lifecycle("1.1.0").await, AgentLifecycle::Challenger);
    let mut arms = [0_u32; 2];
    let mut number = 0;
    while arms.iter().any(|n| *n < 100) {
        let by = user(number);
        let run = world.submits(&by, None).await;
        let run = world.until(run, |run| run.closed).await;
        let arm = side(&run).0;
        arms[usize::from(arm == RolloutArm::Challenger)] += 1;
        // Every fourth user of the old version complains.
        if arm == RolloutArm::Champion && arms[0] % 4 == 0 {
            world.node.record_feedback(&by, run.run_id, FeedbackKind::Negative, None).await.unwrap();
        }
        number += 1;
    }
    let standing = world.node.rollout(&ada(), &id()).await.unwrap();
    assert_eq!(standing.readiness.verdict, ReadinessVerdict::ChallengerReady, "{standing:?}");
    assert_eq!(standing.tallies.champion.successes, standing.tallies.champion.n - u64::from(arms[0] / 4));
    let tenants = world.node.move_rollout(&operator(), &id(), RolloutStep::Promote, "x", Expected::Any).await;
    assert_eq!(code(tenants.unwrap_err()), "not-authorized", "what is everybody's is for the platform's operators");
    let seen = Expected::Revision(standing.revision - 1);
    let stale = world.node.move_rollout(&ada(), &id(), RolloutStep::Promote, "x", seen).await;
    assert_eq!(code(stale.unwrap_err()), "stale-revision");

    assert_eq!(world.moves(RolloutStep::Promote).await, Ok(RolloutState::Promoted));
    for _ in 0..2 {
        assert_eq!(world.lifecycle("1.1.0").await, AgentLifecycle::Champion);
        assert_eq!(world.lifecycle("1.0.0").await, AgentLifecycle::Deprecated);
        world.crash().await;
    }
    let run = world.submits(&user(0), None).await;
    let run = world.until_closed(run).await;
    assert_eq!((run.root_agent_semver.as_str(), run.routing), ("1.1.0", None));

    assert_eq!(world.moves(RolloutStep::Rollback).await, Ok(RolloutState::RolledBack));
    assert_eq!(world.lifecycle("1.0.0").await, AgentLifecycle::Champion);
    assert_eq!(world.lifecycle("1.1.0").await, AgentLifecycle::Deprecated);
    let run = world.submits(&user(0), None).await;
    assert_eq!(world.until_closed(run).await.root_agent_semver, "1.0.0");
    let acts = world.store.audit(&AuditFilter { limit: 100, ..AuditFilter::default() }).await.unwrap();
    let kinds: Vec<&str> = acts.iter().map(|act| act.kind.as_str()).collect();
    assert_eq!(kinds, ["rollout-started", "challenger-promoted", "rollout-rolled-back"]);
    assert!(verify_audit(&acts, Some(world.store.audit_head().await.unwrap())).ok);
}

#[tokio::test(start_paused = true)]
async fn of_two_operators_who_begin_at_once_one_is_told_that_there_is_a_rollout() {
    let world = world().await;
    let other = StartRollout { rollout_id: RolloutId::new("s").unwrap(), ..canary(1) };
    let (ada, grace) = (ada(), caller("acme", "grace.platform", Role::PlatformOperator));
    let (one, two) = tokio::join!(world.node.start_rollout(&ada, canary(1)), world.node.start_rollout(&grace, other));
    let refused = match (one, two) {
        (Ok(_), Err(refused)) | (Err(refused), Ok(_)) => refused,
        (one, two) => panic!("{one:?} {two:?}"),
    };
    assert_eq!(code(refused), "rollout-exists");
}

#[tokio::test(start_paused = true)]
async fn rollouts_of_nobody_and_of_others_are_alike_and_customers_see_none() {
    let world = world().await;
    world.node.start_rollout(&ada(), StartRollout { tenant_id: Some(ada().tenant_id), ..canary(1) }).await.unwrap();
    let stranger = caller("globex", "eve", Role::TenantOperator);
    assert_eq!(code(world.node.rollout(&stranger, &id()).await.unwrap_err()), "no-such-rollout");
    let missing = RolloutId::new("nowhere").unwrap();
    assert_eq!(code(world.node.rollout(&ada(), &missing).await.unwrap_err()), "no-such-rollout");
    let moved = world.node.move_rollout(&stranger, &id(), RolloutStep::Freeze, "x", Expected::Any).await;
    assert_eq!(code(moved.unwrap_err()), "no-such-rollout");
    assert!(world.node.rollouts(&stranger).await.unwrap().is_empty());
    assert_eq!(code(world.node.rollout(&user(1), &id()).await.unwrap_err()), "not-authorized");
    assert_eq!(code(world.node.rollouts(&user(1)).await.unwrap_err()), "not-authorized");
}

#[tokio::test(start_paused = true)]
async fn feedback_is_taken_for_a_day_from_whoever_may_see_the_run() {
    let world = world().await;
    let run = world.submits(&user(1), None).await;
    world.until_closed(run).await;
    let says =
        async |by: Caller| world.node.record_feedback(&by, run, FeedbackKind::Negative, None).await.map_err(code);
    assert_eq!(says(user(2)).await, Err("no-such-run".to_owned()));
    assert_eq!(says(caller("globex", "eve", Role::PlatformOperator)).await, Err("no-such-run".to_owned()));
    assert_eq!(says(user(1)).await, Ok(()));
    assert_eq!(says(user(1)).await, Ok(()), "saying it twice is harmless");
    tokio::time::sleep(Duration::from_millis(FEEDBACK_WINDOW_MS as u64 + 1)).await;
    assert_eq!(says(user(1)).await, Err("feedback-too-late".to_owned()));
    let waits = world.submit(json!([{ "stepId": "w", "kind": "wait", "seconds": 60 }])).await;
    let early = world.node.record_feedback(&operator(), waits, FeedbackKind::Positive, None).await;
    assert_eq!(code(early.unwrap_err()), "run-not-finished");
}

#[tokio::test(start_paused = true)]
async fn a_gold_set_keeps_the_input_of_a_completed_run_once() {
    let mut world = world().await;
    let run = world.submits(&user(1), None).await;
    world.until_closed(run).await;
    let wish = |run| PromoteGold {
        gold_set_id: GoldSetId::new("gold.course").unwrap(),
        source_run_id: run,
        expected_output: json!({"lessons": 3}),
        rubric: "three lessons".to_owned(),
    };
    let row = world.node.promote_gold(&operator(), wish(run)).await.unwrap();
    assert_eq!(row.input, json!({"topic": "user-1"}));
    assert_eq!(code(world.node.promote_gold(&operator(), wish(run)).await.unwrap_err()), "gold-set-entry-exists");
    let same_input = world.submits(&user(1), None).await;
    world.until_closed(same_input).await;
    let same_input = world.node.promote_gold(&operator(), wish(same_input)).await.unwrap_err();
    assert_eq!(code(same_input), "gold-set-entry-exists");
    let waits = world.submit(json!([{ "stepId": "w", "kind": "wait", "seconds": 60 }])).await;
    assert_eq!(code(world.node.promote_gold(&operator(), wish(waits)).await.unwrap_err()), "source-run-not-completed");
    assert_eq!(code(world.node.promote_gold(&user(1), wish(run)).await.unwrap_err()), "not-authorized");
    let stranger = caller("globex", "eve", Role::TenantOperator);
    assert_eq!(code(world.node.promote_gold(&stranger, wish(run)).await.unwrap_err()), "no-such-run");
    world.crash().await;
    let set = GoldSetId::new("gold.course").unwrap();
    assert_eq!(world.node.gold_entries(&operator(), &set, None, 10).await.unwrap(), [row]);
    assert!(world.node.gold_entries(&stranger, &set, None, 10).await.unwrap().is_empty());
    assert_eq!(code(world.node.gold_entries(&user(1), &set, None, 10).await.unwrap_err()), "not-authorized");
}
