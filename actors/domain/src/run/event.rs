//! What happened to a run. A stored event is a promise: variants and fields are added, never changed.
//!
//! Bodies are stored as the exact bytes that were hashed. The kind is the serde tag, the body its content.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::catalog::Recovery;
use crate::governance::budget::Budget;
use crate::governance::budget::MeterReading;
use crate::governance::gate::StageAnswer;
use crate::governance::grant::Grant;
use crate::identity::{Actor, Role, Visibility};
use crate::ids::{
    ActorId, AgentId, ApprovalId, BranchId, BucketId, BudgetId, CallId, GrantId, PipelineId, RunId, RunKey, StageId,
    StepId, SwitchId, TenantId, ToolId,
};
use crate::quantity::{Micros, Usage};
use crate::run::plan::{ApprovalRequirement, BranchOption, Plan};
use crate::run::status::RunStatus;
use crate::time::UnixMs;

/// The version every event of today is written with.
pub const EVENT_VERSION: u16 = 1;

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "body", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum RunEvent {
    /// The run was accepted. Always event 1.
    RunSubmitted(Box<RunSubmitted>),
    /// A node took the run up.
    RunStarted {},
    /// A call was admitted; its reservation is held. Durable before the executor hears of it (I2).
    CallPending(Box<CallPending>),
    /// A call ended and was charged. Exactly one for each pending call (I3).
    CallSettled(Box<CallSettled>),
    /// The gate refused a call for good (ADM-016).
    CallRefused(Box<CallRefused>),
    /// A pending call is handed out again under the same id.
    CallRedispatched {
        /// The call.
        call_id: CallId,
        /// From 1; this is the second or a later one.
        attempt: u32,
        /// When it was admitted again.
        requested_at_unix_ms: UnixMs,
    },
    /// A result that came after the call was settled: kept, changes nothing (KIL-010).
    LateEvidence(Box<LateEvidence>),
    /// A step waits for its turn at a token bucket.
    StepThrottled {
        /// The step.
        step_id: StepId,
        /// The bucket that was empty.
        bucket_id: BucketId,
        /// What the caller is told.
        retry_after_seconds: u64,
        /// When the step asks again.
        until_unix_ms: UnixMs,
    },
    /// A step will not run, and that is no failure.
    StepSkipped {
        /// The step.
        step_id: StepId,
        /// Why, as a label; absent for a branch not taken.
        label: Option<DecisionLabel>,
        /// Why, in words.
        reason: String,
        /// True if the step lies on a branch that was not chosen: steps behind it alone are skipped too.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        branch_not_taken: bool,
    },
    /// A step failed before any call was made for it.
    StepFailed {
        /// The step.
        step_id: StepId,
        /// Stable code.
        code: String,
        /// In words.
        message: String,
    },
    /// Somebody is asked.
    ApprovalRequested(Box<ApprovalRequested>),
    /// Half of the time to answer is over.
    ApprovalReminded {
        /// Which.
        approval_id: ApprovalId,
    },
    /// Somebody answered.
    ApprovalDecided {
        /// Which.
        approval_id: ApprovalId,
        /// Yes, no, or for an unknown outcome: what to do.
        decision: ApprovalDecision,
        /// Who.
        decided_by: Actor,
        /// Why, in their words, redacted.
        reason: String,
    },
    /// Nobody answered in time.
    ApprovalExpired {
        /// Which.
        approval_id: ApprovalId,
    },
    /// Somebody is asked to choose.
    BranchOffered {
        /// The branch step.
        step_id: StepId,
        /// The ways on.
        branches: Vec<BranchOption>,
    },
    /// A wait began.
    TimerSet {
        /// The wait step.
        step_id: StepId,
        /// When it is over.
        due_at_unix_ms: UnixMs,
    },
    /// A wait is over.
    TimerFired {
        /// The wait step.
        step_id: StepId,
    },
    /// An operator or caller steered the run (CTL).
    ControlApplied(Box<ControlApplied>),
    /// A budget or a switch stopped the run, or a tool used more than it had reserved (ADM-017, BUD-012).
    GovernanceAudited(Box<GovernanceAudited>),
    /// The run is over. Nothing changes its status again (I8).
    RunFinished(Box<RunFinished>),
    /// The last open call of a finished run is settled.
    RunClosed {},
}

impl RunEvent {
    /// Kind, body bytes: what is stored and hashed.
    pub fn encode(&self) -> (String, Vec<u8>) {
        // Serialising these types cannot fail: all map keys are strings and all floats are finite.
        let value = serde_json::to_value(self).unwrap_or(Value::Null);
        let kind = value.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        let body = value.get("body").cloned().unwrap_or_else(|| Value::Object(serde_json::Map::new()));
        (kind, body.to_string().into_bytes())
    }

    /// The event a stored row holds; `None` if its kind or body is unknown to this version.
    pub fn decode(kind: &str, body: &[u8]) -> Option<Self> {
        let body: Value = serde_json::from_slice(body).ok()?;
        serde_json::from_value(serde_json::json!({ "kind": kind, "body": body })).ok()
    }

    /// How internal this kind is unless something says otherwise (DSH-010).
    pub const fn visibility(&self) -> Visibility {
        match self {
            Self::CallPending(_)
            | Self::CallSettled(_)
            | Self::CallRefused(_)
            | Self::CallRedispatched { .. }
            | Self::LateEvidence(_)
            | Self::StepThrottled { .. }
            | Self::GovernanceAudited(_)
            | Self::RunClosed {} => Visibility::TenantOperator,
            Self::ControlApplied(control) => match control.effect {
                ControlEffect::Paused { .. }
                | ControlEffect::Resumed
                | ControlEffect::BranchChosen { .. }
                | ControlEffect::Rewound { .. } => Visibility::Customer,
                // Customers are told of the end by the end itself; the rest is between operators.
                ControlEffect::Ended | ControlEffect::Forked | ControlEffect::StepPermitted { .. } => {
                    Visibility::TenantOperator
                }
            },
            Self::RunSubmitted(_)
            | Self::RunStarted {}
            | Self::StepSkipped { .. }
            | Self::StepFailed { .. }
            | Self::ApprovalRequested(_)
            | Self::ApprovalReminded { .. }
            | Self::ApprovalDecided { .. }
            | Self::ApprovalExpired { .. }
            | Self::BranchOffered { .. }
            | Self::TimerSet { .. }
            | Self::TimerFired { .. }
            | Self::RunFinished(_) => Visibility::Customer,
        }
    }
}

/// What a run was started with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunSubmitted {
    /// The internal key.
    pub run_key: RunKey,
    /// The public id.
    pub run_id: RunId,
    /// From the credential.
    pub tenant_id: TenantId,
    /// The lead agent.
    pub root_agent_id: AgentId,
    /// Its version.
    pub root_agent_semver: String,
    /// The run this one was handed off from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_run_id: Option<RunId>,
    /// The run this one was forked from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from_run_id: Option<RunId>,
    /// The pipeline this run is an instance of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline_id: Option<PipelineId>,
    /// Its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline_semver: Option<String>,
    /// Where the run was triggered (INV-002).
    pub surface: String,
    /// Cost-quality mode (MOD).
    pub mode: String,
    /// Who submitted it.
    pub submitted_by: Actor,
    /// The scopes of the submitter's credential.
    pub scopes: Vec<String>,
    /// The plan.
    pub plan: Plan,
    /// What the plan's bindings can read under `/inputs`.
    pub inputs: Value,
    /// Grants minted for this run alone (EXE-014), or pre-approved by a broker (EXE-015).
    pub grants: Vec<Grant>,
    /// Budgets that hold for this run alone.
    pub budgets: Vec<Budget>,
    /// Carried through the whole hand-off chain.
    pub provenance_bundle_id: String,
    /// SHA-256 over the canonical submission: tells a repeat from another run under the same id (EXE-010).
    pub submission_hash: String,
    /// Outputs of finished steps taken over from the run this one was forked from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub carried_outputs: Vec<CarriedOutput>,
}

/// The output of a step that a fork took over (CTL-010).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CarriedOutput {
    /// The step.
    pub step_id: StepId,
    /// What it gave.
    pub output: StoredValue,
    /// The artifacts it left.
    pub artifacts: Vec<ArtifactRef>,
    /// The evidence it gave.
    pub evidence: Option<Evidence>,
}

/// A value in the journal: itself, or where it lies in the object store if it is big.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StoredValue {
    /// The value itself.
    Inline(Value),
    /// Canonical JSON bytes under their content hash.
    Blob {
        /// Lower-case hex SHA-256.
        sha256: String,
        /// Length in bytes.
        size: u64,
    },
}

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
    /// The governance epoch of the append; stamped by the store.
    #[serde(default)]
    pub epoch: u64,
    /// Consumed, reserved and limit of each meter after the reservation; stamped by the store.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub meters: Vec<MeterReading>,
}

/// An amount held on one meter for one call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Consumed, reserved and limit of each meter after settling; stamped by the store.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub meters: Vec<MeterReading>,
}

/// A failure of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallError {
    /// Stable code, such as `tool-timeout`.
    pub code: String,
    /// In words, redacted.
    pub message: String,
}

/// How a call stands (RUN-012).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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
    /// When.
    pub requested_at_unix_ms: UnixMs,
    /// When a reminder is recorded.
    pub remind_at_unix_ms: UnixMs,
    /// When silence becomes a no.
    pub expires_at_unix_ms: UnixMs,
}

/// Why somebody is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApprovalReason {
    /// The plan has a gate here.
    Gate,
    /// A call's outcome is not known (RUN-026).
    UnknownCallOutcome,
}

/// An answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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
#[serde(rename_all = "kebab-case")]
pub enum PauseCause {
    /// An operator or caller asked for it.
    Operator,
    /// A budget with `onExceeded: pause` (BUD-011).
    Quota,
    /// Nothing but throttled steps is left to do (ADM-018).
    Throttle,
}

/// Labels of decisions (RUN-017, RUN-018).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DecisionLabel {
    /// The plan was made anew.
    PlanReplanned,
    /// A gate said no.
    GateFailed,
    /// The stage had nothing to stand on.
    Abstained,
    /// A gate said yes.
    GatePassed,
    /// A branch was chosen.
    BranchChosen,
    /// The fallback model was used.
    ModelFallback,
    /// An optional tool was left out.
    ToolSkipped,
    /// Something was tried again.
    Retry,
    /// A degraded answer was given.
    Degraded,
    /// A sub-run was started.
    HandoffDispatched,
}

/// A stop or an overrun, for the audit trail.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "audit", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum GovernanceAudited {
    /// A switch matched.
    KillSwitch {
        /// Which.
        switch_id: SwitchId,
        /// Who armed it.
        armed_by: ActorId,
        /// When.
        armed_at_unix_ms: UnixMs,
        /// Why.
        reason: String,
    },
    /// A budget was exceeded.
    Budget {
        /// Which.
        budget_id: BudgetId,
        /// What the store read when it refused.
        readings: Vec<MeterReading>,
    },
    /// A tool reported more than it had reserved, or nonsense.
    Overshoot {
        /// The call.
        call_id: CallId,
        /// What it reported beyond its ceiling, per category; empty if the report was nonsense.
        beyond: Usage,
        /// In words.
        detail: String,
    },
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunFinished {
    /// One of the four terminal statuses.
    pub status: RunStatus,
    /// Stable code of the reason; absent for `completed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// In words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What the customer is shown (ADM-003).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_visible_status_copy: Option<String>,
    /// How to degrade gracefully (KIL-011).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub safe_degradation_mode_id: Option<String>,
    /// The switch or budget that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blamed_id: Option<String>,
    /// The step that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_id: Option<StepId>,
    /// What the run gives (RUN-019).
    pub outputs: Vec<RunOutputBundle>,
}

/// A set of artifacts the run gives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunOutputBundle {
    /// What kind of output.
    pub kind: OutputKind,
    /// The stage it comes from.
    pub stage_id: StageId,
    /// The artifacts.
    pub artifacts: Vec<ArtifactRef>,
}

/// Kinds of output bundles (RUN-019).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OutputKind {
    /// The result.
    Final,
    /// On the way.
    Intermediate,
    /// To look at.
    Preview,
    /// What there was when the run failed.
    PartialOnFailure,
}
