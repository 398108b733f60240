//! Managing grants on a node that works.

use std::time::Duration;

use serde_json::json;
use signalbox_domain::governance::audit::{Subject, verify_audit};
use signalbox_domain::governance::budgeting::Expected;
use signalbox_domain::governance::change::GovernanceChange;
use signalbox_domain::governance::grant::{Constraints, GrantScope};
use signalbox_domain::governance::granting::{IssueGrant, RenewGrant};
use signalbox_domain::identity::Role;
use signalbox_domain::ids::{GrantId, RunId, RunKey};
use signalbox_domain::registry::{family_meta, family_of, reference_agents};
use signalbox_domain::run::advance::projection;
use signalbox_domain::run::append::NewEvent;
use signalbox_domain::run::event::RunEvent;
use signalbox_domain::run::evolve::submitted_run;
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::run::submission::{Submitter, accept};
use signalbox_domain::time::{UnixMicros, UnixMs};
use signalbox_ports::acts::{Acts as _, AuditFilter};
use signalbox_ports::journal::{Journal as _, NewRun};
use signalbox_ports::memory::FakeTools;
use signalbox_runtime::{ApiError, GrantFilter};
use uuid::Uuid;

use crate::harness::{World, caller, chain, operator, submission, tool};

const BEGAN: i64 = 1_800_000_000_000;

fn id(text: &str) -> GrantId {
    GrantId::new(text).unwrap()
}

fn order(name: &str) -> IssueGrant {
    IssueGrant {
        grant_id: id(name),
        tenant_id: None,
        scope: GrantScope::PerTenant,
        scope_key: None,
        tool_id: tool("notify.send"),
        tool_range: None,
        constraints: Constraints::default(),
        delegable: None,
        expires_at_unix_ms: Some(UnixMs(BEGAN + 86_400_000)),
        rationale: "the press desk".to_owned(),
    }
}

fn renewal(of: &str, name: &str, expected: Expected) -> RenewGrant {
    RenewGrant {
        grant_id: id(of),
        new_grant_id: id(name),
        expires_at_unix_ms: Some(UnixMs(BEGAN + 2 * 86_400_000)),
        rationale: "the desk stays".to_owned(),
        expected,
    }
}

fn code<T: std::fmt::Debug>(answer: Result<T, ApiError>) -> String {
    answer.unwrap_err().code().to_owned()
}

async fn notes(world: &World, calls: usize) -> signalbox_domain::ids::RunId {
    let body = json!({ "rootAgentId": "ref.support-triage", "plan": chain("notify.send", calls) });
    world.submit_as(&operator(), body).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_grant_lets_calls_through_until_it_is_revoked_in_the_middle_of_a_run() {
    let world = World::new().await;
    let denied = notes(&world, 1).await;
    assert_eq!(world.until_closed(denied).await.end.unwrap().code.as_deref(), Some("no-matching-grant"));

    let (standing, replayed) = world.node.issue_grant(&operator(), order("press")).await.unwrap();
    assert_eq!((standing.state, standing.revision, replayed), ("live", 1, false));
    assert_eq!(standing.grant.audit_event_id, "audit/1");
    assert!(world.node.issue_grant(&operator(), order("press")).await.unwrap().1, "said twice");
    let node = world.node.clone();
    world.tools.on(&tool("notify.send"), move |order, _| {
        let node = node.clone();
        async move {
            if order.step_id.as_str() == "s1" {
                node.revoke_grant(&operator(), &id("press"), "closed", Expected::Any).await.unwrap();
            }
            FakeTools::answered(json!({}))
        }
    });
    let run = notes(&world, 3).await;
    let envelope = world.until_closed(run).await;
    assert_eq!(envelope.status, RunStatus::Failed);
    assert_eq!(envelope.end.unwrap().code.as_deref(), Some("all-matches-revoked"));
    assert_eq!(world.tools.count(&tool("notify.send")), 2, "the third is denied");

    let again = world.node.revoke_grant(&operator(), &id("press"), "closed", Expected::Revision(1)).await.unwrap();
    assert!(again.already && again.revoked.is_empty());
    assert_eq!((again.standing.state, again.standing.revision), ("revoked", 2));
    let heard = world.node.revocations();
    assert_eq!((heard.applied, heard.slo_missed), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_expires_in_the_middle_of_a_run_denies_its_next_call() {
    let world = World::new().await;
    let brief = IssueGrant { expires_at_unix_ms: Some(UnixMs(BEGAN + 5_000)), ..order("brief") };
    world.node.issue_grant(&operator(), brief).await.unwrap();
    world.tools.on(&tool("notify.send"), |_, _| async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        FakeTools::answered(json!({}))
    });
    let run = notes(&world, 3).await;
    let envelope = world.until_closed(run).await;
    assert_eq!(envelope.end.unwrap().code.as_deref(), Some("all-matches-expired"));
    assert_eq!(world.tools.count(&tool("notify.send")), 2);
    let listed = world.node.grants(&operator(), &GrantFilter { limit: 10, ..GrantFilter::default() }).await.unwrap();
    assert!(listed.is_empty(), "it is live no more");
    // Within a day it can be renewed, and the work goes on.
    world.node.renew_grant(&operator(), renewal("brief", "longer", Expected::Revision(1))).await.unwrap();
    let run = notes(&world, 1).await;
    assert_eq!(world.until_closed(run).await.status, RunStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn of_two_who_change_one_grant_the_second_is_told_to_look_again() {
    let world = World::new().await;
    let seen = world.node.issue_grant(&operator(), order("press")).await.unwrap().0.revision;
    let (renewed, _) =
        world.node.renew_grant(&operator(), renewal("press", "press-2", Expected::Revision(seen))).await.unwrap();
    assert_eq!(renewed.grant.renewed_from_grant_id, Some(id("press")));
    let late = world.node.revoke_grant(&operator(), &id("press"), "closed", Expected::Revision(seen)).await;
    assert_eq!(code(late), "stale-revision", "a renewal is a change of what it continues");
    assert_eq!(
        code(world.node.renew_grant(&operator(), renewal("press", "other", Expected::Any)).await),
        "grant-renewed"
    );
    let now = world.node.grant(&operator(), &id("press")).await.unwrap().revision;
    let revoked = world.node.revoke_grant(&operator(), &id("press"), "closed", Expected::Revision(now)).await.unwrap();
    assert_eq!(revoked.revoked, [id("press"), id("press-2")]);
    let after = world.node.renew_grant(&operator(), renewal("press-2", "press-3", Expected::Any)).await;
    assert_eq!(code(after), "grant-revoked");
    let run = notes(&world, 1).await;
    assert_eq!(world.until_closed(run).await.end.unwrap().code.as_deref(), Some("all-matches-revoked"));
}

#[tokio::test(start_paused = true)]
async fn each_act_on_a_grant_is_recorded_with_who_why_before_and_after() {
    let world = World::new().await;
    world.node.issue_grant(&operator(), order("press")).await.unwrap();
    world.node.renew_grant(&operator(), renewal("press", "press-2", Expected::Any)).await.unwrap();
    world.node.revoke_grant(&operator(), &id("press-2"), "the desk is closed", Expected::Any).await.unwrap();
    let acts = world.store.audit(&AuditFilter { limit: 10, ..AuditFilter::default() }).await.unwrap();
    assert!(verify_audit(&acts, Some(world.store.audit_head().await.unwrap())).ok);
    let kinds: Vec<_> = acts.iter().map(|act| act.kind.as_str()).collect();
    assert_eq!(kinds, ["grant-issued", "grant-renewed", "grant-revoked"]);
    let said: Vec<_> = acts.iter().map(|act| act.said().unwrap()).collect();
    assert_eq!((said[0].before.as_ref(), said[0].reason.as_str()), (None, "the press desk"));
    assert_eq!(said[1].before.as_ref().unwrap()["grantId"], "press");
    assert_eq!(said[1].after.as_ref().unwrap()["renewedFromGrantId"], "press");
    assert_eq!(acts[2].subject, Subject::grant(&"press-2"));
    assert_eq!((acts[2].actor.actor_id.as_str(), said[2].reason.as_str()), ("ada", "the desk is closed"));
    assert_eq!(said[2].before.as_ref().unwrap().get("revokedAtUnixMs"), None);
    assert!(said[2].after.as_ref().unwrap()["revokedAtUnixMs"].is_i64());
    assert_eq!(said[2].details.as_ref().unwrap()["revokedGrantIds"], json!(["press-2", "press"]));
}

#[tokio::test(start_paused = true)]
async fn grants_are_shown_to_operators_of_their_tenant_alone() {
    let world = World::new().await;
    world.node.issue_grant(&operator(), order("press")).await.unwrap();
    let stranger = caller("other", "eve", Role::TenantOperator);
    let filter = GrantFilter { all: true, limit: 10, ..GrantFilter::default() };
    assert!(world.node.grants(&stranger, &filter).await.unwrap().is_empty());
    assert_eq!(code(world.node.grant(&stranger, &id("press")).await), "no-such-grant");
    assert_eq!(code(world.node.revoke_grant(&stranger, &id("press"), "mine", Expected::Any).await), "no-such-grant");
    let taken = world.node.issue_grant(&stranger, order("press")).await;
    assert_eq!(code(taken), "grant-id-conflict");
    let customer = caller("acme", "cora", Role::Customer);
    assert_eq!(code(world.node.grants(&customer, &filter).await), "not-authorized");
    assert_eq!(code(world.node.issue_grant(&customer, order("own")).await), "not-authorized");
    let ada = caller("platform", "ada.platform", Role::PlatformOperator);
    assert_eq!(world.node.grants(&ada, &filter).await.unwrap().len(), 1);
    let foreign = IssueGrant { tenant_id: Some(stranger.tenant_id.clone()), ..order("theirs") };
    world.node.issue_grant(&ada, foreign).await.unwrap();
    assert_eq!(world.node.grants(&stranger, &filter).await.unwrap()[0].grant.grant_id, id("theirs"));
    let behind = GrantFilter { after: Some(id("press")), ..filter };
    assert_eq!(world.node.grants(&ada, &behind).await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_grant_was_revoked_before_it_began_does_not_begin() {
    let mut world = World::new().await;
    world.node.issue_grant(&operator(), order("press")).await.unwrap();
    world.node.abandon().await;
    // Submitted through a node that died before it began.
    let body = json!({ "rootAgentId": "ref.support-triage", "plan": chain("notify.send", 2) });
    let by = operator();
    let submitter = Submitter {
        run_key: RunKey::new(Uuid::from_u128(77)),
        run_id: RunId::new(Uuid::from_u128(78)),
        tenant_id: by.tenant_id,
        actor: by.actor.clone(),
        scopes: by.scopes,
        surface: "api".to_owned(),
    };
    let queued = submitter.run_id;
    let submitted = accept(submission(&body), submitter, Vec::new()).unwrap();
    let new = NewRun {
        run_key: submitted.run_key,
        run_id: queued,
        tenant_id: submitted.tenant_id.clone(),
        projection: projection(&submitted_run(&submitted, UnixMicros(BEGAN * 1_000))),
        events: vec![NewEvent::by(by.actor, RunEvent::RunSubmitted(Box::new(submitted)))],
        owner: None,
    };
    world.store.create(new).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    world.change(GovernanceChange::GrantRevoked { grant_id: id("press"), at_unix_ms: UnixMs(BEGAN + 50_000) }).await;
    world.crash().await;
    let envelope = world.until_closed(queued).await;
    assert_eq!(envelope.end.unwrap().code.as_deref(), Some("all-matches-revoked"));
    assert!(!envelope.started && envelope.tool_calls.is_empty());
    assert!(world.tools.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_is_bounded_is_granted_to_each_run_and_everything_else_needs_a_standing_grant() {
    let ids = ["memory.read", "file.read", "web.fetch", "notify.send", "code.exec", "file.write"];
    let world = World::with(FakeTools::new(ids.map(tool)), |_| {}).await;
    let plan = |tool: &str, args: serde_json::Value| json!({ "rootAgentId": "ref.research", "plan": [{ "stepId": "s", "kind": "tool", "toolId": tool, "args": args }] });
    let outcome = async |tool: &str, agent: &str, args: serde_json::Value| {
        let mut body = plan(tool, args);
        body["rootAgentId"] = json!(agent);
        let mut by = operator();
        by.scopes.push("operator:agents".to_owned());
        let run = world.submit_as(&by, body).await.unwrap();
        let envelope = world.until_closed(run).await;
        envelope.end.and_then(|end| end.code).unwrap_or_else(|| envelope.status.as_str().to_owned())
    };
    let agent_of = |name: &str| {
        let able = reference_agents().find(|agent| {
            let family = family_of(&agent.agent_id).and_then(family_meta);
            family.is_some_and(|meta| meta.allows(&tool(name)))
        });
        able.unwrap().agent_id.to_string()
    };
    let url = json!({ "url": "https://example.org/" });
    // Low, medium: minted. Egress, high, critical: not.
    for (name, args, expected) in [
        ("memory.read", json!({ "key": "k" }), "completed"),
        ("file.read", json!({ "path": "a.txt" }), "completed"),
        ("web.fetch", url.clone(), "no-matching-grant"),
        ("file.write", json!({ "path": "a.txt", "content": "x" }), "no-matching-grant"),
        ("code.exec", json!({ "code": "1" }), "no-matching-grant"),
        ("memory.read", json!({ "key": { "$secret": "token" } }), "no-matching-grant"),
    ] {
        assert_eq!(outcome(name, &agent_of(name), args).await, expected, "{name}");
    }
    let ada = caller("acme", "ada.platform", Role::PlatformOperator);
    for name in ["web.fetch", "file.write", "code.exec", "memory.read"] {
        let standing = IssueGrant { tool_id: tool(name), ..order(&format!("standing.{name}")) };
        world.node.issue_grant(&ada, standing).await.unwrap();
    }
    for (name, args, expected) in [
        ("web.fetch", url, "completed"),
        ("file.write", json!({ "path": "a.txt", "content": "x" }), "completed"),
        ("code.exec", json!({ "code": "1" }), "completed"),
        // A grant that names no secret releases none.
        ("memory.read", json!({ "key": { "$secret": "token" } }), "secret-not-granted"),
    ] {
        assert_eq!(outcome(name, &agent_of(name), args).await, expected, "{name}");
    }
}
