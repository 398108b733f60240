//! A run is a journal: what may happen (`decide`), what happened (`event`), and what follows from it (`evolve`).

pub mod advance;
pub mod append;
pub mod approval;
pub mod approvers;
pub mod binding;
pub mod call;
pub mod chain;
pub mod control;
pub mod decide;
pub mod envelope;
pub mod event;
pub mod evolve;
pub mod explain;
pub mod ledger;
pub mod plan;
pub mod progress;
pub mod replay;
pub mod sealed;
pub mod settle;
pub mod standing;
pub mod status;
pub mod step;
pub mod submission;
pub mod sweep;
pub mod telling;
pub mod verify;
