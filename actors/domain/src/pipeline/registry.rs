//! The registry of pipelines (PIP-002, PIP-004): what is not sound does not enter.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::expand::expand;
use super::fixture::FIXTURE_SETS;
use super::spec::{Action, PIPELINE_TIERS, PipelineSpec};
use super::v1;
use crate::catalog::version::is_version;
use crate::identity::Role;
use crate::ids::PipelineId;
use crate::ids::TenantId;
use crate::json::{self, Limits};
use crate::quantity::Micros;
use crate::registry::{AgentRegistry, AgentViewer, Invocable, Ways};

/// Why a pipeline does not enter (PIP-005).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PipelineCode {
    /// Another pipeline has the id.
    DuplicatePipelineId,
    /// A version that is none.
    InvalidSemver,
    /// An agent that nobody knows.
    UnknownAgent,
    /// An agent that may not be invoked by a pipeline.
    AgentNotInvocable,
    /// The plan is not sound.
    PlanInvalid,
    /// A gate that is no approval step of the plan, or an approval step that is no gate.
    GateUnknownStep,
    /// Hand-offs go deeper than is said, or less deep.
    DepthMismatch,
    /// A cap that allows nothing.
    BudgetCapNonPositive,
    /// None of the four.
    UnknownTier,
    /// A set of cases that is not there.
    UnknownFixtureSet,
    /// A step by an agent that takes no part.
    StepAgentNotParticipating,
}

impl PipelineCode {
    /// All of them, in the order in which they are told.
    pub const ALL: [Self; 11] = [
        Self::DuplicatePipelineId,
        Self::InvalidSemver,
        Self::UnknownAgent,
        Self::AgentNotInvocable,
        Self::PlanInvalid,
        Self::GateUnknownStep,
        Self::DepthMismatch,
        Self::BudgetCapNonPositive,
        Self::UnknownTier,
        Self::UnknownFixtureSet,
        Self::StepAgentNotParticipating,
    ];

    /// The wire string.
    pub const fn code(self) -> &'static str {
        match self {
            Self::DuplicatePipelineId => "duplicate-pipeline-id",
            Self::InvalidSemver => "invalid-semver",
            Self::UnknownAgent => "unknown-agent",
            Self::AgentNotInvocable => "agent-not-invocable",
            Self::PlanInvalid => "plan-invalid",
            Self::GateUnknownStep => "gate-unknown-step",
            Self::DepthMismatch => "depth-mismatch",
            Self::BudgetCapNonPositive => "budget-cap-non-positive",
            Self::UnknownTier => "unknown-tier",
            Self::UnknownFixtureSet => "unknown-fixture-set",
            Self::StepAgentNotParticipating => "step-agent-not-participating",
        }
    }
}

/// One thing that is wrong with a pipeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PipelineFault {
    /// What kind of thing.
    pub code: PipelineCode,
    /// JSON Pointer to it in the spec.
    pub path: String,
    /// In words, with what would be right.
    pub message: String,
}

/// The pipelines.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PipelineRegistry {
    specs: Vec<PipelineSpec>,
}

static V1: LazyLock<PipelineRegistry> = LazyLock::new(|| {
    let (agents, mut registry) = (AgentRegistry::default(), PipelineRegistry::default());
    for spec in v1::FILES.iter().filter_map(|text| read(text.as_bytes()).ok()) {
        // A test reads all seven; one that were refused would be missing there.
        let _ = registry.register(spec, &agents);
    }
    registry
});

/// Reads a spec out of its file: strict JSON, no unknown field.
///
/// # Errors
/// What is wrong, in words.
pub fn read(bytes: &[u8]) -> Result<PipelineSpec, String> {
    let value = json::parse_strict(bytes, Limits::DEFAULT).map_err(|error| error.to_string())?;
    serde_json::from_value(value).map_err(|error| error.to_string())
}

impl PipelineRegistry {
    /// The pipelines that ship with this version (PIP-002).
    pub fn shipped() -> &'static Self {
        &V1
    }

    /// Enters a pipeline, or nothing at all (PIP-004).
    ///
    /// # Errors
    /// Everything that is wrong with it, in the order of [`PipelineCode::ALL`].
    pub fn register(&mut self, spec: PipelineSpec, agents: &AgentRegistry) -> Result<(), Vec<PipelineFault>> {
        let faults = self.faults(&spec, agents);
        if !faults.is_empty() {
            return Err(faults);
        }
        self.specs.push(spec);
        Ok(())
    }

    /// All of them, in the order in which they entered.
    pub fn list(&self) -> &[PipelineSpec] {
        &self.specs
    }

    /// One.
    pub fn get(&self, id: &PipelineId) -> Option<&PipelineSpec> {
        self.specs.iter().find(|spec| spec.pipeline_id == *id)
    }

    /// Everything that is wrong with a spec (PIP-005).
    pub fn faults(&self, spec: &PipelineSpec, agents: &AgentRegistry) -> Vec<PipelineFault> {
        let mut faults = Faults(Vec::new());
        if self.get(&spec.pipeline_id).is_some() {
            let message = format!("the pipeline `{}` is registered already", spec.pipeline_id);
            faults.add(PipelineCode::DuplicatePipelineId, "/pipelineId", message);
        }
        if !is_version(&spec.semver) {
            faults.add(PipelineCode::InvalidSemver, "/semver", "this is no version; write one such as 1.0.0");
        }
        check_agents(spec, agents, &mut faults);
        check_plan(spec, &mut faults);
        check_gates(spec, &mut faults);
        let measured = spec.measured_depth();
        if measured != spec.expected_handoff_depth {
            let message = format!("hand-offs of this plan go {measured} deep, not {}", spec.expected_handoff_depth);
            faults.add(PipelineCode::DepthMismatch, "/expectedHandoffDepth", message);
        }
        if spec.total_budget_cap <= Micros::ZERO {
            let message = "a pipeline that may spend nothing does nothing; the cap must be above 0";
            faults.add(PipelineCode::BudgetCapNonPositive, "/totalBudgetCap", message);
        }
        if spec.lowest_tier().is_none() {
            let tiers = PIPELINE_TIERS.map(crate::mode::InvocationTier::as_str).join(", ");
            faults.add(PipelineCode::UnknownTier, "/tier", format!("this is no tier; use one of {tiers}"));
        }
        if !FIXTURE_SETS.iter().any(|(id, _)| *id == spec.evaluation_fixture_set_id) {
            let message = "there is no such set of cases";
            faults.add(PipelineCode::UnknownFixtureSet, "/evaluationFixtureSetId", message);
        }
        check_participation(spec, &mut faults);
        faults.0.sort_by_key(|fault| fault.code);
        faults.0
    }
}

struct Faults(Vec<PipelineFault>);

impl Faults {
    fn add(&mut self, code: PipelineCode, path: impl Into<String>, message: impl Into<String>) {
        self.0.push(PipelineFault { code, path: path.into(), message: message.into() });
    }
}

fn check_agents(spec: &PipelineSpec, agents: &AgentRegistry, faults: &mut Faults) {
    // Pipelines are the platform's, so its operators are who looks.
    let platform = TenantId::constant("platform");
    let viewer = AgentViewer { tenant_id: &platform, role: Role::PlatformOperator };
    let ways = Ways { rehearsal: false, pipeline: true };
    for (index, agent) in spec.participating_agent_ids.iter().enumerate() {
        let path = format!("/participatingAgentIds/{index}");
        match agents.resolve(viewer, agent, None, ways) {
            None => faults.add(PipelineCode::UnknownAgent, path, format!("nobody knows the agent `{agent}`")),
            Some(entry) if ways.invocable(entry.lifecycle) == Invocable::No => {
                let message = format!("the agent `{agent}` is `{}` and may not be invoked", entry.lifecycle.as_str());
                faults.add(PipelineCode::AgentNotInvocable, path, message);
            }
            Some(_) => {}
        }
    }
}

// Tried on the least and on the most that somebody may give.
fn check_plan(spec: &PipelineSpec, faults: &mut Faults) {
    for whole in [false, true] {
        let problem = match expand(spec, &spec.example_input(whole)) {
            Err(error) => Some(format!("the example of an input does not fit: {error}")),
            Ok(plan) => plan.validate().err().map(|error| format!("{}: {error}", error.code())),
        };
        if let Some(message) = problem {
            return faults.add(PipelineCode::PlanInvalid, "/plan", message);
        }
    }
}

fn check_gates(spec: &PipelineSpec, faults: &mut Faults) {
    for (index, gate) in spec.mandatory_approval_gates.iter().enumerate() {
        let asks = spec.template(&gate.step_id).is_some_and(|(_, step)| matches!(step.action, Action::Ask { .. }));
        if !asks {
            let message = format!("`{}` is no approval step of the plan", gate.step_id);
            faults.add(PipelineCode::GateUnknownStep, format!("/mandatoryApprovalGates/{index}/stepId"), message);
        }
    }
    for (_, step) in spec.templates().filter(|(_, step)| matches!(step.action, Action::Ask { .. })) {
        if !spec.mandatory_approval_gates.iter().any(|gate| gate.step_id == step.step_id) {
            let message = format!("the plan asks at `{}`, and no gate says who must agree there", step.step_id);
            faults.add(PipelineCode::GateUnknownStep, "/mandatoryApprovalGates", message);
        }
    }
}

fn check_participation(spec: &PipelineSpec, faults: &mut Faults) {
    let taking_part: BTreeSet<_> = spec.participating_agent_ids.iter().collect();
    for (index, stage) in spec.plan.iter().enumerate() {
        let agents = stage.steps.iter().map(|step| stage.agent_of(step)).chain([&stage.agent_id]);
        let mut strangers: Vec<_> = agents.filter(|agent| !taking_part.contains(agent)).collect();
        strangers.dedup();
        for agent in strangers {
            let message = format!("the stage `{}` is done by `{agent}`, which takes no part", stage.stage_id);
            faults.add(PipelineCode::StepAgentNotParticipating, format!("/plan/{index}"), message);
        }
    }
}
