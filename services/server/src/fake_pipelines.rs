//! Somebody who keeps pipelines, for tests: those that ship, and nothing that ran.

use async_trait::async_trait;
use signalbox_domain::ids::{PipelineId, RunId};
use signalbox_domain::pipeline::{
    CustomizationDenial, FireDenial, FirePipeline, PipelineObservabilityReport, PipelineRegistry, PutCustomization,
    Rehearsal, build_pipeline_observability_report, effective_pipeline_for_tenant,
};
use signalbox_runtime::{Fired, PipelineStanding};

use crate::api::{ApiError, Caller, PipelineApi};

pub(crate) struct FakePipelines;

fn standing(id: &PipelineId) -> Result<PipelineStanding, ApiError> {
    let spec = PipelineRegistry::shipped().get(id).ok_or_else(|| FireDenial::NoSuchPipeline(id.clone()))?;
    let effective = effective_pipeline_for_tenant(spec, None);
    Ok(PipelineStanding { effective, tightening: None, revision: 0, may_fire: false })
}

#[async_trait]
impl PipelineApi for FakePipelines {
    async fn pipelines(&self, _: &Caller) -> Result<Vec<PipelineStanding>, ApiError> {
        PipelineRegistry::shipped().list().iter().map(|spec| standing(&spec.pipeline_id)).collect()
    }
    async fn pipeline(&self, _: &Caller, id: &PipelineId) -> Result<PipelineStanding, ApiError> {
        standing(id)
    }
    async fn fire_pipeline(&self, _: &Caller, order: FirePipeline) -> Result<Fired, ApiError> {
        Err(FireDenial::NoSuchPipeline(order.pipeline_id).into())
    }
    async fn customize_pipeline(&self, _: &Caller, order: PutCustomization) -> Result<PipelineStanding, ApiError> {
        Err(CustomizationDenial::NoSuchPipeline(order.pipeline_id).into())
    }
    async fn pipeline_report(&self, _: &Caller, id: &PipelineId) -> Result<PipelineObservabilityReport, ApiError> {
        let spec = PipelineRegistry::shipped().get(id).ok_or_else(|| FireDenial::NoSuchPipeline(id.clone()))?;
        Ok(build_pipeline_observability_report(spec, []))
    }
    async fn rehearsal(&self, _: &Caller, run_id: RunId) -> Result<Rehearsal, ApiError> {
        Err(ApiError::NoSuchRun(run_id.to_string()))
    }
}
