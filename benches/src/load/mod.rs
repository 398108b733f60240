//! The load generator: a node, an executor that does nothing, and runs that call it over the public API.
//!
//! Each part is a process of its own, so that its CPU time can be told apart: the node (`signalbox serve`), the executor
//! and, for PostgreSQL, the server's processes. What drives them is not counted. [`bare`] is the same loop without any
//! governance, to divide by.

pub mod bare;
pub mod contender;
pub mod cost;
pub mod crash;
pub mod drive;
pub mod executor;
pub mod figures;
pub mod measure;
pub mod node;
pub mod options;
pub mod park;
pub mod switch;
pub mod tool;

/// Anything that keeps a measurement from being one; it ends the program.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;
