//! An executor that does nothing, and the process it is in.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::stream::{Iter, iter};
use serde_json::{Value, json};
use signalbox_proto::v1;
use signalbox_proto::v1::execute_response::Event;
use signalbox_proto::v1::tool_executor_server::{ToolExecutor, ToolExecutorServer};
use signalbox_proto::v1::tool_result::Outcome;
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

use super::Failure;
use super::options::Options;
use super::tool::padded;

/// What it serves: a tool that no bundled executor has.
pub const TOOL: &str = "calendar.read";
/// An agent that may use it.
pub const AGENT: &str = "ref.study-plan-synthesis";

/// Answers every call with the same bytes.
struct NoOp {
    answer: v1::ToolResult,
    /// How long it works on a call.
    takes: Duration,
    /// What it calls meanwhile, if anything: in a comparison the work of a step is one HTTP request.
    tool: Option<Tool>,
    /// Where calls are written down, if they are.
    books: Option<Arc<Mutex<Noted>>>,
}

/// An HTTP server that every contender of a comparison asks.
#[derive(Debug, Clone)]
struct Tool {
    client: reqwest::Client,
    uri: String,
}

impl Tool {
    fn at(uri: String) -> Result<Self, Failure> {
        let client = reqwest::Client::builder().tcp_nodelay(true).pool_max_idle_per_host(1_024).build()?;
        Ok(Self { client, uri })
    }

    async fn call(&self, call_id: &str) -> Result<Bytes, reqwest::Error> {
        let answer = self.client.get(format!("{}/call/{call_id}/0", self.uri)).send().await?;
        answer.error_for_status()?.bytes().await
    }
}

/// Which calls came in how often, and when the last one did.
#[derive(Debug, Default)]
struct Noted {
    times: HashMap<String, usize>,
    last: Option<Instant>,
}

type Answers = Iter<std::vec::IntoIter<Result<v1::ExecuteResponse, Status>>>;

#[tonic::async_trait]
impl ToolExecutor for NoOp {
    type ExecuteStream = Answers;

    async fn describe(&self, _: Request<v1::DescribeRequest>) -> Result<Response<v1::DescribeResponse>, Status> {
        let tool = v1::ToolDescriptor {
            tool_id: TOOL.to_owned(),
            semver: "1.0.0".to_owned(),
            recovery: v1::RecoveryPolicy::Idempotent.into(),
            ..v1::ToolDescriptor::default()
        };
        Ok(Response::new(v1::DescribeResponse { tools: vec![tool] }))
    }

    async fn execute(&self, request: Request<v1::ExecuteRequest>) -> Result<Response<Answers>, Status> {
        let call_id = request.into_inner().call_id;
        let mut answer = self.answer.clone();
        if let Some(tool) = &self.tool {
            let asked = tool.call(&call_id).await;
            answer.output_json = asked.map_err(|error| Status::internal(format!("the tool: {error}")))?;
        }
        if let Some(books) = &self.books {
            let mut books = books.lock().unwrap_or_else(PoisonError::into_inner);
            *books.times.entry(call_id).or_default() += 1;
            books.last = Some(Instant::now());
        }
        if !self.takes.is_zero() {
            tokio::time::sleep(self.takes).await;
        }
        let answer = v1::ExecuteResponse { event: Some(Event::Result(answer)) };
        Ok(Response::new(iter(vec![Ok(answer)])))
    }

    async fn cancel(&self, _: Request<v1::CancelRequest>) -> Result<Response<v1::CancelResponse>, Status> {
        Ok(Response::new(v1::CancelResponse {}))
    }

    async fn outcome(&self, _: Request<v1::OutcomeRequest>) -> Result<Response<v1::OutcomeResponse>, Status> {
        let state = v1::outcome_response::State::Ended.into();
        Ok(Response::new(v1::OutcomeResponse { state, result: Some(self.answer.clone()) }))
    }
}

/// Serves until the process ends; prints its address first.
pub async fn serve(options: &Options) -> Result<(), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let mut out = std::io::stdout();
    writeln!(out, "{}", json!({ "listen": listener.local_addr()? }))?;
    out.flush()?;
    let tool = options.tool.clone().map(Tool::at).transpose()?;
    serve_on(listener, NoOp { answer: answer(options.payload), takes: Duration::ZERO, tool, books: None }).await
}

fn answer(payload: usize) -> v1::ToolResult {
    v1::ToolResult {
        outcome: Outcome::Ok.into(),
        output_json: padded(payload).into_bytes().into(),
        ..v1::ToolResult::default()
    }
}

async fn serve_on(listener: TcpListener, executor: NoOp) -> Result<(), Failure> {
    let service = ToolExecutorServer::new(executor).max_encoding_message_size(16 << 20);
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    Server::builder().add_service(service).serve_with_incoming(incoming).await?;
    Ok(())
}

/// A process that this one has started and that ends with it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// Its id.
    pub pid: u32,
    /// Where it listens, as `http://ip:port`.
    pub uri: String,
}

impl Process {
    /// Starts a command that first prints one line of JSON with the address it listens on.
    pub fn start(mut command: Command) -> Result<Self, Failure> {
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut process = Self { pid: child.id(), child, uri: String::new() };
        let out = process.child.stdout.take().ok_or("the process has no output")?;
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line)?;
        let started = serde_json::from_str::<Value>(&line);
        let started = started.map_err(|_| "the process has not started; its errors stand above")?;
        let listen = started["listen"].as_str().ok_or("the process does not say where it listens")?;
        process.uri = format!("http://{listen}");
        Ok(process)
    }

    /// Starts the executor.
    pub fn executor(options: &Options) -> Result<Self, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["executor", "--payload", &options.payload.to_string()]);
        if let Some(tool) = &options.tool {
            command.args(["--tool", tool]);
        }
        Self::start(command)
    }
}

impl Process {
    /// Ends it at once, as a power cut would.
    pub fn end(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// An executor in this process that takes its time and writes down each call.
#[derive(Debug)]
pub struct Books {
    uri: String,
    calls: Arc<Mutex<Noted>>,
}

impl Books {
    /// Starts it.
    pub async fn open(payload: usize, takes: Duration) -> Result<Self, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let uri = format!("http://{}", listener.local_addr()?);
        let calls = Arc::<Mutex<Noted>>::default();
        let executor = NoOp { answer: answer(payload), takes, tool: None, books: Some(calls.clone()) };
        tokio::spawn(serve_on(listener, executor));
        Ok(Self { uri, calls })
    }

    /// Where it listens.
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// How many calls came in, each counted once.
    pub fn calls(&self) -> usize {
        self.lock().times.len()
    }

    /// How often each call came in.
    pub fn counts(&self) -> Vec<usize> {
        self.lock().times.values().copied().collect()
    }

    /// When the last call came in.
    pub fn last_call(&self) -> Option<Instant> {
        self.lock().last
    }

    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
