//! A run that waits costs no actor, and comes back for whatever it waits for.

use std::time::Duration;

use serde_json::json;
use signalbox_domain::ids::RunId;
use signalbox_domain::run::decide::RunCommand;
use signalbox_domain::run::event::ApprovalDecision;
use signalbox_domain::run::status::RunStatus;
use signalbox_ports::journal::Journal;
use signalbox_ports::memory::FakeTools;
use signalbox_runtime::{Node, NodeConfig};

use crate::harness::{World, chain, fresh_command, operator, step, tool};

async fn is_held(world: &World, run: RunId) -> bool {
    Journal::find(world.store.as_ref(), &operator().tenant_id, run).await.unwrap().unwrap().owner.is_some()
}

async fn until_parked(world: &World, run: RunId) {
    while is_held(world, run).await {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn two_hundred_parked_runs_leave_room_for_as_many_active_ones_as_none_would() {
    let mut world = World::with(FakeTools::new([tool("memory.read")]), |_| {}).await;
    world.node.abandon().await;
    let config = NodeConfig { runs_active_max: 10, ..NodeConfig::default() };
    world.node = Node::start(config, world.ports.clone()).await.unwrap().0;
    let waiting = json!([{ "stepId": "w", "kind": "wait", "seconds": 1_200 }]);
    let mut runs = Vec::new();
    for _ in 0..20 {
        for _ in 0..10 {
            runs.push(world.submit(waiting.clone()).await);
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        let body = json!({ "rootAgentId": "ref.course-generation", "plan": waiting });
        assert_eq!(world.submit_as(&operator(), body).await.unwrap_err().code(), "overloaded");
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    for run in &runs {
        assert!(!is_held(&world, *run).await);
    }
    let busy = world.submit(chain("memory.read", 3)).await;
    assert_eq!(world.until_closed(busy).await.status, RunStatus::Completed);
    // Later each of them does what it waited for.
    tokio::time::sleep(Duration::from_secs(1_200)).await;
    for run in runs {
        assert_eq!(world.until_closed(run).await.status, RunStatus::Completed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_is_parked_after_five_seconds_of_waiting_and_not_before() {
    let world = World::new().await;
    let run = world.submit(json!([{ "stepId": "w", "kind": "wait", "seconds": 600 }])).await;
    tokio::time::sleep(Duration::from_millis(4_900)).await;
    assert!(is_held(&world, run).await);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!is_held(&world, run).await);
}

#[tokio::test(start_paused = true)]
async fn a_parked_run_comes_back_for_a_command_a_timer_and_an_approval() {
    let world = World::new().await;
    let plan = json!([
        { "stepId": "w", "kind": "wait", "seconds": 60 },
        { "stepId": "gate", "kind": "approval", "prompt": "Go on?", "subject": {}, "dependsOnStepIds": ["w"] },
        step("a", "memory.read", &["gate"]),
    ]);
    let run = world.submit(plan).await;
    until_parked(&world, run).await;
    world.command(run, RunCommand::Pause { reason: "lunch".to_owned() }).await.unwrap();
    assert_eq!(world.get(run).await.status, RunStatus::Paused);
    until_parked(&world, run).await;
    world.command(run, RunCommand::Resume { reason: "back".to_owned() }).await.unwrap();
    until_parked(&world, run).await;
    let asked = world.until_status(run, RunStatus::AwaitingApproval).await;
    until_parked(&world, run).await;
    world.decide(asked.approvals[0].approval_id, ApprovalDecision::Approve).await.unwrap();
    assert_eq!(world.until_closed(run).await.status, RunStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_kill_of_a_parked_run_is_answered_at_once() {
    let world = World::new().await;
    let run = world.submit(json!([{ "stepId": "w", "kind": "wait", "seconds": 600 }])).await;
    until_parked(&world, run).await;
    let asked = tokio::time::Instant::now();
    world.command(run, RunCommand::Kill { reason: "enough".to_owned(), blamed_id: None }).await.unwrap();
    assert!(asked.elapsed() <= Duration::from_millis(100), "{:?}", asked.elapsed());
    assert_eq!(world.until_closed(run).await.status, RunStatus::Killed);
}

#[tokio::test(start_paused = true)]
async fn a_command_that_comes_as_its_run_closes_is_answered_all_the_same() {
    let world = World::new().await;
    let run = world.submit(chain("memory.read", 1)).await;
    let mut commands = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let node = world.node.clone();
        let resume = RunCommand::Resume { reason: "again".to_owned() };
        commands.spawn(async move { node.command(&operator(), run, fresh_command(), resume).await.unwrap_err() });
        tokio::task::yield_now().await;
    }
    let asked = tokio::time::Instant::now();
    for answer in commands.join_all().await {
        assert!(["invalid-status-for-resume", "run-terminal"].contains(&answer.code()), "{answer:?}");
    }
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    assert_eq!(world.until_closed(run).await.status, RunStatus::Completed);
}

/// Its actor does not know that the store has nobody down for the run, and goes on when it is due. If its node died then,
/// nobody would take the run over.
#[tokio::test(start_paused = true)]
async fn a_run_whose_parking_was_not_heard_of_is_written_to_by_nobody_who_does_not_own_it() {
    let world = World::new().await;
    // The node claims what is due once a second; the run is due between two of these.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let wait = json!({ "stepId": "w", "kind": "wait", "seconds": 10 });
    let run = world.submit(json!([wait, step("r", "memory.read", &["w"])])).await;
    tokio::time::sleep(Duration::from_millis(4_900)).await;
    world.store.lose_next_answer();
    tokio::time::sleep(Duration::from_millis(1_000)).await;
    let head = async || Journal::find(world.store.as_ref(), &operator().tenant_id, run).await.unwrap().unwrap();
    let parked = head().await;
    assert_eq!(parked.owner, None, "it was parked all the same");
    let written = loop {
        let now = head().await;
        if now.last_seq > parked.last_seq {
            break now;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    assert!(written.lease_epoch > parked.lease_epoch, "{written:?}");
    assert_eq!(world.until_closed(run).await.status, RunStatus::Completed);
}
