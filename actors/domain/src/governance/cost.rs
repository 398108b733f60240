//! The cost stage of the gate: every meter a call touches (ADM-004, ADM-005, BUD-009).

use std::borrow::Cow;

use crate::governance::budget::{BudgetVerdict, MeterReading, MeteredBudget, OnExceeded, applies, check_budget};
use crate::governance::gate::{Attempt, Objection, Pass, Snapshot, exceeded_by_store};
use crate::quantity::{Micros, Usage};
use crate::run::event::{BudgetWarning, Reservation};

/// What is to be held for a call, and what is to be said about it.
#[derive(Default)]
pub(super) struct Bill {
    pub(super) reservations: Vec<Reservation>,
    pub(super) warnings: Vec<BudgetWarning>,
}

/// Asks every budget that applies. The run's own are exact and may end it; those that runs share are only a forecast
/// here, because other nodes spend from them too: the append reads them again and decides.
pub(super) fn check(
    attempt: &Attempt<'_>,
    snapshot: &Snapshot<'_>,
    ceiling: &Usage,
) -> (Result<Pass, Objection>, Bill) {
    let now = attempt.now.0.div_euclid(1_000);
    let mut bill = Bill::default();
    let mut exceeded: Option<&MeteredBudget> = None;
    let mut forecast: Option<&MeteredBudget> = None;
    let own = snapshot.run_budgets.iter().map(|metered| (metered, true));
    // A rehearsal is booked in its own ledger alone: no meter of real work shows it (MOD-006).
    let shared = if attempt.rehearsal { &[] } else { snapshot.shared_budgets };
    let shared = shared.iter().map(|metered| (metered, false));
    for (metered, exact) in own.chain(shared) {
        let budget = &metered.budget;
        let amount = ceiling.get(budget.category);
        if amount == Micros::ZERO || !applies(budget, attempt.target) {
            continue;
        }
        bill.reservations.push(Reservation { budget_id: budget.budget_id.clone(), category: budget.category, amount });
        let asked = if attempt.redispatch { Micros::ZERO } else { amount };
        match check_budget(budget, &metered.meter, asked, now) {
            BudgetVerdict::Ok => {}
            BudgetVerdict::Warn => bill.warnings.push(warning(metered, "warn", None)),
            BudgetVerdict::Grace { grace_end_unix_seconds } => {
                bill.warnings.push(warning(metered, "grace", Some(grace_end_unix_seconds)));
            }
            BudgetVerdict::Exceeded => {
                let worst = if exact { &mut exceeded } else { &mut forecast };
                if worst.is_none_or(|other| decides_before(metered, other)) {
                    *worst = Some(metered);
                }
            }
        }
    }
    bill.reservations.sort_by(|a, b| a.budget_id.cmp(&b.budget_id));
    let answer = match (exceeded, forecast) {
        (Some(metered), _) => Err(objection(metered, attempt, snapshot, ceiling)),
        (None, Some(metered)) => Ok(Pass {
            code: "forecast-exceeded",
            detail: format!("{}; the store decides when the call is recorded", in_words(metered, ceiling)).into(),
        }),
        (None, None) if !bill.warnings.is_empty() => {
            let ids: Vec<&str> = bill.warnings.iter().map(|warning| warning.budget_id.as_str()).collect();
            Ok(Pass { code: "warn", detail: Cow::Owned(format!("near the limit: {}", ids.join(", "))) })
        }
        (None, None) => Ok(Pass::ok("every budget it touches has room")),
    };
    (answer, bill)
}

/// A budget that kills is worse than one that pauses; among equals the order of scopes decides, then the id (BUD-009).
fn decides_before(a: &MeteredBudget, b: &MeteredBudget) -> bool {
    let rank = |metered: &MeteredBudget| (metered.budget.on_exceeded == OnExceeded::Pause, metered.budget.scope);
    rank(a).cmp(&rank(b)).then_with(|| a.budget.budget_id.cmp(&b.budget.budget_id)).is_lt()
}

fn warning(metered: &MeteredBudget, verdict: &str, grace_end_unix_seconds: Option<i64>) -> BudgetWarning {
    BudgetWarning { budget_id: metered.budget.budget_id.clone(), verdict: verdict.to_owned(), grace_end_unix_seconds }
}

fn objection(metered: &MeteredBudget, attempt: &Attempt<'_>, snapshot: &Snapshot<'_>, ceiling: &Usage) -> Objection {
    let touched = snapshot.run_budgets.iter().chain(snapshot.shared_budgets);
    let mut readings: Vec<MeterReading> = touched
        .filter(|other| ceiling.get(other.budget.category) > Micros::ZERO && applies(&other.budget, attempt.target))
        .map(|other| other.reading(ceiling.get(other.budget.category)))
        .collect();
    readings.sort_by(|a, b| a.budget_id.cmp(&b.budget_id));
    let budget = &metered.budget;
    Objection {
        code: "budget-exceeded",
        detail: in_words(metered, ceiling),
        verdict: exceeded_by_store(budget.on_exceeded, budget.budget_id.clone(), readings),
    }
}

fn in_words(metered: &MeteredBudget, ceiling: &Usage) -> String {
    let (budget, meter) = (&metered.budget, &metered.meter);
    let asked = ceiling.get(budget.category);
    let needed = meter.consumed.plus(meter.reserved).plus(asked);
    format!(
        "the budget `{}` has {} {} consumed and {} reserved of {}, and the call may use {asked}; raise its limit to {needed}",
        budget.budget_id,
        meter.consumed,
        budget.category.as_str(),
        meter.reserved,
        budget.limit
    )
}
