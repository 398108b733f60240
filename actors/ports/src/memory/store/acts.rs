//! Acts of management and their records.

use std::ops::Bound;

use async_trait::async_trait;
use signalbox_domain::governance::audit::{AuditEvent, AuditHead, Subject};
use signalbox_domain::governance::budget::EndedWindow;
use signalbox_domain::governance::kill_switch::KillSwitch;
use signalbox_domain::ids::{AgentId, BudgetId, RunId, RunKey, TenantId};
use signalbox_domain::registry::AgentRegistry;
use signalbox_domain::run::status::RunStatus;

use super::{MemoryStore, State};
use crate::acts::{
    AUDIT_ROWS_MAX, Act, Acted, Acts, AuditFilter, Done, Effect, PAUSED_RUNS_MAX, SwitchReach, WINDOWS_MAX, head_after,
    record,
};
use crate::governance::check_readable;
use crate::journal::StoreError;
use crate::keys::{KeyMade, too_many_keys};
use crate::webhooks::told_of_act;

#[async_trait]
impl Acts for MemoryStore {
    async fn audit_head(&self) -> Result<AuditHead, StoreError> {
        Ok(self.state()?.audit_head())
    }

    async fn act(&self, act: Act) -> Result<Acted, StoreError> {
        let now = self.now();
        let mut state = self.state()?;
        let head = state.audit_head();
        if head.seq != act.expected_seq || state.epoch() != act.expected_epoch {
            return Ok(Acted::Stale);
        }
        // A refusal leaves nothing behind: there is no transaction to undo here, so all is made on a copy.
        let mut next = state.clone();
        let change = match act.effect.clone() {
            Effect::Change(change) => {
                check_readable(&change)?;
                Some(next.change(change, now.ms()))
            }
            Effect::PutBudget(budget) => next.put_budget(budget, now)?,
            Effect::RetireBudget(budget) => {
                next.retire_budget(&budget);
                None
            }
            Effect::SendAgain(webhook, again) => {
                next.send_again(&webhook, &again, now.ms());
                None
            }
            Effect::PutGoldSetEntry(entry) => {
                next.put_gold(*entry)?;
                None
            }
            Effect::MakeApiKey(key) => match next.make_key(*key)? {
                KeyMade::Made => None,
                KeyMade::TooMany => return Err(too_many_keys()),
            },
            Effect::RevokeApiKey(tenant, key, revoked) => {
                next.revoke_key(&tenant, key, revoked);
                None
            }
            Effect::PutFires(fires) => {
                next.put_fires(&fires, now.ms());
                None
            }
        };
        let event = record(&head, &act, now, next.epoch())?;
        next.tell(told_of_act(&event), event.at.ms());
        next.audit.push(event.clone());
        *state = next;
        Ok(Acted::Done(Box::new(Done { event, change })))
    }

    async fn audit(&self, filter: &AuditFilter) -> Result<Vec<AuditEvent>, StoreError> {
        let state = self.state()?;
        let wanted = state.audit.iter().filter(|event| {
            event.seq > filter.after_seq
                && filter.subject.as_ref().is_none_or(|subject| *subject == event.subject)
                && filter.tenant_id.as_ref().is_none_or(|tenant| Some(tenant) == event.tenant_id.as_ref())
        });
        Ok(wanted.take(filter.limit.min(AUDIT_ROWS_MAX)).cloned().collect())
    }

    async fn last_act(&self, subject: &Subject) -> Result<Option<AuditEvent>, StoreError> {
        Ok(self.state()?.audit.iter().rev().find(|event| event.subject == *subject).cloned())
    }

    async fn reach(&self, switch: &KillSwitch, registry: &AgentRegistry) -> Result<SwitchReach, StoreError> {
        let state = self.state()?;
        let mut reach = SwitchReach::default();
        for run in state.runs.values() {
            if run.projection.killed_by.as_ref() == Some(&switch.switch_id) {
                reach.killed += 1;
            }
            let agent = AgentId::new(run.root_agent_id.as_str());
            let tenant = &run.head.tenant_id;
            let reached = agent.is_ok_and(|agent| switch.reaches(tenant, &agent, registry.family_of(tenant, &agent)));
            if reached && !run.projection.status.is_terminal() {
                reach.left += 1;
            }
        }
        Ok(reach)
    }

    async fn paused_runs(
        &self,
        tenant: Option<&TenantId>,
        after: Option<RunKey>,
    ) -> Result<Vec<(RunKey, TenantId, RunId)>, StoreError> {
        let state = self.state()?;
        let behind = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let paused = state.runs.range(behind).filter(|(_, run)| {
            run.projection.status == RunStatus::Paused && tenant.is_none_or(|tenant| *tenant == run.head.tenant_id)
        });
        let named = paused.map(|(key, run)| (*key, run.head.tenant_id.clone(), run.head.run_id));
        Ok(named.take(PAUSED_RUNS_MAX).collect())
    }

    async fn ended_windows(&self, budget: &BudgetId, limit: usize) -> Result<Vec<EndedWindow>, StoreError> {
        let state = self.state()?;
        let own = state.windows.iter().rev().filter(|window| window.budget_id == *budget);
        Ok(own.take(limit.min(WINDOWS_MAX)).cloned().collect())
    }
}

impl State {
    fn audit_head(&self) -> AuditHead {
        self.audit.last().map(head_after).unwrap_or_default()
    }
}
