//! Budgets and their meters (BUD): what may still be spent, decided in integers.

use serde::{Deserialize, Serialize};

use crate::governance::calendar::Calendar;
use crate::governance::target::Target;
use crate::ids::{BudgetId, TenantId};
use crate::quantity::{BudgetCategory, Micros};

/// Length of a window unless a budget says otherwise or is for life: one day (BUD-008).
pub const PERIOD_SECONDS_DEFAULT: u64 = 86_400;
/// Longest window and longest grace: ten years of 366 days.
pub const SECONDS_MAX: u64 = 3_660 * 86_400;
/// The grace ratio of a soft budget (BUD-006).
pub const SOFT_GRACE_RATIO: Micros = Micros(1_100_000);
/// The grace of a soft budget, in seconds (BUD-006).
pub const SOFT_GRACE_SECONDS: u64 = 3_600;

const ONE: Micros = Micros::units(1);

/// What a budget belongs to (BUD-002), in the order they are checked in (BUD-009).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
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
    /// Windows at calendar boundaries instead of windows of one length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calendar: Option<Calendar>,
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
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct MeteredBudget {
    /// The rule.
    pub budget: Budget,
    /// The figures.
    pub meter: Meter,
}

/// What a meter showed at one moment, for the journal and `explain`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
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

/// Why a budget makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BudgetError {
    /// `scopeKey` is empty.
    #[error("`scopeKey` is empty; it must name what the budget belongs to")]
    EmptyScopeKey,
    /// A tenant's budget that names two tenants.
    #[error("`scopeKey` and `tenantId` of a tenant's budget must be the same")]
    TwoTenants,
    /// A limit below zero.
    #[error("`limit` is {0}; it may not be negative")]
    NegativeLimit(Micros),
    /// A window of no length, or an absurdly long one.
    #[error("`periodSeconds` must be between 1 and {SECONDS_MAX}; leave it out for a budget for life")]
    BadPeriod,
    /// A calendar in a zone nobody knows, or beside a length.
    #[error("`calendar` needs a zone of the IANA list, such as Europe/Berlin, and cannot stand beside `periodSeconds`")]
    BadCalendar,
    /// A share outside its range.
    #[error("`warnRatio` must be between 0 and 1, `graceRatio` between 1 and 10")]
    BadRatio,
    /// An absurdly long grace.
    #[error("`graceSeconds` may be at most {SECONDS_MAX}")]
    BadGrace,
}

impl BudgetError {
    /// Stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::EmptyScopeKey => "budget-scope-key-empty",
            Self::TwoTenants => "budget-two-tenants",
            Self::NegativeLimit(_) => "budget-limit-negative",
            Self::BadPeriod => "budget-period-invalid",
            Self::BadCalendar => "budget-calendar-invalid",
            Self::BadRatio => "budget-ratio-invalid",
            Self::BadGrace => "budget-grace-invalid",
        }
    }
}

impl Budget {
    /// Checks that the rule makes sense.
    ///
    /// # Errors
    /// The first thing that does not.
    pub fn validate(&self) -> Result<(), BudgetError> {
        if self.scope_key.is_empty() {
            return Err(BudgetError::EmptyScopeKey);
        }
        let tenant = self.tenant_id.as_ref().map(TenantId::as_str);
        if self.scope == BudgetScope::Tenant && tenant.is_some_and(|tenant| tenant != self.scope_key) {
            return Err(BudgetError::TwoTenants);
        }
        if self.limit < Micros::ZERO {
            return Err(BudgetError::NegativeLimit(self.limit));
        }
        if self.period_seconds.is_some_and(|period| period == 0 || period > SECONDS_MAX) {
            return Err(BudgetError::BadPeriod);
        }
        if self.calendar.as_ref().is_some_and(|calendar| self.period_seconds.is_some() || !calendar.is_sound()) {
            return Err(BudgetError::BadCalendar);
        }
        if self.warn_ratio < Micros::ZERO
            || self.warn_ratio > ONE
            || self.grace_ratio < ONE
            || self.grace_ratio > Micros::units(10)
        {
            return Err(BudgetError::BadRatio);
        }
        if self.grace_seconds > SECONDS_MAX {
            return Err(BudgetError::BadGrace);
        }
        Ok(())
    }

    /// Start of the window that holds `now`; `None` for a budget for life (BUD-008).
    pub fn window_start(&self, now_unix_seconds: i64) -> Option<i64> {
        if let Some(calendar) = &self.calendar {
            return calendar.window(now_unix_seconds).map(|(start, _)| start);
        }
        let period = i64::try_from(self.period_seconds?).ok().filter(|period| *period > 0)?;
        let since = now_unix_seconds.saturating_sub(self.anchor_unix_seconds);
        Some(self.anchor_unix_seconds.saturating_add(since.div_euclid(period).saturating_mul(period)))
    }
}

impl Budget {
    /// Start of the window after the one that holds `now`; `None` for a budget for life.
    pub fn next_window(&self, now_unix_seconds: i64) -> Option<i64> {
        if let Some(calendar) = &self.calendar {
            return calendar.window(now_unix_seconds).map(|(_, next)| next);
        }
        let period = i64::try_from(self.period_seconds?).ok()?;
        Some(self.window_start(now_unix_seconds)?.saturating_add(period))
    }
}

/// True if calls with this target count against the budget (BUD-009).
pub fn applies(budget: &Budget, target: &Target) -> bool {
    if budget.tenant_id.as_ref().is_some_and(|tenant| tenant != &target.tenant_id) {
        return false;
    }
    let key = budget.scope_key.as_str();
    match budget.scope {
        BudgetScope::Tenant => key == target.tenant_id.as_str(),
        BudgetScope::Role => key == target.role.as_str(),
        BudgetScope::Agent => key == target.agent_id.as_str(),
        BudgetScope::Run => key.parse().is_ok_and(|run_id: crate::ids::RunId| run_id == target.run_id),
        BudgetScope::Tool => key == target.tool_id.as_str(),
        BudgetScope::User => key == target.user_id.as_str(),
        BudgetScope::Pipeline => target.pipeline_id.as_ref().is_some_and(|pipeline| key == pipeline.as_str()),
    }
}

/// Begins a new window if the old one is over. What is reserved by open calls carries over (BUD-008). Windows move
/// only forward, so a clock that steps back refills nothing.
pub fn roll(budget: &Budget, meter: &mut Meter, now_unix_seconds: i64) {
    if let Some(start) = budget.window_start(now_unix_seconds).filter(|start| *start > meter.window_start_unix_seconds)
    {
        *meter = Meter { window_start_unix_seconds: start, reserved: meter.reserved, ..Meter::default() };
    }
}

/// A window of a budget that is over, for its history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndedWindow {
    /// The budget.
    pub budget_id: BudgetId,
    /// When it began.
    pub window_start_unix_seconds: i64,
    /// When the one after it began.
    pub ended_unix_seconds: i64,
    /// What was spent in it.
    pub consumed: Micros,
    /// The limit it ended with.
    pub limit: Micros,
}

/// The window that has ended between two readings of a meter, if one has in which something was spent.
pub fn ended_window(before: &MeteredBudget, after: &Meter) -> Option<EndedWindow> {
    let MeteredBudget { budget, meter } = before;
    let moved = after.window_start_unix_seconds != meter.window_start_unix_seconds;
    (moved && meter.consumed > Micros::ZERO).then(|| EndedWindow {
        budget_id: budget.budget_id.clone(),
        window_start_unix_seconds: meter.window_start_unix_seconds,
        ended_unix_seconds: after.window_start_unix_seconds,
        consumed: meter.consumed,
        limit: budget.limit,
    })
}

/// What the budget says to a call that may use `estimate` (BUD-003, BUD-006). Changes nothing.
pub fn check_budget(budget: &Budget, meter: &Meter, estimate: Micros, now_unix_seconds: i64) -> BudgetVerdict {
    let mut meter = meter.clone();
    roll(budget, &mut meter, now_unix_seconds);
    verdict(budget, &meter, estimate, now_unix_seconds)
}

/// Holds `amount` for a call unless that is too much; then nothing is changed but the window.
pub fn reserve(metered: &mut MeteredBudget, amount: Micros, now_unix_seconds: i64) -> BudgetVerdict {
    let MeteredBudget { budget, meter } = metered;
    roll(budget, meter, now_unix_seconds);
    let verdict = verdict(budget, meter, amount, now_unix_seconds);
    if verdict != BudgetVerdict::Exceeded {
        meter.reserved = meter.reserved.plus(amount.max(Micros::ZERO));
        note_overrun(budget, meter, now_unix_seconds);
    }
    verdict
}

/// Gives up what was held for a call and books what it is charged, in the window that holds `now`. The caller sees to
/// it that a reservation is settled once (I3).
pub fn settle(metered: &mut MeteredBudget, reserved: Micros, charged: Micros, now_unix_seconds: i64) {
    metered.meter.reserved = metered.meter.reserved.minus_to_zero(reserved.max(Micros::ZERO));
    consume_budget(metered, charged, now_unix_seconds);
}

/// Books measured usage (BUD-004). It may pass the limit: what was used was used.
pub fn consume_budget(metered: &mut MeteredBudget, charged: Micros, now_unix_seconds: i64) {
    let MeteredBudget { budget, meter } = metered;
    roll(budget, meter, now_unix_seconds);
    meter.consumed = meter.consumed.plus(charged.max(Micros::ZERO));
    note_overrun(budget, meter, now_unix_seconds);
}

/// The verdict of a meter whose window is current.
fn verdict(budget: &Budget, meter: &Meter, estimate: Micros, now_unix_seconds: i64) -> BudgetVerdict {
    let used = meter.consumed.plus(meter.reserved).plus(estimate.max(Micros::ZERO));
    if share(budget.warn_ratio, budget.limit) > i128::from(used.0) * PER_ONE {
        return BudgetVerdict::Ok;
    }
    if used <= budget.limit {
        return BudgetVerdict::Warn;
    }
    let grace_end = meter.grace_end_unix_seconds.unwrap_or_else(|| grace_end(budget, now_unix_seconds));
    if budget.grace_seconds > 0
        && i128::from(used.0) * PER_ONE <= share(budget.grace_ratio, budget.limit)
        && now_unix_seconds <= grace_end
    {
        return BudgetVerdict::Grace { grace_end_unix_seconds: grace_end };
    }
    BudgetVerdict::Exceeded
}

const PER_ONE: i128 = ONE.0 as i128;

/// `ratio` times `limit`, in millionths of [`Micros`]: exact, so that no rounding decides a verdict.
fn share(ratio: Micros, limit: Micros) -> i128 {
    i128::from(ratio.0) * i128::from(limit.0)
}

fn grace_end(budget: &Budget, now_unix_seconds: i64) -> i64 {
    now_unix_seconds.saturating_add(i64::try_from(budget.grace_seconds).unwrap_or(i64::MAX))
}

/// Grace begins with the first overrun of a window and is not prolonged by later ones (BUD-007). A call that was
/// refused was no overrun: it leaves no trace on the meter.
fn note_overrun(budget: &Budget, meter: &mut Meter, now_unix_seconds: i64) {
    if budget.grace_seconds > 0 && meter.consumed.plus(meter.reserved) > budget.limit {
        meter.grace_end_unix_seconds.get_or_insert_with(|| grace_end(budget, now_unix_seconds));
    }
}

impl MeteredBudget {
    /// A budget of which nothing has been used yet.
    pub fn unused(budget: Budget) -> Self {
        Self { budget, meter: Meter::default() }
    }

    /// What the meter shows when a call asks for `asked`.
    pub fn reading(&self, asked: Micros) -> MeterReading {
        MeterReading {
            budget_id: self.budget.budget_id.clone(),
            category: self.budget.category,
            consumed: self.meter.consumed,
            reserved: self.meter.reserved,
            limit: self.budget.limit,
            asked,
        }
    }
}
