//! The memory store keeps the promises every store keeps.

use std::sync::Arc;

use signalbox_ports::conformance::Fixture;
use signalbox_ports::memory::{ManualClock, MemoryStore};

async fn open_memory() -> Fixture {
    let clock = Arc::new(ManualClock::default());
    Fixture::over(Arc::new(MemoryStore::new(clock.clone())), clock, ())
}

signalbox_ports::store_conformance!(crate::open_memory);

/// A case that is written and not listed would be a promise nobody checks.
#[test]
fn every_case_of_the_suite_is_run() {
    let list = include_str!("../src/conformance/mod.rs");
    let modules = [
        include_str!("../src/conformance/acts.rs"),
        include_str!("../src/conformance/appends.rs"),
        include_str!("../src/conformance/asks.rs"),
        include_str!("../src/conformance/budgets.rs"),
        include_str!("../src/conformance/directory.rs"),
        include_str!("../src/conformance/governance.rs"),
        include_str!("../src/conformance/inbox.rs"),
        include_str!("../src/conformance/keys.rs"),
        include_str!("../src/conformance/leases.rs"),
        include_str!("../src/conformance/races.rs"),
        include_str!("../src/conformance/runs.rs"),
        include_str!("../src/conformance/sweeps.rs"),
        include_str!("../src/conformance/values.rs"),
    ];
    let lines = modules.iter().flat_map(|module| module.lines());
    for case in lines.filter_map(|line| line.strip_prefix("pub async fn ")?.split('(').next()) {
        assert!(list.contains(&format!("    {case},\n")), "`{case}` is not in the list of `store_conformance!`");
    }
}
