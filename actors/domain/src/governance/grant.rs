//! Grants (GRA): who may use which tool, on what, for how long. The most specific live one decides.

use serde::{Deserialize, Serialize};

use crate::catalog::version::{range_matches, range_parses};
use crate::governance::bounds;
use crate::ids::{ActorId, GrantId, RunId, SecretId, TenantId, ToolId};
use crate::quantity::Micros;
use crate::time::UnixMs;

/// How long after its end an expired grant can still be renewed: 24 hours (GRA-011).
pub const RENEWAL_WINDOW_MS: i64 = 24 * 3_600 * 1_000;

/// What a grant is tied to (GRA-001).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum GrantScope {
    /// Everybody of a tenant.
    PerTenant,
    /// One user.
    PerUser,
    /// One session.
    PerSession,
    /// One instance of a pipeline.
    PerPipelineInstance,
    /// One run.
    PerRun,
}

impl GrantScope {
    /// The wire string.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PerRun => "per-run",
            Self::PerPipelineInstance => "per-pipeline-instance",
            Self::PerSession => "per-session",
            Self::PerUser => "per-user",
            Self::PerTenant => "per-tenant",
        }
    }

    /// All five, from the most specific to the least.
    pub const ALL: [Self; 5] =
        [Self::PerRun, Self::PerPipelineInstance, Self::PerSession, Self::PerUser, Self::PerTenant];

    /// How specific it is; the highest live match decides (GRA-001).
    pub const fn priority(self) -> u8 {
        match self {
            Self::PerRun => 100,
            Self::PerPipelineInstance => 80,
            Self::PerSession => 60,
            Self::PerUser => 40,
            Self::PerTenant => 20,
        }
    }

    /// The longest life of such a grant in seconds; `None`: until its run or instance is over (GRA-007).
    pub const fn ttl_seconds_max(self) -> Option<i64> {
        match self {
            Self::PerRun | Self::PerPipelineInstance => None,
            Self::PerSession => Some(12 * 3_600),
            Self::PerUser => Some(30 * 86_400),
            Self::PerTenant => Some(90 * 86_400),
        }
    }
}

/// Bounds on what may be done with a grant. An absent bound does not bind; an empty list allows nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Constraints {
    /// Host patterns that may be reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Vec<String>>,
    /// Path prefixes (or whole paths) that may be touched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paths: Option<Vec<String>>,
    /// HTTP methods that may be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub methods: Option<Vec<String>>,
    /// URL schemes that may be used; `https` alone if absent (CAP-011).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schemes: Option<Vec<String>>,
    /// Secrets that may be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ids: Option<Vec<SecretId>>,
    /// Most calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_calls: Option<u64>,
    /// Most cost units of one call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost_units: Option<Micros>,
}

/// Permission to use one tool (GRA-006).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Grant {
    /// Names the grant.
    pub grant_id: GrantId,
    /// What it is tied to.
    pub scope: GrantScope,
    /// Which run, instance, session, user or tenant.
    pub scope_key: String,
    /// The tenant.
    pub tenant_id: TenantId,
    /// The tool.
    pub tool_id: ToolId,
    /// Versions of the tool it holds for.
    pub tool_range: String,
    /// What its holder may use.
    #[serde(default)]
    pub constraints: Constraints,
    /// What its holder may hand on; absent: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegable: Option<Constraints>,
    /// Who issued it.
    pub issued_by: ActorId,
    /// When.
    pub issued_at_unix_ms: UnixMs,
    /// When it ends; absent: with its run or instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at_unix_ms: Option<UnixMs>,
    /// When it was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at_unix_ms: Option<UnixMs>,
    /// Why it was issued.
    pub rationale: String,
    /// Names the record of its issue.
    pub audit_event_id: String,
    /// The grant that this one continues (GRA-011).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renewed_from_grant_id: Option<GrantId>,
}

/// What a grant is looked up for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrantQuery<'a> {
    /// The tenant.
    pub tenant_id: &'a TenantId,
    /// The tool.
    pub tool_id: &'a ToolId,
    /// The version of the tool that would be used.
    pub tool_semver: &'a str,
    /// The run.
    pub run_id: RunId,
    /// Who submitted the run.
    pub user_id: &'a ActorId,
    /// The session, if there is one.
    pub session_id: Option<&'a str>,
    /// The instance of a pipeline, if the run belongs to one.
    pub pipeline_instance: Option<&'a str>,
}

/// Why there is no grant for a call (GRA-003).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum GrantDenialReason {
    /// None was ever issued for this tool, version, tenant and scope.
    #[error("no grant matches")]
    NoMatchingGrant,
    /// Those that match have all expired.
    #[error("all matching grants have expired")]
    AllMatchesExpired,
    /// Those that match are all dead, at least one because it was revoked.
    #[error("all matching grants are revoked or have expired")]
    AllMatchesRevoked,
}

impl GrantDenialReason {
    /// Stable code.
    pub const fn code(self) -> &'static str {
        match self {
            Self::NoMatchingGrant => "no-matching-grant",
            Self::AllMatchesExpired => "all-matches-expired",
            Self::AllMatchesRevoked => "all-matches-revoked",
        }
    }
}

/// The grant that decides: the most specific that is live; among equals the one issued last, then the smallest id
/// (GRA-001, GRA-002, GRA-005).
///
/// # Errors
/// The reason why none is live.
pub fn resolve_grant<'a>(
    grants: impl Iterator<Item = &'a Grant>,
    query: &GrantQuery<'_>,
    now: UnixMs,
) -> Result<&'a Grant, GrantDenialReason> {
    let mut best: Option<&Grant> = None;
    let (mut expired, mut revoked) = (false, false);
    for grant in grants {
        let dead = grant.revoked_at_unix_ms.is_some() || grant.is_expired(now);
        // What cannot change the answer is not matched: a dead grant beside a live one, or one that yields to it.
        if best.is_some_and(|best| dead || !grant.precedes(best)) || !grant.matches(query) {
            continue;
        }
        if grant.revoked_at_unix_ms.is_some() {
            revoked = true;
        } else if dead {
            expired = true;
        } else {
            best = Some(grant);
        }
    }
    match best {
        Some(grant) => Ok(grant),
        None if revoked => Err(GrantDenialReason::AllMatchesRevoked),
        None if expired => Err(GrantDenialReason::AllMatchesExpired),
        None => Err(GrantDenialReason::NoMatchingGrant),
    }
}

impl Grant {
    /// Tool, version, tenant and scope key are exactly those asked for (GRA-006, ADM-012).
    pub fn matches(&self, query: &GrantQuery<'_>) -> bool {
        &self.tool_id == query.tool_id
            && &self.tenant_id == query.tenant_id
            && self.scope_key_matches(query)
            && self.range_holds(query.tool_semver)
    }

    /// It holds for this version of its tool.
    pub(super) fn range_holds(&self, tool_semver: &str) -> bool {
        range_matches(&self.tool_range, tool_semver)
    }

    /// Past its end.
    pub fn is_expired(&self, now: UnixMs) -> bool {
        self.expires_at_unix_ms.is_some_and(|end| now >= end)
    }

    /// It is tied to what the call belongs to.
    pub(super) fn scope_key_matches(&self, query: &GrantQuery<'_>) -> bool {
        let key = self.scope_key.as_str();
        match self.scope {
            GrantScope::PerRun => key.parse().is_ok_and(|run_id: RunId| run_id == query.run_id),
            GrantScope::PerPipelineInstance => query.pipeline_instance == Some(key),
            GrantScope::PerSession => query.session_id == Some(key),
            GrantScope::PerUser => key == query.user_id.as_str(),
            GrantScope::PerTenant => key == query.tenant_id.as_str(),
        }
    }

    fn precedes(&self, other: &Self) -> bool {
        let rank = |grant: &Self| (grant.scope.priority(), grant.issued_at_unix_ms);
        rank(self).cmp(&rank(other)).then_with(|| other.grant_id.cmp(&self.grant_id)).is_gt()
    }

    /// Where it stands: `live`, `expired` or `revoked`.
    pub fn standing(&self, now: UnixMs) -> &'static str {
        if self.revoked_at_unix_ms.is_some() {
            "revoked"
        } else if self.is_expired(now) {
            "expired"
        } else {
            "live"
        }
    }

    /// Checks that the grant makes sense before it is issued (GRA-006, GRA-007).
    ///
    /// # Errors
    /// The first thing that does not.
    pub fn validate(&self) -> Result<(), GrantError> {
        if self.rationale.trim().is_empty() {
            return Err(GrantError::RationaleRequired);
        }
        if self.audit_event_id.trim().is_empty() {
            return Err(GrantError::AuditRequired);
        }
        if !range_parses(&self.tool_range) {
            return Err(GrantError::BadToolRange(self.tool_range.chars().take(64).collect()));
        }
        if self.scope_key.is_empty()
            || (self.scope == GrantScope::PerTenant && self.scope_key != self.tenant_id.as_str())
        {
            return Err(GrantError::BadScopeKey);
        }
        if let Some(ttl) = self.scope.ttl_seconds_max() {
            let last = self.issued_at_unix_ms.plus_seconds(ttl);
            if self.expires_at_unix_ms.is_none_or(|end| end > last) {
                return Err(GrantError::TtlTooLong { seconds_max: ttl });
            }
        }
        bounds::check(&self.constraints)?;
        if let Some(delegable) = &self.delegable {
            bounds::check(delegable)?;
            bounds::within(delegable, &self.constraints).map_err(GrantError::DelegableTooWide)?;
        }
        Ok(())
    }
}

/// Why a grant is not issued or renewed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrantError {
    /// No reason given.
    #[error("`rationale` is empty; say why the grant is needed")]
    RationaleRequired,
    /// No record named.
    #[error("`auditEventId` is empty; name the record of this decision")]
    AuditRequired,
    /// Not a range of versions.
    #[error("`{0}` is not a range of versions, such as ^1.0.0")]
    BadToolRange(String),
    /// No scope key, or one that contradicts the tenant.
    #[error("`scopeKey` must name what the grant is tied to; for `per-tenant` it is the tenant itself")]
    BadScopeKey,
    /// It would live too long.
    #[error("a grant of this scope must end within {seconds_max} seconds")]
    TtlTooLong {
        /// The longest life.
        seconds_max: i64,
    },
    /// A bound that nothing could keep to, or that bounds nothing.
    #[error("the bound `{field}` {problem}")]
    BadBound {
        /// Which.
        field: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// More could be handed on than may be used: the second bound lies inside the first.
    #[error("`delegable.{0}` allows what `constraints.{0}` does not; hand on a part of it")]
    DelegableTooWide(&'static str),
    /// A revoked grant stays revoked.
    #[error("the grant was revoked; issue a new one")]
    Revoked,
    /// Expired for too long.
    #[error("the grant expired more than 24 hours ago; issue a new one")]
    ExpiredTooLong,
}

impl GrantError {
    /// Stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::RationaleRequired => "rationale-required",
            Self::AuditRequired => "audit-required",
            Self::BadToolRange(_) => "tool-range-invalid",
            Self::BadScopeKey => "scope-key-invalid",
            Self::TtlTooLong { .. } => "ttl-too-long",
            Self::BadBound { .. } => "grant-bound-invalid",
            Self::DelegableTooWide(_) => "grant-delegable-too-wide",
            Self::Revoked => "grant-revoked",
            Self::ExpiredTooLong => "grant-expired",
        }
    }
}

/// What a renewal is asked for with (GRA-010).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renewal {
    /// Names the new grant.
    pub grant_id: GrantId,
    /// Who renews it.
    pub issued_by: ActorId,
    /// When the new one ends.
    pub expires_at_unix_ms: Option<UnixMs>,
    /// Why.
    pub rationale: String,
    /// Names the record of the renewal.
    pub audit_event_id: String,
}

/// Makes a new grant that continues an old one (GRA-010, GRA-011).
///
/// # Errors
/// A renewal without rationale or record, of a revoked grant, of one that expired more than 24 hours ago, or for longer
/// than its scope allows.
pub fn renew_grant(old: &Grant, renewal: Renewal, now: UnixMs) -> Result<Grant, GrantError> {
    let grant = Grant {
        grant_id: renewal.grant_id,
        issued_by: renewal.issued_by,
        issued_at_unix_ms: now,
        expires_at_unix_ms: renewal.expires_at_unix_ms,
        revoked_at_unix_ms: None,
        rationale: renewal.rationale,
        audit_event_id: renewal.audit_event_id,
        renewed_from_grant_id: Some(old.grant_id.clone()),
        ..old.clone()
    };
    grant.validate()?;
    if old.revoked_at_unix_ms.is_some() {
        return Err(GrantError::Revoked);
    }
    if old.expires_at_unix_ms.is_some_and(|end| now.since(end) > RENEWAL_WINDOW_MS) {
        return Err(GrantError::ExpiredTooLong);
    }
    Ok(grant)
}

/// The places of the grants that a renewal has tied to this one, itself among them: what it continues, and what continues it.
/// They are revoked together, or a renewed grant would fall back on the one before it.
pub fn line_of(grants: &[Grant], grant_id: &GrantId) -> Vec<usize> {
    let mut line: Vec<usize> = (0..grants.len()).filter(|at| grants[*at].grant_id == *grant_id).collect();
    let mut seen = 0;
    while let Some(&at) = line.get(seen) {
        seen += 1;
        let own = &grants[at];
        let is_next = |other: &Grant| {
            own.renewed_from_grant_id.as_ref() == Some(&other.grant_id)
                || other.renewed_from_grant_id.as_ref() == Some(&own.grant_id)
        };
        let next = (0..grants.len()).filter(|at| !line.contains(at) && is_next(&grants[*at]));
        let next: Vec<usize> = next.collect();
        line.extend(next);
    }
    line
}
