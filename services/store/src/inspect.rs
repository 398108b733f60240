//! Looking at a store without opening it: nothing is locked, migrated or written, so it can be done beside a running node.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::str::FromStr as _;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Connection as _, Row as _};
use tokio::time::timeout;

use crate::open_error::OpenError;

/// How long a server may take to answer.
const ANSWER_WAIT: Duration = Duration::from_secs(10);

/// A store as it lies there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreFacts {
    /// Where it is, without anything secret.
    pub place: String,
    /// The database and its version.
    pub engine: String,
    /// The schema it has; `None` if there is no store yet.
    pub schema_version: Option<i64>,
    /// The schema a program must know to use it.
    pub min_reader: Option<i64>,
    /// Runs that are not closed.
    pub live_runs: Option<u64>,
    /// When the newest event of all was written, in microseconds since the Unix epoch.
    pub newest_at_unix_micros: Option<i64>,
    /// True if a node uses the data folder at this moment. A server can be shared, and says nothing of that.
    pub in_use: bool,
    /// Settings that decide whether what is committed survives, with what they are and whether that is right.
    pub durability: Vec<Durability>,
    /// The server's clock, in microseconds since the Unix epoch; `None` where the clock is this machine's.
    pub clock_unix_micros: Option<i64>,
    /// Why nothing could be written, if that is known.
    pub unwritable: Option<String>,
}

/// A setting of durability.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Durability {
    /// The setting, as the database calls it.
    pub setting: &'static str,
    /// What it is.
    pub value: String,
    /// True if acknowledged commits survive under it.
    pub holds: bool,
}

/// Looks at the store in a data folder.
///
/// # Errors
/// A folder or a file that cannot be read.
pub async fn inspect_sqlite(dir: &Path) -> Result<StoreFacts, OpenError> {
    let place = dir.display().to_string();
    let unavailable = |problem: String| OpenError::Unavailable { place: place.clone(), problem };
    let mut facts = StoreFacts { place: place.clone(), engine: "SQLite".to_owned(), ..StoreFacts::default() };
    facts.in_use = is_locked(dir).map_err(&unavailable)?;
    facts.unwritable = unwritable(dir);
    let file = dir.join("signalbox.db");
    if !file.exists() {
        return Ok(facts);
    }
    let connect = SqliteConnectOptions::new().filename(&file).read_only(true).disable_statement_logging();
    let text = |error: sqlx::Error| unavailable(error.to_string());
    let mut conn = connect.connect().await.map_err(text)?;
    let version: String = sqlx::query_scalar("SELECT sqlite_version()").fetch_one(&mut conn).await.map_err(text)?;
    facts.engine = format!("SQLite {version}");
    let mode: String = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut conn).await.map_err(text)?;
    facts.durability.push(Durability { setting: "journal_mode", holds: mode == "wal", value: mode });
    // Each connection of a node sets it for itself, and a node does not start where that fails.
    facts.durability.push(Durability { setting: "synchronous", value: "full".to_owned(), holds: true });
    read_sqlite(&mut conn, &mut facts).await.map_err(text)?;
    let _ = conn.close().await;
    Ok(facts)
}

async fn read_sqlite(conn: &mut SqliteConnection, facts: &mut StoreFacts) -> Result<(), sqlx::Error> {
    let known: i64 =
        sqlx::query_scalar("SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'store_meta'")
            .fetch_one(&mut *conn)
            .await?;
    if known == 0 {
        return Ok(());
    }
    let meta = sqlx::query("SELECT schema_version, min_reader FROM store_meta").fetch_one(&mut *conn).await?;
    facts.schema_version = Some(meta.try_get("schema_version")?);
    facts.min_reader = Some(meta.try_get("min_reader")?);
    let runs = sqlx::query("SELECT count(*) FILTER (WHERE closed = 0) AS live, max(last_at) AS newest FROM runs");
    let runs = runs.fetch_one(conn).await?;
    facts.live_runs = u64::try_from(runs.try_get::<i64, _>("live")?).ok();
    facts.newest_at_unix_micros = runs.try_get("newest")?;
    Ok(())
}

// Asked without making the file: a folder that is no store yet stays as it is.
fn is_locked(dir: &Path) -> Result<bool, String> {
    let file = match File::options().write(true).open(dir.join("lock")) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error.to_string()),
    };
    match file.try_lock() {
        // The handle is dropped here, and the lock with it.
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error.to_string()),
    }
}

fn unwritable(dir: &Path) -> Option<String> {
    let mut there = dir;
    while !there.exists() {
        there = there.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    }
    let about = match std::fs::metadata(there) {
        Ok(about) => about,
        Err(error) => return Some(error.to_string()),
    };
    if !about.is_dir() {
        return Some(format!("`{}` is no folder", there.display()));
    }
    let probe = there.join(format!(".signalbox-doctor-{}", uuid::Uuid::now_v7()));
    let tried = File::options().create_new(true).write(true).open(&probe).and_then(|_| std::fs::remove_file(&probe));
    tried.err().map(|error| format!("`{}`: {error}", there.display()))
}

/// Looks at the store in a database.
///
/// # Errors
/// An address that is none, and a server that does not answer. One that would lose what it acknowledged is no error here:
/// it is among the facts.
pub async fn inspect_postgres(url: &str) -> Result<StoreFacts, OpenError> {
    let invalid = |error: sqlx::Error| OpenError::Unavailable {
        place: "postgres".into(),
        problem: format!("its address is not like postgres://user@host/database: {error}"),
    };
    let connect = PgConnectOptions::from_str(url).map(|connect| connect.extra_float_digits(None)).map_err(invalid)?;
    let connect = connect.application_name("signalbox").disable_statement_logging();
    let place = crate::postgres::place(&connect);
    let unavailable = |problem: String| OpenError::Unavailable { place: place.clone(), problem };
    let mut facts = StoreFacts { place: place.clone(), ..StoreFacts::default() };
    let looked = timeout(ANSWER_WAIT, async {
        let mut conn = connect.connect().await?;
        read_postgres(&mut conn, &mut facts).await?;
        conn.close().await
    });
    looked
        .await
        .map_err(|_| unavailable("the server does not answer".into()))?
        .map_err(|error| unavailable(error.to_string()))?;
    Ok(facts)
}

async fn read_postgres(conn: &mut PgConnection, facts: &mut StoreFacts) -> Result<(), sqlx::Error> {
    let row = sqlx::query(
        "SELECT current_setting('server_version') AS version, current_setting('fsync') AS fsync, \
         current_setting('full_page_writes') AS full_page_writes, pg_is_in_recovery() AS is_standby, \
         (extract(epoch FROM clock_timestamp()) * 1000000)::int8 AS now, \
         to_regclass(quote_ident(current_schema()) || '.store_meta') IS NOT NULL AS known",
    );
    let row = row.fetch_one(&mut *conn).await?;
    facts.engine = format!("PostgreSQL {}", row.try_get::<String, _>("version")?);
    for setting in ["fsync", "full_page_writes"] {
        let value: String = row.try_get(setting)?;
        facts.durability.push(Durability { setting, holds: value == "on", value });
    }
    facts.clock_unix_micros = row.try_get("now")?;
    if row.try_get("is_standby")? {
        facts.unwritable = Some("the server is a standby and takes no writes; name the primary".to_owned());
    }
    if !row.try_get::<bool, _>("known")? {
        return Ok(());
    }
    let meta =
        sqlx::query("SELECT schema_version::int8 AS schema_version, min_reader::int8 AS min_reader FROM store_meta");
    let meta = meta.fetch_one(&mut *conn).await?;
    facts.schema_version = Some(meta.try_get("schema_version")?);
    facts.min_reader = Some(meta.try_get("min_reader")?);
    let runs = sqlx::query("SELECT count(*) FILTER (WHERE NOT closed) AS live, max(last_at) AS newest FROM runs");
    let runs = runs.fetch_one(conn).await?;
    facts.live_runs = u64::try_from(runs.try_get::<i64, _>("live")?).ok();
    facts.newest_at_unix_micros = runs.try_get("newest")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open_error::SCHEMA_VERSION;
    use crate::{SqliteOptions, SqliteStore};

    #[tokio::test]
    async fn a_folder_that_is_no_store_yet_stays_untouched() {
        let dir = tempfile::TempDir::new().unwrap();
        let facts = inspect_sqlite(&dir.path().join("data")).await.unwrap();
        assert_eq!((facts.schema_version, facts.in_use, facts.unwritable), (None, false, None));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn a_store_is_looked_at_beside_the_node_that_uses_it() {
        let dir = tempfile::TempDir::new().unwrap();
        let store = SqliteStore::open(dir.path(), SqliteOptions::default()).await.unwrap();
        let facts = inspect_sqlite(dir.path()).await.unwrap();
        assert!(facts.in_use && facts.durability.iter().all(|setting| setting.holds), "{facts:?}");
        assert_eq!((facts.schema_version, facts.live_runs), (Some(SCHEMA_VERSION), Some(0)));
        drop(store);
    }
}
