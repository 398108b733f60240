//! The rules of governance, catalog and registry, each promise by its name. One binary, so that it links once.

mod budgets;
mod catalog;
mod changes;
mod common;
mod grants;
mod kill_switches;
mod redaction;
mod registry;
mod throttles;
