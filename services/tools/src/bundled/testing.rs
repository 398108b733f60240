//! Calls for the tests of the bundled tools.

use std::time::Duration;

use serde_json::Value;
use signalbox_domain::governance::grant::Constraints;
use signalbox_domain::ids::{CallId, RunId, TenantId};
use signalbox_domain::quantity::BudgetCategory;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::tool::{Answer, Failure, Measured, ProgressSink, Tool, ToolCall, ToolOutcome};

/// A call with the ceiling of the catalog and no bounds.
pub(crate) fn call(tool: &dyn Tool, args: Value) -> ToolCall {
    let descriptor = tool.descriptor();
    ToolCall {
        call_id: CallId::new(Uuid::from_u128(1)),
        attempt: 1,
        tenant_id: TenantId::new("acme").unwrap(),
        run_id: RunId::new(Uuid::from_u128(2)),
        step_id: "step".parse().unwrap(),
        tool_id: descriptor.tool_id.parse().unwrap(),
        args,
        ceiling: descriptor.ceiling,
        deadline: Instant::now() + Duration::from_secs(60),
        constraints: Constraints::default(),
        cancelled: CancellationToken::new(),
    }
}

/// Runs a call.
pub(crate) async fn run(tool: &dyn Tool, call: ToolCall) -> ToolOutcome {
    tool.run(call, ProgressSink::silent()).await
}

/// The answer of a call that must succeed.
pub(crate) fn answer(outcome: ToolOutcome) -> Answer {
    if let ToolOutcome::Ok(answer) = outcome { answer } else { panic!("not ok: {outcome:?}") }
}

/// The failure of a call that must fail.
pub(crate) fn failure(outcome: ToolOutcome) -> Failure {
    if let ToolOutcome::Error(failure) = outcome { failure } else { panic!("no error: {outcome:?}") }
}

/// Measured usage of a price and further counts.
pub(crate) fn usage<const N: usize>(cost_units: f64, more: [(BudgetCategory, f64); N]) -> Measured {
    let mut usage = Measured::from([(BudgetCategory::CostUnits, cost_units)]);
    usage.extend(more);
    usage
}
