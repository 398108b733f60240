//! SQLite keeps the promises every store keeps.
#![allow(clippy::unwrap_used, reason = "a store that does not open fails the test")]

use std::sync::Arc;

use signalbox_ports::conformance::Fixture;
use signalbox_ports::memory::ManualClock;
use signalbox_store::{SqliteOptions, SqliteStore};

async fn open_sqlite() -> Fixture {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::default()));
    let options = SqliteOptions { clock: clock.clone(), ..SqliteOptions::default() };
    let store = SqliteStore::open(dir.path(), options).await.unwrap();
    Fixture::over(Arc::new(store), clock, dir)
}

signalbox_ports::store_conformance!(crate::open_sqlite);
