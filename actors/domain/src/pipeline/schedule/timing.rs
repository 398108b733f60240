//! When a schedule's slots are (PIP-026, PIP-027).

use serde::{Deserialize, Serialize};

use super::PipelineSchedule;
use crate::pipeline::cron::{Cron, CronError, Zone};
use crate::time::UnixMs;

/// Longest interval, in seconds: ten years.
pub const INTERVAL_SECONDS_MAX: u64 = 10 * 366 * 24 * 3_600;

/// A day of the week.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Weekday {
    /// The first.
    Monday,
    /// The second.
    Tuesday,
    /// The third.
    Wednesday,
    /// The fourth.
    Thursday,
    /// The fifth.
    Friday,
    /// The sixth.
    Saturday,
    /// The seventh.
    Sunday,
}

impl Weekday {
    /// Every one.
    pub const ALL: [Self; 7] =
        [Self::Monday, Self::Tuesday, Self::Wednesday, Self::Thursday, Self::Friday, Self::Saturday, Self::Sunday];

    /// The wire string.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Monday => "monday",
            Self::Tuesday => "tuesday",
            Self::Wednesday => "wednesday",
            Self::Thursday => "thursday",
            Self::Friday => "friday",
            Self::Saturday => "saturday",
            Self::Sunday => "sunday",
        }
    }

    /// The day of this name, in whole or by its first three letters.
    pub fn named(text: &str) -> Option<Self> {
        let lower = text.to_ascii_lowercase();
        Self::ALL.into_iter().find(|day| day.as_str() == lower || day.as_str().get(..3) == Some(&lower))
    }
}

/// When a schedule's slots are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Timing {
    /// Every so many seconds, counted from the start.
    Interval {
        /// From 1 to [`INTERVAL_SECONDS_MAX`].
        seconds: u64,
    },
    /// Once a week.
    Weekly {
        /// The day.
        weekday: Weekday,
        /// The hour, 0 to 23.
        hour: u8,
        /// The minute.
        minute: u8,
    },
    /// As a cron expression says.
    Cron {
        /// Five fields, or a name such as `@daily`.
        expression: String,
    },
}

/// Why a timing has no slots.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TimingError {
    /// The expression or the zone is none.
    #[error(transparent)]
    Cron(#[from] CronError),
    /// No interval.
    #[error("an interval is 1 to {INTERVAL_SECONDS_MAX} seconds")]
    BadInterval,
    /// No time of day.
    #[error("a time of day is 00:00 to 23:59")]
    BadTimeOfDay,
}

impl TimingError {
    /// Stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Cron(error) => error.code(),
            Self::BadInterval => "schedule-interval-invalid",
            Self::BadTimeOfDay => "schedule-time-invalid",
        }
    }
}

/// A timing that was read.
pub(super) enum Read {
    /// Even steps of so many milliseconds.
    Even(i64),
    /// Local times.
    Cron(Cron, Zone),
}

/// Reads a timing and its zone.
pub(super) fn read(timing: &Timing, timezone: &str) -> Result<Read, TimingError> {
    // Checked for every kind: what is kept must be a zone even where it changes nothing.
    let zone: Zone = timezone.parse()?;
    match timing {
        Timing::Interval { seconds } => {
            let seconds = i64::try_from(*seconds).ok().filter(|_| (1..=INTERVAL_SECONDS_MAX).contains(seconds));
            Ok(Read::Even(seconds.ok_or(TimingError::BadInterval)?.saturating_mul(1_000)))
        }
        Timing::Weekly { weekday, hour, minute } => {
            if *hour > 23 || *minute > 59 {
                return Err(TimingError::BadTimeOfDay);
            }
            let day = weekday.as_str().get(..3).unwrap_or_default();
            Ok(Read::Cron(format!("{minute} {hour} * * {day}").parse()?, zone))
        }
        Timing::Cron { expression } => Ok(Read::Cron(expression.parse()?, zone)),
    }
}

/// The first slot after `after` (exclusive); `None` if there is none any more (PIP-026).
pub fn next_fire_for(schedule: &PipelineSchedule, after: UnixMs) -> Option<UnixMs> {
    // What is stored was read before; what cannot be read any more has no slots.
    let read = read(&schedule.timing, &schedule.timezone).ok()?;
    // A slot at the very start is one, so the instant before it is what a slot must be after.
    let after = after.max(schedule.since_unix_ms).max(schedule.start_at_unix_ms.plus_ms(-1));
    let next = match read {
        Read::Even(every) => {
            let past = after.since(schedule.start_at_unix_ms);
            let steps = if past < 0 { 0 } else { past / every + 1 };
            schedule.start_at_unix_ms.plus_ms(steps.checked_mul(every)?)
        }
        Read::Cron(cron, zone) => cron.next_after(&zone, after)?,
    };
    (next > after && schedule.end_at_unix_ms.is_none_or(|end| next <= end)).then_some(next)
}

/// Slots of a stretch of time, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Slots {
    /// Evenly spaced.
    Even {
        /// The first.
        first: UnixMs,
        /// Milliseconds from one to the next.
        every: i64,
        /// How many.
        count: usize,
    },
    /// Each by itself.
    Listed(Vec<UnixMs>),
}

impl Slots {
    /// How many there are.
    pub const fn len(&self) -> usize {
        match self {
            Self::Even { count, .. } => *count,
            Self::Listed(slots) => slots.len(),
        }
    }
    /// True if there is none.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The one at this place, from 0.
    pub fn at(&self, index: usize) -> Option<UnixMs> {
        match self {
            Self::Even { first, every, count } => {
                let steps = i64::try_from(index).ok().filter(|_| index < *count)?;
                Some(first.plus_ms(steps.saturating_mul(*every)))
            }
            Self::Listed(slots) => slots.get(index).copied(),
        }
    }
    /// How many of them are at this instant or before.
    pub fn until(&self, at: UnixMs) -> usize {
        match self {
            Self::Even { first, every, count } => match at.since(*first) {
                past if past < 0 => 0,
                past => usize::try_from(past / every).unwrap_or(usize::MAX).saturating_add(1).min(*count),
            },
            Self::Listed(slots) => slots.partition_point(|slot| *slot <= at),
        }
    }
}

/// The slots after `after` (exclusive) and up to `until` (inclusive). The caller bounds the stretch: each day of it is looked
/// at, whereas an interval is counted.
pub fn slots(schedule: &PipelineSchedule, after: UnixMs, until: UnixMs) -> Slots {
    let none = Slots::Listed(Vec::new());
    let Ok(read) = read(&schedule.timing, &schedule.timezone) else { return none };
    let until = schedule.end_at_unix_ms.map_or(until, |end| end.min(until));
    let after = after.max(schedule.since_unix_ms).max(schedule.start_at_unix_ms.plus_ms(-1));
    match read {
        Read::Even(every) => match next_fire_for(schedule, after).filter(|first| *first <= until) {
            Some(first) => {
                let count = usize::try_from(until.since(first) / every).unwrap_or(usize::MAX).saturating_add(1);
                Slots::Even { first, every, count }
            }
            None => none,
        },
        Read::Cron(cron, zone) => {
            Slots::Listed(if after < until { cron.between(&zone, after, until) } else { Vec::new() })
        }
    }
}
