//! The filter of a list, read strictly, and the rows it finds (DSH-005).

use signalbox_domain::dashboard::{
    CostBand, DASHBOARD_ROWS_MAX, DashboardEntry, DashboardFilter, LatencyBand, RUN_LIST_BUCKETS, RunBucket,
};
use signalbox_domain::identity::{Role, Visibility};
use signalbox_domain::time::UnixMs;
use signalbox_proto::v1;

use crate::api::Whose;
use crate::errors::Refusal;
use crate::validate::{self, bad, named, optional_id};

/// What a request for a list says.
pub(crate) struct Listing {
    pub(crate) whose: Whose,
    pub(crate) filter: DashboardFilter,
}

impl Listing {
    /// Reads a request; its page token means something only beside the rest.
    pub(crate) fn read(request: v1::ListRunsRequest) -> Result<Self, Refusal> {
        let whose = whose(&request.tenant_id, request.all_tenants)?;
        let filter = DashboardFilter {
            tenant_id: None,
            agent_id: optional_id("agent_id", &request.agent_id)?,
            family: Some(request.family).filter(|family| !family.is_empty()),
            family_agents: None,
            pipeline_id: validate::pipeline(&request.pipeline_id)?,
            status: validate::statuses(&request.status)?,
            bucket: buckets(&request.bucket)?,
            cost_band: named("cost_band", &request.cost_band, &CostBand::ALL, CostBand::as_str)?,
            latency_band: named("latency_band", &request.latency_band, &LatencyBand::ALL, LatencyBand::as_str)?,
            started_after: request.started_after_unix_ms.map(UnixMs),
            started_before: request.started_before_unix_ms.map(UnixMs),
            has_warnings: request.has_warnings,
            text: Some(request.text).filter(|text| !text.is_empty()),
            cursor: None,
            limit: validate::page_size(request.page_size)?.min(DASHBOARD_ROWS_MAX),
        };
        filter.check().map_err(|error| bad(error.code(), error.field(), error.to_string()))?;
        Ok(Self { whose, filter })
    }
}

/// Whose runs a request means.
pub(crate) fn whose(tenant_id: &str, all_tenants: bool) -> Result<Whose, Refusal> {
    match (optional_id("tenant_id", tenant_id)?, all_tenants) {
        (Some(_), true) => {
            Err(bad("tenant-ambiguous", "tenant_id", "`tenant_id` and `all_tenants` exclude each other; give one"))
        }
        (None, true) => Ok(Whose::All),
        (Some(tenant), false) => Ok(Whose::Of(tenant)),
        (None, false) => Ok(Whose::Own),
    }
}

fn buckets(texts: &[String]) -> Result<Vec<RunBucket>, Refusal> {
    named("bucket", texts, &RUN_LIST_BUCKETS, RunBucket::as_str)
}

/// A run in a list, without what its reader may not see.
pub(crate) fn row(entry: &DashboardEntry, reader: Role) -> v1::Run {
    let run = v1::Run {
        run_id: entry.run_id.to_string(),
        status: entry.status().as_str().to_owned(),
        root_agent_id: entry.root_agent_id.to_string(),
        pipeline_id: entry.pipeline_id.as_ref().map(ToString::to_string).unwrap_or_default(),
        submitted_at_unix_micros: entry.started_at.0,
        last_seq: entry.last_seq,
        total_cost_micros: entry.total_cost_units().0,
        percent: u32::from(entry.projection.percent),
        waiting_for: entry.waiting_for().unwrap_or_default().to_owned(),
        closed: entry.projection.closed,
        envelope_json: Default::default(),
        bucket: entry.bucket().as_str().to_owned(),
        cost_band: entry.cost_band().as_str().to_owned(),
        latency_band: entry.latency_band().as_str().to_owned(),
        latency_ms: entry.latency_ms(),
        has_warnings: entry.projection.has_warnings && reader.sees() >= Visibility::TenantOperator,
        family: entry.family().unwrap_or_default().to_owned(),
        tenant_id: entry.tenant_id.to_string(),
        ended_at_unix_micros: entry.ended_at.map(|at| at.0),
    };
    if reader.sees() > Visibility::Customer {
        return run;
    }
    v1::Run {
        root_agent_id: String::new(),
        family: String::new(),
        total_cost_micros: 0,
        cost_band: String::new(),
        ..run
    }
}
