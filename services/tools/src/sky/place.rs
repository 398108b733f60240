//! What is seen from the centre of the Earth: apparent ecliptic places of the Sun, the Moon and the planets.

use super::series::{Planet, Spherical, heliocentric, moon as moon_at};
use super::time::J2000;

/// Astronomical unit in equatorial radii of the Earth.
const EARTH_RADII_PER_AU: f64 = 149_597_870.7 / EARTH_RADIUS_KM;
/// Equatorial radius of the Earth.
pub(super) const EARTH_RADIUS_KM: f64 = 6_378.137;
/// Days that light takes for an astronomical unit.
const LIGHT_DAYS_PER_AU: f64 = 0.005_775_518_3;

fn arcseconds(value: f64) -> f64 {
    (value / 3_600.0).to_radians()
}

/// Nutation in longitude: the four largest terms, good to half a second of arc.
fn nutation(jde: f64) -> f64 {
    let t = (jde - J2000) / 36_525.0;
    let node = (125.044_52 - 1_934.136_261 * t).to_radians();
    let sun = (280.466_5 + 36_000.769_8 * t).to_radians();
    let moon = (218.316_5 + 481_267.881_3 * t).to_radians();
    arcseconds(-17.20 * node.sin() - 1.32 * (2.0 * sun).sin() - 0.23 * (2.0 * moon).sin() + 0.21 * (2.0 * node).sin())
}

/// The Sun; distance in astronomical units.
pub(super) fn sun(jde: f64) -> Spherical {
    let earth = heliocentric(Planet::Earth, jde);
    let aberration = arcseconds(20.489_8) / earth.distance;
    Spherical {
        longitude: earth.longitude + std::f64::consts::PI - aberration - arcseconds(0.090_33) + nutation(jde),
        latitude: -earth.latitude,
        distance: earth.distance,
    }
}

/// The Moon; distance in kilometres.
pub(super) fn moon(jde: f64) -> Spherical {
    let moon = moon_at(jde);
    Spherical { longitude: moon.longitude + nutation(jde), ..moon }
}

/// A planet; distance in astronomical units. Both ends are taken when the light left, which puts aberration in.
pub(super) fn planet(planet: Planet, jde: f64) -> Spherical {
    let mut seen = from_earth(planet, jde);
    for _ in 0..2 {
        seen = from_earth(planet, jde - seen.distance * LIGHT_DAYS_PER_AU);
    }
    Spherical { longitude: seen.longitude + nutation(jde), ..seen }
}

fn from_earth(planet: Planet, jde: f64) -> Spherical {
    let (there, here) = (heliocentric(planet, jde).to_vector(), heliocentric(Planet::Earth, jde).to_vector());
    Spherical::of_vector([there[0] - here[0], there[1] - here[1], there[2] - here[2]])
}

/// The Sun in equatorial radii of the Earth.
pub(super) fn sun_vector(jde: f64) -> [f64; 3] {
    let sun = sun(jde);
    Spherical { distance: sun.distance * EARTH_RADII_PER_AU, ..sun }.to_vector()
}

/// The Moon in equatorial radii of the Earth.
pub(super) fn moon_vector(jde: f64) -> [f64; 3] {
    let moon = moon(jde);
    Spherical { distance: moon.distance / EARTH_RADIUS_KM, ..moon }.to_vector()
}

/// An angle between -180 and 180 degrees, in radians.
pub(super) fn wrapped(angle: f64) -> f64 {
    (angle + std::f64::consts::PI).rem_euclid(std::f64::consts::TAU) - std::f64::consts::PI
}

/// The angle between two places in the sky, in radians.
pub(super) fn separation(a: Spherical, b: Spherical) -> f64 {
    let (a, b) = (a.to_vector(), b.to_vector());
    let cross = [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
    let (sin, cos) = (length(cross), a[0] * b[0] + a[1] * b[1] + a[2] * b[2]);
    sin.atan2(cos)
}

pub(super) fn length([x, y, z]: [f64; 3]) -> f64 {
    (x * x + y * y + z * z).sqrt()
}
