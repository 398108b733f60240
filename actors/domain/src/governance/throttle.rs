//! Token buckets (THR): back-pressure that never ends a run.

use serde::{Deserialize, Serialize};

use crate::governance::target::Target;
use crate::ids::{BucketId, ProviderId, TenantId};
use crate::quantity::Micros;

/// What one call takes unless something else is said.
pub const TOKENS_PER_CALL: Micros = Micros::units(1);
/// Capacity of a provider's bucket if nothing else is configured (THR-005).
pub const PROVIDER_CAPACITY_DEFAULT: Micros = Micros::units(50);
/// Refill of a provider's bucket if nothing else is configured (THR-005).
pub const PROVIDER_REFILL_PER_SECOND_DEFAULT: Micros = Micros::units(10);
/// Longest wait that is ever told, in seconds: a day.
pub const RETRY_AFTER_SECONDS_MAX: u64 = 86_400;

/// Most a bucket may hold and most that may come back per second, in tokens: beyond it nothing is slowed.
pub const TOKENS_MAX: Micros = Micros::units(1_000_000_000);

/// What a rule may keep a bucket for each of (THR-005).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyKind {
    /// Each tenant.
    Tenant,
    /// Each user of each tenant.
    User,
    /// Each agent.
    Agent,
    /// Each tool.
    Tool,
    /// Each provider; a call to none takes nothing.
    Provider,
}

impl KeyKind {
    /// All five.
    pub const ALL: [Self; 5] = [Self::Tenant, Self::User, Self::Agent, Self::Tool, Self::Provider];

    /// The wire string.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tenant => "tenant",
            Self::User => "user",
            Self::Agent => "agent",
            Self::Tool => "tool",
            Self::Provider => "provider",
        }
    }
}

/// One bucket of a rule: the rule's own, or the one it keeps for these values.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BucketKey {
    /// The rule.
    pub bucket_id: BucketId,
    /// The values of what it keeps one for each of, in the order it names them; a user stands behind its tenant.
    pub of: Vec<String>,
}

/// The rule of a bucket, or of one bucket for each of something. A call takes from every rule whose named attributes all equal
/// its own (THR-005). A rule that names no tenant is platform-wide: what it keeps is shared by all, unless it keeps one for
/// each tenant or user.
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
    /// Only calls of this agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// One bucket for each of these together, such as for each tool of each tenant; empty: one for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub per: Vec<KeyKind>,
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

/// Why a call has to wait.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Throttled {
    /// The bucket that makes it wait the longest.
    pub bucket_id: BucketId,
    /// For how long, in whole seconds, at least one (THR-003).
    pub retry_after_seconds: u64,
}

/// Why a rule makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BucketError {
    /// No call would ever fit in.
    #[error("`capacity` must be at least 1, or no call ever passes")]
    TooSmall,
    /// More than can be meant.
    #[error("`{0}` may be at most {TOKENS_MAX}")]
    TooLarge(&'static str),
    /// The same kind twice.
    #[error("`per` names `{}` twice", .0.as_str())]
    KeyTwice(KeyKind),
    /// It would never fill again.
    #[error("`refillPerSecond` must be above 0, or the bucket never fills again")]
    NoRefill,
}

impl BucketError {
    /// Stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::TooSmall => "bucket-too-small",
            Self::TooLarge(_) => "bucket-too-large",
            Self::KeyTwice(_) => "bucket-key-twice",
            Self::NoRefill => "bucket-no-refill",
        }
    }
}

impl BucketRule {
    /// Checks that the rule makes sense (THR-003).
    ///
    /// # Errors
    /// The first thing that does not.
    pub fn validate(&self) -> Result<(), BucketError> {
        if self.capacity < TOKENS_PER_CALL {
            return Err(BucketError::TooSmall);
        }
        if self.refill_per_second <= Micros::ZERO {
            return Err(BucketError::NoRefill);
        }
        if self.capacity > TOKENS_MAX {
            return Err(BucketError::TooLarge("capacity"));
        }
        if self.refill_per_second > TOKENS_MAX {
            return Err(BucketError::TooLarge("refillPerSecond"));
        }
        if let Some((_, kind)) = self.per.iter().enumerate().find(|(at, kind)| self.per[..*at].contains(kind)) {
            return Err(BucketError::KeyTwice(*kind));
        }
        Ok(())
    }
}

/// True if calls with this target take from the bucket: every attribute it names equals theirs (THR-005).
pub fn applies(rule: &BucketRule, target: &Target) -> bool {
    let fits = |named: Option<&str>, own: Option<&str>| named.is_none() || named == own;
    fits(rule.tenant_id.as_ref().map(TenantId::as_str), Some(target.tenant_id.as_str()))
        && fits(rule.tool_id.as_deref(), Some(target.tool_id.as_str()))
        && fits(rule.user_id.as_deref(), Some(target.user_id.as_str()))
        && fits(rule.agent_id.as_deref(), Some(target.agent_id.as_str()))
        && fits(rule.provider_id.as_deref(), target.provider_id.as_ref().map(ProviderId::as_str))
        && (target.provider_id.is_some() || !rule.per.contains(&KeyKind::Provider))
}

/// The bucket of a rule that a call with this target takes from; `None` if the rule does not apply to it.
pub fn key_of(rule: &BucketRule, target: &Target) -> Option<BucketKey> {
    let value = |kind: &KeyKind| match kind {
        KeyKind::Tenant => target.tenant_id.to_string(),
        KeyKind::User => format!("{}/{}", target.tenant_id, target.user_id),
        KeyKind::Agent => target.agent_id.to_string(),
        KeyKind::Tool => target.tool_id.to_string(),
        KeyKind::Provider => target.provider_id.as_ref().map(ToString::to_string).unwrap_or_default(),
    };
    applies(rule, target)
        .then(|| BucketKey { bucket_id: rule.bucket_id.clone(), of: rule.per.iter().map(value).collect() })
}

/// What there is if nothing else is configured: a bucket for each provider (THR-005).
pub fn default_rules() -> Vec<BucketRule> {
    vec![BucketRule {
        bucket_id: BucketId::constant("provider"),
        tenant_id: None,
        tool_id: None,
        user_id: None,
        provider_id: None,
        agent_id: None,
        per: vec![KeyKind::Provider],
        capacity: PROVIDER_CAPACITY_DEFAULT,
        refill_per_second: PROVIDER_REFILL_PER_SECOND_DEFAULT,
    }]
}

/// A bucket that has just been set up: full (THR-004).
pub const fn fresh(rule: &BucketRule, now_ms: i64) -> Bucket {
    Bucket { tokens: rule.capacity, last_refill_ms: now_ms }
}

/// Adds what has come back since the last refill. A clock that steps back adds and takes nothing; time that was not
/// enough for a whole micro-token is counted next time (THR-002, THR-004).
pub fn refill(rule: &BucketRule, bucket: &mut Bucket, now_ms: i64) {
    let elapsed_ms = i128::from(now_ms) - i128::from(bucket.last_refill_ms);
    let per_second = i128::from(rule.refill_per_second.0);
    if elapsed_ms <= 0 || per_second <= 0 {
        return;
    }
    let gained = per_second * elapsed_ms / 1_000;
    let room = i128::from(rule.capacity.0) - i128::from(bucket.tokens.0);
    if gained >= room {
        // Full: the time beyond that is gone.
        *bucket = Bucket { tokens: rule.capacity.max(bucket.tokens), last_refill_ms: now_ms };
        return;
    }
    // Rounded up, so that no instant is ever counted twice; at most one micro-token is lost by it.
    let used_ms = (gained * 1_000 + per_second - 1) / per_second;
    // Both fit: `gained` is below `room`, and `used_ms` is at most `elapsed_ms`.
    bucket.tokens = Micros(i64::try_from(i128::from(bucket.tokens.0) + gained).unwrap_or(bucket.tokens.0));
    bucket.last_refill_ms = i64::try_from(i128::from(bucket.last_refill_ms) + used_ms).unwrap_or(now_ms);
}

/// Takes `n` tokens from every bucket, or from none (THR-005).
///
/// # Errors
/// The bucket that makes the call wait the longest, and for how long.
pub fn take_all(pairs: &mut [(&BucketRule, &mut Bucket)], n: Micros, now_ms: i64) -> Result<(), Throttled> {
    match longest_wait(pairs, n, now_ms) {
        Some((_, throttled)) => Err(throttled),
        None => {
            take(pairs, n);
            Ok(())
        }
    }
}

/// Returns `n` tokens to every bucket: the call they were taken for was not made.
pub fn give_back(pairs: &mut [(&BucketRule, &mut Bucket)], n: Micros) {
    for (rule, bucket) in pairs {
        bucket.tokens = bucket.tokens.plus(n).min(rule.capacity);
    }
}

fn take(pairs: &mut [(&BucketRule, &mut Bucket)], n: Micros) {
    for (_, bucket) in pairs {
        bucket.tokens = bucket.tokens.minus(n);
    }
}

/// Refills all and finds the longest wait for `n` tokens, in milliseconds; `None` if all have enough.
fn longest_wait(pairs: &mut [(&BucketRule, &mut Bucket)], n: Micros, now_ms: i64) -> Option<(i64, Throttled)> {
    let mut longest: Option<(i64, &BucketRule)> = None;
    for (rule, bucket) in pairs {
        refill(rule, bucket, now_ms);
        if bucket.tokens >= n {
            continue;
        }
        let wait_ms = wait_ms(rule, n.minus(bucket.tokens));
        if longest.is_none_or(|(other_ms, _)| wait_ms > other_ms) {
            longest = Some((wait_ms, rule));
        }
    }
    longest.map(|(wait_ms, rule)| (wait_ms, throttled(rule, wait_ms)))
}

/// The wait as it is told (THR-003).
pub(super) fn throttled(rule: &BucketRule, wait_ms: i64) -> Throttled {
    let seconds = u64::try_from(wait_ms).unwrap_or(0).div_ceil(1_000).clamp(1, RETRY_AFTER_SECONDS_MAX);
    Throttled { bucket_id: rule.bucket_id.clone(), retry_after_seconds: seconds }
}

/// How long the bucket takes to gain so many tokens, in milliseconds.
pub(super) fn wait_ms(rule: &BucketRule, missing: Micros) -> i64 {
    let per_second = i128::from(rule.refill_per_second.0.max(1));
    let wait = (i128::from(missing.0) * 1_000 + per_second - 1) / per_second;
    i64::try_from(wait).unwrap_or(i64::MAX)
}
