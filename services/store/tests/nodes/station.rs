//! A node on a store, and what a test asks of it.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail the test, and not every binary needs all of them"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use serde_json::{Value, json};
use signalbox_domain::governance::budget::{Budget, BudgetScope, Meter, OnExceeded};
use signalbox_domain::identity::{Actor, Role};
use signalbox_domain::ids::{ActorId, BudgetId, RunId, TenantId, ToolId};
use signalbox_domain::quantity::{BudgetCategory, Micros};
use signalbox_domain::run::envelope::RunEnvelope;
use signalbox_domain::run::submission::parse;
use signalbox_domain::run::verify::verify;
use signalbox_ports::acts::Acts;
use signalbox_ports::blobs::Blobs;
use signalbox_ports::bus::{Bus, Notice};
use signalbox_ports::clock::{RandomIds, SystemClock};
use signalbox_ports::directory::Directory;
use signalbox_ports::feedback::Feedback;
use signalbox_ports::governance::Governance;
use signalbox_ports::inbox::Inbox;
use signalbox_ports::journal::Journal;
use signalbox_ports::leases::Leases;
use signalbox_ports::memory::{FakeSeal, FakeTools, MemoryBlobs, MemorySecrets};
use signalbox_ports::schedules::Schedules;
use signalbox_ports::webhooks::{Deliveries, NoCourier};
use signalbox_runtime::{ApiError, Caller, Node, NodeConfig, NodeHandle, Ports};
use signalbox_store::{PostgresOptions, PostgresStore, SqliteOptions, SqliteStore};

use crate::database::Database;

/// What every test here calls: one cost unit a call, and harmless to send again.
pub(crate) const TOOL: &str = "memory.write";

/// Longest a run may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A bus that is down: everything must work without it.
struct DeadBus;

#[async_trait]
impl Bus for DeadBus {
    fn announce(&self, _: Notice) {}
    async fn next(&self) -> Notice {
        std::future::pending().await
    }
}

/// What a node leaves behind when it is killed.
enum Home {
    /// The folder, and the store that is open in it.
    Folder(PathBuf, Arc<SqliteStore>),
    /// The server goes on without it.
    Server(String),
    /// The store outlives nobody here.
    Elsewhere,
}

/// A node, its ports and its executors.
pub(crate) struct Station {
    home: Home,
    pub(crate) ports: Ports,
    pub(crate) tools: Arc<FakeTools>,
    pub(crate) node: NodeHandle,
}

impl Station {
    /// A node on any store.
    pub(crate) async fn over<S>(store: Arc<S>, blobs: Arc<dyn Blobs>, tools: Arc<FakeTools>) -> Self
    where
        S: Journal + Directory + Inbox + Leases + Governance + Acts + Deliveries + Feedback + Schedules,
    {
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
            blobs,
            bus: Arc::new(DeadBus),
            tools: tools.clone(),
            models: Arc::new(signalbox_ports::models::NoModels),
            secrets: Arc::new(MemorySecrets::default()),
            sealing: Arc::new(FakeSeal::new()),
            clock: Arc::new(SystemClock),
            ids: Arc::new(RandomIds),
        };
        let (node, _) = Node::start(NodeConfig::default(), ports.clone()).await.unwrap();
        Self { home: Home::Elsewhere, ports, tools, node }
    }

    pub(crate) async fn on_sqlite(dir: &Path, tools: Arc<FakeTools>) -> Self {
        Self::on_sqlite_with(dir, SqliteOptions::default(), tools).await
    }

    pub(crate) async fn on_sqlite_with(dir: &Path, options: SqliteOptions, tools: Arc<FakeTools>) -> Self {
        Self::opened(dir.to_owned(), options, Arc::new(MemoryBlobs::default()), tools).await
    }

    async fn opened(dir: PathBuf, options: SqliteOptions, blobs: Arc<dyn Blobs>, tools: Arc<FakeTools>) -> Self {
        let store = Arc::new(SqliteStore::open(&dir, options).await.unwrap());
        let station = Self::over(Arc::clone(&store), blobs, tools).await;
        Self { home: Home::Folder(dir, store), ..station }
    }

    pub(crate) async fn on_postgres(database: &Database, options: PostgresOptions, tools: Arc<FakeTools>) -> Self {
        let store = PostgresStore::connect(&database.url(), options).await.unwrap();
        let station = Self::over(Arc::new(store), Arc::new(MemoryBlobs::default()), tools).await;
        Self { home: Home::Server(database.url()), ..station }
    }

    /// The node is gone as if killed: nothing of it runs on. Another starts on what it has left.
    pub(crate) async fn crash(self, database: Option<&Database>) -> Self {
        self.node.abandon().await;
        match self.home {
            Home::Folder(dir, store) => {
                store.close().await;
                Self::opened(dir, SqliteOptions::default(), self.ports.blobs, self.tools).await
            }
            Home::Server(url) => {
                // As if its lease had run out meanwhile.
                if let Some(database) = database {
                    database.execute("UPDATE nodes SET expires_at = 0").await;
                }
                let store = PostgresStore::connect(&url, PostgresOptions::default()).await.unwrap();
                let station = Self::over(Arc::new(store), self.ports.blobs, self.tools).await;
                Self { home: Home::Server(url), ..station }
            }
            Home::Elsewhere => panic!("nothing is left of this store"),
        }
    }

    pub(crate) async fn submit(&self, tenant: &str, plan: &Value) -> Result<RunId, ApiError> {
        let body = json!({ "rootAgentId": "ref.course-generation", "plan": plan });
        let submission = parse(body.to_string().as_bytes()).unwrap();
        Ok(self.node.submit(&caller(tenant), None, submission).await?.run_id)
    }

    /// Waits until the run stands as asked; a store that cannot be read just now is asked again.
    pub(crate) async fn until(&self, tenant: &str, run: RunId, what: impl Fn(&RunEnvelope) -> bool) -> RunEnvelope {
        let begun = Instant::now();
        loop {
            let now = self.node.get(&caller(tenant), run).await;
            if let Ok(envelope) = &now
                && what(envelope)
            {
                return now.unwrap();
            }
            assert!(begun.elapsed() < PATIENCE, "the run never got there: {now:#?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// The run when all is over, with a journal that is whole and complete.
    pub(crate) async fn closed(&self, tenant: &str, run: RunId) -> RunEnvelope {
        let envelope = self.until(tenant, run, |run| run.closed).await;
        let (tenant, key, events) = self.node.export(&caller(tenant), run).await.unwrap();
        let report = verify(&tenant, key, &events);
        assert!(report.ok && report.open_calls.is_empty(), "{:#?}", report.findings);
        envelope
    }

    /// The figures of a budget in force.
    pub(crate) async fn meter(&self, id: &str) -> Meter {
        let budgets = self.ports.governance.budgets().await.unwrap();
        budgets.into_iter().find(|metered| metered.budget.budget_id.as_str() == id).unwrap().meter
    }

    /// Puts a budget into force.
    pub(crate) async fn put(&self, budget: Budget) {
        self.ports.governance.put_budget(budget).await.unwrap();
    }
}

pub(crate) fn tool() -> ToolId {
    ToolId::new(TOOL).unwrap()
}

pub(crate) fn tools() -> Arc<FakeTools> {
    Arc::new(FakeTools::new([tool()]))
}

pub(crate) fn caller(tenant: &str) -> Caller {
    Caller {
        tenant_id: TenantId::new(tenant).unwrap(),
        actor: Actor { actor_id: ActorId::new("ada").unwrap(), role: Role::TenantOperator },
        scopes: signalbox_domain::catalog::V1_TOOL_IDS.iter().map(|tool| format!("tool:{tool}")).collect(),
        surface: "api",
    }
}

/// A hard budget in cost units for everything a tenant does.
pub(crate) fn budget(tenant: &str, limit: Micros) -> Budget {
    Budget {
        budget_id: BudgetId::new(tenant).unwrap(),
        tenant_id: Some(TenantId::new(tenant).unwrap()),
        scope: BudgetScope::Tenant,
        scope_key: tenant.to_owned(),
        category: BudgetCategory::CostUnits,
        limit,
        calendar: None,
        period_seconds: None,
        anchor_unix_seconds: 0,
        warn_ratio: Micros(800_000),
        grace_ratio: Micros(1_000_000),
        grace_seconds: 0,
        on_exceeded: OnExceeded::Kill,
    }
}

/// So many calls, one after the other.
pub(crate) fn chain(length: usize) -> Value {
    let steps = (0..length).map(|i| {
        let before: Vec<String> = (i > 0).then(|| format!("s{}", i - 1)).into_iter().collect();
        json!({
            "stepId": format!("s{i}"), "kind": "tool", "toolId": TOOL, "args": { "key": i }, "dependsOnStepIds": before
        })
    });
    steps.collect()
}
