//! Connections end at the worst moment, callers go away, and nothing is lost, doubled or left half-way.

use std::sync::Arc;
use std::time::{Duration, Instant};

use signalbox_domain::run::append::Entry;
use signalbox_ports::clock::BootInstant;
use signalbox_ports::conformance::world::*;
use signalbox_ports::governance::Governance;
use signalbox_ports::inbox::{CommandClass, Delivered, Inbox};
use signalbox_ports::journal::{AppendError, AskOutcome, Created, Journal, NewRun, StoreError};
use signalbox_ports::leases::Leases;
use signalbox_store::{PostgresOptions, PostgresStore};
use sqlx::Connection as _;

use crate::database::Database;
use crate::proxy::{Link, Proxy};
use crate::{append, asking, create, open, open_at, options, whole};

async fn behind_a_proxy() -> (Database, Proxy, Arc<PostgresStore>) {
    let database = Database::create().await;
    let proxy = Proxy::to(&database).await;
    let store = open_at(&database.url_at(proxy.port())).await;
    (database, proxy, store)
}

#[tokio::test]
async fn an_append_whose_commit_was_not_answered_is_found_to_have_landed() {
    let (_database, proxy, store) = behind_a_proxy().await;
    store.put_budget(budget("b", 10)).await.unwrap();
    let (one, two) = (create(&store, 1).await, create(&store, 2).await);
    let batch = vec![asking(&store, &one, 1, &[("b", 4)]).await, saying(&two, "landed"), saying(&two, "a conflict")];
    proxy.set(Link::CutAfterCommit);
    let answers = store.append(batch, BootInstant(0)).await;
    assert!(proxy.is_up(), "the cut was made");
    assert!(matches!(answers[0].as_ref().unwrap().asks[0], AskOutcome::Admitted(_)));
    assert!(answers[1].is_ok());
    assert!(matches!(&answers[2], Err(AppendError::Refused(_))));
    assert_eq!((whole(&store, &one).await.len(), whole(&store, &two).await.len()), (2, 2));
    append(&store, saying(&answers[1].as_ref().unwrap().head, "and on")).await.unwrap();
}

#[tokio::test]
async fn an_append_whose_commit_never_arrived_is_found_not_to_have_landed() {
    let (_database, proxy, store) = behind_a_proxy().await;
    let head = create(&store, 1).await;
    proxy.set(Link::CutBeforeCommit);
    let answer = append(&store, saying(&head, "again")).await;
    assert!(proxy.is_up(), "the cut was made");
    assert!(matches!(answer, Err(AppendError::Store(StoreError::Unavailable(_)))), "{answer:?}");
    assert_eq!(whole(&store, &head).await.len(), 1);
    append(&store, saying(&head, "again")).await.unwrap();
}

#[tokio::test]
async fn an_append_of_which_nothing_can_be_found_out_is_unknown() {
    let (_database, proxy, store) = behind_a_proxy().await;
    let head = create(&store, 1).await;
    proxy.set(Link::CutAfterCommit);
    // Nothing is written that could be looked for.
    let answer = append(&store, Entry { park: true, ..entry(&head) }).await;
    assert!(matches!(answer, Err(AppendError::Store(StoreError::Unknown(_)))), "{answer:?}");
    assert_eq!(store.head(head.run_key).await.unwrap().unwrap().owner, None);
}

#[tokio::test]
async fn a_run_whose_creation_is_lost_and_looked_for_and_lost_again_is_still_a_new_one() {
    let (_database, proxy, store) = behind_a_proxy().await;
    proxy.set(Link::CutAfterCommit);
    let once_more = async {
        while !proxy.is_up() {
            tokio::task::yield_now().await;
        }
        proxy.set(Link::CutAfterCommit);
    };
    let (created, ()) = tokio::join!(store.create(new_run("acme", 1)), once_more);
    assert!(proxy.is_up(), "both cuts were made");
    // Whoever is told that it was there already starts nothing.
    let Ok(Created::New { head, events }) = created else { panic!("{created:?}") };
    assert_eq!(whole(&store, &head).await, events);
}

#[tokio::test]
async fn whatever_else_loses_its_answer_is_done_once() {
    for cut in [Link::CutAfterCommit, Link::CutBeforeCommit] {
        let (database, proxy, store) = behind_a_proxy().await;
        store.renew(node(1), "node").await.unwrap();

        proxy.set(cut);
        let created = store.create(NewRun { owner: None, ..new_run("acme", 1) }).await.unwrap();
        let Created::New { head, events } = created else { panic!("it is new") };
        assert_eq!(whole(&store, &head).await, events, "{cut:?}");

        proxy.set(cut);
        let delivered = store.deliver(head.run_key, command(1, CommandClass::Control)).await.unwrap();
        assert_eq!(delivered, Delivered::Waiting);
        assert_eq!(store.pending(head.run_key).await.unwrap(), (vec![command(1, CommandClass::Control)], 1));

        proxy.set(cut);
        let change = store.change(switch_on("web.fetch"), &operator()).await.unwrap();
        assert_eq!(store.changes(0).await.unwrap(), [change]);
        proxy.set(cut);
        store.put_budget(budget("b", 10)).await.unwrap();
        assert_eq!((store.epoch().await.unwrap().1, store.budgets().await.unwrap().len()), (2, 1));

        proxy.set(cut);
        let claimed = store.claim(node(1), 10).await.unwrap();
        let stored = store.head(head.run_key).await.unwrap().unwrap();
        if cut == Link::CutAfterCommit {
            assert_eq!(claimed, [stored]);
        } else {
            assert_eq!((claimed.len(), stored.owner), (0, None), "nobody owns it without knowing");
        }
        proxy.set(cut);
        let claimed = store.claim_one(node(1), head.run_key).await.unwrap().unwrap();
        assert_eq!((claimed.lease_epoch, claimed.owner), (1, Some(node(1))));

        proxy.set(cut);
        store.put_snapshot(head.run_key, 1, 1, b"state".to_vec()).await.unwrap();
        assert_eq!(store.snapshot(head.run_key, 1).await.unwrap(), Some((1, b"state".to_vec())));
        proxy.set(cut);
        assert!(store.renew(node(1), "node").await.unwrap());
        proxy.set(cut);
        store.release(node(1)).await.unwrap();
        assert!(proxy.is_up() && !store.renew(node(1), "node").await.unwrap());
        store.close().await;
        drop(database);
    }
}

#[tokio::test]
async fn a_server_that_is_gone_is_not_available_and_goes_on_when_it_is_back() {
    let (_database, proxy, store) = behind_a_proxy().await;
    let head = create(&store, 1).await;
    let head = append(&store, saying(&head, "before")).await.unwrap().head;
    proxy.set(Link::Down);
    let answer = append(&store, saying(&head, "after")).await;
    assert!(matches!(answer, Err(AppendError::Store(StoreError::Unavailable(_)))), "{answer:?}");
    assert_eq!(store.epoch().await.unwrap_err().code(), "store-unavailable");
    assert_eq!(store.renew(node(1), "node").await.unwrap_err().code(), "store-unavailable");
    assert_eq!(store.read(head.run_key, 0, 1).await.unwrap_err().code(), "store-unavailable");
    proxy.set(Link::Up);
    append(&store, saying(&head, "after")).await.unwrap();
    assert!(store.renew(node(1), "node").await.unwrap());
    assert_eq!(whole(&store, &head).await.len(), 3);
}

#[tokio::test]
async fn connections_that_a_restart_has_ended_are_replaced_without_anybody_noticing() {
    let database = Database::create().await;
    let store = open(&database).await;
    let mut head = create(&store, 1).await;
    for text in ["one", "two", "three"] {
        head = append(&store, saying(&head, text)).await.unwrap().head;
        // What a server says to its clients when it shuts down.
        database
            .execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                 WHERE datname = current_database() AND pid <> pg_backend_pid()",
            )
            .await;
        assert_eq!(whole(&store, &head).await.len() as u64, head.last_seq);
        assert!(store.renew(node(1), "node").await.unwrap());
    }
}

#[tokio::test]
async fn a_client_that_stops_within_a_transaction_holds_up_its_own_run_alone() {
    let database = Database::create().await;
    let store = open(&database).await;
    let (held, free) = (create(&store, 1).await, create(&store, 2).await);
    let mut silent = database.beside().await;
    let mut silent = silent.begin().await.unwrap();
    let lock = "SELECT 1 FROM runs WHERE run_key = $1 FOR UPDATE";
    sqlx::query(lock).bind(held.run_key.uuid()).execute(&mut *silent).await.unwrap();

    let began = Instant::now();
    let (blocked, other) = tokio::join!(append(&store, saying(&held, "?")), append(&store, saying(&free, "unharmed")));
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert!(matches!(blocked, Err(AppendError::Store(StoreError::Unavailable(_)))), "{blocked:?}");
    other.unwrap();
    silent.rollback().await.unwrap();
    append(&store, saying(&held, "free again")).await.unwrap();
}

#[tokio::test]
async fn a_node_that_stops_within_a_transaction_holds_up_nobody_beyond_its_limit() {
    let database = Database::create().await;
    let store = open(&database).await;
    let head = create(&store, 1).await;
    let mut stopped = database.beside().await;
    // As the store begins every transaction; then the node's machine stops.
    sqlx::raw_sql("BEGIN; SET LOCAL idle_in_transaction_session_timeout = '1s'").execute(&mut stopped).await.unwrap();
    sqlx::query("SELECT 1 FROM runs FOR UPDATE").execute(&mut stopped).await.unwrap();
    append(&store, saying(&head, "a second later")).await.unwrap();
}

#[tokio::test]
async fn callers_that_go_away_at_any_moment_leave_a_single_connection_in_order() {
    let database = Database::create().await;
    let narrow = PostgresOptions { writers: 1, control: 1, readers: 1, ..options() };
    let store = Arc::new(PostgresStore::connect(&database.url(), narrow).await.unwrap());
    let mut head = create(&store, 1).await;
    let mut dice: u64 = 7;
    for round in 0..120_u64 {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let patience = Duration::from_micros((dice >> 33) % 6_000);
        let asked = async {
            match round % 4 {
                0 => drop(store.change(switch_on(&format!("tool-{round}")), &operator()).await.unwrap()),
                1 => drop(store.read(head.run_key, 0, 100).await.unwrap()),
                2 => drop(store.claim(node(1), 5).await.unwrap()),
                _ => drop(store.append(vec![saying(&head, "gone?")], BootInstant(0)).await),
            }
        };
        // Dropped in the middle, or finished: both are fine.
        let _ = tokio::time::timeout(patience, asked).await;
        head = store.head(head.run_key).await.unwrap().unwrap();
    }
    // Whatever is still being done is done before these, each on the only connection there is.
    store.put_snapshot(head.run_key, 1, 1, b"state".to_vec()).await.unwrap();
    assert!(store.renew(node(1), "node").await.unwrap());
    head = store.head(head.run_key).await.unwrap().unwrap();
    append(&store, saying(&head, "in order")).await.unwrap();
    assert_eq!(whole(&store, &head).await.len() as u64, head.last_seq + 1);
    let left_open = database
        .number("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in%'")
        .await;
    assert_eq!(left_open, 0);
}

#[tokio::test]
async fn bodies_of_a_megabyte_come_back_byte_for_byte() {
    let database = Database::create().await;
    let store = open(&database).await;
    let mut batch = Vec::new();
    // More than one transaction takes.
    for number in 0..10 {
        let head = create(&store, number).await;
        let text = format!("{number}\u{0}\u{1F984}{}", "x".repeat(1_000)).repeat(1_000);
        batch.push(saying(&head, &text));
    }
    for answer in store.append(batch, BootInstant(0)).await {
        let appended = answer.unwrap();
        assert!(appended.events[0].body.len() > 1_000_000);
        let stored = whole(&store, &appended.head).await;
        assert!(stored[1..] == appended.events[..] && stored[1].hash == stored[1].expected_hash(&tenant("acme")));
    }
}

#[tokio::test]
async fn five_hundred_callers_that_go_away_within_a_millisecond_leave_the_only_connection_in_order() {
    let database = Database::create().await;
    let narrow = PostgresOptions { writers: 1, control: 1, readers: 1, ..options() };
    let store = Arc::new(PostgresStore::connect(&database.url(), narrow).await.unwrap());
    let head = create(&store, 1).await;
    let mut dice: u64 = 28;
    for round in 0..500_u64 {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // A writer that conflicts: what it begins comes to nothing, finished or not.
        let nothing = saying(&head, "gone?");
        let nothing = Entry { expected_seq: 77, ..nothing };
        let asked = async {
            match round % 3 {
                0 => drop(store.append(vec![nothing], BootInstant(0)).await),
                1 => drop(store.claim(node(1), 0).await),
                _ => drop(store.deliver(run_key("acme", 9), command(1, CommandClass::Other)).await),
            }
        };
        // Dropped in the middle, or finished: both are fine.
        let _ = tokio::time::timeout(Duration::from_micros((dice >> 33) % 1_000), asked).await;
    }
    let head = append(&store, saying(&head, "in order")).await.unwrap().head;
    let seen = format!("SELECT count(*) FROM run_events WHERE run_key = '{}'", head.run_key);
    assert_eq!(database.number(&seen).await, 2, "another connection reads it");
    assert!(store.renew(node(1), "node").await.unwrap());
    let left_open =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in%'";
    assert_eq!(database.number(left_open).await, 0);
}

#[tokio::test]
async fn a_node_that_stops_before_its_commit_holds_up_the_rules_and_a_meter_for_two_seconds_at_most() {
    let (database, proxy, stopping) = behind_a_proxy().await;
    let store = open(&database).await;
    store.put_budget(budget("b", 10)).await.unwrap();
    let (one, two) = (create(&store, 1).await, create(&store, 2).await);
    let (asked, next) = (asking(&stopping, &one, 1, &[("b", 4)]).await, asking(&store, &two, 2, &[("b", 4)]).await);
    proxy.set(Link::StopBeforeCommit);
    let stopped = tokio::spawn(async move { append(&stopping, asked).await });
    while !proxy.is_up() {
        tokio::task::yield_now().await;
    }
    // It holds the governance lock, its run and the meter.
    let began = Instant::now();
    let appended = append(&store, next).await.unwrap();
    assert!(matches!(appended.asks[0], AskOutcome::Admitted(_)));
    store.change(switch_on("web.fetch"), &operator()).await.unwrap();
    append(&store, saying(&one, "its own run too")).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    let stopped = stopped.await.unwrap();
    assert!(matches!(stopped, Err(AppendError::Store(StoreError::Unavailable(_)))), "{stopped:?}");
}

#[tokio::test]
async fn the_class_of_a_failure_is_decided_by_its_code_and_not_by_its_words() {
    let database = Database::create().await;
    let store = open(&database).await;
    let head = create(&store, 1).await;
    // A sequence counts although what counted is undone.
    database
        .execute(
            "CREATE SEQUENCE tries; \
             CREATE FUNCTION stumble() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE try bigint := nextval('tries'); BEGIN \
             IF convert_from(NEW.body, 'UTF8') LIKE '%words%' THEN \
             RAISE EXCEPTION 'could not serialize access: deadlock detected (40001, 40P01)'; END IF; \
             IF try = 1 THEN RAISE EXCEPTION 'alpha' USING ERRCODE = '40001'; END IF; \
             IF try = 2 THEN RAISE EXCEPTION 'beta' USING ERRCODE = '40P01'; END IF; \
             RETURN NEW; END $$; \
             CREATE CONSTRAINT TRIGGER stumble AFTER INSERT ON run_events DEFERRABLE INITIALLY DEFERRED \
             FOR EACH ROW EXECUTE FUNCTION stumble()",
        )
        .await;
    let head = append(&store, saying(&head, "third time lucky")).await.unwrap().head;
    assert_eq!((head.last_seq, database.number("SELECT last_value FROM tries").await), (2, 3));
    let refused = append(&store, saying(&head, "words")).await;
    assert!(matches!(refused, Err(AppendError::Store(StoreError::Poison(_)))), "{refused:?}");
    assert_eq!(database.number("SELECT last_value FROM tries").await, 4, "it is not tried again");
}
