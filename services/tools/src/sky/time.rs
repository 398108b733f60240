//! Days: from the calendar to the Julian days of the theories and back.

use jiff::Timestamp;

/// Noon of 1 January 2000 in dynamical time.
pub(super) const J2000: f64 = 2_451_545.0;
/// The beginning of 1970.
const UNIX_EPOCH: f64 = 2_440_587.5;
const SECONDS_PER_DAY: f64 = 86_400.0;

/// How much dynamical time is ahead of universal time, in seconds: the polynomials published by Espenak and Meeus, with
/// what was measured since 2005.
fn ahead(jd: f64) -> f64 {
    let year = 2000.0 + (jd - J2000) / 365.25;
    let t = year - 2000.0;
    match year {
        y if y < 1920.0 => {
            let t = y - 1900.0;
            -2.79 + 1.494_119 * t - 0.059_893_9 * t.powi(2) + 0.006_196_6 * t.powi(3) - 0.000_197 * t.powi(4)
        }
        y if y < 1941.0 => {
            let t = y - 1920.0;
            21.20 + 0.844_93 * t - 0.076_1 * t.powi(2) + 0.002_093_6 * t.powi(3)
        }
        y if y < 1961.0 => {
            let t = y - 1950.0;
            29.07 + 0.407 * t - t.powi(2) / 233.0 + t.powi(3) / 2_547.0
        }
        y if y < 1986.0 => {
            let t = y - 1975.0;
            45.45 + 1.067 * t - t.powi(2) / 260.0 - t.powi(3) / 718.0
        }
        y if y < 2005.0 => 63.86 + 0.334_5 * t - 0.060_374 * t.powi(2) + 0.001_727_5 * t.powi(3),
        // The Earth's rotation has been steady: 64.7 s in 2005, 69.2 s in 2020 and since.
        y if y < 2020.0 => 64.7 + (y - 2005.0) * 0.3,
        y if y < 2030.0 => 69.2,
        // Nobody knows; a slow rise.
        y => 69.2 + (y - 2030.0) * 0.3,
    }
}

/// The Julian day of dynamical time of an instant.
pub(super) fn jde(at: Timestamp) -> f64 {
    let jd = UNIX_EPOCH + at.as_second() as f64 / SECONDS_PER_DAY;
    jd + ahead(jd) / SECONDS_PER_DAY
}

/// The instant of a Julian day of dynamical time, to the nearest minute, which is more than what is worked out deserves
/// for anything that the planets do.
pub(super) fn instant(jde: f64) -> Timestamp {
    let jd = jde - ahead(jde) / SECONDS_PER_DAY;
    let minutes = ((jd - UNIX_EPOCH) * 1_440.0).round() as i64;
    // Years are bounded before anything is worked out.
    Timestamp::from_second(minutes.saturating_mul(60)).unwrap_or_default()
}
