//! Two nodes share the runs of one store, and no bus tells either of them anything: whatever is asked of one finds its run
//! at the other through the store, within a bound.

use std::time::Duration;

use serde_json::{Value, json};
use signalbox_domain::governance::kill_switch::SwitchScope;
use signalbox_domain::governance::switching::{ArmSwitch, Reach};
use signalbox_domain::ids::SwitchId;
use signalbox_domain::run::decide::RunCommand;
use signalbox_domain::run::status::RunStatus;
use signalbox_ports::memory::FakeTools;
use signalbox_runtime::{Node, NodeConfig, NodeHandle, WatchItem};

use crate::harness::{World, fresh_command, operator, step, tool};

/// A world whose calls go on until they are cancelled, and another node of it.
async fn two_nodes() -> (World, NodeHandle) {
    let world = World::with(FakeTools::new([tool("memory.read")]), |_| {}).await;
    world.tools.on(&tool("memory.read"), async |_, _| {
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        FakeTools::answered(json!({}))
    });
    let (other, _) = Node::start(NodeConfig::default(), world.ports.clone()).await.unwrap();
    (world, other)
}

fn calling() -> Value {
    json!([step("call", "memory.read", &[])])
}

fn order(scope: SwitchScope, target: &str) -> ArmSwitch {
    ArmSwitch {
        switch_id: SwitchId::new("drill").unwrap(),
        reach: Reach::Own,
        scope,
        target_id: Some(target.to_owned()),
        reason: "a drill".to_owned(),
        user_visible_status_copy: "stopped".to_owned(),
        safe_degradation_mode_id: None,
        expires_at_unix_ms: None,
    }
}

#[tokio::test(start_paused = true)]
async fn a_command_finds_a_run_of_another_node_within_a_second_although_nobody_tells_that_node() {
    let (world, other) = two_nodes().await;
    for _ in 0..5 {
        let run = world.submit(calling()).await;
        world.until(run, |run| run.open_calls().count() == 1).await;
        let asked = tokio::time::Instant::now();
        let reason = "a test".to_owned();
        other.command(&operator(), run, fresh_command(), RunCommand::Pause { reason }).await.unwrap();
        assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
        assert_eq!(world.get(run).await.status, RunStatus::Paused);
    }
}

#[tokio::test(start_paused = true)]
async fn a_command_waits_for_the_next_owner_when_the_one_before_is_gone() {
    let (world, other) = two_nodes().await;
    let run = world.submit(json!([{ "stepId": "nap", "kind": "wait", "seconds": 86_400 }])).await;
    world.node.abandon().await;
    let command = fresh_command();
    let order = || RunCommand::Cancel { reason: "a test".to_owned() };
    // Its lease lasts for eight seconds from its last renewal; the answer may come in time or be asked for again.
    let first = other.command(&operator(), run, command, order()).await;
    if first.is_err() {
        tokio::time::sleep(Duration::from_secs(2)).await;
        other.command(&operator(), run, command, order()).await.unwrap();
    }
    assert_eq!(other.get(&operator(), run).await.unwrap().status, RunStatus::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn an_armed_switch_waits_for_every_node_and_each_says_since_when_it_has_swept() {
    let (world, other) = two_nodes().await;
    let run = world.submit(calling()).await;
    world.until(run, |run| run.open_calls().count() == 1).await;
    let armed = other.arm_switch(&operator(), order(SwitchScope::Tool, "memory.read"), true).await.unwrap();
    assert!(armed.swept_after.is_some_and(|after| after < Duration::from_secs(5)), "{armed:?}");
    let nodes = armed.standing.effect.unwrap().nodes;
    assert_eq!(nodes.len(), 2);
    for node in &nodes {
        assert!(node.swept_at.is_some_and(|at| at.ms() >= armed.committed_at), "{nodes:?}");
        assert!(node.swept_after.is_some_and(|after| after < Duration::from_secs(5)), "{nodes:?}");
    }
    assert_eq!(world.get(run).await.status, RunStatus::Killed);
    let shown = world.node.switch(&operator(), &SwitchId::new("drill").unwrap()).await.unwrap();
    assert_eq!(shown.effect.unwrap().nodes, nodes, "whoever is asked says the same");
}

#[tokio::test(start_paused = true)]
async fn a_watch_follows_a_run_of_another_node_within_a_second_and_misses_nothing() {
    let (world, other) = two_nodes().await;
    let run = world.submit(calling()).await;
    world.until(run, |run| run.open_calls().count() == 1).await;
    let mut watch = other.watch(&operator(), run, 0).await.unwrap();
    let mut seqs = Vec::new();
    let mut next = async |within: Duration| match tokio::time::timeout(within, watch.recv()).await {
        Ok(Some(item)) => {
            if let WatchItem::Event(event) = item.unwrap() {
                seqs.push(event.seq);
            }
            true
        }
        Ok(None) | Err(_) => false,
    };
    while next(Duration::from_secs(3)).await {}
    world.command(run, RunCommand::Pause { reason: "a test".to_owned() }).await.unwrap();
    assert!(next(Duration::from_millis(1_100)).await, "it is looked for once a second");
    world.command(run, RunCommand::Cancel { reason: "a test".to_owned() }).await.unwrap();
    world.until_closed(run).await;
    while next(Duration::from_secs(3)).await {}
    assert_eq!(seqs, (1..=world.kinds(run).await.len() as u64).collect::<Vec<_>>());
}
