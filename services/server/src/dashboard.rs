//! `DashboardService`: what operators see of many runs at once.

use std::sync::Arc;

use signalbox_domain::dashboard::RunCounts;
use signalbox_domain::governance::kill_switch::KillSwitch;
use signalbox_domain::time::UnixMs;
use signalbox_proto::v1::{self, dashboard_service_server::DashboardService};
use tonic::{Request, Response, Status};

use crate::api::RunApi;
use crate::errors::{self, Refusal};
use crate::identity::caller_of;
use crate::listing::whose;
use crate::validate;

/// The service over one node.
pub(crate) struct Dashboard {
    pub(crate) api: Arc<dyn RunApi>,
}

impl Dashboard {
    async fn count(&self, request: Request<v1::CountRunsRequest>) -> Result<v1::CountRunsResponse, Refusal> {
        let caller = caller_of(&request)?;
        let request = request.into_inner();
        let whose = whose(&request.tenant_id, request.all_tenants)?;
        let counts = self.api.count_runs(&caller, whose, request.started_after_unix_ms.map(UnixMs)).await?;
        Ok(v1::CountRunsResponse { counts: buckets(&counts) })
    }

    async fn take(&self, request: Request<v1::GetSnapshotRequest>) -> Result<v1::GetSnapshotResponse, Refusal> {
        let caller = caller_of(&request)?;
        let whose = whose(&request.get_ref().tenant_id, request.get_ref().all_tenants)?;
        let snapshot = self.api.snapshot(&caller, whose).await?;
        Ok(v1::GetSnapshotResponse {
            taken_at_unix_ms: snapshot.taken_at_unix_ms.0,
            tenant_id: snapshot.tenant_id.map(|id| id.to_string()).unwrap_or_default(),
            counts: buckets(&snapshot.counts),
            active_switches: snapshot.active_switches.iter().map(switch).collect(),
            governance_epoch: snapshot.governance_epoch,
        })
    }

    async fn compliance(
        &self,
        request: Request<v1::GetModeComplianceRequest>,
    ) -> Result<v1::GetModeComplianceResponse, Refusal> {
        let caller = caller_of(&request)?;
        let request = request.into_inner();
        let whose = whose(&request.tenant_id, request.all_tenants)?;
        let agent_id = validate::id("agent_id", &request.agent_id)?;
        let mode = validate::mode(&request.mode)?;
        let series = self.api.mode_compliance(&caller, whose, agent_id, mode).await?;
        Ok(v1::GetModeComplianceResponse {
            runs: u32::try_from(series.runs).unwrap_or(u32::MAX),
            cost_micros: series.cost_units.0,
            max_cost_micros: series.max_cost_units.0,
            p95_latency_ms: series.p95_latency_ms,
            p95_latency_budget_ms: series.p95_latency_budget_ms,
            breaches: series.breaches.into_iter().map(|breach| breach.code().to_owned()).collect(),
        })
    }
}

fn buckets(counts: &RunCounts) -> Vec<v1::BucketCount> {
    let counts = counts.0.iter();
    counts
        .map(|count| v1::BucketCount {
            bucket: count.bucket.as_str().to_owned(),
            runs: count.runs,
            at_least: count.at_least,
        })
        .collect()
}

fn switch(switch: &KillSwitch) -> v1::ActiveSwitch {
    v1::ActiveSwitch {
        switch_id: switch.switch_id.to_string(),
        scope: switch.scope.as_str().to_owned(),
        target_id: switch.target_id.clone().unwrap_or_default(),
        tenant_id: switch.tenant_id.as_ref().map(ToString::to_string).unwrap_or_default(),
        armed_by: switch.armed_by.to_string(),
        armed_at_unix_ms: switch.armed_at_unix_ms.0,
        expires_at_unix_ms: switch.expires_at_unix_ms.map(|at| at.0),
        reason: switch.reason.clone(),
        user_visible_status_copy: switch.user_visible_status_copy.clone(),
    }
}

#[tonic::async_trait]
impl DashboardService for Dashboard {
    async fn count_runs(
        &self,
        request: Request<v1::CountRunsRequest>,
    ) -> Result<Response<v1::CountRunsResponse>, Status> {
        self.count(request).await.map(Response::new).map_err(|error| errors::to_status(&error))
    }
    async fn get_snapshot(
        &self,
        request: Request<v1::GetSnapshotRequest>,
    ) -> Result<Response<v1::GetSnapshotResponse>, Status> {
        self.take(request).await.map(Response::new).map_err(|error| errors::to_status(&error))
    }
    async fn get_mode_compliance(
        &self,
        request: Request<v1::GetModeComplianceRequest>,
    ) -> Result<Response<v1::GetModeComplianceResponse>, Status> {
        self.compliance(request).await.map(Response::new).map_err(|error| errors::to_status(&error))
    }
}
