//! Somebody who keeps feedback, for tests: nothing is ever there, and only operators hear so.

use async_trait::async_trait;
use signalbox_domain::feedback::gold_set::{DurableGoldSetEntryRow, PromoteGold, check_curator};
use signalbox_domain::feedback::outcome::FeedbackKind;
use signalbox_domain::feedback::rollout::{Rollout, RolloutDenial, StartRollout};
use signalbox_domain::governance::budgeting::Expected;
use signalbox_domain::governance::switching::Operator;
use signalbox_domain::ids::{GoldSetEntryId, GoldSetId, RolloutId, RunId};
use signalbox_domain::quantity::Micros;
use signalbox_runtime::{RolloutStanding, RolloutStep};

use crate::api::{ApiError, Caller, FeedbackApi};

pub(crate) struct FakeFeedback;

fn check(caller: &Caller) -> Result<(), ApiError> {
    Ok(check_curator(Operator { tenant_id: &caller.tenant_id, actor: &caller.actor })?)
}

fn none(id: &RolloutId) -> ApiError {
    RolloutDenial::NoSuchRollout(id.to_string()).into()
}

#[async_trait]
impl FeedbackApi for FakeFeedback {
    async fn start_rollout(&self, caller: &Caller, wish: StartRollout) -> Result<RolloutStanding, ApiError> {
        check(caller)?;
        Err(RolloutDenial::UnknownVersion { agent: wish.agent_id, semver: wish.champion_semver }.into())
    }
    async fn move_rollout(
        &self,
        caller: &Caller,
        id: &RolloutId,
        _: RolloutStep,
        _: &str,
        _: Expected,
    ) -> Result<RolloutStanding, ApiError> {
        check(caller)?;
        Err(none(id))
    }
    async fn rollout(&self, caller: &Caller, id: &RolloutId) -> Result<RolloutStanding, ApiError> {
        check(caller)?;
        Err(none(id))
    }
    async fn rollouts(&self, caller: &Caller) -> Result<Vec<Rollout>, ApiError> {
        check(caller)?;
        Ok(Vec::new())
    }
    async fn record_feedback(
        &self,
        _: &Caller,
        run_id: RunId,
        _: FeedbackKind,
        _: Option<Micros>,
    ) -> Result<(), ApiError> {
        Err(ApiError::NoSuchRun(run_id.to_string()))
    }
    async fn promote_gold(&self, caller: &Caller, wish: PromoteGold) -> Result<DurableGoldSetEntryRow, ApiError> {
        check(caller)?;
        Err(ApiError::NoSuchRun(wish.source_run_id.to_string()))
    }
    async fn gold_entries(
        &self,
        caller: &Caller,
        _: &GoldSetId,
        _: Option<GoldSetEntryId>,
        _: usize,
    ) -> Result<Vec<DurableGoldSetEntryRow>, ApiError> {
        check(caller)?;
        Ok(Vec::new())
    }
}
