//! What all bundled tools do alike: describe themselves from the catalog, read arguments, count, and stop at the ceiling.

use std::io;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use signalbox_domain::catalog;
use signalbox_domain::ids::ToolId;
use signalbox_domain::quantity::{BudgetCategory, Usage};

use crate::tool::{Descriptor, Failure, Measured, ToolCall, ToolOutcome};

/// The version of the bundled tools.
const SEMVER: &str = "1.0.0";

/// The description of a tool as the catalog has it, so that the two cannot drift apart.
pub(crate) fn descriptor(tool_id: &str, has_side_effects: bool) -> Descriptor {
    let entry = ToolId::new(tool_id).ok().and_then(|id| catalog::entry(&id));
    Descriptor {
        tool_id: tool_id.to_owned(),
        semver: entry.map_or(SEMVER, |entry| entry.semver.as_str()).to_owned(),
        input_schema: entry.map_or(json!({}), |entry| entry.input_schema.clone()),
        output_schema: entry.map_or(json!({}), |entry| entry.output_schema.clone()),
        ceiling: entry.map_or_else(Usage::none, |entry| entry.ceiling.clone()),
        has_side_effects,
        recovery: entry.map_or_else(Default::default, |entry| entry.recovery),
    }
}

/// The arguments in the shape a tool wants.
pub(crate) fn args<T: DeserializeOwned>(args: &Value) -> Result<T, Failure> {
    T::deserialize(args).map_err(|error| refusal("args-invalid", format!("the arguments do not fit: {error}")))
}

/// A failure before anything was used.
pub(crate) fn refusal(code: &str, message: impl Into<String>) -> Failure {
    Failure { code: code.to_owned(), message: message.into(), measured: Some(Measured::new()) }
}

/// A failure of the disk. The system's own words may hold machine paths, so only the kind is passed on.
pub(crate) fn disk_failure(what: &str, error: &io::Error) -> Failure {
    tracing::warn!(%error, what, "a bundled tool could not use its folder");
    let message = format!("{what}: {}", error.kind());
    Failure { code: "tool-storage-unavailable".to_owned(), message, measured: Some(Measured::new()) }
}

/// The base price of a call (LED-009), to which counts are added.
pub(crate) fn base_usage(tool: &ToolId) -> Measured {
    let price = catalog::base_price(tool).0 as f64 / 1e6;
    Measured::from([(BudgetCategory::CostUnits, price)])
}

/// How much of a category the call may still use, in whole units.
pub(crate) fn ceiling_units(call: &ToolCall, category: BudgetCategory) -> u64 {
    u64::try_from(call.ceiling.get(category).0 / 1_000_000).unwrap_or(0)
}

/// Refuses a call whose ceiling does not hold its price: a tool stops at the ceiling, and this is before it begins.
pub(crate) fn check_price(call: &ToolCall) -> Result<(), Failure> {
    if call.ceiling.get(BudgetCategory::CostUnits) < catalog::base_price(&call.tool_id) {
        return Err(refusal("ceiling-too-low", "the base price of this tool is above the ceiling of the call"));
    }
    Ok(())
}

/// Runs blocking work aside. A panic in it is a failure like any other.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        tracing::error!(%error, "a bundled tool panicked");
        Err(Failure {
            code: "tool-panicked".to_owned(),
            message: "the tool ended by a bug of its own".to_owned(),
            measured: None,
        })
    })
}

/// An outcome from a result.
pub(crate) fn outcome(result: Result<ToolOutcome, Failure>) -> ToolOutcome {
    result.unwrap_or_else(ToolOutcome::Error)
}
