//! What the edge needs of whoever manages schedules, as a trait: so that another edge can call it, and tests can stand in.

use async_trait::async_trait;
use signalbox_domain::governance::budgeting::Expected;
use signalbox_domain::ids::ScheduleId;
use signalbox_domain::pipeline::schedule::{FireState, NewFire, PipelineSchedule, PutSchedule};
use signalbox_domain::time::UnixMs;
use signalbox_ports::schedules::Fire;
use signalbox_runtime::{NodeHandle, ScheduleStanding};

use crate::api::{ApiError, Caller};

/// Managing schedules. Every method acts with the caller's authority; what it may not see is as absent as what does not exist
/// (I11).
#[async_trait]
pub trait ScheduleApi: Send + Sync + 'static {
    /// Creates a schedule or changes it; true if nothing had to be changed.
    async fn put_schedule(
        &self,
        caller: &Caller,
        wish: PutSchedule,
        dry_run: bool,
    ) -> Result<(ScheduleStanding, bool), ApiError>;
    /// Pauses a schedule, or lets it go on; true if nothing had to be changed.
    async fn set_schedule_paused(
        &self,
        caller: &Caller,
        id: &ScheduleId,
        paused: bool,
        reason: &str,
        expected: Expected,
    ) -> Result<(ScheduleStanding, bool), ApiError>;
    /// Removes a schedule; answers it as it was.
    async fn remove_schedule(
        &self,
        caller: &Caller,
        id: &ScheduleId,
        reason: &str,
        expected: Expected,
        dry_run: bool,
    ) -> Result<PipelineSchedule, ApiError>;
    /// Fills in slots after the fact; answers their fires.
    async fn backfill_schedule(
        &self,
        caller: &Caller,
        id: &ScheduleId,
        stretch: (UnixMs, UnixMs),
        at_once: bool,
        reason: &str,
        dry_run: bool,
    ) -> Result<Vec<NewFire>, ApiError>;
    /// Has a dead letter tried again.
    async fn redrive_fire(&self, caller: &Caller, id: &ScheduleId, at: UnixMs, reason: &str) -> Result<Fire, ApiError>;
    /// One schedule.
    async fn schedule(&self, caller: &Caller, id: &ScheduleId) -> Result<ScheduleStanding, ApiError>;
    /// The schedules the caller may see.
    async fn schedules(&self, caller: &Caller) -> Result<Vec<ScheduleStanding>, ApiError>;
    /// The next slots of a schedule, and when each begins.
    async fn schedule_preview(
        &self,
        caller: &Caller,
        id: &ScheduleId,
        after: Option<UnixMs>,
        count: usize,
    ) -> Result<Vec<(UnixMs, UnixMs)>, ApiError>;
    /// What became of slots, the latest first.
    async fn schedule_fires(
        &self,
        caller: &Caller,
        id: Option<&ScheduleId>,
        state: Option<FireState>,
        limit: usize,
    ) -> Result<Vec<Fire>, ApiError>;
}

#[async_trait]
impl ScheduleApi for NodeHandle {
    async fn put_schedule(
        &self,
        caller: &Caller,
        wish: PutSchedule,
        dry_run: bool,
    ) -> Result<(ScheduleStanding, bool), ApiError> {
        self.put_schedule(caller, wish, dry_run).await
    }
    async fn set_schedule_paused(
        &self,
        caller: &Caller,
        id: &ScheduleId,
        paused: bool,
        reason: &str,
        expected: Expected,
    ) -> Result<(ScheduleStanding, bool), ApiError> {
        self.set_schedule_paused(caller, id, paused, reason, expected).await
    }
    async fn remove_schedule(
        &self,
        caller: &Caller,
        id: &ScheduleId,
        reason: &str,
        expected: Expected,
        dry_run: bool,
    ) -> Result<PipelineSchedule, ApiError> {
        self.remove_schedule(caller, id, reason, expected, dry_run).await
    }
    async fn backfill_schedule(
        &self,
        caller: &Caller,
        id: &ScheduleId,
        stretch: (UnixMs, UnixMs),
        at_once: bool,
        reason: &str,
        dry_run: bool,
    ) -> Result<Vec<NewFire>, ApiError> {
        self.backfill_schedule(caller, id, stretch, at_once, reason, dry_run).await
    }
    async fn redrive_fire(&self, caller: &Caller, id: &ScheduleId, at: UnixMs, reason: &str) -> Result<Fire, ApiError> {
        self.redrive_fire(caller, id, at, reason).await
    }
    async fn schedule(&self, caller: &Caller, id: &ScheduleId) -> Result<ScheduleStanding, ApiError> {
        self.schedule(caller, id).await
    }
    async fn schedules(&self, caller: &Caller) -> Result<Vec<ScheduleStanding>, ApiError> {
        self.schedules(caller).await
    }
    async fn schedule_preview(
        &self,
        caller: &Caller,
        id: &ScheduleId,
        after: Option<UnixMs>,
        count: usize,
    ) -> Result<Vec<(UnixMs, UnixMs)>, ApiError> {
        self.schedule_preview(caller, id, after, count).await
    }
    async fn schedule_fires(
        &self,
        caller: &Caller,
        id: Option<&ScheduleId>,
        state: Option<FireState>,
        limit: usize,
    ) -> Result<Vec<Fire>, ApiError> {
        self.schedule_fires(caller, id, state, limit).await
    }
}
