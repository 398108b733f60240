//! Between the wire and the domain, in both directions.
//!
//! What comes in is hostile: each conversion says precisely what is wrong, and nothing is repaired on the way. Floats of
//! measured usage alone pass through as they are, because judging them is the charge policy's business (LED-008).

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use serde_json::Value;
use signalbox_domain::catalog::version::is_version;
use signalbox_domain::catalog::{self, Recovery};
use signalbox_domain::ids::ToolId;
use signalbox_domain::json::{Limits, parse_strict};
use signalbox_domain::quantity::{BudgetCategory, Micros, Usage};
use signalbox_domain::registry::DescribedTool;
use signalbox_domain::run::event::{ArtifactRef, Evidence, GroundingState};
use signalbox_proto::v1;

use crate::limits::{PAYLOAD_BYTES_MAX, PAYLOAD_DEPTH_MAX};
use crate::tool::{Descriptor, Measured};

/// What JSON of arguments and outputs may be.
pub(crate) const PAYLOAD_LIMITS: Limits = Limits { bytes_max: PAYLOAD_BYTES_MAX, depth_max: PAYLOAD_DEPTH_MAX };
/// What the JSON of a schema may be.
const SCHEMA_LIMITS: Limits = Limits { bytes_max: 64 * 1024, depth_max: 32 };
/// Most artifacts of one call.
const ARTIFACTS_MAX: usize = 1_000;
/// Most effects of one call.
const EFFECTS_MAX: usize = 1_000;
/// Longest text of a name, key, media type or effect, in bytes.
const TEXT_BYTES_MAX: usize = 2_000;
/// Largest count: the whole numbers up to it are exact in a double.
const COUNT_MAX: u64 = 1 << 53;
/// Longest code, in bytes.
const CODE_BYTES_MAX: usize = 100;

/// What is wrong with a message, in words for the other end's author.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct WireError(pub(crate) String);

fn wrong<T>(what: impl Into<String>) -> Result<T, WireError> {
    Err(WireError(what.into()))
}

/// The category of a name such as `cost-units`.
pub(crate) fn category(name: &str) -> Result<BudgetCategory, WireError> {
    let known = BudgetCategory::ALL.into_iter().find(|category| category.as_str() == name);
    known.ok_or_else(|| WireError(format!("`{}` is not a budget category", short(name))))
}

/// A ceiling; negative amounts are refused.
pub(crate) fn usage_in(usage: Option<&v1::Usage>) -> Result<Usage, WireError> {
    let mut amounts = Usage::none();
    for (name, micros) in usage.iter().flat_map(|usage| &usage.micros) {
        if *micros < 0 {
            return wrong(format!("the ceiling of `{}` is negative", short(name)));
        }
        amounts = amounts.with(category(name)?, Micros(*micros));
    }
    Ok(amounts)
}

/// A ceiling for the wire.
pub(crate) fn usage_out(usage: &Usage) -> v1::Usage {
    v1::Usage { micros: usage.iter().map(|(category, amount)| (category.as_str().to_owned(), amount.0)).collect() }
}

/// Measured usage; the numbers as they came.
pub(crate) fn measured_in(measured: &v1::MeasuredUsage) -> Result<Vec<(BudgetCategory, f64)>, WireError> {
    let units: BTreeMap<&String, &f64> = measured.units.iter().collect();
    units.into_iter().map(|(name, amount)| Ok((category(name)?, *amount))).collect()
}

/// Measured usage for the wire.
pub(crate) fn measured_out(measured: &Measured) -> v1::MeasuredUsage {
    let units: HashMap<_, _> =
        measured.iter().map(|(category, units)| (category.as_str().to_owned(), *units)).collect();
    v1::MeasuredUsage { units }
}

/// JSON of arguments or of an output, read strictly.
pub(crate) fn payload_in(bytes: &[u8]) -> Result<Value, WireError> {
    parse_strict(bytes, PAYLOAD_LIMITS).map_err(|error| WireError(error.to_string()))
}

/// JSON for the wire, unless it is too large.
pub(crate) fn payload_out(value: &Value) -> Result<Bytes, WireError> {
    let bytes = serde_json::to_vec(value).map_err(|error| WireError(error.to_string()))?;
    if bytes.len() > PAYLOAD_BYTES_MAX {
        return wrong(format!("{} bytes of JSON are more than the {PAYLOAD_BYTES_MAX} allowed", bytes.len()));
    }
    Ok(bytes.into())
}

/// Evidence.
pub(crate) fn evidence_in(evidence: v1::Evidence) -> Result<Evidence, WireError> {
    let grounding_state = match evidence.grounding_state.as_str() {
        "grounded" => GroundingState::Grounded,
        "partially-grounded" => GroundingState::PartiallyGrounded,
        "ungrounded" => GroundingState::Ungrounded,
        "not-required" => GroundingState::NotRequired,
        other => return wrong(format!("`{}` is not a grounding state", short(other))),
    };
    let evidence_pack_id = line(evidence.evidence_pack_id, "an evidence pack id")?;
    let citation_count = count(evidence.citation_count, "the number of citations")?;
    Ok(Evidence { evidence_pack_id, grounding_state, citation_count })
}

/// Evidence for the wire.
pub(crate) fn evidence_out(evidence: &Evidence) -> v1::Evidence {
    let state = match evidence.grounding_state {
        GroundingState::Grounded => "grounded",
        GroundingState::PartiallyGrounded => "partially-grounded",
        GroundingState::Ungrounded => "ungrounded",
        GroundingState::NotRequired => "not-required",
    };
    v1::Evidence {
        evidence_pack_id: evidence.evidence_pack_id.clone(),
        grounding_state: state.to_owned(),
        citation_count: evidence.citation_count,
    }
}

/// Artifacts.
pub(crate) fn artifacts_in(artifacts: Vec<v1::Artifact>) -> Result<Vec<ArtifactRef>, WireError> {
    if artifacts.len() > ARTIFACTS_MAX {
        return wrong(format!("more than {ARTIFACTS_MAX} artifacts"));
    }
    artifacts.into_iter().map(artifact_in).collect()
}

fn artifact_in(artifact: v1::Artifact) -> Result<ArtifactRef, WireError> {
    let is_digest = artifact.sha256.len() == 64
        && artifact.sha256.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    if !is_digest {
        return wrong("the sha256 of an artifact is not 64 lower-case hexadecimal digits");
    }
    Ok(ArtifactRef {
        name: place(artifact.name, "the name of an artifact")?,
        persisted_key: place(artifact.persisted_key, "the key of an artifact")?,
        media_type: line(artifact.media_type, "the media type of an artifact")?,
        size: count(artifact.size, "the size of an artifact")?,
        sha256: artifact.sha256,
    })
}

/// An artifact for the wire.
pub(crate) fn artifact_out(artifact: &ArtifactRef) -> v1::Artifact {
    v1::Artifact {
        name: artifact.name.clone(),
        persisted_key: artifact.persisted_key.clone(),
        media_type: artifact.media_type.clone(),
        sha256: artifact.sha256.clone(),
        size: artifact.size,
    }
}

/// Effects.
pub(crate) fn effects_in(effects: Vec<String>) -> Result<Vec<String>, WireError> {
    if effects.len() > EFFECTS_MAX {
        return wrong(format!("more than {EFFECTS_MAX} effects"));
    }
    effects.into_iter().map(|effect| text(effect, "an effect")).collect()
}

/// A stable code: kebab-case and short.
pub(crate) fn code_in(code: String) -> Result<String, WireError> {
    let fits = !code.is_empty()
        && code.len() <= CODE_BYTES_MAX
        && code.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_'));
    if fits { Ok(code) } else { wrong(format!("`{}` is not a code", short(&code))) }
}

/// A tool's description, as far as the client uses it: its id, its version, and what may be done when the outcome of a
/// call is not known. Whoever does not say, or says what this version does not know, gets the most careful of all. What it
/// claims beyond the catalog is refused and not cut down: an executor that means to use more than is ever reserved would
/// only overshoot.
pub(crate) fn bound_tool_in(tool: &v1::ToolDescriptor) -> Result<(ToolId, String, Recovery), WireError> {
    let id = ToolId::new(tool.tool_id.as_str()).map_err(|error| WireError(error.to_string()))?;
    let Some(entry) = catalog::entry(&id) else {
        return wrong(format!("`{id}` is not in the catalog"));
    };
    if tool.semver.len() > CODE_BYTES_MAX || !is_version(&tool.semver) {
        return wrong(format!("`{}` is not a version of `{id}`", short(&tool.semver)));
    }
    let claimed = usage_in(tool.ceiling.as_ref()).map_err(|error| WireError(format!("`{id}`: {error}")))?;
    for (category, amount) in claimed.iter() {
        let most = entry.ceiling.get(category);
        if amount > most {
            let category = category.as_str();
            return wrong(format!("`{id}` claims up to {amount} {category}, and the catalog gives it {most}"));
        }
    }
    Ok((id, tool.semver.clone(), recovery_in(tool.recovery())))
}

/// A tool's description as it is, for whoever judges it against the catalog.
pub(crate) fn described_in(tool: &v1::ToolDescriptor) -> Result<DescribedTool, WireError> {
    let of = |error: WireError| WireError(format!("`{}`: {error}", short(&tool.tool_id)));
    if tool.tool_id.len() > CODE_BYTES_MAX || tool.semver.len() > CODE_BYTES_MAX {
        return wrong(format!("the name or version of `{}` is too long", short(&tool.tool_id)));
    }
    let schema = |bytes: &[u8], what: &str| {
        parse_strict(bytes, SCHEMA_LIMITS).map_err(|error| of(WireError(format!("{what} schema: {error}"))))
    };
    Ok(DescribedTool {
        tool_id: tool.tool_id.clone(),
        semver: tool.semver.clone(),
        input_schema: schema(&tool.input_schema_json, "input")?,
        output_schema: schema(&tool.output_schema_json, "output")?,
        ceiling: usage_in(tool.ceiling.as_ref()).map_err(of)?,
        recovery: recovery_in(tool.recovery()),
    })
}

const fn recovery_in(policy: v1::RecoveryPolicy) -> Recovery {
    match policy {
        v1::RecoveryPolicy::Idempotent => Recovery::Idempotent,
        v1::RecoveryPolicy::Deduplicating => Recovery::Deduplicating,
        v1::RecoveryPolicy::AtMostOnce | v1::RecoveryPolicy::Unspecified => Recovery::AtMostOnce,
    }
}

/// A tool's description for the wire.
pub(crate) fn descriptor_out(descriptor: &Descriptor) -> v1::ToolDescriptor {
    let recovery = match descriptor.recovery {
        Recovery::Idempotent => v1::RecoveryPolicy::Idempotent,
        Recovery::Deduplicating => v1::RecoveryPolicy::Deduplicating,
        Recovery::AtMostOnce => v1::RecoveryPolicy::AtMostOnce,
    };
    v1::ToolDescriptor {
        tool_id: descriptor.tool_id.clone(),
        semver: descriptor.semver.clone(),
        input_schema_json: descriptor.input_schema.to_string().into(),
        output_schema_json: descriptor.output_schema.to_string().into(),
        ceiling: Some(usage_out(&descriptor.ceiling)),
        has_side_effects: descriptor.has_side_effects,
        recovery: recovery.into(),
    }
}

/// A name that stays where it is put: whoever joins it to a folder does not leave the folder.
fn place(text: String, what: &str) -> Result<String, WireError> {
    let text = line(text, what)?;
    let leaves =
        text.is_empty() || text.contains('\\') || text.starts_with('/') || text.split('/').any(|part| part == "..");
    if leaves { wrong(format!("{what} is no plain relative path: `{}`", short(&text))) } else { Ok(text) }
}

/// A count that every reader of JSON reads alike.
fn count(count: u64, what: &str) -> Result<u64, WireError> {
    if count > COUNT_MAX { wrong(format!("{what} is larger than {COUNT_MAX}")) } else { Ok(count) }
}

/// A text that a terminal shows as one line.
fn line(text: String, what: &str) -> Result<String, WireError> {
    let text = self::text(text, what)?;
    if text.contains(char::is_control) { wrong(format!("{what} holds control characters")) } else { Ok(text) }
}

fn text(text: String, what: &str) -> Result<String, WireError> {
    if text.len() > TEXT_BYTES_MAX { wrong(format!("{what} is longer than {TEXT_BYTES_MAX} bytes")) } else { Ok(text) }
}

/// As much of a foreign text as an error message may carry.
pub(crate) fn short(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(64).collect()
}
