//! The memory store keeps the promises every store keeps.

use std::sync::Arc;

use signalbox_ports::conformance::Fixture;
use signalbox_ports::memory::{ManualClock, MemoryStore};

async fn open_memory() -> Fixture {
    let clock = Arc::new(ManualClock::default());
    Fixture::over(Arc::new(MemoryStore::new(clock.clone())), clock, ())
}

signalbox_ports::store_conformance!(crate::open_memory);
