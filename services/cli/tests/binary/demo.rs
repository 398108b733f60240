//! `demo`: from a folder of sources to a pack, through its gate, across restarts.

use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use crate::harness::{Said, put, run, signalbox};

struct Desk {
    sources: TempDir,
    data: TempDir,
}

impl Desk {
    fn new() -> Self {
        let desk = Self { sources: TempDir::new().unwrap(), data: TempDir::new().unwrap() };
        put(
            desk.sources.path(),
            "railway.md",
            "---\ntitle: New railway opens\ndate: 2026-11-20\n---\n\n# New railway opens\n\nThe railway between Aston and \
             Belford opened on 20 November 2026. It cost 140 million euros. The line is 45 kilometres long.\n",
        );
        put(
            desk.sources.path(),
            "costs.html",
            "<html><head><title>Railway costs</title></head><body><h1>Railway costs</h1><p>The railway between Aston \
             and Belford cost 180 million euros, the ministry said on Monday.</p></body></html>",
        );
        desk
    }

    fn demo(&self, more: &[&str]) -> Said {
        let mut command = signalbox();
        command.args(["demo", "--output", "json", "--sources"]).arg(self.sources.path());
        run(command.arg("--data").arg(self.data.path()).args(more))
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

#[test]
fn the_demo_stops_at_its_gate_and_the_same_run_ends_well_once_it_is_approved() {
    let desk = Desk::new();
    let first = desk.demo(&[]);
    assert_eq!((first.exit, first.code()), (3, "waiting-for-decision"), "{first:?}");
    assert!(first.err.contains("make run APPROVE=1") && first.err.contains("signalbox approvals decide"));
    assert_eq!(text(&first.json()["status"]), "awaiting_approval");

    let second = desk.demo(&["--approve"]);
    assert_eq!(second.exit, 0, "{second:?}");
    let report = second.json();
    assert_eq!(report["runId"], first.json()["runId"], "the unfinished run goes on");
    assert_eq!(text(&report["status"]), "completed");
    assert!(report["costUnits"].as_f64().unwrap() > 0.0 && report["calls"].as_u64().unwrap() >= 8);
    for file in ["markdown", "html", "json"] {
        let path = Path::new(text(&report["pack"][file]));
        assert!(path.is_absolute() && std::fs::metadata(path).unwrap().len() > 0, "{}", path.display());
    }
    assert_eq!(report["skipped"].as_array().unwrap().len(), 2, "audio and cover have no provider");

    let third = desk.demo(&["--approve"]).json();
    assert_ne!(third["runId"], report["runId"], "a finished run is not gone on with");
}

#[test]
fn a_fresh_run_takes_the_place_of_the_unfinished_one() {
    let desk = Desk::new();
    let first = desk.demo(&[]).json();
    let second = desk.demo(&["--fresh", "--approve"]);
    assert_eq!(second.exit, 0, "{second:?}");
    assert_ne!(second.json()["runId"], first["runId"]);
}

#[test]
fn another_day_is_another_run() {
    let desk = Desk::new();
    let first = desk.demo(&[]).json();
    let other = desk.demo(&["--since", "2026-11-01"]).json();
    assert_ne!(first["runId"], other["runId"]);
    assert_eq!(desk.demo(&[]).json()["runId"], first["runId"]);
}

#[test]
fn sources_that_hold_nothing_are_a_usage_error_and_leave_no_trace() {
    let desk = Desk { sources: TempDir::new().unwrap(), data: TempDir::new().unwrap() };
    put(desk.sources.path(), "picture.png", "x");
    let said = desk.demo(&[]);
    assert_eq!((said.exit, said.code()), (2, "sources-empty"));
    assert_eq!(std::fs::read_dir(desk.data.path()).unwrap().count(), 0);
}

#[test]
fn a_data_folder_that_cannot_be_written_is_an_error_with_its_code() {
    let desk = Desk::new();
    put(desk.data.path(), "file", "not a folder");
    let mut command = signalbox();
    command.args(["demo", "--sources"]).arg(desk.sources.path()).arg("--data").arg(desk.data.path().join("file"));
    let said = run(&mut command);
    assert_eq!((said.exit, said.code()), (1, "store-unavailable"), "{said:?}");
}
