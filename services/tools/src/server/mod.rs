//! The executor server: hosts tools behind the gRPC service `ToolExecutor`.
//!
//! A call runs in a task of its own, not in the stream that asked for it. So a tool that panics is an answer and not a
//! broken stream, a lost connection does not undo or repeat a call, and whoever sends the same call id again joins the
//! call or hears its result a second time.

mod calls;
mod order;
#[cfg(test)]
mod tests;
mod work;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::pin::Pin;
use std::sync::Arc;

use futures::Stream;
use signalbox_domain::catalog::Recovery;
use signalbox_domain::ids::CallId;
use signalbox_proto::v1;
use signalbox_proto::v1::outcome_response::State;
use signalbox_proto::v1::tool_executor_server::{ToolExecutor, ToolExecutorServer};
use signalbox_proto::v1::tool_result::Outcome;
use tonic::{Request, Response, Status};

use self::calls::{Calls, Entrance, Known};
use self::order::Order;
use crate::limits::MESSAGE_BYTES_MAX;
use crate::tool::{Descriptor, ProgressSink, Recall, Tool};
use crate::wire;

/// A set of tools, served together. Cloning is cheap and shares everything.
#[derive(Clone)]
pub struct ToolServer {
    inner: Arc<Inner>,
}

struct Inner {
    tools: BTreeMap<String, Hosted>,
    calls: Calls,
}

#[derive(Clone)]
struct Hosted {
    tool: Arc<dyn Tool>,
    descriptor: Arc<Descriptor>,
}

impl std::fmt::Debug for ToolServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToolServer").field("tools", &self.inner.tools.keys()).finish_non_exhaustive()
    }
}

impl ToolServer {
    /// A server of these tools. Of two tools with one id the first is served, and the other is reported in the log.
    pub fn new(tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Self {
        let mut hosted = BTreeMap::new();
        for tool in tools {
            let descriptor = Arc::new(tool.descriptor());
            match hosted.entry(descriptor.tool_id.clone()) {
                Entry::Vacant(place) => {
                    place.insert(Hosted { tool, descriptor });
                }
                Entry::Occupied(place) => {
                    tracing::error!(tool = place.key(), "two tools have the same id; the second is not served");
                }
            }
        }
        Self { inner: Arc::new(Inner { tools: hosted, calls: Calls::default() }) }
    }

    /// The tools, by id.
    pub fn descriptors(&self) -> Vec<Descriptor> {
        self.inner.tools.values().map(|hosted| (*hosted.descriptor).clone()).collect()
    }

    /// Takes no new calls from now on; those that run go on.
    pub fn drain(&self) {
        self.inner.calls.drain();
    }

    /// Stops every call that runs.
    pub fn cancel_all(&self) {
        self.inner.calls.cancel_all();
    }

    /// The gRPC service, with the message limits both ends share.
    pub fn service(&self) -> ToolExecutorServer<Self> {
        ToolExecutorServer::new(self.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }

    /// What becomes of a request: the stream of its answer, or why there is none.
    fn begin(&self, request: v1::ExecuteRequest) -> Result<Answers, Status> {
        let order = match Order::read(request) {
            Ok(order) => order,
            Err(error) => return Ok(refuse("request-invalid", &error.to_string())),
        };
        let Some(hosted) = self.inner.tools.get(order.tool_id.as_str()) else {
            return Ok(refuse("tool-not-served", &format!("this executor has no tool `{}`", order.tool_id)));
        };
        if hosted.descriptor.semver != order.tool_semver {
            return Ok(refuse(
                "tool-version-mismatch",
                &format!("this executor serves version {}", hosted.descriptor.semver),
            ));
        }
        let may_repeat = hosted.descriptor.recovery == Recovery::Idempotent;
        match self.inner.calls.enter(order.call_id, order.fingerprint.clone(), may_repeat) {
            Entrance::Run(running, listening) => {
                let (inner, hosted) = (Arc::clone(&self.inner), hosted.clone());
                tokio::spawn(async move {
                    let call = order.into_call(running.stop.child_token());
                    let (id, progress) = (call.call_id, ProgressSink::new(running.lines.clone()));
                    let finish = work::drive(&hosted.tool, &hosted.descriptor, call, progress, &running.stop).await;
                    inner.calls.leave(id, &running, finish);
                });
                Ok(Box::pin(work::listen(listening)))
            }
            Entrance::Join(listening) => Ok(Box::pin(work::listen(listening))),
            Entrance::Repeat(result) => Ok(only(v1::ToolResult::clone(&result))),
            Entrance::Forgotten => Err(Status::already_exists("this call has ended and its result is no longer kept")),
            Entrance::Refuse(code, message) => Ok(refuse(code, message)),
        }
    }

    /// What the tools themselves remember of a call that this process knows nothing of.
    async fn recall(&self, call: CallId) -> Recall {
        let keepers = self.inner.tools.values().filter(|h| h.descriptor.recovery == Recovery::Deduplicating);
        let mut all = Recall::NotKept;
        for hosted in keepers {
            match hosted.tool.recall(call).await {
                ended @ Recall::Ended(_) => return ended,
                Recall::NotSeen => all = Recall::NotSeen,
                // One tool that cannot say is enough for nobody to be able to.
                Recall::NotKept => return Recall::NotKept,
            }
        }
        all
    }
}

type Answers = Pin<Box<dyn Stream<Item = Result<v1::ExecuteResponse, Status>> + Send>>;

/// A stream of nothing but a result.
fn only(result: v1::ToolResult) -> Answers {
    let event = v1::execute_response::Event::Result(result);
    Box::pin(futures::stream::iter([Ok(v1::ExecuteResponse { event: Some(event) })]))
}

/// The answer to a call that was certainly not begun.
fn refuse(code: &str, message: &str) -> Answers {
    only(v1::ToolResult {
        outcome: Outcome::NotStarted.into(),
        error_code: code.to_owned(),
        error_message: message.to_owned(),
        ..v1::ToolResult::default()
    })
}

fn call_id(text: &str) -> Result<CallId, Status> {
    text.parse().map_err(|error| Status::invalid_argument(format!("call_id: {error}")))
}

#[tonic::async_trait]
impl ToolExecutor for ToolServer {
    type ExecuteStream = Answers;

    async fn describe(&self, _: Request<v1::DescribeRequest>) -> Result<Response<v1::DescribeResponse>, Status> {
        let tools = self.inner.tools.values().map(|hosted| wire::descriptor_out(&hosted.descriptor)).collect();
        Ok(Response::new(v1::DescribeResponse { tools }))
    }

    async fn execute(&self, request: Request<v1::ExecuteRequest>) -> Result<Response<Answers>, Status> {
        self.begin(request.into_inner()).map(Response::new)
    }

    async fn cancel(&self, request: Request<v1::CancelRequest>) -> Result<Response<v1::CancelResponse>, Status> {
        self.inner.calls.cancel(call_id(&request.get_ref().call_id)?);
        Ok(Response::new(v1::CancelResponse {}))
    }

    async fn outcome(&self, request: Request<v1::OutcomeRequest>) -> Result<Response<v1::OutcomeResponse>, Status> {
        let call = call_id(&request.get_ref().call_id)?;
        let (state, result) = match self.inner.calls.known(call) {
            Known::Running => (State::Running, None),
            Known::Ended(result) => (State::Ended, Some(v1::ToolResult::clone(&result))),
            Known::Refused => (State::NotSeen, None),
            Known::Forgotten => (State::NotKept, None),
            // A process that was started a moment ago has seen nothing; only a record that outlives it can tell.
            Known::Nothing => match self.recall(call).await {
                Recall::Ended(outcome) => (State::Ended, Some(work::result_of(outcome))),
                Recall::NotSeen => {
                    self.inner.calls.cancel(call);
                    (State::NotSeen, None)
                }
                Recall::NotKept => (State::NotKept, None),
            },
        };
        Ok(Response::new(v1::OutcomeResponse { state: state.into(), result }))
    }
}
