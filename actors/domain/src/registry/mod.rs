//! Agents (REG): their families and tool ceilings, every version of each, and what may become of it.
//!
//! A family is a hard limit: whatever an agent declares or is granted, it can use no tool outside its family's ceiling.

mod book;
mod data_scope;
mod entry;
mod executor;
mod families;
mod invocable;
mod lifecycle;
mod managing;
mod pinned;
mod reference;
mod validate;

use serde::{Deserialize, Serialize};

use crate::ids::{AgentId, ToolId};

pub use book::{AGENT_VERSIONS_MAX, AGENTS_MAX, AgentRegistry, AgentViewer, LifecycleDenial, role_sees};
pub use data_scope::{DATA_SCOPES, DataScope};
pub use entry::{
    AGENT_ENTRY_LIMITS, AGENT_LIST_MAX, AGENT_NAME_BYTES_MAX, AGENT_TEXT_BYTES_MAX, AgentCapability,
    AgentRegistryEntry, AgentVisibility, EntryError, EntryProblem, MAX_TOKENS_MAX, ModelBinding, TenantScope,
};
pub use executor::{
    DescribedTool, EXECUTORS_MAX, ExecutorDenial, ExecutorFault, ExecutorFaultCode, ExecutorRegistration,
    RegisteredExecutor, ServedTool, check_address, check_described, may_register_executor, may_retire_executor,
    schemas_digest,
};
pub use families::{AGENT_FAMILIES, families, family_meta};
pub use invocable::{AGENT_COST_CLASSES, AgentCostClass, AgentEntry, AgentLifecycle, Invocable, invocable};
pub use lifecycle::{AgentMove, LIFECYCLE_MOVES, MoveDenial, MovedBy, experimental_after, may_move};
pub use managing::{MoveAgent, PublishAgent, RegistryDenial, may_manage, move_agent, publish, register};
pub use pinned::{PinnedAgent, PinnedAgents, Ways};
pub use reference::{REFERENCE_AGENT_PREFIX, REFERENCE_AGENT_SEMVER, reference_agents};
pub use validate::{AgentRegistryCode, AgentRegistryValidationError, experimental_fits, lacks_disclosure, validate};

/// How strictly an agent of a family must cite its sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GroundingPolicy {
    /// Every statement needs a quote.
    StrictCite,
    /// Where there is a source, it is cited.
    CiteWhereAvailable,
    /// Nothing is cited.
    NoCitation,
}

/// What is known of a family (REG-014).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentFamilyMeta {
    /// Its name.
    pub family: &'static str,
    /// The tools its agents may use at most.
    pub tool_grant_ceiling: &'static [&'static str],
    /// Where its agents work.
    pub primary_domains: &'static [&'static str],
    /// How strictly they cite.
    pub default_grounding_policy: GroundingPolicy,
    /// The persona they speak as.
    pub default_persona_policy: &'static str,
}

impl AgentFamilyMeta {
    /// True if agents of this family may use the tool (REG-007).
    pub fn allows(&self, tool: &ToolId) -> bool {
        self.tool_grant_ceiling.contains(&tool.as_str())
    }
}

/// Whether there is an agent of this id or may be one: agents are registered while nodes run, but none under an id of those
/// that ship with this version (REG-049).
pub fn may_be_registered(agent: &AgentId) -> bool {
    !agent.as_str().starts_with(REFERENCE_AGENT_PREFIX) || family_of(agent).is_some()
}

/// The family of an agent that ships with this version. What a tenant has registered, [`AgentRegistry`] knows, and what a
/// run was submitted with, its [`PinnedAgents`].
pub fn family_of(agent: &AgentId) -> Option<&'static str> {
    reference::built_in(agent).map(|entry| entry.family.as_str())
}

/// The version of an agent that ships with this version.
pub fn agent_semver(agent: &AgentId) -> Option<&'static str> {
    reference::built_in(agent).map(|entry| entry.agent_semver.as_str())
}
