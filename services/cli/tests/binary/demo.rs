//! `demo`: from a folder of sources to a pack, through its gate, across restarts.

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
