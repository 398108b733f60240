//! What a pipeline pins, as data (PIP-001): who takes part, what it may cost, where it stops for a yes, and a plan to be
//! filled in with what whoever triggers it gives.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::lifecycle::PipelineLifecycle;
use crate::ids::{AgentId, PipelineId, StageId, StepId, ToolId};
use crate::mode::{InvocationTier, Mode};
use crate::quantity::Micros;
use crate::run::plan::ApprovalRequirement;

/// The standings a pipeline may ask for (PIP-006), rising.
pub const PIPELINE_TIERS: [InvocationTier; 4] = InvocationTier::ALL;
/// How deep hand-offs of a stage are: the instance dispatches its stages (PIP-007).
pub const STAGE_DEPTH: u32 = 1;

/// What a pipeline pins (PIP-001). Its words are those of the data files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PipelineSpec {
    /// The id.
    pub pipeline_id: PipelineId,
    /// The version.
    pub semver: String,
    /// What people call it.
    pub title: String,
    /// What it makes, in a sentence or two.
    pub summary: String,
    /// The lowest standing that may trigger it, one of [`PIPELINE_TIERS`] (PIP-006).
    pub tier: String,
    /// The most one instance may spend, in cost units.
    pub total_budget_cap: Micros,
    /// The agents that take part; the first is the lead (PIP-008).
    pub participating_agent_ids: Vec<AgentId>,
    /// How deep hand-offs go: 1 if no stage hands anything on.
    pub expected_handoff_depth: u32,
    /// The approval steps that nobody can leave out, and who must agree at each.
    pub mandatory_approval_gates: Vec<MandatoryGate>,
    /// The set of cases it is judged by (PIP-031).
    pub evaluation_fixture_set_id: String,
    /// Where it stands.
    pub lifecycle_state: PipelineLifecycle,
    /// What whoever triggers it gives.
    pub inputs: Vec<InputField>,
    /// The stages, in the order they are told; what comes before what stands in their steps.
    pub plan: Vec<Stage>,
}

/// One stage: a named group of steps under one agent's authority (PIP-007).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Stage {
    /// Its name; the steps of the plan carry it.
    pub stage_id: StageId,
    /// Whose authority its steps use unless they name another.
    pub agent_id: AgentId,
    /// The run goes on without it if its tool fails or is not configured; a tenant may leave it out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
    /// Its steps.
    pub steps: Vec<StepTemplate>,
}

/// One step to be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StepTemplate {
    /// Unique in the pipeline. A step that is made once for each part of an input gets `.001`, `.002` and so on behind it.
    pub step_id: StepId,
    /// Templates that must be over before this one starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<StepId>,
    /// The agent that does it in the stage's place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<AgentId>,
    /// The stage hands this step on to `agentId`: one level deeper than the stage.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub handed_on: bool,
    /// Left out quietly if it fails, although its stage is not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
    /// It is there only if an input says so.
    #[serde(default, rename = "if", skip_serializing_if = "Option::is_none")]
    pub only_if: Option<InputCondition>,
    /// It is made once for each part of an input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_each: Option<ForEach>,
    /// What it does.
    #[serde(rename = "do")]
    pub action: Action,
}

/// What a step does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Action {
    /// Calls a tool.
    Call {
        /// The tool.
        tool_id: ToolId,
        /// Its arguments. Beside the bindings of a plan there are `{"$input": "name"}`, an input, left out with its key if
        /// it was not given; `{"$part": "uris"}`, the part of a [`ForEach`]; and `{"$each": "step/field"}`, a list of
        /// bindings to every step that was made of a template.
        #[serde(default)]
        args: Value,
    },
    /// Asks people. Who must agree stands at the gate of this step.
    Ask {
        /// The question.
        prompt: String,
        /// What is shown beside it.
        #[serde(default)]
        subject: Value,
        /// A place in the subject, as a JSON Pointer: if anything is found there, the gate says no by itself and nobody is
        /// asked. Nothing is `null`, `false`, 0, and what is empty.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refuse_if: Option<String>,
    },
}

/// A list of the input, cut into parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ForEach {
    /// The input.
    pub input: String,
    /// Most parts; more items than these share a part.
    pub parts_max: usize,
}

/// Something that may hold of an input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InputCondition {
    /// The input.
    pub input: String,
    /// The value it must have; absent: that it was given at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is: Option<Value>,
}

/// A gate that nobody can leave out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MandatoryGate {
    /// The step that asks.
    pub step_id: StepId,
    /// Who must agree.
    pub requirement: ApprovalRequirement,
    /// Who must agree instead, by the input; the first that fits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instead: Vec<InsteadIf>,
}

/// Who must agree if an input says so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InsteadIf {
    /// When.
    #[serde(rename = "if")]
    pub when: InputCondition,
    /// Who.
    pub requirement: ApprovalRequirement,
}

/// One thing that whoever triggers a pipeline gives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InputField {
    /// Its name in the input.
    pub name: String,
    /// What it is.
    pub kind: InputKind,
    /// What it is for.
    pub about: String,
    /// Whether it must be given.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub required: bool,
    /// Most items of `texts`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items_max: Option<usize>,
    /// The values of `choice`; the first stands if none is given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<String>,
    /// Least and most of `whole`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<(u64, u64)>,
    /// A value as somebody might give it.
    pub example: Value,
}

/// What an input is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InputKind {
    /// A text.
    Text,
    /// A list of texts.
    Texts,
    /// A day, `2026-01-31`.
    Day,
    /// A whole number.
    Whole,
    /// One of several words.
    Choice,
}

impl InputKind {
    /// The wire string.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Texts => "texts",
            Self::Day => "day",
            Self::Whole => "whole",
            Self::Choice => "choice",
        }
    }
}

impl PipelineSpec {
    /// The lead: the `rootAgentId` of the pipeline's runs. It names them; authority never comes from it (PIP-008).
    pub fn root_agent_id(&self) -> Option<&AgentId> {
        self.participating_agent_ids.first()
    }

    /// The lowest tier that may trigger it; `None` if it names none of the four.
    pub fn lowest_tier(&self) -> Option<InvocationTier> {
        PIPELINE_TIERS.into_iter().find(|tier| tier.as_str() == self.tier)
    }

    /// True if somebody of this tier may trigger it (PIP-006).
    pub fn may_be_triggered_by(&self, tier: InvocationTier) -> bool {
        self.lowest_tier().is_some_and(|lowest| lowest <= tier)
    }

    /// The mode a trigger without one runs in (PIP-023): the least of several agents whose ceiling holds the cap.
    pub fn default_mode(&self) -> Mode {
        let holds = |mode: &Mode| {
            let meta = mode.meta();
            meta.multi_agent && meta.has_external_side_effects && self.total_budget_cap <= meta.max_cost_units
        };
        Mode::ALL.into_iter().find(holds).unwrap_or(Mode::Exhaustive)
    }

    /// Every template, with its stage.
    pub fn templates(&self) -> impl Iterator<Item = (&Stage, &StepTemplate)> {
        self.plan.iter().flat_map(|stage| stage.steps.iter().map(move |step| (stage, step)))
    }

    /// The template with this id.
    pub fn template(&self, id: &StepId) -> Option<(&Stage, &StepTemplate)> {
        self.templates().find(|(_, step)| step.step_id == *id)
    }

    /// How deep hand-offs of its plan go.
    pub fn measured_depth(&self) -> u32 {
        let handed_on = self.templates().any(|(_, step)| step.handed_on);
        if handed_on { STAGE_DEPTH + 1 } else { STAGE_DEPTH }
    }

    /// How many mandatory gates there are whatever the input says.
    pub fn gate_count(&self) -> usize {
        let always =
            |gate: &&MandatoryGate| self.template(&gate.step_id).is_some_and(|(_, step)| step.only_if.is_none());
        self.mandatory_approval_gates.iter().filter(always).count()
    }

    /// The stages that come right before one, in the order of the plan.
    pub fn stages_before(&self, stage: &Stage) -> Vec<&StageId> {
        let awaited: BTreeSet<&StepId> = stage.steps.iter().flat_map(|step| &step.after).collect();
        let before = self.plan.iter().filter(|other| other.stage_id != stage.stage_id);
        let holds = |other: &&Stage| other.steps.iter().any(|step| awaited.contains(&step.step_id));
        before.filter(holds).map(|other| &other.stage_id).collect()
    }

    /// The tools of a stage, each once, in the order of its steps.
    pub fn tools_of(stage: &Stage) -> Vec<&ToolId> {
        let mut tools = Vec::new();
        for step in &stage.steps {
            if let Action::Call { tool_id, .. } = &step.action
                && !tools.contains(&tool_id)
            {
                tools.push(tool_id);
            }
        }
        tools
    }

    /// An input as somebody might give it: everything that must be there, and with `whole` everything else too.
    pub fn example_input(&self, whole: bool) -> Value {
        let given = self.inputs.iter().filter(|field| whole || field.required);
        Value::Object(given.map(|field| (field.name.clone(), field.example.clone())).collect())
    }
}

impl Stage {
    /// Whose authority a step of it uses.
    pub fn agent_of<'a>(&'a self, step: &'a StepTemplate) -> &'a AgentId {
        step.agent_id.as_ref().unwrap_or(&self.agent_id)
    }
}
