//! Many runs at once, and what customers are told of one: a node seen by its four subscribers.

use serde_json::json;
use signalbox_domain::catalog::catalog;
use signalbox_domain::dashboard::{DashboardFilter, LatencyBand, RunBucket};
use signalbox_domain::governance::kill_switch::SwitchScope;
use signalbox_domain::identity::{Role, Visibility};
use signalbox_domain::ids::{AgentId, RunId, TenantId};
use signalbox_domain::mode::{Mode, P95_RUNS};
use signalbox_domain::run::progress::{CustomerSummary, summarize_for_customer};
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::time::UnixMs;
use signalbox_runtime::{Caller, WatchItem, Whose};

use crate::harness::{World, caller, chain, operator, step, switch, tool};

fn of(role: Role) -> Caller {
    Caller { actor: signalbox_domain::identity::Actor { role, ..operator().actor }, ..operator() }
}

async fn listed(world: &World, caller: &Caller, filter: DashboardFilter) -> Vec<RunId> {
    let page = world.node.list(caller, Whose::Own, filter).await.unwrap();
    page.rows.iter().map(|row| row.run_id).collect()
}

#[tokio::test(start_paused = true)]
async fn a_list_shows_a_run_as_it_stands_now_and_finds_it_by_that() {
    let world = World::new().await;
    world.tools.hang(&tool("memory.read"));
    let run = world.submit(chain("memory.read", 2)).await;
    world.tools.begun(1).await;
    let waits = DashboardFilter { status: vec![RunStatus::AwaitingTool], ..DashboardFilter::default() };
    assert_eq!(listed(&world, &operator(), waits.clone()).await, []);
    // Nothing is written when a tool takes too long, and still the list says so, as the run does.
    world.until_status(run, RunStatus::AwaitingTool).await;
    assert_eq!(listed(&world, &operator(), waits).await, [run]);
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    let slow = DashboardFilter { latency_band: vec![LatencyBand::Slow], ..DashboardFilter::default() };
    assert_eq!(listed(&world, &operator(), slow).await, [run]);
    let page = world.node.list(&operator(), Whose::Own, DashboardFilter::default()).await.unwrap();
    assert_eq!((page.rows[0].bucket(), page.rows[0].ended_at), (RunBucket::InFlight, None));
}

#[tokio::test(start_paused = true)]
async fn nobody_filters_by_what_a_run_would_not_show() {
    let world = World::new().await;
    let run = world.submit(chain("memory.read", 1)).await;
    world.until_closed(run).await;
    let all = DashboardFilter::default;
    let cases = [
        (Role::Customer, all()),
        (Role::Customer, DashboardFilter { bucket: vec![RunBucket::Done], ..all() }),
        (Role::Creator, DashboardFilter { agent_id: AgentId::new("ref.course-generation").ok(), ..all() }),
        (Role::Service, DashboardFilter { text: Some(run.to_string()), ..all() }),
        (Role::Creator, DashboardFilter { family: Some("course-generation".into()), ..all() }),
        (Role::TenantOperator, DashboardFilter { has_warnings: Some(false), ..all() }),
    ];
    for (least, filter) in cases {
        for role in [Role::Customer, Role::Creator, Role::Service, Role::TenantOperator, Role::PlatformOperator] {
            let answer = world.node.list(&of(role), Whose::Own, filter.clone()).await;
            match answer {
                Ok(page) => {
                    assert!(role.sees() >= least.sees(), "{role:?}: {filter:?}");
                    assert_eq!(page.rows.len(), 1, "{role:?}: {filter:?}");
                }
                Err(error) => {
                    assert!(role.sees() < least.sees(), "{role:?}: {filter:?}");
                    assert_eq!(error.code(), "not-authorized");
                }
            }
        }
    }
    let bad = DashboardFilter { text: Some("a\u{0}".into()), ..all() };
    assert_eq!(world.node.list(&operator(), Whose::Own, bad).await.unwrap_err().code(), "text-invalid");
}

#[tokio::test(start_paused = true)]
async fn other_tenants_are_seen_by_operators_of_the_platform_alone() {
    let world = World::new().await;
    let run = world.submit(chain("memory.read", 1)).await;
    world.until_closed(run).await;
    let own = operator().tenant_id;
    let elsewhere = |role| caller("elsewhere", "olga", role);
    for whose in [Whose::Of(own.clone()), Whose::All, Whose::Of(TenantId::new("never-was").unwrap())] {
        for role in [Role::Customer, Role::Creator, Role::TenantOperator] {
            let refused = world.node.list(&elsewhere(role), whose.clone(), DashboardFilter::default()).await;
            assert_eq!(
                refused.unwrap_err().to_string(),
                "what belongs to other tenants is above the standing of this credential"
            );
            let refused = world.node.snapshot(&elsewhere(role), whose.clone()).await.unwrap_err();
            assert_eq!(refused.code(), "not-authorized");
        }
        let there = usize::from(!matches!(&whose, Whose::Of(tenant) if *tenant != own));
        let platform = elsewhere(Role::PlatformOperator);
        let page = world.node.list(&platform, whose.clone(), DashboardFilter::default()).await.unwrap();
        assert_eq!(page.rows.len(), there, "{whose:?}");
        let counts = world.node.count_runs(&platform, whose, None).await.unwrap();
        assert_eq!(counts.of_bucket(RunBucket::Done), there as u64);
    }
    let page = world.node.list(&elsewhere(Role::PlatformOperator), Whose::Own, DashboardFilter::default()).await;
    assert_eq!(page.unwrap().rows, [], "without being asked for, nobody else's runs are shown");
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_counts_each_bucket_and_names_the_active_switches() {
    let world = World::new().await;
    let done = world.submit(chain("memory.read", 1)).await;
    world.until_closed(done).await;
    let asks = json!([{ "stepId": "gate", "kind": "approval", "prompt": "Go on?" }]);
    let waits = world.submit(asks).await;
    world.until_status(waits, RunStatus::AwaitingApproval).await;
    world.change(switch("stop", SwitchScope::Tool, Some("memory.write"))).await;
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    let operator_of_tenant = of(Role::TenantOperator);
    let shown = world.node.snapshot(&operator_of_tenant, Whose::Own).await.unwrap();
    let counts: Vec<_> = shown.counts.0.iter().map(|count| (count.bucket.as_str(), count.runs)).collect();
    assert_eq!(
        counts,
        [("queued", 0), ("in-flight", 0), ("waiting-on-human", 1), ("suspended", 0), ("done", 1), ("attention", 0)]
    );
    let switches: Vec<_> = shown.active_switches.iter().map(|switch| switch.switch_id.as_str()).collect();
    assert_eq!(switches, ["stop"]);
    let later = Some(UnixMs(shown.taken_at_unix_ms.0 + 1));
    let counts = world.node.count_runs(&operator_of_tenant, Whose::Own, later).await.unwrap();
    assert!(counts.0.iter().all(|count| count.runs == 0));
    let json = serde_json::to_value(&shown).unwrap();
    assert_eq!(json["counts"][2], json!({ "bucket": "waiting-on-human", "runs": 1, "atLeast": false }));
    assert_eq!(json["activeSwitches"][0]["switchId"], "stop");
    for role in [Role::Customer, Role::Creator, Role::Service] {
        let (counts, snapshot) = (
            world.node.count_runs(&of(role), Whose::Own, None).await,
            world.node.snapshot(&of(role), Whose::Own).await,
        );
        assert_eq!((counts.unwrap_err().code(), snapshot.unwrap_err().code()), ("not-authorized", "not-authorized"));
    }
}

async fn told(world: &World, run: RunId, after: u64, most: usize) -> Vec<(u64, CustomerSummary)> {
    let mut items = world.node.watch(&of(Role::Customer), run, after).await.unwrap();
    let mut told = Vec::new();
    while told.len() < most {
        match items.recv().await {
            Some(item) => match item.unwrap() {
                WatchItem::Told { event, summary } => told.push((event.seq, (*summary.unwrap()).clone())),
                WatchItem::Event(event) => assert_ne!(event.visibility, Visibility::Customer),
                WatchItem::Progress { .. } => {}
            },
            None => return told,
        }
    }
    told
}

#[tokio::test(start_paused = true)]
async fn a_customer_is_told_how_the_run_stands_after_each_event_from_any_cursor() {
    let world = World::new().await;
    let plan = json!([
        step("a", "memory.read", &[]),
        { "stepId": "gate", "kind": "approval", "prompt": "May source.fetch be used?", "dependsOnStepIds": ["a"] },
    ]);
    let run = world.submit(plan).await;
    // One who watches from the start, and one who looks again when it waits.
    let live = told(&world, run, 0, 3).await;
    world.until_status(run, RunStatus::AwaitingApproval).await;
    let (_, _, events) = world.node.export(&operator(), run).await.unwrap();
    let mut expected = Vec::new();
    for event in events.iter().filter(|event| event.visibility == Visibility::Customer) {
        let then = world.node.replay(&operator(), run, event.seq).await.unwrap();
        expected.push((event.seq, summarize_for_customer(&then)));
    }
    assert_eq!(live, expected[..live.len()]);
    assert_eq!(live[2].1.waiting_for.as_deref(), Some("a decision"));
    // The link is dropped after every event: what was told before and after it is what the log says.
    for cut in 0..=expected.len() {
        let mut union = told(&world, run, 0, cut).await;
        let cursor = union.last().map_or(0, |(seq, _)| *seq);
        union.extend(told(&world, run, cursor, expected.len() - cut).await);
        assert_eq!(union, expected, "cut after {cut}");
    }
    let names: Vec<_> = catalog().iter().map(|entry| entry.tool_id.to_string()).collect();
    for (_, summary) in expected {
        let text = serde_json::to_string(&summary).unwrap();
        assert!(names.iter().all(|name| !text.contains(name.as_str())) && !text.contains("ref."), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_compliance_of_an_agent_in_a_mode_is_computed_from_its_last_hundred_stored_runs() {
    let world = World::new().await;
    let agent = || AgentId::new("ref.course-generation").unwrap();
    let asked = async |mode| world.node.mode_compliance(&operator(), Whose::Own, agent(), mode).await.unwrap();
    assert_eq!((asked(Mode::Balanced).await.runs, asked(Mode::Balanced).await.p95_latency_ms), (0, None));
    for _ in 0..103 {
        let run = world.submit(chain("memory.read", 1)).await;
        world.until_closed(run).await;
    }
    let series = asked(Mode::Balanced).await;
    assert_eq!((series.runs, series.breaches.len()), (P95_RUNS, 0), "{series:?}");
    let last =
        world.node.list(&operator(), Whose::Own, DashboardFilter { limit: 100, ..DashboardFilter::default() }).await;
    let mut latencies = Vec::new();
    for row in last.unwrap().rows {
        latencies.push(world.node.get(&operator(), row.run_id).await.unwrap().compliance.unwrap().latency_ms);
    }
    latencies.sort_unstable();
    assert_eq!(series.p95_latency_ms, Some(latencies[94]), "the nearest rank of what the runs themselves say");
    // Another mode, another agent and another tenant have none of these.
    assert_eq!(asked(Mode::Fast).await.runs, 0);
    let other = AgentId::new("ref.research").unwrap();
    assert_eq!(world.node.mode_compliance(&operator(), Whose::Own, other, Mode::Balanced).await.unwrap().runs, 0);
    let denied = world.node.mode_compliance(&of(Role::Creator), Whose::Own, agent(), Mode::Balanced).await.unwrap_err();
    assert_eq!(denied.code(), "not-authorized");
    let foreign = Whose::Of(TenantId::new("globex").unwrap());
    let denied = world.node.mode_compliance(&of(Role::TenantOperator), foreign, agent(), Mode::Balanced).await;
    assert_eq!(denied.unwrap_err().code(), "not-authorized");
}
