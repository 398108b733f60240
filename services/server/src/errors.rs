//! The one table from signalbox codes to gRPC statuses (EXE-018). No other file of the edge names a status code.
//!
//! Every status carries `ErrorInfo` (domain `signalbox`, reason = the code, metadata = the error's details), `RetryInfo`
//! where waiting helps, and the standard detail that fits its status. Faults of ours keep their text in the log.

use std::time::Duration;

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
    ("agent_tools_not_configured", Code::FailedPrecondition),
    ("tool_scope_missing", Code::PermissionDenied),
    ("overloaded", Code::ResourceExhausted),
    ("not-authorized", Code::PermissionDenied),
    ("no-such-run", Code::NotFound),
    ("no-such-approval", Code::NotFound),
    ("no-such-branch", Code::NotFound),
    ("no-such-step", Code::NotFound),
    ("no-such-event", Code::NotFound),
    ("override-not-allowed", Code::InvalidArgument),
    ("stale-revision", Code::Aborted),
    ("stale-epoch", Code::Aborted),
    ("watch-too-slow", Code::Aborted),
    ("json-too-large", Code::ResourceExhausted),
];

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
        ErrorKind::Internal => Code::Internal,
    }
}

/// What the client is sent.
pub fn to_status(error: &ApiError) -> Status {
    let code = code_of(error.code(), error.kind());
    if code == Code::Internal {
        return internal(error);
    }
    let message = error.to_string();
    let mut details = ErrorDetails::new();
    details.set_error_info(
        error.code(),
        ERROR_DOMAIN,
        error.details().iter().map(|(k, v)| (k.clone(), v.clone())).collect::<std::collections::HashMap<_, _>>(),
    );
    if let Some(delay) = retry_after(error) {
        details.set_retry_info(Some(delay));
    }
    let detail = |key: &str| error.details().get(key).cloned();
    let subject = subject(error);
    if code == Code::InvalidArgument {
        details.add_bad_request_violation(detail(DETAIL_FIELD).unwrap_or_default(), message.clone());
    } else if code == Code::FailedPrecondition {
        details.add_precondition_failure_violation(error.code(), subject.1, message.clone());
    } else if matches!(code, Code::NotFound | Code::AlreadyExists) {
        details.set_resource_info(subject.0, subject.1, "", message.clone());
    }
    Status::with_error_details(code, message, details)
}

/// A denial of a command, as an error: its code is one of CTL-015, CTL-016 or of the approvals.
pub(crate) fn denied(code: &str, message: &str) -> ApiError {
    ApiError::new(ErrorKind::PreconditionFailed, code, message)
}

// What went wrong inside is nobody's business outside; the id leads from the client's report to the log.
fn internal(error: &ApiError) -> Status {
    let request_id = Uuid::new_v4().to_string();
    tracing::error!(code = error.code(), %request_id, error = %error, "request failed inside");
    let mut details = ErrorDetails::new();
    details.set_error_info(error.code(), ERROR_DOMAIN, std::collections::HashMap::new());
    details.set_request_info(request_id.clone(), "");
    let message =
        format!("something went wrong inside signalbox; its log has the details under request id {request_id}");
    Status::with_error_details(Code::Internal, message, details)
}

fn retry_after(error: &ApiError) -> Option<Duration> {
    let told = error.details().get(DETAIL_RETRY).and_then(|text| text.parse::<u64>().ok());
    match (told, error.kind()) {
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
            | ErrorKind::Internal,
        ) => None,
    }
}

// The type and name of what an error is about, the most precise first.
fn subject(error: &ApiError) -> (&'static str, String) {
    const KINDS: [(&str, &str); 5] = [
        ("approvalId", "signalbox.v1.Approval"),
        ("branchId", "signalbox.v1.Branch"),
        ("stepId", "signalbox.v1.Step"),
        ("atSeq", "signalbox.v1.RunEvent"),
        ("runId", "signalbox.v1.Run"),
    ];
    KINDS
        .into_iter()
        .find_map(|(key, kind)| error.details().get(key).map(|name| (kind, name.clone())))
        .unwrap_or(("", String::new()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(kind: ErrorKind, code: &str) -> Status {
        to_status(&ApiError::new(kind, code, "no").with("runId", "r-1"))
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
            ("agent_tools_not_configured", ErrorKind::Unavailable, Code::FailedPrecondition),
            ("tool_scope_missing", ErrorKind::PermissionDenied, Code::PermissionDenied),
            ("run_id_conflict", ErrorKind::Conflict, Code::AlreadyExists),
            ("overloaded", ErrorKind::Unavailable, Code::ResourceExhausted),
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
            ("no-such-branch", Code::NotFound),
            ("fork-without-fresh-id", Code::FailedPrecondition),
            ("invalid-status-for-resume", Code::FailedPrecondition),
            ("invalid-status-for-branch", Code::FailedPrecondition),
            ("invalid-status-for-retry", Code::FailedPrecondition),
            ("invalid-status-for-step", Code::FailedPrecondition),
            ("no-such-step", Code::NotFound),
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
        let told = to_status(&ApiError::new(ErrorKind::Overloaded, "overloaded", "full").with(DETAIL_RETRY, "7"));
        assert_eq!(told.get_details_retry_info().and_then(|r| r.retry_delay), Some(Duration::from_secs(7)));
    }

    #[test]
    fn the_fitting_standard_detail_is_attached() {
        let bad = to_status(&ApiError::new(ErrorKind::Invalid, "x", "bad").with(DETAIL_FIELD, "run_id"));
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
    fn the_text_of_an_internal_fault_stays_inside() {
        let status = to_status(&ApiError::new(ErrorKind::Internal, "journal-corrupt", "secret table name"));
        assert!(!status.message().contains("secret table name"));
        assert!(status.get_details_request_info().is_some_and(|info| status.message().contains(&info.request_id)));
    }
}
