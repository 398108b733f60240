//! The journal on SQLite and on PostgreSQL, and blobs in an object store, sealed where they must be.
//!
//! [`SqliteStore`] keeps every store port in one database file of one data directory; [`PostgresStore`] keeps them in a
//! PostgreSQL that any number of nodes share. What may be written is decided by `signalbox_domain::run::append::judge`, the
//! same function the memory store uses; this crate loads the rows it is decided on and saves what comes back, in one
//! transaction. Deliberately absent: any rule of its own.

mod acts;
mod batch;
mod blobs;
mod cells;
mod dashboard;
mod feedback;
mod governance;
mod inspect;
mod keys;
mod open_error;
mod postgres;
mod rows;
mod schedules;
mod sealing;
mod sqlite;
#[cfg(feature = "testing")]
pub mod testing;
mod webhooks;

pub use blobs::FileBlobs;
pub use inspect::{Durability, StoreFacts, inspect_postgres, inspect_sqlite};
pub use open_error::{OpenError, SCHEMA_VERSION};
pub use postgres::{PostgresOptions, PostgresStore};
pub use sealing::{KeyError, KeyRing, SEALING_KEY_BYTES, fresh_sealing_key};
pub use sqlite::{Probe, SqliteOptions, SqliteStore};
