//! What may be wrong with an entry in substance: eight codes, all told at once (REG-002, REG-003).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{AgentLifecycle, AgentRegistryEntry, DATA_SCOPES};
use crate::catalog::version::is_version;

/// Why an entry is refused (REG-002).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AgentRegistryCode {
    /// The agent is registered already; a later version is published.
    DuplicateAgentId,
    /// None of the twenty.
    UnknownFamily,
    /// A tool that no agent of the family may use.
    ToolGrantExceedsFamilyCeiling,
    /// A version that is none, or that is not later than the newest one.
    InvalidSemver,
    /// None of the eight.
    UnknownDataScope,
    /// `experimental` does not go with the state.
    LifecycleExperimentalMismatch,
    /// Two capabilities of one name.
    DuplicateCapabilityId,
    /// A champion whose users would be told nothing.
    ChampionWithoutDisclosure,
}

impl AgentRegistryCode {
    /// All eight, in the order in which they are told.
    pub const ALL: [Self; 8] = [
        Self::DuplicateAgentId,
        Self::UnknownFamily,
        Self::ToolGrantExceedsFamilyCeiling,
        Self::InvalidSemver,
        Self::UnknownDataScope,
        Self::LifecycleExperimentalMismatch,
        Self::DuplicateCapabilityId,
        Self::ChampionWithoutDisclosure,
    ];

    /// The wire string.
    pub const fn code(self) -> &'static str {
        match self {
            Self::DuplicateAgentId => "duplicate-agent-id",
            Self::UnknownFamily => "unknown-family",
            Self::ToolGrantExceedsFamilyCeiling => "tool-grant-exceeds-family-ceiling",
            Self::InvalidSemver => "invalid-semver",
            Self::UnknownDataScope => "unknown-data-scope",
            Self::LifecycleExperimentalMismatch => "lifecycle-experimental-mismatch",
            Self::DuplicateCapabilityId => "duplicate-capability-id",
            Self::ChampionWithoutDisclosure => "champion-without-disclosure",
        }
    }
}

/// One thing that is wrong with an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentRegistryValidationError {
    /// What kind of thing.
    pub code: AgentRegistryCode,
    /// JSON Pointer to it in the entry.
    pub path: String,
    /// In words, with what would be right.
    pub message: String,
}

/// True if `experimental` goes with the state (REG-010).
pub const fn experimental_fits(state: AgentLifecycle, experimental: bool) -> bool {
    match state {
        AgentLifecycle::Draft | AgentLifecycle::Challenger => true,
        AgentLifecycle::Rehearsal | AgentLifecycle::Shadow => experimental,
        AgentLifecycle::Champion | AgentLifecycle::Deprecated | AgentLifecycle::Retired => !experimental,
    }
}

/// Everything that is wrong with an entry by itself, in the order of [`AgentRegistryCode::ALL`]. Whether its id and its
/// version are free is for the registry to say.
pub fn validate(entry: &AgentRegistryEntry) -> Vec<AgentRegistryValidationError> {
    let mut errors = Vec::new();
    let mut say = |code, path: String, message: String| {
        errors.push(AgentRegistryValidationError { code, path, message });
    };
    match entry.family_meta() {
        None => {
            let message = format!("`{}` is no agent family", entry.family);
            say(AgentRegistryCode::UnknownFamily, "/family".to_owned(), message);
        }
        Some(meta) => {
            let outside = |tool: &str| !meta.tool_grant_ceiling.contains(&tool);
            for (i, tool) in entry.tool_grants.iter().enumerate().filter(|(_, tool)| outside(tool)) {
                let ceiling = meta.tool_grant_ceiling.join(", ");
                let message = format!("family `{}` may not use `{tool}`; it may use {ceiling}", meta.family);
                say(AgentRegistryCode::ToolGrantExceedsFamilyCeiling, format!("/toolGrants/{i}"), message);
            }
        }
    }
    let versions = [("/agentSemver".to_owned(), &entry.agent_semver)].into_iter().chain(
        entry.capabilities.iter().enumerate().map(|(i, own)| (format!("/capabilities/{i}/semver"), &own.semver)),
    );
    for (path, version) in versions.chain([("/modelBinding/semver".to_owned(), &entry.model_binding.semver)]) {
        if !is_version(version) {
            let message = format!("`{}` is no version; use one such as 1.2.3 or 1.2.3-rc.1", version.escape_debug());
            say(AgentRegistryCode::InvalidSemver, path, message);
        }
    }
    for (i, scope) in entry.data_scopes.iter().enumerate() {
        if !DATA_SCOPES.iter().any(|known| known.as_str() == scope) {
            let known = DATA_SCOPES.map(|known| known.as_str()).join(", ");
            let message = format!("`{}` is no data scope; use one of {known}", scope.escape_debug());
            say(AgentRegistryCode::UnknownDataScope, format!("/dataScopes/{i}"), message);
        }
    }
    if !experimental_fits(entry.lifecycle, entry.experimental) {
        let (state, must) = (entry.lifecycle.as_str(), !entry.experimental);
        let message = format!("an agent that is `{state}` has `experimental: {must}`");
        say(AgentRegistryCode::LifecycleExperimentalMismatch, "/experimental".to_owned(), message);
    }
    let mut seen = BTreeSet::new();
    for (i, capability) in entry.capabilities.iter().enumerate() {
        if !seen.insert(&capability.capability_id) {
            let message = format!("the capability `{}` stands there twice", capability.capability_id.escape_debug());
            say(AgentRegistryCode::DuplicateCapabilityId, format!("/capabilities/{i}/capabilityId"), message);
        }
    }
    if lacks_disclosure(entry, entry.lifecycle) {
        let message = "a champion says what its users are told, such as `ai-generated`".to_owned();
        say(AgentRegistryCode::ChampionWithoutDisclosure, "/disclosureRequirements".to_owned(), message);
    }
    errors
}

/// True if the version would be a champion whose users are told nothing (REG-012).
pub fn lacks_disclosure(entry: &AgentRegistryEntry, state: AgentLifecycle) -> bool {
    state == AgentLifecycle::Champion && entry.disclosure_requirements.is_empty()
}
