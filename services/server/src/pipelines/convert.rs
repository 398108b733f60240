//! What a node says of pipelines, on the wire.

use serde::Serialize;
use signalbox_domain::pipeline::EffectivePipeline;
use signalbox_proto::v1;
use signalbox_runtime::PipelineStanding;

use crate::api::ErrorKind;
use crate::errors::Refusal;

/// A pipeline in short, with its whole spec.
pub(super) fn pipeline(effective: &EffectivePipeline, may_fire: bool) -> Result<v1::Pipeline, Refusal> {
    let spec = &effective.spec;
    Ok(v1::Pipeline {
        pipeline_id: spec.pipeline_id.to_string(),
        semver: spec.semver.clone(),
        title: spec.title.clone(),
        summary: spec.summary.clone(),
        tier: spec.tier.clone(),
        lifecycle_state: spec.lifecycle_state.as_str().to_owned(),
        total_budget_cap_micros: spec.total_budget_cap.0,
        default_mode: effective.default_mode.as_str().to_owned(),
        modes: effective.modes.iter().map(|mode| mode.as_str().to_owned()).collect(),
        may_fire,
        customized: effective.customized,
        spec_json: json(spec)?.into(),
    })
}

/// A pipeline as it is for a tenant.
pub(super) fn standing(standing: &PipelineStanding) -> Result<v1::Pipeline, Refusal> {
    pipeline(&standing.effective, standing.may_fire)
}

/// JSON of something of ours.
pub(super) fn json(value: &impl Serialize) -> Result<Vec<u8>, Refusal> {
    serde_json::to_vec(value).map_err(|error| Refusal::new(ErrorKind::Internal, "internal", error.to_string()))
}
