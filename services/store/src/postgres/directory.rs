//! Lists of runs and of open questions.

use async_trait::async_trait;
use signalbox_domain::dashboard::{DashboardFilter, RunCounts};
use signalbox_domain::ids::{ApprovalId, RunId, TenantId};
use signalbox_domain::time::{UnixMicros, UnixMs};
use signalbox_ports::directory::{Directory, OPEN_APPROVALS_MAX, OpenQuestion, RunPage, Scope};
use signalbox_ports::journal::StoreError;
use sqlx::AssertSqlSafe;
use sqlx::postgres::PgRow;

use super::PostgresStore;
use crate::cells::Cells as _;
use crate::dashboard::{Arg, Dialect, Question, Statement, counted, counts, place};
use crate::rows::{int, open_question, readable};

impl PostgresStore {
    async fn all(&self, doing: &'static str, statement: Statement) -> Result<Vec<PgRow>, StoreError> {
        // Put together from constants; whatever came from outside is an argument.
        let mut query = sqlx::query(AssertSqlSafe(statement.sql));
        for arg in statement.args {
            query = match arg {
                Arg::Int(number) => query.bind(number),
                Arg::Text(text) => query.bind(text),
                Arg::Bytes(bytes) => query.bind(bytes),
                Arg::Id(id) => query.bind(id),
            };
        }
        self.shared.readers.all(doing, query).await
    }
}

#[async_trait]
impl Directory for PostgresStore {
    async fn runs(&self, scope: &Scope, filter: &DashboardFilter, read_at: UnixMicros) -> Result<RunPage, StoreError> {
        let Some(question) = Question::of(Dialect::Postgres, scope, filter, read_at) else {
            return Ok(RunPage::default());
        };
        let floor = self.all("list runs", question.floor()).await?;
        let floor = floor.first().map(place).transpose().map_err(StoreError::Unavailable)?;
        let rows = self.all("list runs", question.page(floor)).await?;
        Ok(question.answer(&rows, floor))
    }

    async fn count_runs(&self, scope: &Scope, started_after: Option<UnixMs>) -> Result<RunCounts, StoreError> {
        Ok(counted(&self.all("count runs", counts(Dialect::Postgres, scope, started_after)).await?))
    }

    async fn open_approvals(&self, tenant: &TenantId) -> Result<Vec<OpenQuestion>, StoreError> {
        let query = sqlx::query(
            "SELECT r.run_id, d.submitted_by, a.body FROM approvals AS a JOIN runs AS r ON r.run_key = a.run_key \
             JOIN run_dashboard AS d ON d.run_key = a.run_key \
             WHERE a.tenant = $1 ORDER BY a.requested_at_ms, a.approval_id LIMIT $2",
        );
        let query = query.bind(tenant.as_str()).bind(int(OPEN_APPROVALS_MAX as u64));
        let rows = self.shared.readers.all("list approvals", query).await?;
        Ok(rows.iter().filter_map(|row| readable("an approval", open_question(row))).collect())
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
