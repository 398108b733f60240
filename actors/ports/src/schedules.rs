//! Fires of schedules: durable rows, and how far each schedule has been dealt with.
//!
//! No node leads. What a schedule is due is decided, by a pure function, on a record that has a version; the store writes what
//! follows, with its fires, only if the record is at that version still. So of any number of nodes that look at once, one
//! deals with a slot and the others find it dealt with; none waits for a lease to run out when one dies. A fire that is to be
//! started is held for whoever takes it for a while, and its run's id follows from the fire: whoever starts it again starts
//! the same run.

use async_trait::async_trait;
use signalbox_domain::ids::{RunId, ScheduleId, TenantId};
use signalbox_domain::pipeline::schedule::{FireState, NewFire, Reason};
use signalbox_domain::time::UnixMs;

use crate::journal::StoreError;

/// Most fires of one reading.
pub const FIRES_MAX: usize = 1_000;
/// Of the fires of one schedule whose run was started, so many of the latest are looked at for runs that are not over.
pub const STARTED_LOOKED_AT: usize = 200;
/// How long a fire is held for whoever starts it, in milliseconds. After that another may.
pub const HELD_FOR_MS: i64 = 30_000;
/// How long a fire is remembered that nothing becomes of any more, in milliseconds: ninety days.
pub const FIRES_KEPT_MS: i64 = 90 * 24 * 60 * 60 * 1_000;
/// Most rows that are forgotten at once.
pub const FIRES_FORGOTTEN_MAX: usize = 1_000;

/// Which schedule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScheduleKey {
    /// Whose.
    pub tenant_id: TenantId,
    /// Which of theirs.
    pub schedule_id: ScheduleId,
}

/// A fire, or a stretch of slots that were skipped for one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fire {
    /// Of which schedule.
    pub schedule: ScheduleKey,
    /// Its slot; of a stretch, the first.
    pub at: UnixMs,
    /// The last slot of the stretch; of a fire, its slot.
    pub through: UnixMs,
    /// How many slots.
    pub slots: u64,
    /// How it stands.
    pub state: FireState,
    /// Why it starts no run.
    pub reason: Option<Reason>,
    /// The same in words.
    pub details: Option<String>,
    /// The run it started.
    pub run_id: Option<RunId>,
    /// How often its start was tried.
    pub attempts: u32,
    /// When its start is due, while it waits for that.
    pub next_at: UnixMs,
    /// When it was recorded.
    pub recorded_at: UnixMs,
    /// When its start was tried last.
    pub last_at: Option<UnixMs>,
}

/// How far a schedule has been dealt with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Raised by each advance; 0 before the first.
    pub version: u64,
    /// The last slot that was dealt with.
    pub considered_until: Option<UnixMs>,
    /// Fires that wait, for their start or for another's end, and those whose run is not over; by their slots.
    pub open: Vec<Fire>,
    /// The store's clock.
    pub now: UnixMs,
}

/// What follows from a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advance {
    /// Of which schedule.
    pub schedule: ScheduleKey,
    /// The version it was decided on.
    pub version: u64,
    /// The last slot dealt with from now on; absent: as before.
    pub considered_until: Option<UnixMs>,
    /// To be recorded. A fire of a slot that has one already is left as it is.
    pub fires: Vec<NewFire>,
    /// Buffered fires that begin now.
    pub released: Vec<UnixMs>,
    /// Fires that wait and are skipped: a later one takes their place.
    pub overtaken: Vec<UnixMs>,
}

/// What became of an attempt to start a fire's run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Noted {
    /// How it stands now.
    pub state: FireState,
    /// Why it starts no run.
    pub reason: Option<Reason>,
    /// The same in words, or what went wrong.
    pub details: Option<String>,
    /// The run.
    pub run_id: Option<RunId>,
    /// Attempts so far.
    pub attempts: u32,
    /// When the next is due, if there is one.
    pub next_at: UnixMs,
}

/// Fires that are recorded by an act: filled in after the fact, or tried again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FiresOf {
    /// Of which schedule.
    pub schedule: ScheduleKey,
    /// Which. One that nothing becomes of any more begins anew; one that waits or has its run is left as it is.
    pub fires: Vec<NewFire>,
}

/// Which fires are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FireFilter {
    /// Of this tenant.
    pub tenant_id: TenantId,
    /// Of this schedule; of all if absent.
    pub schedule_id: Option<ScheduleId>,
    /// Only those that stand like this.
    pub state: Option<FireState>,
    /// Most of them, up to [`FIRES_MAX`].
    pub limit: usize,
}

/// The rows of schedules and their fires.
#[async_trait]
pub trait Schedules: Send + Sync + 'static {
    /// How far a schedule has been dealt with.
    async fn record(&self, schedule: &ScheduleKey) -> Result<Record, StoreError>;
    /// Moves a schedule on, with its fires, in one transaction. `false` if its record has moved meanwhile: then nothing was
    /// written.
    async fn advance(&self, advance: Advance) -> Result<bool, StoreError>;
    /// Fires whose start is due, the longest due first: each counts an attempt, and is held for [`HELD_FOR_MS`].
    async fn claim_fires(&self, limit: usize) -> Result<Vec<Fire>, StoreError>;
    /// Notes an attempt. `false` if the fire is not held any more as it was claimed: then nothing was written.
    async fn note_fire(&self, claimed: &Fire, noted: Noted) -> Result<bool, StoreError>;
    /// Fires, the latest slot first.
    async fn fires(&self, filter: &FireFilter) -> Result<Vec<Fire>, StoreError>;
    /// The fire of one slot.
    async fn fire(&self, schedule: &ScheduleKey, at: UnixMs) -> Result<Option<Fire>, StoreError>;
    /// Forgets old fires; answers how many.
    async fn forget_fires(&self) -> Result<usize, StoreError>;
}
