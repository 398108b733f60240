//! What a call is charged, whatever its executor reports or leaves out (LED-008).

use proptest::prelude::*;
use serde_json::json;
use signalbox_domain::quantity::{BudgetCategory, Micros, Usage};
use signalbox_domain::run::event::{CallOutcome, GovernanceAudited, RunEvent};
use signalbox_domain::run::settle::charge;
use signalbox_domain::run::step::{CallEnding, CallResult};

use crate::given::{Story, answered, ended, failed, kill, lost, measuring, micros, not_started, tool};

const COST: BudgetCategory = BudgetCategory::CostUnits;
const CALLS: BudgetCategory = BudgetCategory::ExternalCalls;

fn ceiling() -> Usage {
    Usage::of(COST, Micros::units(5)).with(CALLS, Micros::units(1))
}

fn partial() -> CallResult {
    let output = json!({"missing": 1});
    ended(CallEnding::Answered { partial: true, output, evidence: None, effects: vec![], artifacts: vec![] })
}

fn cost(units: f64) -> Usage {
    Usage::of(COST, micros(units))
}

#[test]
fn each_of_the_nine_cases_charges_what_the_policy_says() {
    let cases: [(&str, CallResult, Usage, bool); 13] = [
        ("1 reported usage is charged", measuring(&[(COST, 1.25)], answered(json!(1))), cost(1.25), false),
        ("2 an explicit zero is charged as zero", measuring(&[(COST, 0.0)], answered(json!(1))), Usage::none(), false),
        ("3 an ok call that reports nothing: all", answered(json!(1)), ceiling(), false),
        ("4 a partial call that reports nothing: all", partial(), ceiling(), false),
        ("5 a failed call that reports nothing: all", failed("tool-failed"), ceiling(), false),
        ("6 a call nobody knows of: all", lost(), ceiling(), false),
        ("7 a call that never began: nothing", not_started(), Usage::none(), false),
        ("8 more than was reserved: all, and recorded", measuring(&[(COST, 5.5)], failed("x")), ceiling(), true),
        (
            "8 in a category of which nothing was reserved",
            measuring(&[(BudgetCategory::InputTokens, 1.0)], answered(json!(1))),
            ceiling(),
            true,
        ),
        ("9 negative usage: all, and recorded", measuring(&[(COST, -1.0)], answered(json!(1))), ceiling(), true),
        ("9 usage that is no number", measuring(&[(COST, f64::NAN)], answered(json!(1))), ceiling(), true),
        ("9 usage without end", measuring(&[(COST, f64::INFINITY)], answered(json!(1))), ceiling(), true),
        ("9 usage beyond counting", measuring(&[(COST, 1e300)], answered(json!(1))), ceiling(), true),
    ];
    for (case, result, charged, overshoot) in cases {
        let charge = charge(&ceiling(), &result);
        assert_eq!(charge.charged, charged, "{case}");
        assert_eq!(charge.overshoot.is_some(), overshoot, "{case}");
    }
}

#[test]
fn a_call_that_was_never_sent_costs_nothing_whatever_it_reports() {
    let result = measuring(&[(COST, 3.0)], not_started());
    assert_eq!(charge(&ceiling(), &result).charged, Usage::none());
}

#[test]
fn denied_throttled_held_and_killed_before_dispatch_cost_nothing() {
    let mut denied = Story::started(vec![tool("a", &[])]);
    denied.denies("a", "no-matching-grant");
    let mut throttled = Story::started(vec![tool("a", &[])]);
    throttled.throttles("a", 60);
    let mut held = Story::started(vec![tool("a", &[])]);
    held.does("a", not_started());
    let mut killed = Story::started(vec![tool("a", &[])]);
    killed.command(kill()).unwrap();
    for story in [denied, throttled, held, killed] {
        assert_eq!(story.run.cost_ledger.total_cost_units, Micros::ZERO);
        assert!(story.run.cost_ledger.per_tool_cost_units.values().all(|cost| *cost == Micros::ZERO));
    }
}

#[test]
fn what_goes_beyond_the_ceiling_is_measured_by_category() {
    let reported = measuring(&[(COST, 6.5), (CALLS, 1.0)], answered(json!(1)));
    let (beyond, _) = charge(&ceiling(), &reported).overshoot.unwrap();
    assert_eq!(beyond, cost(1.5));
}

#[test]
fn two_reports_for_one_category_are_added_up() {
    let reported = measuring(&[(COST, 1.0), (COST, 2.5)], answered(json!(1)));
    assert_eq!(charge(&ceiling(), &reported).charged, cost(3.5));
}

#[test]
fn a_report_finer_than_a_millionth_is_rounded_in_the_meters_favour() {
    let reported = measuring(&[(COST, 1.0 / 3.0)], answered(json!(1)));
    let charge = charge(&ceiling(), &reported);
    assert_eq!(charge.charged, cost(0.333_334));
    assert!(charge.overshoot.is_none());
}

#[test]
fn an_overshoot_stands_in_the_journal_beside_the_settlement() {
    let mut story = Story::started(vec![tool("a", &[])]);
    let call = story.call("a");
    let reserved = story.run.call(call).unwrap().estimated_usage.clone();
    story.end(call, measuring(&[(COST, 9.0)], answered(json!(1))));
    let record = story.run.call(call).unwrap();
    assert_eq!((record.outcome, &record.charged), (CallOutcome::Ok, &reserved));
    let audited = story.events.iter().find_map(|event| {
        if let RunEvent::GovernanceAudited(audited) = event.event().unwrap() { Some(*audited) } else { None }
    });
    let Some(GovernanceAudited::Overshoot { call_id, beyond, .. }) = audited else { panic!("no overshoot") };
    assert_eq!((call_id, beyond), (call, cost(8.0)));
}

proptest! {
    #[test]
    fn nothing_an_executor_reports_makes_a_charge_negative_or_larger_than_was_reserved(
        cost in any::<f64>(), calls in any::<f64>(), failing in any::<bool>()
    ) {
        let ending = if failing { failed("x") } else { answered(json!(1)) };
        let charge = charge(&ceiling(), &measuring(&[(COST, cost), (CALLS, calls)], ending));
        for (category, amount) in charge.charged.iter() {
            prop_assert!(amount >= Micros::ZERO);
            prop_assert!(amount <= ceiling().get(category));
        }
    }
}
