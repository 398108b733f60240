//! Token buckets (THR, ADM-018).

use proptest::prelude::*;
use signalbox_domain::governance::throttle::{
    Bucket, BucketRule, TOKENS_PER_CALL, applies, fresh, give_back, refill, take_all, take_ticket,
};
use signalbox_domain::ids::BucketId;
use signalbox_domain::quantity::Micros;

use crate::common::{target, tenant};

fn rule(id: &str, capacity: Micros, refill_per_second: Micros) -> BucketRule {
    BucketRule {
        bucket_id: BucketId::new(id).unwrap(),
        tenant_id: None,
        tool_id: None,
        user_id: None,
        provider_id: None,
        capacity,
        refill_per_second,
    }
}

fn ten_by_one() -> BucketRule {
    rule("b", Micros::units(10), Micros::units(1))
}

fn takes(rule: &BucketRule, bucket: &mut Bucket, now_ms: i64) -> bool {
    take_all(&mut [(rule, bucket)], TOKENS_PER_CALL, now_ms).is_ok()
}

#[test]
fn ten_calls_pass_at_once_and_one_more_each_second() {
    let rule = ten_by_one();
    let mut bucket = fresh(&rule, 0);
    assert_eq!((0..11).filter(|_| takes(&rule, &mut bucket, 0)).count(), 10);
    assert!(!takes(&rule, &mut bucket, 999));
    assert!(takes(&rule, &mut bucket, 1_000));
    assert!(!takes(&rule, &mut bucket, 1_000));
}

#[test]
fn the_wait_is_told_in_whole_seconds_and_is_at_least_one() {
    let slow = rule("slow", Micros::units(1), Micros(250_000));
    let mut bucket = Bucket { tokens: Micros(200_000), last_refill_ms: 0 };
    let throttled = take_all(&mut [(&slow, &mut bucket)], TOKENS_PER_CALL, 0).unwrap_err();
    assert_eq!((throttled.bucket_id.as_str(), throttled.retry_after_seconds), ("slow", 4));
    let fast = rule("fast", Micros::units(1), Micros::units(1_000));
    let mut bucket = Bucket { tokens: Micros::ZERO, last_refill_ms: 0 };
    assert_eq!(take_all(&mut [(&fast, &mut bucket)], TOKENS_PER_CALL, 0).unwrap_err().retry_after_seconds, 1);
}

#[test]
fn a_bucket_that_no_call_fits_in_or_that_never_fills_is_a_configuration_error() {
    assert_eq!(ten_by_one().validate(), Ok(()));
    let code = |rule: BucketRule| rule.validate().map_err(|error| error.code());
    assert_eq!(code(rule("b", Micros(999_999), Micros::units(1))), Err("bucket-too-small"));
    assert_eq!(code(rule("b", Micros::units(1), Micros::ZERO)), Err("bucket-no-refill"));
}

#[test]
fn steps_of_the_clock_give_nothing_for_free() {
    let rule = ten_by_one();
    let mut bucket = fresh(&rule, 100_000);
    assert_eq!(bucket.tokens, rule.capacity, "a fresh bucket is full");
    for _ in 0..3 {
        assert!(takes(&rule, &mut bucket, 100_000));
    }
    refill(&rule, &mut bucket, 89_000);
    assert_eq!(bucket.tokens, Micros::units(7), "a step back takes and gives nothing");
    refill(&rule, &mut bucket, 3_700_000);
    assert_eq!(bucket.tokens, rule.capacity, "a step forward never gives more than the bucket holds");
}

#[test]
fn polling_often_admits_as_much_as_polling_once() {
    for refill_per_second in [Micros::units(1), Micros(333_333), Micros(1_700_003), Micros(7)] {
        let rule = rule("b", Micros::units(10), refill_per_second);
        let empty = Bucket { tokens: Micros::ZERO, last_refill_ms: 0 };
        let (mut often, mut once) = (empty.clone(), empty);
        for tick in 0..=10_000 / 3 {
            refill(&rule, &mut often, tick * 3);
        }
        refill(&rule, &mut once, 9_999);
        let lost = once.tokens.minus(often.tokens);
        assert!(lost >= Micros::ZERO && lost <= Micros(10_000), "{refill_per_second}: {lost} lost");
    }
    let rule = ten_by_one();
    let mut bucket = Bucket { tokens: Micros::ZERO, last_refill_ms: 0 };
    let admitted = (0..=33).filter(|tick| takes(&rule, &mut bucket, tick * 300)).count();
    assert!((9..=10).contains(&admitted), "{admitted}");
}

#[test]
fn an_empty_bucket_leaves_the_others_untouched() {
    let rule = ten_by_one();
    let (mut full, mut empty) = (fresh(&rule, 0), Bucket { tokens: Micros::ZERO, last_refill_ms: 0 });
    let other = BucketRule { bucket_id: BucketId::new("empty").unwrap(), ..rule.clone() };
    let throttled = take_all(&mut [(&rule, &mut full), (&other, &mut empty)], TOKENS_PER_CALL, 0).unwrap_err();
    assert_eq!(throttled.bucket_id.as_str(), "empty");
    assert_eq!(full.tokens, rule.capacity);
}

#[test]
fn of_several_empty_buckets_the_slowest_is_named() {
    let (fast, slow) = (ten_by_one(), rule("slow", Micros::units(10), Micros(100_000)));
    let empty = Bucket { tokens: Micros::ZERO, last_refill_ms: 0 };
    let (mut a, mut b) = (empty.clone(), empty);
    let throttled = take_all(&mut [(&fast, &mut a), (&slow, &mut b)], TOKENS_PER_CALL, 0).unwrap_err();
    assert_eq!((throttled.bucket_id.as_str(), throttled.retry_after_seconds), ("slow", 10));
}

#[test]
fn what_is_given_back_can_be_taken_again_but_never_overflows() {
    let rule = ten_by_one();
    let mut bucket = fresh(&rule, 0);
    assert!(takes(&rule, &mut bucket, 0));
    give_back(&mut [(&rule, &mut bucket)], TOKENS_PER_CALL);
    give_back(&mut [(&rule, &mut bucket)], TOKENS_PER_CALL);
    assert_eq!(bucket.tokens, rule.capacity);
}

#[test]
fn a_bucket_holds_for_calls_with_all_the_attributes_it_names() {
    let target = target();
    let mut named = ten_by_one();
    assert!(applies(&named, &target), "no attribute: all calls");
    named.tenant_id = Some(tenant("acme"));
    named.tool_id = Some("memory.read".to_owned());
    named.user_id = Some("ada".to_owned());
    named.provider_id = Some("local".to_owned());
    assert!(applies(&named, &target));
    for change in [
        |rule: &mut BucketRule| rule.tenant_id = Some(tenant("umbrella")),
        |rule: &mut BucketRule| rule.tool_id = Some("web.fetch".to_owned()),
        |rule: &mut BucketRule| rule.user_id = Some("bob".to_owned()),
        |rule: &mut BucketRule| rule.provider_id = Some("remote".to_owned()),
    ] {
        let mut other = named.clone();
        change(&mut other);
        assert!(!applies(&other, &target));
    }
}

#[test]
fn two_hundred_waiting_calls_each_wake_once_and_in_order() {
    let rule = rule("b", Micros::units(2), Micros::units(2));
    let mut bucket = fresh(&rule, 0);
    let due: Vec<i64> = (0..200)
        .map(|_| take_ticket(&mut [(&rule, &mut bucket)], TOKENS_PER_CALL, 0).map_or(0, |ticket| ticket.due_ms))
        .collect();
    assert!(due.is_sorted());
    assert_eq!(due[..4], [0, 0, 500, 1_000]);
    assert_eq!(due[199], 99_000);
    assert!(!takes(&rule, &mut bucket, 50_000), "nobody passes those who wait");
    assert!(!takes(&rule, &mut bucket, 99_000));
    assert!(takes(&rule, &mut bucket, 99_500));
}

#[test]
fn a_ticket_tells_the_wait_of_all_those_before_it() {
    let rule = rule("b", Micros::units(1), Micros::units(1));
    let mut bucket = fresh(&rule, 0);
    let mut wait = || take_ticket(&mut [(&rule, &mut bucket)], TOKENS_PER_CALL, 0);
    assert_eq!(wait(), None, "there are tokens: no need to wait");
    assert_eq!(wait().unwrap().throttled.retry_after_seconds, 1);
    assert_eq!(wait().unwrap().throttled.retry_after_seconds, 2);
    give_back(&mut [(&rule, &mut bucket)], TOKENS_PER_CALL);
    let again = take_ticket(&mut [(&rule, &mut bucket)], TOKENS_PER_CALL, 0);
    assert_eq!(again.unwrap().throttled.retry_after_seconds, 2, "a place that was given up is free again");
}

proptest! {
    #[test]
    fn no_more_is_admitted_than_capacity_and_refill_allow(
        capacity in 1_i64..20, refill in 1_i64..20_000_000, steps in proptest::collection::vec(0_i64..500, 1..200),
    ) {
        let rule = rule("b", Micros::units(capacity), Micros(refill));
        let mut bucket = fresh(&rule, 0);
        let (mut now, mut admitted) = (0, 0_i64);
        for step in steps {
            now += step;
            if takes(&rule, &mut bucket, now) {
                admitted += 1;
            }
        }
        prop_assert!(i128::from(admitted) * 1_000_000 <= i128::from(capacity) * 1_000_000 + i128::from(refill) * i128::from(now) / 1_000);
    }

    #[test]
    fn absurd_figures_do_not_panic(tokens in any::<i64>(), capacity in any::<i64>(), refill_rate in any::<i64>(), last in any::<i64>(), now in any::<i64>()) {
        let rule = rule("b", Micros(capacity), Micros(refill_rate));
        let mut bucket = Bucket { tokens: Micros(tokens), last_refill_ms: last };
        let _ = take_all(&mut [(&rule, &mut bucket)], TOKENS_PER_CALL, now);
        let _ = take_ticket(&mut [(&rule, &mut bucket)], TOKENS_PER_CALL, now);
        give_back(&mut [(&rule, &mut bucket)], TOKENS_PER_CALL);
    }
}
