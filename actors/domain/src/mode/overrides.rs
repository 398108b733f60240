//! Overrides of a mode only tighten it (MOD-010, MOD-011).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Mode, ModeMeta, in_words};
use crate::quantity::Micros;

/// What a caller wants tighter than its mode has it. What is left out stays as the mode has it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ModeOverride {
    /// Another mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// The most the run may spend, in cost units.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost_units: Option<Micros>,
    /// The latency it is held against, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p95_latency_budget_ms: Option<u64>,
    /// The score it is held against, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_evaluation_score: Option<Micros>,
}

/// What holds for one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ModeBounds {
    /// The mode.
    pub mode: Mode,
    /// The most it may spend, in cost units.
    pub max_cost_units: Micros,
    /// The latency it is held against, in milliseconds.
    pub p95_latency_budget_ms: u64,
    /// The score it is held against, 0 to 1.
    pub min_evaluation_score: Micros,
}

impl From<&ModeMeta> for ModeBounds {
    fn from(meta: &ModeMeta) -> Self {
        Self {
            mode: meta.mode,
            max_cost_units: meta.max_cost_units,
            p95_latency_budget_ms: meta.p95_latency_budget_ms,
            min_evaluation_score: meta.min_evaluation_score,
        }
    }
}

/// Why an override is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OverrideRejected {
    /// A mode that may not be chosen here.
    #[error("the mode `{}` may not be chosen here; choose one of: {allowed}", mode.as_str())]
    ModeNotAllowed {
        /// The mode.
        mode: Mode,
        /// Those that may.
        allowed: String,
    },
    /// A higher cost ceiling.
    #[error("`maxCostUnits` may be at most {allowed}, what the mode allows; it was to be {wanted}")]
    CostRaiseRejected {
        /// What was asked for.
        wanted: Micros,
        /// What the mode allows.
        allowed: Micros,
    },
    /// A longer latency budget.
    #[error("`p95LatencyBudgetMs` may be at most {allowed}, what the mode allows; it was to be {wanted}")]
    LatencyRaiseRejected {
        /// What was asked for.
        wanted: u64,
        /// What the mode allows.
        allowed: u64,
    },
    /// A lower bar, or one that nothing can reach.
    #[error("`minEvaluationScore` may be from {allowed}, what the mode asks for, to 1; it was to be {wanted}")]
    ScoreLowerRejected {
        /// What was asked for.
        wanted: Micros,
        /// What the mode asks for.
        allowed: Micros,
    },
}

impl OverrideRejected {
    /// Stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::ModeNotAllowed { .. } => "mode-not-allowed",
            Self::CostRaiseRejected { .. } => "cost-raise-rejected",
            Self::LatencyRaiseRejected { .. } => "latency-raise-rejected",
            Self::ScoreLowerRejected { .. } => "score-lower-rejected",
        }
    }
}

/// What holds for a run in `mode` under an override.
///
/// # Errors
/// A mode that is not among `allowed`; and, under `tighten_only`, the first figure that would loosen the mode.
pub fn apply_override(
    mode: Mode,
    wanted: &ModeOverride,
    allowed: &BTreeSet<Mode>,
    tighten_only: bool,
) -> Result<ModeBounds, OverrideRejected> {
    let mode = wanted.mode.unwrap_or(mode);
    if !allowed.contains(&mode) {
        return Err(OverrideRejected::ModeNotAllowed { mode, allowed: in_words(allowed) });
    }
    let mut bounds = ModeBounds::from(mode.meta());
    if let Some(wanted) = wanted.max_cost_units {
        // A ceiling below nothing would be no ceiling at all to whoever compares with it.
        if wanted < Micros::ZERO || (tighten_only && wanted > bounds.max_cost_units) {
            return Err(OverrideRejected::CostRaiseRejected { wanted, allowed: bounds.max_cost_units });
        }
        bounds.max_cost_units = wanted;
    }
    if let Some(wanted) = wanted.p95_latency_budget_ms {
        if tighten_only && wanted > bounds.p95_latency_budget_ms {
            return Err(OverrideRejected::LatencyRaiseRejected { wanted, allowed: bounds.p95_latency_budget_ms });
        }
        bounds.p95_latency_budget_ms = wanted;
    }
    if let Some(wanted) = wanted.min_evaluation_score {
        let lowers = tighten_only && wanted < bounds.min_evaluation_score;
        if lowers || wanted < Micros::ZERO || wanted > Micros::units(1) {
            return Err(OverrideRejected::ScoreLowerRejected { wanted, allowed: bounds.min_evaluation_score });
        }
        bounds.min_evaluation_score = wanted;
    }
    Ok(bounds)
}
