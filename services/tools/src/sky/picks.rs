//! Which events of a span are worth an explainer: a rule that can be read, not a score that cannot.

use std::cmp::Reverse;

use super::event::{Event, Kind};

/// Most events that are picked.
pub(crate) const COUNT_MAX: usize = 40;
/// How many if nobody says.
pub(crate) const COUNT_DEFAULT: usize = 6;

/// The events that most people would want to hear of, in the order of time. An eclipse stands for the phase it comes with,
/// and no kind takes more than half of the places.
pub(super) fn pick(events: Vec<Event>, count: usize) -> Vec<Event> {
    let days: Vec<String> = eclipse_days(&events);
    let covered = |event: &Event| event.kind.is_phase() && days.iter().any(|day| event.at.starts_with(day));
    let mut ranked: Vec<Event> = events.into_iter().filter(|event| !covered(event)).collect();
    ranked.sort_by_key(|event| (Reverse(worth(event)), event.at.clone()));
    let of_one_kind_max = count.div_ceil(2);
    let mut picked: Vec<Event> = Vec::new();
    for event in ranked {
        let same = picked.iter().filter(|other| other.kind == event.kind).count();
        if picked.len() < count && same < of_one_kind_max {
            picked.push(event);
        }
    }
    picked.sort_by(|a, b| a.at.cmp(&b.at).then(a.id.cmp(&b.id)));
    picked
}

fn eclipse_days(events: &[Event]) -> Vec<String> {
    let eclipses = events.iter().filter(|event| matches!(event.kind, Kind::SolarEclipse | Kind::LunarEclipse));
    eclipses.filter_map(|event| event.at.get(..10).map(str::to_owned)).collect()
}

/// From an eclipse of the Sun down to what cannot be seen at all.
fn worth(event: &Event) -> u32 {
    let form = event.form.as_deref().unwrap_or_default();
    match event.kind {
        Kind::SolarEclipse => {
            if form == "partial" {
                70
            } else {
                100
            }
        }
        Kind::LunarEclipse => match form {
            "total" => 95,
            "partial" => 65,
            _ => 20,
        },
        Kind::MarchEquinox | Kind::JuneSolstice | Kind::SeptemberEquinox | Kind::DecemberSolstice => 60,
        Kind::Opposition => 55,
        // The closer the better.
        Kind::Conjunction => {
            if event.degrees.is_some_and(|degrees| degrees < 1.0) {
                58
            } else {
                44
            }
        }
        Kind::GreatestElongation => 46,
        Kind::FullMoon => 30,
        Kind::NewMoon => 22,
        Kind::InferiorConjunction => 15,
        Kind::FirstQuarter | Kind::LastQuarter => 10,
        Kind::SuperiorConjunction => 5,
    }
}
