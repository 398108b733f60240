//! Simple pictures of events, as SVG: a disc of the Moon, an eclipse, the leaning Earth, the planets on their paths.
//!
//! Drawn from the same series as the times, not to scale where it says so. No text of anybody else gets in.

use std::f64::consts::{PI, TAU};
use std::fmt::Write as _;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::event::{Event, Kind};
use super::series::{Planet, heliocentric};
use super::time;
use crate::briefing::compose::listed;

const INK: &str = "#e8e6df";
const NIGHT: &str = "#12161c";
const SUN: &str = "#f2c14e";

/// A picture.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Picture {
    /// The id of its event.
    pub(crate) event: String,
    /// `EVENT.svg`.
    pub(crate) file: String,
    /// What it shows, for those who do not see it.
    pub(crate) shows: String,
    /// The picture.
    pub(crate) svg: String,
}

/// Draws an event.
pub(super) fn draw(event: &Event) -> Picture {
    let (inner, shows) = match event.kind {
        Kind::NewMoon => (moon(0.0, false), "The dark disc of the new Moon.".to_owned()),
        Kind::FirstQuarter => {
            (moon(0.5, true), "The Moon, its right half lit, as seen from the northern half of the Earth.".to_owned())
        }
        Kind::FullMoon => (moon(1.0, true), "The full disc of the Moon.".to_owned()),
        Kind::LastQuarter => {
            (moon(0.5, false), "The Moon, its left half lit, as seen from the northern half of the Earth.".to_owned())
        }
        Kind::SolarEclipse => solar(event),
        Kind::LunarEclipse => lunar(event),
        Kind::MarchEquinox | Kind::JuneSolstice | Kind::SeptemberEquinox | Kind::DecemberSolstice => season(event.kind),
        Kind::Opposition
        | Kind::GreatestElongation
        | Kind::Conjunction
        | Kind::InferiorConjunction
        | Kind::SuperiorConjunction => paths(event),
    };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 400 300\" width=\"400\" height=\"300\" role=\"img\" \
         aria-label=\"{shows}\">\n<title>{shows}</title>\n<rect width=\"400\" height=\"300\" fill=\"{NIGHT}\"/>\n"
    );
    svg.push_str(&inner);
    svg.push_str("</svg>\n");
    Picture { event: event.id.clone(), file: format!("{}.svg", plain_id(event)), shows, svg }
}

/// What the files of an event are called. A handed-in event may claim any id; only a plain one names a file.
pub(super) fn plain_id(event: &Event) -> String {
    let plain = event.id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') && event.id.len() <= 80;
    if plain && !event.id.is_empty() { event.id.clone() } else { event.kind.as_str().to_owned() }
}

/// A disc of which a part is lit, on the right or on the left.
fn moon(lit: f64, right: bool) -> String {
    let mut out = "<circle cx=\"200\" cy=\"150\" r=\"100\" fill=\"#2a3038\" stroke=\"#4a525c\"/>\n".to_owned();
    if lit >= 1.0 {
        let _ = writeln!(out, "<circle cx=\"200\" cy=\"150\" r=\"100\" fill=\"{INK}\"/>");
    } else if lit > 0.0 {
        let sweep = i32::from(right);
        let _ = writeln!(out, "<path d=\"M200 50 A100 100 0 0 {sweep} 200 250 Z\" fill=\"{INK}\"/>");
    }
    out
}

fn solar(event: &Event) -> (String, String) {
    let form = event.form.as_deref().unwrap_or_default();
    let (radius, shift, shows) = match form {
        "total" | "hybrid" => {
            (101.0, 0.0, "The black disc of the Moon covers the Sun; a faint glow is left around it.".to_owned())
        }
        "annular" => {
            (92.0, 0.0, "The black disc of the Moon before the Sun, with a bright ring left around it.".to_owned())
        }
        _ => {
            let covered = event.magnitude.unwrap_or(0.5).clamp(0.02, 0.99);
            let shows =
                format!("The Sun with {:.0} percent of its diameter covered by the dark Moon.", covered * 100.0);
            (100.0, 200.0 * (1.0 - covered), shows)
        }
    };
    let glow = if radius > 100.0 {
        "<circle cx=\"200\" cy=\"150\" r=\"125\" fill=\"#3a4048\"/>\n<circle cx=\"200\" cy=\"150\" r=\"110\" fill=\"#9aa0a6\"/>\n"
    } else {
        ""
    };
    let centre = 200.0 - shift;
    let svg = format!(
        "{glow}<circle cx=\"200\" cy=\"150\" r=\"100\" fill=\"{SUN}\"/>\n\
         <circle cx=\"{centre:.1}\" cy=\"150\" r=\"{radius}\" fill=\"#06080a\"/>\n"
    );
    (svg, shows)
}

fn lunar(event: &Event) -> (String, String) {
    let form = event.form.as_deref().unwrap_or_default();
    let inside = event.magnitude.unwrap_or(0.5).clamp(0.0, 2.0);
    // The shadow's core is about 2.7 times as wide as the Moon, its outer part 4.6 times.
    let (moon, core, outer) = (34.0, 92.0, 156.0);
    let edge = if form == "penumbral" { outer } else { core };
    let centre = (edge + moon - 2.0 * moon * inside).max(0.0);
    let colour = if form == "total" { "#b5583a" } else { INK };
    let shows = match form {
        "total" => "The Moon inside the dark core of the Earth's shadow, copper red.",
        "partial" => "The Moon at the edge of the dark core of the Earth's shadow.",
        _ => "The Moon in the pale outer part of the Earth's shadow.",
    };
    let mut svg = format!(
        "<circle cx=\"200\" cy=\"150\" r=\"{outer}\" fill=\"#1d232b\"/>\n<circle cx=\"200\" cy=\"{:.1}\" r=\"{moon}\" fill=\"{colour}\"/>\n",
        150.0 + centre
    );
    let opacity = if form == "total" { "0.35" } else { "0.85" };
    let _ = writeln!(svg, "<circle cx=\"200\" cy=\"150\" r=\"{core}\" fill=\"#07090c\" opacity=\"{opacity}\"/>");
    (svg, shows.to_owned())
}

/// The Earth leaning towards the Sun on the left, away from it, or neither.
fn season(kind: Kind) -> (String, String) {
    let (lean, shows) = if kind == Kind::JuneSolstice {
        (-23.4, "The Earth leans its northern half towards the Sun on the left; not to scale.")
    } else if kind == Kind::DecemberSolstice {
        (23.4, "The Earth leans its northern half away from the Sun on the left; not to scale.")
    } else {
        (0.0, "Sunlight from the left reaches both poles of the Earth alike; not to scale.")
    };
    let mut svg = format!("<circle cx=\"0\" cy=\"150\" r=\"70\" fill=\"{SUN}\"/>\n");
    for y in [110, 130, 150, 170, 190] {
        let _ = writeln!(
            svg,
            "<line x1=\"90\" y1=\"{y}\" x2=\"190\" y2=\"{y}\" stroke=\"{SUN}\" stroke-dasharray=\"4 6\"/>"
        );
    }
    let _ = write!(
        svg,
        "<circle cx=\"270\" cy=\"150\" r=\"60\" fill=\"#20405f\"/>\n\
         <path d=\"M270 90 A60 60 0 0 0 270 210 Z\" fill=\"#6fa3cf\"/>\n\
         <g transform=\"rotate({lean} 270 150)\"><line x1=\"270\" y1=\"70\" x2=\"270\" y2=\"230\" stroke=\"{INK}\" stroke-width=\"2\"/>\n\
         <line x1=\"210\" y1=\"150\" x2=\"330\" y2=\"150\" stroke=\"{INK}\"/></g>\n"
    );
    (svg, shows.to_owned())
}

/// The Sun, the Earth and the planets of the event on their paths, from the north, where they stand at that moment.
fn paths(event: &Event) -> (String, String) {
    let at: Option<Timestamp> = format!("{}:00Z", event.at.trim_end_matches('Z')).parse().ok();
    let jde = time::jde(at.unwrap_or_default());
    let mut bodies: Vec<Planet> = event.bodies.iter().filter_map(|name| Planet::named(name)).take(2).collect();
    bodies.push(Planet::Earth);
    // Paths are drawn in their order, evenly spaced, because to scale the inner ones would vanish.
    bodies.sort();
    bodies.dedup();
    let gap = 120.0 / bodies.len().max(1) as f64;
    let names: Vec<String> = bodies
        .iter()
        .map(|body| if *body == Planet::Earth { "the Earth".to_owned() } else { body.name().to_owned() })
        .collect();
    let shows =
        format!("The Sun and, on their paths around it, {}, seen from the north; not to scale.", listed(&names));
    let mut svg = format!("<circle cx=\"200\" cy=\"150\" r=\"12\" fill=\"{SUN}\"/>\n");
    for (index, body) in bodies.iter().enumerate() {
        let radius = gap * (index as f64 + 1.0);
        let longitude = heliocentric(*body, jde).longitude;
        let (x, y) = (200.0 + radius * longitude.cos(), 150.0 - radius * longitude.sin());
        let colour = if *body == Planet::Earth { "#6fa3cf" } else { INK };
        let anchor = if longitude.rem_euclid(TAU) > PI / 2.0 && longitude.rem_euclid(TAU) < 3.0 * PI / 2.0 {
            ("end", -10.0)
        } else {
            ("start", 10.0)
        };
        let _ = write!(
            svg,
            "<circle cx=\"200\" cy=\"150\" r=\"{radius:.1}\" fill=\"none\" stroke=\"#3a424c\"/>\n\
             <circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"6\" fill=\"{colour}\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" fill=\"{INK}\" font-family=\"sans-serif\" font-size=\"13\" text-anchor=\"{}\">{}</text>\n",
            x + anchor.1,
            y + 4.5,
            anchor.0,
            body.name()
        );
    }
    (svg, shows)
}
