//! Token buckets (THR): back-pressure that never ends a run.

use serde::{Deserialize, Serialize};

use crate::ids::{BucketId, TenantId};
use crate::quantity::Micros;

/// The rule of a bucket. A call takes from every bucket whose named attributes all equal its own (THR-005).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BucketRule {
    /// Names the bucket.
    pub bucket_id: BucketId,
    /// Only calls of this tenant; absent: one bucket for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<TenantId>,
    /// Only calls of this tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_id: Option<String>,
    /// Only calls of this user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    /// Only calls to this provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// Most tokens it holds.
    pub capacity: Micros,
    /// Tokens that come back per second.
    pub refill_per_second: Micros,
}

/// How a bucket stands, in micro-tokens (THR-002).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Bucket {
    /// Tokens left.
    pub tokens: Micros,
    /// Up to when refill has been counted, on a monotonic clock.
    pub last_refill_ms: i64,
}
