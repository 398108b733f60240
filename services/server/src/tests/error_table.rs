//! Every error there is: each has its details, and each stands in the table of docs/grpc.md, which is made here.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use signalbox_domain::feedback::gold_set::GoldDenial;
use signalbox_domain::feedback::outcome::FeedbackDenial;
use signalbox_domain::feedback::readiness::ReadinessVerdict;
use signalbox_domain::feedback::rollout::{RolloutDenial, RolloutMode, RolloutState};
use signalbox_domain::governance::budgeting::BudgetDenial;
use signalbox_domain::governance::grant::GrantError;
use signalbox_domain::governance::granting::GrantDenial;
use signalbox_domain::governance::switching::SwitchDenial;
use signalbox_domain::governance::throttle::{BucketError, KeyKind};
use signalbox_domain::governance::throttling::ThrottleDenial;
use signalbox_domain::identity::Role;
use signalbox_domain::ids::{
    AgentId, ApprovalId, BranchId, BucketId, GoldSetEntryId, GoldSetId, GrantId, PipelineId, RolloutId, RunId,
    ScheduleId, ToolId, WebhookId,
};
use signalbox_domain::invocation::{Gap, GapCode};
use signalbox_domain::json::{Limits, parse_strict};
use signalbox_domain::mode::OverrideRejected;
use signalbox_domain::pipeline::cron::CronError;
use signalbox_domain::pipeline::schedule::timing::TimingError;
use signalbox_domain::pipeline::schedule::{ScheduleDenial, TriggerDenial};
use signalbox_domain::pipeline::{CustomizationDenial, FireDenial, InputError};
use signalbox_domain::quantity::Micros;
use signalbox_domain::registry::{
    AgentLifecycle, AgentRegistryCode, AgentRegistryValidationError, ExecutorDenial, RegistryDenial,
};
use signalbox_domain::run::decide::Denial;
use signalbox_domain::run::evolve::FoldError;
use signalbox_domain::run::replay::ReplayError;
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::run::submission::{self, SubmissionError};
use signalbox_domain::webhook::{WebhookDenial, WebhookUrlError};
use signalbox_ports::journal::StoreError;
use signalbox_ports::sealing::SealError;
use tonic::Code;
use tonic_types::StatusExt as _;
use uuid::Uuid;

use crate::api::{ApiError, ErrorKind};
use crate::errors::{Refusal, code_of, http_status_of, to_status};

fn run_id() -> RunId {
    RunId::new(Uuid::from_u128(1))
}

fn webhook() -> WebhookId {
    WebhookId::new("w").unwrap()
}

/// One of each. A new variant does not compile until it has its example here.
fn denials() -> Vec<Denial> {
    let (status, approval) = (RunStatus::Running, ApprovalId::new(Uuid::from_u128(2)));
    let first = Denial::RunTerminal(RunStatus::Killed);
    let mut all = vec![first];
    while let Some(last) = all.last() {
        all.push(match last {
            Denial::RunTerminal(_) => Denial::InvalidStatusForPause(status),
            Denial::InvalidStatusForPause(_) => Denial::InvalidStatusForResume(status),
            Denial::InvalidStatusForResume(_) => Denial::InvalidStatusForBranch(status),
            Denial::InvalidStatusForBranch(_) => Denial::InvalidStatusForRetry(status),
            Denial::InvalidStatusForRetry(_) => Denial::InvalidStatusForStep(status),
            Denial::InvalidStatusForStep(_) => Denial::NoSuchBranch(BranchId::new("left").unwrap()),
            Denial::NoSuchBranch(_) => Denial::NoSuchStep,
            Denial::NoSuchStep => Denial::ForkWithoutFreshId,
            Denial::ForkWithoutFreshId => Denial::OverrideNotAllowed("tenantId".to_owned()),
            Denial::OverrideNotAllowed(_) => Denial::NotAuthorized { role: Role::Customer },
            Denial::NotAuthorized { .. } => Denial::NotAnApprover(approval),
            Denial::NotAnApprover(_) => Denial::StaleRevision { expected: 1, actual: 2 },
            Denial::StaleRevision { .. } => Denial::NoSuchApproval(approval),
            Denial::NoSuchApproval(_) => Denial::ApprovalClosed(approval),
            Denial::ApprovalClosed(_) => Denial::ApprovalSubjectChanged(approval),
            Denial::ApprovalSubjectChanged(_) => Denial::DecisionNotAllowed,
            Denial::DecisionNotAllowed => Denial::ReasonRequired,
            Denial::ReasonRequired => Denial::ReasonTooLong,
            Denial::ReasonTooLong => break,
        });
    }
    all
}

/// One of each kind of error; of those that hold others, one of each of these.
fn errors() -> Vec<ApiError> {
    let json = |text: &str| parse_strict(text.as_bytes(), Limits { bytes_max: 64, depth_max: 4 }).unwrap_err();
    let mut all: Vec<ApiError> = denials().into_iter().map(ApiError::Denied).collect();
    all.extend(
        ["{", r#"{"a":1,"a":2}"#, "[[[[[[1]]]]]]", "9007199254740993"]
            .map(|text| ApiError::Submission(SubmissionError::Json(json(text)))),
    );
    all.push(ApiError::Submission(SubmissionError::Json(json(&" ".repeat(65)))));
    let plan = br#"{"rootAgentId":"ref.research","plan":[{"stepId":"s","kind":"wait","seconds":1,"sudo":1}]}"#;
    all.push(ApiError::Submission(submission::parse(plan).unwrap_err()));
    all.extend([
        ApiError::Submission(SubmissionError::UnknownMode("x".to_owned())),
        ApiError::Submission(SubmissionError::Override(OverrideRejected::CostRaiseRejected {
            wanted: Micros::units(501),
            allowed: Micros::units(500),
        })),
        ApiError::Submission(SubmissionError::Override(OverrideRejected::LatencyRaiseRejected {
            wanted: 2,
            allowed: 1,
        })),
        ApiError::Submission(SubmissionError::Override(OverrideRejected::ScoreLowerRejected {
            wanted: Micros::ZERO,
            allowed: Micros::units(1),
        })),
        ApiError::Submission(SubmissionError::BadInvocation { member: "tone", problem: "it is empty".to_owned() }),
        ApiError::Submission(SubmissionError::UnknownSurface("x".to_owned())),
        ApiError::Submission(SubmissionError::SecretInId("the step")),
        ApiError::Submission(SubmissionError::BadHandoffs("`depthCap` may be at most 16".to_owned())),
        ApiError::Submission(SubmissionError::BadBudget { index: 0, problem: "it is negative" }),
        ApiError::Switch(SwitchDenial::ReachMissing),
        ApiError::Switch(SwitchDenial::NoSuchSwitch("s".to_owned())),
        ApiError::Switch(SwitchDenial::TooMany),
        ApiError::Budget(BudgetDenial::BadReason),
        ApiError::Budget(BudgetDenial::NoSuchBudget("b".to_owned())),
        ApiError::Budget(BudgetDenial::StaleRevision { expected: 1, actual: 2 }),
        ApiError::Grant(GrantDenial::Senseless(GrantError::RationaleRequired)),
        ApiError::Grant(GrantDenial::Senseless(GrantError::AuditRequired)),
        ApiError::Grant(GrantDenial::Senseless(GrantError::BadToolRange("newest".to_owned()))),
        ApiError::Grant(GrantDenial::Senseless(GrantError::TtlTooLong { seconds_max: 1 })),
        ApiError::Grant(GrantDenial::Senseless(GrantError::BadBound { field: "maxCalls", problem: "is zero" })),
        ApiError::Grant(GrantDenial::Senseless(GrantError::DelegableTooWide("hosts"))),
        ApiError::Grant(GrantDenial::Senseless(GrantError::Revoked)),
        ApiError::Grant(GrantDenial::Senseless(GrantError::ExpiredTooLong)),
        ApiError::Grant(GrantDenial::BadScopeKey("user")),
        ApiError::Grant(GrantDenial::UnknownTool(ToolId::new("web.fetchh").unwrap())),
        ApiError::Grant(GrantDenial::ExpiresTooEarly),
        ApiError::Grant(GrantDenial::NoSuchGrant("g".to_owned())),
        ApiError::Grant(GrantDenial::IdTaken(GrantId::new("g").unwrap())),
        ApiError::Grant(GrantDenial::AlreadyRenewed {
            old: GrantId::new("g").unwrap(),
            new: GrantId::new("h").unwrap(),
        }),
        ApiError::Grant(GrantDenial::StaleRevision { expected: 1, actual: 2 }),
        ApiError::Grant(GrantDenial::TooMany),
        ApiError::Throttle(ThrottleDenial::Senseless(BucketError::TooSmall)),
        ApiError::Throttle(ThrottleDenial::Senseless(BucketError::NoRefill)),
        ApiError::Throttle(ThrottleDenial::Senseless(BucketError::TooLarge("capacity"))),
        ApiError::Throttle(ThrottleDenial::Senseless(BucketError::KeyTwice(KeyKind::Tool))),
        ApiError::Throttle(ThrottleDenial::UnknownTarget("tool", "web.fetchh".to_owned())),
        ApiError::Throttle(ThrottleDenial::TwoTenants),
        ApiError::Throttle(ThrottleDenial::NoSuchThrottle("t".to_owned())),
        ApiError::Throttle(ThrottleDenial::Exists(BucketId::new("t").unwrap())),
        ApiError::Throttle(ThrottleDenial::IdTaken(BucketId::new("t").unwrap())),
        ApiError::Throttle(ThrottleDenial::TooMany),
        ApiError::Schedule(ScheduleDenial::Timing(TimingError::Cron(CronError::TooLong))),
        ApiError::Schedule(ScheduleDenial::Timing(TimingError::Cron(CronError::UnknownZone("Local".to_owned())))),
        ApiError::Schedule(ScheduleDenial::Timing(TimingError::BadInterval)),
        ApiError::Schedule(ScheduleDenial::Timing(TimingError::BadTimeOfDay)),
        ApiError::Schedule(ScheduleDenial::NeverFires),
        ApiError::Schedule(ScheduleDenial::EndsBeforeStart),
        ApiError::Schedule(ScheduleDenial::BadBound("jitterSeconds", "at most 3600")),
        ApiError::Schedule(ScheduleDenial::BadReason),
        ApiError::Schedule(ScheduleDenial::BadBackfill("too long".to_owned())),
        ApiError::Schedule(ScheduleDenial::Trigger(TriggerDenial::BadInput(InputError {
            field: "sources".to_owned(),
            problem: "is missing".to_owned(),
        }))),
        ApiError::Schedule(ScheduleDenial::Trigger(TriggerDenial::NoSuchPipeline(
            PipelineId::new("no.such").unwrap(),
            "1.0.0".to_owned(),
        ))),
        ApiError::Schedule(ScheduleDenial::Trigger(TriggerDenial::HoldsSecret)),
        ApiError::Schedule(ScheduleDenial::Trigger(TriggerDenial::TooLarge(70_000))),
        ApiError::Schedule(ScheduleDenial::NotAuthorized("no".to_owned())),
        ApiError::Schedule(ScheduleDenial::NoSuchSchedule("s".to_owned())),
        ApiError::Schedule(ScheduleDenial::NoDeadLetter(ScheduleId::new("s").unwrap())),
        ApiError::Schedule(ScheduleDenial::Exists(ScheduleId::new("s").unwrap())),
        ApiError::Schedule(ScheduleDenial::StaleRevision { expected: 1, actual: 2 }),
        ApiError::Schedule(ScheduleDenial::TooMany(100)),
        ApiError::Webhook(WebhookDenial::Url(WebhookUrlError::TooLong(3_000))),
        ApiError::Webhook(WebhookDenial::Url(WebhookUrlError::Fragment)),
        ApiError::Webhook(WebhookDenial::Url(WebhookUrlError::Port(22))),
        ApiError::Webhook(WebhookDenial::NoEvents),
        ApiError::Webhook(WebhookDenial::BadSecrets),
        ApiError::Webhook(WebhookDenial::NoSuchWebhook("w".to_owned())),
        ApiError::Webhook(WebhookDenial::StaleRevision { expected: 1, actual: 2 }),
        ApiError::Webhook(WebhookDenial::Exists(webhook())),
        ApiError::Webhook(WebhookDenial::IdTaken(webhook())),
        ApiError::Webhook(WebhookDenial::TooMany(100)),
        ApiError::Webhook(WebhookDenial::NothingToReplay(webhook())),
        ApiError::Webhook(WebhookDenial::Disabled(webhook())),
        ApiError::Registry(RegistryDenial::BadReason),
        ApiError::Registry(RegistryDenial::NoSuchAgent("a".parse().unwrap())),
        ApiError::Registry(RegistryDenial::LaterChampion),
        ApiError::Registry(RegistryDenial::StaleRevision { expected: 1, actual: 2 }),
        ApiError::Registry(RegistryDenial::Refused(
            AgentRegistryCode::ALL
                .map(|code| AgentRegistryValidationError { code, path: "/x".to_owned(), message: "no".to_owned() })
                .into(),
        )),
        ApiError::Registry(RegistryDenial::Refused(vec![AgentRegistryValidationError {
            code: AgentRegistryCode::UnknownFamily,
            path: "/family".to_owned(),
            message: "no".to_owned(),
        }])),
        ApiError::Executor(ExecutorDenial::AddressRefused("no".to_owned())),
        ApiError::Executor(ExecutorDenial::NotAuthorized("customer")),
        ApiError::Executor(ExecutorDenial::NoSuchExecutor("e".parse().unwrap())),
        ApiError::Executor(ExecutorDenial::Exists("e".parse().unwrap())),
        ApiError::Executor(ExecutorDenial::NotDescribed("no".to_owned())),
        ApiError::Fire(FireDenial::NoSuchPipeline(PipelineId::new("p").unwrap())),
        ApiError::Fire(FireDenial::OtherVersion {
            pipeline_id: PipelineId::new("p").unwrap(),
            current: "1.0.0".to_owned(),
            asked: "2.0.0".to_owned(),
        }),
        ApiError::Fire(FireDenial::TierRequired {
            pipeline_id: PipelineId::new("p").unwrap(),
            tier: "creator".to_owned(),
            own: "customer",
        }),
        ApiError::Fire(FireDenial::NotLive { pipeline_id: PipelineId::new("p").unwrap(), state: "retired" }),
        ApiError::Fire(FireDenial::ModeNotAllowed {
            pipeline_id: PipelineId::new("p").unwrap(),
            mode: "fast",
            allowed: "deep".to_owned(),
        }),
        ApiError::Fire(FireDenial::Input(InputError { field: "sources".to_owned(), problem: "is missing".to_owned() })),
        ApiError::Fire(FireDenial::NoRehearsal(run_id())),
        ApiError::Fire(FireDenial::BadFireId),
        ApiError::Customization(CustomizationDenial::Widens("the cap 9 is above the pipeline's 5".to_owned())),
        ApiError::Customization(CustomizationDenial::Senseless("no such step".to_owned())),
        ApiError::Customization(CustomizationDenial::NoSuchPipeline(PipelineId::new("p").unwrap())),
        ApiError::Customization(CustomizationDenial::NotAuthorized("no".to_owned())),
        ApiError::Customization(CustomizationDenial::BadReason),
        ApiError::Customization(CustomizationDenial::StaleRevision { expected: 1, actual: 2 }),
        ApiError::Rollout(RolloutDenial::NoSuchRollout("r".to_owned())),
        ApiError::Rollout(RolloutDenial::SameArms("1.0.0".to_owned())),
        ApiError::Rollout(RolloutDenial::BadFraction(Micros(510_000))),
        ApiError::Rollout(RolloutDenial::Exists(RolloutId::new("r").unwrap())),
        ApiError::Rollout(RolloutDenial::IdTaken(RolloutId::new("r").unwrap())),
        ApiError::Rollout(RolloutDenial::StaleRevision { expected: 1, actual: 2 }),
        ApiError::Rollout(RolloutDenial::UnknownVersion {
            agent: AgentId::new("ref.research").unwrap(),
            semver: "9.9.9".to_owned(),
        }),
        ApiError::Rollout(RolloutDenial::WrongLifecycle {
            semver: "1.1.0".to_owned(),
            stands: AgentLifecycle::Draft,
            side: "challenger",
            mode: RolloutMode::Canary,
            needed: "`challenger`",
        }),
        ApiError::Rollout(RolloutDenial::ChampionChanged { expected: "1.0.0".to_owned() }),
        ApiError::Rollout(RolloutDenial::ReadinessRequired(ReadinessVerdict::Inconclusive)),
        ApiError::Rollout(RolloutDenial::NoPriorChampion),
        ApiError::Rollout(RolloutDenial::Frozen),
        ApiError::Rollout(RolloutDenial::TooMany),
        ApiError::Rollout(RolloutDenial::WrongState(RolloutState::Ended)),
        ApiError::Feedback(FeedbackDenial::NotFinished),
        ApiError::Feedback(FeedbackDenial::TooLate),
        ApiError::Feedback(FeedbackDenial::BadScore),
        ApiError::Gold(GoldDenial::SourceNotCompleted(RunStatus::Failed)),
        ApiError::Gold(GoldDenial::TooBig { field: "rubric", bytes: 2, max: 1 }),
        ApiError::Gold(GoldDenial::NoRubric),
        ApiError::Gold(GoldDenial::Full(GoldSetId::new("g").unwrap())),
        ApiError::Gold(GoldDenial::Duplicate {
            set: GoldSetId::new("g").unwrap(),
            entry: GoldSetEntryId::new(Uuid::nil()),
        }),
        ApiError::Unsealable(SealError::NoKey),
        ApiError::Unsealable(SealError::UnknownKey("k".to_owned())),
        ApiError::Replay(ReplayError::NoSuchPoint),
        ApiError::Replay(ReplayError::Fold(FoldError { seq: 1, problem: "gap" })),
        ApiError::Store(StoreError::Unavailable("away".to_owned())),
        ApiError::Store(StoreError::Unknown("cut".to_owned())),
        ApiError::Store(StoreError::Poison("large".to_owned())),
        ApiError::Store(StoreError::BlobDamaged { sha256: "0".repeat(64) }),
    ]);
    let mut last = ApiError::DeniedBefore { code: "run-terminal".to_owned(), message: "no".to_owned() };
    loop {
        let next = match &last {
            ApiError::DeniedBefore { .. } => ApiError::NoSuchRun("r".to_owned()),
            ApiError::NoSuchRun(_) => ApiError::NoSuchApproval("a".to_owned()),
            ApiError::NoSuchApproval(_) => ApiError::RunIdConflict(run_id()),
            ApiError::RunIdConflict(_) => ApiError::CommandIdConflict("c".to_owned()),
            ApiError::CommandIdConflict(_) => {
                ApiError::ToolsNotConfigured(vec!["`memory.read`".to_owned(), "`web.fetch`".to_owned()])
            }
            ApiError::ToolsNotConfigured(_) => ApiError::ScopeMissing("tool:memory.read".to_owned()),
            ApiError::ScopeMissing(_) => ApiError::Preflight(vec![Gap {
                code: GapCode::ConsentRequired,
                subject: "consent".to_owned(),
                message: "confirm one".to_owned(),
            }]),
            ApiError::Preflight(_) => ApiError::CursorUnknown { after_seq: 9, last_seq: 3 },
            ApiError::CursorUnknown { .. } => ApiError::OperatorsOnly("customer"),
            ApiError::OperatorsOnly(_) => ApiError::AboveStanding("the envelope of a run"),
            ApiError::AboveStanding(_) => ApiError::Contended,
            ApiError::Contended => ApiError::Overloaded { retry_after_ms: 2_500 },
            ApiError::Overloaded { .. } => ApiError::Draining,
            ApiError::Draining => ApiError::AnswerPending,
            ApiError::AnswerPending => ApiError::JournalCorrupt { run_id: run_id(), seq: 4, problem: "gap".to_owned() },
            ApiError::JournalCorrupt { .. } => ApiError::Internal("secret table".to_owned()),
            // The last; and those above, which hold others.
            ApiError::Internal(_)
            | ApiError::Submission(_)
            | ApiError::Denied(_)
            | ApiError::Unsealable(_)
            | ApiError::Replay(_)
            | ApiError::Filter(_)
            | ApiError::Switch(_)
            | ApiError::Budget(_)
            | ApiError::Grant(_)
            | ApiError::Throttle(_)
            | ApiError::Webhook(_)
            | ApiError::Schedule(_)
            | ApiError::Rollout(_)
            | ApiError::Feedback(_)
            | ApiError::Gold(_)
            | ApiError::Fire(_)
            | ApiError::Customization(_)
            | ApiError::Registry(_)
            | ApiError::Executor(_)
            | ApiError::Store(_) => break,
        };
        all.push(std::mem::replace(&mut last, next));
    }
    all.push(last);
    all
}

#[test]
fn every_error_carries_the_details_that_fit_it() {
    for error in errors() {
        let status = to_status(&Refusal::from(error.clone()));
        let details = status.get_error_details();
        let info = details.error_info().unwrap_or_else(|| panic!("{error:?} has no ErrorInfo"));
        assert_eq!((info.reason.as_str(), info.domain.as_str()), (error.code(), "signalbox"), "{error:?}");
        let waits = matches!(error.kind(), ErrorKind::Overloaded | ErrorKind::Unavailable);
        assert_eq!(details.retry_info().is_some(), waits, "RetryInfo of {error:?}");
        match status.code() {
            Code::InvalidArgument => {
                let bad = details.bad_request().unwrap_or_else(|| panic!("{error:?} has no BadRequest"));
                assert!(bad.field_violations.iter().all(|violation| !violation.field.is_empty()), "{error:?}");
            }
            Code::FailedPrecondition => {
                let failed =
                    details.precondition_failure().unwrap_or_else(|| panic!("{error:?} fails no precondition"));
                // A preflight says each of its gaps by a code of its own.
                let types: Vec<&str> = if let ApiError::Preflight(gaps) = &error {
                    gaps.iter().map(|gap| gap.code.code()).collect()
                } else {
                    vec![error.code()]
                };
                let fits = |violation: &tonic_types::PreconditionViolation| types.contains(&violation.r#type.as_str());
                assert!(failed.violations.iter().all(fits), "{error:?}");
            }
            Code::NotFound | Code::AlreadyExists => {
                assert!(details.resource_info().is_some(), "{error:?} has no ResourceInfo");
            }
            Code::ResourceExhausted if error.kind() == ErrorKind::Overloaded => {
                let quota = details.quota_failure().unwrap_or_else(|| panic!("{error:?} has no QuotaFailure"));
                assert!(quota.violations.iter().all(|violation| !violation.subject.is_empty()), "{error:?}");
            }
            Code::Internal => {
                assert!(details.request_info().is_some() && info.metadata.is_empty(), "{error:?}");
                assert!(!status.message().contains("secret"), "{error:?}");
            }
            Code::PermissionDenied | Code::Aborted | Code::Unavailable | Code::DataLoss | Code::ResourceExhausted => {}
            other @ (Code::Ok
            | Code::Cancelled
            | Code::Unknown
            | Code::DeadlineExceeded
            | Code::OutOfRange
            | Code::Unimplemented
            | Code::Unauthenticated) => panic!("{error:?} is {other:?}"),
        }
    }
    let tools = errors().into_iter().find(|error| matches!(error, ApiError::ToolsNotConfigured(_))).unwrap();
    let failed = to_status(&tools.into()).get_details_precondition_failure().unwrap();
    let subjects: Vec<_> = failed.violations.into_iter().map(|violation| violation.subject).collect();
    assert_eq!(subjects, ["memory.read", "web.fetch"]);
}

/// Codes that the edges say by themselves, as their sources name them.
fn codes_of_the_edges() -> BTreeMap<String, ErrorKind> {
    const KINDS: [(&str, ErrorKind); 10] = [
        ("Invalid", ErrorKind::Invalid),
        ("NotFound", ErrorKind::NotFound),
        ("Conflict", ErrorKind::Conflict),
        ("PreconditionFailed", ErrorKind::PreconditionFailed),
        ("PermissionDenied", ErrorKind::PermissionDenied),
        ("Unconfigured", ErrorKind::Unconfigured),
        ("Overloaded", ErrorKind::Overloaded),
        ("Unavailable", ErrorKind::Unavailable),
        ("Corrupt", ErrorKind::Corrupt),
        ("Internal", ErrorKind::Internal),
    ];
    let mut codes = BTreeMap::new();
    let mut folders = vec![signalbox_tests::root().join("services/server/src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() && !path.ends_with("tests") {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
            let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
            let quoted =
                |rest: &str| rest.trim_start().strip_prefix('"')?.split_once('"').map(|(code, _)| code.to_owned());
            for (name, kind) in KINDS {
                let mark = format!("ErrorKind::{name},");
                let found = words.split(&mark).skip(1).filter_map(quoted);
                codes.extend(found.map(|code| (code, kind)));
            }
            codes.extend(words.split("bad(").skip(1).filter_map(quoted).map(|code| (code, ErrorKind::Invalid)));
        }
    }
    codes
}

fn table() -> String {
    let mut rows: BTreeMap<String, (Code, u16)> = BTreeMap::new();
    let of_nodes = errors().into_iter().map(|error| (error.code().to_owned(), error.kind()));
    for (code, kind) in of_nodes.chain(codes_of_the_edges()) {
        rows.insert(code.clone(), (code_of(&code, kind), http_status_of(&code, kind)));
    }
    let mut by_status: BTreeMap<(u16, String), Vec<String>> = BTreeMap::new();
    for (code, (grpc, http)) in rows {
        by_status.entry((http, screaming(grpc))).or_default().push(format!("`{code}`"));
    }
    let mut table = "| HTTP | gRPC | codes |\n| --- | --- | --- |\n".to_owned();
    for ((http, grpc), codes) in by_status {
        writeln!(table, "| {http} | `{grpc}` | {} |", codes.join(", ")).unwrap();
    }
    table
}

/// The name of a status as gRPC writes it.
fn screaming(code: Code) -> String {
    let mut name = String::new();
    for (index, c) in format!("{code:?}").chars().enumerate() {
        if index > 0 && c.is_ascii_uppercase() {
            name.push('_');
        }
        name.push(c.to_ascii_uppercase());
    }
    name
}

#[test]
fn the_table_of_errors_in_the_documentation_is_the_one_in_the_code() {
    const BEGIN: &str = "<!-- errors: made by a test, UPDATE_ERRORS=1 -->\n";
    const END: &str = "<!-- end of errors -->";
    let path = signalbox_tests::root().join("docs/grpc.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("the page has the mark");
    let (_, after) = rest.split_once(END).expect("and its end");
    let expected = format!("{before}{BEGIN}{}{END}{after}", table());
    if std::env::var_os("UPDATE_ERRORS").is_some() {
        std::fs::write(&path, &expected).unwrap();
        return;
    }
    assert!(page == expected, "run this test once with UPDATE_ERRORS=1 and commit docs/grpc.md");
}
