//! The governance rows every admission is checked against, and the meters.

use async_trait::async_trait;
use signalbox_domain::governance::budget::{Budget, MeteredBudget};
use signalbox_domain::governance::change::{EpochChange, GovernanceChange};
use signalbox_domain::ids::{ActorId, BudgetId, StoreIncarnation};

use crate::journal::StoreError;

/// Governance changes and meters.
#[async_trait]
pub trait Governance: Send + Sync + 'static {
    /// The store's incarnation and its epoch now.
    async fn epoch(&self) -> Result<(StoreIncarnation, u64), StoreError>;
    /// All changes after `epoch`, oldest first. The state is their fold.
    async fn changes(&self, after_epoch: u64) -> Result<Vec<EpochChange>, StoreError>;
    /// Commits one change in a transaction of its own, under the exclusive governance lock.
    async fn change(&self, change: GovernanceChange, by: &ActorId) -> Result<EpochChange, StoreError>;
    /// Creates the budget's meter, or changes its rule and keeps its figures. Needs no epoch. A rule that
    /// [`check_replacement`] refuses is [`StoreError::Poison`].
    async fn put_budget(&self, budget: Budget) -> Result<(), StoreError>;
    /// Removes a budget that no configuration names any more; its figures are kept for an open reservation's sake.
    async fn retire_budget(&self, budget: &BudgetId) -> Result<(), StoreError>;
    /// Every budget in force with its figures, rolled to the store's clock.
    async fn budgets(&self) -> Result<Vec<MeteredBudget>, StoreError>;
}

/// Refuses a budget no store may take: one whose rule is not sound, or one that would count another category on figures
/// that were counted in `kept`'s.
pub fn check_replacement(kept: Option<&Budget>, budget: &Budget) -> Result<(), StoreError> {
    budget.validate().map_err(|error| StoreError::Poison(error.to_string()))?;
    match kept {
        Some(kept) if kept.category != budget.category => Err(StoreError::Poison(format!(
            "budget `{}` is kept in {}; a budget in {} needs an id of its own",
            budget.budget_id,
            kept.category.as_str(),
            budget.category.as_str()
        ))),
        Some(_) | None => Ok(()),
    }
}
