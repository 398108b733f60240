//! Hand-offs: begun, refused, and reconciled at their end.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{ArtifactRef, StoredValue};
use crate::handoff::AttributionChain;
use crate::handoff::dispatch::{Authority, DispatchDenialReason};
use crate::ids::{AgentId, RunId, RunKey, StageId, StepId, ToolId};
use crate::quantity::{Micros, Usage};
use crate::run::ledger::RunCostLedger;
use crate::run::plan::ApprovalRequirement;
use crate::run::status::RunStatus;
use crate::time::UnixMs;

/// A sub-run was begun: its own first event is of the same transaction (HND-011).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HandoffDispatched {
    /// The step that waits for it.
    pub step_id: StepId,
    /// Its stage.
    pub stage_id: StageId,
    /// To whom.
    pub agent_id: AgentId,
    /// In which version.
    pub agent_semver: String,
    /// The sub-run.
    pub child_run_id: RunId,
    /// Its internal key.
    pub child_run_key: RunKey,
    /// The agents from the root to that one.
    pub attribution: AttributionChain,
    /// What was delegated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority: Option<Authority>,
    /// What was taken from this run's own budgets for it, by category.
    pub given: Usage,
    /// Who must agree before it works.
    pub requirement: ApprovalRequirement,
    /// When.
    pub dispatched_at_unix_ms: UnixMs,
}

/// A hand-off was refused (HND-009), with the figures it was decided on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HandoffDenied {
    /// The step.
    pub step_id: StepId,
    /// Its stage.
    pub stage_id: StageId,
    /// To whom.
    pub agent_id: AgentId,
    /// The first reason against it (HND-010).
    pub reason: DispatchDenialReason,
    /// In words, and what would be right.
    pub message: String,
    /// The agents from the root to this run's.
    pub chain: AttributionChain,
    /// The deepest hand-off of the chain.
    pub depth_cap: u32,
    /// Sub-runs that were alive.
    pub live_children: u32,
    /// How many may be.
    pub max_fanout_degree: u32,
    /// Tools that were asked for and not delegated to this run.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub tools_beyond: BTreeSet<ToolId>,
    /// What the sub-run was to have.
    pub sub_budget: Micros,
    /// What this run had left.
    pub remaining: Micros,
    /// How often the step was begun anew before.
    pub attempt: u64,
    /// When.
    pub at_unix_ms: UnixMs,
}

impl HandoffDenied {
    /// What was found, and what would be right.
    pub fn in_words(&self) -> String {
        let Self { chain, depth_cap, live_children, max_fanout_degree, sub_budget, remaining, message, .. } = self;
        let found = match self.reason {
            DispatchDenialReason::CycleDetected => format!("the chain is {chain}"),
            DispatchDenialReason::DepthCapExceeded => format!("the chain is {chain}, and the cap is {depth_cap}"),
            DispatchDenialReason::FanoutExceeded => {
                format!("{live_children} of {max_fanout_degree} sub-runs are alive")
            }
            DispatchDenialReason::AuthorityWideningRejected if self.tools_beyond.is_empty() => {
                "its fan-out or its limits are wider than the parent's".to_owned()
            }
            DispatchDenialReason::AuthorityWideningRejected => {
                let tools: Vec<&str> = self.tools_beyond.iter().map(ToolId::as_str).collect();
                format!("the parent was not given {}", tools.join(", "))
            }
            DispatchDenialReason::BudgetNonPositive | DispatchDenialReason::BudgetExceedsParent => {
                format!("it asks for {sub_budget}, and {remaining} is left")
            }
        };
        format!("{message} ({found})")
    }
}

/// The end of a sub-run, in its parent's books: once for each (HND-013).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HandoffReconciled {
    /// The step that waited.
    pub step_id: StepId,
    /// The sub-run.
    pub child_run_id: RunId,
    /// How it ended.
    pub status: RunStatus,
    /// Why, as a code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// In words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What it cost in all: added once to this run's ledger, under `handoff:<childRunId>` (LED-011).
    pub ledger: RunCostLedger,
    /// What its simulated calls would have cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulated: Option<RunCostLedger>,
    /// What of its sub-budget came back.
    pub returned: Micros,
    /// What it gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<StoredValue>,
    /// What it left behind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<Made>,
}

/// Something a sub-run left behind, with its provenance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Made {
    /// What and where it is.
    #[serde(flatten)]
    pub artifact: ArtifactRef,
    /// The agents from the root to the one that made it (HND-014).
    pub attribution: AttributionChain,
}
