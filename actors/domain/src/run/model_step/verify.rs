//! Is a model step's part of a journal complete? No answer without a turn that was asked for, no call without a proposal, and
//! none that differs from what was proposed.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use super::event::ModelAnswered;
use super::{added_by, call_id, is_turn, turn_id};
use crate::ids::{CallId, StepId};
use crate::run::envelope::RunEnvelope;
use crate::run::event::{CallOutcome, CallPending, RunEvent};
use crate::run::plan::StepKind;

/// What was asked and answered so far.
#[derive(Debug, Default)]
pub(crate) struct Conversations {
    asked: BTreeMap<CallId, (StepId, u32)>,
    settled_well: BTreeSet<CallId>,
    answered: BTreeSet<CallId>,
}

impl Conversations {
    /// What is wrong with the next event; `run` is as it was before it.
    pub(crate) fn look(&mut self, run: &RunEnvelope, event: &RunEvent) -> Option<(&'static str, String)> {
        if let RunEvent::ModelAsked(asked) = event {
            self.asked.insert(asked.call_id, (asked.step_id.clone(), asked.turn));
        } else if let RunEvent::CallPending(pending) = event {
            if is_turn(&pending.tool_id) {
                let asked = self.asked.contains_key(&pending.call_id) || pending.simulated;
                return (!asked).then(|| ("turn-not-asked", format!("call {}", pending.call_id)));
            }
            return proposed(run, pending);
        } else if let RunEvent::CallSettled(settled) = event {
            if matches!(settled.outcome, CallOutcome::Ok | CallOutcome::Partial) {
                self.settled_well.insert(settled.call_id);
            }
        } else if let RunEvent::ModelAnswered(answered) = event {
            return self.answered(run, answered);
        }
        None
    }

    fn answered(&mut self, run: &RunEnvelope, answered: &ModelAnswered) -> Option<(&'static str, String)> {
        let call = run.call(answered.call_id);
        let turn = turn_id(&answered.step_id, answered.turn);
        let is_its_turn = call.is_some_and(|call| Some(&call.step_id) == turn.as_ref());
        if !is_its_turn || !self.settled_well.contains(&answered.call_id) {
            return Some(("answer-without-turn", format!("turn {} of `{}`", answered.turn, answered.step_id)));
        }
        if !self.answered.insert(answered.call_id) {
            return Some(("answered-twice", format!("turn {} of `{}`", answered.turn, answered.step_id)));
        }
        let misnamed = answered.proposed.iter().find(|proposed| {
            let name = call_id(&answered.step_id, answered.turn, proposed.index.saturating_add(1));
            name.as_ref() != Some(&proposed.step_id)
        });
        misnamed.map(|proposed| ("proposal-misnamed", format!("`{}`", proposed.step_id)))
    }
}

// A call of a step that nobody has planned was proposed, with these arguments.
fn proposed(run: &RunEnvelope, pending: &CallPending) -> Option<(&'static str, String)> {
    let Some(step) = run.plan.step(&pending.step_id) else {
        return Some(("call-without-proposal", format!("call {} of `{}`", pending.call_id, pending.step_id)));
    };
    let owner = added_by(&run.plan, &step.step_id)?;
    let hash = run.conversation(&owner.step_id).and_then(|c| c.proposed.get(&step.step_id));
    let StepKind::Tool { tool_id, args, .. } = &step.kind else { return None };
    let Some(hash) = hash else {
        return Some(("call-without-proposal", format!("call {} of `{}`", pending.call_id, pending.step_id)));
    };
    // An operator who has it done anew may have replaced the arguments; that is an act of theirs, and in the journal.
    let (of, place) = step.step_id.as_str().rsplit_once('.')?;
    let index: u32 = place.parse().ok()?;
    let as_proposed = *args == json!({ "$from": format!("/steps/{of}/output/calls/{}/args", index.saturating_sub(1)) });
    let differs = *tool_id != pending.tool_id || (as_proposed && *hash != pending.args_hash);
    differs.then(|| ("call-differs-from-proposal", format!("call {} of `{}`", pending.call_id, pending.step_id)))
}
