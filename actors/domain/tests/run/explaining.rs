//! Why things came as they did, read off the journal.

use serde_json::json;
use signalbox_domain::run::event::{CallOutcome, ControlKind};
use signalbox_domain::run::explain::explain;
use signalbox_domain::run::status::RunStatus;

use crate::given::{Story, answered, kill, lost, operator, tool};
use crate::replay::eventful;

#[test]
fn a_refused_call_keeps_its_code_and_the_run_names_the_step_that_ended_it() {
    let mut story = Story::started(vec![tool("a", &[]), tool("b", &["a"])]);
    let done = story.does("a", answered(json!({})));
    story.denies("b", "no-matching-grant");
    story.go_on();
    let found = explain(&story.events).unwrap();
    assert_eq!(found.status, RunStatus::Failed);
    let [first, second] = found.calls.as_slice() else { panic!("{found:#?}") };
    assert_eq!((first.call_id, first.outcome, first.seq > 0), (done, CallOutcome::Ok, true));
    assert!(first.epoch.is_some() && second.epoch.is_none() && second.grant_id.is_none());
    assert_eq!(
        (second.outcome, second.error.as_ref().unwrap().code.as_str()),
        (CallOutcome::Denied, "no-matching-grant")
    );
    let end = found.end.unwrap();
    assert_eq!((end.code.as_deref(), end.step_id.unwrap().as_str()), (Some("no-matching-grant"), "b"));
}

#[test]
fn whoever_killed_a_run_is_named_with_the_reason() {
    let mut story = Story::started(vec![tool("a", &[])]);
    story.call("a");
    story.command(kill()).unwrap();
    let found = explain(&story.events).unwrap();
    assert_eq!(found.status, RunStatus::Killed);
    let [steering] = found.controls.as_slice() else { panic!("{found:#?}") };
    assert_eq!((steering.kind, &steering.actor), (ControlKind::Kill, &operator()));
    assert_eq!(found.end.unwrap().seq, steering.seq + 1);
}

#[test]
fn calls_of_unknown_effect_are_listed() {
    let mut story = Story::started(vec![tool("a", &[])]);
    let call = story.does("a", lost());
    assert_eq!(explain(&story.events).unwrap().unknown_call_ids, [call]);
}

#[test]
fn a_journal_that_does_not_fold_is_an_error_and_every_prefix_of_one_that_does_is_explained() {
    let story = eventful();
    assert!(explain(&[]).is_err() && explain(&story.events[1..]).is_err());
    for end in 1..=story.events.len() {
        let found = explain(&story.events[..end]).unwrap();
        assert!(found.calls.iter().all(|call| call.seq > 0));
    }
}
