//! A whole node on in-memory ports behind both edges.

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value, json};
use signalbox_domain::ids::ToolId;
use signalbox_ports::bus::{Bus, Notice};
use signalbox_ports::clock::{RandomIds, SystemClock};
use signalbox_ports::memory::{FakeSeal, FakeTools, MemoryBlobs, MemorySecrets, MemoryStore};
use signalbox_ports::webhooks::NoCourier;
use signalbox_proto::v1::run_service_client::RunServiceClient;
use signalbox_runtime::{Node, NodeConfig, NodeHandle, Ports};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tonic::transport::Channel;

use super::super::STALL;
use super::super::identity::Claims;
use super::{JSON, Reply, get, send};
use crate::identity::ApiKeys;
use crate::rates::RequestRate;
use crate::serve::{Edge, ServeLimits, serve_watched};
use crate::watch::WatchLimits;

struct NoBus;

#[async_trait]
impl Bus for NoBus {
    fn announce(&self, _: Notice) {}
    async fn next(&self) -> Notice {
        std::future::pending().await
    }
}

pub(super) struct Served {
    pub(super) address: SocketAddr,
    pub(super) grpc: RunServiceClient<Channel>,
    pub(super) tools: Arc<FakeTools>,
    pub(super) store: Arc<MemoryStore>,
    pub(super) node: NodeHandle,
}

pub(super) fn tool(id: &str) -> ToolId {
    ToolId::new(id).unwrap()
}

impl Served {
    /// A node on which some tools are configured and others are not.
    pub(super) async fn start() -> Self {
        Self::with(None).await
    }

    /// The same, where each caller may ask only so often.
    pub(super) async fn with(requests: Option<RequestRate>) -> Self {
        let clock = Arc::new(SystemClock);
        let store = Arc::new(MemoryStore::new(clock.clone()));
        let served = ["memory.read", "memory.write", "web.fetch", "notify.send"];
        let tools = Arc::new(FakeTools::new(served.map(tool)).with_clock(clock.clone()));
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
            schedules: store.clone(),
            blobs: Arc::new(MemoryBlobs::default()),
            bus: Arc::new(NoBus),
            tools: tools.clone(),
            models: Arc::new(signalbox_ports::models::NoModels),
            secrets: Arc::new(MemorySecrets::default()),
            sealing: Arc::new(FakeSeal::new()),
            clock: clock.clone(),
            ids: Arc::new(RandomIds),
        };
        let (node, _) = Node::start(NodeConfig::default(), ports).await.unwrap();
        let edge = Edge {
            api: Arc::new(node.clone()),
            governance: Arc::new(node.clone()),
            webhooks: Arc::new(node.clone()),
            schedules: Arc::new(node.clone()),
            registry: Arc::new(node.clone()),
            feedback: Arc::new(node.clone()),
            pipelines: Arc::new(node.clone()),
            keys: Arc::new(ApiKeys::new(store.clone(), clock.clone(), Arc::new(RandomIds))),
            identity: Arc::new(Claims),
            ids: Arc::new(RandomIds),
            tls: None,
            limits: ServeLimits { watches_max: 8, watch: WatchLimits { buffer: 8, stall: STALL }, requests },
            spans: None,
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve_watched(listener, edge, Arc::new(Semaphore::new(8)), std::future::pending()));
        let grpc = RunServiceClient::connect(format!("http://{address}")).await.unwrap();
        Self { address, grpc, tools, store, node }
    }

    /// Executes a body with the claims of a credential.
    pub(super) async fn execute(&self, claims: &[(&str, &str)], body: &Value) -> Reply {
        self.execute_at("/v1/agentic/runs/execute", claims, body).await
    }

    pub(super) async fn execute_at(&self, target: &str, claims: &[(&str, &str)], body: &Value) -> Reply {
        let headers = [&[JSON], claims].concat();
        send(self.address, target, &headers, body.to_string().as_bytes()).await
    }

    pub(super) async fn run(&self, run_id: &str) -> Value {
        get(self.address, &format!("/v1/runs/{run_id}")).await.json()
    }

    /// The journal of a run, as exported.
    pub(super) async fn journal(&self, run_id: &str) -> Vec<Value> {
        let text = get(self.address, &format!("/v1/runs/{run_id}/export")).await.text();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

pub(super) const RUN: &str = "0190d6a8-3c1e-7bbb-8f5e-0000000000aa";

/// A body with nothing wrong about it.
pub(super) fn body(tool: &str) -> Value {
    json!({"runId": RUN, "tenantId": "acme", "rootAgentId": "ref.course-generation", "plan": [{"toolId": tool, "args": {"key": "k"}}]})
}
