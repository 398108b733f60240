//! Where the planets and the Moon stand, from the largest terms of the theories.

use std::sync::LazyLock;

/// A planet that is seen without a telescope, or the Earth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Planet {
    Mercury,
    Venus,
    Earth,
    Mars,
    Jupiter,
    Saturn,
}

impl Planet {
    /// All that are seen in the sky, from the Sun outwards.
    pub(super) const SEEN: [Self; 5] = [Self::Mercury, Self::Venus, Self::Mars, Self::Jupiter, Self::Saturn];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Mercury => "Mercury",
            Self::Venus => "Venus",
            Self::Earth => "Earth",
            Self::Mars => "Mars",
            Self::Jupiter => "Jupiter",
            Self::Saturn => "Saturn",
        }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::SEEN.into_iter().find(|planet| planet.name() == name)
    }

    /// Its orbit lies inside the Earth's.
    pub(super) const fn is_inner(self) -> bool {
        matches!(self, Self::Mercury | Self::Venus)
    }

    fn terms(self) -> &'static Terms {
        static ALL: LazyLock<[Terms; 6]> = LazyLock::new(|| {
            [
                Terms::read(include_str!("series/mercury.txt")),
                Terms::read(include_str!("series/venus.txt")),
                Terms::read(include_str!("series/earth.txt")),
                Terms::read(include_str!("series/mars.txt")),
                Terms::read(include_str!("series/jupiter.txt")),
                Terms::read(include_str!("series/saturn.txt")),
            ]
        });
        &ALL[self as usize]
    }
}

/// Angles in radians, a distance in the unit of whoever gives it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spherical {
    pub(super) longitude: f64,
    pub(super) latitude: f64,
    pub(super) distance: f64,
}

impl Spherical {
    pub(super) fn to_vector(self) -> [f64; 3] {
        let (sin_b, cos_b) = self.latitude.sin_cos();
        let (sin_l, cos_l) = self.longitude.sin_cos();
        [self.distance * cos_b * cos_l, self.distance * cos_b * sin_l, self.distance * sin_b]
    }

    pub(super) fn of_vector([x, y, z]: [f64; 3]) -> Self {
        let distance = (x * x + y * y + z * z).sqrt();
        Self { longitude: y.atan2(x), latitude: z.atan2(x.hypot(y)), distance }
    }
}

/// `A cos(B + C t)`, times a power of `t`.
struct Term {
    power: i32,
    amplitude: f64,
    phase: f64,
    frequency: f64,
}

/// The terms of longitude, latitude and distance.
#[derive(Default)]
struct Terms {
    longitude: Vec<Term>,
    latitude: Vec<Term>,
    distance: Vec<Term>,
}

impl Terms {
    fn read(table: &str) -> Self {
        let mut terms = Self::default();
        for line in table.lines() {
            let mut fields = line.split(' ');
            let Some(into) = (match fields.next() {
                Some("L") => Some(&mut terms.longitude),
                Some("B") => Some(&mut terms.latitude),
                Some("R") => Some(&mut terms.distance),
                Some(_) | None => None,
            }) else {
                continue;
            };
            let numbers: Vec<f64> = fields.filter_map(|field| field.parse().ok()).collect();
            if let [power, amplitude, phase, frequency] = numbers[..] {
                into.push(Term { power: power as i32, amplitude, phase, frequency });
            }
        }
        terms
    }
}

/// Where a planet stands seen from the Sun, against the equinox of the day; distance in astronomical units. `jde` is a
/// Julian day of dynamical time.
pub(super) fn heliocentric(planet: Planet, jde: f64) -> Spherical {
    let t = (jde - super::time::J2000) / 365_250.0;
    let sum = |terms: &[Term]| -> f64 {
        terms.iter().map(|term| term.amplitude * (term.phase + term.frequency * t).cos() * t.powi(term.power)).sum()
    };
    let terms = planet.terms();
    Spherical { longitude: sum(&terms.longitude), latitude: sum(&terms.latitude), distance: sum(&terms.distance) }
}

/// A term of the Moon: multiples of the four arguments, and one or two amplitudes.
struct MoonTerm {
    arguments: [f64; 4],
    first: f64,
    second: f64,
}

struct MoonTerms {
    longitude_distance: Vec<MoonTerm>,
    latitude: Vec<MoonTerm>,
}

static MOON: LazyLock<MoonTerms> = LazyLock::new(|| {
    let mut terms = MoonTerms { longitude_distance: Vec::new(), latitude: Vec::new() };
    for line in include_str!("series/moon.txt").lines() {
        let numbers: Vec<f64> = line.split(' ').skip(1).filter_map(|field| field.parse().ok()).collect();
        match (line.split(' ').next(), &numbers[..]) {
            (Some("LR"), &[d, m, m1, f, first, second]) => {
                terms.longitude_distance.push(MoonTerm { arguments: [d, m, m1, f], first, second });
            }
            (Some("B"), &[d, m, m1, f, first]) => {
                terms.latitude.push(MoonTerm { arguments: [d, m, m1, f], first, second: 0.0 });
            }
            _ => {}
        }
    }
    terms
});

/// Where the Moon stands seen from the centre of the Earth, against the mean equinox of the day; distance in kilometres.
pub(super) fn moon(jde: f64) -> Spherical {
    let t = (jde - super::time::J2000) / 36_525.0;
    let polynomial = |c: [f64; 4]| (c[0] + t * (c[1] + t * (c[2] + t * c[3]))).rem_euclid(360.0).to_radians();
    let mean = polynomial([218.316_447_7, 481_267.881_234_21, -0.001_578_6, 1.0 / 538_841.0]);
    let elongation = polynomial([297.850_192_1, 445_267.111_403_4, -0.001_881_9, 1.0 / 545_868.0]);
    let sun = polynomial([357.529_109_2, 35_999.050_290_9, -0.000_153_6, 1.0 / 24_490_000.0]);
    let anomaly = polynomial([134.963_396_4, 477_198.867_505_5, 0.008_741_4, 1.0 / 69_699.0]);
    let node = polynomial([93.272_095_0, 483_202.017_523_3, -0.003_653_9, -1.0 / 3_526_000.0]);
    // Terms with the Sun's anomaly shrink with the eccentricity of the Earth's orbit.
    let eccentricity = 1.0 - t * (0.002_516 + t * 0.000_007_4);
    let angle = |term: &MoonTerm| {
        let [d, m, m1, f] = term.arguments;
        (d * elongation + m * sun + m1 * anomaly + f * node, eccentricity.powi(m.abs() as i32))
    };
    let (mut longitude, mut distance, mut latitude) = (0.0, 0.0, 0.0);
    for term in &MOON.longitude_distance {
        let (angle, factor) = angle(term);
        longitude += term.first * factor * angle.sin();
        distance += term.second * factor * angle.cos();
    }
    for term in &MOON.latitude {
        let (angle, factor) = angle(term);
        latitude += term.first * factor * angle.sin();
    }
    // Venus, Jupiter and the flattening of the Earth.
    let a1 = polynomial([119.75, 131.849, 0.0, 0.0]);
    let a2 = polynomial([53.09, 479_264.29, 0.0, 0.0]);
    let a3 = polynomial([313.45, 481_266.484, 0.0, 0.0]);
    longitude += 3_958.0 * a1.sin() + 1_962.0 * (mean - node).sin() + 318.0 * a2.sin();
    latitude += -2_235.0 * mean.sin()
        + 382.0 * a3.sin()
        + 175.0 * ((a1 - node).sin() + (a1 + node).sin())
        + 127.0 * (mean - anomaly).sin()
        - 115.0 * (mean + anomaly).sin();
    Spherical {
        longitude: mean + (longitude * 1e-6).to_radians(),
        latitude: (latitude * 1e-6).to_radians(),
        distance: 385_000.56 + distance / 1_000.0,
    }
}
