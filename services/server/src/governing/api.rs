//! What the edge needs of whoever manages governance, as a trait: so that another edge can call it, and tests can stand in.

use async_trait::async_trait;
use signalbox_domain::governance::audit::{AuditEvent, AuditHead, Subject};
use signalbox_domain::governance::budgeting::Expected;
use signalbox_domain::governance::granting::{IssueGrant, RenewGrant};
use signalbox_domain::governance::switching::ArmSwitch;
use signalbox_domain::ids::{BucketId, BudgetId, GrantId, SwitchId};
use signalbox_domain::quantity::Micros;
use signalbox_runtime::{
    ArmedSwitch, BudgetForecast, BudgetHistory, BudgetStanding, DisarmedSwitch, Forecast, GrantFilter, GrantStanding,
    NodeHandle, PutBudget, Revocations, RevokedGrant, SetThrottle, SwitchStanding, ThrottleStanding,
};

use crate::api::{ApiError, Caller};

/// Managing switches, budgets and the audit journal. Every method acts with the caller's authority; what it may not see is as
/// absent as what does not exist (I11).
#[async_trait]
pub trait GovernanceApi: Send + Sync + 'static {
    /// Arms a switch; with `wait` it returns when nothing is left that it matches, or after half a minute.
    async fn arm_switch(&self, caller: &Caller, order: ArmSwitch, wait: bool) -> Result<ArmedSwitch, ApiError>;
    /// What arming would stop, by the same rule. Nothing is written.
    async fn would_arm_switch(&self, caller: &Caller, order: ArmSwitch) -> Result<ArmedSwitch, ApiError>;
    /// What disarming would do, by the same rule. Nothing is written.
    async fn would_disarm_switch(
        &self,
        caller: &Caller,
        switch_id: &SwitchId,
        reason: &str,
    ) -> Result<DisarmedSwitch, ApiError>;
    /// Disarms a switch, or asks another identity to.
    async fn disarm_switch(
        &self,
        caller: &Caller,
        switch_id: &SwitchId,
        reason: &str,
    ) -> Result<DisarmedSwitch, ApiError>;
    /// One switch, with what it has done.
    async fn switch(&self, caller: &Caller, switch_id: &SwitchId) -> Result<SwitchStanding, ApiError>;
    /// All switches, disarmed and expired ones too.
    async fn switches(&self, caller: &Caller) -> Result<Vec<SwitchStanding>, ApiError>;
    /// Creates a budget or changes its rule; true if nothing had to be changed.
    async fn put_budget(&self, caller: &Caller, wish: PutBudget) -> Result<(BudgetStanding, bool), ApiError>;
    /// What putting a budget would change, by the same rule. Nothing is written.
    async fn would_put_budget(&self, caller: &Caller, wish: PutBudget) -> Result<BudgetForecast, ApiError>;
    /// What a top-up would change, by the same rule. Nothing is written.
    async fn would_top_up_budget(
        &self,
        caller: &Caller,
        id: &BudgetId,
        amount: Micros,
        reason: &str,
        expected: Expected,
    ) -> Result<BudgetForecast, ApiError>;
    /// What retiring would take out of force, by the same rule. Nothing is written.
    async fn would_retire_budget(
        &self,
        caller: &Caller,
        id: &BudgetId,
        reason: &str,
        expected: Expected,
    ) -> Result<BudgetStanding, ApiError>;
    /// One budget in force.
    async fn budget(&self, caller: &Caller, id: &BudgetId) -> Result<BudgetStanding, ApiError>;
    /// The budgets in force.
    async fn budgets(&self, caller: &Caller) -> Result<Vec<BudgetStanding>, ApiError>;
    /// Gives a budget more; answers how many runs go on.
    async fn top_up_budget(
        &self,
        caller: &Caller,
        id: &BudgetId,
        amount: Micros,
        reason: &str,
        expected: Expected,
    ) -> Result<(BudgetStanding, usize), ApiError>;
    /// Takes a budget out of force.
    async fn retire_budget(
        &self,
        caller: &Caller,
        id: &BudgetId,
        reason: &str,
        expected: Expected,
    ) -> Result<BudgetStanding, ApiError>;
    /// What became of a budget.
    async fn budget_history(&self, caller: &Caller, id: &BudgetId, limit: usize) -> Result<BudgetHistory, ApiError>;
    /// Issues a grant; true if the same was issued before.
    async fn issue_grant(&self, caller: &Caller, order: IssueGrant) -> Result<(GrantStanding, bool), ApiError>;
    /// What `issue_grant` would issue. Nothing is written.
    async fn would_issue_grant(&self, caller: &Caller, order: IssueGrant) -> Result<(GrantStanding, bool), ApiError>;
    /// Renews a grant; true if the new one was there before.
    async fn renew_grant(&self, caller: &Caller, order: RenewGrant) -> Result<(GrantStanding, bool), ApiError>;
    /// What `renew_grant` would issue. Nothing is written.
    async fn would_renew_grant(&self, caller: &Caller, order: RenewGrant) -> Result<(GrantStanding, bool), ApiError>;
    /// What `revoke_grant` would take away. Nothing is written.
    async fn would_revoke_grant(
        &self,
        caller: &Caller,
        id: &GrantId,
        reason: &str,
        expected: Expected,
    ) -> Result<RevokedGrant, ApiError>;
    /// Revokes a grant, with what a renewal has tied to it.
    async fn revoke_grant(
        &self,
        caller: &Caller,
        id: &GrantId,
        reason: &str,
        expected: Expected,
    ) -> Result<RevokedGrant, ApiError>;
    /// One grant.
    async fn grant(&self, caller: &Caller, id: &GrantId) -> Result<GrantStanding, ApiError>;
    /// Grants by their ids.
    async fn grants(&self, caller: &Caller, filter: &GrantFilter) -> Result<Vec<GrantStanding>, ApiError>;
    /// How soon the node heard of revocations.
    fn revocations(&self) -> Revocations;
    /// Sets a rule of token buckets; true if nothing had to be changed.
    async fn set_throttle(&self, caller: &Caller, wish: SetThrottle) -> Result<(ThrottleStanding, bool), ApiError>;
    /// What `set_throttle` would change. Nothing is written.
    async fn would_set_throttle(
        &self,
        caller: &Caller,
        wish: SetThrottle,
    ) -> Result<Forecast<ThrottleStanding>, ApiError>;
    /// What `remove_throttle` would take away. Nothing is written.
    async fn would_remove_throttle(
        &self,
        caller: &Caller,
        id: &BucketId,
        reason: &str,
        expected: Expected,
    ) -> Result<ThrottleStanding, ApiError>;
    /// Removes one.
    async fn remove_throttle(
        &self,
        caller: &Caller,
        id: &BucketId,
        reason: &str,
        expected: Expected,
    ) -> Result<ThrottleStanding, ApiError>;
    /// One rule.
    async fn throttle(&self, caller: &Caller, id: &BucketId) -> Result<ThrottleStanding, ApiError>;
    /// All rules, by their ids.
    async fn throttles(&self, caller: &Caller) -> Result<Vec<ThrottleStanding>, ApiError>;
    /// Acts after one, oldest first.
    async fn audit(
        &self,
        caller: &Caller,
        after_seq: u64,
        subject: Option<Subject>,
        limit: usize,
    ) -> Result<Vec<AuditEvent>, ApiError>;
    /// The whole audit journal, and where it ends.
    async fn export_audit(&self, caller: &Caller) -> Result<(Vec<AuditEvent>, AuditHead), ApiError>;
    /// The epoch the node has read; it moves with every act on a switch.
    fn epoch(&self) -> u64;
}

#[async_trait]
impl GovernanceApi for NodeHandle {
    async fn arm_switch(&self, caller: &Caller, order: ArmSwitch, wait: bool) -> Result<ArmedSwitch, ApiError> {
        self.arm_switch(caller, order, wait).await
    }
    async fn would_arm_switch(&self, caller: &Caller, order: ArmSwitch) -> Result<ArmedSwitch, ApiError> {
        self.would_arm_switch(caller, order).await
    }
    async fn would_disarm_switch(
        &self,
        caller: &Caller,
        switch_id: &SwitchId,
        reason: &str,
    ) -> Result<DisarmedSwitch, ApiError> {
        self.would_disarm_switch(caller, switch_id, reason).await
    }
    async fn disarm_switch(
        &self,
        caller: &Caller,
        switch_id: &SwitchId,
        reason: &str,
    ) -> Result<DisarmedSwitch, ApiError> {
        self.disarm_switch(caller, switch_id, reason).await
    }
    async fn switch(&self, caller: &Caller, switch_id: &SwitchId) -> Result<SwitchStanding, ApiError> {
        self.switch(caller, switch_id).await
    }
    async fn switches(&self, caller: &Caller) -> Result<Vec<SwitchStanding>, ApiError> {
        self.switches(caller).await
    }
    async fn put_budget(&self, caller: &Caller, wish: PutBudget) -> Result<(BudgetStanding, bool), ApiError> {
        self.put_budget(caller, wish).await
    }
    async fn would_put_budget(&self, caller: &Caller, wish: PutBudget) -> Result<BudgetForecast, ApiError> {
        self.would_put_budget(caller, wish).await
    }
    async fn would_top_up_budget(
        &self,
        caller: &Caller,
        id: &BudgetId,
        amount: Micros,
        reason: &str,
        expected: Expected,
    ) -> Result<BudgetForecast, ApiError> {
        self.would_top_up_budget(caller, id, amount, reason, expected).await
    }
    async fn would_retire_budget(
        &self,
        caller: &Caller,
        id: &BudgetId,
        reason: &str,
        expected: Expected,
    ) -> Result<BudgetStanding, ApiError> {
        self.would_retire_budget(caller, id, reason, expected).await
    }
    async fn budget(&self, caller: &Caller, id: &BudgetId) -> Result<BudgetStanding, ApiError> {
        self.budget(caller, id).await
    }
    async fn budgets(&self, caller: &Caller) -> Result<Vec<BudgetStanding>, ApiError> {
        self.budgets(caller).await
    }
    async fn top_up_budget(
        &self,
        caller: &Caller,
        id: &BudgetId,
        amount: Micros,
        reason: &str,
        expected: Expected,
    ) -> Result<(BudgetStanding, usize), ApiError> {
        self.top_up_budget(caller, id, amount, reason, expected).await
    }
    async fn retire_budget(
        &self,
        caller: &Caller,
        id: &BudgetId,
        reason: &str,
        expected: Expected,
    ) -> Result<BudgetStanding, ApiError> {
        self.retire_budget(caller, id, reason, expected).await
    }
    async fn budget_history(&self, caller: &Caller, id: &BudgetId, limit: usize) -> Result<BudgetHistory, ApiError> {
        self.budget_history(caller, id, limit).await
    }
    async fn issue_grant(&self, caller: &Caller, order: IssueGrant) -> Result<(GrantStanding, bool), ApiError> {
        self.issue_grant(caller, order).await
    }
    async fn would_issue_grant(&self, caller: &Caller, order: IssueGrant) -> Result<(GrantStanding, bool), ApiError> {
        self.would_issue_grant(caller, order).await
    }
    async fn would_renew_grant(&self, caller: &Caller, order: RenewGrant) -> Result<(GrantStanding, bool), ApiError> {
        self.would_renew_grant(caller, order).await
    }
    async fn would_revoke_grant(
        &self,
        caller: &Caller,
        id: &GrantId,
        reason: &str,
        expected: Expected,
    ) -> Result<RevokedGrant, ApiError> {
        self.would_revoke_grant(caller, id, reason, expected).await
    }
    async fn would_set_throttle(
        &self,
        caller: &Caller,
        wish: SetThrottle,
    ) -> Result<Forecast<ThrottleStanding>, ApiError> {
        self.would_set_throttle(caller, wish).await
    }
    async fn would_remove_throttle(
        &self,
        caller: &Caller,
        id: &BucketId,
        reason: &str,
        expected: Expected,
    ) -> Result<ThrottleStanding, ApiError> {
        self.would_remove_throttle(caller, id, reason, expected).await
    }
    async fn renew_grant(&self, caller: &Caller, order: RenewGrant) -> Result<(GrantStanding, bool), ApiError> {
        self.renew_grant(caller, order).await
    }
    async fn revoke_grant(
        &self,
        caller: &Caller,
        id: &GrantId,
        reason: &str,
        expected: Expected,
    ) -> Result<RevokedGrant, ApiError> {
        self.revoke_grant(caller, id, reason, expected).await
    }
    async fn grant(&self, caller: &Caller, id: &GrantId) -> Result<GrantStanding, ApiError> {
        self.grant(caller, id).await
    }
    async fn grants(&self, caller: &Caller, filter: &GrantFilter) -> Result<Vec<GrantStanding>, ApiError> {
        self.grants(caller, filter).await
    }
    fn revocations(&self) -> Revocations {
        self.revocations()
    }
    async fn set_throttle(&self, caller: &Caller, wish: SetThrottle) -> Result<(ThrottleStanding, bool), ApiError> {
        self.set_throttle(caller, wish).await
    }
    async fn remove_throttle(
        &self,
        caller: &Caller,
        id: &BucketId,
        reason: &str,
        expected: Expected,
    ) -> Result<ThrottleStanding, ApiError> {
        self.remove_throttle(caller, id, reason, expected).await
    }
    async fn throttle(&self, caller: &Caller, id: &BucketId) -> Result<ThrottleStanding, ApiError> {
        self.throttle(caller, id).await
    }
    async fn throttles(&self, caller: &Caller) -> Result<Vec<ThrottleStanding>, ApiError> {
        self.throttles(caller).await
    }
    async fn audit(
        &self,
        caller: &Caller,
        after_seq: u64,
        subject: Option<Subject>,
        limit: usize,
    ) -> Result<Vec<AuditEvent>, ApiError> {
        self.audit(caller, after_seq, subject, limit).await
    }
    async fn export_audit(&self, caller: &Caller) -> Result<(Vec<AuditEvent>, AuditHead), ApiError> {
        self.export_audit(caller).await
    }
    fn epoch(&self) -> u64 {
        self.governance_epoch()
    }
}
