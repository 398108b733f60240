//! `[[invocations]]` of the configuration file: what a tenant allows of invocations (INV).

use std::collections::BTreeSet;

use serde::Deserialize;
use signalbox_domain::ids::{AgentId, TenantId};
use signalbox_domain::invocation::{AgentRule, InvocationPolicies, TenantRules};
use signalbox_domain::mode::Mode;
use signalbox_domain::registry::may_be_registered;
use signalbox_domain::registry::{AgentCostClass, AgentLifecycle, DataScope};

/// What one tenant allows. What is left out is as the catalog, the registry and the pipelines have it.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct InvocationEntry {
    /// The tenant.
    pub(crate) tenant_id: TenantId,
    /// The sets of sources that may be drawn on.
    pub(crate) sources: Option<BTreeSet<String>>,
    /// The tones that may be asked for.
    pub(crate) tones: Option<BTreeSet<String>>,
    /// The personas that may be asked for.
    pub(crate) personas: Option<BTreeSet<String>>,
    /// The modes that may be chosen, among those of the caller's tier.
    pub(crate) modes: Option<BTreeSet<Mode>>,
    /// The kinds of data that a consent must cover.
    #[serde(default)]
    pub(crate) consent_scopes: BTreeSet<DataScope>,
    /// Phrases that no text made for customers and creators may hold.
    #[serde(default)]
    pub(crate) tone_block: Vec<String>,
    /// Phrases that are noted if one does.
    #[serde(default)]
    pub(crate) tone_warn: Vec<String>,
    /// Agents that stand elsewhere in this tenant than in the registry.
    #[serde(default)]
    pub(crate) agents: Vec<AgentEntry>,
}

/// Where an agent stands.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct AgentEntry {
    /// The agent.
    pub(crate) agent_id: AgentId,
    /// Its state: draft, rehearsal, shadow, challenger, champion, deprecated or retired.
    pub(crate) lifecycle: Option<AgentLifecycle>,
    /// What a run of it may cost: micro, small, medium, large or flagship.
    pub(crate) cost_class: Option<AgentCostClass>,
}

impl InvocationEntry {
    /// What is wrong with it, in words.
    pub(crate) fn check(&self) -> Result<(), String> {
        let mut seen = BTreeSet::new();
        for agent in &self.agents {
            if !may_be_registered(&agent.agent_id) {
                return Err(format!("the agent `{}` does not ship with this version", agent.agent_id));
            }
            if !seen.insert(&agent.agent_id) {
                return Err(format!("the agent `{}` stands twice", agent.agent_id));
            }
        }
        Ok(())
    }

    fn rules(&self) -> TenantRules {
        let rule = |agent: &AgentEntry| AgentRule { lifecycle: agent.lifecycle, cost_class: agent.cost_class };
        TenantRules {
            sources: self.sources.clone(),
            tones: self.tones.clone(),
            personas: self.personas.clone(),
            modes: self.modes.clone(),
            consent_scopes: self.consent_scopes.clone(),
            agents: self.agents.iter().map(|agent| (agent.agent_id.clone(), rule(agent))).collect(),
            tone_block: self.tone_block.clone(),
            tone_warn: self.tone_warn.clone(),
        }
    }
}

/// The policies in a file that was checked: each tenant has one entry.
pub(crate) fn policies(entries: &[InvocationEntry]) -> InvocationPolicies {
    InvocationPolicies { tenants: entries.iter().map(|entry| (entry.tenant_id.clone(), entry.rules())).collect() }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    fn refused(entry: &str) -> String {
        Config::parse(&format!("[[invocations]]\ntenantId = \"acme\"\n{entry}")).unwrap_err()
    }

    #[test]
    fn what_a_tenant_allows_is_read_strictly() {
        let text = "[[invocations]]\ntenantId = \"acme\"\nmodes = [\"fast\"]\nconsentScopes = [\"user.private\"]\n\
            agents = [{ agentId = \"ref.drafting\", lifecycle = \"retired\", costClass = \"micro\" }]";
        let config = Config::parse(text).unwrap();
        let policies = super::policies(&config.invocations);
        let rules = policies.tenants.values().next().unwrap();
        assert_eq!(rules.modes.as_ref().map(|modes| modes.len()), Some(1));
        assert_eq!((rules.consent_scopes.len(), rules.agents.len()), (1, 1));
        assert!(rules.sources.is_none() && rules.tone_block.is_empty());
    }

    #[test]
    fn every_wrong_word_of_an_entry_is_refused_with_its_place() {
        for (entry, word) in [
            ("modes = [\"slow\"]", "slow"),
            ("consentScopes = [\"user.secret\"]", "user.secret"),
            ("agents = [{ agentId = \"ref.drafting\", lifecycle = \"asleep\" }]", "asleep"),
            ("agents = [{ agentId = \"ref.drafting\", costClass = \"huge\" }]", "huge"),
            ("agents = [{ agentId = \"ref.nobody\" }]", "ref.nobody"),
            ("agents = [{ agentId = \"ref.drafting\" }, { agentId = \"ref.drafting\" }]", "twice"),
            ("tone = \"warm\"", "tone"),
            ("[[invocations]]\ntenantId = \"acme\"", "acme"),
        ] {
            let problem = refused(entry);
            assert!(problem.contains(word) || problem.contains("invocations"), "{entry}: {problem}");
        }
    }
}
