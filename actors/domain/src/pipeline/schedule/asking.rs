//! Whether a fire may start its run: kill switches and budgets are asked before it does, and what they say is kept.

use super::{PipelineSchedule, Reason};
use crate::governance::budget::{BudgetScope, BudgetVerdict, MeteredBudget, check_budget};
use crate::governance::change::GovernanceState;
use crate::governance::kill_switch::blamed;
use crate::quantity::Micros;
use crate::time::UnixMs;

/// Why a fire starts no run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Objection {
    /// Stable.
    pub reason: Reason,
    /// Which switch or budget, in words.
    pub details: String,
}

/// What stands against starting a run of this schedule now, if anything does. Only what would stop the run as a whole is asked:
/// a switch on everything, its tenant, its lead agent or that agent's family, and budgets that every call of it counts against.
/// Each call of the run is held against all of them anyway.
pub fn objection(
    schedule: &PipelineSchedule,
    state: &GovernanceState,
    budgets: &[MeteredBudget],
    now: UnixMs,
) -> Option<Objection> {
    let agent = schedule.fires.root_agent_id()?;
    let family = state.registry.family_of(&schedule.tenant_id, &agent);
    let reaching = state
        .switches
        .iter()
        .filter(|switch| switch.is_active(now) && switch.reaches(&schedule.tenant_id, &agent, family));
    if let Some(switch) = blamed(reaching) {
        let details = format!("the switch `{}` is armed: {}", switch.switch_id, switch.reason);
        return Some(Objection { reason: Reason::KillSwitch, details });
    }
    let counts = |metered: &&MeteredBudget| {
        let budget = &metered.budget;
        let key = budget.scope_key.as_str();
        budget.tenant_id.as_ref().is_none_or(|tenant| *tenant == schedule.tenant_id)
            && match budget.scope {
                BudgetScope::Tenant => key == schedule.tenant_id.as_str(),
                BudgetScope::User => key == schedule.owner.actor.actor_id.as_str(),
                BudgetScope::Role => key == schedule.owner.actor.role.as_str(),
                BudgetScope::Agent => key == agent.as_str(),
                BudgetScope::Pipeline => schedule.fires.pipeline_id().is_some_and(|id| key == id.as_str()),
                // Other runs' budgets, and those of single tools, stop no run as a whole.
                BudgetScope::Run | BudgetScope::Tool => false,
            }
    };
    // The smallest amount there is: nothing at all is left.
    let used_up = |metered: &&MeteredBudget| {
        let seconds = now.0.div_euclid(1_000);
        check_budget(&metered.budget, &metered.meter, Micros(1), seconds) == BudgetVerdict::Exceeded
    };
    budgets.iter().filter(counts).find(used_up).map(|metered| Objection {
        reason: Reason::BudgetExceeded,
        details: format!("nothing is left of the budget `{}`", metered.budget.budget_id),
    })
}
