//! Where a run can be triggered (INV-001, INV-002). It is known by the edge that was used, and is no member of a body.

use serde::{Deserialize, Serialize};

/// Where a run was triggered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Surface {
    /// An edge for other services.
    Api,
    /// The operators' console.
    OperatorConsole,
    /// The creators' studio.
    CreatorStudio,
    /// An app of customers.
    CustomerApp,
    /// A pipeline that was called.
    Pipeline,
    /// A pipeline's schedule.
    Schedule,
    /// A run that handed work on.
    Handoff,
    /// A turn of a conversation.
    Turn,
    /// An orchestrated plan.
    Plan,
    /// An autonomous cycle.
    Autonomy,
}

/// Where runs can be triggered (INV-002).
pub const INVOCATION_SURFACES: [Surface; 10] = [
    Surface::Api,
    Surface::OperatorConsole,
    Surface::CreatorStudio,
    Surface::CustomerApp,
    Surface::Pipeline,
    Surface::Schedule,
    Surface::Handoff,
    Surface::Turn,
    Surface::Plan,
    Surface::Autonomy,
];

impl Surface {
    /// The wire string.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::OperatorConsole => "operator-console",
            Self::CreatorStudio => "creator-studio",
            Self::CustomerApp => "customer-app",
            Self::Pipeline => "pipeline",
            Self::Schedule => "schedule",
            Self::Handoff => "handoff",
            Self::Turn => "turn",
            Self::Plan => "plan",
            Self::Autonomy => "autonomy",
        }
    }

    /// The surface with this wire string.
    pub fn parse(text: &str) -> Option<Self> {
        INVOCATION_SURFACES.into_iter().find(|surface| surface.as_str() == text)
    }
}
