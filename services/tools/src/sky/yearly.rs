//! What comes back by itself: the four phases of the Moon and the four turns of the year.

use std::f64::consts::FRAC_PI_2;

use super::event::{Found, Kind};
use super::place::{moon, sun, wrapped};
use super::search::crossing;

/// The Moon gains 12 degrees a day on the Sun, so between two samples it cannot pass two quarters.
const PHASE_STEP_DAYS: f64 = 2.0;
const SEASON_STEP_DAYS: f64 = 10.0;

/// New Moons, quarters and full Moons between two Julian days, in the order of time.
pub(super) fn phases(low: f64, high: f64) -> Vec<Found> {
    const KINDS: [Kind; 4] = [Kind::NewMoon, Kind::FirstQuarter, Kind::FullMoon, Kind::LastQuarter];
    let ahead = |jde: f64| moon(jde).longitude - sun(jde).longitude;
    quarters(low, high, PHASE_STEP_DAYS, KINDS, ahead)
}

/// Equinoxes and solstices between two Julian days.
pub(super) fn seasons(low: f64, high: f64) -> Vec<Found> {
    const KINDS: [Kind; 4] = [Kind::MarchEquinox, Kind::JuneSolstice, Kind::SeptemberEquinox, Kind::DecemberSolstice];
    quarters(low, high, SEASON_STEP_DAYS, KINDS, |jde| sun(jde).longitude)
}

/// When an angle that grows passes the four quarters of the circle.
fn quarters(low: f64, high: f64, step: f64, kinds: [Kind; 4], angle: impl Fn(f64) -> f64) -> Vec<Found> {
    let steps = ((high - low) / step).ceil().max(1.0) as u32;
    let samples: Vec<(f64, f64)> = (0..=steps)
        .map(|index| {
            let at = low + step * f64::from(index);
            (at, angle(at))
        })
        .collect();
    let mut found = Vec::new();
    for pair in samples.windows(2) {
        let [(before, at_before), (after, at_after)] = pair else { continue };
        for (quarter, kind) in (0_u8..).zip(kinds) {
            let target = f64::from(quarter) * FRAC_PI_2;
            let (one, other) = (wrapped(at_before - target), wrapped(at_after - target));
            if one <= 0.0 && other > 0.0 {
                let at = crossing(*before, *after, |jde| wrapped(angle(jde) - target));
                found.extend(at.map(|at| Found::new(kind, at)));
            }
        }
    }
    found
}
