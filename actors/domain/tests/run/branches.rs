//! Ways on, the steps of the ways not taken, and steps where ways meet again.

use serde_json::json;
use signalbox_domain::run::event::DecisionLabel;
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::run::step::StepState;

use crate::given::{Story, answered, choose, fork_in_the_road, optional, tool, wait, when};

fn is_left_out(story: &Story, id: &str) -> bool {
    matches!(story.state(id), StepState::Skipped { branch_not_taken: true, .. })
}

/// Two ways with two steps each, which meet again.
fn two_ways() -> Story {
    Story::started(vec![
        fork_in_the_road("way", &["left", "right"], &[]),
        when(tool("l1", &[]), "way", "left"),
        tool("l2", &["l1"]),
        when(tool("r1", &[]), "way", "right"),
        tool("r2", &["r1"]),
        tool("join", &["l2", "r2"]),
        tool("end", &["join"]),
    ])
}

#[test]
fn a_run_waits_for_a_choice_and_goes_on_along_it() {
    let mut story = two_ways();
    assert_eq!(story.status(), RunStatus::AwaitingBranchSelection);
    assert_eq!(story.kinds_from(3), ["branch-offered"]);
    story.command(choose("left")).unwrap();
    assert_eq!(story.status(), RunStatus::Running);
    assert_eq!(story.ready(), ["l1"]);
    let decision = &story.run.decision_rationale[0];
    assert_eq!((decision.decision_label, decision.text.as_str()), (DecisionLabel::BranchChosen, "left"));
}

#[test]
fn everything_on_the_way_not_taken_is_skipped_and_the_join_is_not() {
    let mut story = two_ways();
    story.command(choose("left")).unwrap();
    assert!(is_left_out(&story, "r1") && is_left_out(&story, "r2"));
    assert_eq!(story.state("join"), &StepState::Pending);
    story.does("l1", answered(json!(1)));
    story.does("l2", answered(json!(1)));
    assert_eq!(story.ready(), ["join"]);
    story.does("join", answered(json!(1)));
    story.does("end", answered(json!(1)));
    assert_eq!(story.status(), RunStatus::Completed);
    assert!(!is_left_out(&story, "join") && !is_left_out(&story, "end"));
    assert!(story.run.decision_rationale.iter().all(|d| d.decision_label != DecisionLabel::ToolSkipped));
}

#[test]
fn a_step_behind_nothing_but_skipped_steps_is_skipped_whatever_kind_they_are() {
    let mut story = Story::started(vec![
        fork_in_the_road("way", &["left", "right"], &[]),
        when(wait("w", 5, &[]), "way", "right"),
        fork_in_the_road("inner", &["x"], &["w"]),
        when(tool("deep", &[]), "inner", "x"),
        tool("last", &["deep", "w"]),
    ]);
    story.command(choose("left")).unwrap();
    for id in ["w", "inner", "deep", "last"] {
        assert!(is_left_out(&story, id), "{id}");
    }
    assert_eq!(story.status(), RunStatus::Completed);
}

#[test]
fn a_step_behind_an_optional_step_that_failed_is_not_skipped() {
    let mut story = Story::started(vec![optional(tool("a", &[])), tool("b", &["a"])]);
    story.denies("a", "no-matching-grant");
    assert!(!is_left_out(&story, "a"));
    assert_eq!(story.ready(), ["b"]);
}

#[test]
fn a_step_may_hang_on_a_branch_and_wait_for_other_steps_besides() {
    let mut story = Story::started(vec![
        fork_in_the_road("way", &["left", "right"], &[]),
        tool("other", &[]),
        when(tool("both", &["other"]), "way", "left"),
    ]);
    story.command(choose("left")).unwrap();
    assert_eq!(story.ready(), ["other"]);
    story.does("other", answered(json!(1)));
    assert_eq!(story.ready(), ["both"]);
}

#[test]
fn a_step_on_the_way_not_taken_is_skipped_only_when_its_other_steps_are_over() {
    let mut story = Story::started(vec![
        fork_in_the_road("way", &["left", "right"], &[]),
        tool("other", &[]),
        when(tool("both", &["other"]), "way", "left"),
    ]);
    story.command(choose("right")).unwrap();
    assert_eq!(story.state("both"), &StepState::Pending);
    story.does("other", answered(json!(1)));
    assert!(is_left_out(&story, "both"));
    assert_eq!(story.status(), RunStatus::Completed);
}

#[test]
fn two_branches_are_chosen_one_by_one() {
    let mut story =
        Story::started(vec![fork_in_the_road("one", &["a", "b"], &[]), fork_in_the_road("two", &["c", "d"], &[])]);
    assert_eq!(story.says(&choose("c")), "no-such-branch", "without a step the first that waits is meant");
    story.command(choose("b")).unwrap();
    assert_eq!(story.status(), RunStatus::AwaitingBranchSelection);
    story.command(choose("c")).unwrap();
    assert_eq!(story.status(), RunStatus::Completed);
}
