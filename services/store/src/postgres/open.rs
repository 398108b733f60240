//! Opening a database: what the server must promise, its schema, the pools.

use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use signalbox_domain::canonical::sha256_hex;
use signalbox_ports::clock::Clock;
use sqlx::migrate::Migrator;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, PgPool, Row as _};
use tokio::time::timeout;

use super::store_clock::StoreClock;
use super::transaction::{Readers, Writers};
use super::{PostgresStore, Shared};
use crate::open_error::{OpenError, SCHEMA_VERSION};

static MIGRATIONS: Migrator = sqlx::migrate!("../../migrations/postgres");

/// The oldest server that has what the statements here use, as `server_version_num` shows it.
const SERVER_VERSION_MIN: i64 = 13_00_00;

/// How long opening waits for the server, migrations aside.
const OPEN_WAIT: Duration = Duration::from_secs(10);

/// How long anything waits for a connection: a call that cannot be asked about in this time is held anyway.
const CONNECTION_WAIT: Duration = Duration::from_secs(3);

/// How a store is opened.
#[derive(Clone)]
pub struct PostgresOptions {
    /// A clock that stands in for the server's, for tests that move time. `None`: the server's own, which is the only one
    /// that several nodes agree on.
    pub clock: Option<Arc<dyn Clock>>,
    /// Connections that append, create and deliver.
    pub writers: u32,
    /// Connections for leases, the epoch and governance.
    pub control: u32,
    /// Connections that read side by side.
    pub readers: u32,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self { clock: None, writers: 4, control: 2, readers: 4 }
    }
}

impl PostgresStore {
    /// Opens the store in the database at `url`, such as `postgres://user:password@host/database`, and brings its schema up
    /// to date. The schema is the first one of the role's search path.
    pub async fn connect(url: &str, options: PostgresOptions) -> Result<Self, OpenError> {
        // Without extra_float_digits no setting is asked for that a pooler would have to keep apart. There are no floats.
        let connect = PgConnectOptions::from_str(url).map(|connect| connect.extra_float_digits(None));
        let connect = connect.map_err(|error| OpenError::Unavailable {
            place: "postgres".into(),
            problem: format!("its address is not like postgres://user@host/database: {error}"),
        })?;
        let connect = connect.application_name("signalbox").disable_statement_logging();
        let place = place(&connect);
        let unavailable = |problem: String| OpenError::Unavailable { place: place.clone(), problem };

        let checked = timeout(OPEN_WAIT, check(&connect, &place)).await;
        let schema = checked.map_err(|_| unavailable("the server does not answer".into()))??;
        // A role that may not change the schema serves all the same once another has brought it up to date.
        if !is_up_to_date(&connect).await.map_err(|error| unavailable(error.to_string()))? {
            migrate(&connect, &schema).await.map_err(unavailable)?;
        }

        let key = lock_key("governance", &schema);
        // A dead connection is noticed by `Writers::begin`, without a question before each append.
        let journal = pool(&connect, options.writers, false);
        let (control, readers) = (pool(&connect, options.control, true), pool(&connect, options.readers, true));
        let shared = Shared {
            journal: Writers::new(journal, key),
            control_readers: Readers::new(control.clone()),
            control: Writers::new(control, key),
            readers: Readers::new(readers),
            clock: options.clock.map_or(StoreClock::Server, StoreClock::Injected),
        };
        Ok(Self { shared: Arc::new(shared) })
    }
}

fn pool(connect: &PgConnectOptions, connections: u32, test_before_acquire: bool) -> PgPool {
    PgPoolOptions::new()
        .max_connections(connections.max(1))
        .acquire_timeout(CONNECTION_WAIT)
        .test_before_acquire(test_before_acquire)
        .connect_lazy_with(connect.clone())
}

/// The server and the database, without whatever is secret.
pub(crate) fn place(connect: &PgConnectOptions) -> String {
    let database = connect.get_database().unwrap_or_else(|| connect.get_username());
    format!("postgres://{}:{}/{database}", connect.get_host(), connect.get_port())
}

/// Advisory locks belong to the database; the schema is in the key, so that two stores in one database do not meet. The key
/// is computed here, since PostgreSQL's own hashes may differ from one of its versions to the next.
fn lock_key(of: &str, schema: &str) -> i64 {
    let digest = sha256_hex(format!("signalbox.{of} {schema}").as_bytes());
    let digits = digest.get(..16).unwrap_or_default();
    u64::from_str_radix(digits, 16).unwrap_or_default().cast_signed()
}

/// What a server says of itself.
struct Server {
    version: i64,
    fsync: String,
    full_page_writes: String,
    encoding: String,
    is_standby: bool,
}

impl Server {
    /// `synchronous_commit` may be anything: each transaction that writes turns it on for itself.
    fn check(&self, place: &str) -> Result<(), OpenError> {
        for (setting, value) in [("fsync", &self.fsync), ("full_page_writes", &self.full_page_writes)] {
            if value != "on" {
                let problem = format!("the server runs with {setting} off");
                return Err(OpenError::NotDurable { place: place.to_owned(), problem });
            }
        }
        let problem = if self.version < SERVER_VERSION_MIN {
            "the server is older than PostgreSQL 13"
        } else if self.is_standby {
            "the server is a standby and takes no writes; name the primary"
        } else if self.encoding != "UTF8" {
            "the database's encoding is not UTF8"
        } else {
            return Ok(());
        };
        Err(OpenError::Unavailable { place: place.to_owned(), problem: problem.to_owned() })
    }
}

/// Refuses a server that would lose what it has acknowledged, and a schema this version cannot read. Gives the name of the
/// schema.
async fn check(connect: &PgConnectOptions, place: &str) -> Result<String, OpenError> {
    let unavailable =
        |error: sqlx::Error| OpenError::Unavailable { place: place.to_owned(), problem: error.to_string() };
    let mut conn = connect.connect().await.map_err(unavailable)?;
    let row = sqlx::query(
        "SELECT current_setting('server_version_num')::int8 AS version, current_setting('fsync') AS fsync, \
         current_setting('full_page_writes') AS full_page_writes, current_setting('server_encoding') AS encoding, \
         pg_is_in_recovery() AS is_standby, current_schema()::text AS schema",
    );
    let row = row.fetch_one(&mut conn).await.map_err(unavailable)?;
    let server = Server {
        version: row.try_get("version").map_err(unavailable)?,
        fsync: row.try_get("fsync").map_err(unavailable)?,
        full_page_writes: row.try_get("full_page_writes").map_err(unavailable)?,
        encoding: row.try_get("encoding").map_err(unavailable)?,
        is_standby: row.try_get("is_standby").map_err(unavailable)?,
    };
    server.check(place)?;
    let schema = row.try_get::<Option<String>, _>("schema").map_err(unavailable)?;
    let schema = schema.ok_or_else(|| OpenError::Unavailable {
        place: place.to_owned(),
        problem: "the role's search path names no schema that exists".into(),
    })?;
    let min_reader = min_reader(&mut conn).await.map_err(unavailable)?;
    if min_reader > SCHEMA_VERSION {
        return Err(OpenError::SchemaNewer { place: place.to_owned(), min_reader });
    }
    let _ = conn.close().await;
    Ok(schema)
}

/// The schema a program must know to use this store; 0 for a new one.
async fn min_reader(conn: &mut PgConnection) -> Result<i64, sqlx::Error> {
    let known = sqlx::query_scalar("SELECT to_regclass(quote_ident(current_schema()) || '.store_meta') IS NOT NULL");
    if !known.fetch_one(&mut *conn).await? {
        return Ok(0);
    }
    sqlx::query_scalar("SELECT min_reader FROM store_meta").fetch_one(conn).await
}

/// Whether every migration of this version was applied as it is. One that was edited is left to [`migrate`], which says so.
async fn is_up_to_date(connect: &PgConnectOptions) -> Result<bool, sqlx::Error> {
    let mut conn = connect.connect().await?;
    let known =
        sqlx::query_scalar("SELECT to_regclass(quote_ident(current_schema()) || '._sqlx_migrations') IS NOT NULL");
    if !known.fetch_one(&mut conn).await? {
        return Ok(false);
    }
    let rows = sqlx::query("SELECT version, checksum FROM _sqlx_migrations WHERE success").fetch_all(&mut conn).await?;
    let mut applied = std::collections::BTreeMap::new();
    for row in rows {
        applied.insert(row.try_get::<i64, _>("version")?, row.try_get::<Vec<u8>, _>("checksum")?);
    }
    let _ = conn.close().await;
    let is_applied =
        |known: &sqlx::migrate::Migration| applied.get(&known.version).is_some_and(|sum| **sum == *known.checksum);
    Ok(MIGRATIONS.iter().all(is_applied))
}

/// Brings the schema up to date, one node at a time: the others wait for a lock that ends with its transaction, since a
/// session's lock would be lost on a pooler.
async fn migrate(connect: &PgConnectOptions, schema: &str) -> Result<(), String> {
    let text = |error: sqlx::Error| error.to_string();
    let mut gate = connect.connect().await.map_err(text)?;
    let wait = format!(
        "BEGIN; SET LOCAL idle_in_transaction_session_timeout = 0; SELECT pg_advisory_xact_lock({})",
        lock_key("migrations", schema)
    );
    sqlx::raw_sql(AssertSqlSafe(wait)).execute(&mut gate).await.map_err(text)?;
    // A pool, since with a bare connection no task could await this.
    let migrating = pool(connect, 1, false);
    // Migrations of a newer version that this one may still read are unknown here, and no mistake.
    let migrations = Migrator { ignore_missing: true, locking: false, ..Migrator::DEFAULT };
    let migrations = Migrator { migrations: MIGRATIONS.migrations.clone(), ..migrations };
    migrations.run(&migrating).await.map_err(|error| error.to_string())?;
    sqlx::raw_sql("COMMIT").execute(&mut gate).await.map_err(text)?;
    migrating.close().await;
    let _ = gate.close().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_schema_and_each_purpose_has_a_lock_of_its_own() {
        let keys = [lock_key("governance", "a"), lock_key("governance", "b"), lock_key("migrations", "a")];
        assert!(keys[0] != keys[1] && keys[1] != keys[2] && keys[0] != keys[2]);
        assert_eq!(lock_key("governance", "public"), lock_key("governance", "public"));
    }

    #[test]
    fn a_server_that_would_lose_what_it_acknowledged_or_cannot_serve_is_refused() {
        let good = || Server {
            version: 15_00_04,
            fsync: "on".into(),
            full_page_writes: "on".into(),
            encoding: "UTF8".into(),
            is_standby: false,
        };
        let code = |server: Server| server.check("somewhere").unwrap_err().code();
        assert!(good().check("somewhere").is_ok());
        assert_eq!(code(Server { fsync: "off".into(), ..good() }), "store-not-durable");
        assert_eq!(code(Server { full_page_writes: "off".into(), ..good() }), "store-not-durable");
        assert_eq!(code(Server { version: 12_00_22, ..good() }), "store-unavailable");
        assert_eq!(code(Server { encoding: "SQL_ASCII".into(), ..good() }), "store-unavailable");
        assert_eq!(code(Server { is_standby: true, ..good() }), "store-unavailable");
    }

    #[test]
    fn a_place_has_no_password() {
        let connect = PgConnectOptions::from_str("postgres://ann:not-a-real-secret@db.example:6432/box").unwrap();
        assert_eq!(place(&connect), "postgres://db.example:6432/box");
    }
}
