//! Calls: admitted, settled, refused, and what came too late.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::StoredValue;
use crate::catalog::Recovery;
use crate::governance::budget::MeterReading;
use crate::governance::gate::StageAnswer;
use crate::ids::{AgentId, BudgetId, CallId, GrantId, SecretId, StageId, StepId, ToolId};
use crate::quantity::{Micros, Usage};
use crate::time::UnixMs;

/// One call, as it was admitted (ADM-014).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallPending {
    /// Also the executor's idempotency key.
    pub call_id: CallId,
    /// The step it is made for.
    pub step_id: StepId,
    /// The step's stage.
    pub stage_id: StageId,
    /// The agent whose authority it uses.
    pub agent_id: AgentId,
    /// The tool.
    pub tool_id: ToolId,
    /// Its version.
    pub tool_semver: String,
    /// Lower-case hex SHA-256 of the canonical unredacted arguments (RUN-013).
    pub args_hash: String,
    /// The arguments after redaction.
    pub redacted_args: StoredValue,
    /// The secrets whose values are put in at the handles in the arguments, by JSON Pointer (CAP-013).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, SecretId>,
    /// The grant that allowed it.
    pub grant_id: GrantId,
    /// From 1.
    pub attempt: u32,
    /// What happens if the outcome is not known (RUN-026).
    pub recovery: Recovery,
    /// The most the call may use, per category: what is reserved.
    pub estimated_usage: Usage,
    /// One entry for each meter the reservation stands on.
    pub reservations: Vec<Reservation>,
    /// Names the scope check of this call.
    pub scope_check_result_id: String,
    /// Names the capability checks of this call: grant, secrets, isolation, both egress phases (CAP-008).
    pub capability_audit_ids: Vec<String>,
    /// Verdicts `warn` and `grace` that let the call go on (ADM-005).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub budget_warnings: Vec<BudgetWarning>,
    /// When it was admitted.
    pub requested_at_unix_ms: UnixMs,
    /// How long the executor may take.
    pub timeout_ms: u64,
    /// A rehearsal answers it by a stand-in: it is never handed out, holds nothing, and is settled in the same append.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub simulated: bool,
    /// What every stage of the gate answered, of a call that a stand-in answers: also what a real run would have been told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<StageAnswer>,
    /// The governance epoch of the append; stamped by the store.
    #[serde(default)]
    pub epoch: u64,
    /// Consumed, reserved and limit of each meter after the reservation; stamped by the store.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub meters: Vec<MeterReading>,
}

/// An amount held on one meter for one call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Reservation {
    /// The budget and its meter.
    pub budget_id: BudgetId,
    /// The category it is kept in.
    pub category: crate::quantity::BudgetCategory,
    /// How much.
    pub amount: Micros,
}

/// A budget that was near its limit when a call was admitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BudgetWarning {
    /// The budget.
    pub budget_id: BudgetId,
    /// `warn` or `grace`.
    pub verdict: String,
    /// When the grace is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_end_unix_seconds: Option<i64>,
}

/// How a call ended, and what it cost (ADM-015).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallSettled {
    /// The call.
    pub call_id: CallId,
    /// How it ended.
    pub outcome: CallOutcome,
    /// What the tool gave, after redaction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<StoredValue>,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<CallError>,
    /// What the executor measured; absent if it reported nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_usage: Option<Usage>,
    /// What is charged, by the charge policy (LED-008).
    pub charged: Usage,
    /// Grounding, if the tool gives any (RUN-015).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
    /// What the call changed outside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<String>,
    /// What the call left behind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<ArtifactRef>,
    /// Wall time of the call.
    pub latency_ms: u64,
    /// The answer is a stand-in, and what is charged is booked in the simulated ledger alone (MOD-007).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub simulated: bool,
    /// What the tone policy noted (INV-008).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tone_note: Option<String>,
    /// Consumed, reserved and limit of each meter after settling; stamped by the store.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub meters: Vec<MeterReading>,
}

/// A failure of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct CallError {
    /// Stable code, such as `tool-timeout`.
    pub code: String,
    /// In words, redacted.
    pub message: String,
}

/// How a call stands (RUN-012).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum CallOutcome {
    /// Admitted, not settled.
    Pending,
    /// Done.
    Ok,
    /// Done in part; the output says what is missing.
    Partial,
    /// Failed.
    Error,
    /// Refused by the gate.
    Denied,
    /// Waiting at a token bucket.
    Throttled,
    /// Waiting for the store or an executor.
    Held,
    /// Its run was killed or cancelled.
    Killed,
    /// Nobody knows whether it happened.
    Unknown,
}

impl CallOutcome {
    /// The wire string.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Ok => "ok",
            Self::Partial => "partial",
            Self::Error => "error",
            Self::Denied => "denied",
            Self::Throttled => "throttled",
            Self::Held => "held",
            Self::Killed => "killed",
            Self::Unknown => "unknown",
        }
    }
}

/// How well an output is backed by sources (RUN-015, RUN-016).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Evidence {
    /// Names the set of sources and quotes.
    pub evidence_pack_id: String,
    /// How well.
    pub grounding_state: GroundingState,
    /// How many quotes stand behind it.
    pub citation_count: u64,
}

/// How well an output is backed by sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum GroundingState {
    /// Each statement has a quote.
    Grounded,
    /// Some have none.
    PartiallyGrounded,
    /// None has.
    Ungrounded,
    /// Nothing needs one.
    NotRequired,
}

/// A file or value a call left behind; also a checkpoint (RUN-014).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ArtifactRef {
    /// Its name within the run.
    pub name: String,
    /// Where it is kept; used for resume.
    pub persisted_key: String,
    /// Media type.
    pub media_type: String,
    /// Lower-case hex SHA-256 of its bytes.
    pub sha256: String,
    /// Length in bytes.
    pub size: u64,
}

/// A call the gate refused for good.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallRefused {
    /// What the call would have been named.
    pub call_id: CallId,
    /// The step.
    pub step_id: StepId,
    /// Its stage.
    pub stage_id: StageId,
    /// The agent.
    pub agent_id: AgentId,
    /// The tool.
    pub tool_id: ToolId,
    /// As in [`CallPending`].
    pub args_hash: String,
    /// As in [`CallPending`].
    pub redacted_args: StoredValue,
    /// `denied` or `killed`.
    pub outcome: CallOutcome,
    /// The code of the stage that decided.
    pub code: String,
    /// In words: what stopped it and what to do next.
    pub message: String,
    /// What every stage of the gate answered (`explain` prints it).
    pub answers: Vec<StageAnswer>,
    /// What the charge policy takes for a refused call.
    pub charged: Usage,
    /// When.
    pub at_unix_ms: UnixMs,
}

/// A result that came too late to count.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LateEvidence {
    /// The call.
    pub call_id: CallId,
    /// How it says it ended.
    pub outcome: CallOutcome,
    /// What it gave, after redaction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<StoredValue>,
    /// What it says it used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_usage: Option<Usage>,
    /// Grounding, if it gives any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
    /// What it left behind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<ArtifactRef>,
}
