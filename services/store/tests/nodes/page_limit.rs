//! A database that has grown to its limit is a full disk: runs hold, and go on under a higher limit.

use std::time::{Duration, Instant};

use serde_json::json;
use signalbox_domain::quantity::Micros;
use signalbox_domain::run::status::RunStatus;
use signalbox_ports::memory::FakeTools;
use signalbox_store::SqliteOptions;

use crate::station::{Station, budget, chain, tool, tools};

const CALLS: usize = 40;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_whose_store_has_reached_its_limit_holds_and_goes_on_under_a_higher_one() {
    let (dir, tools) = (tempfile::tempdir().unwrap(), tools());
    tools.on(&tool(), async |_, _| FakeTools::answered(json!({ "text": "x".repeat(15_000) })));
    let narrow = SqliteOptions { bytes_max: Some(500 * 1_024), ..SqliteOptions::default() };
    let station = Station::on_sqlite_with(dir.path(), narrow, tools).await;
    station.put(budget("acme", Micros::units(1_000_000))).await;
    let run = station.submit("acme", &chain(CALLS)).await.unwrap();
    let begun = Instant::now();
    let error = loop {
        // Another run finds no room either, sooner or later.
        match station.submit("other", &chain(1)).await {
            Ok(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            Err(error) => break error,
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "it is full some time");
    };
    assert_eq!(error.code(), "store-unavailable", "{error}");
    assert!(error.to_string().contains("storeBytesMax"), "it says what to do: {error}");
    tokio::time::sleep(Duration::from_millis(500)).await;
    let made = station.tools.count(&tool());
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(station.tools.count(&tool()), made, "no call is begun that could not be written down");
    assert!(station.until("acme", run, |_| true).await.end.is_none());

    // Opened again without the limit, as an operator does.
    let station = station.crash(None).await;
    let envelope = station.closed("acme", run).await;
    assert_eq!((envelope.status, envelope.tool_calls.len()), (RunStatus::Completed, CALLS));
    let meter = station.meter("acme").await;
    assert_eq!((meter.consumed, meter.reserved), (Micros::units(CALLS as i64), Micros::ZERO));
}
