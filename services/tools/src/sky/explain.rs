//! Explainers: what an event is, when, what there is to see and why it happens, short and long.
//!
//! Every sentence follows from the event's own fields or is common knowledge of the sky. What depends on the place of the
//! reader is not worked out, and each text says so.

use jiff::civil::DateTime;
use serde::{Deserialize, Serialize};

use super::event::{Event, Kind};

/// How much is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Length {
    /// Two or three sentences.
    Short,
    /// A page.
    Long,
}

/// An explainer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Explainer {
    pub(crate) title: String,
    pub(crate) length: Length,
    /// The moment in words.
    pub(crate) when: String,
    /// In order; of a long one each with a heading.
    pub(crate) parts: Vec<Part>,
    pub(crate) event: Event,
}

/// A paragraph.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Part {
    /// Empty in a short one.
    #[serde(default)]
    pub(crate) heading: String,
    pub(crate) text: String,
}

/// Explains one event.
pub(super) fn explain(event: &Event, length: Length, zone: &str) -> Explainer {
    let when = when(event, zone);
    let parts = match length {
        Length::Short => {
            vec![Part {
                heading: String::new(),
                text: format!("{} {} {}", sentence(event, &when), what(event), look(event)),
            }]
        }
        Length::Long => [
            ("When", format!("{} {}", sentence(event, &when), tolerance(event))),
            ("What happens", what(event)),
            ("What to look for", look(event)),
            ("Why it happens", why(event.kind).to_owned()),
            ("When it happens again", again(event.kind).to_owned()),
        ]
        .into_iter()
        .map(|(heading, text)| Part { heading: heading.to_owned(), text })
        .collect(),
    };
    Explainer { title: event.title.clone(), length, when, parts, event: event.clone() }
}

/// `12 August 2026, 17:46 UTC (19:46 in Europe/Berlin)`.
pub(super) fn when(event: &Event, zone: &str) -> String {
    let utc = event.at.trim_end_matches('Z').replace('T', " ");
    let Some((day, time)) = utc.split_once(' ') else { return event.at.clone() };
    let stated = format!("{}, {time} UTC", long_day(day));
    if zone == "UTC" {
        return stated;
    }
    match event.local.split_once(' ') {
        Some((local_day, local_time)) if local_day == day => format!("{stated} ({local_time} in {zone})"),
        Some((local_day, local_time)) => {
            format!("{stated} ({local_time} on {} in {zone})", long_day(local_day))
        }
        None => stated,
    }
}

/// `12 August 2026`; the text itself if it is no day.
pub(crate) fn long_day(day: &str) -> String {
    match day.parse::<jiff::civil::Date>() {
        Ok(date) => date.strftime("%-d %B %Y").to_string(),
        Err(_) => day.to_owned(),
    }
}

fn body(event: &Event, index: usize) -> &str {
    event.bodies.get(index).map_or("the planet", String::as_str)
}

fn degrees(event: &Event) -> String {
    let value = event.degrees.unwrap_or(0.0);
    if value < 1.0 { format!("{value:.2} degrees") } else { format!("{value:.1} degrees") }
}

fn sentence(event: &Event, when: &str) -> String {
    let subject = match event.kind {
        Kind::NewMoon => "The Moon is new".to_owned(),
        Kind::FirstQuarter => "The Moon reaches its first quarter".to_owned(),
        Kind::FullMoon => "The Moon is full".to_owned(),
        Kind::LastQuarter => "The Moon reaches its last quarter".to_owned(),
        Kind::MarchEquinox => "The March equinox falls".to_owned(),
        Kind::JuneSolstice => "The June solstice falls".to_owned(),
        Kind::SeptemberEquinox => "The September equinox falls".to_owned(),
        Kind::DecemberSolstice => "The December solstice falls".to_owned(),
        Kind::SolarEclipse | Kind::LunarEclipse => "The eclipse is at its greatest".to_owned(),
        Kind::Opposition => format!("{} stands opposite the Sun", body(event, 0)),
        Kind::GreatestElongation => format!("{} stands farthest from the Sun", body(event, 0)),
        Kind::Conjunction => format!("{} and {} are closest together", body(event, 0), body(event, 1)),
        Kind::InferiorConjunction => format!("{} passes between the Earth and the Sun", body(event, 0)),
        Kind::SuperiorConjunction => format!("{} passes behind the Sun", body(event, 0)),
    };
    format!("{subject} on {when}.")
}

fn tolerance(event: &Event) -> String {
    match event.kind.tolerance_minutes() {
        2 => "The time is worked out to within about two minutes.".to_owned(),
        minutes if minutes < 60 => format!("The time is worked out to within about {minutes} minutes."),
        minutes => format!(
            "The planets move so slowly against each other that the exact time hardly matters; it is worked out to within \
             about {} hours.",
            minutes / 60
        ),
    }
}

fn what(event: &Event) -> String {
    let form = event.form.as_deref().unwrap_or_default();
    match event.kind {
        Kind::NewMoon => "The Moon stands in the direction of the Sun and shows us its dark side.".to_owned(),
        Kind::FirstQuarter => "Half of the Moon's disc is lit, and the lit part is growing.".to_owned(),
        Kind::FullMoon => "The Moon stands opposite the Sun, and the whole of its disc is lit.".to_owned(),
        Kind::LastQuarter => "Half of the Moon's disc is lit, and the lit part is shrinking.".to_owned(),
        Kind::MarchEquinox => {
            "The Sun crosses the plane of the Earth's equator on its way north. Day and night are nearly equal everywhere; \
             spring begins in the northern half of the Earth, autumn in the southern."
                .to_owned()
        }
        Kind::JuneSolstice => {
            "The Sun stands as far north as it gets. The northern half of the Earth has its longest day, the southern its \
             shortest."
                .to_owned()
        }
        Kind::SeptemberEquinox => {
            "The Sun crosses the plane of the Earth's equator on its way south. Day and night are nearly equal everywhere; \
             autumn begins in the northern half of the Earth, spring in the southern."
                .to_owned()
        }
        Kind::DecemberSolstice => {
            "The Sun stands as far south as it gets. The northern half of the Earth has its shortest day, the southern its \
             longest."
                .to_owned()
        }
        Kind::SolarEclipse => match form {
            "total" => "The Moon covers the whole disc of the Sun along a narrow path on the Earth, and a part of it in a wide \
                        region on both sides of that path."
                .to_owned(),
            "annular" => "The Moon is too far away to cover the Sun: along a narrow path on the Earth a bright ring is left, and \
                          in a wide region on both sides a part of the Sun is covered."
                .to_owned(),
            "hybrid" => "The Moon just covers the Sun in the middle of a narrow path on the Earth and leaves a thin ring at its \
                         ends; in a wide region on both sides a part of the Sun is covered."
                .to_owned(),
            _ => format!(
                "The axis of the Moon's shadow misses the Earth, so no place sees the whole Sun covered. Where it is covered \
                 most, {} of its diameter is hidden.",
                percent(event)
            ),
        },
        Kind::LunarEclipse => match form {
            "total" => "The whole Moon passes through the dark core of the Earth's shadow.".to_owned(),
            "partial" => {
                format!("A part of the Moon passes through the dark core of the Earth's shadow: at most {} of its diameter.", percent(event))
            }
            _ => "The Moon passes only through the pale outer part of the Earth's shadow.".to_owned(),
        },
        Kind::Opposition => format!(
            "Seen from the Earth, {0} and the Sun stand on opposite sides of the sky. {0} is about as near and as bright as it \
             gets this time round.",
            body(event, 0)
        ),
        Kind::GreatestElongation => format!(
            "Seen from the Earth, {} is {} away from the Sun, which is as far as it gets this time.",
            body(event, 0),
            degrees(event)
        ),
        Kind::Conjunction => {
            let moons = event.degrees.unwrap_or(0.0) / 0.52;
            let widths = match moons {
                moons if moons < 0.95 => "less than the width of the Moon's disc".to_owned(),
                moons if moons < 1.5 => "about the width of the Moon's disc".to_owned(),
                moons => format!("about {moons:.0} widths of the Moon's disc"),
            };
            format!("Seen from the Earth, {} and {} are {} apart, {widths}.", body(event, 0), body(event, 1), degrees(event))
        }
        Kind::InferiorConjunction => {
            format!("{} overtakes the Earth on its inner path and turns its dark side towards us.", body(event, 0))
        }
        Kind::SuperiorConjunction => format!("{} stands on the far side of the Sun.", body(event, 0)),
    }
}

fn percent(event: &Event) -> String {
    let share = (event.magnitude.unwrap_or(0.0) * 100.0).round().clamp(1.0, 99.0);
    format!("{share:.0} percent")
}

fn look(event: &Event) -> String {
    let form = event.form.as_deref().unwrap_or_default();
    let side = if form == "evening" { "low in the west after sunset" } else { "low in the east before sunrise" };
    match event.kind {
        Kind::NewMoon => "There is nothing to see of the Moon itself; the nights around this are the darkest of the month, good for \
                          faint stars. A thin crescent returns to the evening sky a day or two later."
            .to_owned(),
        Kind::FirstQuarter => "It stands high around sunset and sets around midnight. Along the line between light and dark, \
                               mountains and craters show best in binoculars."
            .to_owned(),
        Kind::FullMoon => "It rises around sunset, is highest around midnight and sets around sunrise.".to_owned(),
        Kind::LastQuarter => "It rises around midnight and stands high around sunrise.".to_owned(),
        Kind::MarchEquinox | Kind::JuneSolstice | Kind::SeptemberEquinox | Kind::DecemberSolstice => "The moment itself cannot be seen. What can be seen is the Sun's path: note where on the \
                                     horizon it rises or sets, and compare in a few weeks."
            .to_owned(),
        Kind::SolarEclipse => "Whether it is seen at all depends on the place: look up a local map. Do not look at the Sun without a \
                               certified filter, even when most of it is covered."
            .to_owned(),
        Kind::LunarEclipse => match form {
            "penumbral" => "It is seen wherever the Moon is above the horizon, but only as a faint shading that is easy to miss.".to_owned(),
            "total" => "It is seen wherever the Moon is above the horizon, with bare eyes and without danger. Deep in the shadow the \
                        Moon turns copper red."
                .to_owned(),
            _ => "It is seen wherever the Moon is above the horizon, with bare eyes and without danger: a dark bite out of the \
                  bright disc."
                .to_owned(),
        },
        Kind::Opposition => format!(
            "{} rises around sunset, is highest around midnight and can be seen all night, for weeks before and after.{}",
            body(event, 0),
            match body(event, 0) {
                "Jupiter" => " Binoculars held still show its four large moons.",
                "Saturn" => " A small telescope shows its ring.",
                _ => " Its colour is a steady orange.",
            }
        ),
        Kind::GreatestElongation if body(event, 0) == "Venus" => {
            format!("Look {}: it is the brightest point there.", side.trim_start_matches("low "))
        }
        Kind::GreatestElongation => format!("Look {side}, where the sky is clear down to the horizon."),
        Kind::Conjunction => format!(
            "Look for the pair in the {form} sky, on the days before and after as well: from one day to the next the two change \
             places. They only seem close; one is far behind the other."
        ),
        Kind::InferiorConjunction | Kind::SuperiorConjunction => {
            format!("{} is lost in the light of the Sun and cannot be seen for a while.", body(event, 0))
        }
    }
}

const fn why(kind: Kind) -> &'static str {
    match kind {
        Kind::NewMoon | Kind::FirstQuarter | Kind::FullMoon | Kind::LastQuarter => {
            "The Moon gives no light of its own. As it goes round the Earth we see a larger or a smaller part of the half that the Sun lights."
        }
        Kind::MarchEquinox | Kind::JuneSolstice | Kind::SeptemberEquinox | Kind::DecemberSolstice => {
            "The Earth's axis leans by 23.4 degrees and keeps its direction all year. So each half of the Earth leans towards the Sun \
             for one half of the year and away from it for the other."
        }
        Kind::SolarEclipse => {
            "At new Moon the Moon passes between us and the Sun, mostly above or below it, because its path is tilted by 5 degrees \
             against the Sun's. Where the two paths cross, it passes in front."
        }
        Kind::LunarEclipse => {
            "At full Moon the Moon passes behind the Earth, mostly above or below its shadow, because its path is tilted by 5 \
             degrees against the Sun's. Where the two paths cross, it goes through."
        }
        Kind::Opposition => {
            "The Earth goes round the Sun faster than the planets outside its own path, and overtakes each of them once on every lap."
        }
        Kind::GreatestElongation | Kind::InferiorConjunction => {
            "The planet's path lies inside the Earth's, so we never see it far from the Sun: it swings out to one side, comes back, and \
             swings out to the other."
        }
        Kind::Conjunction => {
            "All planets go round the Sun in nearly the same plane, so in our sky they all keep to one band, and the faster one \
             passes the slower one there."
        }
        Kind::SuperiorConjunction => "The planet and the Earth are on opposite sides of the Sun.",
    }
}

const fn again(kind: Kind) -> &'static str {
    match kind {
        Kind::NewMoon | Kind::FirstQuarter | Kind::FullMoon | Kind::LastQuarter => {
            "The same phase comes back after 29 or 30 days."
        }
        Kind::MarchEquinox | Kind::JuneSolstice | Kind::SeptemberEquinox | Kind::DecemberSolstice => {
            "It comes back after 365 days and about 6 hours, which is why the date moves within a day or two and leap years bring it back."
        }
        Kind::SolarEclipse => {
            "There are two to five eclipses of the Sun a year somewhere on the Earth; one place waits centuries for a total one."
        }
        Kind::LunarEclipse => "Most years bring two or three eclipses of the Moon, the faint ones counted.",
        Kind::Opposition => "Jupiter and Saturn come to opposition about once a year, Mars about every 26 months.",
        Kind::GreatestElongation => {
            "Mercury swings out six or seven times a year, Venus about every 19 months to the same side."
        }
        Kind::Conjunction => {
            "Some pair of bright planets meets nearly every year; the same pair may take anything from a year to twenty."
        }
        Kind::InferiorConjunction => "Mercury does this about three times a year, Venus about every 19 months.",
        Kind::SuperiorConjunction => "Each planet does this about once on every lap it makes against the Earth.",
    }
}

/// Whether a text is a moment as events state it.
pub(super) fn is_moment(text: &str) -> bool {
    text.len() == 17 && text.ends_with('Z') && text.get(..16).is_some_and(|moment| moment.parse::<DateTime>().is_ok())
}
