//! The faults a test can order from the memory store are the ones a real store has.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;

use signalbox_domain::run::append::Entry;
use signalbox_ports::conformance::Fixture;
use signalbox_ports::conformance::world::saying;
use signalbox_ports::journal::{AppendError, Journal, StoreError};
use signalbox_ports::memory::{ManualClock, MemoryStore};

#[tokio::test]
async fn a_failing_store_changes_nothing_and_a_lost_answer_is_a_committed_one() {
    let clock = Arc::new(ManualClock::default());
    let store = MemoryStore::new(clock.clone());
    let fixture = Fixture::over(Arc::new(store.clone()), clock, ());
    let head = fixture.run(1).await;
    store.fail_with(Some(StoreError::Unavailable("a drill".into())));
    let failed = fixture.append(saying(&head, "lost")).await.unwrap_err();
    assert_eq!(failed, AppendError::Store(StoreError::Unavailable("a drill".into())));
    store.fail_with(None);
    assert_eq!(store.head(head.run_key).await.unwrap(), Some(head.clone()));
    store.lose_next_answer();
    let unknown = fixture.append(saying(&head, "kept")).await.unwrap_err();
    assert!(matches!(unknown, AppendError::Store(StoreError::Unknown(_))));
    assert_eq!(store.head(head.run_key).await.unwrap().unwrap().last_seq, 2);
    fixture.append(Entry { expected_seq: 2, ..saying(&head, "on") }).await.unwrap();
}
