//! `PipelineService`: each method identifies the caller, reads the request strictly, asks the node and converts the answer.

pub(crate) mod api;
mod convert;
mod read;

use std::sync::Arc;

use signalbox_domain::pipeline::{FireDenial, PipelineRegistry, effective_pipeline_for_tenant};
use signalbox_proto::v1::{self, pipeline_service_server::PipelineService};
use tonic::{Request, Response, Status};

use crate::api::{ApiError, PipelineApi};
use crate::errors::{self, Refusal};
use crate::identity::caller_of;
use crate::validate;

/// The service over one node.
pub(crate) struct Pipelines {
    pub(crate) api: Arc<dyn PipelineApi>,
}

impl Pipelines {
    async fn list(&self, request: Request<v1::ListPipelinesRequest>) -> Result<v1::ListPipelinesResponse, Refusal> {
        let caller = caller_of(&request)?;
        let standings = self.api.pipelines(&caller).await?;
        Ok(v1::ListPipelinesResponse { pipelines: standings.iter().map(convert::standing).collect::<Result<_, _>>()? })
    }

    async fn get(&self, request: Request<v1::GetPipelineRequest>) -> Result<v1::GetPipelineResponse, Refusal> {
        let caller = caller_of(&request)?;
        let id = validate::id("pipeline_id", &request.get_ref().pipeline_id)?;
        let standing = self.api.pipeline(&caller, &id).await?;
        let shipped = PipelineRegistry::shipped().get(&id);
        let shipped = shipped.ok_or_else(|| ApiError::from(FireDenial::NoSuchPipeline(id)))?;
        let effective = effective_pipeline_for_tenant(shipped, None);
        Ok(v1::GetPipelineResponse { pipeline: Some(convert::pipeline(&effective, standing.may_fire)?) })
    }

    async fn effective(
        &self,
        request: Request<v1::GetEffectivePipelineRequest>,
    ) -> Result<v1::GetEffectivePipelineResponse, Refusal> {
        let caller = caller_of(&request)?;
        let id = validate::id("pipeline_id", &request.get_ref().pipeline_id)?;
        let standing = self.api.pipeline(&caller, &id).await?;
        let own = standing.tightening.as_ref().map(convert::json).transpose()?;
        Ok(v1::GetEffectivePipelineResponse {
            pipeline: Some(convert::standing(&standing)?),
            customization_json: own.unwrap_or_default().into(),
            revision: standing.revision,
        })
    }

    async fn fire(&self, request: Request<v1::FirePipelineRequest>) -> Result<v1::FirePipelineResponse, Refusal> {
        let caller = caller_of(&request)?;
        let order = read::fire(request.into_inner())?;
        let fired = self.api.fire_pipeline(&caller, order).await?;
        Ok(v1::FirePipelineResponse {
            run_id: fired.submitted.run_id.to_string(),
            replayed: fired.submitted.replayed,
            pipeline_semver: fired.pipeline_semver,
            mode: fired.mode,
            warnings: fired.submitted.warnings,
        })
    }

    async fn customize(
        &self,
        request: Request<v1::PutCustomizationRequest>,
    ) -> Result<v1::PutCustomizationResponse, Refusal> {
        let caller = caller_of(&request)?;
        let order = read::customization(request.into_inner())?;
        let standing = self.api.customize_pipeline(&caller, order).await?;
        Ok(v1::PutCustomizationResponse { pipeline: Some(convert::standing(&standing)?), revision: standing.revision })
    }

    async fn report(
        &self,
        request: Request<v1::GetPipelineReportRequest>,
    ) -> Result<v1::GetPipelineReportResponse, Refusal> {
        let caller = caller_of(&request)?;
        let id = validate::id("pipeline_id", &request.get_ref().pipeline_id)?;
        let report = self.api.pipeline_report(&caller, &id).await?;
        Ok(v1::GetPipelineReportResponse { report_json: convert::json(&report)?.into() })
    }

    async fn rehearsal(&self, request: Request<v1::GetRehearsalRequest>) -> Result<v1::GetRehearsalResponse, Refusal> {
        let caller = caller_of(&request)?;
        let run_id = validate::id("run_id", &request.get_ref().run_id)?;
        let rehearsal = self.api.rehearsal(&caller, run_id).await?;
        Ok(v1::GetRehearsalResponse { rehearsal_json: convert::json(&rehearsal)?.into() })
    }
}

fn answer<T>(result: Result<T, Refusal>) -> Result<Response<T>, Status> {
    result.map(Response::new).map_err(|error| errors::to_status(&error))
}

#[tonic::async_trait]
impl PipelineService for Pipelines {
    async fn list_pipelines(
        &self,
        request: Request<v1::ListPipelinesRequest>,
    ) -> Result<Response<v1::ListPipelinesResponse>, Status> {
        answer(self.list(request).await)
    }
    async fn get_pipeline(
        &self,
        request: Request<v1::GetPipelineRequest>,
    ) -> Result<Response<v1::GetPipelineResponse>, Status> {
        answer(self.get(request).await)
    }
    async fn get_effective_pipeline(
        &self,
        request: Request<v1::GetEffectivePipelineRequest>,
    ) -> Result<Response<v1::GetEffectivePipelineResponse>, Status> {
        answer(self.effective(request).await)
    }
    async fn fire_pipeline(
        &self,
        request: Request<v1::FirePipelineRequest>,
    ) -> Result<Response<v1::FirePipelineResponse>, Status> {
        answer(self.fire(request).await)
    }
    async fn put_customization(
        &self,
        request: Request<v1::PutCustomizationRequest>,
    ) -> Result<Response<v1::PutCustomizationResponse>, Status> {
        answer(self.customize(request).await)
    }
    async fn get_pipeline_report(
        &self,
        request: Request<v1::GetPipelineReportRequest>,
    ) -> Result<Response<v1::GetPipelineReportResponse>, Status> {
        answer(self.report(request).await)
    }
    async fn get_rehearsal(
        &self,
        request: Request<v1::GetRehearsalRequest>,
    ) -> Result<Response<v1::GetRehearsalResponse>, Status> {
        answer(self.rehearsal(request).await)
    }
}
