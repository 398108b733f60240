//! What follows from the events of a model step: steps that are added to the plan, and the step's own end.

use std::sync::Arc;

use serde_json::json;

use super::event::{ModelAnswered, ModelAsked};
use super::{AskedModel, Conversation, agent_of, turn_id};
use crate::ids::StepId;
use crate::run::envelope::RunEnvelope;
use crate::run::event::DecisionLabel;
use crate::run::plan::{Step, StepKind};
use crate::run::step::StepState;

/// The loop begins with this turn.
pub(crate) fn began(run: &mut RunEnvelope, step: &StepId, first_turn: u32) {
    run.models.insert(step.clone(), Conversation::begun_at(first_turn));
    run.set_step(step, StepState::Conversing);
    add_turn(run, step, first_turn, Vec::new());
}

/// A turn is asked for.
pub(crate) fn asked(run: &mut RunEnvelope, asked: &ModelAsked) {
    let Some(conversation) = run.models.get_mut(&asked.step_id) else { return };
    conversation.asked = Some(AskedModel {
        provider_id: asked.provider_id.clone(),
        model_id: asked.model_id.clone(),
        region: asked.region.clone(),
    });
}

/// A turn is answered.
pub(crate) fn answered(run: &mut RunEnvelope, answered: &ModelAnswered) {
    let Some(owner) = run.plan.step(&answered.step_id).cloned() else { return };
    let Some(turn_step) = turn_id(&owner.step_id, answered.turn) else { return };
    if run.end.is_some() || !matches!(run.step_state(&owner.step_id), Some(StepState::Conversing)) {
        return;
    }
    let Some(conversation) = run.models.get_mut(&owner.step_id) else { return };
    conversation.calls = conversation.calls.saturating_add(answered.proposed.len() as u32);
    conversation.refusals = conversation.refusals.saturating_add(answered.refused.len() as u32);
    if !answered.refused.is_empty() {
        conversation.refused.insert(answered.turn, answered.refused.clone());
    }
    for proposed in &answered.proposed {
        conversation.proposed.insert(proposed.step_id.clone(), proposed.args_hash.clone());
    }
    let again = conversation.turn > conversation.first_turn;
    if again && !answered.proposed.is_empty() {
        let text = format!("turn {} adds {} calls to the plan", answered.turn, answered.proposed.len());
        run.decided(&owner.step_id, DecisionLabel::PlanReplanned, text);
    }
    match &answered.end {
        Some(end) => match &end.code {
            Some(code) => run.fail_step(&owner.step_id, code, end.message.as_deref().unwrap_or_default()),
            None => {
                let output = run.output_of(&turn_step).cloned();
                run.finish_step(&owner.step_id, output.as_ref(), &[], None);
            }
        },
        None => {
            for proposed in &answered.proposed {
                let from = format!("/steps/{turn_step}/output/calls/{}/args", proposed.index);
                grow(
                    run,
                    Step {
                        step_id: proposed.step_id.clone(),
                        stage_id: Some(owner.stage()),
                        agent_id: agent_of(&owner),
                        depends_on_step_ids: vec![turn_step.clone()],
                        when: None,
                        // What comes of a call is the model's to know, also that it was refused.
                        optional: true,
                        kind: StepKind::Tool {
                            tool_id: proposed.tool_id.clone(),
                            args: json!({ "$from": from }),
                            approved_by: None,
                        },
                    },
                );
            }
            let mut after: Vec<StepId> = answered.proposed.iter().map(|proposed| proposed.step_id.clone()).collect();
            if after.is_empty() {
                after.push(turn_step);
            }
            next_turn(run, &owner.step_id, after);
        }
    }
}

/// The fallback model is asked from now on; if the turn had failed, in another one.
pub(crate) fn fell_back(run: &mut RunEnvelope, step: &StepId, reason: &str) {
    let Some(conversation) = run.models.get_mut(step) else { return };
    conversation.fallback = true;
    conversation.asked = None;
    let current = turn_id(step, conversation.turn);
    run.decided(step, DecisionLabel::ModelFallback, reason.to_owned());
    if let Some(current) = current
        && run.step_state(&current).is_some_and(StepState::is_over)
    {
        next_turn(run, step, vec![current]);
    }
}

/// A model step is to be done anew: what its turns had still to do is not done.
pub(crate) fn taken_back(run: &mut RunEnvelope, step: &StepId) {
    if run.models.contains_key(step) {
        left(run, step);
        run.models.remove(step);
    }
}

/// A model step is over: what its turns had still to do is not done.
pub(crate) fn left(run: &mut RunEnvelope, step: &StepId) {
    if !run.models.contains_key(step) {
        return;
    }
    let own = |id: &StepId| id.as_str().rsplit_once(':').is_some_and(|(of, _)| of == step.as_str());
    let plan = Arc::clone(&run.plan);
    for (added, state) in plan.steps.iter().zip(&mut run.steps).filter(|(added, _)| own(&added.step_id)) {
        if !state.is_over() && added.step_id != *step {
            *state = StepState::Skipped {
                reason: "the model step is over, or begun anew".to_owned(),
                branch_not_taken: false,
            };
        }
    }
}

fn next_turn(run: &mut RunEnvelope, step: &StepId, after: Vec<StepId>) {
    let Some(conversation) = run.models.get_mut(step) else { return };
    conversation.turn = conversation.turn.saturating_add(1);
    conversation.asked = None;
    let turn = conversation.turn;
    add_turn(run, step, turn, after);
}

fn add_turn(run: &mut RunEnvelope, step: &StepId, turn: u32, after: Vec<StepId>) {
    let (Some(owner), Some(step_id)) = (run.plan.step(step).cloned(), turn_id(step, turn)) else { return };
    grow(
        run,
        Step {
            step_id,
            stage_id: Some(owner.stage()),
            agent_id: agent_of(&owner),
            depends_on_step_ids: after,
            when: None,
            optional: true,
            kind: StepKind::Turn { of: step.clone(), number: turn },
        },
    );
}

fn grow(run: &mut RunEnvelope, step: Step) {
    // A history that adds a step twice is not sound, and folds all the same.
    if run.plan.step(&step.step_id).is_some() {
        return;
    }
    Arc::make_mut(&mut run.plan).steps.push(step);
    run.steps.push(StepState::Pending);
}
