//! All store ports on one PostgreSQL, shared by any number of nodes.
//!
//! Transactions are READ COMMITTED and lock in one order everywhere: the governance lock, then nodes, then sweeps, then runs
//! by key, then meters by id. What a lock guards is read by a later statement than the one that took it, since a statement's
//! snapshot is older than the lock it waits for. Writing happens in tasks that nobody drops (see [`transaction`]).
//!
//! Connections keep no state between transactions, so a pooler in transaction mode may stand in between, as long as it
//! follows prepared statements (PgBouncer does from 1.21). Journal writers, control (leases, epoch, governance) and readers
//! have pools of their own: a flood of appends cannot cost a node its lease.
//!
//! Not here yet: `run_events` is an ordinary table. Its primary key begins with the time-ordered `run_key`, so that it can
//! be partitioned by range of it, and whole runs dropped together, without a change to any statement.

mod acts;
mod append;
mod directory;
mod errors;
mod feedback;
mod governance;
mod inbox;
mod journal;
mod keys;
mod leases;
mod maintenance;
mod nodes;
mod open;
mod schedules;
mod store_clock;
mod sweeps;
mod transaction;
mod tree;
mod webhooks;

use std::sync::Arc;

pub use open::PostgresOptions;
pub(crate) use open::place;
use store_clock::StoreClock;
use transaction::{Readers, Writers};

/// The store of one database.
pub struct PostgresStore {
    shared: Arc<Shared>,
}

/// What the tasks that write share with the store.
struct Shared {
    /// Writes to runs and their inboxes.
    journal: Writers,
    /// Leases, the epoch, governance.
    control: Writers,
    readers: Readers,
    /// Reads of the epoch and of what changed, which must not wait behind lists.
    control_readers: Readers,
    clock: StoreClock,
}

impl PostgresStore {
    /// Closes the connections when what they are doing is done. Whatever is asked of the store afterwards answers that it
    /// is not available.
    pub async fn close(&self) {
        self.shared.readers.close().await;
        self.shared.journal.close().await;
        self.shared.control.close().await;
    }
}
