//! What a governed call costs in the node alone: the actor, the rules and the journal in memory, with no wire and no disk.
//!
//! A run of sequential calls is submitted and followed to its end, in a runtime of one thread, so that nothing but work is
//! measured. A long plan is measured beside a short one: what a call costs there is what looking through the plan costs.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use criterion::Criterion;
use serde_json::{Value, json};
use signalbox_benches::rules::{Failure, say};
use signalbox_domain::identity::{Actor, Role};
use signalbox_domain::ids::{ActorId, CallId, TenantId, ToolId};
use signalbox_domain::run::step::{CallEnding, CallResult};
use signalbox_domain::run::submission::{Submission, parse};
use signalbox_ports::bus::{Bus, Notice};
use signalbox_ports::clock::{Clock, SystemClock};
use signalbox_ports::journal::Admitted;
use signalbox_ports::memory::{FakeSeal, MemoryBlobs, MemorySecrets, MemoryStore, SequentialIds};
use signalbox_ports::tools::{CallOrder, CallProgress, KnownOutcome, Permit, Tools};
use signalbox_ports::webhooks::NoCourier;
use signalbox_runtime::{Caller, Node, NodeConfig, NodeHandle, Ports, WatchItem};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, mpsc};

/// The one tool there is.
const TOOL: &str = "calendar.read";
/// An agent that may use it.
const AGENT: &str = "ref.study-plan-synthesis";
/// Calls of a short plan and of the longest there may be.
const CALLS: [usize; 2] = [10, 200];

fn main() -> Result<(), Failure> {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(4))
        .sample_size(20)
        .without_plots()
        .configure_from_args();
    for calls in CALLS {
        let (runtime, node) = node()?;
        let (caller, submission) = (caller()?, submission(calls)?);
        let once = || runtime.block_on(run(&node, &caller, submission.clone()));
        // Once for what is made but once.
        once()?;
        let made = allocation_counter::measure(|| drop(once()));
        say(&format!(
            "a call of a run of {calls}: {} allocations, {} bytes",
            made.count_total / calls as u64,
            made.bytes_total / calls as u64
        ));
        criterion.bench_function(&format!("node/a run of {calls} calls in memory"), |bencher| bencher.iter(once));
    }
    criterion.final_summary();
    Ok(())
}

/// Submits a run and follows it until it is closed.
async fn run(node: &NodeHandle, caller: &Caller, submission: Submission) -> Result<(), Failure> {
    let run = node.submit(caller, None, submission).await?.run_id;
    let mut items = node.watch(caller, run, 0).await?;
    let mut last = String::new();
    while let Some(item) = items.recv().await {
        if let WatchItem::Event(event) = item? {
            last.clone_from(&event.kind);
        }
    }
    if last == "run-closed" { Ok(()) } else { Err(format!("the run ended with `{last}`").into()) }
}

fn node() -> Result<(Runtime, NodeHandle), Failure> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let store = Arc::new(MemoryStore::new(clock.clone()));
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
        blobs: Arc::new(MemoryBlobs::default()),
        bus: Arc::new(Silent),
        tools: Arc::new(NoOp { tool: ToolId::new(TOOL)?, permits: Arc::new(Semaphore::new(64)) }),
        models: Arc::new(signalbox_ports::models::NoModels),
        secrets: Arc::new(MemorySecrets::default()),
        sealing: Arc::new(FakeSeal::new()),
        clock,
        ids: Arc::new(SequentialIds::default()),
    };
    let (node, _) = runtime.block_on(Node::start(NodeConfig::default(), ports))?;
    Ok((runtime, node))
}

fn caller() -> Result<Caller, Failure> {
    Ok(Caller {
        tenant_id: TenantId::new("bench")?,
        actor: Actor { actor_id: ActorId::new("bench")?, role: Role::TenantOperator },
        scopes: vec![format!("tool:{TOOL}")],
        surface: "api",
    })
}

fn submission(calls: usize) -> Result<Submission, Failure> {
    let step = |index: usize| {
        let before: Vec<_> = index.checked_sub(1).map(|before| format!("s{before}")).into_iter().collect();
        json!({
            "stepId": format!("s{index}"), "kind": "tool", "toolId": TOOL, "dependsOnStepIds": before,
            "args": { "step": index },
        })
    };
    let steps: Vec<Value> = (0..calls).map(step).collect();
    Ok(parse(json!({ "rootAgentId": AGENT, "plan": steps }).to_string().as_bytes())?)
}

/// Nobody announces anything.
struct Silent;

#[async_trait]
impl Bus for Silent {
    fn announce(&self, _: Notice) {}
    async fn next(&self) -> Notice {
        std::future::pending().await
    }
}

/// Answers every call at once.
struct NoOp {
    tool: ToolId,
    permits: Arc<Semaphore>,
}

#[async_trait]
impl Tools for NoOp {
    fn configured(&self) -> Vec<(ToolId, String)> {
        vec![(self.tool.clone(), "1.0.0".to_owned())]
    }
    fn permit(&self, _: &ToolId) -> Option<Permit> {
        self.permits.clone().try_acquire_owned().ok()
    }
    async fn execute(&self, _: Admitted, _: CallOrder, _: Permit, _: mpsc::Sender<CallProgress>) -> CallResult {
        let ending = CallEnding::Answered {
            partial: false,
            output: json!({ "pad": "x".repeat(89) }),
            evidence: None,
            effects: Vec::new(),
            artifacts: Vec::new(),
        };
        CallResult { ending, measured: None, latency_ms: 0 }
    }
    async fn cancel(&self, _: &ToolId, _: CallId) {}
    async fn outcome(&self, _: &ToolId, _: CallId) -> KnownOutcome {
        KnownOutcome::NotSeen
    }
}
