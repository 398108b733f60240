//! What an operator measures about a node.
//!
//! Counting happens in front of the ports: a [journal](Metrics::journal) and [tools](Metrics::tools) that count and hand on.
//! So the rules and the actors know nothing of it, and what is counted is what was written, not what was meant to be.
//!
//! The same is told span by span to whoever [collects traces](Traces), if somebody does.
//!
//! No metric says anything about a tenant, a run or an argument: labels are tools, codes and outcomes, all of them from
//! short closed lists. So the [listener](serve) needs no identity, and its answers stay small however much is done.

mod journal;
mod metrics;
mod ops;
mod tools;
mod traces;

pub use metrics::{Metrics, Standing, Watched};
pub use ops::{OpsError, serve};
pub use traces::{Traces, TracesError};
