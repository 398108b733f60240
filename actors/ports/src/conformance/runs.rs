//! Runs come into being once.

use signalbox_domain::ids::RunId;
use signalbox_domain::run::append::NewEvent;
use signalbox_domain::run::event::RunEvent;

use super::world::*;
use crate::journal::{Created, NewRun};

pub async fn an_unknown_run_reads_as_no_events(f: &Fixture) {
    let key = run_key("acme", 1);
    assert_eq!(f.journal.read(key, 0, 10).await.unwrap(), []);
    assert_eq!(f.journal.head(key).await.unwrap(), None);
    assert_eq!(f.journal.find(&tenant("acme"), new_run("acme", 1).run_id).await.unwrap(), None);
    assert_eq!(f.journal.snapshot(key, 1).await.unwrap(), None);
}

pub async fn creating_a_run_twice_returns_the_first(f: &Fixture) {
    let Created::New { head, events } = f.journal.create(new_run("acme", 1)).await.unwrap() else {
        panic!("the run is new")
    };
    assert_eq!((head.last_seq, events.len()), (1, 1));
    let again = NewRun { run_key: run_key("acme", 2), ..new_run("acme", 1) };
    assert_eq!(f.journal.create(again).await.unwrap(), Created::Exists(head.clone()));
    assert_eq!(f.journal.head(run_key("acme", 2)).await.unwrap(), None, "nothing was written under the second key");
    assert_eq!(f.journal.read(head.run_key, 0, 10).await.unwrap(), events);
}

pub async fn two_tenants_may_use_one_run_id_and_never_meet(f: &Fixture) {
    let ours = f.create(new_run("acme", 1)).await;
    let theirs = f.create(new_run("globex", 1)).await;
    assert_eq!(ours.run_id, theirs.run_id);
    assert_ne!(ours.run_key, theirs.run_key);
    assert_eq!(f.journal.find(&tenant("acme"), ours.run_id).await.unwrap(), Some(ours.clone()));
    assert_eq!(f.journal.find(&tenant("globex"), ours.run_id).await.unwrap(), Some(theirs));
    assert_eq!(f.journal.find(&tenant("initech"), ours.run_id).await.unwrap(), None);
    assert_eq!(f.journal.find(&tenant("acme"), RunId::new(uuid::Uuid::nil())).await.unwrap(), None);
}

pub async fn a_run_is_born_owned_by_the_node_that_took_it(f: &Fixture) {
    let owned = f.run(1).await;
    assert_eq!((owned.owner, owned.lease_epoch), (Some(node(1)), 1));
    let unowned = f.create(NewRun { owner: None, ..new_run("acme", 2) }).await;
    assert_eq!(unowned.owner, None);
    let claimed = f.leases.claim(node(1), 10).await.unwrap();
    assert_eq!(claimed.iter().map(|head| head.run_key).collect::<Vec<_>>(), [unowned.run_key]);
    assert_eq!(claimed[0].lease_epoch, unowned.lease_epoch + 1);
}

pub async fn a_run_whose_first_event_is_not_its_submission_is_refused(f: &Fixture) {
    let started = vec![NewEvent::system(RunEvent::RunStarted {})];
    let foreign = new_run("acme", 2).events;
    for events in [vec![], started, foreign] {
        let refused = f.journal.create(NewRun { events, ..new_run("acme", 1) }).await.unwrap_err();
        assert_eq!(refused.code(), "entry-refused-by-store");
    }
    assert_eq!(f.journal.head(run_key("acme", 1)).await.unwrap(), None);
}

pub async fn a_snapshot_is_kept_until_a_newer_one_and_only_for_its_fold(f: &Fixture) {
    let run = f.run(1).await.run_key;
    f.journal.put_snapshot(run, 5, 1, b"five".to_vec()).await.unwrap();
    f.journal.put_snapshot(run, 9, 1, b"nine".to_vec()).await.unwrap();
    f.journal.put_snapshot(run, 7, 1, b"late".to_vec()).await.unwrap();
    assert_eq!(f.journal.snapshot(run, 1).await.unwrap(), Some((9, b"nine".to_vec())));
    assert_eq!(f.journal.snapshot(run, 2).await.unwrap(), None);
    f.journal.put_snapshot(run, 3, 2, b"new fold".to_vec()).await.unwrap();
    assert_eq!(f.journal.snapshot(run, 2).await.unwrap(), Some((3, b"new fold".to_vec())));
    assert_eq!(f.journal.snapshot(run, 1).await.unwrap(), None, "the old fold's snapshot is of no use");
    let unknown = f.journal.put_snapshot(run_key("acme", 2), 1, 1, vec![]).await.unwrap_err();
    assert_eq!(unknown.code(), "entry-refused-by-store");
}
