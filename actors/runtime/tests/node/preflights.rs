//! Preflights and modes on a whole node: what fails leaves nothing behind, and what passes is bound (INV, MOD).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use signalbox_domain::dashboard::DashboardFilter;
use signalbox_domain::identity::Role;
use signalbox_domain::ids::RunId;
use signalbox_domain::invocation::{InvocationPolicies, TenantRules, ToneVerdict};
use signalbox_domain::quantity::{BudgetCategory, Micros};
use signalbox_domain::registry::DataScope;
use signalbox_domain::run::envelope::RunEnvelope;
use signalbox_domain::run::event::{DecisionLabel, OutputKind};
use signalbox_domain::run::status::RunStatus;
use signalbox_ports::memory::FakeTools;
use signalbox_runtime::{ApiError, Caller, Node, NodeConfig, Whose};

use crate::harness::{World, caller, chain, operator, step, submission, tool};

fn creator() -> Caller {
    caller("acme", "cass", Role::Creator)
}

/// A node whose tenant `acme` allows what these rules say.
async fn strict(rules: TenantRules) -> World {
    configured(NodeConfig { invocations: policies(rules), ..NodeConfig::default() }).await
}

fn policies(rules: TenantRules) -> InvocationPolicies {
    InvocationPolicies { tenants: BTreeMap::from([(operator().tenant_id, rules)]) }
}

async fn configured(config: NodeConfig) -> World {
    let mut world = World::new().await;
    world.node.abandon().await;
    world.node = Node::start(config, world.ports.clone()).await.unwrap().0;
    world
}

fn declared(entitlements: &[&str], consent: Value) -> Value {
    json!({"entitlements": entitlements, "sourceSet": ["archive"], "tone": "warm", "persona": "lilith.scribe",
        "consent": consent})
}

fn body(plan: &Value, invocation: Value) -> Value {
    json!({"rootAgentId": "ref.course-generation", "plan": plan, "invocation": invocation})
}

async fn gaps(world: &World, caller: &Caller, body: Value) -> Vec<&'static str> {
    let refused = world.submit_as(caller, body).await.unwrap_err();
    let ApiError::Preflight(gaps) = refused else { panic!("{refused:?}") };
    gaps.iter().map(|gap| gap.code.code()).collect()
}

async fn runs(world: &World) -> usize {
    world.node.list(&operator(), Whose::Own, DashboardFilter::default()).await.unwrap().rows.len()
}

#[tokio::test(start_paused = true)]
async fn a_failing_preflight_leaves_the_executors_and_the_store_untouched() {
    let rules = TenantRules { consent_scopes: [DataScope::UserPrivate].into(), ..TenantRules::default() };
    let world = strict(rules).await;
    let lacking =
        body(&json!([step("a", "memory.read", &[]), step("b", "memory.write", &["a"])]), declared(&[], json!(null)));
    let id = RunId::new(uuid::Uuid::from_u128(5));
    let refused = world.node.submit(&creator(), Some(id), submission(&lacking)).await.unwrap_err();
    let ApiError::Preflight(gaps) = refused else { panic!("{refused:?}") };
    let codes: Vec<&str> = gaps.iter().map(|gap| gap.code.code()).collect();
    assert_eq!(codes, ["missing-entitlement", "missing-entitlement", "consent-required"]);
    assert_eq!((runs(&world).await, world.tools.calls().len()), (0, 0));
    // The id is free: what lacked something was never there.
    let now = world.ports.clock.now().0;
    let consent = json!({"consentId": "c", "subjectId": "s", "textVersion": "1", "acceptedAtUnixMs": now,
        "dataScopes": ["user.private"]});
    let whole = body(&chain("memory.read", 1), declared(&["tool:memory.read"], consent));
    world.node.submit(&creator(), Some(id), submission(&whole)).await.unwrap();
    let run = world.until_closed(id).await;
    assert_eq!(run.status, RunStatus::Completed);
    let kept = run.invocation.unwrap();
    assert_eq!((kept.tone.as_str(), kept.consent_id.as_deref()), ("warm", Some("c")));
}

#[tokio::test(start_paused = true)]
async fn a_preflight_says_what_a_submission_would_hear_and_writes_nothing() {
    let world = World::new().await;
    let submitted = submission(&body(&chain("memory.write", 2), declared(&[], json!(null))));
    let told = world.node.preflight(&creator(), submitted).await.unwrap();
    let codes: Vec<&str> = told.gaps.iter().map(|gap| gap.code.code()).collect();
    assert_eq!((codes, told.estimate), (vec!["missing-entitlement"], Micros::units(2)));
    assert_eq!((runs(&world).await, world.tools.calls().len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_run_has_no_scope_that_its_invocation_does_not_declare() {
    let world = World::new().await;
    let mut optional = step("b", "memory.write", &["a"]);
    optional["optional"] = json!(true);
    let plan = json!([step("a", "memory.read", &[]), optional]);
    let run = world.submit_as(&creator(), body(&plan, declared(&["tool:memory.read", "tool:all"], json!(null)))).await;
    let run = world.until_closed(run.unwrap()).await;
    assert_eq!((run.status, run.scopes), (RunStatus::Completed, vec!["tool:memory.read".to_owned()]));
    assert_eq!(world.tools.count(&tool("memory.write")), 0, "the credential has the scope, and it was not declared");
}

#[tokio::test(start_paused = true)]
async fn each_run_stores_the_surface_of_its_edge_and_an_unknown_one_is_refused() {
    let world = World::new().await;
    let plan = json!({"rootAgentId": "ref.course-generation", "plan": chain("memory.read", 1)});
    for surface in signalbox_domain::invocation::INVOCATION_SURFACES {
        let from = Caller { surface: surface.as_str(), ..creator() };
        let run = world.submit_as(&from, plan.clone()).await.unwrap();
        assert_eq!(world.get(run).await.surface, surface.as_str());
    }
    let from = Caller { surface: "back-door", ..creator() };
    assert_eq!(world.submit_as(&from, plan.clone()).await.unwrap_err().code(), "unknown-surface");
}

#[tokio::test(start_paused = true)]
async fn a_tier_and_a_tenant_decide_which_modes_may_be_chosen() {
    let world =
        strict(TenantRules { modes: Some([signalbox_domain::mode::Mode::Fast].into()), ..TenantRules::default() })
            .await;
    let in_mode =
        |mode: &str| json!({"rootAgentId": "ref.course-generation", "plan": chain("memory.read", 1), "mode": mode});
    assert_eq!(gaps(&world, &creator(), in_mode("balanced")).await, ["mode-not-allowed"]);
    assert!(world.submit_as(&creator(), in_mode("fast")).await.is_ok());
    let elsewhere = caller("other", "cass", Role::Creator);
    assert!(world.submit_as(&elsewhere, in_mode("balanced")).await.is_ok(), "another tenant has its own list");
    assert_eq!(gaps(&world, &elsewhere, in_mode("exhaustive")).await, ["mode-not-allowed", "checkpoints-missing"]);
}

fn limit(run: &RunEnvelope) -> Micros {
    let own = run.run_budgets.iter().find(|own| own.budget.category == BudgetCategory::CostUnits);
    own.unwrap().budget.limit
}

#[tokio::test(start_paused = true)]
async fn a_mode_is_a_budget_of_its_run_and_the_smaller_one_binds() {
    let world = World::new().await;
    let of = async |more: Value| {
        let mut body = json!({"rootAgentId": "ref.course-generation", "plan": chain("memory.read", 1)});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let run = world.submit_as(&operator(), body).await.map_err(|error| error.code().to_owned())?;
        Ok::<_, String>(limit(&world.get(run).await))
    };
    let own = |units: i64| json!([{"category": "cost-units", "limit": units}]);
    assert_eq!(of(json!({})).await, Ok(Micros::units(500)));
    assert_eq!(of(json!({"mode": "fast"})).await, Ok(Micros::units(50)));
    assert_eq!(of(json!({"mode": "fast", "budgets": own(7)})).await, Ok(Micros::units(7)));
    assert_eq!(of(json!({"mode": "fast", "budgets": own(7_000)})).await, Ok(Micros::units(50)));
    assert_eq!(of(json!({"modeOverride": {"maxCostUnits": 400}})).await, Ok(Micros::units(400)));
    assert_eq!(of(json!({"modeOverride": {"maxCostUnits": 501}})).await, Err("cost-raise-rejected".to_owned()));
    assert_eq!(
        of(json!({"modeOverride": {"p95LatencyBudgetMs": 10_001}})).await,
        Err("latency-raise-rejected".to_owned())
    );
    assert_eq!(of(json!({"modeOverride": {"minEvaluationScore": 0.1}})).await, Err("score-lower-rejected".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_would_cost_more_than_its_mode_allows_is_stopped_there() {
    let world = World::new().await;
    let body = json!({"rootAgentId": "ref.course-generation", "plan": chain("memory.read", 60), "mode": "fast"});
    let run = world.submit_as(&operator(), body).await.unwrap();
    let run = world.until_closed(run).await;
    assert_eq!((run.status, run.cost_ledger.total_cost_units), (RunStatus::Killed, Micros::units(50)));
    assert_eq!(world.tools.calls().len(), 50);
    assert_eq!(run.compliance.unwrap().breaches, [], "what a mode allows was kept, because it binds");
}

#[tokio::test(start_paused = true)]
async fn how_long_people_take_is_not_held_against_a_run() {
    let world = World::new().await;
    let plan = json!([{"stepId": "gate", "kind": "approval"}, step("a", "memory.read", &["gate"])]);
    let run = world.submit(plan).await;
    let asked = world.until_status(run, RunStatus::AwaitingApproval).await;
    tokio::time::sleep(std::time::Duration::from_secs(3_600)).await;
    let approval = asked.approvals[0].approval_id;
    world.decide(approval, signalbox_domain::run::event::ApprovalDecision::Approve).await.unwrap();
    let kept = world.until_closed(run).await.compliance.unwrap();
    assert!(kept.latency_ms < 10_000 && kept.breaches.is_empty(), "{kept:?}");
    let wait = world.submit(json!([{"stepId": "w", "kind": "wait", "seconds": 11}])).await;
    let slow = world.until_closed(wait).await.compliance.unwrap();
    assert_eq!(slow.breaches.iter().map(|breach| breach.code()).collect::<Vec<_>>(), ["latency-exceeded"]);
}

#[derive(Debug)]
struct Stubborn;

impl signalbox_domain::invocation::TonePolicy for Stubborn {
    fn judge(&self, _: &str, text: &str) -> ToneVerdict {
        match text {
            "fine" => ToneVerdict::Pass,
            "hm" => ToneVerdict::Warn("hm".to_owned()),
            _ => ToneVerdict::Block("nobody says that".to_owned()),
        }
    }
}

fn draft(optional: bool) -> Value {
    let mut made = step("make", "composition.suggest", &[]);
    made["optional"] = json!(optional);
    json!([made, step("keep", "memory.write", &["make"])])
}

async fn composed(by: &Caller, text: &str, optional: bool) -> (World, RunEnvelope) {
    let world = configured(NodeConfig { tone: Some(Arc::new(Stubborn)), ..NodeConfig::default() }).await;
    let answer = FakeTools::answered(json!({ "text": text }));
    world.tools.script(&tool("composition.suggest"), [answer]);
    let run = world.submit_as(by, json!({"rootAgentId": "ref.course-generation", "plan": draft(optional)})).await;
    let run = world.until_closed(run.unwrap()).await;
    (world, run)
}

#[tokio::test(start_paused = true)]
async fn text_that_the_tone_policy_blocks_is_withheld_and_ends_the_run() {
    for (role, optional) in [(Role::Creator, false), (Role::Creator, true), (Role::Customer, true)] {
        let (world, run) = composed(&caller("acme", "cass", role), "unspeakable words", optional).await;
        assert_eq!(run.status, RunStatus::Failed);
        assert_eq!(run.end.as_ref().unwrap().code.as_deref(), Some("tone-blocked"));
        assert!(run.decision_rationale.iter().any(|decision| decision.decision_label == DecisionLabel::GateFailed));
        assert!(run.outputs.iter().all(|bundle| bundle.kind != OutputKind::Final) && run.outputs.is_empty());
        assert_eq!(world.tools.count(&tool("memory.write")), 0);
        let (_, _, events) = world.node.export(&operator(), run.run_id).await.unwrap();
        let said = |event: &signalbox_domain::run::chain::StoredEvent| {
            String::from_utf8_lossy(&event.body).contains("unspeakable")
        };
        assert!(!events.iter().any(said), "what may not be said is not in the journal either");
    }
}

#[tokio::test(start_paused = true)]
async fn text_that_is_fine_passes_what_is_noted_passes_and_operators_are_not_watched() {
    for (role, text) in [(Role::Creator, "fine"), (Role::Creator, "hm"), (Role::TenantOperator, "unspeakable words")] {
        let (_, run) = composed(&caller("acme", "cass", role), text, false).await;
        assert_eq!(run.status, RunStatus::Completed, "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn phrases_that_a_tenant_has_configured_are_blocked_in_that_tenant() {
    let rules = TenantRules { tone_block: vec!["Sure Thing".to_owned()], ..TenantRules::default() };
    let world = strict(rules).await;
    let answer = || FakeTools::answered(json!({ "text": "a sure thing" }));
    for (tenant, status) in [("acme", RunStatus::Failed), ("other", RunStatus::Completed)] {
        world.tools.script(&tool("composition.suggest"), [answer()]);
        let by = caller(tenant, "cass", Role::Creator);
        let run =
            world.submit_as(&by, json!({"rootAgentId": "ref.course-generation", "plan": draft(false)})).await.unwrap();
        for _ in 0..1_000 {
            if world.node.get(&by, run).await.unwrap().closed {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        assert_eq!(world.node.get(&by, run).await.unwrap().status, status, "{tenant}");
    }
}
