use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use serde_json::json;
use signalbox_domain::governance::change::GovernanceChange;
use signalbox_domain::ids::{CommandId, GrantId, RunKey};
use signalbox_domain::run::append::CommandAnswer;
use signalbox_domain::run::event::{ApprovalDecision, ApprovalReason, CallOutcome};
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::time::UnixMs;
use signalbox_ports::inbox::{Delivered, Inbox, InboxCommand};
use signalbox_ports::journal::StoreError;
use signalbox_ports::memory::FakeTools;

use crate::harness::{World, chain, operator, step, tenant_grant, tool};

#[tokio::test(start_paused = true)]
async fn an_idempotent_call_is_sent_again_under_its_own_id_and_charged_once() {
    let mut world = World::new().await;
    world.tools.hang(&tool("memory.read"));
    let run = world.submit(chain("memory.read", 2)).await;
    world.tools.begun(1).await;
    world.until(run, |run| run.open_calls().count() == 1).await;
    world.tools.on(&tool("memory.read"), |_, _| async { FakeTools::answered(json!({})) });
    world.crash().await;
    let envelope = world.until_closed(run).await;
    assert_eq!(envelope.status, RunStatus::Completed);
    let calls = world.tools.calls();
    assert_eq!(calls.len(), 3);
    assert_eq!(calls[0].call_id, calls[1].call_id);
    assert_eq!((calls[0].attempt, calls[1].attempt), (1, 2));
    assert_eq!(envelope.tool_calls.len(), 2);
    assert_eq!(envelope.cost_ledger.total_cost_units.to_string(), "2.0");
}

#[tokio::test(start_paused = true)]
async fn an_at_most_once_call_is_never_sent_twice_until_somebody_says_so() {
    for (decision, sent, status) in [
        (ApprovalDecision::Approve, 2, RunStatus::Completed),
        (ApprovalDecision::Skip, 1, RunStatus::Completed),
        (ApprovalDecision::Reject, 1, RunStatus::Failed),
    ] {
        let mut world = World::new().await;
        world.change(tenant_grant("notify.send")).await;
        world.tools.hang(&tool("notify.send"));
        let body = json!({ "rootAgentId": "ref.support-triage", "plan": [step("a", "notify.send", &[])] });
        let run = world.submit_as(&operator(), body).await.unwrap();
        world.tools.begun(1).await;
        world.until(run, |run| run.open_calls().count() == 1).await;
        world.tools.on(&tool("notify.send"), |_, _| async { FakeTools::answered(json!({})) });
        world.crash().await;
        let envelope = world.until_status(run, RunStatus::AwaitingApproval).await;
        assert_eq!(envelope.tool_calls[0].outcome, CallOutcome::Unknown);
        assert_eq!(envelope.approvals[0].reason, ApprovalReason::UnknownCallOutcome);
        assert_eq!(world.tools.count(&tool("notify.send")), 1);
        world.decide(envelope.approvals[0].approval_id, decision).await.unwrap();
        assert_eq!(world.until_closed(run).await.status, status);
        assert_eq!(world.tools.count(&tool("notify.send")), sent);
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_killed_while_its_node_was_down_is_closed_by_the_next() {
    let mut world = World::new().await;
    world.tools.hang(&tool("memory.read"));
    let run = world.submit(chain("memory.read", 1)).await;
    world.tools.begun(1).await;
    world.until(run, |run| run.open_calls().count() == 1).await;
    let kill = signalbox_domain::run::decide::RunCommand::Kill { reason: "stop".to_owned(), blamed_id: None };
    world.crash().await;
    world.command(run, kill).await.unwrap();
    let envelope = world.until_closed(run).await;
    assert_eq!(envelope.status, RunStatus::Killed);
    assert!(envelope.tool_calls.iter().all(|call| !call.open));
}

/// An inbox that fails as broken machinery does, not as an unreachable store.
struct Broken {
    inner: Arc<dyn Inbox>,
    broken: Arc<AtomicBool>,
    error: StoreError,
}

#[async_trait]
impl Inbox for Broken {
    async fn deliver(&self, run: RunKey, command: InboxCommand) -> Result<Delivered, StoreError> {
        self.inner.deliver(run, command).await
    }
    async fn deliver_down(
        &self,
        run: RunKey,
        command: InboxCommand,
        below: Vec<u8>,
    ) -> Result<(Delivered, Vec<RunKey>), StoreError> {
        self.inner.deliver_down(run, command, below).await
    }
    async fn pending(&self, run: RunKey) -> Result<(Vec<InboxCommand>, u64), StoreError> {
        if self.broken.load(Ordering::SeqCst) {
            return Err(self.error.clone());
        }
        self.inner.pending(run).await
    }
    async fn answer(&self, run: RunKey, command: CommandId) -> Result<Option<CommandAnswer>, StoreError> {
        self.inner.answer(run, command).await
    }
}

async fn broken_world(error: StoreError) -> (World, Arc<AtomicBool>) {
    let broken = Arc::new(AtomicBool::new(true));
    let switch = broken.clone();
    let world = World::with(FakeTools::new([tool("memory.read")]), move |ports| {
        ports.inbox = Arc::new(Broken { inner: ports.inbox.clone(), broken: switch, error });
    })
    .await;
    (world, broken)
}

#[tokio::test(start_paused = true)]
async fn an_actor_that_keeps_failing_ends_its_run_with_the_reason_and_no_other() {
    let (world, broken) = broken_world(StoreError::Unknown("a test".to_owned())).await;
    let run = world.submit(chain("memory.read", 1)).await;
    let envelope = world.until_closed(run).await;
    assert_eq!(envelope.status, RunStatus::Failed);
    assert_eq!(envelope.end.unwrap().code.as_deref(), Some("actor-crash-loop"));
    broken.store(false, Ordering::SeqCst);
    let other = world.submit(chain("memory.read", 1)).await;
    assert_eq!(world.until_closed(other).await.status, RunStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_store_is_no_crash_and_the_run_goes_on_after() {
    let (world, broken) = broken_world(StoreError::Unavailable("a test".to_owned())).await;
    let run = world.submit(chain("memory.read", 3)).await;
    tokio::time::sleep(std::time::Duration::from_secs(300)).await;
    assert_eq!(world.get(run).await.status, RunStatus::Queued);
    assert_eq!(world.tools.calls().len(), 0);
    broken.store(false, Ordering::SeqCst);
    assert_eq!(world.until_closed(run).await.status, RunStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn draining_finishes_calls_in_flight_and_the_next_node_goes_on() {
    let mut world = World::new().await;
    let run = world.submit(chain("memory.read", 200)).await;
    world.tools.begun(20).await;
    world.node.drain().await;
    let caller = operator();
    let body = json!({ "rootAgentId": "ref.course-generation", "plan": chain("memory.read", 1) });
    assert_eq!(world.submit_as(&caller, body).await.unwrap_err().code(), "draining");
    let sent = world.tools.calls().len();
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    assert_eq!(world.tools.calls().len(), sent, "nothing begins after draining");
    world.crash().await;
    assert_eq!(world.until_closed(run).await.status, RunStatus::Completed);
    assert_eq!(world.tools.calls().len(), 200, "no call was sent twice");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_outlasts_the_drain_is_recovered_as_after_a_crash() {
    let mut world = World::new().await;
    world.tools.hang(&tool("memory.read"));
    let run = world.submit(chain("memory.read", 2)).await;
    world.tools.begun(1).await;
    let asked = tokio::time::Instant::now();
    world.node.drain().await;
    assert_eq!(asked.elapsed().as_secs(), 20, "calls in flight get twenty seconds");
    assert!(!world.get(run).await.status.is_terminal(), "only a cancel is terminal");
    world.tools.on(&tool("memory.read"), |_, _| async { FakeTools::answered(json!({})) });
    world.crash().await;
    let done = world.until_closed(run).await;
    assert_eq!((done.status, done.tool_calls[0].attempt), (RunStatus::Completed, 2));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_may_not_be_sent_again_is_settled_as_unknown_and_somebody_is_asked() {
    let mut world = World::new().await;
    world.change(tenant_grant("web.fetch")).await;
    world.tools.hang(&tool("web.fetch"));
    let fetch =
        json!({ "stepId": "a", "kind": "tool", "toolId": "web.fetch", "args": { "url": "https://example.com/" } });
    let body = json!({ "rootAgentId": "ref.research", "plan": [fetch] });
    let run = world.submit_as(&operator(), body).await.unwrap();
    world.tools.begun(1).await;
    world.until(run, |run| run.open_calls().count() == 1).await;
    world.node.abandon().await;
    let revoked =
        GovernanceChange::GrantRevoked { grant_id: GrantId::new("grant.web.fetch").unwrap(), at_unix_ms: UnixMs(2) };
    world.change(revoked).await;
    world.crash().await;
    let asked = world.until_status(run, RunStatus::AwaitingApproval).await;
    assert_eq!(asked.tool_calls[0].outcome, CallOutcome::Unknown);
    assert_eq!(asked.approvals[0].reason, ApprovalReason::UnknownCallOutcome);
    assert_eq!(world.tools.calls().len(), 1);
}
