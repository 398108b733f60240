//! Who may put which schedule, what is refused, and what stands against a fire.

use serde_json::{Value, json};
use signalbox_domain::governance::budget::{Budget, BudgetScope, Meter, MeteredBudget, OnExceeded};
use signalbox_domain::governance::budgeting::Expected;
use signalbox_domain::governance::change::{EpochChange, GovernanceChange, GovernanceState};
use signalbox_domain::governance::kill_switch::{KillSwitch, SwitchScope};
use signalbox_domain::identity::{Actor, Caller, Role};
use signalbox_domain::ids::{ActorId, BudgetId, PipelineId, ScheduleId, SwitchId, TenantId};
use signalbox_domain::pipeline::fire_run_id;
use signalbox_domain::pipeline::schedule::managing::{backfill, find, put, redrive, remove, set_paused};
use signalbox_domain::pipeline::schedule::{
    CatchUp, Firing, Misfire, Overlap, PipelineSchedule, PutSchedule, Putting, Reason, Timing, Trigger, next_fire_for,
    objection, retry_after_ms,
};
use signalbox_domain::quantity::{BudgetCategory, Micros};
use signalbox_domain::time::UnixMs;

use crate::schedules_due::at;

fn caller(actor: &str, role: Role) -> Caller {
    Caller {
        tenant_id: TenantId::new("acme").unwrap(),
        actor: Actor { actor_id: ActorId::new(actor).unwrap(), role },
        scopes: vec!["tool:memory.read".to_owned()],
        surface: "api",
    }
}

fn submission() -> Value {
    json!({"rootAgentId": "ref.drafting", "plan": [{"stepId": "s", "kind": "tool", "toolId": "memory.read", "args": {"key": "k"}}]})
}

fn wish(expression: &str) -> PutSchedule {
    PutSchedule {
        schedule_id: ScheduleId::new("s").unwrap(),
        fires: Trigger::Submission { submission: submission() },
        timing: Timing::Cron { expression: expression.to_owned() },
        timezone: "Europe/Berlin".to_owned(),
        start_at: None,
        end_at: None,
        misfire: Misfire::default(),
        catch_up: CatchUp::default(),
        overlap: Overlap::default(),
        jitter_seconds: 0,
        reason: "a test".to_owned(),
        expected: Expected::Any,
    }
}

fn now() -> UnixMs {
    at("2026-05-01T12:00:00Z")
}

fn with(state: &mut GovernanceState, schedule: &PipelineSchedule) {
    let change = GovernanceChange::SchedulePut(Box::new(schedule.clone()));
    state.apply(&EpochChange { epoch: state.epoch + 1, at_unix_ms: now(), change });
}

fn putting(wish: PutSchedule, by: &Caller, state: &GovernanceState) -> Result<PipelineSchedule, &'static str> {
    match put(wish, by, state, 1, now()) {
        Ok(Putting::Put(schedule) | Putting::Unchanged(schedule)) => Ok(schedule),
        Err(denial) => Err(denial.code()),
    }
}

#[test]
fn what_can_never_fire_or_makes_no_sense_is_refused_by_its_code() {
    let (by, none) = (caller("ada", Role::TenantOperator), GovernanceState::default());
    let refused = |wish: PutSchedule| putting(wish, &by, &none).unwrap_err();
    assert_eq!(refused(wish("0 0 30 2 *")), "schedule-never-fires");
    assert_eq!(refused(wish("0 0 31 4,6,9,11 *")), "schedule-never-fires");
    for line in
        ["", "* * * *", "* * * * * *", "* 24 * * *", "*/0 * * * *", "5-1 * * * *", "@dayly", "@reboot", "1.5 * * * *"]
    {
        assert_eq!(refused(wish(line)), "cron-invalid", "{line}");
    }
    assert_eq!(refused(wish(&"*".repeat(600))), "cron-invalid");
    for zone in ["Local", "+05:30", "America/New York", "", "Europe/Nowhere", "\u{0}"] {
        assert_eq!(refused(PutSchedule { timezone: zone.to_owned(), ..wish("@daily") }), "zone-unknown", "{zone}");
        // Also where the zone changes nothing.
        let every =
            PutSchedule { timing: Timing::Interval { seconds: 60 }, timezone: zone.to_owned(), ..wish("@daily") };
        assert_eq!(refused(every), "zone-unknown", "{zone}");
    }
    for seconds in [0, 316_224_001, u64::MAX] {
        let every = PutSchedule { timing: Timing::Interval { seconds }, ..wish("@daily") };
        assert_eq!(refused(every), "schedule-interval-invalid");
    }
    let weekly = |hour, minute| {
        let weekday = signalbox_domain::pipeline::schedule::Weekday::Friday;
        PutSchedule { timing: Timing::Weekly { weekday, hour, minute }, ..wish("@daily") }
    };
    assert_eq!((refused(weekly(24, 0)), refused(weekly(0, 60))), ("schedule-time-invalid", "schedule-time-invalid"));
    let over = PutSchedule {
        start_at: Some(at("2027-01-02T00:00:00Z")),
        end_at: Some(at("2027-01-01T00:00:00Z")),
        ..wish("@daily")
    };
    assert_eq!(refused(over), "schedule-ends-before-start");
    let past = PutSchedule {
        start_at: Some(at("2020-01-01T00:00:00Z")),
        end_at: Some(at("2021-01-01T00:00:00Z")),
        ..wish("@daily")
    };
    assert_eq!(refused(past), "schedule-never-fires");
    for (window_seconds, count) in [(0, 1), (1, 0), (1, 101), (2_678_401, 1), (u64::MAX, u32::MAX)] {
        let wild = PutSchedule { catch_up: CatchUp { window_seconds, count }, ..wish("@daily") };
        assert_eq!(refused(wild), "schedule-bound-invalid");
    }
    assert_eq!(refused(PutSchedule { jitter_seconds: 3_601, ..wish("@daily") }), "schedule-bound-invalid");
    assert_eq!(refused(PutSchedule { reason: " ".to_owned(), ..wish("@daily") }), "reason-required");
}

#[test]
fn what_is_fired_is_read_when_it_is_put_and_holds_no_secret() {
    let (by, none) = (caller("ada", Role::TenantOperator), GovernanceState::default());
    let refused = |fires: Trigger| putting(PutSchedule { fires, ..wish("@daily") }, &by, &none).unwrap_err();
    let of = |submission: Value| Trigger::Submission { submission };
    assert_eq!(refused(of(json!([]))), "json-invalid");
    assert_eq!(refused(of(json!({"rootAgentId": "ref.drafting"}))), "json-invalid");
    let mut secret = submission();
    secret["inputs"] = json!({ "password": "FAKE-hunter2-FAKE", "token": "Bearer FAKEFAKEFAKEFAKEFAKEFAKEFAKEFAKE" });
    assert_eq!(refused(of(secret)), "schedule-holds-secret");
    let mut large = submission();
    large["inputs"] = json!("x".repeat(70_000));
    assert_eq!(refused(of(large)), "schedule-too-large");
    let pipeline = |id: &str, input: Value| Trigger::Pipeline {
        pipeline_id: PipelineId::new(id).unwrap(),
        pipeline_semver: "1.0.0".to_owned(),
        input,
    };
    assert_eq!(refused(pipeline("no.such", json!({}))), "no-such-pipeline");
    for input in [json!({}), json!({"sources": []}), json!({"sources": ["a"], "more": 1}), json!("x")] {
        assert_eq!(refused(pipeline("veritas.weekly_briefing_pack", input)), "pipeline-input-invalid");
    }
}

#[test]
fn a_fire_of_a_pipeline_is_the_same_submission_each_time_it_is_made() {
    let fires = Trigger::Pipeline {
        pipeline_id: PipelineId::new("veritas.weekly_briefing_pack").unwrap(),
        pipeline_semver: "1.0.0".to_owned(),
        input: json!({"sources": ["a.md"], "since": "-7d"}),
    };
    let slot = at("2026-05-04T05:00:00Z");
    let schedule =
        putting(PutSchedule { fires, ..wish("@daily") }, &caller("ada", Role::Service), &GovernanceState::default());
    let schedule = schedule.unwrap();
    let fire_id = schedule.fire_id(slot);
    let made = schedule.fires.firing(&fire_id, slot).unwrap();
    assert_eq!(made, schedule.fires.firing(&fire_id, slot).unwrap());
    let Firing::Pipeline(order) = made else { panic!("no pipeline: {made:?}") };
    // Whoever triggers the pipeline by hand under this id gets this run.
    assert_eq!(order.fire_id.as_deref(), Some("veritas.weekly_briefing_pack/acme/2026-05-04T05:00:00Z"));
    assert_eq!(fire_run_id(&schedule.tenant_id, &order.pipeline_id, fire_id.as_str()), fire_id.run_id());
    // A week before the slot, and not before the instant it was put at.
    assert_eq!(order.input, json!({"sources": ["a.md"], "since": "2026-04-27"}));
}

#[test]
fn a_schedule_acts_as_whoever_put_it_last_and_never_wider() {
    let (ada, mut state) = (caller("ada", Role::Service), GovernanceState::default());
    let put_by_ada = putting(wish("@daily"), &ada, &state).unwrap();
    assert_eq!((put_by_ada.caller().actor, put_by_ada.caller().scopes), (ada.actor.clone(), ada.scopes.clone()));
    assert_eq!(put_by_ada.caller().surface, "schedule");
    with(&mut state, &put_by_ada);
    let olga = caller("olga", Role::TenantOperator);
    let put_by_olga = putting(wish("@daily"), &olga, &state).unwrap();
    assert_eq!(put_by_olga.caller().actor, olga.actor);
    // A customer may neither kill nor have killed.
    let customer = caller("carl", Role::Customer);
    let kills = PutSchedule { overlap: Overlap::KillOther, ..wish("@daily") };
    let allowed = putting(kills, &customer, &GovernanceState::default());
    assert_eq!(allowed.err(), Some("not-authorized"));
}

#[test]
fn somebody_elses_schedule_is_as_absent_as_none() {
    let (ada, mut state) = (caller("ada", Role::Customer), GovernanceState::default());
    let schedule = putting(wish("@daily"), &ada, &state).unwrap();
    with(&mut state, &schedule);
    let id = ScheduleId::new("s").unwrap();
    let foreign = Caller { tenant_id: TenantId::new("globex").unwrap(), ..caller("ada", Role::PlatformOperator) };
    for stranger in [caller("carl", Role::Customer), foreign] {
        let facts = (1, now());
        assert_eq!(find(&id, &stranger, &state).unwrap_err().code(), "no-such-schedule");
        assert_eq!(remove(&id, "x", Expected::Any, &stranger, &state, 1).unwrap_err().code(), "no-such-schedule");
        let paused = set_paused(&id, true, "x", Expected::Any, &stranger, &state, facts);
        assert_eq!(paused.unwrap_err().code(), "no-such-schedule");
        let filled = backfill(&id, (now(), now()), false, "x", &stranger, &state, now());
        assert_eq!(filled.unwrap_err().code(), "no-such-schedule");
        assert_eq!(redrive(&id, now(), true, "x", &stranger, &state, now()).unwrap_err().code(), "no-such-schedule");
    }
    assert!(find(&id, &caller("olga", Role::TenantOperator), &state).is_ok());
    assert_eq!(putting(wish("@daily"), &caller("carl", Role::Customer), &state), Err("schedule-exists"));
}

#[test]
fn revisions_and_doubles_are_refused_and_saying_the_same_changes_nothing() {
    let (by, mut state) = (caller("ada", Role::TenantOperator), GovernanceState::default());
    let first = PutSchedule { expected: Expected::Revision(3), ..wish("@daily") };
    assert_eq!(putting(first, &by, &state), Err("stale-revision"));
    let schedule = putting(wish("@daily"), &by, &state).unwrap();
    with(&mut state, &schedule);
    assert!(matches!(put(wish("@daily"), &by, &state, 1, now().plus_ms(5)), Ok(Putting::Unchanged(_))));
    assert_eq!(
        putting(PutSchedule { expected: Expected::None, ..wish("@daily") }, &by, &state),
        Err("schedule-exists")
    );
    let stale = PutSchedule { expected: Expected::Revision(7), ..wish("@hourly") };
    assert_eq!(putting(stale, &by, &state), Err("stale-revision"));
    // Slots of the times it had are none of those it has now.
    let Ok(Putting::Put(retimed)) = put(wish("@hourly"), &by, &state, 1, now().plus_seconds(9_000)) else { panic!() };
    assert_eq!(retimed.since_unix_ms, now().plus_seconds(9_000));
    for number in 1..100 {
        let schedule_id = ScheduleId::new(format!("s{number}")).unwrap();
        with(&mut state, &PipelineSchedule { schedule_id, ..schedule.clone() });
    }
    let more = PutSchedule { schedule_id: ScheduleId::new("one-more").unwrap(), ..wish("@daily") };
    assert_eq!(putting(more, &by, &state), Err("too-many-schedules"));
}

#[test]
fn pausing_twice_changes_nothing_and_a_pause_survives_a_put() {
    let (by, mut state) = (caller("ada", Role::TenantOperator), GovernanceState::default());
    let schedule = putting(wish("@daily"), &by, &state).unwrap();
    with(&mut state, &schedule);
    let id = ScheduleId::new("s").unwrap();
    let change = |paused, state: &GovernanceState| set_paused(&id, paused, "x", Expected::Any, &by, state, (1, now()));
    assert!(matches!(change(false, &state), Ok(Putting::Unchanged(_))));
    let Ok(Putting::Put(paused)) = change(true, &state) else { panic!() };
    with(&mut state, &paused);
    assert!(matches!(change(true, &state), Ok(Putting::Unchanged(_))));
    let changed = putting(PutSchedule { jitter_seconds: 5, ..wish("@daily") }, &by, &state).unwrap();
    assert!(changed.is_paused());
    let Ok(Putting::Put(resumed)) = change(false, &state) else { panic!() };
    assert!(!resumed.is_paused());
}

#[test]
fn filling_in_is_bounded_and_reaches_from_the_start_on() {
    let (by, mut state) = (caller("ada", Role::TenantOperator), GovernanceState::default());
    let early = PutSchedule { start_at: Some(at("2026-04-01T00:00:00Z")), ..wish("0 * * * *") };
    let schedule = putting(early, &by, &state).unwrap();
    with(&mut state, &schedule);
    let id = ScheduleId::new("s").unwrap();
    let fill = |from: &str, to: &str| backfill(&id, (at(from), at(to)), false, "x", &by, &state, now());
    let (_, fires) = fill("2026-04-30T00:00:00Z", "2026-04-30T05:00:00Z").unwrap();
    assert_eq!((fires.len(), fires[0].at), (6, at("2026-04-30T00:00:00Z")));
    for (from, to) in [
        ("2026-04-30T05:00:00Z", "2026-04-30T00:00:00Z"),
        ("2026-04-30T05:00:00Z", "2026-06-30T00:00:00Z"),
        ("2026-04-01T00:00:00Z", "2026-05-01T00:00:00Z"),
        ("2020-01-01T00:00:00Z", "2026-05-01T00:00:00Z"),
        ("2026-03-01T00:00:00Z", "2026-03-31T23:00:00Z"),
    ] {
        assert_eq!(fill(from, to).unwrap_err().code(), "backfill-invalid", "{from} {to}");
    }
    assert_eq!(next_fire_for(&schedule, at("2026-04-30T00:00:00Z")), Some(at("2026-05-01T13:00:00Z")));
}

#[test]
fn a_switch_or_a_budget_that_is_used_up_stands_against_a_fire() {
    let (by, mut state) = (caller("ada", Role::TenantOperator), GovernanceState::default());
    let schedule = putting(wish("@daily"), &by, &state).unwrap();
    assert_eq!(objection(&schedule, &state, &[], now()), None);
    let budget = |scope, key: &str, consumed| {
        let budget = Budget {
            budget_id: BudgetId::new("b").unwrap(),
            tenant_id: Some(TenantId::new("acme").unwrap()),
            scope,
            scope_key: key.to_owned(),
            category: BudgetCategory::CostUnits,
            limit: Micros::units(10),
            period_seconds: None,
            anchor_unix_seconds: 0,
            calendar: None,
            warn_ratio: Micros(800_000),
            grace_ratio: Micros::units(1),
            grace_seconds: 0,
            on_exceeded: OnExceeded::Kill,
        };
        MeteredBudget { budget, meter: Meter { consumed, ..Meter::default() } }
    };
    let stands =
        |metered| objection(&schedule, &GovernanceState::default(), &[metered], now()).map(|found| found.reason);
    for (scope, key) in [
        (BudgetScope::Tenant, "acme"),
        (BudgetScope::User, "ada"),
        (BudgetScope::Role, "tenant-operator"),
        (BudgetScope::Agent, "ref.drafting"),
    ] {
        assert_eq!(stands(budget(scope, key, Micros::units(10))), Some(Reason::BudgetExceeded), "{scope:?}");
        assert_eq!(stands(budget(scope, key, Micros::units(9))), None, "{scope:?}");
        assert_eq!(stands(budget(scope, "other", Micros::units(10))), None, "{scope:?}");
    }
    assert_eq!(stands(budget(BudgetScope::Tool, "memory.read", Micros::units(10))), None);
    for (scope, target, stops) in [
        (SwitchScope::Global, None, true),
        (SwitchScope::Tenant, Some("acme"), true),
        (SwitchScope::Tenant, Some("globex"), false),
        (SwitchScope::Agent, Some("ref.drafting"), true),
        (SwitchScope::Tool, Some("memory.read"), false),
    ] {
        state.switches = vec![KillSwitch {
            switch_id: SwitchId::new("stop").unwrap(),
            tenant_id: None,
            scope,
            target_id: target.map(str::to_owned),
            armed_by: ActorId::new("grace").unwrap(),
            armed_at_unix_ms: UnixMs(1),
            reason: "a drill".to_owned(),
            user_visible_status_copy: String::new(),
            safe_degradation_mode_id: None,
            expires_at_unix_ms: None,
            disarmed_at_unix_ms: None,
        }];
        let found = objection(&schedule, &state, &[], now()).map(|found| found.reason);
        assert_eq!(found, stops.then_some(Reason::KillSwitch), "{scope:?} {target:?}");
    }
}

#[test]
fn a_start_that_fails_is_tried_five_times_ever_later() {
    let waits: Vec<_> = (1..=5).map(retry_after_ms).collect();
    assert_eq!(waits, [Some(2_000), Some(6_000), Some(18_000), Some(54_000), None]);
}
