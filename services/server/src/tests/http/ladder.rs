//! The execute front door: its ladder rung by rung, over HTTP and over gRPC, before a whole node.

use serde_json::{Value, json};
use signalbox_domain::governance::change::GovernanceChange;
use signalbox_domain::governance::kill_switch::{KillSwitch, SwitchScope};
use signalbox_domain::ids::{ActorId, SwitchId};
use signalbox_domain::time::UnixMs;
use signalbox_ports::governance::Governance as _;
use signalbox_proto::v1;
use tonic::Code;

use super::super::reason;
use super::node::{RUN, Served, body, tool};
use crate::api::Whose;

const WAIT: &str = "/v1/agentic/runs/execute?wait=20";
const SCOPED: (&str, &str) = ("scopes", "tool:memory.read tool:memory.write tool:web.fetch");

fn without(field: &str) -> Value {
    let mut body = body("memory.read");
    body.as_object_mut().unwrap().remove(field);
    body
}

#[tokio::test]
async fn the_five_shape_errors_name_their_field() {
    let served = Served::start().await;
    let empty = json!({"runId": RUN, "tenantId": "acme", "rootAgentId": "ref.research", "plan": []});
    let no_tool = json!({"runId": RUN, "tenantId": "acme", "rootAgentId": "ref.research", "plan": [{"args": {}}]});
    let bodies = [
        (without("runId"), "runId"),
        (without("tenantId"), "tenantId"),
        (without("rootAgentId"), "rootAgentId"),
        (without("plan"), "plan"),
        (empty, "plan"),
        (no_tool, "plan[0].toolId"),
    ];
    for (body, field) in bodies {
        let refused = served.execute(&[SCOPED], &body).await;
        assert_eq!(refused.problem(), (400, "field-missing".to_owned()), "{field}");
        assert_eq!(refused.field(), field);
        assert!(refused.json()["detail"].as_str().unwrap().contains(field), "{}", refused.text());
    }
    for (field, value) in [("runId", json!("seven")), ("runId", json!("")), ("tenantId", json!("no spaces"))] {
        let mut body = body("memory.read");
        body[field] = value;
        let refused = served.execute(&[SCOPED], &body).await;
        assert_eq!((refused.problem().0, refused.field()), (400, field.to_owned()));
    }
    assert!(
        served
            .node
            .list(&super::super::identity::acme().await, Whose::Own, Default::default())
            .await
            .unwrap()
            .rows
            .is_empty()
    );
}

#[tokio::test]
async fn the_rungs_come_in_their_order_and_fixing_one_leads_to_the_next() {
    let served = Served::start().await;
    // Somebody else has the id already.
    let other = served.execute(&[SCOPED, ("actor", "somebody-else")], &body("memory.read")).await;
    assert_eq!(other.status, 200, "{}", other.text());
    let before = served.run(RUN).await;

    // Everything is wrong at once, and is put right one by one.
    let nobody = [("role", "nobody")];
    let shapeless = without("plan");
    let mut unknown = body("memory.read");
    unknown["plan"] = json!([{"toolId": "composition.suggest"}, {"toolId": "memory.read"}]);
    assert_eq!(served.execute(&nobody, &shapeless).await.problem(), (401, "unauthenticated".to_owned()));
    assert_eq!(served.execute(&[], &shapeless).await.problem(), (400, "field-missing".to_owned()));
    assert_eq!(served.execute(&[], &unknown).await.problem(), (503, "agent_tools_not_configured".to_owned()));
    assert_eq!(served.execute(&[], &body("memory.read")).await.problem(), (403, "tool_scope_missing".to_owned()));
    assert_eq!(served.execute(&[SCOPED], &body("memory.read")).await.problem(), (409, "run_id_conflict".to_owned()));
    let mut fresh = body("memory.read");
    fresh["runId"] = json!("0190d6a8-3c1e-7bbb-8f5e-0000000000ab");
    assert_eq!(served.execute(&[SCOPED], &fresh).await.status, 200);

    let after = served.run(RUN).await;
    assert_eq!(after["envelope"]["submittedBy"], before["envelope"]["submittedBy"], "the stored run is another's");
    assert_eq!(after["envelope"]["submissionHash"], before["envelope"]["submissionHash"]);
}

#[tokio::test]
async fn the_same_ladder_stands_over_grpc() {
    let mut served = Served::start().await;
    served.execute(&[SCOPED, ("actor", "somebody-else")], &body("memory.read")).await;
    let plan = |tool: &str| {
        let step = json!({"stepId": "a", "kind": "tool", "toolId": tool});
        json!({"rootAgentId": "ref.course-generation", "plan": [step]}).to_string()
    };
    let no_plan = json!({"rootAgentId": "ref.course-generation"}).to_string();
    let rungs = [
        (Some("nobody"), None, no_plan.clone(), Code::Unauthenticated, "unauthenticated"),
        (None, None, no_plan, Code::InvalidArgument, "json-invalid"),
        (None, None, plan("composition.suggest"), Code::FailedPrecondition, "agent_tools_not_configured"),
        (None, None, plan("memory.read"), Code::PermissionDenied, "tool_scope_missing"),
        (None, Some(SCOPED.1), plan("memory.read"), Code::AlreadyExists, "run_id_conflict"),
    ];
    for (role, scopes, submission, code, said) in rungs {
        let mut request = tonic::Request::new(v1::SubmitRunRequest {
            run_id: RUN.to_owned(),
            submission_json: submission.into_bytes().into(),
        });
        for (name, value) in [("role", role), ("scopes", scopes)] {
            if let Some(value) = value {
                request.metadata_mut().insert(name, value.parse().unwrap());
            }
        }
        let refused = served.grpc.submit_run(request).await.unwrap_err();
        assert_eq!((refused.code(), reason(&refused).as_str()), (code, said));
    }
}

#[tokio::test]
async fn two_identical_requests_are_one_run_whose_tools_run_once_and_another_body_is_refused() {
    let served = Served::start().await;
    let first = served.execute_at(WAIT, &[SCOPED], &body("memory.read")).await;
    assert_eq!((first.status, &first.json()["replayed"]), (200, &json!(false)));
    let again = served.execute_at(WAIT, &[SCOPED], &body("memory.read")).await;
    assert_eq!((again.status, &again.json()["replayed"]), (200, &json!(true)));
    assert_eq!(served.tools.count(&tool("memory.read")), 1);
    let mut other = body("memory.read");
    other["inputs"] = json!({"n": 1});
    assert_eq!(served.execute(&[SCOPED], &other).await.problem(), (409, "run_id_conflict".to_owned()));
}

#[tokio::test]
async fn the_answer_is_the_stored_run_with_its_telemetry() {
    let served = Served::start().await;
    let answered = served.execute_at(WAIT, &[SCOPED], &body("memory.read")).await.json();
    assert_eq!((&answered["status"], &answered["closed"]), (&json!("completed"), &json!(true)));
    let mut stored = served.run(RUN).await;
    assert!(stored["envelope"]["costLedger"].is_object() && stored["envelope"]["toolCalls"][0]["outcome"] == "ok");
    stored["replayed"] = json!(false);
    stored["warnings"] = json!([]);
    assert_eq!(answered, stored);
}

#[tokio::test]
async fn a_run_that_waits_for_nobody_is_answered_when_it_is_durable_and_waiting_is_bounded() {
    let served = Served::start().await;
    served.tools.hang(&tool("memory.read"));
    let began = std::time::Instant::now();
    let answered = served.execute(&[SCOPED], &body("memory.read")).await.json();
    assert_eq!(answered["closed"], false);
    let waited = served.execute_at("/v1/agentic/runs/execute?wait=1", &[SCOPED], &body("memory.read")).await;
    assert_eq!((waited.status, &waited.json()["closed"]), (200, &json!(false)));
    assert!(began.elapsed().as_secs() >= 1);
    let refused = served.execute_at("/v1/agentic/runs/execute?wait=31", &[SCOPED], &body("memory.read")).await;
    assert_eq!((refused.problem(), refused.field()), ((400, "field-invalid".to_owned()), "wait".to_owned()));
}

#[tokio::test]
async fn what_the_body_says_of_identity_and_targets_has_no_effect_and_another_tenant_is_noted() {
    let served = Served::start().await;
    let mut claims = body("memory.read");
    for (field, value) in [("actorId", "mallory"), ("family", "x"), ("providerId", "x"), ("region", "mars")] {
        claims[field] = json!(value);
        claims["plan"][0][field] = json!(value);
    }
    claims["plan"][0].as_object_mut().unwrap().remove("actorId");
    claims["tenantId"] = json!("globex");
    let answered = served.execute_at(WAIT, &[SCOPED], &claims).await;
    assert_eq!(answered.status, 200, "{}", answered.text());
    let run = served.run(RUN).await;
    assert_eq!((&run["status"], &run["envelope"]["tenantId"]), (&json!("completed"), &json!("acme")));
    assert_eq!(run["envelope"]["submittedBy"]["actorId"], "tester");
    let notes = |journal: Vec<Value>| -> Vec<Value> {
        let bodies = journal.into_iter().filter(|event| event["kind"] == "governance-audited");
        bodies.map(|event| serde_json::from_str(event["body"].as_str().unwrap()).unwrap()).collect()
    };
    let noted = notes(served.journal(RUN).await);
    assert_eq!(noted, [json!({"audit": "identity-mismatch", "claimedTenantId": "globex"})]);

    // Said again it is the same run, and nothing is noted twice.
    assert_eq!(served.execute(&[SCOPED], &claims).await.json()["replayed"], true);
    assert_eq!(notes(served.journal(RUN).await).len(), 1);
    // The right tenant is no news.
    let mut right = body("memory.read");
    right["runId"] = json!("0190d6a8-3c1e-7bbb-8f5e-0000000000ab");
    served.execute_at(WAIT, &[SCOPED], &right).await;
    assert!(notes(served.journal("0190d6a8-3c1e-7bbb-8f5e-0000000000ab").await).is_empty());
}

#[tokio::test]
async fn a_switch_on_the_tenant_of_the_claim_kills_whatever_tenant_the_body_names() {
    let served = Served::start().await;
    let switch = KillSwitch {
        switch_id: SwitchId::new("no-acme").unwrap(),
        tenant_id: None,
        scope: SwitchScope::Tenant,
        target_id: Some("acme".to_owned()),
        armed_by: ActorId::new("grace").unwrap(),
        armed_at_unix_ms: UnixMs(1),
        reason: "it misbehaves".to_owned(),
        user_visible_status_copy: "Paused.".to_owned(),
        safe_degradation_mode_id: None,
        expires_at_unix_ms: None,
        disarmed_at_unix_ms: None,
    };
    let armed = GovernanceChange::SwitchArmed(switch);
    served.store.change(armed, &ActorId::new("grace").unwrap()).await.unwrap();
    let mut claims = body("memory.read");
    claims["tenantId"] = json!("globex");
    let answered = served.execute_at(WAIT, &[SCOPED], &claims).await.json();
    assert_eq!((&answered["status"], &answered["envelope"]["end"]["blamedId"]), (&json!("killed"), &json!("no-acme")));
    assert_eq!(served.tools.count(&tool("memory.read")), 0);
}

#[tokio::test]
async fn a_bounded_tool_gets_one_grant_for_this_run_and_an_unbounded_one_gets_none() {
    let served = Served::start().await;
    let read = served.execute_at(WAIT, &[SCOPED], &body("memory.read")).await.json();
    let grants = read["envelope"]["grants"].as_array().unwrap();
    assert_eq!(grants.len(), 1);
    assert_eq!((&grants[0]["scope"], &grants[0]["scopeKey"]), (&json!("per-run"), &json!(RUN)));
    assert_eq!(grants[0]["toolId"], "memory.read");

    let mut fetch = body("web.fetch");
    fetch["runId"] = json!("0190d6a8-3c1e-7bbb-8f5e-0000000000ac");
    fetch["rootAgentId"] = json!("ref.research");
    fetch["plan"][0]["args"] = json!({"url": "https://example.com/"});
    let fetch = served.execute_at(WAIT, &[SCOPED], &fetch).await.json();
    assert_eq!(fetch["envelope"]["grants"], json!([]));
    assert_eq!(fetch["envelope"]["toolCalls"][0]["outcome"], "denied");
    assert!(fetch["envelope"].to_string().contains("no-matching-grant"), "{fetch}");
    assert_eq!(served.tools.count(&tool("web.fetch")), 0);
}

#[tokio::test]
async fn calls_follow_each_other_unless_they_say_otherwise() {
    let served = Served::start().await;
    let mut plan = body("memory.read");
    plan["plan"] = json!([
        {"toolId": "memory.read", "args": {"key": "a"}},
        {"toolId": "memory.read", "args": {"key": "b"}},
        {"toolId": "memory.read", "stepId": "free", "args": {"key": "c"}, "dependsOnStepIds": []},
    ]);
    let run = served.execute_at(WAIT, &[SCOPED], &plan).await.json();
    let steps = run["envelope"]["plan"]["steps"].as_array().unwrap();
    let after = |at: usize| steps[at]["dependsOnStepIds"].clone();
    assert_eq!((after(0), after(1), after(2)), (Value::Null, json!(["call-1"]), Value::Null));
    assert_eq!(steps[2]["stepId"], "free");
}

#[tokio::test]
async fn a_tool_that_is_not_served_leaves_no_run_behind() {
    let served = Served::start().await;
    let refused = served.execute(&[SCOPED], &body("composition.suggest")).await;
    assert_eq!(refused.problem(), (503, "agent_tools_not_configured".to_owned()));
    assert_eq!(refused.json()["details"]["toolIds"], "composition.suggest");
    assert!(
        served
            .node
            .list(&super::super::identity::acme().await, Whose::Own, Default::default())
            .await
            .unwrap()
            .rows
            .is_empty()
    );
}
