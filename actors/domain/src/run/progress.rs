//! Live progress: what each subscriber is shown of a run (DSH-008 to DSH-011).

use serde::{Deserialize, Serialize};

use crate::identity::{Role, Visibility};
use crate::ids::TenantId;
use crate::run::chain::StoredEvent;
use crate::run::envelope::RunEnvelope;
use crate::run::event::{ControlEffect, GovernanceAudited, RunEvent};
use crate::run::status::RunStatus;
use crate::run::step::StepState;

/// Kinds of progress (DSH-009).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ProgressKind {
    /// The run was accepted.
    RunQueued,
    /// A node took it up.
    RunStarted,
    /// A step began.
    StepStarted,
    /// A step is over.
    StepFinished,
    /// A tool was called.
    ToolCalled,
    /// A tool answered.
    ToolResult,
    /// Somebody is asked.
    ApprovalRequested,
    /// Somebody is asked to choose.
    BranchOffered,
    /// A sub-run was started.
    Handoff,
    /// A budget is near its limit.
    BudgetWarning,
    /// A step waits at a bucket.
    Throttled,
    /// Words for people.
    Narration,
    /// There is something to fetch.
    OutputReady,
    /// The run is held.
    RunPaused,
    /// The run goes on.
    RunResumed,
    /// The run is over.
    RunFinished,
    /// For operators.
    OperatorNote,
}

impl ProgressKind {
    /// The wire string.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RunQueued => "run_queued",
            Self::RunStarted => "run_started",
            Self::StepStarted => "step_started",
            Self::StepFinished => "step_finished",
            Self::ToolCalled => "tool_called",
            Self::ToolResult => "tool_result",
            Self::ApprovalRequested => "approval_requested",
            Self::BranchOffered => "branch_offered",
            Self::Handoff => "handoff",
            Self::BudgetWarning => "budget_warning",
            Self::Throttled => "throttled",
            Self::Narration => "narration",
            Self::OutputReady => "output_ready",
            Self::RunPaused => "run_paused",
            Self::RunResumed => "run_resumed",
            Self::RunFinished => "run_finished",
            Self::OperatorNote => "operator_note",
        }
    }

    /// How internal this kind is by default (DSH-010).
    pub const fn visibility(self) -> Visibility {
        match self {
            Self::ToolCalled | Self::ToolResult | Self::Handoff | Self::BudgetWarning | Self::Throttled => {
                Visibility::TenantOperator
            }
            Self::OperatorNote => Visibility::PlatformOperator,
            Self::RunQueued
            | Self::RunStarted
            | Self::StepStarted
            | Self::StepFinished
            | Self::ApprovalRequested
            | Self::BranchOffered
            | Self::Narration
            | Self::OutputReady
            | Self::RunPaused
            | Self::RunResumed
            | Self::RunFinished => Visibility::Customer,
        }
    }
}

/// All seventeen, in the order of DSH-009.
pub const RUN_PROGRESS_KINDS: [ProgressKind; 17] = [
    ProgressKind::RunQueued,
    ProgressKind::RunStarted,
    ProgressKind::StepStarted,
    ProgressKind::StepFinished,
    ProgressKind::ToolCalled,
    ProgressKind::ToolResult,
    ProgressKind::ApprovalRequested,
    ProgressKind::BranchOffered,
    ProgressKind::Handoff,
    ProgressKind::BudgetWarning,
    ProgressKind::Throttled,
    ProgressKind::Narration,
    ProgressKind::OutputReady,
    ProgressKind::RunPaused,
    ProgressKind::RunResumed,
    ProgressKind::RunFinished,
    ProgressKind::OperatorNote,
];

/// Each kind with how internal it is unless an event says otherwise, in the order of DSH-009 (DSH-010).
pub const PROGRESS_VISIBILITY: [(ProgressKind, Visibility); 17] = {
    let mut table = [(ProgressKind::RunQueued, Visibility::Customer); 17];
    let mut index = 0;
    while index < table.len() {
        table[index] = (RUN_PROGRESS_KINDS[index], RUN_PROGRESS_KINDS[index].visibility());
        index += 1;
    }
    table
};

/// The kind of progress an event of the journal is.
pub fn progress_kind(event: &RunEvent) -> ProgressKind {
    match event {
        RunEvent::RunSubmitted(_) => ProgressKind::RunQueued,
        RunEvent::RunStarted {} => ProgressKind::RunStarted,
        RunEvent::CallPending(_) | RunEvent::CallRedispatched { .. } => ProgressKind::ToolCalled,
        RunEvent::CallSettled(_) | RunEvent::CallRefused(_) => ProgressKind::ToolResult,
        RunEvent::LateEvidence(_) | RunEvent::RunClosed {} => ProgressKind::OperatorNote,
        RunEvent::GovernanceAudited(audited) => match **audited {
            GovernanceAudited::Budget { .. }
            | GovernanceAudited::Overshoot { .. }
            | GovernanceAudited::SubagentBudgetExceeded { .. } => ProgressKind::BudgetWarning,
            GovernanceAudited::KillSwitch { .. } | GovernanceAudited::IdentityMismatch { .. } => {
                ProgressKind::OperatorNote
            }
        },
        RunEvent::HandoffDispatched(_) | RunEvent::HandoffDenied(_) | RunEvent::HandoffReconciled(_) => {
            ProgressKind::Handoff
        }
        RunEvent::StepThrottled { .. } => ProgressKind::Throttled,
        RunEvent::StepSkipped { .. } | RunEvent::StepFailed { .. } | RunEvent::TimerFired { .. } => {
            ProgressKind::StepFinished
        }
        RunEvent::TimerSet { .. } => ProgressKind::StepStarted,
        RunEvent::ApprovalRequested(_) | RunEvent::ApprovalReminded { .. } => ProgressKind::ApprovalRequested,
        RunEvent::ApprovalDecided { .. } | RunEvent::ApprovalExpired { .. } => ProgressKind::StepFinished,
        RunEvent::BranchOffered { .. } => ProgressKind::BranchOffered,
        RunEvent::ControlApplied(control) => match control.effect {
            ControlEffect::Paused { .. } => ProgressKind::RunPaused,
            ControlEffect::Resumed | ControlEffect::Rewound { .. } => ProgressKind::RunResumed,
            ControlEffect::BranchChosen { .. } => ProgressKind::StepFinished,
            ControlEffect::Ended | ControlEffect::Forked | ControlEffect::StepPermitted { .. } => {
                ProgressKind::OperatorNote
            }
        },
        RunEvent::ModelBegan { .. } => ProgressKind::StepStarted,
        RunEvent::ModelAsked(_) | RunEvent::ModelAnswered(_) | RunEvent::ModelFellBack { .. } => {
            ProgressKind::OperatorNote
        }
        RunEvent::RunFinished(_) => ProgressKind::RunFinished,
    }
}

/// The same of an event as it is stored. Its body is read only where the kind does not tell; one that this version cannot
/// read is for operators.
pub fn progress_kind_of_stored(stored: &StoredEvent) -> ProgressKind {
    match stored.kind.as_str() {
        "call-pending" | "call-redispatched" => ProgressKind::ToolCalled,
        "call-settled" | "call-refused" => ProgressKind::ToolResult,
        "run-submitted" => ProgressKind::RunQueued,
        "run-started" => ProgressKind::RunStarted,
        "run-finished" => ProgressKind::RunFinished,
        "run-closed" | "late-evidence" => ProgressKind::OperatorNote,
        "approval-requested" | "approval-reminded" => ProgressKind::ApprovalRequested,
        _ => stored.event().map_or(ProgressKind::OperatorNote, |event| progress_kind(&event)),
    }
}

/// Whether a subscriber is shown something of a run: its own tenant's, and not more internal than its standing (DSH-010).
pub fn should_deliver_to_subscriber(
    visibility: Visibility,
    run_tenant: &TenantId,
    role: Role,
    subscriber_tenant: &TenantId,
) -> bool {
    visibility <= role.sees() && run_tenant == subscriber_tenant
}

/// A run as its customer is told of it: no id of an agent or a tool, no cost (DSH-011).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct CustomerSummary {
    /// One sentence.
    pub headline: String,
    /// Finished steps of all, rounded down.
    pub percent: u8,
    /// "step 3 of 9", if one is being worked on.
    pub current_step: Option<String>,
    /// What the run waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<String>,
}

/// Sums a run up for its customer.
pub fn summarize_for_customer(run: &RunEnvelope) -> CustomerSummary {
    let headline = match run.status {
        RunStatus::Queued => "Your run is waiting to begin.",
        RunStatus::Starting | RunStatus::Running | RunStatus::AwaitingTool => "Your run is in progress.",
        RunStatus::Paused => "Your run is on hold.",
        RunStatus::AwaitingApproval | RunStatus::AwaitingBranchSelection => "Your run is waiting for an answer.",
        RunStatus::Completed => "Your run is done.",
        RunStatus::Cancelled => "Your run was stopped.",
        RunStatus::Failed => "Your run could not be finished.",
        RunStatus::Killed => "Your run was stopped by a safety rule.",
    };
    let copy = run.end.as_ref().and_then(|end| end.user_visible_status_copy.clone());
    let working = |state: &StepState| !state.is_over() && !matches!(state, StepState::Pending);
    let current = run.steps.iter().position(working).or_else(|| run.steps.iter().position(|s| !s.is_over()));
    let current = if run.end.is_some() { None } else { current };
    CustomerSummary {
        headline: copy.unwrap_or_else(|| headline.to_owned()),
        percent: run.percent(),
        current_step: current.map(|index| format!("step {} of {}", index + 1, run.steps.len())),
        waiting_for: run.waiting_for(),
    }
}
