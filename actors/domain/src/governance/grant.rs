//! Grants (GRA): who may use which tool, on what, for how long. The most specific live one decides.

use serde::{Deserialize, Serialize};

use crate::ids::{ActorId, GrantId, SecretId, TenantId, ToolId};
use crate::quantity::Micros;
use crate::time::UnixMs;

/// What a grant is tied to (GRA-001).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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

/// Bounds on what may be done with a grant. An absent bound does not bind; an empty list allows nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
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
}
