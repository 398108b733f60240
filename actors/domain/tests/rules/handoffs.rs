//! Hand-offs (HND): authority only narrows (I6), money is conserved (I7).

use std::collections::BTreeSet;

use proptest::collection::btree_set;
use proptest::option;
use proptest::prelude::*;
use signalbox_domain::handoff::dispatch::{
    Authority, CapabilityModifiers, DEFAULT_DEPTH_CAP, Dispatch, DispatchDenialReason, Parent, validate_dispatch,
};
use signalbox_domain::handoff::sub_budget::SubBudgets;
use signalbox_domain::handoff::{ChainLink, derive_attribution_chain};
use signalbox_domain::ids::{AgentId, RunId, SecretId, ToolId};
use signalbox_domain::quantity::Micros;

use DispatchDenialReason::{
    AuthorityWideningRejected, BudgetExceedsParent, BudgetNonPositive, CycleDetected, DepthCapExceeded, FanoutExceeded,
};

fn agent(name: &str) -> AgentId {
    AgentId::new(name).unwrap()
}

fn chain(agents: &[&str]) -> Vec<ChainLink> {
    agents.iter().map(|name| ChainLink { agent_id: agent(name), allow_cycle: false }).collect()
}

fn tools(names: &[&str]) -> BTreeSet<ToolId> {
    names.iter().map(|name| ToolId::new(*name).unwrap()).collect()
}

fn authority(names: &[&str]) -> Authority {
    Authority { tool_ids: tools(names), max_fanout_degree: 4, capability_modifiers: CapabilityModifiers::default() }
}

fn run(n: u128) -> RunId {
    RunId::new(uuid::Uuid::from_u128(n))
}

/// A hand-off of `b` by `a`, which holds two tools and 100 units, and what one change to it brings.
fn verdict(
    change: impl FnOnce(&mut Vec<ChainLink>, &mut Authority, &mut u32, &mut Micros, &mut AgentId),
) -> Result<(), DispatchDenialReason> {
    let (mut links, held) = (chain(&["a"]), authority(&["memory.read", "web.fetch"]));
    let (mut asked, mut live, mut sub_budget, mut to) = (authority(&["memory.read"]), 0, Micros::units(30), agent("b"));
    change(&mut links, &mut asked, &mut live, &mut sub_budget, &mut to);
    let parent = Parent {
        chain: &links,
        depth_cap: DEFAULT_DEPTH_CAP,
        authority: &held,
        live_children: live,
        remaining: Micros::units(100),
    };
    validate_dispatch(&parent, &Dispatch { agent_id: &to, authority: &asked, sub_budget })
}

#[test]
fn a_part_of_the_parents_authority_and_money_may_be_handed_on() {
    assert_eq!(verdict(|_, _, _, _, _| {}), Ok(()));
}

#[test]
fn an_ancestor_is_entered_again_only_if_the_root_allows_it() {
    let to_a = |root: bool, second: bool| {
        verdict(|links, _, _, _, to| {
            *links = chain(&["a", "c"]);
            (links[0].allow_cycle, links[1].allow_cycle) = (root, second);
            *to = agent("a");
        })
    };
    assert_eq!(to_a(false, false), Err(CycleDetected));
    assert_eq!(to_a(true, false), Ok(()));
    assert_eq!(to_a(false, true), Err(CycleDetected));
    assert_eq!(verdict(|_, _, _, _, to| *to = agent("a")), Err(CycleDetected), "to itself");
}

#[test]
fn the_fifth_level_is_the_deepest() {
    let deep = ["a", "c", "d", "e", "f", "g"];
    assert_eq!(verdict(|links, _, _, _, _| *links = chain(&deep[..5])), Ok(()));
    assert_eq!(verdict(|links, _, _, _, _| *links = chain(&deep)), Err(DepthCapExceeded));
}

#[test]
fn the_fifth_child_at_once_is_one_too_many() {
    assert_eq!(verdict(|_, _, live, _, _| *live = 3), Ok(()));
    assert_eq!(verdict(|_, _, live, _, _| *live = 4), Err(FanoutExceeded));
    assert_eq!(verdict(|_, _, live, _, _| *live = u32::MAX), Err(FanoutExceeded));
}

#[test]
fn each_of_the_three_ways_to_widen_is_rejected() {
    let widened = [
        verdict(|_, asked, _, _, _| asked.tool_ids = tools(&["memory.read", "notify.send"])),
        verdict(|_, asked, _, _, _| asked.max_fanout_degree = 5),
    ];
    assert_eq!(widened, [Err(AuthorityWideningRejected); 2]);
    let hosts = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>());
    let limited = CapabilityModifiers {
        hosts: hosts(&["a.example"]),
        path_prefixes: hosts(&["/in"]),
        secret_ids: Some([SecretId::new("mail").unwrap()].into()),
        data_scopes: hosts(&["public"]),
        max_calls: Some(3),
        read_only: true,
    };
    assert!(limited.within(&limited) && limited.within(&CapabilityModifiers::default()));
    for broader in [
        CapabilityModifiers { hosts: None, ..limited.clone() },
        CapabilityModifiers { hosts: hosts(&["a.example", "b.example"]), ..limited.clone() },
        CapabilityModifiers { path_prefixes: hosts(&["/"]), ..limited.clone() },
        CapabilityModifiers { secret_ids: Some([SecretId::new("bank").unwrap()].into()), ..limited.clone() },
        CapabilityModifiers { data_scopes: None, ..limited.clone() },
        CapabilityModifiers { max_calls: Some(4), ..limited.clone() },
        CapabilityModifiers { max_calls: None, ..limited.clone() },
        CapabilityModifiers { read_only: false, ..limited.clone() },
    ] {
        assert!(!broader.within(&limited), "{broader:?}");
    }
}

#[test]
fn an_empty_list_means_none() {
    let nothing = authority(&[]);
    assert!(!authority(&["memory.read"]).within(&nothing) && nothing.within(&authority(&["memory.read"])));
    let no_host = CapabilityModifiers { hosts: Some(BTreeSet::new()), ..CapabilityModifiers::default() };
    assert!(!CapabilityModifiers::default().within(&no_host));
}

#[test]
fn a_sub_budget_is_above_zero_and_at_most_what_is_left() {
    for (units, expected) in [
        (0, Err(BudgetNonPositive)),
        (-1, Err(BudgetNonPositive)),
        (100, Ok(())),
        (101, Err(BudgetExceedsParent)),
        (i64::MAX, Err(BudgetExceedsParent)),
    ] {
        assert_eq!(verdict(|_, _, _, sub_budget, _| *sub_budget = Micros::units(units)), expected, "{units}");
    }
    assert_eq!(verdict(|_, _, _, sub_budget, _| *sub_budget = Micros(100_000_001)), Err(BudgetExceedsParent));
}

#[test]
fn the_first_reason_in_order_is_the_one_that_is_told() {
    let mut failing = Vec::new();
    for repaired in 0..6 {
        let found = verdict(|links, asked, live, sub_budget, to| {
            *links = chain(&["a", "c", "d", "e", "f", "b"]);
            asked.tool_ids = tools(&["notify.send"]);
            *live = 4;
            *sub_budget = Micros::ZERO;
            if repaired > 0 {
                *to = agent("z");
            }
            if repaired > 1 {
                links.truncate(3);
            }
            if repaired > 2 {
                *live = 0;
            }
            if repaired > 3 {
                asked.tool_ids = tools(&[]);
            }
            if repaired > 4 {
                *sub_budget = Micros::units(1_000);
            }
        });
        failing.push(found.unwrap_err());
    }
    assert_eq!(failing, DispatchDenialReason::ALL);
    let codes = DispatchDenialReason::ALL.map(DispatchDenialReason::code);
    assert_eq!(
        codes,
        [
            "cycle-detected",
            "depth-cap-exceeded",
            "fanout-exceeded",
            "authority-widening-rejected",
            "budget-non-positive",
            "budget-exceeds-parent",
        ]
    );
}

#[test]
fn attribution_names_every_agent_from_the_root_on() {
    let attribution = derive_attribution_chain(&chain(&["ref.course-generation", "ref.research", "b", "c"]));
    assert_eq!(attribution.to_string(), "ref.course-generation > ref.research > b > c");
}

#[test]
fn what_a_child_did_not_use_comes_back_and_what_it_overran_is_charged() {
    for (used, returned, overshoot, left) in [(10, 20, None, 90), (30, 0, None, 70), (35, 0, Some(5), 65)] {
        let mut books = SubBudgets::new(Micros::units(100));
        books.deduct_dispatch_budget(run(1), Micros::units(30)).unwrap();
        assert_eq!(books.remaining(), Micros::units(70), "taken before the child starts");
        let reconciled = books.reconcile_terminal_budget(run(1), Micros::units(used)).unwrap();
        assert_eq!(reconciled.returned, Micros::units(returned));
        assert_eq!(reconciled.overshoot, overshoot.map(Micros::units));
        assert_eq!(books.remaining(), Micros::units(left));
        assert_eq!(books.reconcile_terminal_budget(run(1), Micros::units(used)), None, "once");
        assert_eq!(books.remaining(), Micros::units(left));
    }
}

#[test]
fn two_hand_offs_of_forty_from_forty_are_one() {
    let mut books = SubBudgets::new(Micros::units(40));
    assert_eq!(books.deduct_dispatch_budget(run(1), Micros::units(40)), Ok(()));
    assert_eq!(books.deduct_dispatch_budget(run(2), Micros::units(40)), Err(BudgetExceedsParent));
    assert_eq!(books.deduct_dispatch_budget(run(1), Micros::units(40)), Ok(()), "said twice, taken once");
    assert_eq!(books.remaining(), Micros::ZERO);
    assert_eq!(books.reconcile_terminal_budget(run(2), Micros::units(1)), None, "never given anything");
}

fn modifiers() -> impl Strategy<Value = CapabilityModifiers> {
    let names = || option::of(btree_set("[a-d]", 0..4));
    (names(), names(), names(), option::of(0_u64..4), any::<bool>()).prop_map(
        |(hosts, path_prefixes, data_scopes, max_calls, read_only)| CapabilityModifiers {
            hosts,
            path_prefixes,
            secret_ids: None,
            data_scopes,
            max_calls,
            read_only,
        },
    )
}

fn authorities() -> impl Strategy<Value = Authority> {
    (btree_set("[a-d]", 0..4), 0_u32..6, modifiers()).prop_map(|(names, max_fanout_degree, capability_modifiers)| {
        Authority {
            tool_ids: names.into_iter().map(|name| ToolId::new(name).unwrap()).collect(),
            max_fanout_degree,
            capability_modifiers,
        }
    })
}

/// What an authority allows, asked one by one: a model that knows nothing of sets.
fn allows(authority: &Authority, name: &str, calls: u64, writes: bool) -> [bool; 6] {
    let limits = &authority.capability_modifiers;
    let listed = |list: &Option<BTreeSet<String>>| list.as_ref().is_none_or(|list| list.contains(name));
    [
        authority.tool_ids.iter().any(|tool| tool.as_str() == name),
        listed(&limits.hosts),
        listed(&limits.path_prefixes),
        listed(&limits.data_scopes),
        limits.max_calls.is_none_or(|max| calls <= max),
        !writes || !limits.read_only,
    ]
}

proptest! {
    /// I6 along three hops: whatever the last may do, every one before it may.
    #[test]
    fn i6_authority_only_narrows(hops in proptest::collection::vec(authorities(), 2..5), name in "[a-e]", calls in 0_u64..6, writes in any::<bool>()) {
        let (mut held, mut links) = (hops[0].clone(), chain(&["r0"]));
        let root = held.clone();
        for (at, asked) in hops.iter().enumerate().skip(1) {
            let to = agent(&format!("r{at}"));
            let parent = Parent { chain: &links, depth_cap: DEFAULT_DEPTH_CAP, authority: &held, live_children: 0, remaining: Micros::units(1) };
            if validate_dispatch(&parent, &Dispatch { agent_id: &to, authority: asked, sub_budget: Micros::units(1) }).is_err() {
                continue;
            }
            links.push(ChainLink { agent_id: to, allow_cycle: false });
            held = asked.clone();
            for (child, ancestor) in allows(&held, &name, calls, writes).into_iter().zip(allows(&root, &name, calls, writes)) {
                prop_assert!(!child || ancestor);
            }
            prop_assert!(held.max_fanout_degree <= root.max_fanout_degree);
        }
    }

    /// I7: what was given is spent or came back, whatever is said twice and in whatever order children end.
    #[test]
    fn i7_money_is_conserved(budget in 1_i64..200, moves in proptest::collection::vec((0_u128..6, -5_i64..90, any::<bool>()), 0..40)) {
        let budget = Micros::units(budget);
        let mut books = SubBudgets::new(budget);
        for (child, amount, end) in moves {
            if end {
                books.reconcile_terminal_budget(run(child), Micros::units(amount));
            } else {
                let _ = books.deduct_dispatch_budget(run(child), Micros::units(amount));
            }
            let (mut out, mut spent, mut overshoot) = (Micros::ZERO, Micros::ZERO, Micros::ZERO);
            for entry in (0..6).filter_map(|child| books.child(run(child))) {
                match entry.used {
                    None => out = out.plus(entry.given),
                    Some(used) => {
                        spent = spent.plus(used);
                        overshoot = overshoot.plus(used.minus_to_zero(entry.given));
                    }
                }
            }
            prop_assert_eq!(books.remaining(), budget.minus(out).minus(spent));
            prop_assert!(books.remaining() >= Micros::ZERO.minus(overshoot));
        }
    }
}
