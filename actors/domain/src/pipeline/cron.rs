//! Cron expressions and when they fire, also over changes of the clock (PIP-027).
//!
//! Five fields, read as Vixie's cron reads them: minute, hour, day of month, month, day of week. A job whose minute or hour
//! begins with `*` runs on real time: nothing extra where the clock jumps ahead, and in both copies of an hour that comes
//! twice. Every other job is meant for a time of day: where that time is missing it fires once, at the first instant after
//! the gap, and where it comes twice it fires at the first. A change of the clock of more than three hours is a correction,
//! for which nothing is made up. What jiff's zone database says is all that is known of zones.

use std::str::FromStr;

use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};

use crate::time::UnixMs;

/// Longest expression that is read, in bytes.
pub const CRON_BYTES_MAX: usize = 512;
/// A longer jump of the clock is a correction, in seconds: three hours.
const CORRECTION_SECONDS: i32 = 3 * 3_600;
/// How far ahead a date is looked for. The rarest there is, a 29 February on one weekday, can take forty years around a
/// century without a leap day.
const YEARS_AHEAD_MAX: i16 = 41;

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// Why an expression or a zone is not one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CronError {
    /// Longer than [`CRON_BYTES_MAX`].
    #[error("the expression is longer than {CRON_BYTES_MAX} bytes")]
    TooLong,
    /// Not five fields.
    #[error("an expression has five fields, minute hour day-of-month month day-of-week; this one has {0}")]
    FieldCount(usize),
    /// A field that cannot be read.
    #[error("`{part}` in the field {field}: {problem}")]
    BadField {
        /// Which of the five.
        field: &'static str,
        /// The part of it that is wrong.
        part: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// Not the name of a zone.
    #[error("`{0}` is not an IANA time zone, such as Europe/Berlin or UTC")]
    UnknownZone(String),
}

impl CronError {
    /// Stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::TooLong | Self::FieldCount(_) | Self::BadField { .. } => "cron-invalid",
            Self::UnknownZone(_) => "zone-unknown",
        }
    }
}

/// A cron expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cron {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Both day fields restrict: a date that fits either is one.
    either_day: bool,
    /// Runs on real time.
    wildcard: bool,
}

/// A zone of the IANA database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone(TimeZone);

impl FromStr for Zone {
    type Err = CronError;

    fn from_str(name: &str) -> Result<Self, CronError> {
        let unknown = || CronError::UnknownZone(name.chars().take(64).collect());
        let zone = TimeZone::get(name).map_err(|_| unknown())?;
        // The library's word for "no zone is known" is a name in its database, and not a zone.
        if zone.is_unknown() { Err(unknown()) } else { Ok(Self(zone)) }
    }
}

impl FromStr for Cron {
    type Err = CronError;

    fn from_str(expression: &str) -> Result<Self, CronError> {
        if expression.len() > CRON_BYTES_MAX {
            return Err(CronError::TooLong);
        }
        let expression = alias(expression).unwrap_or(expression);
        let fields: Vec<&str> = expression.split([' ', '\t']).filter(|field| !field.is_empty()).collect();
        let [minute, hour, day, month, weekday] = fields[..] else { return Err(CronError::FieldCount(fields.len())) };
        let mut weekdays = Field::WEEKDAY.parse(weekday)?;
        // Sunday has two numbers.
        weekdays = (weekdays | (weekdays >> 7)) & 0x7f;
        Ok(Self {
            minutes: Field::MINUTE.parse(minute)?,
            hours: Field::HOUR.parse(hour)?,
            days: Field::DAY.parse(day)?,
            months: Field::MONTH.parse(month)?,
            weekdays,
            either_day: !day.starts_with('*') && !weekday.starts_with('*'),
            wildcard: minute.starts_with('*') || hour.starts_with('*'),
        })
    }
}

/// What a name such as `@daily` stands for. `@reboot` names no instant, and is none.
fn alias(expression: &str) -> Option<&'static str> {
    match expression.trim().to_ascii_lowercase().as_str() {
        "@hourly" => Some("0 * * * *"),
        "@daily" | "@midnight" => Some("0 0 * * *"),
        "@weekly" => Some("0 0 * * 0"),
        "@monthly" => Some("0 0 1 * *"),
        "@yearly" | "@annually" => Some("0 0 1 1 *"),
        _ => None,
    }
}

/// What one field may hold.
struct Field {
    name: &'static str,
    first: u8,
    last: u8,
    names: &'static [&'static str],
}

impl Field {
    const MINUTE: Self = Self { name: "minute", first: 0, last: 59, names: &[] };
    const HOUR: Self = Self { name: "hour", first: 0, last: 23, names: &[] };
    const DAY: Self = Self { name: "day-of-month", first: 1, last: 31, names: &[] };
    const MONTH: Self = Self { name: "month", first: 1, last: 12, names: &MONTHS };
    const WEEKDAY: Self = Self { name: "day-of-week", first: 0, last: 7, names: &WEEKDAYS };

    /// The values of a list such as `1,5-9/2,*/15`, one bit each.
    fn parse(&self, list: &str) -> Result<u64, CronError> {
        let mut bits = 0;
        for part in list.split(',') {
            bits |= self.part(part).map_err(|problem| CronError::BadField {
                field: self.name,
                part: part.chars().take(32).collect(),
                problem,
            })?;
        }
        Ok(bits)
    }

    fn part(&self, part: &str) -> Result<u64, &'static str> {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(number(step).ok_or("a step is a whole number")?)),
            None => (part, None),
        };
        let (first, last) = if range == "*" {
            (self.first, self.last)
        } else if let Some((first, last)) = range.split_once('-') {
            (self.value(first)?, self.value(last)?)
        } else {
            let value = self.value(range)?;
            if step.is_some() {
                return Err("a step needs a range or `*` before it");
            }
            (value, value)
        };
        if first > last {
            return Err("the range runs backwards");
        }
        match step.unwrap_or(1) {
            0 => Err("a step is at least 1"),
            step => Ok((first..=last).step_by(usize::from(step)).fold(0, |bits, value| bits | 1 << value)),
        }
    }

    fn value(&self, text: &str) -> Result<u8, &'static str> {
        let named = self.names.iter().position(|name| name.eq_ignore_ascii_case(text));
        let value = match named.and_then(|at| u8::try_from(at).ok()) {
            Some(at) => at + self.first,
            None => number(text).ok_or("neither a number nor a name of this field")?,
        };
        if (self.first..=self.last).contains(&value) { Ok(value) } else { Err("out of range") }
    }
}

fn number(text: &str) -> Option<u8> {
    let digits = (1..=3).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}

impl Cron {
    /// The first instant after `after` (exclusive) at which the job fires in the zone; `None` if it never does.
    pub fn next_after(&self, zone: &Zone, after: UnixMs) -> Option<UnixMs> {
        let after = Timestamp::from_millisecond(after.0).ok()?;
        // The day before too: its missing times may fire today.
        let mut date = zone.0.to_datetime(after).date().yesterday().ok()?;
        let until = date.year().saturating_add(YEARS_AHEAD_MAX);
        let mut best: Option<(Timestamp, Date)> = None;
        while date.year() <= until && best.is_none_or(|(_, found)| in_reach(found, date)) {
            if self.fits(date) {
                let earliest =
                    self.times(date).flat_map(|time| self.instants(&zone.0, time)).filter(|at| *at > after).min();
                if let Some(at) = earliest.filter(|at| best.is_none_or(|(known, _)| *at < known)) {
                    best = Some((at, date));
                }
            }
            date = self.following(date)?;
        }
        best.map(|(at, _)| UnixMs(at.as_millisecond()))
    }

    /// Every instant after `after` (exclusive) and up to `until` (inclusive) at which the job fires, in order: what
    /// [`next_after`](Self::next_after) gives one at a time, each day looked at once. The caller bounds the stretch.
    pub fn between(&self, zone: &Zone, after: UnixMs, until: UnixMs) -> Vec<UnixMs> {
        self.stretch(zone, after, until).unwrap_or_default()
    }

    fn stretch(&self, zone: &Zone, after: UnixMs, until: UnixMs) -> Option<Vec<UnixMs>> {
        let (from, to) = (Timestamp::from_millisecond(after.0).ok()?, Timestamp::from_millisecond(until.0).ok()?);
        let mut date = zone.0.to_datetime(from).date().yesterday().ok()?;
        // The days after too: a correction may repeat a whole day.
        let last = zone.0.to_datetime(to).date().tomorrow().ok()?.tomorrow().ok()?;
        let mut found = Vec::new();
        while date <= last {
            if self.fits(date) {
                let instants = self.times(date).flat_map(|time| self.instants(&zone.0, time));
                found.extend(instants.filter(|at| *at > from && *at <= to).map(|at| UnixMs(at.as_millisecond())));
            }
            date = self.following(date)?;
        }
        found.sort_unstable();
        found.dedup();
        Some(found)
    }

    /// The next date worth a look: months that do not fit are passed over whole.
    fn following(&self, date: Date) -> Option<Date> {
        if has(self.months, date.month()) {
            return date.tomorrow().ok();
        }
        date.last_of_month().tomorrow().ok()
    }

    fn fits(&self, date: Date) -> bool {
        let day = has(self.days, date.day());
        let weekday = has(self.weekdays, date.weekday().to_sunday_zero_offset());
        let day_fits = if self.either_day { day || weekday } else { day && weekday };
        has(self.months, date.month()) && day_fits
    }

    /// The times of a day that are named, earliest first.
    fn times(&self, date: Date) -> impl Iterator<Item = DateTime> {
        let named = |bits: u64, end: i8| (0..end).filter(move |value| has(bits, *value));
        let minutes = self.minutes;
        named(self.hours, 24).flat_map(move |hour| named(minutes, 60).map(move |minute| date.at(hour, minute, 0, 0)))
    }

    /// When a local time fires: no instant, one, or two.
    fn instants(&self, zone: &TimeZone, time: DateTime) -> impl Iterator<Item = Timestamp> + use<> {
        let instant = |offset: Offset| offset.to_timestamp(time).ok();
        let (first, second) = match zone.to_ambiguous_zoned_datetime(time).offset() {
            AmbiguousOffset::Unambiguous { offset } => (instant(offset), None),
            AmbiguousOffset::Gap { before, after } if self.wildcard || is_correction(before, after) => (None, None),
            AmbiguousOffset::Gap { before, after } => (gap_end(zone, time, before, after), None),
            AmbiguousOffset::Fold { before, after } if self.wildcard || is_correction(before, after) => {
                (instant(before), instant(after))
            }
            AmbiguousOffset::Fold { before, .. } => (instant(before), None),
        };
        first.into_iter().chain(second)
    }
}

const fn has(bits: u64, value: i8) -> bool {
    (bits >> value) & 1 == 1
}

// Corrections may repeat a whole day, so what is found on one date may be later than something of the next two.
fn in_reach(found: Date, date: Date) -> bool {
    (date - found).get_days() <= 2
}

fn is_correction(before: Offset, after: Offset) -> bool {
    after.seconds().abs_diff(before.seconds()) > CORRECTION_SECONDS.unsigned_abs()
}

/// The first instant after the gap that swallows `time`.
fn gap_end(zone: &TimeZone, time: DateTime, before: Offset, after: Offset) -> Option<Timestamp> {
    // Read with the offset of afterwards, a missing time lies before the change of the clock.
    let earlier = after.to_timestamp(time).ok()?;
    zone.following(earlier).find(|change| change.offset() != before).map(|change| change.timestamp())
}
