//! Who waits at the token buckets, and whose turn it is (ADM-018).
//!
//! A call that finds a bucket empty is given a place. Places are served in the order they were given: a call goes when every
//! bucket it takes from has its tokens, and those tokens are taken for it then, all at once (THR-005). Nobody asks again and
//! again: [`Queue::serve`] says whose turn has come, and [`Queue::next_ms`] when to call it next.
//!
//! Fairness where one call takes from several buckets: a call that is the first to wait at each bucket it still lacks holds its
//! tokens in another from the moment on from which that one could not gain them again in time, and not before. So the oldest
//! call always goes in the end, and a slow bucket does not keep a fast one from those who need only that.
//!
//! Invariant: what was taken is taken from a bucket that had it. Credit would let calls that wait for one bucket empty another.

use std::collections::{BTreeMap, BTreeSet};

use crate::governance::target::Target;
use crate::governance::throttle::{
    Bucket, BucketKey, BucketRule, TOKENS_PER_CALL, Throttled, fresh, key_of, refill, throttled, wait_ms,
};
use crate::ids::{CallId, RunKey};
use crate::quantity::Micros;

/// How long tokens are kept for a call that does not come for them, in milliseconds.
pub const KEPT_MS: i64 = 60_000;
/// Buckets that are kept before the full ones, which a fresh one would equal, are forgotten.
const BUCKETS_KEPT: usize = 4_096;

/// Whose call it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Claimant {
    /// The run.
    pub run_key: RunKey,
    /// The call: the same however often it asks.
    pub call_id: CallId,
}

#[derive(Debug)]
struct Place {
    who: Claimant,
    target: Target,
    /// The rule of each, by its place in the list, and its bucket.
    keys: Vec<(usize, BucketKey)>,
    /// Until when it was told to wait.
    told_until_ms: i64,
}

/// Tokens that were taken for a call that has not gone yet.
#[derive(Debug)]
struct Kept {
    run_key: RunKey,
    keys: Vec<BucketKey>,
    /// Given back if nobody has come by then.
    until_ms: i64,
}

/// All buckets of a node, and who waits at them.
#[derive(Debug, Default)]
pub struct Queue {
    rules: Vec<BucketRule>,
    buckets: BTreeMap<BucketKey, Bucket>,
    /// By the order of arrival.
    waiting: BTreeMap<u64, Place>,
    arrival_of: BTreeMap<CallId, u64>,
    arrivals: u64,
    kept: BTreeMap<CallId, Kept>,
    /// How many wait at each bucket.
    waiters: BTreeMap<BucketKey, u64>,
    /// Tokens held for those who are first everywhere else.
    held: BTreeMap<BucketKey, Micros>,
    /// Whose turn has come and who was not told yet.
    called: Vec<Claimant>,
    next_ms: Option<i64>,
    /// When it was last looked for tokens that nobody came for.
    looked_ms: i64,
    /// So many buckets are kept before full ones are forgotten.
    kept_max: usize,
}

impl Queue {
    /// A queue under these rules.
    pub fn new(rules: Vec<BucketRule>) -> Self {
        Self { rules, ..Self::default() }
    }

    /// From now on these rules hold, for those who wait too; [`serve`](Self::serve) says who may go by them. A bucket whose
    /// rule stays keeps its tokens, as far as they fit.
    pub fn set_rules(&mut self, rules: &[BucketRule], now_ms: i64) {
        if self.rules == rules {
            return;
        }
        let old: BTreeMap<_, _> = self.rules.iter().map(|rule| (&rule.bucket_id, rule)).collect();
        let new: BTreeMap<_, _> = rules.iter().map(|rule| (&rule.bucket_id, rule)).collect();
        self.buckets.retain(|key, bucket| match (old.get(&key.bucket_id), new.get(&key.bucket_id)) {
            (Some(old), Some(new)) if old.per == new.per => {
                // What has come back until now came at the old rate.
                refill(old, bucket, now_ms);
                bucket.tokens = bucket.tokens.min(new.capacity);
                true
            }
            (_, _) => false,
        });
        self.rules = rules.to_vec();
        self.waiters.clear();
        for place in self.waiting.values_mut() {
            place.keys = keys(&self.rules, &place.target);
            for (_, key) in &place.keys {
                *self.waiters.entry(key.clone()).or_default() += 1;
            }
        }
        self.next_ms = Some(now_ms);
    }

    /// Takes the tokens of a call from every bucket that applies to it, or gives it a place. Asking again changes nothing: a
    /// call keeps its place, and what was taken for it stays its own until it is [`used`](Self::used) or given up.
    ///
    /// # Errors
    /// The bucket that makes it wait the longest, and for how long, those before it counted.
    pub fn take(&mut self, who: Claimant, target: &Target, now_ms: i64) -> Result<(), Throttled> {
        if let Some(kept) = self.kept.get_mut(&who.call_id) {
            kept.until_ms = now_ms.saturating_add(KEPT_MS);
            return Ok(());
        }
        if let Some(arrival) = self.arrival_of.get(&who.call_id).copied() {
            self.serve_now(now_ms);
            return self.answer(who, arrival, now_ms);
        }
        let keys = keys(&self.rules, target);
        if keys.is_empty() {
            return Ok(());
        }
        if now_ms >= self.looked_ms.saturating_add(KEPT_MS) {
            self.kept_too_long(now_ms);
        }
        let lacking: Vec<&BucketKey> =
            keys.iter().filter(|(at, key)| self.free(*at, key, now_ms) < TOKENS_PER_CALL).map(|(_, key)| key).collect();
        let is_alone = keys.iter().all(|(_, key)| !self.waiters.contains_key(key));
        if lacking.is_empty() && is_alone {
            self.keep(who, keys.into_iter().map(|(_, key)| key).collect(), now_ms, now_ms);
            return Ok(());
        }
        // Whoever only stands behind others changes nothing for anybody.
        let stands_behind = lacking.iter().any(|key| self.waiters.contains_key(*key));
        let arrival = self.arrivals;
        self.arrivals += 1;
        for (_, key) in &keys {
            *self.waiters.entry(key.clone()).or_default() += 1;
        }
        self.arrival_of.insert(who.call_id, arrival);
        self.waiting.insert(arrival, Place { who, target: target.clone(), keys, told_until_ms: now_ms });
        if !stands_behind {
            self.serve_now(now_ms);
        }
        self.answer(who, arrival, now_ms)
    }

    /// Those whose turn has come: what they take is theirs, and they are to be told.
    pub fn serve(&mut self, now_ms: i64) -> Vec<Claimant> {
        self.kept_too_long(now_ms);
        self.serve_now(now_ms);
        std::mem::take(&mut self.called)
    }

    /// When [`serve`](Self::serve) has something to do next; `None`: not before somebody asks.
    pub fn next_ms(&self) -> Option<i64> {
        if !self.called.is_empty() {
            return Some(i64::MIN);
        }
        self.next_ms
    }

    /// The call has gone: what was taken for it is spent.
    pub fn used(&mut self, call_id: CallId) {
        self.kept.remove(&call_id);
    }

    /// The call will not be made: its place, or what was taken for it, is free again.
    pub fn leave(&mut self, call_id: CallId, now_ms: i64) {
        if let Some(kept) = self.kept.remove(&call_id) {
            self.give_back(&kept, now_ms);
        }
        if let Some(arrival) = self.arrival_of.get(&call_id).copied() {
            self.leave_place(arrival);
            self.next_ms = Some(now_ms);
        }
    }

    /// The run is over: the same for all its calls.
    pub fn leave_all(&mut self, run_key: RunKey, now_ms: i64) {
        let waiting = self.waiting.values().filter(|place| place.who.run_key == run_key).map(|place| place.who.call_id);
        let kept = self.kept.iter().filter(|(_, kept)| kept.run_key == run_key).map(|(call_id, _)| *call_id);
        let calls: Vec<CallId> = waiting.chain(kept).collect();
        calls.into_iter().for_each(|call_id| self.leave(call_id, now_ms));
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// How many buckets are remembered: those that are not full.
    pub fn buckets_kept(&self) -> usize {
        self.buckets.len()
    }

    fn serve_now(&mut self, now_ms: i64) {
        // The buckets at which somebody before waits.
        let mut first: BTreeSet<BucketKey> = BTreeSet::new();
        let mut next: Option<i64> = None;
        self.held.clear();
        for (arrival, place) in std::mem::take(&mut self.waiting) {
            let mut lacking = Vec::new();
            for (at, key) in &place.keys {
                let free = self.free(*at, key, now_ms);
                if free < TOKENS_PER_CALL {
                    lacking.push((*at, key, TOKENS_PER_CALL.minus(free)));
                }
            }
            if lacking.is_empty() {
                self.forget(&place);
                let keys = place.keys.into_iter().map(|(_, key)| key).collect();
                self.keep(place.who, keys, place.told_until_ms, now_ms);
                self.called.push(place.who);
                continue;
            }
            if lacking.iter().all(|(_, key, _)| !first.contains(*key)) {
                let mut due = now_ms;
                for (at, key, missing) in &lacking {
                    first.insert((*key).clone());
                    // A bucket that is full but for what is held gains nothing by waiting.
                    let has = self.buckets.get(*key).map_or(Micros::ZERO, |bucket| bucket.tokens);
                    if has.plus(*missing) <= self.rules[*at].capacity {
                        let gains = now_ms.saturating_add(wait_ms(&self.rules[*at], *missing).max(1));
                        next = Some(next.map_or(gains, |next| next.min(gains)));
                        due = due.max(gains);
                    }
                }
                for (at, key) in &place.keys {
                    if lacking.iter().any(|(_, other, _)| *other == key) {
                        continue;
                    }
                    let from = due.saturating_sub(wait_ms(&self.rules[*at], TOKENS_PER_CALL));
                    if from <= now_ms {
                        let held = self.held.entry(key.clone()).or_default();
                        *held = held.plus(TOKENS_PER_CALL);
                    } else {
                        next = Some(next.map_or(from, |next| next.min(from)));
                    }
                }
            }
            self.waiting.insert(arrival, place);
        }
        self.next_ms = next;
    }

    /// Tokens of a bucket that are held for nobody.
    fn free(&mut self, at: usize, key: &BucketKey, now_ms: i64) -> Micros {
        if self.buckets.len() >= self.kept_max.max(BUCKETS_KEPT) && !self.buckets.contains_key(key) {
            self.forget_full(now_ms);
        }
        let rule = &self.rules[at];
        let bucket = self.buckets.entry(key.clone()).or_insert_with(|| fresh(rule, now_ms));
        refill(rule, bucket, now_ms);
        bucket.tokens.minus(self.held.get(key).copied().unwrap_or_default())
    }

    /// A full bucket says nothing that a fresh one does not.
    fn forget_full(&mut self, now_ms: i64) {
        let rules: BTreeMap<_, _> = self.rules.iter().map(|rule| (&rule.bucket_id, rule)).collect();
        self.buckets.retain(|key, bucket| {
            rules.get(&key.bucket_id).is_some_and(|rule| {
                refill(rule, bucket, now_ms);
                bucket.tokens < rule.capacity
            })
        });
        self.kept_max = self.buckets.len() * 2;
    }

    /// Takes a call's tokens and keeps them for it.
    fn keep(&mut self, who: Claimant, keys: Vec<BucketKey>, told_until_ms: i64, now_ms: i64) {
        for key in &keys {
            if let Some(bucket) = self.buckets.get_mut(key) {
                bucket.tokens = bucket.tokens.minus(TOKENS_PER_CALL);
            }
        }
        // Whoever was told to come later comes later.
        let until_ms = told_until_ms.max(now_ms).saturating_add(KEPT_MS);
        self.kept.insert(who.call_id, Kept { run_key: who.run_key, keys, until_ms });
    }

    fn kept_too_long(&mut self, now_ms: i64) {
        self.looked_ms = now_ms;
        let late: Vec<CallId> =
            self.kept.iter().filter(|(_, kept)| kept.until_ms <= now_ms).map(|(call_id, _)| *call_id).collect();
        for call_id in late {
            if let Some(kept) = self.kept.remove(&call_id) {
                self.give_back(&kept, now_ms);
            }
        }
    }

    fn give_back(&mut self, kept: &Kept, now_ms: i64) {
        for key in &kept.keys {
            let rule = self.rules.iter().find(|rule| rule.bucket_id == key.bucket_id);
            if let (Some(rule), Some(bucket)) = (rule, self.buckets.get_mut(key)) {
                bucket.tokens = bucket.tokens.plus(TOKENS_PER_CALL).min(rule.capacity);
            }
        }
        if kept.keys.iter().any(|key| self.waiters.contains_key(key)) {
            self.next_ms = Some(now_ms);
        }
    }

    fn leave_place(&mut self, arrival: u64) {
        if let Some(place) = self.waiting.remove(&arrival) {
            self.forget(&place);
        }
    }

    fn forget(&mut self, place: &Place) {
        self.arrival_of.remove(&place.who.call_id);
        for (_, key) in &place.keys {
            if let Some(count) = self.waiters.get_mut(key) {
                *count -= 1;
                if *count == 0 {
                    self.waiters.remove(key);
                }
            }
        }
    }

    /// What somebody who asks is told: to go, or how long to wait if nobody before leaves.
    fn answer(&mut self, who: Claimant, arrival: u64, now_ms: i64) -> Result<(), Throttled> {
        let Some(place) = self.waiting.get(&arrival) else {
            // Told now, and not once more.
            self.called.retain(|called| *called != who);
            return Ok(());
        };
        let is_last = arrival + 1 == self.arrivals;
        let before = |key: &BucketKey| {
            if is_last {
                return self.waiters.get(key).copied().unwrap_or(1) - 1;
            }
            let earlier = self.waiting.range(..arrival);
            earlier.filter(|(_, other)| other.keys.iter().any(|(_, own)| own == key)).count() as u64
        };
        let mut longest = (0, 0);
        for (at, key) in &place.keys {
            let due =
                i64::try_from(before(key)).unwrap_or(i64::MAX).saturating_add(1).saturating_mul(TOKENS_PER_CALL.0);
            let has = self.buckets.get(key).map_or(Micros::ZERO, |bucket| bucket.tokens);
            let missing = Micros(due).minus(has);
            let wait = if missing > Micros::ZERO { wait_ms(&self.rules[*at], missing) } else { 0 };
            longest = longest.max((wait, *at));
        }
        let (wait, at) = longest;
        let told = throttled(&self.rules[at], wait);
        let told_ms = i64::try_from(told.retry_after_seconds).unwrap_or(0).saturating_mul(1_000);
        if let Some(place) = self.waiting.get_mut(&arrival) {
            place.told_until_ms = now_ms.saturating_add(told_ms);
        }
        Err(told)
    }
}

fn keys(rules: &[BucketRule], target: &Target) -> Vec<(usize, BucketKey)> {
    rules.iter().enumerate().filter_map(|(at, rule)| key_of(rule, target).map(|key| (at, key))).collect()
}
