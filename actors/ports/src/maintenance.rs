//! What an operator's own tools do to a store. Nodes call none of it.

use async_trait::async_trait;
use signalbox_domain::ids::{RunKey, StoreIncarnation};

use crate::journal::StoreError;

/// Most runs that [`Maintenance::live_runs`] answers at once.
pub const LIVE_RUNS_MAX: usize = 1_000;

/// A store in the hands of an operator.
#[async_trait]
pub trait Maintenance: Send + Sync + 'static {
    /// Runs of all tenants that are not closed, by key, behind `after`; at most [`LIVE_RUNS_MAX`].
    async fn live_runs(&self, after: Option<RunKey>) -> Result<Vec<RunKey>, StoreError>;
    /// Gives the store another incarnation. Nodes that know the one before admit nothing any more.
    async fn begin_incarnation(&self) -> Result<StoreIncarnation, StoreError>;
}
