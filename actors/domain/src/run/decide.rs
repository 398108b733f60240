//! Commands: may this happen, and what follows. Every "no" to a caller is made here, typed and with a stable code.

use serde::{Deserialize, Serialize};

use crate::handoff::ending::{SubRunEnd, may_report, reconcile};
use crate::identity::{Actor, Role};
use crate::ids::{ApprovalId, BranchId, StepId};
use crate::redact::{redact_text, redact_value};
use crate::run::append::NewEvent;
use crate::run::envelope::RunEnvelope;
use crate::run::event::{ApprovalDecision, Overrides};
use crate::run::status::RunStatus;
use crate::run::{approval, control};
use crate::time::UnixMs;

/// Longest text of a reason, in bytes.
pub const REASON_BYTES_MAX: usize = 4_096;

/// What a caller can ask of a run. This JSON lies in the inbox until the run has answered it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum RunCommand {
    /// Hold the run.
    Pause {
        /// Why.
        reason: String,
    },
    /// Let it go on.
    Resume {
        /// Why.
        reason: String,
    },
    /// Stop it deliberately.
    Cancel {
        /// Why.
        reason: String,
    },
    /// Stop it by governance.
    Kill {
        /// Why.
        reason: String,
        /// The switch or budget behind it, if it is not an operator's own decision.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        blamed_id: Option<String>,
    },
    /// Choose a branch.
    ChooseBranch {
        /// The branch step; may be left out if only one waits.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step_id: Option<StepId>,
        /// The branch.
        branch_id: BranchId,
        /// Why.
        reason: String,
    },
    /// Rewind and go on with changes.
    RetryWithChanges {
        /// The first step to do again.
        step_id: StepId,
        /// The changes.
        #[serde(default)]
        overrides: Overrides,
        /// Why.
        reason: String,
    },
    /// Let exactly one step of a paused run go.
    OperatorStep {
        /// The step; the first that is ready if left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step_id: Option<StepId>,
        /// Why.
        reason: String,
    },
    /// Answer a question.
    DecideApproval {
        /// The question.
        approval_id: ApprovalId,
        /// The answer.
        decision: ApprovalDecision,
        /// Why.
        reason: String,
        /// What the decider saw.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        subject_digest: Option<String>,
    },
    /// A sub-run has ended: said by the runtime, in the append that closes it.
    SubRunEnded {
        /// How.
        end: Box<SubRunEnd>,
    },
}

impl RunCommand {
    /// True for what must stop the next admission by itself: pause, cancel, kill.
    pub const fn stops(&self) -> bool {
        matches!(self, Self::Pause { .. } | Self::Cancel { .. } | Self::Kill { .. })
    }

    /// Why the caller says it wants this.
    pub fn reason(&self) -> &str {
        match self {
            Self::Pause { reason }
            | Self::Resume { reason }
            | Self::Cancel { reason }
            | Self::Kill { reason, .. }
            | Self::ChooseBranch { reason, .. }
            | Self::RetryWithChanges { reason, .. }
            | Self::OperatorStep { reason, .. }
            | Self::DecideApproval { reason, .. } => reason,
            Self::SubRunEnded { .. } => "",
        }
    }
}

impl RunCommand {
    /// The command as it may lie in the inbox and in the journal.
    ///
    /// # Errors
    /// New arguments that hold something that looks like a secret: they would be used as they are kept. And ids that look
    /// like one: no plan has those.
    pub fn redacted(mut self) -> Result<Self, Denial> {
        let redact = |text: &mut String| {
            if let std::borrow::Cow::Owned(redacted) = redact_text(text) {
                *text = redacted;
            }
        };
        let is_open = |id: &str| matches!(redact_text(id), std::borrow::Cow::Borrowed(_));
        let step_is_open = |id: &StepId| if is_open(id.as_str()) { Ok(()) } else { Err(Denial::NoSuchStep) };
        let branch_is_open = |id: &BranchId| {
            if is_open(id.as_str()) { Ok(()) } else { Err(Denial::NoSuchBranch(BranchId::constant("redacted"))) }
        };
        match &mut self {
            // It was redacted when it was written into the sub-run's journal.
            Self::SubRunEnded { .. } => {}
            Self::Pause { reason } | Self::Resume { reason } | Self::Cancel { reason } => redact(reason),
            Self::ChooseBranch { step_id, branch_id, reason } => {
                redact(reason);
                step_id.iter().try_for_each(step_is_open)?;
                branch_is_open(branch_id)?;
            }
            Self::OperatorStep { step_id, reason } => {
                redact(reason);
                step_id.iter().try_for_each(step_is_open)?;
            }
            Self::Kill { reason, blamed_id } => {
                redact(reason);
                blamed_id.iter_mut().for_each(redact);
            }
            Self::DecideApproval { reason, subject_digest, .. } => {
                redact(reason);
                subject_digest.iter_mut().for_each(redact);
            }
            Self::RetryWithChanges { step_id, overrides, reason } => {
                redact(reason);
                step_is_open(step_id)?;
                overrides.params.keys().try_for_each(step_is_open)?;
                overrides.branch.iter().try_for_each(branch_is_open)?;
                overrides.model_binding.iter_mut().chain(&mut overrides.mode).for_each(redact);
                if overrides.params.values().any(|args| redact_value(args).1) {
                    let what = "`params` hold something that looks like a secret; use a handle {\"$secret\": \"id\"}";
                    return Err(Denial::OverrideNotAllowed(what.to_owned()));
                }
            }
        }
        Ok(self)
    }
}

/// The plain values a decision needs beside the run.
#[derive(Debug, Clone, PartialEq)]
pub struct Context {
    /// Now.
    pub now: UnixMs,
    /// Who asks.
    pub actor: Actor,
    /// What its credential allows, as far as an answer to a question depends on it (HND-002).
    pub scopes: Vec<String>,
    /// The last event the caller has seen, if it wants to be refused when there are newer ones.
    pub expected_seq: Option<u64>,
}

/// A "no". The control denials are those of CTL-015 and CTL-016.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    /// The run is over.
    #[error("the run is already {}", .0.as_str())]
    RunTerminal(RunStatus),
    /// Pausing is not possible now.
    #[error("a run that is {} cannot be paused", .0.as_str())]
    InvalidStatusForPause(RunStatus),
    /// Resuming is not possible now.
    #[error("a run that is {} cannot be resumed; only a paused one can", .0.as_str())]
    InvalidStatusForResume(RunStatus),
    /// No branch is being chosen now.
    #[error("a run that is {} has no branch to choose", .0.as_str())]
    InvalidStatusForBranch(RunStatus),
    /// Rewinding is not possible now.
    #[error("a run that is {} cannot be rewound; pause it first", .0.as_str())]
    InvalidStatusForRetry(RunStatus),
    /// Stepping is not possible now.
    #[error("a run that is {} cannot be stepped; pause it first", .0.as_str())]
    InvalidStatusForStep(RunStatus),
    /// The step does not offer that branch.
    #[error("there is no branch `{0}` to choose here")]
    NoSuchBranch(BranchId),
    /// The plan has no such step, or it cannot be done now.
    #[error("there is no such step to do now")]
    NoSuchStep,
    /// A fork needs a run id that is not in use.
    #[error("a fork needs a run id of its own that is not in use")]
    ForkWithoutFreshId,
    /// An override touches something it may not.
    #[error("the override is not allowed: {0}")]
    OverrideNotAllowed(String),
    /// The caller's role may not do this.
    #[error("the role {} may not do this to this run", .role.as_str())]
    NotAuthorized {
        /// The role.
        role: Role,
    },
    /// The question names who may answer.
    #[error("approval {0} names who may decide it, and this credential is not among them; ask one of those")]
    NotAnApprover(ApprovalId),
    /// The run has moved on since the caller looked.
    #[error("the run is at event {actual}, not {expected}; look at it again")]
    StaleRevision {
        /// What the caller saw.
        expected: u64,
        /// What is true.
        actual: u64,
    },
    /// No such question in this run.
    #[error("there is no approval {0} in this run")]
    NoSuchApproval(ApprovalId),
    /// The question was answered, has expired or is moot.
    #[error("approval {0} is no longer open")]
    ApprovalClosed(ApprovalId),
    /// The decider saw something else.
    #[error("what approval {0} is about is not what the decision was made for; look at it again")]
    ApprovalSubjectChanged(ApprovalId),
    /// The answer does not fit the question.
    #[error("`skip` answers only the question about an unknown outcome; approve or reject")]
    DecisionNotAllowed,
    /// No reason was given.
    #[error("a reason is required")]
    ReasonRequired,
    /// The reason is too long.
    #[error("a reason may have at most {REASON_BYTES_MAX} bytes")]
    ReasonTooLong,
}

impl Denial {
    /// Stable for ever.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::RunTerminal(_) => "run-terminal",
            Self::InvalidStatusForPause(_) => "invalid-status-for-pause",
            Self::InvalidStatusForResume(_) => "invalid-status-for-resume",
            Self::InvalidStatusForBranch(_) => "invalid-status-for-branch",
            Self::InvalidStatusForRetry(_) => "invalid-status-for-retry",
            Self::InvalidStatusForStep(_) => "invalid-status-for-step",
            Self::NoSuchBranch(_) => "no-such-branch",
            Self::NoSuchStep => "no-such-step",
            Self::ForkWithoutFreshId => "fork-without-fresh-id",
            Self::OverrideNotAllowed(_) => "override-not-allowed",
            Self::NotAuthorized { .. } => "not-authorized",
            Self::NotAnApprover(_) => "not-an-approver",
            Self::StaleRevision { .. } => "stale-revision",
            Self::NoSuchApproval(_) => "no-such-approval",
            Self::ApprovalClosed(_) => "approval-closed",
            Self::ApprovalSubjectChanged(_) => "approval-subject-changed",
            Self::DecisionNotAllowed => "decision-not-allowed",
            Self::ReasonRequired => "reason-required",
            Self::ReasonTooLong => "reason-too-long",
        }
    }
}

/// Decides a command. A denial changes nothing.
pub fn decide(run: &RunEnvelope, command: &RunCommand, context: &Context) -> Result<Vec<NewEvent>, Denial> {
    if let Some(expected) = context.expected_seq
        && expected != run.last_seq
    {
        return Err(Denial::StaleRevision { expected, actual: run.last_seq });
    }
    if command.reason().len() > REASON_BYTES_MAX {
        return Err(Denial::ReasonTooLong);
    }
    match command {
        RunCommand::SubRunEnded { end } if may_report(&context.actor) => Ok(reconcile(run, end)),
        RunCommand::SubRunEnded { .. } => Err(Denial::NotAuthorized { role: context.actor.role }),
        RunCommand::DecideApproval { approval_id, decision, reason, subject_digest } => {
            let subject_digest = subject_digest.as_deref();
            let answer = approval::Answer { approval_id: *approval_id, decision: *decision, reason, subject_digest };
            approval::decided(run, answer, context).map(|event| vec![event])
        }
        RunCommand::Pause { .. }
        | RunCommand::Resume { .. }
        | RunCommand::Cancel { .. }
        | RunCommand::Kill { .. }
        | RunCommand::ChooseBranch { .. }
        | RunCommand::RetryWithChanges { .. }
        | RunCommand::OperatorStep { .. } => control::decide(run, command, context),
    }
}
