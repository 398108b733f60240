//! The gate: one pure function over one snapshot, in front of every tool call of every front door (ADM).

use serde::{Deserialize, Serialize};

/// The stages, in the order in which the first objection decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// Can the store be asked, and is the snapshot current?
    Governance,
    /// Has a pause, cancel or kill arrived; is a switch armed?
    Safety,
    /// Is the tool known, configured, in the family's ceiling and in the caller's scopes?
    Tool,
    /// Is there a live grant?
    Grant,
    /// Do secrets, paths, hosts and methods lie inside the grant?
    Isolation,
    /// Can it be paid for?
    Cost,
    /// Is it too fast?
    Rate,
}

/// What one stage said, kept for `explain`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StageAnswer {
    /// Which stage.
    pub stage: Stage,
    /// True if it had nothing against the call.
    pub passed: bool,
    /// Stable code: `ok`, `warn`, or the reason of the objection.
    pub code: String,
    /// In words: what it found, and the smallest change that would have let the call through.
    pub detail: String,
}
