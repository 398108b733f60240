//! Managing throttles on a node that works, and waiting in line at them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use signalbox_domain::governance::audit::{Subject, verify_audit};
use signalbox_domain::governance::budgeting::Expected;
use signalbox_domain::governance::switching::Reach;
use signalbox_domain::governance::throttle::{BucketRule, KeyKind};
use signalbox_domain::identity::Role;
use signalbox_domain::ids::BucketId;
use signalbox_domain::quantity::Micros;
use signalbox_domain::run::decide::RunCommand;
use signalbox_domain::run::event::PauseCause;
use signalbox_domain::run::status::RunStatus;
use signalbox_ports::acts::{Acts as _, AuditFilter};
use signalbox_ports::memory::FakeTools;
use signalbox_runtime::{ApiError, Caller, SetThrottle};

use crate::harness::{World, caller, chain, operator, step, tool};

fn id(text: &str) -> BucketId {
    BucketId::new(text).unwrap()
}

fn wish(name: &str, capacity: i64, refill: Micros) -> SetThrottle {
    SetThrottle {
        rule: BucketRule {
            bucket_id: id(name),
            tenant_id: None,
            tool_id: Some("memory.read".to_owned()),
            user_id: None,
            provider_id: None,
            agent_id: None,
            per: Vec::new(),
            capacity: Micros::units(capacity),
            refill_per_second: refill,
        },
        reach: Reach::Own,
        reason: "their quota".to_owned(),
        expected: Expected::Any,
    }
}

fn ada() -> Caller {
    caller("acme", "ada.platform", Role::PlatformOperator)
}

fn code<T: std::fmt::Debug>(answer: Result<T, ApiError>) -> String {
    answer.unwrap_err().code().to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_crowd_goes_in_the_order_it_came_and_at_the_rate_of_the_bucket() {
    let world = World::new().await;
    world.node.set_throttle(&operator(), wish("reads", 2, Micros::units(2))).await.unwrap();
    let began = tokio::time::Instant::now();
    let went: Arc<Mutex<Vec<(u128, u64)>>> = Arc::default();
    let seen = went.clone();
    world.tools.on(&tool("memory.read"), move |order, _| {
        let at = u64::try_from(began.elapsed().as_millis()).unwrap();
        seen.lock().unwrap().push((order.run_id.uuid().as_u128(), at));
        async { FakeTools::answered(json!({})) }
    });
    let mut came = BTreeMap::new();
    for n in 0..60 {
        let run = world.submit(chain("memory.read", 1)).await;
        came.insert(run.uuid().as_u128(), n);
        // So that it stands in line before the next one comes.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    let went = went.lock().unwrap();
    assert_eq!(went.len(), 60, "a throttle ends nothing");
    let order: Vec<usize> = went.iter().map(|(run, _)| came[run]).collect();
    // Those that were told to wait for long are parked, and come back when the time they were told is over.
    let short = order.iter().filter(|n| **n < 10).copied().collect::<Vec<_>>();
    assert!(short.is_sorted(), "{short:?}");
    for (at, (_, ms)) in went.iter().enumerate().skip(2) {
        assert!(*ms + 20 >= (at as u64 - 1) * 500, "call {at} at {ms}");
    }
    assert!(went[59].1 <= 60_000);
}

#[tokio::test(start_paused = true)]
async fn siblings_go_on_while_a_step_waits_and_a_short_wait_is_not_journalled() {
    let world = World::new().await;
    world.node.set_throttle(&operator(), wish("reads", 1, Micros(500_000))).await.unwrap();
    let plan = json!([
        step("a", "memory.read", &[]),
        step("b", "memory.read", &[]),
        step("c", "memory.write", &[]),
        step("d", "memory.write", &["c"]),
    ]);
    let run = world.submit(plan).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!((world.tools.count(&tool("memory.read")), world.tools.count(&tool("memory.write"))), (1, 2));
    let envelope = world.until_closed(run).await;
    assert_eq!(envelope.status, RunStatus::Completed);
    assert!(!world.kinds(run).await.contains(&"step-throttled".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_throttle_binds_from_the_next_call_on_and_a_removed_one_holds_nobody() {
    let world = World::new().await;
    let node = world.node.clone();
    world.tools.on(&tool("memory.read"), move |order, _| {
        let node = node.clone();
        async move {
            if order.step_id.as_str() == "s1" {
                node.set_throttle(&operator(), wish("reads", 1, Micros(250_000))).await.unwrap();
            }
            FakeTools::answered(json!({}))
        }
    });
    let run = world.submit(chain("memory.read", 4)).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(world.tools.count(&tool("memory.read")), 3, "two before it was set, and the one that fits in");
    world.node.remove_throttle(&operator(), &id("reads"), "gone", Expected::Any).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(world.tools.count(&tool("memory.read")), 4, "it is told at once that nothing is left to wait for");
    assert_eq!(world.until_closed(run).await.status, RunStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_waits_for_long_is_paused_parked_and_goes_on_by_itself_or_when_it_is_resumed() {
    let world = World::new().await;
    world.node.set_throttle(&operator(), wish("reads", 1, Micros(10_000))).await.unwrap();
    let first = world.submit(chain("memory.read", 1)).await;
    world.until_closed(first).await;
    let [by_itself, resumed] =
        [world.submit(chain("memory.read", 1)).await, world.submit(chain("memory.read", 1)).await];
    for run in [by_itself, resumed] {
        let paused = world.until_status(run, RunStatus::Paused).await;
        assert_eq!(paused.pause_cause(), Some(PauseCause::Throttle));
    }
    // It was told once, and nobody asks meanwhile.
    tokio::time::sleep(Duration::from_secs(50)).await;
    let throttled = world.kinds(resumed).await.iter().filter(|kind| *kind == "step-throttled").count();
    assert_eq!(throttled, 1);
    world.node.remove_throttle(&operator(), &id("reads"), "gone", Expected::Any).await.unwrap();
    world.command(resumed, RunCommand::Resume { reason: "it is gone".to_owned() }).await.unwrap();
    assert_eq!(world.until_closed(resumed).await.status, RunStatus::Completed);
    assert_eq!(world.until_closed(by_itself).await.status, RunStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_waiting_run_that_is_cancelled_leaves_its_place_to_the_next() {
    let world = World::new().await;
    world.node.set_throttle(&operator(), wish("reads", 1, Micros::units(1))).await.unwrap();
    let mut runs = Vec::new();
    for _ in 0..4 {
        runs.push(world.submit(chain("memory.read", 1)).await);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    world.command(runs[1], RunCommand::Cancel { reason: "not needed".to_owned() }).await.unwrap();
    world.command(runs[2], RunCommand::Cancel { reason: "not needed".to_owned() }).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    assert_eq!(world.get(runs[3]).await.status, RunStatus::Completed, "it went when the second would have");
}

#[tokio::test(start_paused = true)]
async fn each_user_and_each_tenant_has_its_own_where_the_rule_says_so() {
    let world = World::new().await;
    let per_user = SetThrottle {
        rule: BucketRule { per: vec![KeyKind::User], ..wish("reads", 1, Micros(1_000)).rule },
        reach: Reach::Platform,
        ..wish("reads", 1, Micros(1_000))
    };
    world.node.set_throttle(&ada(), per_user).await.unwrap();
    let body = || json!({ "rootAgentId": "ref.course-generation", "plan": chain("memory.read", 1) });
    for (tenant, user) in [("acme", "ada"), ("acme", "bob"), ("umbrella", "ada")] {
        let by = caller(tenant, user, Role::TenantOperator);
        let run = world.submit_as(&by, body()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(world.node.get(&by, run).await.unwrap().status, RunStatus::Completed, "{tenant}/{user}");
    }
}

#[tokio::test(start_paused = true)]
async fn throttles_are_kept_within_their_tenant_and_each_act_is_recorded() {
    let world = World::new().await;
    let (set, unchanged) = world.node.set_throttle(&operator(), wish("reads", 2, Micros::units(1))).await.unwrap();
    assert_eq!((set.revision, unchanged), (1, false));
    assert_eq!(set.rule.tenant_id.as_ref().map(ToString::to_string).as_deref(), Some("acme"));
    assert!(world.node.set_throttle(&operator(), wish("reads", 2, Micros::units(1))).await.unwrap().1);
    let wide = |name: &str| SetThrottle { reach: Reach::Platform, ..wish(name, 2, Micros::units(1)) };
    assert_eq!(code(world.node.set_throttle(&operator(), wide("all")).await), "not-authorized");
    world.node.set_throttle(&ada(), wide("all")).await.unwrap();
    assert_eq!(code(world.node.set_throttle(&ada(), wide("reads")).await), "throttle-id-conflict");
    assert_eq!(code(world.node.remove_throttle(&operator(), &id("all"), "x", Expected::Any).await), "not-authorized");
    let stranger = caller("umbrella", "eve", Role::TenantOperator);
    assert_eq!(code(world.node.throttle(&stranger, &id("reads")).await), "no-such-throttle");
    assert_eq!(world.node.throttles(&stranger).await.unwrap().len(), 1, "the platform's slows it too");
    let customer = caller("acme", "cora", Role::Customer);
    assert_eq!(code(world.node.throttles(&customer).await), "not-authorized");
    let seen = |expected| SetThrottle { expected, ..wish("reads", 3, Micros::units(1)) };
    assert_eq!(code(world.node.set_throttle(&operator(), seen(Expected::None)).await), "throttle-exists");
    world.node.set_throttle(&operator(), seen(Expected::Revision(1))).await.unwrap();
    assert_eq!(code(world.node.set_throttle(&operator(), seen(Expected::Revision(1))).await), "stale-revision");
    world.node.remove_throttle(&operator(), &id("reads"), "the quota is gone", Expected::Revision(3)).await.unwrap();
    let acts = world.store.audit(&AuditFilter { limit: 10, ..AuditFilter::default() }).await.unwrap();
    assert!(verify_audit(&acts, Some(world.store.audit_head().await.unwrap())).ok);
    let kinds: Vec<_> = acts.iter().map(|act| act.kind.as_str()).collect();
    assert_eq!(kinds, ["throttle-set", "throttle-set", "throttle-set", "throttle-removed"]);
    let said = acts[2].said().unwrap();
    assert_eq!((&said.before.unwrap()["capacity"], &said.after.unwrap()["capacity"]), (&json!(2), &json!(3)));
    assert_eq!((&acts[3].subject, acts[3].said().unwrap().after), (&Subject::throttle(&"reads"), None));
}
