//! What a tenant may make of a pipeline, and what it may not (PIP-024, PIP-025).

use serde_json::{Value, json};
use signalbox_domain::governance::budgeting::Expected;
use signalbox_domain::governance::switching::Operator;
use signalbox_domain::identity::{Actor, Role};
use signalbox_domain::ids::{ActorId, PipelineId, StepId, TenantId};
use signalbox_domain::mode::{InvocationTier, Mode};
use signalbox_domain::pipeline::{
    CustomizationDenial, Customizing, EffectivePipeline, FirePipeline, PipelineRegistry, PipelineSpec,
    PutCustomization, TenantPipelineCustomization, Tightening, customize, effective_pipeline_for_tenant, expand, fire,
    only_tightens,
};
use signalbox_domain::quantity::Micros;
use signalbox_domain::registry::AgentRegistry;
use signalbox_domain::run::plan::{ApprovalRequirement, Plan, StepKind};
use signalbox_domain::time::UnixMs;

const BRIEFING: &str = "veritas.weekly_briefing_pack";

fn spec(id: &str) -> &'static PipelineSpec {
    PipelineRegistry::shipped().get(&PipelineId::new(id).unwrap()).unwrap()
}

fn tighter(value: Value) -> Tightening {
    serde_json::from_value(value).unwrap()
}

fn code(id: &str, value: Value) -> &'static str {
    match only_tightens(spec(id), &tighter(value)) {
        Ok(()) => "ok",
        Err(denial) => denial.code(),
    }
}

fn effective(id: &str, value: Value) -> EffectivePipeline {
    let own = TenantPipelineCustomization {
        tenant_id: TenantId::new("acme").unwrap(),
        pipeline_id: PipelineId::new(id).unwrap(),
        pipeline_semver: "1.0.0".to_owned(),
        tightening: tighter(value),
        put_at_unix_ms: UnixMs(1),
    };
    effective_pipeline_for_tenant(spec(id), Some(&own))
}

fn plan(effective: &EffectivePipeline) -> Plan {
    let plan = expand(&effective.spec, &effective.spec.example_input(true)).unwrap();
    assert_eq!(plan.validate(), Ok(()));
    plan
}

fn id(text: &str) -> StepId {
    StepId::new(text).unwrap()
}

#[test]
fn each_change_that_tightens_is_allowed() {
    for allowed in [
        json!({}),
        json!({"disabledSteps": ["audio"]}),
        json!({"disabledSteps": ["audio", "cover"]}),
        json!({"addedGates": [{"after": "draft_pack", "requirement": "operator", "prompt": "Go on?"}]}),
        json!({"totalBudgetCap": 5_000}),
        json!({"totalBudgetCap": 0.5}),
        json!({"modes": ["deep"]}),
        json!({"modes": ["rehearsal-dry-run"]}),
        json!({"agentVersions": {"ref.editing": "1.0.0"}}),
    ] {
        assert_eq!(code(BRIEFING, allowed.clone()), "ok", "{allowed}");
    }
}

#[test]
fn each_change_that_widens_is_refused() {
    for widens in [
        json!({"disabledSteps": ["assemble.gate"]}),
        json!({"disabledSteps": ["fact_check"]}),
        json!({"totalBudgetCap": 5_000.000001}),
        json!({"modes": ["deep", "fast"]}),
        json!({"modes": ["balanced"]}),
    ] {
        assert_eq!(code(BRIEFING, widens.clone()), "customization-widens", "{widens}");
    }
    assert_eq!(code("metis.course_from_byom", json!({"disabledSteps": ["edit.guardian"]})), "customization-widens");
}

#[test]
fn what_names_nothing_or_makes_no_sense_is_refused() {
    let gate = |after: &str, requirement: &str, prompt: &str| json!({"after": after, "requirement": requirement, "prompt": prompt});
    for odd in [
        json!({"disabledSteps": ["colour"]}),
        json!({"totalBudgetCap": 0}),
        json!({"totalBudgetCap": -5}),
        json!({"modes": []}),
        json!({"addedGates": [gate("nowhere", "operator", "?")]}),
        json!({"addedGates": [gate("edit", "none", "?")]}),
        json!({"addedGates": [gate("edit", "operator", " ")]}),
        json!({"addedGates": [gate("edit", "operator", "a\u{0}b")]}),
        json!({"addedGates": [gate("edit", "operator", "?"), gate("edit", "teacher", "?")]}),
        json!({"addedGates": [gate("audio", "operator", "?")], "disabledSteps": ["audio"]}),
    ] {
        assert_eq!(code(BRIEFING, odd.clone()), "customization-invalid", "{odd}");
    }
    for unknown in [json!({"removedGates": ["assemble.gate"]}), json!({"tier": "customer"}), json!("deep")] {
        assert!(serde_json::from_value::<Tightening>(unknown.clone()).is_err(), "{unknown}");
    }
}

#[test]
fn a_step_that_is_left_out_is_passed_over_and_what_it_gave_is_nothing() {
    let own = effective("tara.seasonal_program", json!({"disabledSteps": ["voice"]}));
    let plan = plan(&own);
    assert!(plan.step(&id("voice")).is_none());
    let review = plan.step(&id("tone_review")).unwrap();
    // It waits for what the voice waited for, beside the art.
    assert!(review.depends_on_step_ids.contains(&id("art")));
    assert!(review.depends_on_step_ids.contains(&id("fact_check")));
    assert!(own.customized);
    assert_eq!(own.spec.plan.iter().filter(|stage| stage.stage_id.as_str() == "voice").count(), 0);
}

#[test]
fn an_added_gate_holds_up_everything_behind_its_step() {
    let own = effective(
        BRIEFING,
        json!({"addedGates": [{"after": "select_stories", "requirement": "teacher", "prompt": "These?"}]}),
    );
    let plan = plan(&own);
    let gate = plan.step(&id("select_stories.tenant-gate")).unwrap();
    assert_eq!(gate.depends_on_step_ids, [id("select_stories.001")], "it waits for every part");
    let StepKind::Approval { requirement, prompt, .. } = &gate.kind else { panic!("it asks") };
    assert_eq!((*requirement, prompt.as_str()), (ApprovalRequirement::Teacher, "These?"));
    let behind = plan.step(&id("extract_claims")).unwrap();
    assert!(behind.depends_on_step_ids.contains(&gate.step_id));
    assert_eq!(own.spec.gate_count(), spec(BRIEFING).gate_count() + 1);
}

#[test]
fn caps_and_modes_only_ever_come_down() {
    let own = effective(BRIEFING, json!({"totalBudgetCap": 40, "modes": ["deep"]}));
    assert_eq!((own.spec.total_budget_cap, own.default_mode), (Micros::units(40), Mode::Deep));
    // What an older version allowed does not come back with a newer one.
    let wide = effective(
        BRIEFING,
        json!({"totalBudgetCap": 9_000, "modes": ["fast", "deep"], "disabledSteps": ["fact_check"]}),
    );
    assert_eq!(wide.spec.total_budget_cap, Micros::units(5_000));
    assert_eq!(wide.modes.into_iter().collect::<Vec<_>>(), [Mode::Deep]);
    assert!(wide.spec.template(&id("fact_check")).is_some());
    let rehearsed = effective(BRIEFING, json!({"modes": ["rehearsal-dry-run"]}));
    assert_eq!(rehearsed.default_mode, Mode::RehearsalDryRun);
}

#[test]
fn a_lower_cap_does_not_move_a_pipeline_into_a_mode_with_fewer_gates() {
    let own = effective("veritas.story_drafting", json!({"totalBudgetCap": 100}));
    assert_eq!(own.default_mode, Mode::Exhaustive);
}

#[test]
fn without_a_customization_the_pipeline_is_as_it_ships() {
    for spec in PipelineRegistry::shipped().list() {
        let own = effective_pipeline_for_tenant(spec, None);
        assert_eq!((&own.spec, own.customized), (spec, false));
        let nothing = effective(spec.pipeline_id.as_str(), json!({}));
        assert_eq!((&nothing.spec, nothing.customized), (spec, false));
    }
}

#[test]
fn pinned_versions_and_the_lower_cap_are_in_the_submission() {
    let own = effective(BRIEFING, json!({"totalBudgetCap": 40, "agentVersions": {"ref.editing": "1.0.0"}}));
    let order = FirePipeline {
        pipeline_id: PipelineId::new(BRIEFING).unwrap(),
        pipeline_semver: Some("1.0.0".to_owned()),
        input: json!({"sources": ["/a"]}),
        mode: None,
        fire_id: None,
    };
    let submission = fire(&order, &own, InvocationTier::Creator).unwrap();
    assert_eq!(submission.budgets[0].limit, Micros::units(40));
    assert_eq!(submission.agent_versions.values().collect::<Vec<_>>(), ["1.0.0"]);
    assert_eq!(submission.mode, "deep");
    assert_eq!(submission.inputs, json!({"input": {"sources": ["/a"]}}));
}

fn decided(value: Value, role: Role, revision: u64, expected: Expected) -> Result<Customizing, CustomizationDenial> {
    let (tenant, actor) = (TenantId::new("acme").unwrap(), Actor { actor_id: ActorId::new("ada").unwrap(), role });
    let order = PutCustomization {
        pipeline_id: PipelineId::new(BRIEFING).unwrap(),
        tenant_id: None,
        tightening: tighter(value),
        reason: "less".to_owned(),
        expected,
    };
    let by = Operator { tenant_id: &tenant, actor: &actor };
    customize(&order, by, None, revision, &AgentRegistry::default(), UnixMs(5))
}

#[test]
fn versions_of_agents_must_be_there_and_take_part() {
    for (versions, wanted) in [
        (json!({"ref.editing": "1.0.0"}), "ok"),
        (json!({"ref.editing": "9.9.9"}), "customization-invalid"),
        (json!({"ref.translation": "1.0.0"}), "customization-invalid"),
    ] {
        let answer = decided(json!({ "agentVersions": versions }), Role::TenantOperator, 0, Expected::Any);
        assert_eq!(answer.map_or_else(|denial| denial.code(), |_| "ok"), wanted);
    }
}

#[test]
fn what_stands_already_is_not_put_again_and_a_stale_revision_is_told() {
    assert_eq!(decided(json!({}), Role::TenantOperator, 0, Expected::Any), Ok(Customizing::Already));
    let stale = decided(json!({"totalBudgetCap": 5}), Role::TenantOperator, 4, Expected::Revision(3)).unwrap_err();
    assert_eq!(stale, CustomizationDenial::StaleRevision { expected: 3, actual: 4 });
    assert!(decided(json!({"totalBudgetCap": 5}), Role::TenantOperator, 4, Expected::Revision(4)).is_ok());
}
