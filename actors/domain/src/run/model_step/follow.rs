//! What follows by itself in a model step: it begins, it falls back on its other model, or it fails with its turn.

use super::{fallback_of, primary_of, turn_id};
use crate::governance::kill_switch::{KillSwitch, SwitchScope, decide_execution};
use crate::run::envelope::RunEnvelope;
use crate::run::event::RunEvent;
use crate::run::plan::Step;
use crate::run::step::StepState;
use crate::time::UnixMs;

/// A wait at a token bucket longer than this, in seconds, makes the fallback model be asked (REG-043).
pub const FALLBACK_THROTTLE_SECONDS: u64 = 30;

/// Codes of failures that another model may not have: the provider is away, overloaded, or its answer was lost.
const TRANSIENT: [&str; 4] = ["model-unavailable", "model-overloaded", "model-timeout", "model-answer-lost"];

/// True if asking another model may help.
pub fn is_transient(code: &str) -> bool {
    TRANSIENT.contains(&code)
}

/// What is due in a step of kind `model` that may begin, or has.
pub(crate) fn follow(run: &RunEnvelope, index: usize, now: UnixMs) -> Option<RunEvent> {
    let step = run.plan.steps.get(index)?;
    if matches!(run.steps.get(index)?, StepState::Conversing) {
        return turn_failed(run, step);
    }
    if !run.may_begin(index, now) {
        return None;
    }
    // A step that was begun before goes on counting: its old turns keep their names.
    let taken = |turn: &u32| turn_id(&step.step_id, *turn).is_some_and(|id| run.plan.step(&id).is_some());
    let first_turn = (1..u32::MAX).find(|turn| !taken(turn)).unwrap_or(1);
    Some(RunEvent::ModelBegan { step_id: step.step_id.clone(), first_turn })
}

// The turn ended without an answer: by the gate, by the provider, or by whoever decided over it.
fn turn_failed(run: &RunEnvelope, step: &Step) -> Option<RunEvent> {
    let conversation = run.conversation(&step.step_id)?;
    let turn = turn_id(&step.step_id, conversation.turn)?;
    if !matches!(run.step_state(&turn), Some(StepState::Skipped { .. })) {
        return None;
    }
    let error = run.tool_calls.iter().rev().find(|call| call.step_id == turn).and_then(|call| call.error.as_ref());
    let (code, message) = match error {
        Some(error) => (error.code.clone(), error.message.clone()),
        None => ("model-turn-skipped".to_owned(), "the turn was left out".to_owned()),
    };
    let last = conversation.ordinal() >= super::limits_of(step).turns();
    if is_transient(&code) && !conversation.fallback && !last && run.binding_of(step).is_some() {
        let reason = format!("{code}: {message}");
        return Some(RunEvent::ModelFellBack { step_id: step.step_id.clone(), turn: conversation.turn, reason });
    }
    Some(RunEvent::StepFailed { step_id: step.step_id.clone(), code, message })
}

/// Why the fallback model is to be asked in this turn although nothing has failed: a switch on the provider, or on its region,
/// that does not concern the other one (REG-043). `regions` are those of the model and of its fallback.
pub fn switched_off(
    run: &RunEnvelope,
    turn: &Step,
    switches: &[KillSwitch],
    regions: [Option<crate::ids::RegionId>; 2],
    now: UnixMs,
) -> Option<RunEvent> {
    let crate::run::plan::StepKind::Turn { of, number } = &turn.kind else { return None };
    let conversation = run.conversation(of).filter(|conversation| !conversation.fallback)?;
    let binding = run.binding_of(turn)?;
    let [primary, other] = [primary_of(binding), fallback_of(binding)];
    let target = run.target_of(turn)?;
    let [own, another] = regions;
    let mut first = target.clone();
    (first.provider_id, first.region) = (Some(primary.provider_id), own);
    let mut second = target;
    (second.provider_id, second.region) = (Some(other.provider_id), another);
    let switch = decide_execution(switches, &first, now)?;
    let of_models = matches!(switch.scope, SwitchScope::Provider | SwitchScope::Region);
    if !of_models || decide_execution(switches, &second, now).is_some() || conversation.turn != *number {
        return None;
    }
    let reason = format!("the {} switch `{}` is armed: {}", switch.scope.as_str(), switch.switch_id, switch.reason);
    Some(RunEvent::ModelFellBack { step_id: of.clone(), turn: *number, reason })
}
