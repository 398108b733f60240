//! A season as a frame of moments, and sober scripts for gatherings around them.
//!
//! The scripts are templates around what was worked out: when to meet, what stands in the sky, what to say about it, and
//! readings that are quoted from the sources of the research. They claim nothing about what a moment does to anybody.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::event::{Event, Kind, Sky};
use super::explain::{Length, explain, long_day, when};
use crate::briefing::model::{Passage, Quote};
use crate::page::counted;

/// Most gatherings of one program.
const GATHERINGS_MAX: usize = 24;
/// The part that tells what happens, and the first time also why.
const SAID: &str = "Say what the day is";
/// Most readings of one gathering.
const READINGS_MAX: usize = 2;

/// Which half of the Earth the season is named for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Hemisphere {
    #[default]
    North,
    South,
}

/// The season: its turn and the moments to meet at.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Frame {
    pub(crate) title: String,
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) zone: String,
    pub(crate) hemisphere: Hemisphere,
    /// What the season is, in sentences.
    pub(crate) summary: Vec<String>,
    /// Turns, full and new Moons and eclipses, in the order of time.
    pub(crate) events: Vec<Event>,
}

/// The span holds no equinox or solstice.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("from {0} to {1} there is no equinox and no solstice; give a span that holds the turn of the season")]
pub(crate) struct NoTurn(String, String);

/// What a season is called.
const fn name(turn: Kind, hemisphere: Hemisphere) -> &'static str {
    match (turn, hemisphere) {
        (Kind::MarchEquinox, Hemisphere::North) | (Kind::SeptemberEquinox, Hemisphere::South) => "Spring",
        (Kind::JuneSolstice, Hemisphere::North) | (Kind::DecemberSolstice, Hemisphere::South) => "Summer",
        (Kind::SeptemberEquinox, Hemisphere::North) | (Kind::MarchEquinox, Hemisphere::South) => "Autumn",
        _ => "Winter",
    }
}

/// Frames the season that turns first in the span.
pub(super) fn frame(sky: Sky, hemisphere: Hemisphere) -> Result<Frame, NoTurn> {
    let Some(turn) = sky.events.iter().find(|event| event.kind.is_season()).cloned() else {
        return Err(NoTurn(sky.from, sky.to));
    };
    let season = name(turn.kind, hemisphere);
    let events: Vec<Event> = sky
        .events
        .into_iter()
        .filter(|event| {
            event.kind.is_season()
                || matches!(event.kind, Kind::FullMoon | Kind::NewMoon | Kind::SolarEclipse | Kind::LunarEclipse)
        })
        .take(200)
        .collect();
    let count = |kind: Kind| events.iter().filter(|event| event.kind == kind).count();
    let eclipses = count(Kind::SolarEclipse) + count(Kind::LunarEclipse);
    let mut summary = vec![
        format!("{season} begins with the {} on {}.", lower_first(&turn.title), when(&turn, &sky.zone)),
        format!(
            "From {} until {} there are {} and {}.",
            long_day(&sky.from),
            long_day(&sky.to),
            counted(count(Kind::NewMoon), "new Moon", "new Moons"),
            counted(count(Kind::FullMoon), "full Moon", "full Moons")
        ),
    ];
    if eclipses > 0 {
        summary.push(format!(
            "{} in this time; whether it is seen depends on the place.",
            if eclipses == 1 { "One eclipse falls".to_owned() } else { format!("{eclipses} eclipses fall") }
        ));
    }
    let year = turn.local.get(..4).unwrap_or_default();
    // The season that begins in December belongs to two years.
    let year = match (turn.kind, year.parse::<u32>()) {
        (Kind::DecemberSolstice, Ok(first)) => format!("{first}/{:02}", (first + 1) % 100),
        _ => year.to_owned(),
    };
    Ok(Frame {
        title: format!("{season} {year}"),
        from: sky.from,
        to: sky.to,
        zone: sky.zone,
        hemisphere,
        summary,
        events,
    })
}

fn lower_first(text: &str) -> String {
    // "June solstice" keeps its month.
    let proper = ["March", "June", "September", "December"].iter().any(|month| text.starts_with(month));
    if proper { text.to_owned() } else { text.to_lowercase() }
}

/// The program of a season.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Program {
    pub(crate) title: String,
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) zone: String,
    pub(crate) introduction: Vec<String>,
    pub(crate) gatherings: Vec<Gathering>,
}

/// One gathering: its moment and its script.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Gathering {
    pub(crate) title: String,
    pub(crate) when: String,
    pub(crate) minutes: u32,
    pub(crate) needs: Vec<String>,
    pub(crate) parts: Vec<ScriptPart>,
    pub(crate) event: Event,
    /// Words of the sources of the research.
    #[serde(default)]
    pub(crate) readings: Vec<Quote>,
}

/// A part of a script: what happens, and for how long.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ScriptPart {
    pub(crate) name: String,
    pub(crate) minutes: u32,
    pub(crate) lines: Vec<String>,
}

/// Writes the scripts: one gathering for each turn of the year, full Moon and eclipse.
pub(super) fn scripts(frame: Frame, passages: Vec<Passage>) -> Program {
    let days: Vec<String> = frame
        .events
        .iter()
        .filter(|event| matches!(event.kind, Kind::LunarEclipse))
        .filter_map(|event| event.at.get(..10).map(str::to_owned))
        .collect();
    let meets = |event: &&Event| {
        let eclipsed = event.kind == Kind::FullMoon && days.iter().any(|day| event.at.starts_with(day));
        event.kind != Kind::NewMoon && !eclipsed
    };
    let events: Vec<&Event> = frame.events.iter().filter(meets).take(GATHERINGS_MAX).collect();
    let mut readings = passages.into_iter().map(|passage| passage.quote);
    let mut explained = BTreeSet::new();
    let gatherings = events
        .iter()
        .enumerate()
        .map(|(index, event)| {
            let readings: Vec<Quote> = readings.by_ref().take(READINGS_MAX).collect();
            let mut one = gathering(event, &frame.zone, readings, index == 0, index + 1 == events.len());
            // Why the Moon is full need not be told a second time.
            if !explained.insert(event.kind)
                && let Some(said) = one.parts.iter_mut().find(|part| part.name == SAID)
            {
                said.lines.truncate(2);
            }
            one
        })
        .collect();
    let mut introduction = frame.summary.clone();
    introduction.push(
        "Each script takes half an hour and needs no knowledge. It can be read aloud by one person or shared out; leave out what \
         does not suit."
            .to_owned(),
    );
    introduction.push(
        "The times say when the moment falls, not when to meet: meet on that day at an hour that suits you, at dusk where you can."
            .to_owned(),
    );
    Program {
        title: format!("{}: a program of gatherings", frame.title),
        from: frame.from,
        to: frame.to,
        zone: frame.zone,
        introduction,
        gatherings,
    }
}

fn gathering(event: &Event, zone: &str, readings: Vec<Quote>, first: bool, last: bool) -> Gathering {
    let explained = explain(event, Length::Long, zone);
    let part = |heading: &str| {
        explained.parts.iter().find(|part| part.heading == heading).map(|part| part.text.clone()).unwrap_or_default()
    };
    let mut needs = vec!["A place to sit, outside if the weather allows".to_owned()];
    let needed = if event.kind.is_season() {
        "A stick or a stone to mark where the Sun sets"
    } else if event.kind == Kind::SolarEclipse {
        "Certified filters for all who come, if the eclipse is seen from your place"
    } else {
        "A view of the sky without lamps"
    };
    needs.push(needed.to_owned());
    let welcome = match (first, last) {
        (true, _) => "Welcome. This is the first of our gatherings this season.",
        (false, true) => "Welcome. This is the last of our gatherings this season.",
        (false, false) => "Welcome back.",
    };
    let mut parts = vec![
        script("Arrive", 5, vec![welcome.to_owned(), "Sit down, and let the first minutes be quiet.".to_owned()]),
        script(SAID, 5, vec![part("When"), part("What happens"), part("Why it happens")]),
        script("Look", 8, vec![part("What to look for"), act(event.kind).to_owned()]),
    ];
    if !readings.is_empty() {
        parts.push(script("Read", 4, vec!["Read these words aloud, with the name of their source.".to_owned()]));
    }
    parts.push(script(
        "Speak",
        if readings.is_empty() { 9 } else { 5 },
        vec![question(event.kind).to_owned(), "Answer in one or two sentences, or pass.".to_owned()],
    ));
    let closing =
        if last { "Thank you for this season." } else { "Thank you. We meet again at the next moment of the program." };
    parts.push(script("Close", 3, vec!["A minute of silence.".to_owned(), closing.to_owned()]));
    Gathering {
        title: event.title.clone(),
        when: when(event, zone),
        minutes: parts.iter().map(|part| part.minutes).sum(),
        needs,
        parts,
        event: event.clone(),
        readings,
    }
}

fn script(name: &str, minutes: u32, lines: Vec<String>) -> ScriptPart {
    ScriptPart { name: name.to_owned(), minutes, lines: lines.into_iter().filter(|line| !line.is_empty()).collect() }
}

/// What to do while looking.
const fn act(kind: Kind) -> &'static str {
    match kind {
        Kind::MarchEquinox | Kind::JuneSolstice | Kind::SeptemberEquinox | Kind::DecemberSolstice => {
            "Mark where the Sun goes down today. At the next gathering, look how far it has moved."
        }
        Kind::SolarEclipse => {
            "If it is seen from your place, look through the filters in turns; if not, look at the shadows of the day."
        }
        Kind::LunarEclipse => "Take turns saying what has changed since the last look.",
        Kind::NewMoon
        | Kind::FirstQuarter
        | Kind::FullMoon
        | Kind::LastQuarter
        | Kind::Opposition
        | Kind::GreatestElongation
        | Kind::Conjunction
        | Kind::InferiorConjunction
        | Kind::SuperiorConjunction => {
            "Find the Moon, or the place where it stands behind the clouds, and watch it for five minutes without speaking."
        }
    }
}

/// What to speak about.
const fn question(kind: Kind) -> &'static str {
    match kind {
        Kind::MarchEquinox | Kind::SeptemberEquinox => {
            "Day and night are equal. What do you want to keep in balance until the next turn?"
        }
        Kind::JuneSolstice | Kind::DecemberSolstice => {
            "The light turns today. What are you ending, and what are you beginning?"
        }
        Kind::SolarEclipse | Kind::LunarEclipse => "A shadow passes and is gone. What have you seen pass this season?",
        Kind::NewMoon
        | Kind::FirstQuarter
        | Kind::FullMoon
        | Kind::LastQuarter
        | Kind::Opposition
        | Kind::GreatestElongation
        | Kind::Conjunction
        | Kind::InferiorConjunction
        | Kind::SuperiorConjunction => "What has come to light for you since we last met?",
    }
}

/// The scripts to be read aloud, without marks that are only for the eye.
pub(super) fn narration(program: &Program) -> String {
    let mut text = format!("{}.\n{}\n", program.title, program.introduction.join(" "));
    for gathering in &program.gatherings {
        text.push_str(&format!("\n{}.\n", gathering.title));
        for part in &gathering.parts {
            text.push_str(&format!("{}. {}\n", part.name, part.lines.join(" ")));
        }
    }
    text
}
