//! Many runs at once: lists, counts, and what operators see at a glance (DSH).

use signalbox_domain::dashboard::{DashboardFilter, OperatorSnapshot, RunCounts, active_switches};
use signalbox_domain::identity::{OthersDenied, Scope, Visibility, scope_of};
use signalbox_domain::ids::TenantId;
use signalbox_domain::time::UnixMs;
use signalbox_ports::directory::RunPage;

use super::NodeHandle;
use crate::api::{ApiError, Caller, Whose};

impl NodeHandle {
    /// Runs, newest first. A page that goes on may have few rows, or none.
    pub async fn list(&self, caller: &Caller, whose: Whose, filter: DashboardFilter) -> Result<RunPage, ApiError> {
        filter.check()?;
        if caller.actor.role.sees() < filter.needs() {
            return Err(ApiError::AboveStanding("a list by agent, family, cost, warnings or text"));
        }
        let scope = scope(caller, whose)?;
        // Agents are registered while the node runs; which of them are of a family says the registry.
        let registry = &self.inner.shared.governance.view().state.registry;
        let family_agents = filter.family.as_deref().map(|family| registry.of_family(scope.tenant(), family));
        let filter = DashboardFilter { family_agents, ..filter };
        Ok(self.inner.ports.directory.runs(&scope, &filter, self.inner.shared.clock.now_micros()).await?)
    }

    /// How many runs are in each bucket, of those accepted at an instant or later. For operators.
    pub async fn count_runs(
        &self,
        caller: &Caller,
        whose: Whose,
        started_after: Option<UnixMs>,
    ) -> Result<RunCounts, ApiError> {
        only_operators(caller)?;
        Ok(self.inner.ports.directory.count_runs(&scope(caller, whose)?, started_after).await?)
    }

    /// Counts per bucket and the switches in force (DSH-013). For operators.
    pub async fn snapshot(&self, caller: &Caller, whose: Whose) -> Result<OperatorSnapshot, ApiError> {
        only_operators(caller)?;
        let scope = scope(caller, whose)?;
        let counts = self.inner.ports.directory.count_runs(&scope, None).await?;
        let tenant_id: Option<TenantId> = scope.tenant().cloned();
        let (view, now) = (self.inner.shared.governance.view(), self.inner.shared.clock.now());
        Ok(OperatorSnapshot {
            taken_at_unix_ms: now,
            active_switches: active_switches(&view.state.switches, tenant_id.as_ref(), now).cloned().collect(),
            tenant_id,
            counts,
            governance_epoch: view.state.epoch,
        })
    }
}

pub(super) fn only_operators(caller: &Caller) -> Result<(), ApiError> {
    if caller.actor.role.sees() < Visibility::TenantOperator {
        return Err(ApiError::AboveStanding("what operators see"));
    }
    Ok(())
}

/// Whose runs the caller may ask for.
pub(super) fn scope(caller: &Caller, whose: Whose) -> Result<Scope, ApiError> {
    scope_of(caller, whose).map_err(|OthersDenied| ApiError::AboveStanding("what belongs to other tenants"))
}
