//! Opening a data directory: its lock, its schema, its connections.

use std::fs::{DirBuilder, File, TryLockError};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use signalbox_ports::clock::{Clock, SystemClock};
use sqlx::migrate::Migrator;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection as _};

use super::SqliteStore;
use super::direct::{Direct, DirectHandle, Reading};
use super::writer::{Connection, Writer};
use crate::open_error::{OpenError, SCHEMA_VERSION};

static MIGRATIONS: Migrator = sqlx::migrate!("../../migrations/sqlite");

/// A process that is just ending gets this long to let go of the data directory.
const LOCK_WAIT_MS: u64 = 500;
const LOCK_RETRY_MS: u64 = 20;

/// How long a reader waits for a free connection, and any connection for a lock inside SQLite.
const WAIT: Duration = Duration::from_secs(5);

/// SQLite's default; [`SqliteOptions::bytes_max`] is counted in these.
const PAGE_BYTES: u64 = 4_096;

/// How a store is opened.
#[derive(Clone)]
pub struct SqliteOptions {
    /// The store's clock: what it stamps events with and measures windows and leases by.
    pub clock: Arc<dyn Clock>,
    /// Connections that read side by side.
    pub readers: u32,
    /// Most bytes the database file may grow to; absent: as the disk allows. Beyond it the store is not available for
    /// writing, as on a full disk.
    pub bytes_max: Option<u64>,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self { clock: Arc::new(SystemClock), readers: 4, bytes_max: None }
    }
}

impl SqliteStore {
    /// Opens the store of a data directory, which is created if it is not there, and brings its schema up to date.
    pub async fn open(dir: &Path, options: SqliteOptions) -> Result<Self, OpenError> {
        let place = dir.display().to_string();
        let unavailable = |problem: String| OpenError::Unavailable { place: place.clone(), problem };
        create_private_dir(dir).map_err(|error| unavailable(error.to_string()))?;
        let lock = lock(dir).await?;

        let pages_max = options.bytes_max.map(|bytes| (bytes / PAGE_BYTES).max(1));
        let file = dir.join("signalbox.db");
        let connect = SqliteConnectOptions::new()
            .filename(&file)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(WAIT)
            .disable_statement_logging();
        let writing = match pages_max {
            Some(pages) => connect.clone().pragma("max_page_count", pages.to_string()),
            None => connect.clone(),
        };
        let mut first = writing.connect().await.map_err(|error| unavailable(error.to_string()))?;
        let min_reader = min_reader(&mut first).await.map_err(|error| unavailable(error.to_string()))?;
        if min_reader > SCHEMA_VERSION {
            return Err(OpenError::SchemaNewer { place, min_reader });
        }
        let session = prepare(&mut first).await.map_err(&unavailable)?;
        let _ = first.close().await;

        let readers = SqlitePoolOptions::new()
            .max_connections(options.readers.max(1))
            .acquire_timeout(WAIT)
            .connect_lazy_with(connect.pragma("query_only", "ON"));
        let reading = Reading::start(&file, WAIT).map_err(|error| unavailable(error.to_string()))?;
        let direct = Direct::new(file, WAIT, pages_max);
        let direct = DirectHandle::start("journal", direct).map_err(|error| unavailable(error.to_string()))?;
        let writer = Writer::start(Connection::new(writing), direct, options.clock.clone(), lock);
        Ok(Self { writer, reading, readers, clock: options.clock, session })
    }
}

/// Creates a folder, and what leads to it, for this user alone.
pub(crate) fn create_private_dir(dir: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)
}

/// Takes the exclusive lock of a data directory. It ends with the file handle, so a process that was killed leaves none.
async fn lock(dir: &Path) -> Result<File, OpenError> {
    let unavailable =
        |error: io::Error| OpenError::Unavailable { place: dir.display().to_string(), problem: error.to_string() };
    let file = File::options().create(true).truncate(false).write(true).open(dir.join("lock")).map_err(unavailable)?;
    for _ in 0..LOCK_WAIT_MS / LOCK_RETRY_MS {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(unavailable(error)),
            Err(TryLockError::WouldBlock) => tokio::time::sleep(Duration::from_millis(LOCK_RETRY_MS)).await,
        }
    }
    Err(OpenError::InUse { dir: dir.to_owned() })
}

/// The schema a program must know to use this store; 0 for a new one.
async fn min_reader(conn: &mut SqliteConnection) -> Result<i64, sqlx::Error> {
    let known: i64 =
        sqlx::query_scalar("SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'store_meta'")
            .fetch_one(&mut *conn)
            .await?;
    if known == 0 {
        return Ok(0);
    }
    sqlx::query_scalar("SELECT min_reader FROM store_meta").fetch_one(conn).await
}

/// Checks that what is committed will survive, migrates, and begins a session.
async fn prepare(conn: &mut SqliteConnection) -> Result<i64, String> {
    let text = |error: sqlx::Error| error.to_string();
    let mode: String = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut *conn).await.map_err(text)?;
    let synchronous: i64 = sqlx::query_scalar("PRAGMA synchronous").fetch_one(&mut *conn).await.map_err(text)?;
    if mode != "wal" || synchronous != 2 {
        return Err(format!(
            "SQLite runs in mode `{mode}`/{synchronous} here, and would lose what it has acknowledged"
        ));
    }
    // Migrations of a newer version that this one may still read are unknown here, and no mistake.
    let migrations = Migrator { ignore_missing: true, ..Migrator::DEFAULT };
    let migrations = Migrator { migrations: MIGRATIONS.migrations.clone(), ..migrations };
    migrations.run(&mut *conn).await.map_err(|error| error.to_string())?;
    sqlx::query_scalar("UPDATE store_meta SET session = session + 1 RETURNING session")
        .fetch_one(conn)
        .await
        .map_err(text)
}
