//! Whether a hand-off may be made: authority only narrows along a chain (I6).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::handoff::ChainLink;
use crate::ids::{AgentId, SecretId, ToolId};
use crate::quantity::Micros;

/// How deep hand-offs go unless something else is said; the root is at depth 0 (HND-004).
pub const DEFAULT_DEPTH_CAP: u32 = 5;
/// How many live children an agent may have unless something else is said (HND-007).
pub const DEFAULT_FANOUT_DEGREE: u32 = 4;

/// Named limits on what an agent may do (HND-006). An absent limit does not bind; an empty list allows nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CapabilityModifiers {
    /// Hosts that may be reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<BTreeSet<String>>,
    /// Path prefixes that may be touched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_prefixes: Option<BTreeSet<String>>,
    /// Secrets that may be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ids: Option<BTreeSet<SecretId>>,
    /// Data that may be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_scopes: Option<BTreeSet<String>>,
    /// Most calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_calls: Option<u64>,
    /// Nothing may be changed.
    #[serde(default)]
    pub read_only: bool,
}

impl CapabilityModifiers {
    /// True if nothing is allowed that `parent` does not allow: each set a subset, each number no greater, a true flag
    /// still true (HND-006).
    pub fn within(&self, parent: &Self) -> bool {
        subset(self.hosts.as_ref(), parent.hosts.as_ref())
            && subset(self.path_prefixes.as_ref(), parent.path_prefixes.as_ref())
            && subset(self.secret_ids.as_ref(), parent.secret_ids.as_ref())
            && subset(self.data_scopes.as_ref(), parent.data_scopes.as_ref())
            && parent.max_calls.is_none_or(|max| self.max_calls.is_some_and(|own| own <= max))
            && (self.read_only || !parent.read_only)
    }
}

fn subset<T: Ord>(child: Option<&BTreeSet<T>>, parent: Option<&BTreeSet<T>>) -> bool {
    parent.is_none_or(|parent| child.is_some_and(|child| child.is_subset(parent)))
}

/// What an agent was given to work with. What it may hand on is a part of this, whatever its registration says (HND-016).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Authority {
    /// Its tools; an empty list means none.
    pub tool_ids: BTreeSet<ToolId>,
    /// Most live children at once.
    #[serde(default = "default_fanout_degree")]
    pub max_fanout_degree: u32,
    /// Further limits.
    #[serde(default)]
    pub capability_modifiers: CapabilityModifiers,
}

const fn default_fanout_degree() -> u32 {
    DEFAULT_FANOUT_DEGREE
}

impl Authority {
    /// True if nothing is allowed that `parent` does not allow (HND-005).
    pub fn within(&self, parent: &Self) -> bool {
        self.tool_ids.is_subset(&parent.tool_ids)
            && self.max_fanout_degree <= parent.max_fanout_degree
            && self.capability_modifiers.within(&parent.capability_modifiers)
    }
}

/// The agent that hands off, as its stored chain says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parent<'a> {
    /// From the root to the parent itself.
    pub chain: &'a [ChainLink],
    /// Deepest hand-off of the chain.
    pub depth_cap: u32,
    /// What was delegated to it.
    pub authority: &'a Authority,
    /// Its children that have not ended.
    pub live_children: u32,
    /// What is left of its budget.
    pub remaining: Micros,
}

/// The hand-off that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dispatch<'a> {
    /// To whom.
    pub agent_id: &'a AgentId,
    /// What it is to work with.
    pub authority: &'a Authority,
    /// What it may spend.
    pub sub_budget: Micros,
}

/// Why a hand-off is refused (HND-009; the fan-out's is ours, HND-007).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum DispatchDenialReason {
    /// The agent is an ancestor.
    #[error("the agent is already in the chain; hand off to another, or declare `allowCycle` at the root")]
    CycleDetected,
    /// Too deep.
    #[error("the chain is as deep as it may be; do the work here, or raise the depth cap at the root")]
    DepthCapExceeded,
    /// Too many live children.
    #[error("as many children as allowed are at work; wait until one has ended")]
    FanoutExceeded,
    /// More than the parent has.
    #[error("the child would be allowed what its parent is not; hand on a part of the parent's authority")]
    AuthorityWideningRejected,
    /// No money.
    #[error("the sub-budget must be above zero")]
    BudgetNonPositive,
    /// More money than there is.
    #[error("the sub-budget is above what its parent has left; ask for less")]
    BudgetExceedsParent,
}

impl DispatchDenialReason {
    /// All six, in the order they are looked for (HND-010).
    pub const ALL: [Self; 6] = [
        Self::CycleDetected,
        Self::DepthCapExceeded,
        Self::FanoutExceeded,
        Self::AuthorityWideningRejected,
        Self::BudgetNonPositive,
        Self::BudgetExceedsParent,
    ];

    /// Stable code.
    pub const fn code(self) -> &'static str {
        match self {
            Self::CycleDetected => "cycle-detected",
            Self::DepthCapExceeded => "depth-cap-exceeded",
            Self::FanoutExceeded => "fanout-exceeded",
            Self::AuthorityWideningRejected => "authority-widening-rejected",
            Self::BudgetNonPositive => "budget-non-positive",
            Self::BudgetExceedsParent => "budget-exceeds-parent",
        }
    }
}

/// Whether a hand-off may be made. Cycle, depth, fan-out, authority, budget, in this order (HND-010).
///
/// # Errors
/// The first reason against it.
pub fn validate_dispatch(parent: &Parent<'_>, dispatch: &Dispatch<'_>) -> Result<(), DispatchDenialReason> {
    let cycle_allowed = parent.chain.first().is_some_and(|root| root.allow_cycle);
    if !cycle_allowed && parent.chain.iter().any(|link| &link.agent_id == dispatch.agent_id) {
        return Err(DispatchDenialReason::CycleDetected);
    }
    // The root is at depth 0, so a child is as deep as its chain is long.
    if u32::try_from(parent.chain.len()).is_ok_and(|depth| depth <= parent.depth_cap) {
        within_bounds(parent, dispatch)
    } else {
        Err(DispatchDenialReason::DepthCapExceeded)
    }
}

fn within_bounds(parent: &Parent<'_>, dispatch: &Dispatch<'_>) -> Result<(), DispatchDenialReason> {
    if parent.live_children >= parent.authority.max_fanout_degree {
        return Err(DispatchDenialReason::FanoutExceeded);
    }
    if !dispatch.authority.within(parent.authority) {
        return Err(DispatchDenialReason::AuthorityWideningRejected);
    }
    if dispatch.sub_budget <= Micros::ZERO {
        return Err(DispatchDenialReason::BudgetNonPositive);
    }
    if dispatch.sub_budget > parent.remaining {
        return Err(DispatchDenialReason::BudgetExceedsParent);
    }
    Ok(())
}
