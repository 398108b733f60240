//! What the gate says of a call, and what an admissible call brings with it (ADM-007, ADM-014).

use serde::{Deserialize, Serialize};

use crate::catalog::Recovery;
use crate::governance::budget::{MeterReading, OnExceeded};
use crate::governance::grant::Grant;
use crate::governance::kill_switch::KillSwitch;
use crate::governance::throttle::Throttled;
use crate::ids::BudgetId;
use crate::quantity::Usage;
use crate::run::event::{BudgetWarning, Reservation};

/// What a customer is shown when a budget ended a run (ADM-004).
pub const BUDGET_EXHAUSTED_STATUS_COPY: &str = "This run was stopped because its budget is used up.";

/// What follows for a call (ADM-007).
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// It may be appended.
    Admit(Box<Admissible>),
    /// It is not made: in a rehearsal a stand-in answers it (I12).
    Simulate(Box<Simulated>),
    /// It is refused for good; its step fails.
    Deny {
        /// Stable code.
        code: &'static str,
        /// In words.
        message: String,
    },
    /// Its run ends `killed`.
    Kill(Blame),
    /// Its run is held until there is money again (BUD-011).
    Pause {
        /// The budget that is used up.
        budget_id: BudgetId,
        /// Every meter the call touches.
        readings: Vec<MeterReading>,
    },
    /// It waits for its turn.
    Throttle(Throttled),
    /// It waits, and nothing ends.
    Hold {
        /// For what.
        reason: HoldReason,
    },
}

impl Verdict {
    /// The admission outcome (ADM-007).
    pub const fn outcome(&self) -> &'static str {
        match self {
            Self::Admit(_) => "admit",
            Self::Simulate(_) => "simulated",
            Self::Deny { .. } => "denied",
            Self::Kill(_) => "killed",
            Self::Pause { .. } => "paused",
            Self::Throttle(_) => "throttled",
            Self::Hold { reason: HoldReason::RunTerminal } => "run-terminal",
            Self::Hold { .. } => "hold",
        }
    }
}

/// What a held call waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum HoldReason {
    /// The store cannot be asked, or the snapshot is old (KIL-009).
    GovernanceStale,
    /// A pause has arrived.
    RunPaused,
    /// A cancel or kill has arrived: nothing will come.
    RunTerminal,
    /// The executor is at its bound or its circuit is open.
    ExecutorBusy,
    /// An append took so long that its call could not be dispatched in time.
    StoreSlow,
}

impl HoldReason {
    /// Stable code.
    pub const fn code(self) -> &'static str {
        match self {
            Self::GovernanceStale => "governance-stale",
            Self::RunPaused => "run-paused",
            Self::RunTerminal => "run-terminal",
            Self::ExecutorBusy => "executor-busy",
            Self::StoreSlow => "store-slow",
        }
    }
}

/// Who is to blame for a kill.
#[derive(Debug, Clone, PartialEq)]
pub enum Blame {
    /// A switch (ADM-003).
    Switch(Box<KillSwitch>),
    /// A budget (ADM-004).
    Budget {
        /// The budget that decided.
        budget_id: BudgetId,
        /// Every meter the call touches.
        readings: Vec<MeterReading>,
    },
}

impl Blame {
    /// The id of the switch or budget.
    pub fn id(&self) -> &str {
        match self {
            Self::Switch(switch) => switch.switch_id.as_str(),
            Self::Budget { budget_id, .. } => budget_id.as_str(),
        }
    }
    /// What the customer is shown.
    pub fn user_visible_status_copy(&self) -> &str {
        match self {
            Self::Switch(switch) => &switch.user_visible_status_copy,
            Self::Budget { .. } => BUDGET_EXHAUSTED_STATUS_COPY,
        }
    }
    /// How to degrade gracefully (KIL-003).
    pub fn safe_degradation_mode_id(&self) -> Option<&str> {
        match self {
            Self::Switch(switch) => switch.safe_degradation_mode_id.as_deref(),
            Self::Budget { .. } => None,
        }
    }
}

/// A call that no stage objects to, with all that its pending record needs (ADM-014).
#[derive(Debug, Clone, PartialEq)]
pub struct Admissible {
    /// The grant that allows it.
    pub grant: Grant,
    /// The version that is used.
    pub tool_semver: String,
    /// The most it may use, per category.
    pub ceiling: Usage,
    /// What is held for it, one entry for each meter, in the order of budget ids: the order meters are locked in.
    pub reservations: Vec<Reservation>,
    /// Budgets that are near their limit (ADM-005).
    pub budget_warnings: Vec<BudgetWarning>,
    /// The checks its capability audit ids name (CAP-008).
    pub capability_checks: &'static [&'static str],
    /// What happens if its outcome is not known.
    pub recovery: Recovery,
    /// How long it may take, in milliseconds.
    pub timeout_ms: u64,
}

/// A call that a stand-in answers: what its record needs.
#[derive(Debug, Clone, PartialEq)]
pub struct Simulated {
    /// The version that would have been used.
    pub tool_semver: String,
    /// The most it would have used, per category: what the simulated ledger is charged.
    pub ceiling: Usage,
    /// How long it might have taken, in milliseconds.
    pub timeout_ms: u64,
}

/// What follows when the append refused a call for money, on the store's own readings. Only these may end a run for a
/// budget that runs share.
pub fn exceeded_by_store(on_exceeded: OnExceeded, budget_id: BudgetId, readings: Vec<MeterReading>) -> Verdict {
    match on_exceeded {
        OnExceeded::Kill => Verdict::Kill(Blame::Budget { budget_id, readings }),
        OnExceeded::Pause => Verdict::Pause { budget_id, readings },
    }
}
