//! Windows of budgets at calendar boundaries: days, weeks and months as people in one place count them (BUD-005).

use jiff::civil::{Date, Weekday};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use serde::{Deserialize, Serialize};

/// Longest name of a time zone, in bytes.
const ZONE_BYTES_MAX: usize = 64;

/// How long a window is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum CalendarUnit {
    /// From midnight to midnight.
    Day,
    /// From Monday to Monday.
    Week,
    /// From the first of a month to that of the next.
    Month,
    /// From the first of January to that of the next year.
    Year,
}

/// Windows that begin where a calendar begins something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Calendar {
    /// What a window is.
    pub unit: CalendarUnit,
    /// Whose midnight counts: a name of the IANA list, such as `Europe/Berlin`.
    pub time_zone: String,
}

impl Calendar {
    /// True if the zone is known.
    pub fn is_sound(&self) -> bool {
        self.zone().is_some()
    }

    /// Start of the window that holds an instant, and of the one after it, in seconds since the Unix epoch; `None` for an
    /// instant no calendar has. A day whose midnight does not exist, because clocks were put forward, begins right after.
    pub fn window(&self, now_unix_seconds: i64) -> Option<(i64, i64)> {
        let zone = self.zone()?;
        let today = zone.to_datetime(Timestamp::from_second(now_unix_seconds).ok()?).date();
        let first = self.first(today)?;
        let next = match self.unit {
            CalendarUnit::Day => first.checked_add(1.day()),
            CalendarUnit::Week => first.checked_add(1.week()),
            CalendarUnit::Month => first.checked_add(1.month()),
            CalendarUnit::Year => first.checked_add(1.year()),
        };
        Some((begins(first, &zone)?, begins(next.ok()?, &zone)?))
    }

    fn first(&self, day: Date) -> Option<Date> {
        match self.unit {
            CalendarUnit::Day => Some(day),
            CalendarUnit::Week => day.checked_sub(i64::from(day.weekday().since(Weekday::Monday)).days()).ok(),
            CalendarUnit::Month => Some(day.first_of_month()),
            CalendarUnit::Year => Some(day.first_of_year()),
        }
    }

    fn zone(&self) -> Option<TimeZone> {
        // Only names: neither a fixed offset nor a rule spelled out says whose midnight is meant.
        let named = self.time_zone == "UTC" || self.time_zone.contains('/');
        (named && self.time_zone.len() <= ZONE_BYTES_MAX).then(|| TimeZone::get(&self.time_zone).ok())?
    }
}

fn begins(day: Date, zone: &TimeZone) -> Option<i64> {
    Some(zone.to_ambiguous_timestamp(day.at(0, 0, 0, 0)).compatible().ok()?.as_second())
}
