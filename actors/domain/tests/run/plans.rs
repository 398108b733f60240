//! What a plan must be, and in which order its steps run.

use serde_json::json;
use signalbox_domain::ids::StepId;
use signalbox_domain::run::plan::{
    ApprovalRequirement, FAN_OUT_DEFAULT, FAN_OUT_MAX, Plan, PlanError, STEPS_MAX, Step, StepKind, WAIT_SECONDS_MAX,
};

use crate::given::{
    Story, answered, asking, branch_id, fork_in_the_road, gate, plan, step_id, submitted, tool, wait, when,
};

fn code(steps: Vec<Step>) -> &'static str {
    plan(steps).validate().map_or_else(|error| error.code(), |()| "ok")
}

fn of_kind(id: &str, kind: StepKind) -> Step {
    Step { kind, ..tool(id, &[]) }
}

#[test]
fn a_plan_without_steps_is_refused() {
    assert_eq!(code(vec![]), "empty-plan");
}

#[test]
fn two_steps_of_one_id_are_refused() {
    assert_eq!(code(vec![tool("a", &[]), tool("a", &[])]), "duplicate-step-id");
}

#[test]
fn a_dependency_that_is_not_there_is_refused() {
    assert_eq!(code(vec![tool("a", &["ghost"])]), "unknown-dependency");
    assert_eq!(code(vec![when(tool("a", &[]), "ghost", "left")]), "unknown-dependency");
}

#[test]
fn a_step_that_depends_on_itself_is_refused() {
    assert_eq!(code(vec![tool("a", &["a"])]), "self-dependency");
}

#[test]
fn steps_that_wait_for_each_other_are_refused() {
    assert_eq!(code(vec![tool("a", &["b"]), tool("b", &["c"]), tool("c", &["a"])]), "cycle");
}

#[test]
fn the_step_that_a_cycle_is_blamed_on_lies_on_it() {
    // Two ways lead from `d` to `ok`, which is no part of the circle, and to `x`, which only leads to it.
    let steps = vec![
        tool("ok", &[]),
        tool("d", &["ok", "b", "c"]),
        tool("b", &["ok", "x"]),
        tool("c", &["ok", "x"]),
        tool("x", &["y"]),
        tool("y", &["z"]),
        tool("z", &["y"]),
    ];
    let Err(PlanError::Cycle(blamed)) = plan(steps).validate() else { panic!("there is a circle") };
    assert!([step_id("y"), step_id("z")].contains(&blamed), "{blamed}");
}

#[test]
fn two_hundred_steps_are_allowed_and_one_more_is_not() {
    let steps = |count: usize| (0..count).map(|i| tool(&format!("s{i}"), &[])).collect();
    assert_eq!(code(steps(STEPS_MAX)), "ok");
    assert_eq!(code(steps(STEPS_MAX + 1)), "too-many-steps");
}

#[test]
fn kinds_that_cannot_be_run_yet_are_refused() {
    let turn = StepKind::Turn { of: step_id("a"), number: 1 };
    assert_eq!(code(vec![of_kind("a", turn)]), "step-kind-not-available");
}

#[test]
fn a_step_whose_own_fields_make_no_sense_is_refused() {
    let ttl = |approval_ttl_seconds| StepKind::Approval {
        requirement: ApprovalRequirement::Operator,
        approvers: None,
        prompt: String::new(),
        subject: json!(null),
        approval_ttl_seconds,
        refuse_if: None,
    };
    let branch = || fork_in_the_road("way", &["left"], &[]);
    let bad = [
        vec![of_kind("a", ttl(0))],
        vec![of_kind("a", ttl(WAIT_SECONDS_MAX + 1))],
        vec![wait("a", WAIT_SECONDS_MAX + 1, &[])],
        vec![fork_in_the_road("a", &[], &[])],
        vec![fork_in_the_road("a", &["left", "left"], &[])],
        vec![branch(), when(tool("a", &[]), "way", "right")],
        vec![branch(), tool("b", &[]), when(tool("a", &[]), "b", "left")],
    ];
    for steps in bad {
        assert_eq!(code(steps.clone()), "bad-step", "{steps:?}");
    }
    assert_eq!(
        code(vec![of_kind("a", ttl(1)), wait("b", 0, &[]), branch(), when(tool("c", &[]), "way", "left")]),
        "ok"
    );
}

#[test]
fn steps_and_edges_survive_json() {
    let steps = vec![
        tool("a", &[]),
        gate("b", &["a"]),
        fork_in_the_road("c", &["left", "right"], &["b"]),
        when(wait("d", 3, &["a"]), "c", "left"),
        asking(ApprovalRequirement::UserConfirmBeforeProceed, "e", &["d"]),
    ];
    let whole = Plan { max_parallel: Some(2), ..plan(steps) };
    let json = serde_json::to_value(&whole).unwrap();
    assert_eq!(serde_json::from_value::<Plan>(json.clone()).unwrap(), whole);
    assert_eq!(json["steps"][3]["dependsOnStepIds"], json!(["a"]));
    assert_eq!(json["steps"][3]["when"], json!({"stepId": "c", "branchId": "left"}));

    let story = Story::queued(whole.steps.clone());
    let envelope = serde_json::to_value(&story.run).unwrap();
    assert_eq!(envelope["plan"]["steps"], json["steps"]);
}

fn diamond() -> Plan {
    plan(vec![tool("join", &["right", "left"]), tool("right", &["top"]), tool("left", &["top"]), tool("top", &[])])
}

#[test]
fn a_diamond_runs_in_the_same_order_a_hundred_times_over() {
    let order = |plan: &Plan| -> Vec<StepId> {
        plan.topological_order().unwrap().into_iter().map(|index| plan.steps[index].step_id.clone()).collect()
    };
    for _ in 0..100 {
        assert_eq!(order(&diamond()), ["top", "right", "left", "join"].map(step_id));
    }
}

#[test]
fn ready_steps_of_a_diamond_begin_in_declaration_order() {
    let mut story = Story::begins(submitted(&diamond()));
    story.go_on();
    assert_eq!(story.ready(), ["top"]);
    story.does("top", answered(json!(1)));
    assert_eq!(story.ready(), ["right", "left"]);
    story.does("left", answered(json!(2)));
    assert_eq!(story.ready(), ["right"]);
    story.does("right", answered(json!(3)));
    assert_eq!(story.ready(), ["join"]);
}

#[test]
fn no_more_calls_are_in_flight_than_the_fan_out_allows() {
    let fan_out = |max_parallel| Plan { max_parallel, ..diamond() }.fan_out();
    assert_eq!(fan_out(None), FAN_OUT_DEFAULT);
    assert_eq!(fan_out(Some(0)), 1);
    assert_eq!(fan_out(Some(u32::MAX)), FAN_OUT_MAX);

    let many = Plan { max_parallel: Some(2), ..plan((0..5).map(|i| tool(&format!("s{i}"), &[])).collect()) };
    let mut story = Story::begins(submitted(&many));
    story.go_on();
    assert_eq!(story.ready(), ["s0", "s1"]);
    story.call("s0");
    assert_eq!(story.ready(), ["s1"]);
    let second = story.call("s1");
    assert!(story.ready().is_empty());
    story.end(second, answered(json!(1)));
    assert_eq!(story.ready(), ["s2"]);
}

#[test]
fn what_lies_behind_a_step_is_found_through_every_edge() {
    let steps = vec![
        tool("a", &[]),
        fork_in_the_road("b", &["left"], &["a"]),
        when(tool("c", &[]), "b", "left"),
        tool("d", &["c"]),
        tool("apart", &[]),
    ];
    assert_eq!(plan(steps).behind(&step_id("b")), ["b", "c", "d"].map(step_id));
}

#[test]
fn every_refusal_of_a_plan_has_a_code_of_its_own() {
    let a = || step_id("a");
    let errors = [
        PlanError::Empty,
        PlanError::DuplicateStepId(a()),
        PlanError::UnknownDependency { step: a(), on: a() },
        PlanError::SelfDependency(a()),
        PlanError::Cycle(a()),
        PlanError::TooManySteps(201),
        PlanError::StepKindNotAvailable { step: a(), kind: "agent" },
        PlanError::BadStep { step: a(), problem: branch_id("left").to_string() },
    ];
    let codes: std::collections::BTreeSet<_> = errors.iter().map(PlanError::code).collect();
    assert_eq!(codes.len(), errors.len());
}

#[test]
fn a_step_is_found_wherever_it_is_looked_for_from() {
    let ids = ["a", "b", "c", "d", "e"];
    let plan = Plan { steps: ids.iter().map(|id| tool(id, &[])).collect(), max_parallel: None };
    for near in 0..ids.len() + 2 {
        for (index, id) in ids.iter().enumerate() {
            assert_eq!(plan.position(&step_id(id), near), Some(index), "{id} from {near}");
        }
        assert_eq!(plan.position(&step_id("f"), near), None);
    }
}
