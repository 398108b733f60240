//! What an invocation is held against: the catalog, the registry and the pipeline say most of it, and a tenant's
//! configuration may say less is allowed, or that a consent is needed.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{AgentId, TenantId};
use crate::mode::{InvocationTier, Mode, allowed_modes};
use crate::pipeline::PipelineSpec;
use crate::registry::{AgentCostClass, AgentLifecycle, DataScope, PinnedAgents, families};
use crate::run::plan::Plan;

/// The tone of a run that asks for none.
pub const TONE_DEFAULT: &str = "neutral";

/// What tenants have configured.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InvocationPolicies {
    /// By tenant. A tenant that is not named has nothing configured.
    pub tenants: BTreeMap<TenantId, TenantRules>,
}

/// What one tenant has configured. What is left out is as the catalog, the registry and the pipelines have it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TenantRules {
    /// The sets of sources that may be drawn on; any if absent.
    pub sources: Option<BTreeSet<String>>,
    /// The tones that may be asked for; any if absent.
    pub tones: Option<BTreeSet<String>>,
    /// The personas that may be asked for; those of the families if absent.
    pub personas: Option<BTreeSet<String>>,
    /// The modes that may be chosen, among those of the caller's tier; all of them if absent (MOD-010).
    pub modes: Option<BTreeSet<Mode>>,
    /// The kinds of data that a consent must cover; no consent is needed if empty.
    pub consent_scopes: BTreeSet<DataScope>,
    /// Where agents stand in this tenant, and what their runs may cost, if not as the registry has it.
    pub agents: BTreeMap<AgentId, AgentRule>,
    /// Phrases that no text for customers and creators may hold (INV-008).
    pub tone_block: Vec<String>,
    /// Phrases that are noted if one does.
    pub tone_warn: Vec<String>,
}

/// What a tenant says of one agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AgentRule {
    /// Where it stands.
    pub lifecycle: Option<AgentLifecycle>,
    /// What a run of it may cost at most.
    pub cost_class: Option<AgentCostClass>,
}

/// What one invocation is held against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvocationRules {
    /// The scopes that the planned tools need (CAT-009).
    pub required_entitlements: BTreeSet<String>,
    /// The sets of sources that may be drawn on; any if absent.
    pub sources: Option<BTreeSet<String>>,
    /// The tones that may be asked for; any if absent.
    pub tones: Option<BTreeSet<String>>,
    /// The personas that may be asked for.
    pub personas: BTreeSet<String>,
    /// The modes that may be chosen.
    pub modes: BTreeSet<Mode>,
    /// The kinds of data that a consent must cover.
    pub consent_scopes: BTreeSet<DataScope>,
    /// What is known of each agent that takes part; `None` for one that nobody knows.
    pub agents: BTreeMap<AgentId, (AgentLifecycle, AgentCostClass)>,
    /// True if a pipeline has pinned the agents' versions.
    pub pinned: bool,
}

impl InvocationPolicies {
    /// What a tenant has configured.
    pub fn of(&self, tenant: &TenantId) -> Option<&TenantRules> {
        self.tenants.get(tenant)
    }

    /// What a run of an agent may cost at most: what its tenant says, or else what the version declares (REG-040).
    pub fn class_of(&self, tenant: &TenantId, agent: &AgentId, declared: AgentCostClass) -> AgentCostClass {
        self.of(tenant).and_then(|rules| rules.agents.get(agent)?.cost_class).unwrap_or(declared)
    }
}

/// What an invocation by somebody of this tier is held against.
pub fn rules_for(
    tenant: Option<&TenantRules>,
    tier: InvocationTier,
    pipeline: Option<&PipelineSpec>,
    root: &AgentId,
    plan: &Plan,
    pinned: &PinnedAgents,
) -> InvocationRules {
    // An optional step is left out where its tool may not be used, so nobody needs its scopes.
    let needed = plan.steps.iter().filter(|step| !step.optional).filter_map(|step| step.kind.tool_id());
    let required_entitlements =
        needed.filter_map(crate::catalog::entry).flat_map(|entry| entry.required_scopes.iter().cloned()).collect();
    let mut modes = allowed_modes(tier);
    // Three pipelines cost more than their tier's modes allow, and bring the mode they need (PIP-023).
    if let Some(spec) = pipeline {
        modes.extend(spec.may_be_triggered_by(tier).then(|| spec.default_mode()));
        modes.retain(|mode| spec.lifecycle_state.accepts(*mode));
    }
    if let Some(only) = tenant.and_then(|rules| rules.modes.as_ref()) {
        modes.retain(|mode| only.contains(mode));
    }
    let known = || families().iter().map(|family| family.default_persona_policy.to_owned()).collect();
    let agents = plan.steps.iter().filter_map(|step| step.agent_id.as_ref()).chain([root]);
    let agents = agents.filter_map(|agent| Some((agent.clone(), standing(tenant, agent, pinned)?))).collect();
    InvocationRules {
        required_entitlements,
        sources: tenant.and_then(|rules| rules.sources.clone()),
        tones: tenant.and_then(|rules| rules.tones.clone()),
        personas: tenant.and_then(|rules| rules.personas.clone()).unwrap_or_else(known),
        modes,
        consent_scopes: tenant.map(|rules| rules.consent_scopes.clone()).unwrap_or_default(),
        agents,
        pinned: pipeline.is_some(),
    }
}

fn standing(
    tenant: Option<&TenantRules>,
    agent: &AgentId,
    pinned: &PinnedAgents,
) -> Option<(AgentLifecycle, AgentCostClass)> {
    let (lifecycle, cost_class) = pinned.standing_of(agent)?;
    let rule = tenant.and_then(|rules| rules.agents.get(agent)).copied().unwrap_or_default();
    Some((rule.lifecycle.unwrap_or(lifecycle), rule.cost_class.unwrap_or(cost_class)))
}
