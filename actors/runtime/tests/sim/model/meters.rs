//! Shared budgets, added up from the journals of all runs (I4).

use std::collections::BTreeMap;

use signalbox_domain::governance::budget::{Budget, BudgetScope, MeteredBudget};
use signalbox_domain::governance::target::Target;
use signalbox_domain::ids::BudgetId;
use signalbox_domain::run::event::{CallPending, CallSettled};
use signalbox_domain::time::UnixMicros;

type Said = Vec<(&'static str, String)>;

#[derive(Default)]
pub(crate) struct Meters {
    of: BTreeMap<BudgetId, Meter>,
}

#[derive(Clone)]
struct Meter {
    rule: Budget,
    retired: bool,
    window: i64,
    consumed: i64,
    reserved: i64,
}

impl Meter {
    fn roll(&mut self, now: UnixMicros) {
        let Some(period) = self.rule.period_seconds else { return };
        let period = i64::try_from(period).unwrap();
        let anchor = self.rule.anchor_unix_seconds;
        let start = anchor + (now.0.div_euclid(1_000_000) - anchor).div_euclid(period) * period;
        if start > self.window {
            (self.window, self.consumed) = (start, 0);
        }
    }
}

/// True if calls of this target count against the budget.
fn counts(rule: &Budget, target: &Target) -> bool {
    let key = rule.scope_key.as_str();
    rule.tenant_id.as_ref().is_none_or(|tenant| *tenant == target.tenant_id)
        && match rule.scope {
            BudgetScope::Tenant => key == target.tenant_id.as_str(),
            BudgetScope::Tool => key == target.tool_id.as_str(),
            BudgetScope::User => key == target.user_id.as_str(),
            BudgetScope::Agent => key == target.agent_id.as_str(),
            BudgetScope::Role => key == target.role.as_str(),
            BudgetScope::Run => key == target.run_id.to_string(),
            BudgetScope::Pipeline => target.pipeline_id.as_ref().is_some_and(|pipeline| key == pipeline.as_str()),
        }
}

impl Meters {
    pub(crate) fn put(&mut self, rule: &Budget, now: UnixMicros) {
        let meter = self.of.entry(rule.budget_id.clone()).or_insert_with(|| Meter {
            rule: rule.clone(),
            retired: false,
            window: 0,
            consumed: 0,
            reserved: 0,
        });
        meter.rule = rule.clone();
        meter.retired = false;
        meter.roll(now);
    }

    pub(crate) fn retire(&mut self, budget: &BudgetId) {
        if let Some(meter) = self.of.get_mut(budget) {
            meter.retired = true;
        }
    }

    pub(crate) fn rules(&self) -> impl Iterator<Item = (&Budget, bool)> {
        self.of.values().map(|meter| (&meter.rule, meter.retired))
    }

    /// A call was admitted: every budget in force that it counts against has room for it, and holds it.
    pub(crate) fn reserved(&mut self, pending: &CallPending, target: &Target, now: UnixMicros) -> Said {
        let mut said = Said::new();
        for (id, meter) in &mut self.of {
            let amount = pending.estimated_usage.get(meter.rule.category).0;
            let held = pending.meters.iter().find(|reading| reading.budget_id == *id);
            if amount == 0 || meter.retired || !counts(&meter.rule, target) {
                if held.is_some() {
                    said.push(("I4", format!("budget {id} holds a call that does not count against it")));
                }
                continue;
            }
            meter.roll(now);
            meter.reserved += amount;
            let used = meter.consumed + meter.reserved;
            if used > meter.rule.limit.0 && meter.rule.grace_seconds == 0 {
                said.push(("I4", format!("budget {id}: {used} of {} after the admission", meter.rule.limit.0)));
            }
            match held {
                Some(r)
                    if (r.consumed.0, r.reserved.0, r.limit) == (meter.consumed, meter.reserved, meter.rule.limit) => {}
                Some(r) => {
                    let mine = (meter.consumed, meter.reserved);
                    said.push(("I4", format!("budget {id}: the journal adds up to {mine:?}, the record says {r:?}")));
                }
                None => said.push(("I4", format!("the call was admitted without a reservation on budget {id}"))),
            }
        }
        said
    }

    /// A call was settled: what it held is given back, and what it is charged is booked.
    pub(crate) fn settled(&mut self, pending: &CallPending, settled: &CallSettled, now: UnixMicros) -> Said {
        for held in &pending.meters {
            let Some(meter) = self.of.get_mut(&held.budget_id) else { continue };
            meter.roll(now);
            meter.reserved -= pending.estimated_usage.get(held.category).0;
            meter.consumed += settled.charged.get(held.category).0;
        }
        Said::new()
    }

    /// Whether the store's figures are the sums of the journals.
    pub(crate) fn differ(&self, kept: &[MeteredBudget], now: UnixMicros) -> Said {
        let mut said = Said::new();
        for metered in kept {
            let id = &metered.budget.budget_id;
            // Looking rolls a copy: only booking moves a window.
            let Some(mut mine) = self.of.get(id).cloned() else { continue };
            mine.roll(now);
            let theirs = (metered.meter.consumed.0, metered.meter.reserved.0);
            if theirs != (mine.consumed, mine.reserved) {
                let mine = (mine.consumed, mine.reserved);
                said.push(("I4", format!("budget {id}: the journals add up to {mine:?}, the meter shows {theirs:?}")));
            }
        }
        said
    }

    pub(crate) fn at_rest(&self) -> Said {
        let held = self.of.iter().filter(|(_, meter)| meter.reserved != 0);
        held.map(|(id, meter)| ("I4", format!("budget {id} still holds {} with every run closed", meter.reserved)))
            .collect()
    }
}
