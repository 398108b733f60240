//! A row of the dashboard is written when something it shows has changed, and at no other time.

use std::time::Duration;

use serde_json::json;
use signalbox_domain::dashboard::DashboardFilter;
use signalbox_domain::ids::TenantId;
use signalbox_domain::run::append::{Entry, RunProjection};
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::time::UnixMicros;
use signalbox_ports::clock::BootInstant;
use signalbox_ports::conformance::world::{entry, new_run, node, projection, saying};
use signalbox_ports::directory::Scope;
use signalbox_ports::journal::{Created, Journal};
use signalbox_ports::leases::Leases;
use signalbox_store::{PostgresOptions, SqliteOptions, SqliteStore};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, ConnectOptions as _};

use crate::database::Database;
use crate::station::{Station, chain, tools};

/// Beyond the ten charges a run is taken up and ends; what is known to be the same is not written again.
const WRITES_MAX: i64 = 13;

async fn beside(dir: &std::path::Path) -> SqliteConnection {
    SqliteConnectOptions::new().filename(dir.join("signalbox.db")).connect().await.unwrap()
}

async fn on_sqlite(dir: &std::path::Path, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut beside(dir).await).await.unwrap();
}

const COUNT_ON_SQLITE: &str = "CREATE TABLE written (status TEXT); CREATE TRIGGER count_writes AFTER UPDATE ON \
    run_dashboard BEGIN INSERT INTO written VALUES (new.status); END";
const COUNT_ON_POSTGRES: &str = "CREATE TABLE written (status TEXT); CREATE FUNCTION count_write() RETURNS trigger \
    LANGUAGE plpgsql AS $$ BEGIN INSERT INTO written VALUES (new.status); RETURN NULL; END $$; CREATE TRIGGER count_writes \
    AFTER UPDATE ON run_dashboard FOR EACH ROW EXECUTE FUNCTION count_write()";
const WRITTEN: &str = "SELECT count(*) FROM written";

async fn ten_calls(station: &Station) {
    let run = station.submit("acme", &json!(chain(10))).await.unwrap();
    let envelope = station.closed("acme", run).await;
    assert_eq!((envelope.status, envelope.tool_calls.len()), (RunStatus::Completed, 10));
    // The last append may still be on its way to whoever reads beside it.
    let own = Scope::Tenant(TenantId::new("acme").unwrap());
    for _ in 0..500 {
        let page = station.ports.directory.runs(&own, &DashboardFilter::default(), UnixMicros(0)).await.unwrap();
        if page.rows[0].projection.closed {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the row never showed the end");
}

#[tokio::test]
async fn a_run_of_ten_calls_writes_its_row_once_for_each_charge_and_a_few_times_more_on_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    let station = Station::on_sqlite(dir.path(), tools()).await;
    on_sqlite(dir.path(), COUNT_ON_SQLITE).await;
    ten_calls(&station).await;
    let written: i64 = sqlx::query_scalar(WRITTEN).fetch_one(&mut beside(dir.path()).await).await.unwrap();
    println!("row writes of a ten-call run on SQLite: {written}");
    assert!((10..=WRITES_MAX).contains(&written), "{written}");
}

#[tokio::test]
async fn a_run_of_ten_calls_writes_its_row_once_for_each_charge_and_a_few_times_more_on_postgres() {
    let database = Database::create().await;
    let station = Station::on_postgres(&database, PostgresOptions::default(), tools()).await;
    database.execute(COUNT_ON_POSTGRES).await;
    ten_calls(&station).await;
    let written = database.number(WRITTEN).await;
    println!("row writes of a ten-call run on PostgreSQL: {written}");
    assert!((10..=WRITES_MAX).contains(&written), "{written}");
}

#[tokio::test]
async fn an_append_that_changes_nothing_that_is_shown_leaves_the_row_alone() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path(), SqliteOptions::default()).await.unwrap();
    on_sqlite(dir.path(), COUNT_ON_SQLITE).await;
    store.renew(node(1), "node").await.unwrap();
    let Created::New { head, .. } = store.create(new_run("acme", 1)).await.unwrap() else { panic!("it is new") };
    let written =
        async || -> i64 { sqlx::query_scalar(WRITTEN).fetch_one(&mut beside(dir.path()).await).await.unwrap() };
    let same = Entry { projection: Some(projection()), ..saying(&head, "the same") };
    let head = store.append(vec![same], BootInstant(0)).await.remove(0).unwrap().head;
    assert_eq!(written().await, 0);
    // When it wants to be woken stands elsewhere.
    let woken = RunProjection { wake_at: Some(signalbox_domain::time::UnixMs(9)), ..projection() };
    let head = store.append(vec![Entry { projection: Some(woken), ..entry(&head) }], BootInstant(0)).await.remove(0);
    assert_eq!(written().await, 0);
    let waits = RunProjection { waiting_for: Some("somebody".into()), ..projection() };
    let head = head.unwrap().head;
    store.append(vec![Entry { projection: Some(waits), ..entry(&head) }], BootInstant(0)).await.remove(0).unwrap();
    assert_eq!(written().await, 1);
}
