//! Gates on a node: what ran before one never runs again, a yes is for exactly one deed, and every answer is kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::{Value, json};
use signalbox_domain::identity::Role;
use signalbox_domain::ids::{ApprovalId, CommandId, RunId, StepId, TenantId};
use signalbox_domain::run::decide::RunCommand;
use signalbox_domain::run::envelope::RunEnvelope;
use signalbox_domain::run::event::{ApprovalDecision, Overrides};
use signalbox_domain::run::status::RunStatus;
use signalbox_ports::blobs::Blobs;
use signalbox_ports::journal::StoreError;
use signalbox_ports::memory::{FakeTools, MemoryBlobs};
use signalbox_runtime::{ApiError, Caller, Node, NodeConfig, NodeHandle};

use crate::harness::{World, caller, fresh_command, operator, step, tool};

fn gate(id: &str, after: &[&str], more: Value) -> Value {
    let mut gate = json!({ "stepId": id, "kind": "approval", "prompt": "Go on?", "dependsOnStepIds": after });
    for (key, value) in more.as_object().into_iter().flatten() {
        gate[key] = value.clone();
    }
    gate
}

async fn say(
    node: &NodeHandle,
    by: &Caller,
    approval: ApprovalId,
    decision: ApprovalDecision,
    command: CommandId,
) -> Result<(RunId, u64), ApiError> {
    let answer = node.decide_approval(by, approval, decision, "looked at it".to_owned(), None, command).await;
    answer.map(|(run, answer)| (run, answer.seq))
}

fn code<T: std::fmt::Debug>(result: Result<T, ApiError>) -> String {
    result.unwrap_err().code().to_owned()
}

impl World {
    /// The question that is open now.
    async fn question(&self, run: RunId) -> ApprovalId {
        let asked = self.until_status(run, RunStatus::AwaitingApproval).await;
        asked.approvals.iter().find(|approval| approval.is_open()).unwrap().approval_id
    }

    async fn reminders(&self, run: RunId) -> usize {
        self.kinds(run).await.iter().filter(|kind| *kind == "approval-reminded").count()
    }
}

/// Case C-017: A, a gate, B, a gate, C; the node dies at each gate.
async fn through_two_gates(last: ApprovalDecision) -> (World, RunEnvelope) {
    let mut world = World::new().await;
    let plan = json!([
        step("a", "memory.read", &[]),
        gate("gate1", &["a"], json!({})),
        step("b", "memory.write", &["gate1"]),
        gate("gate2", &["b"], json!({})),
        step("c", "composition.suggest", &["gate2"]),
    ]);
    let run = world.submit(plan).await;
    world.until_status(run, RunStatus::AwaitingApproval).await;
    world.crash().await;
    let first = world.question(run).await;
    world.decide(first, ApprovalDecision::Approve).await.unwrap();
    world.until(run, |run| run.approvals.len() == 2).await;
    world.crash().await;
    let second = world.question(run).await;
    world.decide(second, last).await.unwrap();
    world.crash().await;
    let envelope = world.until_closed(run).await;
    (world, envelope)
}

#[tokio::test(start_paused = true)]
async fn what_lies_before_a_gate_is_never_done_again_however_often_the_node_dies() {
    let (world, envelope) = through_two_gates(ApprovalDecision::Approve).await;
    assert_eq!(envelope.status, RunStatus::Completed);
    let count = |name: &str| world.tools.count(&tool(name));
    assert_eq!((count("memory.read"), count("memory.write"), count("composition.suggest")), (1, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn what_lies_behind_a_rejected_gate_is_never_done() {
    let (world, envelope) = through_two_gates(ApprovalDecision::Reject).await;
    assert_eq!(envelope.status, RunStatus::Failed);
    assert_eq!(envelope.end.unwrap().code.as_deref(), Some("approval-rejected"));
    let count = |name: &str| world.tools.count(&tool(name));
    assert_eq!((count("memory.read"), count("memory.write"), count("composition.suggest")), (1, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn an_answer_said_again_is_the_same_answer_also_elsewhere_and_after_the_end() {
    let world = World::new().await;
    let run = world.submit(json!([gate("gate", &[], json!({})), step("a", "memory.read", &["gate"])])).await;
    let approval = world.question(run).await;
    let (ada, yes) = (operator(), ApprovalDecision::Approve);
    let command = fresh_command();
    let first = say(&world.node, &ada, approval, yes, command).await.unwrap();
    assert_eq!(say(&world.node, &ada, approval, yes, command).await.unwrap(), first);
    world.until_closed(run).await;
    let (other_node, _) = Node::start(NodeConfig::default(), world.ports.clone()).await.unwrap();
    for node in [&world.node, &other_node] {
        assert_eq!(say(node, &ada, approval, yes, command).await.unwrap(), first);
        let other = say(node, &ada, approval, ApprovalDecision::Reject, command).await;
        assert_eq!(code(other), "command-id-conflict");
        let by_somebody_else = say(node, &caller("acme", "eve", Role::TenantOperator), approval, yes, command).await;
        assert_eq!(code(by_somebody_else), "command-id-conflict");
        assert_eq!(code(say(node, &ada, approval, yes, fresh_command()).await), "approval-closed");
    }
    assert_eq!(world.tools.count(&tool("memory.read")), 1);
    other_node.drain().await;
}

#[tokio::test(start_paused = true)]
async fn a_refusal_said_again_is_the_same_refusal() {
    let world = World::new().await;
    let run = world.submit(json!([gate("gate", &[], json!({}))])).await;
    let approval = world.question(run).await;
    let command = fresh_command();
    let skip = ApprovalDecision::Skip;
    for _ in 0..2 {
        assert_eq!(code(say(&world.node, &operator(), approval, skip, command).await), "decision-not-allowed");
    }
    world.decide(approval, ApprovalDecision::Approve).await.unwrap();
    world.until_closed(run).await;
    assert_eq!(code(say(&world.node, &operator(), approval, skip, command).await), "decision-not-allowed");
}

#[tokio::test(start_paused = true)]
async fn of_two_answers_at_once_one_counts() {
    let world = World::new().await;
    let run = world.submit(json!([gate("gate", &[], json!({})), step("a", "memory.read", &["gate"])])).await;
    let approval = world.question(run).await;
    let (ada, eve) = (operator(), caller("acme", "eve", Role::TenantOperator));
    let (yes, no) = tokio::join!(
        say(&world.node, &ada, approval, ApprovalDecision::Approve, fresh_command()),
        say(&world.node, &eve, approval, ApprovalDecision::Reject, fresh_command()),
    );
    assert!(yes.is_ok() != no.is_ok(), "{yes:?} {no:?}");
    let envelope = world.until_closed(run).await;
    assert_eq!(envelope.status == RunStatus::Completed, yes.is_ok());
    assert_eq!(code(if yes.is_ok() { no } else { yes }), "approval-closed");
}

#[tokio::test(start_paused = true)]
async fn a_question_of_another_tenant_is_as_absent_as_one_that_was_never_asked() {
    let world = World::new().await;
    let run = world.submit(json!([gate("gate", &[], json!({}))])).await;
    let approval = world.question(run).await;
    let never = ApprovalId::new(uuid::Uuid::from_u128(1));
    let stranger = caller("globex", "ada", Role::PlatformOperator);
    let told = async |id: ApprovalId| {
        let refused = say(&world.node, &stranger, id, ApprovalDecision::Approve, fresh_command()).await.unwrap_err();
        let seen = world.node.approval(&stranger, id).await.unwrap_err();
        assert_eq!(seen, refused);
        (refused.code().to_owned(), refused.kind(), refused.to_string().replace(&id.to_string(), "ID"))
    };
    assert_eq!(told(approval).await, told(never).await);
    // Also after it was decided, when it is found in another place.
    world.decide(approval, ApprovalDecision::Approve).await.unwrap();
    world.until_closed(run).await;
    assert_eq!(told(approval).await, told(never).await);
    assert_eq!(told(approval).await.0, "no-such-approval");
}

#[tokio::test(start_paused = true)]
async fn only_the_named_may_answer_and_the_list_says_who_they_are() {
    let world = World::new().await;
    let olga = caller("acme", "olga", Role::TenantOperator);
    let named = json!({ "approvers": { "actorIds": ["olga"] } });
    let run = world.submit(json!([gate("gate", &[], named)])).await;
    let approval = world.question(run).await;
    let yes = ApprovalDecision::Approve;
    assert_eq!(code(say(&world.node, &operator(), approval, yes, fresh_command()).await), "not-an-approver");
    let creator = caller("acme", "olga", Role::Creator);
    assert_eq!(code(say(&world.node, &creator, approval, yes, fresh_command()).await), "no-such-approval");
    let listed = world.node.approvals(&operator()).await.unwrap().remove(0).1;
    assert!(listed.approvers.is_some_and(|named| named.names(&olga.actor)));
    assert!(!world.node.approval(&operator(), approval).await.unwrap().may_decide);
    assert!(world.node.approval(&olga, approval).await.unwrap().may_decide);
    say(&world.node, &olga, approval, yes, fresh_command()).await.unwrap();
    assert_eq!(world.until_closed(run).await.status, RunStatus::Completed);
    let own = json!({ "approvers": { "actorIds": ["ada", "olga"] } });
    let body = json!({ "rootAgentId": "ref.course-generation", "plan": [gate("gate", &[], own)] });
    assert_eq!(code(world.submit_as(&operator(), body).await), "bad-step");
}

/// HND-002: whoever is asked sees the question, and the run it belongs to; nobody else without standing does.
#[tokio::test(start_paused = true)]
async fn a_teacher_is_asked_and_answers_and_an_operator_without_the_scope_does_not() {
    let world = World::new().await;
    let run = world.submit(json!([gate("gate", &[], json!({ "requirement": "teacher" }))])).await;
    let approval = world.question(run).await;
    let scoped = |who: &str, role, scope: &str| Caller { scopes: vec![scope.to_owned()], ..caller("acme", who, role) };
    let teacher = scoped("tess", Role::Creator, "approve:teacher");
    let strangers = [
        scoped("gus", Role::Customer, "approve:guardian"),
        caller("acme", "carl", Role::Creator),
        Caller { tenant_id: caller("other", "eve", Role::Creator).tenant_id, ..teacher.clone() },
    ];
    for stranger in &strangers {
        assert_eq!(code(world.node.approval(stranger, approval).await), "no-such-approval");
        assert_eq!(code(world.node.get(stranger, run).await), "no-such-run");
        assert_eq!(
            code(say(&world.node, stranger, approval, ApprovalDecision::Approve, fresh_command()).await),
            "no-such-approval"
        );
        assert!(world.node.approvals(stranger).await.unwrap().is_empty());
    }
    let operator = scoped("olga", Role::TenantOperator, "tool:memory.read");
    assert!(!world.node.approval(&operator, approval).await.unwrap().may_decide);
    assert_eq!(
        code(say(&world.node, &operator, approval, ApprovalDecision::Approve, fresh_command()).await),
        "not-authorized"
    );

    assert_eq!(world.node.approvals(&teacher).await.unwrap().len(), 1);
    assert!(world.node.approval(&teacher, approval).await.unwrap().may_decide);
    assert_eq!(world.node.get(&teacher, run).await.unwrap().run_id, run);
    let pause = RunCommand::Pause { reason: "a teacher steers nothing".to_owned() };
    assert_eq!(code(world.node.command(&teacher, run, fresh_command(), pause).await), "not-authorized");
    say(&world.node, &teacher, approval, ApprovalDecision::Approve, fresh_command()).await.unwrap();
    assert_eq!(world.until_closed(run).await.status, RunStatus::Completed);
    let without = caller("acme", "tess", Role::Creator);
    assert_eq!(world.node.get(&without, run).await.unwrap().run_id, run, "whoever has answered goes on seeing it");
}

/// The same question said again with a token that says more is still the same.
#[tokio::test(start_paused = true)]
async fn an_answer_said_again_with_a_fresher_token_is_answered_as_before() {
    let world = World::new().await;
    let run = world.submit(json!([gate("gate", &[], json!({ "requirement": "teacher" }))])).await;
    let approval = world.question(run).await;
    let teacher = |scopes: &[&str]| Caller {
        scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
        ..caller("acme", "tess", Role::Creator)
    };
    let (yes, id) = (ApprovalDecision::Approve, fresh_command());
    let first = say(&world.node, &teacher(&["approve:teacher"]), approval, yes, id).await.unwrap();
    let again = say(&world.node, &teacher(&["tool:web.fetch", "approve:teacher"]), approval, yes, id).await.unwrap();
    assert_eq!(first, again);
}

#[tokio::test(start_paused = true)]
async fn a_reminder_is_given_once_and_shown_across_crashes_and_while_the_run_is_parked() {
    let mut world = World::new().await;
    let run = world.submit(json!([gate("gate", &[], json!({ "approvalTtlSeconds": 120 }))])).await;
    let approval = world.question(run).await;
    let listed = async |world: &World| world.node.approvals(&operator()).await.unwrap().remove(0).1.reminded;
    tokio::time::sleep(Duration::from_secs(30)).await;
    world.crash().await;
    assert_eq!((world.reminders(run).await, listed(&world).await), (0, false));
    // It comes due while nobody holds the run.
    world.node.abandon().await;
    tokio::time::sleep(Duration::from_secs(40)).await;
    world.crash().await;
    world.until(run, |run| run.approvals[0].reminded).await;
    assert!(listed(&world).await);
    world.crash().await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!((world.reminders(run).await, listed(&world).await), (1, true));
    let envelope = world.until_closed(run).await;
    assert_eq!((envelope.status, world.reminders(run).await), (RunStatus::Failed, 1));
    assert_eq!(envelope.end.unwrap().code.as_deref(), Some("approval-expired"));
    assert_eq!(code(world.decide(approval, ApprovalDecision::Approve).await), "approval-closed");
    assert!(world.node.approvals(&operator()).await.unwrap().is_empty());
}

/// `read`, then a gate over `pay`, whose note is what `read` gave.
fn guarded() -> Value {
    let pay = json!({ "stepId": "pay", "kind": "tool", "toolId": "memory.write", "approvedBy": "gate",
        "args": { "to": "acme", "amount": 10, "note": { "$from": "/steps/read/output/note" } } });
    json!([step("read", "memory.read", &[]), gate("gate", &["read"], json!({})), pay])
}

fn noting(note: &str) -> signalbox_domain::run::step::CallResult {
    FakeTools::answered(json!({ "note": note }))
}

#[tokio::test(start_paused = true)]
async fn a_guarded_call_carries_exactly_the_arguments_that_were_shown() {
    let mut world = World::new().await;
    world.tools.script(&tool("memory.read"), [noting("first")]);
    let run = world.submit(guarded()).await;
    let approval = world.question(run).await;
    let question = world.node.approval(&operator(), approval).await.unwrap();
    let shown = question.shown["actions"][0]["args"].clone();
    assert_eq!(shown, json!({ "to": "acme", "amount": 10, "note": "first" }));
    world.crash().await;
    world.decide(approval, ApprovalDecision::Approve).await.unwrap();
    let envelope = world.until_closed(run).await;
    assert_eq!(envelope.status, RunStatus::Completed);
    assert_eq!(world.tools.calls()[1].args, shown);
    assert_eq!(envelope.tool_calls[1].args_hash, question.asked.actions[0].args_hash);
}

#[tokio::test(start_paused = true)]
async fn each_changed_argument_is_asked_about_anew_and_calls_and_costs_nothing() {
    let note = json!({ "$from": "/steps/read/output/note" });
    let changed = [
        json!({ "to": "acme", "amount": 1000, "note": note }),
        json!({ "to": "globex", "amount": 10, "note": note }),
        json!({ "to": "acme", "amount": "10", "note": note }),
        json!({ "to": "acme", "amount": 10, "note": "else" }),
        json!({ "to": "acme", "amount": 10 }),
        json!({ "to": "acme", "amount": 10, "note": note, "more": null }),
        json!({ "to": ["acme"], "amount": 10, "note": note }),
    ];
    for args in changed {
        let world = World::new().await;
        world.tools.script(&tool("memory.read"), [noting("first")]);
        world.tools.set_permits(&tool("memory.write"), 0);
        let run = world.submit(guarded()).await;
        let first = world.question(run).await;
        world.decide(first, ApprovalDecision::Approve).await.unwrap();
        world.command(run, RunCommand::Pause { reason: "wait".to_owned() }).await.unwrap();
        let overrides = Overrides { params: [(StepId::new("pay").unwrap(), args)].into(), ..Overrides::default() };
        let step_id = StepId::new("pay").unwrap();
        let retry = RunCommand::RetryWithChanges { step_id, overrides, reason: "more".to_owned() };
        world.command(run, retry).await.unwrap();
        world.tools.set_permits(&tool("memory.write"), 8);
        let second = world.question(run).await;
        let digest = async |id| world.node.approval(&operator(), id).await.unwrap().asked.subject_digest;
        assert_ne!(digest(first).await, digest(second).await);
        assert_eq!(code(world.decide(first, ApprovalDecision::Approve).await), "approval-closed");
        let seen = Some(digest(first).await);
        let (ada, reason) = (operator(), "as before".to_owned());
        let yes = ApprovalDecision::Approve;
        let stale = world.node.decide_approval(&ada, second, yes, reason, seen, fresh_command());
        assert_eq!(code(stale.await), "approval-subject-changed");
        world.decide(second, ApprovalDecision::Reject).await.unwrap();
        let envelope = world.until_closed(run).await;
        assert_eq!((envelope.status, world.tools.count(&tool("memory.write"))), (RunStatus::Failed, 0));
        assert_eq!(
            envelope.cost_ledger.total_cost_units, envelope.tool_calls[0].cost_units,
            "`read` alone was charged"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_value_that_moved_between_the_yes_and_the_call_is_asked_about_anew() {
    let world = World::new().await;
    world.tools.script(&tool("memory.read"), [noting("first"), noting("second")]);
    world.tools.set_permits(&tool("memory.write"), 0);
    let run = world.submit(guarded()).await;
    let first = world.question(run).await;
    world.decide(first, ApprovalDecision::Approve).await.unwrap();
    world.command(run, RunCommand::Pause { reason: "wait".to_owned() }).await.unwrap();
    let step_id = StepId::new("read").unwrap();
    let retry = RunCommand::RetryWithChanges { step_id, overrides: Overrides::default(), reason: "stale".to_owned() };
    world.command(run, retry).await.unwrap();
    world.tools.set_permits(&tool("memory.write"), 8);
    let second = world.question(run).await;
    assert_eq!(world.node.approval(&operator(), second).await.unwrap().shown["actions"][0]["args"]["note"], "second");
    assert_eq!(world.tools.count(&tool("memory.write")), 0);
    world.decide(second, ApprovalDecision::Approve).await.unwrap();
    world.until_closed(run).await;
    assert_eq!(world.tools.calls().last().unwrap().args["note"], "second");
}

/// An object store in which somebody has changed everything.
#[derive(Default)]
struct Forged {
    kept: MemoryBlobs,
    forged: AtomicBool,
}

#[async_trait]
impl Blobs for Forged {
    async fn put(&self, tenant: &TenantId, bytes: Bytes) -> Result<String, StoreError> {
        self.kept.put(tenant, bytes).await
    }
    async fn get(&self, tenant: &TenantId, sha256: &str) -> Result<Option<Bytes>, StoreError> {
        let kept = self.kept.get(tenant, sha256).await?;
        let change = |bytes: Bytes| Bytes::from(String::from_utf8_lossy(&bytes).replace("xxx", "yyy"));
        Ok(if self.forged.load(Ordering::Relaxed) { kept.map(change) } else { kept })
    }
}

#[tokio::test(start_paused = true)]
async fn a_value_that_was_changed_behind_the_journal_is_not_let_through() {
    let blobs = Arc::new(Forged::default());
    let tools = FakeTools::new(["memory.read", "memory.write"].map(tool));
    let mut world = World::with(tools, |ports| ports.blobs = blobs.clone()).await;
    world.tools.script(&tool("memory.read"), [noting(&"x".repeat(100_000))]);
    let run = world.submit(guarded()).await;
    let approval = world.question(run).await;
    world.crash().await;
    blobs.forged.store(true, Ordering::Relaxed);
    world.decide(approval, ApprovalDecision::Approve).await.unwrap();
    let envelope = world.until_closed(run).await;
    assert_eq!(envelope.end.unwrap().code.as_deref(), Some("action-not-approved"));
    assert_eq!(world.tools.count(&tool("memory.write")), 0);
    let refused = envelope.tool_calls.last().unwrap();
    assert_eq!(refused.charged, signalbox_domain::quantity::Usage::none());
    assert!(refused.reservations.is_empty());
}
