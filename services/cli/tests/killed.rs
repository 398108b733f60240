//! The demo, killed with SIGKILL after each of its appends and started again: nothing settled is done twice, and the pack
//! is the same to the byte (I3, I9).

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use signalbox_domain::dashboard::DashboardFilter;
use signalbox_domain::ids::TenantId;
use signalbox_domain::run::chain::StoredEvent;
use signalbox_domain::run::event::{CallOutcome, RunEvent};
use signalbox_domain::run::verify::verify;
use signalbox_domain::time::UnixMicros;
use signalbox_ports::clock::SystemClock;
use signalbox_ports::directory::{Directory, Scope};
use signalbox_ports::journal::Journal;
use signalbox_store::{Probe, SqliteOptions, SqliteStore};

/// Longest a demo may take, killed or not.
const PATIENCE: Duration = Duration::from_secs(120);
fn samples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../samples/weekly")
}

fn demo(data: &Path) -> Child {
    Command::new(env!("CARGO_BIN_EXE_signalbox"))
        .args(["demo", "--approve", "--output", "json", "--sources"])
        .arg(samples())
        .arg("--data")
        .arg(data)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn finish(mut child: Child) {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success(), "the demo ended with {status}");
            return;
        }
        if begun.elapsed() > PATIENCE {
            let _ = child.kill();
            panic!("the demo did not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Kills the demo as soon as its journal holds this many events; `false` if it ended before that.
async fn kill_at(mut child: Child, data: &Path, events: u64) -> bool {
    let begun = Instant::now();
    let mut probe = None;
    while child.try_wait().unwrap().is_none() {
        match &mut probe {
            None => probe = Probe::open(data).await,
            Some(open) => {
                if open.events().await >= events {
                    child.kill().unwrap();
                    child.wait().unwrap();
                    return true;
                }
            }
        }
        assert!(begun.elapsed() < PATIENCE, "the demo did not end");
    }
    false
}

fn pack(data: &Path) -> BTreeMap<String, String> {
    let folders = std::fs::read_dir(data.join("packs")).unwrap().map(|entry| entry.unwrap());
    // Beside the packs lies a hidden folder that remembers whose they are.
    let packs: Vec<_> =
        folders.filter(|f| !f.file_name().as_encoded_bytes().starts_with(b".")).map(|f| f.path()).collect();
    // A kill may have come after the run was over: the next demo is then another run, with a pack of its own.
    let hashes: BTreeSet<BTreeMap<String, String>> = packs.iter().map(|folder| hashes(folder)).collect();
    assert_eq!(hashes.len(), 1, "every pack is the same");
    hashes.into_iter().next().unwrap()
}

fn hashes(folder: &Path) -> BTreeMap<String, String> {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files
        .map(|file| {
            let digest = Sha256::digest(std::fs::read(&file).unwrap());
            let name = file.file_name().unwrap().to_string_lossy().into_owned();
            (name, signalbox_domain::canonical::hex(&digest))
        })
        .collect()
}

/// Every run's journal, oldest run first.
async fn journals(data: &Path) -> Vec<(signalbox_domain::ids::RunKey, Vec<StoredEvent>)> {
    let options = SqliteOptions { clock: Arc::new(SystemClock), ..SqliteOptions::default() };
    let store = SqliteStore::open(data, options).await.unwrap();
    let own = Scope::Tenant(TenantId::new("default").unwrap());
    let rows = store.runs(&own, &DashboardFilter::default(), UnixMicros(0)).await.unwrap().rows;
    let mut journals = Vec::new();
    for row in rows.iter().rev() {
        journals.push((row.run_key, store.read(row.run_key, 0, 1_000).await.unwrap()));
    }
    store.close().await;
    journals
}

fn settled(events: &[StoredEvent]) -> usize {
    events.iter().filter(|event| event.kind == "call-settled").count()
}

/// A whole journal, in which no call that was settled was ever sent again and each call was charged once.
fn check(key: signalbox_domain::ids::RunKey, events: &[StoredEvent]) {
    let report = verify(&TenantId::new("default").unwrap(), key, events);
    assert!(report.ok && report.open_calls.is_empty(), "{:#?}", report.findings);
    let mut steps_done: BTreeMap<String, usize> = BTreeMap::new();
    let mut step_of = BTreeMap::new();
    for event in events.iter().filter_map(StoredEvent::event) {
        if let RunEvent::CallPending(pending) = &event {
            step_of.insert(pending.call_id, pending.step_id.to_string());
        }
        if let RunEvent::CallSettled(settled) = &event
            && settled.outcome == CallOutcome::Ok
        {
            *steps_done.entry(step_of[&settled.call_id].clone()).or_default() += 1;
        }
    }
    assert!(steps_done.values().all(|times| *times == 1), "{steps_done:?}");
}

#[test]
fn killed_at_every_position_of_its_journal_the_demo_goes_on_to_the_same_pack() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let whole = tempfile::tempdir().unwrap();
    finish(demo(whole.path()));
    let expected = pack(whole.path());
    assert_eq!(expected.keys().collect::<Vec<_>>(), ["briefing.html", "briefing.json", "briefing.md"]);
    let (_, uninterrupted) = runtime.block_on(journals(whole.path())).remove(0);
    let calls = settled(&uninterrupted);

    let mut positions = BTreeSet::new();
    for next in 1..=uninterrupted.len() as u64 {
        let data = tempfile::tempdir().unwrap();
        if !runtime.block_on(kill_at(demo(data.path()), data.path(), next)) {
            // It was over before the kill: the last events come with the end.
            continue;
        }
        let before = runtime.block_on(journals(data.path()));
        positions.insert(before[0].1.len());
        finish(demo(data.path()));
        assert_eq!(pack(data.path()), expected, "killed at event {next}");
        for (key, events) in runtime.block_on(journals(data.path())) {
            check(key, &events);
            assert_eq!(settled(&events), calls, "each call was charged once");
        }
    }
    println!("killed at events {positions:?} of {}", uninterrupted.len());
    // Events are appended several at a time and a kill takes a moment, so some positions are never stopped at; but the
    // kills must have hit the run all along its way.
    let stops: Vec<usize> = std::iter::once(0).chain(positions).collect();
    assert!(stops.len() > 12 && stops.windows(2).all(|pair| pair[1] - pair[0] <= 9), "{stops:?}");
}
