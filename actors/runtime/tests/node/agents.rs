//! Agents that are registered, published and moved while a node works.

use std::time::Duration;

use serde_json::{Value, json};
use signalbox_domain::catalog::V1_TOOL_IDS;
use signalbox_domain::governance::budgeting::Expected;
use signalbox_domain::governance::kill_switch::SwitchScope;
use signalbox_domain::governance::switching::{ArmSwitch, Reach};
use signalbox_domain::identity::Role;
use signalbox_domain::ids::{AgentId, SwitchId};
use signalbox_domain::pipeline::{briefing, weekly_briefing};
use signalbox_domain::registry::{AgentLifecycle, AgentRegistryEntry, MoveAgent, PublishAgent, TenantScope};
use signalbox_domain::run::status::RunStatus;
use signalbox_ports::memory::FakeTools;
use signalbox_runtime::{ApiError, Caller};

use crate::harness::{World, caller, operator, submission, tool};

fn platform() -> Caller {
    caller("acme", "grace", Role::PlatformOperator)
}

fn stranger() -> Caller {
    caller("globex", "eve", Role::TenantOperator)
}

fn agent() -> AgentId {
    "acme.writer".parse().unwrap()
}

fn entry(semver: &str, state: &str) -> AgentRegistryEntry {
    AgentRegistryEntry::read(json!({
        "agentId": "acme.writer", "agentSemver": semver, "title": "Writer", "family": "editing", "lifecycle": state,
        "experimental": false, "capabilities": [], "dataScopes": [], "toolGrants": ["memory.read"],
        "costClass": "small",
        "modelBinding": {
            "providerId": "house", "modelId": "large", "semver": "1.0.0", "defaultMaxTokens": 10,
            "defaultTemperature": 0, "fallbackProviderId": "house", "fallbackModelId": "small"
        },
        "personaBinding": "p", "tonePolicyId": "t", "groundingPolicyId": "g", "auditPolicyId": "a",
        "tenantScope": {"tenantId": "acme"}, "visibility": ["tenant", "creator"],
        "disclosureRequirements": ["ai-generated"]
    }))
    .unwrap()
}

fn order(entry: AgentRegistryEntry, expected: Expected) -> PublishAgent {
    PublishAgent { entry, reason: "a drill".to_owned(), expected }
}

fn moving(semver: &str, to: AgentLifecycle) -> MoveAgent {
    MoveAgent {
        scope: None,
        agent_id: agent(),
        agent_semver: semver.to_owned(),
        to,
        reason: "a drill".to_owned(),
        expected: Expected::Any,
    }
}

fn told<T: std::fmt::Debug>(answer: Result<T, ApiError>) -> (String, String) {
    let error = answer.unwrap_err();
    (error.code().to_owned(), error.to_string())
}

fn run_of(agent: &str, plan: Value) -> Value {
    json!({ "rootAgentId": agent, "plan": plan })
}

async fn registered() -> World {
    let world = World::new().await;
    world.node.register_agent(&operator(), order(entry("1.0.0", "champion"), Expected::None)).await.unwrap();
    world
}

#[tokio::test(start_paused = true)]
async fn of_two_operators_who_publish_at_once_one_is_told_to_look_again() {
    let world = registered().await;
    let seen = world.node.agent(&operator(), None, &agent(), None).await.unwrap()[0].revision;
    let publish = |semver: &'static str, expected| {
        let node = world.node.clone();
        async move { node.publish_agent(&operator(), order(entry(semver, "draft"), expected)).await }
    };
    let (ours, theirs) =
        tokio::join!(publish("1.1.0", Expected::Revision(seen)), publish("1.2.0", Expected::Revision(seen)));
    let refused = if ours.is_ok() { theirs } else { ours };
    assert_eq!(told(refused).0, "stale-revision");
    // Without a revision the second one is held against what the first one has entered.
    let (ours, theirs) = tokio::join!(publish("2.0.0", Expected::Any), publish("2.0.0", Expected::Any));
    assert_eq!(ours.is_ok() as u8 + theirs.is_ok() as u8, 1);
    let refused = if ours.is_ok() { theirs } else { ours };
    assert_eq!(told(refused).0, "invalid-semver");
    assert_eq!(world.node.agent(&operator(), None, &agent(), None).await.unwrap().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_run_in_flight_keeps_the_version_it_was_submitted_with() {
    let mut world = registered().await;
    let plan = json!([
        { "stepId": "w", "kind": "wait", "seconds": 3_600 },
        { "stepId": "r", "kind": "tool", "toolId": "memory.read", "args": { "key": "k" }, "dependsOnStepIds": ["w"] }
    ]);
    let run = world.submit_as(&operator(), run_of("acme.writer", plan.clone())).await.unwrap();
    world.until(run, |run| run.started).await;
    world.node.move_agent(&operator(), moving("1.0.0", AgentLifecycle::Deprecated)).await.unwrap();
    world.node.move_agent(&operator(), moving("1.0.0", AgentLifecycle::Retired)).await.unwrap();
    let refused = told(world.submit_as(&operator(), run_of("acme.writer", plan)).await);
    assert_eq!(refused.0, "preflight-failed");
    assert!(refused.1.contains("retired"), "{refused:?}");
    world.crash().await;
    // The wait is over before the tests' own patience is.
    tokio::time::sleep(std::time::Duration::from_secs(3_590)).await;
    let ended = world.until_closed(run).await;
    assert_eq!(ended.status, RunStatus::Completed);
    let kept = ended.agents.get(&agent()).unwrap();
    assert_eq!((kept.agent_semver.as_str(), kept.lifecycle), ("1.0.0", AgentLifecycle::Champion));
    // Another node, which has read the log anew, knows where it stands now.
    let known = world.node.agent(&operator(), None, &agent(), Some("1.0.0")).await.unwrap();
    assert_eq!(known[0].entry.lifecycle, AgentLifecycle::Retired);
}

#[tokio::test(start_paused = true)]
async fn a_foreign_tenants_agent_answers_like_one_that_does_not_exist() {
    let world = registered().await;
    let missing: AgentId = "acme.nobody".parse().unwrap();
    let plan = || json!([{ "stepId": "r", "kind": "tool", "toolId": "memory.read", "args": { "key": "k" } }]);
    let eve = stranger();
    let alike = |a: (String, String), b: (String, String)| {
        assert_eq!((a.0, a.1.replace("acme.writer", "X")), (b.0, b.1.replace("acme.nobody", "X")));
    };
    alike(
        told(world.node.agent(&eve, None, &agent(), None).await),
        told(world.node.agent(&eve, None, &missing, None).await),
    );
    let theirs = Some(TenantScope::Tenant("acme".parse().unwrap()));
    alike(
        told(world.node.agent(&eve, theirs.clone(), &agent(), None).await),
        told(world.node.agent(&eve, theirs.clone(), &missing, None).await),
    );
    let there = MoveAgent { scope: theirs.clone(), ..moving("1.0.0", AgentLifecycle::Deprecated) };
    let none = MoveAgent { agent_id: missing, ..there.clone() };
    alike(told(world.node.move_agent(&eve, there).await), told(world.node.move_agent(&eve, none).await));
    alike(
        told(world.submit_as(&eve, run_of("acme.writer", plan())).await),
        told(world.submit_as(&eve, run_of("acme.nobody", plan())).await),
    );
    let arm = |target: &str| ArmSwitch {
        switch_id: SwitchId::new("s").unwrap(),
        reach: Reach::Own,
        scope: SwitchScope::Agent,
        target_id: Some(target.to_owned()),
        reason: "a drill".to_owned(),
        user_visible_status_copy: "stopped".to_owned(),
        safe_degradation_mode_id: None,
        expires_at_unix_ms: None,
    };
    alike(
        told(world.node.arm_switch(&eve, arm("acme.writer"), false).await),
        told(world.node.arm_switch(&eve, arm("acme.nobody"), false).await),
    );
    assert!(world.node.agents(&eve).await.unwrap().iter().all(|entry| entry.agent_id != agent()));
    // Its id is free for everybody else, and entering one of the other tenant is refused for whose it is alone.
    let own =
        AgentRegistryEntry { tenant_scope: TenantScope::Tenant("globex".parse().unwrap()), ..entry("1.0.0", "draft") };
    world.node.register_agent(&eve, order(own, Expected::None)).await.unwrap();
    assert_eq!(
        told(world.node.register_agent(&eve, order(entry("1.0.0", "draft"), Expected::Any)).await).0,
        "not-authorized"
    );
    // Who is not shown it cannot use it, in the tenant either.
    let customer = caller("acme", "cleo", Role::Customer);
    assert_eq!(told(world.submit_as(&customer, run_of("acme.writer", plan())).await).0, "unknown-agent");
    assert_eq!(
        told(world.node.register_agent(&customer, order(entry("1.0.0", "draft"), Expected::Any)).await).0,
        "not-authorized"
    );
}

#[tokio::test(start_paused = true)]
async fn a_switch_on_a_family_ends_parked_runs_of_registered_agents_too() {
    let world = registered().await;
    let plan = || json!([{ "stepId": "w", "kind": "wait", "seconds": 86_400 }]);
    let writer = world.submit_as(&operator(), run_of("acme.writer", plan())).await.unwrap();
    let other = world.submit_as(&operator(), run_of("ref.research", plan())).await.unwrap();
    world.until(writer, |run| run.started).await;
    // Parked: no node holds it.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let on_family = ArmSwitch {
        switch_id: SwitchId::new("no-editing").unwrap(),
        reach: Reach::Own,
        scope: SwitchScope::Family,
        target_id: Some("editing".to_owned()),
        reason: "a drill".to_owned(),
        user_visible_status_copy: "stopped".to_owned(),
        safe_degradation_mode_id: None,
        expires_at_unix_ms: None,
    };
    let armed = world.node.arm_switch(&platform(), on_family, true).await.unwrap();
    assert!(armed.swept_after.is_some(), "{armed:?}");
    assert_eq!(armed.standing.effect.unwrap().killed, 1);
    assert_eq!(world.get(writer).await.status, RunStatus::Killed);
    assert_ne!(world.get(other).await.status, RunStatus::Killed);
}

#[tokio::test(start_paused = true)]
async fn a_deprecated_agent_goes_on_with_a_warning_for_the_pipeline_that_has_pinned_it() {
    let world = World::with(FakeTools::new(V1_TOOL_IDS.map(tool)), |_| {}).await;
    let deprecate =
        MoveAgent { agent_id: "ref.drafting".parse().unwrap(), ..moving("1.0.0", AgentLifecycle::Deprecated) };
    world.node.move_agent(&platform(), deprecate).await.unwrap();
    let body = json!({
        "rootAgentId": "ref.research", "plan": briefing(&["a.md".to_owned()], None), "mode": "deep",
        "pipelineId": weekly_briefing::PIPELINE_ID, "pipelineSemver": weekly_briefing::PIPELINE_SEMVER,
    });
    let looked_at = world.node.preflight(&platform(), submission(&body)).await.unwrap();
    assert_eq!(looked_at.gaps, []);
    assert_eq!(looked_at.warnings.len(), 1, "{:?}", looked_at.warnings);
    assert!(looked_at.warnings[0].contains("ref.drafting"), "{:?}", looked_at.warnings);
    let read = json!([{ "stepId": "r", "kind": "tool", "toolId": "memory.read", "args": { "key": "k" } }]);
    let own = run_of("ref.drafting", read);
    assert_eq!(told(world.submit_as(&platform(), own).await).0, "preflight-failed");
}
