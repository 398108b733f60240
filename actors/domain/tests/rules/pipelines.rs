//! The seven pipelines, the registry they stand in, and the plans that are made of them (PIP).

use std::collections::BTreeSet;

use serde_json::{Value, json};
use signalbox_domain::canonical::digest;
use signalbox_domain::ids::{AgentId, PipelineId, StepId};
use signalbox_domain::invocation::estimate;
use signalbox_domain::mode::{InvocationTier, Mode};
use signalbox_domain::pipeline::{
    Action, PipelineCode, PipelineLifecycle, PipelineRegistry, PipelineSpec, expand, read,
};
use signalbox_domain::quantity::Micros;
use signalbox_domain::registry::{AgentRegistry, family_meta, family_of};
use signalbox_domain::run::plan::{ApprovalRequirement, Plan, StepKind};

const IDS: [&str; 7] = [
    "veritas.weekly_briefing_pack",
    "veritas.story_drafting",
    "tara.seasonal_program",
    "nisaba.edition_study_guide",
    "nyx.event_explainer_set",
    "arete.weekly_review_draft",
    "metis.course_from_byom",
];

fn spec(id: &str) -> PipelineSpec {
    PipelineRegistry::shipped().get(&PipelineId::new(id).unwrap()).unwrap().clone()
}

/// The whole plan of a pipeline, with some inputs said otherwise.
fn plan_with(id: &str, said: Value) -> Plan {
    let spec = spec(id);
    let mut input = spec.example_input(true);
    for (name, value) in said.as_object().unwrap() {
        input[name] = value.clone();
    }
    expand(&spec, &input).unwrap()
}

/// Who must agree at each gate of a plan, in its order.
fn gates(plan: &Plan) -> Vec<(&str, ApprovalRequirement)> {
    let gate = |kind: &StepKind| match kind {
        StepKind::Approval { requirement, .. } => Some(*requirement),
        StepKind::Tool { .. }
        | StepKind::Agent { .. }
        | StepKind::Model { .. }
        | StepKind::Turn { .. }
        | StepKind::Branch { .. }
        | StepKind::Wait { .. } => None,
    };
    plan.steps.iter().filter_map(|step| Some((step.step_id.as_str(), gate(&step.kind)?))).collect()
}

fn codes(spec: &PipelineSpec) -> Vec<&'static str> {
    let faults = PipelineRegistry::default().faults(spec, &AgentRegistry::default());
    faults.iter().map(|fault| fault.code.code()).collect()
}

/// The stages and their agents, `a > {b, c}`-like: each with the stages right before it.
fn stages(id: &str) -> Vec<(String, String, Vec<String>)> {
    let spec = spec(id);
    let row = |stage| {
        let before = spec.stages_before(stage).into_iter().map(ToString::to_string).collect();
        (stage.stage_id.to_string(), stage.agent_id.to_string(), before)
    };
    spec.plan.iter().map(row).collect()
}

fn shape(rows: &[(&str, &str, &[&str])]) -> Vec<(String, String, Vec<String>)> {
    let own = |text: &str| text.to_owned();
    rows.iter().map(|(s, a, before)| (own(s), format!("ref.{a}"), before.iter().map(|b| own(b)).collect())).collect()
}

#[test]
fn exactly_seven_pipelines_ship_and_all_are_live() {
    let registry = PipelineRegistry::shipped();
    let listed: Vec<&str> = registry.list().iter().map(|spec| spec.pipeline_id.as_str()).collect();
    assert_eq!(listed, IDS);
    assert!(registry.list().iter().all(|spec| spec.lifecycle_state == PipelineLifecycle::Live));
}

#[test]
fn each_row_has_the_stated_tier_cap_depth_and_cases() {
    let rows = [
        ("veritas.weekly_briefing_pack", "creator", 5_000, 1),
        ("veritas.story_drafting", "platform-operator", 12_000, 1),
        ("tara.seasonal_program", "platform-operator", 10_000, 1),
        ("nisaba.edition_study_guide", "customer", 3_000, 1),
        ("nyx.event_explainer_set", "tenant-operator", 2_500, 1),
        ("arete.weekly_review_draft", "customer", 500, 1),
        ("metis.course_from_byom", "customer", 20_000, 2),
    ];
    for (id, tier, cap, depth) in rows {
        let spec = spec(id);
        assert_eq!((spec.tier.as_str(), spec.total_budget_cap), (tier, Micros::units(cap)), "{id}");
        assert_eq!((spec.expected_handoff_depth, spec.measured_depth()), (depth, depth), "{id}");
        assert_eq!(spec.evaluation_fixture_set_id, format!("gold.{id}.v1"));
    }
}

#[test]
fn the_schema_requires_the_seven_fields_that_a_pipeline_pins() {
    let whole = serde_json::to_value(spec(IDS[0])).unwrap();
    assert!(read(whole.to_string().as_bytes()).is_ok());
    for field in [
        "plan",
        "participatingAgentIds",
        "expectedHandoffDepth",
        "mandatoryApprovalGates",
        "evaluationFixtureSetId",
        "totalBudgetCap",
        "lifecycleState",
    ] {
        let mut lacking = whole.clone();
        lacking.as_object_mut().unwrap().remove(field).unwrap();
        let problem = read(lacking.to_string().as_bytes()).unwrap_err();
        assert!(problem.contains(field), "{field}: {problem}");
    }
    let mut more = whole;
    more["colour"] = json!("green");
    assert!(read(more.to_string().as_bytes()).unwrap_err().contains("colour"));
    assert!(read(b"{\"pipelineId\": \"a\", \"pipelineId\": \"b\"}").is_err(), "a key twice");
}

#[test]
fn the_stages_of_each_pipeline_are_those_of_its_row() {
    assert_eq!(
        stages("veritas.weekly_briefing_pack"),
        shape(&[
            ("select_stories", "research", &[]),
            ("extract_claims", "claim-extraction", &["select_stories"]),
            ("draft_pack", "drafting", &["extract_claims"]),
            ("fact_check", "fact-checking", &["draft_pack"]),
            ("verify_citations", "citation-verification", &["fact_check"]),
            ("edit", "editing", &["verify_citations"]),
            ("audio", "narration", &["edit"]),
            ("cover", "illustration", &["edit"]),
            ("assemble", "drafting", &["edit", "audio", "cover"]),
        ])
    );
    assert_eq!(
        stages("veritas.story_drafting"),
        shape(&[
            ("enumerate_sources", "research", &[]),
            ("ingest", "source-ingestion", &["enumerate_sources"]),
            ("extract_claims", "claim-extraction", &["ingest"]),
            ("fact_check", "fact-checking", &["extract_claims"]),
            ("contradiction_check", "fact-checking", &["fact_check"]),
            ("counterclaim", "drafting", &["contradiction_check"]),
            ("tone_review", "editing", &["counterclaim"]),
            ("editorial_inbox", "drafting", &["tone_review"]),
        ])
    );
    assert_eq!(
        stages("tara.seasonal_program"),
        shape(&[
            ("season_frame", "sky-event-briefing", &[]),
            ("theme_research", "research", &[]),
            ("scripts", "ritual-scriptwriting", &["season_frame", "theme_research"]),
            ("fact_check", "fact-checking", &["scripts"]),
            ("voice", "narration", &["fact_check"]),
            ("art", "illustration", &["fact_check"]),
            ("tone_review", "editing", &["voice", "art"]),
            ("assemble", "drafting", &["tone_review"]),
        ])
    );
    assert_eq!(
        stages("nisaba.edition_study_guide"),
        shape(&[
            ("load_edition", "source-ingestion", &[]),
            ("outline", "lesson-scaffolding", &["load_edition"]),
            ("guide", "drafting", &["outline"]),
            ("questions", "assessment-generation", &["outline"]),
            ("verify_citations", "citation-verification", &["guide", "questions"]),
            ("edit", "editing", &["verify_citations"]),
        ])
    );
    assert_eq!(
        stages("nyx.event_explainer_set"),
        shape(&[
            ("pick_events", "sky-event-briefing", &[]),
            ("short", "drafting", &["pick_events"]),
            ("long", "drafting", &["pick_events"]),
            ("picture", "illustration", &["pick_events"]),
            ("fact_check", "fact-checking", &["short", "long", "picture"]),
            ("edit", "editing", &["fact_check"]),
        ])
    );
    assert_eq!(
        stages("arete.weekly_review_draft"),
        shape(&[
            ("read_week", "study-plan-synthesis", &[]),
            ("draft", "drafting", &["read_week"]),
            ("edit", "editing", &["draft"]),
        ])
    );
    assert_eq!(
        stages("metis.course_from_byom"),
        shape(&[
            ("ingest", "source-ingestion", &[]),
            ("extract", "claim-extraction", &["ingest"]),
            ("outline", "course-generation", &["extract"]),
            ("lessons", "course-generation", &["outline"]),
            ("assessments", "assessment-generation", &["lessons"]),
            ("voice", "narration", &["assessments"]),
            ("art", "illustration", &["assessments"]),
            ("verify_citations", "citation-verification", &["assessments", "voice", "art"]),
            ("edit", "editing", &["verify_citations"]),
        ])
    );
}

#[test]
fn each_plan_asks_whom_its_row_says_and_as_often_as_its_mode_demands() {
    use ApprovalRequirement::{Guardian, Operator, Teacher, UserConfirmBeforeProceed as User};
    let asked = |id: &str, said: Value| -> Vec<(String, ApprovalRequirement)> {
        gates(&plan_with(id, said)).into_iter().map(|(step, who)| (step.to_owned(), who)).collect()
    };
    type Gates = Vec<(&'static str, ApprovalRequirement)>;
    let rows: Vec<(&str, Value, Gates)> = vec![
        ("veritas.weekly_briefing_pack", json!({}), vec![("assemble.gate", User)]),
        (
            "veritas.story_drafting",
            json!({}),
            vec![
                ("extract_claims.gate", Operator),
                ("contradiction_check.gate", Operator),
                ("editorial_inbox.gate", Operator),
            ],
        ),
        (
            "tara.seasonal_program",
            json!({}),
            vec![("season_frame.gate", Operator), ("scripts.gate", Operator), ("assemble.gate", Operator)],
        ),
        ("nisaba.edition_study_guide", json!({"order": "own"}), vec![("edit.gate", User)]),
        ("nisaba.edition_study_guide", json!({"order": "class"}), vec![("edit.gate", Teacher)]),
        ("nyx.event_explainer_set", json!({}), vec![("edit.gate", Operator)]),
        ("arete.weekly_review_draft", json!({}), vec![("edit.gate", User)]),
        (
            "metis.course_from_byom",
            json!({"learner": "class"}),
            vec![("outline.gate", Teacher), ("lessons.gate", Teacher), ("edit.gate", User)],
        ),
        (
            "metis.course_from_byom",
            json!({"learner": "lone-adult"}),
            vec![("outline.gate", User), ("lessons.gate", User), ("edit.gate", User)],
        ),
        (
            "metis.course_from_byom",
            json!({"learner": "minor"}),
            vec![
                ("outline.gate", Teacher),
                ("lessons.gate", Teacher),
                ("edit.gate", User),
                ("edit.guardian", Guardian),
            ],
        ),
    ];
    for (id, said, wanted) in rows {
        let found = asked(id, said.clone());
        let wanted: Vec<_> = wanted.into_iter().map(|(step, who)| (step.to_owned(), who)).collect();
        assert_eq!(found, wanted, "{id} {said}");
        let spec = spec(id);
        assert!(found.len() >= spec.default_mode().meta().human_checkpoint_count, "{id}");
        assert!(spec.gate_count() >= spec.default_mode().meta().human_checkpoint_count, "{id}");
    }
}

#[test]
fn nobody_who_says_nothing_is_taken_for_a_lone_adult() {
    let spec = spec("metis.course_from_byom");
    let plan = expand(&spec, &spec.example_input(false)).unwrap();
    assert_eq!(gates(&plan)[0].1, ApprovalRequirement::Teacher);
}

#[test]
fn caps_up_to_five_thousand_run_deep_and_others_exhaustively() {
    let modes = IDS.map(|id| spec(id).default_mode());
    assert_eq!(
        modes,
        [Mode::Deep, Mode::Exhaustive, Mode::Exhaustive, Mode::Deep, Mode::Deep, Mode::Deep, Mode::Exhaustive]
    );
}

#[test]
fn what_each_plan_may_cost_lies_under_its_cap() {
    for id in IDS {
        let cost = estimate(&plan_with(id, json!({})));
        assert!(cost > Micros::ZERO && cost <= spec(id).total_budget_cap, "{id}: {cost}");
    }
    assert!(estimate(&plan_with("arete.weekly_review_draft", json!({}))) <= Micros::units(500));
}

#[test]
fn every_call_lies_inside_the_ceiling_of_its_agents_family() {
    for id in IDS {
        for step in plan_with(id, json!({})).steps {
            let agent = step.agent_id.as_ref().unwrap();
            let family = family_of(agent).and_then(family_meta).unwrap();
            if let StepKind::Tool { tool_id, .. } = &step.kind {
                assert!(family.allows(tool_id), "{id}: {agent} may not call {tool_id}");
            }
        }
    }
}

#[test]
fn the_week_is_read_with_nothing_but_memory_and_calendar() {
    let spec = spec("arete.weekly_review_draft");
    let tools: Vec<&str> = PipelineSpec::tools_of(&spec.plan[0]).into_iter().map(|tool| tool.as_str()).collect();
    assert_eq!(tools, ["calendar.read", "memory.read"]);
}

#[test]
fn every_binding_of_every_plan_names_a_step_that_is_over_before() {
    for id in IDS {
        for whole in [false, true] {
            let spec = spec(id);
            let plan = expand(&spec, &spec.example_input(whole)).unwrap();
            assert_eq!(plan.validate(), Ok(()), "{id}");
            for step in &plan.steps {
                let mut before: BTreeSet<StepId> = BTreeSet::new();
                let mut open: Vec<&StepId> = step.dependencies().collect();
                while let Some(id) = open.pop() {
                    if before.insert(id.clone()) {
                        open.extend(plan.step(id).unwrap().dependencies());
                    }
                }
                let text = serde_json::to_string(&step.kind).unwrap();
                for part in text.split("\"/steps/").skip(1) {
                    let bound = StepId::new(part.split('/').next().unwrap()).unwrap();
                    assert!(before.contains(&bound), "{id}: {} binds {bound} without waiting for it", step.step_id);
                }
                for word in ["$input", "$part", "$each"] {
                    assert!(!text.contains(word), "{id}: {} still holds {word}", step.step_id);
                }
            }
        }
    }
}

#[test]
fn nothing_is_written_before_every_gate_has_said_yes() {
    for id in IDS {
        let plan = plan_with(
            id,
            json!({"learner": "minor"}).as_object().filter(|_| id.starts_with("metis")).map_or(json!({}), |m| json!(m)),
        );
        let asks: BTreeSet<&StepId> =
            plan.steps.iter().filter(|s| matches!(s.kind, StepKind::Approval { .. })).map(|s| &s.step_id).collect();
        for write in plan.steps.iter().filter(|s| s.kind.tool_id().is_some_and(|tool| tool.as_str() == "file.write")) {
            let mut before: BTreeSet<&StepId> = BTreeSet::new();
            let mut open: Vec<&StepId> = write.dependencies().collect();
            while let Some(id) = open.pop() {
                if before.insert(id) {
                    open.extend(plan.step(id).unwrap().dependencies());
                }
            }
            assert!(asks.is_subset(&before), "{id}: {} waits for {before:?}", write.step_id);
        }
    }
}

#[test]
fn three_branches_of_the_explainers_are_ready_at_once() {
    let plan = plan_with("nyx.event_explainer_set", json!({}));
    let picked = StepId::new("pick_events").unwrap();
    let ready: Vec<&str> = plan
        .steps
        .iter()
        .filter(|step| step.depends_on_step_ids == [picked.clone()])
        .map(|step| step.step_id.as_str())
        .collect();
    assert_eq!(ready, ["short", "long", "picture"]);
    assert!(plan.fan_out() >= 3);
}

#[test]
fn equal_inputs_give_equal_plans_and_a_step_that_is_not_there_is_nothing() {
    for id in IDS {
        let digest_of = |whole| {
            let spec = spec(id);
            digest(&serde_json::to_value(expand(&spec, &spec.example_input(whole)).unwrap()).unwrap()).unwrap()
        };
        assert_eq!(digest_of(true), digest_of(true), "{id}");
    }
    let spec = spec("arete.weekly_review_draft");
    let plan = expand(&spec, &spec.example_input(false)).unwrap();
    assert!(plan.step(&StepId::new("read_week.memory").unwrap()).is_none());
    let StepKind::Tool { args, .. } = &plan.step(&StepId::new("draft").unwrap()).unwrap().kind else {
        panic!("draft calls a tool")
    };
    assert_eq!(args["memory"], json!(null));
}

#[test]
fn an_input_that_does_not_fit_is_refused_with_its_field() {
    let refused = |id: &str, input: Value| {
        let error = expand(&spec(id), &input).unwrap_err();
        (error.field, error.problem)
    };
    let story = "veritas.story_drafting";
    assert_eq!(refused(story, json!({})).0, "folder");
    assert_eq!(refused(story, json!(null)).0, "folder");
    assert_eq!(refused(story, json!([])).1, "must be a JSON object");
    assert_eq!(refused(story, json!({"folder": "/a", "colour": 1})).0, "colour");
    for folder in [json!(""), json!(" "), json!(7), json!("a\u{0}b"), json!("x".repeat(9_000)), json!({"$from": "/x"})]
    {
        assert_eq!(refused(story, json!({ "folder": folder })).0, "folder");
    }
    let sky = |from: &str, to: &str| json!({"from": from, "to": to});
    for (input, field) in [
        (sky("2026-9-1", "2026-10-01"), "from"),
        (sky("2026-02-30", "2026-10-01"), "from"),
        (sky("2026-09-01T00:00", "2026-10-01"), "from"),
        (sky("2026-09-01", "2026-09-01"), "to"),
        (json!({"from": "2026-09-01", "to": "2026-10-01", "count": 41}), "count"),
        (json!({"from": "2026-09-01", "to": "2026-10-01", "count": 1.5}), "count"),
        (json!({"from": "2026-09-01", "to": "2026-10-01", "count": -1}), "count"),
    ] {
        assert_eq!(refused("nyx.event_explainer_set", input.clone()).0, field, "{input}");
    }
    let guide = "nisaba.edition_study_guide";
    assert_eq!(refused(guide, json!({"edition": []})).0, "edition");
    assert_eq!(refused(guide, json!({"edition": vec!["a"; 101]})).0, "edition");
    assert_eq!(refused(guide, json!({"edition": ["a"], "order": "school"})).0, "order");
}

#[test]
fn days_may_be_told_from_a_moment_on_in_the_zone_of_the_input() {
    use signalbox_domain::pipeline::days_told_from;
    use signalbox_domain::time::UnixMs;
    let spec = spec("nyx.event_explainer_set");
    // 2026-08-31 23:30 in UTC, and already September in Berlin.
    let at = UnixMs(1_788_219_000_000);
    let told = |input: Value| days_told_from(&spec, &input, at);
    let days = |from: &str, to: &str| json!({"from": from, "to": to});
    assert_eq!(told(json!({"from": "0d", "to": "7d"})), Ok(days("2026-08-31", "2026-09-07")));
    assert_eq!(told(json!({"from": "-7d", "to": "+1d"})), Ok(days("2026-08-24", "2026-09-01")));
    assert_eq!(told(json!({"from": "0d", "zone": "Europe/Berlin"})).unwrap()["from"], json!("2026-09-01"));
    for same in [json!({"from": "2026-09-01", "to": "soon"}), json!({"from": "d"}), json!([]), json!({"from": 7})] {
        assert_eq!(told(same.clone()), Ok(same));
    }
    assert_eq!(told(json!({"from": "3661d"})).unwrap_err().field, "from");
    assert_eq!(told(json!({"from": "-9223372036854775808d"})).unwrap_err().field, "from");
}

#[test]
fn what_an_input_says_is_data_and_binds_nothing() {
    let plan = plan_with("veritas.story_drafting", json!({"title": "{\"$from\": \"/inputs\"}"}));
    let StepKind::Tool { args, .. } = &plan.step(&StepId::new("counterclaim").unwrap()).unwrap().kind else {
        panic!("counterclaim calls a tool")
    };
    assert_eq!(args["title"], json!("{\"$from\": \"/inputs\"}"));
}

// --- the registry -------------------------------------------------------------------------------------------------------

#[test]
fn each_code_is_told_alone_for_what_it_is_about() {
    type Harm = fn(&mut PipelineSpec);
    let harms: [(PipelineCode, Harm); 10] = [
        (PipelineCode::InvalidSemver, |spec| spec.semver = "1.0".to_owned()),
        (PipelineCode::UnknownAgent, |spec| spec.participating_agent_ids.push(AgentId::new("ref.nobody").unwrap())),
        (PipelineCode::PlanInvalid, |spec| spec.plan[1].steps[0].after = vec![StepId::new("nowhere").unwrap()]),
        (PipelineCode::GateUnknownStep, |spec| {
            let mut gate = spec.mandatory_approval_gates[0].clone();
            gate.step_id = StepId::new("edit").unwrap();
            spec.mandatory_approval_gates.push(gate);
        }),
        (PipelineCode::GateUnknownStep, |spec| spec.mandatory_approval_gates.clear()),
        (PipelineCode::DepthMismatch, |spec| spec.expected_handoff_depth = 2),
        (PipelineCode::BudgetCapNonPositive, |spec| spec.total_budget_cap = Micros::ZERO),
        (PipelineCode::UnknownTier, |spec| spec.tier = "editor".to_owned()),
        (PipelineCode::UnknownFixtureSet, |spec| spec.evaluation_fixture_set_id = "gold.none".to_owned()),
        (PipelineCode::StepAgentNotParticipating, |spec| {
            spec.participating_agent_ids.retain(|agent| agent.as_str() != "ref.editing");
        }),
    ];
    for (code, harm) in harms {
        let mut spec = spec(IDS[0]);
        harm(&mut spec);
        assert_eq!(codes(&spec), [code.code()], "{}", code.code());
    }
    assert_eq!(codes(&spec(IDS[0])), [""; 0]);
}

#[test]
fn a_plan_that_goes_in_a_circle_is_told_with_the_code_of_plans() {
    let mut spec = spec("veritas.story_drafting");
    spec.plan[0].steps[0].after = vec![StepId::new("ingest").unwrap()];
    let faults = PipelineRegistry::default().faults(&spec, &AgentRegistry::default());
    assert_eq!(faults.len(), 1);
    assert!(faults[0].message.starts_with("cycle: "), "{}", faults[0].message);
}

#[test]
fn an_agent_that_is_retired_is_not_invocable_by_a_pipeline() {
    use signalbox_domain::registry::{AgentLifecycle, reference_agents};
    let mut entry = reference_agents().next().unwrap().clone();
    entry.agent_id = AgentId::new("press.research").unwrap();
    entry.lifecycle = AgentLifecycle::Retired;
    let mut agents = AgentRegistry::default();
    agents.apply_published(&entry);
    let mut spec = spec(IDS[0]);
    spec.participating_agent_ids.push(entry.agent_id);
    let faults = PipelineRegistry::default().faults(&spec, &agents);
    let codes: Vec<_> = faults.iter().map(|fault| fault.code).collect();
    assert_eq!(codes, [PipelineCode::AgentNotInvocable]);
}

#[test]
fn an_invalid_spec_is_refused_and_absent_and_a_second_of_one_id_leaves_the_first() {
    let (mut registry, agents) = (PipelineRegistry::default(), AgentRegistry::default());
    let mut bad = spec(IDS[0]);
    bad.total_budget_cap = Micros::units(-1);
    assert!(registry.register(bad, &agents).is_err());
    assert!(registry.list().is_empty());
    registry.register(spec(IDS[0]), &agents).unwrap();
    let mut twin = spec(IDS[0]);
    twin.semver = "2.0.0".to_owned();
    let faults = registry.register(twin, &agents).unwrap_err();
    assert_eq!(faults[0].code, PipelineCode::DuplicatePipelineId);
    assert_eq!(registry.list(), [spec(IDS[0])]);
}

#[test]
fn several_faults_are_told_at_once_in_the_order_of_the_codes() {
    let mut spec = spec(IDS[0]);
    spec.tier = "editor".to_owned();
    spec.semver = "one".to_owned();
    spec.total_budget_cap = Micros::ZERO;
    assert_eq!(codes(&spec), ["invalid-semver", "budget-cap-non-positive", "unknown-tier"]);
    assert_eq!(PipelineCode::ALL.len(), 11);
}

#[test]
fn only_a_live_pipeline_accepts_every_mode_and_one_in_rehearsal_accepts_rehearsals() {
    let table = [
        (PipelineLifecycle::Draft, false, false),
        (PipelineLifecycle::Rehearsal, false, true),
        (PipelineLifecycle::Live, true, true),
        (PipelineLifecycle::Suspended, false, false),
        (PipelineLifecycle::Retired, false, false),
    ];
    assert_eq!(table.map(|(state, ..)| state), PipelineLifecycle::ALL);
    for (state, real, rehearsed) in table {
        assert_eq!(state.accepts(Mode::Deep), real, "{}", state.as_str());
        assert_eq!(state.accepts(Mode::RehearsalDryRun), rehearsed, "{}", state.as_str());
    }
}

#[test]
fn a_caller_below_the_tier_may_not_trigger_it() {
    for (rank, lowest) in InvocationTier::ALL.into_iter().enumerate() {
        let mut spec = spec(IDS[0]);
        spec.tier = lowest.as_str().to_owned();
        let may = InvocationTier::ALL.map(|tier| spec.may_be_triggered_by(tier));
        let wanted: Vec<bool> = (0..4).map(|own| own >= rank).collect();
        assert_eq!(may.to_vec(), wanted, "{}", lowest.as_str());
    }
}

#[test]
fn each_pipeline_names_its_lead_first_and_every_other_agent_once() {
    for id in IDS {
        let spec = spec(id);
        assert_eq!(spec.root_agent_id(), Some(&spec.plan[0].agent_id), "{id}");
        let agents: BTreeSet<_> = spec.participating_agent_ids.iter().collect();
        assert_eq!(agents.len(), spec.participating_agent_ids.len(), "{id}");
        let used = |agent: &AgentId| spec.templates().any(|(stage, step)| stage.agent_of(step) == agent);
        let idle: Vec<_> = spec
            .participating_agent_ids
            .iter()
            .filter(|agent| !used(agent) && !spec.plan.iter().any(|stage| stage.agent_id == **agent))
            .collect();
        assert!(idle.is_empty(), "{id}: {idle:?}");
    }
}

#[test]
fn a_stages_own_agent_may_call_what_the_lead_and_the_drafter_may_not() {
    let spec = spec("veritas.weekly_briefing_pack");
    let stage = &spec.plan[0];
    assert_eq!(stage.agent_id.as_str(), "ref.research");
    let fetch = signalbox_domain::ids::ToolId::new("web.fetch").unwrap();
    let allows = |agent: &str| family_meta(agent).unwrap().allows(&fetch);
    assert!(allows("research") && !allows("drafting"));
    assert!(matches!(stage.steps[0].action, Action::Call { .. }));
}
