//! Time travel: any moment of a run, from its journal alone (DSH-006, DSH-007, RUN-008).

use serde_json::json;
use signalbox_domain::run::chain::StoredEvent;
use signalbox_domain::run::envelope::RunEnvelope;
use signalbox_domain::run::evolve::{begin, fold, fold_one};
use signalbox_domain::run::replay::{At, build_replay_timeline, reconstruct_state_at};
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::time::UnixMicros;

use crate::given::{
    START, Story, answer, answered, choose, fork_in_the_road, gate, lost, not_started, pause, resume, retry, tool,
    wait, when,
};

/// A run in which nearly everything happens that can happen to one.
pub(crate) fn eventful() -> Story {
    let mut story = Story::started(vec![
        tool("fetch", &[]),
        gate("gate", &["fetch"]),
        fork_in_the_road("way", &["left", "right"], &["gate"]),
        when(tool("left", &[]), "way", "left"),
        when(wait("right", 5, &[]), "way", "right"),
        tool("end", &["left", "right"]),
    ]);
    story.after_ms(10);
    story.does("fetch", not_started());
    story.throttles("fetch", 30);
    story.after_ms(30_000);
    story.does("fetch", answered(json!({"n": 0.1})));
    story.after_ms(10);
    let approval = story.asks("gate");
    story.after_ms(600_000);
    story.command(answer(approval, signalbox_domain::run::event::ApprovalDecision::Approve)).unwrap();
    story.command(choose("right")).unwrap();
    story.after_ms(5_000);
    story.command(pause()).unwrap();
    story.command(retry("way")).unwrap();
    story.command(choose("left")).unwrap();
    let call = story.does("left", lost());
    story.end(call, answered(json!("late")));
    story.command(pause()).unwrap();
    story.after_ms(7);
    story.command(resume()).unwrap();
    story.does("end", answered(json!(1)));
    assert_eq!(story.status(), RunStatus::Completed);
    story
}

#[test]
fn the_state_at_each_event_is_the_one_that_was_there_live() {
    let story = eventful();
    assert!(story.events.len() > 25);
    for (seq, live) in (1..).zip(&story.past) {
        assert_eq!(&reconstruct_state_at(&story.events, At::Seq(seq)).unwrap(), live, "at event {seq}");
    }
}

#[test]
fn a_moment_between_two_events_shows_the_earlier_state() {
    let story = eventful();
    for pair in story.events.windows(2).filter(|pair| pair[0].at < pair[1].at) {
        let earlier = reconstruct_state_at(&story.events, At::Seq(pair[0].seq)).unwrap();
        let between = UnixMicros(pair[1].at.0 - 1);
        assert_eq!(reconstruct_state_at(&story.events, At::Time(between)).unwrap(), earlier);
        assert_eq!(reconstruct_state_at(&story.events, At::Time(pair[0].at)).unwrap(), earlier);
    }
    let end = reconstruct_state_at(&story.events, At::Time(UnixMicros(i64::MAX))).unwrap();
    assert_eq!(end, story.run);
}

#[test]
fn points_outside_the_run_are_refused() {
    let story = eventful();
    let last = story.events.last().unwrap().seq;
    for at in [At::Seq(0), At::Seq(last + 1), At::Seq(u64::MAX), At::Time(UnixMicros(START.micros().0 - 1))] {
        assert_eq!(reconstruct_state_at(&story.events, at).unwrap_err().code(), "no-such-point", "{at:?}");
    }
    assert_eq!(reconstruct_state_at(&[], At::Seq(1)).unwrap_err().code(), "no-such-point");
    assert_eq!(build_replay_timeline(&[]).unwrap_err().code(), "no-such-point");
}

#[test]
fn the_timeline_has_an_entry_for_each_event_and_its_statuses_join_up() {
    let story = eventful();
    let timeline = build_replay_timeline(&story.events).unwrap();
    assert_eq!(timeline.len(), story.events.len());
    for (entry, event) in timeline.iter().zip(&story.events) {
        assert_eq!((entry.seq, entry.at, &entry.kind, &entry.actor), (event.seq, event.at, &event.kind, &event.actor));
        assert_eq!(entry.visibility, event.visibility);
    }
    for pair in timeline.windows(2) {
        assert_eq!(pair[0].to, pair[1].from);
        assert!(pair[1].from.may_lead_to(pair[1].to), "{:?}", pair[1]);
    }
    assert_eq!(timeline.last().unwrap().to, RunStatus::Completed);
    let entry = serde_json::to_value(&timeline[1]).unwrap();
    assert_eq!((&entry["seq"], &entry["from"], &entry["to"]), (&json!(2), &json!("queued"), &json!("starting")));
    assert_eq!(entry["at"], START.micros().0, "in microseconds");
}

fn fold_error(events: &[StoredEvent]) -> String {
    fold(events).unwrap_err().to_string()
}

#[test]
fn a_gap_makes_replay_fail() {
    let story = eventful();
    for gap in 1..story.events.len() - 1 {
        let mut events = story.events.clone();
        events.remove(gap);
        assert!(fold_error(&events).contains("a gap"), "without event {}", gap + 1);
        let beyond = events.last().unwrap().seq;
        assert_eq!(reconstruct_state_at(&events, At::Seq(beyond)).unwrap_err().code(), "journal-corrupt");
        assert_eq!(build_replay_timeline(&events).unwrap_err().code(), "journal-corrupt");
    }
}

#[test]
fn a_journal_begins_with_a_submission_and_holds_nothing_unknown() {
    let story = eventful();
    assert!(fold_error(&[]).contains("empty"));
    assert!(fold_error(&story.events[1..]).contains("number 1"));
    let mut first = story.events[1].clone();
    first.seq = 1;
    assert!(begin(&first).unwrap_err().to_string().contains("run-submitted"));
    let mut unknown = story.events.clone();
    unknown[3].kind = "run-exploded".to_owned();
    assert!(fold_error(&unknown).contains("unknown"));
    unknown[3] = StoredEvent { body: b"{]".to_vec(), ..story.events[3].clone() };
    assert!(fold_error(&unknown).contains("unknown"));
    unknown[0].body = b"{}".to_vec();
    assert!(begin(&unknown[0]).unwrap_err().to_string().contains("unknown"));
}

#[test]
fn a_hundred_replays_give_the_same_bytes() {
    let story = eventful();
    let bytes = |run: &RunEnvelope| serde_json::to_vec(run).unwrap();
    let first = bytes(&fold(&story.events).unwrap());
    for _ in 0..100 {
        assert_eq!(bytes(&fold(&story.events).unwrap()), first);
    }
}

#[test]
fn a_run_goes_on_from_a_snapshot_as_from_its_journal() {
    let story = eventful();
    for (upto, live) in story.past.iter().enumerate() {
        let json = serde_json::to_vec(live).unwrap();
        let mut run: RunEnvelope = serde_json::from_slice(&json).unwrap();
        assert_eq!(&run, live);
        for event in &story.events[upto + 1..] {
            fold_one(&mut run, event).unwrap();
        }
        assert_eq!(run, story.run);
    }
}
