//! A node on a disk that is full: nothing half-written, runs that hold, and everything goes on when there is room.
//!
//! One test, since the limit on the size of files is the whole process's.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail the test")]

#[path = "../database/mod.rs"]
mod database;
mod disk;
#[path = "../nodes/station.rs"]
mod station;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::json;
use signalbox_domain::canonical::sha256_hex;
use signalbox_domain::ids::TenantId;
use signalbox_domain::quantity::Micros;
use signalbox_domain::run::status::RunStatus;
use signalbox_ports::blobs::Blobs;
use signalbox_ports::conformance::world::new_run;
use signalbox_ports::leases::LEASE_MS;
use signalbox_ports::memory::FakeTools;
use signalbox_store::{FileBlobs, SqliteOptions, SqliteStore};

use disk::Disk;
use station::{Station, budget, chain, tool, tools};

const RUNS: usize = 6;
const CALLS_PER_RUN: usize = 12;
const LONGER_THAN_A_LEASE: Duration = Duration::from_millis(LEASE_MS + 1_000);

/// Every other output is too big for the journal and goes to the object store.
fn talkative(tools: &FakeTools) {
    tools.on(&tool(), async |order, _| {
        tokio::time::sleep(Duration::from_millis(40)).await;
        let letters = if order.step_id.as_str().ends_with(['0', '2', '4', '6', '8']) { 20_000 } else { 4_000 };
        FakeTools::answered(json!({ "text": order.call_id.to_string().repeat(letters / 36) }))
    });
}

async fn a_node_on_a_full_disk(disk: &Disk, full_for: Duration) {
    let store = Arc::new(SqliteStore::open(disk.path(), SqliteOptions::default()).await.unwrap());
    let blobs = Arc::new(FileBlobs::open(disk.path()).unwrap());
    let tools = tools();
    talkative(&tools);
    let station = Station::over(Arc::clone(&store), blobs.clone(), Arc::clone(&tools)).await;
    station.put(budget("acme", Micros::units(1_000_000))).await;
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        runs.push(station.submit("acme", &chain(CALLS_PER_RUN)).await.unwrap());
    }
    tools.begun(RUNS * 2).await;

    disk.fill();
    let error = station.submit("acme", &chain(1)).await.unwrap_err();
    assert_eq!(error.code(), "store-unavailable", "{error}");
    assert!(error.to_string().contains("room"), "it says what to do: {error}");
    // Whatever is out comes home and waits; nothing new begins.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (called, held) = (tools.calls().len(), Instant::now());
    while held.elapsed() < full_for {
        let refused = station.ports.journal.create(new_run("globex", 1)).await.unwrap_err();
        assert_eq!(refused.code(), "store-unavailable", "{refused}");
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    assert_eq!(tools.calls().len(), called, "no call is begun that could not be written down");
    assert!(called < RUNS * CALLS_PER_RUN, "the disk was full before the work was done");
    for run in &runs {
        let now = station.until("acme", *run, |_| true).await;
        assert!(now.end.is_none(), "a full disk ends no run: {:?}", now.end);
    }
    nothing_is_left_of_a_value_that_did_not_fit(disk, blobs.as_ref()).await;
    a_store_that_cannot_be_made_is_reported(disk).await;

    disk.make_room();
    for run in &runs {
        assert_eq!(station.closed("acme", *run).await.status, RunStatus::Completed);
    }
    let all = RUNS * CALLS_PER_RUN;
    assert_eq!(tools.calls().len(), all, "no call was made twice");
    let meter = station.meter("acme").await;
    assert_eq!((meter.consumed, meter.reserved), (Micros::units(i64::try_from(all).unwrap()), Micros::ZERO));
    assert!(station.ports.journal.create(new_run("globex", 1)).await.is_ok());
    for (file, bytes) in disk.files("blobs") {
        assert_eq!(file.file_name().unwrap().to_str(), Some(sha256_hex(&bytes).as_str()), "whole, or not there");
    }
    station.node.abandon().await;
    store.close().await;
}

/// Small files still fit where only their size is limited.
async fn a_store_that_cannot_be_made_is_reported(disk: &Disk) {
    if let Disk::Mounted(dir) = disk {
        match SqliteStore::open(&dir.path().join("another"), SqliteOptions::default()).await {
            Ok(_) => panic!("the store opens"),
            Err(error) => assert_eq!(error.code(), "store-unavailable", "{error}"),
        }
    }
}

async fn nothing_is_left_of_a_value_that_did_not_fit(disk: &Disk, blobs: &FileBlobs) {
    let before = disk.files("blobs").len();
    let big = Bytes::from(vec![7; 16 * 1_024 * 1_024]);
    let refused = blobs.put(&TenantId::new("globex").unwrap(), big.clone()).await.unwrap_err();
    assert_eq!(refused.code(), "store-unavailable", "{refused}");
    assert_eq!(disk.files("blobs").len(), before);
    assert_eq!(blobs.get(&TenantId::new("globex").unwrap(), &sha256_hex(&big)).await.unwrap(), None);
}

/// Takes as long as a lease lasts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_full_disk_runs_hold_and_go_on_when_there_is_room() {
    // Where mounting is not allowed the limit on the size of files is the one real way there is; else it is the second.
    let mut full_for = LONGER_THAN_A_LEASE;
    if let Some(disk) = Disk::mounted() {
        a_node_on_a_full_disk(&disk, full_for).await;
        full_for = Duration::from_secs(1);
    }
    a_node_on_a_full_disk(&Disk::limited(), full_for).await;
}
