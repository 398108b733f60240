//! The rules of governance, catalog and registry, each promise by its name. One binary, so that it links once.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot set up its case has failed")]

mod agents;
mod audit;
mod budgeting;
mod budgets;
mod catalog;
mod changes;
mod common;
mod egress;
mod executors;
mod gate;
mod granting;
mod grants;
mod handoffs;
mod identity;
mod invocations;
mod isolation;
mod kill_switches;
mod modes;
mod pipelines;
mod pipelines_observed;
mod pipelines_tightened;
mod queues;
mod readiness;
mod redaction;
mod redaction_cases;
mod registry;
mod rehearsals;
mod rollouts;
mod run_scopes;
mod schedules;
mod scrubbing;
mod switching;
mod throttles;
mod tones;
mod webhooks;
