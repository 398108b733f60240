//! A PostgreSQL database of its own for each whole-system test: only this crate may speak to a database, so it also makes
//! and drops the ones that tests use.
#![allow(clippy::expect_used, clippy::panic, reason = "a test without its database fails")]

use std::str::FromStr as _;

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _};

/// A database on the server that `DATABASE_URL` names, there until this is dropped.
#[derive(Debug)]
pub struct TemporaryDatabase {
    server: PgConnectOptions,
    name: String,
}

impl TemporaryDatabase {
    /// Makes one.
    ///
    /// # Panics
    /// If there is no server: a suite that is green because it could not be run is worth nothing.
    pub async fn create() -> Self {
        let url = std::env::var("DATABASE_URL").expect("run it through make test");
        let server = PgConnectOptions::from_str(&url).expect("DATABASE_URL is an address").disable_statement_logging();
        let database = Self { server, name: format!("sb_test_{}", uuid::Uuid::new_v4().simple()) };
        database.on_server(format!("CREATE DATABASE {}", database.name)).await;
        database
    }

    /// Its address.
    pub fn url(&self) -> String {
        self.server.clone().database(&self.name).to_url_lossy().to_string()
    }

    /// The same database behind another port of this machine.
    pub fn url_at(&self, port: u16) -> String {
        self.server.clone().database(&self.name).host("127.0.0.1").port(port).to_url_lossy().to_string()
    }

    /// Where the server listens.
    pub fn address(&self) -> (String, u16) {
        (self.server.get_host().to_owned(), self.server.get_port())
    }

    async fn on_server(&self, sql: String) {
        let mut conn = self.server.connect().await.expect("the database server answers");
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await.expect("the test may make databases");
        conn.close().await.expect("the connection closes");
    }
}

impl Drop for TemporaryDatabase {
    fn drop(&mut self) {
        // The test's own runtime may be ending; this one is not.
        std::thread::scope(|scope| {
            let dropping = scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
                runtime.block_on(self.on_server(format!("DROP DATABASE {} WITH (FORCE)", self.name)));
            });
            if dropping.join().is_err() && !std::thread::panicking() {
                panic!("the database {} could not be dropped", self.name);
            }
        });
    }
}
