//! The node as an operator has it: the real binary on a data folder or a PostgreSQL, killed as a power cut would.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use signalbox_domain::governance::budget::MeteredBudget;
use signalbox_domain::ids::TenantId;
use signalbox_domain::run::chain::StoredEvent;
use signalbox_domain::run::envelope::RunEnvelope;
use signalbox_ports::clock::{Clock as _, SystemClock};
use signalbox_ports::governance::Governance;
use signalbox_ports::journal::Journal;
use signalbox_proto::v1;
use signalbox_proto::v1::run_service_client::RunServiceClient;
use signalbox_store::testing::TemporaryDatabase;
use signalbox_store::{PostgresOptions, PostgresStore, SqliteOptions, SqliteStore};
use tempfile::TempDir;
use tonic::transport::{Channel, Endpoint};
use uuid::Uuid;

use crate::receipts::Receipts;

/// The agent whose family may use every tool of the receipts executor.
pub(crate) const AGENT: &str = "ref.study-plan-synthesis";
/// The tenant of the development identity.
pub(crate) const TENANT: &str = "default";
/// How long the grant for `notify.send` lives.
const GRANT_MS: i64 = 3_600_000;
/// How long anything may take before it counts as lost.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Where the journal is.
pub(crate) enum Place {
    Sqlite,
    Postgres(TemporaryDatabase),
    /// The same database behind another port.
    PostgresAt(TemporaryDatabase, u16),
}

/// An installation: what stays when a node dies.
pub(crate) struct Station {
    place: Place,
    folder: TempDir,
    node: Option<Node>,
}

struct Node {
    child: Child,
    addr: String,
}

impl Station {
    /// An installation with the executor beside the bundled tools, a budget that meters everything, and the grant that
    /// `notify.send` needs. A node is running.
    pub(crate) fn build(place: Place, receipts: &Receipts) -> Self {
        let folder = TempDir::new().unwrap();
        let config = format!(
            "[[executors]]\nuri = \"{}\"\n\n\
             [[budgets]]\nbudgetId = \"all\"\ntenantId = \"{TENANT}\"\nscope = \"tenant\"\nscopeKey = \"{TENANT}\"\n\
             category = \"cost-units\"\nlimit = 1000000\nonExceeded = \"kill\"\n\n\
             [[grants]]\ngrantId = \"notify\"\nscope = \"per-tenant\"\nscopeKey = \"{TENANT}\"\ntenantId = \"{TENANT}\"\n\
             toolId = \"notify.send\"\ntoolRange = \"^1\"\nrationale = \"a test\"\nexpiresAtUnixMs = {}\n",
            receipts.uri,
            SystemClock.now().0 + GRANT_MS
        );
        std::fs::write(folder.path().join("signalbox.toml"), config).unwrap();
        let mut station = Self { place, folder, node: None };
        station.start();
        station
    }

    fn data(&self) -> std::path::PathBuf {
        self.folder.path().join("data")
    }

    /// Starts a node where the last one was.
    pub(crate) fn start(&mut self) {
        let mut command = signalbox();
        command.args(["serve", "--listen", "127.0.0.1:0", "--output", "json", "--data"]).arg(self.data());
        command.arg("--config").arg(self.folder.path().join("signalbox.toml"));
        match &self.place {
            Place::Sqlite => {}
            Place::Postgres(database) => {
                command.env("SIGNALBOX_STORE", database.url());
            }
            Place::PostgresAt(database, port) => {
                command.env("SIGNALBOX_STORE", database.url_at(*port));
            }
        }
        let log = self.folder.path().join("node.log");
        let log_file = std::fs::OpenOptions::new().create(true).append(true).open(&log).unwrap();
        let mut child = command.stdout(Stdio::piped()).stderr(log_file).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let started: Value = serde_json::from_str(&line)
            .unwrap_or_else(|_| panic!("not started: {}", std::fs::read_to_string(&log).unwrap_or_default()));
        let addr = format!("http://{}", started["listen"].as_str().unwrap());
        self.node = Some(Node { child, addr });
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        if let Some(mut node) = self.node.take() {
            node.child.kill().unwrap();
            node.child.wait().unwrap();
        }
    }

    /// True if the node has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.node.as_mut().is_some_and(|node| node.child.try_wait().unwrap().is_some())
    }

    /// The address of the node that is running.
    pub(crate) fn addr(&self) -> String {
        self.node.as_ref().unwrap().addr.clone()
    }

    pub(crate) async fn client(&self) -> Client {
        Client::to(&self.addr()).await.unwrap()
    }

    /// Runs a command of the binary against this node, to its end.
    pub(crate) fn command(&self, line: &[&str], input: Option<&str>) -> Said {
        command_at(&self.addr(), line, input)
    }

    /// Ends the node and reads its store: the meters, and the journal of each run.
    pub(crate) async fn books(mut self, runs: &[Uuid]) -> (Vec<MeteredBudget>, Vec<Vec<StoredEvent>>) {
        self.kill();
        match &self.place {
            Place::Sqlite => {
                let options = SqliteOptions { clock: Arc::new(SystemClock), ..SqliteOptions::default() };
                let store = SqliteStore::open(&self.data(), options).await.unwrap();
                let read = read(&store, runs).await;
                store.close().await;
                read
            }
            Place::Postgres(database) | Place::PostgresAt(database, _) => {
                let store = PostgresStore::connect(&database.url(), PostgresOptions::default()).await.unwrap();
                let read = read(&store, runs).await;
                store.close().await;
                read
            }
        }
    }
}

impl Drop for Station {
    fn drop(&mut self) {
        if let Some(node) = &mut self.node {
            let _ = node.child.kill();
            let _ = node.child.wait();
        }
    }
}

async fn read(store: &(impl Journal + Governance), runs: &[Uuid]) -> (Vec<MeteredBudget>, Vec<Vec<StoredEvent>>) {
    let tenant = TenantId::new(TENANT).unwrap();
    let mut journals = Vec::new();
    for run in runs {
        let head = store.find(&tenant, signalbox_domain::ids::RunId::new(*run)).await.unwrap().unwrap();
        journals.push(store.read(head.run_key, 0, 1_000).await.unwrap());
    }
    (store.budgets().await.unwrap(), journals)
}

/// The binary, far from whatever the environment says.
fn signalbox() -> Command {
    let mut command = Command::new(signalbox_tests::binary().unwrap());
    for name in ["SIGNALBOX_ADDR", "SIGNALBOX_STORE", "RUST_LOG", "RUST_BACKTRACE"] {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

/// What a command said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) exit: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Runs a command of the binary against a node, to its end.
pub(crate) fn command_at(addr: &str, line: &[&str], input: Option<&str>) -> Said {
    let mut command = signalbox();
    command.env("SIGNALBOX_ADDR", addr).args(line).args(["--output", "json"]);
    let stdin = if input.is_some() { Stdio::piped() } else { Stdio::null() };
    let mut child = command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    if let Some(input) = input {
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    }
    let output = child.wait_with_output().unwrap();
    Said {
        exit: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Writes a text to a file in a folder and answers its path.
pub(crate) fn put(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

/// A client of one node.
#[derive(Clone)]
pub(crate) struct Client(RunServiceClient<Channel>);

impl Client {
    pub(crate) async fn to(addr: &str) -> Result<Self, tonic::transport::Error> {
        let channel = Endpoint::from_shared(addr.to_owned())?.tcp_nodelay(true).connect().await?;
        Ok(Self(RunServiceClient::new(channel).max_decoding_message_size(64 << 20)))
    }

    pub(crate) async fn submit(&mut self, run: Uuid, plan: &Value) -> Result<(), tonic::Status> {
        let submission = json!({ "rootAgentId": AGENT, "plan": plan });
        let request = v1::SubmitRunRequest {
            run_id: run.to_string(),
            submission_json: submission.to_string().into_bytes().into(),
        };
        self.0.submit_run(request).await.map(|_| ())
    }

    pub(crate) async fn get(&mut self, run: Uuid) -> RunEnvelope {
        let answer = self.0.get_run(v1::GetRunRequest { run_id: run.to_string() }).await.unwrap();
        serde_json::from_slice(&answer.into_inner().run.unwrap().envelope_json).unwrap()
    }

    /// Every run of the tenant: id, status, closed.
    pub(crate) async fn runs(&mut self) -> Result<Vec<v1::Run>, tonic::Status> {
        let mut runs = Vec::new();
        let mut page_token = String::new();
        loop {
            let request = v1::ListRunsRequest { page_size: 200, page_token, ..v1::ListRunsRequest::default() };
            let page = self.0.list_runs(request).await?.into_inner();
            runs.extend(page.runs);
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return Ok(runs);
            }
        }
    }

    pub(crate) async fn questions(&mut self) -> Vec<v1::Approval> {
        self.0.list_approvals(v1::ListApprovalsRequest {}).await.unwrap().into_inner().approvals
    }

    pub(crate) async fn decide(
        &mut self,
        question: &v1::Approval,
        decision: v1::ApprovalDecision,
    ) -> Result<(), tonic::Status> {
        let request = v1::DecideApprovalRequest {
            approval_id: question.approval_id.clone(),
            decision: decision.into(),
            reason: "a test has looked at it".to_owned(),
            subject_digest: question.subject_digest.clone(),
            command_id: Uuid::now_v7().to_string(),
        };
        self.0.decide_approval(request).await.map(|_| ())
    }

    pub(crate) async fn kill(&mut self, run: Uuid) -> v1::ControlRunResponse {
        let request = v1::ControlRunRequest {
            run_id: run.to_string(),
            command_id: Uuid::now_v7().to_string(),
            reason: "enough".to_owned(),
            expected_seq: 0,
            control: Some(v1::control_run_request::Control::Kill(v1::Kill {})),
        };
        self.0.control_run(request).await.unwrap().into_inner()
    }

    /// Waits until the run stands as asked.
    pub(crate) async fn until(&mut self, run: Uuid, what: impl Fn(&RunEnvelope) -> bool) -> RunEnvelope {
        let begun = Instant::now();
        loop {
            let envelope = self.get(run).await;
            if what(&envelope) {
                return envelope;
            }
            assert!(begun.elapsed() < PATIENCE, "the run never got there: {envelope:#?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
