//! Bands of cost and of time (DSH-003, DSH-004).

use serde::{Deserialize, Serialize};

use crate::quantity::Micros;

/// How much a run has cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CostBand {
    /// Nothing.
    Free,
    /// Up to 50 cost units.
    Low,
    /// Up to 500.
    Medium,
    /// Up to 5 000.
    High,
    /// More.
    Extreme,
}

impl CostBand {
    /// All five, rising.
    pub const ALL: [Self; 5] = [Self::Free, Self::Low, Self::Medium, Self::High, Self::Extreme];

    /// The wire string.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Extreme => "extreme",
        }
    }

    /// Reads a wire string.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|band| band.as_str() == text)
    }

    /// Its place among all, from 0: how a store keeps it.
    pub const fn rank(self) -> u8 {
        self as u8
    }
}

/// The band of a run's total cost (DSH-003). A cost is never negative; one that were would be `free`.
pub fn cost_band_for(total_cost_units: Micros) -> CostBand {
    match total_cost_units {
        cost if cost <= Micros::ZERO => CostBand::Free,
        cost if cost <= Micros::units(50) => CostBand::Low,
        cost if cost <= Micros::units(500) => CostBand::Medium,
        cost if cost <= Micros::units(5_000) => CostBand::High,
        _ => CostBand::Extreme,
    }
}

/// How long a run takes or took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LatencyBand {
    /// Up to 1.5 seconds.
    Instant,
    /// Up to 10 seconds.
    Quick,
    /// Up to 2 minutes.
    Slow,
    /// Up to 30 minutes.
    Long,
    /// More.
    Stalled,
}

impl LatencyBand {
    /// All five, rising.
    pub const ALL: [Self; 5] = [Self::Instant, Self::Quick, Self::Slow, Self::Long, Self::Stalled];

    /// The wire string.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Instant => "instant",
            Self::Quick => "quick",
            Self::Slow => "slow",
            Self::Long => "long",
            Self::Stalled => "stalled",
        }
    }

    /// Reads a wire string.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|band| band.as_str() == text)
    }

    /// Its place among all, from 0: how a store keeps it.
    pub const fn rank(self) -> u8 {
        self as u8
    }

    /// The longest wall time that still belongs to it, in milliseconds; `None` for the last.
    const fn ms_max(self) -> Option<u64> {
        match self {
            Self::Instant => Some(1_500),
            Self::Quick => Some(10_000),
            Self::Slow => Some(120_000),
            Self::Long => Some(1_800_000),
            Self::Stalled => None,
        }
    }

    /// The wall times that belong to it, in milliseconds: from the first, up to but without the second.
    pub fn ms_range(self) -> (u64, Option<u64>) {
        let shorter = Self::ALL.into_iter().take_while(|band| *band < self).last();
        let from = shorter.and_then(Self::ms_max).map_or(0, |most| most + 1);
        (from, self.ms_max().map(|most| most + 1))
    }
}

/// The band of a wall time in milliseconds (DSH-004).
pub fn latency_band_for(wall_ms: u64) -> LatencyBand {
    let fits = |band: &LatencyBand| band.ms_max().is_none_or(|most| wall_ms <= most);
    LatencyBand::ALL.into_iter().find(fits).unwrap_or(LatencyBand::Stalled)
}
