//! What follows by itself: everything that is due, once, and then nothing.

use serde_json::json;
use signalbox_domain::identity::Actor;
use signalbox_domain::run::advance::{advance, next_wake, projection};
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::run::step::StepState;

use crate::given::{START, Story, answered, fork_in_the_road, gate, pause, resume, tool, wait};

#[test]
fn applying_what_is_due_leaves_nothing_due_in_any_status() {
    for status in RunStatus::ALL {
        let mut story = Story::standing(status);
        for ms in [0, 1, 6_000, 600_000_000] {
            story.after_ms(ms);
            assert_eq!(advance(&story.run, story.now), [], "{} after {ms} ms", status.as_str());
        }
    }
}

#[test]
fn what_follows_by_itself_is_caused_by_the_runtime() {
    let story = Story::queued(vec![tool("a", &[])]);
    let due = advance(&story.run, story.now);
    assert_eq!(due.len(), 1);
    assert_eq!(due[0].actor, Actor::system());
}

#[test]
fn a_queued_run_is_taken_up_unless_it_is_held() {
    let mut story = Story::queued(vec![tool("a", &[])]);
    story.command(pause()).unwrap();
    assert_eq!(story.kinds_from(1), ["run-submitted", "control-applied"]);
    story.command(resume()).unwrap();
    assert_eq!(story.kinds_from(3), ["control-applied", "run-started"]);
}

#[test]
fn a_wait_ends_when_it_is_due_and_not_before() {
    let mut story = Story::started(vec![wait("w", 60, &[]), tool("after", &["w"])]);
    assert_eq!(next_wake(&story.run), Some(START.plus_seconds(60)));
    story.after_ms(59_999);
    assert!(story.ready().is_empty());
    story.after_ms(1);
    assert!(matches!(story.state("w"), StepState::Done { output: None, .. }));
    assert_eq!(story.ready(), ["after"]);
    assert_eq!(next_wake(&story.run), None);
}

#[test]
fn a_wait_of_no_time_is_over_at_once_and_waits_in_a_row_add_up() {
    let story = Story::started(vec![wait("w", 0, &[])]);
    assert_eq!(story.status(), RunStatus::Completed);
    let mut story = Story::started(vec![wait("one", 10, &[]), wait("two", 10, &["one"])]);
    story.after_ms(15_000);
    assert_eq!(next_wake(&story.run), Some(START.plus_seconds(25)), "the second began when the first was seen to end");
}

#[test]
fn timers_stand_still_while_a_run_is_held() {
    let mut story = Story::started(vec![wait("w", 60, &[])]);
    story.command(pause()).unwrap();
    story.after_ms(60_000);
    assert_eq!(next_wake(&story.run), None);
    assert!(matches!(story.state("w"), StepState::Waiting { .. }));
    story.command(resume()).unwrap();
    assert_eq!(story.status(), RunStatus::Completed);
}

#[test]
fn a_throttled_step_asks_again_when_its_time_has_come_or_somebody_resumes() {
    let mut story = Story::started(vec![tool("a", &[])]);
    story.throttles("a", 30);
    assert_eq!(next_wake(&story.run), Some(START.plus_seconds(30)));
    story.after_ms(29_999);
    assert!(story.ready().is_empty());
    story.command(resume()).unwrap();
    assert_eq!(story.ready(), ["a"]);
    assert_eq!(story.status(), RunStatus::Running);
}

#[test]
fn a_run_says_when_it_waits_for_something_from_outside() {
    let waiting = |status| {
        let story = Story::standing(status);
        story.run.is_waiting(story.now)
    };
    for status in
        [RunStatus::Paused, RunStatus::AwaitingApproval, RunStatus::AwaitingBranchSelection, RunStatus::Failed]
    {
        assert!(waiting(status), "{}", status.as_str());
    }
    for status in [RunStatus::Queued, RunStatus::Starting, RunStatus::Running, RunStatus::AwaitingTool] {
        assert!(!waiting(status), "{}", status.as_str());
    }
}

#[test]
fn the_dashboard_shows_the_run_as_it_stands() {
    let mut story = Story::started(vec![tool("a", &[]), gate("b", &["a"]), fork_in_the_road("c", &["x"], &["b"])]);
    story.does("a", answered(json!(1)));
    story.asks("b");
    let shown = projection(&story.run);
    assert_eq!((shown.status, shown.closed, shown.percent), (RunStatus::AwaitingApproval, false, 33));
    assert_eq!(shown.total_cost_micros, story.run.cost_ledger.total_cost_units.0);
    assert_eq!(shown.waiting_for.as_deref(), Some("a decision"));
    assert_eq!(shown.wake_at, Some(START.plus_seconds(500)));
    assert_eq!(shown.open_approvals.len(), 1);
}
