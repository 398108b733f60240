//! Managing budgets: who may set which, and what a wish comes to.
//!
//! A limit may be lowered below what is spent or held already: nothing that was admitted is taken back, and nothing more is
//! admitted until the meter is below it again.

use crate::governance::budget::{Budget, BudgetError, BudgetScope, MeteredBudget};
use crate::governance::kill_switch::SWITCH_TEXT_BYTES_MAX;
use crate::governance::switching::{self, Operator, Reach};
use crate::identity::Role;
use crate::ids::{ActorId, AgentId, BudgetId, PipelineId, RunId, TenantId, ToolId};
use crate::quantity::Micros;

/// Most budgets in force at once, over all tenants: every call is held against each of them.
pub const BUDGETS_MAX: usize = 10_000;

/// The revision a caller has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// It does not matter.
    Any,
    /// There is no such budget.
    None,
    /// The act that changed it last.
    Revision(u64),
}

/// A budget that is known.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    /// Its rule and figures.
    pub metered: &'a MeteredBudget,
    /// The last act on it; 0 if none is recorded.
    pub revision: u64,
}

/// Why a budget is not changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BudgetDenial {
    /// It makes no sense.
    #[error(transparent)]
    Senseless(#[from] BudgetError),
    /// What it is for cannot be one of its scope.
    #[error("`scopeKey` names no {0}")]
    BadScopeKey(&'static str),
    /// The role does not cover it, or the tenant is another one.
    #[error("{0}")]
    NotAuthorized(String),
    /// No reason, or one that is too long.
    #[error("`reason` must say why, in at most {SWITCH_TEXT_BYTES_MAX} bytes")]
    BadReason,
    /// No budget of this id that the caller may see.
    #[error("there is no budget `{0}`")]
    NoSuchBudget(String),
    /// Somebody else has changed it since.
    #[error("the budget is at revision {actual}, and you have seen {expected}; look at it again")]
    StaleRevision {
        /// What the caller has seen.
        expected: u64,
        /// What it is.
        actual: u64,
    },
    /// It was to be a new one.
    #[error("the budget `{0}` exists already")]
    Exists(BudgetId),
    /// The id is that of another tenant's budget, or of one that is for something else.
    #[error("the id `{0}` belongs to a budget for something else; choose another id")]
    IdTaken(BudgetId),
    /// Figures that were counted in one category are nothing in another.
    #[error("the budget `{0}` is kept in another category; a budget in this one needs an id of its own")]
    CategoryFixed(BudgetId),
    /// A top-up that adds nothing, or more than can be counted.
    #[error("the amount must be above zero, and the limit it leads to one that can be counted")]
    BadAmount,
    /// So many are in force that each call would be held against too many.
    #[error("{BUDGETS_MAX} budgets are in force; retire some first")]
    TooMany,
}

impl BudgetDenial {
    /// Stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Senseless(error) => error.code(),
            Self::BadScopeKey(_) => "budget-scope-key-invalid",
            Self::NotAuthorized(_) => "not-authorized",
            Self::BadReason => "reason-required",
            Self::NoSuchBudget(_) => "no-such-budget",
            Self::StaleRevision { .. } => "stale-revision",
            Self::Exists(_) => "budget-exists",
            Self::IdTaken(_) => "budget-id-conflict",
            Self::CategoryFixed(_) => "budget-category-fixed",
            Self::BadAmount => "budget-amount-invalid",
            Self::TooMany => "too-many-budgets",
        }
    }
}

/// What a wish comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Putting {
    /// The rule as it is to be from now on.
    Put(Budget),
    /// It is like that already.
    Unchanged,
}

/// Decides on creating or changing a budget. `known` is the one in force under its id, `retired` the rule of one that was.
pub fn put(
    wish: Budget,
    reach: Reach,
    reason: &str,
    expected: Expected,
    by: Operator<'_>,
    known: Option<Known<'_>>,
    retired: Option<&Budget>,
) -> Result<Putting, BudgetDenial> {
    let wish = Budget { tenant_id: tenant_of(reach, &wish, by)?, ..wish };
    may_manage(by, wish.tenant_id.as_ref(), wish.scope)?;
    check_reason(reason)?;
    wish.validate()?;
    check_scope_key(&wish)?;
    check_countable(&wish)?;
    if let Some(before) = known.map(|known| &known.metered.budget).or(retired) {
        let meant_for = |budget: &Budget| (budget.tenant_id.clone(), budget.scope, budget.scope_key.clone());
        if meant_for(before) != meant_for(&wish) {
            return Err(BudgetDenial::IdTaken(wish.budget_id));
        }
        if before.category != wish.category {
            return Err(BudgetDenial::CategoryFixed(wish.budget_id));
        }
    }
    match known {
        Some(_) if expected == Expected::None => Err(BudgetDenial::Exists(wish.budget_id)),
        Some(known) => {
            check_revision(expected, known.revision)?;
            Ok(if known.metered.budget == wish { Putting::Unchanged } else { Putting::Put(wish) })
        }
        None => match expected {
            Expected::Revision(expected) => Err(BudgetDenial::StaleRevision { expected, actual: 0 }),
            Expected::Any | Expected::None => Ok(Putting::Put(wish)),
        },
    }
}

/// Decides on giving a budget more; answers its rule from now on.
pub fn top_up(
    amount: Micros,
    reason: &str,
    expected: Expected,
    by: Operator<'_>,
    known: Known<'_>,
) -> Result<Budget, BudgetDenial> {
    let budget = &known.metered.budget;
    may_manage(by, budget.tenant_id.as_ref(), budget.scope)?;
    check_reason(reason)?;
    check_revision(expected, known.revision)?;
    let limit = budget.limit.0.checked_add(amount.0).filter(|_| amount > Micros::ZERO);
    let more = Budget { limit: Micros(limit.ok_or(BudgetDenial::BadAmount)?), ..budget.clone() };
    check_countable(&more)?;
    Ok(more)
}

/// Decides on taking a budget out of force.
pub fn retire(reason: &str, expected: Expected, by: Operator<'_>, known: Known<'_>) -> Result<(), BudgetDenial> {
    let budget = &known.metered.budget;
    may_manage(by, budget.tenant_id.as_ref(), budget.scope)?;
    check_reason(reason)?;
    check_revision(expected, known.revision)
}

/// True if the caller may be shown this budget: another tenant's is as absent as none (I11).
pub fn may_see(by: Operator<'_>, budget: &Budget) -> bool {
    let names_another = budget.scope == BudgetScope::Tenant && budget.scope_key != by.tenant_id.as_str();
    switching::may_see(by, budget.tenant_id.as_ref()) && (by.actor.role == Role::PlatformOperator || !names_another)
}

/// A platform operator sets every budget, a tenant's operator those inside its tenant. What the tenant as a whole may spend
/// is for the platform to say.
fn may_manage(by: Operator<'_>, tenant: Option<&TenantId>, scope: BudgetScope) -> Result<(), BudgetDenial> {
    let refused = |why: String| Err(BudgetDenial::NotAuthorized(why));
    match by.actor.role {
        Role::PlatformOperator => Ok(()),
        Role::TenantOperator if scope == BudgetScope::Tenant => {
            refused("what a whole tenant may spend is set by platform operators".to_owned())
        }
        Role::TenantOperator => {
            switching::within(by, tenant).map_err(|why| BudgetDenial::NotAuthorized(why.to_owned()))
        }
        role @ (Role::Customer | Role::Creator | Role::Service) => {
            refused(format!("a {} may not change budgets", role.as_str()))
        }
    }
}

fn tenant_of(reach: Reach, wish: &Budget, by: Operator<'_>) -> Result<Option<TenantId>, BudgetDenial> {
    match (reach, &wish.tenant_id) {
        (Reach::Platform, None) => Ok(None),
        (Reach::Platform, Some(_)) => Err(BudgetError::TwoTenants.into()),
        (Reach::Tenant(tenant), None) => Ok(Some(tenant)),
        (Reach::Tenant(tenant), Some(own)) if tenant == *own => Ok(Some(tenant)),
        (Reach::Tenant(_), Some(_)) => Err(BudgetError::TwoTenants.into()),
        (Reach::Own, Some(own)) => Ok(Some(own.clone())),
        (Reach::Own, None) if wish.scope == BudgetScope::Tenant => {
            TenantId::new(wish.scope_key.as_str()).map(Some).map_err(|_| BudgetDenial::BadScopeKey("tenant"))
        }
        (Reach::Own, None) => Ok(Some(by.tenant_id.clone())),
    }
}

fn check_scope_key(budget: &Budget) -> Result<(), BudgetDenial> {
    let key = budget.scope_key.as_str();
    let (sound, what) = match budget.scope {
        BudgetScope::Tenant => (TenantId::new(key).is_ok(), "tenant"),
        BudgetScope::Role => (Role::ALL.iter().any(|role| role.as_str() == key), "role"),
        BudgetScope::Agent => (AgentId::new(key).is_ok(), "agent"),
        BudgetScope::Run => (key.parse::<RunId>().is_ok(), "run"),
        BudgetScope::Tool => (ToolId::new(key).is_ok_and(|tool| crate::catalog::entry(&tool).is_some()), "tool"),
        BudgetScope::User => (ActorId::new(key).is_ok(), "user"),
        BudgetScope::Pipeline => (PipelineId::new(key).is_ok(), "pipeline"),
    };
    if sound { Ok(()) } else { Err(BudgetDenial::BadScopeKey(what)) }
}

/// A figure that JSON would round would be another one when it is read back.
fn check_countable(budget: &Budget) -> Result<(), BudgetDenial> {
    let json = serde_json::to_vec(budget).ok();
    let read = json.and_then(|json| serde_json::from_slice::<Budget>(&json).ok());
    if read.as_ref() == Some(budget) { Ok(()) } else { Err(BudgetDenial::BadAmount) }
}

fn check_reason(reason: &str) -> Result<(), BudgetDenial> {
    if reason.trim().is_empty() || reason.len() > SWITCH_TEXT_BYTES_MAX {
        return Err(BudgetDenial::BadReason);
    }
    Ok(())
}

fn check_revision(expected: Expected, actual: u64) -> Result<(), BudgetDenial> {
    match expected {
        Expected::Revision(expected) if expected != actual => Err(BudgetDenial::StaleRevision { expected, actual }),
        Expected::Any | Expected::None | Expected::Revision(_) => Ok(()),
    }
}
