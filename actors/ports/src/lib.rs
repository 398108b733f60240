//! The traits through which the actors reach the world, their in-memory versions and conformance suites.
//!
//! Nothing here knows a vendor. Each trait is as small as its users need it.

/// Memory that is wiped when it is dropped; part of what these traits promise.
pub use zeroize;

pub mod acts;
pub mod blobs;
pub mod bus;
pub mod clock;
pub mod directory;
pub mod feedback;
pub mod governance;
pub mod inbox;
pub mod journal;
pub mod keys;
pub mod leases;
pub mod maintenance;
pub mod models;
pub mod schedules;
pub mod sealing;
pub mod secrets;
pub mod tools;
pub mod trace;
pub mod webhooks;

#[cfg(feature = "memory")]
pub mod memory;

#[cfg(feature = "conformance")]
pub mod conformance;
