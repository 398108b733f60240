//! Which node owns which run. The lease is the node's; a run carries the incarnation that owns it.

use async_trait::async_trait;
use signalbox_domain::ids::NodeIncarnation;
use signalbox_domain::run::append::RunHead;

use crate::journal::StoreError;

/// How long a node's lease lasts from its last renewal, in milliseconds.
pub const LEASE_MS: u64 = 8_000;

/// How long a lease that was given up is remembered after it has run out, in milliseconds: a node that slept so long is not
/// told so any more. It could not write all the same, since whoever claimed its runs has raised their lease epoch.
pub const LEASE_REMEMBERED_MS: u64 = 24 * 60 * 60 * 1_000;

/// Most runs one `claim` takes.
pub const CLAIM_RUNS_MAX: usize = 1_000;

/// The newest format of a run's journal that this version reads and writes. Runs of a newer one are not claimed.
pub const RUN_FORMAT: u32 = 1;

/// Leases and claims.
#[async_trait]
pub trait Leases: Send + Sync + 'static {
    /// Begins or renews the lease of a node. `false` if the store has already given it up: the node must stop writing.
    /// A lease is given up when it is released, and when another node finds it run out while claiming; that is remembered
    /// for [`LEASE_REMEMBERED_MS`].
    async fn renew(&self, node: NodeIncarnation, name: &str) -> Result<bool, StoreError>;
    /// Claims up to `limit` runs that are not closed, have no live owner, and have something to do: inbox rows, a due
    /// `wake_at`, or no parking. Each claim adds 1 to the run's lease epoch. A node without a lease claims nothing.
    async fn claim(&self, node: NodeIncarnation, limit: usize) -> Result<Vec<RunHead>, StoreError>;
    /// Claims one run if it is not closed and nobody live owns it, or this node already does; then the row is returned as
    /// it is, since nobody is to be fenced.
    async fn claim_one(
        &self,
        node: NodeIncarnation,
        run: signalbox_domain::ids::RunKey,
    ) -> Result<Option<RunHead>, StoreError>;
    /// Ends the lease at once; its runs may be claimed by others.
    async fn release(&self, node: NodeIncarnation) -> Result<(), StoreError>;
}
