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

/// Why a call has to wait.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Throttled {
    /// The bucket that makes it wait the longest.
    pub bucket_id: BucketId,
    /// For how long, in whole seconds, at least one (THR-003).
    pub retry_after_seconds: u64,
}

/// A place in the queue: the tokens are already taken, and there when the time has come (ADM-018).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ticket {
    /// When the call may go without asking again, on the clock the buckets are kept on.
    pub due_ms: i64,
    /// The wait as it is told to the caller.
    pub throttled: Throttled,
}

/// Why a rule makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BucketError {
    /// No call would ever fit in.
    #[error("`capacity` must be at least 1, or no call ever passes")]
    TooSmall,
    /// It would never fill again.
    #[error("`refillPerSecond` must be above 0, or the bucket never fills again")]
    NoRefill,
}

impl BucketError {
    /// Stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::TooSmall => "bucket-too-small",
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
        Ok(())
    }
}

/// True if calls with this target take from the bucket: every attribute it names equals theirs (THR-005).
pub fn applies(rule: &BucketRule, target: &Target) -> bool {
    let fits = |named: Option<&str>, own: Option<&str>| named.is_none() || named == own;
    fits(rule.tenant_id.as_ref().map(TenantId::as_str), Some(target.tenant_id.as_str()))
        && fits(rule.tool_id.as_deref(), Some(target.tool_id.as_str()))
        && fits(rule.user_id.as_deref(), Some(target.user_id.as_str()))
        && fits(rule.provider_id.as_deref(), target.provider_id.as_ref().map(ProviderId::as_str))
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

/// Takes `n` tokens from every bucket now, on credit if they are not there, and says when the credit is paid back. So
/// those who wait are served in the order they came, and each wakes once (ADM-018). A call that gives up its place
/// returns the tokens with [`give_back`].
pub fn take_ticket(pairs: &mut [(&BucketRule, &mut Bucket)], n: Micros, now_ms: i64) -> Option<Ticket> {
    let wait = longest_wait(pairs, n, now_ms);
    take(pairs, n);
    wait.map(|(wait_ms, throttled)| Ticket { due_ms: now_ms.saturating_add(wait_ms), throttled })
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
    longest.map(|(wait_ms, rule)| {
        let seconds = u64::try_from(wait_ms).unwrap_or(0).div_ceil(1_000).clamp(1, RETRY_AFTER_SECONDS_MAX);
        (wait_ms, Throttled { bucket_id: rule.bucket_id.clone(), retry_after_seconds: seconds })
    })
}

fn wait_ms(rule: &BucketRule, missing: Micros) -> i64 {
    let per_second = i128::from(rule.refill_per_second.0.max(1));
    let wait = (i128::from(missing.0) * 1_000 + per_second - 1) / per_second;
    i64::try_from(wait).unwrap_or(i64::MAX)
}
