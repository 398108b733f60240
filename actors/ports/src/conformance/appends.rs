//! What is appended is there, once, in order, byte for byte.

use signalbox_domain::quantity::{BudgetCategory, Micros, Usage};
use signalbox_domain::run::append::{Entry, EntryRefusal};
use signalbox_domain::run::chain::EventHash;
use signalbox_domain::run::event::RunEvent;
use signalbox_domain::time::UnixMicros;

use super::world::*;
use crate::clock::Clock;
use crate::journal::{AppendError, ENTRY_EVENTS_MAX, EVENT_BODY_BYTES_MAX, READ_EVENTS_MAX};

pub async fn of_two_writers_at_one_sequence_exactly_one_wins(f: &Fixture) {
    let head = f.run(1).await;
    let (one, two) = tokio::join!(f.append(saying(&head, "one")), f.append(saying(&head, "two")));
    let lost = AppendError::Refused(EntryRefusal::Conflict { expected: 1, actual: 2 });
    let (won, text) = match (one, two) {
        (Ok(won), Err(error)) => {
            assert_eq!(error, lost);
            (won, "one")
        }
        (Err(error), Ok(won)) => {
            assert_eq!(error, lost);
            (won, "two")
        }
        (one, two) => panic!("exactly one wins, not {one:?} and {two:?}"),
    };
    let events = f.journal.read(head.run_key, 1, 10).await.unwrap();
    assert_eq!(events, won.events);
    assert_eq!(events.iter().map(|e| e.event().unwrap()).collect::<Vec<_>>(), [fact(text).event]);
    assert_eq!(f.head(head.run_key).await, won.head);
}

pub async fn the_same_entry_twice_in_one_batch_conflicts(f: &Fixture) {
    let head = f.run(1).await;
    let entry = saying(&head, "once");
    let answers = f.journal.append(vec![entry.clone(), entry.clone()], f.clock.boot()).await;
    let [Ok(_), Err(AppendError::Refused(EntryRefusal::Conflict { .. }))] = answers.as_slice() else {
        panic!("the second conflicts: {answers:?}")
    };
    assert!(matches!(f.append(entry).await, Err(AppendError::Refused(EntryRefusal::Conflict { .. }))));
    assert_eq!(f.head(head.run_key).await.last_seq, 2);
}

pub async fn a_writer_with_a_stale_lease_is_fenced(f: &Fixture) {
    let head = f.run(1).await;
    let late = Entry { lease_epoch: head.lease_epoch + 1, ..saying(&head, "late") };
    let refused = f.append(late).await.unwrap_err();
    assert_eq!(refused, AppendError::Refused(EntryRefusal::Fenced { expected: 2, actual: 1 }));
    assert_eq!(f.head(head.run_key).await, head);
}

pub async fn an_entry_for_an_unknown_run_is_refused(f: &Fixture) {
    let head = f.run(1).await;
    let nowhere = Entry { run_key: run_key("acme", 2), ..saying(&head, "nowhere") };
    let answers = f.journal.append(vec![nowhere, saying(&head, "here")], f.clock.boot()).await;
    assert!(matches!(answers[0], Err(AppendError::Refused(EntryRefusal::NoSuchRun))));
    assert!(answers[1].is_ok());
}

pub async fn a_poison_entry_among_five_hundred_takes_no_other_with_it(f: &Fixture) {
    const ENTRIES: u64 = 500;
    const POISON: u64 = 321;
    let mut batch = Vec::new();
    for number in 0..ENTRIES {
        let head = f.run(number).await;
        let text = if number == POISON { "x".repeat(EVENT_BODY_BYTES_MAX) } else { format!("entry {number}") };
        batch.push(saying(&head, &text));
    }
    let answers = f.journal.append(batch, f.clock.boot()).await;
    for (number, answer) in (0..).zip(answers) {
        let head = f.head(run_key("acme", number)).await;
        match answer {
            Err(AppendError::Store(error)) if number == POISON => {
                assert_eq!((error.code(), head.last_seq), ("entry-refused-by-store", 1));
            }
            Ok(appended) if number != POISON => assert_eq!(appended.head, head),
            answer => panic!("entry {number}: {answer:?}"),
        }
    }
}

pub async fn an_entry_with_too_many_events_is_refused(f: &Fixture) {
    let head = f.run(1).await;
    let facts = |count| Entry { facts: vec![fact("again"); count], ..entry(&head) };
    let refused = f.append(facts(ENTRY_EVENTS_MAX + 1)).await.unwrap_err();
    assert!(matches!(refused, AppendError::Store(error) if error.code() == "entry-refused-by-store"));
    let written = f.append(facts(ENTRY_EVENTS_MAX)).await.unwrap();
    assert_eq!(written.head.last_seq, 1 + ENTRY_EVENTS_MAX as u64);
}

pub async fn an_event_that_could_not_be_read_back_is_refused(f: &Fixture) {
    let head = f.run(1).await;
    // So many millionths that the decimal in JSON is another number than the one that was meant.
    let absurd = Usage::of(BudgetCategory::StorageBytes, Micros(i64::MAX));
    let mut settled = settled(call(1), 0);
    if let RunEvent::CallSettled(settled) = &mut settled.event {
        settled.charged = absurd;
    }
    let refused = f.append(Entry { facts: vec![settled], ..entry(&head) }).await.unwrap_err();
    assert!(matches!(refused, AppendError::Store(error) if error.code() == "entry-refused-by-store"));
    assert_eq!(f.head(head.run_key).await, head);
}

pub async fn entries_of_one_run_in_one_batch_follow_each_other(f: &Fixture) {
    let head = f.run(1).await;
    let second = Entry { expected_seq: 2, ..saying(&head, "second") };
    let answers = f.journal.append(vec![saying(&head, "first"), second], f.clock.boot()).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    let events = f.journal.read(head.run_key, 1, 10).await.unwrap();
    assert_eq!(events[1].prev_hash, events[0].hash);
}

pub async fn the_chain_verifies_and_time_never_goes_back(f: &Fixture) {
    let mut head = f.run(1).await;
    let began = f.clock.now_micros();
    for step in [5_000, -60_000_000, 1] {
        f.clock.set_wall(UnixMicros(f.clock.now_micros().0 + step));
        head = f.append(saying(&head, "tick")).await.unwrap().head;
    }
    let events = f.journal.read(head.run_key, 0, 10).await.unwrap();
    let mut before = (0, EventHash::ZERO, began);
    for event in &events {
        assert_eq!((event.seq, event.prev_hash), (before.0 + 1, before.1));
        assert_eq!(event.hash, event.expected_hash(&head.tenant_id));
        assert!(event.at >= before.2);
        before = (event.seq, event.hash, event.at);
    }
    assert_eq!(before, (head.last_seq, head.last_hash, head.last_at));
    assert_eq!(head.last_at.0, began.0 + 5_000, "micros are kept, and the step back is not followed");
}

pub async fn bodies_come_back_byte_for_byte(f: &Fixture) {
    let texts = [
        "a\0b".to_owned(),
        "\u{202e}\u{feff}e\u{301}\u{fffd}\u{1f9d1}\u{200d}\u{1f680}\u{10ffff}".to_owned(),
        "line\r\nquote\" back\\slash \u{2028}".to_owned(),
        "9007199254740993".to_owned(),
        "\u{fe}".repeat(500_000),
    ];
    let head = f.run(1).await;
    let written = f.append(Entry { facts: texts.iter().map(|t| fact(t)).collect(), ..entry(&head) }).await.unwrap();
    let read = f.journal.read(head.run_key, 1, 10).await.unwrap();
    assert_eq!(read.len(), texts.len());
    for ((event, written), text) in read.iter().zip(&written.events).zip(&texts) {
        assert_eq!(event, written);
        assert_eq!(event.hash, event.expected_hash(&head.tenant_id));
        let Some(RunEvent::StepSkipped { reason, .. }) = event.event() else { panic!("a fact") };
        assert_eq!(reason, *text);
    }
}

pub async fn a_long_journal_is_read_in_pages(f: &Fixture) {
    let head = f.run(1).await;
    let count = READ_EVENTS_MAX + 10;
    f.append(Entry { facts: vec![fact("line"); count], ..entry(&head) }).await.unwrap();
    let page = f.journal.read(head.run_key, 0, usize::MAX).await.unwrap();
    assert_eq!(page.len(), READ_EVENTS_MAX);
    let rest = f.journal.read(head.run_key, page[READ_EVENTS_MAX - 1].seq, 500).await.unwrap();
    assert_eq!(rest.iter().map(|e| e.seq).collect::<Vec<_>>(), (1_001..=1_011).collect::<Vec<_>>());
    assert_eq!(f.journal.read(head.run_key, 3, 2).await.unwrap(), page[3..5]);
    assert_eq!(f.journal.read(head.run_key, 2_000, 2).await.unwrap(), []);
    assert_eq!(f.journal.read(head.run_key, 0, 0).await.unwrap(), []);
}
