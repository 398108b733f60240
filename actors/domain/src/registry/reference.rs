//! The agents that ship with this version: one for each family, and a champion (REG-049).

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use super::{
    AgentCapability, AgentCostClass, AgentFamilyMeta, AgentLifecycle, AgentRegistryEntry, AgentVisibility,
    GroundingPolicy, ModelBinding, TenantScope, families,
};
use crate::ids::{AgentId, ProviderId};
use crate::quantity::Micros;

/// Version of every reference agent (REG-049).
pub const REFERENCE_AGENT_SEMVER: &str = "1.0.0";
/// What the id of a reference agent begins with (REG-049). No tenant may take such an id.
pub const REFERENCE_AGENT_PREFIX: &str = "ref.";

static REFERENCE_AGENTS: LazyLock<BTreeMap<AgentId, Arc<AgentRegistryEntry>>> = LazyLock::new(|| {
    let entries = families().iter().filter_map(entry);
    entries.map(|entry| (entry.agent_id.clone(), Arc::new(entry))).collect()
});

/// An agent that ships with this version.
pub(super) fn built_in(agent: &AgentId) -> Option<&'static Arc<AgentRegistryEntry>> {
    all().get(agent)
}

/// All of them.
pub(super) fn all() -> &'static BTreeMap<AgentId, Arc<AgentRegistryEntry>> {
    &REFERENCE_AGENTS
}

/// The twenty reference agents, in the order of their families.
pub fn reference_agents() -> impl Iterator<Item = &'static AgentRegistryEntry> {
    families().iter().filter_map(|meta| {
        let id = AgentId::new(format!("{REFERENCE_AGENT_PREFIX}{}", meta.family)).ok()?;
        built_in(&id).map(Arc::as_ref)
    })
}

impl GroundingPolicy {
    /// The wire string.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::StrictCite => "strict-cite",
            Self::CiteWhereAvailable => "cite-where-available",
            Self::NoCitation => "no-citation",
        }
    }
}

// Models are bound by name alone: no reference agent brings a provider with it. Every one is of class `large`: as much as a
// run in mode `deep` may spend.
fn entry(meta: &AgentFamilyMeta) -> Option<AgentRegistryEntry> {
    Some(AgentRegistryEntry {
        agent_id: AgentId::new(format!("{REFERENCE_AGENT_PREFIX}{}", meta.family)).ok()?,
        agent_semver: REFERENCE_AGENT_SEMVER.to_owned(),
        title: format!("Reference agent for {}", meta.family),
        family: meta.family.to_owned(),
        lifecycle: AgentLifecycle::Champion,
        experimental: false,
        capabilities: vec![AgentCapability {
            capability_id: meta.family.to_owned(),
            semver: REFERENCE_AGENT_SEMVER.to_owned(),
        }],
        data_scopes: vec!["tenant.private".to_owned(), "platform.curated".to_owned()],
        tool_grants: meta.tool_grant_ceiling.iter().map(|tool| (*tool).to_owned()).collect(),
        cost_class: AgentCostClass::Large,
        model_binding: ModelBinding {
            provider_id: ProviderId::new("openai-compatible").ok()?,
            model_id: "default".to_owned(),
            semver: REFERENCE_AGENT_SEMVER.to_owned(),
            default_max_tokens: 4_096,
            default_temperature: Micros(200_000),
            fallback_provider_id: ProviderId::new("openai-compatible").ok()?,
            fallback_model_id: "fallback".to_owned(),
        },
        persona_binding: meta.default_persona_policy.to_owned(),
        tone_policy_id: "tone.default".to_owned(),
        grounding_policy_id: meta.default_grounding_policy.as_str().to_owned(),
        audit_policy_id: "audit.full".to_owned(),
        tenant_scope: TenantScope::Platform,
        visibility: AgentVisibility::ALL.into(),
        disclosure_requirements: vec!["ai-generated".to_owned()],
    })
}
