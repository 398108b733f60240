//! Meters: what is reserved is held, what is settled is booked, once, and never beyond the limit (I3, I4).

use std::sync::Arc;

use signalbox_domain::governance::budget::{Budget, BudgetScope};
use signalbox_domain::governance::change::GovernanceChange;
use signalbox_domain::ids::{BudgetId, CallId};
use signalbox_domain::quantity::{BudgetCategory, Micros};
use signalbox_domain::run::append::{AskRefusal, Entry, EntryRefusal, Release, RunHead, pending_of};
use signalbox_domain::run::event::CallPending;

use super::asks::refusal;
use super::world::*;
use crate::clock::Clock;
use crate::journal::{AppendError, Appended, AskOutcome, EVENT_BODY_BYTES_MAX};

impl Fixture {
    pub(super) async fn asking(&self, head: &RunHead, number: u64, reservations: &[(&str, i64)]) -> Entry {
        self.up_to_date(Entry { asks: vec![ask(head, number, reservations)], ..entry(head) }).await
    }
}

pub(super) fn admitted(appended: &Appended) -> &CallPending {
    match appended.asks.as_slice() {
        [AskOutcome::Admitted(admitted)] => pending_of(admitted.event()).unwrap(),
        asks => panic!("one admission, not {asks:?}"),
    }
}

pub(super) fn settling(head: &RunHead, pending: &CallPending, units: i64) -> Entry {
    let release = Release::of(pending, cost(units));
    Entry { facts: vec![settled(pending.call_id, units)], releases: vec![release], ..entry(head) }
}

pub async fn an_exceeded_budget_refuses_the_ask_with_its_readings(f: &Fixture) {
    f.governance.put_budget(budget("a", 100)).await.unwrap();
    f.governance.put_budget(budget("b", 10)).await.unwrap();
    let head = f.run(1).await;
    let head = f.append(f.asking(&head, 1, &[("b", 7)]).await).await.unwrap().head;
    let appended = f.append(f.asking(&head, 2, &[("b", 4), ("a", 4), ("unknown", 4)]).await).await.unwrap();
    let AskRefusal::Exceeded { budget_id, readings } = refusal(&appended) else { panic!("{:?}", appended.asks) };
    assert_eq!(budget_id.as_str(), "b");
    let units = Micros::units;
    let shown: Vec<_> =
        readings.iter().map(|r| (r.budget_id.as_str(), r.consumed, r.reserved, r.limit, r.asked)).collect();
    assert_eq!(
        shown,
        [("a", units(0), units(0), units(100), units(4)), ("b", units(0), units(7), units(10), units(4))]
    );
    assert_eq!((f.figures("a").await, f.figures("b").await), ((0, 0), (0, 7)), "all or nothing");
}

pub async fn one_exceeded_ask_leaves_the_others_of_its_batch_alone(f: &Fixture) {
    f.governance.put_budget(budget("b", 10)).await.unwrap();
    let mut batch = Vec::new();
    for number in 0..4 {
        let head = f.run(number).await;
        batch.push(f.asking(&head, number, &[("b", 4)]).await);
    }
    let answers = f.journal.append(batch, f.clock.boot()).await;
    let admitted = answers.iter().filter(|a| matches!(a.as_ref().unwrap().asks[0], AskOutcome::Admitted(_)));
    assert_eq!(admitted.count(), 2);
    assert_eq!(f.figures("b").await, (0, 8));
}

pub async fn concurrent_asks_never_overspend_a_hard_budget(f: &Fixture) {
    const LIMIT: i64 = 60;
    for seed in 1..=4 {
        let (own, all) = (format!("own-{seed}"), format!("all-{seed}"));
        f.governance.put_budget(budget(&own, LIMIT)).await.unwrap();
        f.governance.put_budget(budget(&all, LIMIT + LIMIT / 2)).await.unwrap();
        let (_, governance_epoch) = f.governance.epoch().await.unwrap();
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..6 {
            let head = f.run(seed * 100 + writer).await;
            let journal = Arc::clone(&f.journal);
            let (own, all) = (own.clone(), all.clone());
            writers.spawn(async move {
                let mut head = head;
                let mut dice = seed * 7_919 + writer;
                let (mut open, mut spent) = (Vec::new(), 0);
                for step in 0..20 {
                    dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let units = (dice >> 33) as i64 % 9 + 1;
                    let entry = if (dice >> 50).is_multiple_of(3) && !open.is_empty() {
                        let (pending, units): (CallPending, i64) = open.remove(0);
                        spent += units - 1;
                        settling(&head, &pending, units - 1)
                    } else {
                        let number = seed << 40 | writer << 20 | step;
                        let asks = vec![ask(&head, number, &[(&all, units), (&own, units)])];
                        Entry { governance_epoch, asks, ..entry(&head) }
                    };
                    let mut answers = journal.append(vec![entry], crate::clock::BootInstant(0)).await;
                    let appended = answers.remove(0).unwrap();
                    if let [AskOutcome::Admitted(admitted)] = appended.asks.as_slice() {
                        let pending = pending_of(admitted.event()).unwrap().clone();
                        for meter in &pending.meters {
                            assert!(meter.consumed.plus(meter.reserved) <= meter.limit, "seed {seed}: {meter:?}");
                        }
                        open.push((pending, units));
                    }
                    head = appended.head;
                }
                (spent, open.iter().map(|(_, units)| units).sum::<i64>())
            });
        }
        let (mut spent, mut held) = (0, 0);
        while let Some(writer) = writers.join_next().await {
            let (writer_spent, writer_held) = writer.unwrap();
            spent += writer_spent;
            held += writer_held;
        }
        assert_eq!(f.figures(&own).await, (spent, held), "seed {seed}");
        assert_eq!(f.figures(&all).await, (spent, held), "seed {seed}");
        assert!(spent + held <= LIMIT && spent > 0, "seed {seed}: {spent} + {held}");
    }
}

pub async fn settling_releases_the_reservation_once(f: &Fixture) {
    f.governance.put_budget(budget("b", 10)).await.unwrap();
    let head = f.run(1).await;
    let appended = f.append(f.asking(&head, 1, &[("b", 7)]).await).await.unwrap();
    assert_eq!(f.figures("b").await, (0, 7));
    let settle = settling(&appended.head, admitted(&appended), 3);
    let done = f.append(settle.clone()).await.unwrap();
    assert_eq!(f.figures("b").await, (3, 0));
    let stored = f.journal.read(head.run_key, 2, 1).await.unwrap();
    assert_eq!(stored, done.events);
    let again = f.append(settle).await.unwrap_err();
    assert_eq!(again, AppendError::Refused(EntryRefusal::Conflict { expected: 2, actual: 3 }));
    assert_eq!(f.figures("b").await, (3, 0));
}

pub async fn a_poison_entry_holds_nothing_on_a_meter(f: &Fixture) {
    f.governance.put_budget(budget("b", 10)).await.unwrap();
    let (one, two) = (f.run(1).await, f.run(2).await);
    let mut poison = f.asking(&one, 1, &[("b", 7)]).await;
    poison.facts.push(fact(&"x".repeat(EVENT_BODY_BYTES_MAX)));
    let answers = f.journal.append(vec![poison, f.asking(&two, 2, &[("b", 7)]).await], f.clock.boot()).await;
    assert!(matches!(&answers[0], Err(AppendError::Store(error)) if error.code() == "entry-refused-by-store"));
    admitted(answers[1].as_ref().unwrap());
    assert_eq!(f.figures("b").await, (0, 7));
}

pub async fn a_budget_put_again_keeps_its_figures(f: &Fixture) {
    f.governance.put_budget(budget("b", 10)).await.unwrap();
    let head = f.run(1).await;
    let appended = f.append(f.asking(&head, 1, &[("b", 4)]).await).await.unwrap();
    let settle = settling(&appended.head, admitted(&appended), 3);
    let head = f.append(settle).await.unwrap().head;
    let head = f.append(f.asking(&head, 2, &[("b", 5)]).await).await.unwrap().head;
    f.governance.put_budget(budget("b", 9)).await.unwrap();
    assert_eq!(f.figures("b").await, (3, 5));
    let over = f.append(f.asking(&head, 3, &[("b", 2)]).await).await.unwrap();
    assert!(matches!(refusal(&over), AskRefusal::Exceeded { .. }), "the new limit holds at once, without an epoch");
    assert_eq!(f.governance.epoch().await.unwrap().1, 1);
}

pub async fn a_budget_that_comes_into_force_makes_calls_in_the_making_stale(f: &Fixture) {
    let (ours, theirs) = (f.run(1).await, f.create(new_run("globex", 2)).await);
    let open_anew = async || {
        let (before, after) = (f.asking(&ours, 1, &[]).await, f.asking(&theirs, 2, &[]).await);
        f.governance.put_budget(budget("b", 10)).await.unwrap();
        (before, after)
    };
    let (before, elsewhere) = open_anew().await;
    let stale = f.append(before).await.unwrap();
    assert_eq!(*refusal(&stale), AskRefusal::Stale { epoch: 1 });
    admitted(&f.append(elsewhere).await.unwrap());
    let changes = f.governance.changes(0).await.unwrap();
    assert_eq!(changes[0].change, GovernanceChange::BudgetOpened(budget("b", 10)));

    f.governance.retire_budget(&BudgetId::new("b").unwrap()).await.unwrap();
    let (before, _) = open_anew().await;
    assert_eq!(*refusal(&f.append(before).await.unwrap()), AskRefusal::Stale { epoch: 2 });

    let before = f.asking(&ours, 1, &[]).await;
    let narrower = Budget { scope: BudgetScope::Tool, scope_key: "source.fetch".into(), ..budget("b", 10) };
    f.governance.put_budget(narrower).await.unwrap();
    let stale = f.append(before).await.unwrap();
    assert_eq!(*refusal(&stale), AskRefusal::Stale { epoch: 3 }, "it is meant for other calls now");
}

pub async fn a_retired_budget_is_neither_listed_nor_asked_and_keeps_its_figures(f: &Fixture) {
    let id = BudgetId::new("b").unwrap();
    f.governance.put_budget(budget("b", 10)).await.unwrap();
    let (one, two) = (f.run(1).await, f.run(2).await);
    let open = f.append(f.asking(&one, 1, &[("b", 7)]).await).await.unwrap();
    f.governance.retire_budget(&id).await.unwrap();
    f.governance.retire_budget(&BudgetId::new("never-there").unwrap()).await.unwrap();
    assert_eq!(f.governance.budgets().await.unwrap(), []);
    let free = f.append(f.asking(&two, 2, &[("b", 7)]).await).await.unwrap();
    assert!(admitted(&free).meters.is_empty(), "a retired budget bounds nothing and holds nothing");
    f.append(settling(&open.head, admitted(&open), 6)).await.unwrap();
    f.append(settling(&free.head, admitted(&free), 7)).await.unwrap();
    f.governance.put_budget(budget("b", 10)).await.unwrap();
    assert_eq!(f.figures("b").await, (6, 0), "only what was held is booked");
}

pub async fn an_unsound_budget_is_refused(f: &Fixture) {
    f.governance.put_budget(budget("b", 10)).await.unwrap();
    let other_category = Budget { category: BudgetCategory::InputTokens, ..budget("b", 10) };
    let negative = Budget { limit: Micros(-1), ..budget("c", 10) };
    let unreadable = Budget { limit: Micros(i64::MAX), ..budget("d", 10) };
    for unsound in [other_category, negative, unreadable] {
        let refused = f.governance.put_budget(unsound).await.unwrap_err();
        assert_eq!(refused.code(), "entry-refused-by-store");
    }
    assert_eq!(f.governance.budgets().await.unwrap().len(), 1);
}

pub async fn a_foreign_tenants_meter_cannot_be_reached_by_its_name(f: &Fixture) {
    f.governance.put_budget(budget("b", 10)).await.unwrap();
    let ours = f.run(1).await;
    f.append(f.asking(&ours, 1, &[("b", 7)]).await).await.unwrap();
    let theirs = f.create(new_run("globex", 2)).await;
    let appended = f.append(f.asking(&theirs, 2, &[("b", 9)]).await).await.unwrap();
    assert!(admitted(&appended).meters.is_empty());
    f.append(settling(&appended.head, admitted(&appended), 9)).await.unwrap();
    assert_eq!(f.figures("b").await, (0, 7));
}

pub async fn figures_roll_with_the_window(f: &Fixture) {
    let daily = Budget { period_seconds: Some(86_400), ..budget("b", 10) };
    f.governance.put_budget(daily).await.unwrap();
    let head = f.run(1).await;
    let appended = f.append(f.asking(&head, 1, &[("b", 8)]).await).await.unwrap();
    let head = f.append(settling(&appended.head, admitted(&appended), 8)).await.unwrap().head;
    let over = f.append(f.asking(&head, 2, &[("b", 8)]).await).await.unwrap();
    assert!(matches!(refusal(&over), AskRefusal::Exceeded { .. }));
    f.clock.advance_ms(86_400_000);
    assert_eq!(f.figures("b").await, (0, 0));
    let fresh = f.append(f.asking(&over.head, 3, &[("b", 8)]).await).await.unwrap();
    assert_eq!(admitted(&fresh).call_id, CallId::new(call(3).uuid()));
    assert_eq!(f.figures("b").await, (0, 8));
}
