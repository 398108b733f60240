//! Which entries of the journals are told, and as what.

use crate::governance::audit::{AuditEvent, AuditKind};
use crate::ids::{BudgetId, RunKey};
use crate::run::event::{GovernanceAudited, RunEvent};
use crate::webhook::EventType;

/// Something to tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// As what.
    pub event_type: EventType,
    /// Which of the notices of one entry, from 0: a call may come near several limits.
    pub part: u32,
    /// What is told once and not again for each entry that says it, such as a warning of one budget in one window.
    pub once: Option<String>,
}

impl Notice {
    const fn of(event_type: EventType) -> Self {
        Self { event_type, part: 0, once: None }
    }
}

/// What of a run's event is told. `window_of` gives the start of the window that a budget is in, in seconds since the Unix
/// epoch; `None` for a budget of the run alone.
pub fn of_run(event: &RunEvent, run: &RunKey, window_of: impl Fn(&BudgetId) -> Option<i64>) -> Vec<Notice> {
    match event {
        RunEvent::RunFinished(finished) => EventType::of_end(finished.status).map(Notice::of).into_iter().collect(),
        RunEvent::ApprovalRequested(_) => vec![Notice::of(EventType::ApprovalAsked)],
        RunEvent::ApprovalDecided { .. } | RunEvent::ApprovalExpired { .. } => {
            vec![Notice::of(EventType::ApprovalDecided)]
        }
        RunEvent::GovernanceAudited(audited) => match audited.as_ref() {
            GovernanceAudited::Budget { .. } => vec![Notice::of(EventType::BudgetExceeded)],
            GovernanceAudited::KillSwitch { .. }
            | GovernanceAudited::Overshoot { .. }
            | GovernanceAudited::SubagentBudgetExceeded { .. }
            | GovernanceAudited::IdentityMismatch { .. } => Vec::new(),
        },
        RunEvent::CallPending(pending) => {
            let warned = pending.budget_warnings.iter().zip(0_u32..).map(|(warning, part)| {
                let within = window_of(&warning.budget_id).map_or_else(|| run.to_string(), |start| start.to_string());
                let once = format!("{}/{within}/{}", warning.budget_id, warning.verdict);
                Notice { event_type: EventType::BudgetWarned, part, once: Some(once) }
            });
            warned.collect()
        }
        RunEvent::RunSubmitted(_)
        | RunEvent::RunStarted {}
        | RunEvent::CallSettled(_)
        | RunEvent::CallRefused(_)
        | RunEvent::CallRedispatched { .. }
        | RunEvent::LateEvidence(_)
        | RunEvent::StepThrottled { .. }
        | RunEvent::StepSkipped { .. }
        | RunEvent::StepFailed { .. }
        | RunEvent::HandoffDispatched(_)
        | RunEvent::HandoffDenied(_)
        | RunEvent::HandoffReconciled(_)
        | RunEvent::ApprovalReminded { .. }
        | RunEvent::BranchOffered { .. }
        | RunEvent::TimerSet { .. }
        | RunEvent::TimerFired { .. }
        | RunEvent::ModelBegan { .. }
        | RunEvent::ModelAsked(_)
        | RunEvent::ModelAnswered(_)
        | RunEvent::ModelFellBack { .. }
        | RunEvent::ControlApplied(_)
        | RunEvent::RunClosed {} => Vec::new(),
    }
}

/// What of an act is told.
pub fn of_act(act: &AuditEvent) -> Option<Notice> {
    let told = [
        (AuditKind::SwitchArmed, EventType::SwitchArmed),
        (AuditKind::SwitchDisarmed, EventType::SwitchDisarmed),
        (AuditKind::BudgetPut, EventType::BudgetPut),
        (AuditKind::BudgetToppedUp, EventType::BudgetToppedUp),
        (AuditKind::BudgetRetired, EventType::BudgetRetired),
    ];
    let (_, event_type) = told.into_iter().find(|(kind, _)| kind.as_str() == act.kind)?;
    Some(Notice::of(event_type))
}
