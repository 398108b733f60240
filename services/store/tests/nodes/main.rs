//! Whole nodes on real stores: what the store promises, seen from the runs that rest on it.
//!
//! The executors are counted, the clocks are real, and the stores are the ones that are shipped.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail the test")]

mod budgets;
#[path = "../database/mod.rs"]
mod database;
mod page_limit;
mod postgres_interruptions;
mod postgres_two_nodes;
mod station;
mod texts;
