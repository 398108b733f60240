//! Tasks around one call: sending it, asking for its outcome, cancelling it. Each ends in one message to its run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ractor::ActorRef;
use serde_json::Value;
use signalbox_domain::ids::{CallId, SecretId, StepId, TenantId, ToolId};
use signalbox_domain::redact::scrub::Scrubber;
use signalbox_domain::redact::stream::Redactor;
use signalbox_domain::run::event::StoredValue;
use signalbox_domain::run::settle::{Ended, output_of, unknown_result};
use signalbox_domain::run::step::{CallEnding, CallResult};
use signalbox_ports::blobs::Blobs;
use signalbox_ports::journal::Admitted;
use signalbox_ports::secrets::{SecretValue, Secrets};
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

/// Longest line of progress that is passed on, in characters.
const PROGRESS_CHARS_MAX: usize = 500;

/// The secrets of a call, by the JSON Pointer to the handle of each in its arguments.
pub(crate) type Handles = BTreeMap<String, SecretId>;

/// What the tasks need.
#[derive(Clone)]
pub(crate) struct Outside {
    pub(crate) tools: Arc<dyn Tools>,
    pub(crate) blobs: Arc<dyn Blobs>,
    pub(crate) secrets: Arc<dyn Secrets>,
    pub(crate) hub: ProgressHub,
    pub(crate) tenant: TenantId,
    pub(crate) run: signalbox_domain::ids::RunKey,
    pub(crate) actor: ActorRef<Msg>,
}

/// Sends an admitted call and reports its end. The secrets it was granted are read now, for this call alone; one that
/// cannot be read keeps the call from beginning.
pub(crate) fn send(outside: Outside, admitted: Admitted, mut order: CallOrder, handles: Handles, permit: Permit) {
    tokio::spawn(async move {
        let (call_id, step_id) = (order.call_id, order.step_id.clone());
        let scrubber = match equip(&outside, &handles).await {
            Ok((secrets, scrubber)) => {
                order.secrets = secrets;
                scrubber
            }
            Err(ending) => {
                let result = CallResult { ending, measured: None, latency_ms: 0 };
                return report(&outside, Arc::default(), call_id, result).await;
            }
        };
        let (lines, waiting) = mpsc::channel(PROGRESS_WAITING_MAX);
        tokio::spawn(forward(outside.clone(), step_id, scrubber.clone(), waiting));
        let tools = outside.tools.clone();
        // In a task of its own: a panic in the client must not leave the call without an end.
        let ended = tokio::spawn(async move { tools.execute(admitted, order, permit, lines).await }).await;
        let result = ended.unwrap_or_else(|error| unknown_result(&format!("the executor client failed: {error}")));
        report(&outside, scrubber, call_id, result).await;
    });
}

/// The values of a call's secrets, and what takes them out of everything the call says.
async fn equip(
    outside: &Outside,
    handles: &Handles,
) -> Result<(BTreeMap<String, SecretValue>, Arc<Scrubber>), CallEnding> {
    if handles.is_empty() {
        return Ok((BTreeMap::new(), Arc::default()));
    }
    let not_started = |code: &str, message: String| CallEnding::NotStarted { code: code.to_owned(), message };
    let mut values = BTreeMap::new();
    for secret in handles.values().collect::<BTreeSet<_>>() {
        let value = outside.secrets.value(&outside.tenant, secret).await;
        values.insert(secret, value.map_err(|error| not_started(error.code(), error.to_string()))?);
    }
    let known: Vec<SecretValue> = values.values().cloned().collect();
    // A long value makes a large pattern.
    let scrubber = tokio::task::spawn_blocking(move || Scrubber::new(known.iter().map(SecretValue::expose))).await;
    let scrubber = scrubber
        .map_err(|_| not_started("internal", "the secrets of the call could not be prepared".to_owned()))?
        .map_err(|unfit| not_started(unfit.code(), format!("a secret of the call cannot be used: {unfit}")))?;
    let at = handles.iter().filter_map(|(place, secret)| Some((place.clone(), values.get(secret)?.clone())));
    Ok((at.collect(), Arc::new(scrubber)))
}

/// Asks the executor what became of a call, until it knows.
pub(crate) fn ask_outcome(outside: Outside, tool: ToolId, call_id: CallId, handles: Handles) {
    tokio::spawn(async move {
        let mut scrubber = Arc::default();
        let result = loop {
            match outside.tools.outcome(&tool, call_id).await {
                KnownOutcome::Ended(result) => match equip(&outside, &handles).await {
                    Ok((_, known)) => {
                        scrubber = known;
                        break *result;
                    }
                    // What cannot be looked through is not kept.
                    Err(_) => {
                        break unknown_result(
                            "the call ended, and a secret it was given cannot be read to look through its answer",
                        );
                    }
                },
                KnownOutcome::Running => tokio::time::sleep(OUTCOME_RETRY).await,
                KnownOutcome::NotSeen => break not_seen(),
                KnownOutcome::NotKept => break unknown_result("the executor does not keep outcomes"),
            }
        };
        report(&outside, scrubber, call_id, result).await;
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
        report(&outside, Arc::default(), call_id, unknown_result("the run ended while the call was out")).await;
    });
}

fn not_seen() -> CallResult {
    let ending = CallEnding::NotStarted {
        code: "call-not-seen".to_owned(),
        message: "the executor never saw the call and will refuse it from now on".to_owned(),
    };
    CallResult { ending, measured: None, latency_ms: 0 }
}

// The lines are one text: a secret may begin in one and end in the next (C-046).
async fn forward(outside: Outside, step_id: StepId, scrubber: Arc<Scrubber>, mut lines: mpsc::Receiver<CallProgress>) {
    let mut redactor = Redactor::new(scrubber);
    let publish = |text: String, percent: Option<u8>| {
        if !text.is_empty() || percent.is_some() {
            let message = text.chars().take(PROGRESS_CHARS_MAX).collect();
            outside.hub.publish(outside.run, Item::Progress { step_id: step_id.clone(), message, percent });
        }
    };
    while let Some(line) = lines.recv().await {
        publish(redactor.push(&line.message), line.percent);
    }
    publish(redactor.finish(), None);
}

async fn report(outside: &Outside, scrubber: Arc<Scrubber>, call_id: CallId, result: CallResult) {
    let result = scrubbed(scrubber, result).await;
    let stored_output = match output_of(&result) {
        None => None,
        Some(output) => Some(keep(outside, call_id, output).await),
    };
    // A run that is gone is loaded again and recovers the call by its policy.
    let _ = outside.actor.cast(Msg::Ended(Box::new(Ended { call_id, result, stored_output })));
}

// Megabytes take a while to look through, and the threads that run the actors also send heartbeats.
async fn scrubbed(scrubber: Arc<Scrubber>, result: CallResult) -> CallResult {
    if scrubber.is_idle() {
        return result;
    }
    let (measured, latency_ms) = (result.measured.clone(), result.latency_ms);
    let aside = tokio::task::spawn_blocking(move || scrubber.result(result)).await;
    aside.unwrap_or_else(|_| CallResult {
        measured,
        latency_ms,
        ..unknown_result("the call ended, and its answer could not be looked through for the secrets it was given")
    })
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
