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

use crate::catalog::{CatalogEntry, Recovery};
use crate::governance::budget::{MeterReading, MeteredBudget};
use crate::governance::change::GovernanceState;
use crate::governance::grant::Grant;
use crate::governance::kill_switch::KillSwitch;
use crate::governance::target::Target;
use crate::governance::throttle::Throttled;
use crate::ids::{BudgetId, GrantId};
use crate::quantity::Usage;
use crate::run::event::{BudgetWarning, Reservation};
use crate::time::UnixMs;
use serde_json::Value;
use std::collections::BTreeMap;
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlState {
    None,
    Paused,
    Ending,
}
pub struct Attempt<'a> {
    pub target: &'a Target,
    pub tool: Option<&'a CatalogEntry>,
    pub configured_semver: Option<&'a str>,
    pub scopes: &'a [String],
    pub args: &'a Value,
    pub control: ControlState,
    pub now: UnixMs,
}
pub struct Snapshot<'a> {
    pub governance_current: bool,
    pub state: &'a GovernanceState,
    pub shared_budgets: &'a [MeteredBudget],
    pub run_budgets: &'a [MeteredBudget],
    pub run_grants: &'a [Grant],
    pub grant_uses: &'a BTreeMap<GrantId, u64>,
    pub throttled: Option<Throttled>,
}
pub struct Decision {
    pub verdict: Verdict,
    pub answers: Vec<StageAnswer>,
}
pub enum Verdict {
    Admit(Admissible),
    Deny { code: String, message: String },
    Kill(Blame),
    Pause { budget_id: BudgetId, readings: Vec<MeterReading> },
    Throttle(Throttled),
    Hold { reason: String },
}
pub enum Blame {
    Switch(KillSwitch),
    Budget { budget_id: BudgetId, readings: Vec<MeterReading> },
}
pub struct Admissible {
    pub grant: Grant,
    pub tool_semver: String,
    pub ceiling: Usage,
    pub reservations: Vec<Reservation>,
    pub budget_warnings: Vec<BudgetWarning>,
    pub recovery: Recovery,
    pub timeout_ms: u64,
}
pub fn gate(_: &Attempt<'_>, _: &Snapshot<'_>) -> Decision {
    loop {}
}
pub fn exceeded_by_store(_: &[MeteredBudget], _: BudgetId, _: Vec<MeterReading>) -> Verdict {
    loop {}
}
