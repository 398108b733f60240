//! The books between a parent and its children: what was given is spent by the child or comes back, once (I7).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::handoff::dispatch::DispatchDenialReason;
use crate::ids::RunId;
use crate::quantity::Micros;

/// The kind of the event that an overrun makes (HND-012).
pub const SUBAGENT_BUDGET_EXCEEDED: &str = "subagent_budget_exceeded";

/// What a parent has, what it has given, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SubBudgets {
    /// What is left to the parent. Below zero only by what children used beyond what they were given.
    remaining: Micros,
    /// One entry for each child there ever was.
    children: BTreeMap<RunId, SubBudget>,
}

/// What one child was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SubBudget {
    /// Given at dispatch.
    pub given: Micros,
    /// What the child used; absent until its end is reconciled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<Micros>,
}

/// What reconciling a child's end brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reconciled {
    /// What goes back to the parent.
    pub returned: Micros,
    /// What the child used beyond what it was given: an event of kind [`SUBAGENT_BUDGET_EXCEEDED`], never silence.
    pub overshoot: Option<Micros>,
}

impl SubBudgets {
    /// A parent that has given nothing yet.
    pub const fn new(budget: Micros) -> Self {
        Self { remaining: budget, children: BTreeMap::new() }
    }

    /// A parent that has given before: what is left to it, and of each child what it was given and, once it is reconciled,
    /// what it used.
    pub fn standing(remaining: Micros, children: impl IntoIterator<Item = (RunId, Micros, Option<Micros>)>) -> Self {
        let children = children.into_iter().map(|(child, given, used)| (child, SubBudget { given, used })).collect();
        Self { remaining, children }
    }

    /// What is left to the parent.
    pub const fn remaining(&self) -> Micros {
        self.remaining
    }

    /// What a child was given, and used.
    pub fn child(&self, child: RunId) -> Option<SubBudget> {
        self.children.get(&child).copied()
    }

    /// Takes a child's sub-budget from the parent, before the child starts (HND-011). Saying it twice for one child is
    /// harmless.
    ///
    /// # Errors
    /// The sub-budget is not above zero, or above what is left (HND-008).
    pub fn deduct_dispatch_budget(&mut self, child: RunId, sub_budget: Micros) -> Result<(), DispatchDenialReason> {
        if self.children.contains_key(&child) {
            return Ok(());
        }
        if sub_budget <= Micros::ZERO {
            return Err(DispatchDenialReason::BudgetNonPositive);
        }
        if sub_budget > self.remaining {
            return Err(DispatchDenialReason::BudgetExceedsParent);
        }
        self.remaining = self.remaining.minus(sub_budget);
        self.children.insert(child, SubBudget { given: sub_budget, used: None });
        Ok(())
    }

    /// Returns the unused part of a child's sub-budget when the child has ended, or charges what it used beyond it
    /// (HND-012). `None` for a child that was never given anything or is reconciled already (HND-013).
    pub fn reconcile_terminal_budget(&mut self, child: RunId, used: Micros) -> Option<Reconciled> {
        let entry = self.children.get_mut(&child).filter(|entry| entry.used.is_none())?;
        let used = used.max(Micros::ZERO);
        entry.used = Some(used);
        let returned = entry.given.minus_to_zero(used);
        let overshoot = used.minus_to_zero(entry.given);
        self.remaining = self.remaining.plus(returned).minus(overshoot);
        Some(Reconciled { returned, overshoot: (overshoot > Micros::ZERO).then_some(overshoot) })
    }
}
