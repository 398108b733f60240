//! The rules every tool call passes: switches, grants, isolation, budgets, throttles, and the gate that asks them all.

pub mod address;
pub mod audit;
pub mod bounds;
pub mod budget;
pub mod budgeting;
pub mod calendar;
pub mod cascade;
pub mod change;
mod cost;
pub mod egress;
pub mod gate;
pub mod grant;
pub mod granting;
pub mod isolation;
pub mod kill_switch;
pub mod nearest;
pub mod queue;
pub mod switching;
pub mod target;
pub mod throttle;
pub mod throttling;
pub mod verdict;
