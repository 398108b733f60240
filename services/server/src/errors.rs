//! The one table from signalbox codes to gRPC and HTTP statuses (EXE-018). No other file of an edge names a status code.
//!
//! An edge asks a refusal for what is [`Told`] to the client and writes that down in its own form. Every gRPC status carries
//! `ErrorInfo` (domain `signalbox`, reason = the code, metadata = the error's details), `RetryInfo`
//! where waiting helps, and the standard detail that fits its status. Faults of ours keep their text in the log.

mod details;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use signalbox_domain::invocation::Gap;
use signalbox_domain::redact::redact_text;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};
use uuid::Uuid;

use crate::api::{ApiError, ErrorKind};

/// The domain of every `ErrorInfo`.
pub const ERROR_DOMAIN: &str = "signalbox";
/// How long a client is told to wait if the error does not say.
pub const RETRY_AFTER_DEFAULT: Duration = Duration::from_secs(1);
/// Longest message, in characters: it may repeat what was sent, which may be long.
const MESSAGE_CHARS_MAX: usize = 1_000;
/// Longest wait a client is told.
const RETRY_AFTER_SECONDS_MAX: u64 = 86_400;

/// The detail that holds the name of a bad field, as in the message.
pub(crate) const DETAIL_FIELD: &str = "field";
/// The detail that holds how many seconds to wait.
pub(crate) const DETAIL_RETRY: &str = "retryAfterSeconds";
/// The detail that names what there is not enough of: a budget, a bucket, or a bound of the node.
pub(crate) const DETAIL_METER: &str = "meter";
/// The detail that lists tools without an executor.
const DETAIL_TOOLS: &str = "toolIds";

/// Codes whose statuses do not follow from their kind.
const BY_CODE: &[(&str, Code, u16)] = &[
    ("unauthenticated", Code::Unauthenticated, 401),
    ("run_id_conflict", Code::AlreadyExists, 409),
    ("command-id-conflict", Code::AlreadyExists, 409),
    ("switch-id-conflict", Code::AlreadyExists, 409),
    ("budget-id-conflict", Code::AlreadyExists, 409),
    ("budget-exists", Code::AlreadyExists, 409),
    ("grant-id-conflict", Code::AlreadyExists, 409),
    ("throttle-id-conflict", Code::AlreadyExists, 409),
    ("throttle-exists", Code::AlreadyExists, 409),
    // GRA-007, GRA-010.
    ("ttl-too-long", Code::InvalidArgument, 422),
    ("rationale-required", Code::InvalidArgument, 422),
    ("webhook-id-conflict", Code::AlreadyExists, 409),
    ("webhook-exists", Code::AlreadyExists, 409),
    ("schedule-exists", Code::AlreadyExists, 409),
    ("duplicate-agent-id", Code::AlreadyExists, 409),
    ("executor-exists", Code::AlreadyExists, 409),
    ("rollout-exists", Code::AlreadyExists, 409),
    ("rollout-id-conflict", Code::AlreadyExists, 409),
    ("gold-set-entry-exists", Code::AlreadyExists, 409),
    // KIL-007: whoever manages must say why.
    ("reason-required", Code::InvalidArgument, 422),
    ("json-too-large", Code::ResourceExhausted, 413),
    ("message-too-large", Code::ResourceExhausted, 413),
    ("answer-too-large", Code::ResourceExhausted, 413),
    ("no-such-method", Code::Unimplemented, 501),
    ("deadline-exceeded", Code::DeadlineExceeded, 504),
    ("budget-exceeded", Code::ResourceExhausted, 402),
    // RUN-028: the node is full, which is nothing the caller did too much of.
    ("overloaded", Code::ResourceExhausted, 503),
    // What only one edge can say, with the nearest that the other has.
    ("idempotency-key-reused", Code::InvalidArgument, 422),
    ("no-such-route", Code::Unimplemented, 404),
    ("method-not-allowed", Code::Unimplemented, 405),
    ("body-too-slow", Code::DeadlineExceeded, 408),
    ("address-too-long", Code::ResourceExhausted, 414),
    ("content-type-unsupported", Code::InvalidArgument, 415),
    ("headers-too-large", Code::ResourceExhausted, 431),
];

/// A "no" on its way to a client: the node's, or the edge's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    kind: ErrorKind,
    code: String,
    message: String,
    details: BTreeMap<&'static str, String>,
    /// What an invocation lacks; told one by one (INV-006).
    gaps: Vec<Gap>,
    /// What is wrong with a document: code, place, words; told one by one (REG-003).
    faults: Box<[(&'static str, String, String)]>,
}

/// Most gaps that one status names: it travels in a header. A preflight tells them all.
const GAPS_MAX: usize = 16;
/// How much of the words of each, in characters.
const GAP_CHARS_MAX: usize = 160;
/// How much of what each is about.
const GAP_SUBJECT_CHARS_MAX: usize = 80;

impl Refusal {
    /// A refusal without details. What it repeats of the request may hold a secret, and errors end up in logs.
    pub fn new(kind: ErrorKind, code: impl Into<String>, message: impl Into<String>) -> Self {
        let mut message = redact_text(&message.into()).into_owned();
        if let Some((end, _)) = message.char_indices().nth(MESSAGE_CHARS_MAX) {
            message.truncate(end);
            message.push('…');
        }
        Self { kind, code: code.into(), message, details: BTreeMap::new(), gaps: Vec::new(), faults: Box::default() }
    }
    /// The same with one more fact for machines.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl Into<String>) -> Self {
        self.details.insert(key, redact_text(&value.into()).into_owned());
        self
    }
    /// What kind of "no" it is.
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }
    /// Stable code.
    pub fn code(&self) -> &str {
        &self.code
    }
    /// In words.
    pub fn message(&self) -> &str {
        &self.message
    }
    /// The fact under a key.
    pub fn detail(&self, key: &str) -> Option<&str> {
        self.details.get(key).map(String::as_str)
    }
    /// When trying again may help, if waiting helps at all.
    pub fn retry_after(&self) -> Option<Duration> {
        retry_after(self)
    }
    /// What the client may hear of it. A fault of ours is logged here, under `request_id`, and keeps its text there.
    pub fn told(&self, request_id: &str) -> Told {
        let (grpc, http) = statuses_of(&self.code, self.kind);
        let internal = grpc == Code::Internal;
        let (message, details) = if internal {
            // What went wrong inside is nobody's business outside; the id leads from the client's report to the log.
            tracing::error!(code = self.code, %request_id, error = self.message, "request failed inside");
            let text = "something went wrong inside signalbox; its log has the details under request id";
            (format!("{text} {request_id}"), BTreeMap::new())
        } else {
            (self.message.clone(), self.details.clone())
        };
        let retry_after = self.retry_after();
        let request_id = request_id.to_owned();
        Told { code: self.code.clone(), message, details, retry_after, request_id, internal, grpc, http }
    }
}

/// What a client is told of a refusal, before an edge gives it a form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// Stable code.
    pub code: String,
    /// In words; redacted.
    pub message: String,
    /// Facts for machines, by camelCase name; redacted. `field` is the field at fault.
    pub details: BTreeMap<&'static str, String>,
    /// When trying again may help, if waiting helps at all.
    pub retry_after: Option<Duration>,
    /// The request, as its log lines name it.
    pub request_id: String,
    /// True if it is a fault of ours, of which only `code` and `request_id` are told.
    pub internal: bool,
    /// Its gRPC status.
    pub grpc: Code,
    /// Its HTTP status.
    pub http: u16,
}

/// The gRPC status of an error's code and kind.
pub fn code_of(code: &str, kind: ErrorKind) -> Code {
    statuses_of(code, kind).0
}

/// The HTTP status of an error's code and kind.
pub fn http_status_of(code: &str, kind: ErrorKind) -> u16 {
    statuses_of(code, kind).1
}

fn statuses_of(code: &str, kind: ErrorKind) -> (Code, u16) {
    if let Some((_, grpc, http)) = BY_CODE.iter().find(|(known, ..)| *known == code) {
        return (*grpc, *http);
    }
    match kind {
        ErrorKind::Invalid => (Code::InvalidArgument, 400),
        ErrorKind::NotFound => (Code::NotFound, 404),
        ErrorKind::Conflict => (Code::Aborted, 409),
        ErrorKind::PreconditionFailed => (Code::FailedPrecondition, 412),
        // Over HTTP it is the installation that cannot serve, not the caller who may not ask (EXE-003).
        ErrorKind::Unconfigured => (Code::FailedPrecondition, 503),
        ErrorKind::PermissionDenied => (Code::PermissionDenied, 403),
        ErrorKind::Overloaded => (Code::ResourceExhausted, 429),
        ErrorKind::Unavailable => (Code::Unavailable, 503),
        ErrorKind::Corrupt => (Code::DataLoss, 500),
        ErrorKind::Internal => (Code::Internal, 500),
    }
}

/// What a gRPC client is sent.
pub fn to_status(refusal: &Refusal) -> Status {
    let Told { code, message, details: facts, retry_after, request_id, internal, grpc, http: _ } =
        refusal.told(&Uuid::new_v4().to_string());
    let mut details = ErrorDetails::new();
    let metadata: HashMap<_, _> = facts.into_iter().map(|(key, fact)| (key.to_owned(), fact)).collect();
    details.set_error_info(&code, ERROR_DOMAIN, metadata);
    if internal {
        details.set_request_info(request_id, "");
        return Status::with_error_details(grpc, message, details);
    }
    if let Some(delay) = retry_after {
        details.set_retry_info(Some(delay));
    }
    let (kind, name) = subject(refusal);
    for (code, place, words) in refusal.faults.iter().take(GAPS_MAX) {
        let cut = |text: &str, most| redact_text(text).chars().take(most).collect::<String>();
        let (place, words) = (cut(place, GAP_SUBJECT_CHARS_MAX), cut(words, GAP_CHARS_MAX));
        details.add_bad_request_violation(place, format!("{code}: {words}"));
    }
    if let Some(field) = refusal.detail(DETAIL_FIELD) {
        details.add_bad_request_violation(field, &message);
    }
    if let Some(meter) = refusal.detail(DETAIL_METER) {
        details.add_quota_failure_violation(meter, &message);
    }
    if grpc == Code::FailedPrecondition && !refusal.gaps.is_empty() {
        for gap in refusal.gaps.iter().take(GAPS_MAX) {
            let words = |text: &str, most| redact_text(text).chars().take(most).collect::<String>();
            let (subject, message) = (words(&gap.subject, GAP_SUBJECT_CHARS_MAX), words(&gap.message, GAP_CHARS_MAX));
            details.add_precondition_failure_violation(gap.code.code(), subject, message);
        }
    } else if grpc == Code::FailedPrecondition {
        match refusal.detail(DETAIL_TOOLS) {
            Some(tools) => tools.split(", ").for_each(|tool| {
                details.add_precondition_failure_violation(&code, tool, "no executor is configured for it");
            }),
            None => {
                details.add_precondition_failure_violation(&code, name, &message);
            }
        }
    } else if matches!(grpc, Code::NotFound | Code::AlreadyExists) {
        details.set_resource_info(kind, name, "", &message);
    }
    Status::with_error_details(grpc, message, details)
}

/// A denial of a command that the node has recorded: its code is one of CTL-015, CTL-016 or of the approvals.
pub(crate) fn denied(code: &str, message: &str) -> Refusal {
    ApiError::DeniedBefore { code: code.to_owned(), message: message.to_owned() }.into()
}

fn retry_after(refusal: &Refusal) -> Option<Duration> {
    let told = refusal.detail(DETAIL_RETRY).and_then(|text| text.parse::<u64>().ok());
    match (told, refusal.kind) {
        (Some(seconds), _) => Some(Duration::from_secs(seconds.min(RETRY_AFTER_SECONDS_MAX))),
        (None, ErrorKind::Overloaded | ErrorKind::Unavailable) => Some(RETRY_AFTER_DEFAULT),
        (
            None,
            ErrorKind::Invalid
            | ErrorKind::NotFound
            | ErrorKind::Conflict
            | ErrorKind::PreconditionFailed
            | ErrorKind::PermissionDenied
            | ErrorKind::Unconfigured
            | ErrorKind::Corrupt
            | ErrorKind::Internal,
        ) => None,
    }
}

// The type and name of what a refusal is about, the most precise first.
fn subject(refusal: &Refusal) -> (&'static str, String) {
    const KINDS: [(&str, &str); 11] = [
        ("agentId", "signalbox.v1.AgentVersion"),
        ("executorId", "signalbox.v1.RegisteredExecutor"),
        ("callId", "signalbox.v1.Call"),
        ("approvalId", "signalbox.v1.Approval"),
        ("switchId", "signalbox.v1.KillSwitch"),
        ("budgetId", "signalbox.v1.Budget"),
        ("grantId", "signalbox.v1.Grant"),
        ("bucketId", "signalbox.v1.Throttle"),
        ("keyId", "signalbox.v1.ApiKey"),
        ("commandId", "signalbox.v1.Command"),
        ("runId", "signalbox.v1.Run"),
    ];
    KINDS
        .into_iter()
        .find_map(|(key, kind)| refusal.detail(key).map(|name| (kind, name.to_owned())))
        .unwrap_or(("", String::new()))
}

#[cfg(test)]
mod tests {
    use signalbox_domain::ids::RunId;
    use signalbox_domain::run::submission;

    use super::*;

    fn status(kind: ErrorKind, code: &str) -> Status {
        to_status(&Refusal::new(kind, code, "no").with("runId", "r-1"))
    }

    #[test]
    fn each_kind_has_its_status() {
        let table = [
            (ErrorKind::Invalid, Code::InvalidArgument),
            (ErrorKind::NotFound, Code::NotFound),
            (ErrorKind::Conflict, Code::Aborted),
            (ErrorKind::PreconditionFailed, Code::FailedPrecondition),
            (ErrorKind::PermissionDenied, Code::PermissionDenied),
            (ErrorKind::Unconfigured, Code::FailedPrecondition),
            (ErrorKind::Overloaded, Code::ResourceExhausted),
            (ErrorKind::Unavailable, Code::Unavailable),
            (ErrorKind::Corrupt, Code::DataLoss),
            (ErrorKind::Internal, Code::Internal),
        ];
        for (kind, code) in table {
            let status = status(kind, "some-code");
            assert_eq!(status.code(), code, "{kind:?}");
            let info = status.get_details_error_info().expect("every status carries ErrorInfo");
            assert_eq!((info.domain.as_str(), info.reason.as_str()), ("signalbox", "some-code"));
        }
    }

    #[test]
    fn codes_of_the_execute_ladder_have_the_statuses_of_the_requirement() {
        let table = [
            ("unauthenticated", ErrorKind::PermissionDenied, Code::Unauthenticated, 401),
            ("agent_tools_not_configured", ErrorKind::Unconfigured, Code::FailedPrecondition, 503),
            ("tool_scope_missing", ErrorKind::PermissionDenied, Code::PermissionDenied, 403),
            ("run_id_conflict", ErrorKind::Conflict, Code::AlreadyExists, 409),
            ("overloaded", ErrorKind::Overloaded, Code::ResourceExhausted, 503),
        ];
        for (code, kind, grpc, http) in table {
            assert_eq!((code_of(code, kind), http_status_of(code, kind)), (grpc, http), "{code}");
        }
    }

    #[test]
    fn the_two_columns_of_the_table_agree_with_the_requirement() {
        let kinds = [
            ErrorKind::Invalid,
            ErrorKind::NotFound,
            ErrorKind::Conflict,
            ErrorKind::PreconditionFailed,
            ErrorKind::PermissionDenied,
            ErrorKind::Overloaded,
            ErrorKind::Unavailable,
        ];
        let by_kind = kinds.into_iter().map(|kind| ("any", code_of("any", kind), http_status_of("any", kind)));
        for (code, grpc, http) in by_kind.chain(BY_CODE.iter().copied()).filter(|(code, ..)| *code != "overloaded") {
            let expected: &[Code] = match http {
                400 | 422 => &[Code::InvalidArgument],
                401 => &[Code::Unauthenticated],
                403 => &[Code::PermissionDenied],
                404 | 410 if code == "no-such-route" => &[Code::Unimplemented],
                404 | 410 => &[Code::NotFound],
                409 => &[Code::Aborted, Code::AlreadyExists],
                412 => &[Code::FailedPrecondition],
                402 | 413 | 429 => &[Code::ResourceExhausted],
                503 => &[Code::Unavailable],
                501 => &[Code::Unimplemented],
                504 => &[Code::DeadlineExceeded],
                405 => &[Code::Unimplemented],
                408 => &[Code::DeadlineExceeded],
                415 => &[Code::InvalidArgument],
                414 | 431 => &[Code::ResourceExhausted],
                other => panic!("{code}: {other} is not in the requirement"),
            };
            assert!(expected.contains(&grpc), "{code}: {http} with {grpc:?}");
        }
    }

    #[test]
    fn what_is_told_of_a_fault_of_ours_is_its_code_and_where_to_look() {
        let id = "request-9";
        let told = Refusal::new(ErrorKind::Internal, "internal", "secret table name").with("runId", "r-1").told(id);
        assert!(told.internal && told.details.is_empty() && told.retry_after.is_none());
        assert!(told.message.contains(id) && !told.message.contains("secret"));
        let told = Refusal::new(ErrorKind::NotFound, "no-such-run", "no").with("runId", "r-1").told(id);
        assert_eq!((told.internal, told.http, told.details["runId"].as_str()), (false, 404, "r-1"));
    }

    #[test]
    fn every_denial_of_a_control_has_a_status() {
        let table = [
            ("run-terminal", Code::FailedPrecondition),
            ("invalid-status-for-pause", Code::FailedPrecondition),
            ("no-such-branch", Code::InvalidArgument),
            ("fork-without-fresh-id", Code::FailedPrecondition),
            ("invalid-status-for-resume", Code::FailedPrecondition),
            ("invalid-status-for-branch", Code::FailedPrecondition),
            ("invalid-status-for-retry", Code::FailedPrecondition),
            ("invalid-status-for-step", Code::FailedPrecondition),
            ("no-such-step", Code::InvalidArgument),
            ("override-not-allowed", Code::InvalidArgument),
            ("not-authorized", Code::PermissionDenied),
            ("stale-revision", Code::Aborted),
        ];
        for (code, expected) in table {
            assert_eq!(to_status(&denied(code, "no")).code(), expected, "{code}");
        }
    }

    #[test]
    fn waiting_is_advised_exactly_where_it_helps() {
        for kind in [ErrorKind::Overloaded, ErrorKind::Unavailable] {
            let retry = status(kind, "x").get_details_retry_info().expect("RetryInfo");
            assert_eq!(retry.retry_delay, Some(RETRY_AFTER_DEFAULT));
        }
        for kind in [ErrorKind::Invalid, ErrorKind::NotFound, ErrorKind::PreconditionFailed, ErrorKind::Internal] {
            assert!(status(kind, "x").get_details_retry_info().is_none(), "{kind:?}");
        }
        let told = to_status(&Refusal::new(ErrorKind::Overloaded, "overloaded", "full").with(DETAIL_RETRY, "7"));
        assert_eq!(told.get_details_retry_info().and_then(|r| r.retry_delay), Some(Duration::from_secs(7)));
    }

    #[test]
    fn the_fitting_standard_detail_is_attached() {
        let bad = to_status(&Refusal::new(ErrorKind::Invalid, "x", "bad").with(DETAIL_FIELD, "run_id"));
        assert_eq!(
            bad.get_details_bad_request().map(|b| b.field_violations[0].field.clone()).as_deref(),
            Some("run_id")
        );
        let precondition = status(ErrorKind::PreconditionFailed, "run-terminal").get_details_precondition_failure();
        let violation = precondition.map(|p| p.violations[0].clone()).expect("PreconditionFailure");
        assert_eq!((violation.r#type.as_str(), violation.subject.as_str()), ("run-terminal", "r-1"));
        let resource = status(ErrorKind::NotFound, "no-such-run").get_details_resource_info().expect("ResourceInfo");
        assert_eq!((resource.resource_type.as_str(), resource.resource_name.as_str()), ("signalbox.v1.Run", "r-1"));
    }

    #[test]
    fn facts_of_the_nodes_errors_travel_as_metadata() {
        let run_id = RunId::new(Uuid::from_u128(7));
        let metadata = |error: ApiError| to_status(&error.into()).get_details_error_info().unwrap().metadata;
        assert_eq!(metadata(ApiError::RunIdConflict(run_id))["runId"], run_id.to_string());
        assert_eq!(metadata(ApiError::ScopeMissing("tool:web.fetch".to_owned()))["scope"], "tool:web.fetch");
        let tools = ApiError::ToolsNotConfigured(vec!["`a.b`".to_owned(), "`c.d`".to_owned()]);
        assert_eq!(metadata(tools)["toolIds"], "a.b, c.d");
        let retry = to_status(&ApiError::Overloaded { retry_after_ms: 1_200 }.into()).get_details_retry_info();
        assert_eq!(retry.unwrap().retry_delay, Some(Duration::from_secs(2)));
    }

    #[test]
    fn the_field_of_a_bad_submission_is_named() {
        let field = |json: &str| {
            let error = ApiError::Submission(submission::parse(json.as_bytes()).unwrap_err());
            to_status(&error.into()).get_details_bad_request().unwrap().field_violations[0].field.clone()
        };
        assert_eq!(field(r#"{"plan":[]}"#), "rootAgentId");
        assert_eq!(field(r#"{"rootAgentId":"ref.research"}"#), "plan");
        assert_eq!(field("nonsense"), "submission_json");
        let step = r#"{"rootAgentId":"a","plan":[{"stepId":"s","kind":"wait","seconds":1,"sudo":1}]}"#;
        assert_eq!(field(step), "plan.steps[0].sudo");
    }

    #[test]
    fn the_text_of_an_internal_fault_stays_inside() {
        let status = to_status(&Refusal::new(ErrorKind::Internal, "journal-corrupt", "secret table name"));
        assert!(!status.message().contains("secret table name"));
        assert!(status.get_details_request_info().is_some_and(|info| status.message().contains(&info.request_id)));
    }
}
