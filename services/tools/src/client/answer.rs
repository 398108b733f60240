//! What an executor said, read as a call's end.

use signalbox_domain::quantity::{BudgetCategory, Usage};
use signalbox_domain::run::step::CallEnding;
use signalbox_proto::v1::ToolResult;
use signalbox_proto::v1::tool_result::Outcome;

use crate::wire::{self, WireError};

/// Longest message of a failure, in characters; the rest is cut.
const MESSAGE_CHARS_MAX: usize = 2_000;

/// The end of a call with what it measured.
pub(super) type Ended = (CallEnding, Option<Vec<(BudgetCategory, f64)>>);

/// Reads a result; the error says what in it breaks the contract.
pub(super) fn read(result: ToolResult) -> Result<Ended, WireError> {
    let outcome = Outcome::try_from(result.outcome).unwrap_or(Outcome::Unspecified);
    let measured = result.measured.as_ref().map(wire::measured_in).transpose()?;
    match outcome {
        Outcome::Ok | Outcome::Partial => {
            let ending = CallEnding::Answered {
                partial: outcome == Outcome::Partial,
                output: wire::payload_in(&result.output_json)?,
                evidence: result.evidence.map(wire::evidence_in).transpose()?,
                effects: wire::effects_in(result.effects)?,
                artifacts: wire::artifacts_in(result.artifacts)?,
            };
            Ok((ending, measured))
        }
        Outcome::Error => {
            let message = result.error_message.chars().take(MESSAGE_CHARS_MAX).collect();
            Ok((CallEnding::Failed { code: wire::code_in(result.error_code)?, message }, measured))
        }
        Outcome::NotStarted => {
            let message = result.error_message.chars().take(MESSAGE_CHARS_MAX).collect();
            Ok((CallEnding::NotStarted { code: wire::code_in(result.error_code)?, message }, None))
        }
        Outcome::Cancelled => Ok((CallEnding::Cancelled, measured)),
        Outcome::Unspecified => Err(WireError(format!("{} is not an outcome", result.outcome))),
    }
}

/// The end of a call whose executor broke the contract. What it used is not known, so its reservation is charged.
pub(super) fn protocol_error(what: &str) -> Ended {
    let message = format!("the executor does not keep the contract: {what}");
    (CallEnding::Failed { code: "tool-protocol-error".to_owned(), message }, None)
}

/// True if a report goes beyond the ceiling, or is no amount at all.
pub(super) fn overshoots(measured: &[(BudgetCategory, f64)], ceiling: &Usage) -> bool {
    measured.iter().any(|(category, units)| {
        // Half a millionth of slack, so that a decimal that was rounded on its way is not an overshoot.
        let within = units.is_finite() && *units >= 0.0 && units * 1e6 <= ceiling.get(*category).0 as f64 + 0.5;
        !within
    })
}
