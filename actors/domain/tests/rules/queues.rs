//! Waiting at token buckets (ADM-018): turns, fairness, and what is given up.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use signalbox_domain::governance::queue::{Claimant, KEPT_MS, Queue};
use signalbox_domain::governance::target::Target;
use signalbox_domain::governance::throttle::{BucketRule, KeyKind};
use signalbox_domain::ids::{ActorId, BucketId, CallId, RunKey};
use signalbox_domain::quantity::Micros;
use uuid::Uuid;

use crate::common::{target, tool};

fn rule(id: &str, tool: Option<&str>, capacity: i64, refill: Micros) -> BucketRule {
    BucketRule {
        bucket_id: BucketId::new(id).unwrap(),
        tenant_id: None,
        tool_id: tool.map(str::to_owned),
        user_id: None,
        provider_id: None,
        agent_id: None,
        per: Vec::new(),
        capacity: Micros::units(capacity),
        refill_per_second: refill,
    }
}

fn who(n: u128) -> Claimant {
    Claimant { run_key: RunKey::new(Uuid::from_u128(n)), call_id: CallId::new(Uuid::from_u128(n)) }
}

fn number(who: Claimant) -> u128 {
    who.call_id.uuid().as_u128()
}

fn of(tool_id: &str) -> Target {
    Target { tool_id: tool(tool_id), ..target() }
}

/// Serves until the time is over, each turn when the queue says; answers who went when.
fn play(queue: &mut Queue, from_ms: i64, to_ms: i64) -> Vec<(i64, u128)> {
    let mut went = Vec::new();
    let mut now = from_ms;
    for _ in 0..100_000 {
        match queue.next_ms() {
            Some(next) if next <= to_ms => now = now.max(next),
            Some(_) | None => return went,
        }
        for turn in queue.serve(now) {
            queue.used(turn.call_id);
            went.push((now, number(turn)));
        }
    }
    panic!("it never comes to rest");
}

#[test]
fn two_hundred_waiting_calls_each_wake_once_and_in_order() {
    let mut queue = Queue::new(vec![rule("b", None, 2, Micros::units(2))]);
    let told: Vec<u64> = (0..200)
        .map(|n| queue.take(who(n), &target(), 0).map_or_else(|wait| wait.retry_after_seconds, |()| 0))
        .collect();
    queue.used(who(0).call_id);
    queue.used(who(1).call_id);
    assert_eq!(told[..6], [0, 0, 1, 1, 2, 2]);
    assert_eq!(told[199], 99);
    let went = play(&mut queue, 0, 200_000);
    let expected: Vec<(i64, u128)> = (2..200_u32).map(|n| (i64::from(n - 1) * 500, u128::from(n))).collect();
    assert_eq!(went, expected);
    assert_eq!(queue.waiting(), 0);
}

#[test]
fn nobody_who_comes_later_passes_those_who_wait() {
    let mut queue = Queue::new(vec![rule("b", None, 1, Micros::units(1))]);
    assert!(queue.take(who(0), &target(), 0).is_ok());
    queue.used(who(0).call_id);
    assert!(queue.take(who(1), &target(), 0).is_err());
    // Its token is there, and nobody has told it yet.
    assert_eq!(queue.take(who(2), &target(), 1_000).unwrap_err().retry_after_seconds, 1);
    assert_eq!(queue.next_ms(), Some(i64::MIN), "the first is to be told at once");
    assert_eq!(queue.serve(1_000), [who(1)]);
    assert!(queue.take(who(1), &target(), 1_000).is_ok(), "and finds what was taken for it");
}

#[test]
fn asking_again_neither_loses_a_place_nor_takes_twice() {
    let mut queue = Queue::new(vec![rule("b", None, 1, Micros::units(1))]);
    for _ in 0..3 {
        assert!(queue.take(who(0), &target(), 0).is_ok(), "kept until it has gone");
    }
    for _ in 0..3 {
        assert_eq!(queue.take(who(1), &target(), 0).unwrap_err().retry_after_seconds, 1);
        assert_eq!(queue.take(who(2), &target(), 0).unwrap_err().retry_after_seconds, 2);
    }
    queue.used(who(0).call_id);
    assert_eq!(play(&mut queue, 0, 5_000), [(1_000, 1), (2_000, 2)]);
}

#[test]
fn a_place_and_tokens_that_are_given_up_go_to_the_next() {
    let mut queue = Queue::new(vec![rule("b", None, 1, Micros::units(1))]);
    assert!(queue.take(who(0), &target(), 0).is_ok());
    for n in 1..4 {
        assert!(queue.take(who(n), &target(), 0).is_err());
    }
    // The first is not made after all, and a run that waits is over.
    queue.leave(who(0).call_id, 100);
    queue.leave_all(who(2).run_key, 100);
    assert_eq!(play(&mut queue, 100, 5_000), [(100, 1), (1_100, 3)]);
    // One that never comes for what it was given loses it after a minute.
    assert!(queue.take(who(4), &target(), 10_000).is_ok());
    assert!(queue.take(who(5), &target(), 10_000).is_err());
    queue.serve(10_000 + KEPT_MS);
    assert!(queue.take(who(6), &target(), 10_000 + KEPT_MS).is_ok() || queue.waiting() > 0);
}

#[test]
fn a_slow_bucket_does_not_keep_a_fast_one_from_others() {
    // All calls take from the fast one; those of web.fetch from a slow one too.
    let rules = || vec![rule("fast", None, 1, Micros::units(10)), rule("slow", Some("web.fetch"), 1, Micros(10_000))];
    let mut queue = Queue::new(rules());
    assert!(queue.take(who(0), &of("web.fetch"), 0).is_ok());
    queue.used(who(0).call_id);
    for n in 1..50 {
        let waits = queue.take(who(n), &of("web.fetch"), 0).unwrap_err();
        assert_eq!((waits.bucket_id.as_str(), waits.retry_after_seconds), ("slow", n as u64 * 100));
    }
    // A hundred others go by in ten seconds, ten a second, although the slow ones came first.
    for n in 1_000..1_100 {
        let _ = queue.take(who(n), &of("memory.read"), 0);
    }
    let went = play(&mut queue, 0, 10_001);
    assert_eq!(went.len(), 100);
    assert!(went.iter().all(|(_, n)| *n >= 1_000));
}

#[test]
fn a_call_that_needs_two_buckets_is_not_passed_for_ever_by_those_that_need_one() {
    let rules = vec![rule("all", None, 1, Micros::units(1)), rule("fetch", Some("web.fetch"), 1, Micros(900_000))];
    let mut queue = Queue::new(rules);
    assert!(queue.take(who(0), &of("web.fetch"), 0).is_ok());
    queue.used(who(0).call_id);
    assert!(queue.take(who(1), &of("web.fetch"), 0).is_err());
    // Others come again and again, more than there is room for.
    let (mut now, mut went) = (0, BTreeMap::new());
    for n in 100..400 {
        let _ = queue.take(who(n), &of("memory.read"), now);
        now += 50;
        for (at, turn) in play(&mut queue, now, now) {
            went.insert(turn, at);
        }
    }
    assert!(went[&1] <= 2_200, "it went at {}", went[&1]);
    assert!(went.len() > 10);
}

#[test]
fn changed_rules_hold_for_those_who_wait() {
    let slow = || rule("b", None, 1, Micros(1_000));
    let mut queue = Queue::new(vec![slow()]);
    assert!(queue.take(who(0), &target(), 0).is_ok());
    queue.used(who(0).call_id);
    for n in 1..4 {
        assert!(queue.take(who(n), &target(), 0).is_err());
    }
    // Faster from now on: what has come back until then came at the old rate.
    queue.set_rules(&[BucketRule { refill_per_second: Micros::units(1), ..slow() }], 10_000);
    assert_eq!(play(&mut queue, 10_000, 12_100), [(10_990, 1), (11_990, 2)]);
    // Gone: nobody waits any more.
    queue.set_rules(&[], 13_000);
    assert_eq!(play(&mut queue, 13_000, 13_000), [(13_000, 3)]);
    // A smaller bucket holds no more than fits in.
    let mut queue = Queue::new(vec![rule("b", None, 50, Micros(1_000))]);
    assert!(queue.take(who(0), &target(), 0).is_ok());
    queue.set_rules(&[rule("b", None, 2, Micros(1_000))], 0);
    let passed = (1..10).filter(|n| queue.take(who(*n), &target(), 0).is_ok()).count();
    assert_eq!(passed, 2);
}

#[test]
fn each_user_has_a_bucket_of_its_own_and_full_ones_are_forgotten() {
    let per_user = BucketRule { per: vec![KeyKind::User], ..rule("b", None, 1, Micros::units(1)) };
    let mut queue = Queue::new(vec![per_user]);
    for n in 0..10_000_u32 {
        let user = ActorId::new(format!("user-{n}")).unwrap();
        let target = Target { user_id: user, ..target() };
        assert!(queue.take(who(u128::from(n)), &target, i64::from(n) * 10).is_ok());
        queue.used(who(u128::from(n)).call_id);
    }
    assert!(queue.buckets_kept() < 5_000, "{}", queue.buckets_kept());
}

proptest! {
    /// Whoever comes, goes or gives up: nobody goes beyond the rates, everybody who stays goes, and of those that need the
    /// same the one that came first goes first.
    #[test]
    fn everybody_goes_in_the_end_and_nobody_faster_than_the_rates_allow(
        moves in proptest::collection::vec((0_u8..8, 0_i64..700), 1..120),
        capacity in 1_i64..4, fast in 500_000_i64..5_000_000, slow in 100_000_i64..900_000,
    ) {
        let rules = vec![rule("all", None, capacity, Micros(fast)), rule("fetch", Some("web.fetch"), 1, Micros(slow))];
        let mut queue = Queue::new(rules);
        let tools = ["memory.read", "web.fetch"];
        let mut now = 0_i64;
        let mut came: BTreeMap<u128, usize> = BTreeMap::new();
        let mut gone: Vec<(i64, u128)> = Vec::new();
        for (at, (what, wait)) in moves.iter().enumerate() {
            gone.extend(play(&mut queue, now, now + wait));
            now += wait;
            let n = at as u128;
            match what {
                0..=6 => {
                    let tool = usize::from(what % 2);
                    came.insert(n, tool);
                    let goes = queue.take(who(n), &of(tools[tool]), now).is_ok();
                    // Those whose turn came with this one were served before it.
                    gone.extend(play(&mut queue, now, now));
                    if goes {
                        queue.used(who(n).call_id);
                        gone.push((now, n));
                    }
                }
                _ => {
                    let waits = came.keys().copied().find(|n| !gone.iter().any(|(_, other)| other == n));
                    if let Some(n) = waits {
                        queue.leave(who(n).call_id, now);
                        came.remove(&n);
                    }
                }
            }
        }
        gone.extend(play(&mut queue, now, now + 10_000_000));
        let went: BTreeSet<u128> = gone.iter().map(|(_, n)| *n).collect();
        prop_assert_eq!(went.len(), gone.len(), "nobody goes twice");
        prop_assert_eq!(went, came.keys().copied().collect::<BTreeSet<_>>());
        for tool in 0..2 {
            let order: Vec<u128> = gone.iter().map(|(_, n)| *n).filter(|n| came[n] == tool).collect();
            prop_assert!(order.is_sorted(), "{:?}", order);
        }
        for (until, _) in &gone {
            let all = gone.iter().filter(|(at, _)| at <= until).count() as i128;
            prop_assert!(all * 1_000_000 <= i128::from(capacity) * 1_000_000 + i128::from(fast) * i128::from(*until) / 1_000);
            let fetches = gone.iter().filter(|(at, n)| at <= until && came[n] == 1).count() as i128;
            prop_assert!(fetches * 1_000_000 <= 1_000_000 + i128::from(slow) * i128::from(*until) / 1_000);
        }
    }
}
