//! What happened to a run. A stored event is a promise: variants and fields are added, never changed.
//!
//! Bodies are stored as the exact bytes that were hashed. The kind is the serde tag, the body its content.

mod call;
mod ending;
mod handoff;
mod steering;
mod tagged;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::feedback::routing::Routing;
use crate::governance::budget::Budget;
use crate::governance::grant::Grant;
use crate::handoff::handed::{HandedOff, HandoffRules};
use crate::identity::{Actor, Visibility};
use crate::ids::{AgentId, ApprovalId, BucketId, CallId, PipelineId, RunId, RunKey, StepId, TenantId};
use crate::invocation::StoredInvocation;
use crate::mode::ModeBounds;
use crate::registry::PinnedAgents;
use crate::run::model_step::{ModelAnswered, ModelAsked};
use crate::run::plan::{BranchOption, Plan};
use crate::run::sealed::SealedPlan;
use crate::time::UnixMs;

pub use call::{
    ArtifactRef, BudgetWarning, CallError, CallOutcome, CallPending, CallRefused, CallSettled, Evidence,
    GroundingState, LateEvidence, Reservation,
};
pub use ending::{DecisionLabel, GovernanceAudited, OutputKind, RunFinished, RunOutputBundle};
pub use handoff::{HandoffDenied, HandoffDispatched, HandoffReconciled, Made};
pub use steering::{
    ApprovalDecision, ApprovalReason, ApprovalRequested, ControlApplied, ControlEffect, ControlKind, GuardedAction,
    Overrides, PauseCause, RunControlAuditEvent,
};

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
    /// A sub-run was begun; what it may spend is taken from this run (HND-011).
    HandoffDispatched(Box<HandoffDispatched>),
    /// A hand-off was refused (HND-009).
    HandoffDenied(Box<HandoffDenied>),
    /// The end of a sub-run, once (HND-012, HND-013).
    HandoffReconciled(Box<HandoffReconciled>),
    /// A model step begins its first turn.
    ModelBegan {
        /// The step.
        step_id: StepId,
        /// The number of the turn: not 1 if the step was begun before.
        first_turn: u32,
    },
    /// A model is asked: just before the call of the turn is admitted, in the same append.
    ModelAsked(Box<ModelAsked>),
    /// A model has answered: what it proposes becomes calls, is refused, or is the end of its step.
    ModelAnswered(Box<ModelAnswered>),
    /// A model step asks its other model from now on (REG-043).
    ModelFellBack {
        /// The step.
        step_id: StepId,
        /// The turn that is asked of the other model, or that has failed.
        turn: u32,
        /// Why.
        reason: String,
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
        tagged::split(serde_json::to_vec(self).unwrap_or_default())
    }

    /// The event a stored row holds; `None` if its kind or body is unknown to this version.
    pub fn decode(kind: &str, body: &[u8]) -> Option<Self> {
        tagged::join(kind, body).ok()
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
            | Self::HandoffDispatched(_)
            | Self::HandoffDenied(_)
            | Self::HandoffReconciled(_)
            | Self::ModelAsked(_)
            | Self::ModelAnswered(_)
            | Self::ModelFellBack { .. }
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
            | Self::ModelBegan { .. }
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
    /// The versions of its agents that are not as they ship (REG-038).
    #[serde(default, skip_serializing_if = "PinnedAgents::is_empty")]
    pub agents: PinnedAgents,
    /// Why it is that version, if a rollout has chosen it (FBK-008).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routing: Option<Routing>,
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
    /// What whoever triggered it declared, as far as it is kept (INV-004).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invocation: Option<StoredInvocation>,
    /// What holds of its mode, tightened where that was asked for; as the mode has it if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode_bounds: Option<ModeBounds>,
    /// The plan.
    pub plan: Plan,
    /// What the plan's bindings can read under `/inputs`.
    pub inputs: Value,
    /// Where the raw form of what redaction changed in plan and inputs lies.
    #[serde(default, skip_serializing_if = "SealedPlan::is_empty")]
    pub sealed: SealedPlan,
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
    /// What holds of all hand-offs below, if the root says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handoff_rules: Option<HandoffRules>,
    /// What it was handed, if it is a sub-run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handed_off: Option<Box<HandedOff>>,
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
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
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
