//! The rules of signalbox: pure functions without I/O, clock, randomness or async.
//!
//! Time, ids and snapshots come in as arguments; what should happen goes out as values. Everything here can be
//! called from a test, a simulation or an auditor's laptop with the same answer as in production.

pub mod canonical;
pub mod catalog;
pub mod dashboard;
pub mod feedback;
pub mod governance;
pub mod handoff;
pub mod identity;
pub mod ids;
pub mod invocation;
pub mod json;
pub mod mode;
pub mod pipeline;
pub mod quantity;
pub mod redact;
pub mod registry;
pub mod run;
pub mod time;
pub mod webhook;
