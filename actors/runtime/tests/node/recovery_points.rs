//! A fault on each side of each boundary of a call, for each recovery policy (RUN-026, C-016): the node dies there, or the
//! answer to its commit is lost there. The executor is not part of the node: what it has begun goes on.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::json;
use signalbox_domain::catalog::Recovery;
use signalbox_domain::governance::budget::{Budget, BudgetScope, OnExceeded};
use signalbox_domain::ids::{BudgetId, CallId, RunId, RunKey, TenantId, ToolId};
use signalbox_domain::quantity::{BudgetCategory, Micros};
use signalbox_domain::run::append::{Entry, RunHead};
use signalbox_domain::run::chain::StoredEvent;
use signalbox_domain::run::decide::RunCommand;
use signalbox_domain::run::envelope::RunEnvelope;
use signalbox_domain::run::event::{ApprovalDecision, ApprovalReason, CallOutcome, RunEvent};
use signalbox_domain::run::status::RunStatus;
use signalbox_ports::clock::BootInstant;
use signalbox_ports::governance::Governance;
use signalbox_ports::journal::{AppendError, Appended, Created, Journal, NewRun, StoreError};
use signalbox_ports::memory::FakeTools;
use signalbox_ports::tools::KnownOutcome;
use tokio::sync::watch;

use crate::harness::{World, chain, operator, tool};

const POLICIES: [(&str, Recovery); 3] = [
    ("calendar.read", Recovery::Idempotent),
    ("calendar.write", Recovery::Deduplicating),
    ("themis.adjudicate", Recovery::AtMostOnce),
];

/// What happens to the append that an event stands in.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    /// The node dies with nothing written.
    DiesBefore,
    /// The node dies with everything written.
    DiesAfter,
    /// Nothing is written, and nobody knows.
    RequestLost,
    /// Everything is written, and nobody knows.
    AnswerLost,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum At {
    Pending,
    Control,
    Settled,
}

/// A journal with one fault in it.
struct Faulty {
    inner: Arc<dyn Journal>,
    fault: Mutex<Option<(At, Fault)>>,
    struck: watch::Sender<bool>,
}

impl Faulty {
    fn arm(&self, at: At, fault: Fault) {
        *self.fault.lock().unwrap() = Some((at, fault));
    }

    async fn has_struck(&self) {
        self.struck.subscribe().wait_for(|struck| *struck).await.unwrap();
    }

    fn strikes(&self, batch: &[Entry]) -> Option<Fault> {
        let mut armed = self.fault.lock().unwrap();
        let (at, fault) = (*armed)?;
        let asked = batch.iter().flat_map(|entry| &entry.asks).flat_map(|ask| &ask.events);
        let here = batch.iter().flat_map(|entry| &entry.facts).chain(asked).any(|new| match at {
            At::Pending => matches!(new.event, RunEvent::CallPending(_)),
            At::Control => matches!(new.event, RunEvent::ControlApplied(_)),
            At::Settled => matches!(new.event, RunEvent::CallSettled(_)),
        });
        if here {
            *armed = None;
            self.struck.send_replace(true);
        }
        here.then_some(fault)
    }
}

fn lost(batch: &[Entry]) -> Vec<Result<Appended, AppendError>> {
    let error = StoreError::Unknown("the answer to the commit was lost".to_owned());
    batch.iter().map(|_| Err(error.clone().into())).collect()
}

#[async_trait]
impl Journal for Faulty {
    async fn create(&self, run: NewRun) -> Result<Created, StoreError> {
        self.inner.create(run).await
    }
    async fn append(&self, batch: Vec<Entry>, began: BootInstant) -> Vec<Result<Appended, AppendError>> {
        let Some(fault) = self.strikes(&batch) else { return self.inner.append(batch, began).await };
        match fault {
            Fault::DiesBefore => std::future::pending().await,
            Fault::RequestLost => lost(&batch),
            Fault::DiesAfter => {
                self.inner.append(batch, began).await;
                std::future::pending().await
            }
            Fault::AnswerLost => {
                self.inner.append(batch.clone(), began).await;
                lost(&batch)
            }
        }
    }
    async fn read(&self, run: RunKey, after: u64, limit: usize) -> Result<Vec<StoredEvent>, StoreError> {
        self.inner.read(run, after, limit).await
    }
    async fn head(&self, run: RunKey) -> Result<Option<RunHead>, StoreError> {
        self.inner.head(run).await
    }
    async fn find(&self, tenant: &TenantId, run: RunId) -> Result<Option<RunHead>, StoreError> {
        self.inner.find(tenant, run).await
    }
    async fn put_snapshot(&self, run: RunKey, seq: u64, version: u32, bytes: Vec<u8>) -> Result<(), StoreError> {
        self.inner.put_snapshot(run, seq, version, bytes).await
    }
    async fn snapshot(&self, run: RunKey, version: u32) -> Result<Option<(u64, Vec<u8>)>, StoreError> {
        self.inner.snapshot(run, version).await
    }
}

/// A world with one fault, and an executor that keeps its own books and outlives the node.
struct Scene {
    world: World,
    journal: Arc<Faulty>,
    tool: ToolId,
    policy: Recovery,
    executed: Arc<Mutex<Vec<CallId>>>,
    /// Calls do not take effect before this is true.
    go: watch::Sender<bool>,
}

impl Scene {
    async fn set((id, policy): (&str, Recovery)) -> Self {
        let mut journal = None;
        let world = World::with(FakeTools::new([tool(id)]), |ports| {
            let faulty = Arc::new(Faulty {
                inner: ports.journal.clone(),
                fault: Mutex::default(),
                struck: watch::Sender::new(false),
            });
            ports.journal = faulty.clone();
            journal = Some(faulty);
        })
        .await;
        world.tools.declare(&tool(id), policy);
        world.store.put_budget(meter()).await.unwrap();
        // The node has heard of it, so that no first ask is refused as stale.
        tokio::time::sleep(Duration::from_secs(3)).await;
        let (executed, go) = (Arc::new(Mutex::new(Vec::new())), watch::Sender::new(true));
        let (book, gate, outcomes) = (executed.clone(), go.clone(), world.tools.clone());
        world.tools.on(&tool(id), move |order, _| {
            let (book, gate, outcomes) = (book.clone(), gate.clone(), outcomes.clone());
            let remembers = policy == Recovery::Deduplicating;
            // A task of its own: the conversation may end, the work goes on.
            let work = tokio::spawn(async move {
                let begun = if remembers { KnownOutcome::Running } else { KnownOutcome::NotKept };
                outcomes.set_outcome(order.call_id, begun);
                let _ = gate.subscribe().wait_for(|go| *go).await;
                book.lock().unwrap().push(order.call_id);
                let result = FakeTools::answered(json!({}));
                if remembers {
                    outcomes.set_outcome(order.call_id, KnownOutcome::Ended(Box::new(result.clone())));
                }
                result
            });
            async move { work.await.unwrap() }
        });
        Self { world, journal: journal.unwrap(), tool: tool(id), policy, executed, go }
    }

    async fn submit(&self) -> RunId {
        self.submit_chain(1).await
    }

    async fn submit_chain(&self, length: usize) -> RunId {
        let agent = if self.tool.as_str() == "themis.adjudicate" {
            "ref.moderation-triage"
        } else {
            "ref.study-plan-synthesis"
        };
        let body = json!({ "rootAgentId": agent, "plan": chain(self.tool.as_str(), length) });
        self.world.submit_as(&operator(), body).await.unwrap()
    }

    fn executions(&self) -> usize {
        self.executed.lock().unwrap().len()
    }

    /// Comes to rest: nothing is sent twice that may not be until somebody says so, and then the books agree.
    async fn rests(&mut self, run: RunId, what: &str) -> RunEnvelope {
        let rested = self.world.until(run, |run| run.closed || run.status == RunStatus::AwaitingApproval).await;
        if self.policy != Recovery::Idempotent {
            assert!(self.executions() <= 1, "{what}: executed {} times", self.executions());
        }
        if rested.status == RunStatus::AwaitingApproval {
            assert_eq!(self.policy, Recovery::AtMostOnce, "{what}: only this one needs people");
            let question = rested.approvals.last().unwrap();
            assert_eq!(question.reason, ApprovalReason::UnknownCallOutcome, "{what}");
            self.world.decide(question.approval_id, ApprovalDecision::Approve).await.unwrap();
        }
        let closed = self.world.until_closed(run).await;
        assert_eq!(closed.status, RunStatus::Completed, "{what}");
        let executed = self.executed.lock().unwrap().clone();
        match self.policy {
            Recovery::Idempotent => {
                assert!(!executed.is_empty(), "{what}");
                assert!(executed.iter().all(|call| *call == executed[0]), "{what}: under one id");
                assert_eq!(closed.tool_calls.len(), 1, "{what}");
            }
            Recovery::Deduplicating => assert_eq!(executed.len(), 1, "{what}"),
            Recovery::AtMostOnce => {
                let distinct: std::collections::BTreeSet<_> = executed.iter().collect();
                assert_eq!(distinct.len(), executed.len(), "{what}: no call twice");
            }
        }
        let price = closed.tool_calls[0].estimated_usage.get(BudgetCategory::CostUnits).0;
        let charged = closed.tool_calls.iter().filter(|call| call.outcome != CallOutcome::Held).count();
        let total = closed.cost_ledger.total_cost_units;
        assert_eq!(total, Micros(price * i64::try_from(charged).unwrap()), "{what}: each call charged once");
        let meter = &self.world.store.budgets().await.unwrap()[0].meter;
        assert_eq!((meter.consumed, meter.reserved), (total, Micros::ZERO), "{what}: nothing stays reserved");
        closed
    }
}

fn meter() -> Budget {
    Budget {
        budget_id: BudgetId::new("all").unwrap(),
        tenant_id: Some(TenantId::new("acme").unwrap()),
        scope: BudgetScope::Tenant,
        scope_key: "acme".to_owned(),
        category: BudgetCategory::CostUnits,
        limit: Micros::units(1_000),
        calendar: None,
        period_seconds: None,
        anchor_unix_seconds: 0,
        warn_ratio: Micros(800_000),
        grace_ratio: Micros(1_000_000),
        grace_seconds: 0,
        on_exceeded: OnExceeded::Kill,
    }
}

async fn a_fault_at(at: At, fault: Fault) -> Vec<RunEnvelope> {
    let mut rested = Vec::new();
    for policy in POLICIES {
        let mut scene = Scene::set(policy).await;
        scene.journal.arm(at, fault);
        let run = scene.submit().await;
        scene.journal.has_struck().await;
        if matches!(fault, Fault::DiesBefore | Fault::DiesAfter) {
            scene.world.crash().await;
        }
        rested.push(scene.rests(run, &format!("{policy:?}, {fault:?} at {at:?}")).await);
    }
    rested
}

/// How often each of the three was found unknown.
fn unknown(rested: &[RunEnvelope]) -> Vec<usize> {
    let unknown = |run: &RunEnvelope| run.tool_calls.iter().filter(|call| call.outcome == CallOutcome::Unknown).count();
    rested.iter().map(unknown).collect()
}

#[tokio::test(start_paused = true)]
async fn a_fault_before_a_call_is_pending_leaves_nothing_to_recover() {
    for fault in [Fault::DiesBefore, Fault::RequestLost] {
        let rested = a_fault_at(At::Pending, fault).await;
        assert_eq!(unknown(&rested), [0, 0, 0]);
        assert!(rested.iter().all(|run| run.tool_calls.len() == 1 && run.tool_calls[0].attempt == 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_fault_between_pending_and_dispatch_is_recovered_by_policy() {
    for fault in [Fault::DiesAfter, Fault::AnswerLost] {
        let rested = a_fault_at(At::Pending, fault).await;
        assert_eq!(unknown(&rested), [0, 0, 1]);
        assert_eq!(rested[0].tool_calls[0].attempt, 2, "sent again under its id");
        assert_eq!(rested[1].tool_calls[0].outcome, CallOutcome::Held, "the executor never saw it, so it is free");
    }
}

#[tokio::test(start_paused = true)]
async fn a_fault_with_the_answer_on_its_way_does_nothing_twice_that_must_not_be() {
    let died = a_fault_at(At::Settled, Fault::DiesBefore).await;
    assert_eq!(unknown(&died), [0, 0, 1]);
    // The process lives and has the answer: it is written again, and nothing is done again.
    let lost = a_fault_at(At::Settled, Fault::RequestLost).await;
    assert_eq!(unknown(&lost), [0, 0, 0]);
    assert!(lost.iter().all(|run| run.tool_calls.len() == 1 && run.tool_calls[0].attempt == 1));
}

#[tokio::test(start_paused = true)]
async fn a_fault_after_the_settlement_settles_nothing_again() {
    for fault in [Fault::DiesAfter, Fault::AnswerLost] {
        let rested = a_fault_at(At::Settled, fault).await;
        assert_eq!(unknown(&rested), [0, 0, 0]);
        assert!(rested.iter().all(|run| run.tool_calls.len() == 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_dies_in_a_call_leaves_it_to_its_policy() {
    for policy in POLICIES {
        let mut scene = Scene::set(policy).await;
        scene.go.send_replace(false);
        let run = scene.submit().await;
        scene.world.tools.begun(1).await;
        scene.world.crash().await;
        if policy.1 == Recovery::AtMostOnce {
            scene.world.until_status(run, RunStatus::AwaitingApproval).await;
        }
        scene.go.send_replace(true);
        scene.rests(run, &format!("{policy:?} in the call")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_commit_while_a_call_is_out_loses_no_call() {
    for policy in POLICIES {
        for fault in [Fault::AnswerLost, Fault::RequestLost] {
            let mut scene = Scene::set(policy).await;
            scene.go.send_replace(false);
            let run = scene.submit().await;
            scene.world.tools.begun(1).await;
            scene.journal.arm(At::Control, fault);
            scene.world.command(run, RunCommand::Pause { reason: "a look".to_owned() }).await.unwrap();
            assert!(*scene.journal.struck.borrow(), "the actor failed and was loaded again");
            scene.go.send_replace(true);
            scene.world.until(run, |run| run.tool_calls[0].outcome == CallOutcome::Ok).await;
            scene.world.command(run, RunCommand::Resume { reason: "seen".to_owned() }).await.unwrap();
            let closed = scene.rests(run, &format!("{policy:?}, {fault:?} in the call")).await;
            assert_eq!((scene.executions(), closed.tool_calls[0].attempt), (1, 1), "its answer was waited for");
            assert!(closed.approvals.is_empty());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_commit_of_a_kill_still_ends_the_run_and_cancels_its_call() {
    for policy in POLICIES {
        for fault in [Fault::AnswerLost, Fault::RequestLost] {
            let what = format!("{policy:?}, {fault:?} of the kill");
            let scene = Scene::set(policy).await;
            scene.go.send_replace(false);
            let run = scene.submit().await;
            scene.world.tools.begun(1).await;
            scene.journal.arm(At::Control, fault);
            let kill = RunCommand::Kill { reason: "enough".to_owned(), blamed_id: None };
            scene.world.command(run, kill).await.unwrap();
            assert!(*scene.journal.struck.borrow(), "{what}");
            let closed = scene.world.until_closed(run).await;
            assert_eq!(closed.status, RunStatus::Killed, "{what}");
            assert_eq!(scene.world.tools.cancelled(), [closed.tool_calls[0].call_id], "{what}");
            let meter = &scene.world.store.budgets().await.unwrap()[0].meter;
            assert_eq!(meter.reserved, Micros::ZERO, "{what}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_whose_commit_nobody_heard_of_is_no_late_one() {
    for policy in POLICIES {
        let scene = Scene::set(policy).await;
        scene.journal.arm(At::Settled, Fault::AnswerLost);
        let run = scene.submit_chain(3).await;
        // The same append has made the next call pending, and nobody has sent it.
        let rested = scene.world.until(run, |run| run.closed || run.status == RunStatus::AwaitingApproval).await;
        if let Some(question) = rested.approvals.first() {
            scene.world.decide(question.approval_id, ApprovalDecision::Approve).await.unwrap();
        }
        let closed = scene.world.until_closed(run).await;
        assert_eq!((closed.status, scene.executions()), (RunStatus::Completed, 3), "{policy:?}");
        assert!(!scene.world.kinds(run).await.contains(&"late-evidence".to_owned()), "{policy:?}");
    }
}
