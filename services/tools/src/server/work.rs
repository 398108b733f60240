//! Running one call to its end, and letting others listen.

use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use prost::Message as _;
use signalbox_proto::v1;
use signalbox_proto::v1::execute_response::Event;
use signalbox_proto::v1::tool_result::Outcome;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::{JoinError, JoinHandle};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::calls::{Finish, Listening};
use crate::limits::{HEARTBEAT, MESSAGE_BYTES_MAX};
use crate::tool::{Answer, Descriptor, Failure, ProgressSink, Tool, ToolCall, ToolOutcome};
use crate::wire;

/// How long a tool with side effects may take to say what it has done after it was told to stop.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// Runs a call until it ends, is cancelled or runs out of time.
pub(super) async fn drive(
    tool: &Arc<dyn Tool>,
    descriptor: &Descriptor,
    call: ToolCall,
    progress: ProgressSink,
    stop: &CancellationToken,
) -> Finish {
    let (deadline, told) = (call.deadline, call.cancelled.clone());
    let tool = Arc::clone(tool);
    let mut work = tokio::spawn(async move { tool.run(call, progress).await });
    let outcome = tokio::select! {
        biased;
        joined = &mut work => Some(outcome_of(joined)),
        () = stop.cancelled() => halt(work, descriptor, Some(ToolOutcome::Cancelled)).await,
        () = tokio::time::sleep_until(deadline) => {
            told.cancel();
            let message = "the tool did not end in time";
            if descriptor.has_side_effects {
                halt(work, descriptor, None).await.or_else(|| Some(ToolOutcome::failed_unmeasured("tool-timeout", message)))
            } else {
                work.abort();
                Some(ToolOutcome::failed_unmeasured("tool-timeout", message))
            }
        }
    };
    outcome.map_or(Finish::Lost, |outcome| Finish::Result(Arc::new(result_of(outcome))))
}

/// Ends the work of a tool that was told to stop. A tool without side effects is simply dropped. One with side effects
/// is asked what it did; if it does not say in time, nobody knows.
async fn halt(
    mut work: JoinHandle<ToolOutcome>,
    descriptor: &Descriptor,
    if_pure: Option<ToolOutcome>,
) -> Option<ToolOutcome> {
    if descriptor.has_side_effects {
        let said = tokio::time::timeout(STOP_GRACE, &mut work).await;
        work.abort();
        return said.ok().map(outcome_of);
    }
    work.abort();
    if_pure
}

fn outcome_of(joined: Result<ToolOutcome, JoinError>) -> ToolOutcome {
    joined.unwrap_or_else(|error| {
        tracing::error!(%error, "a tool panicked");
        ToolOutcome::failed_unmeasured("tool-panicked", "the tool ended by a bug of its own")
    })
}

/// An outcome for the wire. What does not fit into a message becomes an error that does.
pub(super) fn result_of(outcome: ToolOutcome) -> v1::ToolResult {
    let result = match outcome {
        ToolOutcome::Ok(answer) => answered(Outcome::Ok, answer),
        ToolOutcome::Partial(answer) => answered(Outcome::Partial, answer),
        ToolOutcome::Error(failure) => failed(failure),
        ToolOutcome::Cancelled => v1::ToolResult { outcome: Outcome::Cancelled.into(), ..v1::ToolResult::default() },
    };
    // Room for the envelope of the message.
    if result.encoded_len() + 64 > MESSAGE_BYTES_MAX { too_large(result.measured) } else { result }
}

fn answered(outcome: Outcome, answer: Answer) -> v1::ToolResult {
    let measured = answer.measured.as_ref().map(wire::measured_out);
    let Ok(output_json) = wire::payload_out(&answer.output) else { return too_large(measured) };
    v1::ToolResult {
        outcome: outcome.into(),
        output_json,
        measured,
        evidence: answer.evidence.as_ref().map(wire::evidence_out),
        artifacts: answer.artifacts.iter().map(wire::artifact_out).collect(),
        effects: answer.effects,
        ..v1::ToolResult::default()
    }
}

fn failed(failure: Failure) -> v1::ToolResult {
    v1::ToolResult {
        outcome: Outcome::Error.into(),
        error_code: failure.code,
        error_message: failure.message,
        measured: failure.measured.as_ref().map(wire::measured_out),
        ..v1::ToolResult::default()
    }
}

fn too_large(measured: Option<v1::MeasuredUsage>) -> v1::ToolResult {
    v1::ToolResult {
        outcome: Outcome::Error.into(),
        error_code: "tool-output-too-large".to_owned(),
        error_message: "the tool gave more than an answer may hold".to_owned(),
        measured,
        ..v1::ToolResult::default()
    }
}

/// The stream of a call: progress and heartbeats, then its end.
pub(super) fn listen(listening: Listening) -> impl Stream<Item = Result<v1::ExecuteResponse, Status>> + Send {
    futures::stream::unfold(Some((listening, true)), |state| async move {
        let (mut listening, mut lines_open) = state?;
        loop {
            let event = tokio::select! {
                biased;
                line = listening.lines.recv(), if lines_open => match line {
                    Ok(line) => Event::Progress(v1::Progress { message: line.message, percent: line.percent.map(u32::from) }),
                    Err(RecvError::Lagged(_)) => continue,
                    Err(RecvError::Closed) => {
                        lines_open = false;
                        continue;
                    }
                },
                finish = listening.finish.wait_for(Option::is_some) => {
                    let item = match finish.ok().and_then(|finish| finish.clone()) {
                        Some(Finish::Result(result)) => Ok(message(Event::Result(v1::ToolResult::clone(&result)))),
                        Some(Finish::Lost) => Err(Status::aborted("the tool was told to stop and did not say what it has done")),
                        None => Err(Status::aborted("the call was lost by the executor")),
                    };
                    return Some((item, None));
                }
                () = tokio::time::sleep(HEARTBEAT) => Event::Heartbeat(v1::Heartbeat {}),
            };
            return Some((Ok(message(event)), Some((listening, lines_open))));
        }
    })
}

const fn message(event: Event) -> v1::ExecuteResponse {
    v1::ExecuteResponse { event: Some(event) }
}
