//! Many runs at once: lists, counts, and what operators see at a glance (DSH).

use signalbox_domain::dashboard::{DashboardFilter, OperatorSnapshot, RunCounts, active_switches};
use signalbox_domain::identity::{self, Action, Reach, Role, Visibility};
use signalbox_domain::ids::TenantId;
use signalbox_domain::time::UnixMs;
use signalbox_ports::directory::{RunPage, Scope};

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

fn only_operators(caller: &Caller) -> Result<(), ApiError> {
    if caller.actor.role.sees() < Visibility::TenantOperator {
        return Err(ApiError::AboveStanding("what operators see"));
    }
    Ok(())
}

/// Whose runs the caller may ask for. Another tenant is refused whether or not there is one of that name (I11).
fn scope(caller: &Caller, whose: Whose) -> Result<Scope, ApiError> {
    let own = || Scope::Submitter(caller.tenant_id.clone(), caller.actor.actor_id.clone());
    let all = caller.actor.role == Role::PlatformOperator;
    // Whoever is no operator is shown its own runs alone.
    let own_alone = identity::reach(caller.actor.role, Action::ReadRuns) < Reach::Tenant;
    match whose {
        Whose::Own if own_alone => Ok(own()),
        Whose::Of(tenant) if own_alone && tenant == caller.tenant_id => Ok(own()),
        Whose::Own => Ok(Scope::Tenant(caller.tenant_id.clone())),
        Whose::Of(tenant) if all || tenant == caller.tenant_id => Ok(Scope::Tenant(tenant)),
        Whose::All if all => Ok(Scope::AllTenants),
        Whose::Of(_) | Whose::All => Err(ApiError::AboveStanding("what belongs to other tenants")),
    }
}
