//! The authority table: which role may do what, and how far it reaches.
//!
//! One function, [`reach`], is the table; everything that asks whether somebody may do something asks it. What a role may do
//! is only ever narrowed elsewhere: a gate names its approvers, a tool asks for scopes, a switch has its own scopes (KIL-007).

use super::{Caller, Role};
use crate::ids::TenantId;
use crate::run::envelope::RunEnvelope;
use crate::run::event::ControlKind;

/// What somebody may want to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Submit a run.
    Submit,
    /// See runs, their events up to one's rank, and their questions.
    ReadRuns,
    /// Steer a run (CTL-019).
    Steer(ControlKind),
    /// Answer a question that lets one; who that is, the question says (HND-002).
    Approve,
    /// See a run's whole envelope as it stood after an event.
    Replay,
    /// Take a run's whole journal away.
    Export,
    /// Create, list and revoke API keys.
    ManageKeys,
    /// See switches, budgets, throttles and grants.
    ReadGovernance,
    /// Change them.
    ChangeGovernance,
    /// Do any of this in another tenant than the credential's own.
    ActInAnotherTenant,
}

impl Action {
    /// Every action.
    pub const ALL: [Self; 17] = [
        Self::Submit,
        Self::ReadRuns,
        Self::Steer(ControlKind::Pause),
        Self::Steer(ControlKind::Resume),
        Self::Steer(ControlKind::Cancel),
        Self::Steer(ControlKind::BranchChosen),
        Self::Steer(ControlKind::Kill),
        Self::Steer(ControlKind::RetryWithChanges),
        Self::Steer(ControlKind::OperatorStep),
        Self::Steer(ControlKind::Fork),
        Self::Approve,
        Self::Replay,
        Self::Export,
        Self::ManageKeys,
        Self::ReadGovernance,
        Self::ChangeGovernance,
        Self::ActInAnotherTenant,
    ];

    /// Names it, for people and for `WhoAmI`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Submit => "submit",
            Self::ReadRuns => "read-runs",
            Self::Steer(ControlKind::Pause) => "pause",
            Self::Steer(ControlKind::Resume) => "resume",
            Self::Steer(ControlKind::Cancel) => "cancel",
            Self::Steer(ControlKind::BranchChosen) => "choose-branch",
            Self::Steer(ControlKind::Kill) => "kill",
            Self::Steer(ControlKind::RetryWithChanges) => "retry",
            Self::Steer(ControlKind::OperatorStep) => "step",
            Self::Steer(ControlKind::Fork) => "fork",
            Self::Approve => "approve",
            Self::Replay => "replay",
            Self::Export => "export",
            Self::ManageKeys => "manage-keys",
            Self::ReadGovernance => "read-governance",
            Self::ChangeGovernance => "change-governance",
            Self::ActInAnotherTenant => "act-in-another-tenant",
        }
    }
}

/// How far a role reaches with an action, rising.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// Not at all.
    Nothing,
    /// Only to what the caller itself submitted.
    Own,
    /// To everything of its tenant.
    Tenant,
    /// To every tenant.
    Platform,
}

impl Reach {
    /// The wire string.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Own => "own",
            Self::Tenant => "tenant",
            Self::Platform => "platform",
        }
    }
}

/// The table.
pub const fn reach(role: Role, action: Action) -> Reach {
    match role {
        Role::PlatformOperator => Reach::Platform,
        Role::TenantOperator => match action {
            Action::ActInAnotherTenant => Reach::Nothing,
            Action::Submit
            | Action::ReadRuns
            | Action::Steer(_)
            | Action::Approve
            | Action::Replay
            | Action::Export
            | Action::ManageKeys
            | Action::ReadGovernance
            | Action::ChangeGovernance => Reach::Tenant,
        },
        Role::Creator | Role::Customer | Role::Service => match action {
            Action::Submit | Action::Approve => Reach::Tenant,
            Action::ReadRuns
            | Action::Steer(
                ControlKind::Pause | ControlKind::Resume | ControlKind::Cancel | ControlKind::BranchChosen,
            ) => Reach::Own,
            Action::Steer(
                ControlKind::Kill | ControlKind::RetryWithChanges | ControlKind::OperatorStep | ControlKind::Fork,
            )
            | Action::Replay
            | Action::Export
            | Action::ManageKeys
            | Action::ReadGovernance
            | Action::ChangeGovernance
            | Action::ActInAnotherTenant => Reach::Nothing,
        },
    }
}

/// True if a caller is shown a run of its tenant at all: an operator, whoever submitted it, and whoever it asks or has asked.
/// To everybody else the run is as absent as one that does not exist. What works unseen beside a run is shown to operators
/// alone (FBK-007).
pub fn may_see(caller: &Caller, run: &RunEnvelope) -> bool {
    let asked = || {
        run.approvals.iter().any(|question| {
            question.may_be_decided_by(&caller.actor, &caller.scopes, run).is_ok()
                || question.decided_by.as_ref().is_some_and(|by| by.actor_id == caller.actor.actor_id)
        })
    };
    match reach(caller.actor.role, Action::ReadRuns) {
        Reach::Platform | Reach::Tenant => true,
        Reach::Own if run.is_shadow() => false,
        Reach::Own => caller.actor.actor_id == run.submitted_by.actor_id || asked(),
        Reach::Nothing => false,
    }
}

/// Somebody who may not act in another tenant has asked to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("only a platform-operator may act in another tenant than its own")]
pub struct TenantDenied;

/// The tenant a caller acts in when it asks for `wanted`: another than its own only as the platform's operator.
pub fn tenant_of(caller: &Caller, wanted: TenantId) -> Result<TenantId, TenantDenied> {
    let may =
        wanted == caller.tenant_id || matches!(reach(caller.actor.role, Action::ActInAnotherTenant), Reach::Platform);
    if may { Ok(wanted) } else { Err(TenantDenied) }
}
