//! Operators who ask nodes to change the rules, as they do over the wire: decided by a rule, recorded, said twice, and now
//! and then undone by the next one.

use signalbox_domain::governance::budget::Budget;
use signalbox_domain::governance::budgeting::Expected;
use signalbox_domain::governance::change::GovernanceChange;
use signalbox_domain::governance::granting::IssueGrant;
use signalbox_domain::governance::switching::{ArmSwitch, Reach};
use signalbox_domain::identity::Role;
use signalbox_domain::ids::BudgetId;
use signalbox_domain::quantity::Micros;
use signalbox_runtime::PutBudget;

use super::*;

/// What an operator wants of a budget.
pub(super) enum BudgetWish {
    Put(Box<Budget>),
    TopUp(BudgetId),
    Retire(BudgetId),
}

impl Schedule {
    /// A node that is awake and what asks it, if anybody is there to be asked.
    fn desk(&mut self) -> Option<(NodeHandle, Caller)> {
        let names = ["grace", "edsger"];
        let name = *self.dice.pick(&names).unwrap();
        Some((self.awake()?, people::caller("acme", name, Role::PlatformOperator)))
    }

    /// Wants a change of a node. What was answered with yes is in force, whatever happens to the node afterwards.
    pub(super) fn wants(&mut self, change: &GovernanceChange) {
        let times = if self.dice.chance(20) { 2 } else { 1 };
        for _ in 0..times {
            let Some((node, caller)) = self.desk() else { return };
            let (world, change) = (self.world.clone(), change.clone());
            world.tell(|| {
                format!("{} wants of a node: {}", caller.actor.actor_id, serde_json::to_string(&change).unwrap())
            });
            tokio::spawn(async move {
                let answer = asked(&node, &caller, change.clone()).await;
                world.tell(|| format!("the wish is answered: {answer:?}"));
                if matches!(answer, Ok(true)) {
                    world.model().promised(&change);
                }
            });
        }
    }

    pub(super) fn wants_budget(&mut self, wish: BudgetWish) {
        let Some((node, caller)) = self.desk() else { return };
        let world = self.world.clone();
        let amount = Micros::units(i64::try_from(self.dice.between(1, 5)).unwrap());
        tokio::spawn(async move {
            let reason = "a schedule";
            let answer = match wish {
                BudgetWish::Put(budget) => {
                    let reach = budget.tenant_id.clone().map_or(Reach::Platform, Reach::Tenant);
                    let wish = PutBudget { budget: *budget, reach, reason: reason.to_owned(), expected: Expected::Any };
                    node.put_budget(&caller, wish).await.map(|(standing, _)| standing.metered)
                }
                BudgetWish::TopUp(id) => {
                    let topped = node.top_up_budget(&caller, &id, amount, reason, Expected::Any).await;
                    topped.map(|(standing, _)| standing.metered)
                }
                BudgetWish::Retire(id) => {
                    node.retire_budget(&caller, &id, reason, Expected::Any).await.map(|standing| standing.metered)
                }
            };
            world.tell(|| format!("the wish for a budget is answered: {answer:?}"));
        });
    }
}

/// True if the change was made now, or was there before.
async fn asked(node: &NodeHandle, caller: &Caller, change: GovernanceChange) -> Result<bool, ApiError> {
    let reason = "a drill";
    match change {
        GovernanceChange::SwitchArmed(switch) => {
            let order = ArmSwitch {
                switch_id: switch.switch_id,
                reach: switch.tenant_id.map_or(Reach::Platform, Reach::Tenant),
                scope: switch.scope,
                target_id: switch.target_id,
                reason: switch.reason,
                user_visible_status_copy: switch.user_visible_status_copy,
                safe_degradation_mode_id: None,
                expires_at_unix_ms: switch.expires_at_unix_ms,
            };
            node.arm_switch(caller, order, false).await.map(|_| true)
        }
        GovernanceChange::SwitchDisarmed { switch_id, .. } => {
            node.disarm_switch(caller, &switch_id, reason).await.map(|done| done.disarmed)
        }
        GovernanceChange::GrantIssued(grant) => {
            let order = IssueGrant {
                grant_id: grant.grant_id,
                tenant_id: Some(grant.tenant_id),
                scope: grant.scope,
                scope_key: Some(grant.scope_key),
                tool_id: grant.tool_id,
                tool_range: Some(grant.tool_range),
                constraints: grant.constraints,
                delegable: None,
                expires_at_unix_ms: Some(
                    grant.expires_at_unix_ms.unwrap_or(grant.issued_at_unix_ms.plus_ms(3_600_000)),
                ),
                rationale: grant.rationale,
            };
            node.issue_grant(caller, order).await.map(|_| true)
        }
        GovernanceChange::GrantRevoked { grant_id, .. } => {
            node.revoke_grant(caller, &grant_id, reason, Expected::Any).await.map(|_| true)
        }
        _ => Ok(false),
    }
}
