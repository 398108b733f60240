//! How runs stand to their mode, for operators (MOD-009).

use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use signalbox_domain::mode::{ComplianceBreach, Mode, SeriesCompliance};
use signalbox_domain::quantity::Micros;

use super::call::{Answered, Call, json};
use crate::listing::whose;
use crate::validate;

/// How the last hundred runs that an agent led in a mode, and that are over, stand to that mode.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ModeComplianceView {
    /// The mode.
    mode: Mode,
    /// How many runs were held against it; at most a hundred, of the agent's last thousand.
    runs: usize,
    /// What the dearest of them cost.
    cost_units: Micros,
    /// What the mode allows one run.
    max_cost_units: Micros,
    /// The 95th percentile of their latencies by nearest rank; absent if there are no runs. The time that people took is not
    /// counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    p95_latency_ms: Option<u64>,
    /// What the mode allows.
    p95_latency_budget_ms: u64,
    /// What they did not keep.
    breaches: Vec<ComplianceBreach>,
}

/// `GET /api/admin/agentic-operations/mode-compliance`
pub(super) fn mode_compliance(call: Call) -> Answered {
    Box::pin(async move {
        let caller = call.caller()?;
        let whose = whose(call.query.text("tenantId"), call.query.flag("allTenants")?.unwrap_or(false))?;
        let agent_id = validate::id("agentId", call.query.text("agentId"))?;
        let mode = validate::mode(call.query.text("mode"))?;
        let SeriesCompliance {
            mode,
            runs,
            cost_units,
            max_cost_units,
            p95_latency_ms,
            p95_latency_budget_ms,
            breaches,
        } = call.runs.api.mode_compliance(&caller, whose, agent_id, mode).await?;
        let view = ModeComplianceView {
            mode,
            runs,
            cost_units,
            max_cost_units,
            p95_latency_ms,
            p95_latency_budget_ms,
            breaches,
        };
        json(StatusCode::OK, &view)
    })
}
