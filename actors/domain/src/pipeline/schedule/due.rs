//! What a schedule is due at an instant, given what has been done so far: one pure function.

use super::{BUFFERED_MAX, CATCH_UP_SECONDS_MAX, FireState, Misfire, Overlap, PipelineSchedule, Reason, Slots};
use super::{next_fire_for, slots};
use crate::time::UnixMs;

/// A slot that is considered later than this after its time was missed, in milliseconds. What a busy or a stopping node takes
/// up a moment late is not.
pub const MISSED_AFTER_MS: i64 = 60_000;
/// How soon a schedule with fires that wait for a run to end is looked at again, in milliseconds.
pub const BUFFERED_LOOK_MS: i64 = 1_000;

/// What has been done for a schedule so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Standing<'a> {
    /// Slots up to this one are dealt with; absent: none is.
    pub considered_until: Option<UnixMs>,
    /// Fires whose run is to be started, by their slots.
    pub waiting: &'a [UnixMs],
    /// Fires whose run was started and is not over.
    pub running: usize,
    /// Fires that wait for a run to end, by their slots, in order.
    pub buffered: &'a [UnixMs],
}

/// A fire to be recorded, or a stretch of slots that were skipped for one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewFire {
    /// Its slot; of a stretch, the first.
    pub at: UnixMs,
    /// The last slot of the stretch; of a fire, its slot.
    pub through: UnixMs,
    /// How many slots.
    pub slots: u64,
    /// `waiting`, `buffered` or `skipped`.
    pub state: FireState,
    /// Why, of one that is skipped.
    pub reason: Option<Reason>,
    /// When its run is to be started.
    pub start_at: UnixMs,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Due {
    /// To be recorded, in the order of their slots.
    pub fires: Vec<NewFire>,
    /// Fires that have waited for a run to end and begin now.
    pub released: Vec<UnixMs>,
    /// Fires whose run is not started any more: a later one takes their place.
    pub overtaken: Vec<UnixMs>,
    /// Slots up to this one are dealt with then; absent: as before.
    pub considered_until: Option<UnixMs>,
    /// When there is something to do next, if nothing happens meanwhile; absent: never.
    pub look_at: Option<UnixMs>,
}

impl Due {
    /// True if nothing is to be done.
    pub fn is_nothing(&self) -> bool {
        self.considered_until.is_none()
            && self.fires.is_empty()
            && self.released.is_empty()
            && self.overtaken.is_empty()
    }
}

/// What a schedule is due at `now`.
pub fn due(schedule: &PipelineSchedule, standing: Standing<'_>, now: UnixMs) -> Due {
    // Resuming says what becomes of the slots meanwhile.
    if schedule.is_paused() {
        return Due::default();
    }
    let mut deciding = Deciding::new(schedule, standing, now);
    deciding.release();
    let considered = standing.considered_until.unwrap_or(schedule.since_unix_ms).max(schedule.since_unix_ms);
    let back = i64::try_from(CATCH_UP_SECONDS_MAX).unwrap_or(i64::MAX);
    let slots = slots(schedule, considered.max(now.plus_seconds(-back)), now);
    deciding.consider(&slots);
    let Deciding { mut due, buffered, .. } = deciding;
    due.considered_until = slots.len().checked_sub(1).and_then(|last| slots.at(last));
    let next = next_fire_for(schedule, due.considered_until.unwrap_or(considered).max(now));
    let soon = (buffered > 0).then(|| now.plus_ms(BUFFERED_LOOK_MS));
    due.look_at = next.into_iter().chain(soon).min();
    due
}

struct Deciding<'a> {
    schedule: &'a PipelineSchedule,
    standing: Standing<'a>,
    now: UnixMs,
    /// A run of an earlier slot is not over, or about to be started.
    busy: bool,
    buffered: usize,
    due: Due,
}

impl<'a> Deciding<'a> {
    fn new(schedule: &'a PipelineSchedule, standing: Standing<'a>, now: UnixMs) -> Self {
        let busy = standing.running > 0 || !standing.waiting.is_empty();
        Self { schedule, standing, now, busy, buffered: standing.buffered.len(), due: Due::default() }
    }

    /// Nothing runs: the one that has waited longest begins.
    fn release(&mut self) {
        if let Some(first) = self.standing.buffered.first().filter(|_| !self.busy) {
            self.due.released.push(*first);
            self.buffered -= 1;
            self.busy = true;
        }
    }

    fn consider(&mut self, slots: &Slots) {
        let paused = self.schedule.pause.as_ref().and_then(|pause| pause.until_unix_ms);
        let paused = paused.map_or(0, |until| slots.until(until));
        let missed = slots.until(self.now.plus_ms(-MISSED_AFTER_MS).plus_ms(-1)).max(paused);
        let made_up = self.made_up(slots, paused, missed);
        self.skip(slots, 0, paused, Reason::Paused);
        self.skip(slots, paused, missed - made_up, Reason::Missed);
        for at in (missed - made_up..slots.len()).filter_map(|index| slots.at(index)) {
            self.fire(at);
        }
    }

    /// How many of the latest missed slots fire all the same.
    fn made_up(&self, slots: &Slots, paused: usize, missed: usize) -> usize {
        match self.schedule.misfire {
            Misfire::Skip => 0,
            Misfire::RunOnce => {
                let window = i64::try_from(self.schedule.catch_up.window_seconds).unwrap_or(i64::MAX);
                let too_old = slots.until(self.now.plus_seconds(window.saturating_neg()).plus_ms(-1)).max(paused);
                let count = usize::try_from(self.schedule.catch_up.count).unwrap_or(usize::MAX);
                missed.saturating_sub(too_old).min(count)
            }
        }
    }

    /// Slots from one place up to another are skipped: one entry, however many they are.
    fn skip(&mut self, slots: &Slots, from: usize, to: usize, reason: Reason) {
        let Some((at, through)) = to.checked_sub(1).and_then(|last| Some((slots.at(from)?, slots.at(last)?))) else {
            return;
        };
        if from < to {
            let slots = u64::try_from(to - from).unwrap_or(u64::MAX);
            let (state, reason) = (FireState::Skipped, Some(reason));
            self.due.fires.push(NewFire { at, through, slots, state, reason, start_at: self.now });
        }
    }

    fn fire(&mut self, at: UnixMs) {
        match self.schedule.overlap {
            Overlap::AllowAll => self.record(at, FireState::Waiting, None),
            Overlap::Skip if self.busy => self.record(at, FireState::Skipped, Some(Reason::Overlap)),
            Overlap::BufferOne if self.is_behind() => self.buffer(at, 1),
            Overlap::BufferAll if self.is_behind() => self.buffer(at, BUFFERED_MAX),
            Overlap::Skip | Overlap::BufferOne | Overlap::BufferAll => self.record(at, FireState::Waiting, None),
            Overlap::CancelOther | Overlap::KillOther => {
                // Those that have not begun have no run to be ended.
                if self.due.overtaken.is_empty() {
                    self.due.overtaken.extend_from_slice(self.standing.waiting);
                }
                self.due.overtaken.append(&mut self.due.released);
                for earlier in self.due.fires.iter_mut().filter(|fire| fire.state == FireState::Waiting) {
                    (earlier.state, earlier.reason) = (FireState::Skipped, Some(Reason::Overtaken));
                }
                self.record(at, FireState::Waiting, None);
            }
        }
    }

    /// What waits keeps its order, even when nothing runs just now.
    const fn is_behind(&self) -> bool {
        self.busy || self.buffered > 0
    }

    fn buffer(&mut self, at: UnixMs, most: usize) {
        if self.buffered < most {
            self.buffered += 1;
            self.record(at, FireState::Buffered, None);
        } else {
            self.record(at, FireState::Skipped, Some(Reason::BufferFull));
        }
    }

    fn record(&mut self, at: UnixMs, state: FireState, reason: Option<Reason>) {
        self.busy |= state == FireState::Waiting;
        let start_at = at.plus_ms(self.schedule.fire_id(at).jitter_ms(self.schedule.jitter_seconds));
        self.due.fires.push(NewFire { at, through: at, slots: 1, state, reason, start_at });
    }
}
