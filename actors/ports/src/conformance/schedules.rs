//! A schedule is moved on by one of those who try; a fire is started by one at a time, and noted by whoever holds it.

use signalbox_domain::governance::audit::{AuditBody, AuditKind, Subject};
use signalbox_domain::governance::change::GovernanceChange;
use signalbox_domain::identity::{Actor, Role};
use signalbox_domain::ids::ScheduleId;
use signalbox_domain::pipeline::schedule::{FireState, NewFire, Reason};
use signalbox_domain::run::append::{Entry, RunProjection};
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::time::UnixMs;
use tokio::task::JoinSet;

use super::world::*;
use crate::acts::{Act, Acted, Effect};
use crate::clock::Clock;
use crate::schedules::{Advance, FIRES_KEPT_MS, Fire, FireFilter, FiresOf, HELD_FOR_MS, Noted, ScheduleKey};

fn key(tenant_name: &str, id: &str) -> ScheduleKey {
    ScheduleKey { tenant_id: tenant(tenant_name), schedule_id: ScheduleId::new(id).unwrap() }
}

fn fire_of(at: i64, state: FireState, start_at: UnixMs) -> NewFire {
    let reason = (state == FireState::Skipped).then_some(Reason::Overlap);
    NewFire { at: UnixMs(at), through: UnixMs(at), slots: 1, state, reason, start_at }
}

fn advance(schedule: &ScheduleKey, version: u64, fires: Vec<NewFire>) -> Advance {
    let considered_until = fires.iter().map(|fire| fire.through).max();
    let (released, overtaken) = (Vec::new(), Vec::new());
    Advance { schedule: schedule.clone(), version, considered_until, fires, released, overtaken }
}

fn noted(fire: &Fire, state: FireState) -> Noted {
    Noted { state, reason: None, details: None, run_id: None, attempts: fire.attempts, next_at: fire.next_at }
}

impl Fixture {
    async fn acts_on(&self, kind: AuditKind, effect: Effect) {
        let act = Act {
            expected_seq: self.acts.audit_head().await.unwrap().seq,
            expected_epoch: self.governance.epoch().await.unwrap().1,
            tenant_id: Some(tenant("acme")),
            actor: Actor { actor_id: operator(), role: Role::PlatformOperator },
            kind,
            subject: Subject::schedule(&tenant("acme"), &"s"),
            body: AuditBody { reason: "because".into(), ..AuditBody::default() },
            effect,
        };
        assert!(matches!(self.acts.act(act).await.unwrap(), Acted::Done(_)));
    }

    async fn all(&self, state: Option<FireState>) -> Vec<Fire> {
        let filter = FireFilter { tenant_id: tenant("acme"), schedule_id: None, state, limit: 1_000 };
        self.schedules.fires(&filter).await.unwrap()
    }
}

pub async fn of_several_that_move_a_schedule_on_at_once_exactly_one_does(f: &Fixture) {
    let (s, now) = (key("acme", "s"), f.clock.now());
    let record = f.schedules.record(&s).await.unwrap();
    assert_eq!((record.version, record.considered_until, record.open.len(), record.now), (0, None, 0, now));
    for version in 0..5 {
        let at = 1_000 + i64::try_from(version).unwrap();
        let mut tries = JoinSet::new();
        for _ in 0..6 {
            let (schedules, one) =
                (f.schedules.clone(), advance(&s, version, vec![fire_of(at, FireState::Waiting, now)]));
            tries.spawn(async move { schedules.advance(one).await.unwrap() });
        }
        assert_eq!(tries.join_all().await.into_iter().filter(|moved| *moved).count(), 1);
    }
    assert_eq!(f.all(None).await.len(), 5);
    let record = f.schedules.record(&s).await.unwrap();
    assert_eq!((record.version, record.considered_until, record.open.len()), (5, Some(UnixMs(1_004)), 5));
    // An advance without slots forgets none.
    assert!(f.schedules.advance(advance(&s, 5, Vec::new())).await.unwrap());
    assert_eq!(f.schedules.record(&s).await.unwrap().considered_until, Some(UnixMs(1_004)));
    // Another tenant's schedule of the same name is another.
    assert_eq!(f.schedules.record(&key("globex", "s")).await.unwrap().version, 0);
}

pub async fn a_due_fire_is_held_by_one_and_is_free_again_after_a_while(f: &Fixture) {
    let (s, now) = (key("acme", "s"), f.clock.now());
    let fires = vec![
        fire_of(1, FireState::Waiting, now),
        fire_of(2, FireState::Waiting, now.plus_ms(5_000)),
        fire_of(3, FireState::Buffered, now),
        fire_of(4, FireState::Skipped, now),
    ];
    assert!(f.schedules.advance(advance(&s, 0, fires)).await.unwrap());
    let mut tries = JoinSet::new();
    for _ in 0..6 {
        let schedules = f.schedules.clone();
        tries.spawn(async move { schedules.claim_fires(10).await.unwrap() });
    }
    let mut claimed: Vec<Fire> = tries.join_all().await.into_iter().flatten().collect();
    assert_eq!(claimed.len(), 1, "{claimed:?}");
    let held = claimed.remove(0);
    assert_eq!((held.at, held.attempts, held.next_at), (UnixMs(1), 1, now.plus_ms(HELD_FOR_MS)));
    f.clock.advance_ms(5_000);
    assert_eq!(f.schedules.claim_fires(10).await.unwrap()[0].at, UnixMs(2));
    f.clock.advance_ms(u64::try_from(HELD_FOR_MS).unwrap());
    let again = f.schedules.claim_fires(10).await.unwrap();
    assert_eq!(again.iter().map(|fire| (fire.at.0, fire.attempts)).collect::<Vec<_>>(), [(1, 2), (2, 2)]);
    // Whoever held it first notes nothing any more.
    assert!(!f.schedules.note_fire(&held, noted(&held, FireState::Dead)).await.unwrap());
    let run_id = Some(new_run("acme", 1).run_id);
    let started = Noted { run_id, details: Some("ä\u{0}".to_owned()), ..noted(&again[0], FireState::Started) };
    assert!(f.schedules.note_fire(&again[0], started.clone()).await.unwrap());
    assert!(!f.schedules.note_fire(&again[0], started).await.unwrap());
    let fire = f.schedules.fire(&s, UnixMs(1)).await.unwrap().unwrap();
    assert_eq!((fire.state, fire.run_id, fire.details.as_deref()), (FireState::Started, run_id, Some("ä\u{0}")));
    assert_eq!(f.schedules.fire(&s, UnixMs(9)).await.unwrap(), None);
    assert_eq!(f.all(Some(FireState::Skipped)).await[0].reason, Some(Reason::Overlap));
}

pub async fn a_started_fire_is_open_as_long_as_its_run_is_not_over(f: &Fixture) {
    let (s, now) = (key("acme", "s"), f.clock.now());
    assert!(f.schedules.advance(advance(&s, 0, vec![fire_of(1, FireState::Waiting, now)])).await.unwrap());
    let held = f.schedules.claim_fires(1).await.unwrap().remove(0);
    let head = f.run(1).await;
    let started = Noted { run_id: Some(head.run_id), ..noted(&held, FireState::Started) };
    assert!(f.schedules.note_fire(&held, started).await.unwrap());
    assert_eq!(f.schedules.record(&s).await.unwrap().open.len(), 1);
    let over = RunProjection { status: RunStatus::Completed, ..projection() };
    f.append(Entry { projection: Some(over), ..saying(&head, "over") }).await.unwrap();
    assert_eq!(f.schedules.record(&s).await.unwrap().open, []);
}

pub async fn what_waits_is_released_or_overtaken_with_the_advance(f: &Fixture) {
    let (s, now) = (key("acme", "s"), f.clock.now());
    let fires = vec![fire_of(1, FireState::Buffered, now), fire_of(2, FireState::Waiting, now)];
    assert!(f.schedules.advance(advance(&s, 0, fires)).await.unwrap());
    f.clock.advance_ms(10);
    let moved = Advance { released: vec![UnixMs(1)], overtaken: vec![UnixMs(2)], ..advance(&s, 1, Vec::new()) };
    // Of a record that has moved nothing follows.
    assert!(!f.schedules.advance(Advance { version: 7, ..moved.clone() }).await.unwrap());
    assert_eq!(f.all(Some(FireState::Buffered)).await.len(), 1);
    assert!(f.schedules.advance(moved).await.unwrap());
    let states: Vec<_> = f.all(None).await.into_iter().map(|fire| (fire.at.0, fire.state, fire.reason)).collect();
    assert_eq!(states, [(2, FireState::Skipped, Some(Reason::Overtaken)), (1, FireState::Waiting, None)]);
}

pub async fn an_act_lets_fires_begin_anew_but_not_those_that_have_their_run(f: &Fixture) {
    let (s, now) = (key("acme", "s"), f.clock.now());
    let fires = vec![fire_of(1, FireState::Skipped, now), fire_of(2, FireState::Waiting, now)];
    assert!(f.schedules.advance(advance(&s, 0, fires)).await.unwrap());
    let held = f.schedules.claim_fires(1).await.unwrap().remove(0);
    let started = Noted { run_id: Some(new_run("acme", 1).run_id), ..noted(&held, FireState::Started) };
    assert!(f.schedules.note_fire(&held, started).await.unwrap());
    let anew = (1..=3).map(|at| fire_of(at, FireState::Buffered, now)).collect();
    f.acts_on(AuditKind::ScheduleBackfilled, Effect::PutFires(FiresOf { schedule: s.clone(), fires: anew })).await;
    let states: Vec<_> = f.all(None).await.into_iter().map(|fire| (fire.at.0, fire.state, fire.reason)).collect();
    let expected = [(3, FireState::Buffered, None), (2, FireState::Started, None), (1, FireState::Buffered, None)];
    assert_eq!(states, expected);
}

pub async fn of_a_schedule_that_is_removed_nothing_begins_and_what_became_is_kept(f: &Fixture) {
    let (s, now) = (key("acme", "s"), f.clock.now());
    let fires = vec![fire_of(1, FireState::Waiting, now), fire_of(2, FireState::Buffered, now)];
    assert!(f.schedules.advance(advance(&s, 0, fires)).await.unwrap());
    let (tenant_id, schedule_id) = (s.tenant_id.clone(), s.schedule_id.clone());
    let removed = Effect::Change(GovernanceChange::ScheduleRemoved { tenant_id, schedule_id });
    f.acts_on(AuditKind::ScheduleRemoved, removed).await;
    assert_eq!(f.schedules.claim_fires(10).await.unwrap(), []);
    assert!(f.all(None).await.iter().all(|fire| fire.reason == Some(Reason::Removed)));
    assert_eq!(f.schedules.record(&s).await.unwrap().version, 0);
    assert_eq!(f.schedules.forget_fires().await.unwrap(), 0);
    f.clock.advance_ms(u64::try_from(FIRES_KEPT_MS).unwrap() + 1);
    assert_eq!(f.schedules.forget_fires().await.unwrap(), 2);
}
