//! Shared grants on the wire: requests are read strictly, and answers say where a grant stands.

use serde::Deserialize;
use signalbox_domain::governance::budget::SECONDS_MAX;
use signalbox_domain::governance::grant::{Constraints, GrantScope};
use signalbox_domain::governance::granting::{IssueGrant, RenewGrant};
use signalbox_domain::ids::{GrantId, ToolId};
use signalbox_domain::json::{self, Limits};
use signalbox_domain::time::UnixMs;
use signalbox_proto::v1;
use signalbox_runtime::{GrantFilter, GrantStanding};
use tonic::Request;
use uuid::Uuid;

use super::{Governing, now, read};
use crate::api::ApiError;
use crate::errors::Refusal;
use crate::identity::caller_of;
use crate::validate::{self, bad};

/// Most bytes of a grant: two sets of bounds with their lists.
const GRANT_BYTES_MAX: usize = 256 << 10;

/// A grant as it is asked for; who issues it, when and for which tenant stands elsewhere.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GrantWish {
    grant_id: Option<GrantId>,
    scope: GrantScope,
    scope_key: Option<String>,
    tool_id: ToolId,
    tool_range: Option<String>,
    #[serde(default)]
    constraints: Constraints,
    delegable: Option<Constraints>,
}

impl Governing {
    pub(super) async fn issue(
        &self,
        request: Request<v1::IssueGrantRequest>,
    ) -> Result<v1::IssueGrantResponse, Refusal> {
        let caller = caller_of(&request)?;
        let request = request.into_inner();
        let dry_run = request.dry_run;
        let order = issuing(request, self.ids.fresh(), now())?;
        let (standing, replayed) = if dry_run {
            self.api.would_issue_grant(&caller, order).await?
        } else {
            self.api.issue_grant(&caller, order).await?
        };
        Ok(v1::IssueGrantResponse { grant: Some(grant(standing)?), replayed })
    }

    pub(super) async fn renew(
        &self,
        request: Request<v1::RenewGrantRequest>,
    ) -> Result<v1::RenewGrantResponse, Refusal> {
        use v1::renew_grant_request::Expiry;
        let caller = caller_of(&request)?;
        let request = request.into_inner();
        let expires_at_unix_ms = match request.expiry {
            None => None,
            Some(Expiry::ExpiresAtUnixMs(at)) => Some(UnixMs(at)),
            Some(Expiry::ExpiresAfterSeconds(seconds)) => Some(after(seconds, now())?),
        };
        let new_grant_id = match validate::optional_id("new_grant_id", &request.new_grant_id)? {
            Some(id) => id,
            None => fresh_id(self.ids.fresh())?,
        };
        let order = RenewGrant {
            grant_id: validate::id("grant_id", &request.grant_id)?,
            new_grant_id,
            expires_at_unix_ms,
            rationale: read::text("rationale", request.rationale)?,
            expected: read::expected(request.expected_revision),
        };
        let (standing, replayed) = if request.dry_run {
            self.api.would_renew_grant(&caller, order).await?
        } else {
            self.api.renew_grant(&caller, order).await?
        };
        Ok(v1::RenewGrantResponse { grant: Some(grant(standing)?), replayed })
    }

    pub(super) async fn revoke(
        &self,
        request: Request<v1::RevokeGrantRequest>,
    ) -> Result<v1::RevokeGrantResponse, Refusal> {
        let caller = caller_of(&request)?;
        let request = request.into_inner();
        let id = validate::id("grant_id", &request.grant_id)?;
        let reason = read::text("reason", request.reason)?;
        let expected = read::expected(request.expected_revision);
        let answer = if request.dry_run {
            self.api.would_revoke_grant(&caller, &id, &reason, expected).await?
        } else {
            self.api.revoke_grant(&caller, &id, &reason, expected).await?
        };
        Ok(v1::RevokeGrantResponse {
            grant: Some(grant(answer.standing)?),
            already: answer.already,
            revoked_grant_ids: answer.revoked.iter().map(ToString::to_string).collect(),
            epoch: answer.epoch,
            applied_after_micros: i64::try_from(answer.applied_after.as_micros()).unwrap_or(i64::MAX),
        })
    }

    pub(super) async fn grant(&self, request: Request<v1::GetGrantRequest>) -> Result<v1::GetGrantResponse, Refusal> {
        let caller = caller_of(&request)?;
        let id = validate::id("grant_id", &request.get_ref().grant_id)?;
        Ok(v1::GetGrantResponse { grant: Some(grant(self.api.grant(&caller, &id).await?)?) })
    }

    pub(super) async fn grants(
        &self,
        request: Request<v1::ListGrantsRequest>,
    ) -> Result<v1::ListGrantsResponse, Refusal> {
        let caller = caller_of(&request)?;
        let request = request.into_inner();
        let filter = GrantFilter {
            tenant_id: validate::optional_id("tenant_id", &request.tenant_id)?,
            tool_id: validate::optional_id("tool_id", &request.tool_id)?,
            scope: scope(&request.scope)?,
            all: request.all,
            after: validate::optional_id("after_grant_id", &request.after_grant_id)?,
            limit: read::rows(request.limit)?,
        };
        let grants = self.api.grants(&caller, &filter).await?.into_iter().map(grant);
        let heard = self.api.revocations();
        Ok(v1::ListGrantsResponse {
            grants: grants.collect::<Result<_, _>>()?,
            revocations: Some(v1::Revocations {
                applied: heard.applied,
                slo_missed: heard.slo_missed,
                slowest_ms: heard.slowest_ms,
            }),
        })
    }
}

fn issuing(request: v1::IssueGrantRequest, fresh: Uuid, now: UnixMs) -> Result<IssueGrant, Refusal> {
    use v1::issue_grant_request::Expiry;
    let limits = Limits { bytes_max: GRANT_BYTES_MAX, ..Limits::DEFAULT };
    let value = json::parse_strict(&request.grant_json, limits)
        .map_err(|error| bad(error.code(), "grant_json", error.to_string()))?;
    let wish: GrantWish =
        serde_json::from_value(value).map_err(|error| bad("grant-invalid", "grant_json", error.to_string()))?;
    Ok(IssueGrant {
        grant_id: wish.grant_id.map_or_else(|| fresh_id(fresh), Ok)?,
        tenant_id: validate::optional_id("tenant_id", &request.tenant_id)?,
        scope: wish.scope,
        scope_key: wish.scope_key,
        tool_id: wish.tool_id,
        tool_range: wish.tool_range,
        constraints: wish.constraints,
        delegable: wish.delegable,
        expires_at_unix_ms: match request.expiry {
            None => None,
            Some(Expiry::ExpiresAtUnixMs(at)) => Some(UnixMs(at)),
            Some(Expiry::ExpiresAfterSeconds(seconds)) => Some(after(seconds, now)?),
        },
        rationale: read::text("rationale", request.rationale)?,
    })
}

fn fresh_id(fresh: Uuid) -> Result<GrantId, Refusal> {
    validate::id("grant_id", &format!("grant-{fresh}"))
}

fn after(seconds: u64, now: UnixMs) -> Result<UnixMs, Refusal> {
    let seconds = i64::try_from(seconds).ok().filter(|seconds| (1..=SECONDS_MAX.cast_signed()).contains(seconds));
    let message = format!("`expires_after_seconds` must be between 1 and {SECONDS_MAX}");
    Ok(now.plus_seconds(seconds.ok_or_else(|| bad("expiry-invalid", "expires_after_seconds", message))?))
}

fn scope(text: &str) -> Result<Option<GrantScope>, Refusal> {
    if text.is_empty() {
        return Ok(None);
    }
    let known = GrantScope::ALL.into_iter().find(|scope| scope.as_str() == text);
    let message = "`scope` must be per-run, per-pipeline-instance, per-session, per-user or per-tenant";
    known.map(Some).ok_or_else(|| bad("grant-scope-invalid", "scope", message))
}

fn grant(standing: GrantStanding) -> Result<v1::Grant, Refusal> {
    let GrantStanding { grant, state, revision } = standing;
    let whole = serde_json::to_vec(&grant).map_err(|error| ApiError::Internal(error.to_string()))?;
    Ok(v1::Grant {
        grant_id: grant.grant_id.to_string(),
        tenant_id: grant.tenant_id.to_string(),
        grant_json: whole.into(),
        state: state.to_owned(),
        revision,
    })
}
