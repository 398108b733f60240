//! Managing schedules: who may put which, and what a wish comes to.

use super::timing::{self, TimingError};
use super::{
    BUFFERED_MAX, CATCH_UP_COUNT_MAX, CATCH_UP_SECONDS_MAX, CatchUp, FireState, JITTER_SECONDS_MAX, Misfire, NewFire,
    Overlap, Owner, Pause, PipelineSchedule, Timing, Trigger, TriggerDenial, next_fire_for,
};
use crate::governance::budgeting::Expected;
use crate::governance::change::GovernanceState;
use crate::governance::kill_switch::SWITCH_TEXT_BYTES_MAX;
use crate::identity::{Action, Caller, Reach, reach};
use crate::ids::ScheduleId;
use crate::run::event::ControlKind;
use crate::time::UnixMs;

/// Most schedules of one tenant.
pub const SCHEDULES_PER_TENANT_MAX: usize = 100;
/// Most schedules over all tenants: every node keeps them in memory.
pub const SCHEDULES_MAX: usize = 2_000;
/// Most slots that are filled in after the fact at once.
pub const BACKFILL_MAX: usize = BUFFERED_MAX;

/// A schedule as somebody wants it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutSchedule {
    /// Its id.
    pub schedule_id: ScheduleId,
    /// What it fires.
    pub fires: Trigger,
    /// When.
    pub timing: Timing,
    /// In which zone.
    pub timezone: String,
    /// From when on; absent: from now, or as it was.
    pub start_at: Option<UnixMs>,
    /// Until when.
    pub end_at: Option<UnixMs>,
    /// What is done about missed slots.
    pub misfire: Misfire,
    /// How much of what was missed is made up for.
    pub catch_up: CatchUp,
    /// What is done about slots that come too soon.
    pub overlap: Overlap,
    /// How much later than its slot a fire may begin.
    pub jitter_seconds: u64,
    /// Why.
    pub reason: String,
    /// The revision the caller has seen.
    pub expected: Expected,
}

/// Why a schedule is not put, changed or looked at.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleDenial {
    /// Its times are none.
    #[error(transparent)]
    Timing(#[from] TimingError),
    /// What it fires is nothing.
    #[error(transparent)]
    Trigger(#[from] TriggerDenial),
    /// It has no slot at all, or none from now on.
    #[error("the schedule never fires: there is no slot from now on")]
    NeverFires,
    /// It would be over before it begins.
    #[error("`endAt` is not after `startAt`")]
    EndsBeforeStart,
    /// A bound that makes no sense.
    #[error("`{0}` is {1}")]
    BadBound(&'static str, &'static str),
    /// The role does not cover it.
    #[error("{0}")]
    NotAuthorized(String),
    /// No reason, or one that is too long.
    #[error("`reason` must say why, in at most {SWITCH_TEXT_BYTES_MAX} bytes")]
    BadReason,
    /// No schedule of this id that the caller may see.
    #[error("there is no schedule `{0}`")]
    NoSuchSchedule(String),
    /// Somebody else has changed it since.
    #[error("the schedule is at revision {actual}, and you have seen {expected}; look at it again")]
    StaleRevision {
        /// What the caller has seen.
        expected: u64,
        /// What it is.
        actual: u64,
    },
    /// It was to be a new one.
    #[error("the schedule `{0}` exists already")]
    Exists(ScheduleId),
    /// There are so many already.
    #[error("there are {0} schedules already; remove some first")]
    TooMany(usize),
    /// The stretch to be filled in is none, or has too many slots or none.
    #[error("{0}")]
    BadBackfill(String),
    /// No fire of this slot that could be tried again.
    #[error("the schedule `{0}` has no dead letter of that slot")]
    NoDeadLetter(ScheduleId),
}

impl ScheduleDenial {
    /// Stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Timing(error) => error.code(),
            Self::Trigger(error) => error.code(),
            Self::NeverFires => "schedule-never-fires",
            Self::EndsBeforeStart => "schedule-ends-before-start",
            Self::BadBound(..) => "schedule-bound-invalid",
            Self::NotAuthorized(_) => "not-authorized",
            Self::BadReason => "reason-required",
            Self::NoSuchSchedule(_) => "no-such-schedule",
            Self::StaleRevision { .. } => "stale-revision",
            Self::Exists(_) => "schedule-exists",
            Self::TooMany(_) => "too-many-schedules",
            Self::BadBackfill(_) => "backfill-invalid",
            Self::NoDeadLetter(_) => "no-such-dead-letter",
        }
    }
}

/// What a wish comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Putting {
    /// The schedule as it is to be from now on.
    Put(PipelineSchedule),
    /// It is like that already.
    Unchanged(PipelineSchedule),
}

/// Decides on creating or changing a schedule of the caller's tenant. Whoever puts it is who it fires as from then on.
pub fn put(
    wish: PutSchedule,
    by: &Caller,
    state: &GovernanceState,
    revision: u64,
    now: UnixMs,
) -> Result<Putting, ScheduleDenial> {
    may_fire(by, wish.overlap)?;
    check_reason(&wish.reason)?;
    check_bounds(&wish)?;
    timing::read(&wish.timing, &wish.timezone)?;
    let known = state.schedules.iter().find(|known| is(known, by, &wish.schedule_id));
    match (known, wish.expected) {
        // Somebody else's is as absent as none, and its id is taken.
        (Some(_), Expected::None) => return Err(ScheduleDenial::Exists(wish.schedule_id)),
        (Some(known), _) if !may_see(by, known) => return Err(ScheduleDenial::Exists(wish.schedule_id)),
        (Some(_), expected) => check_revision(expected, revision)?,
        (None, Expected::Revision(expected)) => return Err(ScheduleDenial::StaleRevision { expected, actual: 0 }),
        (None, Expected::Any | Expected::None) => {
            let own = state.schedules.iter().filter(|known| known.tenant_id == by.tenant_id).count();
            if own >= SCHEDULES_PER_TENANT_MAX {
                return Err(ScheduleDenial::TooMany(SCHEDULES_PER_TENANT_MAX));
            }
            if state.schedules.len() >= SCHEDULES_MAX {
                return Err(ScheduleDenial::TooMany(SCHEDULES_MAX));
            }
        }
    }
    let start_at = wish.start_at.or(known.map(|known| known.start_at_unix_ms)).unwrap_or(now);
    if wish.end_at.is_some_and(|end| end <= start_at) {
        return Err(ScheduleDenial::EndsBeforeStart);
    }
    wish.fires.check(now)?;
    let schedule = PipelineSchedule {
        schedule_id: wish.schedule_id,
        tenant_id: by.tenant_id.clone(),
        owner: Owner { actor: by.actor.clone(), scopes: by.scopes.clone() },
        fires: wish.fires,
        timing: wish.timing,
        timezone: wish.timezone,
        start_at_unix_ms: start_at,
        end_at_unix_ms: wish.end_at,
        misfire: wish.misfire,
        catch_up: wish.catch_up,
        overlap: wish.overlap,
        jitter_seconds: wish.jitter_seconds,
        pause: known.and_then(|known| known.pause.clone()),
        since_unix_ms: known.map_or(now, |known| known.since_unix_ms),
    };
    if known == Some(&schedule) {
        return Ok(Putting::Unchanged(schedule));
    }
    // Slots of the times it had are not slots of those it has from now on.
    let retimed = known.is_some_and(|known| times(known) != times(&schedule));
    let since_unix_ms = if retimed { now } else { schedule.since_unix_ms };
    let schedule = PipelineSchedule { since_unix_ms, ..schedule };
    match next_fire_for(&schedule, now) {
        Some(_) => Ok(Putting::Put(schedule)),
        None => Err(ScheduleDenial::NeverFires),
    }
}

/// Decides on removing a schedule; answers it as it was.
pub fn remove(
    id: &ScheduleId,
    reason: &str,
    expected: Expected,
    by: &Caller,
    state: &GovernanceState,
    revision: u64,
) -> Result<PipelineSchedule, ScheduleDenial> {
    let schedule = find(id, by, state)?;
    check_reason(reason)?;
    check_revision(expected, revision)?;
    Ok(schedule.clone())
}

/// Decides on pausing a schedule (`paused`), or letting it go on.
pub fn set_paused(
    id: &ScheduleId,
    paused: bool,
    reason: &str,
    expected: Expected,
    by: &Caller,
    state: &GovernanceState,
    (revision, now): (u64, UnixMs),
) -> Result<Putting, ScheduleDenial> {
    let schedule = find(id, by, state)?;
    check_reason(reason)?;
    check_revision(expected, revision)?;
    let mut changed = schedule.clone();
    match (&mut changed.pause, paused) {
        (Some(Pause { until_unix_ms: None, .. }), true) => return Ok(Putting::Unchanged(changed)),
        (Some(pause), false) if pause.until_unix_ms.is_none() => pause.until_unix_ms = Some(now),
        (_, false) => return Ok(Putting::Unchanged(changed)),
        (pause, true) => {
            let (by, reason) = (by.actor.actor_id.clone(), reason.to_owned());
            *pause = Some(Pause { by, reason, from_unix_ms: now, until_unix_ms: None });
        }
    }
    Ok(Putting::Put(changed))
}

/// Decides on filling in slots after the fact, from one instant to another, both included: their fires begin one after the
/// other, or with `at_once` all now. A slot that has its run keeps it.
pub fn backfill(
    id: &ScheduleId,
    (from, to): (UnixMs, UnixMs),
    at_once: bool,
    reason: &str,
    by: &Caller,
    state: &GovernanceState,
    now: UnixMs,
) -> Result<(PipelineSchedule, Vec<NewFire>), ScheduleDenial> {
    let bad = |problem: String| Err(ScheduleDenial::BadBackfill(problem));
    let schedule = find(id, by, state)?;
    check_reason(reason)?;
    if to < from {
        return bad("`to` is before `from`".to_owned());
    }
    if to > now {
        return bad("`to` is in the future; slots to come fire by themselves".to_owned());
    }
    let days = i64::try_from(CATCH_UP_SECONDS_MAX).unwrap_or(i64::MAX).saturating_mul(12);
    if to.since(from) > days.saturating_mul(1_000) {
        return bad("the stretch is longer than 372 days; fill in less at once".to_owned());
    }
    // What the schedule would have named had it been there all the time, and from its very first slot.
    let (since_unix_ms, start) = (UnixMs(i64::MIN), from.plus_ms(-1));
    let timeless = PipelineSchedule { since_unix_ms, ..schedule.clone() };
    // Counted before they are listed: a minutely schedule has half a million in a year.
    let mut fires = Vec::new();
    let mut after = start;
    while let Some(at) = next_fire_for(&timeless, after).filter(|at| *at <= to) {
        if fires.len() == BACKFILL_MAX {
            return bad(format!("the stretch has more than {BACKFILL_MAX} slots; fill in less at once"));
        }
        let state = if at_once { FireState::Waiting } else { FireState::Buffered };
        fires.push(NewFire { at, through: at, slots: 1, state, reason: None, start_at: now });
        after = at;
    }
    if fires.is_empty() {
        return bad("the schedule has no slot in that stretch".to_owned());
    }
    Ok((schedule.clone(), fires))
}

/// Decides on trying a dead letter again.
pub fn redrive(
    id: &ScheduleId,
    at: UnixMs,
    is_dead: bool,
    reason: &str,
    by: &Caller,
    state: &GovernanceState,
    now: UnixMs,
) -> Result<(PipelineSchedule, NewFire), ScheduleDenial> {
    let schedule = find(id, by, state)?;
    check_reason(reason)?;
    if !is_dead {
        return Err(ScheduleDenial::NoDeadLetter(id.clone()));
    }
    let fire = NewFire { at, through: at, slots: 1, state: FireState::Waiting, reason: None, start_at: now };
    Ok((schedule.clone(), fire))
}

/// The next slots of a schedule, with the instants at which their fires begin; of one that was put later, those it would have
/// had from its start on.
pub fn preview(schedule: &PipelineSchedule, after: UnixMs, count: usize) -> Vec<(UnixMs, UnixMs)> {
    let timeless = PipelineSchedule { since_unix_ms: UnixMs(i64::MIN), ..schedule.clone() };
    let mut next = after;
    let mut found = Vec::new();
    while let Some(at) = next_fire_for(&timeless, next).filter(|_| found.len() < count) {
        found.push((at, at.plus_ms(schedule.fire_id(at).jitter_ms(schedule.jitter_seconds))));
        next = at;
    }
    found
}

/// A schedule that the caller may see. Somebody else's is as absent as none (I11).
pub fn find<'s>(
    id: &ScheduleId,
    by: &Caller,
    state: &'s GovernanceState,
) -> Result<&'s PipelineSchedule, ScheduleDenial> {
    let known = state.schedules.iter().find(|known| is(known, by, id) && may_see(by, known));
    known.ok_or_else(|| ScheduleDenial::NoSuchSchedule(id.to_string()))
}

/// True if the caller may see and manage this schedule: one of its tenant, and its own unless it is an operator there.
pub fn may_see(by: &Caller, schedule: &PipelineSchedule) -> bool {
    schedule.tenant_id == by.tenant_id
        && match reach(by.actor.role, Action::ReadRuns) {
            Reach::Nothing => false,
            Reach::Own => schedule.owner.actor.actor_id == by.actor.actor_id,
            Reach::Tenant | Reach::Platform => true,
        }
}

fn is(known: &PipelineSchedule, by: &Caller, id: &ScheduleId) -> bool {
    known.tenant_id == by.tenant_id && known.schedule_id == *id
}

fn times(schedule: &PipelineSchedule) -> (&Timing, &str, UnixMs) {
    (&schedule.timing, &schedule.timezone, schedule.start_at_unix_ms)
}

/// A schedule does nothing that whoever puts it could not do by hand.
fn may_fire(by: &Caller, overlap: Overlap) -> Result<(), ScheduleDenial> {
    let needed = match overlap {
        Overlap::CancelOther => &[Action::Submit, Action::Steer(ControlKind::Cancel)][..],
        Overlap::KillOther => &[Action::Submit, Action::Steer(ControlKind::Kill)][..],
        Overlap::Skip | Overlap::BufferOne | Overlap::BufferAll | Overlap::AllowAll => &[Action::Submit][..],
    };
    match needed.iter().find(|action| reach(by.actor.role, **action) == Reach::Nothing) {
        None => Ok(()),
        Some(action) => {
            let (role, action) = (by.actor.role.as_str(), action.as_str());
            Err(ScheduleDenial::NotAuthorized(format!("a {role} may not {action}, so no schedule may in its name")))
        }
    }
}

fn check_bounds(wish: &PutSchedule) -> Result<(), ScheduleDenial> {
    if wish.jitter_seconds > JITTER_SECONDS_MAX {
        return Err(ScheduleDenial::BadBound("jitterSeconds", "at most 3600"));
    }
    if !(1..=CATCH_UP_SECONDS_MAX).contains(&wish.catch_up.window_seconds) {
        return Err(ScheduleDenial::BadBound("catchUpWindowSeconds", "1 to 2678400: at most 31 days"));
    }
    if !(1..=CATCH_UP_COUNT_MAX).contains(&wish.catch_up.count) {
        return Err(ScheduleDenial::BadBound("catchUpCount", "1 to 100"));
    }
    Ok(())
}

fn check_reason(reason: &str) -> Result<(), ScheduleDenial> {
    if reason.trim().is_empty() || reason.len() > SWITCH_TEXT_BYTES_MAX {
        return Err(ScheduleDenial::BadReason);
    }
    Ok(())
}

fn check_revision(expected: Expected, actual: u64) -> Result<(), ScheduleDenial> {
    match expected {
        Expected::Revision(expected) if expected != actual => Err(ScheduleDenial::StaleRevision { expected, actual }),
        Expected::Any | Expected::None | Expected::Revision(_) => Ok(()),
    }
}
