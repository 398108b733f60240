//! Somebody who manages governance, of a few lines, for tests: switches by the real rules, in memory; no budget is ever there.

use std::sync::Mutex;

use async_trait::async_trait;
use signalbox_domain::governance::audit::{AuditEvent, AuditHead, Subject};
use signalbox_domain::governance::budget::{BudgetVerdict, MeteredBudget};
use signalbox_domain::governance::budgeting::{self, BudgetDenial, Expected, Putting};
use signalbox_domain::governance::change::{EpochChange, GovernanceChange, GovernanceState};
use signalbox_domain::governance::switching::{self, ArmSwitch, Arming, Operator, SwitchDenial};
use signalbox_domain::ids::{BudgetId, SwitchId};
use signalbox_domain::quantity::Micros;
use signalbox_domain::time::UnixMs;
use signalbox_runtime::{
    ArmedSwitch, BudgetForecast, BudgetHistory, BudgetStanding, DisarmedSwitch, PutBudget, SwitchStanding,
};

use crate::api::{ApiError, Caller, GovernanceApi};

/// When it is, for this fake.
pub(crate) const NOW: UnixMs = UnixMs(1_800_000_000_000);

#[derive(Default)]
pub(crate) struct FakeGovernance {
    state: Mutex<GovernanceState>,
    acts: Mutex<Vec<AuditEvent>>,
}

impl FakeGovernance {
    /// What `audit` gives from now on; the epoch moves with it.
    pub(crate) fn record(&self, act: AuditEvent) {
        self.acts.lock().unwrap().push(act);
        self.state.lock().unwrap().epoch += 1;
    }
}

fn operator(caller: &Caller) -> Operator<'_> {
    Operator { tenant_id: &caller.tenant_id, actor: &caller.actor }
}

#[async_trait]
impl GovernanceApi for FakeGovernance {
    async fn arm_switch(&self, caller: &Caller, order: ArmSwitch, _wait: bool) -> Result<ArmedSwitch, ApiError> {
        let mut state = self.state.lock().unwrap();
        let (switch, replayed) = match switching::arm(order, operator(caller), &state, NOW)? {
            Arming::Arm(switch) => (switch, false),
            Arming::Already(switch) => (switch, true),
        };
        let epoch = state.epoch + 1;
        state.apply(&EpochChange { epoch, at_unix_ms: NOW, change: GovernanceChange::SwitchArmed(switch.clone()) });
        let standing = SwitchStanding { switch, state: "armed", proposal: None, effect: None };
        Ok(ArmedSwitch { standing, replayed, epoch, committed_at: NOW, swept_after: None })
    }
    async fn would_arm_switch(&self, caller: &Caller, order: ArmSwitch) -> Result<ArmedSwitch, ApiError> {
        let state = self.state.lock().unwrap();
        let (switch, replayed) = match switching::arm(order, operator(caller), &state, NOW)? {
            Arming::Arm(switch) => (switch, false),
            Arming::Already(switch) => (switch, true),
        };
        let standing = SwitchStanding { switch, state: "armed", proposal: None, effect: None };
        Ok(ArmedSwitch { standing, replayed, epoch: state.epoch, committed_at: NOW, swept_after: None })
    }
    async fn would_disarm_switch(
        &self,
        caller: &Caller,
        switch_id: &SwitchId,
        reason: &str,
    ) -> Result<DisarmedSwitch, ApiError> {
        self.disarm_switch(caller, switch_id, reason).await
    }
    async fn disarm_switch(
        &self,
        caller: &Caller,
        switch_id: &SwitchId,
        reason: &str,
    ) -> Result<DisarmedSwitch, ApiError> {
        let state = self.state.lock().unwrap().clone();
        switching::disarm(switch_id, reason, operator(caller), &state, &Default::default(), NOW)?;
        let switch = state.switches.into_iter().find(|known| known.switch_id == *switch_id).unwrap();
        let standing = SwitchStanding { switch, state: "disarmed", proposal: None, effect: None };
        Ok(DisarmedSwitch { standing, disarmed: true })
    }
    async fn switch(&self, caller: &Caller, switch_id: &SwitchId) -> Result<SwitchStanding, ApiError> {
        let known = self.switches(caller).await?.into_iter().find(|known| known.switch.switch_id == *switch_id);
        known.ok_or_else(|| SwitchDenial::NoSuchSwitch(switch_id.to_string()).into())
    }
    async fn switches(&self, caller: &Caller) -> Result<Vec<SwitchStanding>, ApiError> {
        if !switching::may_see(operator(caller), Some(&caller.tenant_id)) {
            return Err(ApiError::OperatorsOnly(caller.actor.role.as_str()));
        }
        let state = self.state.lock().unwrap();
        let seen = state.switches.iter().filter(|switch| switching::may_see_switch(operator(caller), switch));
        let standing = |switch: &_| SwitchStanding {
            switch: Clone::clone(switch),
            state: switching::standing(switch, NOW),
            proposal: None,
            effect: None,
        };
        Ok(seen.map(standing).collect())
    }
    async fn put_budget(&self, caller: &Caller, wish: PutBudget) -> Result<(BudgetStanding, bool), ApiError> {
        let PutBudget { budget, reach, reason, expected } = wish;
        match budgeting::put(budget, reach, &reason, expected, operator(caller), None, None)? {
            Putting::Unchanged => unreachable!("there is none"),
            Putting::Put(budget) => {
                let metered = MeteredBudget::unused(budget);
                let verdict = BudgetVerdict::Ok;
                Ok((BudgetStanding { metered, revision: 1, verdict, next_window_unix_seconds: None }, false))
            }
        }
    }
    async fn would_put_budget(&self, caller: &Caller, wish: PutBudget) -> Result<BudgetForecast, ApiError> {
        let (after, _) = self.put_budget(caller, wish).await?;
        Ok(BudgetForecast { before: None, after, resumed: 0 })
    }
    async fn would_top_up_budget(
        &self,
        _: &Caller,
        _: &BudgetId,
        _: Micros,
        _: &str,
        _: Expected,
    ) -> Result<BudgetForecast, ApiError> {
        Err(BudgetDenial::StaleRevision { expected: 1, actual: 2 }.into())
    }
    async fn would_retire_budget(
        &self,
        _: &Caller,
        id: &BudgetId,
        _: &str,
        _: Expected,
    ) -> Result<BudgetStanding, ApiError> {
        Err(BudgetDenial::NoSuchBudget(id.to_string()).into())
    }
    async fn budget(&self, _: &Caller, id: &BudgetId) -> Result<BudgetStanding, ApiError> {
        Err(BudgetDenial::NoSuchBudget(id.to_string()).into())
    }
    async fn budgets(&self, _: &Caller) -> Result<Vec<BudgetStanding>, ApiError> {
        Ok(Vec::new())
    }
    async fn top_up_budget(
        &self,
        _: &Caller,
        _: &BudgetId,
        _: Micros,
        _: &str,
        _: Expected,
    ) -> Result<(BudgetStanding, usize), ApiError> {
        Err(BudgetDenial::StaleRevision { expected: 1, actual: 2 }.into())
    }
    async fn retire_budget(&self, _: &Caller, id: &BudgetId, _: &str, _: Expected) -> Result<BudgetStanding, ApiError> {
        Err(BudgetDenial::NoSuchBudget(id.to_string()).into())
    }
    async fn budget_history(&self, _: &Caller, _: &BudgetId, _: usize) -> Result<BudgetHistory, ApiError> {
        Ok(BudgetHistory::default())
    }
    async fn audit(
        &self,
        _: &Caller,
        after_seq: u64,
        _: Option<Subject>,
        limit: usize,
    ) -> Result<Vec<AuditEvent>, ApiError> {
        let acts = self.acts.lock().unwrap();
        Ok(acts.iter().filter(|act| act.seq > after_seq).take(limit).cloned().collect())
    }
    async fn export_audit(&self, _: &Caller) -> Result<(Vec<AuditEvent>, AuditHead), ApiError> {
        Ok((self.acts.lock().unwrap().clone(), AuditHead::default()))
    }
    fn epoch(&self) -> u64 {
        self.state.lock().unwrap().epoch
    }
}
