//! Somebody who manages governance, of a few lines, for tests: switches by the real rules, in memory; no budget is ever there.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use signalbox_domain::governance::audit::{AuditEvent, AuditHead, Subject};
use signalbox_domain::governance::budget::{BudgetVerdict, MeteredBudget};
use signalbox_domain::governance::budgeting::{self, BudgetDenial, Expected, Putting};
use signalbox_domain::governance::change::{EpochChange, GovernanceChange, GovernanceState};
use signalbox_domain::governance::granting::{self, IssueGrant, Issuing, RenewGrant, Revoking};
use signalbox_domain::governance::switching::{self, ArmSwitch, Arming, Operator, SwitchDenial};
use signalbox_domain::governance::throttling::{self, Setting, ThrottleDenial};
use signalbox_domain::ids::{
    AgentId, BucketId, BudgetId, ExecutorId, GrantId, ScheduleId, SwitchId, ToolId, WebhookId,
};
use signalbox_domain::pipeline::schedule::{FireState, NewFire, PipelineSchedule, PutSchedule, ScheduleDenial};
use signalbox_domain::quantity::Micros;
use signalbox_domain::registry::{
    self, AgentRegistryEntry, AgentViewer, ExecutorDenial, ExecutorRegistration, MoveAgent, PublishAgent,
    RegisteredExecutor, RegistryDenial, TenantScope,
};
use signalbox_domain::time::UnixMs;
use signalbox_domain::webhook::{PutWebhook, Webhook, WebhookDenial};
use signalbox_ports::schedules::Fire;
use signalbox_ports::webhooks::{Again, Delivery};
use signalbox_runtime::{
    AgentStanding, ArmedSwitch, BudgetForecast, BudgetHistory, BudgetStanding, DisarmedSwitch, Forecast, GrantFilter,
    GrantStanding, Pinged, PutBudget, Revocations, RevokedGrant, ScheduleStanding, SetThrottle, SwitchStanding,
    ThrottleStanding, WebhookStanding,
};

use crate::api::{ApiError, Caller, GovernanceApi, RegistryApi, ScheduleApi, WebhookApi};

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

fn kept(state: &mut GovernanceState, issuing: Issuing) -> (GrantStanding, bool) {
    let (grant, replayed) = match issuing {
        Issuing::Issue(grant) => (grant, false),
        Issuing::Already(grant) => (grant, true),
    };
    let epoch = state.epoch + 1;
    state.apply(&EpochChange { epoch, at_unix_ms: NOW, change: GovernanceChange::GrantIssued(grant.clone()) });
    (GrantStanding { state: grant.standing(NOW), grant, revision: 1 }, replayed)
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
    async fn issue_grant(&self, caller: &Caller, order: IssueGrant) -> Result<(GrantStanding, bool), ApiError> {
        let mut state = self.state.lock().unwrap();
        let issuing = granting::issue(order, "audit/1".to_owned(), operator(caller), &state, NOW)?;
        Ok(kept(&mut state, issuing))
    }
    async fn would_issue_grant(&self, caller: &Caller, order: IssueGrant) -> Result<(GrantStanding, bool), ApiError> {
        let mut state = self.state.lock().unwrap().clone();
        let issuing = granting::issue(order, "audit/1".to_owned(), operator(caller), &state, NOW)?;
        Ok(kept(&mut state, issuing))
    }
    async fn would_renew_grant(&self, caller: &Caller, order: RenewGrant) -> Result<(GrantStanding, bool), ApiError> {
        let mut state = self.state.lock().unwrap().clone();
        let issuing = granting::renew(order, "audit/1".to_owned(), 1, operator(caller), &state, NOW)?;
        Ok(kept(&mut state, issuing))
    }
    async fn would_revoke_grant(
        &self,
        caller: &Caller,
        id: &GrantId,
        reason: &str,
        expected: Expected,
    ) -> Result<RevokedGrant, ApiError> {
        let revoking = granting::revoke(id, reason, expected, 1, operator(caller), &self.state.lock().unwrap())?;
        let standing = self.grant(caller, id).await?;
        let (already, applied_after) = (revoking == Revoking::Already, std::time::Duration::ZERO);
        Ok(RevokedGrant { standing, already, revoked: Vec::new(), epoch: 0, applied_after })
    }
    async fn would_set_throttle(
        &self,
        caller: &Caller,
        wish: SetThrottle,
    ) -> Result<Forecast<ThrottleStanding>, ApiError> {
        let SetThrottle { rule, reach, reason, expected } = wish;
        let state = self.state.lock().unwrap();
        let known = state.buckets.iter().find(|known| known.bucket_id == rule.bucket_id);
        let before = known.map(|rule| ThrottleStanding { rule: rule.clone(), revision: 1 });
        let known = known.map(|rule| throttling::Known { rule, revision: 1 });
        let count = state.buckets.len();
        let setting = throttling::set(rule.clone(), reach, &reason, expected, operator(caller), known, count)?;
        let unchanged = setting == Setting::Unchanged;
        let rule = if let Setting::Set(rule) = setting { rule } else { rule };
        Ok(Forecast { before, after: ThrottleStanding { rule, revision: 1 }, unchanged })
    }
    async fn would_remove_throttle(
        &self,
        caller: &Caller,
        id: &BucketId,
        reason: &str,
        expected: Expected,
    ) -> Result<ThrottleStanding, ApiError> {
        let standing = self.throttle(caller, id).await?;
        let known = throttling::Known { rule: &standing.rule, revision: standing.revision };
        throttling::remove(reason, expected, operator(caller), known)?;
        Ok(standing)
    }
    async fn renew_grant(&self, caller: &Caller, order: RenewGrant) -> Result<(GrantStanding, bool), ApiError> {
        let mut state = self.state.lock().unwrap();
        let issuing = granting::renew(order, "audit/1".to_owned(), 1, operator(caller), &state, NOW)?;
        Ok(kept(&mut state, issuing))
    }
    async fn revoke_grant(
        &self,
        caller: &Caller,
        id: &GrantId,
        reason: &str,
        expected: Expected,
    ) -> Result<RevokedGrant, ApiError> {
        let revoking = {
            let mut state = self.state.lock().unwrap();
            let revoking = granting::revoke(id, reason, expected, 1, operator(caller), &state)?;
            let change = GovernanceChange::GrantRevoked { grant_id: id.clone(), at_unix_ms: NOW };
            let epoch = state.epoch + 1;
            state.apply(&EpochChange { epoch, at_unix_ms: NOW, change });
            revoking
        };
        let revoked = match &revoking {
            Revoking::Already => Vec::new(),
            Revoking::Revoke(line) => line.iter().map(|grant| grant.grant_id.clone()).collect(),
        };
        Ok(RevokedGrant {
            standing: self.grant(caller, id).await?,
            already: revoking == Revoking::Already,
            revoked,
            epoch: 1,
            applied_after: std::time::Duration::ZERO,
        })
    }
    async fn grant(&self, caller: &Caller, id: &GrantId) -> Result<GrantStanding, ApiError> {
        let state = self.state.lock().unwrap();
        let grant = granting::seen(id, operator(caller), &state)?.clone();
        Ok(GrantStanding { state: grant.standing(NOW), grant, revision: 1 })
    }
    async fn grants(&self, caller: &Caller, _: &GrantFilter) -> Result<Vec<GrantStanding>, ApiError> {
        let state = self.state.lock().unwrap();
        let seen = state.grants.iter().filter(|grant| granting::may_see(operator(caller), grant)).cloned();
        Ok(seen.map(|grant| GrantStanding { state: grant.standing(NOW), grant, revision: 1 }).collect())
    }
    fn revocations(&self) -> Revocations {
        Revocations::default()
    }
    async fn set_throttle(&self, caller: &Caller, wish: SetThrottle) -> Result<(ThrottleStanding, bool), ApiError> {
        let mut state = self.state.lock().unwrap();
        let SetThrottle { rule, reach, reason, expected } = wish;
        let known = state.buckets.iter().find(|known| known.bucket_id == rule.bucket_id);
        let known = known.map(|rule| throttling::Known { rule, revision: 1 });
        let id = rule.bucket_id.clone();
        let count = state.buckets.len();
        let setting = throttling::set(rule, reach, &reason, expected, operator(caller), known, count)?;
        let unchanged = setting == Setting::Unchanged;
        if let Setting::Set(rule) = setting {
            let change = GovernanceChange::ThrottleSet(rule);
            let epoch = state.epoch + 1;
            state.apply(&EpochChange { epoch, at_unix_ms: NOW, change });
        }
        let rule = state.buckets.iter().find(|known| known.bucket_id == id).unwrap().clone();
        Ok((ThrottleStanding { rule, revision: 1 }, unchanged))
    }
    async fn remove_throttle(
        &self,
        caller: &Caller,
        id: &BucketId,
        reason: &str,
        expected: Expected,
    ) -> Result<ThrottleStanding, ApiError> {
        let standing = self.throttle(caller, id).await?;
        let known = throttling::Known { rule: &standing.rule, revision: standing.revision };
        throttling::remove(reason, expected, operator(caller), known)?;
        self.state.lock().unwrap().buckets.retain(|known| known.bucket_id != *id);
        Ok(standing)
    }
    async fn throttle(&self, caller: &Caller, id: &BucketId) -> Result<ThrottleStanding, ApiError> {
        let known = self.throttles(caller).await?.into_iter().find(|known| known.rule.bucket_id == *id);
        known.ok_or_else(|| ThrottleDenial::NoSuchThrottle(id.to_string()).into())
    }
    async fn throttles(&self, caller: &Caller) -> Result<Vec<ThrottleStanding>, ApiError> {
        let state = self.state.lock().unwrap();
        let seen = state.buckets.iter().filter(|rule| throttling::may_see(operator(caller), rule));
        Ok(seen.map(|rule| ThrottleStanding { rule: rule.clone(), revision: 1 }).collect())
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

fn no_such(id: &WebhookId) -> ApiError {
    WebhookDenial::NoSuchWebhook(id.to_string()).into()
}

/// No webhook is ever there.
#[async_trait]
impl WebhookApi for FakeGovernance {
    async fn put_webhook(&self, _: &Caller, wish: PutWebhook) -> Result<(WebhookStanding, bool), ApiError> {
        Err(no_such(&wish.webhook_id))
    }
    async fn would_put_webhook(&self, _: &Caller, wish: PutWebhook) -> Result<Forecast<WebhookStanding>, ApiError> {
        Err(no_such(&wish.webhook_id))
    }
    async fn would_remove_webhook(
        &self,
        _: &Caller,
        id: &WebhookId,
        _: &str,
        _: Expected,
    ) -> Result<Webhook, ApiError> {
        Err(no_such(id))
    }
    async fn remove_webhook(&self, _: &Caller, id: &WebhookId, _: &str, _: Expected) -> Result<Webhook, ApiError> {
        Err(no_such(id))
    }
    async fn webhook(&self, _: &Caller, id: &WebhookId) -> Result<WebhookStanding, ApiError> {
        Err(no_such(id))
    }
    async fn webhooks(&self, _: &Caller) -> Result<Vec<WebhookStanding>, ApiError> {
        Ok(Vec::new())
    }
    async fn ping_webhook(&self, _: &Caller, id: &WebhookId) -> Result<Pinged, ApiError> {
        Err(no_such(id))
    }
    async fn webhook_deliveries(&self, _: &Caller, id: &WebhookId, _: usize) -> Result<Vec<Delivery>, ApiError> {
        Err(no_such(id))
    }
    async fn replay_webhook(&self, _: &Caller, id: &WebhookId, _: Again, _: &str) -> Result<u64, ApiError> {
        Err(no_such(id))
    }
}

/// There is never a schedule.
#[async_trait]
impl ScheduleApi for FakeGovernance {
    async fn put_schedule(&self, _: &Caller, wish: PutSchedule, _: bool) -> Result<(ScheduleStanding, bool), ApiError> {
        Err(no_schedule(&wish.schedule_id))
    }
    async fn set_schedule_paused(
        &self,
        _: &Caller,
        id: &ScheduleId,
        _: bool,
        _: &str,
        _: Expected,
    ) -> Result<(ScheduleStanding, bool), ApiError> {
        Err(no_schedule(id))
    }
    async fn remove_schedule(
        &self,
        _: &Caller,
        id: &ScheduleId,
        _: &str,
        _: Expected,
        _: bool,
    ) -> Result<PipelineSchedule, ApiError> {
        Err(no_schedule(id))
    }
    async fn backfill_schedule(
        &self,
        _: &Caller,
        id: &ScheduleId,
        _: (UnixMs, UnixMs),
        _: bool,
        _: &str,
        _: bool,
    ) -> Result<Vec<NewFire>, ApiError> {
        Err(no_schedule(id))
    }
    async fn redrive_fire(&self, _: &Caller, id: &ScheduleId, _: UnixMs, _: &str) -> Result<Fire, ApiError> {
        Err(no_schedule(id))
    }
    async fn schedule(&self, _: &Caller, id: &ScheduleId) -> Result<ScheduleStanding, ApiError> {
        Err(no_schedule(id))
    }
    async fn schedules(&self, _: &Caller) -> Result<Vec<ScheduleStanding>, ApiError> {
        Ok(Vec::new())
    }
    async fn schedule_preview(
        &self,
        _: &Caller,
        id: &ScheduleId,
        _: Option<UnixMs>,
        _: usize,
    ) -> Result<Vec<(UnixMs, UnixMs)>, ApiError> {
        Err(no_schedule(id))
    }
    async fn schedule_fires(
        &self,
        _: &Caller,
        _: Option<&ScheduleId>,
        _: Option<FireState>,
        _: usize,
    ) -> Result<Vec<Fire>, ApiError> {
        Ok(Vec::new())
    }
}

fn no_schedule(id: &ScheduleId) -> ApiError {
    ScheduleDenial::NoSuchSchedule(id.to_string()).into()
}

/// Agents by the real rules, in memory; no executor is ever there.
#[async_trait]
impl RegistryApi for FakeGovernance {
    async fn register_agent(&self, caller: &Caller, order: PublishAgent) -> Result<AgentStanding, ApiError> {
        let mut state = self.state.lock().unwrap();
        registry::register(&order, operator(caller), &state.registry, 0)?;
        state.registry.apply_published(&order.entry);
        Ok(AgentStanding { entry: Arc::new(order.entry), revision: 1 })
    }
    async fn publish_agent(&self, caller: &Caller, order: PublishAgent) -> Result<AgentStanding, ApiError> {
        let mut state = self.state.lock().unwrap();
        registry::publish(&order, operator(caller), &state.registry, 1)?;
        state.registry.apply_published(&order.entry);
        Ok(AgentStanding { entry: Arc::new(order.entry), revision: 2 })
    }
    async fn move_agent(&self, caller: &Caller, order: MoveAgent) -> Result<AgentStanding, ApiError> {
        let mut state = self.state.lock().unwrap();
        let moved = registry::move_agent(&order, operator(caller), &state.registry, 1)?;
        state.registry.apply_move(&moved);
        let entry = state.registry.get(&moved.tenant_scope, &moved.agent_id, &moved.agent_semver).unwrap().clone();
        Ok(AgentStanding { entry, revision: 2 })
    }
    async fn agent(
        &self,
        caller: &Caller,
        scope: Option<TenantScope>,
        id: &AgentId,
        semver: Option<&str>,
    ) -> Result<Vec<AgentStanding>, ApiError> {
        let listed = self.agents(caller).await?.into_iter().filter(|entry| {
            entry.agent_id == *id
                && scope.as_ref().is_none_or(|scope| *scope == entry.tenant_scope)
                && semver.is_none_or(|semver| semver == entry.agent_semver)
        });
        let found: Vec<_> = listed.map(|entry| AgentStanding { entry, revision: 1 }).collect();
        if found.is_empty() { Err(RegistryDenial::NoSuchAgent(id.clone()).into()) } else { Ok(found) }
    }
    async fn agents(&self, caller: &Caller) -> Result<Vec<Arc<AgentRegistryEntry>>, ApiError> {
        let viewer = AgentViewer { tenant_id: &caller.tenant_id, role: caller.actor.role };
        Ok(self.state.lock().unwrap().registry.list(viewer))
    }
    fn served_tools(&self) -> Vec<(ToolId, String)> {
        vec![("memory.read".parse().unwrap(), "1.0.0".to_owned())]
    }
    async fn register_executor(
        &self,
        caller: &Caller,
        registration: ExecutorRegistration,
        reason: &str,
    ) -> Result<RegisteredExecutor, ApiError> {
        registry::may_register_executor(&registration, reason, caller.actor.role, &[])?;
        registry::check_address(&registration.address, &[])?;
        Err(ExecutorDenial::NotDescribed("nobody is there".to_owned()).into())
    }
    async fn retire_executor(
        &self,
        caller: &Caller,
        id: &ExecutorId,
        reason: &str,
    ) -> Result<RegisteredExecutor, ApiError> {
        Ok(registry::may_retire_executor(id, reason, caller.actor.role, &[])?.clone())
    }
    async fn executors(&self, _: &Caller) -> Result<Vec<RegisteredExecutor>, ApiError> {
        Ok(Vec::new())
    }
}
