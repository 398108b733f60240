//! Budgets (BUD).

use proptest::prelude::*;
use signalbox_domain::governance::budget::{
    Budget, BudgetScope, BudgetVerdict, MeteredBudget, OnExceeded, SOFT_GRACE_RATIO, SOFT_GRACE_SECONDS, applies,
    check_budget, consume_budget, reserve, settle,
};
use signalbox_domain::ids::{AgentId, PipelineId, RunId};
use signalbox_domain::quantity::{BudgetCategory, Micros};
use signalbox_domain::run::ledger::RunCostLedger;

use crate::common::{RUN, budget, metered, target, tenant, tool};

fn soft(limit: i64) -> Budget {
    Budget { grace_ratio: SOFT_GRACE_RATIO, grace_seconds: SOFT_GRACE_SECONDS, ..budget("soft", limit) }
}

fn at(budget: &Budget, used: i64, now: i64) -> BudgetVerdict {
    check_budget(budget, &metered(budget.clone(), used, 0).meter, Micros::ZERO, now)
}

#[test]
fn there_are_nine_categories_and_each_has_its_counter() {
    assert_eq!(BudgetCategory::ALL.len(), 9);
    let ledger = RunCostLedger::default();
    assert!(BudgetCategory::ALL.into_iter().all(|category| ledger.counter(category) == Micros::ZERO));
}

#[test]
fn the_share_of_the_limit_in_use_decides_the_verdict() {
    let budget = soft(100);
    let grace = BudgetVerdict::Grace { grace_end_unix_seconds: 3_700 };
    for (used, verdict) in [
        (79, BudgetVerdict::Ok),
        (80, BudgetVerdict::Warn),
        (100, BudgetVerdict::Warn),
        (101, grace),
        (110, grace),
        (111, BudgetVerdict::Exceeded),
    ] {
        assert_eq!(at(&budget, used, 100), verdict, "{used}");
    }
}

#[test]
fn a_hard_budget_has_no_grace() {
    assert_eq!(at(&budget("hard", 100), 100, 0), BudgetVerdict::Warn);
    assert_eq!(at(&budget("hard", 100), 101, 0), BudgetVerdict::Exceeded);
}

#[test]
fn what_is_reserved_and_what_is_asked_count_as_used() {
    let metered = metered(budget("hard", 100), 40, 40);
    let check = |asked| check_budget(&metered.budget, &metered.meter, Micros::units(asked), 0);
    assert_eq!(check(20), BudgetVerdict::Warn);
    assert_eq!(check(21), BudgetVerdict::Exceeded);
}

#[test]
fn consuming_three_and_four_of_ten_leaves_three() {
    let mut metered = metered(budget("b", 10), 0, 0);
    consume_budget(&mut metered, Micros::units(3), 0);
    consume_budget(&mut metered, Micros::units(4), 0);
    assert_eq!(metered.meter.consumed, Micros::units(7));
    assert_ne!(check_budget(&metered.budget, &metered.meter, Micros::units(3), 0), BudgetVerdict::Exceeded);
    assert_eq!(check_budget(&metered.budget, &metered.meter, Micros::units(4), 0), BudgetVerdict::Exceeded);
}

#[test]
fn an_exceeded_budget_is_ok_one_second_after_its_window() {
    let budget = Budget { period_seconds: Some(10), ..budget("daily", 100) };
    let mut metered = MeteredBudget::unused(budget);
    consume_budget(&mut metered, Micros::units(101), 15);
    assert_eq!(check_budget(&metered.budget, &metered.meter, Micros::ZERO, 19), BudgetVerdict::Exceeded);
    assert_eq!(check_budget(&metered.budget, &metered.meter, Micros::ZERO, 21), BudgetVerdict::Ok);
}

#[test]
fn windows_start_at_the_anchor_and_follow_each_other() {
    let windowed = |anchor| Budget { period_seconds: Some(10), anchor_unix_seconds: anchor, ..budget("w", 1) };
    assert_eq!(windowed(0).window_start(19), Some(10));
    assert_eq!(windowed(0).window_start(20), Some(20));
    assert_eq!(windowed(3).window_start(12), Some(3));
    assert_eq!(windowed(3).window_start(2), Some(-7), "before the anchor too");
    assert_eq!(budget("life", 1).window_start(20), None);
}

#[test]
fn a_new_window_forgets_what_was_spent_and_keeps_what_is_reserved() {
    let mut metered = metered(Budget { period_seconds: Some(10), ..soft(100) }, 90, 15);
    metered.meter.grace_end_unix_seconds = Some(5);
    assert_eq!(reserve(&mut metered, Micros::units(1), 10), BudgetVerdict::Ok);
    assert_eq!(metered.meter.window_start_unix_seconds, 10);
    assert_eq!((metered.meter.consumed, metered.meter.reserved), (Micros::ZERO, Micros::units(16)));
    assert_eq!(metered.meter.grace_end_unix_seconds, None);
}

#[test]
fn a_clock_that_steps_back_refills_nothing() {
    let mut metered = MeteredBudget::unused(Budget { period_seconds: Some(10), ..budget("w", 100) });
    consume_budget(&mut metered, Micros::units(100), 25);
    consume_budget(&mut metered, Micros::ZERO, 12);
    assert_eq!(metered.meter.consumed, Micros::units(100));
}

#[test]
fn a_meter_that_gets_its_first_window_starts_it_empty() {
    let mut metered = metered(budget("late", 50), 80, 0);
    metered.budget.period_seconds = Some(86_400);
    assert_eq!(reserve(&mut metered, Micros::units(5), 1_000_000), BudgetVerdict::Ok);
    assert_eq!(metered.meter.consumed, Micros::ZERO);
}

#[test]
fn grace_ends_at_the_time_of_the_first_overrun_plus_its_length() {
    let mut metered = metered(soft(100), 100, 0);
    let grace = BudgetVerdict::Grace { grace_end_unix_seconds: 3_700 };
    assert_eq!(reserve(&mut metered, Micros::units(1), 100), grace);
    assert_eq!(reserve(&mut metered, Micros::units(1), 2_000), grace, "a second overrun does not prolong it");
    assert_eq!(check_budget(&metered.budget, &metered.meter, Micros::ZERO, 3_700), grace);
    assert_eq!(check_budget(&metered.budget, &metered.meter, Micros::ZERO, 3_701), BudgetVerdict::Exceeded);
}

#[test]
fn grace_of_no_length_is_no_grace() {
    assert_eq!(at(&Budget { grace_seconds: 0, ..soft(100) }, 101, 100), BudgetVerdict::Exceeded);
}

#[test]
fn a_budget_applies_to_calls_with_its_scope_key() {
    let target = target();
    let keys = [
        (BudgetScope::Tenant, "acme"),
        (BudgetScope::Role, "service"),
        (BudgetScope::Agent, "ref.research"),
        (BudgetScope::Run, RUN),
        (BudgetScope::Tool, "memory.read"),
        (BudgetScope::User, "ada"),
        (BudgetScope::Pipeline, "veritas.weekly_briefing_pack"),
    ];
    for (scope, key) in keys {
        let named = Budget { scope, scope_key: key.to_owned(), ..budget("b", 1) };
        assert!(applies(&named, &target), "{key}");
        assert!(!applies(&Budget { scope_key: "other".to_owned(), ..named.clone() }, &target), "{key}");
        let foreign = Budget { tenant_id: Some(tenant("umbrella")), ..named.clone() };
        assert!(!applies(&foreign, &target), "of another tenant: {key}");
        assert!(applies(&Budget { tenant_id: None, ..named }, &target), "platform-wide: {key}");
    }
    let mut other = target.clone();
    other.run_id = "00000000-0000-4000-8000-000000000000".parse::<RunId>().unwrap();
    other.tool_id = tool("web.fetch");
    other.agent_id = AgentId::new("ref.editing").unwrap();
    other.pipeline_id = None::<PipelineId>;
    for (scope, key) in [keys[2], keys[3], keys[4], keys[6]] {
        assert!(!applies(&Budget { scope, scope_key: key.to_owned(), ..budget("b", 1) }, &other), "{key}");
    }
}

#[test]
fn the_seven_scopes_are_checked_in_their_listed_order() {
    use BudgetScope::{Agent, Pipeline, Role, Run, Tenant, Tool, User};
    let mut scopes = [Pipeline, User, Tool, Run, Agent, Role, Tenant];
    scopes.sort();
    assert_eq!(scopes, [Tenant, Role, Agent, Run, Tool, User, Pipeline]);
}

#[test]
fn a_refused_reservation_leaves_the_meter_as_it_was() {
    let mut metered = metered(budget("b", 100), 60, 30);
    let before = metered.clone();
    assert_eq!(reserve(&mut metered, Micros::units(11), 0), BudgetVerdict::Exceeded);
    assert_eq!(metered, before);
}

#[test]
fn settling_books_the_charge_and_gives_up_the_reservation() {
    let mut metered = metered(budget("b", 100), 0, 0);
    reserve(&mut metered, Micros::units(30), 0);
    reserve(&mut metered, Micros::units(30), 0);
    settle(&mut metered, Micros::units(30), Micros::units(12), 0);
    assert_eq!((metered.meter.consumed, metered.meter.reserved), (Micros::units(12), Micros::units(30)));
    settle(&mut metered, Micros::units(30), Micros::ZERO, 0);
    assert_eq!((metered.meter.consumed, metered.meter.reserved), (Micros::units(12), Micros::ZERO));
}

#[test]
fn sums_of_small_amounts_are_exact() {
    let mut metered = metered(budget("tenth", 1), 0, 0);
    for _ in 0..10 {
        assert_ne!(reserve(&mut metered, Micros(100_000), 0), BudgetVerdict::Exceeded);
        settle(&mut metered, Micros(100_000), Micros(100_000), 0);
    }
    assert_eq!(metered.meter.consumed.to_string(), "1.0");
    assert_eq!(reserve(&mut metered, Micros(100_000), 0), BudgetVerdict::Exceeded);
}

#[test]
fn twenty_calls_of_thirty_on_a_hundred_admit_three() {
    let mut metered = metered(budget("b", 100), 0, 0);
    let admitted = (0..20).filter(|_| reserve(&mut metered, Micros::units(30), 0) != BudgetVerdict::Exceeded).count();
    assert_eq!(admitted, 3);
    for _ in 0..admitted {
        settle(&mut metered, Micros::units(30), Micros::units(30), 0);
    }
    assert_eq!((metered.meter.consumed, metered.meter.reserved), (Micros::units(90), Micros::ZERO));
}

#[test]
fn a_reading_shows_what_the_meter_holds_and_what_was_asked() {
    let reading = metered(budget("b", 100), 60, 30).reading(Micros::units(11));
    let shown = [reading.consumed, reading.reserved, reading.limit, reading.asked];
    assert_eq!(shown, [60, 30, 100, 11].map(Micros::units));
}

#[test]
fn a_budget_that_makes_no_sense_is_refused_by_its_code() {
    let code = |budget: Budget| budget.validate().map_err(|error| error.code());
    assert_eq!(code(budget("b", 0)), Ok(()));
    assert_eq!(code(soft(10)), Ok(()));
    let cases = [
        (Budget { scope_key: String::new(), ..budget("b", 1) }, "budget-scope-key-empty"),
        (Budget { scope_key: "umbrella".to_owned(), ..budget("b", 1) }, "budget-two-tenants"),
        (budget("b", -1), "budget-limit-negative"),
        (Budget { period_seconds: Some(0), ..budget("b", 1) }, "budget-period-invalid"),
        (Budget { period_seconds: Some(u64::MAX), ..budget("b", 1) }, "budget-period-invalid"),
        (Budget { warn_ratio: Micros(1_000_001), ..budget("b", 1) }, "budget-ratio-invalid"),
        (Budget { grace_ratio: Micros(999_999), ..budget("b", 1) }, "budget-ratio-invalid"),
        (Budget { grace_seconds: u64::MAX, ..budget("b", 1) }, "budget-grace-invalid"),
    ];
    for (budget, expected) in cases {
        assert_eq!(code(budget), Err(expected));
    }
}

#[test]
fn a_budget_is_read_with_its_defaults_and_without_unknown_fields() {
    let text = r#"{"budgetId":"b","scope":"run","scopeKey":"r","category":"cost-units","limit":10.5}"#;
    let budget: Budget = serde_json::from_str(text).unwrap();
    assert_eq!(
        (budget.limit, budget.warn_ratio, budget.grace_ratio),
        (Micros(10_500_000), Micros(800_000), Micros::units(1))
    );
    assert_eq!((budget.period_seconds, budget.on_exceeded), (None, OnExceeded::Kill));
    assert!(serde_json::from_str::<Budget>(&text.replace("scopeKey", "scope_key")).is_err());
}

proptest! {
    #[test]
    fn a_hard_budget_is_never_passed_at_an_admission(
        limit in 0_i64..1_000,
        calls in proptest::collection::vec((0_i64..400, 0_i64..100, any::<bool>()), 0..60),
    ) {
        let mut metered = metered(budget("b", limit), 0, 0);
        let mut open = Vec::new();
        for (asked, percent, settle_one) in calls {
            let asked = Micros::units(asked);
            if reserve(&mut metered, asked, 0) != BudgetVerdict::Exceeded {
                prop_assert!(metered.meter.consumed.plus(metered.meter.reserved) <= Micros::units(limit));
                open.push((asked, Micros(asked.0 / 100 * percent)));
            }
            if settle_one && let Some((held, charged)) = open.pop() {
                settle(&mut metered, held, charged, 0);
            }
        }
        for (held, charged) in open {
            settle(&mut metered, held, charged, 0);
        }
        prop_assert_eq!(metered.meter.reserved, Micros::ZERO);
        prop_assert!(metered.meter.consumed <= Micros::units(limit));
    }

    #[test]
    fn more_in_use_never_gives_a_milder_verdict(
        limit in 0_i64..10_000, used in 0_i64..20_000, more in 0_i64..1_000, now in 0_i64..100_000,
    ) {
        for budget in [budget("hard", limit), soft(limit)] {
            prop_assert!(at(&budget, used, now) <= at(&budget, used + more, now));
        }
    }

    #[test]
    fn absurd_figures_refuse_instead_of_panicking(
        limit in any::<i64>(), consumed in any::<i64>(), asked in any::<i64>(), now in any::<i64>(),
        period in any::<u64>(), anchor in any::<i64>(), ratio in any::<i64>(), grace in any::<u64>(),
    ) {
        let budget = Budget {
            limit: Micros(limit), period_seconds: Some(period), anchor_unix_seconds: anchor,
            warn_ratio: Micros(ratio), grace_ratio: Micros(ratio), grace_seconds: grace, ..budget("b", 1)
        };
        let mut metered = MeteredBudget::unused(budget);
        metered.meter.consumed = Micros(consumed);
        let _ = reserve(&mut metered, Micros(asked), now);
        settle(&mut metered, Micros(asked), Micros(asked), now);
    }
}
