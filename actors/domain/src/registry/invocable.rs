//! Who may be invoked, by what an agent's life cycle says and the way it is reached (REG-038), and what a run of it may cost
//! at most (REG-039, REG-040).

use serde::{Deserialize, Serialize};

use crate::quantity::Micros;

/// Where a version of an agent stands (REG-037).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum AgentLifecycle {
    /// Being written.
    Draft,
    /// Being rehearsed.
    Rehearsal,
    /// Run beside the champion, unseen.
    Shadow,
    /// Run in the champion's place now and then.
    Challenger,
    /// The version in use.
    Champion,
    /// On its way out.
    Deprecated,
    /// Gone.
    Retired,
}

impl AgentLifecycle {
    /// All seven.
    pub const ALL: [Self; 7] =
        [Self::Draft, Self::Rehearsal, Self::Shadow, Self::Challenger, Self::Champion, Self::Deprecated, Self::Retired];

    /// The wire string.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Draft => "draft",
            Self::Rehearsal => "rehearsal",
            Self::Shadow => "shadow",
            Self::Challenger => "challenger",
            Self::Champion => "champion",
            Self::Deprecated => "deprecated",
            Self::Retired => "retired",
        }
    }

    /// The state with this wire string.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }
}

/// The way an agent is reached (REG-038).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AgentEntry {
    /// Named by whoever submits.
    Direct,
    /// Chosen by the routing that compares versions (FBK).
    FeedbackRouting,
    /// In mode `rehearsal-dry-run`.
    Rehearsal,
    /// By a pipeline that has pinned this version.
    PinnedByPipeline,
}

impl AgentEntry {
    /// All four.
    pub const ALL: [Self; 4] = [Self::Direct, Self::FeedbackRouting, Self::Rehearsal, Self::PinnedByPipeline];
}

/// Whether an agent may be invoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Invocable {
    /// Yes.
    Yes,
    /// Yes, and whoever does should know that it is on its way out.
    WithWarning,
    /// No: `agent-not-invocable`.
    No,
}

/// Whether an agent in this state may be reached this way (REG-038).
pub const fn invocable(state: AgentLifecycle, entry: AgentEntry) -> Invocable {
    match (state, entry) {
        (AgentLifecycle::Champion, _)
        | (AgentLifecycle::Challenger | AgentLifecycle::Shadow, AgentEntry::FeedbackRouting)
        | (AgentLifecycle::Rehearsal, AgentEntry::Rehearsal) => Invocable::Yes,
        (AgentLifecycle::Deprecated, AgentEntry::PinnedByPipeline) => Invocable::WithWarning,
        _ => Invocable::No,
    }
}

/// What a run of an agent may cost at most (REG-039).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum AgentCostClass {
    /// Up to 10 units.
    Micro,
    /// Up to 50.
    Small,
    /// Up to 500.
    Medium,
    /// Up to 5 000.
    Large,
    /// Up to 50 000.
    Flagship,
}

/// The cost classes (REG-039).
pub const AGENT_COST_CLASSES: [AgentCostClass; 5] = [
    AgentCostClass::Micro,
    AgentCostClass::Small,
    AgentCostClass::Medium,
    AgentCostClass::Large,
    AgentCostClass::Flagship,
];

impl AgentCostClass {
    /// The wire string.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Micro => "micro",
            Self::Small => "small",
            Self::Medium => "medium",
            Self::Large => "large",
            Self::Flagship => "flagship",
        }
    }

    /// The most a run may be estimated at, in cost units (REG-040).
    pub const fn bound(self) -> Micros {
        Micros::units(match self {
            Self::Micro => 10,
            Self::Small => 50,
            Self::Medium => 500,
            Self::Large => 5_000,
            Self::Flagship => 50_000,
        })
    }
}
