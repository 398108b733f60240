//! What a tool is to the executor server: a description, and one async function that may be cancelled at any await.
//!
//! A tool never sees the run's journal or budgets. It gets a call that was admitted elsewhere, the ceiling that was
//! reserved for it, and the bounds of its grant, and it answers with what it did and what that measurably used.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use signalbox_domain::catalog::Recovery;
use signalbox_domain::governance::grant::Constraints;
use signalbox_domain::ids::{CallId, RunId, StepId, TenantId, ToolId};
use signalbox_domain::quantity::{BudgetCategory, Usage};
use signalbox_domain::run::event::{ArtifactRef, Evidence};
use tokio::sync::broadcast;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Longest progress message that is passed on, in characters; the rest is cut.
pub const PROGRESS_CHARS_MAX: usize = 500;

/// What a call used, in units of each category. A category that is absent was not used.
pub type Measured = BTreeMap<BudgetCategory, f64>;

/// One tool as it is declared to signalbox (`ToolDescriptor` on the wire).
#[derive(Debug, Clone, PartialEq)]
pub struct Descriptor {
    /// The id, such as `source.fetch`.
    pub tool_id: String,
    /// Its version, as in semver.
    pub semver: String,
    /// JSON Schema of the arguments.
    pub input_schema: Value,
    /// JSON Schema of the output.
    pub output_schema: Value,
    /// The most one call may use.
    pub ceiling: Usage,
    /// True if it changes something outside.
    pub has_side_effects: bool,
    /// What may be done when the outcome of a call is not known.
    pub recovery: Recovery,
}

/// One call, as it is handed to a tool. What is printed of it holds no arguments: there may be secrets in them.
#[derive(Clone)]
pub struct ToolCall {
    /// The call; also its idempotency key.
    pub call_id: CallId,
    /// From 1; greater if the same call is sent again after a crash.
    pub attempt: u32,
    /// On whose behalf.
    pub tenant_id: TenantId,
    /// The run.
    pub run_id: RunId,
    /// The step of the run's plan.
    pub step_id: StepId,
    /// The tool.
    pub tool_id: ToolId,
    /// The arguments, read strictly, with the values of granted secrets in the place of their handles. Their shape is for
    /// the tool to check.
    pub args: Value,
    /// The most the call may use; the tool must stop there.
    pub ceiling: Usage,
    /// When the server gives the call up.
    pub deadline: Instant,
    /// The bounds of the grant; the tool enforces them where it connects or opens.
    pub constraints: Constraints,
    /// Fires when the call is cancelled or its deadline has passed. The future of a tool without side effects is
    /// dropped at the same time. A tool with side effects gets a moment to say what it has done.
    pub cancelled: CancellationToken,
}

impl fmt::Debug for ToolCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolCall")
            .field("call_id", &self.call_id)
            .field("tool_id", &self.tool_id)
            .finish_non_exhaustive()
    }
}

impl ToolCall {
    /// How much time is left.
    pub fn time_left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }
}

/// What a tool gave.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Answer {
    /// The output.
    pub output: Value,
    /// How well it is backed by sources, for tools that know.
    pub evidence: Option<Evidence>,
    /// What the call left behind.
    pub artifacts: Vec<ArtifactRef>,
    /// What it changed outside, in words.
    pub effects: Vec<String>,
    /// What it used. `None` means it was not measured: then the whole reservation is charged (LED-008).
    pub measured: Option<Measured>,
}

impl Answer {
    /// An answer with nothing but output and measured usage.
    pub fn new(output: Value, measured: Measured) -> Self {
        Self { output, measured: Some(measured), ..Self::default() }
    }
}

/// Why a tool gave nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// Stable kebab-case code.
    pub code: String,
    /// In words, without machine paths or secrets.
    pub message: String,
    /// What was used all the same. `None` charges the whole reservation, an empty map charges nothing (LED-008).
    pub measured: Option<Measured>,
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolOutcome {
    /// Done.
    Ok(Answer),
    /// Done in part; the output says what is missing.
    Partial(Answer),
    /// Failed.
    Error(Failure),
    /// Stopped because `cancelled` fired.
    Cancelled,
}

impl ToolOutcome {
    /// A failure before anything was used, such as arguments of the wrong shape: nothing is charged.
    pub fn refused(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Error(Failure { code: code.into(), message: message.into(), measured: Some(Measured::new()) })
    }
    /// A failure after work that was measured.
    pub fn failed(code: impl Into<String>, message: impl Into<String>, measured: Measured) -> Self {
        Self::Error(Failure { code: code.into(), message: message.into(), measured: Some(measured) })
    }
    /// A failure of which nobody knows what it used: the whole reservation is charged.
    pub fn failed_unmeasured(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Error(Failure { code: code.into(), message: message.into(), measured: None })
    }
}

/// Something signalbox can call.
#[async_trait]
pub trait Tool: Send + Sync + 'static {
    /// What it is. Must always be the same.
    fn descriptor(&self) -> Descriptor;
    /// Runs one call. When it is cancelled or its deadline passes, the future of a tool without side effects is dropped
    /// at its next await; one with side effects should look at [`ToolCall::cancelled`] before each effect and answer
    /// [`ToolOutcome::Cancelled`] only if it had none.
    async fn run(&self, call: ToolCall, progress: ProgressSink) -> ToolOutcome;
    /// What became of a call that this process knows nothing of. Only tools of [`Recovery::Deduplicating`], which keep
    /// their own record across restarts, can say.
    async fn recall(&self, _call: CallId) -> Recall {
        Recall::NotKept
    }
}

/// What a tool remembers of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Recall {
    /// It ended like this.
    Ended(ToolOutcome),
    /// It certainly never began.
    NotSeen,
    /// The tool keeps no record.
    NotKept,
}

/// A line of progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgressLine {
    /// In words, for people.
    pub message: String,
    /// 0 to 100, if known.
    pub percent: Option<u8>,
}

/// Where a tool says how far it is. Progress is a courtesy: lines that are not read in time are dropped.
#[derive(Debug, Clone)]
pub struct ProgressSink {
    lines: Option<broadcast::Sender<ProgressLine>>,
}

impl ProgressSink {
    /// A sink into a channel.
    pub const fn new(lines: broadcast::Sender<ProgressLine>) -> Self {
        Self { lines: Some(lines) }
    }
    /// A sink that drops everything.
    pub const fn silent() -> Self {
        Self { lines: None }
    }
    /// Says something; never waits.
    pub fn report(&self, message: impl AsRef<str>, percent: Option<u8>) {
        if let Some(lines) = &self.lines {
            let message = message.as_ref().chars().take(PROGRESS_CHARS_MAX).collect();
            // An error means that nobody listens just now.
            let _ = lines.send(ProgressLine { message, percent: percent.map(|p| p.min(100)) });
        }
    }
}
