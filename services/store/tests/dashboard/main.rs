//! The dashboard over very many runs: what a page costs, and how often a run writes its row.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of tests fail the test, and tell what they measured"
)]

#[path = "../database/mod.rs"]
mod database;
mod large;
mod rows_written;
#[path = "../nodes/station.rs"]
mod station;
