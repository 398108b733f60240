//! Tasks around one call: sending it, asking for its outcome, cancelling it. Each ends in one message to its run.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use ractor::ActorRef;
use serde_json::Value;
use signalbox_domain::ids::{CallId, RunKey, SecretId, StepId, TenantId, ToolId};
use signalbox_domain::invocation::ToneVerdict;
use signalbox_domain::redact::scrub::Scrubber;
use signalbox_domain::redact::stream::Redactor;
use signalbox_domain::run::envelope::RunToolCallRecord;
use signalbox_domain::run::event::StoredValue;
use signalbox_domain::run::settle::{Ended, output_of, unknown_result};
use signalbox_domain::run::step::{CallEnding, CallResult};
use signalbox_ports::journal::Admitted;
use signalbox_ports::secrets::SecretValue;
use signalbox_ports::tools::{CallOrder, CallProgress, KnownOutcome, Permit};
use tokio::sync::mpsc;

use crate::caught::caught;
use crate::progress::Item;
use crate::run::{self, Shared};
use crate::tone::Watched;
use crate::{runs, values};

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
    pub(crate) shared: Arc<Shared>,
    pub(crate) tenant: TenantId,
    pub(crate) run: RunKey,
    pub(crate) actor: ActorRef<run::Msg>,
    /// Takes the answer when the actor is gone.
    pub(crate) runs: ActorRef<runs::Msg>,
    /// Judges text that is made for the run, if anything does.
    pub(crate) tone: Option<Watched>,
}

/// Sends an admitted call and reports its end. The secrets it was granted are read now, for this call alone; one that
/// cannot be read keeps the call from beginning.
pub(crate) fn send(outside: Outside, admitted: Admitted, mut order: CallOrder, handles: Handles, permit: Permit) {
    tokio::spawn(async move {
        let (call_id, step_id, tool) = (order.call_id, order.step_id.clone(), order.tool_id.clone());
        let scrubber = match equip(&outside, &handles).await {
            Ok((secrets, scrubber)) => {
                order.secrets = secrets;
                scrubber
            }
            Err(ending) => {
                let result = CallResult { ending, measured: None, latency_ms: 0 };
                return report(&outside, &tool, Arc::default(), call_id, result).await;
            }
        };
        let (lines, waiting) = mpsc::channel(PROGRESS_WAITING_MAX);
        let tools = outside.shared.tools.clone();
        // A panic in the client must not leave the call without an end.
        let call = caught(tools.execute(admitted, order, permit, lines));
        let ended = telling(&outside, step_id, scrubber.clone(), waiting, call).await;
        let result = ended.unwrap_or_else(|error| unknown_result(&format!("the executor client failed: {error}")));
        report(&outside, &tool, scrubber, call_id, result).await;
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
        let value = outside.shared.secrets.value(&outside.tenant, secret).await;
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

/// A call whose end is asked for.
pub(crate) struct Question {
    tool: ToolId,
    call_id: CallId,
    handles: Handles,
    /// The call's own time: nobody waits longer for it to end.
    within: Duration,
}

impl From<&RunToolCallRecord> for Question {
    fn from(call: &RunToolCallRecord) -> Self {
        Self {
            tool: call.tool_id.clone(),
            call_id: call.call_id,
            handles: call.secrets.clone(),
            within: Duration::from_millis(call.timeout_ms),
        }
    }
}

/// Asks the executor what became of a call, until it knows or the call's own time is over.
pub(crate) fn ask_outcome(outside: Outside, question: Question) {
    tokio::spawn(async move {
        let (result, scrubber) = outcome(&outside, &question).await;
        report(&outside, &question.tool, scrubber, question.call_id, result).await;
    });
}

/// The same for a call that was given up: if its executor kept the answer after all, it comes late and counts.
pub(crate) fn ask_late(outside: Outside, question: Question) {
    tokio::spawn(async move {
        let (result, scrubber) = outcome(&outside, &question).await;
        if matches!(result.ending, CallEnding::Answered { .. } | CallEnding::Failed { .. }) {
            report(&outside, &question.tool, scrubber, question.call_id, result).await;
        }
    });
}

/// How a call ended, and what takes its secrets out of the answer.
async fn outcome(outside: &Outside, question: &Question) -> (CallResult, Arc<Scrubber>) {
    let asking = async {
        loop {
            match outside.shared.tools.outcome(&question.tool, question.call_id).await {
                KnownOutcome::Ended(result) => match equip(outside, &question.handles).await {
                    Ok((_, known)) => break (*result, known),
                    // What cannot be looked through is not kept.
                    Err(_) => {
                        let why = "the call ended, and a secret it was given cannot be read to look through its answer";
                        break (unknown_result(why), Arc::default());
                    }
                },
                KnownOutcome::Running => tokio::time::sleep(OUTCOME_RETRY).await,
                KnownOutcome::NotSeen => break (not_seen(), Arc::default()),
                KnownOutcome::NotKept => {
                    break (unknown_result("the executor does not keep outcomes"), Arc::default());
                }
            }
        }
    };
    let asked = tokio::time::timeout(question.within, asking).await;
    let too_late = || unknown_result("the executor still ran the call when its time was over");
    asked.unwrap_or_else(|_| (too_late(), Arc::default()))
}

/// Tells the executor to stop a call that this process sent; its end comes by the task that sent it.
pub(crate) fn cancel(outside: &Outside, tool: ToolId, call_id: CallId) {
    let tools = outside.shared.tools.clone();
    tokio::spawn(async move { tools.cancel(&tool, call_id).await });
}

/// Stops a call that an earlier process sent, and asks how it ended: it is charged what it used if its executor knows,
/// and in full if nobody does.
pub(crate) fn cancel_orphan(outside: Outside, question: Question) {
    tokio::spawn(async move {
        outside.shared.tools.cancel(&question.tool, question.call_id).await;
        let (result, scrubber) = outcome(&outside, &question).await;
        report(&outside, &question.tool, scrubber, question.call_id, result).await;
    });
}

fn not_seen() -> CallResult {
    let ending = CallEnding::NotStarted {
        code: "call-not-seen".to_owned(),
        message: "the executor never saw the call and will refuse it from now on".to_owned(),
    };
    CallResult { ending, measured: None, latency_ms: 0 }
}

/// Does the work of a call and passes its lines of progress on meanwhile, all of them before its end.
// The lines are one text: a secret may begin in one and end in the next (C-046).
async fn telling<T>(
    outside: &Outside,
    step_id: StepId,
    scrubber: Arc<Scrubber>,
    mut lines: mpsc::Receiver<CallProgress>,
    call: impl Future<Output = T>,
) -> T {
    let mut redactor = Redactor::new(scrubber);
    let publish = |text: String, percent: Option<u8>| {
        if !text.is_empty() || percent.is_some() {
            let message = text.chars().take(PROGRESS_CHARS_MAX).collect();
            outside.shared.hub.publish(outside.run, Item::Progress { step_id: step_id.clone(), message, percent });
        }
    };
    let mut call = pin!(call);
    let ended = loop {
        tokio::select! {
            biased;
            ended = &mut call => break ended,
            Some(line) = lines.recv() => publish(redactor.push(&line.message), line.percent),
        }
    };
    while let Ok(line) = lines.try_recv() {
        publish(redactor.push(&line.message), line.percent);
    }
    publish(redactor.finish(), None);
    ended
}

async fn report(outside: &Outside, tool: &ToolId, scrubber: Arc<Scrubber>, call_id: CallId, result: CallResult) {
    let result = scrubbed(scrubber, result).await;
    let tone = match &outside.tone {
        Some(watched) => watched.judge(tool, &result).await,
        None => ToneVerdict::Pass,
    };
    let stored_output = match output_of(&result) {
        // What may not be said is not kept either.
        Some(_) if matches!(tone, ToneVerdict::Block(_)) => None,
        None => None,
        Some(output) => Some(keep(outside, call_id, output).await),
    };
    outside.shared.flights.ended(outside.run, Ended { call_id, result, stored_output, tone });
    if outside.actor.cast(run::Msg::Ended(call_id)).is_err() {
        // The actor failed or was parked while the call was out. If the node is gone too, the next one recovers the call.
        let _ = outside.runs.cast(runs::Msg::Ended(outside.run, call_id));
    }
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
        let kept = match values::redact(output).await {
            Ok(redacted) => redacted.keep(outside.shared.blobs.as_ref(), &outside.tenant).await,
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
