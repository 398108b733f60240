//! What a webhook can be told of.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::run::status::RunStatus;

/// What stands before each name on the wire: CloudEvents types are reverse DNS names.
pub const EVENT_TYPE_PREFIX: &str = "dev.signalbox.";

/// A kind of event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventType {
    /// A kill switch was armed.
    SwitchArmed,
    /// A kill switch was disarmed.
    SwitchDisarmed,
    /// Calls come near the limit of a budget, or live on its grace: once for each window.
    BudgetWarned,
    /// A budget stopped a run.
    BudgetExceeded,
    /// A budget was created or changed.
    BudgetPut,
    /// A budget was given more.
    BudgetToppedUp,
    /// A budget was taken out of force.
    BudgetRetired,
    /// Somebody is asked.
    ApprovalAsked,
    /// Somebody answered, or nobody did in time.
    ApprovalDecided,
    /// A run reached its end.
    RunCompleted,
    /// A run failed.
    RunFailed,
    /// A run was cancelled.
    RunCancelled,
    /// A run was killed.
    RunKilled,
    /// Nothing happened: somebody tries whether deliveries arrive. Cannot be subscribed to.
    Ping,
}

impl EventType {
    /// Those that can be subscribed to.
    pub const ALL: [Self; 13] = [
        Self::SwitchArmed,
        Self::SwitchDisarmed,
        Self::BudgetWarned,
        Self::BudgetExceeded,
        Self::BudgetPut,
        Self::BudgetToppedUp,
        Self::BudgetRetired,
        Self::ApprovalAsked,
        Self::ApprovalDecided,
        Self::RunCompleted,
        Self::RunFailed,
        Self::RunCancelled,
        Self::RunKilled,
    ];

    /// The short name, as the store and the command line have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SwitchArmed => "switch.armed",
            Self::SwitchDisarmed => "switch.disarmed",
            Self::BudgetWarned => "budget.warned",
            Self::BudgetExceeded => "budget.exceeded",
            Self::BudgetPut => "budget.put",
            Self::BudgetToppedUp => "budget.topped-up",
            Self::BudgetRetired => "budget.retired",
            Self::ApprovalAsked => "approval.asked",
            Self::ApprovalDecided => "approval.decided",
            Self::RunCompleted => "run.completed",
            Self::RunFailed => "run.failed",
            Self::RunCancelled => "run.cancelled",
            Self::RunKilled => "run.killed",
            Self::Ping => "webhook.ping",
        }
    }

    /// The full name, as receivers see it.
    pub fn full_name(self) -> String {
        format!("{EVENT_TYPE_PREFIX}{}", self.as_str())
    }

    /// What a run that ends like this is told as; `None` for a status that is no end.
    pub const fn of_end(status: RunStatus) -> Option<Self> {
        match status {
            RunStatus::Completed => Some(Self::RunCompleted),
            RunStatus::Failed => Some(Self::RunFailed),
            RunStatus::Cancelled => Some(Self::RunCancelled),
            RunStatus::Killed => Some(Self::RunKilled),
            RunStatus::Queued
            | RunStatus::Starting
            | RunStatus::Running
            | RunStatus::Paused
            | RunStatus::AwaitingApproval
            | RunStatus::AwaitingTool
            | RunStatus::AwaitingBranchSelection => None,
        }
    }
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A text that names no event that can be subscribed to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no type of event; docs/webhooks.md lists them")]
pub struct UnknownEventType(String);

impl FromStr for EventType {
    type Err = UnknownEventType;
    /// The short name or the full one.
    fn from_str(text: &str) -> Result<Self, UnknownEventType> {
        let short = text.strip_prefix(EVENT_TYPE_PREFIX).unwrap_or(text);
        let known = Self::ALL.into_iter().find(|known| known.as_str() == short);
        known.ok_or_else(|| UnknownEventType(text.chars().take(64).collect()))
    }
}

impl Serialize for EventType {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for EventType {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}
