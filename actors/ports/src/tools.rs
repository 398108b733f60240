//! The way to the executors. The only function that reaches one consumes an [`Admitted`] (I1).

use std::collections::BTreeMap;

use async_trait::async_trait;
use serde_json::Value;
use signalbox_domain::catalog::Recovery;
use signalbox_domain::ids::{CallId, RunId, StepId, TenantId, ToolId};
use signalbox_domain::quantity::Usage;
use signalbox_domain::registry::{DescribedTool, ExecutorDenial, ExecutorRegistration, RegisteredExecutor};
use signalbox_domain::run::step::CallResult;
use signalbox_domain::run::trace::TraceContext;
use tokio::sync::mpsc;

use crate::journal::Admitted;
use crate::secrets::SecretValue;

/// What an executor is told beside the admission.
#[derive(Debug, Clone, PartialEq)]
pub struct CallOrder {
    /// The call.
    pub call_id: CallId,
    /// From 1.
    pub attempt: u32,
    /// The tenant.
    pub tenant_id: TenantId,
    /// The run.
    pub run_id: RunId,
    /// The step.
    pub step_id: StepId,
    /// The tool.
    pub tool_id: ToolId,
    /// Its version.
    pub tool_semver: String,
    /// The raw arguments; secrets are handles in them.
    pub args: Value,
    /// The values to be put in, by the JSON Pointer to their handles. Whatever else looks like a handle is data.
    pub secrets: BTreeMap<String, SecretValue>,
    /// The most the call may use, per category; the executor must stop there.
    pub ceiling: Usage,
    /// How long it may take.
    pub timeout_ms: u64,
    /// Host patterns, path prefixes, methods and schemes of the grant; the executor enforces them where it connects.
    pub constraints: signalbox_domain::governance::grant::Constraints,
    /// The span the executor's own spans belong under, where traces are recorded.
    pub trace: Option<TraceContext>,
}

/// A line of progress from a running call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallProgress {
    /// In words, for people.
    pub message: String,
    /// 0 to 100, if known.
    pub percent: Option<u8>,
}

/// What is known of a call whose answer was lost.
#[derive(Debug, Clone, PartialEq)]
pub enum KnownOutcome {
    /// It ended like this.
    Ended(Box<CallResult>),
    /// It is still going on.
    Running,
    /// The executor never saw it, and will refuse it from now on.
    NotSeen,
    /// The executor cannot say.
    NotKept,
}

/// A permit to send one call to an executor, given back when dropped.
pub type Permit = tokio::sync::OwnedSemaphorePermit;

/// The executors.
#[async_trait]
pub trait Tools: Send + Sync + 'static {
    /// The tools that are bound to an executor, with the version each serves (EXE-003).
    fn configured(&self) -> Vec<(ToolId, String)>;
    /// The version an executor serves of this tool; `None` if none does.
    fn semver(&self, tool: &ToolId) -> Option<String> {
        self.configured().into_iter().find(|(configured, _)| configured == tool).map(|(_, semver)| semver)
    }
    /// What the executor of this tool declares about calls whose outcome is not known (RUN-026). It binds as far as
    /// [`Recovery::as_declared`] lets it; `None` leaves it to the catalog.
    fn declared(&self, _tool: &ToolId) -> Option<Recovery> {
        None
    }
    /// A permit for one call of this tool, or `None`: the executor is at its bound or its circuit is open (`hold(executor-busy)`).
    fn permit(&self, tool: &ToolId) -> Option<Permit>;
    /// Hands an admitted call to its executor and waits for its end. If the admission is older than two seconds it
    /// answers `NotStarted` with code `dispatch-window-missed`. Never retries by itself.
    async fn execute(
        &self,
        admitted: Admitted,
        order: CallOrder,
        permit: Permit,
        progress: mpsc::Sender<CallProgress>,
    ) -> CallResult;
    /// Tells the executor to stop a call. Idempotent.
    async fn cancel(&self, tool: &ToolId, call: CallId);
    /// Asks an executor that is about to be registered what it serves; it is used for nothing yet. The address is guarded
    /// as any other outside address is.
    async fn describe(&self, _executor: &ExecutorRegistration) -> Result<Vec<DescribedTool>, ExecutorDenial> {
        Err(ExecutorDenial::NotDescribed("this node reaches no executors but its own".to_owned()))
    }
    /// Uses exactly these executors beside those of the configuration, as of now; what is out on another is let end. A tool
    /// that the configuration binds stays bound there.
    fn follow(&self, _executors: &[RegisteredExecutor]) {}
    /// Asks for the outcome of a call (recovery policy `deduplicating`).
    async fn outcome(&self, tool: &ToolId, call: CallId) -> KnownOutcome;
}
