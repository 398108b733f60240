//! The eleven statuses and the moves between them.

use proptest::prelude::*;
use serde_json::json;
use signalbox_domain::run::event::PauseCause;
use signalbox_domain::run::plan::Plan;
use signalbox_domain::run::status::{InvalidTransition, RunStatus};

use crate::given::{Story, answered, cancel, fork_in_the_road, gate, kill, pause, plan, resume, submitted, tool, wait};

#[test]
fn there_are_eleven_statuses_and_each_reads_back_from_its_name() {
    assert_eq!(RunStatus::ALL.len(), 11);
    for status in RunStatus::ALL {
        assert_eq!(RunStatus::parse(status.as_str()), Some(status));
        assert_eq!(serde_json::to_value(status).unwrap(), status.as_str());
    }
}

#[test]
fn the_words_pending_planning_and_executing_are_no_statuses() {
    for word in ["pending", "planning", "executing", "", "Queued", "queued "] {
        assert_eq!(RunStatus::parse(word), None, "{word}");
        assert!(serde_json::from_value::<RunStatus>(json!(word)).is_err(), "{word}");
    }
}

#[test]
fn exactly_four_statuses_are_terminal() {
    let terminal: Vec<_> = RunStatus::ALL.into_iter().filter(|status| status.is_terminal()).collect();
    assert_eq!(terminal, [RunStatus::Cancelled, RunStatus::Killed, RunStatus::Failed, RunStatus::Completed]);
}

/// RUN-007, row by row.
const MOVES: [(&str, &[&str]); 11] = [
    ("queued", &["starting", "paused", "cancelled", "killed", "failed"]),
    ("starting", &["running", "paused", "cancelled", "killed", "failed"]),
    (
        "running",
        &[
            "paused",
            "awaiting_approval",
            "awaiting_tool",
            "awaiting_branch_selection",
            "completed",
            "cancelled",
            "killed",
            "failed",
        ],
    ),
    (
        "paused",
        &[
            "running",
            "awaiting_approval",
            "cancelled",
            "killed",
            "failed",
            // The status before the pause: those that can be paused.
            "queued",
            "starting",
            "awaiting_tool",
            "awaiting_branch_selection",
        ],
    ),
    ("awaiting_approval", &["running", "cancelled", "killed", "failed"]),
    ("awaiting_tool", &["running", "paused", "awaiting_approval", "cancelled", "killed", "failed"]),
    ("awaiting_branch_selection", &["running", "paused", "cancelled", "killed", "failed"]),
    ("cancelled", &[]),
    ("killed", &[]),
    ("failed", &[]),
    ("completed", &[]),
];

#[test]
fn a_run_moves_only_as_the_matrix_of_121_pairs_allows() {
    for (from, allowed) in MOVES {
        let from = RunStatus::parse(from).unwrap();
        for to in RunStatus::ALL {
            let wanted = if allowed.contains(&to.as_str()) { Ok(to) } else { Err(InvalidTransition { from, to }) };
            assert_eq!(from.transition(to), wanted, "{} to {}", from.as_str(), to.as_str());
        }
    }
    assert_eq!(InvalidTransition::CODE, "invalid-transition");
}

#[test]
fn one_event_takes_a_run_no_farther_than_through_running() {
    use RunStatus as S;
    assert!(S::Starting.may_lead_to(S::AwaitingApproval), "a step begins and asks at once");
    assert!(S::AwaitingApproval.may_lead_to(S::AwaitingBranchSelection));
    assert!(!S::Paused.may_lead_to(S::Completed));
    assert!(!S::Queued.may_lead_to(S::Running));
    for from in S::ALL {
        assert!(from.may_lead_to(from));
        for to in S::ALL.into_iter().filter(|to| *to != from) {
            assert!(!from.is_terminal() || !from.may_lead_to(to), "{} is final", from.as_str());
            assert!(!from.may_become(to) || from.may_lead_to(to));
        }
    }
}

#[test]
fn every_status_can_be_reached_and_is_told_apart() {
    for status in RunStatus::ALL {
        assert_eq!(Story::standing(status).status(), status);
    }
}

#[test]
fn a_tool_counts_as_waited_for_only_after_five_seconds() {
    let mut story = Story::started(vec![tool("long", &[])]);
    let call = story.call("long");
    story.after_ms(4_999);
    assert_eq!(story.status(), RunStatus::Running);
    story.after_ms(1);
    assert_eq!(story.status(), RunStatus::AwaitingTool);
    story.end(call, answered(json!(1)));
    assert_eq!(story.status(), RunStatus::Completed);
}

#[test]
fn a_run_is_running_while_any_step_is_ready_or_in_flight_whatever_else_waits() {
    let mut story = Story::started(vec![gate("gate", &[]), fork_in_the_road("way", &["a"], &[]), tool("work", &[])]);
    story.asks("gate");
    assert_eq!(story.status(), RunStatus::Running, "the tool is ready");
    let call = story.call("work");
    assert_eq!(story.status(), RunStatus::Running, "the tool is in flight");
    story.settle(call, answered(json!(1)));
    assert_eq!(story.status(), RunStatus::AwaitingApproval, "the approval comes before the branch");
}

#[test]
fn a_step_that_only_the_fan_out_holds_back_does_not_make_a_run_running() {
    let one_at_a_time = Plan { max_parallel: Some(1), ..plan(vec![tool("a", &[]), tool("b", &[])]) };
    let mut story = Story::begins(submitted(&one_at_a_time));
    story.go_on();
    assert_eq!(story.ready(), ["a"]);
    story.call("a");
    assert!(story.ready().is_empty());
    story.after_ms(6_000);
    assert_eq!(story.status(), RunStatus::AwaitingTool);
}

#[test]
fn only_throttled_steps_left_parks_the_run_as_paused_without_anybody_holding_it() {
    let mut story = Story::started(vec![tool("a", &[]), tool("b", &[])]);
    story.throttles("a", 30);
    assert_eq!(story.status(), RunStatus::Running, "its sibling goes on");
    story.does("b", answered(json!(1)));
    assert_eq!(story.status(), RunStatus::Paused);
    assert_eq!(story.run.pause_cause(), Some(PauseCause::Throttle));
    assert!(story.run.hold.is_none());
    story.after_ms(30_000);
    assert_eq!(story.ready(), ["a"], "it asks again by itself");
}

#[test]
fn a_run_that_waits_for_time_is_running() {
    let mut story = Story::started(vec![wait("pause", 60, &[])]);
    assert_eq!(story.status(), RunStatus::Running);
    story.after_ms(60_000);
    assert_eq!(story.status(), RunStatus::Completed);
}

#[test]
fn the_three_bad_endings_differ() {
    let mut cancelled = Story::standing(RunStatus::Running);
    cancelled.command(cancel()).unwrap();
    let mut killed = Story::standing(RunStatus::Running);
    killed.command(kill()).unwrap();
    let failed = Story::standing(RunStatus::Failed);
    let endings = [&cancelled, &killed, &failed].map(|story| story.run.end.clone().unwrap());
    assert_eq!(endings.clone().map(|end| end.status), [RunStatus::Cancelled, RunStatus::Killed, RunStatus::Failed]);
    let codes = endings.map(|end| end.code.unwrap());
    assert_eq!(codes, ["cancelled-by-operator", "killed-by-operator", "tool-failed"]);
}

#[test]
fn a_paused_run_goes_back_to_where_it_was_paused_from() {
    use RunStatus as S;
    for status in [S::Queued, S::Starting, S::Running, S::AwaitingTool, S::AwaitingBranchSelection] {
        let mut story = Story::standing(status);
        story.write(story.decides(&pause()));
        assert_eq!(story.status(), S::Paused);
        assert_eq!(story.run.hold.as_ref().unwrap().paused_from_status, status);
        story.write(story.decides(&resume()));
        assert_eq!(story.status(), status);
    }
}

proptest! {
    #[test]
    fn no_other_word_is_a_status(word in "[a-z_]{0,30}") {
        let known = RunStatus::ALL.into_iter().find(|status| status.as_str() == word);
        prop_assert_eq!(RunStatus::parse(&word), known);
    }
}
