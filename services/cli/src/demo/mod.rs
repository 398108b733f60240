//! The demonstration: a briefing pack out of whatever sources are at hand, as a governed run on this machine.

pub(crate) mod board;
pub(crate) mod broker;
pub(crate) mod facts;
pub(crate) mod gate;
pub(crate) mod progress;
pub(crate) mod report;
pub(crate) mod sources;
