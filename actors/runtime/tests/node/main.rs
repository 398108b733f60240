//! A node on in-memory ports: what a run does, end to end, with time that stands still until everybody waits.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod agents;
mod approvals;
mod beside;
mod control;
mod dashboard;
mod elsewhere;
mod forks;
mod governance;
mod governing;
mod granting;
mod handoffs;
mod harness;
mod hostile;
mod leases;
mod model_steps;
mod opening;
mod parking;
mod pipelines;
mod plans;
mod preflights;
mod recovery;
mod recovery_late;
mod recovery_points;
mod rehearsing;
mod rollback;
mod rollouts;
mod schedules;
mod sealed;
mod secrets;
mod submission;
mod supervision;
mod sweeping;
mod throttling;
mod watchers;
