//! An event of the sky, and all events of a span of days.

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use super::{DAYS_MAX, YEAR_MAX, YEAR_MIN, eclipse, planets, time, yearly};
use crate::briefing::safe;

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The Moon stands before the Sun and is not seen.
    NewMoon,
    /// Half of the Moon is lit, and it grows.
    FirstQuarter,
    /// All of the Moon is lit.
    FullMoon,
    /// Half of the Moon is lit, and it shrinks.
    LastQuarter,
    /// The Sun crosses the equator northwards.
    MarchEquinox,
    /// The Sun stands farthest north.
    JuneSolstice,
    /// The Sun crosses the equator southwards.
    SeptemberEquinox,
    /// The Sun stands farthest south.
    DecemberSolstice,
    /// The Moon covers the Sun, or a part of it.
    SolarEclipse,
    /// The Moon passes through the shadow of the Earth.
    LunarEclipse,
    /// A planet stands opposite the Sun.
    Opposition,
    /// Mercury or Venus stands farthest from the Sun.
    GreatestElongation,
    /// Two planets are closest to each other in the sky.
    Conjunction,
    /// Mercury or Venus passes between the Earth and the Sun.
    InferiorConjunction,
    /// A planet passes behind the Sun.
    SuperiorConjunction,
}

impl Kind {
    /// The wire string.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NewMoon => "new-moon",
            Self::FirstQuarter => "first-quarter",
            Self::FullMoon => "full-moon",
            Self::LastQuarter => "last-quarter",
            Self::MarchEquinox => "march-equinox",
            Self::JuneSolstice => "june-solstice",
            Self::SeptemberEquinox => "september-equinox",
            Self::DecemberSolstice => "december-solstice",
            Self::SolarEclipse => "solar-eclipse",
            Self::LunarEclipse => "lunar-eclipse",
            Self::Opposition => "opposition",
            Self::GreatestElongation => "greatest-elongation",
            Self::Conjunction => "conjunction",
            Self::InferiorConjunction => "inferior-conjunction",
            Self::SuperiorConjunction => "superior-conjunction",
        }
    }

    /// How far the stated time may be from what an almanac says, in minutes.
    pub const fn tolerance_minutes(self) -> i64 {
        match self {
            Self::NewMoon
            | Self::FirstQuarter
            | Self::FullMoon
            | Self::LastQuarter
            | Self::MarchEquinox
            | Self::JuneSolstice
            | Self::SeptemberEquinox
            | Self::DecemberSolstice
            | Self::SolarEclipse
            | Self::LunarEclipse => 2,
            Self::Opposition | Self::InferiorConjunction | Self::SuperiorConjunction => 30,
            // The distance hardly changes for hours around these.
            Self::Conjunction | Self::GreatestElongation => 360,
        }
    }

    /// One of the four quarters of the Moon.
    pub const fn is_phase(self) -> bool {
        matches!(self, Self::NewMoon | Self::FirstQuarter | Self::FullMoon | Self::LastQuarter)
    }

    /// An equinox or a solstice.
    pub const fn is_season(self) -> bool {
        matches!(self, Self::MarchEquinox | Self::JuneSolstice | Self::SeptemberEquinox | Self::DecemberSolstice)
    }
}

/// One event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Event {
    /// Day, kind and bodies, such as `2026-08-12-solar-eclipse`. Names its files.
    pub id: String,
    /// What happens.
    pub kind: Kind,
    /// When, in universal time, to the minute: `2026-08-12T17:46Z`.
    pub at: String,
    /// The same on the clocks of the zone asked for: `2026-08-12 19:46`.
    pub local: String,
    /// In a few words.
    pub title: String,
    /// The planets it is about, from the Sun outwards.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bodies: Vec<String>,
    /// `total`, `annular`, `hybrid`, `partial` or `penumbral` for an eclipse; `evening` or `morning` for an elongation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<String>,
    /// The distance from the Sun or from the other planet, in degrees to two places.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub degrees: Option<f64>,
    /// How much of the disc is covered at most, to two places: above 1 is all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub magnitude: Option<f64>,
}

/// An event before it has a zone and a title.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) kind: Kind,
    pub(super) jde: f64,
    pub(super) bodies: Vec<&'static str>,
    pub(super) form: Option<&'static str>,
    pub(super) degrees: Option<f64>,
    pub(super) magnitude: Option<f64>,
}

impl Found {
    pub(super) const fn new(kind: Kind, jde: f64) -> Self {
        Self { kind, jde, bodies: Vec::new(), form: None, degrees: None, magnitude: None }
    }
}

/// What `calendar.read` gives of the sky.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Sky {
    /// The first day.
    pub from: String,
    /// The day after the last.
    pub to: String,
    /// The zone of the days and of `local`.
    pub zone: String,
    /// In the order of time.
    pub events: Vec<Event>,
}

/// Why no events were worked out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SkyError {
    /// Not of the form `2026-08-31`.
    #[error("`{0}` is not a day of the form 2026-08-31")]
    NotADay(String),
    /// No such zone.
    #[error("`{0}` is not a time zone of the IANA database, such as Europe/Berlin")]
    NoZone(String),
    /// Empty, backwards or too long.
    #[error("the span has {0} days; give 1 to {DAYS_MAX}")]
    Span(i64),
    /// Outside the years of the theories.
    #[error("only the years {YEAR_MIN} to {YEAR_MAX} are worked out")]
    Year,
}

impl SkyError {
    /// Stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NotADay(_) => "not-a-day",
            Self::NoZone(_) => "zone-unknown",
            Self::Span(_) => "span-out-of-range",
            Self::Year => "year-out-of-range",
        }
    }
}

/// Reads a day.
pub(crate) fn day(text: &str) -> Result<Date, SkyError> {
    let wrong = || SkyError::NotADay(safe::clean(safe::cut(text, 40)));
    text.parse::<Date>().ok().filter(|day| day.to_string() == text).ok_or_else(wrong)
}

/// Finds a zone; universal time if none is named.
pub(crate) fn zone(name: Option<&str>) -> Result<(String, TimeZone), SkyError> {
    let name = name.unwrap_or("UTC");
    let wrong = || SkyError::NoZone(safe::clean(safe::cut(name, 60)));
    let zone = TimeZone::get(name).map_err(|_| wrong())?;
    Ok((zone.iana_name().ok_or_else(wrong)?.to_owned(), zone))
}

/// All events from the beginning of one day to the beginning of another, in the order of time.
///
/// # Errors
/// If the days, their order or the zone cannot be.
pub fn events(from: &str, to: &str, zone_name: Option<&str>) -> Result<Sky, SkyError> {
    let (first, after) = (day(from)?, day(to)?);
    let (name, zone) = zone(zone_name)?;
    if first.year() < YEAR_MIN || after.year() > YEAR_MAX {
        return Err(SkyError::Year);
    }
    let days = first.until(after).map_or(0, |span| i64::from(span.get_days()));
    if !(1..=DAYS_MAX).contains(&days) {
        return Err(SkyError::Span(days));
    }
    let start = |day: Date| day.to_zoned_datetime(zone.clone()).map(|at| at.timestamp()).map_err(|_| SkyError::Year);
    let (begin, end) = (start(first)?, start(after)?);
    // A margin on both sides: what happens close to an end must be seen from both of its sides.
    let (low, high) = (time::jde(begin) - 3.0, time::jde(end) + 3.0);
    let mut found = yearly::seasons(low, high);
    let phases = yearly::phases(low, high);
    found.extend(eclipse::eclipses(&phases));
    found.extend(phases);
    found.extend(planets::events(low, high));
    let mut dated: Vec<(Timestamp, Found)> = found.into_iter().map(|one| (time::instant(one.jde), one)).collect();
    dated.retain(|(at, _)| (begin..end).contains(at));
    dated.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.kind.cmp(&b.1.kind)).then(a.1.bodies.cmp(&b.1.bodies)));
    let events = dated.into_iter().map(|(at, found)| event(at, found, &zone)).collect();
    Ok(Sky { from: from.to_owned(), to: to.to_owned(), zone: name, events })
}

fn event(at: Timestamp, found: Found, zone: &TimeZone) -> Event {
    let utc = at.to_zoned_datetime(TimeZone::UTC);
    let local = at.to_zoned_datetime(zone.clone());
    let mut id = format!("{}-{}", utc.date(), found.kind.as_str());
    for body in &found.bodies {
        id.push('-');
        id.push_str(&body.to_lowercase());
    }
    let rounded = |value: f64| (value * 100.0).round() / 100.0;
    Event {
        id,
        kind: found.kind,
        at: utc.strftime("%Y-%m-%dT%H:%MZ").to_string(),
        local: local.strftime("%Y-%m-%d %H:%M").to_string(),
        title: title(&found),
        bodies: found.bodies.iter().map(|body| (*body).to_owned()).collect(),
        form: found.form.map(str::to_owned),
        degrees: found.degrees.map(rounded),
        magnitude: found.magnitude.map(rounded),
    }
}

fn title(found: &Found) -> String {
    let body = |index: usize| found.bodies.get(index).copied().unwrap_or_default();
    let form = found.form.unwrap_or_default();
    let capital = |text: &str| {
        let mut letters = text.chars();
        letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
    };
    match found.kind {
        Kind::NewMoon => "New Moon".to_owned(),
        Kind::FirstQuarter => "First quarter of the Moon".to_owned(),
        Kind::FullMoon => "Full Moon".to_owned(),
        Kind::LastQuarter => "Last quarter of the Moon".to_owned(),
        Kind::MarchEquinox => "March equinox".to_owned(),
        Kind::JuneSolstice => "June solstice".to_owned(),
        Kind::SeptemberEquinox => "September equinox".to_owned(),
        Kind::DecemberSolstice => "December solstice".to_owned(),
        Kind::SolarEclipse => format!("{} eclipse of the Sun", capital(form)),
        Kind::LunarEclipse => format!("{} eclipse of the Moon", capital(form)),
        Kind::Opposition => format!("{} opposite the Sun", body(0)),
        Kind::GreatestElongation => format!("{} farthest from the Sun in the {form} sky", body(0)),
        Kind::Conjunction => format!("{} close to {}", body(0), body(1)),
        Kind::InferiorConjunction => format!("{} between the Earth and the Sun", body(0)),
        Kind::SuperiorConjunction => format!("{} behind the Sun", body(0)),
    }
}
