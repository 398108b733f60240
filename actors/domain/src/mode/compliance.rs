//! Whether runs keep what their mode asks of them (MOD-008, MOD-009). It is told, and stops nothing.

use serde::{Deserialize, Serialize};

use super::{Mode, ModeBounds};
use crate::quantity::Micros;
use crate::run::envelope::RunEnvelope;

/// How many runs the 95th percentile is taken over: the last ones.
pub const P95_RUNS: usize = 100;

/// What a run, or a series of runs, did not keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ComplianceBreach {
    /// It cost more than the mode's `maxCostUnits`.
    CostExceeded,
    /// The 95th percentile of latencies is above the mode's budget.
    LatencyExceeded,
    /// It was evaluated below the mode's bar.
    EvaluationBelowBar,
}

impl ComplianceBreach {
    /// Stable code.
    pub const fn code(self) -> &'static str {
        match self {
            Self::CostExceeded => "cost-exceeded",
            Self::LatencyExceeded => "latency-exceeded",
            Self::EvaluationBelowBar => "evaluation-below-bar",
        }
    }
}

/// What is held against a mode. What was not measured is no breach.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModeSample<'a> {
    /// What the run cost, in cost units.
    pub cost_units: Micros,
    /// Latencies of runs in this mode, oldest first, in milliseconds; the last [`P95_RUNS`] count.
    pub latencies_ms: &'a [u64],
    /// What the run was evaluated at, 0 to 1.
    pub evaluation_score: Option<Micros>,
}

/// Every breach of a sample of what holds for its mode, in the order of [`ComplianceBreach`]. A value equal to its bound complies.
pub fn check_mode_compliance(bounds: &ModeBounds, sample: &ModeSample<'_>) -> Vec<ComplianceBreach> {
    let slow = p95_nearest_rank(sample.latencies_ms).is_some_and(|p95| p95 > bounds.p95_latency_budget_ms);
    let poor = sample.evaluation_score.is_some_and(|score| score < bounds.min_evaluation_score);
    let breaches = [
        (sample.cost_units > bounds.max_cost_units, ComplianceBreach::CostExceeded),
        (slow, ComplianceBreach::LatencyExceeded),
        (poor, ComplianceBreach::EvaluationBelowBar),
    ];
    breaches.into_iter().filter(|(broken, _)| *broken).map(|(_, breach)| breach).collect()
}

/// The 95th percentile of the last [`P95_RUNS`] values by nearest rank: a value that was really measured. `None` of none.
pub fn p95_nearest_rank(values: &[u64]) -> Option<u64> {
    let mut last = values[values.len().saturating_sub(P95_RUNS)..].to_vec();
    last.sort_unstable();
    let rank = (last.len() * 95).div_ceil(100);
    last.get(rank.checked_sub(1)?).copied()
}

/// How a run that is over stands to its mode: kept in its envelope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ModeCompliance {
    /// The mode it ended in.
    pub mode: Mode,
    /// What it cost; in a rehearsal with what its simulated calls would have cost at most.
    pub cost_units: Micros,
    /// What the mode allows.
    pub max_cost_units: Micros,
    /// From its submission to its end, without the time people took to answer or held it.
    pub latency_ms: u64,
    /// What the mode allows for 95 of 100 runs; this one is held against it by itself.
    pub p95_latency_budget_ms: u64,
    /// What it did not keep.
    pub breaches: Vec<ComplianceBreach>,
}

/// How a run stands to its mode; `None` before its end.
pub fn compliance_of(run: &RunEnvelope) -> Option<ModeCompliance> {
    let finished = run.finished_at?;
    let mode = Mode::parse(&run.mode)?;
    let bounds = run.mode_bounds.unwrap_or_else(|| mode.meta().into());
    let took = finished.0.saturating_sub(run.submitted_at.0).saturating_sub(run.waited_micros);
    let latency_ms = u64::try_from(took / 1_000).unwrap_or(0);
    let simulated = run.simulated_ledger.as_ref().map_or(Micros::ZERO, |ledger| ledger.total_cost_units);
    let cost_units = run.cost_ledger.total_cost_units.plus(simulated);
    let sample = ModeSample { cost_units, latencies_ms: &[latency_ms], evaluation_score: None };
    Some(ModeCompliance {
        mode,
        cost_units,
        max_cost_units: bounds.max_cost_units,
        latency_ms,
        p95_latency_budget_ms: bounds.p95_latency_budget_ms,
        breaches: check_mode_compliance(&bounds, &sample),
    })
}

/// How the last runs of an agent in one mode stand to that mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeriesCompliance {
    /// The mode.
    pub mode: Mode,
    /// How many runs were held against it: the last ones, at most [`P95_RUNS`].
    pub runs: usize,
    /// What the dearest of them cost.
    pub cost_units: Micros,
    /// What the mode allows one run.
    pub max_cost_units: Micros,
    /// The 95th percentile of their latencies, by nearest rank; `None` of none.
    pub p95_latency_ms: Option<u64>,
    /// What the mode allows.
    pub p95_latency_budget_ms: u64,
    /// What they did not keep.
    pub breaches: Vec<ComplianceBreach>,
}

/// Holds runs of one mode, oldest first, against what it allows; the last [`P95_RUNS`] count. What was tightened for a run is
/// that run's own matter: a series is held against the mode as it is.
pub fn compliance_of_series(mode: Mode, runs: &[ModeCompliance]) -> SeriesCompliance {
    let last = &runs[runs.len().saturating_sub(P95_RUNS)..];
    let latencies: Vec<u64> = last.iter().map(|run| run.latency_ms).collect();
    let cost_units = last.iter().map(|run| run.cost_units).max().unwrap_or(Micros::ZERO);
    let bounds = ModeBounds::from(mode.meta());
    let sample = ModeSample { cost_units, latencies_ms: &latencies, evaluation_score: None };
    SeriesCompliance {
        mode,
        runs: last.len(),
        cost_units,
        max_cost_units: bounds.max_cost_units,
        p95_latency_ms: p95_nearest_rank(&latencies),
        p95_latency_budget_ms: bounds.p95_latency_budget_ms,
        breaches: check_mode_compliance(&bounds, &sample),
    }
}
