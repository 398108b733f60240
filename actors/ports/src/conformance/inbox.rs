//! Commands lie in the inbox until they are answered, and are answered once.

use signalbox_domain::run::append::{CommandAnswer, Entry};

use super::world::*;
use crate::inbox::{ANSWER_KEPT_MS, COMMAND_BYTES_MAX, CommandClass, Delivered, InboxCommand, WAITING_COMMANDS_MAX};

pub async fn a_command_is_delivered_once_under_its_id(f: &Fixture) {
    let run = f.run(1).await.run_key;
    let first = command(1, CommandClass::Control);
    for _ in 0..3 {
        assert_eq!(f.inbox.deliver(run, first.clone()).await.unwrap(), Delivered::Waiting);
    }
    let other_body = InboxCommand { body: b"{}".to_vec(), ..first.clone() };
    let other_class = InboxCommand { class: CommandClass::Other, ..first.clone() };
    for mismatch in [other_body, other_class] {
        assert_eq!(f.inbox.deliver(run, mismatch).await.unwrap(), Delivered::Mismatch);
    }
    assert_eq!(f.inbox.pending(run).await.unwrap(), (vec![first.clone()], 1));
    let other_run = f.run(2).await.run_key;
    assert_eq!(f.inbox.deliver(other_run, first).await.unwrap(), Delivered::Waiting, "ids are the run's own");
}

pub async fn an_answer_is_kept_for_a_day(f: &Fixture) {
    let head = f.run(1).await;
    let (run, waiting) = (head.run_key, command(1, CommandClass::Other));
    f.inbox.deliver(run, waiting.clone()).await.unwrap();
    assert_eq!(f.inbox.answer(run, command_id(1)).await.unwrap(), None);
    let answers = vec![(command_id(1), yes(2))];
    f.append(Entry { facts: vec![fact("done")], answers, ..entry(&head) }).await.unwrap();
    assert_eq!(f.inbox.pending(run).await.unwrap().0, []);
    f.clock.advance_ms(ANSWER_KEPT_MS as u64 - 1);
    assert_eq!(f.inbox.answer(run, command_id(1)).await.unwrap(), Some(yes(2)));
    assert_eq!(f.inbox.deliver(run, waiting.clone()).await.unwrap(), Delivered::Answered(yes(2)));
    f.clock.advance_ms(1);
    assert_eq!(f.inbox.answer(run, command_id(1)).await.unwrap(), None);
    assert_eq!(f.inbox.deliver(run, waiting).await.unwrap(), Delivered::Waiting, "forgotten, so it is new");
}

pub async fn control_commands_come_first_and_are_counted(f: &Fixture) {
    let run = f.run(1).await.run_key;
    for (number, class) in [(1, CommandClass::Other), (2, CommandClass::Control), (3, CommandClass::Other)] {
        f.inbox.deliver(run, command(number, class)).await.unwrap();
    }
    f.inbox.deliver(run, command(4, CommandClass::Control)).await.unwrap();
    let (pending, control_seq) = f.inbox.pending(run).await.unwrap();
    assert_eq!(pending.iter().map(|c| c.command_id).collect::<Vec<_>>(), [2, 4, 1, 3].map(command_id));
    assert_eq!(control_seq, 2);
    let head = f.head(run).await;
    assert_eq!((head.control_seq, head.inbox_len), (2, 4));
}

pub async fn a_command_for_an_unknown_run_is_turned_away(f: &Fixture) {
    let unknown = run_key("acme", 9);
    assert_eq!(f.inbox.deliver(unknown, command(1, CommandClass::Control)).await.unwrap(), Delivered::NoSuchRun);
    assert_eq!(f.inbox.pending(unknown).await.unwrap(), (vec![], 0));
    assert_eq!(f.inbox.answer(unknown, command_id(1)).await.unwrap(), None);
}

pub async fn an_inbox_has_bounds_that_control_passes(f: &Fixture) {
    let run = f.run(1).await.run_key;
    for number in 0..WAITING_COMMANDS_MAX as u64 {
        f.inbox.deliver(run, command(number, CommandClass::Other)).await.unwrap();
    }
    let refused = f.inbox.deliver(run, command(5_000, CommandClass::Other)).await.unwrap_err();
    assert_eq!(refused.code(), "store-unavailable");
    assert_eq!(f.inbox.deliver(run, command(7, CommandClass::Other)).await.unwrap(), Delivered::Waiting);
    assert_eq!(f.inbox.deliver(run, command(5_001, CommandClass::Control)).await.unwrap(), Delivered::Waiting);
    let (pending, _) = f.inbox.pending(run).await.unwrap();
    assert_eq!((pending.len(), pending[0].command_id), (WAITING_COMMANDS_MAX + 1, command_id(5_001)));
}

pub async fn a_command_that_is_too_big_is_refused(f: &Fixture) {
    let run = f.run(1).await.run_key;
    let big = |bytes| InboxCommand { body: vec![b' '; bytes], ..command(1, CommandClass::Control) };
    let refused = f.inbox.deliver(run, big(COMMAND_BYTES_MAX + 1)).await.unwrap_err();
    assert_eq!(refused.code(), "entry-refused-by-store");
    assert_eq!(f.inbox.pending(run).await.unwrap(), (vec![], 0));
    f.inbox.deliver(run, big(COMMAND_BYTES_MAX)).await.unwrap();
    assert_eq!(f.inbox.pending(run).await.unwrap(), (vec![big(COMMAND_BYTES_MAX)], 1));
}

pub async fn only_a_waiting_command_can_be_answered(f: &Fixture) {
    let head = f.run(1).await;
    f.inbox.deliver(head.run_key, command(1, CommandClass::Other)).await.unwrap();
    let answering = |head, id, code: &str| Entry {
        answers: vec![(command_id(id), CommandAnswer { code: code.into(), ..yes(1) })],
        ..entry(head)
    };
    let head = f.append(answering(&head, 2, "never-asked")).await.unwrap().head;
    assert_eq!((head.inbox_len, f.inbox.answer(head.run_key, command_id(2)).await.unwrap()), (1, None));
    let head = f.append(answering(&head, 1, "first")).await.unwrap().head;
    let head = f.append(answering(&head, 1, "second")).await.unwrap().head;
    assert_eq!(head.inbox_len, 0);
    let answer = f.inbox.answer(head.run_key, command_id(1)).await.unwrap().unwrap();
    assert_eq!(answer.code, "first");
}
