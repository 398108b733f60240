//! What an auditor finds offline in a journal that was touched, and in one that breaks its own promises (RUN-024).

use proptest::prelude::*;
use serde_json::json;
use signalbox_domain::identity::{Role, Visibility};
use signalbox_domain::ids::{CallId, RunKey, TenantId};
use signalbox_domain::quantity::{BudgetCategory, Micros, Usage};
use signalbox_domain::run::chain::{EventHash, StoredEvent};
use signalbox_domain::run::event::{CallOutcome, CallSettled, RunEvent};
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::run::verify::{Report, verify};
use signalbox_domain::time::UnixMicros;
use uuid::Uuid;

use crate::given::{START, Story, actor, answered, kill, tenant, tool};
use crate::replay::eventful;

fn checked(events: &[StoredEvent]) -> Report {
    verify(&tenant(), eventful().run.run_key, events)
}

fn codes(events: &[StoredEvent]) -> Vec<String> {
    checked(events).findings.into_iter().map(|finding| finding.code).collect()
}

/// Numbers, links and hashes put right again, as somebody would who knows how the journal is made.
fn rehashed(mut events: Vec<StoredEvent>) -> Vec<StoredEvent> {
    let (mut seq, mut prev_hash) = (0, EventHash::ZERO);
    for event in &mut events {
        seq += 1;
        event.seq = seq;
        event.prev_hash = prev_hash;
        event.hash = event.expected_hash(&tenant());
        prev_hash = event.hash;
    }
    events
}

fn codes_of(story: &Story) -> Vec<String> {
    codes(&story.events)
}

#[test]
fn nothing_is_found_in_the_journal_of_an_eventful_run() {
    let story = eventful();
    let report = checked(&story.events);
    assert_eq!((report.ok, report.findings), (true, vec![]));
    assert_eq!(report.events, story.events.len() as u64);
    assert_eq!(report.head_hash, story.events.last().unwrap().hash.hex());
    assert!(report.open_calls.is_empty());
    assert_eq!(rehashed(story.events.clone()), story.events);
}

#[test]
fn a_run_with_a_call_out_is_sound_and_its_call_is_listed() {
    let mut story = Story::started(vec![tool("a", &[])]);
    let call = story.call("a");
    let report = checked(&story.events);
    assert_eq!((report.ok, report.open_calls), (true, vec![call]));
}

#[test]
fn a_flipped_byte_is_found_wherever_it_lies() {
    let story = eventful();
    let flips: [fn(&mut StoredEvent); 9] = [
        |event| event.body[1] ^= 1,
        |event| *event.body.last_mut().unwrap() ^= 0x20,
        |event| event.kind.push('x'),
        |event| event.at = UnixMicros(event.at.0 + 1),
        |event| event.actor = actor("mallory", event.actor.role),
        |event| event.actor.role = if event.actor.role == Role::Customer { Role::Creator } else { Role::Customer },
        |event| {
            event.visibility =
                if event.visibility == Visibility::Customer { Visibility::Creator } else { Visibility::Customer };
        },
        |event| event.version += 1,
        |event| event.hash.0[31] ^= 0x80,
    ];
    for index in 0..story.events.len() {
        for (place, flip) in flips.iter().enumerate() {
            let mut events = story.events.clone();
            flip(&mut events[index]);
            let found = codes(&events);
            assert!(found.contains(&"hash-mismatch".to_owned()), "flip {place} of event {}: {found:?}", index + 1);
        }
    }
}

#[test]
fn a_dropped_event_is_found() {
    let story = eventful();
    for index in 0..story.events.len() - 1 {
        let mut events = story.events.clone();
        events.remove(index);
        let found = codes(&events);
        assert!(found.contains(&"gap".to_owned()), "{found:?}");
        assert!(found.contains(&"chain-broken".to_owned()), "{found:?}");
    }
}

#[test]
fn a_journal_truncated_in_the_middle_is_found() {
    let story = eventful();
    let mut events = story.events.clone();
    events.drain(5..12);
    let report = checked(&events);
    assert!(!report.ok);
    assert!(report.findings.iter().any(|finding| (finding.seq, finding.code.as_str()) == (13, "gap")));
}

#[test]
fn a_journal_cut_off_at_its_end_is_known_by_its_head_alone() {
    let story = eventful();
    let report = checked(&story.events[..story.events.len() - 3]);
    assert!(report.ok, "what is left is sound");
    assert_ne!(report.head_hash, checked(&story.events).head_hash, "so an anchor elsewhere tells");
}

#[test]
fn swapped_events_are_found() {
    let story = eventful();
    for index in 0..story.events.len() - 1 {
        let mut events = story.events.clone();
        events.swap(index, index + 1);
        assert!(codes(&events).contains(&"chain-broken".to_owned()));
    }
}

#[test]
fn an_inserted_event_is_found_even_if_it_is_well_made() {
    let story = eventful();
    for index in 1..story.events.len() {
        let mut events = story.events.clone();
        let mut forged = events[index].clone();
        forged.prev_hash = events[index - 1].hash;
        forged.hash = forged.expected_hash(&tenant());
        events.insert(index, forged);
        assert!(!checked(&events).ok, "before event {}", index + 1);
    }
}

#[test]
fn an_event_of_another_run_or_tenant_is_found() {
    let story = eventful();
    let other = RunKey::new(Uuid::from_u128(77));
    let report = verify(&tenant(), other, &story.events);
    assert!(report.findings.iter().all(|finding| finding.code == "foreign-event"));
    assert_eq!(report.findings.len(), story.events.len());
    let report = verify(&TenantId::new("other").unwrap(), story.run.run_key, &story.events);
    assert!(report.findings.iter().all(|finding| finding.code == "hash-mismatch"));
    assert!(!report.ok);
}

#[test]
fn time_that_went_back_is_found() {
    let mut events = eventful().events;
    events[4].at = UnixMicros(START.micros().0 - 1);
    assert_eq!(codes(&rehashed(events)), ["time-went-back"]);
}

#[test]
fn an_empty_journal_is_no_journal() {
    assert_eq!(codes(&[]), ["empty"]);
}

#[test]
fn an_event_that_cannot_be_read_is_found() {
    let mut events = eventful().events;
    events[4].kind = "run-exploded".to_owned();
    assert_eq!(codes(&rehashed(events)), ["unreadable", "does-not-fold"]);
}

fn settled(call_id: CallId, units: i64) -> RunEvent {
    RunEvent::CallSettled(Box::new(CallSettled {
        call_id,
        outcome: CallOutcome::Ok,
        output: None,
        error: None,
        measured_usage: None,
        charged: Usage::of(BudgetCategory::CostUnits, Micros::units(units)),
        evidence: None,
        effects: vec![],
        artifacts: vec![],
        latency_ms: 1,
        simulated: false,
        tone_note: None,
        meters: vec![],
    }))
}

fn in_flight() -> (Story, CallId) {
    let mut story = Story::started(vec![tool("a", &[])]);
    let call = story.call("a");
    (story, call)
}

#[test]
fn a_call_settled_twice_is_found() {
    let (mut story, call) = in_flight();
    story.force(settled(call, 1));
    story.force(settled(call, 1));
    assert_eq!(codes_of(&story), ["settled-twice"]);
}

#[test]
fn a_settlement_of_a_call_that_was_never_admitted_is_found() {
    let (mut story, _) = in_flight();
    story.force(settled(CallId::new(Uuid::from_u128(9)), 3));
    let found = codes_of(&story);
    assert_eq!(found[0], "settled-without-admission");
    assert!(found.contains(&"ledger-mismatch".to_owned()), "its charge is in no ledger");
}

#[test]
fn a_call_admitted_twice_is_found() {
    let (mut story, _) = in_flight();
    let pending = story.events.last().unwrap().event().unwrap();
    story.force(pending);
    assert_eq!(codes_of(&story), ["admitted-twice"]);
}

#[test]
fn a_call_sent_again_that_is_not_open_is_found() {
    let (mut story, call) = in_flight();
    let again = RunEvent::CallRedispatched { call_id: call, attempt: 2, requested_at_unix_ms: START };
    story.force(again.clone());
    assert!(codes_of(&story).is_empty());
    story.force(settled(call, 1));
    story.force(again);
    assert_eq!(codes_of(&story), ["redispatch-of-no-open-call"]);
}

#[test]
fn what_may_not_follow_the_end_of_a_run_is_found() {
    let (mut story, call) = in_flight();
    story.command(kill()).unwrap();
    let sound = story.clone();
    story.end(call, answered(json!(1)));
    assert!(codes_of(&story).is_empty(), "settlement, evidence and closing may follow");
    story.force(RunEvent::RunClosed {});
    assert_eq!(codes_of(&story), ["after-closed"]);

    for kind in ["run-started", "call-pending", "run-finished"] {
        let mut story = sound.clone();
        let event = story.events.iter().find(|event| event.kind == kind).unwrap().event().unwrap();
        story.force(event);
        assert!(codes_of(&story).contains(&"after-terminal".to_owned()), "{kind}");
    }
}

#[test]
fn a_run_closed_before_its_end_or_with_a_call_out_is_found() {
    let (mut story, _) = in_flight();
    story.force(RunEvent::RunClosed {});
    assert_eq!(codes_of(&story), ["closed-too-early"]);
    let (mut story, _) = in_flight();
    story.command(kill()).unwrap();
    story.force(RunEvent::RunClosed {});
    assert_eq!(codes_of(&story), ["closed-too-early"]);
}

#[test]
fn a_status_that_the_one_before_it_cannot_lead_to_is_found() {
    let mut story = Story::standing(RunStatus::Paused);
    let done = Story::standing(RunStatus::Completed);
    let finished = done.events.iter().find(|event| event.kind == "run-finished").unwrap().event().unwrap();
    story.force(finished);
    assert_eq!(codes_of(&story), ["invalid-transition"]);
}

#[test]
fn a_report_reads_back_from_its_json() {
    let mut events = eventful().events;
    events.remove(3);
    let report = checked(&events);
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["ok"], false);
    assert_eq!(serde_json::from_value::<Report>(json).unwrap(), report);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn no_tampered_body_is_taken_for_whole_and_none_makes_verification_panic(
        index in 0..25_usize, at in any::<prop::sample::Index>(), byte in any::<u8>()
    ) {
        let mut events = eventful().events;
        let body = &mut events[index].body;
        let at = at.index(body.len());
        let changed = body[at] != byte;
        body[at] = byte;
        prop_assert_eq!(checked(&events).ok, !changed);
        // Whoever can put the hashes right is found by what the events say, or by the anchor; never by a panic.
        let _ = checked(&rehashed(events));
    }
}
