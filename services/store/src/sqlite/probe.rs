//! A look into a store that another process has open: read-only, and outside its lock.

use std::path::Path;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection};

/// Reads how far the journal of a data directory has got, beside the process that writes it.
#[derive(Debug)]
pub struct Probe {
    conn: SqliteConnection,
}

impl Probe {
    /// Opens the database for reading; `None` if there is none yet.
    pub async fn open(dir: &Path) -> Option<Self> {
        let database = dir.join("signalbox.db");
        if !database.exists() {
            return None;
        }
        let connect = SqliteConnectOptions::new().filename(database).read_only(true).disable_statement_logging();
        connect.connect().await.ok().map(|conn| Self { conn })
    }

    /// Events committed so far, of all runs; 0 before there is a schema.
    pub async fn events(&mut self) -> u64 {
        let count: Result<i64, _> =
            sqlx::query_scalar("SELECT count(*) FROM run_events").fetch_one(&mut self.conn).await;
        count.ok().and_then(|count| u64::try_from(count).ok()).unwrap_or(0)
    }

    /// Lets go of the database.
    pub async fn close(self) {
        // Read-only: nothing can be lost by an error here.
        let _ = self.conn.close().await;
    }
}
