use serde_json::json;
use signalbox_domain::identity::Role;
use signalbox_domain::ids::RunId;
use signalbox_domain::run::status::RunStatus;
use signalbox_runtime::Whose;

use crate::harness::{World, caller, chain, operator, step, submission, tool};

#[tokio::test(start_paused = true)]
async fn the_same_submission_under_the_same_id_is_one_run_and_another_one_is_refused() {
    let world = World::new().await;
    let id = RunId::new(uuid::Uuid::now_v7());
    let body = json!({ "rootAgentId": "ref.course-generation", "plan": chain("memory.read", 2) });
    let first = world.node.submit(&operator(), Some(id), submission(&body)).await.unwrap();
    let second = world.node.submit(&operator(), Some(id), submission(&body)).await.unwrap();
    assert!((first.run_id, first.replayed) == (id, false) && (second.run_id, second.replayed) == (id, true));
    let other = json!({ "rootAgentId": "ref.course-generation", "plan": chain("memory.read", 3) });
    let conflict = world.node.submit(&operator(), Some(id), submission(&other)).await.unwrap_err();
    assert_eq!(conflict.code(), "run_id_conflict");
    let member = caller("acme", "mallory", Role::Creator);
    let taken = world.node.submit(&member, Some(id), submission(&body)).await.unwrap_err();
    assert_eq!(taken.code(), "run_id_conflict");
    // In another tenant the id is free.
    let elsewhere = caller("other", "eve", Role::Creator);
    assert!(!world.node.submit(&elsewhere, Some(id), submission(&body)).await.unwrap().replayed);
    world.until_closed(id).await;
    assert_eq!(world.tools.calls().iter().filter(|c| c.tenant_id == operator().tenant_id).count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_missing_tool_comes_before_a_missing_scope_and_leaves_no_run() {
    let world = World::new().await;
    let mut poor = operator();
    poor.scopes.clear();
    let absent = json!({ "rootAgentId": "ref.narration", "plan": [step("a", "generate.audio", &[])] });
    let error = world.submit_as(&poor, absent.clone()).await.unwrap_err();
    assert_eq!(error.code(), "agent_tools_not_configured");
    assert!(error.to_string().contains("generate.audio"));
    let present = json!({ "rootAgentId": "ref.course-generation", "plan": chain("memory.read", 1) });
    assert_eq!(world.submit_as(&poor, present).await.unwrap_err().code(), "tool_scope_missing");
    let all = signalbox_domain::dashboard::DashboardFilter::default();
    assert!(world.node.list(&operator(), Whose::Own, all).await.unwrap().rows.is_empty());
    // An optional step may name a tool that is absent: it is skipped.
    let mut optional = step("a", "generate.audio", &[]);
    optional["optional"] = json!(true);
    let body = json!({ "rootAgentId": "ref.narration", "plan": [optional] });
    let run = world.submit_as(&operator(), body).await.unwrap();
    assert_eq!(world.until_closed(run).await.status, RunStatus::Completed);
    assert_eq!(world.tools.count(&tool("generate.audio")), 0);
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_submitter_hangs_up_is_taken_up_all_the_same() {
    let world = World::new().await;
    let (id, asks) = (RunId::new(uuid::Uuid::now_v7()), operator());
    let body = json!({ "rootAgentId": "ref.course-generation", "plan": chain("memory.read", 1) });
    // Looked at once, and then dropped wherever it waits.
    let submitting = world.node.submit(&asks, Some(id), submission(&body));
    let hung_up = tokio::time::timeout(std::time::Duration::ZERO, submitting).await;
    assert!(hung_up.is_err(), "it was not dropped in the middle");
    tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    assert_eq!(world.until_closed(id).await.status, RunStatus::Completed);
}
