//! The bus by Redis, on real ones that are stopped, emptied, cut off and spoken to by others.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests fail the test")]

mod proxy;
mod redis_conformance;
mod redis_faults;
mod server;
