//! Lists of runs and of open questions.

use async_trait::async_trait;
use signalbox_domain::dashboard::{DashboardFilter, RunCounts};
use signalbox_domain::ids::{ApprovalId, RunId, TenantId};
use signalbox_domain::time::{UnixMicros, UnixMs};
use signalbox_ports::directory::{Directory, OPEN_APPROVALS_MAX, OpenQuestion, RunPage, Scope};
use signalbox_ports::journal::StoreError;
use sqlx::AssertSqlSafe;
use sqlx::sqlite::SqliteRow;

use super::SqliteStore;
use super::rows::{blob, failed};
use crate::cells::Cells as _;
use crate::dashboard::{Arg, Dialect, Question, Statement, counted, counts, place};
use crate::rows::{int, open_question, readable};

impl SqliteStore {
    async fn all(&self, doing: &'static str, statement: Statement) -> Result<Vec<SqliteRow>, StoreError> {
        // Put together from constants; whatever came from outside is an argument.
        let mut query = sqlx::query(AssertSqlSafe(statement.sql));
        for arg in statement.args {
            query = match arg {
                Arg::Int(number) => query.bind(number),
                Arg::Text(text) => query.bind(text),
                Arg::Bytes(bytes) => query.bind(bytes),
                Arg::Id(id) => query.bind(blob(id)),
            };
        }
        query.fetch_all(&self.readers).await.map_err(failed(doing))
    }
}

#[async_trait]
impl Directory for SqliteStore {
    async fn runs(&self, scope: &Scope, filter: &DashboardFilter, read_at: UnixMicros) -> Result<RunPage, StoreError> {
        let Some(question) = Question::of(Dialect::Sqlite, scope, filter, read_at) else {
            return Ok(RunPage::default());
        };
        let floor = self.all("list runs", question.floor()).await?;
        let floor = floor.first().map(place).transpose().map_err(StoreError::Unavailable)?;
        let rows = self.all("list runs", question.page(floor)).await?;
        Ok(question.answer(&rows, floor))
    }

    async fn count_runs(&self, scope: &Scope, started_after: Option<UnixMs>) -> Result<RunCounts, StoreError> {
        Ok(counted(&self.all("count runs", counts(Dialect::Sqlite, scope, started_after)).await?))
    }

    async fn open_approvals(&self, tenant: &TenantId) -> Result<Vec<OpenQuestion>, StoreError> {
        let rows = sqlx::query(
            "SELECT r.run_id, d.submitted_by, a.body FROM approvals AS a JOIN runs AS r ON r.run_key = a.run_key \
             JOIN run_dashboard AS d ON d.run_key = a.run_key \
             WHERE a.tenant = ? ORDER BY a.requested_at_ms, a.approval_id LIMIT ?",
        )
        .bind(tenant.as_str())
        .bind(int(OPEN_APPROVALS_MAX as u64))
        .fetch_all(&self.readers)
        .await
        .map_err(failed("list approvals"))?;
        Ok(rows.iter().filter_map(|row| readable("an approval", open_question(row))).collect())
    }

    async fn run_of_approval(&self, tenant: &TenantId, approval: ApprovalId) -> Result<Option<RunId>, StoreError> {
        let row = sqlx::query(
            "SELECT r.run_id FROM approval_runs AS a JOIN runs AS r ON r.run_key = a.run_key \
             WHERE a.approval_id = ? AND r.tenant = ?",
        )
        .bind(blob(approval.uuid()))
        .bind(tenant.as_str())
        .fetch_optional(&self.readers)
        .await
        .map_err(failed("find the run of an approval"))?;
        row.map(|row| row.id("run_id").map(RunId::new).map_err(StoreError::Unavailable)).transpose()
    }
}
