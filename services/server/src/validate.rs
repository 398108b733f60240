//! Reading requests: whatever is not exactly right is refused here, with the field named, before a node hears of it.

use serde_json::Value;
use signalbox_domain::ids::{PipelineId, RunId};
use signalbox_domain::json::{self, Limits};
use signalbox_domain::mode::Mode;
use signalbox_domain::run::decide::{REASON_BYTES_MAX, RunCommand};
use signalbox_domain::run::event::{ApprovalDecision, Overrides};
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::run::submission::{self, Submission};
use signalbox_proto::v1;
use std::str::FromStr;

use crate::api::{ApiError, ErrorKind};
use crate::errors::{DETAIL_FIELD, Refusal};

/// Page size if none is asked for.
pub const PAGE_SIZE_DEFAULT: u32 = 50;
/// Largest page.
pub const PAGE_SIZE_MAX: u32 = signalbox_ports::directory::PAGE_ROWS_MAX as u32;

/// A bad field, by code.
pub(crate) fn bad(code: &str, field: &str, message: impl Into<String>) -> Refusal {
    Refusal::new(ErrorKind::Invalid, code, message).with(DETAIL_FIELD, field)
}

/// A UUID or any other id that must be there.
pub(crate) fn id<T: FromStr<Err: std::fmt::Display>>(field: &str, text: &str) -> Result<T, Refusal> {
    if text.is_empty() {
        return Err(bad("field-missing", field, format!("`{field}` is missing")));
    }
    text.parse().map_err(|error| bad("id-invalid", field, format!("`{field}`: {error}")))
}

/// An id that may be left out.
pub(crate) fn optional_id<T: FromStr<Err: std::fmt::Display>>(field: &str, text: &str) -> Result<Option<T>, Refusal> {
    if text.is_empty() { Ok(None) } else { id(field, text).map(Some) }
}

/// A reason in words.
pub(crate) fn reason(text: String) -> Result<String, Refusal> {
    if text.len() > REASON_BYTES_MAX {
        return Err(bad("reason-too-long", "reason", format!("`reason` may have at most {REASON_BYTES_MAX} bytes")));
    }
    if text.contains('\0') {
        return Err(bad("reason-invalid", "reason", "`reason` may not contain the character NUL"));
    }
    Ok(text)
}

/// How many rows a page has.
pub(crate) fn page_size(asked: u32) -> Result<usize, Refusal> {
    match asked {
        0 => Ok(PAGE_SIZE_DEFAULT as usize),
        1..=PAGE_SIZE_MAX => Ok(asked as usize),
        _ => Err(bad("page-size-invalid", "page_size", format!("`page_size` may be at most {PAGE_SIZE_MAX}"))),
    }
}

/// Statuses by their wire strings, each once.
pub(crate) fn statuses(texts: &[String]) -> Result<Vec<RunStatus>, Refusal> {
    named("status", texts, &RunStatus::ALL, RunStatus::as_str)
}

/// Values of an enumeration by their wire strings, each once.
pub(crate) fn named<T: Copy + PartialEq>(
    field: &str,
    texts: &[String],
    all: &[T],
    name: impl Fn(T) -> &'static str,
) -> Result<Vec<T>, Refusal> {
    let mut values = Vec::new();
    for text in texts {
        let Some(value) = all.iter().copied().find(|value| name(*value) == text) else {
            let known: Vec<_> = all.iter().map(|value| name(*value)).collect();
            let shown: String = text.chars().take(64).collect();
            let code = format!("{}-unknown", field.replace('_', "-"));
            let message = format!("`{shown}` is none of the values of `{field}`: {}", known.join(", "));
            return Err(bad(&code, field, message));
        };
        if !values.contains(&value) {
            values.push(value);
        }
    }
    Ok(values)
}

/// A mode by its name.
pub(crate) fn mode(text: &str) -> Result<Mode, Refusal> {
    Mode::parse(text).ok_or_else(|| {
        let message = format!("`mode` must be one of {}", Mode::ALL.map(Mode::as_str).join(", "));
        bad("mode-unknown", "mode", message)
    })
}

/// A pipeline, or none.
pub(crate) fn pipeline(text: &str) -> Result<Option<PipelineId>, Refusal> {
    optional_id("pipeline_id", text)
}

/// A lower-case hex SHA-256, or none.
pub(crate) fn digest(field: &str, text: String) -> Result<Option<String>, Refusal> {
    if text.is_empty() {
        return Ok(None);
    }
    if text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
        return Ok(Some(text));
    }
    Err(bad("digest-invalid", field, format!("`{field}` must be 64 lower-case hexadecimal digits")))
}

/// The decision on a question.
pub(crate) fn decision(number: i32) -> Result<ApprovalDecision, Refusal> {
    match v1::ApprovalDecision::try_from(number) {
        Ok(v1::ApprovalDecision::Approve) => Ok(ApprovalDecision::Approve),
        Ok(v1::ApprovalDecision::Reject) => Ok(ApprovalDecision::Reject),
        Ok(v1::ApprovalDecision::Skip) => Ok(ApprovalDecision::Skip),
        Ok(v1::ApprovalDecision::Unspecified) | Err(_) => {
            Err(bad("decision-missing", "decision", "`decision` must be approve, reject or skip"))
        }
    }
}

/// A submission out of its JSON bytes. Grants are no part of it: only a broker inside this process may pre-approve any
/// (EXE-015).
pub(crate) fn submission(bytes: &[u8]) -> Result<Submission, Refusal> {
    submission::parse(bytes).map_err(|error| ApiError::from(error).into())
}

/// What a control request asks for.
pub(crate) enum Steering {
    /// Something of the run itself.
    Command(RunCommand),
    /// Another run, of this id.
    Fork { fresh: Option<RunId>, reason: String },
}

/// The control of a request.
pub(crate) fn steering(request: v1::ControlRunRequest) -> Result<Steering, Refusal> {
    use v1::control_run_request::Control;
    let reason = reason(request.reason)?;
    let Some(control) = request.control else {
        return Err(bad("control-missing", "control", "exactly one control must be given"));
    };
    Ok(Steering::Command(match control {
        // Without an id it is the node that denies it, by the code of CTL-009.
        Control::Fork(fork) => {
            return Ok(Steering::Fork { fresh: optional_id("fork.run_id", &fork.run_id)?, reason });
        }
        Control::Pause(v1::Pause {}) => RunCommand::Pause { reason },
        Control::Resume(v1::Resume {}) => RunCommand::Resume { reason },
        Control::Cancel(v1::Cancel {}) => RunCommand::Cancel { reason },
        Control::Kill(v1::Kill {}) => RunCommand::Kill { reason, blamed_id: None },
        Control::ChooseBranch(choose) => RunCommand::ChooseBranch {
            step_id: optional_id("choose_branch.step_id", &choose.step_id)?,
            branch_id: id("choose_branch.branch_id", &choose.branch_id)?,
            reason,
        },
        Control::RetryWithChanges(retry) => RunCommand::RetryWithChanges {
            step_id: id("retry_with_changes.step_id", &retry.step_id)?,
            overrides: overrides(&retry.overrides_json)?,
            reason,
        },
        Control::OperatorStep(step) => {
            RunCommand::OperatorStep { step_id: optional_id("operator_step.step_id", &step.step_id)?, reason }
        }
    }))
}

// A member that may not be changed has a code of its own (CTL-012), so unknown members are looked at before the types.
fn overrides(bytes: &[u8]) -> Result<Overrides, Refusal> {
    const FIELD: &str = "retry_with_changes.overrides_json";
    if bytes.is_empty() {
        return Ok(Overrides::default());
    }
    overrides_of(FIELD, json(FIELD, bytes)?)
}

/// Overrides out of JSON that was read strictly before.
pub(crate) fn overrides_of(field: &str, value: Value) -> Result<Overrides, Refusal> {
    let Some(members) = value.as_object() else {
        return Err(bad("overrides-invalid", field, "the overrides must be a JSON object"));
    };
    if let Some(other) =
        members.keys().find(|key| !matches!(key.as_str(), "params" | "modelBinding" | "mode" | "branch"))
    {
        let shown: String = other.chars().take(64).collect();
        let message = format!("`{shown}` may not be overridden; only params, modelBinding, mode and branch may");
        return Err(bad("override-not-allowed", field, message));
    }
    typed("overrides-invalid", field, value)
}

fn typed<T: serde::de::DeserializeOwned>(code: &str, field: &str, value: Value) -> Result<T, Refusal> {
    serde_json::from_value(value).map_err(|error| bad(code, field, error.to_string()))
}

// Strict: duplicate keys, numbers that a double cannot hold, depth and size are refused (KAPI-017).
fn json(field: &str, bytes: &[u8]) -> Result<Value, Refusal> {
    json::parse_strict(bytes, Limits::DEFAULT).map_err(|error| bad(error.code(), field, error.to_string()))
}
