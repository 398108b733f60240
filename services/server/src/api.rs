//! What the edge needs of a node, as a trait: so that the edge can be tested without one, and can be served by another.

use std::collections::BTreeMap;
use std::fmt;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use signalbox_domain::identity::Actor;
use signalbox_domain::ids::{AgentId, ApprovalId, BranchId, CommandId, PipelineId, RunId, RunKey, StepId, TenantId};
use signalbox_domain::run::append::{CommandAnswer, OpenApproval};
use signalbox_domain::run::chain::StoredEvent;
use signalbox_domain::run::envelope::RunEnvelope;
use signalbox_domain::run::event::{ApprovalDecision, Overrides};
use signalbox_domain::run::status::RunStatus;
use signalbox_ports::directory::{RunFilter, RunRow};
use tokio::sync::mpsc;

/// Whoever calls, as the credential says and nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The tenant.
    pub tenant_id: TenantId,
    /// Who, and in which standing.
    pub actor: Actor,
    /// What the credential is good for.
    pub scopes: Vec<String>,
}

/// What kind of "no" an error is; each code belongs to one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorKind {
    /// The request makes no sense, now or ever.
    Invalid,
    /// There is no such thing, or it is somebody else's.
    NotFound,
    /// Something else was there first.
    Conflict,
    /// Not in this state.
    PreconditionFailed,
    /// Not with this credential.
    PermissionDenied,
    /// This installation lacks what is asked for.
    Unconfigured,
    /// Too much at once. Waiting helps.
    Overloaded,
    /// Something this node stands on is away. Waiting helps.
    Unavailable,
    /// A fault of ours.
    Internal,
}

/// A refusal or failure with its stable code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    kind: ErrorKind,
    code: String,
    message: String,
    details: BTreeMap<String, String>,
}

impl ApiError {
    /// An error without details.
    pub fn new(kind: ErrorKind, code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { kind, code: code.into(), message: message.into(), details: BTreeMap::new() }
    }
    /// The same with one more detail.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<String>) -> Self {
        self.details.insert(key.to_owned(), value.into());
        self
    }
    /// What kind of "no" it is.
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }
    /// Stable code.
    pub fn code(&self) -> &str {
        &self.code
    }
    /// Facts for machines.
    pub const fn details(&self) -> &BTreeMap<String, String> {
        &self.details
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ApiError {}

/// A run as somebody asks for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Submission {
    /// The lead agent.
    pub root_agent_id: AgentId,
    /// The plan, or its steps alone.
    pub plan: Value,
    /// What bindings read under `/inputs`.
    #[serde(default)]
    pub inputs: Value,
    /// Cost-quality mode.
    #[serde(default = "mode_default")]
    pub mode: String,
    /// The pipeline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline_id: Option<PipelineId>,
    /// Its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline_semver: Option<String>,
    /// Budgets of this run alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub budgets: Vec<Value>,
    /// Ignored from clients.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<Value>,
}

fn mode_default() -> String {
    "balanced".to_owned()
}

/// What steers a run.
#[derive(Debug, Clone, PartialEq)]
pub enum RunCommand {
    /// Hold it.
    Pause {
        /// Why.
        reason: String,
    },
    /// Let it go on.
    Resume {
        /// Why.
        reason: String,
    },
    /// Stop it, deliberately.
    Cancel {
        /// Why.
        reason: String,
    },
    /// Stop it, by governance.
    Kill {
        /// Why.
        reason: String,
    },
    /// Choose a branch.
    ChooseBranch {
        /// The branch step, if more than one waits.
        step_id: Option<StepId>,
        /// The branch.
        branch_id: BranchId,
    },
    /// Rewind it and go on with changes.
    RetryWithChanges {
        /// The first step to do again.
        step_id: StepId,
        /// What changes.
        overrides: Overrides,
    },
    /// Let one step of a paused run go.
    OperatorStep {
        /// The step.
        step_id: Option<StepId>,
    },
}

/// An accepted submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Submitted {
    /// The run.
    pub run_id: RunId,
    /// True if it had been submitted before with the same content.
    pub replayed: bool,
    /// Its status.
    pub status: RunStatus,
}

/// One item of a watch.
#[derive(Debug, Clone, PartialEq)]
pub enum WatchItem {
    /// An event of the journal.
    Event(StoredEvent),
    /// A line of a running call; never repeated.
    Progress {
        /// The step.
        step_id: StepId,
        /// In words.
        message: String,
        /// 0 to 100, if known.
        percent: Option<u8>,
    },
}

/// A node, as its edge sees it. Every method acts within the caller's tenant: a foreign id answers exactly as one that
/// does not exist (I11).
#[async_trait]
pub trait RunApi: Send + Sync + 'static {
    /// Accepts a run; durable when it returns.
    async fn submit(
        &self,
        caller: &Caller,
        run_id: Option<RunId>,
        submission: Submission,
    ) -> Result<Submitted, ApiError>;
    /// One run.
    async fn get(&self, caller: &Caller, run_id: RunId) -> Result<RunEnvelope, ApiError>;
    /// Runs, newest first.
    async fn list(&self, caller: &Caller, filter: RunFilter) -> Result<Vec<RunRow>, ApiError>;
    /// Open questions, oldest first.
    async fn approvals(&self, caller: &Caller) -> Result<Vec<(RunId, OpenApproval)>, ApiError>;
    /// Steers a run; saying it twice under one id is harmless.
    async fn command(
        &self,
        caller: &Caller,
        run_id: RunId,
        command_id: CommandId,
        command: RunCommand,
    ) -> Result<CommandAnswer, ApiError>;
    /// Answers a question.
    async fn decide_approval(
        &self,
        caller: &Caller,
        approval_id: ApprovalId,
        decision: ApprovalDecision,
        reason: String,
        subject_digest: Option<String>,
        command_id: CommandId,
    ) -> Result<(RunId, CommandAnswer), ApiError>;
    /// The events after a cursor, then each new one; the stream ends after the run is closed.
    async fn watch(
        &self,
        caller: &Caller,
        run_id: RunId,
        after_seq: u64,
    ) -> Result<mpsc::Receiver<Result<WatchItem, ApiError>>, ApiError>;
    /// The run as it stood after an event.
    async fn replay(&self, caller: &Caller, run_id: RunId, at_seq: u64) -> Result<RunEnvelope, ApiError>;
    /// The whole journal, with what else is hashed.
    async fn export(&self, caller: &Caller, run_id: RunId) -> Result<(TenantId, RunKey, Vec<StoredEvent>), ApiError>;
}
