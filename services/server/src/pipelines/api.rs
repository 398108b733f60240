//! What the edge needs of whoever keeps pipelines, as a trait: so that another edge can call it, and tests can stand in.

use async_trait::async_trait;
use signalbox_domain::ids::{PipelineId, RunId};
use signalbox_domain::pipeline::{FirePipeline, PipelineObservabilityReport, PutCustomization, Rehearsal};
use signalbox_runtime::{Fired, NodeHandle, PipelineStanding};

use crate::api::{ApiError, Caller};

/// Pipelines. Every method acts with the caller's authority and within its tenant.
#[async_trait]
pub trait PipelineApi: Send + Sync + 'static {
    /// All pipelines as they are for the caller's tenant.
    async fn pipelines(&self, caller: &Caller) -> Result<Vec<PipelineStanding>, ApiError>;
    /// One of them.
    async fn pipeline(&self, caller: &Caller, id: &PipelineId) -> Result<PipelineStanding, ApiError>;
    /// Triggers one.
    async fn fire_pipeline(&self, caller: &Caller, order: FirePipeline) -> Result<Fired, ApiError>;
    /// Makes one tighter for a tenant.
    async fn customize_pipeline(&self, caller: &Caller, order: PutCustomization) -> Result<PipelineStanding, ApiError>;
    /// What its last runs came to.
    async fn pipeline_report(&self, caller: &Caller, id: &PipelineId) -> Result<PipelineObservabilityReport, ApiError>;
    /// What a rehearsal of one has shown.
    async fn rehearsal(&self, caller: &Caller, run_id: RunId) -> Result<Rehearsal, ApiError>;
}

#[async_trait]
impl PipelineApi for NodeHandle {
    async fn pipelines(&self, caller: &Caller) -> Result<Vec<PipelineStanding>, ApiError> {
        self.pipelines(caller).await
    }
    async fn pipeline(&self, caller: &Caller, id: &PipelineId) -> Result<PipelineStanding, ApiError> {
        self.pipeline(caller, id).await
    }
    async fn fire_pipeline(&self, caller: &Caller, order: FirePipeline) -> Result<Fired, ApiError> {
        self.fire_pipeline(caller, order).await
    }
    async fn customize_pipeline(&self, caller: &Caller, order: PutCustomization) -> Result<PipelineStanding, ApiError> {
        self.customize_pipeline(caller, order).await
    }
    async fn pipeline_report(&self, caller: &Caller, id: &PipelineId) -> Result<PipelineObservabilityReport, ApiError> {
        self.pipeline_report(caller, id).await
    }
    async fn rehearsal(&self, caller: &Caller, run_id: RunId) -> Result<Rehearsal, ApiError> {
        self.rehearsal(caller, run_id).await
    }
}
