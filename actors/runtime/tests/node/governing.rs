//! Managing switches and budgets on a node that works.

use serde_json::{Value, json};
use signalbox_domain::governance::audit::{AuditBody, AuditKind, Subject, verify_audit};
use signalbox_domain::governance::budget::{Budget, BudgetVerdict};
use signalbox_domain::governance::budgeting::Expected;
use signalbox_domain::governance::kill_switch::SwitchScope;
use signalbox_domain::governance::switching::{ArmSwitch, Reach};
use signalbox_domain::identity::Role;
use signalbox_domain::ids::{BudgetId, RunId, SwitchId};
use signalbox_domain::quantity::Micros;
use signalbox_domain::run::append::pending_of;
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::time::UnixMs;
use signalbox_ports::acts::{Act, Acted, Acts as _, AuditFilter, Effect};
use signalbox_ports::governance::Governance as _;
use signalbox_ports::memory::FakeTools;
use signalbox_runtime::{ApiError, Caller, PutBudget};
use std::time::Duration;

use crate::harness::{World, caller, chain, operator, tool};

fn ada() -> Caller {
    caller("acme", "ada.platform", Role::PlatformOperator)
}

fn grace() -> Caller {
    caller("acme", "grace.platform", Role::PlatformOperator)
}

fn id(text: &str) -> SwitchId {
    SwitchId::new(text).unwrap()
}

fn order(name: &str, scope: SwitchScope, target: Option<&str>) -> ArmSwitch {
    ArmSwitch {
        switch_id: id(name),
        reach: if scope == SwitchScope::Global { Reach::Platform } else { Reach::Own },
        scope,
        target_id: target.map(str::to_owned),
        reason: "a drill".to_owned(),
        user_visible_status_copy: "We paused this for your safety.".to_owned(),
        safe_degradation_mode_id: Some("read-only".to_owned()),
        expires_at_unix_ms: None,
    }
}

fn code(error: ApiError) -> String {
    error.code().to_owned()
}

async fn sound(world: &World) -> usize {
    let acts = world.store.audit(&AuditFilter { limit: 1_000, ..AuditFilter::default() }).await.unwrap();
    let report = verify_audit(&acts, Some(world.store.audit_head().await.unwrap()));
    assert!(report.ok, "{:#?}", report.findings);
    acts.len()
}

#[tokio::test(start_paused = true)]
async fn arming_ends_matching_runs_wherever_they_are_and_cancels_their_calls() {
    let tools = FakeTools::new([tool("memory.read"), tool("web.fetch")]);
    let world = World::with(tools, |_| {}).await;
    world.tools.hang(&tool("memory.read"));
    let calling = world.submit(chain("memory.read", 2)).await;
    let waiting = world.submit(json!([{ "stepId": "w", "kind": "wait", "seconds": 86_400 }])).await;
    world.until(calling, |run| run.open_calls().next().is_some()).await;
    // Parked: no node holds it.
    tokio::time::sleep(Duration::from_secs(10)).await;

    let on_tool = world.node.arm_switch(&operator(), order("t", SwitchScope::Tool, Some("memory.read")), true).await;
    let on_tool = on_tool.unwrap();
    assert!(on_tool.swept_after.unwrap() < Duration::from_secs(1), "{on_tool:?}");
    let killed = world.get(calling).await;
    let end = killed.end.clone().unwrap();
    assert_eq!((killed.status, end.blamed_id.as_deref()), (RunStatus::Killed, Some("t")));
    assert_eq!(end.user_visible_status_copy.as_deref(), Some("We paused this for your safety."));
    assert_eq!(end.safe_degradation_mode_id.as_deref(), Some("read-only"));
    assert_ne!(world.get(waiting).await.status, RunStatus::Killed, "it calls nothing of that tool");
    assert_eq!(world.node.switch(&operator(), &id("t")).await.unwrap().effect.unwrap().killed, 1);
    world.until_closed(calling).await;
    assert_eq!(world.tools.cancelled().len(), 1);

    let on_all = order("a", SwitchScope::Agent, Some("ref.course-generation"));
    let armed = world.node.arm_switch(&operator(), on_all, true).await.unwrap();
    assert!(armed.swept_after.is_some());
    assert_eq!(world.get(waiting).await.end.unwrap().blamed_id.as_deref(), Some("a"));
    assert_eq!(sound(&world).await, 2);
}

#[tokio::test(start_paused = true)]
async fn arming_twice_is_one_act_and_what_is_armed_stops_the_next_run() {
    let world = World::new().await;
    let order = || order("s", SwitchScope::Tool, Some("memory.read"));
    let first = world.node.arm_switch(&operator(), order(), false).await.unwrap();
    let again = world.node.arm_switch(&operator(), order(), false).await.unwrap();
    assert!(!first.replayed && again.replayed);
    assert_eq!((first.epoch, first.committed_at), (again.epoch, again.committed_at));
    assert_eq!(sound(&world).await, 1);
    let run = world.submit(chain("memory.read", 1)).await;
    assert_eq!(world.until_closed(run).await.status, RunStatus::Killed);
    // Another tenant's runs go on (KIL-005).
    let stranger = caller("other", "eve", Role::TenantOperator);
    let body = json!({ "rootAgentId": "ref.course-generation", "plan": chain("memory.read", 1) });
    let run = world.submit_as(&stranger, body).await.unwrap();
    while !world.node.get(&stranger, run).await.unwrap().closed {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(world.node.get(&stranger, run).await.unwrap().status, RunStatus::Completed);
    assert_eq!(code(world.node.switch(&stranger, &id("s")).await.unwrap_err()), "no-such-switch");
}

#[tokio::test(start_paused = true)]
async fn a_global_switch_is_disarmed_by_two_and_what_one_asked_lapses() {
    let world = World::new().await;
    world.node.arm_switch(&ada(), order("g", SwitchScope::Global, None), false).await.unwrap();
    let asks = async |by: Caller| world.node.disarm_switch(&by, &id("g"), "it is over").await;
    let proposed = asks(ada()).await.unwrap();
    assert!(!proposed.disarmed);
    assert_eq!(proposed.standing.proposal.unwrap().proposed_by, ada().actor.actor_id);
    assert!(!asks(ada()).await.unwrap().disarmed, "the same identity says nothing new");
    assert_eq!(code(asks(operator()).await.unwrap_err()), "not-authorized");
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert!(world.node.switch(&ada(), &id("g")).await.unwrap().proposal.is_none(), "it has lapsed");
    assert!(!asks(grace()).await.unwrap().disarmed, "so this is a proposal again");
    let disarmed = asks(ada()).await.unwrap();
    assert!(disarmed.disarmed);
    assert_eq!(disarmed.standing.state, "disarmed");
    assert_eq!(code(asks(grace()).await.unwrap_err()), "switch-already-disarmed");
    assert_eq!(sound(&world).await, 4, "armed, proposed, proposed, disarmed");
    let run = world.submit(chain("memory.read", 1)).await;
    assert_eq!(world.until_closed(run).await.status, RunStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_switch_that_expires_lets_the_next_run_go_and_cannot_be_disarmed() {
    let world = World::new().await;
    let until = UnixMs(world.ports.clock.now().0 + 60_000);
    let brief = ArmSwitch { expires_at_unix_ms: Some(until), ..order("s", SwitchScope::Tool, Some("memory.read")) };
    world.node.arm_switch(&operator(), brief, false).await.unwrap();
    tokio::time::sleep(Duration::from_secs(61)).await;
    let run = world.submit(chain("memory.read", 1)).await;
    assert_eq!(world.until_closed(run).await.status, RunStatus::Completed);
    assert_eq!(world.node.switch(&operator(), &id("s")).await.unwrap().state, "expired");
    let refused = world.node.disarm_switch(&operator(), &id("s"), "why").await.unwrap_err();
    assert_eq!(code(refused), "switch-expired");
}

#[tokio::test(start_paused = true)]
async fn disarming_stops_an_unfinished_sweep_and_says_how_many_were_ended_and_how_many_were_left() {
    let mut world = World::new().await;
    let mut runs = Vec::new();
    for _ in 0..3 {
        runs.push(world.submit(json!([{ "stepId": "w", "kind": "wait", "seconds": 86_400 }])).await);
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    // The rest is at rest on a node that is gone: nobody sweeps.
    world.node.abandon().await;
    let other = crate::harness::switch("all", SwitchScope::Global, None);
    world.change(other).await;
    world.crash().await;
    let disarmed = world.node.disarm_switch(&ada(), &id("all"), "a mistake").await.unwrap();
    assert!(!disarmed.disarmed);
    let disarmed = world.node.disarm_switch(&grace(), &id("all"), "a mistake").await.unwrap();
    let effect = disarmed.standing.effect.unwrap();
    assert_eq!(effect.killed + effect.left, 3, "{effect:?}");
    let shown = world.node.switch(&ada(), &id("all")).await.unwrap();
    assert_eq!((shown.state, shown.effect.unwrap().left), ("disarmed", effect.left));
    // What it had left goes on.
    tokio::time::sleep(Duration::from_secs(60)).await;
    let mut killed = 0;
    for run in runs {
        killed += u64::from(world.get(run).await.status == RunStatus::Killed);
    }
    assert_eq!(killed, effect.killed);
}

fn wish(json: Value) -> PutBudget {
    let budget: Budget = serde_json::from_value(json).unwrap();
    PutBudget { budget, reach: Reach::Own, reason: "a limit".to_owned(), expected: Expected::Any }
}

fn on_tenant(limit: i64, on_exceeded: &str) -> PutBudget {
    wish(json!({ "budgetId": "b", "scope": "tenant", "scopeKey": "acme", "category": "external-calls", "limit": limit,
        "onExceeded": on_exceeded }))
}

async fn paused(world: &World, run: RunId) {
    world.until_status(run, RunStatus::Paused).await;
}

#[tokio::test(start_paused = true)]
async fn a_top_up_lets_the_runs_go_on_that_a_budget_held() {
    let world = World::new().await;
    let cost = |limit: i64| {
        wish(json!({ "budgetId": "b", "scope": "tenant", "scopeKey": "acme", "category": "cost-units", "limit": limit,
            "onExceeded": "pause" }))
    };
    let (standing, _) = world.node.put_budget(&ada(), cost(1)).await.unwrap();
    assert_eq!((standing.revision, standing.verdict), (1, BudgetVerdict::Ok));
    let run = world.submit(chain("memory.read", 6)).await;
    paused(&world, run).await;
    let held = world.submit(json!([{ "stepId": "w", "kind": "wait", "seconds": 86_400 }])).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let id = BudgetId::new("b").unwrap();
    let stale = world.node.top_up_budget(&ada(), &id, Micros::units(99), "more", Expected::Revision(9)).await;
    assert_eq!(code(stale.unwrap_err()), "stale-revision");
    let refused = world.node.top_up_budget(&operator(), &id, Micros::units(99), "more", Expected::Any).await;
    assert_eq!(code(refused.unwrap_err()), "not-authorized");
    let top = world.node.top_up_budget(&ada(), &id, Micros::units(99), "more", Expected::Revision(1)).await;
    let (standing, resumed) = top.unwrap();
    assert_eq!((standing.metered.budget.limit, standing.revision, resumed), (Micros::units(100), 2, 1));
    assert_eq!(world.until_closed(run).await.status, RunStatus::Completed);
    assert_ne!(world.get(held).await.status, RunStatus::Paused);
    let spent = world.node.budget(&ada(), &id).await.unwrap().metered.meter;
    assert_eq!(spent.reserved, Micros::ZERO);
    assert_eq!(spent.consumed, world.get(run).await.cost_ledger.total_cost_units);
    assert_eq!(sound(&world).await, 2);
}

/// A top-up as a node leaves it that dies before it has told anybody.
async fn topped_up_and_gone(world: &World, limit: i64) {
    let head = world.store.audit_head().await.unwrap();
    let budget = world.store.budgets().await.unwrap().remove(0).budget;
    let budget = Budget { limit: Micros::units(limit), ..budget };
    let act = Act {
        expected_seq: head.seq,
        expected_epoch: world.store.epoch().await.unwrap().1,
        tenant_id: budget.tenant_id.clone(),
        actor: ada().actor,
        kind: AuditKind::BudgetToppedUp,
        subject: Subject::budget(&budget.budget_id),
        body: AuditBody {
            reason: "more".to_owned(),
            after: Some(serde_json::to_value(&budget).unwrap()),
            ..AuditBody::default()
        },
        effect: Effect::PutBudget(budget),
    };
    assert!(matches!(world.store.act(act).await.unwrap(), Acted::Done(_)));
}

fn cost(limit: i64) -> PutBudget {
    wish(json!({ "budgetId": "b", "scope": "tenant", "scopeKey": "acme", "category": "cost-units", "limit": limit,
        "onExceeded": "pause" }))
}

async fn resumes(world: &World, run: RunId) -> usize {
    world.kinds(run).await.iter().filter(|kind| *kind == "control-applied").count()
}

#[tokio::test(start_paused = true)]
async fn a_node_that_dies_between_a_top_up_and_its_resumes_leaves_no_run_held() {
    let mut world = World::new().await;
    world.node.put_budget(&ada(), cost(1)).await.unwrap();
    let run = world.submit(chain("memory.read", 6)).await;
    paused(&world, run).await;
    topped_up_and_gone(&world, 100).await;
    world.crash().await;
    assert_eq!(world.until_closed(run).await.status, RunStatus::Completed);
    assert_eq!(resumes(&world, run).await, 2, "held once and told once");
    world.verify(run).await;
    sound(&world).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_lives_follows_up_the_top_up_of_one_that_died_and_tells_each_run_once() {
    let world = World::new().await;
    world.node.put_budget(&ada(), cost(1)).await.unwrap();
    let run = world.submit(chain("memory.read", 6)).await;
    paused(&world, run).await;
    // Not enough for all of it: the run goes on, is held again, and is not told the same top-up again.
    topped_up_and_gone(&world, 2).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let held = world.get(run).await;
    assert_eq!(held.status, RunStatus::Paused);
    assert_eq!(resumes(&world, run).await, 3, "held, told, held");
    topped_up_and_gone(&world, 100).await;
    assert_eq!(world.until_closed(run).await.status, RunStatus::Completed);
    world.verify(run).await;
}

#[tokio::test(start_paused = true)]
async fn a_budget_put_while_runs_work_is_counted_from_the_next_call_on_and_retired_counts_no_more() {
    let world = World::new().await;
    let cost = wish(json!({ "budgetId": "b", "scope": "tool", "scopeKey": "memory.read", "category": "cost-units",
        "limit": 0 }));
    let (_, unchanged) = world.node.put_budget(&operator(), cost.clone()).await.unwrap();
    assert!(!unchanged);
    assert!(world.node.put_budget(&operator(), cost).await.unwrap().1, "the same again changes nothing");
    let run = world.submit(chain("memory.read", 1)).await;
    let killed = world.until_closed(run).await;
    assert_eq!((killed.status, killed.end.unwrap().blamed_id.as_deref()), (RunStatus::Killed, Some("b")));
    let id = BudgetId::new("b").unwrap();
    world.node.retire_budget(&operator(), &id, "enough", Expected::Any).await.unwrap();
    assert_eq!(code(world.node.budget(&operator(), &id).await.unwrap_err()), "no-such-budget");
    let run = world.submit(chain("memory.read", 1)).await;
    assert_eq!(world.until_closed(run).await.status, RunStatus::Completed);
    // What it was for is remembered: its figures count nothing else under its id.
    let other = wish(json!({ "budgetId": "b", "scope": "tool", "scopeKey": "memory.read", "category": "retrievals",
        "limit": 1 }));
    assert_eq!(code(world.node.put_budget(&operator(), other).await.unwrap_err()), "budget-category-fixed");
    assert_eq!(sound(&world).await, 2);
}

#[tokio::test(start_paused = true)]
async fn many_operators_who_act_at_once_lose_no_act() {
    let world = World::new().await;
    world.node.put_budget(&ada(), on_tenant(0, "kill")).await.unwrap();
    let mut operators = tokio::task::JoinSet::new();
    for number in 0..6 {
        let node = world.node.clone();
        operators.spawn(async move {
            let by = caller("acme", &format!("operator-{number}"), Role::PlatformOperator);
            let id = BudgetId::new("b").unwrap();
            let mut done = 0;
            while done < 3 {
                match node.top_up_budget(&by, &id, Micros::units(1), "more", Expected::Any).await {
                    Ok(_) => done += 1,
                    Err(error) => assert_eq!(error.code(), "governance-contended"),
                }
            }
        });
    }
    operators.join_all().await;
    let standing = world.node.budget(&ada(), &BudgetId::new("b").unwrap()).await.unwrap();
    assert_eq!(standing.metered.budget.limit, Micros::units(18));
    assert_eq!(sound(&world).await, 19);
}

/// Runs work, limits go up and down, the node dies: at each admission the books were in order, and in the end they add up.
#[tokio::test(start_paused = true)]
async fn under_load_with_crashes_and_moving_limits_the_meter_is_the_sum_of_the_journals() {
    for seed in 1..=3_u64 {
        let mut world = World::new().await;
        let id = BudgetId::new("b").unwrap();
        let limit = |units: i64| {
            wish(json!({ "budgetId": "b", "scope": "tenant", "scopeKey": "acme", "category": "cost-units",
                "limit": units, "onExceeded": "pause" }))
        };
        world.node.put_budget(&ada(), limit(5)).await.unwrap();
        let mut runs = Vec::new();
        for _ in 0..8 {
            runs.push(world.submit(chain("memory.read", 6)).await);
        }
        let mut dice = seed;
        for _ in 0..25 {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (what, amount) = ((dice >> 33) % 4, ((dice >> 40) % 12).cast_signed());
            match what {
                0 => {
                    world.node.put_budget(&ada(), limit(amount)).await.unwrap();
                }
                1 => {
                    let more = Micros::units(amount + 1);
                    world.node.top_up_budget(&ada(), &id, more, "more", Expected::Any).await.unwrap();
                }
                2 => world.crash().await,
                _ => tokio::time::sleep(Duration::from_millis(amount.unsigned_abs() * 10)).await,
            }
        }
        let mut spent = Micros::ZERO;
        for run in &runs {
            // Whoever was told to go on while it was still working is held later: it is told again.
            while !world.get(*run).await.closed {
                world.node.top_up_budget(&ada(), &id, Micros::units(100), "plenty", Expected::Any).await.unwrap();
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            let closed = world.until_closed(*run).await;
            assert_eq!(closed.status, RunStatus::Completed, "seed {seed}: {:?}", closed.end);
            spent = spent.plus(closed.cost_ledger.total_cost_units);
            let (_, _, events) = world.node.export(&operator(), *run).await.unwrap();
            for event in events.iter().filter_map(|stored| stored.event()) {
                for reading in pending_of(&event).into_iter().flat_map(|pending| &pending.meters) {
                    assert!(reading.consumed.plus(reading.reserved) <= reading.limit, "seed {seed}: {reading:?}");
                }
            }
        }
        let meter = world.node.budget(&ada(), &id).await.unwrap().metered.meter;
        assert_eq!((meter.consumed, meter.reserved), (spent, Micros::ZERO), "seed {seed}");
        sound(&world).await;
    }
}

#[tokio::test(start_paused = true)]
async fn rules_are_shown_to_operators_and_the_whole_audit_journal_to_the_platforms() {
    let world = World::new().await;
    world.node.arm_switch(&operator(), order("s", SwitchScope::Tool, Some("web.fetch")), false).await.unwrap();
    let wide = ArmSwitch { reach: Reach::Platform, ..order("p", SwitchScope::Tool, Some("notify.send")) };
    world.node.arm_switch(&ada(), wide, false).await.unwrap();
    let creator = caller("acme", "carl", Role::Creator);
    assert_eq!(code(world.node.switches(&creator).await.unwrap_err()), "not-authorized");
    assert_eq!(code(world.node.budgets(&creator).await.unwrap_err()), "not-authorized");
    assert_eq!(code(world.node.audit(&creator, 0, None, 10).await.unwrap_err()), "not-authorized");
    assert_eq!(world.node.switches(&operator()).await.unwrap().len(), 2);
    let own: Vec<_> = world.node.audit(&operator(), 0, None, 10).await.unwrap().iter().map(|act| act.seq).collect();
    assert_eq!(own, [1], "a tenant's operator is shown its own tenant's acts");
    assert_eq!(code(world.node.export_audit(&operator()).await.unwrap_err()), "not-authorized");
    let (events, head) = world.node.export_audit(&ada()).await.unwrap();
    assert!(verify_audit(&events, Some(head)).ok && events.len() == 2);
    let body = events[0].said().unwrap();
    assert_eq!((body.reason.as_str(), body.before), ("a drill", None));
    assert_eq!(body.after.unwrap()["switchId"], "s");
}
