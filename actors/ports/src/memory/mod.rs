//! In-memory implementations of the ports, for tests and simulations.
//!
//! [`MemoryStore`] passes the same conformance suite as the databases, so that what is tested on it stands on firm
//! ground. The clocks and ids here move only when a test says so.

mod blobs;
mod clock;
mod models;
mod secrets;
mod store;
mod tools;

pub use blobs::MemoryBlobs;
pub use clock::{ManualClock, SequentialIds};
pub use models::FakeModels;
pub use secrets::{FakeSeal, MemorySecrets};
pub use store::{Backup, MemoryStore};
pub use tools::FakeTools;
