//! Tasks around one call: sending it, asking for its outcome, cancelling it. Each ends in one message to its run.

use std::sync::Arc;
use std::time::Duration;

use ractor::ActorRef;
use serde_json::Value;
use signalbox_domain::ids::{CallId, StepId, TenantId, ToolId};
use signalbox_domain::run::event::StoredValue;
use signalbox_domain::run::settle::{Ended, output_of, unknown_result};
use signalbox_domain::run::step::{CallEnding, CallResult};
use signalbox_ports::blobs::Blobs;
use signalbox_ports::journal::Admitted;
use signalbox_ports::tools::{CallOrder, CallProgress, KnownOutcome, Permit, Tools};
use tokio::sync::mpsc;

use crate::progress::{Item, ProgressHub};
use crate::run::Msg;
use crate::values;

/// Lines of progress that may wait to be forwarded; more than that are the executor's to hold back.
const PROGRESS_WAITING_MAX: usize = 32;
/// Pauses between attempts to keep an output when the object store does not answer.
const KEEP_RETRY: Duration = Duration::from_millis(500);
/// Pause between questions about a call that is still running elsewhere.
const OUTCOME_RETRY: Duration = Duration::from_secs(1);

/// What the tasks need.
#[derive(Clone)]
pub(crate) struct Outside {
    pub(crate) tools: Arc<dyn Tools>,
    pub(crate) blobs: Arc<dyn Blobs>,
    pub(crate) hub: ProgressHub,
    pub(crate) tenant: TenantId,
    pub(crate) run: signalbox_domain::ids::RunKey,
    pub(crate) actor: ActorRef<Msg>,
}

/// Sends an admitted call and reports its end.
pub(crate) fn send(outside: Outside, admitted: Admitted, order: CallOrder, permit: Permit) {
    tokio::spawn(async move {
        let (call_id, step_id) = (order.call_id, order.step_id.clone());
        let (lines, waiting) = mpsc::channel(PROGRESS_WAITING_MAX);
        tokio::spawn(forward(outside.clone(), step_id, waiting));
        let tools = outside.tools.clone();
        // In a task of its own: a panic in the client must not leave the call without an end.
        let ended = tokio::spawn(async move { tools.execute(admitted, order, permit, lines).await }).await;
        let result = ended.unwrap_or_else(|error| unknown_result(&format!("the executor client failed: {error}")));
        report(&outside, call_id, result).await;
    });
}

/// Asks the executor what became of a call, until it knows.
pub(crate) fn ask_outcome(outside: Outside, tool: ToolId, call_id: CallId) {
    tokio::spawn(async move {
        let result = loop {
            match outside.tools.outcome(&tool, call_id).await {
                KnownOutcome::Ended(result) => break *result,
                KnownOutcome::Running => tokio::time::sleep(OUTCOME_RETRY).await,
                KnownOutcome::NotSeen => break not_seen(),
                KnownOutcome::NotKept => break unknown_result("the executor does not keep outcomes"),
            }
        };
        report(&outside, call_id, result).await;
    });
}

/// Tells the executor to stop a call that this process sent; its end comes by the task that sent it.
pub(crate) fn cancel(outside: &Outside, tool: ToolId, call_id: CallId) {
    let tools = outside.tools.clone();
    tokio::spawn(async move { tools.cancel(&tool, call_id).await });
}

/// Stops a call that an earlier process sent. Nobody here will hear of its end, so it is settled in full.
pub(crate) fn cancel_orphan(outside: Outside, tool: ToolId, call_id: CallId) {
    tokio::spawn(async move {
        outside.tools.cancel(&tool, call_id).await;
        report(&outside, call_id, unknown_result("the run ended while the call was out")).await;
    });
}

fn not_seen() -> CallResult {
    let ending = CallEnding::NotStarted {
        code: "call-not-seen".to_owned(),
        message: "the executor never saw the call and will refuse it from now on".to_owned(),
    };
    CallResult { ending, measured: None, latency_ms: 0 }
}

async fn forward(outside: Outside, step_id: StepId, mut lines: mpsc::Receiver<CallProgress>) {
    while let Some(line) = lines.recv().await {
        let message = signalbox_domain::redact::redact_text(&line.message).chars().take(500).collect();
        let item = Item::Progress { step_id: step_id.clone(), message, percent: line.percent };
        outside.hub.publish(outside.run, item);
    }
}

async fn report(outside: &Outside, call_id: CallId, result: CallResult) {
    let stored_output = match output_of(&result) {
        None => None,
        Some(output) => Some(keep(outside, call_id, output).await),
    };
    // A run that is gone is loaded again and recovers the call by its policy.
    let _ = outside.actor.cast(Msg::Ended(Box::new(Ended { call_id, result, stored_output })));
}

// The work is done and paid for: its output is kept as soon as there is a place for it.
async fn keep(outside: &Outside, call_id: CallId, output: &Value) -> StoredValue {
    loop {
        let kept = match values::look(output.clone()).await {
            Ok(looked) => looked.keep(outside.blobs.as_ref(), &outside.tenant).await,
            Err(error) => Err(error),
        };
        match kept {
            Ok(stored) => return stored,
            Err(error) => {
                tracing::warn!(%error, %call_id, "the output cannot be kept yet");
                tokio::time::sleep(KEEP_RETRY).await;
            }
        }
    }
}
