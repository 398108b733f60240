//! The edges: gRPC with health and reflection, and HTTP/JSON on the same port.
//!
//! What comes in is read strictly and identified by its credential alone; what goes out is filtered by what the caller
//! may see. The edge decides nothing about runs: it asks a node through [`api::RunApi`].

pub mod api;
mod asks;
mod convert;
mod dashboard;
pub mod errors;
mod feedback;
mod governing;
mod health;
mod http;
pub mod identity;
mod listing;
mod page;
mod pipelines;
mod rates;
mod registry;
mod schedules;
mod serve;
mod service;
mod traced;
mod transport;
mod validate;
mod watch;
mod webhooks;

pub use rates::{RateError, RequestRate};
pub use serve::{ANSWER_BYTES_MAX, Edge, MESSAGE_BYTES_MAX, ServeError, ServeLimits, bind, bind_identified, serve};
pub use validate::{PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX};
pub use watch::WatchLimits;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod fake_feedback;
#[cfg(test)]
mod fake_governance;
#[cfg(test)]
mod fake_pipelines;
#[cfg(test)]
mod tests;
