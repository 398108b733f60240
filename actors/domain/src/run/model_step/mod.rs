//! Model steps: a bounded loop in which a model proposes calls, and each proposal is a call like any other.
//!
//! The loop lives in the plan. A turn and a proposed call are steps that the journal adds to it, so gate, ledger, recovery,
//! replay and kill know nothing of models: a turn is a call of [`MODEL_TURN`] and has no effect outside, a proposal is a call
//! of its tool whose arguments are bound to the stored answer. Bound values are never looked through for bindings or secrets,
//! so a model can reach neither the run's inputs nor a secret by naming them.
//!
//! Ids: the turns of step `think` are `think:1`, `think:2`, …; the second proposal of turn 1 is `think:1.2`.
//!
//! What is not here: how a model is reached (that is the port), and what a model may say (that is for the tone policy).

mod answer;
mod event;
mod fold;
mod follow;
mod turn;
mod verify;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::governance::target::Target;
use crate::ids::{AgentId, ProviderId, RegionId, StepId, ToolId};
use crate::registry::ModelBinding;
use crate::run::envelope::RunEnvelope;
use crate::run::plan::{Plan, PlanError, Step, StepKind};

pub use answer::{ANSWER_BYTES_MAX, Finish, ModelAnswer, ModelUsage, ProposedCall, answer_value, answered, stand_in};
pub use event::{ModelAnswered, ModelAsked, ModelEnd, ProposalRefused, Proposed};
pub use follow::{FALLBACK_THROTTLE_SECONDS, is_transient, switched_off};
pub use turn::{Pricing, TurnFault, asked, cut_result, read_by_turn, turn_args, turn_entry};

pub(crate) use fold::{answered as fold_answered, asked as fold_asked};
pub(crate) use fold::{began, fell_back, left, taken_back};
pub(crate) use follow::follow;
pub(crate) use verify::Conversations;

/// The tool that a turn is a call of. It is in no catalog and in no family's ceiling: only model steps call it.
pub const MODEL_TURN: &str = "model.turn";
/// Its version.
pub const MODEL_TURN_SEMVER: &str = "1.0.0";

/// Most turns unless the step says otherwise, and at most.
pub const TURNS: Bound = Bound { usual: 8, most: 32 };
/// Most calls of one answer.
pub const CALLS_PER_TURN: Bound = Bound { usual: 8, most: 16 };
/// Most calls of the whole step.
pub const CALLS: Bound = Bound { usual: 16, most: 64 };
/// Most refused proposals; one more ends the step.
pub const REFUSALS: Bound = Bound { usual: 4, most: 16 };
/// Most tokens of one answer that a step may ask for; what is usual is in the agent's binding.
pub const OUTPUT_TOKENS_MAX: u32 = 32_768;
/// Most model steps of one plan.
pub const MODEL_STEPS_MAX: usize = 16;
/// Most tools that a model is offered.
pub const TOOLS_MAX: usize = 32;

/// A bound that a step may lower, or raise up to a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// What holds if the step says nothing.
    pub usual: u32,
    /// What a step may ask for at most.
    pub most: u32,
}

/// The bounds of one model step. What is left out is as usual.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ModelLimits {
    /// Most turns, 8 if absent and at most 32. In the last one the model is offered no tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<u32>,
    /// Most calls in one answer, 8 if absent and at most 16.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls_per_turn: Option<u32>,
    /// Most calls of the step, 16 if absent and at most 64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<u32>,
    /// Most refused proposals, 4 if absent and at most 16; one more ends the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusals: Option<u32>,
    /// Most tokens of one answer; as the agent's binding has it if absent, at most 32 768.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u32>,
}

impl ModelLimits {
    /// True if the step says nothing of them.
    pub fn is_usual(&self) -> bool {
        *self == Self::default()
    }
    fn of(wanted: Option<u32>, bound: Bound) -> u32 {
        wanted.unwrap_or(bound.usual).min(bound.most)
    }
    /// Most turns.
    pub fn turns(&self) -> u32 {
        Self::of(self.turns, TURNS).max(1)
    }
    /// Most calls in one answer.
    pub fn calls_per_turn(&self) -> u32 {
        Self::of(self.calls_per_turn, CALLS_PER_TURN)
    }
    /// Most calls of the step.
    pub fn calls(&self) -> u32 {
        Self::of(self.calls, CALLS)
    }
    /// Most refused proposals.
    pub fn refusals(&self) -> u32 {
        Self::of(self.refusals, REFUSALS)
    }
    fn problem(&self) -> Option<String> {
        let bounds = [
            ("turns", self.turns, 1, TURNS.most),
            ("callsPerTurn", self.calls_per_turn, 0, CALLS_PER_TURN.most),
            ("calls", self.calls, 0, CALLS.most),
            ("refusals", self.refusals, 0, REFUSALS.most),
            ("outputTokens", self.output_tokens, 1, OUTPUT_TOKENS_MAX),
        ];
        let out = bounds.into_iter().find(|(_, wanted, least, most)| wanted.is_some_and(|w| w < *least || w > *most));
        out.map(|(name, _, least, most)| format!("`limits.{name}` must be from {least} to {most}"))
    }
}

/// How far the loop of one model step is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Conversation {
    /// The turn it began with: not 1 if the step was begun anew.
    pub first_turn: u32,
    /// The turn it is at.
    pub turn: u32,
    /// True once the fallback model is asked (REG-043).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fallback: bool,
    /// Who is asked in this turn, once it is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<AskedModel>,
    /// Calls that were proposed and taken on.
    pub calls: u32,
    /// Proposals that were refused.
    pub refusals: u32,
    /// Every proposal that became a call, by its step, with the digest of its arguments.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub proposed: BTreeMap<StepId, String>,
    /// What the model is told of its refused proposals, by turn.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub refused: BTreeMap<u32, Vec<ProposalRefused>>,
}

impl Conversation {
    pub(crate) const fn begun_at(first_turn: u32) -> Self {
        Self {
            first_turn,
            turn: first_turn,
            fallback: false,
            asked: None,
            calls: 0,
            refusals: 0,
            proposed: BTreeMap::new(),
            refused: BTreeMap::new(),
        }
    }

    /// Which turn this is, from 1.
    pub const fn ordinal(&self) -> u32 {
        self.turn.saturating_sub(self.first_turn).saturating_add(1)
    }
}

/// The model of one turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct AskedModel {
    /// Who serves it.
    pub provider_id: ProviderId,
    /// Which model.
    pub model_id: String,
    /// Where.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<RegionId>,
}

/// The tool of turns.
pub fn turn_tool() -> ToolId {
    ToolId::constant(MODEL_TURN)
}

/// True for the tool of turns.
pub fn is_turn(tool: &ToolId) -> bool {
    tool.as_str() == MODEL_TURN
}

/// The step of a turn.
pub fn turn_id(step: &StepId, turn: u32) -> Option<StepId> {
    StepId::new(format!("{step}:{turn}")).ok()
}

/// The step of a proposal; `index` counts from 1.
pub fn call_id(step: &StepId, turn: u32, index: u32) -> Option<StepId> {
    StepId::new(format!("{step}:{turn}.{index}")).ok()
}

/// The model step that has added this step to the plan; `None` if it was there from the beginning.
pub fn added_by<'a>(plan: &'a Plan, id: &StepId) -> Option<&'a Step> {
    let (of, _) = id.as_str().rsplit_once(':')?;
    plan.steps.iter().find(|step| step.step_id.as_str() == of && matches!(step.kind, StepKind::Model { .. }))
}

/// The plan without what model steps have added to it.
pub fn as_submitted(plan: &Plan) -> Plan {
    let steps = plan.steps.iter().filter(|step| added_by(plan, &step.step_id).is_none()).cloned().collect();
    Plan { steps, max_parallel: plan.max_parallel }
}

/// What is wrong with a model step of a submitted plan.
pub(super) fn problem(plan: &Plan, step: &Step) -> Result<(), PlanError> {
    let StepKind::Model { tools, limits, prompt: _ } = &step.kind else { return Ok(()) };
    let bad = |problem: String| Err(PlanError::BadStep { step: step.step_id.clone(), problem });
    if let Some(problem) = limits.problem() {
        return bad(problem);
    }
    if tools.len() > TOOLS_MAX {
        return bad(format!("`tools` may name at most {TOOLS_MAX} tools"));
    }
    if tools.iter().enumerate().any(|(index, tool)| tools[..index].contains(tool)) {
        return bad("`tools` names a tool twice".to_owned());
    }
    if call_id(&step.step_id, u32::MAX, CALLS_PER_TURN.most).is_none() {
        return bad("the id of a model step must leave room for the turns that are named after it".to_owned());
    }
    let models = plan.steps.iter().filter(|step| matches!(step.kind, StepKind::Model { .. })).count();
    if models > MODEL_STEPS_MAX {
        return bad(format!("a plan may have at most {MODEL_STEPS_MAX} model steps"));
    }
    match plan.steps.iter().find(|other| added_by(plan, &other.step_id).is_some_and(|by| by.step_id == step.step_id)) {
        Some(other) => bad(format!(
            "the id `{}` is one that turns of this step are named by; use another without `:`",
            other.step_id
        )),
        None => Ok(()),
    }
}

impl RunEnvelope {
    /// The loop of a model step, once it has begun.
    pub fn conversation(&self, step: &StepId) -> Option<&Conversation> {
        self.models.get(step)
    }

    /// The binding of the agent whose authority a step uses (REG-042).
    pub fn binding_of(&self, step: &Step) -> Option<&ModelBinding> {
        self.agents.model_of(self.agent_of(step))
    }

    /// The model that a turn of this step asks: the one it has asked, else the agent's, else the one to fall back on.
    pub fn model_of(&self, step: &Step) -> Option<AskedModel> {
        let StepKind::Turn { of, number } = &step.kind else { return None };
        let conversation = self.conversation(of)?;
        if let Some(asked) = conversation.asked.as_ref().filter(|_| conversation.turn == *number) {
            return Some(asked.clone());
        }
        let binding = self.binding_of(step)?;
        Some(if conversation.fallback { fallback_of(binding) } else { primary_of(binding) })
    }

    /// What a turn is aimed at: like a call of its agent, at the model's provider.
    pub(crate) fn target_of_turn(&self, step: &Step, mut target: Target) -> Target {
        if let Some(model) = self.model_of(step) {
            target.provider_id = Some(model.provider_id);
            target.region = model.region;
        }
        target
    }
}

/// The model an agent speaks through.
pub fn primary_of(binding: &ModelBinding) -> AskedModel {
    AskedModel { provider_id: binding.provider_id.clone(), model_id: binding.model_id.clone(), region: None }
}

/// The one it falls back on.
pub fn fallback_of(binding: &ModelBinding) -> AskedModel {
    AskedModel {
        provider_id: binding.fallback_provider_id.clone(),
        model_id: binding.fallback_model_id.clone(),
        region: None,
    }
}

/// The agent that a step which is added for another acts as.
pub(crate) fn agent_of(step: &Step) -> Option<AgentId> {
    step.agent_id.clone()
}

/// The limits of a model step; the usual ones for any other.
pub(crate) fn limits_of(step: &Step) -> ModelLimits {
    if let StepKind::Model { limits, .. } = &step.kind { *limits } else { ModelLimits::default() }
}
