//! Runs above and below one another: begun together, told together.

use signalbox_domain::ids::RunKey;
use signalbox_domain::run::append::{AskRefusal, Entry, NewEvent, RunHead, RunProjection, Telling};
use signalbox_domain::run::event::{RunEvent, RunFinished};
use signalbox_domain::run::status::RunStatus;

use super::asks::refusal;
use super::world::*;
use crate::inbox::{CommandClass, Delivered, InboxCommand};
use crate::journal::AskOutcome;

fn command(number: u64, class: CommandClass) -> InboxCommand {
    InboxCommand { command_id: command_id(number), class, body: b"{}".to_vec() }
}

async fn begin(f: &Fixture, head: &RunHead, number: u64) -> (RunHead, RunHead) {
    let appended = f.append(Entry { asks: vec![hand_off(head, number)], ..entry(head) }).await.unwrap();
    assert!(matches!(appended.asks[0], AskOutcome::Recorded), "{:?}", appended.asks);
    let child = f.journal.head(run_key(head.tenant_id.as_str(), number)).await.unwrap().unwrap();
    (appended.head, child)
}

/// The whole claim of a run by its own node, so that it can append.
async fn take(f: &Fixture, run: RunKey) -> RunHead {
    f.leases.renew(node(1), "one").await.unwrap();
    f.leases.claim_one(node(1), run).await.unwrap().unwrap()
}

pub async fn a_sub_run_begins_with_its_parents_append_or_not_at_all(f: &Fixture) {
    let head = f.run(1).await;
    let late = Entry { asks: vec![hand_off(&head, 2)], control_seq: head.control_seq, ..entry(&head) };
    f.inbox.deliver(head.run_key, command(1, CommandClass::Control)).await.unwrap();
    let refused = f.append(late).await.unwrap();
    assert_eq!(*refusal(&refused), AskRefusal::Commanded);
    assert!(f.journal.head(run_key("acme", 2)).await.unwrap().is_none(), "a parent that is being stopped begins none");

    let head = f.journal.head(head.run_key).await.unwrap().unwrap();
    let (_, child) = begin(f, &head, 2).await;
    assert_eq!((child.owner, child.last_seq, child.control_seq), (None, 1, 0), "queued like any run");
    assert_eq!(f.journal.read(child.run_key, 0, 10).await.unwrap().len(), 1);
    assert_eq!(take(f, child.run_key).await.owner, Some(node(1)));
}

pub async fn nobody_begins_the_child_of_another_or_one_whose_id_is_in_use(f: &Fixture) {
    let (head, other) = (f.run(1).await, f.run(2).await);
    let forged = hand_off(&other, 3);
    let refused = f.append(Entry { asks: vec![forged], ..entry(&head) }).await.unwrap();
    assert_eq!(*refusal(&refused), AskRefusal::SubRunTaken);
    assert!(f.journal.head(run_key("acme", 3)).await.unwrap().is_none());
    let refused = f.append(Entry { asks: vec![hand_off(&refused.head, 2)], ..entry(&refused.head) }).await.unwrap();
    assert_eq!(*refusal(&refused), AskRefusal::SubRunTaken);
    assert_eq!(f.journal.head(other.run_key).await.unwrap().unwrap(), other, "what was there is as it was");
}

pub async fn what_a_run_tells_another_lies_in_its_inbox_once(f: &Fixture) {
    let (head, other) = (f.run(1).await, f.run(2).await);
    let telling = |body: &[u8]| Telling { run_key: head.run_key, command_id: command_id(7), body: body.to_vec() };
    let nobody = Telling { run_key: run_key("acme", 99), ..telling(b"{}") };
    let tells = vec![telling(b"{}"), nobody];
    let appended = f.append(Entry { tells: tells.clone(), ..saying(&other, "over") }).await.unwrap();
    f.append(Entry { tells, ..saying(&appended.head, "over again") }).await.unwrap();
    let (waiting, control_seq) = f.inbox.pending(head.run_key).await.unwrap();
    assert_eq!((waiting, control_seq), (vec![command(7, CommandClass::Other)], 0));
    assert_eq!(f.journal.head(head.run_key).await.unwrap().unwrap().inbox_len, 1);
    // An append that is refused tells nobody anything.
    let stale =
        Entry { tells: vec![Telling { command_id: command_id(8), ..telling(b"{}") }], ..saying(&other, "late") };
    f.append(stale).await.unwrap_err();
    assert_eq!(f.inbox.pending(head.run_key).await.unwrap().0.len(), 1);
}

async fn three_levels(f: &Fixture) -> [RunHead; 3] {
    let top = f.run(1).await;
    let (top, child) = begin(f, &top, 2).await;
    let child = take(f, child.run_key).await;
    let (child, grandchild) = begin(f, &child, 3).await;
    [top, child, grandchild]
}

pub async fn a_command_reaches_every_live_run_below_once(f: &Fixture) {
    let [top, child, grandchild] = three_levels(f).await;
    let beside = f.run(9).await;
    for _ in 0..2 {
        let down = f.inbox.deliver_down(top.run_key, command(1, CommandClass::Control), b"[1]".to_vec());
        assert_eq!(down.await.unwrap().0, Delivered::Waiting);
    }
    for run in [&child, &grandchild] {
        let (waiting, control_seq) = f.inbox.pending(run.run_key).await.unwrap();
        assert_eq!((waiting.len(), control_seq), (1, 1));
        assert_eq!((waiting[0].class, waiting[0].body.as_slice()), (CommandClass::Control, b"[1]".as_slice()));
    }
    assert_eq!(f.inbox.pending(top.run_key).await.unwrap().0, [command(1, CommandClass::Control)]);
    assert_eq!(f.journal.head(beside.run_key).await.unwrap().unwrap(), beside);
    let asking = Entry { asks: vec![ask(&child, 5, &[])], ..entry(&child) };
    assert_eq!(*refusal(&f.append(asking).await.unwrap()), AskRefusal::Commanded, "none admits a call after it");
    // What is closed is told nothing.
    let child = f.journal.head(child.run_key).await.unwrap().unwrap();
    let closed = RunProjection { closed: true, ..projection() };
    f.append(Entry { projection: Some(closed), ..saying(&child, "the end") }).await.unwrap();
    let (_, told) = f.inbox.deliver_down(top.run_key, command(2, CommandClass::Other), b"[2]".to_vec()).await.unwrap();
    assert_eq!(told, []);
}

pub async fn the_end_of_a_run_is_told_to_every_live_run_below(f: &Fixture) {
    let [top, child, grandchild] = three_levels(f).await;
    let unended = f.append(Entry { below: Some(b"[3]".to_vec()), ..saying(&top, "not the end") }).await.unwrap();
    assert_eq!(f.inbox.pending(child.run_key).await.unwrap().1, 0, "nothing has ended");
    let end = RunFinished {
        status: RunStatus::Failed,
        code: None,
        message: None,
        user_visible_status_copy: None,
        safe_degradation_mode_id: None,
        blamed_id: None,
        step_id: None,
        outputs: vec![],
    };
    let facts = vec![NewEvent::system(RunEvent::RunFinished(Box::new(end)))];
    f.append(Entry { facts, below: Some(b"[3]".to_vec()), ..entry(&unended.head) }).await.unwrap();
    for run in [child, grandchild] {
        let (waiting, control_seq) = f.inbox.pending(run.run_key).await.unwrap();
        assert_eq!((waiting.len(), control_seq, waiting[0].body.as_slice()), (1, 1, b"[3]".as_slice()));
    }
}

pub async fn a_child_that_is_being_begun_while_its_parent_is_killed_is_told_or_does_not_begin(f: &Fixture) {
    for number in 1..=20 {
        let head = f.run(number * 2).await;
        let begins = f.append(Entry { asks: vec![hand_off(&head, number * 2 + 1)], ..entry(&head) });
        let kill = f.inbox.deliver_down(head.run_key, command(number, CommandClass::Control), b"{}".to_vec());
        let (begun, killed) = tokio::join!(begins, kill);
        killed.unwrap();
        let child = f.journal.head(run_key("acme", number * 2 + 1)).await.unwrap();
        match begun.unwrap().asks.as_slice() {
            [AskOutcome::Recorded] => assert_eq!(child.unwrap().control_seq, 1, "it is told"),
            asks => assert!(child.is_none(), "{asks:?}"),
        }
    }
}
