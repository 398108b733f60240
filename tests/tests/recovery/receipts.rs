//! An executor that keeps its own books: a receipt for each execution, durable before its answer leaves.
//!
//! It shares no code with the runtime or with the bundled executor server, only the wire contract, and it outlives every
//! node. A test tells it how to behave: how long to work, where to stand still, whether to answer at all.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use signalbox_proto::v1;
use signalbox_proto::v1::execute_response::Event;
use signalbox_proto::v1::outcome_response::State as OutcomeState;
use signalbox_proto::v1::tool_executor_server::{ToolExecutor, ToolExecutorServer};
use signalbox_proto::v1::tool_result::Outcome;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};
use tonic::codegen::tokio_stream::Stream;
use tonic::codegen::tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

/// May be sent again.
pub(crate) const IDEMPOTENT: &str = "calendar.read";
/// Remembers what it did, and can be asked.
pub(crate) const DEDUPLICATING: &str = "calendar.write";
/// Must not be sent again.
pub(crate) const AT_MOST_ONCE: &str = "notify.send";

/// A sign of life, well before the client gives a call up.
const HEARTBEAT: Duration = Duration::from_secs(2);

/// One execution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Receipt {
    pub(crate) call_id: String,
    pub(crate) attempt: u32,
    pub(crate) tool_id: String,
    pub(crate) run_id: String,
    pub(crate) step_id: String,
    /// What it used, in millionths of a cost unit; the same for every execution of one call.
    pub(crate) cost_micros: i64,
}

/// What the executor does with calls of one tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Way {
    /// How long it works before it takes effect.
    pub(crate) works_ms: u64,
    /// Stands still before it takes effect, until the test says go.
    pub(crate) stops_before: bool,
    /// Has taken effect and written its receipt, and stands still with the answer, until the test says go.
    pub(crate) stops_after: bool,
    /// Takes effect and, the first time, drops the conversation instead of answering.
    pub(crate) hangs_up: bool,
    /// Does not hear a cancel.
    pub(crate) deaf: bool,
    /// Can be asked for the outcome although it does not say so.
    pub(crate) remembers: bool,
}

#[derive(Default)]
struct Book {
    ways: BTreeMap<String, Way>,
    receipts: Vec<Receipt>,
    seen: BTreeMap<String, Seen>,
    refused: BTreeSet<String>,
    cancelled: BTreeSet<String>,
    asked: Vec<String>,
}

struct Seen {
    tool: String,
    result: Option<v1::ToolResult>,
}

struct Inner {
    book: Mutex<Book>,
    file: Mutex<std::fs::File>,
    /// Counts changes of the book.
    moved: watch::Sender<u64>,
    /// Counts how often the test said go.
    go: watch::Sender<bool>,
}

/// The executor, and a runtime of its own that no test's end takes away in the middle of a call.
pub(crate) struct Receipts {
    inner: Arc<Inner>,
    pub(crate) uri: String,
    path: PathBuf,
    _folder: TempDir,
    runtime: Option<Runtime>,
}

impl Receipts {
    pub(crate) fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("receipts.jsonl");
        let inner = Arc::new(Inner {
            book: Mutex::default(),
            file: Mutex::new(std::fs::File::create(&path).unwrap()),
            moved: watch::Sender::new(0),
            go: watch::Sender::new(false),
        });
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let uri = format!("http://{}", listener.local_addr().unwrap());
        let executor = ToolExecutorServer::new(Executor(inner.clone()));
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
            Server::builder().add_service(executor).serve_with_incoming(incoming).await.unwrap();
        });
        Self { inner, uri, path, _folder: folder, runtime: Some(runtime) }
    }

    /// How calls of this tool are done from now on.
    pub(crate) fn on(&self, tool: &str, way: Way) {
        self.inner.go.send_replace(false);
        self.inner.book().ways.insert(tool.to_owned(), way);
    }

    /// Lets everything go on that stands still.
    pub(crate) fn go(&self) {
        self.inner.go.send_replace(true);
    }

    /// The receipts as they lie on the disk.
    pub(crate) fn read(&self) -> Vec<Receipt> {
        let text = std::fs::read_to_string(&self.path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// How often calls of this tool have been executed.
    pub(crate) fn executions(&self, tool: &str) -> usize {
        self.inner.book().receipts.iter().filter(|receipt| receipt.tool_id == tool).count()
    }

    /// Calls that somebody has asked about.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.inner.book().asked.clone()
    }

    /// Waits until this many calls have arrived.
    pub(crate) async fn arrived(&self, calls: usize) {
        self.until(|book| book.seen.len() >= calls).await;
    }

    /// Waits until this many executions have left a receipt.
    pub(crate) async fn executed(&self, executions: usize) {
        self.until(|book| book.receipts.len() >= executions).await;
    }

    pub(crate) fn all_executions(&self) -> usize {
        self.inner.book().receipts.len()
    }

    async fn until(&self, what: impl Fn(&Book) -> bool) {
        let mut moved = self.inner.moved.subscribe();
        let there = async {
            while !what(&self.inner.book()) {
                moved.changed().await.unwrap();
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(40), there).await;
        assert!(waited.is_ok(), "the executor was never asked to");
    }
}

impl Drop for Receipts {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Inner {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Book) -> T) -> T {
        let answer = change(&mut self.book());
        self.moved.send_modify(|moved| *moved += 1);
        answer
    }

    async fn gone(&self) {
        let _ = self.go.subscribe().wait_for(|go| *go).await;
    }

    fn is_cancelled(&self, call: &str) -> bool {
        self.book().cancelled.contains(call)
    }

    async fn cancelled(&self, call: &str) {
        let mut moved = self.moved.subscribe();
        while !self.is_cancelled(call) {
            let _ = moved.changed().await;
        }
    }

    /// The receipt is on the disk when this returns.
    fn receipt(&self, receipt: Receipt) {
        {
            let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
            writeln!(file, "{}", serde_json::to_string(&receipt).unwrap()).unwrap();
            file.sync_data().unwrap();
        }
        self.change(|book| book.receipts.push(receipt));
    }

    /// One execution, from its arrival to its answer; `None` if it hangs up.
    async fn work(&self, call: &v1::ExecuteRequest, way: Way) -> Option<v1::ToolResult> {
        let before = async {
            tokio::time::sleep(Duration::from_millis(way.works_ms)).await;
            if way.stops_before {
                self.gone().await;
            }
        };
        tokio::select! {
            () = before => {}
            () = self.cancelled(&call.call_id), if !way.deaf => {
                return Some(self.ended(&call.call_id, v1::ToolResult { outcome: Outcome::Cancelled.into(), ..measured(0) }));
            }
        }
        let cost_micros = cost_of(&call.call_id);
        self.receipt(Receipt {
            call_id: call.call_id.clone(),
            attempt: call.attempt,
            tool_id: call.tool_id.clone(),
            run_id: call.run_id.clone(),
            step_id: call.step_id.clone(),
            cost_micros,
        });
        if way.stops_after {
            self.gone().await;
        }
        let result = v1::ToolResult {
            outcome: Outcome::Ok.into(),
            output_json: serde_json::to_vec(&serde_json::json!({ "did": call.step_id })).unwrap().into(),
            effects: vec![format!("did {}", call.call_id)],
            ..measured(cost_micros)
        };
        let result = self.ended(&call.call_id, result);
        (!way.hangs_up || call.attempt > 1).then_some(result)
    }

    fn ended(&self, call: &str, result: v1::ToolResult) -> v1::ToolResult {
        self.change(|book| {
            if let Some(seen) = book.seen.get_mut(call) {
                seen.result = Some(result.clone());
            }
        });
        result
    }
}

fn measured(cost_micros: i64) -> v1::ToolResult {
    #[allow(clippy::cast_precision_loss, reason = "less than a million")]
    let units = [("cost-units".to_owned(), cost_micros as f64 / 1_000_000.0)].into();
    v1::ToolResult { measured: Some(v1::MeasuredUsage { units }), ..v1::ToolResult::default() }
}

/// What a call uses: some tenths of a unit that follow from its id, always less than is reserved for it.
fn cost_of(call: &str) -> i64 {
    100_000 * (1 + i64::from(call.bytes().map(u32::from).sum::<u32>() % 9))
}

struct Executor(Arc<Inner>);

#[tonic::async_trait]
impl ToolExecutor for Executor {
    type ExecuteStream = Pin<Box<dyn Stream<Item = Result<v1::ExecuteResponse, Status>> + Send>>;

    async fn describe(&self, _: Request<v1::DescribeRequest>) -> Result<Response<v1::DescribeResponse>, Status> {
        let tool = |id: &str, recovery: v1::RecoveryPolicy| v1::ToolDescriptor {
            tool_id: id.to_owned(),
            semver: "1.0.0".to_owned(),
            input_schema_json: "{}".into(),
            output_schema_json: "{}".into(),
            has_side_effects: true,
            recovery: recovery.into(),
            ..v1::ToolDescriptor::default()
        };
        let tools = vec![
            tool(IDEMPOTENT, v1::RecoveryPolicy::Idempotent),
            tool(DEDUPLICATING, v1::RecoveryPolicy::Deduplicating),
            tool(AT_MOST_ONCE, v1::RecoveryPolicy::AtMostOnce),
        ];
        Ok(Response::new(v1::DescribeResponse { tools }))
    }

    async fn execute(&self, request: Request<v1::ExecuteRequest>) -> Result<Response<Self::ExecuteStream>, Status> {
        let call = request.into_inner();
        let id = call.call_id.clone();
        let (answers, stream) = mpsc::channel(8);
        let (way, refused, before) = self.0.change(|book| {
            let seen = Seen { tool: call.tool_id.clone(), result: None };
            let before = book.seen.get(&id).and_then(|seen| seen.result.clone());
            let refused = book.refused.contains(&id);
            if !refused {
                book.seen.entry(id.clone()).or_insert(seen);
            }
            (book.ways.get(&call.tool_id).copied().unwrap_or_default(), refused, before)
        });
        let inner = self.0.clone();
        // The work goes on whatever becomes of the conversation.
        tokio::spawn(async move {
            let result = if refused {
                let code = "call-refused".to_owned();
                Some(v1::ToolResult { outcome: Outcome::NotStarted.into(), error_code: code, ..Default::default() })
            } else if let (DEDUPLICATING, Some(before)) = (call.tool_id.as_str(), before) {
                Some(before)
            } else {
                let work = inner.work(&call, way);
                tokio::pin!(work);
                loop {
                    tokio::select! {
                        result = &mut work => break result,
                        () = tokio::time::sleep(HEARTBEAT) => {
                            let _ = answers.try_send(Ok(says(Event::Heartbeat(v1::Heartbeat {}))));
                        }
                    }
                }
            };
            let answer = match result {
                Some(result) => Ok(says(Event::Result(result))),
                None => Err(Status::unavailable("the executor died")),
            };
            // The node may be gone.
            let _ = answers.send(answer).await;
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }

    async fn cancel(&self, request: Request<v1::CancelRequest>) -> Result<Response<v1::CancelResponse>, Status> {
        let id = request.into_inner().call_id;
        self.0.change(|book| {
            if !book.seen.contains_key(&id) {
                book.refused.insert(id.clone());
            }
            book.cancelled.insert(id);
        });
        Ok(Response::new(v1::CancelResponse {}))
    }

    async fn outcome(&self, request: Request<v1::OutcomeRequest>) -> Result<Response<v1::OutcomeResponse>, Status> {
        let id = request.into_inner().call_id;
        let (state, result) = self.0.change(|book| {
            book.asked.push(id.clone());
            match book.seen.get(&id) {
                Some(seen) => {
                    let remembers = book.ways.get(&seen.tool).is_some_and(|way| way.remembers);
                    match &seen.result {
                        _ if seen.tool != DEDUPLICATING && !remembers => (OutcomeState::NotKept, None),
                        Some(result) => (OutcomeState::Ended, Some(result.clone())),
                        None => (OutcomeState::Running, None),
                    }
                }
                None => {
                    book.refused.insert(id.clone());
                    (OutcomeState::NotSeen, None)
                }
            }
        });
        Ok(Response::new(v1::OutcomeResponse { state: state.into(), result }))
    }
}

const fn says(event: Event) -> v1::ExecuteResponse {
    v1::ExecuteResponse { event: Some(event) }
}
