//! Instants as plain numbers. No clock is read here: every instant is an argument.

use serde::{Deserialize, Serialize};

/// Microseconds since the Unix epoch, UTC: the precision of the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct UnixMicros(pub i64);

/// Milliseconds since the Unix epoch, UTC: the precision of deadlines and of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct UnixMs(pub i64);

impl UnixMicros {
    /// The same instant in milliseconds, rounded down.
    pub const fn ms(self) -> UnixMs {
        UnixMs(self.0.div_euclid(1_000))
    }
}

impl UnixMs {
    /// The same instant in microseconds.
    pub const fn micros(self) -> UnixMicros {
        UnixMicros(self.0.saturating_mul(1_000))
    }
    /// The instant `ms` milliseconds later.
    pub const fn plus_ms(self, ms: i64) -> Self {
        Self(self.0.saturating_add(ms))
    }
    /// The instant `seconds` later.
    pub const fn plus_seconds(self, seconds: i64) -> Self {
        self.plus_ms(seconds.saturating_mul(1_000))
    }
    /// Milliseconds from `earlier` to here; negative if it is later.
    pub const fn since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}
