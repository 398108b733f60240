//! Pipelines as data (PIP): what a pipeline is called, who takes part, what it may cost and where it stops for a yes.
//!
//! A pipeline is no program. It is a [`PipelineSpec`] and a function that makes a [`Plan`](crate::run::plan::Plan) of it;
//! the runtime walks that plan exactly as it walks any other, so a pipeline can do nothing that a submitted plan could not.
//!
//! When pipelines are fired is here too: what an expression means ([`cron`]) and what a schedule is due ([`schedule`]).
//! Deliberately absent: tenant variants.

pub mod cron;
pub mod schedule;
pub mod weekly_briefing;

use crate::ids::{AgentId, PipelineId, StageId, ToolId};
use crate::quantity::Micros;
use crate::run::plan::ApprovalRequirement;

pub use weekly_briefing::briefing;

/// The pipeline of this id and version, if this version ships it.
pub fn spec_of(id: &PipelineId, semver: Option<&str>) -> Option<PipelineSpec> {
    let spec = weekly_briefing::spec();
    (spec.pipeline_id == *id && semver == Some(spec.semver)).then_some(spec)
}

/// A pipeline's own life cycle (PIP-003). It is not the life cycle of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PipelineLifecycle {
    /// Being written.
    Draft,
    /// May be triggered in mode `rehearsal-dry-run` only.
    Rehearsal,
    /// May be triggered.
    Live,
    /// May not be triggered for now.
    Suspended,
    /// May not be triggered again.
    Retired,
}

impl PipelineLifecycle {
    /// The wire string.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Draft => "draft",
            Self::Rehearsal => "rehearsal",
            Self::Live => "live",
            Self::Suspended => "suspended",
            Self::Retired => "retired",
        }
    }
    /// Whether a trigger in this mode is accepted (PIP-003).
    pub fn accepts(self, mode: &str) -> bool {
        match self {
            Self::Live => true,
            Self::Rehearsal => mode == "rehearsal-dry-run",
            Self::Draft | Self::Suspended | Self::Retired => false,
        }
    }
}

/// One stage of a pipeline: a named group of steps under one agent's authority (PIP-007).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    /// Its name; the steps of the plan carry it.
    pub stage_id: StageId,
    /// Whose authority its steps use.
    pub agent_id: AgentId,
    /// The tools its steps call; each lies inside the ceiling of the agent's family.
    pub tool_ids: Vec<ToolId>,
    /// The stages that come before it.
    pub after: Vec<StageId>,
    /// The run goes on without it if its tool fails or is not configured.
    pub optional: bool,
    /// The yes that has to be given inside it (PIP-001: a mandatory gate).
    pub gate: Option<ApprovalRequirement>,
}

/// What a pipeline pins (PIP-001).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PipelineSpec {
    /// The id.
    pub pipeline_id: PipelineId,
    /// The version.
    pub semver: &'static str,
    /// The lowest standing that may trigger it (PIP-006).
    pub tier: &'static str,
    /// The most one instance may spend, in cost units.
    pub total_budget_cap: Micros,
    /// The stages; their edges form a DAG.
    pub stages: Vec<Stage>,
    /// How deep hand-offs go.
    pub expected_handoff_depth: u32,
    /// The set of cases it is judged by.
    pub evaluation_fixture_set_id: &'static str,
    /// Where it stands.
    pub lifecycle_state: PipelineLifecycle,
    /// The mode a trigger without one runs in (PIP-023).
    pub default_mode: &'static str,
}

impl PipelineSpec {
    /// The agents that take part, each once, in the order of the stages; the first is the lead (PIP-008).
    pub fn participating_agent_ids(&self) -> Vec<&AgentId> {
        let mut agents: Vec<&AgentId> = Vec::new();
        for stage in &self.stages {
            if !agents.contains(&&stage.agent_id) {
                agents.push(&stage.agent_id);
            }
        }
        agents
    }
    /// The lead: the `rootAgentId` of the pipeline's runs. It names them; authority never comes from it (PIP-008).
    pub fn root_agent_id(&self) -> Option<&AgentId> {
        self.stages.first().map(|stage| &stage.agent_id)
    }
    /// How many mandatory gates its plan has.
    pub fn gate_count(&self) -> usize {
        self.stages.iter().filter(|stage| stage.gate.is_some()).count()
    }
}
