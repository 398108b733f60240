//! What cannot be what was written is named, and contained.

use signalbox_domain::run::append::Entry;
use signalbox_ports::clock::BootInstant;
use signalbox_ports::conformance::world::*;
use signalbox_ports::governance::Governance;
use signalbox_ports::inbox::{CommandClass, Delivered, Inbox};
use signalbox_ports::journal::{AppendError, AskOutcome, Journal, StoreError};
use signalbox_ports::leases::Leases;

use crate::database::Database;
use crate::{append, asking, create, listing, open, whole};

#[tokio::test]
async fn a_damaged_event_is_reported_by_run_and_number_while_other_runs_go_on() {
    let database = Database::create().await;
    let store = open(&database).await;
    let damages = [
        ("UPDATE run_events SET body = '\\x7b00' WHERE seq = 3 AND run_key = ", 3),
        ("UPDATE run_events SET kind = 'unheard-of' WHERE seq = 2 AND run_key = ", 2),
        ("UPDATE run_events SET actor_role = 'emperor' WHERE seq = 4 AND run_key = ", 4),
        ("UPDATE run_events SET hash = '\\x00' WHERE seq = 1 AND run_key = ", 1),
        ("DELETE FROM run_events WHERE seq = 2 AND run_key = ", 2),
        ("DELETE FROM run_events WHERE seq = 4 AND run_key = ", 4),
        ("DELETE FROM run_events WHERE run_key = ", 1),
        ("UPDATE run_events SET seq = 5 WHERE seq = 4 AND run_key = ", 4),
    ];
    for (number, (damage, at)) in damages.into_iter().enumerate() {
        let mut head = create(&store, number as u64).await;
        for text in ["two", "three", "four"] {
            head = append(&store, saying(&head, text)).await.unwrap().head;
        }
        database.execute(&format!("{damage}'{}'", head.run_key)).await;
        let healthy = create(&store, 100 + number as u64).await;
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
    let database = Database::create().await;
    let store = open(&database).await;
    let (damaged, healthy) = (create(&store, 1).await, create(&store, 2).await);
    database.execute(&format!("UPDATE runs SET last_hash = '\\x0102' WHERE run_key = '{}'", damaged.run_key)).await;
    let batch = vec![saying(&damaged, "hm"), saying(&healthy, "unharmed")];
    let answers = store.append(batch, BootInstant(0)).await;
    let Err(AppendError::Store(StoreError::Corrupt { run, seq: 1, .. })) = &answers[0] else {
        panic!("{:?}", answers[0])
    };
    assert_eq!(*run, damaged.run_key);
    assert!(answers[1].is_ok());
    let status = format!("UPDATE run_dashboard SET status = 'unheard-of' WHERE run_key = '{}'", damaged.run_key);
    database.execute(&status).await;
    let listed = listing(&store).await;
    assert_eq!(listed.iter().map(|row| row.run_key).collect::<Vec<_>>(), [healthy.run_key]);
}

#[tokio::test]
async fn a_damaged_meter_admits_nothing_on_it_and_hinders_no_other_call() {
    let database = Database::create().await;
    let store = open(&database).await;
    let (one, two) = (create(&store, 1).await, create(&store, 2).await);
    for id in ["bad", "good"] {
        store.put_budget(budget(id, 10)).await.unwrap();
    }
    database.execute("UPDATE meters SET budget = '\\x00' WHERE budget_id = 'bad'").await;
    let batch = vec![asking(&store, &one, 1, &[("bad", 1)]).await, asking(&store, &two, 2, &[("good", 1)]).await];
    let answers = store.append(batch, BootInstant(0)).await;
    assert!(matches!(&answers[0], Err(AppendError::Store(StoreError::Unavailable(_)))));
    assert!(matches!(answers[1].as_ref().unwrap().asks[0], AskOutcome::Admitted(_)));
    assert_eq!(store.budgets().await.unwrap_err().code(), "store-unavailable");
}

#[tokio::test]
async fn nothing_is_admitted_past_a_governance_change_that_cannot_be_read() {
    let database = Database::create().await;
    let store = open(&database).await;
    let head = create(&store, 1).await;
    store.change(switch_on("web.fetch"), &operator()).await.unwrap();
    database.execute("UPDATE governance_changes SET body = '\\x00'").await;
    let asking = Entry { asks: vec![ask(&head, 1, &[])], ..entry(&head) };
    assert!(matches!(append(&store, asking).await, Err(AppendError::Store(StoreError::Unavailable(_)))));
    append(&store, saying(&head, "facts need no governance")).await.unwrap();
}

#[tokio::test]
async fn an_entry_whose_statement_fails_stands_alone() {
    let database = Database::create().await;
    let store = open(&database).await;
    database
        .execute(
            "CREATE FUNCTION poison() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             IF position('poison' IN convert_from(NEW.body, 'UTF8')) > 0 THEN RAISE EXCEPTION 'no poison here'; END IF; \
             RETURN NEW; END $$; \
             CREATE TRIGGER poison BEFORE INSERT ON run_events FOR EACH ROW EXECUTE FUNCTION poison()",
        )
        .await;
    store.put_budget(budget("b", 1_000)).await.unwrap();
    let mut batch = Vec::new();
    for number in 0..50 {
        let head = create(&store, number).await;
        let text = if number % 20 == 7 { "poison" } else { "food" };
        batch.push(Entry { facts: vec![fact(text)], ..asking(&store, &head, number, &[("b", 1)]).await });
    }
    for (number, answer) in store.append(batch, BootInstant(0)).await.iter().enumerate() {
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
async fn a_schema_that_is_not_as_it_should_be_is_the_servers_fault_and_not_an_entrys() {
    let database = Database::create().await;
    let store = open(&database).await;
    let head = create(&store, 1).await;
    database.execute("ALTER TABLE run_events RENAME TO elsewhere").await;
    let answer = append(&store, saying(&head, "?")).await;
    assert!(matches!(answer, Err(AppendError::Store(StoreError::Unavailable(_)))), "{answer:?}");
    database.execute("ALTER TABLE elsewhere RENAME TO run_events").await;
    append(&store, saying(&head, "!")).await.unwrap();
}

#[tokio::test]
async fn runs_of_a_newer_format_are_not_claimed() {
    let database = Database::create().await;
    let store = open(&database).await;
    let head = create(&store, 1).await;
    store.release(node(1)).await.unwrap();
    database.execute("UPDATE runs SET format = 2").await;
    store.renew(node(2), "node").await.unwrap();
    assert_eq!(store.claim(node(2), 10).await.unwrap(), []);
    assert_eq!(store.claim_one(node(2), head.run_key).await.unwrap(), None);
}

#[tokio::test]
async fn old_answers_do_not_pile_up() {
    let database = Database::create().await;
    let store = open(&database).await;
    let mut head = create(&store, 1).await;
    for number in 0..5 {
        store.deliver(head.run_key, command(number, CommandClass::Other)).await.unwrap();
        let answers = vec![(command_id(number), yes(1))];
        head = append(&store, Entry { answers, ..entry(&head) }).await.unwrap().head;
    }
    database.execute("UPDATE run_inbox SET answered_at_ms = answered_at_ms - 25 * 60 * 60 * 1000").await;
    let other = create(&store, 2).await;
    let delivered = store.deliver(other.run_key, command(9, CommandClass::Other)).await.unwrap();
    assert_eq!(delivered, Delivered::Waiting);
    assert_eq!(database.number("SELECT count(*) FROM run_inbox").await, 1);
}

#[tokio::test]
async fn old_leases_do_not_pile_up() {
    let database = Database::create().await;
    let store = open(&database).await;
    for number in 1..=5 {
        assert!(store.renew(node(number), "node").await.unwrap());
    }
    store.release(node(9)).await.unwrap();
    store.claim(node(1), 0).await.unwrap();
    assert_eq!(database.number("SELECT count(*) FROM nodes").await, 6, "a node that has never been heard of included");
    // Two have run out and were given up more than a day ago, one a moment ago, one still has its lease.
    let day = "24::int8 * 60 * 60 * 1000000";
    database
        .execute(&format!(
            "UPDATE nodes SET given_up = TRUE, expires_at = expires_at - {day} - 8000000 WHERE name <> '' AND incarnation IN \
             ('{}', '{}'); UPDATE nodes SET given_up = TRUE WHERE incarnation = '{}'",
            node(2),
            node(3),
            node(4)
        ))
        .await;
    store.claim(node(1), 0).await.unwrap();
    assert_eq!(database.number("SELECT count(*) FROM nodes").await, 4);
    assert!(!store.renew(node(4), "node").await.unwrap() && store.renew(node(5), "node").await.unwrap());
}
