//! Governance changes and meters.

use async_trait::async_trait;
use signalbox_domain::governance::budget::{Budget, MeteredBudget, ended_window, roll};
use signalbox_domain::governance::change::{EpochChange, GovernanceChange};
use signalbox_domain::ids::{ActorId, BudgetId, StoreIncarnation};
use signalbox_domain::time::{UnixMicros, UnixMs};

use super::{MemoryStore, State};
use crate::governance::{Governance, check_budget, check_readable, opening};
use crate::journal::StoreError;

#[async_trait]
impl Governance for MemoryStore {
    async fn epoch(&self) -> Result<(StoreIncarnation, u64), StoreError> {
        let state = self.state()?;
        Ok((state.incarnation, state.epoch()))
    }

    async fn changes(&self, after_epoch: u64) -> Result<Vec<EpochChange>, StoreError> {
        let state = self.state()?;
        Ok(state.changes.iter().filter(|change| change.epoch > after_epoch).cloned().collect())
    }

    async fn change(&self, change: GovernanceChange, _by: &ActorId) -> Result<EpochChange, StoreError> {
        check_readable(&change)?;
        let at = self.now().ms();
        Ok(self.state()?.change(change, at))
    }

    async fn put_budget(&self, budget: Budget) -> Result<(), StoreError> {
        let now = self.now();
        self.state()?.put_budget(budget, now)?;
        Ok(())
    }

    async fn retire_budget(&self, budget: &BudgetId) -> Result<(), StoreError> {
        self.state()?.retire_budget(budget);
        Ok(())
    }

    async fn budgets(&self) -> Result<Vec<MeteredBudget>, StoreError> {
        let now_seconds = self.now().0.div_euclid(1_000_000);
        let state = self.state()?;
        let in_force = state.meters.values().filter(|metered| !state.retired.contains(&metered.budget.budget_id));
        let rolled = in_force.cloned().map(|mut metered| {
            roll(&metered.budget, &mut metered.meter, now_seconds);
            metered
        });
        Ok(rolled.collect())
    }
}

impl State {
    pub(super) fn put_budget(&mut self, budget: Budget, now: UnixMicros) -> Result<Option<EpochChange>, StoreError> {
        let id = budget.budget_id.clone();
        let kept = self.meters.get(&id).cloned();
        let rule = kept.as_ref().map(|kept| &kept.budget);
        check_budget(rule, &budget)?;
        let opened = opening(rule.filter(|_| !self.retired.contains(&id)), &budget);
        let opened = opened.map(|change| self.change(change, now.ms()));
        let mut meter = kept.as_ref().map(|kept| kept.meter.clone()).unwrap_or_default();
        roll(&budget, &mut meter, now.0.div_euclid(1_000_000));
        self.windows.extend(kept.and_then(|kept| ended_window(&kept, &meter)));
        self.retired.remove(&id);
        self.meters.insert(id, MeteredBudget { budget, meter });
        Ok(opened)
    }

    pub(super) fn retire_budget(&mut self, budget: &BudgetId) {
        if self.meters.contains_key(budget) {
            self.retired.insert(budget.clone());
        }
    }

    pub(super) fn change(&mut self, change: GovernanceChange, at_unix_ms: UnixMs) -> EpochChange {
        let change = EpochChange { epoch: self.epoch() + 1, at_unix_ms, change };
        self.follow(&change.change);
        self.follow_webhooks(&change.change);
        self.follow_schedule(&change.change);
        self.changes.push(change.clone());
        change
    }
}
