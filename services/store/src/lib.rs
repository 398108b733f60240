//! The journal on SQLite, and blobs in an object store.
//!
//! [`SqliteStore`] keeps every store port in one database file of one data directory. What may be written is decided by
//! `signalbox_domain::run::append::judge`, the same function the memory store uses; this crate loads the rows it is
//! decided on and saves what comes back, in one transaction. Deliberately absent: any rule of its own.

mod blobs;
mod sqlite;

pub use blobs::FileBlobs;
pub use sqlite::{OpenError, Probe, SqliteOptions, SqliteStore};
