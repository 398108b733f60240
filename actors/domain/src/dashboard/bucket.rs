//! Buckets: what a run asks of whoever looks at the list (DSH-002).

use serde::{Deserialize, Serialize};

use crate::run::status::RunStatus;

/// The heading a run stands under.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunBucket {
    /// Accepted, not yet taken up.
    Queued,
    /// Being worked on.
    InFlight,
    /// Somebody has to answer.
    WaitingOnHuman,
    /// Held.
    Suspended,
    /// Over as it was meant to be, or stopped deliberately.
    Done,
    /// Over in a way that somebody should look at.
    Attention,
}

/// All six, in the order of DSH-002.
pub const RUN_LIST_BUCKETS: [RunBucket; 6] = [
    RunBucket::Queued,
    RunBucket::InFlight,
    RunBucket::WaitingOnHuman,
    RunBucket::Suspended,
    RunBucket::Done,
    RunBucket::Attention,
];

impl RunBucket {
    /// The wire string.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::InFlight => "in-flight",
            Self::WaitingOnHuman => "waiting-on-human",
            Self::Suspended => "suspended",
            Self::Done => "done",
            Self::Attention => "attention",
        }
    }

    /// Reads a wire string.
    pub fn parse(text: &str) -> Option<Self> {
        RUN_LIST_BUCKETS.into_iter().find(|bucket| bucket.as_str() == text)
    }
}

/// The bucket of a status; every status has one (DSH-002).
pub const fn bucket_for_status(status: RunStatus) -> RunBucket {
    match status {
        RunStatus::Queued => RunBucket::Queued,
        RunStatus::Starting | RunStatus::Running | RunStatus::AwaitingTool => RunBucket::InFlight,
        RunStatus::AwaitingApproval | RunStatus::AwaitingBranchSelection => RunBucket::WaitingOnHuman,
        RunStatus::Paused => RunBucket::Suspended,
        RunStatus::Completed | RunStatus::Cancelled => RunBucket::Done,
        RunStatus::Failed | RunStatus::Killed => RunBucket::Attention,
    }
}
