//! A node on a real store, before an executor on a socket that answers with too much of everything.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use signalbox_domain::identity::{Actor, Role};
use signalbox_domain::ids::{ActorId, RunId, TenantId, ToolId};
use signalbox_domain::quantity::{BudgetCategory, Micros};
use signalbox_domain::run::envelope::RunEnvelope;
use signalbox_domain::run::event::{CallOutcome, GovernanceAudited, RunEvent, StoredValue};
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::run::submission;
use signalbox_domain::run::verify::verify;
use signalbox_ports::bus::{Bus, Notice};
use signalbox_ports::clock::{Clock, RandomIds, SystemClock};
use signalbox_ports::memory::{FakeSeal, MemorySecrets};
use signalbox_ports::tools::Tools as _;
use signalbox_ports::webhooks::NoCourier;
use signalbox_proto::v1;
use signalbox_proto::v1::execute_response::Event;
use signalbox_proto::v1::tool_executor_server::{ToolExecutor, ToolExecutorServer};
use signalbox_proto::v1::tool_result::Outcome;
use signalbox_runtime::{Caller, Node, NodeConfig, NodeHandle, Ports};
use signalbox_store::{FileBlobs, SqliteOptions, SqliteStore};
use signalbox_tools::ExecutorClient;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::transport::Server;
use tonic::{Request, Response, Status};

const MIB: usize = 1024 * 1024;

type Answers = Pin<Box<dyn Stream<Item = Result<v1::ExecuteResponse, Status>> + Send>>;

/// Answers as many bytes and reports as many cost units as it is asked for.
struct TooMuch;

#[tonic::async_trait]
impl ToolExecutor for TooMuch {
    type ExecuteStream = Answers;

    async fn describe(&self, _: Request<v1::DescribeRequest>) -> Result<Response<v1::DescribeResponse>, Status> {
        let tool = v1::ToolDescriptor { tool_id: "memory.read".into(), semver: "1.0.0".into(), ..Default::default() };
        Ok(Response::new(v1::DescribeResponse { tools: vec![tool] }))
    }
    async fn execute(&self, request: Request<v1::ExecuteRequest>) -> Result<Response<Answers>, Status> {
        let args: Value = serde_json::from_slice(&request.get_ref().args_json).unwrap();
        let bytes = usize::try_from(args["bytes"].as_u64().unwrap()).unwrap();
        let units = [("cost-units".to_owned(), args["units"].as_f64().unwrap())].into();
        let result = v1::ToolResult {
            outcome: Outcome::Ok.into(),
            output_json: format!("\"{}\"", "x".repeat(bytes - 2)).into(),
            measured: Some(v1::MeasuredUsage { units }),
            ..Default::default()
        };
        let event = v1::ExecuteResponse { event: Some(Event::Result(result)) };
        Ok(Response::new(Box::pin(tokio_stream::iter([Ok(event)]))))
    }
    async fn cancel(&self, _: Request<v1::CancelRequest>) -> Result<Response<v1::CancelResponse>, Status> {
        Ok(Response::new(v1::CancelResponse {}))
    }
    async fn outcome(&self, _: Request<v1::OutcomeRequest>) -> Result<Response<v1::OutcomeResponse>, Status> {
        Err(Status::unimplemented("no"))
    }
}

/// Serves the executor; the counter says how often it was connected to.
async fn executor() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}", listener.local_addr().unwrap());
    let connections = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&connections);
    let incoming = TcpListenerStream::new(listener).map(move |stream| {
        counter.fetch_add(1, Ordering::SeqCst);
        stream
    });
    let service = ToolExecutorServer::new(TooMuch).max_encoding_message_size(usize::MAX);
    tokio::spawn(Server::builder().add_service(service).serve_with_incoming(incoming));
    (uri, connections)
}

/// Nobody announces anything: there is one node.
struct Silent;

#[async_trait]
impl Bus for Silent {
    fn announce(&self, _: Notice) {}
    async fn next(&self) -> Notice {
        std::future::pending().await
    }
}

fn caller() -> Caller {
    Caller {
        tenant_id: TenantId::new("acme").unwrap(),
        actor: Actor { actor_id: ActorId::new("ada").unwrap(), role: Role::TenantOperator },
        scopes: vec!["tool:memory.read".to_owned()],
        surface: "api",
    }
}

async fn closed(node: &NodeHandle, run: RunId) -> RunEnvelope {
    for _ in 0..6_000 {
        let envelope = node.get(&caller(), run).await.unwrap();
        if envelope.closed {
            return envelope;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the run never ended");
}

/// A chain of calls, each of so many bytes and units.
async fn run(node: &NodeHandle, calls: &[(usize, f64)]) -> RunEnvelope {
    let steps: Vec<Value> = (0..calls.len())
        .map(|n| {
            let (bytes, units) = calls[n];
            let after: Vec<String> = n.checked_sub(1).map(|before| format!("s{before}")).into_iter().collect();
            json!({ "stepId": format!("s{n}"), "kind": "tool", "toolId": "memory.read", "dependsOnStepIds": after,
                "args": { "key": "k", "bytes": bytes, "units": units } })
        })
        .collect();
    let body = json!({ "rootAgentId": "ref.course-generation", "plan": steps }).to_string();
    let submitted = node.submit(&caller(), None, submission::parse(body.as_bytes()).unwrap()).await.unwrap();
    let envelope = closed(node, submitted.run_id).await;
    let (tenant, key, events) = node.export(&caller(), submitted.run_id).await.unwrap();
    let report = verify(&tenant, key, &events);
    assert!(report.ok, "{:?}", report.findings);
    envelope
}

#[tokio::test]
async fn large_results_are_kept_beside_the_journal_and_a_third_overshoot_opens_the_circuit() {
    let (uri, connections) = executor().await;
    let data = tempfile::tempdir().unwrap();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let tools = Arc::new(ExecutorClient::connect(&uri, clock.clone()).await.unwrap());
    let store = Arc::new(SqliteStore::open(data.path(), SqliteOptions::default()).await.unwrap());
    let ports = Ports {
        journal: store.clone(),
        directory: store.clone(),
        inbox: store.clone(),
        leases: store.clone(),
        governance: store.clone(),
        acts: store.clone(),
        deliveries: store.clone(),
        courier: Arc::new(NoCourier),
        feedback: store.clone(),
        schedules: store,
        blobs: Arc::new(FileBlobs::open(data.path()).unwrap()),
        bus: Arc::new(Silent),
        tools: tools.clone(),
        models: Arc::new(signalbox_ports::models::NoModels),
        secrets: Arc::new(MemorySecrets::default()),
        sealing: Arc::new(FakeSeal::new()),
        clock,
        ids: Arc::new(RandomIds),
    };
    let (node, ended) = Node::start(NodeConfig::default(), ports).await.unwrap();

    // At, and beyond, what gRPC takes unless it is told otherwise; and the most both ends share (C-065).
    let large = [4 * MIB - 1, 4 * MIB + 1, 20 * MIB];
    let calls: Vec<(usize, f64)> = large.iter().map(|bytes| (*bytes, 1.0)).chain([(2, 1.0)]).collect();
    let envelope = run(&node, &calls).await;
    assert_eq!(envelope.status, RunStatus::Completed);
    for (call, bytes) in envelope.tool_calls.iter().zip(large) {
        let Some(StoredValue::Blob { size, .. }) = &call.output else { panic!("{:?}", call.step_id) };
        assert_eq!(*size, bytes as u64);
    }

    // One byte more is an error of the tool: charged in full, and the run ends with its code.
    let envelope = run(&node, &[(20 * MIB + 1, 0.5)]).await;
    assert_eq!((envelope.status, envelope.tool_calls[0].outcome), (RunStatus::Failed, CallOutcome::Error));
    assert_eq!(envelope.tool_calls[0].error.as_ref().unwrap().code, "tool-protocol-error");
    assert_eq!(envelope.cost_ledger.total_cost_units, Micros::units(1));
    assert!(connections.load(Ordering::SeqCst) <= 2, "{connections:?} connections");

    // Use beyond the reservation is an event of its own, and after the third the executor is left alone (BUD-012).
    let envelope = run(&node, &[(2, 9.0), (2, 9.0), (2, 9.0)]).await;
    assert_eq!((envelope.status, envelope.cost_ledger.total_cost_units), (RunStatus::Completed, Micros::units(3)));
    let (_, _, events) = node.export(&caller(), envelope.run_id).await.unwrap();
    let beyond = events.iter().filter_map(|stored| {
        let RunEvent::GovernanceAudited(audited) = stored.event()? else { return None };
        let GovernanceAudited::Overshoot { beyond, .. } = *audited else { return None };
        Some(beyond.get(BudgetCategory::CostUnits))
    });
    assert_eq!(beyond.collect::<Vec<_>>(), [Micros::units(8); 3]);
    assert!(tools.permit(&ToolId::new("memory.read").unwrap()).is_none(), "the circuit is open");

    node.drain().await;
    ended.await.unwrap();
}
