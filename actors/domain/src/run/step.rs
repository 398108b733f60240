//! The state of one step of a run, and the results of calls as they come in.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::{ApprovalId, BranchId, CallId, RunId};
use crate::quantity::Usage;
use crate::run::event::{ArtifactRef, Evidence, StoredValue};
use crate::time::UnixMs;

/// Where a step stands. Whether a pending step is ready follows from the steps it depends on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(tag = "state", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum StepState {
    /// Not begun.
    Pending,
    /// A call is open.
    InFlight {
        /// The call.
        call_id: CallId,
    },
    /// A sub-run works on it.
    HandedOff {
        /// The sub-run.
        child_run_id: RunId,
    },
    /// Waiting for its turn at a token bucket.
    Throttled {
        /// When it asks again.
        until_unix_ms: UnixMs,
    },
    /// Waiting for a decision.
    AwaitingApproval {
        /// The question.
        approval_id: ApprovalId,
    },
    /// Waiting for a choice.
    AwaitingBranch,
    /// Waiting for time to pass.
    Waiting {
        /// Until when.
        due_at_unix_ms: UnixMs,
    },
    /// A model step whose turns go on.
    Conversing,
    /// Over, well.
    Done {
        /// What it gave; shared between copies of the envelope.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<Arc<StoredValue>>,
        /// The branch chosen, for branch steps.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        branch_id: Option<BranchId>,
    },
    /// Left out, and that is no failure.
    Skipped {
        /// Why.
        reason: String,
        /// True if it lies on a branch that was not chosen.
        #[serde(default)]
        branch_not_taken: bool,
    },
    /// Over, badly.
    Failed {
        /// Stable code.
        code: String,
        /// In words.
        message: String,
    },
}

impl StepState {
    /// Done, skipped or failed.
    pub const fn is_over(&self) -> bool {
        matches!(self, Self::Done { .. } | Self::Skipped { .. } | Self::Failed { .. })
    }
}

/// What an executor (or the client in front of it) says about a call. Values are raw: `decide` redacts and prices them.
#[derive(Debug, Clone, PartialEq)]
pub struct CallResult {
    /// How it ended.
    pub ending: CallEnding,
    /// What it measured. Floats as the executor sent them: checked by the charge policy, not before.
    pub measured: Option<Vec<(crate::quantity::BudgetCategory, f64)>>,
    /// Wall time.
    pub latency_ms: u64,
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq)]
pub enum CallEnding {
    /// The tool answered.
    Answered {
        /// `true` if something is missing and the output says what.
        partial: bool,
        /// The output.
        output: Value,
        /// Grounding.
        evidence: Option<Evidence>,
        /// What it changed outside.
        effects: Vec<String>,
        /// What it left behind.
        artifacts: Vec<ArtifactRef>,
    },
    /// The tool failed.
    Failed {
        /// Stable code.
        code: String,
        /// In words.
        message: String,
    },
    /// The call was certainly never begun: refused stream, failed connect, or the executor says so.
    NotStarted {
        /// Stable code.
        code: String,
        /// In words.
        message: String,
    },
    /// Sent, and no answer: nobody knows.
    Unknown {
        /// In words.
        message: String,
    },
    /// It was cancelled on our demand and the executor confirmed it.
    Cancelled,
}

/// The charge of a call and what was wrong with its report.
#[derive(Debug, Clone, PartialEq)]
pub struct Charge {
    /// What is posted to ledger and meters.
    pub charged: Usage,
    /// What the executor measured, if it can be believed.
    pub measured: Option<Usage>,
    /// Usage reported beyond the ceiling, or nonsense.
    pub overshoot: Option<(Usage, String)>,
}
