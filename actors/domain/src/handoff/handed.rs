//! What a sub-run was handed, kept in its first event: nothing of it is ever read off a request (HND-016).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::catalog::Effect;
use crate::handoff::dispatch::{Authority, CapabilityModifiers, DEFAULT_DEPTH_CAP, DEFAULT_FANOUT_DEGREE};
use crate::handoff::{AttributionChain, ChainLink, derive_attribution_chain};
use crate::ids::{AgentId, RunId, RunKey, StepId, ToolId};
use crate::quantity::{Micros, Usage};
use crate::registry::family_meta;
use crate::run::envelope::RunEnvelope;
use crate::run::plan::{Plan, Step, StepKind};
use crate::run::status::RunStatus;
use crate::time::UnixMs;

/// The deepest chain that may be asked for at a root.
pub const DEPTH_CAP_MAX: u32 = 16;

/// What a root says of all hand-offs below it (HND-003, HND-004).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HandoffRules {
    /// An agent may be entered again below itself.
    #[serde(default)]
    pub allow_cycle: bool,
    /// How deep hand-offs may go; the root is at depth 0.
    #[serde(default = "depth_cap_default")]
    pub depth_cap: u32,
}

const fn depth_cap_default() -> u32 {
    DEFAULT_DEPTH_CAP
}

impl Default for HandoffRules {
    fn default() -> Self {
        Self { allow_cycle: false, depth_cap: DEFAULT_DEPTH_CAP }
    }
}

/// What of the parent's authority goes to the sub-run. What is left out: the tools that its plan names, the parent's own
/// fan-out and limits. What is given is the whole of it, and an empty list means none.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Delegation {
    /// The tools it may use and hand on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_ids: Option<BTreeSet<ToolId>>,
    /// Most live children at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_fanout_degree: Option<u32>,
    /// Further limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capability_modifiers: Option<CapabilityModifiers>,
}

/// Whose child a sub-run is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ParentLink {
    /// The parent's internal key.
    pub run_key: RunKey,
    /// The parent's step that waits for it.
    pub step_id: StepId,
}

/// What a sub-run was handed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct HandedOff {
    /// Whom its end is reported to; nobody for the fork of a sub-run, which keeps the bounds and is nobody's child.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<ParentLink>,
    /// The runs above it, the root first.
    pub ancestors: Vec<RunId>,
    /// The agents from the root to its own.
    pub chain: Vec<ChainLink>,
    /// Deepest hand-off of the chain.
    pub depth_cap: u32,
    /// What was delegated to it.
    pub authority: Authority,
    /// What it may spend.
    pub sub_budget: Micros,
}

/// One hand-off of a run, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct HandoffRecord {
    /// The step that waits.
    pub step_id: StepId,
    /// To whom.
    pub agent_id: AgentId,
    /// The sub-run.
    pub child_run_id: RunId,
    /// Its internal key.
    pub child_run_key: RunKey,
    /// What was taken from the parent's ledger for it, by category.
    pub given: Usage,
    /// When.
    pub dispatched_at_unix_ms: UnixMs,
    /// How it ended; absent while it is alive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<RunStatus>,
    /// What it used; absent while it is alive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<Usage>,
}

impl HandoffRecord {
    /// True until the sub-run's end is reconciled.
    pub const fn is_live(&self) -> bool {
        self.status.is_none()
    }
}

impl RunEnvelope {
    /// Sub-runs whose end has not been reconciled.
    pub fn live_handoffs(&self) -> impl Iterator<Item = &HandoffRecord> {
        self.handoffs.iter().filter(|record| record.is_live())
    }

    /// The agents from the root to this run's own.
    pub fn chain(&self) -> Vec<ChainLink> {
        match &self.handed_off {
            Some(handed) => handed.chain.clone(),
            None => {
                let allow_cycle = self.handoff_rules.is_some_and(|rules| rules.allow_cycle);
                vec![ChainLink { agent_id: self.root_agent_id.clone(), allow_cycle }]
            }
        }
    }

    /// Who makes what this step makes (HND-014).
    pub fn attribution_of(&self, step: &Step) -> AttributionChain {
        let mut chain = self.chain();
        if let Some(agent_id) = step.agent_id.as_ref().filter(|agent| **agent != self.root_agent_id) {
            chain.push(ChainLink { agent_id: agent_id.clone(), allow_cycle: false });
        }
        derive_attribution_chain(&chain)
    }

    /// The deepest hand-off of the chain.
    pub fn depth_cap(&self) -> u32 {
        match &self.handed_off {
            Some(handed) => handed.depth_cap,
            None => self.handoff_rules.unwrap_or_default().depth_cap,
        }
    }

    /// What the run may hand on: what was delegated to it; of a root, every tool that its lead agent may use (HND-016).
    pub fn authority(&self) -> Authority {
        match &self.handed_off {
            Some(handed) => handed.authority.clone(),
            None => Authority {
                tool_ids: self.tools_of(&self.root_agent_id),
                max_fanout_degree: DEFAULT_FANOUT_DEGREE,
                capability_modifiers: CapabilityModifiers::default(),
            },
        }
    }

    /// The tools an agent of the run may use: those it declares inside its family's ceiling.
    fn tools_of(&self, agent: &AgentId) -> BTreeSet<ToolId> {
        if let Some(pinned) = self.agents.get(agent) {
            return pinned.tools.clone();
        }
        let ceiling = self.agents.family_of(agent).and_then(family_meta).map(|meta| meta.tool_grant_ceiling);
        ceiling.into_iter().flatten().filter_map(|tool| ToolId::new(*tool).ok()).collect()
    }

    /// Why what was delegated to the run does not let it call this tool, as code and words; `None` if it does.
    pub fn not_delegated(&self, tool: &ToolId) -> Option<(&'static str, String)> {
        let authority = &self.handed_off.as_ref()?.authority;
        if !authority.tool_ids.contains(tool) {
            let why =
                format!("`{tool}` was not delegated to this sub-run; name it in the hand-off's `delegate.toolIds`");
            return Some(("tool-not-delegated", why));
        }
        let limits = &authority.capability_modifiers;
        let acts = crate::catalog::entry(tool).is_none_or(|entry| entry.effect != Effect::Read);
        if limits.read_only && acts {
            let why = format!("this sub-run may change nothing, and `{tool}` may; hand off without `readOnly`");
            return Some(("delegated-read-only", why));
        }
        let made = self.tool_calls.iter().filter(|call| call.grant_id.is_some()).count() as u64;
        match limits.max_calls {
            Some(max) if made >= max => {
                let why = format!("this sub-run may make {max} calls, and all are made; hand off with more `maxCalls`");
                Some(("delegated-calls-used-up", why))
            }
            Some(_) | None => None,
        }
    }
}

impl Plan {
    /// Every step of the plan and of the plans its hand-offs carry, in order.
    pub fn all_steps(&self) -> Vec<&Step> {
        let mut all = Vec::new();
        let mut plans = vec![self];
        while let Some(plan) = plans.pop() {
            for step in &plan.steps {
                all.push(step);
                if let StepKind::Agent(handoff) = &step.kind {
                    plans.push(&handoff.plan);
                }
            }
        }
        all
    }
}
