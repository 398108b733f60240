//! Budgets and their meters (BUD): what may still be spent, decided in integers.

use serde::{Deserialize, Serialize};

use crate::ids::{BudgetId, TenantId};
use crate::quantity::{BudgetCategory, Micros};

/// What a budget belongs to (BUD-002), in the order they are checked in (BUD-009).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BudgetScope {
    /// A tenant.
    Tenant,
    /// A role within a tenant.
    Role,
    /// An agent.
    Agent,
    /// A run.
    Run,
    /// A tool.
    Tool,
    /// A user.
    User,
    /// A pipeline.
    Pipeline,
}

/// What happens when a budget is exceeded (BUD-011).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnExceeded {
    /// The run is killed.
    #[default]
    Kill,
    /// The run is paused with cause `quota`.
    Pause,
}

/// A limit on one category for one scope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Budget {
    /// Names the budget and its meter.
    pub budget_id: BudgetId,
    /// Applies to calls of this tenant; absent: platform-wide, a single meter for all tenants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<TenantId>,
    /// What it belongs to.
    pub scope: BudgetScope,
    /// Which tenant, role, agent, run, tool, user or pipeline.
    pub scope_key: String,
    /// What it is kept in.
    pub category: BudgetCategory,
    /// The limit.
    pub limit: Micros,
    /// Length of a window; absent: the budget is for life (BUD-008).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period_seconds: Option<u64>,
    /// Where windows start counting.
    #[serde(default)]
    pub anchor_unix_seconds: i64,
    /// From this share of the limit on the verdict is `warn`.
    #[serde(default = "warn_ratio_default")]
    pub warn_ratio: Micros,
    /// Up to this share of the limit the verdict is `grace`; 1 makes the budget hard.
    #[serde(default = "grace_ratio_default")]
    pub grace_ratio: Micros,
    /// How long grace lasts from the first overrun in a window.
    #[serde(default)]
    pub grace_seconds: u64,
    /// What happens when it is exceeded.
    #[serde(default)]
    pub on_exceeded: OnExceeded,
}

const fn warn_ratio_default() -> Micros {
    Micros(800_000)
}

const fn grace_ratio_default() -> Micros {
    Micros(1_000_000)
}

/// How a budget stands. The store keeps one beside each budget; a run-scope budget's is folded from the journal.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Meter {
    /// Start of the window the figures belong to.
    pub window_start_unix_seconds: i64,
    /// Spent in the window.
    pub consumed: Micros,
    /// Held by open calls, of this window or an earlier one.
    pub reserved: Micros,
    /// When the grace of this window ends, once it has begun (BUD-007).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_end_unix_seconds: Option<i64>,
}

/// A budget with its meter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MeteredBudget {
    /// The rule.
    pub budget: Budget,
    /// The figures.
    pub meter: Meter,
}

/// What a meter showed at one moment, for the journal and `explain`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MeterReading {
    /// The budget.
    pub budget_id: BudgetId,
    /// The category.
    pub category: BudgetCategory,
    /// Spent in the window.
    pub consumed: Micros,
    /// Held by open calls.
    pub reserved: Micros,
    /// The limit.
    pub limit: Micros,
    /// What the call asked for; zero when a call is settled.
    pub asked: Micros,
}

/// What a budget says to one more call (BUD-003), rising in gravity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum BudgetVerdict {
    /// Well below.
    Ok,
    /// Near the limit.
    Warn,
    /// Beyond a soft limit, for a while.
    Grace {
        /// When the grace is over.
        grace_end_unix_seconds: i64,
    },
    /// No.
    Exceeded,
}
