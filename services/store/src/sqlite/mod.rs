//! All store ports on one SQLite database.
//!
//! One connection writes journals and some read them, each on a thread of its own (see [`direct`]); one writes everything
//! else, in a task that outlives whoever asked, and never while the other does (see [`writer`]); a pool reads the rest. An
//! exclusive lock on the data directory proves that no other process has the store, so a run owned by a node of an
//! earlier opening can be claimed at once.

mod acts;
mod append;
mod create;
mod direct;
mod directory;
mod feedback;
mod governance;
mod inbox;
mod journal;
mod keys;
mod leases;
mod maintenance;
mod nodes;
mod open;
mod probe;
mod rows;
mod schedules;
mod sweeps;
mod tree;
mod webhooks;
mod writer;

use std::sync::Arc;

use signalbox_ports::clock::Clock;
use sqlx::SqlitePool;

use direct::Reading;
pub use open::SqliteOptions;
pub(crate) use open::create_private_dir;
pub use probe::Probe;
use writer::Writer;

/// The store of one data directory.
pub struct SqliteStore {
    writer: Writer,
    reading: Reading,
    readers: SqlitePool,
    clock: Arc<dyn Clock>,
    /// Which opening of the store this is: leases of earlier ones are void.
    session: i64,
}

impl SqliteStore {
    /// Finishes what was handed over, closes the database and lets go of the data directory. Whatever is asked of the
    /// store afterwards answers that it is not available.
    pub async fn close(&self) {
        self.readers.close().await;
        self.reading.close().await;
        self.writer.close().await;
    }
}
