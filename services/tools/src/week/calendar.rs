//! A span of days: what the calendars say happened in it, on the clocks of one zone.

use std::collections::{BTreeMap, BTreeSet};

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};
use serde::{Deserialize, Serialize};

use super::ics::{Component, Property, TASK, components};
use super::recurrence;
use crate::briefing::model::Unusable;
use crate::briefing::safe::{clean, cut};

/// Most entries of one week.
pub(super) const ENTRIES_MAX: usize = 5_000;
/// Longest title, in bytes.
const TITLE_BYTES_MAX: usize = 200;
/// Longest event that is taken at its word, in days.
const DAYS_MAX: i64 = 366;

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Entry {
    pub(crate) title: String,
    /// The day it begins on: `2026-11-23`.
    pub(crate) day: String,
    /// `09:00`; absent for a whole day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) start: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) end: Option<String>,
    /// How long, inside the span; 0 for a whole day.
    pub(crate) minutes: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) category: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) place: Option<String>,
    /// `cancelled` or `tentative`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<String>,
    /// The file it is from.
    pub(crate) source: String,
}

/// Something to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Todo {
    pub(crate) title: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) due: Option<String>,
    /// The day it was done, if it is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) done: Option<String>,
    pub(crate) source: String,
}

/// What `calendar.read` gives of files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Week {
    pub(crate) from: String,
    /// Not included.
    pub(crate) to: String,
    pub(crate) zone: String,
    pub(crate) events: Vec<Entry>,
    /// Open ones, and those done in the span.
    pub(crate) todos: Vec<Todo>,
    #[serde(default)]
    pub(crate) failures: Vec<Unusable>,
}

/// The span that is asked for.
pub(super) struct Asked {
    pub(super) from: Date,
    pub(super) to: Date,
    pub(super) zone: TimeZone,
}

/// A moment of a calendar: a day, or a time with whatever says which clock it is on.
#[derive(Debug, Clone)]
enum Moment {
    Day(Date),
    Time(DateTime, TimeZone),
}

impl Moment {
    fn wall(&self) -> DateTime {
        match self {
            Self::Day(day) => day.to_datetime(Time::midnight()),
            Self::Time(time, _) => *time,
        }
    }
    /// On the clocks of another zone.
    fn on(&self, zone: &TimeZone) -> Option<DateTime> {
        match self {
            Self::Day(day) => Some(day.to_datetime(Time::midnight())),
            Self::Time(time, own) => {
                // A time in a gap or twice there is taken as calendars do.
                let at: Timestamp = own.to_ambiguous_timestamp(*time).compatible().ok()?;
                Some(zone.to_datetime(at))
            }
        }
    }
    fn at(&self, wall: DateTime) -> Self {
        match self {
            Self::Day(_) => Self::Day(wall.date()),
            Self::Time(_, zone) => Self::Time(wall, zone.clone()),
        }
    }
}

/// What was found in all files.
#[derive(Default)]
pub(super) struct Found {
    pub(super) events: Vec<Entry>,
    pub(super) todos: Vec<Todo>,
    pub(super) failures: Vec<Unusable>,
}

impl Found {
    /// Adds what a file says of the span.
    pub(super) fn add(&mut self, name: &str, bytes: Vec<u8>, asked: &Asked) {
        let components = match components(bytes) {
            Ok(components) => components,
            Err((code, reason)) => return self.fail(name, code, reason),
        };
        // A changed occurrence stands for the one it replaces.
        let mut replaced: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for component in &components {
            if let (Some(uid), Some(which)) = (component.first("UID"), component.first("RECURRENCE-ID"))
                && let Some(wall) = self.moment(name, which, asked).and_then(|moment| moment.on(&asked.zone))
            {
                replaced.entry(uid.value.clone()).or_default().insert(wall.to_string());
            }
        }
        for component in &components {
            if self.events.len() + self.todos.len() >= ENTRIES_MAX {
                return self.fail(
                    name,
                    "calendar-too-long",
                    format!("at most {ENTRIES_MAX} entries of a span are read"),
                );
            }
            if component.kind == TASK {
                self.todo(name, component, asked);
            } else {
                self.event(name, component, asked, &replaced);
            }
        }
    }

    pub(super) fn fail(&mut self, name: &str, code: &str, reason: String) {
        let failure = Unusable { name: clean(name), code: code.to_owned(), reason: clean(&reason) };
        if !self.failures.contains(&failure) && self.failures.len() < 200 {
            self.failures.push(failure);
        }
    }

    fn moment(&mut self, name: &str, property: &Property, asked: &Asked) -> Option<Moment> {
        let value = property.value.trim();
        if property.parameter("VALUE") == Some("DATE") || value.len() == 8 {
            let day = Date::strptime("%Y%m%d", value).ok();
            if day.is_none() {
                self.fail(name, "date-not-read", format!("{} is no day", cut(value, 40)));
            }
            return day.map(Moment::Day);
        }
        let (text, utc) = value.strip_suffix('Z').map_or((value, false), |text| (text, true));
        let Ok(time) = DateTime::strptime("%Y%m%dT%H%M%S", text) else {
            self.fail(name, "date-not-read", format!("{} is no time", cut(value, 40)));
            return None;
        };
        let zone = match property.parameter("TZID") {
            _ if utc => TimeZone::UTC,
            None => asked.zone.clone(),
            Some(id) => named_zone(id).unwrap_or_else(|| {
                let reason = format!("the zone {} is not known; its times are read in the zone asked for", cut(id, 60));
                self.fail(name, "zone-unknown", reason);
                asked.zone.clone()
            }),
        };
        Some(Moment::Time(time, zone))
    }

    fn event(
        &mut self,
        name: &str,
        component: &Component,
        asked: &Asked,
        replaced: &BTreeMap<String, BTreeSet<String>>,
    ) {
        let Some(start_property) = component.first("DTSTART") else { return };
        let Some(start) = self.moment(name, start_property, asked) else { return };
        let end = component.first("DTEND").cloned().and_then(|property| self.moment(name, &property, asked));
        let length = self.length(name, component, &start, end.as_ref(), asked);
        let uid = component.first("UID").map(|uid| uid.value.clone()).unwrap_or_default();
        let is_change = component.first("RECURRENCE-ID").is_some();
        let mut starts = vec![start.clone()];
        if let Some(text) = component.first("RRULE").filter(|_| !is_change).map(|rule| rule.value.clone()) {
            match recurrence::rule(&text) {
                Ok(rule) => {
                    // Wide enough for every zone, and for what began before the span and reaches into it.
                    let margin = Span::new().days(2 + length / 1_440);
                    let from = asked.from.checked_sub(margin).unwrap_or(asked.from).to_datetime(Time::midnight());
                    let mut last =
                        asked.to.checked_add(Span::new().days(2)).unwrap_or(asked.to).to_datetime(Time::midnight());
                    if let Some(until) = &rule.until {
                        let property = Property { value: until.clone(), ..start_property.clone() };
                        let property = Property { parameters: Vec::new(), ..property };
                        match self.moment(name, &property, asked) {
                            // The end is included; a bare day means all of it.
                            Some(Moment::Day(day)) => last = last.min(day.to_datetime(Time::constant(23, 59, 59, 0))),
                            Some(moment) => {
                                let own = match &start {
                                    Moment::Time(_, zone) => moment.on(zone),
                                    Moment::Day(_) => Some(moment.wall()),
                                };
                                last = last.min(own.unwrap_or(last));
                            }
                            None => return,
                        }
                    }
                    starts = rule.times(start.wall(), from, last).into_iter().map(|wall| start.at(wall)).collect();
                }
                Err(why) => {
                    let title = component.text("SUMMARY").unwrap_or_default();
                    let reason =
                        format!("“{}” repeats by {why}, which is not read; only its first time is", cut(&title, 80));
                    self.fail(name, "recurrence-not-read", reason);
                }
            }
        }
        for property in component.all("RDATE") {
            for value in property.value.split(',').take(500) {
                let property = Property { value: value.to_owned(), ..property.clone() };
                starts.extend(self.moment(name, &property, asked));
            }
        }
        let mut gone: BTreeSet<String> = BTreeSet::new();
        for property in component.all("EXDATE") {
            for value in property.value.split(',').take(500) {
                let property = Property { value: value.to_owned(), ..property.clone() };
                let moment = self.moment(name, &property, asked).and_then(|moment| moment.on(&asked.zone));
                gone.extend(moment.map(|wall| wall.to_string()));
            }
        }
        if let Some(others) = replaced.get(&uid).filter(|_| !is_change) {
            gone.extend(others.iter().cloned());
        }
        for one in starts {
            let wall = one.on(&asked.zone).map(|wall| wall.to_string()).unwrap_or_default();
            if !gone.contains(&wall) && self.events.len() < ENTRIES_MAX {
                self.events.extend(entry(name, component, &one, length, asked));
            }
        }
    }

    /// How long an event takes, in minutes of the wall clock.
    fn length(
        &mut self,
        name: &str,
        component: &Component,
        start: &Moment,
        end: Option<&Moment>,
        asked: &Asked,
    ) -> i64 {
        let most = DAYS_MAX * 1_440;
        if let Some(end) = end {
            let (Some(start), Some(end)) = (start.on(&asked.zone), end.on(&asked.zone)) else { return 0 };
            return between(start, end).clamp(0, most);
        }
        if let Some(duration) = component.first("DURATION") {
            let parsed = duration.value.trim().parse::<Span>().ok();
            let minutes = parsed.and_then(|span| {
                let (days, weeks) = (i64::from(span.get_days()), i64::from(span.get_weeks()));
                let time = i64::from(span.get_hours()).checked_mul(60)?.checked_add(span.get_minutes())?;
                days.checked_add(weeks.checked_mul(7)?)?.checked_mul(1_440)?.checked_add(time)
            });
            if minutes.is_none() {
                self.fail(name, "duration-not-read", format!("{} is no duration", cut(&duration.value, 40)));
            }
            return minutes.unwrap_or(0).clamp(0, most);
        }
        if matches!(start, Moment::Day(_)) { 1_440 } else { 0 }
    }

    fn todo(&mut self, name: &str, component: &Component, asked: &Asked) {
        let Some(title) = component.text("SUMMARY") else { return };
        let mut day = |key: &str| {
            let property = component.first(key)?.clone();
            let moment = self.moment(name, &property, asked)?;
            moment.on(&asked.zone).map(|wall| wall.date())
        };
        let (due, completed) = (day("DUE"), day("COMPLETED"));
        let status = component.first("STATUS").map(|status| status.value.to_ascii_uppercase()).unwrap_or_default();
        let done = completed.is_some() || status == "COMPLETED";
        let in_span = completed.is_none_or(|day| (asked.from..asked.to).contains(&day));
        if status == "CANCELLED" || done && !in_span {
            return;
        }
        self.todos.push(Todo {
            title: titled(&title),
            due: due.map(|day| day.to_string()),
            done: done.then(|| completed.map_or_else(|| "done".to_owned(), |day| day.to_string())),
            source: clean(name),
        });
    }
}

fn titled(title: &str) -> String {
    clean(cut(title, TITLE_BYTES_MAX)).replace('`', "'")
}

fn between(start: DateTime, end: DateTime) -> i64 {
    start.until((jiff::Unit::Minute, end)).map_or(0, |span| span.get_minutes())
}

/// A zone by its name in the IANA database, alone or at the end of a path, or by the commonest Windows names.
fn named_zone(id: &str) -> Option<TimeZone> {
    const WINDOWS: [(&str, &str); 10] = [
        ("W. Europe Standard Time", "Europe/Berlin"),
        ("Central Europe Standard Time", "Europe/Budapest"),
        ("Romance Standard Time", "Europe/Paris"),
        ("GMT Standard Time", "Europe/London"),
        ("Eastern Standard Time", "America/New_York"),
        ("Central Standard Time", "America/Chicago"),
        ("Mountain Standard Time", "America/Denver"),
        ("Pacific Standard Time", "America/Los_Angeles"),
        ("Tokyo Standard Time", "Asia/Tokyo"),
        ("India Standard Time", "Asia/Kolkata"),
    ];
    let id = id.trim().trim_start_matches('/');
    let direct = WINDOWS.iter().find(|(name, _)| *name == id).map(|(_, zone)| *zone);
    if let Some(zone) = direct {
        return TimeZone::get(zone).ok();
    }
    let mut rest = id;
    loop {
        if let Ok(zone) = TimeZone::get(rest) {
            return Some(zone);
        }
        rest = rest.split_once('/')?.1;
    }
}

/// The part of an event that lies in the span.
fn entry(name: &str, component: &Component, start: &Moment, minutes: i64, asked: &Asked) -> Option<Entry> {
    let begins = start.on(&asked.zone)?;
    let ends = begins.checked_add(Span::new().try_minutes(minutes).ok()?).ok()?;
    let (first, after) = (asked.from.to_datetime(Time::midnight()), asked.to.to_datetime(Time::midnight()));
    let touches = if minutes == 0 { begins >= first && begins < after } else { ends > first && begins < after };
    if !touches {
        return None;
    }
    let whole_day = matches!(start, Moment::Day(_));
    let (seen_from, seen_to) = (begins.max(first), ends.min(after));
    let status = component.first("STATUS").map(|status| status.value.to_ascii_lowercase());
    let category =
        component.text("CATEGORIES").and_then(|all| all.split(',').next().map(titled)).filter(|one| !one.is_empty());
    let clock = |time: DateTime| time.strftime("%H:%M").to_string();
    Some(Entry {
        title: component.text("SUMMARY").map_or_else(|| "Untitled".to_owned(), |title| titled(&title)),
        day: seen_from.date().to_string(),
        start: (!whole_day).then(|| clock(seen_from)),
        end: (!whole_day && minutes > 0).then(|| clock(seen_to)),
        minutes: if whole_day { 0 } else { u32::try_from(between(seen_from, seen_to)).unwrap_or(0) },
        category,
        place: component.text("LOCATION").map(|place| titled(&place)),
        status: status.filter(|status| matches!(status.as_str(), "cancelled" | "tentative")),
        source: clean(name),
    })
}
