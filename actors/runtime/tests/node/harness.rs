//! One small world: a store that outlives nodes, executors that do as they are told, and a clock that tests own.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use signalbox_domain::governance::change::GovernanceChange;
use signalbox_domain::governance::grant::{Constraints, Grant, GrantScope};
use signalbox_domain::governance::kill_switch::{KillSwitch, SwitchScope};
use signalbox_domain::identity::{Actor, Role};
use signalbox_domain::ids::{ActorId, ApprovalId, CommandId, GrantId, RunId, SwitchId, TenantId, ToolId};
use signalbox_domain::run::decide::RunCommand;
use signalbox_domain::run::envelope::RunEnvelope;
use signalbox_domain::run::event::ApprovalDecision;
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::run::submission::{Submission, parse};
use signalbox_domain::run::verify::verify;
use signalbox_domain::time::UnixMs;
use signalbox_ports::bus::{Bus, Notice};
use signalbox_ports::clock::{BootInstant, Clock};
use signalbox_ports::governance::Governance;
use signalbox_ports::memory::{FakeSeal, FakeTools, MemoryBlobs, MemorySecrets, MemoryStore, SequentialIds};
use signalbox_ports::webhooks::NoCourier;
use signalbox_runtime::{ApiError, Caller, Node, NodeConfig, NodeHandle, Ports};

/// The clock of a paused tokio runtime.
pub(crate) struct PausedClock(tokio::time::Instant);

impl Clock for PausedClock {
    fn now(&self) -> UnixMs {
        UnixMs(1_800_000_000_000 + i64::try_from(self.0.elapsed().as_millis()).unwrap())
    }
    fn boot(&self) -> BootInstant {
        BootInstant(u64::try_from(self.0.elapsed().as_nanos()).unwrap())
    }
}

/// A bus that is down: everything must work without it.
struct DeadBus;

#[async_trait]
impl Bus for DeadBus {
    fn announce(&self, _: Notice) {}
    async fn next(&self) -> Notice {
        std::future::pending().await
    }
}

pub(crate) struct World {
    pub(crate) ports: Ports,
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) tools: Arc<FakeTools>,
    pub(crate) node: NodeHandle,
}

pub(crate) fn tool(id: &str) -> ToolId {
    ToolId::new(id).unwrap()
}

pub(crate) fn caller(tenant: &str, actor: &str, role: Role) -> Caller {
    let scopes = signalbox_domain::catalog::V1_TOOL_IDS.iter().map(|tool| format!("tool:{tool}")).collect();
    Caller {
        tenant_id: TenantId::new(tenant).unwrap(),
        actor: Actor { actor_id: ActorId::new(actor).unwrap(), role },
        scopes,
        surface: "api",
    }
}

pub(crate) fn operator() -> Caller {
    caller("acme", "ada", Role::TenantOperator)
}

impl World {
    pub(crate) async fn new() -> Self {
        let tools = [
            "memory.read",
            "memory.write",
            "sophia.ground",
            "composition.suggest",
            "file.read",
            "calendar.write",
            "web.fetch",
            "notify.send",
        ];
        Self::with(FakeTools::new(tools.map(tool)), |_| {}).await
    }

    pub(crate) async fn with(tools: FakeTools, change: impl FnOnce(&mut Ports)) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(PausedClock(tokio::time::Instant::now()));
        let store = Arc::new(MemoryStore::new(clock.clone()));
        let tools = Arc::new(tools.with_clock(clock.clone()));
        let mut ports = Ports {
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
            bus: Arc::new(DeadBus),
            tools: tools.clone(),
            models: Arc::new(signalbox_ports::models::NoModels),
            secrets: Arc::new(MemorySecrets::default()),
            sealing: Arc::new(FakeSeal::new()),
            clock,
            ids: Arc::new(SequentialIds::default()),
        };
        change(&mut ports);
        let (node, _) = Node::start(NodeConfig::default(), ports.clone()).await.unwrap();
        Self { ports, store, tools, node }
    }

    /// The node is gone as if killed: nothing of it runs on. Another starts on the same store.
    pub(crate) async fn crash(&mut self) {
        self.crash_and_come_back_with(|_| {}).await;
    }

    /// The same, onto other ports.
    pub(crate) async fn crash_and_come_back_with(&mut self, change: impl FnOnce(&mut Ports)) {
        self.node.abandon().await;
        change(&mut self.ports);
        let (node, _) = Node::start(NodeConfig::default(), self.ports.clone()).await.unwrap();
        self.node = node;
    }

    pub(crate) async fn submit(&self, plan: Value) -> RunId {
        self.submit_as(&operator(), json!({ "rootAgentId": "ref.course-generation", "plan": plan })).await.unwrap()
    }

    pub(crate) async fn submit_as(&self, caller: &Caller, body: Value) -> Result<RunId, ApiError> {
        Ok(self.node.submit(caller, None, submission(&body)).await?.run_id)
    }

    pub(crate) async fn get(&self, run: RunId) -> RunEnvelope {
        self.node.get(&operator(), run).await.unwrap()
    }

    /// Waits, in tokio's own time, until the run stands as asked.
    pub(crate) async fn until(&self, run: RunId, what: impl Fn(&RunEnvelope) -> bool) -> RunEnvelope {
        for _ in 0..20_000 {
            let envelope = self.get(run).await;
            if what(&envelope) {
                return envelope;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the run never got there: {:#?}", self.get(run).await);
    }

    pub(crate) async fn until_closed(&self, run: RunId) -> RunEnvelope {
        let envelope = self.until(run, |run| run.closed).await;
        self.verify(run).await;
        envelope
    }

    pub(crate) async fn until_status(&self, run: RunId, status: RunStatus) -> RunEnvelope {
        self.until(run, |run| run.status == status).await
    }

    /// Every journal a test leaves must be whole and complete.
    pub(crate) async fn verify(&self, run: RunId) {
        let (tenant, key, events) = self.node.export(&operator(), run).await.unwrap();
        let report = verify(&tenant, key, &events);
        assert!(report.ok, "{:#?}", report.findings);
    }

    pub(crate) async fn kinds(&self, run: RunId) -> Vec<String> {
        self.node.export(&operator(), run).await.unwrap().2.into_iter().map(|event| event.kind).collect()
    }

    pub(crate) async fn command(&self, run: RunId, command: RunCommand) -> Result<u64, ApiError> {
        self.node.command(&operator(), run, fresh_command(), command).await.map(|answer| answer.seq)
    }

    pub(crate) async fn decide(&self, approval: ApprovalId, decision: ApprovalDecision) -> Result<RunId, ApiError> {
        let reason = "looked at it".to_owned();
        let answer = self.node.decide_approval(&operator(), approval, decision, reason, None, fresh_command()).await;
        answer.map(|(run, _)| run)
    }

    pub(crate) async fn change(&self, change: GovernanceChange) {
        self.store.change(change, &ActorId::new("grace").unwrap()).await.unwrap();
    }
}

pub(crate) fn submission(body: &Value) -> Submission {
    parse(body.to_string().as_bytes()).unwrap()
}

pub(crate) fn fresh_command() -> CommandId {
    CommandId::new(uuid::Uuid::now_v7())
}

pub(crate) fn step(id: &str, tool: &str, after: &[&str]) -> Value {
    json!({ "stepId": id, "kind": "tool", "toolId": tool, "args": { "key": id }, "dependsOnStepIds": after })
}

pub(crate) fn chain(tool: &str, length: usize) -> Value {
    let steps = (0..length).map(|i| {
        let before = (i > 0).then(|| format!("s{}", i - 1));
        step(&format!("s{i}"), tool, &before.iter().map(String::as_str).collect::<Vec<_>>())
    });
    steps.collect()
}

pub(crate) fn switch(id: &str, scope: SwitchScope, target: Option<&str>) -> GovernanceChange {
    GovernanceChange::SwitchArmed(KillSwitch {
        switch_id: SwitchId::new(id).unwrap(),
        tenant_id: None,
        scope,
        target_id: target.map(str::to_owned),
        armed_by: ActorId::new("grace").unwrap(),
        armed_at_unix_ms: UnixMs(1),
        reason: "it misbehaves".to_owned(),
        user_visible_status_copy: "We paused this for your safety.".to_owned(),
        safe_degradation_mode_id: Some("read-only".to_owned()),
        expires_at_unix_ms: None,
        disarmed_at_unix_ms: None,
    })
}

pub(crate) fn tenant_grant(tool_id: &str) -> GovernanceChange {
    GovernanceChange::GrantIssued(Grant {
        grant_id: GrantId::new(format!("grant.{tool_id}")).unwrap(),
        scope: GrantScope::PerTenant,
        scope_key: "acme".to_owned(),
        tenant_id: TenantId::new("acme").unwrap(),
        tool_id: tool(tool_id),
        tool_range: "^1.0.0".to_owned(),
        constraints: Constraints::default(),
        delegable: None,
        issued_by: ActorId::new("grace").unwrap(),
        issued_at_unix_ms: UnixMs(1),
        expires_at_unix_ms: None,
        revoked_at_unix_ms: None,
        rationale: "a test".to_owned(),
        audit_event_id: "audit/1".to_owned(),
        renewed_from_grant_id: None,
    })
}
