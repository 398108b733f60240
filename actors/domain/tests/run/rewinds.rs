//! Going back and doing it again: what is cleared, what may change, and what is never taken back (CTL-011, CTL-012).

use serde_json::{Value, json};
use signalbox_domain::quantity::Micros;
use signalbox_domain::run::event::{CallOutcome, DecisionLabel, Evidence, GroundingState, Overrides};
use signalbox_domain::run::plan::StepKind;
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::run::step::{CallEnding, StepState};

use crate::given::{
    Story, answered, answered_with, artifact, branch_id, choose, ended, fork_in_the_road, gate, lost, pause, resume,
    retry, retry_with, step_id, tool, when,
};

fn params(step: &str, args: Value) -> Overrides {
    Overrides { params: [(step_id(step), args)].into(), ..Overrides::default() }
}

fn evidence(pack: &str) -> Evidence {
    Evidence { evidence_pack_id: pack.to_owned(), grounding_state: GroundingState::Grounded, citation_count: 2 }
}

fn four_steps_done() -> Story {
    let mut story = Story::started(vec![
        tool("1", &[]),
        tool("2", &["1"]),
        tool("3", &["2"]),
        tool("4", &["3"]),
        gate("end", &["4"]),
    ]);
    for id in ["1", "2", "3", "4"] {
        let ending = CallEnding::Answered {
            partial: false,
            output: json!({ "of": id }),
            evidence: Some(evidence(id)),
            effects: vec![],
            artifacts: vec![artifact(&format!("first-{id}"))],
        };
        story.does(id, ended(ending));
    }
    story.asks("end");
    story
}

#[test]
fn rewinding_to_the_second_of_four_clears_the_results_of_two_to_four_and_keeps_one() {
    let mut story = four_steps_done();
    story.command(retry_with("2", params("3", json!({"key": "changed"})))).unwrap();
    assert_eq!(story.status(), RunStatus::Running);
    assert!(matches!(story.state("1"), StepState::Done { output: Some(_), .. }));
    for id in ["2", "3", "4", "end"] {
        assert_eq!(story.state(id), &StepState::Pending, "{id}");
    }
    let names = |story: &Story| -> Vec<String> {
        story.run.intermediate_artifacts.iter().map(|checkpoint| checkpoint.artifact.name.clone()).collect()
    };
    assert_eq!(names(&story), ["first-1"]);
    assert_eq!(story.run.evidence_trail.len(), 1);
    assert_eq!(story.ready(), ["2"]);
    let StepKind::Tool { args, .. } = &story.run.plan.step(&step_id("3")).unwrap().kind else { panic!("a tool") };
    assert_eq!(args, &json!({"key": "changed"}));

    for id in ["2", "3", "4"] {
        story.does(id, answered_with(json!({ "of": id }), vec![artifact(&format!("second-{id}"))]));
    }
    assert_eq!(names(&story), ["first-1", "second-2", "second-3", "second-4"]);
    let approval = story.asks("end");
    story.command(crate::given::answer(approval, signalbox_domain::run::event::ApprovalDecision::Approve)).unwrap();
    let given: Vec<_> =
        story.run.outputs.iter().flat_map(|bundle| &bundle.artifacts).map(|a| a.name.as_str()).collect();
    assert_eq!(given, ["first-1", "second-2", "second-3", "second-4"], "what was done again is given once");
}

#[test]
fn what_was_spent_stays_spent_and_each_attempt_stays_on_record() {
    let mut story = four_steps_done();
    let (ledger, calls) = (story.run.cost_ledger.clone(), story.run.tool_calls.clone());
    assert!(ledger.total_cost_units > Micros::ZERO);
    story.command(retry("1")).unwrap();
    assert_eq!(story.run.cost_ledger, ledger);
    assert_eq!(story.run.tool_calls, calls);
    story.does("1", answered(json!(1)));
    assert!(story.run.cost_ledger.total_cost_units > ledger.total_cost_units);
}

#[test]
fn a_step_done_again_makes_a_call_of_its_own() {
    let mut story = four_steps_done();
    story.command(retry("2")).unwrap();
    let ids: std::collections::BTreeSet<_> = story.run.tool_calls.iter().map(|call| call.call_id).collect();
    let again = story.call("2");
    assert!(!ids.contains(&again));
}

#[test]
fn an_open_question_is_moot_once_its_step_is_rewound() {
    let mut story = four_steps_done();
    let approval = story.run.approvals[0].approval_id;
    story.command(retry("4")).unwrap();
    let answer = crate::given::answer(approval, signalbox_domain::run::event::ApprovalDecision::Approve);
    assert_eq!(story.says(&answer), "approval-closed");
}

#[test]
fn rewinding_leaves_the_label_retry_with_the_reason() {
    let mut story = four_steps_done();
    story.command(retry("2")).unwrap();
    let decision = story.run.decision_rationale.last().unwrap();
    assert_eq!((decision.decision_label, decision.text.as_str()), (DecisionLabel::Retry, "because"));
}

#[test]
fn a_step_whose_call_is_out_cannot_be_rewound() {
    let mut story = Story::started(vec![tool("a", &[]), tool("b", &["a"]), tool("apart", &[])]);
    story.does("a", answered(json!(1)));
    let call = story.call("b");
    story.command(pause()).unwrap();
    assert_eq!(story.says(&retry("a")), "invalid-status-for-retry");
    assert_eq!(story.says(&retry("apart")), "ok", "nothing of it is out");
    story.end(call, answered(json!(1)));
    assert_eq!(story.says(&retry("a")), "ok");
}

#[test]
fn a_step_that_is_not_in_the_plan_cannot_be_rewound_to() {
    assert_eq!(four_steps_done().says(&retry("ghost")), "no-such-step");
}

#[test]
fn overrides_touch_only_what_they_may() {
    let story = four_steps_done();
    let says = |overrides| story.says(&retry_with("2", overrides));
    let mode = |mode: &str| Overrides { mode: Some(mode.to_owned()), ..Overrides::default() };
    assert_eq!(says(params("3", json!({}))), "ok");
    assert_eq!(says(params("1", json!({}))), "override-not-allowed", "it is not done again");
    assert_eq!(says(params("end", json!({}))), "override-not-allowed", "it has no arguments");
    assert_eq!(says(params("ghost", json!({}))), "override-not-allowed");
    for tighter in ["fast", "balanced"] {
        assert_eq!(says(mode(tighter)), "ok", "{tighter}");
    }
    for looser in ["deep", "exhaustive", "rehearsal-dry-run", "", "FAST"] {
        assert_eq!(says(mode(looser)), "override-not-allowed", "{looser}");
    }
    let model = Overrides { model_binding: Some("fallback".to_owned()), ..Overrides::default() };
    assert_eq!(says(model), "override-not-allowed", "no step has a model");
    let branch = Overrides { branch: Some(branch_id("left")), ..Overrides::default() };
    assert_eq!(says(branch), "override-not-allowed", "the step is no branch");
    let foreign = json!({"tenantId": "other"});
    assert!(serde_json::from_value::<Overrides>(foreign).is_err(), "nothing else can even be said");
}

#[test]
fn a_mode_becomes_tighter_with_the_rewind() {
    let mut story = four_steps_done();
    story.command(retry_with("2", Overrides { mode: Some("fast".to_owned()), ..Overrides::default() })).unwrap();
    assert_eq!(story.run.mode, "fast");
}

fn at_the_crossing() -> Story {
    let mut story = Story::started(vec![
        tool("before", &[]),
        fork_in_the_road("way", &["left", "right"], &["before"]),
        when(tool("l", &[]), "way", "left"),
        when(tool("r", &[]), "way", "right"),
    ]);
    story.does("before", answered(json!(1)));
    story.command(choose("left")).unwrap();
    story.command(pause()).unwrap();
    story
}

#[test]
fn another_branch_can_be_taken_after_all() {
    let mut story = at_the_crossing();
    let other = Overrides { branch: Some(branch_id("right")), ..Overrides::default() };
    story.command(retry_with("way", other)).unwrap();
    assert_eq!(story.ready(), ["r"]);
    assert!(matches!(story.state("l"), StepState::Skipped { branch_not_taken: true, .. }));
    assert_eq!(story.run.decision_rationale.last().unwrap().decision_label, DecisionLabel::BranchChosen);
    let unknown = Overrides { branch: Some(branch_id("up")), ..Overrides::default() };
    assert_eq!(at_the_crossing().says(&retry_with("way", unknown)), "override-not-allowed");
}

#[test]
fn without_a_branch_in_the_overrides_the_choice_is_offered_again() {
    let mut story = at_the_crossing();
    story.command(retry("way")).unwrap();
    assert_eq!(story.status(), RunStatus::AwaitingBranchSelection);
}

#[test]
fn a_branch_cannot_be_taken_before_the_steps_ahead_of_it_are_over() {
    let mut story = Story::started(vec![tool("before", &[]), fork_in_the_road("way", &["left"], &["before"])]);
    story.command(pause()).unwrap();
    let early = Overrides { branch: Some(branch_id("left")), ..Overrides::default() };
    assert_eq!(story.says(&retry_with("way", early)), "override-not-allowed");
}

#[test]
fn a_call_of_unknown_outcome_can_be_left_behind_by_a_rewind() {
    let mut story = Story::started(vec![tool("a", &[])]);
    story.does("a", lost());
    assert_eq!(story.status(), RunStatus::AwaitingApproval);
    story.command(retry("a")).unwrap();
    story.does("a", answered(json!(1)));
    assert_eq!(story.status(), RunStatus::Completed);
    let outcomes: Vec<_> = story.run.tool_calls.iter().map(|call| call.outcome).collect();
    assert_eq!(outcomes, [CallOutcome::Unknown, CallOutcome::Ok]);
}

#[test]
fn a_run_rewound_before_it_was_taken_up_is_queued_again() {
    let mut story = Story::queued(vec![tool("a", &[])]);
    story.command(pause()).unwrap();
    story.write(story.decides(&retry_with("a", params("a", json!({"key": "other"})))));
    assert_eq!(story.status(), RunStatus::Queued);
    story.go_on();
    assert_eq!(story.ready(), ["a"]);
    assert_eq!(story.says(&resume()), "invalid-status-for-resume");

    let mut story = Story::queued(vec![fork_in_the_road("way", &["left"], &[]), when(tool("l", &[]), "way", "left")]);
    story.command(pause()).unwrap();
    story.command(retry_with("way", Overrides { branch: Some(branch_id("left")), ..Overrides::default() })).unwrap();
    assert_eq!(story.status(), RunStatus::Starting, "the way is chosen; no step has begun");
    assert_eq!(story.ready(), ["l"]);
}
