//! Managing agents: registering, publishing and moving versions, and reading them.

use std::sync::Arc;

use signalbox_domain::governance::audit::{AuditBody, AuditKind, Subject};
use signalbox_domain::governance::change::GovernanceChange;
use signalbox_domain::ids::AgentId;
use signalbox_domain::registry::{
    self, AgentRegistryEntry, AgentViewer, LifecycleDenial, MoveAgent, PublishAgent, RegistryDenial, TenantScope,
};
use signalbox_ports::acts::Effect;

use super::NodeHandle;
use super::governing::{Decided, Draft, operator, recorded};
use crate::api::{ApiError, Caller};

/// A version of an agent, with the last act on the agent.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentStanding {
    /// The version.
    pub entry: Arc<AgentRegistryEntry>,
    /// The last act on the agent; 0 if it is as it ships.
    pub revision: u64,
}

const fn viewer(caller: &Caller) -> AgentViewer<'_> {
    AgentViewer { tenant_id: &caller.tenant_id, role: caller.actor.role }
}

impl NodeHandle {
    /// Enters a new agent, or nothing at all (REG-001).
    pub async fn register_agent(&self, caller: &Caller, order: PublishAgent) -> Result<AgentStanding, ApiError> {
        self.enter_agent(caller, order, AuditKind::AgentRegistered).await
    }

    /// Enters a later version of an agent (REG-005).
    pub async fn publish_agent(&self, caller: &Caller, order: PublishAgent) -> Result<AgentStanding, ApiError> {
        self.enter_agent(caller, order, AuditKind::AgentPublished).await
    }

    async fn enter_agent(
        &self,
        caller: &Caller,
        order: PublishAgent,
        kind: AuditKind,
    ) -> Result<AgentStanding, ApiError> {
        let order = &order;
        let (scope, id) = (&order.entry.tenant_scope, &order.entry.agent_id);
        let (_, done) = self
            .act(caller, move |state| async move {
                let revision = self.agent_revision(scope, id).await?;
                let decide = if kind == AuditKind::AgentRegistered { registry::register } else { registry::publish };
                decide(order, operator(caller), &state.registry, revision)?;
                let draft = Draft {
                    tenant_id: scope.tenant_id().cloned(),
                    kind,
                    subject: Subject::agent(scope.tenant_id(), id),
                    body: AuditBody {
                        reason: order.reason.clone(),
                        before: None,
                        after: recorded(&order.entry),
                        details: None,
                    },
                    effect: Effect::Change(GovernanceChange::AgentPublished(Box::new(order.entry.clone()))),
                };
                Ok(Decided::Act(Box::new(draft), ()))
            })
            .await?;
        let revision = done.map_or(0, |done| done.event.seq);
        Ok(AgentStanding { entry: Arc::new(order.entry.clone()), revision })
    }

    /// Moves a version by hand (REG-037).
    pub async fn move_agent(&self, caller: &Caller, order: MoveAgent) -> Result<AgentStanding, ApiError> {
        let order = &order;
        let (moved, done) = self
            .act(caller, move |state| async move {
                let scope = order.scope(&caller.tenant_id, &state.registry);
                let revision = self.agent_revision(&scope, &order.agent_id).await?;
                let moved = registry::move_agent(order, operator(caller), &state.registry, revision)?;
                let before = state.registry.get(&scope, &order.agent_id, &order.agent_semver).cloned();
                let mut after = state.registry.clone();
                after.apply_move(&moved);
                let draft = Draft {
                    tenant_id: scope.tenant_id().cloned(),
                    kind: AuditKind::AgentMoved,
                    subject: Subject::agent(scope.tenant_id(), &order.agent_id),
                    body: AuditBody {
                        reason: order.reason.clone(),
                        before: before.as_deref().and_then(recorded),
                        after: after.get(&scope, &order.agent_id, &order.agent_semver).and_then(|e| recorded(&**e)),
                        details: recorded(&moved),
                    },
                    effect: Effect::Change(GovernanceChange::AgentMoved(moved.clone())),
                };
                Ok(Decided::Act(Box::new(draft), moved))
            })
            .await?;
        let entry = self.registry().get(&moved.tenant_scope, &moved.agent_id, &moved.agent_semver).cloned();
        let entry = entry.ok_or_else(|| ApiError::Internal("a version that was moved is gone".to_owned()))?;
        Ok(AgentStanding { entry, revision: done.map_or(0, |done| done.event.seq) })
    }

    /// Every version of every agent that the caller is shown (REG-045).
    pub async fn agents(&self, caller: &Caller) -> Result<Vec<Arc<AgentRegistryEntry>>, ApiError> {
        self.inner.shared.governance.refresh().await;
        Ok(self.registry().list(viewer(caller)))
    }

    /// One version, or every version, of what an id means to the caller; or, named by its scope, to somebody else. What the
    /// caller is not shown is as absent as none (I11).
    pub async fn agent(
        &self,
        caller: &Caller,
        scope: Option<TenantScope>,
        id: &AgentId,
        semver: Option<&str>,
    ) -> Result<Vec<AgentStanding>, ApiError> {
        self.inner.shared.governance.refresh().await;
        let registry = self.registry();
        let scope = scope.unwrap_or_else(|| registry.scope_of(&caller.tenant_id, id));
        let seen: Vec<_> =
            registry.versions(&scope, id).iter().filter(|entry| viewer(caller).sees(entry)).cloned().collect();
        if seen.is_empty() {
            return Err(RegistryDenial::NoSuchAgent(id.clone()).into());
        }
        let revision = self.agent_revision(&scope, id).await?;
        let named: Vec<_> =
            seen.into_iter().filter(|entry| semver.is_none_or(|semver| entry.agent_semver == semver)).collect();
        if named.is_empty() {
            let agent_semver = semver.unwrap_or_default().chars().filter(|c| !c.is_control()).take(64).collect();
            return Err(
                RegistryDenial::from(LifecycleDenial::NoSuchVersion { agent_id: id.clone(), agent_semver }).into()
            );
        }
        Ok(named.into_iter().map(|entry| AgentStanding { entry, revision }).collect())
    }

    async fn agent_revision(&self, scope: &TenantScope, id: &AgentId) -> Result<u64, ApiError> {
        let last = self.inner.ports.acts.last_act(&Subject::agent(scope.tenant_id(), id)).await?;
        Ok(last.map_or(0, |act| act.seq))
    }
}
