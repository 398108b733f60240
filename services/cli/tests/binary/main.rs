//! The binary as scripts see it: commands, JSON, exit codes and the form of errors, over real processes.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail the test")]

mod agents;
mod approvals;
mod checkup;
mod controls;
mod demo;
mod dry_runs;
mod explaining;
mod foreign;
mod grants;
mod handoffs;
mod harness;
mod http;
mod identity;
mod listing;
mod model_steps;
mod pipelines;
mod pleasant;
mod postgres_approvals;
mod postgres_bus;
mod postgres_kill_faults;
mod postgres_nodes;
mod postgres_schedules;
mod postgres_webhooks;
mod receiver;
mod rehearsing;
mod rollouts;
mod rules;
mod rules_of_agents;
mod rust_client;
mod schedules;
mod secrets;
mod serving;
mod store_tools;
mod switches;
mod tls;
mod traces;
mod watched;
mod webhooks;
mod whatif;
