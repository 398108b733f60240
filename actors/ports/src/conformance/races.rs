//! Many at once: nobody overspends, nobody settles twice, nobody is admitted past a change, and nobody waits for ever.

use std::sync::Arc;

use signalbox_domain::run::append::{AskRefusal, Entry, EntryRefusal, Release, RunHead, pending_of};
use signalbox_domain::run::event::CallPending;
use tokio::task::JoinSet;

use super::world::*;
use crate::clock::BootInstant;
use crate::inbox::{CommandClass, Delivered, InboxCommand};
use crate::journal::{AppendError, Appended, AskOutcome, Created, NewRun};

impl Fixture {
    /// Appends each entry from a task of its own, all at once; the answers in the order of the entries.
    pub(super) async fn append_at_once(&self, entries: Vec<Entry>) -> Vec<Result<Appended, AppendError>> {
        let start = Arc::new(tokio::sync::Barrier::new(entries.len()));
        let mut writers = JoinSet::new();
        for (place, entry) in entries.into_iter().enumerate() {
            let (journal, start) = (Arc::clone(&self.journal), Arc::clone(&start));
            writers.spawn(async move {
                start.wait().await;
                (place, journal.append(vec![entry], BootInstant(0)).await.remove(0))
            });
        }
        let mut answers = writers.join_all().await;
        answers.sort_by_key(|(place, _)| *place);
        answers.into_iter().map(|(_, answer)| answer).collect()
    }
}

fn admitted(appended: &Appended) -> Option<&CallPending> {
    match appended.asks.as_slice() {
        [AskOutcome::Admitted(admitted)] => pending_of(admitted.event()),
        _ => None,
    }
}

fn settling(head: &RunHead, pending: &CallPending, units: i64) -> Entry {
    let releases = vec![Release::of(pending, cost(units))];
    Entry { facts: vec![settled(pending.call_id, units)], releases, ..entry(head) }
}

pub async fn of_twenty_calls_at_once_of_thirty_on_a_hundred_three_are_admitted(f: &Fixture) {
    const CALLS: u64 = 20;
    for round in 1..=3 {
        let budget_id = format!("round-{round}");
        f.governance.put_budget(budget(&budget_id, 100)).await.unwrap();
        let mut asks = Vec::new();
        for number in round * 100..round * 100 + CALLS {
            let head = f.run(number).await;
            asks.push(
                f.up_to_date(Entry { asks: vec![ask(&head, number, &[(&budget_id, 30)])], ..entry(&head) }).await,
            );
        }
        let answers = f.append_at_once(asks).await;
        let answers: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
        let open: Vec<_> = answers.iter().filter_map(|answer| Some((answer, admitted(answer)?))).collect();
        assert_eq!(open.len(), 3);
        let exceeded =
            |answer: &&Appended| matches!(answer.asks.as_slice(), [AskOutcome::Refused(AskRefusal::Exceeded { .. })]);
        assert_eq!(answers.iter().filter(exceeded).count(), 17);
        assert_eq!(f.figures(&budget_id).await, (0, 90));
        let settlements = open.iter().map(|(answer, pending)| settling(&answer.head, pending, 30)).collect();
        assert!(f.append_at_once(settlements).await.iter().all(Result::is_ok));
        assert_eq!(f.figures(&budget_id).await, (90, 0));
    }
}

pub async fn two_settlements_of_one_call_at_once_free_nobody_elses_reservation(f: &Fixture) {
    f.governance.put_budget(budget("b", 100)).await.unwrap();
    let (one, two) = (f.run(1).await, f.run(2).await);
    let mut open = Vec::new();
    for (number, head) in [(1, &one), (2, &two)] {
        let asking = Entry { asks: vec![ask(head, number, &[("b", 30)])], ..entry(head) };
        open.push(f.append(f.up_to_date(asking).await).await.unwrap());
    }
    assert_eq!(f.figures("b").await, (0, 60));
    let settle_a = settling(&open[0].head, admitted(&open[0]).unwrap(), 12);
    let answers = f.append_at_once(vec![settle_a.clone(); 4]).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1);
    let conflicts = |answer: &&Result<Appended, AppendError>| {
        matches!(answer, Err(AppendError::Refused(EntryRefusal::Conflict { .. })))
    };
    assert_eq!(answers.iter().filter(conflicts).count(), 3);
    assert_eq!(f.figures("b").await, (12, 30), "the other call's reservation stands");
    // Once more, long after the answer was lost.
    assert!(matches!(f.append(settle_a).await, Err(AppendError::Refused(EntryRefusal::Conflict { .. }))));
    assert_eq!(f.figures("b").await, (12, 30));
    f.append(settling(&open[1].head, admitted(&open[1]).unwrap(), 30)).await.unwrap();
    assert_eq!(f.figures("b").await, (42, 0));
}

pub async fn an_ask_that_meets_a_change_is_admitted_before_it_or_not_at_all(f: &Fixture) {
    const CALLS: u64 = 12;
    for round in 0..4_u64 {
        let epoch = f.governance.epoch().await.unwrap().1;
        let mut heads = Vec::new();
        for number in 0..CALLS {
            heads.push(f.run(round * 100 + number).await);
        }
        let asking = |head: &RunHead, number: u64| Entry {
            asks: vec![ask(head, number, &[])],
            governance_epoch: epoch,
            ..entry(head)
        };
        let entries = heads.iter().zip(0..).map(|(head, n)| asking(head, round * 100 + n)).collect();
        let by = operator();
        let change = f.governance.change(switch_on("source.fetch"), &by);
        let (answers, change) = tokio::join!(f.append_at_once(entries), change);
        let change = change.unwrap();
        for (answer, head) in answers.into_iter().map(Result::unwrap).zip(&heads) {
            match answer.asks.as_slice() {
                [AskOutcome::Admitted(admitted)] => {
                    let pending = pending_of(admitted.event()).unwrap();
                    assert_eq!((pending.epoch, f.head(head.run_key).await.last_seq), (epoch, 2));
                }
                [AskOutcome::Refused(refusal)] => assert_eq!(*refusal, AskRefusal::Stale { epoch: change.epoch }),
                other => panic!("{other:?}"),
            }
        }
        let late = f.run(round * 100 + 99).await;
        let late = f.append(asking(&late, round * 100 + 99)).await.unwrap();
        assert!(admitted(&late).is_none(), "nothing is admitted once the change is committed");
    }
}

/// Appends over the same runs and meters in every order, beside claims, renewals, deliveries and changes of the rules.
pub async fn whatever_is_done_at_once_comes_through_and_the_figures_add_up(f: &Fixture) {
    const RUNS: u64 = 6;
    for id in ["a", "b", "c"] {
        f.governance.put_budget(budget(id, 1_000_000)).await.unwrap();
    }
    for number in 0..RUNS {
        f.run(number).await;
    }
    let mut work = JoinSet::new();
    for worker in 0..4_u64 {
        let (journal, governance) = (Arc::clone(&f.journal), Arc::clone(&f.governance));
        work.spawn(async move {
            let mut dice = worker + 1;
            let mut spent = 0;
            for round in 0..12_u64 {
                let (_, governance_epoch) = governance.epoch().await.unwrap();
                let mut batch = Vec::new();
                for place in 0..3_u64 {
                    dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let head = journal.head(run_key("acme", (dice >> 33) % RUNS)).await.unwrap().unwrap();
                    let budgets = [[("a", 1), ("b", 1)], [("c", 1), ("a", 1)], [("b", 1), ("c", 1)]];
                    let number = worker << 40 | round << 20 | place;
                    let asks = vec![ask(&head, number, &budgets[(dice >> 40) as usize % 3])];
                    batch.push(Entry { asks, governance_epoch, ..entry(&head) });
                }
                for answer in journal.append(batch, BootInstant(0)).await {
                    let appended = match answer {
                        Ok(appended) => appended,
                        Err(AppendError::Refused(_)) => continue,
                        Err(error) => panic!("{error}"),
                    };
                    let Some(pending) = admitted(&appended) else { continue };
                    // Somebody else may write to the run in between: then the settlement is said again on top of it.
                    let mut head = appended.head.clone();
                    loop {
                        match journal.append(vec![settling(&head, pending, 1)], BootInstant(0)).await.remove(0) {
                            Ok(_) => break,
                            Err(AppendError::Refused(_)) => head = journal.head(head.run_key).await.unwrap().unwrap(),
                            Err(error) => panic!("{error}"),
                        }
                    }
                    spent += 2;
                }
            }
            spent
        });
    }
    for worker in 10..12_u64 {
        let (journal, leases, inbox) = (Arc::clone(&f.journal), Arc::clone(&f.leases), Arc::clone(&f.inbox));
        work.spawn(async move {
            for round in 0..12_u64 {
                assert!(leases.renew(node(worker), "node").await.unwrap());
                let run = NewRun { owner: None, ..new_run("globex", worker * 1_000 + round / 2) };
                assert!(matches!(journal.create(run).await.unwrap(), Created::New { .. } | Created::Exists(_)));
                leases.claim(node(worker), 3).await.unwrap();
                leases.claim_one(node(worker), run_key("globex", worker * 1_000)).await.unwrap();
                let ghost = node(worker * 100 + round);
                leases.renew(ghost, "ghost").await.unwrap();
                leases.release(ghost).await.unwrap();
                let id = command_id(worker * 1_000 + round);
                let said = InboxCommand { command_id: id, ..command(1, CommandClass::Other) };
                let delivered = inbox.deliver(run_key("acme", round % RUNS), said).await.unwrap();
                assert_eq!(delivered, Delivered::Waiting);
            }
            0
        });
    }
    let governance = Arc::clone(&f.governance);
    work.spawn(async move {
        for round in 0..12 {
            governance.put_budget(budget("a", 1_000_000 + round)).await.unwrap();
            governance.change(switch_on(&format!("tool-{round}")), &operator()).await.unwrap();
        }
        0
    });
    let spent: i64 = work.join_all().await.into_iter().sum();
    let mut booked = 0;
    for id in ["a", "b", "c"] {
        let (consumed, reserved) = f.figures(id).await;
        assert_eq!(reserved, 0);
        booked += consumed;
    }
    assert!(spent > 0);
    assert_eq!(booked, spent);
    for number in 0..RUNS {
        let head = f.head(run_key("acme", number)).await;
        let events = f.journal.read(head.run_key, 0, 1_000).await.unwrap();
        assert_eq!(events.len() as u64, head.last_seq);
        assert!(events.iter().all(|event| event.hash == event.expected_hash(&head.tenant_id)));
        assert!(events.windows(2).all(|pair| pair[1].prev_hash == pair[0].hash));
    }
}

pub async fn of_nodes_that_claim_at_once_each_run_gets_one(f: &Fixture) {
    const RUNS: u64 = 40;
    for number in 0..RUNS {
        f.create(NewRun { owner: None, ..new_run("acme", number) }).await;
    }
    let start = Arc::new(tokio::sync::Barrier::new(4));
    let mut claiming = JoinSet::new();
    for number in 1..=4 {
        assert!(f.leases.renew(node(number), "node").await.unwrap());
        let (leases, start) = (Arc::clone(&f.leases), Arc::clone(&start));
        claiming.spawn(async move {
            start.wait().await;
            let mut claimed = Vec::new();
            // A page that came back empty may only have been in other hands.
            for _ in 0..RUNS {
                claimed.extend(leases.claim(node(number), 3).await.unwrap());
            }
            claimed
        });
    }
    let mut claimed = claiming.join_all().await.concat();
    claimed.sort_by_key(|head| head.run_key);
    let keys: Vec<_> = claimed.iter().map(|head| head.run_key).collect();
    assert_eq!(keys, (0..RUNS).map(|number| run_key("acme", number)).collect::<Vec<_>>(), "all, and none twice");
    for head in claimed {
        assert_eq!(f.head(head.run_key).await, head);
        f.append(saying(&head, "mine")).await.unwrap();
    }
}
