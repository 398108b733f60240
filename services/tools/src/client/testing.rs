//! Stand-ins for the tests of the client: a clock, admissions, tools and executors that follow a script.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use futures::future::BoxFuture;
use futures::{Stream, StreamExt as _};
use serde_json::{Value, json};
use signalbox_domain::catalog::Recovery;
use signalbox_domain::governance::grant::Constraints;
use signalbox_domain::identity::{Actor, Visibility};
use signalbox_domain::ids::{CallId, RunId, RunKey, TenantId, ToolId};
use signalbox_domain::quantity::{BudgetCategory, Micros, Usage};
use signalbox_domain::run::append::{Accepted, AskAnswer, RunHead};
use signalbox_domain::run::chain::{EventHash, StoredEvent};
use signalbox_domain::run::event::{CallPending, RunEvent, StoredValue};
use signalbox_domain::run::step::CallResult;
use signalbox_domain::time::{UnixMicros, UnixMs};
use signalbox_ports::clock::{BootInstant, Clock};
use signalbox_ports::journal::{Admitted, Appended, AskOutcome};
use signalbox_ports::tools::{CallOrder, CallProgress, Tools as _};
use signalbox_proto::v1;
use signalbox_proto::v1::execute_response::Event;
use signalbox_proto::v1::tool_executor_server::{ToolExecutor, ToolExecutorServer};
use tokio::sync::mpsc;
use tonic::{Request, Response, Status};
use uuid::Uuid;

use super::{ExecutorClient, in_process};
use crate::server::ToolServer;
use crate::tool::{Descriptor, ProgressSink, Recall, Tool, ToolCall, ToolOutcome};

/// A boot clock that stands still unless told otherwise.
#[derive(Debug, Default)]
pub(crate) struct HandClock(AtomicU64);

impl HandClock {
    pub(crate) fn advance_ms(&self, ms: u64) {
        self.0.fetch_add(ms * 1_000_000, Ordering::SeqCst);
    }
}

impl Clock for HandClock {
    fn now(&self) -> UnixMs {
        UnixMs(0)
    }
    fn boot(&self) -> BootInstant {
        BootInstant(self.0.load(Ordering::SeqCst))
    }
}

/// An order for the scripted tool.
pub(crate) fn order(n: u128) -> CallOrder {
    CallOrder {
        call_id: CallId::new(Uuid::from_u128(n)),
        attempt: 2,
        tenant_id: TenantId::new("acme").unwrap(),
        run_id: RunId::new(Uuid::from_u128(7)),
        step_id: "one".parse().unwrap(),
        tool_id: ToolId::new("memory.read").unwrap(),
        tool_semver: "1.0.0".to_owned(),
        args: json!({ "n": 1 }),
        secrets: std::collections::BTreeMap::new(),
        ceiling: Usage::of(BudgetCategory::CostUnits, Micros::units(2)),
        timeout_ms: 60_000,
        constraints: Constraints::default(),
        trace: None,
    }
}

/// The admission of an order, written `append_began`.
pub(crate) fn admission(order: &CallOrder, append_began: BootInstant) -> Admitted {
    let event =
        RunEvent::CallRedispatched { call_id: order.call_id, attempt: order.attempt, requested_at_unix_ms: UnixMs(0) };
    admission_by(&event, append_began)
}

/// The pending record of an order.
pub(crate) fn pending(order: &CallOrder) -> RunEvent {
    RunEvent::CallPending(Box::new(CallPending {
        call_id: order.call_id,
        step_id: order.step_id.clone(),
        stage_id: "stage".parse().unwrap(),
        agent_id: "ref.research".parse().unwrap(),
        tool_id: order.tool_id.clone(),
        tool_semver: order.tool_semver.clone(),
        args_hash: String::new(),
        redacted_args: StoredValue::Inline(json!({})),
        secrets: std::collections::BTreeMap::new(),
        grant_id: "grant".parse().unwrap(),
        attempt: order.attempt,
        recovery: Recovery::Idempotent,
        estimated_usage: order.ceiling.clone(),
        reservations: Vec::new(),
        scope_check_result_id: String::new(),
        capability_audit_ids: Vec::new(),
        budget_warnings: Vec::new(),
        requested_at_unix_ms: UnixMs(0),
        timeout_ms: order.timeout_ms,
        simulated: false,
        answers: Vec::new(),
        epoch: 0,
        meters: Vec::new(),
    }))
}

/// The admission a journal would give for this event.
pub(crate) fn admission_by(event: &RunEvent, append_began: BootInstant) -> Admitted {
    let run_key = RunKey::new(Uuid::from_u128(9));
    let (kind, body) = event.encode();
    let stored = StoredEvent {
        run_key,
        seq: 5,
        at: UnixMicros(0),
        actor: Actor::system(),
        visibility: Visibility::TenantOperator,
        kind,
        version: 1,
        body,
        prev_hash: EventHash::ZERO,
        hash: EventHash::ZERO,
    };
    let head = RunHead {
        run_key,
        run_id: RunId::new(Uuid::from_u128(7)),
        tenant_id: TenantId::new("acme").unwrap(),
        owner: None,
        lease_epoch: 1,
        last_seq: 5,
        last_hash: EventHash::ZERO,
        last_at: UnixMicros(0),
        control_seq: 0,
        inbox_len: 0,
        closed: false,
    };
    let answers = vec![AskAnswer::Admitted { seq: 5 }];
    let accepted = Accepted {
        projection: None,
        events: vec![stored],
        read_back: Vec::new(),
        answers,
        head,
        begun: Vec::new(),
        ends: false,
    };
    match Appended::accept(accepted, append_began).asks.pop() {
        Some(AskOutcome::Admitted(admitted)) => admitted,
        other => panic!("not admitted: {other:?}"),
    }
}

type Script = dyn Fn(ToolCall, ProgressSink) -> BoxFuture<'static, ToolOutcome> + Send + Sync;

/// A tool that does what a closure says.
pub(crate) struct ScriptedTool {
    pub(crate) has_side_effects: bool,
    pub(crate) recovery: Recovery,
    pub(crate) recall: Recall,
    script: Box<Script>,
}

impl ScriptedTool {
    pub(crate) fn new<F>(script: impl Fn(ToolCall, ProgressSink) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ToolOutcome> + Send + 'static,
    {
        let script =
            Box::new(move |call, progress| -> BoxFuture<'static, ToolOutcome> { Box::pin(script(call, progress)) });
        Self { has_side_effects: false, recovery: Recovery::Idempotent, recall: Recall::NotKept, script }
    }
    pub(crate) fn server(self) -> ToolServer {
        ToolServer::new([Arc::new(self) as Arc<dyn Tool>])
    }
}

#[async_trait]
impl Tool for ScriptedTool {
    fn descriptor(&self) -> Descriptor {
        Descriptor {
            tool_id: "memory.read".to_owned(),
            semver: "1.0.0".to_owned(),
            input_schema: json!({}),
            output_schema: json!({}),
            ceiling: Usage::none(),
            has_side_effects: self.has_side_effects,
            recovery: self.recovery,
        }
    }
    async fn run(&self, call: ToolCall, progress: ProgressSink) -> ToolOutcome {
        (self.script)(call, progress).await
    }
    async fn recall(&self, _: CallId) -> Recall {
        self.recall.clone()
    }
}

/// What an executor with no regard for the contract sends.
#[derive(Debug, Clone)]
pub(crate) enum Say {
    Event(Box<Event>),
    Fail(Status),
    Nothing,
}

/// One line of a script.
pub(crate) fn say(event: Event) -> Say {
    Say::Event(Box::new(event))
}

/// An executor that answers every call with the same lines.
pub(crate) struct ScriptedExecutor {
    pub(crate) lines: Vec<Say>,
    pub(crate) cancelled: mpsc::UnboundedSender<String>,
}

#[tonic::async_trait]
impl ToolExecutor for ScriptedExecutor {
    type ExecuteStream = Pin<Box<dyn Stream<Item = Result<v1::ExecuteResponse, Status>> + Send>>;

    async fn describe(&self, _: Request<v1::DescribeRequest>) -> Result<Response<v1::DescribeResponse>, Status> {
        let tool = v1::ToolDescriptor {
            tool_id: "memory.read".to_owned(),
            semver: "1.0.0".to_owned(),
            ..v1::ToolDescriptor::default()
        };
        Ok(Response::new(v1::DescribeResponse { tools: vec![tool] }))
    }
    async fn execute(&self, _: Request<v1::ExecuteRequest>) -> Result<Response<Self::ExecuteStream>, Status> {
        if let [Say::Fail(status)] = self.lines.as_slice() {
            return Err(status.clone());
        }
        let lines = futures::stream::iter(self.lines.clone()).then(|say| async move {
            match say {
                Say::Event(event) => Ok(v1::ExecuteResponse { event: Some(*event) }),
                Say::Fail(status) => Err(status),
                Say::Nothing => std::future::pending().await,
            }
        });
        Ok(Response::new(Box::pin(lines)))
    }
    async fn cancel(&self, request: Request<v1::CancelRequest>) -> Result<Response<v1::CancelResponse>, Status> {
        let _ = self.cancelled.send(request.into_inner().call_id);
        Ok(Response::new(v1::CancelResponse {}))
    }
    async fn outcome(&self, _: Request<v1::OutcomeRequest>) -> Result<Response<v1::OutcomeResponse>, Status> {
        Err(Status::unimplemented("no"))
    }
}

/// A client with its clock, ready for calls.
pub(crate) struct Bench {
    pub(crate) client: ExecutorClient,
    pub(crate) clock: Arc<HandClock>,
}

impl Bench {
    /// Before tools.
    pub(crate) async fn of_tool(tool: ScriptedTool) -> Self {
        let clock = Arc::new(HandClock::default());
        let client = ExecutorClient::connect_in_process(tool.server(), clock.clone()).await.unwrap();
        Self { client, clock }
    }
    /// Before an executor that follows a script; the receiver hears of cancellations.
    pub(crate) async fn of_script(lines: Vec<Say>) -> (Self, mpsc::UnboundedReceiver<String>) {
        let clock = Arc::new(HandClock::default());
        let (cancelled, heard) = mpsc::unbounded_channel();
        let executor = ScriptedExecutor { lines, cancelled };
        let channel = in_process(ToolExecutorServer::new(executor).max_encoding_message_size(usize::MAX));
        let client = ExecutorClient::bind(vec![("script".to_owned(), channel)], 2, clock.clone()).await.unwrap();
        (Self { client, clock }, heard)
    }
    /// One call with a fresh admission.
    pub(crate) async fn call(&self, order: CallOrder) -> CallResult {
        self.call_listening(order).await.0
    }
    /// The same, with the progress that came.
    pub(crate) async fn call_listening(&self, order: CallOrder) -> (CallResult, Vec<CallProgress>) {
        let admitted = admission(&order, self.clock.boot());
        let permit = self.client.permit(&order.tool_id).expect("a permit");
        let (progress, mut lines) = mpsc::channel(64);
        let result = self.client.execute(admitted, order, permit, progress).await;
        let mut heard = Vec::new();
        while let Ok(line) = lines.try_recv() {
            heard.push(line);
        }
        (result, heard)
    }
}

/// A result as it comes from the wire.
pub(crate) fn wire_result(outcome: v1::tool_result::Outcome, output: &Value) -> v1::ToolResult {
    v1::ToolResult { outcome: outcome.into(), output_json: output.to_string().into(), ..v1::ToolResult::default() }
}
