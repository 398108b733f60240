//! Agent families and their tool ceilings (REG), and the reference agents that ship with this version.
//!
//! A family is a hard limit: whatever an agent declares or is granted, it can use no tool outside its family's ceiling.

mod data_scope;
mod families;
mod invocable;

use serde::{Deserialize, Serialize};

use crate::ids::{AgentId, ToolId};

pub use data_scope::{DATA_SCOPES, DataScope};
pub use families::{AGENT_FAMILIES, families, family_meta};
pub use invocable::{AGENT_COST_CLASSES, AgentCostClass, AgentEntry, AgentLifecycle, Invocable, invocable};

/// Version of every reference agent (REG-049).
pub const REFERENCE_AGENT_SEMVER: &str = "1.0.0";
/// What the id of a reference agent begins with (REG-049).
pub const REFERENCE_AGENT_PREFIX: &str = "ref.";

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

/// An agent that ships with this version: one for each family (REG-049).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReferenceAgent {
    /// `ref.<family>`.
    pub agent_id: AgentId,
    /// Its version.
    pub agent_semver: &'static str,
    /// Its family.
    pub family: &'static str,
    /// The tools it may use: all that its family may.
    pub tool_grants: &'static [&'static str],
    /// `champion`.
    pub lifecycle: &'static str,
    /// What its users are told.
    pub disclosure_requirements: &'static [&'static str],
}

/// The twenty reference agents, in the order of their families.
pub fn reference_agents() -> impl Iterator<Item = ReferenceAgent> {
    families().iter().filter_map(|meta| {
        Some(ReferenceAgent {
            agent_id: AgentId::new(format!("{REFERENCE_AGENT_PREFIX}{}", meta.family)).ok()?,
            agent_semver: REFERENCE_AGENT_SEMVER,
            family: meta.family,
            tool_grants: meta.tool_grant_ceiling,
            lifecycle: "champion",
            disclosure_requirements: &["ai-generated"],
        })
    })
}

/// The family of a registered agent; `None` for an agent nobody knows.
pub fn family_of(agent: &AgentId) -> Option<&'static str> {
    let name = agent.as_str().strip_prefix(REFERENCE_AGENT_PREFIX)?;
    family_meta(name).map(|meta| meta.family)
}

/// The version of a registered agent; `None` for an agent nobody knows.
pub fn agent_semver(agent: &AgentId) -> Option<&'static str> {
    family_of(agent).map(|_| REFERENCE_AGENT_SEMVER)
}

/// Where a registered agent stands and what a run of it may cost at most; `None` for an agent nobody knows. Every
/// reference agent is a champion (REG-049), and of class `large`: as much as a run in mode `deep` may spend.
pub fn standing_of(agent: &AgentId) -> Option<(AgentLifecycle, AgentCostClass)> {
    family_of(agent).map(|_| (AgentLifecycle::Champion, AgentCostClass::Large))
}
