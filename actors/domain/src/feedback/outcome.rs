//! What counts as success, and how often each arm had it (FBK-016).

use serde::{Deserialize, Serialize};

use crate::feedback::readiness::Arm;
use crate::feedback::routing::RolloutArm;
use crate::identity::{Actor, Role};
use crate::ids::RunKey;
use crate::quantity::Micros;
use crate::run::status::RunStatus;
use crate::time::UnixMs;

/// How long after its end a run can be complained about: 24 hours (FBK-016).
pub const FEEDBACK_WINDOW_MS: i64 = 24 * 60 * 60 * 1_000;

/// True if a task counts as success (FBK-016): its run is `completed`, was not evaluated below the bar of its mode, and
/// nobody complained in time. A run that nobody has evaluated is held against no bar, as in MOD-008.
pub const fn task_success(status: RunStatus, meets_bar: bool, has_negative_feedback: bool) -> bool {
    matches!(status, RunStatus::Completed) && meets_bar && !has_negative_feedback
}

/// What somebody says of a finished run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FeedbackKind {
    /// It was no good.
    Negative,
    /// It was good.
    Positive,
    /// It scored so much, 0 to 1.
    Evaluation,
}

impl FeedbackKind {
    /// The wire string.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Negative => "negative",
            Self::Positive => "positive",
            Self::Evaluation => "evaluation",
        }
    }
}

/// What somebody has said of a run, as it is kept: one row for each run, actor and kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFeedback {
    /// The run.
    pub run_key: RunKey,
    /// Who said it.
    pub actor: Actor,
    /// What.
    pub kind: FeedbackKind,
    /// The score of an evaluation, 0 to 1.
    pub score: Option<Micros>,
    /// When.
    pub at: UnixMs,
}

/// Why feedback is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FeedbackDenial {
    /// The run goes on.
    #[error("the run has not ended; say what became of it once it has")]
    NotFinished,
    /// More than a day has passed.
    #[error("the run ended more than 24 hours ago; what is said now counts for nothing")]
    TooLate,
    /// No score between 0 and 1.
    #[error("a score is a decimal from 0 to 1")]
    BadScore,
    /// Evaluations are for machines and operators.
    #[error("a {0} may not evaluate runs; say that it was good or not")]
    NotAnEvaluator(&'static str),
}

impl FeedbackDenial {
    /// Stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NotFinished => "run-not-finished",
            Self::TooLate => "feedback-too-late",
            Self::BadScore => "score-invalid",
            Self::NotAnEvaluator(_) => "not-authorized",
        }
    }
}

/// Whether something may be said of a run that ended at `ended_at`. Whether the caller may see the run was asked before.
///
/// # Errors
/// A run that goes on, a day that is over, a score that is none, and an evaluation by a person who is no operator.
pub fn check_feedback(
    by: &Actor,
    kind: FeedbackKind,
    score: Option<Micros>,
    ended_at: Option<UnixMs>,
    now: UnixMs,
) -> Result<(), FeedbackDenial> {
    let evaluates = kind == FeedbackKind::Evaluation;
    if evaluates && !matches!(by.role, Role::Service | Role::TenantOperator | Role::PlatformOperator) {
        return Err(FeedbackDenial::NotAnEvaluator(by.role.as_str()));
    }
    let in_range = |score: Micros| score >= Micros::ZERO && score <= Micros::units(1);
    if score.is_some() != evaluates || !score.is_none_or(in_range) {
        return Err(FeedbackDenial::BadScore);
    }
    let ended_at = ended_at.ok_or(FeedbackDenial::NotFinished)?;
    if now > ended_at.plus_ms(FEEDBACK_WINDOW_MS) {
        return Err(FeedbackDenial::TooLate);
    }
    Ok(())
}

/// Runs of one arm that stand alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutcomeGroup {
    /// The arm.
    pub arm: RolloutArm,
    /// How they ended; one of the four terminal statuses.
    pub status: RunStatus,
    /// True unless an evaluation is below the bar of the mode.
    pub meets_bar: bool,
    /// True if somebody complained in time.
    pub has_negative_feedback: bool,
    /// How many.
    pub runs: u64,
    /// How many of them can still be complained about.
    pub still_open: u64,
}

/// What the runs of a rollout have come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ArmTallies {
    /// Finished runs of the version in use.
    pub champion: Tally,
    /// Finished runs of the version that is tried.
    pub challenger: Tally,
}

/// What the runs of one arm have come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Successes.
    pub successes: u64,
    /// Finished runs.
    pub n: u64,
    /// How many of them can still be complained about.
    pub still_open: u64,
}

impl Tally {
    /// As the z test takes it.
    pub const fn arm(self) -> Arm {
        Arm { successes: self.successes, n: self.n }
    }
}

/// Adds groups up. A run that is not over is no sample yet.
pub fn tally(groups: &[OutcomeGroup]) -> ArmTallies {
    let mut tallies = ArmTallies::default();
    for group in groups.iter().filter(|group| group.status.is_terminal()) {
        let tally = match group.arm {
            RolloutArm::Champion => &mut tallies.champion,
            RolloutArm::Challenger => &mut tallies.challenger,
        };
        tally.n = tally.n.saturating_add(group.runs);
        tally.still_open = tally.still_open.saturating_add(group.still_open);
        if task_success(group.status, group.meets_bar, group.has_negative_feedback) {
            tally.successes = tally.successes.saturating_add(group.runs);
        }
    }
    tallies
}
