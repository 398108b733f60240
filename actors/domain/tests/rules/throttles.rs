//! Token buckets (THR, ADM-018).

use proptest::prelude::*;
use signalbox_domain::governance::target::Target;
use signalbox_domain::governance::throttle::{
    Bucket, BucketRule, KeyKind, TOKENS_PER_CALL, applies, default_rules, fresh, give_back, key_of, refill, take_all,
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
        agent_id: None,
        per: Vec::new(),
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
    assert_eq!(code(rule("b", Micros(-1), Micros::units(1))), Err("bucket-too-small"));
    assert_eq!(code(rule("b", Micros::units(1), Micros::ZERO)), Err("bucket-no-refill"));
    assert_eq!(code(rule("b", Micros::units(1), Micros(-1))), Err("bucket-no-refill"));
    assert_eq!(code(rule("b", Micros(i64::MAX), Micros::units(1))), Err("bucket-too-large"));
    assert_eq!(code(rule("b", Micros::units(1), Micros(i64::MAX))), Err("bucket-too-large"));
    let twice = BucketRule { per: vec![KeyKind::Tool, KeyKind::Tenant, KeyKind::Tool], ..ten_by_one() };
    assert_eq!(code(twice), Err("bucket-key-twice"));
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
    named.agent_id = Some(target.agent_id.to_string());
    assert!(applies(&named, &target));
    for change in [
        |rule: &mut BucketRule| rule.tenant_id = Some(tenant("umbrella")),
        |rule: &mut BucketRule| rule.tool_id = Some("web.fetch".to_owned()),
        |rule: &mut BucketRule| rule.user_id = Some("bob".to_owned()),
        |rule: &mut BucketRule| rule.provider_id = Some("remote".to_owned()),
        |rule: &mut BucketRule| rule.agent_id = Some("ref.nobody".to_owned()),
    ] {
        let mut other = named.clone();
        change(&mut other);
        assert!(!applies(&other, &target));
    }
}

#[test]
fn a_rule_keeps_one_bucket_for_each_of_what_it_names_and_a_users_carries_its_tenant() {
    let target = target();
    let of = |per: &[KeyKind], target: &Target| {
        key_of(&BucketRule { per: per.to_vec(), ..ten_by_one() }, target).map(|key| key.of.join(" "))
    };
    assert_eq!(of(&[], &target).as_deref(), Some(""));
    assert_eq!(of(&[KeyKind::Tenant, KeyKind::Tool], &target).as_deref(), Some("acme memory.read"));
    assert_eq!(of(&[KeyKind::User, KeyKind::Tool], &target).as_deref(), Some("acme/ada memory.read"));
    let stranger = Target { tenant_id: tenant("umbrella"), ..target.clone() };
    assert_ne!(of(&[KeyKind::User], &stranger), of(&[KeyKind::User], &target), "another tenant's user of that name");
    assert_eq!(of(&[KeyKind::Provider], &target).as_deref(), Some("local"));
    let local = Target { provider_id: None, ..target };
    assert_eq!(of(&[KeyKind::Provider], &local), None, "a call to no provider takes nothing");
}

#[test]
fn by_default_there_is_a_bucket_for_each_provider_and_no_local_tool_is_throttled() {
    let rules = default_rules();
    assert_eq!(rules.len(), 1);
    assert_eq!((rules[0].capacity, rules[0].refill_per_second), (Micros::units(50), Micros::units(10)));
    assert_eq!(rules[0].validate(), Ok(()));
    assert!(key_of(&rules[0], &target()).is_some());
    assert_eq!(key_of(&rules[0], &Target { provider_id: None, ..target() }), None);
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
        give_back(&mut [(&rule, &mut bucket)], TOKENS_PER_CALL);
    }
}
