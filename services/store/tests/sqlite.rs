//! What SQLite promises beyond the suite: one opening at a time, nothing half-written, damage named and contained.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail the test")]

use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use signalbox_domain::dashboard::{DashboardEntry, DashboardFilter};
use signalbox_domain::run::append::{Entry, Release, RunHead, RunProjection, pending_of};
use signalbox_domain::run::chain::StoredEvent;
use signalbox_domain::time::UnixMicros;
use signalbox_ports::clock::BootInstant;
use signalbox_ports::conformance::world::*;
use signalbox_ports::directory::{Directory, Scope};
use signalbox_ports::governance::Governance;
use signalbox_ports::inbox::{CommandClass, Delivered, Inbox};
use signalbox_ports::journal::{AppendError, Appended, AskOutcome, Created, Journal, StoreError};
use signalbox_ports::leases::Leases;
use signalbox_ports::memory::ManualClock;
use signalbox_store::{OpenError, SqliteOptions, SqliteStore};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, ConnectOptions};
use tempfile::TempDir;

fn options() -> SqliteOptions {
    SqliteOptions { clock: Arc::new(ManualClock::default()), ..SqliteOptions::default() }
}

async fn open(dir: &TempDir) -> SqliteStore {
    SqliteStore::open(dir.path(), options()).await.unwrap()
}

async fn refused(dir: &Path) -> OpenError {
    match SqliteStore::open(dir, options()).await {
        Ok(_) => panic!("the store opens"),
        Err(error) => error,
    }
}

/// A connection beside the store's own, to do what no store does.
async fn beside(dir: &TempDir) -> SqliteConnection {
    SqliteConnectOptions::new().filename(dir.path().join("signalbox.db")).connect().await.unwrap()
}

async fn execute(dir: &TempDir, sql: &str) {
    let done = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut beside(dir).await).await.unwrap();
    assert!(done.rows_affected() > 0 || sql.starts_with("CREATE") || sql.starts_with("DROP"), "{sql}");
}

async fn create(store: &SqliteStore, number: u64) -> RunHead {
    store.renew(node(1), "node").await.unwrap();
    match store.create(new_run("acme", number)).await.unwrap() {
        Created::New { head, .. } => head,
        Created::Exists(head) => panic!("run {} exists", head.run_key),
    }
}

/// The runs of `acme`.
async fn listing(store: &SqliteStore) -> Vec<DashboardEntry> {
    let own = Scope::Tenant(tenant("acme"));
    store.runs(&own, &DashboardFilter::default(), UnixMicros(0)).await.unwrap().rows
}

/// A request to admit call `number` by a writer that has seen every governance change.
async fn asking(store: &SqliteStore, head: &RunHead, number: u64, reservations: &[(&str, i64)]) -> Entry {
    let (_, governance_epoch) = store.epoch().await.unwrap();
    Entry { asks: vec![ask(head, number, reservations)], governance_epoch, ..entry(head) }
}

async fn append(store: &SqliteStore, entry: Entry) -> Result<Appended, AppendError> {
    store.append(vec![entry], BootInstant(0)).await.remove(0)
}

async fn whole(store: &SqliteStore, head: &RunHead) -> Vec<StoredEvent> {
    store.read(head.run_key, 0, 1_000).await.unwrap()
}

#[tokio::test]
async fn a_data_folder_is_open_once_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir).await;
    let error = refused(dir.path()).await;
    assert_eq!(error.code(), "data-folder-in-use");
    assert!(error.to_string().contains("in use"), "{error}");
    store.close().await;
    open(&dir).await;
}

#[tokio::test]
async fn a_store_that_was_dropped_lets_go_of_its_folder() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(&dir).await);
    open(&dir).await;
}

#[tokio::test]
async fn a_folder_that_cannot_be_used_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), b"in the way").unwrap();
    assert_eq!(refused(&dir.path().join("file")).await.code(), "store-unavailable");
    std::fs::write(dir.path().join("signalbox.db"), b"This is not a database, whatever its name may say.").unwrap();
    assert_eq!(refused(dir.path()).await.code(), "store-unavailable");
}

#[tokio::test]
async fn a_store_that_needs_a_newer_version_is_refused_and_one_that_does_not_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    open(&dir).await.close().await;
    execute(&dir, "UPDATE store_meta SET schema_version = 99").await;
    execute(
        &dir,
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
         VALUES (99, 'from the future', 1, x'00', 0)",
    )
    .await;
    open(&dir).await.close().await;
    execute(&dir, "UPDATE store_meta SET min_reader = 99").await;
    let error = refused(dir.path()).await;
    assert_eq!(error.code(), "store-schema-newer");
    assert!(error.to_string().contains("schema 99"), "{error}");
}

#[cfg(unix)]
#[tokio::test]
async fn a_new_data_folder_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("new/data");
    let _store = SqliteStore::open(&data, options()).await.unwrap();
    assert_eq!(data.metadata().unwrap().permissions().mode() & 0o777, 0o700);
}

#[tokio::test]
async fn a_reopened_store_has_everything() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir).await;
    store.put_budget(budget("b", 10)).await.unwrap();
    let change = store.change(switch_on("web.fetch"), &operator()).await.unwrap();
    let head = create(&store, 1).await;
    let asked = Entry { facts: vec![fact("one")], ..asking(&store, &head, 1, &[("b", 4)]).await };
    let said = RunProjection { percent: 50, waiting_for: Some("nothing".into()), ..projection() };
    let head = append(&store, Entry { projection: Some(said.clone()), ..asked }).await.unwrap().head;
    store.deliver(head.run_key, command(1, CommandClass::Control)).await.unwrap();
    store.put_snapshot(head.run_key, 2, 1, b"state".to_vec()).await.unwrap();
    let (events, epoch) = (whole(&store, &head).await, store.epoch().await.unwrap());
    store.close().await;

    let store = open(&dir).await;
    assert_eq!(whole(&store, &head).await, events);
    assert_eq!(store.epoch().await.unwrap(), epoch);
    assert_eq!(store.changes(1).await.unwrap(), [change]);
    assert_eq!(store.budgets().await.unwrap()[0].meter.reserved, cost(4).iter().next().unwrap().1);
    assert_eq!(store.pending(head.run_key).await.unwrap(), (vec![command(1, CommandClass::Control)], 1));
    assert_eq!(store.snapshot(head.run_key, 1).await.unwrap(), Some((2, b"state".to_vec())));
    let rows = listing(&store).await;
    assert_eq!(rows[0].projection, said);
    let found = store.find(&tenant("acme"), head.run_id).await.unwrap().unwrap();
    assert_eq!((found.last_seq, found.last_hash, found.owner), (3, head.last_hash, Some(node(1))));
}

#[tokio::test]
async fn runs_of_an_earlier_opening_are_claimed_at_once_and_its_nodes_are_fenced() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir).await;
    let head = create(&store, 1).await;
    store.close().await;
    let store = open(&dir).await;
    assert!(!store.renew(node(1), "node").await.unwrap());
    assert!(store.renew(node(2), "node").await.unwrap());
    let claimed = store.claim(node(2), 10).await.unwrap();
    assert_eq!(claimed.len(), 1);
    assert!(matches!(append(&store, saying(&head, "a ghost")).await, Err(AppendError::Refused(_))));
    append(&store, saying(&claimed[0], "alive")).await.unwrap();
}

#[tokio::test]
async fn runs_of_a_newer_format_are_not_claimed() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir).await;
    let head = create(&store, 1).await;
    store.release(node(1)).await.unwrap();
    execute(&dir, "UPDATE runs SET format = 2").await;
    store.renew(node(2), "node").await.unwrap();
    assert_eq!(store.claim(node(2), 10).await.unwrap(), []);
    assert_eq!(store.claim_one(node(2), head.run_key).await.unwrap(), None);
}

#[tokio::test]
async fn a_damaged_event_is_reported_by_run_and_number_while_other_runs_go_on() {
    for (damage, at) in [
        ("UPDATE run_events SET body = x'7b00' WHERE seq = 3", 3),
        ("UPDATE run_events SET body = 17 WHERE seq = 2", 2),
        ("UPDATE run_events SET kind = 'unheard-of' WHERE seq = 2", 2),
        ("UPDATE run_events SET actor_role = 'emperor' WHERE seq = 4", 4),
        ("UPDATE run_events SET hash = x'00' WHERE seq = 1", 1),
        ("DELETE FROM run_events WHERE seq = 2", 2),
        ("DELETE FROM run_events WHERE seq = 4", 4),
        ("DELETE FROM run_events", 1),
        ("UPDATE run_events SET seq = 5 WHERE seq = 4", 4),
        (
            "INSERT INTO run_events SELECT run_key, 5, at, actor_id, actor_role, visibility, kind, version, body, prev_hash, \
          hash FROM run_events WHERE seq = 4",
            5,
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let store = open(&dir).await;
        let mut head = create(&store, 1).await;
        for text in ["two", "three", "four"] {
            head = append(&store, saying(&head, text)).await.unwrap().head;
        }
        execute(&dir, damage).await;
        let healthy = create(&store, 2).await;
        let Err(StoreError::Corrupt { run, seq, problem }) = store.read(head.run_key, 0, 1_000).await else {
            panic!("{damage} is noticed")
        };
        assert_eq!((run, seq), (head.run_key, at), "{damage}: {problem}");
        append(&store, saying(&healthy, "unharmed")).await.unwrap();
        assert_eq!(whole(&store, &healthy).await.len(), 2);
    }
}

#[tokio::test]
async fn a_damaged_row_of_a_run_is_reported_while_other_runs_of_its_batch_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir).await;
    let (damaged, healthy) = (create(&store, 1).await, create(&store, 2).await);
    execute(&dir, "UPDATE runs SET last_hash = x'0102' WHERE run_key = (SELECT min(run_key) FROM runs)").await;
    let batch = vec![saying(&damaged, "hm"), saying(&healthy, "unharmed")];
    let answers = store.append(batch, BootInstant(0)).await;
    let Err(AppendError::Store(StoreError::Corrupt { run, seq: 1, .. })) = &answers[0] else {
        panic!("{:?}", answers[0])
    };
    assert_eq!(*run, damaged.run_key);
    assert!(answers[1].is_ok());
    assert_eq!(store.head(damaged.run_key).await.unwrap_err().code(), "journal-corrupt");
    let listed = listing(&store).await;
    assert_eq!(listed.len(), 2, "a list needs no hash");
    execute(&dir, "UPDATE run_dashboard SET status = 'unheard-of' WHERE run_key = (SELECT min(run_key) FROM runs)")
        .await;
    let listed = listing(&store).await;
    assert_eq!(listed.iter().map(|row| row.run_key).collect::<Vec<_>>(), [healthy.run_key]);
}

#[tokio::test]
async fn a_damaged_meter_admits_nothing_on_it_and_hinders_no_other_call() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir).await;
    let (one, two) = (create(&store, 1).await, create(&store, 2).await);
    for id in ["bad", "good"] {
        store.put_budget(budget(id, 10)).await.unwrap();
    }
    execute(&dir, "UPDATE meters SET budget = x'00' WHERE budget_id = 'bad'").await;
    let batch = vec![asking(&store, &one, 1, &[("bad", 1)]).await, asking(&store, &two, 2, &[("good", 1)]).await];
    let answers = store.append(batch, BootInstant(0)).await;
    assert!(matches!(&answers[0], Err(AppendError::Store(StoreError::Unavailable(_)))));
    assert!(matches!(answers[1].as_ref().unwrap().asks[0], AskOutcome::Admitted(_)));
    assert_eq!(store.budgets().await.unwrap_err().code(), "store-unavailable");
}

#[tokio::test]
async fn nothing_is_admitted_past_a_governance_change_that_cannot_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir).await;
    let head = create(&store, 1).await;
    store.change(switch_on("web.fetch"), &operator()).await.unwrap();
    execute(&dir, "UPDATE governance_changes SET body = x'00'").await;
    let asking = Entry { asks: vec![ask(&head, 1, &[])], ..entry(&head) };
    assert!(matches!(append(&store, asking).await, Err(AppendError::Store(StoreError::Unavailable(_)))));
    append(&store, saying(&head, "facts need no governance")).await.unwrap();
}

#[tokio::test]
async fn an_entry_whose_statement_fails_stands_alone() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir).await;
    execute(
        &dir,
        "CREATE TRIGGER poison BEFORE INSERT ON run_events WHEN instr(NEW.body, 'poison') > 0 \
         BEGIN SELECT RAISE(ABORT, 'no poison here'); END",
    )
    .await;
    store.put_budget(budget("b", 1_000)).await.unwrap();
    let mut batch = Vec::new();
    for number in 0..50 {
        let head = create(&store, number).await;
        let text = if number % 20 == 7 { "poison" } else { "food" };
        batch.push(Entry { facts: vec![fact(text)], ..asking(&store, &head, number, &[("b", 1)]).await });
    }
    let answers = store.append(batch, BootInstant(0)).await;
    for (number, answer) in answers.iter().enumerate() {
        match answer {
            Ok(_) => assert_ne!(number % 20, 7),
            Err(AppendError::Store(StoreError::Poison(problem))) => {
                assert_eq!(number % 20, 7);
                assert!(problem.contains("no poison here"), "{problem}");
            }
            Err(error) => panic!("entry {number}: {error}"),
        }
    }
    let meter = &store.budgets().await.unwrap()[0].meter;
    assert_eq!(meter.reserved, cost(47).iter().next().unwrap().1, "what stands alone holds nothing");
}

#[tokio::test]
async fn a_full_store_writes_nothing_by_halves_and_goes_on_when_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let small = SqliteOptions { bytes_max: Some(400 * 1_024), ..options() };
    let store = SqliteStore::open(dir.path(), small).await.unwrap();
    store.put_budget(budget("b", 1_000)).await.unwrap();
    let mut head = create(&store, 1).await;
    let text = "x".repeat(10_000);
    let asking = |head: &RunHead| Entry {
        asks: vec![ask(head, head.last_seq, &[("b", 1)])],
        governance_epoch: 1,
        ..saying(head, &text)
    };
    let (mut written, error) = loop {
        match append(&store, asking(&head)).await {
            Ok(appended) => head = appended.head,
            Err(AppendError::Store(error)) => break (whole(&store, &head).await, error),
            Err(refused) => panic!("{refused}"),
        }
        assert!(head.last_seq < 1_000, "it is full some time");
    };
    assert_eq!(error.code(), "store-unavailable");
    assert_eq!(store.head(head.run_key).await.unwrap(), Some(head.clone()));
    assert_eq!(written.len() as u64, head.last_seq);
    let held =
        |events: &[StoredEvent]| events.iter().filter(|e| e.event().is_some_and(|e| pending_of(&e).is_some())).count();
    let reserved = store.budgets().await.unwrap()[0].meter.reserved;
    assert_eq!(reserved, cost(held(&written) as i64).iter().next().unwrap().1);
    let again = append(&store, asking(&head)).await.unwrap_err();
    assert!(matches!(again, AppendError::Store(StoreError::Unavailable(_))), "{again}");
    store.close().await;

    let store = open(&dir).await;
    written.extend(append(&store, asking(&head)).await.unwrap().events);
    assert_eq!(whole(&store, &head).await, written);
}

#[tokio::test]
async fn a_write_is_finished_although_its_caller_has_gone() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir).await;
    let head = create(&store, 1).await;
    {
        // Polled once, the entry is handed over to the writer; then whoever asked is gone.
        let asked = pin!(append(&store, saying(&head, "left alone")));
        assert!(asked.poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    store.close().await;
    let store = open(&dir).await;
    let events = whole(&store, &head).await;
    assert_eq!(events.iter().map(|e| e.event().unwrap()).collect::<Vec<_>>()[1..], [fact("left alone").event]);
}

#[tokio::test]
async fn a_closed_store_is_not_available() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir).await;
    let head = create(&store, 1).await;
    store.close().await;
    store.close().await;
    assert!(matches!(append(&store, saying(&head, "?")).await, Err(AppendError::Store(StoreError::Unavailable(_)))));
    assert_eq!(store.read(head.run_key, 0, 1).await.unwrap_err().code(), "store-unavailable");
    assert_eq!(store.claim(node(1), 1).await.unwrap_err().code(), "store-unavailable");
}

#[tokio::test]
async fn old_answers_do_not_pile_up() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::default()));
    let options = SqliteOptions { clock: clock.clone(), ..SqliteOptions::default() };
    let store = SqliteStore::open(dir.path(), options).await.unwrap();
    let mut head = create(&store, 1).await;
    for number in 0..5 {
        store.deliver(head.run_key, command(number, CommandClass::Other)).await.unwrap();
        let answers = vec![(command_id(number), yes(1))];
        head = append(&store, Entry { answers, ..entry(&head) }).await.unwrap().head;
    }
    clock.advance_ms(25 * 60 * 60 * 1_000);
    let other = create(&store, 2).await;
    let delivered = store.deliver(other.run_key, command(9, CommandClass::Other)).await.unwrap();
    assert_eq!(delivered, Delivered::Waiting);
    let left: i64 =
        sqlx::query_scalar("SELECT count(*) FROM run_inbox").fetch_one(&mut beside(&dir).await).await.unwrap();
    assert_eq!(left, 1);
}

#[tokio::test]
async fn leases_of_earlier_openings_do_not_pile_up() {
    let dir = tempfile::tempdir().unwrap();
    for opening in 1..=3 {
        let store = open(&dir).await;
        assert!(store.renew(node(opening), "node").await.unwrap());
        store.claim(node(opening), 0).await.unwrap();
        store.close().await;
    }
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM nodes").fetch_one(&mut beside(&dir).await).await.unwrap();
    assert_eq!(left, 1);
}

#[tokio::test]
async fn a_hundred_runs_settle_in_one_batch() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir).await;
    store.put_budget(budget("b", 1_000)).await.unwrap();
    let mut asks = Vec::new();
    for number in 0..100 {
        let head = create(&store, number).await;
        asks.push(asking(&store, &head, number, &[("b", 2)]).await);
    }
    let mut settlements = Vec::new();
    for answer in store.append(asks, BootInstant(0)).await {
        let appended = answer.unwrap();
        let [AskOutcome::Admitted(admitted)] = appended.asks.as_slice() else { panic!("{:?}", appended.asks) };
        let pending = pending_of(admitted.event()).unwrap();
        let releases = vec![Release::of(pending, cost(1))];
        settlements.push(Entry { facts: vec![settled(pending.call_id, 1)], releases, ..entry(&appended.head) });
    }
    assert!(store.append(settlements, BootInstant(0)).await.iter().all(Result::is_ok));
    let meter = &store.budgets().await.unwrap()[0].meter;
    assert_eq!((meter.consumed, meter.reserved), (cost(100).iter().next().unwrap().1, Default::default()));
}
