//! Lists of runs and of open questions.

use async_trait::async_trait;
use signalbox_domain::dashboard::{DashboardEntry, DashboardFilter, RunCounts, filter_dashboard};
use signalbox_domain::ids::{ApprovalId, RunId, TenantId};
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::time::{UnixMicros, UnixMs};

use super::{MemoryStore, Run, State};
use crate::directory::{Directory, OPEN_APPROVALS_MAX, OpenQuestion, RunPage, Scope};
use crate::journal::StoreError;

#[async_trait]
impl Directory for MemoryStore {
    async fn runs(&self, scope: &Scope, filter: &DashboardFilter, read_at: UnixMicros) -> Result<RunPage, StoreError> {
        let state = self.state()?;
        let entries: Vec<_> = state.of(scope).map(|run| entry(run, read_at)).collect();
        let rows: Vec<_> = filter_dashboard(&entries, filter).into_iter().cloned().collect();
        let last = rows.last().map(DashboardEntry::place);
        let behind = DashboardFilter { cursor: last, limit: 1, ..filter.clone() };
        let next = last.filter(|_| !filter_dashboard(&entries, &behind).is_empty());
        Ok(RunPage { rows, next })
    }

    async fn count_runs(&self, scope: &Scope, started_after: Option<UnixMs>) -> Result<RunCounts, StoreError> {
        let state = self.state()?;
        let since = |run: &&Run| started_after.is_none_or(|after| after.micros() <= run.submitted_at);
        let counted = RunStatus::ALL.map(|status| {
            let of_status = state.of(scope).filter(since).filter(|run| run.projection.status == status);
            (status, of_status.count() as u64)
        });
        Ok(RunCounts::of(&counted))
    }

    async fn open_approvals(&self, tenant: &TenantId) -> Result<Vec<OpenQuestion>, StoreError> {
        let state = self.state()?;
        let runs = state.runs.values().filter(|run| run.head.tenant_id == *tenant);
        let mut open: Vec<_> = runs
            .flat_map(|run| {
                run.projection.open_approvals.iter().map(|open| OpenQuestion {
                    run_id: run.head.run_id,
                    submitted_by: run.submitted_by.clone(),
                    open: open.clone(),
                })
            })
            .collect();
        open.sort_by_key(|asked| (asked.open.requested_at_unix_ms, asked.open.approval_id));
        open.truncate(OPEN_APPROVALS_MAX);
        Ok(open)
    }

    async fn run_of_approval(&self, tenant: &TenantId, approval: ApprovalId) -> Result<Option<RunId>, StoreError> {
        let state = self.state()?;
        let asked = state.runs.values().find(|run| run.head.tenant_id == *tenant && run.asked.contains(&approval));
        Ok(asked.map(|run| run.head.run_id))
    }
}

impl State {
    fn of<'s>(&'s self, scope: &'s Scope) -> impl Iterator<Item = &'s Run> {
        self.runs.values().filter(move |run| {
            scope.tenant().is_none_or(|tenant| run.head.tenant_id == *tenant)
                && scope.submitter().is_none_or(|actor| run.submitted_by == *actor)
        })
    }
}

fn entry(run: &Run, read_at: UnixMicros) -> DashboardEntry {
    DashboardEntry {
        run_key: run.head.run_key,
        run_id: run.head.run_id,
        tenant_id: run.head.tenant_id.clone(),
        root_agent_id: run.root_agent_id.clone(),
        pipeline_id: run.pipeline_id.clone(),
        started_at: run.submitted_at,
        ended_at: run.ended_at,
        last_seq: run.head.last_seq,
        last_at: run.head.last_at,
        read_at,
        projection: run.projection.clone(),
    }
}
