//! Kill switches (KIL).

use signalbox_domain::governance::kill_switch::{
    KillSwitch, RESERVED_PLANES, SAFE_DEGRADATION_MODES, degradation_offer,
};
use signalbox_domain::governance::kill_switch::{SwitchScope, decide_execution};
use signalbox_domain::registry::AGENT_FAMILIES;
use signalbox_domain::time::UnixMs;

use crate::common::{NOW, switch, target, tenant};

/// One switch of each scope that matches the common target.
fn one_of_each() -> Vec<KillSwitch> {
    [
        (SwitchScope::Agent, Some("ref.research")),
        (SwitchScope::Family, Some("research")),
        (SwitchScope::Tenant, Some("acme")),
        (SwitchScope::Provider, Some("local")),
        (SwitchScope::Region, Some("eu-1")),
        (SwitchScope::Tool, Some("memory.read")),
        (SwitchScope::Global, None),
    ]
    .into_iter()
    .map(|(scope, id)| switch(scope.as_str(), scope, id))
    .collect()
}

#[test]
fn there_are_seven_scopes_with_their_wire_strings() {
    assert_eq!(SwitchScope::ALL.len(), 7);
    for scope in SwitchScope::ALL {
        assert_eq!(serde_json::to_value(scope).unwrap(), scope.as_str());
    }
}

#[test]
fn of_any_two_switches_the_broader_is_blamed() {
    let switches = one_of_each();
    for a in &switches {
        for b in switches.iter().filter(|b| b.scope != a.scope) {
            let broader = if a.scope.breadth() > b.scope.breadth() { a } else { b };
            let both = [a.clone(), b.clone()];
            assert_eq!(decide_execution(&both, &target(), NOW), Some(broader));
        }
    }
}

#[test]
fn the_decision_carries_the_text_and_the_degradation_mode_of_the_blamed_switch() {
    let switches = one_of_each();
    let blamed = decide_execution(&switches, &target(), NOW).unwrap();
    assert_eq!(blamed.user_visible_status_copy, "stopped by global");
    assert_eq!(blamed.safe_degradation_mode_id.as_deref(), Some("read-only"));
}

#[test]
fn of_equally_broad_switches_the_earliest_is_blamed_and_then_the_smallest_id() {
    let at =
        |id: &str, ms| KillSwitch { armed_at_unix_ms: UnixMs(ms), ..switch(id, SwitchScope::Provider, Some("local")) };
    for order in [[at("b", 5), at("a", 9)], [at("a", 9), at("b", 5)]] {
        assert_eq!(decide_execution(&order, &target(), NOW).unwrap().switch_id.as_str(), "b");
    }
    for order in [[at("b", 5), at("a", 5)], [at("a", 5), at("b", 5)]] {
        assert_eq!(decide_execution(&order, &target(), NOW).unwrap().switch_id.as_str(), "a");
    }
}

#[test]
fn a_switch_stops_only_what_it_names() {
    for switch in one_of_each().into_iter().filter(|switch| switch.scope != SwitchScope::Global) {
        assert!(switch.matches(&target()));
        let other = KillSwitch { target_id: Some("other".to_owned()), ..switch };
        assert!(!other.matches(&target()), "{:?}", other.scope);
    }
    let mut bare = target();
    (bare.family, bare.provider_id, bare.region) = (None, None, None);
    for scope in [SwitchScope::Family, SwitchScope::Provider, SwitchScope::Region] {
        assert!(!switch("s", scope, Some("x")).matches(&bare));
        assert!(!switch("s", scope, None).matches(&bare), "nothing is not nothing: {scope:?}");
    }
}

#[test]
fn a_switch_of_one_tenant_stops_no_call_of_another() {
    for switch in one_of_each() {
        let foreign = KillSwitch { tenant_id: Some(tenant("umbrella")), ..switch.clone() };
        assert!(!foreign.matches(&target()), "{:?}", foreign.scope);
        let own = KillSwitch { tenant_id: Some(tenant("acme")), ..switch };
        assert!(own.matches(&target()));
    }
}

#[test]
fn a_switch_is_active_until_it_is_disarmed_or_expires() {
    let armed = switch("s", SwitchScope::Global, None);
    assert!(armed.is_active(NOW));
    let expiring = KillSwitch { expires_at_unix_ms: Some(NOW), ..armed.clone() };
    assert!(expiring.is_active(UnixMs(NOW.0 - 1)) && !expiring.is_active(NOW));
    let disarmed = KillSwitch { disarmed_at_unix_ms: Some(UnixMs(2_000)), ..armed };
    assert!(!disarmed.is_active(NOW));
    assert_eq!(decide_execution(&[expiring, disarmed], &target(), NOW), None);
}

#[test]
fn a_family_switch_accepts_the_families_and_the_reserved_planes_only() {
    for id in AGENT_FAMILIES.into_iter().chain(RESERVED_PLANES) {
        assert_eq!(switch("s", SwitchScope::Family, Some(id)).validate(), Ok(()), "{id}");
    }
    let unknown = switch("s", SwitchScope::Family, Some("gardening")).validate();
    assert_eq!(unknown.map_err(|error| error.code()), Err("unknown-family"));
}

#[test]
fn a_switch_that_makes_no_sense_is_refused_by_its_code() {
    let global = switch("s", SwitchScope::Global, None);
    assert_eq!(global.validate(), Ok(()));
    for mode in SAFE_DEGRADATION_MODES {
        assert_eq!(KillSwitch { safe_degradation_mode_id: Some(mode.to_owned()), ..global.clone() }.validate(), Ok(()));
    }
    let cases = [
        (switch("s", SwitchScope::Global, Some("x")), "switch-target-invalid"),
        (switch("s", SwitchScope::Tool, None), "switch-target-invalid"),
        (switch("s", SwitchScope::Tool, Some("no spaces")), "switch-target-invalid"),
        (
            KillSwitch { tenant_id: Some(tenant("acme")), ..switch("s", SwitchScope::Tenant, Some("umbrella")) },
            "switch-two-tenants",
        ),
        (KillSwitch { reason: " ".to_owned(), ..global.clone() }, "reason-required"),
        (KillSwitch { user_visible_status_copy: String::new(), ..global.clone() }, "status-copy-required"),
        (KillSwitch { reason: "x".repeat(2_001), ..global.clone() }, "switch-text-too-long"),
        (
            KillSwitch { safe_degradation_mode_id: Some("panic".to_owned()), ..global.clone() },
            "unknown-degradation-mode",
        ),
        (KillSwitch { expires_at_unix_ms: Some(UnixMs(1_000)), ..global }, "switch-expires-too-early"),
    ];
    for (switch, code) in cases {
        assert_eq!(switch.validate().map_err(|error| error.code()), Err(code));
    }
}

#[test]
fn each_degradation_mode_has_an_offer_of_its_own_and_nothing_else_has() {
    let offers: std::collections::BTreeSet<_> =
        SAFE_DEGRADATION_MODES.iter().map(|mode| degradation_offer(mode).unwrap()).collect();
    assert_eq!(offers.len(), 4);
    for unknown in ["", "panic", "__proto__", "Read-Only"] {
        assert_eq!(degradation_offer(unknown), None);
    }
}
