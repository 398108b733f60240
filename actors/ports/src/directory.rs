//! Lists of runs and of open approvals, from projections.

use async_trait::async_trait;
use signalbox_domain::dashboard::{DashboardCursor, DashboardEntry, DashboardFilter, RunCounts};
use signalbox_domain::ids::{ActorId, ApprovalId, RunId, TenantId};
use signalbox_domain::run::append::OpenApproval;
use signalbox_domain::time::{UnixMicros, UnixMs};

use crate::journal::StoreError;

/// Most rows a page may have.
pub const PAGE_ROWS_MAX: usize = signalbox_domain::dashboard::DASHBOARD_ROWS_MAX;

/// Rows of one kind that a store looks at for one page. Beyond them it answers with what it has found, and where to go on:
/// what is rare among very many runs is found in several pages, none of which is slow.
pub const SCAN_ROWS_MAX: usize = 5_000;

/// Most open questions `open_approvals` lists.
pub const OPEN_APPROVALS_MAX: usize = 1_000;

pub use signalbox_domain::identity::Scope;

/// A page of runs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunPage {
    /// Newest first.
    pub rows: Vec<DashboardEntry>,
    /// Where to go on; `None` if nothing lies behind it. A page that goes on may have few rows, or none.
    pub next: Option<DashboardCursor>,
}

/// An open question in a list.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenQuestion {
    /// The run that asks.
    pub run_id: RunId,
    /// Who submitted it.
    pub submitted_by: ActorId,
    /// The question.
    pub open: OpenApproval,
}

/// Lists.
#[async_trait]
pub trait Directory: Send + Sync + 'static {
    /// The runs that `filter_dashboard` gives, as they stand at `read_at`, newest first.
    async fn runs(&self, scope: &Scope, filter: &DashboardFilter, read_at: UnixMicros) -> Result<RunPage, StoreError>;
    /// How many runs are in each bucket, of those that were accepted at this instant or later.
    async fn count_runs(&self, scope: &Scope, started_after: Option<UnixMs>) -> Result<RunCounts, StoreError>;
    /// Open questions of a tenant, oldest first; at most [`OPEN_APPROVALS_MAX`].
    async fn open_approvals(&self, tenant: &TenantId) -> Result<Vec<OpenQuestion>, StoreError>;
    /// The run of a tenant that asked a question, be it open, answered or lapsed; `None` if none of the tenant's ever did.
    async fn run_of_approval(&self, tenant: &TenantId, approval: ApprovalId) -> Result<Option<RunId>, StoreError>;
}
