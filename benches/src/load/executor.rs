//! An executor that does nothing, and the process it is in.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};

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

/// What it serves: a tool that no bundled executor has.
pub const TOOL: &str = "calendar.read";
/// An agent that may use it.
pub const AGENT: &str = "ref.study-plan-synthesis";

/// Answers every call at once with the same bytes.
struct NoOp {
    answer: v1::ToolResult,
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

    async fn execute(&self, _: Request<v1::ExecuteRequest>) -> Result<Response<Answers>, Status> {
        let answer = v1::ExecuteResponse { event: Some(Event::Result(self.answer.clone())) };
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
pub async fn serve(payload: usize) -> Result<(), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let mut out = std::io::stdout();
    writeln!(out, "{}", json!({ "listen": listener.local_addr()? }))?;
    out.flush()?;
    drop(out);
    let frame = json!({ "pad": "" }).to_string().len();
    let output = json!({ "pad": "x".repeat(payload.saturating_sub(frame)) });
    let answer = v1::ToolResult {
        outcome: Outcome::Ok.into(),
        output_json: output.to_string().into_bytes().into(),
        ..v1::ToolResult::default()
    };
    let service = ToolExecutorServer::new(NoOp { answer }).max_encoding_message_size(16 << 20);
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
    pub fn executor(payload: usize) -> Result<Self, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["executor", "--payload", &payload.to_string()]);
        Self::start(command)
    }
}

impl Drop for Process {
    // At once, as a power cut would: nothing of a measurement is kept.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
