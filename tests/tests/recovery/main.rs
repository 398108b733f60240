//! Recovery as an outsider sees it: the real binary, killed with SIGKILL, before an executor that keeps its own books.
//!
//! The books are the measure. What an executor has done and what the journals say it has done must be the same, call by
//! call and to the millionth, however often the node died in between; and nothing that must not happen twice did.

#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of tests fail it, and say the seed"
)]

mod books;
mod crowd;
mod job;
mod killed;
mod link;
mod receipts;
mod station;
