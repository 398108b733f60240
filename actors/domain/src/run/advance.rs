//! What follows by itself: starting, timers, branches, expiries, failing, finishing, closing. No calls are made here.

use std::borrow::Cow;
use std::sync::Arc;

use crate::dashboard::dashboard_words;
use crate::ids::SwitchId;
use crate::invocation::TONE_BLOCKED;
use crate::run::append::{NewEvent, RunProjection};
use crate::run::call::KILLED_BY_SWITCH;
use crate::run::envelope::RunEnvelope;
use crate::run::event::{OutputKind, RunEvent, RunFinished};
use crate::run::evolve::evolve;
use crate::run::model_step;
use crate::run::plan::{Step, StepKind};
use crate::run::status::RunStatus;
use crate::run::step::StepState;
use crate::time::UnixMs;

/// What a run waits for whose tools take long, in words.
pub const WAITS_FOR_A_TOOL: &str = "a long step to finish";

/// Every event that is due at `now`, in order; empty if there is none. Applying them leaves nothing due.
pub fn advance(run: &RunEnvelope, now: UnixMs) -> Vec<NewEvent> {
    let mut run = Cow::Borrowed(run);
    let mut events = Vec::new();
    while let Some(event) = next(&run, now) {
        evolve(run.to_mut(), now.micros(), &event);
        events.push(NewEvent::system(event));
    }
    events
}

/// The same, applied to `run` on the way. Without an event `run` is neither changed nor copied.
pub fn advance_to(run: &mut Arc<RunEnvelope>, now: UnixMs) -> Vec<NewEvent> {
    let mut events = Vec::new();
    while let Some(event) = next(run, now) {
        evolve(Arc::make_mut(run), now.micros(), &event);
        events.push(NewEvent::system(event));
    }
    events
}

fn next(run: &RunEnvelope, now: UnixMs) -> Option<RunEvent> {
    if run.end.is_some() {
        let closes = !run.closed && run.open_calls().next().is_none() && run.live_handoffs().next().is_none();
        return closes.then_some(RunEvent::RunClosed {});
    }
    if !run.started {
        let may_start = run.hold.is_none() || run.permitted_step.is_some();
        return may_start.then_some(RunEvent::RunStarted {});
    }
    approvals(run, now)
        .or_else(|| ending(run))
        .or_else(|| if run.hold.is_none() { timers(run, now) } else { None })
        .or_else(|| if run.is_failing() { None } else { steps(run, now) })
}

fn approvals(run: &RunEnvelope, now: UnixMs) -> Option<RunEvent> {
    let mut open = run.approvals.iter().filter(|approval| approval.is_open());
    open.find_map(|approval| {
        let approval_id = approval.approval_id;
        if now >= approval.expires_at_unix_ms {
            Some(RunEvent::ApprovalExpired { approval_id })
        } else if !approval.reminded && now >= approval.remind_at_unix_ms {
            Some(RunEvent::ApprovalReminded { approval_id })
        } else {
            None
        }
    })
}

// A failed run waits for the calls it has out: their cost is part of its end.
fn ending(run: &RunEnvelope) -> Option<RunEvent> {
    if run.open_calls().next().is_some() {
        return None;
    }
    let failed = run.plan.steps.iter().zip(&run.steps).find_map(|(step, state)| {
        if let StepState::Failed { code, message } = state { Some((step, code, message)) } else { None }
    });
    if let Some((step, code, message)) = failed {
        return Some(finished(RunFinished {
            status: RunStatus::Failed,
            code: Some(code.clone()),
            message: Some(message.clone()),
            step_id: Some(step.step_id.clone()),
            outputs: if code == TONE_BLOCKED { Vec::new() } else { run.bundle(OutputKind::PartialOnFailure) },
            ..end(run, OutputKind::PartialOnFailure)
        }));
    }
    let over = run.hold.is_none() && run.steps.iter().all(StepState::is_over);
    over.then(|| finished(RunFinished { status: RunStatus::Completed, ..end(run, OutputKind::Final) }))
}

fn end(run: &RunEnvelope, kind: OutputKind) -> RunFinished {
    RunFinished {
        status: RunStatus::Failed,
        code: None,
        message: None,
        user_visible_status_copy: None,
        safe_degradation_mode_id: None,
        blamed_id: None,
        step_id: None,
        outputs: run.bundle(kind),
    }
}

fn finished(end: RunFinished) -> RunEvent {
    RunEvent::RunFinished(Box::new(end))
}

fn timers(run: &RunEnvelope, now: UnixMs) -> Option<RunEvent> {
    let due = |state: &StepState| matches!(state, StepState::Waiting { due_at_unix_ms } if now >= *due_at_unix_ms);
    let mut waiting = run.plan.steps.iter().zip(&run.steps);
    waiting.find(|(_, state)| due(state)).map(|(step, _)| RunEvent::TimerFired { step_id: step.step_id.clone() })
}

fn steps(run: &RunEnvelope, now: UnixMs) -> Option<RunEvent> {
    (0..run.plan.steps.len()).find_map(|index| {
        let step = &run.plan.steps[index];
        let step_id = || step.step_id.clone();
        if run.is_ready(index) && run.is_left_out(step) {
            let reason = "its branch was not chosen".to_owned();
            return Some(RunEvent::StepSkipped { step_id: step_id(), label: None, reason, branch_not_taken: true });
        }
        if matches!(step.kind, StepKind::Model { .. }) {
            return model_step::follow(run, index, now);
        }
        // Calls, questions and hand-offs are begun by whoever binds their arguments.
        let asks = matches!(
            step.kind,
            StepKind::Tool { .. } | StepKind::Turn { .. } | StepKind::Approval { .. } | StepKind::Agent { .. }
        );
        if asks || !run.may_begin(index, now) {
            return None;
        }
        match &step.kind {
            StepKind::Branch { branches } => {
                Some(RunEvent::BranchOffered { step_id: step_id(), branches: branches.clone() })
            }
            StepKind::Wait { seconds } => {
                let seconds = i64::try_from(*seconds).unwrap_or(i64::MAX);
                Some(RunEvent::TimerSet { step_id: step_id(), due_at_unix_ms: now.plus_seconds(seconds) })
            }
            StepKind::Tool { .. }
            | StepKind::Model { .. }
            | StepKind::Turn { .. }
            | StepKind::Approval { .. }
            | StepKind::Agent { .. } => None,
        }
    })
}

/// When the run has something to do by itself next, if ever.
pub fn next_wake(run: &RunEnvelope) -> Option<UnixMs> {
    if run.end.is_some() {
        return None;
    }
    let free = run.hold.is_none();
    let permitted = |step: &Step| run.permitted_step.as_ref() == Some(&step.step_id);
    let steps = run.plan.steps.iter().zip(&run.steps).filter_map(|(step, state)| {
        if let StepState::Throttled { until_unix_ms: at } = state {
            (free || permitted(step)).then_some(*at)
        } else if let StepState::Waiting { due_at_unix_ms: at } = state {
            free.then_some(*at)
        } else {
            None
        }
    });
    let approvals = run
        .approvals
        .iter()
        .filter(|approval| approval.is_open())
        .map(|approval| if approval.reminded { approval.expires_at_unix_ms } else { approval.remind_at_unix_ms });
    steps.chain(approvals).min()
}

/// The dashboard columns of a run as it stands.
pub fn projection(run: &RunEnvelope) -> RunProjection {
    projection_in_words(run, dashboard_words(run))
}

/// The same with words that are known: until a run ends, its events change none of them.
pub fn projection_in_words(run: &RunEnvelope, words: String) -> RunProjection {
    RunProjection {
        status: run.status,
        closed: run.closed,
        total_cost_micros: run.cost_ledger.total_cost_units.0,
        percent: run.percent(),
        waiting_for: run.waiting_for(),
        wake_at: next_wake(run),
        slow_at: run.slow_at(),
        has_warnings: run.has_warnings,
        words,
        open_approvals: run.approvals.iter().filter(|a| a.is_open()).map(|a| a.open_row()).collect(),
        killed_by: run.end.as_ref().filter(|end| end.code.as_deref() == Some(KILLED_BY_SWITCH)).and_then(|end| {
            let id = end.blamed_id.as_deref()?;
            SwitchId::new(id).ok()
        }),
    }
}

impl RunEnvelope {
    /// Finished steps of all, in percent, rounded down (DSH-011). What a model step adds to the plan is a part of that step.
    pub fn percent(&self) -> u8 {
        let planned = || {
            let steps = self.plan.steps.iter().zip(&self.steps);
            steps
                .filter(|(step, _)| self.models.is_empty() || model_step::added_by(&self.plan, &step.step_id).is_none())
        };
        let over = planned().filter(|(_, state)| state.is_over()).count();
        u8::try_from(over * 100 / planned().count().max(1)).unwrap_or(100)
    }

    /// What the run waits for, in words that name no tool and no agent.
    pub fn waiting_for(&self) -> Option<String> {
        let text = match self.status {
            RunStatus::AwaitingApproval => "a decision",
            RunStatus::AwaitingBranchSelection => "a choice of branch",
            RunStatus::AwaitingTool => WAITS_FOR_A_TOOL,
            RunStatus::Paused => match self.pause_cause() {
                Some(crate::run::event::PauseCause::Quota) => "a larger budget",
                Some(crate::run::event::PauseCause::Throttle) => "its turn",
                Some(crate::run::event::PauseCause::Operator) | None => "somebody to resume it",
            },
            RunStatus::Queued
            | RunStatus::Starting
            | RunStatus::Running
            | RunStatus::Cancelled
            | RunStatus::Killed
            | RunStatus::Failed
            | RunStatus::Completed => return None,
        };
        Some(text.to_owned())
    }

    /// True if nothing can happen until something arrives from outside or time passes.
    pub fn is_waiting(&self, now: UnixMs) -> bool {
        self.open_calls().next().is_none()
            && (self.end.is_some() || self.hold.is_some() || (self.started && self.ready_to_bind(now).is_empty()))
    }
}
