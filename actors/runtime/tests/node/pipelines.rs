//! Pipelines on a whole node: the cases each of them is judged by, triggers, and what tenants make of them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use signalbox_domain::governance::budgeting::Expected;
use signalbox_domain::governance::change::GovernanceChange;
use signalbox_domain::governance::grant::GrantScope;
use signalbox_domain::governance::kill_switch::SwitchScope;
use signalbox_domain::identity::Role;
use signalbox_domain::ids::{PipelineId, RunId, StepId};
use signalbox_domain::mode::Mode;
use signalbox_domain::pipeline::{
    FIXTURE_CASES_MIN, FirePipeline, FixtureCase, PutCustomization, StubAnswer, Tightening, fixture_sets, score_case,
};
use signalbox_domain::quantity::Micros;
use signalbox_domain::run::envelope::RunEnvelope;
use signalbox_domain::run::event::{ApprovalDecision, DecisionLabel, Evidence, GroundingState};
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::run::step::{CallEnding, CallResult};
use signalbox_ports::memory::FakeTools;
use signalbox_runtime::{ApiError, Caller};

use crate::harness::{World, caller, operator, switch, tenant_grant, tool};

const EXPLAINERS: &str = "nyx.event_explainer_set";

fn boss() -> Caller {
    caller("acme", "pat", Role::PlatformOperator)
}

fn fire(id: &str, input: Value) -> FirePipeline {
    FirePipeline { pipeline_id: PipelineId::new(id).unwrap(), pipeline_semver: None, input, mode: None, fire_id: None }
}

fn sky() -> Value {
    json!({"from": "2026-09-01", "to": "2026-10-01"})
}

/// An answer with evidence, as tools that ground what they say give.
fn grounded(output: Value) -> CallResult {
    let evidence =
        Evidence { evidence_pack_id: "pack".to_owned(), grounding_state: GroundingState::Grounded, citation_count: 1 };
    let ending =
        CallEnding::Answered { partial: false, output, evidence: Some(evidence), effects: vec![], artifacts: vec![] };
    CallResult { ending, measured: None, latency_ms: 1 }
}

fn failed(code: &str, message: &str) -> CallResult {
    let ending = CallEnding::Failed { code: code.to_owned(), message: message.to_owned() };
    CallResult { ending, measured: None, latency_ms: 1 }
}

/// What binds somewhere in some pipeline, as nothing much.
fn anything() -> Value {
    json!({"uris": ["/a/one.md"], "documents": [], "failures": [], "claims": [], "sources": [], "unusable": [],
        "events": [], "zone": "UTC", "explainers": [], "pictures": [], "work": {"short": [], "long": []},
        "files": {}, "summary": {}, "found": 0, "contradictions": [], "denials": [], "compared": 0})
}

/// A node whose tools answer as told, by step; what is not told is nothing much.
async fn world(answers: BTreeMap<StepId, StubAnswer>) -> World {
    let tools = signalbox_domain::catalog::V1_TOOL_IDS.map(tool);
    let world = World::with(FakeTools::new(tools.clone()), |_| {}).await;
    for tool in &tools {
        let answers = answers.clone();
        world.tools.on(tool, move |order, _| {
            let answer = match answers.get(&order.step_id) {
                Some(StubAnswer::Output(value)) => grounded(value.clone()),
                Some(StubAnswer::Fails { code, message }) => failed(code, message),
                None => grounded(anything()),
            };
            async move { answer }
        });
    }
    world
}

async fn run_case(pipeline: &PipelineId, case: &FixtureCase) -> RunEnvelope {
    let world = world(case.answers.clone()).await;
    // Reading calendars of this machine needs a grant that names their folder, also in a rehearsal.
    let GovernanceChange::GrantIssued(mut calendars) = tenant_grant("calendar.read") else { panic!("a grant") };
    calendars.constraints.paths = Some(vec!["/cal".to_owned()]);
    world.change(GovernanceChange::GrantIssued(calendars)).await;
    let mut order = fire(pipeline.as_str(), case.input.clone());
    order.mode = Some(Mode::RehearsalDryRun);
    let fired = world.node.fire_pipeline(&boss(), order).await.unwrap();
    world.until_closed(fired.submitted.run_id).await
}

#[tokio::test(start_paused = true)]
async fn every_case_of_every_pipeline_scores_what_it_must_in_rehearsal() {
    let sets = fixture_sets();
    assert_eq!(sets.len(), 7);
    let mut missed = Vec::new();
    for set in &sets {
        assert!(set.cases.len() >= FIXTURE_CASES_MIN, "{}", set.fixture_set_id);
        let names: BTreeSet<&str> = set.cases.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(names.len(), set.cases.len(), "{}", set.fixture_set_id);
        for case in &set.cases {
            let run = run_case(&set.pipeline_id, case).await;
            let score = score_case(case, &run);
            if !score.passed {
                missed.push(format!("{}: {}: {:#?}", set.pipeline_id, case.name, score.missed));
            }
            assert!(run.tool_calls.iter().all(|call| call.simulated || case.answers.contains_key(&call.step_id)));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

#[tokio::test(start_paused = true)]
async fn a_case_that_goes_otherwise_is_told_with_what_it_missed() {
    let set = fixture_sets().into_iter().find(|set| set.pipeline_id.as_str() == EXPLAINERS).unwrap();
    let mut case = set.cases[0].clone();
    case.expected.status = RunStatus::Failed;
    let fact_check = StepId::new("fact_check").unwrap();
    case.expected.outputs.get_mut(&fact_check).unwrap().insert("/clear".to_owned(), json!(false));
    let run = run_case(&set.pipeline_id, &case).await;
    let score = score_case(&case, &run);
    assert_eq!((score.missed.len(), score.passed), (2, false), "{:?}", score.missed);
    case.minimum_score = Micros(500_000);
    assert!(score_case(&case, &run).passed, "{}", score.score);
}

#[tokio::test(start_paused = true)]
async fn a_trigger_that_is_said_twice_is_one_run_and_another_input_is_a_conflict() {
    let world = world(BTreeMap::new()).await;
    let mut order = fire(EXPLAINERS, sky());
    order.fire_id = Some("2026-09-01T06:00:00Z".to_owned());
    let first = world.node.fire_pipeline(&boss(), order.clone()).await.unwrap();
    let again = world.node.fire_pipeline(&boss(), order.clone()).await.unwrap();
    assert_eq!(first.submitted.run_id, again.submitted.run_id);
    assert_eq!((first.submitted.replayed, again.submitted.replayed), (false, true));
    let mut other = order.clone();
    other.input = json!({"from": "2026-09-02", "to": "2026-10-01"});
    let refused = world.node.fire_pipeline(&boss(), other).await.unwrap_err();
    assert!(matches!(refused, ApiError::RunIdConflict(_)), "{refused}");
    // Another tenant's trigger of the same name is another run.
    let beta = caller("beta", "bo", Role::TenantOperator);
    let theirs = world.node.fire_pipeline(&beta, order).await.unwrap();
    assert_ne!(theirs.submitted.run_id, first.submitted.run_id);
}

#[tokio::test(start_paused = true)]
async fn a_trigger_said_again_answers_its_run_although_the_tenant_has_changed_the_pipeline() {
    let world = world(BTreeMap::new()).await;
    let mut order = fire(EXPLAINERS, sky());
    order.fire_id = Some("monday".to_owned());
    let first = world.node.fire_pipeline(&boss(), order.clone()).await.unwrap();
    let lower = Tightening { total_budget_cap: Some(Micros::units(100)), ..Tightening::default() };
    world.node.customize_pipeline(&operator(), put(EXPLAINERS, lower)).await.unwrap();
    let again = world.node.fire_pipeline(&boss(), order).await.unwrap();
    assert_eq!((again.submitted.run_id, again.submitted.replayed), (first.submitted.run_id, true));
    let run = world.get(first.submitted.run_id).await;
    assert_eq!(run.pipeline_id.as_ref().map(PipelineId::as_str), Some(EXPLAINERS));
    assert_eq!(run.pipeline_semver.as_deref(), Some("1.0.0"));
    assert_eq!(run.root_agent_id.as_str(), "ref.sky-event-briefing");
}

#[tokio::test(start_paused = true)]
async fn callers_below_the_tier_are_refused_and_leave_nothing() {
    let world = world(BTreeMap::new()).await;
    let by = |role| caller("acme", "ann", role);
    for (id, input, lowest) in [
        ("arete.weekly_review_draft", json!({"calendars": ["/a"], "from": "2026-08-24", "to": "2026-08-31"}), 0),
        ("veritas.weekly_briefing_pack", json!({"sources": ["/a"]}), 1),
        (EXPLAINERS, sky(), 2),
        ("veritas.story_drafting", json!({"folder": "/a"}), 3),
    ] {
        for (rank, role) in
            [Role::Customer, Role::Creator, Role::TenantOperator, Role::PlatformOperator].into_iter().enumerate()
        {
            let fired = world.node.fire_pipeline(&by(role), fire(id, input.clone())).await;
            match fired {
                Ok(_) => assert!(rank >= lowest, "{id} {}", role.as_str()),
                Err(error) => {
                    assert_eq!(error.code(), "pipeline_tier_required", "{id} {}", role.as_str());
                    assert!(rank < lowest, "{id} {}", role.as_str());
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_does_not_fit_is_refused_by_its_code() {
    let world = world(BTreeMap::new()).await;
    let mut odd = fire(EXPLAINERS, sky());
    odd.pipeline_semver = Some("2.0.0".to_owned());
    let mut fast = fire(EXPLAINERS, sky());
    fast.mode = Some(Mode::Fast);
    let mut nameless = fire(EXPLAINERS, sky());
    nameless.fire_id = Some("a\u{7}".to_owned());
    for (order, code) in [
        (fire("nyx.nothing", sky()), "no-such-pipeline"),
        (odd, "no-such-pipeline-version"),
        (fast, "pipeline-mode-not-allowed"),
        (nameless, "fire-id-invalid"),
        (fire(EXPLAINERS, json!({"from": "soon"})), "pipeline-input-invalid"),
    ] {
        let error = world.node.fire_pipeline(&boss(), order).await.unwrap_err();
        assert_eq!(error.code(), code, "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_instance_holds_exact_grants_and_a_standing_grant_limits_it() {
    let world = world(BTreeMap::new()).await;
    let fired = world.node.fire_pipeline(&boss(), fire(EXPLAINERS, sky())).await.unwrap();
    let run = world.get(fired.submitted.run_id).await;
    let held = |run: &RunEnvelope| -> BTreeSet<String> { run.grants.iter().map(|g| g.tool_id.to_string()).collect() };
    assert!(run.grants.iter().all(|grant| grant.scope == GrantScope::PerPipelineInstance), "{:?}", run.grants);
    assert!(run.grants.iter().all(|grant| grant.scope_key == run.run_id.to_string()));
    let write = run.grants.iter().find(|grant| grant.tool_id == tool("file.write")).unwrap();
    assert_eq!(write.constraints.paths.as_deref(), Some(&["events".to_owned()][..]));
    assert!(held(&run).contains("calendar.read"));
    // Where the tenant has a standing grant, that one decides.
    world.change(tenant_grant("calendar.read")).await;
    let fired = world.node.fire_pipeline(&boss(), fire(EXPLAINERS, sky())).await.unwrap();
    assert!(!held(&world.get(fired.submitted.run_id).await).contains("calendar.read"));
}

#[tokio::test(start_paused = true)]
async fn the_explainers_are_made_for_real_once_an_operator_has_agreed() {
    let world = world(BTreeMap::new()).await;
    let fired = world.node.fire_pipeline(&boss(), fire(EXPLAINERS, sky())).await.unwrap();
    assert_eq!(fired.mode, "deep");
    let run = world.until_status(fired.submitted.run_id, RunStatus::AwaitingApproval).await;
    assert_eq!(world.tools.count(&tool("file.write")), 0, "nothing is written before the yes");
    let asked = run.approvals.iter().find(|asked| asked.is_open()).unwrap();
    world.decide(asked.approval_id, ApprovalDecision::Approve).await.unwrap();
    let run = world.until_closed(run.run_id).await;
    assert_eq!(run.status, RunStatus::Completed, "{:?}", run.end);
    assert_eq!(world.tools.count(&tool("file.write")), 1);
    let report = world.node.pipeline_report(&operator(), &PipelineId::new(EXPLAINERS).unwrap()).await.unwrap();
    assert_eq!((report.runs, report.by_status.get("completed"), report.gates_passed), (1, Some(&1), 1));
    assert!(report.deviations.is_empty(), "{:?}", report.deviations);
}

#[tokio::test(start_paused = true)]
async fn a_contradiction_fails_a_story_at_its_gate_before_the_counterclaim_and_asks_nobody() {
    let answers =
        [("contradiction_check", json!({"found": 2, "contradictions": [{}, {}], "denials": [], "compared": 9}))];
    let answers = answers.map(|(id, value)| (StepId::new(id).unwrap(), StubAnswer::Output(value)));
    let world = world(BTreeMap::from(answers)).await;
    let GovernanceChange::GrantIssued(mut grant) = tenant_grant("source.fetch") else { panic!("a grant") };
    grant.constraints.paths = Some(vec!["/a".to_owned()]);
    world.change(GovernanceChange::GrantIssued(grant)).await;
    let fired =
        world.node.fire_pipeline(&boss(), fire("veritas.story_drafting", json!({"folder": "/a"}))).await.unwrap();
    let run = world.until_status(fired.submitted.run_id, RunStatus::AwaitingApproval).await;
    let asked = run.approvals.iter().find(|asked| asked.is_open()).unwrap();
    assert_eq!(asked.step_id.as_str(), "extract_claims.gate");
    world.decide(asked.approval_id, ApprovalDecision::Approve).await.unwrap();
    let run = world.until_closed(run.run_id).await;
    assert_eq!(run.status, RunStatus::Failed);
    let gate = run.approvals.iter().find(|asked| asked.step_id.as_str() == "contradiction_check.gate").unwrap();
    assert_eq!(gate.decision, Some(ApprovalDecision::Reject));
    assert!(gate.decision_reason.as_deref().is_some_and(|why| why.contains("/found")), "{gate:?}");
    assert!(run.decision_rationale.iter().any(|decision| decision.decision_label == DecisionLabel::GateFailed));
    assert_eq!(world.tools.count(&tool("composition.suggest")), 0, "no counterclaim was written");
}

// --- customizations -----------------------------------------------------------------------------------------------------

fn put(id: &str, tightening: Tightening) -> PutCustomization {
    PutCustomization {
        pipeline_id: PipelineId::new(id).unwrap(),
        tenant_id: None,
        tightening,
        reason: "two pairs of eyes".to_owned(),
        expected: Expected::Any,
    }
}

fn tighter(value: Value) -> Tightening {
    serde_json::from_value(value).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_tenants_variant_is_its_own_and_everybody_else_has_the_pipeline_as_it_ships() {
    let world = world(BTreeMap::new()).await;
    let id = PipelineId::new(EXPLAINERS).unwrap();
    let wish = tighter(json!({"totalBudgetCap": 100, "modes": ["deep"], "addedGates": [
        {"after": "fact_check", "requirement": "operator", "prompt": "Facts checked?"}]}));
    let own = world.node.customize_pipeline(&operator(), put(EXPLAINERS, wish.clone())).await.unwrap();
    assert!(own.effective.customized && own.revision > 0);
    assert_eq!(own.effective.spec.total_budget_cap, Micros::units(100));
    let beta = caller("beta", "bo", Role::TenantOperator);
    let theirs = world.node.pipeline(&beta, &id).await.unwrap();
    assert!(!theirs.effective.customized && theirs.tightening.is_none() && theirs.revision == 0);
    assert_eq!(theirs.effective.spec.total_budget_cap, Micros::units(2_500));
    // It binds from the next trigger on.
    let fired = world.node.fire_pipeline(&operator(), fire(EXPLAINERS, sky())).await.unwrap();
    let run = world.get(fired.submitted.run_id).await;
    assert_eq!(run.run_budgets[0].budget.limit, Micros::units(100));
    assert!(run.plan.step(&StepId::new("fact_check.tenant-gate").unwrap()).is_some());
    let mut wide = fire(EXPLAINERS, sky());
    wide.mode = Some(Mode::RehearsalDryRun);
    let refused = world.node.fire_pipeline(&operator(), wide).await.unwrap_err();
    assert_eq!(refused.code(), "pipeline-mode-not-allowed");
    // Saying it again changes nothing; taking it back does.
    let again = world.node.customize_pipeline(&operator(), put(EXPLAINERS, wish)).await.unwrap();
    assert_eq!(again.revision, own.revision);
    let mut back = put(EXPLAINERS, Tightening::default());
    back.expected = Expected::Revision(own.revision + 7);
    let stale = world.node.customize_pipeline(&operator(), back.clone()).await.unwrap_err();
    assert_eq!(stale.code(), "stale-revision");
    back.expected = Expected::Revision(own.revision);
    let back = world.node.customize_pipeline(&operator(), back).await.unwrap();
    assert!(!back.effective.customized && back.revision > own.revision);
}

#[tokio::test(start_paused = true)]
async fn a_customization_survives_a_restart_and_is_for_operators_of_its_tenant() {
    let mut world = world(BTreeMap::new()).await;
    let wish = tighter(json!({"totalBudgetCap": 10}));
    for role in [Role::Customer, Role::Creator, Role::Service] {
        let by = caller("acme", "cy", role);
        let refused = world.node.customize_pipeline(&by, put(EXPLAINERS, wish.clone())).await.unwrap_err();
        assert_eq!(refused.code(), "not-authorized");
    }
    let mut foreign = put(EXPLAINERS, wish.clone());
    foreign.tenant_id = Some("beta".parse().unwrap());
    assert_eq!(world.node.customize_pipeline(&operator(), foreign.clone()).await.unwrap_err().code(), "not-authorized");
    world.node.customize_pipeline(&boss(), foreign).await.unwrap();
    let mut silent = put(EXPLAINERS, wish.clone());
    silent.reason = " ".to_owned();
    assert_eq!(world.node.customize_pipeline(&operator(), silent).await.unwrap_err().code(), "reason-required");
    let wide = tighter(json!({"totalBudgetCap": 2_501}));
    let refused = world.node.customize_pipeline(&operator(), put(EXPLAINERS, wide)).await.unwrap_err();
    assert_eq!(refused.code(), "customization-widens");
    let none = world.node.customize_pipeline(&operator(), put("nyx.nothing", wish)).await.unwrap_err();
    assert_eq!(none.code(), "no-such-pipeline");
    world.crash().await;
    let beta = caller("beta", "bo", Role::TenantOperator);
    let theirs = world.node.pipeline(&beta, &PipelineId::new(EXPLAINERS).unwrap()).await.unwrap();
    assert_eq!(theirs.effective.spec.total_budget_cap, Micros::units(10));
}

// --- rehearsals ---------------------------------------------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn a_rehearsal_tells_the_cost_whom_it_asks_and_which_switch_would_stop_it() {
    let world = world(BTreeMap::new()).await;
    let mut order = fire(EXPLAINERS, sky());
    order.mode = Some(Mode::RehearsalDryRun);
    let fired = world.node.fire_pipeline(&operator(), order).await.unwrap();
    let run = world.until_closed(fired.submitted.run_id).await;
    // Armed after the rehearsal: it would stop a real run.
    world.change(switch("no-pictures", SwitchScope::Agent, Some("ref.illustration"))).await;
    let told = world.node.rehearsal(&operator(), run.run_id).await.unwrap();
    assert_eq!((told.status, told.over), (RunStatus::Completed, true));
    assert!(Micros::ZERO < told.cost.least && told.cost.least <= told.cost.most && told.cost.most <= told.cost.cap);
    assert!(told.stages.iter().all(|stage| stage.state == "done"), "{:?}", told.stages);
    let asked: Vec<_> = told.approvals.iter().map(|asked| (asked.step_id.as_str(), asked.outcome.as_str())).collect();
    assert_eq!(asked, [("edit.gate", "would-be-asked")]);
    let bites: Vec<_> = told.switches.iter().map(|s| (s.switch_id.as_str(), s.step_id.as_str(), s.steps)).collect();
    assert_eq!(bites, [("no-pictures", "picture", 1)]);
    assert!(told.tools_not_configured.is_empty() && told.grants_missing.is_empty());
    // A run that is none, and one that is somebody else's.
    let real = world.node.fire_pipeline(&operator(), fire(EXPLAINERS, sky())).await.unwrap().submitted.run_id;
    assert_eq!(world.node.rehearsal(&operator(), real).await.unwrap_err().code(), "not-a-rehearsal");
    let beta = caller("beta", "bo", Role::TenantOperator);
    assert_eq!(world.node.rehearsal(&beta, run.run_id).await.unwrap_err().code(), "no-such-run");
    let none = RunId::new(uuid::Uuid::from_u128(404));
    assert_eq!(world.node.rehearsal(&beta, none).await.unwrap_err().code(), "no-such-run");
}
