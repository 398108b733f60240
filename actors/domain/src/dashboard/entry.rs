//! One row (DSH-001).

use crate::dashboard::{
    CostBand, DashboardCursor, LatencyBand, RunBucket, bucket_for_status, cost_band_for, latency_band_for,
};
use crate::ids::{AgentId, PipelineId, RunId, RunKey, TenantId};
use crate::quantity::Micros;
use crate::registry::family_of;
use crate::run::append::RunProjection;
use crate::run::status::RunStatus;
use crate::time::UnixMicros;

/// A run in a list, as it stands at the instant it was read.
#[derive(Debug, Clone, PartialEq)]
pub struct DashboardEntry {
    /// The internal key.
    pub run_key: RunKey,
    /// The public id.
    pub run_id: RunId,
    /// The tenant.
    pub tenant_id: TenantId,
    /// The lead agent.
    pub root_agent_id: AgentId,
    /// The pipeline.
    pub pipeline_id: Option<PipelineId>,
    /// When the run was accepted, by the store's clock. It counts as started then: whoever submitted it waits from there on.
    pub started_at: UnixMicros,
    /// When it ended, if it has.
    pub ended_at: Option<UnixMicros>,
    /// The last event.
    pub last_seq: u64,
    /// Its instant.
    pub last_at: UnixMicros,
    /// The instant at which the row was read; decides what depends on time.
    pub read_at: UnixMicros,
    /// What the last append said.
    pub projection: RunProjection,
}

impl DashboardEntry {
    /// Where the run stands at the instant of reading: a run that only waits for a tool is waiting once that has taken too
    /// long, although nothing was written then.
    pub fn status(&self) -> RunStatus {
        let slow = self.projection.slow_at.is_some_and(|at| at.micros() <= self.read_at);
        if slow && self.projection.status == RunStatus::Running {
            return RunStatus::AwaitingTool;
        }
        self.projection.status
    }

    /// What the run waits for, in words.
    pub fn waiting_for(&self) -> Option<&str> {
        if self.status() == RunStatus::AwaitingTool {
            return Some(crate::run::advance::WAITS_FOR_A_TOOL);
        }
        self.projection.waiting_for.as_deref()
    }

    /// The heading it stands under.
    pub fn bucket(&self) -> RunBucket {
        bucket_for_status(self.status())
    }

    /// What it has cost so far.
    pub const fn total_cost_units(&self) -> Micros {
        Micros(self.projection.total_cost_micros)
    }

    /// The band of that.
    pub fn cost_band(&self) -> CostBand {
        cost_band_for(self.total_cost_units())
    }

    /// Wall time from its acceptance to its end, or to the instant of reading, in whole milliseconds.
    pub fn latency_ms(&self) -> u64 {
        wall_ms(self.started_at, self.ended_at.unwrap_or(self.read_at))
    }

    /// The band of that.
    pub fn latency_band(&self) -> LatencyBand {
        latency_band_for(self.latency_ms())
    }

    /// The family of its lead agent, if the registry knows it.
    pub fn family(&self) -> Option<&'static str> {
        family_of(&self.root_agent_id)
    }

    /// Its place in the list.
    pub const fn place(&self) -> DashboardCursor {
        DashboardCursor { started_at: self.started_at, run_key: self.run_key }
    }
}

/// Whole milliseconds between two instants; none if a clock was set back between them.
fn wall_ms(from: UnixMicros, to: UnixMicros) -> u64 {
    u64::try_from(to.0.saturating_sub(from.0)).unwrap_or(0) / 1_000
}
