//! Governance changes and meters.

use async_trait::async_trait;
use signalbox_domain::governance::budget::{Budget, Meter, MeteredBudget, roll};
use signalbox_domain::governance::change::{EpochChange, GovernanceChange};
use signalbox_domain::ids::{ActorId, BudgetId, StoreIncarnation};
use signalbox_domain::time::UnixMicros;

use super::MemoryStore;
use crate::governance::{Governance, check_budget, check_readable};
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
        let at_unix_ms = self.now().ms();
        let mut state = self.state()?;
        let change = EpochChange { epoch: state.epoch() + 1, at_unix_ms, change };
        state.changes.push(change.clone());
        Ok(change)
    }

    async fn put_budget(&self, budget: Budget) -> Result<(), StoreError> {
        let now_seconds = self.now().0.div_euclid(1_000_000);
        let mut state = self.state()?;
        let id = budget.budget_id.clone();
        let kept = state.meters.get(&id);
        check_budget(kept.map(|kept| &kept.budget), &budget)?;
        let kept_none = kept.is_none();
        let mut meter = kept.map_or_else(Meter::default, |kept| kept.meter.clone());
        roll(&budget, &mut meter, now_seconds);
        let was_retired = state.retired.remove(&id);
        if was_retired || kept_none {
            let at_unix_ms = UnixMicros(now_seconds.saturating_mul(1_000_000)).ms();
            let change = GovernanceChange::BudgetOpened(budget.clone());
            let epoch = state.epoch() + 1;
            state.changes.push(EpochChange { epoch, at_unix_ms, change });
        }
        state.meters.insert(id, MeteredBudget { budget, meter });
        Ok(())
    }

    async fn retire_budget(&self, budget: &BudgetId) -> Result<(), StoreError> {
        let mut state = self.state()?;
        if state.meters.contains_key(budget) {
            state.retired.insert(budget.clone());
        }
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
