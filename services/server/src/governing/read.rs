//! Reading requests that manage governance: whatever is not exactly right is refused here, with the field named.

use signalbox_domain::governance::budget::{Budget, SECONDS_MAX};
use signalbox_domain::governance::budgeting::Expected;
use signalbox_domain::governance::kill_switch::{SWITCH_TEXT_BYTES_MAX, SwitchScope};
use signalbox_domain::governance::switching::{ArmSwitch, Reach};
use signalbox_domain::ids::SwitchId;
use signalbox_domain::json::{self, Limits};
use signalbox_domain::time::UnixMs;
use signalbox_proto::v1;
use signalbox_runtime::PutBudget;
use uuid::Uuid;

use crate::errors::Refusal;
use crate::validate::{self, bad};

/// Most bytes of a budget's rule: it has a dozen short fields.
const BUDGET_BYTES_MAX: usize = 16 << 10;
/// Longest text that names a thing of the audit journal, in bytes.
const SUBJECT_BYTES_MAX: usize = 256;
/// How many rows there are if no number is asked for.
const ROWS_DEFAULT: usize = 50;
/// Most rows of one answer.
pub(super) const ROWS_MAX: usize = 1_000;

/// A switch to be armed. `fresh` is its id if the caller has none; `now` is where "so many seconds" counts from.
pub(crate) fn order(request: v1::ArmSwitchRequest, fresh: Uuid, now: UnixMs) -> Result<ArmSwitch, Refusal> {
    use v1::arm_switch_request::Expiry;
    let scope = scope(request.scope)?;
    let switch_id = match validate::optional_id("switch_id", &request.switch_id)? {
        Some(id) => id,
        None => validate::id::<SwitchId>("switch_id", &format!("switch-{fresh}"))?,
    };
    let expires_at_unix_ms = match request.expiry {
        None => None,
        Some(Expiry::ExpiresAtUnixMs(at)) => Some(UnixMs(at)),
        Some(Expiry::ExpiresAfterSeconds(seconds)) => {
            let seconds =
                i64::try_from(seconds).ok().filter(|seconds| (1..=SECONDS_MAX.cast_signed()).contains(seconds));
            let message = format!("`expires_after_seconds` must be between 1 and {SECONDS_MAX}");
            Some(now.plus_seconds(seconds.ok_or_else(|| bad("expiry-invalid", "expires_after_seconds", message))?))
        }
    };
    Ok(ArmSwitch {
        switch_id,
        reach: reach(&request.tenant_id, request.platform_wide)?,
        scope,
        target_id: (!request.target_id.is_empty()).then_some(request.target_id),
        reason: text("reason", request.reason)?,
        user_visible_status_copy: text("user_visible_status_copy", request.user_visible_status_copy)?,
        safe_degradation_mode_id: (!request.safe_degradation_mode_id.is_empty())
            .then_some(request.safe_degradation_mode_id),
        expires_at_unix_ms,
    })
}

fn scope(number: i32) -> Result<SwitchScope, Refusal> {
    Ok(match v1::SwitchScope::try_from(number) {
        Ok(v1::SwitchScope::Agent) => SwitchScope::Agent,
        Ok(v1::SwitchScope::Family) => SwitchScope::Family,
        Ok(v1::SwitchScope::Tenant) => SwitchScope::Tenant,
        Ok(v1::SwitchScope::Provider) => SwitchScope::Provider,
        Ok(v1::SwitchScope::Region) => SwitchScope::Region,
        Ok(v1::SwitchScope::Tool) => SwitchScope::Tool,
        Ok(v1::SwitchScope::Global) => SwitchScope::Global,
        Ok(v1::SwitchScope::Unspecified) | Err(_) => {
            let message = "`scope` must be agent, family, tenant, provider, region, tool or global";
            return Err(bad("switch-scope-invalid", "scope", message));
        }
    })
}

/// Whose calls a rule concerns.
pub(crate) fn reach(tenant_id: &str, platform_wide: bool) -> Result<Reach, Refusal> {
    match (validate::optional_id("tenant_id", tenant_id)?, platform_wide) {
        (None, false) => Ok(Reach::Own),
        (None, true) => Ok(Reach::Platform),
        (Some(tenant), false) => Ok(Reach::Tenant(tenant)),
        (Some(_), true) => Err(bad("reach-invalid", "platform_wide", "name a tenant or say `platform_wide`, not both")),
    }
}

/// A text in words: shown to people, kept for ever.
pub(crate) fn text(field: &str, text: String) -> Result<String, Refusal> {
    if text.len() > SWITCH_TEXT_BYTES_MAX {
        let message = format!("`{field}` may have at most {SWITCH_TEXT_BYTES_MAX} bytes");
        return Err(bad("switch-text-too-long", field, message));
    }
    if text.contains('\0') {
        return Err(bad("text-invalid", field, format!("`{field}` may not contain the character NUL")));
    }
    Ok(text)
}

/// A budget that is wanted.
pub(crate) fn wish(request: v1::PutBudgetRequest) -> Result<PutBudget, Refusal> {
    let limits = Limits { bytes_max: BUDGET_BYTES_MAX, ..Limits::DEFAULT };
    let value = json::parse_strict(&request.budget_json, limits)
        .map_err(|error| bad(error.code(), "budget_json", error.to_string()))?;
    let budget: Budget =
        serde_json::from_value(value).map_err(|error| bad("budget-invalid", "budget_json", error.to_string()))?;
    let expected = match (request.expects_none, request.expected_revision) {
        (true, 0) => Expected::None,
        (true, _) => {
            let message = "`expects_none` and `expected_revision` cannot both be said";
            return Err(bad("revision-invalid", "expects_none", message));
        }
        (false, revision) => self::expected(revision),
    };
    Ok(PutBudget {
        budget,
        reach: reach(&request.tenant_id, request.platform_wide)?,
        reason: text("reason", request.reason)?,
        expected,
    })
}

/// The revision a caller has seen; 0 says nothing.
pub(crate) const fn expected(revision: u64) -> Expected {
    if revision == 0 { Expected::Any } else { Expected::Revision(revision) }
}

/// How many rows an answer has at most.
pub(crate) fn rows(limit: u32) -> Result<usize, Refusal> {
    match limit as usize {
        0 => Ok(ROWS_DEFAULT),
        rows @ 1..=ROWS_MAX => Ok(rows),
        _ => Err(bad("limit-invalid", "limit", format!("`limit` may be at most {ROWS_MAX}"))),
    }
}

/// The thing acts are asked about.
pub(super) fn subject(text: String) -> Result<Option<String>, Refusal> {
    if text.len() > SUBJECT_BYTES_MAX || text.contains('\0') {
        let message = format!("`subject` is a text such as switch:no-web, of at most {SUBJECT_BYTES_MAX} bytes");
        return Err(bad("subject-invalid", "subject", message));
    }
    Ok((!text.is_empty()).then_some(text))
}
