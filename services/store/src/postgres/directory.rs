//! Lists of runs and of open questions.

use async_trait::async_trait;
use signalbox_domain::ids::{ApprovalId, RunId, TenantId};
use signalbox_domain::run::append::OpenApproval;
use signalbox_ports::directory::{Directory, OPEN_APPROVALS_MAX, PAGE_ROWS_MAX, RunFilter, RunRow};
use signalbox_ports::journal::StoreError;
use sqlx::QueryBuilder;
use sqlx::postgres::PgRow;

use super::PostgresStore;
use crate::cells::Cells as _;
use crate::rows::{int, json, listed_run, readable};

#[async_trait]
impl Directory for PostgresStore {
    async fn runs(&self, tenant: &TenantId, filter: RunFilter) -> Result<Vec<RunRow>, StoreError> {
        let limit = if filter.limit == 0 { PAGE_ROWS_MAX } else { filter.limit.min(PAGE_ROWS_MAX) };
        let mut query = QueryBuilder::new(
            "SELECT d.*, r.run_id, r.last_seq, r.last_at, r.closed, r.wake_at_ms FROM run_dashboard AS d \
             JOIN runs AS r ON r.run_key = d.run_key WHERE d.tenant = ",
        );
        query.push_bind(tenant.as_str());
        if !filter.status.is_empty() {
            let statuses: Vec<_> = filter.status.iter().map(|status| status.as_str()).collect();
            query.push(" AND d.status = ANY(").push_bind(statuses).push(")");
        }
        if let Some(pipeline) = &filter.pipeline_id {
            query.push(" AND d.pipeline_id = ").push_bind(pipeline.as_str());
        }
        if let Some(before) = filter.before {
            query.push(" AND d.run_key < ").push_bind(before.uuid());
        }
        query.push(" ORDER BY d.run_key DESC LIMIT ").push_bind(int(limit as u64));
        let rows = self.shared.readers.all("list runs", query.build()).await?;
        Ok(rows.iter().filter_map(|row| readable("a run", listed_run(row))).collect())
    }

    async fn open_approvals(&self, tenant: &TenantId) -> Result<Vec<(RunId, OpenApproval)>, StoreError> {
        let query = sqlx::query(
            "SELECT r.run_id, a.body FROM approvals AS a JOIN runs AS r ON r.run_key = a.run_key \
             WHERE a.tenant = $1 ORDER BY a.requested_at_ms, a.approval_id LIMIT $2",
        );
        let query = query.bind(tenant.as_str()).bind(int(OPEN_APPROVALS_MAX as u64));
        let rows = self.shared.readers.all("list approvals", query).await?;
        let parse = |row: &PgRow| Ok((RunId::new(row.id("run_id")?), json(row, "body")?));
        Ok(rows.iter().filter_map(|row| readable("an approval", parse(row))).collect())
    }

    async fn run_of_approval(&self, tenant: &TenantId, approval: ApprovalId) -> Result<Option<RunId>, StoreError> {
        let query = sqlx::query(
            "SELECT r.run_id FROM approval_runs AS a JOIN runs AS r ON r.run_key = a.run_key \
             WHERE a.approval_id = $1 AND r.tenant = $2",
        );
        let query = query.bind(approval.uuid()).bind(tenant.as_str());
        let rows = self.shared.readers.all("find the run of an approval", query).await?;
        rows.first().map(|row| row.id("run_id").map(RunId::new).map_err(StoreError::Unavailable)).transpose()
    }
}
