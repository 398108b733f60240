//! A pipeline's own life cycle (PIP-003). It is not the life cycle of an agent.

use serde::{Deserialize, Serialize};

use crate::mode::Mode;

/// Where a pipeline stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PipelineLifecycle {
    /// Being written.
    Draft,
    /// May be triggered in mode `rehearsal-dry-run` only.
    Rehearsal,
    /// May be triggered.
    Live,
    /// May not be triggered for now.
    Suspended,
    /// May not be triggered again.
    Retired,
}

impl PipelineLifecycle {
    /// All five.
    pub const ALL: [Self; 5] = [Self::Draft, Self::Rehearsal, Self::Live, Self::Suspended, Self::Retired];

    /// The wire string.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Draft => "draft",
            Self::Rehearsal => "rehearsal",
            Self::Live => "live",
            Self::Suspended => "suspended",
            Self::Retired => "retired",
        }
    }

    /// Whether a trigger in this mode is accepted (PIP-003).
    pub const fn accepts(self, mode: Mode) -> bool {
        match self {
            Self::Live => true,
            Self::Rehearsal => mode.is_rehearsal(),
            Self::Draft | Self::Suspended | Self::Retired => false,
        }
    }
}
