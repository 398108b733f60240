//! Lists of runs and of open approvals, from projections.

use async_trait::async_trait;
use signalbox_domain::ids::{ApprovalId, PipelineId, RunId, RunKey, TenantId};
use signalbox_domain::run::append::{OpenApproval, RunProjection};
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::time::UnixMicros;

use crate::journal::StoreError;

/// Most rows a page may have.
pub const PAGE_ROWS_MAX: usize = 200;

/// Most open questions `open_approvals` lists.
pub const OPEN_APPROVALS_MAX: usize = 1_000;

/// Which runs.
#[derive(Debug, Clone, Default)]
pub struct RunFilter {
    /// Only runs in one of these; empty: all.
    pub status: Vec<RunStatus>,
    /// Only instances of this pipeline.
    pub pipeline_id: Option<PipelineId>,
    /// Only runs older than this one: the cursor, as the last row's key.
    pub before: Option<RunKey>,
    /// Most rows, up to [`PAGE_ROWS_MAX`]; 0: as many as a page may have.
    pub limit: usize,
}

/// One run in a list.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRow {
    /// The internal key; newer runs have greater ones.
    pub run_key: RunKey,
    /// The public id.
    pub run_id: RunId,
    /// The pipeline.
    pub pipeline_id: Option<PipelineId>,
    /// The lead agent.
    pub root_agent_id: String,
    /// When it was submitted.
    pub submitted_at: UnixMicros,
    /// The last event.
    pub last_seq: u64,
    /// Its instant.
    pub last_at: UnixMicros,
    /// The rest.
    pub projection: RunProjection,
}

/// Lists.
#[async_trait]
pub trait Directory: Send + Sync + 'static {
    /// Runs of a tenant, newest first.
    async fn runs(&self, tenant: &TenantId, filter: RunFilter) -> Result<Vec<RunRow>, StoreError>;
    /// Open questions of a tenant, oldest first, with the run each belongs to; at most [`OPEN_APPROVALS_MAX`].
    async fn open_approvals(&self, tenant: &TenantId) -> Result<Vec<(RunId, OpenApproval)>, StoreError>;
    /// The run of a tenant that asked a question, be it open, answered or lapsed; `None` if none of the tenant's ever did.
    async fn run_of_approval(&self, tenant: &TenantId, approval: ApprovalId) -> Result<Option<RunId>, StoreError>;
}
