//! What the last runs of a pipeline came to (PIP-029, PIP-030).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::deviation::{DeviationKind, PipelineDeviation, detect_pipeline_deviation};
use super::spec::PipelineSpec;
use crate::ids::{PipelineId, RunId};
use crate::quantity::Micros;
use crate::run::envelope::RunEnvelope;
use crate::run::event::{ApprovalDecision, ApprovalReason};

/// How many runs a report looks at: the last ones.
pub const REPORT_RUNS: usize = 50;

/// What the last runs of a pipeline came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PipelineObservabilityReport {
    /// The pipeline.
    pub pipeline_id: PipelineId,
    /// The version that runs are held against.
    pub pipeline_semver: String,
    /// How many runs were looked at, at most [`REPORT_RUNS`].
    pub runs: usize,
    /// How many of them ended as what, or stand where.
    pub by_status: BTreeMap<String, usize>,
    /// How many of them started with another version. They are counted, and not held against this one.
    pub of_other_versions: usize,
    /// How long runs that are over took, in milliseconds, without the time people took to answer: half of them no longer
    /// than this, by nearest rank. `None` of none.
    pub latency_p50_ms: Option<u64>,
    /// The same for 95 of 100.
    pub latency_p95_ms: Option<u64>,
    /// What runs that are over cost on average, in cost units, rounded down to a millionth. `None` of none.
    pub cost_mean: Option<Micros>,
    /// What the dearest cost.
    pub cost_max: Option<Micros>,
    /// How many questions of gates were answered, or lapsed.
    pub gates_asked: usize,
    /// How many of them were answered with a yes.
    pub gates_passed: usize,
    /// The share of those, 0 to 1, rounded down to a millionth. `None` if nobody was asked.
    pub gate_pass_rate: Option<Micros>,
    /// How many deviations of each kind were found; kinds without one are not there.
    pub by_deviation: BTreeMap<String, usize>,
    /// Each of them, newest run first.
    pub deviations: Vec<PipelineDeviation>,
    /// The runs that were looked at, newest first.
    pub run_ids: Vec<RunId>,
}

/// The report over runs of one pipeline, newest first; the first [`REPORT_RUNS`] count. Rehearsals are no part of it: they
/// cost nothing and ask nobody.
pub fn build_pipeline_observability_report<'r>(
    spec: &PipelineSpec,
    runs: impl IntoIterator<Item = &'r RunEnvelope>,
) -> PipelineObservabilityReport {
    let own = |run: &&RunEnvelope| run.pipeline_id.as_ref() == Some(&spec.pipeline_id) && !run.is_rehearsal();
    let runs: Vec<&RunEnvelope> = runs.into_iter().filter(own).take(REPORT_RUNS).collect();
    let mut by_status = BTreeMap::new();
    for run in &runs {
        *by_status.entry(run.status.as_str().to_owned()).or_default() += 1;
    }
    let over: Vec<_> = runs.iter().filter_map(|run| run.compliance.as_ref()).collect();
    let latencies: Vec<u64> = over.iter().map(|compliance| compliance.latency_ms).collect();
    let costs: Vec<Micros> = over.iter().map(|compliance| compliance.cost_units).collect();
    let answered: Vec<bool> = runs.iter().flat_map(|run| answers(run)).collect();
    let passed = answered.iter().filter(|yes| **yes).count();
    let is_of_version = |run: &&&RunEnvelope| run.pipeline_semver.as_deref() == Some(spec.semver.as_str());
    let deviations: Vec<PipelineDeviation> =
        runs.iter().filter(is_of_version).flat_map(|run| detect_pipeline_deviation(spec, run)).collect();
    let count = |kind: DeviationKind| deviations.iter().filter(|deviation| deviation.kind == kind).count();
    let counted = DeviationKind::ALL.map(|kind| (kind.as_str().to_owned(), count(kind)));
    PipelineObservabilityReport {
        pipeline_id: spec.pipeline_id.clone(),
        pipeline_semver: spec.semver.clone(),
        runs: runs.len(),
        by_status,
        of_other_versions: runs.len() - runs.iter().filter(is_of_version).count(),
        latency_p50_ms: nearest_rank(&latencies, 50),
        latency_p95_ms: nearest_rank(&latencies, 95),
        cost_mean: mean(&costs),
        cost_max: costs.iter().max().copied(),
        gates_asked: answered.len(),
        gates_passed: passed,
        gate_pass_rate: share(passed, answered.len()),
        by_deviation: counted.into_iter().filter(|(_, count)| *count > 0).collect(),
        run_ids: runs.iter().map(|run| run.run_id).collect(),
        deviations,
    }
}

fn answers(run: &RunEnvelope) -> impl Iterator<Item = bool> {
    let gates = run.approvals.iter().filter(|asked| asked.reason == ApprovalReason::Gate);
    gates.filter(|asked| !asked.is_open()).map(|asked| asked.decision == Some(ApprovalDecision::Approve))
}

/// A percentile by nearest rank: a value that was really measured.
fn nearest_rank(values: &[u64], percent: usize) -> Option<u64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.checked_sub(1)?).copied()
}

fn mean(values: &[Micros]) -> Option<Micros> {
    let count = i64::try_from(values.len()).ok().filter(|count| *count > 0)?;
    let sum = values.iter().fold(Micros::ZERO, |sum, value| sum.plus(*value));
    Some(Micros(sum.0.div_euclid(count)))
}

fn share(part: usize, whole: usize) -> Option<Micros> {
    let (part, whole) = (i64::try_from(part).ok()?, i64::try_from(whole).ok().filter(|whole| *whole > 0)?);
    Some(Micros(part.saturating_mul(1_000_000) / whole))
}
