//! What schedules are due: misfires, overlaps, pauses, jitter, and that no slot is dealt with twice (PIP-026 to PIP-028).

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::json;
use signalbox_domain::identity::{Actor, Role};
use signalbox_domain::ids::{ActorId, PipelineId, ScheduleId, TenantId};
use signalbox_domain::pipeline::schedule::{
    CatchUp, Due, FireState, Misfire, NewFire, Overlap, Owner, Pause, PipelineSchedule, Reason, Standing, Timing,
    Trigger, Weekday, due, next_fire_for, slots,
};
use signalbox_domain::time::UnixMs;

pub(crate) fn at(text: &str) -> UnixMs {
    UnixMs(text.parse::<Timestamp>().unwrap().as_millisecond())
}

pub(crate) fn schedule(timing: Timing, timezone: &str) -> PipelineSchedule {
    PipelineSchedule {
        schedule_id: ScheduleId::new("s").unwrap(),
        tenant_id: TenantId::new("acme").unwrap(),
        owner: Owner {
            actor: Actor { actor_id: ActorId::new("ada").unwrap(), role: Role::TenantOperator },
            scopes: Vec::new(),
        },
        fires: Trigger::Submission { submission: json!({}) },
        timing,
        timezone: timezone.to_owned(),
        start_at_unix_ms: at("2026-01-01T00:00:00Z"),
        end_at_unix_ms: None,
        misfire: Misfire::RunOnce,
        catch_up: CatchUp::default(),
        overlap: Overlap::Skip,
        jitter_seconds: 0,
        pause: None,
        since_unix_ms: at("2026-01-01T00:00:00Z"),
    }
}

fn every(seconds: u64) -> PipelineSchedule {
    schedule(Timing::Interval { seconds }, "UTC")
}

fn cron(expression: &str, zone: &str) -> PipelineSchedule {
    schedule(Timing::Cron { expression: expression.to_owned() }, zone)
}

fn after(considered: &str) -> Standing<'static> {
    Standing { considered_until: Some(at(considered)), ..Standing::default() }
}

fn told(due: &Due) -> Vec<(String, u64, FireState, Option<Reason>)> {
    let shown = |fire: &NewFire| {
        (Timestamp::from_millisecond(fire.at.0).unwrap().to_string(), fire.slots, fire.state, fire.reason)
    };
    due.fires.iter().map(shown).collect()
}

fn one(slot: &str, state: FireState, reason: Option<Reason>) -> (String, u64, FireState, Option<Reason>) {
    (slot.to_owned(), 1, state, reason)
}

#[test]
fn the_next_slot_is_strictly_after_the_instant_given() {
    let minutely = every(60);
    assert_eq!(next_fire_for(&minutely, at("2026-01-01T00:01:00Z")), Some(at("2026-01-01T00:02:00Z")));
    assert_eq!(next_fire_for(&minutely, at("2026-01-01T00:01:59.999Z")), Some(at("2026-01-01T00:02:00Z")));
    // The start is a slot of a schedule that was there before it.
    let early = PipelineSchedule { since_unix_ms: at("2025-01-01T00:00:00Z"), ..every(60) };
    assert_eq!(next_fire_for(&early, at("2025-06-01T00:00:00Z")), Some(at("2026-01-01T00:00:00Z")));
    let ends = PipelineSchedule { end_at_unix_ms: Some(at("2026-01-01T00:02:00Z")), ..every(60) };
    assert_eq!(next_fire_for(&ends, at("2026-01-01T00:01:00Z")), Some(at("2026-01-01T00:02:00Z")));
    assert_eq!(next_fire_for(&ends, at("2026-01-01T00:02:00Z")), None);
    assert_eq!(next_fire_for(&cron("0 0 30 2 *", "UTC"), at("2026-01-01T00:00:00Z")), None);
    let weekly = schedule(Timing::Weekly { weekday: Weekday::Monday, hour: 7, minute: 30 }, "Europe/Berlin");
    assert_eq!(next_fire_for(&weekly, at("2026-03-24T00:00:00Z")), Some(at("2026-03-30T05:30:00Z")));
    for (name, slot) in
        [("@daily", "2026-01-02T00:00:00Z"), ("@Weekly", "2026-01-04T00:00:00Z"), ("@hourly", "2026-01-01T01:00:00Z")]
    {
        assert_eq!(next_fire_for(&cron(name, "UTC"), at("2026-01-01T00:00:00Z")), Some(at(slot)), "{name}");
    }
    assert_eq!(next_fire_for(&cron("@reboot", "UTC"), at("2026-01-01T00:00:00Z")), None);
}

#[test]
fn a_time_in_the_gap_fires_once_right_after_it_and_one_that_comes_twice_fires_once() {
    let nightly = cron("30 2 * * *", "Europe/Berlin");
    let spring = slots(&nightly, at("2026-03-28T12:00:00Z"), at("2026-03-30T12:00:00Z"));
    assert_eq!((spring.len(), spring.at(0)), (2, Some(at("2026-03-29T01:00:00Z"))));
    let autumn = slots(&nightly, at("2026-10-24T12:00:00Z"), at("2026-10-25T12:00:00Z"));
    assert_eq!((autumn.len(), autumn.at(0)), (1, Some(at("2026-10-25T00:30:00Z"))));
}

#[test]
fn what_was_missed_runs_once_and_is_otherwise_recorded_as_skipped() {
    let hourly = cron("0 * * * *", "UTC");
    let due = due(&hourly, after("2026-05-01T00:00:00Z"), at("2026-05-01T06:30:00Z"));
    let expected = [
        ("2026-05-01T01:00:00Z".to_owned(), 5, FireState::Skipped, Some(Reason::Missed)),
        one("2026-05-01T06:00:00Z", FireState::Waiting, None),
    ];
    assert_eq!(told(&due), expected);
    assert_eq!(due.fires[0].through, at("2026-05-01T05:00:00Z"));
    assert_eq!(
        (due.considered_until, due.look_at),
        (Some(at("2026-05-01T06:00:00Z")), Some(at("2026-05-01T07:00:00Z")))
    );
}

#[test]
fn with_misfire_skip_nothing_that_was_missed_runs() {
    let hourly = PipelineSchedule { misfire: Misfire::Skip, ..cron("0 * * * *", "UTC") };
    let missed = due(&hourly, after("2026-05-01T00:00:00Z"), at("2026-05-01T06:30:00Z"));
    assert_eq!(told(&missed), [("2026-05-01T01:00:00Z".to_owned(), 6, FireState::Skipped, Some(Reason::Missed))]);
    // A moment late is not missed.
    let late = due(&hourly, after("2026-05-01T06:00:00Z"), at("2026-05-01T07:00:59Z"));
    assert_eq!(told(&late), [one("2026-05-01T07:00:00Z", FireState::Waiting, None)]);
}

#[test]
fn catching_up_is_bounded_by_count_and_by_window() {
    let catch_up = CatchUp { window_seconds: 2 * 3_600 + 1_800, count: 10 };
    let hourly = PipelineSchedule { catch_up, overlap: Overlap::AllowAll, ..cron("0 * * * *", "UTC") };
    let due_now = due(&hourly, after("2026-05-01T00:00:00Z"), at("2026-05-01T06:30:00Z"));
    let expected = [
        ("2026-05-01T01:00:00Z".to_owned(), 3, FireState::Skipped, Some(Reason::Missed)),
        one("2026-05-01T04:00:00Z", FireState::Waiting, None),
        one("2026-05-01T05:00:00Z", FireState::Waiting, None),
        one("2026-05-01T06:00:00Z", FireState::Waiting, None),
    ];
    assert_eq!(told(&due_now), expected);
    let two = PipelineSchedule { catch_up: CatchUp { count: 2, ..catch_up }, ..hourly };
    let due_now = due(&two, after("2026-05-01T00:00:00Z"), at("2026-05-01T06:30:00Z"));
    assert_eq!(due_now.fires.iter().filter(|fire| fire.state == FireState::Waiting).count(), 2);
}

#[test]
fn an_outage_of_six_hours_with_fifty_minutely_schedules_starts_a_bounded_number_of_runs() {
    let mut runs = 0;
    for number in 0..50 {
        let minutely = PipelineSchedule {
            schedule_id: ScheduleId::new(format!("s{number}")).unwrap(),
            overlap: Overlap::AllowAll,
            ..cron("* * * * *", "Europe/Berlin")
        };
        let due = due(&minutely, after("2026-05-01T00:00:00Z"), at("2026-05-01T06:00:00Z"));
        runs += due.fires.iter().filter(|fire| fire.state == FireState::Waiting).count();
        assert_eq!(due.fires.iter().map(|fire| fire.slots).sum::<u64>(), 360);
        assert!(due.fires.len() <= 4, "{:?}", due.fires);
    }
    // The one that stands for all that was missed, and those of the last minute.
    assert!(runs <= 150, "{runs}");
}

#[test]
fn years_of_slots_every_second_are_counted_and_not_listed() {
    let secondly = PipelineSchedule { overlap: Overlap::AllowAll, ..every(1) };
    let due = due(&secondly, after("2026-01-01T00:00:00Z"), at("2036-01-01T00:00:00Z"));
    assert!(due.fires.len() <= 64, "{}", due.fires.len());
    assert_eq!(due.considered_until, Some(at("2036-01-01T00:00:00Z")));
}

/// Overlap, slots of runs that wait for their start, runs that are not over, buffered slots; what becomes of a slot that comes.
type Row = (Overlap, usize, usize, usize, FireState, Option<Reason>);

#[test]
fn each_overlap_policy_does_what_its_name_says() {
    let rows: &[Row] = &[
        (Overlap::Skip, 0, 0, 0, FireState::Waiting, None),
        (Overlap::Skip, 1, 0, 0, FireState::Skipped, Some(Reason::Overlap)),
        (Overlap::Skip, 0, 1, 0, FireState::Skipped, Some(Reason::Overlap)),
        (Overlap::BufferOne, 0, 0, 0, FireState::Waiting, None),
        (Overlap::BufferOne, 0, 1, 0, FireState::Buffered, None),
        (Overlap::BufferOne, 0, 1, 1, FireState::Skipped, Some(Reason::BufferFull)),
        (Overlap::BufferAll, 0, 1, 1, FireState::Buffered, None),
        (Overlap::BufferAll, 0, 1, 100, FireState::Skipped, Some(Reason::BufferFull)),
        (Overlap::CancelOther, 0, 1, 0, FireState::Waiting, None),
        (Overlap::KillOther, 0, 1, 0, FireState::Waiting, None),
        (Overlap::AllowAll, 3, 3, 0, FireState::Waiting, None),
    ];
    for (overlap, waiting, running, buffered, state, reason) in rows {
        let schedule = PipelineSchedule { overlap: *overlap, ..cron("0 * * * *", "UTC") };
        let earlier = |count: usize| -> Vec<UnixMs> {
            (0..count).map(|back| at("2026-04-30T00:00:00Z").plus_seconds(back as i64)).collect()
        };
        let (waiting, buffered) = (earlier(*waiting), earlier(*buffered));
        let standing =
            Standing { waiting: &waiting, running: *running, buffered: &buffered, ..after("2026-05-01T00:00:00Z") };
        let due = due(&schedule, standing, at("2026-05-01T01:00:01Z"));
        assert_eq!(told(&due), [one("2026-05-01T01:00:00Z", *state, *reason)], "{overlap:?}");
        let ends = matches!(overlap, Overlap::CancelOther | Overlap::KillOther);
        assert_eq!(due.overtaken.is_empty(), !ends || waiting.is_empty(), "{overlap:?}");
    }
}

#[test]
fn what_waits_begins_in_its_order_as_soon_as_nothing_runs() {
    let schedule = PipelineSchedule { overlap: Overlap::BufferAll, ..cron("0 * * * *", "UTC") };
    let buffered = [at("2026-05-01T00:00:00Z"), at("2026-05-01T01:00:00Z")];
    let standing = Standing { buffered: &buffered, ..after("2026-05-01T01:00:00Z") };
    let now = due(&schedule, standing, at("2026-05-01T01:20:00Z"));
    assert_eq!((now.released, now.fires.len()), (vec![buffered[0]], 0));
    assert_eq!(now.look_at, Some(at("2026-05-01T01:20:01Z")));
    let busy = due(&schedule, Standing { running: 1, ..standing }, at("2026-05-01T02:00:00Z"));
    assert!(busy.released.is_empty());
    assert_eq!(told(&busy), [one("2026-05-01T02:00:00Z", FireState::Buffered, None)]);
}

#[test]
fn of_several_slots_at_once_the_last_takes_the_place_of_those_that_have_not_begun() {
    let schedule = PipelineSchedule { overlap: Overlap::KillOther, ..every(20) };
    let waiting = [at("2026-04-30T23:59:40Z")];
    let standing = Standing { waiting: &waiting, ..after("2026-05-01T00:00:00Z") };
    let now = due(&schedule, standing, at("2026-05-01T00:00:45Z"));
    let overtaken = one("2026-05-01T00:00:20Z", FireState::Skipped, Some(Reason::Overtaken));
    assert_eq!(told(&now), [overtaken, one("2026-05-01T00:00:40Z", FireState::Waiting, None)]);
    assert_eq!(now.overtaken, waiting);
}

#[test]
fn slots_of_a_pause_are_recorded_when_it_is_over() {
    let pause = |until| Pause {
        by: ActorId::new("ada").unwrap(),
        reason: "a test".to_owned(),
        from_unix_ms: at("2026-05-01T00:30:00Z"),
        until_unix_ms: until,
    };
    let paused = PipelineSchedule { pause: Some(pause(None)), ..cron("0 * * * *", "UTC") };
    assert_eq!(due(&paused, after("2026-05-01T00:00:00Z"), at("2026-05-01T09:30:00Z")), Due::default());
    let resumed = PipelineSchedule { pause: Some(pause(Some(at("2026-05-01T05:59:00Z")))), ..paused };
    let due = due(&resumed, after("2026-05-01T00:00:00Z"), at("2026-05-01T06:00:00Z"));
    let expected = [
        ("2026-05-01T01:00:00Z".to_owned(), 5, FireState::Skipped, Some(Reason::Paused)),
        one("2026-05-01T06:00:00Z", FireState::Waiting, None),
    ];
    assert_eq!(told(&due), expected);
}

#[test]
fn jitter_follows_from_the_fire_and_stays_within_its_bound() {
    let jittered = PipelineSchedule { jitter_seconds: 30, overlap: Overlap::AllowAll, ..every(60) };
    let mut seen = std::collections::BTreeSet::new();
    for minute in 1..200 {
        let slot = at("2026-01-01T00:00:00Z").plus_seconds(minute * 60);
        let (first, again) = (jittered.fire_id(slot).jitter_ms(30), jittered.clone().fire_id(slot).jitter_ms(30));
        assert_eq!(first, again);
        assert!((0..=30_000).contains(&first));
        seen.insert(first / 3_000);
    }
    assert!(seen.len() >= 9, "{seen:?}");
    let now = due(&jittered, after("2026-05-01T00:00:00Z"), at("2026-05-01T00:01:00Z"));
    assert_eq!(
        now.fires[0].start_at,
        at("2026-05-01T00:01:00Z").plus_ms(jittered.fire_id(now.fires[0].at).jitter_ms(30))
    );
}

#[test]
fn a_fire_is_named_by_pipeline_tenant_and_time_and_names_one_run() {
    let slot = at("2026-05-01T09:00:00Z");
    let pipeline = PipelineSchedule {
        fires: Trigger::Pipeline {
            pipeline_id: PipelineId::new("veritas.weekly_briefing_pack").unwrap(),
            pipeline_semver: "1.0.0".to_owned(),
            input: json!({}),
        },
        ..every(60)
    };
    assert_eq!(pipeline.fire_id(slot).as_str(), "veritas.weekly_briefing_pack/acme/2026-05-01T09:00:00Z");
    // Another schedule of the same pipeline names the same fire.
    let other = PipelineSchedule { schedule_id: ScheduleId::new("t").unwrap(), ..pipeline.clone() };
    assert_eq!(other.fire_id(slot).run_id(), pipeline.fire_id(slot).run_id());
    let elsewhere = PipelineSchedule { tenant_id: TenantId::new("globex").unwrap(), ..pipeline.clone() };
    assert_ne!(elsewhere.fire_id(slot).run_id(), pipeline.fire_id(slot).run_id());
    assert_ne!(pipeline.fire_id(slot.plus_ms(1)).run_id(), pipeline.fire_id(slot).run_id());
    assert_ne!(every(60).fire_id(slot).run_id(), pipeline.fire_id(slot).run_id());
}

fn timings() -> impl Strategy<Value = PipelineSchedule> {
    let timing = prop_oneof![
        (1_u64..5_000).prop_map(|seconds| Timing::Interval { seconds }),
        prop::sample::select(vec![
            "*/7 * * * *",
            "30 2 * * *",
            "0 * * * *",
            "15 1,2 * * *",
            "@daily",
            "59 23 28-31 * *"
        ])
        .prop_map(|expression| Timing::Cron { expression: expression.to_owned() }),
        (0_usize..7, 0_u8..24, 0_u8..60).prop_map(|(day, hour, minute)| Timing::Weekly {
            weekday: Weekday::ALL[day],
            hour,
            minute
        }),
    ];
    let zones =
        prop::sample::select(vec!["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia"]);
    let overlap = prop::sample::select(Overlap::ALL.to_vec());
    let misfire = prop::sample::select(Misfire::ALL.to_vec());
    let catch_up = (1_u64..100_000, 1_u32..=100).prop_map(|(window_seconds, count)| CatchUp { window_seconds, count });
    (timing, zones, overlap, misfire, catch_up).prop_map(|(timing, zone, overlap, misfire, catch_up)| {
        PipelineSchedule { overlap, misfire, catch_up, ..schedule(timing, zone) }
    })
}

proptest! {
    #[test]
    fn a_stretch_has_the_slots_that_are_found_one_at_a_time(known in timings(), from in 0_i64..300 * 86_400, span in 1_i64..4 * 86_400) {
        let from = at("2026-01-02T00:00:00Z").plus_seconds(from);
        let until = from.plus_seconds(span.min(match &known.timing { Timing::Interval { seconds } => *seconds as i64 * 200, Timing::Weekly { .. } | Timing::Cron { .. } => span }));
        let stretch = slots(&known, from, until);
        let listed: Vec<UnixMs> = (0..stretch.len()).filter_map(|index| stretch.at(index)).collect();
        let mut expected = Vec::new();
        let mut after = from;
        while let Some(slot) = next_fire_for(&known, after).filter(|slot| *slot <= until) {
            prop_assert!(slot > after);
            expected.push(slot);
            after = slot;
        }
        prop_assert_eq!(listed, expected);
    }

    #[test]
    fn however_often_and_late_it_is_looked_each_slot_is_dealt_with_once_and_in_order(
        known in timings(),
        looks in prop::collection::vec((1_i64..40_000, 0_usize..2), 1..30),
    ) {
        let mut now = at("2026-03-27T00:00:00Z");
        let known = PipelineSchedule { since_unix_ms: now, ..known };
        let (since, mut considered, mut dealt_with) = (now, None, 0_u64);
        let mut buffered: Vec<UnixMs> = Vec::new();
        let mut last = since;
        for (later, running) in looks {
            now = now.plus_seconds(later);
            let standing = Standing { considered_until: considered, waiting: &[], running, buffered: &buffered };
            let due = due(&known, standing, now);
            prop_assert!(due.fires.iter().filter(|fire| fire.state == FireState::Waiting).count() <= 160);
            for fire in &due.fires {
                prop_assert!(fire.at > last && fire.through >= fire.at && fire.through <= now);
                last = fire.through;
                dealt_with += fire.slots;
            }
            buffered.retain(|slot| !due.released.contains(slot) && !due.overtaken.contains(slot));
            buffered.extend(due.fires.iter().filter(|fire| fire.state == FireState::Buffered).map(|fire| fire.at));
            prop_assert!(buffered.len() <= 100 && buffered.is_sorted());
            // A busy schedule starts nothing beside the run, unless it says so.
            if running > 0 && matches!(known.overlap, Overlap::Skip | Overlap::BufferOne | Overlap::BufferAll) {
                prop_assert!(due.released.is_empty() && due.fires.iter().all(|fire| fire.state != FireState::Waiting));
            }
            considered = due.considered_until.or(considered);
            prop_assert!(due.look_at.is_none_or(|look| look > now));
        }
        prop_assert_eq!(dealt_with, slots(&known, since, now).len() as u64);
    }
}
