//! Two nodes on one database, each with connections of its own, spend from the same meters.

use std::sync::Arc;

use signalbox_domain::governance::budget::{Budget, BudgetScope};
use signalbox_domain::ids::{ActorId, AgentId, RunKey};
use signalbox_domain::run::append::{Entry, Release, RunHead, pending_of};
use signalbox_ports::clock::BootInstant;
use signalbox_ports::conformance::world::*;
use signalbox_ports::governance::Governance;
use signalbox_ports::journal::{AppendError, Appended, AskOutcome, Journal};
use signalbox_store::PostgresStore;
use tokio::task::JoinSet;

use crate::database::Database;
use crate::{append, create, open};

async fn figures(store: &PostgresStore, id: &str) -> (i64, i64) {
    let budgets = store.budgets().await.unwrap();
    let meter = &budgets.iter().find(|metered| metered.budget.budget_id.as_str() == id).unwrap().meter;
    (meter.consumed.0 / 1_000_000, meter.reserved.0 / 1_000_000)
}

fn settling(appended: &Appended, units: i64) -> Option<Entry> {
    let [AskOutcome::Admitted(admitted)] = appended.asks.as_slice() else { return None };
    let pending = pending_of(admitted.event())?;
    let releases = vec![Release::of(pending, cost(units))];
    Some(Entry { facts: vec![settled(pending.call_id, units)], releases, ..entry(&appended.head) })
}

#[tokio::test]
async fn twenty_calls_at_once_from_two_nodes_never_spend_more_than_there_is() {
    const ROUNDS: u64 = 50;
    const CALLS: u64 = 20;
    let database = Database::create().await;
    let nodes = [open(&database).await, open(&database).await];
    let mut heads = Vec::new();
    for number in 0..CALLS {
        heads.push(create(&nodes[0], number).await);
    }
    for round in 0..ROUNDS {
        let id = format!("round-{round}");
        nodes[0].put_budget(budget(&id, 100)).await.unwrap();
        let (_, governance_epoch) = nodes[1].epoch().await.unwrap();
        let start = Arc::new(tokio::sync::Barrier::new(CALLS as usize));
        let mut calls = JoinSet::new();
        for (number, head) in (0..).zip(heads.clone()) {
            let (node, start) = (Arc::clone(&nodes[number as usize % 2]), Arc::clone(&start));
            let asks = vec![ask(&head, round << 20 | number, &[(&id, 30)])];
            let entry = Entry { asks, governance_epoch, ..entry(&head) };
            calls.spawn(async move {
                start.wait().await;
                let appended = append(&node, entry).await.unwrap();
                match settling(&appended, 30) {
                    Some(settling) => (append(&node, settling).await.unwrap().head, 30),
                    None => (appended.head, 0),
                }
            });
        }
        let mut spent = 0;
        while let Some(call) = calls.join_next().await {
            let (head, charged): (RunHead, i64) = call.unwrap();
            spent += charged;
            let place = heads.iter().position(|known| known.run_key == head.run_key).unwrap();
            heads[place] = head;
        }
        // Three, however they fall: a fourth would pass the limit even after the others are settled.
        assert_eq!((spent, figures(&nodes[1], &id).await), (90, (90, 0)), "round {round}");
    }
}

#[tokio::test]
async fn calls_of_two_nodes_on_shuffled_meters_lose_no_charge_and_meet_no_deadlock() {
    const CALLS_PER_NODE: u64 = 250;
    const RUNS_PER_NODE: u64 = 10;
    let database = Database::create().await;
    let nodes = [open(&database).await, open(&database).await];
    let of = |scope: BudgetScope, id: String| Budget { scope, scope_key: id.clone(), ..budget(&id, 1_000_000) };
    nodes[0].put_budget(budget("tenant", 1_000_000)).await.unwrap();
    for number in 0..3 {
        nodes[0].put_budget(of(BudgetScope::User, format!("user-{number}"))).await.unwrap();
        nodes[0].put_budget(of(BudgetScope::Agent, format!("agent-{number}"))).await.unwrap();
    }
    let (_, governance_epoch) = nodes[0].epoch().await.unwrap();
    let mut work = JoinSet::new();
    for (which, node) in (0..).zip(&nodes) {
        for run in 0..RUNS_PER_NODE {
            let (node, mut head) = (Arc::clone(node), create(&nodes[0], which * 100 + run).await);
            work.spawn(async move {
                let mut dice = which * 1_000 + run;
                let mut settlement = entry(&head);
                for number in 0..CALLS_PER_NODE / RUNS_PER_NODE {
                    dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let (user, agent) = (format!("user-{}", (dice >> 33) % 3), format!("agent-{}", (dice >> 40) % 3));
                    let mut meters = [("tenant", 1), (user.as_str(), 1), (agent.as_str(), 1)];
                    meters.rotate_left((dice >> 50) as usize % 3);
                    if (dice >> 60) % 2 == 0 {
                        meters.swap(0, 1);
                    }
                    let mut asked = ask(&head, which << 40 | run << 20 | number, &meters);
                    asked.target.user_id = ActorId::new(user.as_str()).unwrap();
                    asked.target.agent_id = AgentId::new(agent.as_str()).unwrap();
                    // The call before is settled, and this one asked for, in one entry: as a run does it.
                    let next = Entry { asks: vec![asked], governance_epoch, ..settlement };
                    let appended = append(&node, next).await.unwrap();
                    settlement = settling(&appended, 1).unwrap();
                    head = appended.head;
                }
                append(&node, settlement).await.unwrap();
            });
        }
    }
    while let Some(done) = work.join_next().await {
        done.unwrap();
    }
    assert_eq!(figures(&nodes[0], "tenant").await, (500, 0));
    for kind in ["user", "agent"] {
        let mut sum = 0;
        for number in 0..3 {
            let (consumed, reserved) = figures(&nodes[1], &format!("{kind}-{number}")).await;
            assert!(reserved == 0 && consumed > 0);
            sum += consumed;
        }
        assert_eq!(sum, 500, "{kind}");
    }
    for node in &nodes {
        node.close().await;
    }
    drop(nodes);
    // Each connection reports what it has counted when it ends.
    let others_are_gone =
        "SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
    database.until(others_are_gone).await;
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    assert_eq!(database.number(deadlocks).await, 0);
}

#[tokio::test]
async fn two_nodes_settle_one_call_once() {
    let database = Database::create().await;
    let nodes = [open(&database).await, open(&database).await];
    nodes[0].put_budget(budget("b", 100)).await.unwrap();
    let (_, governance_epoch) = nodes[0].epoch().await.unwrap();
    for round in 0..20_u64 {
        let (one, two) = (create(&nodes[0], round).await, create(&nodes[0], 100 + round).await);
        let mut open = Vec::new();
        for (number, head) in [(round, &one), (100 + round, &two)] {
            let asks = vec![ask(head, number, &[("b", 3)])];
            open.push(append(&nodes[0], Entry { asks, governance_epoch, ..entry(head) }).await.unwrap());
        }
        let settle_a = settling(&open[0], 1).unwrap();
        let (one, two) = tokio::join!(append(&nodes[0], settle_a.clone()), append(&nodes[1], settle_a));
        assert!(matches!((&one, &two), (Ok(_), Err(AppendError::Refused(_))) | (Err(AppendError::Refused(_)), Ok(_))));
        let before = i64::try_from(round).unwrap() * 3;
        assert_eq!(figures(&nodes[0], "b").await, (before + 1, 3), "the other call's reservation stands");
        append(&nodes[1], settling(&open[1], 2).unwrap()).await.unwrap();
        assert_eq!(figures(&nodes[0], "b").await, (before + 3, 0));
    }
}

/// A run is read whole by a node that has never written to it.
#[tokio::test]
async fn what_one_node_commits_the_other_reads() {
    let database = Database::create().await;
    let nodes = [open(&database).await, open(&database).await];
    let head = create(&nodes[0], 1).await;
    let head = append(&nodes[0], saying(&head, "from the first")).await.unwrap().head;
    let key: RunKey = head.run_key;
    assert_eq!(nodes[1].head(key).await.unwrap(), Some(head.clone()));
    let answers = nodes[1].append(vec![saying(&head, "from the second")], BootInstant(0)).await;
    assert!(answers[0].is_ok());
    assert_eq!(nodes[0].read(key, 0, 10).await.unwrap().len(), 3);
}
