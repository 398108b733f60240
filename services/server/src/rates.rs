//! How often one caller may ask: a bucket for each, of the type that throttles calls of tools (THR-006).
//!
//! One door for both edges. Who has no good credential has no bucket either: it is turned away before.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use signalbox_domain::governance::throttle::{
    Bucket, BucketError, BucketRule, TOKENS_PER_CALL, fresh, refill, take_all,
};
use signalbox_domain::ids::{ActorId, BucketId, IdError, TenantId};
use signalbox_domain::quantity::Micros;

use crate::api::{Caller, ErrorKind};
use crate::errors::{DETAIL_METER, DETAIL_RETRY, Refusal};

/// Names the bucket in refusals.
const METER: &str = "requests";
/// Most callers whose buckets are remembered. A full bucket is as good as none, so those are forgotten first.
const CALLERS_MAX: usize = 10_000;

/// How often one caller may ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestRate {
    /// Requests per second in the long run.
    pub per_second: u32,
    /// Requests at once after a rest.
    pub burst: u32,
}

/// Why a rate makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RateError {
    /// The bucket's rule is not sound.
    #[error(transparent)]
    Bucket(#[from] BucketError),
    /// The bucket has no name.
    #[error(transparent)]
    Name(#[from] IdError),
}

/// The buckets of all callers; none if no rate is set.
#[derive(Debug)]
pub(crate) struct Rates {
    rule: Option<BucketRule>,
    began: Instant,
    buckets: Mutex<HashMap<(TenantId, ActorId), Bucket>>,
}

impl Rates {
    pub(crate) fn new(rate: Option<RequestRate>) -> Result<Self, RateError> {
        let rule = rate.map(rule).transpose()?;
        Ok(Self { rule, began: Instant::now(), buckets: Mutex::default() })
    }

    /// Takes one request of the caller's.
    ///
    /// # Errors
    /// Its bucket is empty: when there will be a token again.
    pub(crate) fn take(&self, caller: &Caller) -> Result<(), Refusal> {
        self.take_at(caller, i64::try_from(self.began.elapsed().as_millis()).unwrap_or(i64::MAX))
    }

    fn take_at(&self, caller: &Caller, now_ms: i64) -> Result<(), Refusal> {
        let Some(rule) = &self.rule else { return Ok(()) };
        // Buckets are whole after every statement, so one that panicked has broken nothing.
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= CALLERS_MAX {
            forget(rule, &mut buckets, now_ms);
        }
        let key = (caller.tenant_id.clone(), caller.actor.actor_id.clone());
        let bucket = buckets.entry(key).or_insert_with(|| fresh(rule, now_ms));
        take_all(&mut [(rule, bucket)], TOKENS_PER_CALL, now_ms).map_err(|throttled| {
            let message = format!("too many requests; ask again after {} s", throttled.retry_after_seconds);
            Refusal::new(ErrorKind::Overloaded, "too-many-requests", message)
                .with(DETAIL_RETRY, throttled.retry_after_seconds.to_string())
                .with(DETAIL_METER, METER)
        })
    }
}

fn rule(rate: RequestRate) -> Result<BucketRule, RateError> {
    let rule = BucketRule {
        bucket_id: BucketId::new(METER)?,
        tenant_id: None,
        tool_id: None,
        user_id: None,
        provider_id: None,
        agent_id: None,
        per: Vec::new(),
        capacity: Micros::units(rate.burst.into()),
        refill_per_second: Micros::units(rate.per_second.into()),
    };
    rule.validate()?;
    Ok(rule)
}

// Those that are full; if none is, all of them: a caller is then let off once, and memory stays bounded.
fn forget(rule: &BucketRule, buckets: &mut HashMap<(TenantId, ActorId), Bucket>, now_ms: i64) {
    buckets.retain(|_, bucket| {
        refill(rule, bucket, now_ms);
        bucket.tokens < rule.capacity
    });
    if buckets.len() >= CALLERS_MAX {
        buckets.clear();
    }
}

#[cfg(test)]
mod tests {
    use signalbox_domain::identity::{Actor, Role};

    use super::*;

    fn caller(tenant: &str, actor: &str) -> Caller {
        let actor = Actor { actor_id: ActorId::new(actor).unwrap(), role: Role::Service };
        Caller { tenant_id: TenantId::new(tenant).unwrap(), actor, scopes: Vec::new(), surface: "api" }
    }

    fn rates(per_second: u32, burst: u32) -> Result<Rates, RateError> {
        Rates::new(Some(RequestRate { per_second, burst }))
    }

    #[test]
    fn a_caller_asks_as_often_as_its_bucket_has_tokens_and_hears_when_there_is_one_again() {
        let rates = rates(2, 3).unwrap();
        let ann = caller("acme", "ann");
        for _ in 0..3 {
            rates.take_at(&ann, 0).unwrap();
        }
        let refused = rates.take_at(&ann, 0).unwrap_err();
        assert_eq!((refused.code(), refused.detail(DETAIL_RETRY)), ("too-many-requests", Some("1")));
        rates.take_at(&ann, 500).unwrap();
        assert!(rates.take_at(&ann, 900).is_err());
    }

    #[test]
    fn nobody_pays_for_another_nor_for_a_namesake_in_another_tenant() {
        let rates = rates(1, 1).unwrap();
        for caller in [caller("acme", "ann"), caller("acme", "bob"), caller("globex", "ann")] {
            rates.take_at(&caller, 0).unwrap();
            assert!(rates.take_at(&caller, 0).is_err());
        }
    }

    #[test]
    fn however_many_callers_come_memory_is_bounded() {
        let rates = rates(1, 2).unwrap();
        for n in 0..(CALLERS_MAX * 2 + 5) {
            rates.take_at(&caller("acme", &format!("a{n}")), 0).unwrap();
        }
        assert!(rates.buckets.lock().unwrap().len() <= CALLERS_MAX);
    }

    #[test]
    fn a_rate_that_lets_nobody_in_is_refused() {
        assert_eq!(rates(0, 1).unwrap_err(), RateError::Bucket(BucketError::NoRefill));
        assert_eq!(rates(1, 0).unwrap_err(), RateError::Bucket(BucketError::TooSmall));
        let none = Rates::new(None).unwrap();
        (0..10_000).for_each(|_| none.take_at(&caller("acme", "ann"), 0).unwrap());
    }
}
