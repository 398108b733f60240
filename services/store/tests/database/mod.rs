//! A PostgreSQL database of its own for each test, on the server that DATABASE_URL names.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail the test, and not every binary needs all of them"
)]

pub(crate) mod server;

use std::str::FromStr as _;

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _};

/// A database that is there until this is dropped.
pub(crate) struct Database {
    server: PgConnectOptions,
    name: String,
}

impl Database {
    pub(crate) async fn create() -> Self {
        // Never skipped: a suite that is green because it could not be run is worth nothing.
        let Ok(url) = std::env::var("DATABASE_URL") else { panic!("run it through make test") };
        Self::create_on(&url).await
    }

    /// The same on another server.
    pub(crate) async fn create_on(url: &str) -> Self {
        let server = PgConnectOptions::from_str(url).unwrap().disable_statement_logging();
        let database = Self { server, name: format!("sb_test_{}", uuid::Uuid::new_v4().simple()) };
        database.on_server(format!("CREATE DATABASE {}", database.name)).await;
        database
    }

    pub(crate) fn connect_options(&self) -> PgConnectOptions {
        self.server.clone().database(&self.name)
    }

    pub(crate) fn url(&self) -> String {
        self.connect_options().to_url_lossy().to_string()
    }

    /// The same database behind another address.
    pub(crate) fn url_at(&self, port: u16) -> String {
        self.connect_options().host("127.0.0.1").port(port).to_url_lossy().to_string()
    }

    /// Where the server listens.
    pub(crate) fn address(&self) -> (String, u16) {
        (self.server.get_host().to_owned(), self.server.get_port())
    }

    /// A connection beside the store's own, to do what no store does.
    pub(crate) async fn beside(&self) -> PgConnection {
        self.connect_options().connect().await.unwrap()
    }

    pub(crate) async fn execute(&self, sql: &str) {
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut self.beside().await).await.unwrap();
    }

    /// The only value of the only row.
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(&mut self.beside().await).await.unwrap()
    }

    /// Asks until a condition on the server holds.
    pub(crate) async fn until(&self, sql: &str) {
        let mut conn = self.beside().await;
        let asked = async {
            while !sqlx::query_scalar::<_, bool>(AssertSqlSafe(sql.to_owned())).fetch_one(&mut conn).await.unwrap() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(30), asked).await.unwrap();
    }

    async fn on_server(&self, sql: String) {
        let mut conn = self.server.connect().await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await.unwrap();
        conn.close().await.unwrap();
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // The test's own runtime may be ending; this one is not.
        std::thread::scope(|scope| {
            let dropping = scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(self.on_server(format!("DROP DATABASE {} WITH (FORCE)", self.name)));
            });
            if dropping.join().is_err() && !std::thread::panicking() {
                panic!("the database {} could not be dropped", self.name);
            }
        });
    }
}
