//! The eleven statuses and the moves between them (RUN-003 to RUN-007).

use serde::{Deserialize, Serialize};

/// Where a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// Accepted, not yet taken up.
    Queued,
    /// Taken up; no step has begun.
    Starting,
    /// At least one step is ready or in flight.
    Running,
    /// Held by an operator, a quota or back-pressure.
    Paused,
    /// Waiting for somebody to say yes or no.
    AwaitingApproval,
    /// Waiting for tools that have been running for more than five seconds.
    AwaitingTool,
    /// Waiting for somebody to choose a branch.
    AwaitingBranchSelection,
    /// Stopped deliberately by an operator. Terminal.
    Cancelled,
    /// Stopped by governance. Terminal.
    Killed,
    /// Ended by an error. Terminal.
    Failed,
    /// Ended well. Terminal.
    Completed,
}

/// A move that RUN-007 does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a run that is {} cannot become {}", .from.as_str(), .to.as_str())]
pub struct InvalidTransition {
    /// Where the run stands.
    pub from: RunStatus,
    /// Where it was to go.
    pub to: RunStatus,
}

impl InvalidTransition {
    /// Stable code.
    pub const CODE: &str = "invalid-transition";
}

impl RunStatus {
    /// All eleven, in the order of RUN-003.
    pub const ALL: [Self; 11] = [
        Self::Queued,
        Self::Starting,
        Self::Running,
        Self::Paused,
        Self::AwaitingApproval,
        Self::AwaitingTool,
        Self::AwaitingBranchSelection,
        Self::Cancelled,
        Self::Killed,
        Self::Failed,
        Self::Completed,
    ];

    /// The wire string.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::AwaitingApproval => "awaiting_approval",
            Self::AwaitingTool => "awaiting_tool",
            Self::AwaitingBranchSelection => "awaiting_branch_selection",
            Self::Cancelled => "cancelled",
            Self::Killed => "killed",
            Self::Failed => "failed",
            Self::Completed => "completed",
        }
    }

    /// Reads a wire string.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }

    /// True for `completed`, `failed`, `cancelled`, `killed` (RUN-004).
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled | Self::Killed)
    }

    /// Moves from here to `to` if RUN-007 lets a run do so.
    pub const fn transition(self, to: Self) -> Result<Self, InvalidTransition> {
        if self.may_become(to) { Ok(to) } else { Err(InvalidTransition { from: self, to }) }
    }

    /// Whether one event may take a run from here to `to`. A step that begins and waits at once takes the run through
    /// `running` on the way.
    pub const fn may_lead_to(self, to: Self) -> bool {
        let through_running =
            !matches!(self, Self::Paused) && self.may_become(Self::Running) && Self::Running.may_become(to);
        self as u8 == to as u8 || self.may_become(to) || through_running
    }

    /// Whether RUN-007 lets a run go from here to `to`.
    pub const fn may_become(self, to: Self) -> bool {
        use RunStatus as S;
        match self {
            S::Queued => matches!(to, S::Starting | S::Paused | S::Cancelled | S::Killed | S::Failed),
            S::Starting => matches!(to, S::Running | S::Paused | S::Cancelled | S::Killed | S::Failed),
            S::Running => !matches!(to, S::Queued | S::Starting | S::Running),
            // Also "the status before the pause", which is any of the five that can be paused.
            S::Paused => !matches!(to, S::Paused | S::Completed),
            S::AwaitingApproval => matches!(to, S::Running | S::Cancelled | S::Killed | S::Failed),
            S::AwaitingTool => {
                matches!(to, S::Running | S::Paused | S::AwaitingApproval | S::Cancelled | S::Killed | S::Failed)
            }
            S::AwaitingBranchSelection => {
                matches!(to, S::Running | S::Paused | S::Cancelled | S::Killed | S::Failed)
            }
            S::Cancelled | S::Killed | S::Failed | S::Completed => false,
        }
    }
}
