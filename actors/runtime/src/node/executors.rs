//! Managing executors while the node runs: registering one, which is asked what it serves first, and retiring it.

use signalbox_domain::governance::audit::{AuditBody, AuditKind, Subject};
use signalbox_domain::governance::change::GovernanceChange;
use signalbox_domain::identity::Role;
use signalbox_domain::ids::ExecutorId;
use signalbox_domain::registry::{
    ExecutorDenial, ExecutorRegistration, RegisteredExecutor, check_address, check_described, may_register_executor,
    may_retire_executor, schemas_digest,
};
use signalbox_ports::acts::Effect;

use super::NodeHandle;
use super::governing::{Decided, Draft, recorded};
use crate::api::{ApiError, Caller};

impl NodeHandle {
    /// Registers an executor: asked what it serves, held against the catalog, and used by every node from then on.
    pub async fn register_executor(
        &self,
        caller: &Caller,
        registration: ExecutorRegistration,
        reason: &str,
    ) -> Result<RegisteredExecutor, ApiError> {
        let role = caller.actor.role;
        self.inner.shared.governance.refresh().await;
        let view = self.inner.shared.governance.view();
        // Nobody is connected to for somebody who may not ask for it.
        may_register_executor(&registration, reason, role, &view.state.executors)?;
        check_address(&registration.address, &self.inner.config.exempt)?;
        for tool in &registration.tool_ids {
            if self.inner.shared.tools.semver(tool).is_some() {
                let by = "an executor of this node's configuration".to_owned();
                return Err(ExecutorDenial::ToolTaken(tool.clone(), by).into());
            }
        }
        let described = self.inner.shared.tools.describe(&registration).await?;
        let tools = check_described(&registration, &described).map_err(ExecutorDenial::Faulty)?;
        let registration = ExecutorRegistration { schemas_digest: schemas_digest(&described), ..registration };
        let (registration, tools) = (&registration, &tools);
        let (registered, _) = self
            .act(caller, move |state| async move {
                may_register_executor(registration, reason, role, &state.executors)?;
                let id = &registration.executor_id;
                let before = state.executors.iter().find(|known| known.registration.executor_id == *id);
                let registered = RegisteredExecutor {
                    registration: registration.clone(),
                    tools: tools.clone(),
                    registered_by: caller.actor.actor_id.clone(),
                    registered_at_unix_ms: self.inner.shared.clock.now(),
                    retired_at_unix_ms: None,
                };
                let draft = Draft {
                    tenant_id: None,
                    kind: AuditKind::ExecutorRegistered,
                    subject: Subject::executor(id),
                    body: AuditBody {
                        reason: reason.to_owned(),
                        before: before.and_then(recorded),
                        after: recorded(&registered),
                        details: None,
                    },
                    effect: Effect::Change(GovernanceChange::ExecutorRegistered(Box::new(registered.clone()))),
                };
                Ok(Decided::Act(Box::new(draft), registered))
            })
            .await?;
        Ok(registered)
    }

    /// Retires an executor: nothing new is sent to it, and what is out there is let end.
    pub async fn retire_executor(
        &self,
        caller: &Caller,
        id: &ExecutorId,
        reason: &str,
    ) -> Result<RegisteredExecutor, ApiError> {
        let (retired, _) = self
            .act(caller, move |state| async move {
                let known = may_retire_executor(id, reason, caller.actor.role, &state.executors)?;
                let now = self.inner.shared.clock.now();
                let retired = RegisteredExecutor { retired_at_unix_ms: Some(now), ..known.clone() };
                let draft = Draft {
                    tenant_id: None,
                    kind: AuditKind::ExecutorRetired,
                    subject: Subject::executor(id),
                    body: AuditBody {
                        reason: reason.to_owned(),
                        before: recorded(known),
                        after: recorded(&retired),
                        details: None,
                    },
                    effect: Effect::Change(GovernanceChange::ExecutorRetired {
                        executor_id: id.clone(),
                        at_unix_ms: now,
                    }),
                };
                Ok(Decided::Act(Box::new(draft), retired))
            })
            .await?;
        Ok(retired)
    }

    /// The executors that were registered, the retired ones too. For the platform's operators.
    pub async fn executors(&self, caller: &Caller) -> Result<Vec<RegisteredExecutor>, ApiError> {
        if caller.actor.role != Role::PlatformOperator {
            return Err(ExecutorDenial::NotAuthorized(caller.actor.role.as_str()).into());
        }
        self.inner.shared.governance.refresh().await;
        Ok(self.inner.shared.governance.view().state.executors.clone())
    }

    /// The tools that can be called on this node, with the version each is served in.
    pub fn served_tools(&self) -> Vec<(signalbox_domain::ids::ToolId, String)> {
        self.inner.shared.tools.configured()
    }
}
