//! One step at a time: what an operator lets go of a held run, and nothing else (CTL-013, CTL-014).

use serde_json::json;
use signalbox_domain::governance::gate::Blame;
use signalbox_domain::governance::kill_switch::{KillSwitch, SwitchScope};
use signalbox_domain::ids::{BudgetId, SwitchId};
use signalbox_domain::run::advance::next_wake;
use signalbox_domain::run::call;
use signalbox_domain::run::event::PauseCause;
use signalbox_domain::run::plan::{Step, StepKind};
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::run::step::StepState;
use signalbox_domain::time::UnixMs;

use crate::given::{
    START, Story, answered, fork_in_the_road, gate, one_step, one_step_of, operator, pause, resume, tool, wait,
};

/// A run that was paused before any of its steps began.
fn held(steps: Vec<Step>) -> Story {
    let mut story = Story::queued(steps);
    story.command(pause()).unwrap();
    story
}

fn changed(before: &[StepState], after: &[StepState]) -> usize {
    before.iter().zip(after).filter(|(before, after)| before != after).count()
}

pub(crate) fn switch() -> KillSwitch {
    KillSwitch {
        switch_id: SwitchId::new("stop-all").unwrap(),
        tenant_id: None,
        scope: SwitchScope::Global,
        target_id: None,
        armed_by: operator().actor_id,
        armed_at_unix_ms: START,
        reason: "drill".to_owned(),
        user_visible_status_copy: "We are looking into it.".to_owned(),
        safe_degradation_mode_id: Some("read-only".to_owned()),
        expires_at_unix_ms: None,
        disarmed_at_unix_ms: None,
    }
}

#[test]
fn exactly_one_step_changes_and_the_run_stays_paused() {
    let mut story = held(vec![tool("a", &[]), tool("b", &[]), tool("c", &["a"])]);
    assert!(story.ready().is_empty());
    let before = story.run.steps.clone();
    story.command(one_step()).unwrap();
    assert_eq!(story.ready(), ["a"], "the first that is ready, and only it");
    let call = story.call("a");
    assert!(story.ready().is_empty());
    story.end(call, answered(json!(1)));
    assert_eq!(story.status(), RunStatus::Paused);
    assert_eq!(changed(&before, &story.run.steps), 1);
    story.after_ms(1_000_000);
    assert_eq!(changed(&before, &story.run.steps), 1, "and no other one later");
}

#[test]
fn a_named_step_goes_if_it_can() {
    let mut story = held(vec![tool("a", &[]), tool("b", &[]), tool("c", &["a"])]);
    assert_eq!(story.says(&one_step_of("c")), "no-such-step", "it waits for another");
    assert_eq!(story.says(&one_step_of("ghost")), "no-such-step");
    story.command(one_step_of("b")).unwrap();
    assert_eq!(story.ready(), ["b"]);
}

#[test]
fn steps_that_make_no_call_go_one_at_a_time_too() {
    for step in [gate("x", &[]), fork_in_the_road("x", &["left"], &[]), wait("x", 5, &[])] {
        let asks = matches!(step.kind, StepKind::Approval { .. });
        let mut story = held(vec![step, tool("y", &[])]);
        story.command(one_step()).unwrap();
        if asks {
            assert_eq!(story.ready(), ["x"]);
            story.asks("x");
        }
        assert_ne!(story.state("x"), &StepState::Pending);
        assert_eq!(story.state("y"), &StepState::Pending);
        assert_eq!(story.status(), RunStatus::Paused);
    }
}

#[test]
fn a_run_that_was_paused_in_the_queue_is_taken_up_by_its_first_step() {
    let mut story = held(vec![tool("a", &[])]);
    assert!(!story.run.started);
    story.command(one_step()).unwrap();
    assert_eq!(story.ready(), ["a"]);
    assert_eq!(story.status(), RunStatus::Paused);
}

#[test]
fn a_step_is_permitted_once() {
    let mut story = held(vec![tool("a", &[]), tool("b", &[])]);
    story.command(one_step()).unwrap();
    story.does("a", answered(json!(1)));
    assert!(story.run.permitted_step.is_none());
    assert!(story.ready().is_empty());
    story.command(one_step()).unwrap();
    assert_eq!(story.ready(), ["b"]);
}

#[test]
fn a_permission_does_not_outlive_the_pause_it_was_given_in() {
    let mut story = held(vec![tool("a", &[])]);
    story.command(one_step()).unwrap();
    story.command(resume()).unwrap();
    story.command(pause()).unwrap();
    assert!(story.ready().is_empty());
    story.command(one_step()).unwrap();
    story.command(crate::given::retry("a")).unwrap();
    story.command(pause()).unwrap();
    assert!(story.ready().is_empty());
}

#[test]
fn a_permitted_step_that_must_wait_for_a_token_still_goes_afterwards() {
    let mut story = held(vec![tool("a", &[]), tool("b", &[])]);
    story.command(one_step()).unwrap();
    story.throttles("a", 30);
    assert_eq!(next_wake(&story.run), Some(story.now.plus_seconds(30)));
    assert!(story.ready().is_empty());
    story.after_ms(30_000);
    assert_eq!(story.ready(), ["a"]);
    story.does("a", answered(json!(1)));
    assert_eq!(story.status(), RunStatus::Paused);
}

#[test]
fn a_step_that_was_throttled_before_the_pause_can_be_let_go() {
    let mut story = Story::started(vec![tool("a", &[]), tool("b", &[])]);
    story.throttles("a", 30);
    story.command(pause()).unwrap();
    story.after_ms(30_000);
    assert!(story.ready().is_empty());
    story.command(one_step_of("a")).unwrap();
    assert_eq!(story.ready(), ["a"]);
}

#[test]
fn an_armed_switch_kills_the_run_when_its_step_asks() {
    let mut story = held(vec![tool("a", &[])]);
    story.command(one_step()).unwrap();
    let ask = call::kill(&story.run, &story.prepared("a"), &Blame::Switch(Box::new(switch())), Vec::new(), story.now);
    story.asked(ask);
    assert_eq!(story.status(), RunStatus::Killed);
    assert_eq!(story.run.end.unwrap().blamed_id.as_deref(), Some("stop-all"));
}

#[test]
fn a_quota_stops_a_permitted_step_once_and_not_for_ever_again() {
    let mut story = held(vec![tool("a", &[])]);
    story.command(one_step()).unwrap();
    let budget = BudgetId::new("acme.monthly").unwrap();
    let ask = call::pause_for_quota(&story.run, &story.prepared("a"), &budget, &[], story.now);
    story.asked(ask);
    assert!(story.ready().is_empty(), "it does not ask again by itself");
    let hold = story.run.hold.clone().unwrap();
    assert_eq!((hold.cause, hold.paused_from_status), (PauseCause::Quota, RunStatus::Queued));
    story.command(resume()).unwrap();
    assert_eq!(story.ready(), ["a"]);
}

#[test]
fn a_timer_set_under_a_hold_fires_after_it() {
    let mut story = held(vec![wait("x", 5, &[])]);
    story.command(one_step()).unwrap();
    assert_eq!(next_wake(&story.run), None);
    story.after_ms(60_000);
    assert_eq!(story.state("x"), &StepState::Waiting { due_at_unix_ms: UnixMs(START.0 + 5_000) });
    story.command(resume()).unwrap();
    assert_eq!(story.status(), RunStatus::Completed);
}
