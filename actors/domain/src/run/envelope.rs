//! The envelope: the durable, operator-visible form of a run, and nothing but the fold of its journal (RUN-001, I9).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::catalog::Recovery;
use crate::feedback::routing::{self, Routing};
use crate::governance::budget::MeteredBudget;
use crate::governance::grant::Grant;
use crate::handoff::AttributionChain;
use crate::handoff::handed::{HandedOff, HandoffRecord, HandoffRules};
use crate::identity::Actor;
use crate::ids::{
    AgentId, ApprovalId, CallId, GrantId, PipelineId, RunId, RunKey, SecretId, StageId, StepId, TenantId, ToolId,
};
use crate::invocation::StoredInvocation;
use crate::mode::{ModeBounds, ModeCompliance};
use crate::quantity::{Micros, Usage};
use crate::registry::PinnedAgents;
use crate::run::approvers::Approvers;
use crate::run::event::{
    ApprovalDecision, ApprovalReason, ArtifactRef, CallError, CallOutcome, DecisionLabel, Evidence, GuardedAction,
    PauseCause, Reservation, RunFinished, RunOutputBundle, StoredValue,
};
use crate::run::ledger::RunCostLedger;
use crate::run::model_step::Conversation;
use crate::run::plan::{ApprovalRequirement, Plan};
use crate::run::sealed::SealedPlan;
use crate::run::status::RunStatus;
use crate::run::step::StepState;
use crate::time::{UnixMicros, UnixMs};

/// Bump when `evolve` changes what it makes of the same events: snapshots of another version are thrown away.
pub const FOLD_VERSION: u32 = 4;

/// A run as it stands after some event of its journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RunEnvelope {
    /// The internal key.
    pub run_key: RunKey,
    /// The public id.
    pub run_id: RunId,
    /// The tenant.
    pub tenant_id: TenantId,
    /// The lead agent.
    pub root_agent_id: AgentId,
    /// Its version.
    pub root_agent_semver: String,
    /// The versions of its agents that are not as they ship.
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
    /// The pipeline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline_id: Option<PipelineId>,
    /// Its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline_semver: Option<String>,
    /// Where it was triggered.
    pub surface: String,
    /// Cost-quality mode.
    pub mode: String,
    /// What whoever triggered it declared, as far as it is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invocation: Option<StoredInvocation>,
    /// What holds of its mode where that was tightened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode_bounds: Option<ModeBounds>,
    /// Who submitted it.
    pub submitted_by: Actor,
    /// Scopes of that credential.
    pub scopes: Vec<String>,
    /// Digest of the submission.
    pub submission_hash: String,
    /// Carried through the hand-off chain.
    pub provenance_bundle_id: String,
    /// When it was submitted.
    pub submitted_at: UnixMicros,
    /// Where it stands.
    pub status: RunStatus,
    /// True once a node has taken it up.
    pub started: bool,
    /// True once a step has begun.
    pub begun: bool,
    /// Why it is held, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Hold>,
    /// The step an operator let go although the run is held (CTL-013).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permitted_step: Option<StepId>,
    /// The plan; steps keep this order.
    pub plan: Arc<Plan>,
    /// What bindings read under `/inputs`, redacted.
    pub inputs: Arc<Value>,
    /// Where the unredacted form of plan and inputs lies, if redaction changed them.
    #[serde(default, skip_serializing_if = "SealedPlan::is_empty")]
    pub sealed: SealedPlan,
    /// One state for each step of the plan, in its order.
    pub steps: Vec<StepState>,
    /// How often each step was begun anew; names its next call.
    pub step_attempts: BTreeMap<StepId, u64>,
    /// The loops of its model steps that have begun.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub models: BTreeMap<StepId, Conversation>,
    /// Every attempt at a call, in order (RUN-011). Shared between copies of the envelope: what is settled stays as it is.
    pub tool_calls: Vec<Arc<RunToolCallRecord>>,
    /// Every question that was asked.
    pub approvals: Vec<ApprovalRecord>,
    /// Checkpoints (RUN-014).
    pub intermediate_artifacts: Vec<Checkpoint>,
    /// Evidence by stage (RUN-015).
    pub evidence_trail: Vec<StageEvidence>,
    /// Decisions by stage (RUN-017).
    pub decision_rationale: Vec<Decision>,
    /// What the run gives (RUN-019).
    pub outputs: Vec<RunOutputBundle>,
    /// What it cost (LED).
    pub cost_ledger: RunCostLedger,
    /// What its simulated calls would have cost at most; only rehearsals have one (MOD-007).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulated_ledger: Option<RunCostLedger>,
    /// How it stands to its mode, once it is over (MOD-008).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compliance: Option<ModeCompliance>,
    /// How long it has waited for people, in microseconds.
    #[serde(default)]
    pub waited_micros: i64,
    /// Grants minted for this run.
    pub grants: Vec<Grant>,
    /// Budgets of this run alone, with meters folded from the journal.
    pub run_budgets: Vec<MeteredBudget>,
    /// Calls made under each grant, for `maxCalls`.
    pub grant_uses: BTreeMap<GrantId, u64>,
    /// True once a budget came near its limit or went beyond it, or a tool used more than it had reserved (DSH-005).
    #[serde(default)]
    pub has_warnings: bool,
    /// What holds of all hand-offs below, if it is a root that says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handoff_rules: Option<HandoffRules>,
    /// What it was handed, if it is a sub-run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handed_off: Option<Box<HandedOff>>,
    /// The agents from the root to its own, if it is a sub-run (HND-014).
    #[serde(default, skip_serializing_if = "AttributionChain::is_empty")]
    pub attribution_chain: AttributionChain,
    /// Its hand-offs, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub handoffs: Vec<HandoffRecord>,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<RunFinished>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<UnixMicros>,
    /// True once the last open call is settled.
    pub closed: bool,
    /// The last event folded in.
    pub last_seq: u64,
    /// Its instant.
    pub last_at: UnixMicros,
}

impl RunEnvelope {
    /// True if it works unseen beside another run (FBK-009).
    pub fn is_shadow(&self) -> bool {
        routing::is_shadow(self.routing.as_ref())
    }
}

/// Why and since when a run is held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Hold {
    /// Why.
    pub cause: PauseCause,
    /// The status when it was paused.
    pub paused_from_status: RunStatus,
}

/// One attempt at a call (RUN-011, ADM-014, ADM-015).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RunToolCallRecord {
    /// The call.
    pub call_id: CallId,
    /// Its step.
    pub step_id: StepId,
    /// Its stage.
    pub stage_id: StageId,
    /// The agent whose authority it used.
    pub agent_id: AgentId,
    /// The tool.
    pub tool_id: ToolId,
    /// Its version.
    pub tool_semver: String,
    /// Digest of the unredacted arguments.
    pub args_hash: String,
    /// The arguments after redaction.
    pub redacted_args: StoredValue,
    /// The secrets it was given, by JSON Pointer into its arguments.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, SecretId>,
    /// How it stands.
    pub outcome: CallOutcome,
    /// What it cost.
    pub cost_units: Micros,
    /// Names its scope check.
    pub scope_check_result_id: String,
    /// Names the journal entry that admitted or refused it.
    pub audit_event_id: String,
    /// Names its capability checks.
    pub capability_audit_ids: Vec<String>,
    /// The grant that allowed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant_id: Option<GrantId>,
    /// From 1.
    pub attempt: u32,
    /// What happens when its outcome is not known.
    pub recovery: Recovery,
    /// What was reserved.
    pub reservations: Vec<Reservation>,
    /// The most it could use.
    pub estimated_usage: Usage,
    /// What it was charged.
    pub charged: Usage,
    /// What it gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<StoredValue>,
    /// What went wrong, or why it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<CallError>,
    /// Grounding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
    /// What it changed outside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<String>,
    /// What it left behind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<ArtifactRef>,
    /// When it was admitted or refused.
    pub requested_at_unix_ms: UnixMs,
    /// How long the executor may take.
    pub timeout_ms: u64,
    /// How long it took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<u64>,
    /// A rehearsal has answered it by a stand-in.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub simulated: bool,
    /// True until it is settled: its reservation is held.
    pub open: bool,
}

/// One question and its answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ApprovalRecord {
    /// The question.
    pub approval_id: ApprovalId,
    /// The step that waits.
    pub step_id: StepId,
    /// Who may answer.
    pub requirement: ApprovalRequirement,
    /// Who of those may; all of them if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approvers: Option<Approvers>,
    /// In words.
    pub prompt: String,
    /// Why it is asked.
    pub reason: ApprovalReason,
    /// The call in question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<CallId>,
    /// What is shown beside the question.
    pub subject: StoredValue,
    /// The decision holds for exactly this.
    pub subject_digest: String,
    /// The calls that a yes lets through, each once and exactly as it is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<GuardedAction>,
    /// When it was asked.
    pub requested_at_unix_ms: UnixMs,
    /// When a reminder is due.
    pub remind_at_unix_ms: UnixMs,
    /// True once reminded.
    pub reminded: bool,
    /// When silence becomes a no.
    pub expires_at_unix_ms: UnixMs,
    /// The answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<ApprovalDecision>,
    /// Who answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<Actor>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision_reason: Option<String>,
    /// True if nobody answered in time, or the run ended first.
    pub lapsed: bool,
}

/// What a finished step left behind: steps to come need not do it again (RUN-014).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Checkpoint {
    /// The step.
    pub step_id: StepId,
    /// Its stage.
    pub stage_id: StageId,
    /// What and where it is.
    #[serde(flatten)]
    pub artifact: ArtifactRef,
    /// The agents from the root to the one that made it, where there is more than one (HND-014).
    #[serde(default, skip_serializing_if = "AttributionChain::is_empty")]
    pub attribution: AttributionChain,
}

/// Evidence of a stage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct StageEvidence {
    /// The step that gave it.
    pub step_id: StepId,
    /// Its stage.
    pub stage_id: StageId,
    /// The evidence.
    #[serde(flatten)]
    pub evidence: Evidence,
}

/// A decision with its reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema), schemars(rename = "Rationale"))]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    /// The stage.
    pub stage_id: StageId,
    /// What was decided.
    pub decision_label: DecisionLabel,
    /// Why.
    pub text: String,
}
