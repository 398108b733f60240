//! What the planets do: oppositions, conjunctions with the Sun and with each other, greatest elongations.

use super::event::{Found, Kind};
use super::place::{planet, separation, sun, wrapped};
use super::search::{crossing, least};
use super::series::{Planet, Spherical};

/// How often the sky is looked at. Mercury, the fastest, takes weeks between two events of a kind.
const STEP_DAYS: f64 = 1.0;
/// Two planets farther apart than this are not close, in degrees.
const CLOSE_DEGREES: f64 = 3.0;
/// Closer to the Sun than this, two planets are lost in its light, in degrees.
const GLARE_DEGREES: f64 = 12.0;

/// A day's places.
struct Look {
    jde: f64,
    sun: Spherical,
    planets: Vec<Spherical>,
}

/// All events of the planets between two Julian days.
pub(super) fn events(low: f64, high: f64) -> Vec<Found> {
    let steps = ((high - low) / STEP_DAYS).ceil().max(2.0) as u32;
    let looks: Vec<Look> = (0..=steps)
        .map(|index| {
            let jde = low + STEP_DAYS * f64::from(index);
            Look { jde, sun: sun(jde), planets: Planet::SEEN.into_iter().map(|one| planet(one, jde)).collect() }
        })
        .collect();
    let mut found = Vec::new();
    for (index, body) in Planet::SEEN.into_iter().enumerate() {
        passages(&mut found, &looks, index, body);
        if body.is_inner() {
            elongations(&mut found, &looks, index, body);
        }
        for (other_index, other) in Planet::SEEN.into_iter().enumerate().skip(index + 1) {
            conjunctions(&mut found, &looks, (index, body), (other_index, other));
        }
    }
    found
}

/// Passages of the Sun's longitude, and of the place opposite it.
fn passages(found: &mut Vec<Found>, looks: &[Look], index: usize, body: Planet) {
    let ahead = |jde: f64| planet(body, jde).longitude - sun(jde).longitude;
    for pair in looks.windows(2) {
        let [before, after] = pair else { continue };
        let of = |look: &Look| look.planets.get(index).map_or(0.0, |seen| seen.longitude) - look.sun.longitude;
        for (target, opposite) in [(0.0, false), (std::f64::consts::PI, true)] {
            let (one, other) = (wrapped(of(before) - target), wrapped(of(after) - target));
            if one * other > 0.0 || (one - other).abs() > 3.0 {
                continue;
            }
            let Some(jde) = crossing(before.jde, after.jde, |jde| wrapped(ahead(jde) - target)) else { continue };
            let kind = match (opposite, planet(body, jde).distance < sun(jde).distance) {
                (true, _) => Kind::Opposition,
                (false, true) => Kind::InferiorConjunction,
                (false, false) => Kind::SuperiorConjunction,
            };
            found.push(Found { bodies: vec![body.name()], ..Found::new(kind, jde) });
        }
    }
}

fn elongations(found: &mut Vec<Found>, looks: &[Look], index: usize, body: Planet) {
    let from_sun = |look: &Look| look.planets.get(index).map_or(0.0, |seen| separation(*seen, look.sun));
    for three in looks.windows(3) {
        let [before, at, after] = three else { continue };
        if from_sun(at) < from_sun(before) || from_sun(at) <= from_sun(after) {
            continue;
        }
        let jde = least(before.jde, after.jde, |jde| -separation(planet(body, jde), sun(jde)));
        let (seen, sun) = (planet(body, jde), sun(jde));
        // East of the Sun it sets after it, west of it rises before it.
        let form = if wrapped(seen.longitude - sun.longitude) > 0.0 { "evening" } else { "morning" };
        found.push(Found {
            bodies: vec![body.name()],
            form: Some(form),
            degrees: Some(separation(seen, sun).to_degrees()),
            ..Found::new(Kind::GreatestElongation, jde)
        });
    }
}

fn conjunctions(found: &mut Vec<Found>, looks: &[Look], one: (usize, Planet), other: (usize, Planet)) {
    let apart = |look: &Look| match (look.planets.get(one.0), look.planets.get(other.0)) {
        (Some(a), Some(b)) => separation(*a, *b),
        _ => f64::MAX,
    };
    for three in looks.windows(3) {
        let [before, at, after] = three else { continue };
        if apart(at) > apart(before) || apart(at) >= apart(after) || apart(at).to_degrees() > CLOSE_DEGREES + 1.0 {
            continue;
        }
        let jde = least(before.jde, after.jde, |jde| separation(planet(one.1, jde), planet(other.1, jde)));
        let degrees = separation(planet(one.1, jde), planet(other.1, jde)).to_degrees();
        let from_sun = separation(planet(one.1, jde), sun(jde)).to_degrees();
        if degrees > CLOSE_DEGREES || from_sun < GLARE_DEGREES {
            continue;
        }
        let form = if wrapped(planet(one.1, jde).longitude - sun(jde).longitude) > 0.0 { "evening" } else { "morning" };
        found.push(Found {
            bodies: vec![one.1.name(), other.1.name()],
            form: Some(form),
            degrees: Some(degrees),
            ..Found::new(Kind::Conjunction, jde)
        });
    }
}
