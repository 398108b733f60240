//! The governance rows every admission is checked against, and the meters.

use async_trait::async_trait;
use serde::Serialize;
use serde::de::DeserializeOwned;
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
    /// Commits one change in a transaction of its own, under the exclusive governance lock. A change that could not be
    /// read back is [`StoreError::Poison`].
    async fn change(&self, change: GovernanceChange, by: &ActorId) -> Result<EpochChange, StoreError>;
    /// Creates the budget's meter, or changes its rule and keeps its figures. A budget that comes into force is a change
    /// (`BudgetOpened`) in the same transaction; one that only gets another limit needs no epoch. A rule that
    /// [`check_budget`] refuses is [`StoreError::Poison`].
    async fn put_budget(&self, budget: Budget) -> Result<(), StoreError>;
    /// Removes a budget that no configuration names any more; its figures are kept for an open reservation's sake.
    async fn retire_budget(&self, budget: &BudgetId) -> Result<(), StoreError>;
    /// Every budget in force with its figures, rolled to the store's clock.
    async fn budgets(&self) -> Result<Vec<MeteredBudget>, StoreError>;
}

/// The change that goes with putting a budget, if one does: calls in the making must hear that a budget has come into
/// force for them, or they would be admitted without a reservation on it. `kept` is the rule in force before.
pub fn opening(kept: Option<&Budget>, budget: &Budget) -> Option<GovernanceChange> {
    let meant_for = |budget: &Budget| (budget.tenant_id.clone(), budget.scope, budget.scope_key.clone());
    let is_open = kept.is_some_and(|kept| meant_for(kept) == meant_for(budget));
    (!is_open).then(|| GovernanceChange::BudgetOpened(budget.clone()))
}

/// Refuses a budget no store may take: one whose rule is not sound, one that could not be read back, or one that would
/// count another category on figures that were counted in `kept`'s.
pub fn check_budget(kept: Option<&Budget>, budget: &Budget) -> Result<(), StoreError> {
    budget.validate().map_err(|error| StoreError::Poison(error.to_string()))?;
    check_readable(budget)?;
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

/// Refuses a rule whose JSON says something else when it is read: a node that cannot read the rules can admit nothing.
pub fn check_readable<T: Serialize + DeserializeOwned + PartialEq>(rule: &T) -> Result<Vec<u8>, StoreError> {
    let unreadable = |error: serde_json::Error| StoreError::Poison(format!("the rule cannot be stored: {error}"));
    let json = serde_json::to_vec(rule).map_err(unreadable)?;
    let read: T = serde_json::from_slice(&json).map_err(unreadable)?;
    if read == *rule { Ok(json) } else { Err(StoreError::Poison("the rule has figures JSON cannot hold".into())) }
}
