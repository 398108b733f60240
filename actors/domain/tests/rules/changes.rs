//! Governance changes: the fold, and which of them can concern a call.

use signalbox_domain::governance::budget::Budget;
use signalbox_domain::governance::change::{EpochChange, GovernanceChange, GovernanceState, can_match};
use signalbox_domain::governance::grant::{Grant, GrantScope};
use signalbox_domain::governance::kill_switch::{KillSwitch, SwitchScope, decide_execution};
use signalbox_domain::ids::{GrantId, SwitchId};
use signalbox_domain::time::UnixMs;

use crate::common::{NOW, budget, grant, switch, target, tenant, tool};

fn numbered(changes: Vec<GovernanceChange>) -> Vec<EpochChange> {
    (1..).zip(changes).map(|(epoch, change)| EpochChange { epoch, at_unix_ms: UnixMs(1_000), change }).collect()
}

fn disarmed(id: &str) -> GovernanceChange {
    GovernanceChange::SwitchDisarmed { switch_id: SwitchId::new(id).unwrap(), at_unix_ms: UnixMs(2_000) }
}

fn gone(id: &str) -> GovernanceChange {
    GovernanceChange::GrantRevoked { grant_id: GrantId::new(id).unwrap(), at_unix_ms: UnixMs(2_000) }
}

#[test]
fn the_state_is_the_fold_of_its_changes() {
    let state = GovernanceState::fold(&numbered(vec![
        GovernanceChange::SwitchArmed(switch("s1", SwitchScope::Global, None)),
        GovernanceChange::GrantIssued(grant("g1", GrantScope::PerTenant)),
        GovernanceChange::GrantIssued(grant("g2", GrantScope::PerUser)),
        disarmed("s1"),
        gone("g2"),
        GovernanceChange::ThrottlesSet(vec![]),
    ]));
    assert_eq!(state.epoch, 6);
    assert_eq!(decide_execution(&state.switches, &target(), NOW), None);
    assert_eq!(state.switches[0].disarmed_at_unix_ms, Some(UnixMs(2_000)));
    assert_eq!(state.grants.iter().filter(|grant| grant.revoked_at_unix_ms.is_none()).count(), 1);
}

#[test]
fn a_change_seen_twice_is_applied_once() {
    let changes =
        numbered(vec![GovernanceChange::SwitchArmed(switch("s1", SwitchScope::Global, None)), disarmed("s1")]);
    let mut state = GovernanceState::fold(&changes);
    let once = state.clone();
    state.apply(&changes[0]);
    state.apply(&changes[1]);
    assert_eq!(state, once);
}

#[test]
fn arming_a_switch_again_puts_it_in_force_again() {
    let armed = || GovernanceChange::SwitchArmed(switch("s1", SwitchScope::Global, None));
    let state = GovernanceState::fold(&numbered(vec![armed(), disarmed("s1"), armed()]));
    assert_eq!(state.switches.len(), 1);
    assert!(decide_execution(&state.switches, &target(), NOW).is_some());
}

#[test]
fn a_switch_or_grant_for_others_cannot_concern_a_call() {
    let target = target();
    let armed = |switch| can_match(&GovernanceChange::SwitchArmed(switch), &target);
    assert!(armed(switch("s", SwitchScope::Tool, Some("memory.read"))));
    assert!(!armed(switch("s", SwitchScope::Tool, Some("web.fetch"))));
    assert!(!armed(KillSwitch { tenant_id: Some(tenant("umbrella")), ..switch("s", SwitchScope::Global, None) }));
    let issued = |grant| can_match(&GovernanceChange::GrantIssued(grant), &target);
    for scope in GrantScope::ALL {
        assert!(issued(grant("g", scope)), "{scope:?}");
        assert!(!issued(Grant { tool_id: tool("web.fetch"), ..grant("g", scope) }));
        assert!(!issued(Grant { tenant_id: tenant("umbrella"), ..grant("g", scope) }));
    }
    let opened = |budget| can_match(&GovernanceChange::BudgetOpened(budget), &target);
    assert!(opened(budget("b", 1)));
    assert!(!opened(Budget { tenant_id: Some(tenant("umbrella")), ..budget("b", 1) }));
    assert!(!issued(Grant { scope_key: "bob".to_owned(), ..grant("g", GrantScope::PerUser) }));
    assert!(!issued(Grant { scope_key: "other".to_owned(), ..grant("g", GrantScope::PerRun) }));
}

#[test]
fn a_change_that_names_only_an_id_may_concern_every_call() {
    for change in [disarmed("s"), gone("g"), GovernanceChange::ThrottlesSet(vec![])] {
        assert!(can_match(&change, &target()));
    }
}
