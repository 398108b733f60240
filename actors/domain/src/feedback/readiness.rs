//! Champion against challenger: a two-proportion z test of their success rates (FBK-001 to FBK-006).
//!
//! The one place where the rules use floating point: a probability is no sum of money, and nothing is added up here.

use serde::{Deserialize, Serialize};

/// Fewest samples of each arm (FBK-003).
pub const MIN_SAMPLES: u64 = 100;
/// A difference is significant below this p-value, strictly (FBK-004, FBK-005).
pub const P_THRESHOLD: f64 = 0.05;

/// How often one version was tried, and how often it succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arm {
    /// Successes.
    pub successes: u64,
    /// Samples.
    pub n: u64,
}

/// What the test says (FBK-006).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReadinessVerdict {
    /// One arm has fewer than [`MIN_SAMPLES`].
    NotEnoughSamples,
    /// No significant difference.
    Inconclusive,
    /// Significantly worse.
    ChallengerWorse,
    /// Significantly better.
    ChallengerReady,
}

impl ReadinessVerdict {
    /// The wire string.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotEnoughSamples => "not-enough-samples",
            Self::Inconclusive => "inconclusive",
            Self::ChallengerWorse => "challenger-worse",
            Self::ChallengerReady => "challenger-ready",
        }
    }
}

/// The verdict and what it rests on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Readiness {
    /// The verdict.
    pub verdict: ReadinessVerdict,
    /// Positive if the challenger does better; absent without samples to compare.
    pub z: Option<f64>,
    /// How likely such a difference is by chance, from both sides; absent without samples to compare.
    pub p: Option<f64>,
}

/// Why there is nothing to compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{successes} successes of {n} samples; there can be no more successes than samples")]
pub struct MoreSuccessesThanSamples {
    /// Successes.
    pub successes: u64,
    /// Samples.
    pub n: u64,
}

impl MoreSuccessesThanSamples {
    /// Stable code.
    pub const fn code(self) -> &'static str {
        "more-successes-than-samples"
    }
}

/// Compares success rates (FBK-001). The bound on samples holds for each arm and comes before everything else.
///
/// # Errors
/// An arm with more successes than samples.
pub fn evaluate_readiness(champion: Arm, challenger: Arm) -> Result<Readiness, MoreSuccessesThanSamples> {
    for Arm { successes, n } in [champion, challenger] {
        if successes > n {
            return Err(MoreSuccessesThanSamples { successes, n });
        }
    }
    let z = z_of(champion, challenger);
    let p = z.map(|z| (2.0 * normal_sf(z.abs())).min(1.0));
    let verdict = match (z, p) {
        _ if champion.n < MIN_SAMPLES || challenger.n < MIN_SAMPLES => ReadinessVerdict::NotEnoughSamples,
        (Some(z), Some(p)) if p < P_THRESHOLD && z > 0.0 => ReadinessVerdict::ChallengerReady,
        (Some(_), Some(p)) if p < P_THRESHOLD => ReadinessVerdict::ChallengerWorse,
        (_, _) => ReadinessVerdict::Inconclusive,
    };
    Ok(Readiness { verdict, z, p })
}

/// The pooled z (FBK-002); without variance there is no difference.
#[allow(clippy::cast_precision_loss, reason = "beyond 2^53 samples a rate is exact enough")]
fn z_of(champion: Arm, challenger: Arm) -> Option<f64> {
    if champion.n == 0 || challenger.n == 0 {
        return None;
    }
    let (nk, nc) = (champion.n as f64, challenger.n as f64);
    let (successes_k, successes_c) = (champion.successes as f64, challenger.successes as f64);
    let pooled = (successes_k + successes_c) / (nk + nc);
    let variance = pooled * (1.0 - pooled) * (1.0 / nc + 1.0 / nk);
    Some(if variance > 0.0 { (successes_c / nc - successes_k / nk) / variance.sqrt() } else { 0.0 })
}

/// How much of a normal distribution lies above `x`, by formula 26.2.17 of Abramowitz and Stegun: at most 7.5e-8 off
/// (FBK-004, FBK-005).
pub fn normal_sf(x: f64) -> f64 {
    const P: f64 = 0.231_641_9;
    const B: [f64; 5] = [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    if x < 0.0 {
        return 1.0 - normal_sf(-x);
    }
    let t = 1.0 / (1.0 + P * x);
    let polynomial = B.iter().rev().fold(0.0, |sum, b| (sum + b) * t);
    (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt() * polynomial
}
