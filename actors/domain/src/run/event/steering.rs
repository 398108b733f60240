//! People and the run: questions and their answers, controls and what they do.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::StoredValue;
use crate::identity::Role;
use crate::ids::{ActorId, AgentId, ApprovalId, BranchId, CallId, RunId, StepId, ToolId};
use crate::run::approvers::Approvers;
use crate::run::plan::ApprovalRequirement;
use crate::run::status::RunStatus;
use crate::time::UnixMs;

/// A question to a person.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalRequested {
    /// Names the question.
    pub approval_id: ApprovalId,
    /// The step that waits.
    pub step_id: StepId,
    /// Who may answer.
    pub requirement: ApprovalRequirement,
    /// Who of those may; all of them if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approvers: Option<Approvers>,
    /// The question.
    pub prompt: String,
    /// `gate` for an approval step, `unknown-call-outcome` for a call whose outcome nobody knows.
    pub reason: ApprovalReason,
    /// The call in question, for `unknown-call-outcome`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<CallId>,
    /// What is shown beside the question, redacted.
    pub subject: StoredValue,
    /// SHA-256 of the canonical subject: the decision holds for exactly this.
    pub subject_digest: String,
    /// The calls that a yes lets through, each once and exactly as it is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<GuardedAction>,
    /// When.
    pub requested_at_unix_ms: UnixMs,
    /// When a reminder is recorded.
    pub remind_at_unix_ms: UnixMs,
    /// When silence becomes a no.
    pub expires_at_unix_ms: UnixMs,
}

/// A call that waits for a yes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct GuardedAction {
    /// The step that makes it.
    pub step_id: StepId,
    /// Under whose authority.
    pub agent_id: AgentId,
    /// With which tool.
    pub tool_id: ToolId,
    /// Digest of the bound, unredacted arguments.
    pub args_hash: String,
}

/// Why somebody is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ApprovalReason {
    /// The plan has a gate here.
    Gate,
    /// A call's outcome is not known (RUN-026).
    UnknownCallOutcome,
}

/// An answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ApprovalDecision {
    /// Yes. For an unknown outcome: dispatch the call anew.
    Approve,
    /// No. For an unknown outcome: the step failed.
    Reject,
    /// For an unknown outcome only: take the step as done without a result.
    Skip,
}

/// A control and what it did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ControlApplied {
    /// The typed record of CTL-018.
    pub audit: RunControlAuditEvent,
    /// What follows for the run.
    pub effect: ControlEffect,
}

/// Who steered a run, how and why (CTL-018).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunControlAuditEvent {
    /// Names this record.
    pub audit_event_id: String,
    /// Which control.
    pub kind: ControlKind,
    /// The run.
    pub run_id: RunId,
    /// Who.
    pub actor_id: ActorId,
    /// In which standing.
    pub role: Role,
    /// When.
    pub at_unix_ms: UnixMs,
    /// Status before.
    pub from_status: RunStatus,
    /// Status after.
    pub to_status: RunStatus,
    /// Why, redacted.
    pub reason_text: String,
    /// SHA-256 of the canonical command.
    pub command_hash: String,
}

/// The eight controls (CTL-017).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ControlKind {
    /// Hold the run.
    Pause,
    /// Let it go on.
    Resume,
    /// Stop it, deliberately.
    Cancel,
    /// Stop it, by governance.
    Kill,
    /// Choose a branch.
    BranchChosen,
    /// Clone it.
    Fork,
    /// Rewind it and go on with changes.
    RetryWithChanges,
    /// Let exactly one step of a paused run go.
    OperatorStep,
}

/// What a control does to a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "effect", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum ControlEffect {
    /// The run is held.
    Paused {
        /// By whom or what.
        cause: PauseCause,
    },
    /// The run goes on.
    Resumed,
    /// The run ends; the end itself is the event that follows.
    Ended,
    /// A branch is chosen.
    BranchChosen {
        /// The branch step.
        step_id: StepId,
        /// The branch.
        branch_id: BranchId,
    },
    /// This run is a fork.
    Forked,
    /// The step and all that depend on it are to be done again.
    Rewound {
        /// The first step to do again.
        step_id: StepId,
        /// Arguments replaced for steps to come.
        overrides: Overrides,
    },
    /// The step may go although the run is paused.
    StepPermitted {
        /// The step.
        step_id: StepId,
    },
}

/// What `retryWithChanges` may change (CTL-012).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Overrides {
    /// New arguments by step id.
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub params: std::collections::BTreeMap<StepId, Value>,
    /// Use the fallback model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_binding: Option<String>,
    /// A tighter mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// The branch to take at the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<BranchId>,
}

/// Why a run is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PauseCause {
    /// An operator or caller asked for it.
    Operator,
    /// A budget with `onExceeded: pause` (BUD-011).
    Quota,
    /// Nothing but throttled steps is left to do (ADM-018).
    Throttle,
}
