//! No overspend and no lost reservation, from the run that asks to the meter in the store (I3, I4).

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use signalbox_domain::quantity::Micros;
use signalbox_domain::run::decide::RunCommand;
use signalbox_domain::run::event::CallOutcome;
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::run::step::{CallEnding, CallResult};
use signalbox_ports::memory::FakeTools;
use signalbox_store::PostgresOptions;

use crate::database::Database;
use crate::station::{Station, budget, caller, chain, tool, tools};

const RUNS: usize = 20;

fn slow(tools: &FakeTools) {
    tools.on(&tool(), async |_, _| {
        tokio::time::sleep(Duration::from_millis(50)).await;
        FakeTools::answered(json!({}))
    });
}

/// Twenty runs of one call each, on a budget for three and a third of them.
async fn three_of_twenty_run(stations: &[Station], tenant: &str) {
    stations[0].put(budget(tenant, Micros(3_333_333))).await;
    let before: usize = stations.iter().map(|station| station.tools.count(&tool())).sum();
    let submitted = (0..RUNS).map(|number| {
        let station = &stations[number % stations.len()];
        async move { (station, station.submit(tenant, &chain(1)).await.unwrap()) }
    });
    let mut completed = 0;
    for (station, run) in futures::future::join_all(submitted).await {
        let envelope = station.closed(tenant, run).await;
        if envelope.status == RunStatus::Completed {
            completed += 1;
        } else {
            assert_eq!(envelope.status, RunStatus::Killed);
            assert_eq!(envelope.end.unwrap().blamed_id.as_deref(), Some(tenant));
        }
    }
    let called: usize = stations.iter().map(|station| station.tools.count(&tool())).sum();
    assert_eq!((completed, called - before), (3, 3));
    let meter = stations[0].meter(tenant).await;
    assert_eq!((meter.consumed, meter.reserved), (Micros::units(3), Micros::ZERO));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_twenty_runs_at_once_three_can_be_paid_for_on_sqlite() {
    let (dir, tools) = (tempfile::tempdir().unwrap(), tools());
    slow(&tools);
    let stations = [Station::on_sqlite(dir.path(), tools).await];
    for round in 0..5 {
        three_of_twenty_run(&stations, &format!("round-{round}")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_twenty_runs_at_once_on_two_nodes_of_one_postgres_three_can_be_paid_for() {
    let database = Database::create().await;
    let mut stations = Vec::new();
    for _ in 0..2 {
        let tools = tools();
        slow(&tools);
        stations.push(Station::on_postgres(&database, PostgresOptions::default(), tools).await);
    }
    for round in 0..5 {
        three_of_twenty_run(&stations, &format!("round-{round}")).await;
    }
}

/// How a call can fail, and what it is charged for it.
fn failures() -> Vec<(&'static str, CallEnding, i64)> {
    let (code, message) = (String::from, String::from);
    vec![
        // Nothing was sent, so nothing is charged; the step asks again until it has had enough.
        (
            "connect refused",
            CallEnding::NotStarted { code: code("executor-unreachable"), message: message("connection refused") },
            0,
        ),
        ("5xx", CallEnding::Failed { code: code("tool-http-503"), message: message("unavailable") }, 1),
        ("timeout", CallEnding::Failed { code: code("tool-timeout"), message: message("no answer in time") }, 1),
        ("cancelled", CallEnding::Cancelled, 1),
    ]
}

async fn every_failure_gives_its_reservation_back(station: Station, database: Option<&Database>) {
    for (class, ending, charged) in failures() {
        let tenant = class.replace(' ', "-");
        station.put(budget(&tenant, Micros::units(3))).await;
        // The first call fails; whatever asks after it is answered well.
        station.tools.script(&tool(), [CallResult { ending, measured: None, latency_ms: 1 }]);
        let run = station.submit(&tenant, &chain(1)).await.unwrap();
        station.closed(&tenant, run).await;
        let meter = station.meter(&tenant).await;
        assert_eq!(meter.reserved, Micros::ZERO, "{class}");
        // A call that was not started is made again and then paid for.
        let made_again = i64::from(charged == 0);
        assert_eq!(meter.consumed, Micros::units(charged + made_again), "{class}");
        let run = station.submit(&tenant, &chain(1)).await.unwrap();
        assert_eq!(station.closed(&tenant, run).await.status, RunStatus::Completed, "after {class}");
    }
    a_panic_gives_its_reservation_back(&station).await;
    a_cancelled_run_gives_its_reservation_back(&station).await;
    a_crash_gives_its_reservation_back(station, database).await;
}

async fn a_panic_gives_its_reservation_back(station: &Station) {
    station.put(budget("panic", Micros::units(20))).await;
    station.tools.on(&tool(), async |order, _| {
        assert!(order.attempt > 1, "a drill: the client of the executor panics");
        FakeTools::answered(json!({}))
    });
    let run = station.submit("panic", &chain(1)).await.unwrap();
    assert_eq!(station.closed("panic", run).await.status, RunStatus::Completed);
    let meter = station.meter("panic").await;
    assert_eq!((meter.consumed, meter.reserved), (Micros::units(1), Micros::ZERO));
}

async fn a_cancelled_run_gives_its_reservation_back(station: &Station) {
    station.put(budget("cancel", Micros::units(2))).await;
    station.tools.hang(&tool());
    let run = station.submit("cancel", &chain(1)).await.unwrap();
    station.until("cancel", run, |run| run.open_calls().count() == 1).await;
    assert_eq!(station.meter("cancel").await.reserved, Micros::units(1));
    let cancel = RunCommand::Cancel { reason: "a drill".to_owned() };
    let id = signalbox_domain::ids::CommandId::new(uuid::Uuid::now_v7());
    station.node.command(&caller("cancel"), run, id, cancel).await.unwrap();
    let envelope = station.closed("cancel", run).await;
    assert_eq!((envelope.status, &envelope.tool_calls[0].outcome), (RunStatus::Cancelled, &CallOutcome::Killed));
    assert_eq!(station.meter("cancel").await.reserved, Micros::ZERO);
}

async fn a_crash_gives_its_reservation_back(station: Station, database: Option<&Database>) {
    station.put(budget("crash", Micros::units(2))).await;
    station.tools.hang(&tool());
    let run = station.submit("crash", &chain(1)).await.unwrap();
    station.until("crash", run, |run| run.open_calls().count() == 1).await;
    assert_eq!(station.meter("crash").await.reserved, Micros::units(1), "held while it is out");
    station.tools.on(&tool(), async |_, _| FakeTools::answered(json!({})));
    let station = station.crash(database).await;
    let envelope = station.closed("crash", run).await;
    assert_eq!((envelope.status, envelope.tool_calls.len()), (RunStatus::Completed, 1));
    let meter = station.meter("crash").await;
    assert_eq!((meter.consumed, meter.reserved), (Micros::units(1), Micros::ZERO), "and settled once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_becomes_of_a_call_nothing_stays_reserved_on_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    every_failure_gives_its_reservation_back(Station::on_sqlite(dir.path(), tools()).await, None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_becomes_of_a_call_nothing_stays_reserved_on_postgres() {
    let database = Database::create().await;
    let station = Station::on_postgres(&database, PostgresOptions::default(), tools()).await;
    every_failure_gives_its_reservation_back(station, Some(&database)).await;
}

/// Calls that never began leave all there is to the one that does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_were_not_begun_do_not_use_up_a_budget() {
    let (dir, tools) = (tempfile::tempdir().unwrap(), tools());
    let station = Station::on_sqlite(dir.path(), Arc::clone(&tools)).await;
    station.put(budget("acme", Micros::units(1))).await;
    let refused = || CallEnding::NotStarted { code: "executor-unreachable".into(), message: "refused".into() };
    tools.script(&tool(), (0..3).map(|_| CallResult { ending: refused(), measured: None, latency_ms: 1 }));
    let run = station.submit("acme", &chain(1)).await.unwrap();
    let envelope = station.closed("acme", run).await;
    assert_eq!((envelope.status, tools.count(&tool())), (RunStatus::Completed, 4));
    let meter = station.meter("acme").await;
    assert_eq!((meter.consumed, meter.reserved), (Micros::units(1), Micros::ZERO));
}
