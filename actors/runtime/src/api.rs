//! What the edges see: callers, answers and errors with stable codes.

use std::sync::Arc;

use serde_json::Value;
use signalbox_domain::dashboard::FilterError;
use signalbox_domain::feedback::gold_set::GoldDenial;
use signalbox_domain::feedback::outcome::FeedbackDenial;
use signalbox_domain::feedback::rollout::RolloutDenial;
use signalbox_domain::governance::budget::Budget;
use signalbox_domain::governance::budgeting::BudgetDenial;
use signalbox_domain::governance::grant::GrantError;
use signalbox_domain::governance::granting::GrantDenial;
use signalbox_domain::governance::switching::SwitchDenial;
use signalbox_domain::governance::throttling::ThrottleDenial;
pub use signalbox_domain::identity::Caller;
use signalbox_domain::ids::{RunId, StepId};
use signalbox_domain::invocation::Gap;
use signalbox_domain::mode::ModeBounds;
use signalbox_domain::pipeline::schedule::{ScheduleDenial, TriggerDenial};
use signalbox_domain::pipeline::{CustomizationDenial, FireDenial};
use signalbox_domain::quantity::Micros;
use signalbox_domain::registry::{ExecutorDenial, LifecycleDenial, RegistryDenial};
use signalbox_domain::run::chain::StoredEvent;
use signalbox_domain::run::decide::Denial;
use signalbox_domain::run::envelope::ApprovalRecord;
use signalbox_domain::run::progress::{CustomerSummary, ProgressKind};
use signalbox_domain::run::replay::ReplayError;
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::run::submission::SubmissionError;
use signalbox_domain::webhook::WebhookDenial;
use signalbox_ports::journal::StoreError;
use signalbox_ports::sealing::SealError;

/// A run that was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submitted {
    /// The run.
    pub run_id: RunId,
    /// True if it had been submitted before with the same content.
    pub replayed: bool,
    /// Where it stands.
    pub status: RunStatus,
    /// What whoever submitted it should know, such as that an agent is deprecated (REG-038).
    pub warnings: Vec<String>,
}

/// What a submission lacks, and what its run would be.
#[derive(Debug, Clone, PartialEq)]
pub struct Preflight {
    /// Everything it lacks; a run is made only of one that lacks nothing.
    pub gaps: Vec<Gap>,
    /// What does not stand against it, and should be known all the same.
    pub warnings: Vec<String>,
    /// The most its calls may cost, each made once, in cost units.
    pub estimate: Micros,
    /// The steps that a stand-in would answer.
    pub simulated_steps: Vec<StepId>,
    /// What holds of its mode.
    pub bounds: Option<ModeBounds>,
    /// The budgets of the run alone.
    pub budgets: Vec<Budget>,
}

/// A question to people, and what it is about.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// The run that asks.
    pub run_id: RunId,
    /// The question, and its answer if there is one.
    pub asked: ApprovalRecord,
    /// What is shown beside it, redacted.
    pub shown: Value,
    /// True if the caller is among those who may answer.
    pub may_decide: bool,
}

pub use signalbox_domain::identity::Whose;

/// What a watcher is sent.
#[derive(Debug, Clone)]
pub enum WatchItem {
    /// Something that happened; shared by all who watch.
    Event(Arc<StoredEvent>),
    /// The same for a customer, with the run in words after it.
    Told {
        /// What happened.
        event: Arc<StoredEvent>,
        /// How the run stands then, if that could be made out.
        summary: Option<Arc<CustomerSummary>>,
    },
    /// What a running tool says: not part of the journal, never repeated.
    Progress {
        /// The kind, which decides who is shown it.
        kind: ProgressKind,
        /// The step.
        step_id: StepId,
        /// In words.
        message: String,
        /// 0 to 100, if known.
        percent: Option<u8>,
    },
}

/// What kind of error it is; the edges map each to their own codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request makes no sense.
    Invalid,
    /// There is no such thing, or it belongs to somebody else.
    NotFound,
    /// It is there already, as something else.
    Conflict,
    /// Not now.
    PreconditionFailed,
    /// Not you.
    PermissionDenied,
    /// The installation lacks what the request needs.
    Unconfigured,
    /// Too much at once; waiting helps.
    Overloaded,
    /// Something this needs cannot be reached; waiting helps.
    Unavailable,
    /// What is stored cannot be what was written.
    Corrupt,
    /// A fault of ours.
    Internal,
}

/// A "no" or a failure, on its way to an edge.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    /// The submission is not acceptable.
    #[error(transparent)]
    Submission(#[from] SubmissionError),
    /// The run refuses the command.
    #[error(transparent)]
    Denied(#[from] Denial),
    /// The run refused a command earlier; said again, it says the same again.
    #[error("{message}")]
    DeniedBefore {
        /// Stable code.
        code: String,
        /// In words.
        message: String,
    },
    /// No run of this id in this tenant.
    #[error("there is no run {0}")]
    NoSuchRun(String),
    /// No question of this id in this tenant.
    #[error("there is no approval {0}")]
    NoSuchApproval(String),
    /// Another run has this id.
    #[error("the id {0} belongs to another run; choose another id")]
    RunIdConflict(RunId),
    /// The command id was used for another command.
    #[error("the command id {0} was used for another command")]
    CommandIdConflict(String),
    /// A tool without an implementation (EXE-003).
    #[error("no executor is configured for {}", .0.join(", "))]
    ToolsNotConfigured(Vec<String>),
    /// The caller's scopes do not cover a tool (EXE-006).
    #[error("the scope `{0}` is needed")]
    ScopeMissing(String),
    /// The invocation lacks something (INV-006). Nothing was written.
    #[error("the preflight failed: {}", in_words(.0))]
    Preflight(Vec<Gap>),
    /// The submission holds something secret that cannot be sealed here (OVL-013).
    #[error("the submission is not kept: {0}")]
    Unsealable(SealError),
    /// The past state cannot be shown.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// The journal does not reach as far as the cursor: it is another run's, or the store was set back.
    #[error("there is no event {after_seq} yet; the last one is {last_seq}")]
    CursorUnknown {
        /// What was asked for.
        after_seq: u64,
        /// What is there.
        last_seq: u64,
    },
    /// The switch is neither armed nor disarmed.
    #[error(transparent)]
    Switch(#[from] SwitchDenial),
    /// The budget is not changed.
    #[error(transparent)]
    Budget(#[from] BudgetDenial),
    /// The grant is not changed.
    #[error(transparent)]
    Grant(#[from] GrantDenial),
    /// The throttle is not changed.
    #[error(transparent)]
    Throttle(#[from] ThrottleDenial),
    /// The webhook is not put, removed, tried or replayed.
    #[error(transparent)]
    Webhook(#[from] WebhookDenial),
    /// The registry is not changed, or holds no such agent.
    #[error(transparent)]
    Registry(#[from] RegistryDenial),
    /// The executor is neither registered nor retired.
    #[error(transparent)]
    Executor(#[from] ExecutorDenial),
    /// The rollout is neither begun nor moved.
    #[error(transparent)]
    Rollout(#[from] RolloutDenial),
    /// What was said of a run is not kept.
    #[error(transparent)]
    Feedback(#[from] FeedbackDenial),
    /// Nothing is put into a gold set.
    #[error(transparent)]
    Gold(#[from] GoldDenial),
    /// The schedule is not put, changed or looked at.
    #[error(transparent)]
    Schedule(#[from] ScheduleDenial),
    /// The pipeline is not triggered.
    #[error(transparent)]
    Fire(#[from] FireDenial),
    /// The pipeline is not made tighter.
    #[error(transparent)]
    Customization(#[from] CustomizationDenial),
    /// Rules are for operators.
    #[error("a {0} may not see this; it is for operators")]
    OperatorsOnly(&'static str),
    /// Others changed the rules each time this was about to.
    #[error("the rules were changed by others again and again; try again")]
    Contended,
    /// The filter of a list cannot be applied.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// Something that this credential may not see.
    #[error("{0} is above the standing of this credential")]
    AboveStanding(&'static str),
    /// The node has as many runs as it can carry.
    #[error("the node is full; try again in {retry_after_ms} ms")]
    Overloaded {
        /// When to try again.
        retry_after_ms: u64,
    },
    /// The node is shutting down.
    #[error("the node is shutting down; try again elsewhere or later")]
    Draining,
    /// The command is durable and will be carried out, but the answer took too long.
    #[error("the command is accepted but not answered yet; ask again with the same command id")]
    AnswerPending,
    /// The run's journal cannot be what was written. Other runs are not concerned.
    #[error("the journal of run {run_id} is corrupt at event {seq}: {problem}")]
    JournalCorrupt {
        /// The run.
        run_id: RunId,
        /// The event.
        seq: u64,
        /// What is wrong.
        problem: String,
    },
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A fault of ours.
    #[error("internal error: {0}")]
    Internal(String),
}

impl ApiError {
    /// Stable for ever.
    pub fn code(&self) -> &str {
        match self {
            Self::Submission(error) => error.code(),
            Self::Denied(denial) => denial.code(),
            Self::DeniedBefore { code, .. } => code,
            Self::NoSuchRun(_) => "no-such-run",
            Self::NoSuchApproval(_) => "no-such-approval",
            Self::RunIdConflict(_) => "run_id_conflict",
            Self::CommandIdConflict(_) => "command-id-conflict",
            Self::ToolsNotConfigured(_) => "agent_tools_not_configured",
            Self::ScopeMissing(_) => "tool_scope_missing",
            Self::Preflight(_) => "preflight-failed",
            Self::Unsealable(error) => error.code(),
            Self::Replay(error) => error.code(),
            Self::CursorUnknown { .. } => "cursor-unknown",
            Self::Switch(denial) => denial.code(),
            Self::Budget(denial) => denial.code(),
            Self::Grant(denial) => denial.code(),
            Self::Throttle(denial) => denial.code(),
            Self::Webhook(denial) => denial.code(),
            Self::Registry(denial) => denial.code(),
            Self::Executor(denial) => denial.code(),
            Self::Rollout(denial) => denial.code(),
            Self::Feedback(denial) => denial.code(),
            Self::Gold(denial) => denial.code(),
            Self::Schedule(denial) => denial.code(),
            Self::Fire(denial) => denial.code(),
            Self::Customization(denial) => denial.code(),
            Self::OperatorsOnly(_) => "not-authorized",
            Self::Contended => "governance-contended",
            Self::Filter(error) => error.code(),
            Self::AboveStanding(_) => "not-authorized",
            Self::Overloaded { .. } => "overloaded",
            Self::Draining => "draining",
            Self::AnswerPending => "answer-pending",
            Self::JournalCorrupt { .. } => "journal-corrupt",
            Self::Store(error) => error.code(),
            Self::Internal(_) => "internal",
        }
    }

    /// What kind it is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Submission(_) | Self::Filter(_) => ErrorKind::Invalid,
            Self::Denied(Denial::NotAuthorized { .. } | Denial::NotAnApprover(_)) => ErrorKind::PermissionDenied,
            Self::Denied(Denial::NoSuchApproval(_)) => ErrorKind::NotFound,
            Self::Denied(Denial::StaleRevision { .. }) => ErrorKind::Conflict,
            Self::Denied(
                Denial::ReasonRequired
                | Denial::ReasonTooLong
                | Denial::OverrideNotAllowed(_)
                | Denial::NoSuchBranch(_)
                | Denial::NoSuchStep
                | Denial::DecisionNotAllowed,
            ) => ErrorKind::Invalid,
            Self::Denied(_) => ErrorKind::PreconditionFailed,
            Self::DeniedBefore { code, .. } if matches!(code.as_str(), "not-authorized" | "not-an-approver") => {
                ErrorKind::PermissionDenied
            }
            Self::DeniedBefore { code, .. } if code == "stale-revision" => ErrorKind::Conflict,
            Self::DeniedBefore { code, .. }
                if matches!(
                    code.as_str(),
                    "reason-required"
                        | "reason-too-long"
                        | "override-not-allowed"
                        | "no-such-branch"
                        | "no-such-step"
                        | "decision-not-allowed"
                ) =>
            {
                ErrorKind::Invalid
            }
            Self::DeniedBefore { .. } => ErrorKind::PreconditionFailed,
            Self::NoSuchRun(_) | Self::NoSuchApproval(_) => ErrorKind::NotFound,
            Self::RunIdConflict(_) | Self::CommandIdConflict(_) => ErrorKind::Conflict,
            Self::ToolsNotConfigured(_) | Self::Unsealable(_) => ErrorKind::Unconfigured,
            Self::Preflight(_) => ErrorKind::PreconditionFailed,
            Self::ScopeMissing(_) | Self::OperatorsOnly(_) | Self::AboveStanding(_) => ErrorKind::PermissionDenied,
            Self::Schedule(denial) => match denial {
                ScheduleDenial::Timing(_)
                | ScheduleDenial::NeverFires
                | ScheduleDenial::EndsBeforeStart
                | ScheduleDenial::BadBound(..)
                | ScheduleDenial::BadReason
                | ScheduleDenial::BadBackfill(_)
                | ScheduleDenial::Trigger(
                    TriggerDenial::BadInput(_)
                    | TriggerDenial::Submission(_)
                    | TriggerDenial::HoldsSecret
                    | TriggerDenial::TooLarge(_),
                ) => ErrorKind::Invalid,
                ScheduleDenial::NotAuthorized(_) => ErrorKind::PermissionDenied,
                ScheduleDenial::NoSuchSchedule(_)
                | ScheduleDenial::NoDeadLetter(_)
                | ScheduleDenial::Trigger(TriggerDenial::NoSuchPipeline(..)) => ErrorKind::NotFound,
                ScheduleDenial::StaleRevision { .. } | ScheduleDenial::Exists(_) => ErrorKind::Conflict,
                ScheduleDenial::TooMany(_) => ErrorKind::PreconditionFailed,
            },
            Self::Executor(denial) => match denial {
                ExecutorDenial::Json(_)
                | ExecutorDenial::BadMember(..)
                | ExecutorDenial::AddressRefused(_)
                | ExecutorDenial::BadReason => ErrorKind::Invalid,
                ExecutorDenial::NotAuthorized(_) => ErrorKind::PermissionDenied,
                ExecutorDenial::NoSuchExecutor(_) => ErrorKind::NotFound,
                ExecutorDenial::Exists(_) => ErrorKind::Conflict,
                ExecutorDenial::TlsUnknown(_)
                | ExecutorDenial::NotDescribed(_)
                | ExecutorDenial::Faulty(_)
                | ExecutorDenial::ToolTaken(..)
                | ExecutorDenial::AlreadyRetired(_)
                | ExecutorDenial::TooMany => ErrorKind::PreconditionFailed,
            },
            Self::Registry(denial) => match denial {
                RegistryDenial::Entry(_) | RegistryDenial::Refused(_) | RegistryDenial::BadReason => ErrorKind::Invalid,
                RegistryDenial::NotAuthorized(_) => ErrorKind::PermissionDenied,
                RegistryDenial::NoSuchAgent(_) | RegistryDenial::Lifecycle(LifecycleDenial::NoSuchVersion { .. }) => {
                    ErrorKind::NotFound
                }
                RegistryDenial::StaleRevision { .. } => ErrorKind::Conflict,
                RegistryDenial::Lifecycle(_)
                | RegistryDenial::FamilyFixed { .. }
                | RegistryDenial::LaterChampion
                | RegistryDenial::TooMany(_) => ErrorKind::PreconditionFailed,
            },
            Self::Budget(denial) => match denial {
                BudgetDenial::Senseless(_)
                | BudgetDenial::BadScopeKey(_)
                | BudgetDenial::BadReason
                | BudgetDenial::BadAmount => ErrorKind::Invalid,
                BudgetDenial::NotAuthorized(_) => ErrorKind::PermissionDenied,
                BudgetDenial::NoSuchBudget(_) => ErrorKind::NotFound,
                BudgetDenial::StaleRevision { .. } | BudgetDenial::Exists(_) | BudgetDenial::IdTaken(_) => {
                    ErrorKind::Conflict
                }
                BudgetDenial::CategoryFixed(_) | BudgetDenial::TooMany => ErrorKind::PreconditionFailed,
            },
            Self::Throttle(denial) => match denial {
                ThrottleDenial::Senseless(_)
                | ThrottleDenial::UnknownTarget(..)
                | ThrottleDenial::TwoTenants
                | ThrottleDenial::BadReason => ErrorKind::Invalid,
                ThrottleDenial::NotAuthorized(_) => ErrorKind::PermissionDenied,
                ThrottleDenial::NoSuchThrottle(_) => ErrorKind::NotFound,
                ThrottleDenial::StaleRevision { .. } | ThrottleDenial::Exists(_) | ThrottleDenial::IdTaken(_) => {
                    ErrorKind::Conflict
                }
                ThrottleDenial::TooMany => ErrorKind::PreconditionFailed,
            },
            Self::Grant(denial) => match denial {
                GrantDenial::Senseless(GrantError::Revoked | GrantError::ExpiredTooLong)
                | GrantDenial::AlreadyRenewed { .. }
                | GrantDenial::TooMany => ErrorKind::PreconditionFailed,
                GrantDenial::Senseless(_)
                | GrantDenial::BadScopeKey(_)
                | GrantDenial::UnknownTool(_)
                | GrantDenial::ExpiresTooEarly
                | GrantDenial::BadReason(_) => ErrorKind::Invalid,
                GrantDenial::NotAuthorized(_) => ErrorKind::PermissionDenied,
                GrantDenial::NoSuchGrant(_) => ErrorKind::NotFound,
                GrantDenial::IdTaken(_) | GrantDenial::StaleRevision { .. } => ErrorKind::Conflict,
            },
            Self::Webhook(denial) => match denial {
                WebhookDenial::Url(_)
                | WebhookDenial::NoEvents
                | WebhookDenial::BadSecrets
                | WebhookDenial::Secret(_)
                | WebhookDenial::BadReason => ErrorKind::Invalid,
                WebhookDenial::NotAuthorized(_) => ErrorKind::PermissionDenied,
                WebhookDenial::NoSuchWebhook(_) => ErrorKind::NotFound,
                WebhookDenial::StaleRevision { .. } | WebhookDenial::Exists(_) | WebhookDenial::IdTaken(_) => {
                    ErrorKind::Conflict
                }
                WebhookDenial::TooMany(_) | WebhookDenial::NothingToReplay(_) | WebhookDenial::Disabled(_) => {
                    ErrorKind::PreconditionFailed
                }
            },
            Self::Switch(denial) => match denial {
                SwitchDenial::Senseless(_) | SwitchDenial::ReachMissing => ErrorKind::Invalid,
                SwitchDenial::NotAuthorized(_) => ErrorKind::PermissionDenied,
                SwitchDenial::UnknownTarget(..) => ErrorKind::Invalid,
                SwitchDenial::NoSuchSwitch(_) => ErrorKind::NotFound,
                SwitchDenial::IdTaken(_) => ErrorKind::Conflict,
                SwitchDenial::AlreadyDisarmed(_) | SwitchDenial::Expired(_) | SwitchDenial::TooMany => {
                    ErrorKind::PreconditionFailed
                }
            },
            Self::Rollout(denial) => match denial {
                RolloutDenial::NotAuthorized(_) => ErrorKind::PermissionDenied,
                RolloutDenial::NoSuchRollout(_) => ErrorKind::NotFound,
                RolloutDenial::IdTaken(_) | RolloutDenial::Exists(_) | RolloutDenial::StaleRevision { .. } => {
                    ErrorKind::Conflict
                }
                RolloutDenial::SameArms(_)
                | RolloutDenial::UnknownVersion { .. }
                | RolloutDenial::BadFraction(_)
                | RolloutDenial::BadReason => ErrorKind::Invalid,
                RolloutDenial::WrongLifecycle { .. }
                | RolloutDenial::ChampionChanged { .. }
                | RolloutDenial::TooMany
                | RolloutDenial::ReadinessRequired(_)
                | RolloutDenial::NoPriorChampion
                | RolloutDenial::Frozen
                | RolloutDenial::WrongState(_) => ErrorKind::PreconditionFailed,
            },
            Self::Feedback(denial) => match denial {
                FeedbackDenial::NotFinished | FeedbackDenial::TooLate => ErrorKind::PreconditionFailed,
                FeedbackDenial::BadScore => ErrorKind::Invalid,
                FeedbackDenial::NotAnEvaluator(_) => ErrorKind::PermissionDenied,
            },
            Self::Fire(denial) => match denial {
                FireDenial::NoSuchPipeline(_) => ErrorKind::NotFound,
                FireDenial::TierRequired { .. } => ErrorKind::PermissionDenied,
                FireDenial::Input(_) | FireDenial::BadFireId => ErrorKind::Invalid,
                FireDenial::OtherVersion { .. }
                | FireDenial::NotLive { .. }
                | FireDenial::ModeNotAllowed { .. }
                | FireDenial::NoRehearsal(_) => ErrorKind::PreconditionFailed,
            },
            Self::Customization(denial) => match denial {
                CustomizationDenial::Widens(_) => ErrorKind::PreconditionFailed,
                CustomizationDenial::Senseless(_) | CustomizationDenial::BadReason => ErrorKind::Invalid,
                CustomizationDenial::NoSuchPipeline(_) => ErrorKind::NotFound,
                CustomizationDenial::NotAuthorized(_) => ErrorKind::PermissionDenied,
                CustomizationDenial::StaleRevision { .. } => ErrorKind::Conflict,
            },
            Self::Gold(denial) => match denial {
                GoldDenial::NotAuthorized(_) => ErrorKind::PermissionDenied,
                GoldDenial::Duplicate { .. } => ErrorKind::Conflict,
                GoldDenial::TooBig { .. } | GoldDenial::NoRubric | GoldDenial::NumberNotExact(_) => ErrorKind::Invalid,
                GoldDenial::SourceNotCompleted(_) | GoldDenial::Full(_) => ErrorKind::PreconditionFailed,
            },
            Self::Replay(ReplayError::NoSuchPoint) | Self::CursorUnknown { .. } => ErrorKind::Invalid,
            Self::Overloaded { .. } => ErrorKind::Overloaded,
            Self::Draining | Self::AnswerPending | Self::Contended => ErrorKind::Unavailable,
            Self::JournalCorrupt { .. } => ErrorKind::Corrupt,
            Self::Store(StoreError::Unavailable(_) | StoreError::Unknown(_)) => ErrorKind::Unavailable,
            Self::Replay(ReplayError::Fold(_)) | Self::Store(_) | Self::Internal(_) => ErrorKind::Internal,
        }
    }
}

/// Most gaps that a message names, and how much of each, in characters: messages travel in headers.
const GAPS_NAMED_MAX: usize = 3;
const GAP_CHARS_MAX: usize = 200;

fn in_words(gaps: &[Gap]) -> String {
    let named = gaps.iter().take(GAPS_NAMED_MAX).map(|gap| gap.message.chars().take(GAP_CHARS_MAX).collect());
    let mut words: Vec<String> = named.collect();
    if gaps.len() > GAPS_NAMED_MAX {
        words.push(format!("and {} more", gaps.len() - GAPS_NAMED_MAX));
    }
    words.join("; ")
}

/// A failure of the store while a run was read, by the name its callers know the run by.
pub(crate) fn reading(run_id: RunId, error: StoreError) -> ApiError {
    match error {
        StoreError::Corrupt { seq, problem, .. } => ApiError::JournalCorrupt { run_id, seq, problem },
        other @ (StoreError::Unavailable(_)
        | StoreError::Unknown(_)
        | StoreError::Poison(_)
        | StoreError::BlobDamaged { .. }) => ApiError::Store(other),
    }
}
