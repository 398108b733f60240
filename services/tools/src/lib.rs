//! The executor client, the executor server, and the bundled tools.
//!
//! Both ends of the `ToolExecutor` contract live here because they must agree on limits and on what each failure
//! means. The bundled tools are reached through the same gRPC service as anybody else's: there is no shorter way to a
//! tool than the client, and the client takes an admitted call or nothing.

pub mod briefing;
pub mod bundled;
pub mod client;
mod editorial;
mod folder;
mod guarded;
pub mod limits;
pub mod material;
mod modes;
mod page;
#[cfg(test)]
mod pipelines;
pub mod serve;
pub mod server;
pub mod sky;
mod study;
pub mod tool;
pub mod webhook;
pub mod week;

#[cfg(test)]
mod serve_tests;
mod wire;

pub use client::ExecutorClient;
pub use serve::serve;
pub use server::ToolServer;
