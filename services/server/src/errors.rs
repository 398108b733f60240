//! The one table from signalbox codes to gRPC statuses (EXE-018). No other file of the edge names a status code.
//!
//! Every status carries `ErrorInfo` (domain `signalbox`, reason = the code, metadata = the error's details), `RetryInfo`
//! where waiting helps, and the standard detail that fits its status. Faults of ours keep their text in the log.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use signalbox_domain::redact::redact_text;
use signalbox_domain::run::submission::SubmissionError;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};
use uuid::Uuid;

use crate::api::{ApiError, ErrorKind};

/// The domain of every `ErrorInfo`.
pub const ERROR_DOMAIN: &str = "signalbox";
/// How long a client is told to wait if the error does not say.
pub const RETRY_AFTER_DEFAULT: Duration = Duration::from_secs(1);
/// Longest wait a client is told.
const RETRY_AFTER_SECONDS_MAX: u64 = 86_400;

/// The detail that holds the name of a bad field, as in the message.
pub(crate) const DETAIL_FIELD: &str = "field";
/// The detail that holds how many seconds to wait.
pub(crate) const DETAIL_RETRY: &str = "retryAfterSeconds";

/// Codes whose status does not follow from their kind.
const BY_CODE: &[(&str, Code)] = &[
    ("unauthenticated", Code::Unauthenticated),
    ("run_id_conflict", Code::AlreadyExists),
    ("command-id-conflict", Code::AlreadyExists),
    ("json-too-large", Code::ResourceExhausted),
];

/// A "no" on its way to a client: the node's, or the edge's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    kind: ErrorKind,
    code: String,
    message: String,
    details: BTreeMap<&'static str, String>,
}

impl Refusal {
    /// A refusal without details. What it repeats of the request may hold a secret, and errors end up in logs.
    pub fn new(kind: ErrorKind, code: impl Into<String>, message: impl Into<String>) -> Self {
        let message = redact_text(&message.into()).into_owned();
        Self { kind, code: code.into(), message, details: BTreeMap::new() }
    }
    /// The same with one more fact for machines.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl Into<String>) -> Self {
        self.details.insert(key, redact_text(&value.into()).into_owned());
        self
    }
    /// Stable code.
    pub fn code(&self) -> &str {
        &self.code
    }
    /// The fact under a key.
    pub fn detail(&self, key: &str) -> Option<&str> {
        self.details.get(key).map(String::as_str)
    }
}

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Self {
        let refusal = Self::new(error.kind(), error.code(), error.to_string());
        match error {
            ApiError::Submission(error) => refusal.with(DETAIL_FIELD, field_of(&error)),
            ApiError::NoSuchRun(id) => refusal.with("runId", id),
            ApiError::RunIdConflict(id) => refusal.with("runId", id.to_string()),
            ApiError::NoSuchApproval(id) => refusal.with("approvalId", id),
            ApiError::CommandIdConflict(id) => refusal.with("commandId", id),
            ApiError::ToolsNotConfigured(tools) => refusal.with("toolIds", tools.join(", ").replace('`', "")),
            ApiError::ScopeMissing(scope) => refusal.with("scope", scope),
            ApiError::Overloaded { retry_after_ms } => {
                refusal.with(DETAIL_RETRY, retry_after_ms.div_ceil(1_000).to_string())
            }
            ApiError::Replay(_) => refusal.with(DETAIL_FIELD, "at_seq"),
            ApiError::JournalCorrupt { run_id, seq, .. } => {
                refusal.with("runId", run_id.to_string()).with("seq", seq.to_string())
            }
            ApiError::Denied(_)
            | ApiError::DeniedBefore { .. }
            | ApiError::Draining
            | ApiError::AnswerPending
            | ApiError::Unsealable(_)
            | ApiError::Store(_)
            | ApiError::Internal(_) => refusal,
        }
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
        SubmissionError::UnknownMode(_) | SubmissionError::ModeNotAvailable(_) => "mode".to_owned(),
        SubmissionError::SecretInId(_) => "plan".to_owned(),
        SubmissionError::BadBudget { index, .. } => format!("budgets[{index}]"),
    }
}

/// The status of an error's code and kind.
pub fn code_of(code: &str, kind: ErrorKind) -> Code {
    if let Some((_, status)) = BY_CODE.iter().find(|(known, _)| *known == code) {
        return *status;
    }
    match kind {
        ErrorKind::Invalid => Code::InvalidArgument,
        ErrorKind::NotFound => Code::NotFound,
        ErrorKind::Conflict => Code::Aborted,
        ErrorKind::PreconditionFailed | ErrorKind::Unconfigured => Code::FailedPrecondition,
        ErrorKind::PermissionDenied => Code::PermissionDenied,
        ErrorKind::Overloaded => Code::ResourceExhausted,
        ErrorKind::Unavailable => Code::Unavailable,
        ErrorKind::Corrupt => Code::DataLoss,
        ErrorKind::Internal => Code::Internal,
    }
}

/// What the client is sent.
pub fn to_status(refusal: &Refusal) -> Status {
    let code = code_of(&refusal.code, refusal.kind);
    if code == Code::Internal {
        return internal(refusal);
    }
    let message = refusal.message.clone();
    let mut details = ErrorDetails::new();
    let metadata: HashMap<_, _> = refusal.details.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect();
    details.set_error_info(&refusal.code, ERROR_DOMAIN, metadata);
    if let Some(delay) = retry_after(refusal) {
        details.set_retry_info(Some(delay));
    }
    let (kind, name) = subject(refusal);
    if code == Code::InvalidArgument {
        details.add_bad_request_violation(refusal.detail(DETAIL_FIELD).unwrap_or_default(), &message);
    } else if code == Code::FailedPrecondition {
        details.add_precondition_failure_violation(&refusal.code, name, &message);
    } else if matches!(code, Code::NotFound | Code::AlreadyExists) {
        details.set_resource_info(kind, name, "", &message);
    }
    Status::with_error_details(code, message, details)
}

/// A denial of a command that the node has recorded: its code is one of CTL-015, CTL-016 or of the approvals.
pub(crate) fn denied(code: &str, message: &str) -> Refusal {
    ApiError::DeniedBefore { code: code.to_owned(), message: message.to_owned() }.into()
}

// What went wrong inside is nobody's business outside; the id leads from the client's report to the log.
fn internal(refusal: &Refusal) -> Status {
    let request_id = Uuid::new_v4().to_string();
    tracing::error!(code = refusal.code, %request_id, error = refusal.message, "request failed inside");
    let mut details = ErrorDetails::new();
    details.set_error_info(&refusal.code, ERROR_DOMAIN, HashMap::new());
    details.set_request_info(&request_id, "");
    let message =
        format!("something went wrong inside signalbox; its log has the details under request id {request_id}");
    Status::with_error_details(Code::Internal, message, details)
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
    const KINDS: [(&str, &str); 3] =
        [("approvalId", "signalbox.v1.Approval"), ("commandId", "signalbox.v1.Command"), ("runId", "signalbox.v1.Run")];
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
            ("unauthenticated", ErrorKind::PermissionDenied, Code::Unauthenticated),
            ("agent_tools_not_configured", ErrorKind::Unconfigured, Code::FailedPrecondition),
            ("tool_scope_missing", ErrorKind::PermissionDenied, Code::PermissionDenied),
            ("run_id_conflict", ErrorKind::Conflict, Code::AlreadyExists),
            ("overloaded", ErrorKind::Overloaded, Code::ResourceExhausted),
        ];
        for (code, kind, expected) in table {
            assert_eq!(code_of(code, kind), expected, "{code}");
        }
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
