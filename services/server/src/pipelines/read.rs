//! Reading requests about pipelines: whatever is not exactly right is refused here, with the field named.

use serde_json::Value;
use signalbox_domain::json::{self, Limits};
use signalbox_domain::mode::{Mode, in_words};
use signalbox_domain::pipeline::{FirePipeline, PutCustomization, Tightening};
use signalbox_proto::v1;

use crate::errors::Refusal;
use crate::governing::read::{expected, text};
use crate::validate::{self, bad};

/// Most bytes of what a pipeline is given: ten thousand paths of some length.
const INPUT_BYTES_MAX: usize = 2 << 20;
/// Most bytes of a customization: it has a few short lists.
const CUSTOMIZATION_BYTES_MAX: usize = 64 << 10;

/// A trigger.
pub(super) fn fire(request: v1::FirePipelineRequest) -> Result<FirePipeline, Refusal> {
    let pipeline_id = validate::id("pipeline_id", &request.pipeline_id)?;
    let input = match request.input_json.as_ref() {
        [] => Value::Null,
        bytes => strictly("input_json", bytes, INPUT_BYTES_MAX)?,
    };
    let mode =
        match request.mode.as_str() {
            "" => None,
            name => Some(Mode::parse(name).ok_or_else(|| {
                bad("unknown-mode", "mode", format!("`mode` must be one of {}", in_words(&Mode::ALL)))
            })?),
        };
    let said = |text: String| (!text.is_empty()).then_some(text);
    Ok(FirePipeline {
        pipeline_id,
        pipeline_semver: said(request.pipeline_semver),
        input,
        mode,
        fire_id: said(request.fire_id),
    })
}

/// A customization.
pub(super) fn customization(request: v1::PutCustomizationRequest) -> Result<PutCustomization, Refusal> {
    let value = strictly("customization_json", &request.customization_json, CUSTOMIZATION_BYTES_MAX)?;
    if !value.is_object() {
        let message = "`customization_json` must be a JSON object; an empty one takes everything back";
        return Err(bad("customization-invalid", "customization_json", message));
    }
    let tightening: Tightening = serde_json::from_value(value)
        .map_err(|error| bad("customization-invalid", "customization_json", error.to_string()))?;
    Ok(PutCustomization {
        pipeline_id: validate::id("pipeline_id", &request.pipeline_id)?,
        tenant_id: validate::optional_id("tenant_id", &request.tenant_id)?,
        tightening,
        reason: text("reason", request.reason)?,
        expected: expected(request.expected_revision),
    })
}

fn strictly(field: &str, bytes: &[u8], most: usize) -> Result<Value, Refusal> {
    let limits = Limits { bytes_max: most, ..Limits::DEFAULT };
    json::parse_strict(bytes, limits).map_err(|error| bad(error.code(), field, format!("`{field}`: {error}")))
}
