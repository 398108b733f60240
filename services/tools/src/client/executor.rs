//! One executor: its channel, its bound, its circuit, and the conversation of one call.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use signalbox_domain::ids::CallId;
use signalbox_domain::run::event::RunEvent;
use signalbox_domain::run::step::{CallEnding, CallResult};
use signalbox_ports::clock::{BootInstant, Clock};
use signalbox_ports::journal::Admitted;
use signalbox_ports::tools::{CallOrder, CallProgress, KnownOutcome, Permit};
use signalbox_proto::v1;
use signalbox_proto::v1::execute_response::Event;
use signalbox_proto::v1::outcome_response::State;
use signalbox_proto::v1::tool_executor_client::ToolExecutorClient;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::coop::consume_budget;
use tokio::time::{Instant, timeout, timeout_at};
use tonic::{Code, Request, Status, Streaming};

use super::answer::{self, Ended};
use super::breaker::Breaker;
use super::dispatch::{Dispatch, Fate, WatchedChannel};
use crate::limits::{HEADERS_MAX, SILENCE_MAX, TIMEOUT_MS_MAX};
use crate::tool::PROGRESS_CHARS_MAX;
use crate::wire;

/// How long an executor may take to answer anything but a call.
const SHORT_ANSWER_MAX: Duration = Duration::from_secs(2);
/// How long the stream may take to end after its result. The result stands even if it does not.
const END_MAX: Duration = Duration::from_secs(1);

/// One executor.
pub(super) struct Executor {
    /// For the log.
    pub(super) name: String,
    pub(super) client: ToolExecutorClient<WatchedChannel>,
    pub(super) permits: Arc<Semaphore>,
    pub(super) breaker: Breaker,
    pub(super) clock: Arc<dyn Clock>,
}

impl Executor {
    /// A permit, unless the circuit is open or the bound reached.
    pub(super) fn permit(&self) -> Option<Permit> {
        // The permit first: an open circuit hands out its one probe only to somebody who can use it.
        let permit = Arc::clone(&self.permits).try_acquire_owned().ok()?;
        self.breaker.admits(self.clock.boot()).then_some(permit)
    }

    /// Has one admitted call done.
    pub(super) async fn execute(
        &self,
        admitted: Admitted,
        order: CallOrder,
        progress: mpsc::Sender<CallProgress>,
    ) -> CallResult {
        let began = self.clock.boot();
        let ceiling = order.ceiling.clone();
        let (ending, measured) = match self.request(&admitted, &order, began) {
            Ok(request) => {
                let not_after = admitted.dispatch_ends();
                let (ended, kept) = self.converse(&order, request, not_after, &progress).await;
                self.judge(&ended, kept, &ceiling);
                ended
            }
            Err(reason) => reason.into_ended(),
        };
        CallResult { ending, measured, latency_ms: self.clock.boot().ms_since(began) }
    }

    /// The request, if it may be sent at all.
    fn request(
        &self,
        admitted: &Admitted,
        order: &CallOrder,
        now: BootInstant,
    ) -> Result<v1::ExecuteRequest, NotBegun> {
        if !is_admission_of(admitted.event(), order) {
            return Err(not_begun("admission-mismatch", "the admission is for another call"));
        }
        if !admitted.may_be_dispatched(now) {
            return Err(not_begun("dispatch-window-missed", "the admission is older than two seconds"));
        }
        let too_large = |error: wire::WireError| not_begun("call-too-large", error.to_string());
        let constraints = serde_json::to_vec(&order.constraints)
            .map_err(|error| not_begun("call-not-encodable", error.to_string()))?;
        Ok(v1::ExecuteRequest {
            call_id: order.call_id.to_string(),
            attempt: order.attempt,
            tenant_id: order.tenant_id.to_string(),
            run_id: order.run_id.to_string(),
            step_id: order.step_id.to_string(),
            tool_id: order.tool_id.to_string(),
            tool_semver: order.tool_semver.clone(),
            args_json: wire::payload_out(&order.args).map_err(too_large)?,
            ceiling: Some(wire::usage_out(&order.ceiling)),
            timeout_ms: order.timeout_ms.clamp(1, TIMEOUT_MS_MAX),
            constraints_json: constraints.into(),
            secrets: order.secrets.iter().map(|(at, value)| (at.clone(), value.expose().to_owned())).collect(),
        })
    }

    /// Sends a call and listens to its end. The flag says whether the executor kept the contract.
    async fn converse(
        &self,
        order: &CallOrder,
        message: v1::ExecuteRequest,
        not_after: BootInstant,
        progress: &mpsc::Sender<CallProgress>,
    ) -> (Ended, Kept) {
        let remaining = Duration::from_millis(message.timeout_ms);
        let deadline = Instant::now() + remaining;
        let fate = Arc::new(Fate::default());
        let mut request = Request::new(message);
        // So that whoever stands between, and the executor's own transport, work no longer for nobody.
        request.set_timeout(remaining);
        if let Some(trace) = order.trace.and_then(|trace| trace.to_string().parse().ok()) {
            request.metadata_mut().insert("traceparent", trace);
        }
        let dispatch = Dispatch { clock: Arc::clone(&self.clock), not_after, fate: Arc::clone(&fate) };
        request.extensions_mut().insert(dispatch);
        let mut client = self.client.clone();
        let headers_by = deadline.min(Instant::now() + HEADERS_MAX);
        let opened = timeout_at(headers_by, client.execute(request)).await;
        // From here on a message that still waits will never go.
        let sent = fate.stop();
        let stream = match opened {
            Ok(Ok(response)) => response.into_inner(),
            Ok(Err(status)) => return (self.lost(&status, sent, not_after), Kept::No),
            Err(_) if !sent => return (self.unsent(not_after), Kept::No),
            Err(_) => {
                self.cancel_later(order.call_id);
                let ended = if Instant::now() >= deadline {
                    timed_out()
                } else {
                    unknown("the executor did not take the call in time")
                };
                return (ended, Kept::No);
            }
        };
        self.hear(order, stream, deadline, not_after, progress).await
    }

    /// Listens to a call until it ends.
    async fn hear(
        &self,
        order: &CallOrder,
        mut stream: Streaming<v1::ExecuteResponse>,
        deadline: Instant,
        not_after: BootInstant,
        progress: &mpsc::Sender<CallProgress>,
    ) -> (Ended, Kept) {
        loop {
            // A stream that always has something to say would let neither other tasks nor the timeout have their turn.
            consume_budget().await;
            let now = Instant::now();
            let heard = if now < deadline {
                timeout_at(deadline.min(now + SILENCE_MAX), stream.message()).await.ok()
            } else {
                None
            };
            let event = match heard {
                Some(Ok(Some(message))) => message.event,
                Some(Ok(None)) => return (answer::protocol_error("the call ended without a result"), Kept::No),
                Some(Err(status)) => return (self.lost(&status, true, not_after), Kept::No),
                None => {
                    self.cancel_later(order.call_id);
                    return if Instant::now() >= deadline {
                        (timed_out(), Kept::Yes)
                    } else {
                        (unknown("nothing was heard of the call for too long"), Kept::No)
                    };
                }
            };
            match event {
                Some(Event::Progress(line)) => forward(line, progress),
                // An event of a later version of the contract is a sign of life like any other.
                Some(Event::Heartbeat(_)) | None => {}
                Some(Event::Result(result)) => {
                    if let Ok(Ok(Some(_))) = timeout(END_MAX, stream.message()).await {
                        return (answer::protocol_error("something followed the result"), Kept::No);
                    }
                    return match answer::read(result) {
                        Ok(ended) => (ended, Kept::Yes),
                        Err(error) => (answer::protocol_error(&error.to_string()), Kept::No),
                    };
                }
            }
        }
    }

    /// The end of a call whose conversation broke off.
    fn lost(&self, status: &Status, sent: bool, not_after: BootInstant) -> Ended {
        if !sent {
            return self.unsent(not_after);
        }
        if is_refused_stream(status) {
            return not_begun("executor-refused-call", "the executor refused the call before looking at it")
                .into_ended();
        }
        if status.code() == Code::OutOfRange {
            return answer::protocol_error("a message is larger than allowed");
        }
        // Its words may hold anything, also what the call was given.
        tracing::debug!(executor = self.name, code = ?status.code(), "a call was lost");
        unknown(&format!("the conversation with the executor broke off ({:?})", status.code()))
    }

    /// The end of a call that was never handed to a connection.
    fn unsent(&self, not_after: BootInstant) -> Ended {
        if self.clock.boot() > not_after {
            return not_begun("dispatch-window-missed", "there was no connection within two seconds").into_ended();
        }
        not_begun("executor-unreachable", "there is no connection to the executor").into_ended()
    }

    /// Tells the circuit how it went.
    fn judge(&self, ended: &Ended, kept: Kept, ceiling: &signalbox_domain::quantity::Usage) {
        match (kept, &ended.1) {
            (Kept::No, _) => self.breaker.failed(self.clock.boot()),
            (Kept::Yes, Some(measured)) if answer::overshoots(measured, ceiling) => {
                tracing::warn!(executor = self.name, "a tool used more than its ceiling");
                self.breaker.overshot(self.clock.boot());
            }
            (Kept::Yes, _) => self.breaker.answered(),
        }
    }

    /// Asks the executor to stop a call.
    pub(super) async fn cancel(&self, call: CallId) {
        cancel(self.client.clone(), self.name.clone(), call).await;
    }

    /// The same without waiting for it.
    fn cancel_later(&self, call: CallId) {
        tokio::spawn(cancel(self.client.clone(), self.name.clone(), call));
    }

    /// What the executor knows of a call.
    pub(super) async fn outcome(&self, call: CallId) -> KnownOutcome {
        let began = self.clock.boot();
        let request = short(v1::OutcomeRequest { call_id: call.to_string() }, SHORT_ANSWER_MAX);
        let mut client = self.client.clone();
        let Ok(Ok(response)) = timeout(SHORT_ANSWER_MAX, client.outcome(request)).await else {
            tracing::debug!(executor = self.name, %call, "no answer about the outcome of a call");
            return KnownOutcome::NotKept;
        };
        let response = response.into_inner();
        match (State::try_from(response.state), response.result) {
            (Ok(State::Ended), Some(result)) => {
                let latency_ms = self.clock.boot().ms_since(began);
                KnownOutcome::Ended(Box::new(CallResult { latency_ms, ..super::taken_for(result) }))
            }
            (Ok(State::Running), _) => KnownOutcome::Running,
            (Ok(State::NotSeen), _) => KnownOutcome::NotSeen,
            (Ok(State::Ended | State::NotKept | State::Unspecified) | Err(_), _) => KnownOutcome::NotKept,
        }
    }

    /// What this executor says it serves.
    pub(super) async fn describe(&self) -> Result<v1::DescribeResponse, String> {
        let mut client = self.client.clone();
        let request = short(v1::DescribeRequest {}, SHORT_ANSWER_MAX * 2);
        let described = timeout(SHORT_ANSWER_MAX * 2, client.describe(request)).await;
        let response = described.map_err(|_| "no answer in time".to_owned())?.map_err(|status| status.to_string())?;
        Ok(response.into_inner())
    }
}

/// Whether the executor kept its side of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    Yes,
    No,
}

/// A request that says how long its answer is waited for.
fn short<T>(message: T, within: Duration) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(within);
    request
}

async fn cancel(mut client: ToolExecutorClient<WatchedChannel>, executor: String, call: CallId) {
    let request = short(v1::CancelRequest { call_id: call.to_string() }, SHORT_ANSWER_MAX);
    match timeout(SHORT_ANSWER_MAX, client.cancel(request)).await {
        Ok(Ok(_)) => {}
        Ok(Err(status)) => tracing::debug!(executor, %call, code = ?status.code(), "a cancellation was not taken"),
        Err(_) => tracing::debug!(executor, %call, "a cancellation was not answered"),
    }
}

/// One admission is good for one call, and only as it was written.
fn is_admission_of(event: &RunEvent, order: &CallOrder) -> bool {
    if let RunEvent::CallPending(pending) = event {
        return !pending.simulated
            && pending.call_id == order.call_id
            && pending.tool_id == order.tool_id
            && pending.tool_semver == order.tool_semver
            && pending.attempt == order.attempt;
    }
    matches!(event, RunEvent::CallRedispatched { call_id, attempt, .. } if *call_id == order.call_id && *attempt == order.attempt)
}

fn forward(line: v1::Progress, progress: &mpsc::Sender<CallProgress>) {
    let percent = line.percent.map(|percent| u8::try_from(percent.min(100)).unwrap_or(100));
    let message = line.message.chars().take(PROGRESS_CHARS_MAX).collect();
    // Progress is a courtesy: without room for it, it is dropped.
    let _ = progress.try_send(CallProgress { message, percent });
}

/// True if the other end reset the stream without looking at it (RFC 9113, section 8.7).
fn is_refused_stream(status: &Status) -> bool {
    let mut cause = status.source();
    while let Some(error) = cause {
        if let Some(h2) = error.downcast_ref::<h2::Error>() {
            return h2.is_remote() && h2.reason() == Some(h2::Reason::REFUSED_STREAM);
        }
        cause = error.source();
    }
    false
}

/// Why a call was certainly not begun.
#[derive(Debug)]
struct NotBegun {
    code: &'static str,
    message: String,
}

impl NotBegun {
    fn into_ended(self) -> Ended {
        (CallEnding::NotStarted { code: self.code.to_owned(), message: self.message }, None)
    }
}

fn not_begun(code: &'static str, message: impl Into<String>) -> NotBegun {
    NotBegun { code, message: message.into() }
}

fn unknown(message: &str) -> Ended {
    (CallEnding::Unknown { message: message.to_owned() }, None)
}

fn timed_out() -> Ended {
    (CallEnding::Failed { code: "tool-timeout".to_owned(), message: "the tool did not end in time".to_owned() }, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::testing::{order, pending};

    #[test]
    fn an_admission_fits_no_other_call_tool_version_or_attempt() {
        let order = order(1);
        assert!(is_admission_of(&pending(&order), &order));
        type Change = fn(&mut CallOrder);
        let changes: [Change; 4] = [
            |o| o.call_id = super::super::testing::order(2).call_id,
            |o| o.tool_id = "web.fetch".parse().unwrap(),
            |o| o.tool_semver = "1.0.1".to_owned(),
            |o| o.attempt += 1,
        ];
        for change in changes {
            let mut other = order.clone();
            change(&mut other);
            assert!(!is_admission_of(&pending(&order), &other));
        }
        assert!(!is_admission_of(&RunEvent::RunClosed {}, &order));
    }
}
