//! Values and figures are the same after storing as before, whatever they look like.

use serde_json::{Map, Value, json};
use signalbox_domain::canonical::digest;
use signalbox_domain::governance::budget::Budget;
use signalbox_domain::ids::BudgetId;
use signalbox_domain::quantity::{BudgetCategory, Micros, Usage};
use signalbox_domain::run::append::{AskRefusal, Entry, NewEvent, Release, RunHead, pending_of};
use signalbox_domain::run::event::{Reservation, RunEvent, StoredValue};
use signalbox_domain::time::UnixMicros;

use super::asks::refusal;
use super::world::*;
use crate::clock::Clock;
use crate::journal::AskOutcome;

/// What texts are made of: whatever has hurt a store before.
const PIECES: [&str; 12] = [
    "a",
    "\0",
    "\\u0000",
    "\u{1f600}",
    "\u{d7ff}",
    "\u{e000}",
    "\u{10ffff}",
    "\"",
    "\\",
    "\r\n",
    "\u{2028}",
    "e\u{301}",
];

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn text(&mut self) -> String {
        (0..self.roll(6)).map(|_| PIECES[self.roll(PIECES.len() as u64) as usize]).collect()
    }

    fn value(&mut self, depth: u64) -> Value {
        match self.roll(if depth == 0 { 6 } else { 9 }) {
            0 => Value::Null,
            1 => json!(self.roll(2) == 0),
            2 => json!(self.roll(1 << 30) as i64 - (1 << 29)),
            // Exact in a double, and with a long decimal.
            3 => json!((self.roll(1 << 30) as f64) / 3.0),
            4 => json!(f64::from_bits(self.0 & !(0x7ff << 52) | (self.roll(2_046) << 52))),
            5 => json!(self.text()),
            6 => (0..self.roll(5)).map(|_| self.value(depth - 1)).collect(),
            _ => Value::Object((0..self.roll(5)).map(|_| (self.text(), self.value(depth - 1))).collect::<Map<_, _>>()),
        }
    }
}

fn carrying(value: &Value) -> NewEvent {
    let mut settled = settled(call(1), 0);
    if let RunEvent::CallSettled(settled) = &mut settled.event {
        settled.output = Some(StoredValue::Inline(value.clone()));
    }
    settled
}

fn carried(event: &RunEvent) -> &Value {
    let RunEvent::CallSettled(settled) = event else { panic!("{event:?}") };
    let Some(StoredValue::Inline(value)) = &settled.output else { panic!("{settled:?}") };
    value
}

pub async fn a_value_has_the_same_digest_after_storing_as_before(f: &Fixture) {
    let mut dice = Dice(20_260_511);
    let mut values = vec![
        json!({"bb": 1, "a": {"z": 1, "y": 2}}),
        json!({"k\0": "a\0b", "spelled out": "\\u0000"}),
        json!([1.0, 1e21, 0.1, -0.0, 5e-324, 9_007_199_254_740_991_i64]),
    ];
    values.extend((0..400).map(|_| dice.value(4)));
    let head = f.run(1).await;
    let written = f.append(Entry { facts: values.iter().map(carrying).collect(), ..entry(&head) }).await.unwrap();
    let read = f.journal.read(head.run_key, 1, 1_000).await.unwrap();
    assert_eq!(read, written.events);
    for (event, value) in read.iter().zip(&values) {
        let event = event.event().unwrap();
        assert_eq!(digest(carried(&event)), digest(value), "{value}");
    }
}

/// A request for a tenth of a unit.
async fn tenth(f: &Fixture, head: &RunHead, budget: &str, number: u64) -> Entry {
    let mut asked = ask(head, head.last_seq << 20 | number, &[(budget, 1)]);
    for new in &mut asked.events {
        if let RunEvent::CallPending(pending) = &mut new.event {
            pending.reservations[0].amount = Micros(100_000);
        }
    }
    f.up_to_date(Entry { asks: vec![asked], ..entry(head) }).await
}

pub async fn millionths_add_up_to_exactly_one_and_print_so(f: &Fixture) {
    let millionths = |amount: i64| Usage::of(BudgetCategory::CostUnits, Micros(amount));
    for (id, limit, times) in [("one", 1_000_000, 10), ("third", 300_000, 3)] {
        f.governance.put_budget(Budget { limit: Micros(limit), ..budget(id, 1) }).await.unwrap();
        let mut head = f.run(times).await;
        for number in 0..times {
            let appended = f.append(tenth(f, &head, id, number).await).await.unwrap();
            let [AskOutcome::Admitted(admitted)] = appended.asks.as_slice() else { panic!("{:?}", appended.asks) };
            let pending = pending_of(admitted.event()).unwrap();
            let releases = vec![Release::of(pending, millionths(100_000))];
            let facts = vec![settled(pending.call_id, 0)];
            head = f.append(Entry { facts, releases, ..entry(&appended.head) }).await.unwrap().head;
        }
        let meter = f.meter(id).await;
        assert_eq!((meter.consumed, meter.reserved), (Micros(limit), Micros::ZERO));
        let printed = if limit == 300_000 { "0.3" } else { "1.0" };
        assert_eq!(meter.consumed.to_string(), printed);
        let over = f.append(tenth(f, &head, id, times).await).await.unwrap();
        assert!(matches!(refusal(&over), AskRefusal::Exceeded { .. }));
    }

    // Many charges of a millionth: no float comes near them.
    f.governance.put_budget(budget("dust", 1)).await.unwrap();
    let mut head = f.run(99).await;
    let nothing_held = Reservation {
        budget_id: BudgetId::new("dust").unwrap(),
        category: BudgetCategory::CostUnits,
        amount: Micros::ZERO,
    };
    for batch in 0..2_u64 {
        let calls = || (0..2_000).map(|number| call(batch << 20 | number));
        let release = |call_id| Release { call_id, reservations: vec![nothing_held.clone()], charged: millionths(1) };
        let (releases, facts) = (calls().map(release).collect(), calls().map(|call_id| settled(call_id, 0)).collect());
        head = f.append(Entry { facts, releases, ..entry(&head) }).await.unwrap().head;
    }
    let meter = f.meter("dust").await;
    assert_eq!((meter.consumed.to_string().as_str(), meter.reserved), ("0.004", Micros::ZERO));
}

pub async fn a_clock_that_steps_back_refills_no_budget(f: &Fixture) {
    const DAY_MICROS: i64 = 86_400_000_000;
    f.governance.put_budget(Budget { period_seconds: Some(86_400), ..budget("b", 10) }).await.unwrap();
    let mut head = f.run(1).await;
    let mut spend = async |number: u64, units: i64| {
        let asking = f.up_to_date(Entry { asks: vec![ask(&head, number, &[("b", units)])], ..entry(&head) }).await;
        let appended = f.append(asking).await.unwrap();
        head = appended.head.clone();
        let [AskOutcome::Admitted(admitted)] = appended.asks.as_slice() else { return false };
        let pending = pending_of(admitted.event()).unwrap();
        let releases = vec![Release::of(pending, cost(units))];
        let facts = vec![settled(pending.call_id, units)];
        head = f.append(Entry { facts, releases, ..entry(&head) }).await.unwrap().head;
        true
    };
    assert!(spend(1, 8).await && !spend(2, 8).await);
    let today = f.clock.now_micros();
    f.clock.set_wall(UnixMicros(today.0 + DAY_MICROS));
    assert!(spend(3, 7).await, "another day");
    for back in [today.0, today.0 - 30 * DAY_MICROS, 0] {
        f.clock.set_wall(UnixMicros(back));
        assert!(!spend(4, 7).await, "yesterday does not come again");
        assert_eq!(f.figures("b").await, (7, 0));
    }
    f.clock.set_wall(UnixMicros(today.0 + DAY_MICROS));
    assert!(!spend(5, 7).await && spend(6, 3).await, "nor does today");
    let events = f.journal.read(run_key("acme", 1), 0, 100).await.unwrap();
    assert!(events.windows(2).all(|pair| pair[0].at <= pair[1].at));
}
