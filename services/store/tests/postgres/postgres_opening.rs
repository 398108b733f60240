//! Which databases are opened, and which are refused.

use std::time::{SystemTime, UNIX_EPOCH};

use signalbox_domain::run::append::{Entry, RunProjection};
use signalbox_ports::conformance::world::*;
use signalbox_ports::governance::Governance;
use signalbox_ports::inbox::{CommandClass, Inbox};
use signalbox_ports::leases::Leases;
use signalbox_store::{OpenError, PostgresOptions, PostgresStore};

use crate::database::Database;
use crate::{append, asking, create, listing, open, options, whole};

async fn refused(url: &str) -> OpenError {
    match PostgresStore::connect(url, options()).await {
        Ok(_) => panic!("the store opens"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_is_reported_without_its_password() {
    let nowhere = "postgres://ann:not-a-real-secret@127.0.0.1:1/box";
    for url in [nowhere, "postgres://ann:not-a-real-secret@127.0.0.1:port/box", "not-a-real-secret"] {
        let error = refused(url).await;
        assert_eq!(error.code(), "store-unavailable");
        assert!(!format!("{error} {error:?}").contains("not-a-real-secret"), "{error}");
    }
    assert!(refused(nowhere).await.to_string().contains("127.0.0.1:1/box"));
}

#[tokio::test]
async fn a_database_that_needs_a_newer_version_is_refused_and_one_that_does_not_is_opened() {
    let database = Database::create().await;
    open(&database).await.close().await;
    database
        .execute(
            "UPDATE store_meta SET schema_version = 99; \
             INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
             VALUES (99, 'from the future', TRUE, '', 0)",
        )
        .await;
    open(&database).await.close().await;
    database.execute("UPDATE store_meta SET min_reader = 99").await;
    let error = refused(&database.url()).await;
    assert_eq!(error.code(), "store-schema-newer");
    assert!(error.to_string().contains("schema 99"), "{error}");
}

#[tokio::test]
async fn nodes_that_start_at_once_bring_the_schema_up_to_date_once() {
    let database = Database::create().await;
    let url = database.url();
    let mut nodes = tokio::task::JoinSet::new();
    for _ in 0..5 {
        let url = url.clone();
        nodes.spawn(async move { PostgresStore::connect(&url, options()).await.unwrap().epoch().await.unwrap() });
    }
    let epochs = nodes.join_all().await;
    assert!(epochs.iter().all(|epoch| *epoch == epochs[0]), "{epochs:?}");
    let written = std::fs::read_dir("../../migrations/postgres").unwrap().count();
    assert_eq!(database.number("SELECT count(*) FROM _sqlx_migrations").await, i64::try_from(written).unwrap());
}

#[tokio::test]
async fn a_reopened_database_has_everything() {
    let database = Database::create().await;
    let store = open(&database).await;
    store.put_budget(budget("b", 10)).await.unwrap();
    let change = store.change(switch_on("web.fetch"), &operator()).await.unwrap();
    let head = create(&store, 1).await;
    // A text may hold what PostgreSQL's own texts cannot.
    let said = RunProjection { percent: 50, waiting_for: Some("a\u{0}nul".into()), ..projection() };
    let asked = Entry { facts: vec![fact("one\u{0}")], ..asking(&store, &head, 1, &[("b", 4)]).await };
    let head = append(&store, Entry { projection: Some(said.clone()), ..asked }).await.unwrap().head;
    store.deliver(head.run_key, command(1, CommandClass::Control)).await.unwrap();
    let (events, epoch) = (whole(&store, &head).await, store.epoch().await.unwrap());
    store.close().await;
    assert_eq!(store.epoch().await.unwrap_err().code(), "store-unavailable");
    assert_eq!(
        append(&store, saying(&head, "?")).await.unwrap_err().to_string().split(':').next(),
        Some("the store is not available")
    );

    let store = open(&database).await;
    assert_eq!((whole(&store, &head).await, store.epoch().await.unwrap()), (events, epoch));
    assert_eq!(store.changes(1).await.unwrap(), [change]);
    assert_eq!(store.budgets().await.unwrap()[0].meter.reserved, cost(4).iter().next().unwrap().1);
    assert_eq!(store.pending(head.run_key).await.unwrap(), (vec![command(1, CommandClass::Control)], 1));
    let rows = listing(&store).await;
    assert_eq!(rows[0].projection, said);
    let readable = "SELECT count(*) FROM run_events_text WHERE body LIKE '%source.fetch%'";
    assert_eq!(database.number(readable).await, 1, "people can read bodies at a SQL prompt");
}

#[tokio::test]
async fn every_transaction_is_durable_and_read_committed_whatever_the_database_says() {
    let database = Database::create().await;
    let name: String =
        sqlx::query_scalar("SELECT current_database()::text").fetch_one(&mut database.beside().await).await.unwrap();
    open(&database).await.close().await;
    database
        .execute(&format!(
            "ALTER DATABASE {name} SET synchronous_commit = off; \
             ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'; \
             CREATE FUNCTION check_settings() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             IF current_setting('synchronous_commit') <> 'on' OR current_setting('transaction_isolation') <> 'read committed' \
             OR current_setting('statement_timeout') <> '2s' \
             OR current_setting('idle_in_transaction_session_timeout') <> '1s' \
             THEN RAISE EXCEPTION 'not as it must be'; END IF; RETURN NEW; END $$; \
             CREATE TRIGGER check_settings BEFORE INSERT OR UPDATE ON runs FOR EACH ROW EXECUTE FUNCTION check_settings(); \
             CREATE TRIGGER check_settings BEFORE INSERT ON governance_changes FOR EACH ROW EXECUTE FUNCTION check_settings()"
        ))
        .await;
    let store = open(&database).await;
    let head = create(&store, 1).await;
    append(&store, saying(&head, "durable")).await.unwrap();
    store.change(switch_on("web.fetch"), &operator()).await.unwrap();
    store.deliver(head.run_key, command(1, CommandClass::Other)).await.unwrap();
}

#[tokio::test]
async fn without_another_clock_the_servers_own_counts() {
    let database = Database::create().await;
    let store = PostgresStore::connect(&database.url(), PostgresOptions::default()).await.unwrap();
    let now = || i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()).unwrap();
    let before = now();
    let head = create(&store, 1).await;
    let head = append(&store, saying(&head, "now")).await.unwrap().head;
    let change = store.change(switch_on("web.fetch"), &operator()).await.unwrap();
    store.put_budget(budget("b", 10)).await.unwrap();
    // The server runs on this machine.
    assert!((before..=now()).contains(&head.last_at.0), "{}", head.last_at.0);
    assert!((before / 1_000..=now() / 1_000).contains(&change.at_unix_ms.0));
    store.deliver(head.run_key, command(1, CommandClass::Other)).await.unwrap();
    let answers = vec![(command_id(1), yes(2))];
    append(&store, Entry { answers, ..entry(&head) }).await.unwrap();
    assert_eq!(store.answer(head.run_key, command_id(1)).await.unwrap(), Some(yes(2)));
    store.release(node(1)).await.unwrap();
    assert!(store.renew(node(2), "node").await.unwrap());
    assert_eq!(store.claim(node(2), 10).await.unwrap().len(), 1);
    assert_eq!(store.budgets().await.unwrap().len(), 1);
}
