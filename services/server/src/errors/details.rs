//! What each "no" of the node tells beside its code and its words: the field that is wrong, the thing that is meant, the meter that
//! is full.

use signalbox_domain::feedback::gold_set::GoldDenial;
use signalbox_domain::feedback::outcome::FeedbackDenial;
use signalbox_domain::feedback::rollout::RolloutDenial;
use signalbox_domain::governance::budgeting::BudgetDenial;
use signalbox_domain::governance::grant::GrantError;
use signalbox_domain::governance::granting::GrantDenial;
use signalbox_domain::governance::kill_switch::SwitchError;
use signalbox_domain::governance::switching::SwitchDenial;
use signalbox_domain::governance::throttling::ThrottleDenial;
use signalbox_domain::pipeline::cron::CronError;
use signalbox_domain::pipeline::schedule::timing::TimingError;
use signalbox_domain::pipeline::schedule::{ScheduleDenial, TriggerDenial};
use signalbox_domain::pipeline::{CustomizationDenial, FireDenial};
use signalbox_domain::registry::{EntryError, ExecutorDenial, LifecycleDenial, RegistryDenial};
use signalbox_domain::run::decide::Denial;
use signalbox_domain::run::submission::SubmissionError;
use signalbox_domain::webhook::WebhookDenial;

use super::{DETAIL_FIELD, DETAIL_METER, DETAIL_RETRY, DETAIL_TOOLS, Refusal};
use crate::api::ApiError;

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Self {
        let refusal = Self::new(error.kind(), error.code(), error.to_string());
        match error {
            ApiError::Submission(error) => refusal.with(DETAIL_FIELD, field_of(&error)),
            ApiError::NoSuchRun(id) => refusal.with("runId", id),
            ApiError::RunIdConflict(id) => refusal.with("runId", id.to_string()),
            ApiError::NoSuchApproval(id) => refusal.with("approvalId", id),
            ApiError::CommandIdConflict(id) => refusal.with("commandId", id),
            ApiError::ToolsNotConfigured(tools) => refusal.with(DETAIL_TOOLS, tools.join(", ").replace('`', "")),
            ApiError::Preflight(gaps) => {
                let count = gaps.len().to_string();
                let codes: std::collections::BTreeSet<&str> = gaps.iter().map(|gap| gap.code.code()).collect();
                let codes = codes.into_iter().collect::<Vec<_>>().join(", ");
                Self { gaps, ..refusal }.with("gaps", count).with("gapCodes", codes)
            }
            ApiError::ScopeMissing(scope) => refusal.with("scope", scope),
            ApiError::Overloaded { retry_after_ms } => {
                refusal.with(DETAIL_RETRY, retry_after_ms.div_ceil(1_000).to_string()).with(DETAIL_METER, "runs-active")
            }
            ApiError::CursorUnknown { last_seq, .. } => {
                refusal.with(DETAIL_FIELD, "after_seq").with("lastSeq", last_seq.to_string())
            }
            ApiError::Denied(denial) => of_denial(refusal, &denial),
            ApiError::Switch(denial) => switch_details(refusal, &denial),
            ApiError::Budget(denial) => budget_details(refusal, &denial),
            ApiError::Grant(denial) => grant_details(refusal, &denial),
            ApiError::Throttle(denial) => throttle_details(refusal, &denial),
            ApiError::Webhook(denial) => webhook_details(refusal, &denial),
            ApiError::Schedule(denial) => schedule_details(refusal, &denial),
            ApiError::Registry(denial) => registry_details(refusal, denial),
            ApiError::Executor(denial) => executor_details(refusal, denial),
            ApiError::Rollout(denial) => rollout_details(refusal, &denial),
            ApiError::Gold(denial) => gold_details(refusal, &denial),
            ApiError::Fire(denial) => fire_details(refusal, &denial),
            ApiError::Customization(denial) => customization_details(refusal, &denial),
            ApiError::Feedback(denial) => match denial {
                FeedbackDenial::BadScore => refusal.with(DETAIL_FIELD, "score_micros"),
                FeedbackDenial::NotFinished | FeedbackDenial::TooLate | FeedbackDenial::NotAnEvaluator(_) => refusal,
            },
            ApiError::Replay(_) => refusal.with(DETAIL_FIELD, "at_seq"),
            ApiError::Filter(error) => refusal.with(DETAIL_FIELD, error.field()),
            ApiError::JournalCorrupt { run_id, seq, .. } => {
                refusal.with("runId", run_id.to_string()).with("seq", seq.to_string())
            }
            ApiError::DeniedBefore { .. }
            | ApiError::AboveStanding(_)
            | ApiError::Draining
            | ApiError::OperatorsOnly(_)
            | ApiError::Contended
            | ApiError::AnswerPending
            | ApiError::Unsealable(_)
            | ApiError::Store(_)
            | ApiError::Internal(_) => refusal,
        }
    }
}

// The field that a denial is about, or the question it is about.
fn of_denial(refusal: Refusal, denial: &Denial) -> Refusal {
    match denial {
        Denial::NoSuchBranch(_) => refusal.with(DETAIL_FIELD, "choose_branch.branch_id"),
        Denial::NoSuchStep => refusal.with(DETAIL_FIELD, "step_id"),
        Denial::OverrideNotAllowed(_) => refusal.with(DETAIL_FIELD, "retry_with_changes.overrides_json"),
        Denial::DecisionNotAllowed => refusal.with(DETAIL_FIELD, "decision"),
        Denial::ReasonRequired | Denial::ReasonTooLong => refusal.with(DETAIL_FIELD, "reason"),
        Denial::StaleRevision { actual, .. } => refusal.with("lastSeq", actual.to_string()),
        Denial::NotAnApprover(id)
        | Denial::NoSuchApproval(id)
        | Denial::ApprovalClosed(id)
        | Denial::ApprovalSubjectChanged(id) => refusal.with("approvalId", id.to_string()),
        Denial::RunTerminal(_)
        | Denial::InvalidStatusForPause(_)
        | Denial::InvalidStatusForResume(_)
        | Denial::InvalidStatusForBranch(_)
        | Denial::InvalidStatusForRetry(_)
        | Denial::InvalidStatusForStep(_)
        | Denial::ForkWithoutFreshId
        | Denial::NotAuthorized { .. } => refusal,
    }
}

// What is at fault with a switch: a field of the request, or the switch itself.
fn switch_details(refusal: Refusal, denial: &SwitchDenial) -> Refusal {
    match denial {
        SwitchDenial::Senseless(error) => refusal.with(
            DETAIL_FIELD,
            match error {
                SwitchError::BadTarget | SwitchError::UnknownFamily(_) => "target_id",
                SwitchError::TwoTenants => "tenant_id",
                SwitchError::NoReason | SwitchError::TextTooLong => "reason",
                SwitchError::NoStatusCopy => "user_visible_status_copy",
                SwitchError::UnknownDegradationMode(_) => "safe_degradation_mode_id",
                SwitchError::ExpiresTooEarly => "expires_at_unix_ms",
            },
        ),
        SwitchDenial::UnknownTarget(..) => refusal.with(DETAIL_FIELD, "target_id"),
        SwitchDenial::ReachMissing => refusal.with(DETAIL_FIELD, "platform_wide"),
        SwitchDenial::NoSuchSwitch(id) => refusal.with("switchId", id.as_str()),
        SwitchDenial::IdTaken(id) | SwitchDenial::AlreadyDisarmed(id) | SwitchDenial::Expired(id) => {
            refusal.with("switchId", id.as_str())
        }
        SwitchDenial::NotAuthorized(_) | SwitchDenial::TooMany => refusal,
    }
}

fn budget_details(refusal: Refusal, denial: &BudgetDenial) -> Refusal {
    match denial {
        BudgetDenial::Senseless(_) | BudgetDenial::BadScopeKey(_) => refusal.with(DETAIL_FIELD, "budget_json"),
        BudgetDenial::BadReason => refusal.with(DETAIL_FIELD, "reason"),
        BudgetDenial::BadAmount => refusal.with(DETAIL_FIELD, "amount_micros"),
        BudgetDenial::NoSuchBudget(id) => refusal.with("budgetId", id.as_str()),
        BudgetDenial::Exists(id) | BudgetDenial::IdTaken(id) | BudgetDenial::CategoryFixed(id) => {
            refusal.with("budgetId", id.as_str())
        }
        BudgetDenial::StaleRevision { expected, actual } => {
            refusal.with("expectedRevision", expected.to_string()).with("revision", actual.to_string())
        }
        BudgetDenial::NotAuthorized(_) | BudgetDenial::TooMany => refusal,
    }
}

fn throttle_details(refusal: Refusal, denial: &ThrottleDenial) -> Refusal {
    match denial {
        ThrottleDenial::Senseless(_) | ThrottleDenial::UnknownTarget(..) => refusal.with(DETAIL_FIELD, "rule_json"),
        ThrottleDenial::TwoTenants => refusal.with(DETAIL_FIELD, "tenant_id"),
        ThrottleDenial::BadReason => refusal.with(DETAIL_FIELD, "reason"),
        ThrottleDenial::NoSuchThrottle(id) => refusal.with("bucketId", id.as_str()),
        ThrottleDenial::Exists(id) | ThrottleDenial::IdTaken(id) => refusal.with("bucketId", id.as_str()),
        ThrottleDenial::StaleRevision { expected, actual } => {
            refusal.with("expectedRevision", expected.to_string()).with("revision", actual.to_string())
        }
        ThrottleDenial::NotAuthorized(_) | ThrottleDenial::TooMany => refusal,
    }
}

fn grant_details(refusal: Refusal, denial: &GrantDenial) -> Refusal {
    match denial {
        GrantDenial::Senseless(error) => match error {
            GrantError::RationaleRequired => refusal.with(DETAIL_FIELD, "rationale"),
            GrantError::TtlTooLong { .. } => refusal.with(DETAIL_FIELD, "expires_at_unix_ms"),
            GrantError::AuditRequired => refusal.with(DETAIL_FIELD, "audit_event_id"),
            GrantError::Revoked | GrantError::ExpiredTooLong => refusal,
            GrantError::BadToolRange(_) => refusal.with(DETAIL_FIELD, "grant_json.toolRange"),
            GrantError::BadScopeKey => refusal.with(DETAIL_FIELD, "grant_json.scopeKey"),
            GrantError::BadBound { field, .. } => refusal.with(DETAIL_FIELD, format!("grant_json.constraints.{field}")),
            GrantError::DelegableTooWide(field) => refusal.with(DETAIL_FIELD, format!("grant_json.delegable.{field}")),
        },
        GrantDenial::BadScopeKey(_) => refusal.with(DETAIL_FIELD, "grant_json.scopeKey"),
        GrantDenial::UnknownTool(_) => refusal.with(DETAIL_FIELD, "grant_json.toolId"),
        GrantDenial::ExpiresTooEarly => refusal.with(DETAIL_FIELD, "expires_at_unix_ms"),
        GrantDenial::BadReason(field) => refusal.with(DETAIL_FIELD, *field),
        GrantDenial::NoSuchGrant(id) => refusal.with("grantId", id.as_str()),
        GrantDenial::IdTaken(id) => refusal.with("grantId", id.as_str()),
        GrantDenial::AlreadyRenewed { old, new } => {
            refusal.with("grantId", old.as_str()).with("renewedAsGrantId", new.as_str())
        }
        GrantDenial::StaleRevision { expected, actual } => {
            refusal.with("expectedRevision", expected.to_string()).with("revision", actual.to_string())
        }
        GrantDenial::NotAuthorized(_) | GrantDenial::TooMany => refusal,
    }
}

fn webhook_details(refusal: Refusal, denial: &WebhookDenial) -> Refusal {
    match denial {
        WebhookDenial::Url(_) => refusal.with(DETAIL_FIELD, "url"),
        WebhookDenial::NoEvents => refusal.with(DETAIL_FIELD, "event_types"),
        WebhookDenial::BadSecrets | WebhookDenial::Secret(_) => refusal.with(DETAIL_FIELD, "secret_ids"),
        WebhookDenial::BadReason => refusal.with(DETAIL_FIELD, "reason"),
        WebhookDenial::NoSuchWebhook(id) => refusal.with("webhookId", id.as_str()),
        WebhookDenial::Exists(id)
        | WebhookDenial::IdTaken(id)
        | WebhookDenial::NothingToReplay(id)
        | WebhookDenial::Disabled(id) => refusal.with("webhookId", id.as_str()),
        WebhookDenial::StaleRevision { expected, actual } => {
            refusal.with("expectedRevision", expected.to_string()).with("revision", actual.to_string())
        }
        WebhookDenial::NotAuthorized(_) | WebhookDenial::TooMany(_) => refusal,
    }
}

fn schedule_details(refusal: Refusal, denial: &ScheduleDenial) -> Refusal {
    match denial {
        ScheduleDenial::Timing(TimingError::Cron(CronError::UnknownZone(_))) => refusal.with(DETAIL_FIELD, "timezone"),
        ScheduleDenial::Timing(TimingError::BadInterval) => refusal.with(DETAIL_FIELD, "interval_seconds"),
        ScheduleDenial::Timing(TimingError::BadTimeOfDay) => refusal.with(DETAIL_FIELD, "weekly"),
        ScheduleDenial::Timing(TimingError::Cron(_)) => refusal.with(DETAIL_FIELD, "cron"),
        ScheduleDenial::NeverFires => refusal.with(DETAIL_FIELD, "timing"),
        ScheduleDenial::EndsBeforeStart => refusal.with(DETAIL_FIELD, "end_at_unix_ms"),
        ScheduleDenial::BadBound(field, _) => refusal.with(DETAIL_FIELD, *field),
        ScheduleDenial::BadReason => refusal.with(DETAIL_FIELD, "reason"),
        ScheduleDenial::BadBackfill(_) => refusal.with(DETAIL_FIELD, "from_unix_ms"),
        ScheduleDenial::Trigger(TriggerDenial::NoSuchPipeline(id, _)) => refusal.with("pipelineId", id.as_str()),
        ScheduleDenial::Trigger(TriggerDenial::BadInput(_)) => refusal.with(DETAIL_FIELD, "pipeline.input_json"),
        ScheduleDenial::Trigger(
            TriggerDenial::Submission(_) | TriggerDenial::HoldsSecret | TriggerDenial::TooLarge(_),
        ) => refusal.with(DETAIL_FIELD, "fires"),
        ScheduleDenial::NoSuchSchedule(id) => refusal.with("scheduleId", id.as_str()),
        ScheduleDenial::Exists(id) | ScheduleDenial::NoDeadLetter(id) => refusal.with("scheduleId", id.as_str()),
        ScheduleDenial::StaleRevision { expected, actual } => {
            refusal.with("expectedRevision", expected.to_string()).with("revision", actual.to_string())
        }
        ScheduleDenial::NotAuthorized(_) | ScheduleDenial::TooMany(_) => refusal,
    }
}

fn registry_details(refusal: Refusal, denial: RegistryDenial) -> Refusal {
    match denial {
        RegistryDenial::Entry(EntryError::Member(problem)) => refusal.with(DETAIL_FIELD, problem.path),
        RegistryDenial::Entry(EntryError::Json(_)) => refusal.with(DETAIL_FIELD, "entry_json"),
        RegistryDenial::Refused(errors) => {
            let faults = errors.into_iter().map(|error| (error.code.code(), error.path, error.message));
            Refusal { faults: faults.collect(), ..refusal }
        }
        RegistryDenial::BadReason => refusal.with(DETAIL_FIELD, "reason"),
        RegistryDenial::NoSuchAgent(id) => refusal.with("agentId", id.as_str()),
        RegistryDenial::Lifecycle(LifecycleDenial::NoSuchVersion { agent_id, .. })
        | RegistryDenial::FamilyFixed { agent_id, .. } => refusal.with("agentId", agent_id.as_str()),
        RegistryDenial::StaleRevision { expected, actual } => {
            refusal.with("expectedRevision", expected.to_string()).with("revision", actual.to_string())
        }
        RegistryDenial::NotAuthorized(_)
        | RegistryDenial::Lifecycle(_)
        | RegistryDenial::LaterChampion
        | RegistryDenial::TooMany(_) => refusal,
    }
}

fn executor_details(refusal: Refusal, denial: ExecutorDenial) -> Refusal {
    match denial {
        ExecutorDenial::Json(_) => refusal.with(DETAIL_FIELD, "executor_json"),
        ExecutorDenial::BadMember(member, _) => refusal.with(DETAIL_FIELD, format!("/{member}")),
        ExecutorDenial::AddressRefused(_) => refusal.with(DETAIL_FIELD, "/address"),
        ExecutorDenial::TlsUnknown(id) => refusal.with("tlsId", id.as_str()),
        ExecutorDenial::Faulty(faults) => {
            let faults = faults.into_iter().map(|fault| (fault.code.code(), fault.tool_id, fault.message));
            Refusal { faults: faults.collect(), ..refusal }
        }
        ExecutorDenial::ToolTaken(tool, _) => refusal.with("toolId", tool.as_str()),
        ExecutorDenial::Exists(id) | ExecutorDenial::NoSuchExecutor(id) | ExecutorDenial::AlreadyRetired(id) => {
            refusal.with("executorId", id.as_str())
        }
        ExecutorDenial::BadReason => refusal.with(DETAIL_FIELD, "reason"),
        ExecutorDenial::NotDescribed(_) | ExecutorDenial::NotAuthorized(_) | ExecutorDenial::TooMany => refusal,
    }
}

fn rollout_details(refusal: Refusal, denial: &RolloutDenial) -> Refusal {
    match denial {
        RolloutDenial::NoSuchRollout(id) => refusal.with("rolloutId", id.as_str()),
        RolloutDenial::IdTaken(id) | RolloutDenial::Exists(id) => refusal.with("rolloutId", id.as_str()),
        RolloutDenial::SameArms(_) => refusal.with(DETAIL_FIELD, "challenger_semver"),
        RolloutDenial::UnknownVersion { agent, semver } => {
            refusal.with(DETAIL_FIELD, "agent_id").with("agentId", agent.as_str()).with("agentSemver", semver.as_str())
        }
        RolloutDenial::WrongLifecycle { semver, stands, .. } => {
            refusal.with("agentSemver", semver.as_str()).with("lifecycle", stands.as_str())
        }
        RolloutDenial::BadFraction(_) => refusal.with(DETAIL_FIELD, "canary_fraction_micros"),
        RolloutDenial::BadReason => refusal.with(DETAIL_FIELD, "reason"),
        RolloutDenial::ReadinessRequired(verdict) => refusal.with("verdict", verdict.as_str()),
        RolloutDenial::WrongState(state) => refusal.with("state", state.as_str()),
        RolloutDenial::StaleRevision { expected, actual } => {
            refusal.with("expectedRevision", expected.to_string()).with("revision", actual.to_string())
        }
        RolloutDenial::NotAuthorized(_)
        | RolloutDenial::ChampionChanged { .. }
        | RolloutDenial::TooMany
        | RolloutDenial::NoPriorChampion
        | RolloutDenial::Frozen => refusal,
    }
}

fn fire_details(refusal: Refusal, denial: &FireDenial) -> Refusal {
    match denial {
        FireDenial::NoSuchPipeline(id) => refusal.with("pipelineId", id.as_str()),
        FireDenial::OtherVersion { pipeline_id, current, .. } => refusal
            .with(DETAIL_FIELD, "pipeline_semver")
            .with("pipelineId", pipeline_id.as_str())
            .with("pipelineSemver", current.as_str()),
        FireDenial::TierRequired { pipeline_id, tier, .. } => {
            refusal.with("pipelineId", pipeline_id.as_str()).with("tier", tier.as_str())
        }
        FireDenial::NotLive { pipeline_id, state } => {
            refusal.with("pipelineId", pipeline_id.as_str()).with("lifecycleState", *state)
        }
        FireDenial::ModeNotAllowed { pipeline_id, mode, .. } => {
            refusal.with("pipelineId", pipeline_id.as_str()).with("mode", *mode)
        }
        FireDenial::Input(error) => refusal.with(DETAIL_FIELD, format!("/{}", error.field)),
        FireDenial::NoRehearsal(run_id) => refusal.with("runId", run_id.to_string()),
        FireDenial::BadFireId => refusal.with(DETAIL_FIELD, "fire_id"),
    }
}

fn customization_details(refusal: Refusal, denial: &CustomizationDenial) -> Refusal {
    match denial {
        CustomizationDenial::NoSuchPipeline(id) => refusal.with("pipelineId", id.as_str()),
        CustomizationDenial::Senseless(_) => refusal.with(DETAIL_FIELD, "customization_json"),
        CustomizationDenial::BadReason => refusal.with(DETAIL_FIELD, "reason"),
        CustomizationDenial::StaleRevision { expected, actual } => {
            refusal.with("expectedRevision", expected.to_string()).with("revision", actual.to_string())
        }
        CustomizationDenial::Widens(_) | CustomizationDenial::NotAuthorized(_) => refusal,
    }
}

fn gold_details(refusal: Refusal, denial: &GoldDenial) -> Refusal {
    match denial {
        GoldDenial::Duplicate { entry, .. } => refusal.with("entryId", entry.to_string()),
        GoldDenial::TooBig { field, .. } => refusal.with(DETAIL_FIELD, *field),
        GoldDenial::NoRubric => refusal.with(DETAIL_FIELD, "rubric"),
        GoldDenial::NumberNotExact(_) => refusal.with(DETAIL_FIELD, "expected_output_json"),
        GoldDenial::SourceNotCompleted(status) => refusal.with("status", status.as_str()),
        GoldDenial::NotAuthorized(_) | GoldDenial::Full(_) => refusal,
    }
}

// The field of a submission that is at fault, as in its JSON (EXE-005).
fn field_of(error: &SubmissionError) -> String {
    match error {
        SubmissionError::Json(error) => {
            let text = error.to_string();
            let missing = text.split_once("missing field `").and_then(|(_, rest)| rest.split_once('`'));
            missing.map_or("submission_json", |(field, _)| field).to_owned()
        }
        SubmissionError::Plan(_) => "plan".to_owned(),
        SubmissionError::UnknownStepField { index, field } => format!("plan.steps[{index}].{field}"),
        SubmissionError::UnknownTool { .. } => "plan.steps".to_owned(),
        SubmissionError::UnknownAgent(_) => "rootAgentId".to_owned(),
        SubmissionError::UnknownAgentVersion { .. } | SubmissionError::AgentTakesNoPart(_) => {
            "agentVersions".to_owned()
        }
        SubmissionError::UnknownMode(_) => "mode".to_owned(),
        SubmissionError::Override(_) => "modeOverride".to_owned(),
        SubmissionError::BadInvocation { member, .. } => (*member).to_owned(),
        SubmissionError::UnknownSurface(_) => "surface".to_owned(),
        SubmissionError::SecretInId(_) => "plan".to_owned(),
        SubmissionError::BadHandoffs(_) => "handoffs".to_owned(),
        SubmissionError::BadBudget { index, .. } => format!("budgets[{index}]"),
    }
}
