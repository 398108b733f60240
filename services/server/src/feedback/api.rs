//! What the edge needs of whoever keeps feedback, as a trait: so that another edge can call it, and tests can stand in.

use async_trait::async_trait;
use signalbox_domain::feedback::gold_set::{DurableGoldSetEntryRow, PromoteGold};
use signalbox_domain::feedback::outcome::FeedbackKind;
use signalbox_domain::feedback::rollout::{Rollout, StartRollout};
use signalbox_domain::governance::budgeting::Expected;
use signalbox_domain::ids::{GoldSetEntryId, GoldSetId, RolloutId, RunId};
use signalbox_domain::quantity::Micros;
use signalbox_runtime::{NodeHandle, RolloutStanding, RolloutStep};

use crate::api::{ApiError, Caller};

/// Managing rollouts, gold sets and what is said of runs. Every method acts with the caller's authority; what it may not see is
/// as absent as what does not exist (I11).
#[async_trait]
pub trait FeedbackApi: Send + Sync + 'static {
    /// Begins a rollout.
    async fn start_rollout(&self, caller: &Caller, wish: StartRollout) -> Result<RolloutStanding, ApiError>;
    /// Moves a rollout that is there.
    async fn move_rollout(
        &self,
        caller: &Caller,
        id: &RolloutId,
        step: RolloutStep,
        reason: &str,
        expected: Expected,
    ) -> Result<RolloutStanding, ApiError>;
    /// One rollout, with its figures.
    async fn rollout(&self, caller: &Caller, id: &RolloutId) -> Result<RolloutStanding, ApiError>;
    /// All rollouts, the finished ones too.
    async fn rollouts(&self, caller: &Caller) -> Result<Vec<Rollout>, ApiError>;
    /// Keeps what is said of a finished run.
    async fn record_feedback(
        &self,
        caller: &Caller,
        run_id: RunId,
        kind: FeedbackKind,
        score: Option<Micros>,
    ) -> Result<(), ApiError>;
    /// Puts the input of a completed run into a gold set.
    async fn promote_gold(&self, caller: &Caller, wish: PromoteGold) -> Result<DurableGoldSetEntryRow, ApiError>;
    /// Entries of a gold set.
    async fn gold_entries(
        &self,
        caller: &Caller,
        set: &GoldSetId,
        after: Option<GoldSetEntryId>,
        limit: usize,
    ) -> Result<Vec<DurableGoldSetEntryRow>, ApiError>;
}

#[async_trait]
impl FeedbackApi for NodeHandle {
    async fn start_rollout(&self, caller: &Caller, wish: StartRollout) -> Result<RolloutStanding, ApiError> {
        self.start_rollout(caller, wish).await
    }
    async fn move_rollout(
        &self,
        caller: &Caller,
        id: &RolloutId,
        step: RolloutStep,
        reason: &str,
        expected: Expected,
    ) -> Result<RolloutStanding, ApiError> {
        self.move_rollout(caller, id, step, reason, expected).await
    }
    async fn rollout(&self, caller: &Caller, id: &RolloutId) -> Result<RolloutStanding, ApiError> {
        self.rollout(caller, id).await
    }
    async fn rollouts(&self, caller: &Caller) -> Result<Vec<Rollout>, ApiError> {
        self.rollouts(caller).await
    }
    async fn record_feedback(
        &self,
        caller: &Caller,
        run_id: RunId,
        kind: FeedbackKind,
        score: Option<Micros>,
    ) -> Result<(), ApiError> {
        self.record_feedback(caller, run_id, kind, score).await
    }
    async fn promote_gold(&self, caller: &Caller, wish: PromoteGold) -> Result<DurableGoldSetEntryRow, ApiError> {
        self.promote_gold(caller, wish).await
    }
    async fn gold_entries(
        &self,
        caller: &Caller,
        set: &GoldSetId,
        after: Option<GoldSetEntryId>,
        limit: usize,
    ) -> Result<Vec<DurableGoldSetEntryRow>, ApiError> {
        self.gold_entries(caller, set, after, limit).await
    }
}
