//! The database stumbles, restarts and goes away under load: the runs go on, and nothing is done or charged twice.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use signalbox_domain::ids::RunId;
use signalbox_domain::quantity::Micros;
use signalbox_domain::run::event::CallOutcome;
use signalbox_domain::run::status::RunStatus;
use signalbox_ports::memory::FakeTools;
use signalbox_store::{PostgresOptions, PostgresStore};

use crate::database::Database;
use crate::database::server::Server;
use crate::station::{Station, budget, chain, tool, tools};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_whose_commit_fails_to_serialize_and_then_deadlocks_is_kept_and_its_call_made_once() {
    let database = Database::create().await;
    let tools = tools();
    let station = Station::on_postgres(&database, PostgresOptions::default(), Arc::clone(&tools)).await;
    // A sequence counts although what counted is undone.
    database
        .execute(
            "CREATE SEQUENCE tries; \
             CREATE FUNCTION stumble() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE try bigint := nextval('tries'); BEGIN \
             IF try = 1 THEN RAISE EXCEPTION 'alpha' USING ERRCODE = '40001'; END IF; \
             IF try = 2 THEN RAISE EXCEPTION 'beta' USING ERRCODE = '40P01'; END IF; \
             RETURN NEW; END $$; \
             CREATE CONSTRAINT TRIGGER stumble AFTER INSERT ON run_events DEFERRABLE INITIALLY DEFERRED \
             FOR EACH ROW WHEN (NEW.kind = 'call-settled') EXECUTE FUNCTION stumble()",
        )
        .await;
    station.put(budget("acme", Micros::units(10))).await;
    let run = station.submit("acme", &chain(1)).await.unwrap();
    let envelope = station.closed("acme", run).await;
    assert_eq!(envelope.status, RunStatus::Completed);
    assert_eq!(envelope.tool_calls.iter().map(|call| &call.outcome).collect::<Vec<_>>(), [&CallOutcome::Ok]);
    assert_eq!((tools.count(&tool()), database.number("SELECT last_value FROM tries").await), (1, 3));
    assert_eq!(station.meter("acme").await.consumed, Micros::units(1));
}

/// Runs that are submitted one after the other until they are told to stop.
struct Load {
    station: Arc<Station>,
    runs: tokio::task::JoinHandle<Vec<RunId>>,
    stop: Arc<std::sync::atomic::AtomicBool>,
}

const CALLS_PER_RUN: usize = 3;

impl Load {
    fn on(station: Station) -> Self {
        station.tools.on(&tool(), async |_, _| {
            tokio::time::sleep(Duration::from_millis(10)).await;
            FakeTools::answered(json!({}))
        });
        let (station, stop) = (Arc::new(station), Arc::new(std::sync::atomic::AtomicBool::new(false)));
        let (submitting, stopped) = (Arc::clone(&station), Arc::clone(&stop));
        let runs = tokio::spawn(async move {
            let mut runs = Vec::new();
            while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
                // A store that is not there takes no run; whoever submits tries again.
                match submitting.submit("acme", &chain(CALLS_PER_RUN)).await {
                    Ok(run) => runs.push(run),
                    Err(error) => assert!(error.code().starts_with("store-"), "{error}"),
                }
                tokio::time::sleep(Duration::from_millis(25)).await;
            }
            runs
        });
        Self { station, runs, stop }
    }

    /// Waits until so many more calls have been made: work is under way.
    async fn goes_on(&self) {
        let (before, begun) = (self.station.tools.count(&tool()), Instant::now());
        while self.station.tools.count(&tool()) < before + 20 {
            assert!(begun.elapsed() < Duration::from_secs(20), "no call is made any more");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Every run ends well, with its journal whole, each call settled once, and the ledgers equal to the meter.
    async fn adds_up(self) {
        self.stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let runs = self.runs.await.unwrap();
        let (mut ledger, mut calls) = (Micros::ZERO, 0);
        for run in &runs {
            let envelope = self.station.closed("acme", *run).await;
            assert_eq!(envelope.status, RunStatus::Completed, "{:?}", envelope.end);
            ledger = ledger.plus(envelope.cost_ledger.total_cost_units);
            calls += envelope.tool_calls.len();
        }
        assert_eq!(calls, runs.len() * CALLS_PER_RUN);
        let meter = self.station.meter("acme").await;
        assert_eq!((meter.consumed, meter.reserved), (ledger, Micros::ZERO));
        assert_eq!(meter.consumed, Micros::units(i64::try_from(calls).unwrap()));
    }
}

/// Takes as long as the outages it is about.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_go_on_after_a_server_was_restarted_has_crashed_and_was_away() {
    let server = Server::start(&[]);
    let database = Database::create_on(&server.url()).await;
    let station = Station::on_postgres(&database, PostgresOptions::default(), tools()).await;
    station.put(budget("acme", Micros::units(1_000_000))).await;
    let load = Load::on(station);
    load.goes_on().await;
    for (mode, away) in [("fast", 0), ("immediate", 0), ("fast", 5)] {
        server.stop(mode);
        tokio::time::sleep(Duration::from_secs(away)).await;
        server.start_again(&[]);
        load.goes_on().await;
    }
    load.adds_up().await;
}

/// Takes as long as the outages it is about.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_one_connection_of_each_kind_runs_go_on_all_the_same() {
    let server = Server::start(&[]);
    let database = Database::create_on(&server.url()).await;
    let narrow = PostgresOptions { writers: 1, control: 1, readers: 1, clock: None };
    let station = Station::on_postgres(&database, narrow, tools()).await;
    station.put(budget("acme", Micros::units(1_000_000))).await;
    let load = Load::on(station);
    load.goes_on().await;
    for mode in ["immediate", "fast"] {
        server.stop(mode);
        server.start_again(&[]);
        load.goes_on().await;
    }
    load.adds_up().await;
}

#[tokio::test]
async fn a_server_that_would_lose_what_it_acknowledged_is_refused_and_synchronous_commit_need_not_be_on() {
    let server = Server::start(&["fsync=off"]);
    let refused = async || match PostgresStore::connect(&server.url(), PostgresOptions::default()).await {
        Ok(_) => panic!("the store opens"),
        Err(error) => error,
    };
    let error = refused().await;
    assert_eq!(error.code(), "store-not-durable");
    assert!(error.to_string().contains("fsync off"), "{error}");
    server.stop("fast");
    server.start_again(&["full_page_writes=off"]);
    assert_eq!(refused().await.code(), "store-not-durable");
    server.stop("fast");
    // Each transaction that writes turns it on for itself.
    server.start_again(&["synchronous_commit=off"]);
    PostgresStore::connect(&server.url(), PostgresOptions::default()).await.unwrap().close().await;
}
