//! The governance lock, and many writers at once.

use std::sync::Arc;

use signalbox_domain::governance::change::GovernanceChange;
use signalbox_domain::ids::ActorId;
use signalbox_domain::run::append::{AskRefusal, Entry, Release, pending_of};
use signalbox_ports::clock::BootInstant;
use signalbox_ports::conformance::world::*;
use signalbox_ports::governance::Governance;
use signalbox_ports::inbox::{CommandClass, Inbox, InboxCommand};
use signalbox_ports::journal::{AppendError, AskOutcome, Created, Journal, NewRun};
use signalbox_ports::leases::Leases;
use sqlx::Connection as _;

use crate::database::Database;
use crate::{append, asking, create, open, open_at};

/// True while somebody waits for the governance lock, and somebody else has it.
const IS_WAITED_FOR: &str = "SELECT count(*) FILTER (WHERE granted) > 0 AND count(*) FILTER (WHERE NOT granted) > 0 \
     FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

#[tokio::test]
async fn an_append_waits_while_the_rules_change_and_sees_the_change() {
    let database = Database::create().await;
    let store = open(&database).await;
    let head = create(&store, 1).await;
    let in_the_making = asking(&store, &head, 1, &[]).await;

    // The change takes the lock and then waits for its first row, which is held here.
    let mut holding = database.beside().await;
    let mut holding = holding.begin().await.unwrap();
    sqlx::query("SELECT 1 FROM store_meta FOR UPDATE").execute(&mut *holding).await.unwrap();
    let changing = {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.change(switch_on("source.fetch"), &operator()).await })
    };
    database
        .until(
            "SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock' AND granted \
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
        )
        .await;
    let appending = {
        let store = Arc::clone(&store);
        tokio::spawn(async move { append(&store, in_the_making).await })
    };
    database.until(IS_WAITED_FOR).await;
    assert!(!appending.is_finished());
    holding.rollback().await.unwrap();

    let change = changing.await.unwrap().unwrap();
    let appended = appending.await.unwrap().unwrap();
    let [AskOutcome::Refused(AskRefusal::Stale { epoch })] = appended.asks.as_slice() else {
        panic!("{:?}", appended.asks)
    };
    assert_eq!((*epoch, appended.events.len()), (change.epoch, 0));
}

#[tokio::test]
async fn a_change_waits_for_the_appends_that_began_before_it() {
    let database = Database::create().await;
    let store = open(&database).await;
    let head = create(&store, 1).await;
    let in_the_making = asking(&store, &head, 1, &[]).await;

    let mut holding = database.beside().await;
    let mut holding = holding.begin().await.unwrap();
    sqlx::query("SELECT 1 FROM runs FOR UPDATE").execute(&mut *holding).await.unwrap();
    let appending = {
        let store = Arc::clone(&store);
        tokio::spawn(async move { append(&store, in_the_making).await })
    };
    database
        .until("SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock' AND granted")
        .await;
    let changing = {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.change(switch_on("source.fetch"), &operator()).await })
    };
    database.until(IS_WAITED_FOR).await;
    assert!(!changing.is_finished());
    holding.rollback().await.unwrap();

    let appended = appending.await.unwrap().unwrap();
    assert!(matches!(appended.asks[0], AskOutcome::Admitted(_)), "it was admitted before the switch was committed");
    changing.await.unwrap().unwrap();
    let after = Entry { asks: vec![ask(&appended.head, 2, &[])], ..entry(&appended.head) };
    assert!(matches!(append(&store, after).await.unwrap().asks[0], AskOutcome::Refused(AskRefusal::Stale { .. })));
}

#[tokio::test]
async fn a_change_elsewhere_in_the_database_is_waited_for_by_nobody() {
    let database = Database::create().await;
    let first = open(&database).await;
    database.execute("CREATE SCHEMA other").await;
    let second = open_at(&format!("{}&options[search_path]=other", database.url())).await;
    let (ours, theirs) = (create(&first, 1).await, create(&second, 1).await);
    first.change(switch_on("source.fetch"), &operator()).await.unwrap();
    assert_eq!((first.epoch().await.unwrap().1, second.epoch().await.unwrap().1), (1, 0));
    append(&first, saying(&ours, "here")).await.unwrap();
    append(&second, saying(&theirs, "there")).await.unwrap();
    assert_ne!(first.epoch().await.unwrap().0, second.epoch().await.unwrap().0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_writers_at_once_never_deadlock() {
    const RUNS: u64 = 12;
    let database = Database::create().await;
    // Two nodes, each with its own connections.
    let stores = [open(&database).await, open(&database).await];
    for id in ["a", "b", "c"] {
        stores[0].put_budget(budget(id, 1_000_000)).await.unwrap();
    }
    for number in 0..RUNS {
        create(&stores[0], number).await;
    }
    let mut work = tokio::task::JoinSet::new();
    for worker in 0..6_u64 {
        let store = Arc::clone(&stores[worker as usize % 2]);
        // Batches over the same runs and meters, in every order. Most entries conflict; none may fail.
        work.spawn(async move {
            let mut dice = worker + 1;
            for round in 0..25_u64 {
                let (_, governance_epoch) = store.epoch().await.unwrap();
                let mut batch = Vec::new();
                for place in 0..4_u64 {
                    dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let head = store.head(run_key("acme", (dice >> 33) % RUNS)).await.unwrap().unwrap();
                    let number = worker << 40 | round << 20 | place;
                    let budgets = [[("a", 1), ("b", 1)], [("c", 1), ("a", 1)], [("b", 1), ("c", 1)]];
                    let asks = vec![ask(&head, number, &budgets[(dice >> 40) as usize % 3])];
                    batch.push(Entry { asks, governance_epoch, ..entry(&head) });
                }
                for answer in store.append(batch, BootInstant(0)).await {
                    match answer {
                        Ok(appended) => {
                            let [AskOutcome::Admitted(admitted)] = appended.asks.as_slice() else { continue };
                            let pending = pending_of(admitted.event()).unwrap();
                            let facts = vec![settled(pending.call_id, 1)];
                            let releases = vec![Release::of(pending, cost(1))];
                            // Somebody else may have been faster.
                            let _ = append(&store, Entry { facts, releases, ..entry(&appended.head) }).await;
                        }
                        Err(AppendError::Refused(_)) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            }
        });
    }
    for worker in 10..14_u64 {
        let store = Arc::clone(&stores[worker as usize % 2]);
        work.spawn(async move {
            for round in 0..25_u64 {
                assert!(store.renew(node(worker), "node").await.unwrap());
                let run = NewRun { owner: None, ..new_run("globex", worker * 1_000 + round / 2) };
                assert!(matches!(store.create(run).await.unwrap(), Created::New { .. } | Created::Exists(_)));
                store.claim(node(worker), 3).await.unwrap();
                store.claim_one(node(worker), run_key("acme", round % RUNS)).await.unwrap();
                let ghost = node(worker * 100 + round);
                store.renew(ghost, "ghost").await.unwrap();
                store.release(ghost).await.unwrap();
                let said = InboxCommand {
                    command_id: command_id(worker * 1_000 + round),
                    ..command(1, CommandClass::Control)
                };
                store.deliver(run_key("acme", round % RUNS), said).await.unwrap();
            }
        });
    }
    let store = Arc::clone(&stores[0]);
    work.spawn(async move {
        for round in 0..25 {
            store.put_budget(budget("a", 1_000_000 + round)).await.unwrap();
            let change = GovernanceChange::ThrottlesSet(vec![]);
            store.change(change, &ActorId::new("ops").unwrap()).await.unwrap();
        }
    });
    while let Some(done) = work.join_next().await {
        done.unwrap();
    }
    for store in &stores {
        store.close().await;
    }
    drop(stores);
    // Each connection reports what it has counted when it ends.
    database
        .until(
            "SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
        .await;
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    assert_eq!(database.number(deadlocks).await, 0);
}
