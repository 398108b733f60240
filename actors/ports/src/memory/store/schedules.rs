//! Fires of schedules.

use async_trait::async_trait;
use signalbox_domain::governance::change::GovernanceChange;
use signalbox_domain::pipeline::schedule::{FireState, NewFire, Reason};
use signalbox_domain::time::UnixMs;

use super::{MemoryStore, State};
use crate::journal::StoreError;
use crate::schedules::{
    Advance, FIRES_FORGOTTEN_MAX, FIRES_KEPT_MS, FIRES_MAX, Fire, FireFilter, FiresOf, HELD_FOR_MS, Noted, Record,
    STARTED_LOOKED_AT, ScheduleKey, Schedules,
};

#[async_trait]
impl Schedules for MemoryStore {
    async fn record(&self, schedule: &ScheduleKey) -> Result<Record, StoreError> {
        let now = self.now().ms();
        let state = self.state()?;
        let (version, considered_until) = state.schedules.get(schedule).copied().unwrap_or_default();
        let own = || state.fires.iter().filter(|fire| fire.schedule == *schedule);
        let waits = |fire: &&Fire| matches!(fire.state, FireState::Waiting | FireState::Buffered);
        let mut open: Vec<Fire> = own().filter(waits).cloned().collect();
        let mut started: Vec<_> = own().filter(|fire| fire.state == FireState::Started).collect();
        started.sort_by_key(|fire| std::cmp::Reverse(fire.last_at));
        let runs_on = |fire: &&&Fire| {
            let key = fire.run_id.and_then(|run| state.by_public_id.get(&(schedule.tenant_id.clone(), run)));
            key.and_then(|key| state.runs.get(key)).is_some_and(|run| !run.projection.status.is_terminal())
        };
        open.extend(started.iter().take(STARTED_LOOKED_AT).filter(runs_on).map(|fire| (*fire).clone()));
        open.sort_by_key(|fire| fire.at);
        Ok(Record { version, considered_until, open, now })
    }

    async fn advance(&self, advance: Advance) -> Result<bool, StoreError> {
        let now = self.now().ms();
        let mut state = self.state()?;
        let entry = state.schedules.entry(advance.schedule.clone()).or_default();
        if entry.0 != advance.version {
            return Ok(false);
        }
        *entry = (entry.0 + 1, advance.considered_until.or(entry.1));
        for fire in &mut state.fires {
            if fire.schedule != advance.schedule || fire.through != fire.at {
                continue;
            }
            if fire.state == FireState::Buffered && advance.released.contains(&fire.at) {
                (fire.state, fire.next_at) = (FireState::Waiting, now);
            }
            let waits = matches!(fire.state, FireState::Waiting | FireState::Buffered);
            if waits && advance.overtaken.contains(&fire.at) {
                (fire.state, fire.reason) = (FireState::Skipped, Some(Reason::Overtaken));
            }
        }
        for new in &advance.fires {
            if !state.fires.iter().any(|known| is(known, &advance.schedule, new)) {
                let fire = fresh(&advance.schedule, new, now);
                state.fires.push(fire);
            }
        }
        Ok(true)
    }

    async fn claim_fires(&self, limit: usize) -> Result<Vec<Fire>, StoreError> {
        let now = self.now().ms();
        let mut state = self.state()?;
        let mut due: Vec<&mut Fire> =
            state.fires.iter_mut().filter(|fire| fire.state == FireState::Waiting && fire.next_at <= now).collect();
        due.sort_by_key(|fire| fire.next_at);
        let claim = |fire: &mut Fire| {
            (fire.attempts, fire.next_at, fire.last_at) = (fire.attempts + 1, now.plus_ms(HELD_FOR_MS), Some(now));
            fire.clone()
        };
        Ok(due.into_iter().take(limit.min(FIRES_MAX)).map(claim).collect())
    }

    async fn note_fire(&self, claimed: &Fire, noted: Noted) -> Result<bool, StoreError> {
        let mut state = self.state()?;
        let held = state.fires.iter_mut().find(|fire| {
            (&fire.schedule, fire.at, fire.through, fire.state, fire.next_at)
                == (&claimed.schedule, claimed.at, claimed.through, FireState::Waiting, claimed.next_at)
        });
        let Some(fire) = held else { return Ok(false) };
        fire.state = noted.state;
        (fire.reason, fire.details, fire.run_id) = (noted.reason, noted.details, noted.run_id);
        (fire.attempts, fire.next_at) = (noted.attempts, noted.next_at);
        Ok(true)
    }

    async fn fires(&self, filter: &FireFilter) -> Result<Vec<Fire>, StoreError> {
        let state = self.state()?;
        let wanted = |fire: &&Fire| {
            fire.schedule.tenant_id == filter.tenant_id
                && filter.schedule_id.as_ref().is_none_or(|id| *id == fire.schedule.schedule_id)
                && filter.state.is_none_or(|state| state == fire.state)
        };
        let mut fires: Vec<Fire> = state.fires.iter().filter(wanted).cloned().collect();
        fires.sort_by(|a, b| (b.at, &b.schedule, b.through).cmp(&(a.at, &a.schedule, a.through)));
        fires.truncate(filter.limit.min(FIRES_MAX));
        Ok(fires)
    }

    async fn fire(&self, schedule: &ScheduleKey, at: UnixMs) -> Result<Option<Fire>, StoreError> {
        let state = self.state()?;
        let own = |fire: &&Fire| fire.schedule == *schedule && (fire.at, fire.through) == (at, at);
        Ok(state.fires.iter().find(own).cloned())
    }

    async fn forget_fires(&self) -> Result<usize, StoreError> {
        let before = self.now().ms().plus_ms(-FIRES_KEPT_MS);
        let mut state = self.state()?;
        let mut left = FIRES_FORGOTTEN_MAX;
        let were = state.fires.len();
        state.fires.retain(|fire| {
            let goes = !matches!(fire.state, FireState::Waiting | FireState::Buffered) && fire.recorded_at < before;
            let goes = goes && left > 0;
            left -= usize::from(goes);
            !goes
        });
        Ok(were - state.fires.len())
    }
}

impl State {
    /// Fires that an act records.
    pub(super) fn put_fires(&mut self, of: &FiresOf, now: UnixMs) {
        for new in &of.fires {
            match self.fires.iter_mut().find(|known| is(known, &of.schedule, new)) {
                Some(known) if known.state.may_fire_again() => *known = fresh(&of.schedule, new, now),
                Some(_) => {}
                None => self.fires.push(fresh(&of.schedule, new, now)),
            }
        }
    }

    /// What a governance change means for fires.
    pub(super) fn follow_schedule(&mut self, change: &GovernanceChange) {
        let GovernanceChange::ScheduleRemoved { tenant_id, schedule_id } = change else { return };
        let key = ScheduleKey { tenant_id: tenant_id.clone(), schedule_id: schedule_id.clone() };
        self.schedules.remove(&key);
        for fire in self.fires.iter_mut().filter(|fire| fire.schedule == key) {
            if matches!(fire.state, FireState::Waiting | FireState::Buffered) {
                (fire.state, fire.reason) = (FireState::Skipped, Some(Reason::Removed));
            }
        }
    }
}

fn is(known: &Fire, schedule: &ScheduleKey, new: &NewFire) -> bool {
    (&known.schedule, known.at, known.through) == (schedule, new.at, new.through)
}

fn fresh(schedule: &ScheduleKey, new: &NewFire, now: UnixMs) -> Fire {
    Fire {
        schedule: schedule.clone(),
        at: new.at,
        through: new.through,
        slots: new.slots,
        state: new.state,
        reason: new.reason,
        details: None,
        run_id: None,
        attempts: 0,
        next_at: new.start_at,
        recorded_at: now,
        last_at: None,
    }
}
