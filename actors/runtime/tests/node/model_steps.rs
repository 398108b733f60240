//! Model steps, end to end: turns are asked for durably, proposals are calls like any other, and everything is bounded.

use std::sync::Arc;

use serde_json::{Value, json};
use signalbox_domain::governance::kill_switch::SwitchScope;
use signalbox_domain::ids::{RegionId, RunId};
use signalbox_domain::quantity::{BudgetCategory, Micros};
use signalbox_domain::run::event::{CallOutcome, DecisionLabel};
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::run::step::StepState;
use signalbox_ports::memory::{FakeModels, FakeTools};
use signalbox_ports::models::ModelError;

use crate::harness::{World, operator, switch, tool};

const PROVIDER: &str = "openai-compatible";

struct Think {
    world: World,
    models: Arc<FakeModels>,
}

impl Think {
    async fn new() -> Self {
        let region = RegionId::new("eu-1").ok();
        let models = Arc::new(FakeModels::new([(PROVIDER, "default", region), (PROVIDER, "fallback", None)]));
        let port = models.clone();
        let tools = ["memory.read", "memory.write", "file.read", "web.fetch"];
        let world = World::with(FakeTools::new(tools.map(tool)), |ports| ports.models = port).await;
        Self { world, models }
    }

    async fn submit(&self, step: Value) -> RunId {
        let mut think = json!({ "stepId": "think", "kind": "model", "prompt": "look it up",
            "tools": ["memory.read", "memory.write", "web.fetch"] });
        think.as_object_mut().unwrap().extend(step.as_object().unwrap().clone());
        let after = json!({ "stepId": "keep", "kind": "tool", "toolId": "memory.write", "dependsOnStepIds": ["think"],
            "args": { "key": "k", "value": { "$from": "/steps/think/output/text" } } });
        self.world.submit(json!([think, after])).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_model_step_makes_the_calls_its_model_proposes_and_ends_with_its_answer() {
    let it = Think::new().await;
    it.world.tools.script(&tool("memory.read"), [FakeTools::answered(json!({ "value": "42" }))]);
    it.models.script([Ok(FakeModels::proposes([("memory.read", r#"{"key":"a"}"#)])), Ok(FakeModels::says("it is 42"))]);
    let run = it.submit(json!({})).await;
    let envelope = it.world.until_closed(run).await;
    assert_eq!(envelope.status, RunStatus::Completed, "{:#?}", envelope.end);
    let kinds = it.world.kinds(run).await;
    let expected = [
        "run-submitted",
        "run-started",
        "model-began",
        "model-asked",
        "call-pending",
        "call-settled",
        "model-answered",
        "call-pending",
        "call-settled",
        "model-asked",
        "call-pending",
        "call-settled",
        "model-answered",
        "call-pending",
        "call-settled",
        "run-finished",
        "run-closed",
    ];
    assert_eq!(kinds, expected);
    let calls: Vec<_> = envelope.tool_calls.iter().map(|call| (call.step_id.as_str(), call.tool_id.as_str())).collect();
    let expected =
        [("think:1", "model.turn"), ("think:1.1", "memory.read"), ("think:2", "model.turn"), ("keep", "memory.write")];
    assert_eq!(calls, expected);
    assert_eq!(it.world.tools.calls().last().unwrap().args["value"], "it is 42");
    // What the model is told in its second turn is what the tool gave.
    let told = it.models.orders()[1].args["messages"].to_string();
    assert!(told.contains("42") && told.contains("look it up"), "{told}");
    let ledger = &envelope.cost_ledger;
    assert_eq!(ledger.counter(BudgetCategory::InputTokens), Micros::units(200));
    assert_eq!(ledger.counter(BudgetCategory::OutputTokens), Micros::units(20));
}

#[tokio::test(start_paused = true)]
async fn a_second_round_of_calls_is_a_plan_made_anew() {
    let it = Think::new().await;
    it.models.script([
        Ok(FakeModels::proposes([("memory.read", r#"{"key":"a"}"#)])),
        Ok(FakeModels::proposes([("memory.read", r#"{"key":"b"}"#)])),
        Ok(FakeModels::says("done")),
    ]);
    let run = it.submit(json!({})).await;
    let envelope = it.world.until_closed(run).await;
    let labels: Vec<_> = envelope.decision_rationale.iter().map(|decision| decision.decision_label).collect();
    assert_eq!(labels, [DecisionLabel::PlanReplanned]);
}

#[tokio::test(start_paused = true)]
async fn a_proposal_outside_the_grants_is_answered_to_the_model_and_not_made() {
    let it = Think::new().await;
    it.models.script([
        Ok(FakeModels::proposes([
            ("code.exec", "{}"),
            ("memory.read", "{not json"),
            ("memory.read", "[1]"),
            // Of high risk: no grant is minted for it.
            ("web.fetch", r#"{"url":"https://example.org/"}"#),
        ])),
        Ok(FakeModels::says("so be it")),
    ]);
    let run = it.submit(json!({})).await;
    let envelope = it.world.until_closed(run).await;
    assert_eq!(envelope.status, RunStatus::Completed, "{:#?}", envelope.end);
    assert_eq!(it.world.tools.calls().len(), 1, "only the step after the model step");
    let told = it.models.orders()[1].args["messages"].to_string();
    for code in ["tool-not-offered", "malformed-arguments"] {
        assert!(told.contains(code), "{code}: {told}");
    }
    let denied = envelope.tool_calls.iter().find(|call| call.step_id.as_str() == "think:1.4").unwrap();
    assert_eq!(denied.outcome, CallOutcome::Denied);
    assert!(told.contains(&denied.error.as_ref().unwrap().code), "{told}");
}

#[tokio::test(start_paused = true)]
async fn a_model_that_keeps_asking_for_what_it_may_not_is_stopped() {
    let it = Think::new().await;
    it.models.script((0..9).map(|_| Ok(FakeModels::proposes([("code.exec", "{}"), ("code.exec", "{}")]))));
    let run = it.submit(json!({})).await;
    let envelope = it.world.until_closed(run).await;
    assert_eq!(envelope.status, RunStatus::Failed);
    assert_eq!(envelope.end.unwrap().code.unwrap(), "model-refusals-used-up");
    assert_eq!(it.models.orders().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_model_that_never_answers_is_stopped_at_its_last_turn() {
    let it = Think::new().await;
    it.models.script((0..9).map(|_| Ok(FakeModels::proposes([("memory.read", r#"{"key":"a"}"#)]))));
    let run = it.submit(json!({ "limits": { "turns": 3 } })).await;
    let envelope = it.world.until_closed(run).await;
    assert_eq!(envelope.end.unwrap().code.unwrap(), "model-turns-used-up");
    assert_eq!(it.models.orders().len(), 3);
    assert_eq!(it.models.orders()[2].args["tools"], json!([]), "the last turn offers nothing");
    assert_eq!(it.world.tools.calls().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn more_calls_than_one_answer_may_hold_are_refused_one_by_one() {
    let it = Think::new().await;
    it.models.script([Ok(FakeModels::proposes([("memory.read", r#"{"key":"a"}"#); 4])), Ok(FakeModels::says("done"))]);
    let run = it.submit(json!({ "limits": { "callsPerTurn": 3 } })).await;
    it.world.until_closed(run).await;
    assert_eq!(it.world.tools.count(&tool("memory.read")), 3);
    assert!(it.models.orders()[1].args["messages"].to_string().contains("too-many-calls"));
}

#[tokio::test(start_paused = true)]
async fn a_model_reaches_neither_inputs_nor_secrets_by_naming_them() {
    let it = Think::new().await;
    it.models.script([
        Ok(FakeModels::proposes([("memory.write", r#"{"key":"a","value":{"$from":"/inputs"},"b":{"$secret":"k"}}"#)])),
        Ok(FakeModels::says("done")),
    ]);
    let run = it.submit(json!({})).await;
    it.world.until_closed(run).await;
    let order = it.world.tools.calls()[0].clone();
    assert_eq!(order.args["value"], json!({ "$from": "/inputs" }), "what a model says is data");
    assert!(order.secrets.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_prompt_is_redacted_before_a_model_sees_it() {
    let it = Think::new().await;
    it.models.script([Ok(FakeModels::says("done"))]);
    let run = it.submit(json!({ "prompt": "use Authorization: Bearer FAKE-not-a-real-token-0123456789abcdef" })).await;
    it.world.until_closed(run).await;
    let asked = it.models.orders()[0].args.to_string();
    assert!(asked.contains("[redacted:") && !asked.contains("FAKE-not-a-real"), "{asked}");
}

#[tokio::test(start_paused = true)]
async fn a_kill_ends_a_turn_that_is_under_way_at_once() {
    use signalbox_domain::run::decide::RunCommand;
    let it = Think::new().await;
    let run = it.submit(json!({})).await;
    it.models.asked(1).await;
    let kill = RunCommand::Kill { reason: "enough".to_owned(), blamed_id: None };
    it.world.command(run, kill).await.unwrap();
    let envelope = it.world.until_closed(run).await;
    assert_eq!(envelope.status, RunStatus::Killed);
    assert_eq!(it.models.cancelled().len(), 1);
    assert_eq!(envelope.tool_calls[0].outcome, CallOutcome::Killed);
}

#[tokio::test(start_paused = true)]
async fn a_turn_whose_node_died_is_asked_again_and_charged_once() {
    let mut it = Think::new().await;
    let run = it.submit(json!({})).await;
    it.models.asked(1).await;
    it.world.crash().await;
    // The task of the dead node still listens in this process; what it hears goes nowhere.
    it.models.script([Ok(FakeModels::says("here I am")), Ok(FakeModels::says("here I am"))]);
    let envelope = it.world.until_closed(run).await;
    assert_eq!(envelope.status, RunStatus::Completed, "{:#?}", envelope.end);
    let orders = it.models.orders();
    assert_eq!(orders.len(), 2);
    assert_eq!(orders[0].args, orders[1].args, "the same is asked");
    assert_eq!(orders[0].call_id, orders[1].call_id, "under the same name");
    assert_eq!(envelope.cost_ledger.counter(BudgetCategory::InputTokens), Micros::units(100));
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_is_away_makes_the_other_model_be_asked() {
    let it = Think::new().await;
    let away = || Err(ModelError::Transient { code: "model-unavailable", message: "503 three times".to_owned() });
    it.models.script([away(), Ok(FakeModels::says("from the other"))]);
    let run = it.submit(json!({})).await;
    let envelope = it.world.until_closed(run).await;
    assert_eq!(envelope.status, RunStatus::Completed, "{:#?}", envelope.end);
    assert_eq!(it.models.orders()[1].model_id, "fallback");
    assert_eq!(envelope.decision_rationale[0].decision_label, DecisionLabel::ModelFallback);
}

#[tokio::test(start_paused = true)]
async fn a_model_that_refuses_for_good_fails_its_step() {
    let it = Think::new().await;
    it.models.script([Err(ModelError::Terminal { code: "model-refused", message: "400".to_owned() })]);
    let run = it.submit(json!({})).await;
    let envelope = it.world.until_closed(run).await;
    assert_eq!(envelope.end.unwrap().code.unwrap(), "model-refused");
    assert_eq!(it.models.orders().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_model_that_is_not_configured_is_refused_by_the_gate() {
    let world = World::new().await;
    let plan = json!([{ "stepId": "think", "kind": "model", "prompt": "x" }]);
    let run = world.submit(plan).await;
    let envelope = world.until_closed(run).await;
    assert_eq!(envelope.end.as_ref().unwrap().code.as_deref(), Some("agent_tools_not_configured"));
    assert!(envelope.end.unwrap().message.unwrap().contains("[[models]]"));
}

#[tokio::test(start_paused = true)]
async fn a_token_budget_of_the_run_stops_the_turn_that_would_pass_it() {
    let it = Think::new().await;
    let body = json!({ "rootAgentId": "ref.course-generation",
        "plan": [{ "stepId": "think", "kind": "model", "prompt": "x" }],
        "budgets": [{ "category": "output-tokens", "limit": 1000 }] });
    let run = it.world.submit_as(&operator(), body).await.unwrap();
    let envelope = it.world.until_closed(run).await;
    assert_eq!(envelope.status, RunStatus::Killed);
    assert_eq!(envelope.end.unwrap().code.unwrap(), "budget-exceeded");
    assert!(it.models.orders().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_rehearsal_asks_no_model_and_goes_on_with_a_stand_in() {
    let it = Think::new().await;
    let body = json!({ "rootAgentId": "ref.course-generation", "mode": "rehearsal-dry-run",
        "plan": [{ "stepId": "think", "kind": "model", "prompt": "x" },
            { "stepId": "keep", "kind": "tool", "toolId": "memory.write", "dependsOnStepIds": ["think"],
              "args": { "key": "k", "value": { "$from": "/steps/think/output/text" } } }] });
    let run = it.world.submit_as(&operator(), body).await.unwrap();
    let envelope = it.world.until_closed(run).await;
    assert_eq!(envelope.status, RunStatus::Completed, "{:#?}", envelope.end);
    assert!(it.models.orders().is_empty());
    assert!(matches!(envelope.steps[0], StepState::Done { .. }));
}

/// An agent of the tenant that speaks through a model of one provider and falls back on one of another.
fn two_providers() -> Vec<(&'static str, &'static str, Option<RegionId>)> {
    vec![("first", "large", RegionId::new("eu-1").ok()), ("second", "large", RegionId::new("us-1").ok())]
}

async fn of_two_providers(models: &Arc<FakeModels>) -> World {
    let port = models.clone();
    let world = World::with(FakeTools::new(["memory.read"].map(tool)), |ports| ports.models = port).await;
    let mut entry = signalbox_domain::registry::reference_agents().next().unwrap().clone();
    entry.agent_id = signalbox_domain::ids::AgentId::new("acme.thinker").unwrap();
    entry.model_binding.provider_id = signalbox_domain::ids::ProviderId::new("first").unwrap();
    entry.model_binding.fallback_provider_id = signalbox_domain::ids::ProviderId::new("second").unwrap();
    entry.model_binding.model_id = "large".to_owned();
    entry.model_binding.fallback_model_id = "large".to_owned();
    world.change(signalbox_domain::governance::change::GovernanceChange::AgentPublished(Box::new(entry))).await;
    // The node reads it within a second.
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    world
}

#[tokio::test(start_paused = true)]
async fn a_switch_on_the_provider_makes_the_next_turn_ask_the_other_model() {
    for (scope, target) in [(SwitchScope::Provider, "first"), (SwitchScope::Region, "eu-1")] {
        let models = Arc::new(FakeModels::new(two_providers()));
        let world = of_two_providers(&models).await;
        world.change(switch("off", scope, Some(target))).await;
        models.script([Ok(FakeModels::says("from the second"))]);
        let body =
            json!({ "rootAgentId": "acme.thinker", "plan": [{ "stepId": "think", "kind": "model", "prompt": "x" }] });
        let run = world.submit_as(&operator(), body).await.unwrap();
        let envelope = world.until_closed(run).await;
        assert_eq!(envelope.status, RunStatus::Completed, "{:#?}", envelope.end);
        assert_eq!(models.orders()[0].provider_id.as_str(), "second");
        assert_eq!(envelope.decision_rationale[0].decision_label, DecisionLabel::ModelFallback);
    }
}

#[tokio::test(start_paused = true)]
async fn a_switch_on_the_provider_ends_a_run_whose_turn_is_out_there() {
    for (scope, target) in [(SwitchScope::Provider, "first"), (SwitchScope::Region, "eu-1")] {
        let models = Arc::new(FakeModels::new(two_providers()));
        let world = of_two_providers(&models).await;
        let body =
            json!({ "rootAgentId": "acme.thinker", "plan": [{ "stepId": "think", "kind": "model", "prompt": "x" }] });
        let run = world.submit_as(&operator(), body).await.unwrap();
        models.asked(1).await;
        world.change(switch("off", scope, Some(target))).await;
        let envelope = world.until_closed(run).await;
        assert_eq!(envelope.status, RunStatus::Killed);
        assert_eq!(models.cancelled().len(), 1);
    }
}
