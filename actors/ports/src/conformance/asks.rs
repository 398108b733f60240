//! An ask is decided by what the store reads, alone, and never takes a fact with it.

use signalbox_domain::run::append::{Ask, AskRefusal, Entry, NewEvent, RunProjection, pending_of};
use signalbox_domain::run::event::RunEvent;

use super::world::*;
use crate::clock::BootInstant;
use crate::directory::Scope;
use crate::inbox::CommandClass;
use crate::journal::{Appended, AskOutcome};

/// The refusal of an append's only ask.
pub(super) fn refusal(appended: &Appended) -> &AskRefusal {
    match appended.asks.as_slice() {
        [AskOutcome::Refused(refusal)] => refusal,
        asks => panic!("one refusal, not {asks:?}"),
    }
}

pub async fn facts_commit_when_the_ask_is_refused(f: &Fixture) {
    let head = f.run(1).await;
    f.governance.change(switch_on("source.fetch"), &operator()).await.unwrap();
    let entry = Entry {
        facts: vec![fact("done")],
        asks: vec![ask(&head, 1, &[])],
        projection: Some(RunProjection { percent: 10, ..projection() }),
        projection_if_asked: Some(RunProjection { percent: 20, ..projection() }),
        ..entry(&head)
    };
    let appended = f.append(entry).await.unwrap();
    assert_eq!(*refusal(&appended), AskRefusal::Stale { epoch: 1 });
    assert_eq!(f.journal.read(head.run_key, 1, 10).await.unwrap(), appended.events);
    assert_eq!(appended.events.iter().map(|e| e.event().unwrap()).collect::<Vec<_>>(), [fact("done").event]);
    let rows =
        f.directory.runs(&Scope::Tenant(head.tenant_id.clone()), &Default::default(), head.last_at).await.unwrap();
    assert_eq!(rows.rows[0].projection.percent, 10);
}

pub async fn an_admission_is_the_record_as_it_was_written(f: &Fixture) {
    let head = f.run(1).await;
    f.governance.put_budget(budget("b", 10)).await.unwrap();
    let entry = Entry { facts: vec![fact("before")], asks: vec![ask(&head, 1, &[("b", 4)])], ..entry(&head) };
    let began = BootInstant(77);
    let mut answers = f.journal.append(vec![f.up_to_date(entry).await], began).await;
    let appended = answers.remove(0).unwrap();
    let [AskOutcome::Admitted(admitted)] = appended.asks.as_slice() else { panic!("{:?}", appended.asks) };
    assert_eq!((admitted.seq(), admitted.run_key(), admitted.append_began()), (3, head.run_key, began));
    let stored = f.journal.read(head.run_key, 2, 1).await.unwrap().remove(0);
    assert_eq!(stored.event().as_ref(), Some(admitted.event()));
    let pending = pending_of(admitted.event()).unwrap();
    let reading = &pending.meters[0];
    assert_eq!((reading.reserved, reading.asked), (reading.asked, cost(4).get(reading.category)));
}

pub async fn only_a_matching_change_makes_an_ask_stale(f: &Fixture) {
    let head = f.run(1).await;
    f.governance.change(switch_on("web.fetch"), &operator()).await.unwrap();
    let appended = f.append(Entry { asks: vec![ask(&head, 1, &[])], ..entry(&head) }).await.unwrap();
    assert!(matches!(appended.asks[0], AskOutcome::Admitted(_)), "the switch is on another tool");
    let head = appended.head;
    f.governance.change(switch_on("source.fetch"), &operator()).await.unwrap();
    let old = Entry { governance_epoch: 1, asks: vec![ask(&head, 2, &[])], ..entry(&head) };
    assert_eq!(*refusal(&f.append(old.clone()).await.unwrap()), AskRefusal::Stale { epoch: 2 });
    let fresh = Entry { governance_epoch: 2, ..old };
    assert!(matches!(f.append(fresh).await.unwrap().asks[0], AskOutcome::Admitted(_)), "the writer has seen it");
}

pub async fn a_writer_ahead_of_the_store_is_stale(f: &Fixture) {
    let head = f.run(1).await;
    let ahead = Entry { governance_epoch: 5, asks: vec![ask(&head, 1, &[])], ..entry(&head) };
    assert_eq!(*refusal(&f.append(ahead).await.unwrap()), AskRefusal::Stale { epoch: 0 });
}

pub async fn a_command_in_between_refuses_the_ask(f: &Fixture) {
    let head = f.run(1).await;
    f.inbox.deliver(head.run_key, command(1, CommandClass::Other)).await.unwrap();
    let asked = Entry { asks: vec![ask(&head, 1, &[])], ..entry(&head) };
    let appended = f.append(asked).await.unwrap();
    assert!(matches!(appended.asks[0], AskOutcome::Admitted(_)), "only control commands stop a call");
    let head = appended.head;
    f.inbox.deliver(head.run_key, command(2, CommandClass::Control)).await.unwrap();
    let asked = Entry { facts: vec![fact("done")], asks: vec![ask(&head, 2, &[])], ..entry(&head) };
    let appended = f.append(asked).await.unwrap();
    assert_eq!(*refusal(&appended), AskRefusal::Commanded);
    assert_eq!((appended.events.len(), appended.head.control_seq), (1, 1));
}

pub async fn a_refusal_by_the_gate_is_recorded(f: &Fixture) {
    let head = f.run(1).await;
    let failed = RunEvent::StepFailed { step_id: step("one"), code: "no-grant".into(), message: "No.".into() };
    let refused = Ask { events: vec![fact("refused"), NewEvent::system(failed)], ..ask(&head, 1, &[]) };
    let appended = f.append(Entry { asks: vec![refused], ..entry(&head) }).await.unwrap();
    assert!(matches!(appended.asks.as_slice(), [AskOutcome::Recorded]));
    assert_eq!(appended.head.last_seq, 3);
    assert_eq!(f.journal.read(head.run_key, 1, 10).await.unwrap(), appended.events);
}
