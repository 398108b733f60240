//! The comparison: what the executor's receipts say, what the runs' ledgers say, and what the meters say.

use std::collections::{BTreeMap, BTreeSet};

use signalbox_domain::governance::budget::MeteredBudget;
use signalbox_domain::ids::TenantId;
use signalbox_domain::quantity::{BudgetCategory, Micros};
use signalbox_domain::run::chain::StoredEvent;
use signalbox_domain::run::envelope::{RunEnvelope, RunToolCallRecord};
use signalbox_domain::run::event::{CallOutcome, RunEvent};
use signalbox_domain::run::verify::verify;

use crate::receipts::{AT_MOST_ONCE, DEDUPLICATING, Receipt};
use crate::station::TENANT;

/// What a comparison found worth saying.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Compared {
    /// Calls that were done and charged what their receipts say.
    pub(crate) matched: usize,
    /// Calls settled as unknown: charged in full, whatever the executor did.
    pub(crate) unknown: Vec<String>,
    /// Of those, how many the executor had done.
    pub(crate) unknown_but_done: usize,
    /// Executions beyond the first of an idempotent call.
    pub(crate) repeated: usize,
}

/// Compares every call of every run with the receipts, and the sums with the meter.
pub(crate) fn compare(runs: &[RunEnvelope], receipts: &[Receipt], meters: &[MeteredBudget]) -> Compared {
    let mut compared = Compared::default();
    let mut by_call: BTreeMap<String, Vec<&Receipt>> = BTreeMap::new();
    for receipt in receipts {
        by_call.entry(receipt.call_id.clone()).or_default().push(receipt);
    }
    let mut ledgers = Micros::ZERO;
    for run in runs {
        assert!(run.closed && run.open_calls().next().is_none(), "run {} is not closed", run.run_id);
        let of_calls = run.tool_calls.iter().fold(Micros::ZERO, |sum, call| sum.plus(call.cost_units));
        assert_eq!(
            run.cost_ledger.total_cost_units, of_calls,
            "the ledger of run {} is the sum of its calls",
            run.run_id
        );
        ledgers = ledgers.plus(of_calls);
        for call in &run.tool_calls {
            let done = by_call.remove(&call.call_id.to_string()).unwrap_or_default();
            judge(call, &done, &mut compared);
        }
    }
    assert!(by_call.is_empty(), "the executor did what no run knows of: {by_call:#?}");
    let meter = &meters.iter().find(|metered| metered.budget.budget_id.as_str() == "all").unwrap().meter;
    assert_eq!((meter.consumed, meter.reserved), (ledgers, Micros::ZERO), "the shared meter is the sum of all ledgers");
    compared
}

fn judge(call: &RunToolCallRecord, done: &[&Receipt], compared: &mut Compared) {
    let tool = call.tool_id.as_str();
    assert!(done.iter().all(|receipt| receipt.tool_id == tool && receipt.step_id == call.step_id.as_str()));
    if matches!(tool, AT_MOST_ONCE | DEDUPLICATING) {
        assert!(done.len() <= 1, "call {} of {tool} was executed {} times", call.call_id, done.len());
    } else {
        compared.repeated += done.len().saturating_sub(1);
    }
    let used = done.first().map(|receipt| Micros(receipt.cost_micros));
    match call.outcome {
        CallOutcome::Ok => {
            assert_eq!(Some(call.cost_units), used, "call {} of {tool}: charged, done", call.call_id);
            compared.matched += 1;
        }
        // Certainly not begun: free, and nothing was done.
        CallOutcome::Held => assert_eq!((call.cost_units, used), (Micros::ZERO, None), "call {}", call.call_id),
        CallOutcome::Unknown => {
            assert_eq!(call.cost_units, call.estimated_usage.get(BudgetCategory::CostUnits), "charged in full");
            compared.unknown_but_done += done.len();
            compared.unknown.push(call.call_id.to_string());
        }
        CallOutcome::Pending
        | CallOutcome::Partial
        | CallOutcome::Error
        | CallOutcome::Denied
        | CallOutcome::Throttled
        | CallOutcome::Killed => panic!("call {} of {tool} ended {:?}", call.call_id, call.outcome),
    }
}

/// Every journal is whole, and each pending call in it has exactly one settlement (I3).
pub(crate) fn settled_once(journals: &[Vec<StoredEvent>]) {
    for events in journals {
        let report = verify(&TenantId::new(TENANT).unwrap(), events[0].run_key, events);
        assert!(report.ok && report.open_calls.is_empty(), "{:#?}", report.findings);
        let mut pending = BTreeSet::new();
        let mut settled = Vec::new();
        for event in events.iter().filter_map(StoredEvent::event) {
            if let RunEvent::CallPending(call) = &event {
                assert!(pending.insert(call.call_id), "one pending record for each call");
            }
            if let RunEvent::CallSettled(call) = &event {
                settled.push(call.call_id);
            }
        }
        settled.sort_unstable();
        assert_eq!(settled, pending.into_iter().collect::<Vec<_>>(), "one settlement for each pending call");
    }
}
