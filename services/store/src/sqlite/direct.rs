//! Connections that SQLite is asked through directly, each on a thread of its own: one writes journals, and some read them.
//!
//! Journals are written all the time and everything else now and then. So their statements go straight to SQLite, prepared
//! once, by threads that do nothing else. The [`Writer`](super::writer::Writer) hands the one that writes one piece of work
//! at a time and none while another transaction is open, so two connections of this process never wait for each other's
//! locks. Those that read wait for nobody.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{CachedStatement, Connection, OpenFlags, Params, Row};
use signalbox_ports::journal::StoreError;
use tokio::sync::{mpsc, oneshot};

use super::rows::refused;

/// Statements that are kept prepared.
const STATEMENTS_MAX: usize = 32;
/// Threads that read.
const READING: usize = 2;

type Task = Box<dyn FnOnce(&mut Direct) + Send>;

/// The way to the thread.
pub(super) struct DirectHandle {
    tasks: mpsc::UnboundedSender<Task>,
}

impl DirectHandle {
    /// Starts the thread, which ends with the handle.
    pub(super) fn start(name: &str, direct: Direct) -> Result<Self, StoreError> {
        let (tasks, mut waiting) = mpsc::unbounded_channel::<Task>();
        let mut direct = direct;
        let started = thread::Builder::new().name(name.to_owned()).spawn(move || {
            while let Some(task) = waiting.blocking_recv() {
                // A panic ends its own piece of work: the connection it had is gone with it, and the next one opens another.
                if catch_unwind(AssertUnwindSafe(|| task(&mut direct))).is_err() {
                    tracing::error!("work on the journal panicked");
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
    /// Finishes what was handed over before, and closes the connection for good.
    pub(super) async fn close(&self) {
        // Without an answer the thread has ended, and with it the connection.
        let _ = self.run(Direct::close).await;
    }
}

/// The threads that read, each in its turn.
pub(super) struct Reading {
    threads: Vec<DirectHandle>,
    turn: AtomicUsize,
}

impl Reading {
    /// Starts them on a database that is there.
    pub(super) fn start(file: &std::path::Path, busy: Duration) -> Result<Self, StoreError> {
        let start = |_| {
            let direct = Direct { reads_only: true, ..Direct::new(file.to_owned(), busy, None) };
            DirectHandle::start("journal-reading", direct)
        };
        Ok(Self { threads: (0..READING).map(start).collect::<Result<_, _>>()?, turn: AtomicUsize::default() })
    }

    /// What `look` sees; each of its statements sees one moment.
    pub(super) async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % READING;
        let thread = self.threads.get(turn).ok_or_else(|| StoreError::Unavailable("nobody reads".into()))?;
        thread.run(|direct| direct.look(look)).await?
    }

    /// Finishes what was handed over before, and closes the connections.
    pub(super) async fn close(&self) {
        for thread in &self.threads {
            thread.close().await;
        }
    }
}

/// The connection, opened when it is needed and opened anew after it has failed in a way that leaves its state in doubt.
pub(super) struct Direct {
    file: PathBuf,
    busy: Duration,
    pages_max: Option<u64>,
    reads_only: bool,
    closed: bool,
    open: Option<Connection>,
}

impl Direct {
    /// A connection to a database that is there and has its schema.
    pub(super) const fn new(file: PathBuf, busy: Duration, pages_max: Option<u64>) -> Self {
        Self { file, busy, pages_max, reads_only: false, closed: false, open: None }
    }

    fn close(&mut self) {
        self.closed = true;
        self.open = None;
    }

    /// The connection, taken out until it has come to a known end: a panic too leaves it in doubt.
    fn take(&mut self) -> Result<Connection, StoreError> {
        if self.closed {
            return Err(StoreError::Unavailable("the store is closed".into()));
        }
        match self.open.take() {
            Some(connection) => Ok(connection),
            None => self.connect().map_err(refused("open the database")),
        }
    }

    /// Looks at what is there, outside any transaction.
    fn look<T>(&mut self, look: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let connection = self.take()?;
        let seen = look(&Transaction { connection: &connection })?;
        self.open = Some(connection);
        Ok(seen)
    }

    /// Has `work` done in one transaction, which has the write lock from the start and is undone if the work fails.
    pub(super) fn transact<T>(
        &mut self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let connection = self.take()?;
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
        let opens = if self.reads_only { OpenFlags::SQLITE_OPEN_READ_ONLY } else { OpenFlags::SQLITE_OPEN_READ_WRITE };
        let flags = opens | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.file, flags)?;
        connection.busy_timeout(self.busy)?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "foreign_keys", true)?;
        if let Some(pages) = self.pages_max {
            connection.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(()))?;
        }
        // How a statement is done depends on the statement alone: SQLite would prepare some anew for each value.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
        Ok(connection)
    }
}

/// Statements inside one transaction, or of one look.
pub(super) struct Transaction<'c> {
    connection: &'c Connection,
}

/// A statement that is executed again and again.
pub(super) struct Prepared<'c> {
    statement: CachedStatement<'c>,
    doing: &'static str,
}

impl Prepared<'_> {
    /// Executes it; how many rows it changed.
    pub(super) fn execute(&mut self, values: impl Params) -> Result<usize, StoreError> {
        self.statement.execute(values).map_err(refused(self.doing))
    }
}

impl<'c> Transaction<'c> {
    /// A statement for many rows: it is looked up once.
    pub(super) fn prepare(&self, doing: &'static str, sql: &'static str) -> Result<Prepared<'c>, StoreError> {
        Ok(Prepared { statement: self.connection.prepare_cached(sql).map_err(refused(doing))?, doing })
    }

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
