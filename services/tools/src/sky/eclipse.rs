//! Eclipses: whether a new or full Moon meets a shadow, when it does most, and how much.
//!
//! The geometry is that of almanacs: for the Sun the axis of the Moon's shadow and its distance from the centre of the
//! Earth, for the Moon the circles of the Earth's shadow, enlarged by a hundredth for the air as Danjon did.

use super::event::{Found, Kind};
use super::place::{length, moon_vector, separation, sun_vector};
use super::search::least;
use super::series::Spherical;

/// Radius of the Sun in equatorial radii of the Earth.
const SUN_RADIUS: f64 = 109.122_7;
/// Radius of the Moon in the same, for its disc, and the smaller one of its deepest valleys, for totality.
const MOON_RADIUS: f64 = 0.272_507_6;
const MOON_RADIUS_TOTAL: f64 = 0.272_281_0;
/// What the air adds to the shadow of the Earth.
const SHADOW_OF_AIR: f64 = 1.01;
/// The flattened Earth as the axis of a shadow meets it.
const CENTRAL_MAX: f64 = 0.997_2;
/// How far from the phase an eclipse can be at its greatest, in days.
const AROUND_DAYS: f64 = 0.25;

/// The eclipses at these phases.
pub(super) fn eclipses(phases: &[Found]) -> Vec<Found> {
    let of = |kind: Kind| phases.iter().filter(move |phase| phase.kind == kind).map(|phase| phase.jde);
    of(Kind::NewMoon).filter_map(solar).chain(of(Kind::FullMoon).filter_map(lunar)).collect()
}

/// The axis of the Moon's shadow: its distance from the centre of the Earth, the distance of the Moon from the plane
/// through that centre, and the distance of the Moon from the Sun.
fn axis(jde: f64) -> (f64, f64, f64) {
    let (sun, moon) = (sun_vector(jde), moon_vector(jde));
    let between = [sun[0] - moon[0], sun[1] - moon[1], sun[2] - moon[2]];
    let far = length(between);
    let along = (moon[0] * between[0] + moon[1] * between[1] + moon[2] * between[2]) / far;
    let missed = (length(moon).powi(2) - along * along).max(0.0).sqrt();
    (missed, along, far)
}

fn solar(new_moon: f64) -> Option<Found> {
    let jde = least(new_moon - AROUND_DAYS, new_moon + AROUND_DAYS, |jde| axis(jde).0);
    let (missed, along, far) = axis(jde);
    let cone = |sine: f64, apex: f64| apex * sine / (1.0 - sine * sine).sqrt();
    let outer = (SUN_RADIUS + MOON_RADIUS) / far;
    let inner = (SUN_RADIUS - MOON_RADIUS_TOTAL) / far;
    // Radii of the half-shadow and of the full shadow where the Earth is; a full shadow that reaches it is negative.
    let half_shadow = cone(outer, along.abs() + MOON_RADIUS / outer);
    let full_shadow = cone(inner, along.abs() - MOON_RADIUS_TOTAL / inner);
    if missed > CENTRAL_MAX + half_shadow {
        return None;
    }
    let covers = if full_shadow < 0.0 {
        "total"
    } else if full_shadow > 0.004_7 || full_shadow >= 0.004_64 * (1.0 - missed * missed).max(0.0).sqrt() {
        "annular"
    } else {
        "hybrid"
    };
    let (form, magnitude) = if missed < CENTRAL_MAX + full_shadow.abs() {
        (covers, None)
    } else {
        // How much of the Sun's diameter is covered where it is covered most.
        let covered = (half_shadow + CENTRAL_MAX - missed) / (half_shadow + full_shadow);
        ("partial", Some(covered))
    };
    Some(Found { form: Some(form), magnitude, ..Found::new(Kind::SolarEclipse, jde) })
}

fn lunar(full_moon: f64) -> Option<Found> {
    let missed = |jde: f64| {
        let [x, y, z] = sun_vector(jde);
        separation(Spherical::of_vector([-x, -y, -z]), Spherical::of_vector(moon_vector(jde)))
    };
    let jde = least(full_moon - AROUND_DAYS, full_moon + AROUND_DAYS, missed);
    let (to_moon, to_sun) = (length(moon_vector(jde)), length(sun_vector(jde)));
    let (moon_parallax, sun_parallax) = ((1.0 / to_moon).asin(), (1.0 / to_sun).asin());
    let (moon_radius, sun_radius) = ((MOON_RADIUS / to_moon).asin(), (SUN_RADIUS / to_sun).asin());
    let shadow = SHADOW_OF_AIR * moon_parallax + sun_parallax - sun_radius;
    let half_shadow = SHADOW_OF_AIR * moon_parallax + sun_parallax + sun_radius;
    let inside = |radius: f64| (radius + moon_radius - missed(jde)) / (2.0 * moon_radius);
    let (in_shadow, in_half) = (inside(shadow), inside(half_shadow));
    let (form, magnitude) = match (in_shadow, in_half) {
        (full, _) if full >= 1.0 => ("total", full),
        (part, _) if part > 0.0 => ("partial", part),
        (_, half) if half > 0.0 => ("penumbral", half),
        _ => return None,
    };
    Some(Found { form: Some(form), magnitude: Some(magnitude), ..Found::new(Kind::LunarEclipse, jde) })
}
