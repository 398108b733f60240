//! Two nodes on one database, and what reaches a run through the one that does not own it.

use std::sync::Arc;

use serde_json::json;
use signalbox_domain::ids::CommandId;
use signalbox_domain::quantity::Micros;
use signalbox_domain::run::decide::RunCommand;
use signalbox_domain::run::status::RunStatus;
use signalbox_ports::memory::FakeTools;
use signalbox_store::PostgresOptions;
use tokio::sync::Notify;

use crate::database::Database;
use crate::station::{Station, budget, caller, chain, tool, tools};

async fn two_nodes(database: &Database) -> (Station, Station) {
    let node = || Station::on_postgres(database, PostgresOptions::default(), tools());
    (node().await, node().await)
}

/// Nobody tells the owner: it hears of the kill when it next writes, and its call in flight is not cancelled before that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_at_another_node_stops_the_next_call_and_ends_the_run_with_the_one_that_is_out() {
    let database = Database::create().await;
    let (owner, other) = two_nodes(&database).await;
    owner.put(budget("acme", Micros::units(10))).await;
    let (may_end, waiting) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (ends, waits) = (Arc::clone(&may_end), Arc::clone(&waiting));
    owner.tools.on(&tool(), move |_, _| {
        let (ends, waits) = (Arc::clone(&ends), Arc::clone(&waits));
        async move {
            waits.notify_one();
            ends.notified().await;
            FakeTools::answered(json!({}))
        }
    });
    let run = owner.submit("acme", &chain(2)).await.unwrap();
    waiting.notified().await;
    let key = other.ports.journal.find(&caller("acme").tenant_id, run).await.unwrap().unwrap().run_key;
    let killing = {
        let node = other.node.clone();
        let kill = RunCommand::Kill { reason: "enough".to_owned(), blamed_id: None };
        tokio::spawn(
            async move { node.command(&caller("acme"), run, CommandId::new(uuid::Uuid::now_v7()), kill).await },
        )
    };
    while owner.ports.journal.head(key).await.unwrap().unwrap().control_seq == 0 {
        tokio::task::yield_now().await;
    }
    may_end.notify_one();
    let envelope = owner.closed("acme", run).await;
    assert_eq!((envelope.status, owner.tools.count(&tool())), (RunStatus::Killed, 1));
    assert!(killing.await.unwrap().unwrap().accepted);
    let meter = other.meter("acme").await;
    assert_eq!((meter.consumed, meter.reserved), (Micros::units(1), Micros::ZERO), "what was used was used");
    assert!(other.tools.calls().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_takes_the_runs_of_one_that_is_gone_and_each_call_is_charged_once() {
    let database = Database::create().await;
    let (dying, other) = two_nodes(&database).await;
    dying.put(budget("acme", Micros::units(100))).await;
    dying.tools.hang(&tool());
    let mut runs = Vec::new();
    for _ in 0..8 {
        runs.push(dying.submit("acme", &chain(3)).await.unwrap());
    }
    dying.tools.begun(runs.len()).await;
    assert_eq!(other.meter("acme").await.reserved, Micros::units(8));
    dying.node.abandon().await;
    // As if its lease had run out meanwhile.
    database
        .execute(
            "UPDATE nodes SET expires_at = 0 \
             WHERE incarnation IN (SELECT owner_incarnation FROM runs WHERE owner_incarnation IS NOT NULL)",
        )
        .await;
    for run in runs {
        let envelope = other.closed("acme", run).await;
        assert_eq!((envelope.status, envelope.tool_calls.len()), (RunStatus::Completed, 3));
    }
    let meter = other.meter("acme").await;
    assert_eq!((meter.consumed, meter.reserved), (Micros::units(24), Micros::ZERO));
}
