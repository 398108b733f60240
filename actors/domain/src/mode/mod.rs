//! Cost-quality modes (MOD): what a run may cost, how long it should take, how good it must be, and whether it touches
//! anything outside.
//!
//! A mode's cost ceiling and its checkpoints bind before and while a run goes on. Its latency and its score are measured
//! against afterwards: they stop nothing.

mod compliance;
mod overrides;
mod rehearsal;
mod stand_in;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::identity::Role;
use crate::quantity::Micros;

pub use compliance::{
    ComplianceBreach, ModeCompliance, ModeSample, P95_RUNS, SeriesCompliance, check_mode_compliance, compliance_of,
    compliance_of_series, p95_nearest_rank,
};
pub use overrides::{ModeBounds, ModeOverride, OverrideRejected, apply_override};
pub use rehearsal::{REHEARSAL_APPROVAL_REASON, SIMULATED_CODE, is_simulated, simulates};
pub use stand_in::{SIMULATED_KEY, recorded, stand_in};

/// The tool that hands work to another agent.
pub const HANDOFF_TOOL: &str = "handoff";
/// The five modes (MOD-005).
pub const COST_QUALITY_MODES: [&str; 5] = ["fast", "balanced", "deep", "exhaustive", "rehearsal-dry-run"];

/// A cost-quality mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Cheap and quick.
    Fast,
    /// The default.
    Balanced,
    /// Several agents, and somebody looks at it once.
    Deep,
    /// Several agents, and somebody looks at it three times.
    Exhaustive,
    /// Nothing outside is touched and nothing is spent (MOD-006).
    RehearsalDryRun,
}

/// What a mode means (MOD-001 to MOD-005).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ModeMeta {
    /// The mode.
    pub mode: Mode,
    /// The most one run may spend, in cost units.
    pub max_cost_units: Micros,
    /// What 95 of 100 runs should stay within, in milliseconds, without the time people take to answer.
    pub p95_latency_budget_ms: u64,
    /// The least a run's evaluation should score, 0 to 1.
    pub min_evaluation_score: Micros,
    /// Whether work may be handed to another agent.
    pub multi_agent: bool,
    /// How many approval gates a plan must have.
    pub human_checkpoint_count: usize,
    /// Whether anything outside may be touched.
    pub has_external_side_effects: bool,
}

const fn row(
    mode: Mode,
    cost: i64,
    latency_ms: u64,
    score_millionths: i64,
    multi_agent: bool,
    checkpoints: usize,
    effects: bool,
) -> ModeMeta {
    ModeMeta {
        mode,
        max_cost_units: Micros::units(cost),
        p95_latency_budget_ms: latency_ms,
        min_evaluation_score: Micros(score_millionths),
        multi_agent,
        human_checkpoint_count: checkpoints,
        has_external_side_effects: effects,
    }
}

static MODES: [ModeMeta; 5] = [
    row(Mode::Fast, 50, 1_500, 600_000, false, 0, true),
    row(Mode::Balanced, 500, 10_000, 700_000, false, 0, true),
    row(Mode::Deep, 5_000, 120_000, 800_000, true, 1, true),
    row(Mode::Exhaustive, 50_000, 1_800_000, 850_000, true, 3, true),
    row(Mode::RehearsalDryRun, 1_000, 60_000, 0, true, 0, false),
];

impl Mode {
    /// All five, in the order of [`COST_QUALITY_MODES`].
    pub const ALL: [Self; 5] = [Self::Fast, Self::Balanced, Self::Deep, Self::Exhaustive, Self::RehearsalDryRun];

    /// The mode of a run that names none.
    pub const DEFAULT: Self = Self::Balanced;

    /// The wire string.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fast => "fast",
            Self::Balanced => "balanced",
            Self::Deep => "deep",
            Self::Exhaustive => "exhaustive",
            Self::RehearsalDryRun => "rehearsal-dry-run",
        }
    }

    /// The mode with this wire string.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == text)
    }

    /// What it means.
    pub const fn meta(self) -> &'static ModeMeta {
        match self {
            Self::Fast => &MODES[0],
            Self::Balanced => &MODES[1],
            Self::Deep => &MODES[2],
            Self::Exhaustive => &MODES[3],
            Self::RehearsalDryRun => &MODES[4],
        }
    }

    /// True if nothing outside may be touched.
    pub const fn is_rehearsal(self) -> bool {
        !self.meta().has_external_side_effects
    }
}

/// The standing that decides which modes may be chosen (MOD-012). A role maps to exactly one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InvocationTier {
    /// An end customer.
    Customer,
    /// A creator, or a machine that submits on a tenant's behalf.
    Creator,
    /// An operator of the tenant.
    TenantOperator,
    /// An operator of the platform.
    PlatformOperator,
}

impl InvocationTier {
    /// All four, rising.
    pub const ALL: [Self; 4] = [Self::Customer, Self::Creator, Self::TenantOperator, Self::PlatformOperator];

    /// The tier of a role. A machine has the tier of a creator, as it sees what a creator sees (DSH-010).
    pub const fn of(role: Role) -> Self {
        match role {
            Role::Customer => Self::Customer,
            Role::Creator | Role::Service => Self::Creator,
            Role::TenantOperator => Self::TenantOperator,
            Role::PlatformOperator => Self::PlatformOperator,
        }
    }

    /// The wire string.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Customer => "customer",
            Self::Creator => "creator",
            Self::TenantOperator => "tenant-operator",
            Self::PlatformOperator => "platform-operator",
        }
    }
}

/// The modes a tier may choose unless its tenant or pipeline says otherwise (MOD-012).
pub fn allowed_modes(tier: InvocationTier) -> BTreeSet<Mode> {
    let mut modes = BTreeSet::from([Mode::Fast, Mode::Balanced, Mode::Deep]);
    if tier >= InvocationTier::Creator {
        modes.insert(Mode::RehearsalDryRun);
    }
    if tier >= InvocationTier::TenantOperator {
        modes.insert(Mode::Exhaustive);
    }
    modes
}

/// Modes as they are listed to people.
pub fn in_words<'a>(modes: impl IntoIterator<Item = &'a Mode>) -> String {
    let names: Vec<&str> = modes.into_iter().map(|mode| mode.as_str()).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
