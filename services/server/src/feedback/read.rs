//! Reading requests on rollouts and gold sets: whatever is not exactly right is refused here, with the field named.

use signalbox_domain::feedback::gold_set::PromoteGold;
use signalbox_domain::feedback::outcome::FeedbackKind;
use signalbox_domain::feedback::rollout::{RolloutMode, StartRollout};
use signalbox_domain::governance::switching::Reach;
use signalbox_domain::ids::TenantId;
use signalbox_domain::json::{self, Limits};
use signalbox_domain::quantity::Micros;
use signalbox_domain::registry::AGENT_NAME_BYTES_MAX;
use signalbox_ports::feedback::GOLD_ENTRIES_PAGE_MAX;
use signalbox_proto::v1;

use crate::errors::Refusal;
use crate::governing::read::{reach, text};
use crate::validate::{self, bad};

/// How many entries an answer has if no number is asked for.
const ENTRIES_DEFAULT: usize = 50;
/// Most bytes of an expected output as it is sent: white space counts.
const EXPECTED_BYTES_MAX: usize = 1 << 20;

/// A rollout that is wanted.
pub(crate) fn wish(request: v1::StartRolloutRequest, own: &TenantId) -> Result<StartRollout, Refusal> {
    let mode = match v1::RolloutMode::try_from(request.mode) {
        Ok(v1::RolloutMode::Shadow) => RolloutMode::Shadow,
        Ok(v1::RolloutMode::Canary) => RolloutMode::Canary,
        Ok(v1::RolloutMode::Unspecified) | Err(_) => {
            return Err(bad("rollout-mode-invalid", "mode", "`mode` must be shadow or canary"));
        }
    };
    let tenant_id = match reach(&request.tenant_id, request.platform_wide)? {
        Reach::Own => Some(own.clone()),
        Reach::Tenant(tenant) => Some(tenant),
        Reach::Platform => None,
    };
    Ok(StartRollout {
        rollout_id: validate::id("rollout_id", &request.rollout_id)?,
        tenant_id,
        agent_id: validate::id("agent_id", &request.agent_id)?,
        champion_semver: semver("champion_semver", request.champion_semver)?,
        challenger_semver: semver("challenger_semver", request.challenger_semver)?,
        mode,
        canary_fraction: Micros(request.canary_fraction_micros),
        reason: text("reason", request.reason)?,
    })
}

fn semver(field: &str, text: String) -> Result<String, Refusal> {
    let printable = text.bytes().all(|byte| byte.is_ascii_graphic());
    if text.is_empty() || text.len() > AGENT_NAME_BYTES_MAX || !printable {
        return Err(bad("semver-invalid", field, format!("`{field}` must be a version such as 1.2.3")));
    }
    Ok(text)
}

/// What is said of a run.
pub(crate) fn kind(number: i32) -> Result<FeedbackKind, Refusal> {
    Ok(match v1::FeedbackKind::try_from(number) {
        Ok(v1::FeedbackKind::Negative) => FeedbackKind::Negative,
        Ok(v1::FeedbackKind::Positive) => FeedbackKind::Positive,
        Ok(v1::FeedbackKind::Evaluation) => FeedbackKind::Evaluation,
        Ok(v1::FeedbackKind::Unspecified) | Err(_) => {
            return Err(bad("feedback-kind-invalid", "kind", "`kind` must be negative, positive or evaluation"));
        }
    })
}

/// An entry that is wanted in a gold set.
pub(crate) fn gold(request: v1::PromoteGoldSetEntryRequest) -> Result<PromoteGold, Refusal> {
    let limits = Limits { bytes_max: EXPECTED_BYTES_MAX, ..Limits::DEFAULT };
    let expected_output = json::parse_strict(&request.expected_output_json, limits)
        .map_err(|error| bad(error.code(), "expected_output_json", error.to_string()))?;
    if request.rubric.contains('\0') {
        return Err(bad("text-invalid", "rubric", "`rubric` may not contain the character NUL"));
    }
    Ok(PromoteGold {
        gold_set_id: validate::id("gold_set_id", &request.gold_set_id)?,
        source_run_id: validate::id("source_run_id", &request.source_run_id)?,
        expected_output,
        rubric: request.rubric,
    })
}

/// How many entries an answer has at most.
pub(super) fn entries(limit: u32) -> Result<usize, Refusal> {
    match limit as usize {
        0 => Ok(ENTRIES_DEFAULT),
        entries @ 1..=GOLD_ENTRIES_PAGE_MAX => Ok(entries),
        _ => Err(bad("limit-invalid", "limit", format!("`limit` may be at most {GOLD_ENTRIES_PAGE_MAX}"))),
    }
}
