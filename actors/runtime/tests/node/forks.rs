//! A fork is another run of its own, with nothing of what its source was given (CTL-009, CTL-010).

use serde_json::json;
use signalbox_domain::governance::change::GovernanceChange;
use signalbox_domain::governance::grant::GrantScope;
use signalbox_domain::identity::Role;
use signalbox_domain::ids::{CommandId, RunId};
use signalbox_domain::run::decide::RunCommand;
use signalbox_domain::run::event::CallOutcome;
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::run::step::{CallEnding, CallResult};
use signalbox_runtime::{ApiError, Caller, Submitted};
use uuid::Uuid;

use crate::harness::{World, caller, chain, fresh_command, operator, step, tool};

const FRESH: RunId = RunId::new(Uuid::from_u128(0xF0));

async fn fork_by(world: &World, by: &Caller, source: RunId, id: Option<RunId>) -> Result<Submitted, ApiError> {
    world.node.fork(by, source, fresh_command(), None, id, "try again").await
}

/// A run of two calls whose second failed.
async fn failed_run(world: &World) -> RunId {
    let ending = CallEnding::Failed { code: "tool-failed".to_owned(), message: "it did not work".to_owned() };
    let failed = CallResult { ending, measured: None, latency_ms: 1 };
    world.tools.script(&tool("memory.read"), [signalbox_ports::memory::FakeTools::answered(json!({})), failed]);
    let run = world.submit(chain("memory.read", 2)).await;
    assert_eq!(world.until_closed(run).await.status, RunStatus::Failed);
    run
}

#[tokio::test(start_paused = true)]
async fn a_fork_begins_queued_and_does_only_what_its_source_has_not_done() {
    let world = World::new().await;
    let source = failed_run(&world).await;
    let before = world.get(source).await;
    let forked = fork_by(&world, &operator(), source, Some(FRESH)).await.unwrap();
    assert_eq!(forked, Submitted { run_id: FRESH, replayed: false, status: RunStatus::Queued, warnings: vec![] });
    let first = world.node.replay(&operator(), FRESH, 2).await.unwrap();
    assert_eq!((first.status, first.forked_from_run_id), (RunStatus::Queued, Some(source)));
    assert_eq!((first.parent_run_id, first.cost_ledger), (before.parent_run_id, Default::default()));
    let done = world.until_closed(FRESH).await;
    assert_eq!((done.status, done.tool_calls.len()), (RunStatus::Completed, 1));
    assert_eq!(world.tools.count(&tool("memory.read")), 3);
    assert_eq!(world.get(source).await, before, "the source stays as it is");
}

#[tokio::test(start_paused = true)]
async fn a_fork_is_granted_as_any_submission_of_its_forker_is_and_in_its_own_name() {
    let world = World::new().await;
    let source = failed_run(&world).await;
    fork_by(&world, &operator(), source, Some(FRESH)).await.unwrap();
    let forked = world.until_closed(FRESH).await;
    let granted: Vec<_> = forked.grants.iter().map(|grant| (grant.tool_id.as_str(), grant.scope_key.clone())).collect();
    assert_eq!(granted, [("memory.read", FRESH.to_string())]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_only_the_sources_grant_allowed_is_denied_in_the_fork() {
    let world = World::new().await;
    let plan = json!([step("a", "notify.send", &[])]);
    let body = crate::harness::submission(&json!({ "rootAgentId": "ref.support-triage", "plan": plan }));
    let id = RunId::new(Uuid::from_u128(0xA1));
    let GovernanceChange::GrantIssued(mut of_the_source) = crate::harness::tenant_grant("notify.send") else {
        panic!("a grant is issued")
    };
    of_the_source.scope = GrantScope::PerRun;
    of_the_source.scope_key = id.to_string();
    world.tools.hang(&tool("notify.send"));
    let source = world.node.submit_with_grants(&operator(), Some(id), body, vec![of_the_source]).await.unwrap().run_id;
    world.tools.begun(1).await;
    fork_by(&world, &operator(), source, Some(FRESH)).await.unwrap();
    let forked = world.until_closed(FRESH).await;
    assert_eq!(forked.tool_calls[0].outcome, CallOutcome::Denied);
    assert_eq!(forked.end.unwrap().code.as_deref(), Some("no-matching-grant"));
    world.command(source, RunCommand::Cancel { reason: "done".to_owned() }).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_fork_is_denied_by_its_code_and_leaves_nothing_behind() {
    let world = World::new().await;
    let source = failed_run(&world).await;
    let other = world.submit(chain("memory.read", 1)).await;
    for id in [None, Some(source), Some(other), Some(RunId::new(Uuid::nil()))] {
        assert_eq!(fork_by(&world, &operator(), source, id).await.unwrap_err().code(), "fork-without-fresh-id");
    }
    let creator = caller("acme", "carol", Role::Creator);
    assert_eq!(fork_by(&world, &creator, source, Some(FRESH)).await.unwrap_err().code(), "no-such-run");
    let own =
        world.submit_as(&creator, json!({ "rootAgentId": "ref.course-generation", "plan": chain("memory.read", 1) }));
    let own = own.await.unwrap();
    assert_eq!(fork_by(&world, &creator, own, Some(FRESH)).await.unwrap_err().code(), "not-authorized");
    let narrow = Caller { scopes: Vec::new(), ..operator() };
    assert_eq!(fork_by(&world, &narrow, source, Some(FRESH)).await.unwrap_err().code(), "tool_scope_missing");
    let stranger = caller("other", "eve", Role::TenantOperator);
    assert_eq!(fork_by(&world, &stranger, source, Some(FRESH)).await.unwrap_err().code(), "no-such-run");
    let stale = world.node.fork(&operator(), source, fresh_command(), Some(1), Some(FRESH), "").await;
    assert_eq!(stale.unwrap_err().code(), "stale-revision");
    assert_eq!(world.node.get(&operator(), FRESH).await.unwrap_err().code(), "no-such-run");
}

#[tokio::test(start_paused = true)]
async fn saying_a_fork_twice_makes_one_run() {
    let world = World::new().await;
    let source = failed_run(&world).await;
    let id: CommandId = fresh_command();
    let mut said = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let node = world.node.clone();
        said.spawn(async move { node.fork(&operator(), source, id, None, Some(FRESH), "twice").await.unwrap() });
    }
    let said = said.join_all().await;
    assert_eq!(said.iter().filter(|one| !one.replayed).count(), 1);
    assert!(said.iter().all(|one| one.run_id == FRESH));
    let (other, later) = (fresh_command(), Some(FRESH));
    let another = world.node.fork(&operator(), source, other, None, later, "").await.unwrap_err();
    assert_eq!(another.code(), "fork-without-fresh-id");
    world.until_closed(FRESH).await;
    world.node.drain().await;
    assert_eq!(fork_by(&world, &operator(), source, None).await.unwrap_err().code(), "draining");
}
