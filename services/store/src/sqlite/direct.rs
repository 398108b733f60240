//! The connection that writes journals, on a thread of its own.
//!
//! Journals are written all the time and everything else now and then. So their statements go straight to SQLite, prepared
//! once, by one thread that does nothing else. The [`Writer`](super::writer::Writer) hands it one piece of work at a time
//! and none while another transaction is open, so two connections of this process never wait for each other's locks.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, Params, Row};
use signalbox_ports::journal::StoreError;
use tokio::sync::{mpsc, oneshot};

use super::rows::refused;

/// Statements that are kept prepared.
const STATEMENTS_MAX: usize = 32;

type Task = Box<dyn FnOnce(&mut Direct) + Send>;

/// The way to the thread.
pub(super) struct DirectHandle {
    tasks: mpsc::UnboundedSender<Task>,
}

impl DirectHandle {
    /// Starts the thread, which ends with the handle.
    pub(super) fn start(direct: Direct) -> Result<Self, StoreError> {
        let (tasks, mut waiting) = mpsc::unbounded_channel::<Task>();
        let mut direct = direct;
        let started = thread::Builder::new().name("journal".to_owned()).spawn(move || {
            while let Some(task) = waiting.blocking_recv() {
                // A panic ends its own piece of work: the connection it had is gone with it, and the next one opens another.
                if catch_unwind(AssertUnwindSafe(|| task(&mut direct))).is_err() {
                    tracing::error!("writing to the journal panicked");
                }
            }
        });
        started.map_err(|error| StoreError::Unavailable(format!("the journal's thread does not start: {error}")))?;
        Ok(Self { tasks })
    }

    /// Has `work` done on the thread and waits for what it gives.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Direct) -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        let (answer, answered) = oneshot::channel();
        let task: Task = Box::new(move |direct| {
            // Whoever asked may be gone; the work is done all the same.
            let _ = answer.send(work(direct));
        });
        self.tasks.send(task).map_err(|_| StoreError::Unavailable("the store is closed".into()))?;
        answered.await.map_err(|_| StoreError::Unknown("the journal's thread ended before it answered".into()))
    }
}

impl DirectHandle {
    /// Finishes what was handed over before, and closes the connection.
    pub(super) async fn close(self) {
        // Without an answer the thread has ended, and with it the connection.
        let _ = self.run(|direct| drop(direct.open.take())).await;
    }
}

/// The connection, opened when it is needed and opened anew after it has failed in a way that leaves its state in doubt.
pub(super) struct Direct {
    file: PathBuf,
    busy: Duration,
    pages_max: Option<u64>,
    open: Option<Connection>,
}

impl Direct {
    /// A connection to a database that is there and has its schema.
    pub(super) const fn new(file: PathBuf, busy: Duration, pages_max: Option<u64>) -> Self {
        Self { file, busy, pages_max, open: None }
    }

    /// Has `work` done in one transaction, which has the write lock from the start and is undone if the work fails.
    pub(super) fn transact<T>(
        &mut self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        // Left out until it has come to a known end: a panic too leaves it in doubt.
        let connection = match self.open.take() {
            Some(connection) => connection,
            None => self.connect().map_err(refused("open the database"))?,
        };
        let transaction = Transaction { connection: &connection };
        let outcome = transaction.execute("begin a transaction", "BEGIN IMMEDIATE", []);
        let outcome = outcome.and_then(|_| work(&transaction));
        let outcome = match outcome {
            // SQLite that says no has kept nothing.
            Ok(done) => transaction.execute("commit", "COMMIT", []).map(|_| done),
            Err(error) => Err(error),
        };
        // After some errors SQLite has undone everything by itself. A connection that cannot undo is not used again.
        let ended = outcome.is_ok() || connection.is_autocommit() || connection.execute_batch("ROLLBACK").is_ok();
        if ended {
            self.open = Some(connection);
        }
        outcome
    }

    fn connect(&self) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.file, flags)?;
        connection.busy_timeout(self.busy)?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "foreign_keys", true)?;
        if let Some(pages) = self.pages_max {
            connection.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(()))?;
        }
        connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
        Ok(connection)
    }
}

/// Statements inside one transaction.
pub(super) struct Transaction<'c> {
    connection: &'c Connection,
}

impl Transaction<'_> {
    /// Executes a statement; how many rows it changed.
    pub(super) fn execute(
        &self,
        doing: &'static str,
        sql: &'static str,
        values: impl Params,
    ) -> Result<usize, StoreError> {
        let done = self.connection.prepare_cached(sql).and_then(|mut statement| statement.execute(values));
        done.map_err(refused(doing))
    }

    /// Looks at each row a query gives.
    pub(super) fn each(
        &self,
        doing: &'static str,
        sql: &'static str,
        values: impl Params,
        mut look: impl FnMut(&Row<'_>),
    ) -> Result<(), StoreError> {
        let looked = self.connection.prepare_cached(sql).and_then(|mut statement| {
            let mut rows = statement.query(values)?;
            while let Some(row) = rows.next()? {
                look(row);
            }
            Ok(())
        });
        looked.map_err(refused(doing))
    }
}
