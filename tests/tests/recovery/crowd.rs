//! Two hundred plans at once, and a node that keeps dying: in the end the executor's receipts, the ledgers and the meter
//! tell one story. These take as long as the kills do; on PostgreSQL a dead node's lease has to run out first.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use signalbox_proto::v1::ApprovalDecision;
use signalbox_store::testing::TemporaryDatabase;
use tokio::sync::{Semaphore, watch};
use uuid::Uuid;

use crate::books::{compare, settled_once};
use crate::receipts::{AT_MOST_ONCE, DEDUPLICATING, IDEMPOTENT, Receipts, Way};
use crate::station::{Client, PATIENCE, Place, Station, command_at};

const RUNS: usize = 200;
/// Submissions and verifications under way at once.
const AT_ONCE: usize = 16;

/// Four calls of all three policies, two of them side by side.
fn plan() -> Value {
    let step = |id: &str, tool: &str, after: &[&str]| json!({ "stepId": id, "kind": "tool", "toolId": tool, "args": { "step": id }, "dependsOnStepIds": after });
    json!([
        step("look", IDEMPOTENT, &[]),
        step("book", DEDUPLICATING, &["look"]),
        step("tell", AT_MOST_ONCE, &["look"]),
        step("look-again", IDEMPOTENT, &["book", "tell"]),
    ])
}

/// Small, seeded, and printed: SplitMix64.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }
}

/// The seed of this run: SIGNALBOX_TEST_SEED repeats one.
pub(crate) fn seed() -> u64 {
    let given = std::env::var("SIGNALBOX_TEST_SEED").ok().and_then(|text| text.parse().ok());
    given.unwrap_or_else(|| u64::try_from(Uuid::new_v4().as_u128() >> 70).unwrap_or_default())
}

/// Submits until it is in: a node that dies in between is asked again under the same id.
pub(crate) async fn submit(run: Uuid, addr: watch::Receiver<String>) {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        let at = addr.borrow().clone();
        if let Ok(mut client) = Client::to(&at).await
            && client.submit(run, &plan()).await.is_ok()
        {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("run {run} could not be submitted");
}

async fn survives(place: Place, kills: usize) {
    let seed = seed();
    println!("SIGNALBOX_TEST_SEED={seed}");
    let mut dice = Dice(seed);
    let receipts = Receipts::start();
    for tool in [IDEMPOTENT, DEDUPLICATING, AT_MOST_ONCE] {
        // What must not be repeated takes longest, so that most kills find some of it under way.
        let longer = if tool == AT_MOST_ONCE { 100 } else { 0 };
        receipts.on(tool, Way { works_ms: 10 + dice.roll(30) + longer, ..Way::default() });
    }
    let mut station = Station::build(place, &receipts);
    let (moved, addr) = watch::channel(station.addr());
    let runs: Vec<Uuid> = (0..RUNS).map(|_| Uuid::now_v7()).collect();
    let gate = Arc::new(Semaphore::new(AT_ONCE));
    let submissions: Vec<_> = runs
        .iter()
        .map(|run| {
            let (run, addr, gate) = (*run, addr.clone(), gate.clone());
            tokio::spawn(async move {
                let _permit = gate.acquire_owned().await.unwrap();
                submit(run, addr).await;
            })
        })
        .collect();

    for kill in 1..=kills {
        // Only a node that is at work is worth killing: so many executions after it has taken up the runs again.
        let more = 40 + usize::try_from(dice.roll(80)).unwrap();
        receipts.executed(receipts.all_executions() + more).await;
        tokio::time::sleep(Duration::from_millis(dice.roll(60))).await;
        station.kill();
        println!("kill {kill} after {} executions", receipts.all_executions());
        station.start();
        moved.send_replace(station.addr());
    }
    for submission in submissions {
        submission.await.unwrap();
    }

    let decided = come_to_rest(&station).await;
    let mut client = station.client().await;
    let mut envelopes = Vec::with_capacity(RUNS);
    for run in &runs {
        envelopes.push(client.get(*run).await);
    }
    assert_eq!(client.runs().await.unwrap().len(), RUNS, "a run submitted again is the same run");
    verify_all(&station.addr(), &runs).await;
    let (meters, journals) = station.books(&runs).await;
    settled_once(&journals);
    let compared = compare(&envelopes, &receipts.read(), &meters);
    println!(
        "{} calls matched their receipts, {} idempotent ones were executed again; settled as unknown: {} ({} of them done), \
         decided: {decided:?}",
        compared.matched,
        compared.repeated,
        compared.unknown.len(),
        compared.unknown_but_done
    );
    println!("{:#?}", compared.unknown);
    assert_eq!(compared.unknown.len(), decided.values().sum::<usize>(), "each unknown outcome was somebody's decision");
}

/// Decides every question about an unknown outcome, one way after the other, until all runs are closed.
pub(crate) async fn come_to_rest(station: &Station) -> BTreeMap<&'static str, usize> {
    let ways =
        [("retry", ApprovalDecision::Approve), ("skip", ApprovalDecision::Skip), ("fail", ApprovalDecision::Reject)];
    let mut client = station.client().await;
    let mut decided = BTreeMap::new();
    let begun = Instant::now();
    loop {
        for question in client.questions().await {
            assert_eq!(question.reason, "unknown-call-outcome", "{question:?}");
            let (name, decision) = ways[decided.values().sum::<usize>() % ways.len()];
            client.decide(&question, decision).await.unwrap();
            *decided.entry(name).or_insert(0) += 1;
        }
        let open: Vec<_> = client.runs().await.unwrap().into_iter().filter(|run| !run.closed).collect();
        if open.is_empty() {
            return decided;
        }
        assert!(begun.elapsed() < PATIENCE, "{} runs did not come to rest: {:?}", open.len(), open.first());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

pub(crate) async fn verify_all(addr: &str, runs: &[Uuid]) {
    let gate = Arc::new(Semaphore::new(4));
    let checks: Vec<_> = runs
        .iter()
        .map(|run| {
            let (addr, run, gate) = (addr.to_owned(), run.to_string(), gate.clone());
            tokio::spawn(async move {
                let _permit = gate.acquire_owned().await.unwrap();
                let said =
                    tokio::task::spawn_blocking(move || command_at(&addr, &["verify", &run], None)).await.unwrap();
                assert_eq!(said.exit, 0, "{said:?}");
            })
        })
        .collect();
    for check in checks {
        check.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_plans_survive_a_node_that_keeps_dying_on_sqlite() {
    survives(Place::Sqlite, 5).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_plans_survive_a_node_that_keeps_dying_on_postgres() {
    survives(Place::Postgres(TemporaryDatabase::create().await), 3).await;
}
