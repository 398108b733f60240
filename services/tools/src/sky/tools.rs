//! The modes of the tools that are about the sky: arguments in, answers out.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::event::{Event, Sky, SkyError, events};
use super::explain::{Explainer, Length, explain, is_moment};
use super::picks::{COUNT_DEFAULT, COUNT_MAX, pick};
use super::picture::{Picture, draw};
use super::season::{Frame, Hemisphere, Program, frame, narration, scripts};
use super::{YEAR_MAX, file};
use crate::briefing::factcheck::Problem;
use crate::briefing::model::Passage;
use crate::briefing::safe;
use crate::bundled::shared::{args, refusal};
use crate::editorial::tone::Tone;
use crate::editorial::walk::walk_objects;
use crate::modes::{Given, given};
use crate::tool::Failure;

/// Most events that one call takes.
const EVENTS_MAX: usize = 2_000;

impl From<SkyError> for Failure {
    fn from(error: SkyError) -> Self {
        refusal(error.code(), error.to_string())
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SkyArgs {
    from: String,
    to: String,
    #[serde(default)]
    zone: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PickArgs {
    sky: Sky,
    #[serde(default)]
    count: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExplainArgs {
    events: Vec<Event>,
    length: Length,
    #[serde(default)]
    zone: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PictureArgs {
    events: Vec<Event>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RenderEvents {
    short: Vec<Explainer>,
    #[serde(default)]
    long: Vec<Explainer>,
    #[serde(default)]
    pictures: Vec<Picture>,
    #[serde(default)]
    check: Option<Checked>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FrameArgs {
    sky: Sky,
    #[serde(default)]
    hemisphere: Hemisphere,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptArgs {
    frame: Frame,
    #[serde(default)]
    passages: Vec<Passage>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RenderSeason {
    program: Program,
    #[serde(default)]
    pictures: Vec<Picture>,
    #[serde(default)]
    check: Option<Checked>,
    #[serde(default)]
    tone: Option<Tone>,
}

/// What working the events of a work out again found.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Checked {
    /// How many different events the work holds.
    pub(crate) events: usize,
    /// How many came out the same.
    pub(crate) confirmed: usize,
    /// True if all did.
    pub(crate) clear: bool,
    /// Those that did not.
    pub(crate) problems: Vec<Problem>,
}

/// `calendar.read`, mode `sky`.
pub(crate) fn read(asked: &Value) -> Given {
    let SkyArgs { from, to, zone } = args(asked)?;
    given(&events(&from, &to, zone.as_deref())?)
}

/// The modes of `composition.suggest` that are about the sky.
pub(crate) fn compose(mode: &str, asked: &Value) -> Option<Given> {
    Some(match mode {
        "pick-events" => picked(asked),
        "explain" => explained(asked),
        "picture" => drawn(asked),
        "render-events" => args::<RenderEvents>(asked).and_then(|asked| {
            bounded(asked.short.len().max(asked.long.len()))?;
            given(&file::events(&asked.short, &asked.long, &asked.pictures, asked.check.as_ref()))
        }),
        "season-frame" => args::<FrameArgs>(asked).and_then(|FrameArgs { sky, hemisphere }| {
            bounded(sky.events.len())?;
            let frame = frame(sky, hemisphere).map_err(|error| refusal("season-without-turn", error.to_string()))?;
            given(&json!({ "frame": frame }))
        }),
        "scripts" => args::<ScriptArgs>(asked).and_then(|ScriptArgs { frame, passages }| {
            bounded(frame.events.len())?;
            let program = scripts(frame, passages);
            let narration = narration(&program);
            given(&json!({ "program": program, "narration": narration }))
        }),
        "render-season" => args::<RenderSeason>(asked).and_then(|asked| {
            bounded(asked.program.gatherings.len())?;
            given(&file::season(&asked.program, &asked.pictures, asked.check.as_ref(), asked.tone.as_ref()))
        }),
        _ => return None,
    })
}

fn bounded(events: usize) -> Result<(), Failure> {
    if events > EVENTS_MAX {
        return Err(refusal(
            "too-many-events",
            format!("{events} events are too many; at most {EVENTS_MAX} are taken"),
        ));
    }
    Ok(())
}

fn picked(asked: &Value) -> Given {
    let PickArgs { sky, count } = args(asked)?;
    bounded(sky.events.len())?;
    let count = count.unwrap_or(COUNT_DEFAULT);
    if !(1..=COUNT_MAX).contains(&count) {
        return Err(refusal("args-invalid", format!("`count` is 1 to {COUNT_MAX}")));
    }
    let events = pick(sky.events, count);
    if events.is_empty() {
        return Err(refusal("no-events", "nothing happens in the sky in this span; give a longer one"));
    }
    given(&json!({ "events": events, "from": sky.from, "to": sky.to, "zone": sky.zone }))
}

fn explained(asked: &Value) -> Given {
    let ExplainArgs { events, length, zone } = args(asked)?;
    bounded(events.len())?;
    let (zone, _) = super::event::zone(zone.as_deref())?;
    let explainers: Vec<Explainer> = events.iter().map(|event| explain(event, length, &zone)).collect();
    given(&json!({ "explainers": explainers }))
}

fn drawn(asked: &Value) -> Given {
    let PictureArgs { events } = args(asked)?;
    bounded(events.len())?;
    let pictures: Vec<Picture> = events.iter().map(draw).collect();
    given(&json!({ "pictures": pictures }))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CheckArgs {
    work: Value,
}

/// `sophia.fact_check`, mode `sky`: works out again what a work says of the sky.
pub(crate) fn check(asked: &Value) -> Given {
    let CheckArgs { work } = args(asked)?;
    let mut held: BTreeMap<String, Event> = BTreeMap::new();
    let mut problems = Vec::new();
    walk_objects(&work, "", 0, &mut |place, value| {
        let is_event = ["id", "kind", "at", "local"].iter().all(|key| value.get(key).is_some());
        if is_event && held.len() + problems.len() < EVENTS_MAX {
            match Event::deserialize(value) {
                Ok(event) => {
                    held.insert(format!("{} {} {}", event.id, event.at, event.kind.as_str()), event);
                }
                Err(_) => {
                    problems.push(problem(place, "event-not-readable", "it has the fields of an event and is none"))
                }
            }
        }
        is_event
    });
    let (events, mut confirmed) = (held.len() + problems.len(), 0);
    // One look at the sky for each month that holds an event, however many there are.
    let mut skies: BTreeMap<String, Vec<Event>> = BTreeMap::new();
    for event in held.values() {
        let Some(month) = event.at.get(..7).filter(|_| is_moment(&event.at)) else {
            problems.push(problem(
                &event.id,
                "event-not-readable",
                "its time is no moment of the form 2026-08-12T17:46Z",
            ));
            continue;
        };
        if !skies.contains_key(month) {
            skies.insert(month.to_owned(), month_of(month));
        }
        let worked_out = skies.get(month).into_iter().flatten().find(|other| other.id == event.id);
        match worked_out {
            Some(other) if same(other, event) => confirmed += 1,
            Some(_) => problems.push(problem(&event.id, "event-differs", "it comes out with another time or size")),
            None => problems.push(problem(&event.id, "event-not-found", "no such event comes out for that day")),
        }
    }
    given(&Checked { events, confirmed, clear: problems.is_empty(), problems })
}

fn problem(about: &str, code: &str, reason: &str) -> Problem {
    Problem { about: safe::clean(safe::cut(about, 120)), code: code.to_owned(), reason: reason.to_owned() }
}

/// All events of a month in universal time; none outside the years that are worked out.
fn month_of(month: &str) -> Vec<Event> {
    let first = format!("{month}-01");
    let Ok(day) = super::event::day(&first) else { return Vec::new() };
    let (year, next) = if day.month() == 12 { (day.year() + 1, 1) } else { (day.year(), day.month() + 1) };
    if year > YEAR_MAX {
        return Vec::new();
    }
    events(&first, &format!("{year:04}-{next:02}-01"), None).map(|sky| sky.events).unwrap_or_default()
}

/// All but the clock of a zone.
fn same(one: &Event, other: &Event) -> bool {
    one.kind == other.kind
        && one.at == other.at
        && one.bodies == other.bodies
        && one.form == other.form
        && one.degrees == other.degrees
        && one.magnitude == other.magnitude
        && one.title == other.title
}
