//! Which version of each agent a run uses, decided once when it is submitted and kept in its first event (REG-038).
//!
//! What is not kept is as it ships: a reference agent in its version of old needs no record. So journals from before there
//! were other agents read as ever, and a run in flight keeps what it was submitted with, whatever is published meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::book::{AgentRegistry, AgentViewer, latest};
use super::reference::built_in;
use super::{
    AgentCostClass, AgentEntry, AgentFamilyMeta, AgentLifecycle, AgentRegistryEntry, Invocable, ModelBinding,
    family_meta, invocable,
};
use crate::ids::{AgentId, ToolId};

/// What a run keeps of a version of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PinnedAgent {
    /// The version.
    pub agent_semver: String,
    /// Its family.
    pub family: String,
    /// Where it stood.
    pub lifecycle: AgentLifecycle,
    /// What a run of it may cost at most.
    pub cost_class: AgentCostClass,
    /// The tools it may use: those it declares inside its family's ceiling.
    pub tools: BTreeSet<ToolId>,
    /// The model it speaks through; absent in runs from before there were model steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_binding: Option<ModelBinding>,
}

impl PinnedAgent {
    /// What is kept of an entry.
    pub fn of(entry: &AgentRegistryEntry) -> Self {
        Self {
            agent_semver: entry.agent_semver.clone(),
            family: entry.family.clone(),
            lifecycle: entry.lifecycle,
            cost_class: entry.cost_class,
            tools: entry.tools(),
            model_binding: Some(entry.model_binding.clone()),
        }
    }

    /// What is known of its family.
    pub fn family_meta(&self) -> Option<&'static AgentFamilyMeta> {
        family_meta(&self.family)
    }
}

/// The agents of a run, as it was submitted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct PinnedAgents(BTreeMap<AgentId, PinnedAgent>);

impl PinnedAgents {
    /// Keeps a version, unless it is as it ships.
    pub fn pin(&mut self, entry: &AgentRegistryEntry) {
        if built_in(&entry.agent_id).is_none_or(|shipped| **shipped != *entry) {
            self.0.insert(entry.agent_id.clone(), PinnedAgent::of(entry));
        }
    }

    /// True if every agent is as it ships.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is kept of an agent that is not as it ships.
    pub fn get(&self, agent: &AgentId) -> Option<&PinnedAgent> {
        self.0.get(agent)
    }

    /// The family of an agent of the run; `None` for one that nobody knows.
    pub fn family_of(&self, agent: &AgentId) -> Option<&str> {
        match self.0.get(agent) {
            Some(pinned) => Some(&pinned.family),
            None => super::family_of(agent),
        }
    }

    /// Its version.
    pub fn semver_of(&self, agent: &AgentId) -> Option<&str> {
        match self.0.get(agent) {
            Some(pinned) => Some(&pinned.agent_semver),
            None => super::agent_semver(agent),
        }
    }

    /// Where it stands, and what a run of it may cost at most.
    pub fn standing_of(&self, agent: &AgentId) -> Option<(AgentLifecycle, AgentCostClass)> {
        match self.0.get(agent) {
            Some(pinned) => Some((pinned.lifecycle, pinned.cost_class)),
            None => built_in(agent).map(|shipped| (shipped.lifecycle, shipped.cost_class)),
        }
    }

    /// The model it speaks through (REG-042).
    pub fn model_of(&self, agent: &AgentId) -> Option<&ModelBinding> {
        match self.0.get(agent) {
            Some(pinned) => pinned.model_binding.as_ref(),
            None => built_in(agent).map(|shipped| &shipped.model_binding),
        }
    }

    /// True if the agent itself may use the tool; whether its family may, is asked apart from that.
    pub fn declares(&self, agent: &AgentId, tool: &ToolId) -> bool {
        match self.0.get(agent) {
            Some(pinned) => pinned.tools.contains(tool),
            // A reference agent declares all that its family may use.
            None => true,
        }
    }
}

/// The ways in which an agent of a run is reached, beside being named: a rehearsal, or a pipeline that has pinned it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ways {
    /// The run is in mode `rehearsal-dry-run`.
    pub rehearsal: bool,
    /// The run is an instance of a pipeline.
    pub pipeline: bool,
}

impl Ways {
    /// What the life cycle says of an agent in this state: the best of all ways.
    pub fn invocable(self, state: AgentLifecycle) -> Invocable {
        let mut best = invocable(state, AgentEntry::Direct);
        for (open, way) in [(self.rehearsal, AgentEntry::Rehearsal), (self.pipeline, AgentEntry::PinnedByPipeline)] {
            if open && best != Invocable::Yes && invocable(state, way) != Invocable::No {
                best = invocable(state, way);
            }
        }
        best
    }
}

impl AgentRegistry {
    /// The version that is meant: the one that is named, or else the version that a pipeline has pinned, the champion, the
    /// latest that may be invoked in one of these ways, or the latest at all, whose state then says why not. `None` if the
    /// viewer knows no such agent or version: a foreign tenant's is as absent as none (I11).
    pub fn resolve(
        &self,
        viewer: AgentViewer<'_>,
        agent: &AgentId,
        named: Option<&str>,
        ways: Ways,
    ) -> Option<&Arc<AgentRegistryEntry>> {
        let versions = self.for_tenant(viewer.tenant_id, agent);
        let shown = || versions.iter().filter(|entry| viewer.sees(entry));
        if let Some(semver) = named {
            return shown().find(|entry| entry.agent_semver == semver);
        }
        // The pipelines that ship were written for the agents that ship.
        let pinned = super::agent_semver(agent).filter(|_| ways.pipeline);
        let pinned = pinned.and_then(|semver| shown().find(|entry| entry.agent_semver == semver));
        let still = pinned.filter(|entry| ways.invocable(entry.lifecycle) != Invocable::No);
        still
            .or_else(|| shown().find(|entry| entry.lifecycle == AgentLifecycle::Champion))
            .or_else(|| latest(shown().filter(|entry| ways.invocable(entry.lifecycle) != Invocable::No)))
            .or_else(|| latest(shown()))
    }
}
