//! Where a run stands: what follows from its envelope by looking at it, and is stored nowhere else.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ids::{CallId, StageId, StepId};
use crate::run::envelope::{ApprovalRecord, RunEnvelope, RunToolCallRecord};
use crate::run::event::{ArtifactRef, OutputKind, PauseCause, RunOutputBundle};
use crate::run::plan::Step;
use crate::run::status::RunStatus;
use crate::run::step::StepState;
use crate::time::UnixMs;

/// A call in flight for longer than this no longer counts as running (RUN-007).
pub const AWAITING_TOOL_AFTER_MS: i64 = 5_000;

impl ApprovalRecord {
    /// True while somebody may still answer.
    pub const fn is_open(&self) -> bool {
        self.decision.is_none() && !self.lapsed
    }
}

impl RunEnvelope {
    /// The state of a step.
    pub fn step_state(&self, id: &StepId) -> Option<&StepState> {
        let index = self.plan.steps.iter().position(|step| &step.step_id == id)?;
        self.steps.get(index)
    }

    /// The record of a call.
    pub fn call(&self, id: CallId) -> Option<&RunToolCallRecord> {
        self.tool_calls.iter().find(|call| call.call_id == id).map(Arc::as_ref)
    }

    /// Calls that are not settled.
    pub fn open_calls(&self) -> impl Iterator<Item = &RunToolCallRecord> {
        self.tool_calls.iter().map(Arc::as_ref).filter(|call| call.open)
    }

    /// The stage of a step.
    pub fn stage_of(&self, id: &StepId) -> StageId {
        self.plan.step(id).map_or_else(|| StageId::constant("unknown"), Step::stage)
    }

    /// Where the run stands at an instant. Only `awaiting_tool` depends on time; everything else on events alone.
    pub fn status_at(&self, now: UnixMs) -> RunStatus {
        if let Some(end) = &self.end {
            return end.status;
        }
        if self.hold.is_some() {
            return RunStatus::Paused;
        }
        if !self.started {
            return RunStatus::Queued;
        }
        if !self.begun {
            return RunStatus::Starting;
        }
        self.derived_status(now)
    }

    /// When this run, if nothing happens, will be waiting for a tool and not be running any more.
    pub fn slow_at(&self) -> Option<UnixMs> {
        if self.status != RunStatus::Running {
            return None;
        }
        let newest = self.open_calls().map(|call| call.requested_at_unix_ms).max()?;
        let at = newest.plus_ms(AWAITING_TOOL_AFTER_MS);
        (self.status_at(at) == RunStatus::AwaitingTool).then_some(at)
    }

    fn derived_status(&self, now: UnixMs) -> RunStatus {
        let young = |call: &RunToolCallRecord| now.since(call.requested_at_unix_ms) < AWAITING_TOOL_AFTER_MS;
        let in_flight = self.open_calls().any(young)
            || self.steps.iter().any(|state| matches!(state, StepState::Waiting { .. } | StepState::HandedOff { .. }));
        // A step that is ready but for the fan-out waits for the calls that are out, as the run does.
        let room = self.open_calls().count() + self.live_handoffs().count() < self.plan.fan_out() as usize;
        if in_flight || (room && (0..self.steps.len()).any(|index| self.is_ready(index))) {
            return RunStatus::Running;
        }
        let any = |is: fn(&StepState) -> bool| self.steps.iter().any(is);
        if any(|state| matches!(state, StepState::AwaitingApproval { .. })) {
            RunStatus::AwaitingApproval
        } else if any(|state| matches!(state, StepState::AwaitingBranch)) {
            RunStatus::AwaitingBranchSelection
        } else if self.open_calls().next().is_some() {
            RunStatus::AwaitingTool
        } else if any(|state| matches!(state, StepState::Throttled { .. })) {
            RunStatus::Paused
        } else {
            RunStatus::Running
        }
    }

    /// Why the run is held, be it by a control or because only throttled steps are left (ADM-018).
    pub fn pause_cause(&self) -> Option<PauseCause> {
        match (&self.hold, self.status) {
            (Some(hold), _) => Some(hold.cause),
            (None, RunStatus::Paused) => Some(PauseCause::Throttle),
            (None, _) => None,
        }
    }

    /// True if the step has not begun and everything it waits for is over and not failed.
    pub fn is_ready(&self, index: usize) -> bool {
        let (Some(step), Some(StepState::Pending)) = (self.plan.steps.get(index), self.steps.get(index)) else {
            return false;
        };
        step.dependencies().all(|on| self.is_over_well(on, index))
    }

    /// True if everything the step waits for is over and not failed.
    pub(crate) fn dependencies_are_over(&self, step: &Step) -> bool {
        step.dependencies().all(|on| self.is_over_well(on, 0))
    }

    fn is_over_well(&self, id: &StepId, near: usize) -> bool {
        let state = self.plan.position(id, near).and_then(|index| self.steps.get(index));
        matches!(state, Some(StepState::Done { .. } | StepState::Skipped { .. }))
    }

    /// True once a step that is not optional has failed: nothing new begins.
    pub fn is_failing(&self) -> bool {
        self.steps.iter().any(|state| matches!(state, StepState::Failed { .. }))
    }

    /// The bundle of what the run has so far.
    pub fn bundle(&self, kind: OutputKind) -> Vec<RunOutputBundle> {
        let mut by_stage: BTreeMap<StageId, Vec<ArtifactRef>> = BTreeMap::new();
        for checkpoint in &self.intermediate_artifacts {
            by_stage.entry(checkpoint.stage_id.clone()).or_default().push(checkpoint.artifact.clone());
        }
        by_stage.into_iter().map(|(stage_id, artifacts)| RunOutputBundle { kind, stage_id, artifacts }).collect()
    }
}
