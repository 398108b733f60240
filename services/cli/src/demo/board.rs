//! How far each stage of a run is, as a fold over its events: what the progress bars show.

use std::collections::{BTreeMap, BTreeSet};

use signalbox_domain::ids::{ApprovalId, CallId, StepId};
use signalbox_domain::run::event::{CallOutcome, ControlEffect, RunEvent};
use signalbox_domain::run::plan::Plan;
use signalbox_domain::run::status::RunStatus;

/// Where a stage stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StageState {
    /// No step has begun.
    Waiting,
    /// Some step is at work.
    Working,
    /// Somebody is asked.
    Asking,
    /// All steps are over, well.
    Done,
    /// All steps were left out.
    Skipped,
    /// A step failed that the run needs.
    Failed,
}

/// One stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stage {
    /// Its id, which is its name.
    pub(crate) name: String,
    /// How many steps it has.
    pub(crate) steps: usize,
    /// How many of them are over.
    pub(crate) over: usize,
    /// Where it stands.
    pub(crate) state: StageState,
}

/// All stages, in the order of the plan.
#[derive(Debug, Clone)]
pub(crate) struct Board {
    steps: BTreeMap<StepId, Place>,
    stages: Vec<Stage>,
    calls: BTreeMap<CallId, StepId>,
    questions: BTreeMap<ApprovalId, StepId>,
    over: BTreeSet<StepId>,
    skipped: BTreeSet<StepId>,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    stage: usize,
    optional: bool,
}

impl Board {
    /// The board of a plan of which nothing has happened.
    pub(crate) fn new(plan: &Plan) -> Self {
        let mut stages: Vec<Stage> = Vec::new();
        let mut steps = BTreeMap::new();
        for step in &plan.steps {
            let name = step.stage().to_string();
            let stage = stages.iter().position(|stage| stage.name == name).unwrap_or_else(|| {
                stages.push(Stage { name, steps: 0, over: 0, state: StageState::Waiting });
                stages.len() - 1
            });
            stages[stage].steps += 1;
            steps.insert(step.step_id.clone(), Place { stage, optional: step.optional });
        }
        Self {
            steps,
            stages,
            calls: BTreeMap::new(),
            questions: BTreeMap::new(),
            over: BTreeSet::new(),
            skipped: BTreeSet::new(),
        }
    }

    /// The stages as they stand.
    pub(crate) fn stages(&self) -> &[Stage] {
        &self.stages
    }

    /// The stage a step belongs to.
    pub(crate) fn stage_of(&self, step: &StepId) -> Option<usize> {
        self.steps.get(step).map(|place| place.stage)
    }

    /// Folds one event in; answers the stage it changed, if any.
    pub(crate) fn apply(&mut self, event: &RunEvent) -> Option<usize> {
        match event {
            RunEvent::CallPending(pending) => {
                self.calls.insert(pending.call_id, pending.step_id.clone());
                self.at_work(&pending.step_id.clone(), StageState::Working)
            }
            RunEvent::CallSettled(settled) => {
                let step = self.calls.get(&settled.call_id).cloned()?;
                match settled.outcome {
                    CallOutcome::Ok | CallOutcome::Partial => self.over(&step),
                    CallOutcome::Error | CallOutcome::Denied | CallOutcome::Killed => self.failed(&step),
                    CallOutcome::Pending | CallOutcome::Throttled | CallOutcome::Held | CallOutcome::Unknown => None,
                }
            }
            RunEvent::CallRefused(refused) => self.failed(&refused.step_id),
            RunEvent::HandoffDispatched(dispatched) => self.at_work(&dispatched.step_id, StageState::Working),
            RunEvent::HandoffDenied(denied) => self.failed(&denied.step_id),
            RunEvent::HandoffReconciled(ended) if ended.status == RunStatus::Completed => self.over(&ended.step_id),
            RunEvent::HandoffReconciled(ended) => self.failed(&ended.step_id),
            RunEvent::StepFailed { step_id, .. } => self.failed(step_id),
            RunEvent::StepSkipped { step_id, .. } => {
                self.skipped.insert(step_id.clone());
                self.over(step_id)
            }
            RunEvent::StepThrottled { step_id, .. } | RunEvent::TimerSet { step_id, .. } => {
                self.at_work(step_id, StageState::Working)
            }
            RunEvent::ApprovalRequested(asked) => {
                self.questions.insert(asked.approval_id, asked.step_id.clone());
                self.at_work(&asked.step_id, StageState::Asking)
            }
            RunEvent::BranchOffered { step_id, .. } => self.at_work(step_id, StageState::Asking),
            RunEvent::ApprovalDecided { approval_id, decision, .. } => {
                use signalbox_domain::run::event::ApprovalDecision as D;
                let step = self.questions.remove(approval_id)?;
                let about_a_call = self.calls.values().any(|called| *called == step);
                match decision {
                    D::Approve if about_a_call => self.at_work(&step, StageState::Working),
                    D::Approve | D::Skip => self.over(&step),
                    D::Reject => self.failed(&step),
                }
            }
            RunEvent::ApprovalExpired { approval_id } => {
                let step = self.questions.remove(approval_id)?;
                self.failed(&step)
            }
            RunEvent::TimerFired { step_id } => self.over(step_id),
            RunEvent::ControlApplied(control) => match &control.effect {
                ControlEffect::BranchChosen { step_id, .. } => self.over(step_id),
                ControlEffect::Rewound { step_id, .. } => self.rewound(step_id),
                ControlEffect::Paused { .. }
                | ControlEffect::Resumed
                | ControlEffect::Ended
                | ControlEffect::Forked
                | ControlEffect::StepPermitted { .. } => None,
            },
            RunEvent::RunSubmitted(_)
            | RunEvent::RunStarted {}
            | RunEvent::CallRedispatched { .. }
            | RunEvent::LateEvidence(_)
            | RunEvent::ApprovalReminded { .. }
            | RunEvent::GovernanceAudited(_)
            | RunEvent::RunFinished(_)
            | RunEvent::ModelBegan { .. }
            | RunEvent::ModelAsked(_)
            | RunEvent::ModelAnswered(_)
            | RunEvent::ModelFellBack { .. }
            | RunEvent::RunClosed {} => None,
        }
    }

    fn at_work(&mut self, step: &StepId, state: StageState) -> Option<usize> {
        let place = *self.steps.get(step)?;
        self.stages[place.stage].state = state;
        Some(place.stage)
    }

    fn over(&mut self, step: &StepId) -> Option<usize> {
        let place = *self.steps.get(step)?;
        self.over.insert(step.clone());
        self.recount(place.stage);
        Some(place.stage)
    }

    // The run goes on without an optional step that failed (ADM-019).
    fn failed(&mut self, step: &StepId) -> Option<usize> {
        let place = *self.steps.get(step)?;
        if place.optional {
            self.skipped.insert(step.clone());
            return self.over(step);
        }
        self.stages[place.stage].state = StageState::Failed;
        Some(place.stage)
    }

    // Everything from the stage on is open again: which later steps depend on it does not matter for a bar.
    fn rewound(&mut self, step: &StepId) -> Option<usize> {
        let first = self.steps.get(step)?.stage;
        let places = &self.steps;
        let keep = |step: &StepId| places.get(step).is_some_and(|place| place.stage < first);
        self.over.retain(keep);
        self.skipped.retain(keep);
        for stage in first..self.stages.len() {
            self.stages[stage].state = StageState::Waiting;
            self.stages[stage].over = 0;
        }
        Some(first)
    }

    fn recount(&mut self, stage: usize) {
        let of_stage = |set: &BTreeSet<StepId>, steps: &BTreeMap<StepId, Place>| {
            set.iter().filter(|step| steps.get(*step).is_some_and(|place| place.stage == stage)).count()
        };
        let (over, skipped) = (of_stage(&self.over, &self.steps), of_stage(&self.skipped, &self.steps));
        let stage = &mut self.stages[stage];
        stage.over = over;
        stage.state = match stage.state {
            StageState::Failed => StageState::Failed,
            _ if over < stage.steps => StageState::Working,
            _ if skipped == stage.steps => StageState::Skipped,
            StageState::Waiting | StageState::Working | StageState::Asking | StageState::Done | StageState::Skipped => {
                StageState::Done
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn board() -> Board {
        let step = |id: &str, stage: &str, optional: bool| json!({"stepId": id, "stageId": stage, "kind": "tool", "toolId": "source.fetch", "optional": optional});
        let plan = json!({"steps": [
            step("a.1", "a", false), step("a.2", "a", false), step("b", "b", true),
            {"stepId": "gate", "stageId": "c", "kind": "approval"},
        ]});
        Board::new(&serde_json::from_value(plan).unwrap())
    }

    fn event(kind: &str, body: serde_json::Value) -> RunEvent {
        serde_json::from_value(json!({"kind": kind, "body": body})).unwrap()
    }

    fn pending(step: &str, call: &str) -> RunEvent {
        event(
            "call-pending",
            json!({"callId": call, "stepId": step, "stageId": "a", "agentId": "x", "toolId": "source.fetch",
                "toolSemver": "1.0.0", "argsHash": "", "redactedArgs": {"inline": {}}, "grantId": "g", "attempt": 1,
                "recovery": "idempotent", "estimatedUsage": {}, "reservations": [], "scopeCheckResultId": "",
                "capabilityAuditIds": [], "requestedAtUnixMs": 1, "timeoutMs": 1}),
        )
    }

    fn settled(call: &str, outcome: &str) -> RunEvent {
        event("call-settled", json!({"callId": call, "outcome": outcome, "charged": {}, "latencyMs": 1}))
    }

    const CALLS: [&str; 2] = ["00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002"];

    #[test]
    fn a_stage_is_done_when_its_last_step_is_over() {
        let mut board = board();
        assert_eq!(board.apply(&pending("a.1", CALLS[0])), Some(0));
        assert_eq!(board.stages()[0].state, StageState::Working);
        board.apply(&settled(CALLS[0], "ok"));
        assert_eq!((board.stages()[0].over, board.stages()[0].state), (1, StageState::Working));
        board.apply(&pending("a.2", CALLS[1]));
        board.apply(&settled(CALLS[1], "partial"));
        assert_eq!((board.stages()[0].over, board.stages()[0].state), (2, StageState::Done));
    }

    #[test]
    fn an_optional_stage_that_was_left_out_is_skipped_and_not_failed() {
        let mut board = board();
        board.apply(&event("step-failed", json!({"stepId": "b", "code": "x", "message": "x"})));
        assert_eq!(board.stages()[1].state, StageState::Skipped);
        let mut board = self::board();
        board.apply(&event("step-skipped", json!({"stepId": "b", "label": "tool-skipped", "reason": "x"})));
        assert_eq!(board.stages()[1].state, StageState::Skipped);
    }

    #[test]
    fn a_failed_step_fails_its_stage_for_good() {
        let mut board = board();
        board.apply(&pending("a.1", CALLS[0]));
        board.apply(&settled(CALLS[0], "error"));
        board.apply(&pending("a.2", CALLS[1]));
        board.apply(&event("step-failed", json!({"stepId": "a.1", "code": "x", "message": "x"})));
        board.apply(&settled(CALLS[1], "ok"));
        assert_eq!(board.stages()[0].state, StageState::Failed);
    }

    #[test]
    fn a_gate_asks_and_is_done_once_it_is_approved() {
        let mut board = board();
        let asked = json!({"approvalId": CALLS[0], "stepId": "gate", "requirement": "operator", "prompt": "?",
            "reason": "gate", "subject": {"inline": null}, "subjectDigest": "", "requestedAtUnixMs": 1,
            "remindAtUnixMs": 2, "expiresAtUnixMs": 3});
        board.apply(&event("approval-requested", asked));
        assert_eq!(board.stages()[2].state, StageState::Asking);
        let actor = json!({"actorId": "x", "role": "creator"});
        let decided = json!({"approvalId": CALLS[0], "decision": "approve", "decidedBy": actor, "reason": ""});
        board.apply(&event("approval-decided", decided));
        assert_eq!(board.stages()[2].state, StageState::Done);
    }
}
