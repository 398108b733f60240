//! Which node owns which run. The lease is the node's; a run carries the incarnation that owns it.

use async_trait::async_trait;
use signalbox_domain::ids::{NodeIncarnation, RunKey, SwitchId};
use signalbox_domain::run::append::RunHead;
use signalbox_domain::time::UnixMicros;

use crate::journal::StoreError;

/// How long a node's lease lasts from its last renewal, in milliseconds.
pub const LEASE_MS: u64 = 8_000;

/// How long a lease that was given up is remembered after it has run out, in milliseconds: a node that slept so long is not
/// told so any more. It could not write all the same, since whoever claimed its runs has raised their lease epoch.
pub const LEASE_REMEMBERED_MS: u64 = 24 * 60 * 60 * 1_000;

/// Most runs one `claim` takes.
pub const CLAIM_RUNS_MAX: usize = 1_000;

/// Most parked runs one page of a sweep looks at.
pub const SWEEP_RUNS_MAX: usize = 1_000;

/// Most runs with waiting commands that are named at once.
pub const WAITING_RUNS_MAX: usize = 1_000;

/// How many of its last epochs a node's sweep is remembered for, one by one.
pub const SWEPT_EPOCHS_KEPT: u64 = 1_000;

/// The newest format of a run's journal that this version reads and writes. Runs of a newer one are not claimed.
pub const RUN_FORMAT: u32 = 1;

/// One page of a sweep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Swept {
    /// The switch that sweeps.
    pub switch_id: SwitchId,
    /// How many parked runs have something to do now.
    pub woken: usize,
    /// True if this was the last page, or the switch has expired.
    pub over: bool,
}

/// A live node, and whether it has swept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSweep {
    /// The node.
    pub node: NodeIncarnation,
    /// Its name for people.
    pub name: String,
    /// Since when it has, by the store's clock; `None` if it has not yet.
    pub swept_at: Option<UnixMicros>,
}

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
    async fn claim_one(&self, node: NodeIncarnation, run: RunKey) -> Result<Option<RunHead>, StoreError>;
    /// At most [`WAITING_RUNS_MAX`] runs that the node holds and that have commands without an answer: how a command finds
    /// its run when nobody could say that it is there.
    async fn waiting(&self, node: NodeIncarnation) -> Result<Vec<RunKey>, StoreError>;
    /// Remembers that the node has held every run it has in hand against the rules of this epoch, as of now. The first word
    /// about an epoch stays.
    async fn swept(&self, node: NodeIncarnation, epoch: u64) -> Result<(), StoreError>;
    /// Every node whose lease was not given up, with since when it has swept under this epoch or a later one. Of an epoch
    /// that is more than [`SWEPT_EPOCHS_KEPT`] old, the oldest instant that is still known is told.
    async fn sweepers(&self, epoch: u64) -> Result<Vec<NodeSweep>, StoreError>;
    /// Takes an armed switch one page of at most `limit` runs further through the parked ones (KIL-010): those it reaches
    /// have something to do from then on, and whoever claims them ends them by its own reading of the switches. `None` if
    /// no sweep is left, or others are at the ones that are.
    ///
    /// A sweep begins in the transaction that arms its switch, if the switch's scope is one that runs are in by themselves.
    /// It goes on where it was, also after a crash and on another node; it is over after its last page, or once its switch
    /// is disarmed or has expired. No two callers get the same page. Runs that a node holds are passed over: their owner
    /// reads the switches too, and cannot park a run under an older reading.
    async fn sweep(&self, limit: usize) -> Result<Option<Swept>, StoreError>;
    /// Ends the lease at once; its runs may be claimed by others.
    async fn release(&self, node: NodeIncarnation) -> Result<(), StoreError>;
}
