//! The rules of a run: what may happen, what follows from it, and what a journal of it proves.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod advancing;
mod approvals;
mod approvers;
mod bindings;
mod branches;
mod calls;
mod charges;
mod controls;
mod dashboard;
mod endings;
mod explaining;
mod forks;
mod given;
mod gold_sets;
mod golden;
mod guards;
mod hashes;
mod ledger;
mod model_steps;
mod plans;
mod progress;
mod properties;
mod recovery;
mod replay;
mod rewinds;
mod statuses;
mod steps;
mod submissions;
mod sweeps;
mod verification;
mod whatifs;
