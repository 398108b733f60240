//! The sky: what happens when, worked out from the theories of the planets and of the Moon.
//!
//! Moon phases, equinoxes and solstices, oppositions and conjunctions, greatest elongations and eclipses, for the years
//! [`YEAR_MIN`] to [`YEAR_MAX`]. The series are the largest terms of VSOP87D and ELP-2000/82, good to a few seconds of
//! arc; phases, seasons and eclipses come out within two minutes, and what planets do within a few hours, because it is
//! slow: [`Kind::tolerance_minutes`] says which. `tests` compares with published almanacs.
//!
//! Pure: no clock, no place on Earth, no network. Where something is seen from is not worked out, and the texts say so.

mod eclipse;
mod event;
pub(crate) mod explain;
mod file;
mod picks;
pub(crate) mod picture;
mod place;
mod planets;
mod search;
pub(crate) mod season;
mod series;
#[cfg(test)]
mod tests;
mod time;
pub(crate) mod tools;
mod yearly;

pub use event::{Event, Kind, Sky, SkyError, events};
pub(crate) use event::{day, zone};

/// First year that is worked out.
pub const YEAR_MIN: i16 = 1900;
/// Last year that is worked out.
pub const YEAR_MAX: i16 = 2100;
/// Longest span of one call, in days.
pub const DAYS_MAX: i64 = 1_830;
