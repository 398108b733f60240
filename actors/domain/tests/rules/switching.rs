//! Who may arm and disarm what (KIL-007), and what follows.

use signalbox_domain::governance::change::{EpochChange, GovernanceChange, GovernanceState};
use signalbox_domain::governance::kill_switch::{KillSwitch, SwitchScope};
use signalbox_domain::governance::switching::{
    ArmSwitch, Arming, Disarming, Operator, PROPOSAL_LAPSES_AFTER_MS, Reach, SecondIdentity, SwitchDenial, arm, disarm,
    may_see_switch, may_switch,
};
use signalbox_domain::identity::{Actor, Role};
use signalbox_domain::ids::{ActorId, SwitchId, TenantId};
use signalbox_domain::time::UnixMs;

const NOW: UnixMs = UnixMs(1_000_000);

struct Person {
    tenant: TenantId,
    actor: Actor,
}

impl Person {
    fn new(name: &str, tenant: &str, role: Role) -> Self {
        let actor = Actor { actor_id: ActorId::new(name).unwrap(), role };
        Self { tenant: TenantId::new(tenant).unwrap(), actor }
    }
    fn by(&self) -> Operator<'_> {
        Operator { tenant_id: &self.tenant, actor: &self.actor }
    }
}

fn ada() -> Person {
    Person::new("ada", "platform", Role::PlatformOperator)
}

fn grace() -> Person {
    Person::new("grace", "platform", Role::PlatformOperator)
}

fn tina() -> Person {
    Person::new("tina", "acme", Role::TenantOperator)
}

fn id(text: &str) -> SwitchId {
    SwitchId::new(text).unwrap()
}

fn order(scope: SwitchScope, target: Option<&str>) -> ArmSwitch {
    ArmSwitch {
        switch_id: id("s"),
        reach: Reach::Own,
        scope,
        target_id: target.map(str::to_owned),
        reason: "a drill".to_owned(),
        user_visible_status_copy: "Later.".to_owned(),
        safe_degradation_mode_id: None,
        expires_at_unix_ms: None,
    }
}

fn target_of(scope: SwitchScope) -> Option<&'static str> {
    match scope {
        SwitchScope::Agent => Some("ref.research"),
        SwitchScope::Family => Some("research"),
        SwitchScope::Tenant => Some("acme"),
        SwitchScope::Provider => Some("local"),
        SwitchScope::Region => Some("eu-1"),
        SwitchScope::Tool => Some("web.fetch"),
        SwitchScope::Global => None,
    }
}

fn armed(order: ArmSwitch, by: &Person, state: &GovernanceState) -> KillSwitch {
    match arm(order, by.by(), state, NOW).unwrap() {
        Arming::Arm(switch) => switch,
        Arming::Already(switch) => panic!("{switch:?} was armed before"),
    }
}

/// The state with one more change.
fn then(mut state: GovernanceState, change: GovernanceChange) -> GovernanceState {
    state.apply(&EpochChange { epoch: state.epoch + 1, at_unix_ms: NOW, change });
    state
}

fn with(switch: KillSwitch) -> GovernanceState {
    then(GovernanceState::default(), GovernanceChange::SwitchArmed(switch))
}

fn wide(scope: SwitchScope) -> ArmSwitch {
    ArmSwitch { reach: Reach::Platform, ..order(scope, target_of(scope)) }
}

#[test]
fn a_role_arms_exactly_the_scopes_it_covers() {
    for role in Role::ALL {
        for scope in SwitchScope::ALL {
            let may = match role {
                Role::PlatformOperator => true,
                Role::TenantOperator => [SwitchScope::Tenant, SwitchScope::Agent, SwitchScope::Tool].contains(&scope),
                Role::Customer | Role::Creator | Role::Service => false,
            };
            assert_eq!(may_switch(role, scope), may, "{role:?} {scope:?}");
            let person = Person::new("p", "acme", role);
            let own = ArmSwitch { reach: Reach::Tenant(person.tenant.clone()), ..order(scope, target_of(scope)) };
            let answer = arm(own, person.by(), &GovernanceState::default(), NOW);
            assert_eq!(answer.is_ok(), may, "{role:?} {scope:?}: {answer:?}");
            if let Err(denial) = answer {
                assert_eq!(denial.code(), "not-authorized");
            }
        }
    }
}

#[test]
fn a_tenants_operator_arms_inside_its_tenant_only() {
    let state = GovernanceState::default();
    let refused = |order: ArmSwitch| arm(order, tina().by(), &state, NOW).unwrap_err().code();
    assert_eq!(refused(wide(SwitchScope::Tool)), "not-authorized");
    let other = Reach::Tenant(TenantId::new("other").unwrap());
    assert_eq!(refused(ArmSwitch { reach: other, ..order(SwitchScope::Tool, Some("web.fetch")) }), "not-authorized");
    assert_eq!(refused(order(SwitchScope::Tenant, Some("other"))), "not-authorized");
    let own = armed(order(SwitchScope::Tool, Some("web.fetch")), &tina(), &state);
    assert_eq!(own.tenant_id, Some(tina().tenant));
    assert_eq!(armed(order(SwitchScope::Tenant, Some("acme")), &ada(), &state).tenant_id, Some(tina().tenant));
}

#[test]
fn a_global_switch_says_whom_it_stops() {
    let asked = order(SwitchScope::Global, None);
    assert_eq!(arm(asked, ada().by(), &GovernanceState::default(), NOW), Err(SwitchDenial::ReachMissing));
    assert_eq!(armed(wide(SwitchScope::Global), &ada(), &GovernanceState::default()).tenant_id, None);
}

#[test]
fn a_switch_on_what_is_not_there_is_refused() {
    for (scope, target, code) in [
        (SwitchScope::Tool, "web.fetchh", "switch-target-unknown"),
        (SwitchScope::Tool, "__proto__", "switch-target-unknown"),
        (SwitchScope::Agent, "ref.nobody", "switch-target-unknown"),
        (SwitchScope::Family, "nobody", "unknown-family"),
        (SwitchScope::Provider, "no spaces", "switch-target-invalid"),
    ] {
        let answer = arm(order(scope, Some(target)), ada().by(), &GovernanceState::default(), NOW);
        assert_eq!(answer.unwrap_err().code(), code, "{target}");
    }
    for plane in ["creative-autonomy", "kernel", "turns"] {
        armed(order(SwitchScope::Family, Some(plane)), &ada(), &GovernanceState::default());
    }
}

#[test]
fn arming_the_same_twice_is_one_arming_and_anything_else_under_its_id_is_refused() {
    let state = with(armed(wide(SwitchScope::Tool), &ada(), &GovernanceState::default()));
    let again = |order: ArmSwitch, by: &Person, now| arm(order, by.by(), &state, now);
    assert!(matches!(again(wide(SwitchScope::Tool), &ada(), NOW.plus_ms(9)), Ok(Arming::Already(_))));
    let other = ArmSwitch { reason: "another".to_owned(), ..wide(SwitchScope::Tool) };
    assert_eq!(again(other, &ada(), NOW).unwrap_err().code(), "switch-id-conflict");
    assert_eq!(again(wide(SwitchScope::Tool), &grace(), NOW).unwrap_err().code(), "switch-id-conflict");
    // A tenant's operator learns nothing of it, and cannot take its id.
    let own = order(SwitchScope::Tool, Some("web.fetch"));
    assert_eq!(again(own, &tina(), NOW).unwrap_err().code(), "switch-id-conflict");
}

#[test]
fn a_length_said_twice_is_the_same_expiry() {
    let lasting = |now: UnixMs| ArmSwitch { expires_at_unix_ms: Some(now.plus_ms(500)), ..wide(SwitchScope::Tool) };
    let state = with(armed(lasting(NOW), &ada(), &GovernanceState::default()));
    let later = NOW.plus_ms(100);
    assert!(matches!(arm(lasting(later), ada().by(), &state, later), Ok(Arming::Already(_))));
    // The end is reckoned where the request arrives, a moment before it is judged.
    assert!(matches!(arm(lasting(later), ada().by(), &state, later.plus_ms(3)), Ok(Arming::Already(_))));
    // Once it has expired it may be armed anew.
    let over = NOW.plus_ms(600);
    assert!(matches!(arm(lasting(over), ada().by(), &state, over), Ok(Arming::Arm(_))));
}

fn asks(state: &GovernanceState, by: &Person, now: UnixMs) -> Result<Disarming, SwitchDenial> {
    disarm(&id("s"), "over", by.by(), state, &SecondIdentity::default(), now)
}

#[test]
fn a_global_switch_is_disarmed_by_two_identities() {
    let state = with(armed(wide(SwitchScope::Global), &ada(), &GovernanceState::default()));
    let Ok(Disarming::Propose { proposal, .. }) = asks(&state, &ada(), NOW) else { panic!("a proposal") };
    assert_eq!(proposal.lapses_at_unix_ms, NOW.plus_ms(PROPOSAL_LAPSES_AFTER_MS));
    let state = then(state, GovernanceChange::SwitchDisarmProposed(proposal.clone()));
    assert_eq!(asks(&state, &ada(), NOW.plus_ms(1)), Ok(Disarming::Waits(proposal.clone())));
    let Ok(Disarming::Disarm { confirms, .. }) = asks(&state, &grace(), NOW.plus_ms(1)) else { panic!("disarmed") };
    assert_eq!(confirms, Some(proposal));
    // After an hour it is a proposal again, whoever says it.
    let late = NOW.plus_ms(PROPOSAL_LAPSES_AFTER_MS);
    assert!(matches!(asks(&state, &grace(), late), Ok(Disarming::Propose { .. })));
    // Armed again, what was proposed before counts no more.
    let state =
        then(state, GovernanceChange::SwitchArmed(armed(wide(SwitchScope::Global), &ada(), &Default::default())));
    assert!(matches!(asks(&state, &grace(), NOW.plus_ms(1)), Ok(Disarming::Propose { .. })));
}

#[test]
fn which_scopes_need_two_is_configurable() {
    let state = with(armed(wide(SwitchScope::Global), &ada(), &GovernanceState::default()));
    let nobody = SecondIdentity([].into());
    let alone = disarm(&id("s"), "over", ada().by(), &state, &nobody, NOW);
    assert!(matches!(alone, Ok(Disarming::Disarm { confirms: None, .. })));
    let state = with(armed(wide(SwitchScope::Tool), &ada(), &GovernanceState::default()));
    assert!(matches!(asks(&state, &ada(), NOW), Ok(Disarming::Disarm { .. })));
    let tools = SecondIdentity([SwitchScope::Tool].into());
    assert!(matches!(disarm(&id("s"), "over", ada().by(), &state, &tools, NOW), Ok(Disarming::Propose { .. })));
}

#[test]
fn what_cannot_be_disarmed_says_why() {
    let order = ArmSwitch { expires_at_unix_ms: Some(NOW.plus_ms(500)), ..wide(SwitchScope::Global) };
    let state = with(armed(order, &ada(), &GovernanceState::default()));
    let code = |answer: Result<Disarming, SwitchDenial>| answer.unwrap_err().code();
    assert_eq!(code(disarm(&id("s"), " ", ada().by(), &state, &SecondIdentity::default(), NOW)), "reason-required");
    assert_eq!(code(disarm(&id("t"), "x", ada().by(), &state, &SecondIdentity::default(), NOW)), "no-such-switch");
    assert_eq!(code(asks(&state, &tina(), NOW)), "not-authorized", "it stops her too, so she sees it");
    assert_eq!(code(asks(&state, &Person::new("c", "acme", Role::Customer), NOW)), "not-authorized");
    // It expires while another identity is waited for.
    let Ok(Disarming::Propose { proposal, .. }) = asks(&state, &ada(), NOW) else { panic!("a proposal") };
    let state = then(state, GovernanceChange::SwitchDisarmProposed(proposal));
    assert_eq!(code(asks(&state, &grace(), NOW.plus_ms(500))), "switch-expired");
    let disarmed = GovernanceChange::SwitchDisarmed { switch_id: id("s"), at_unix_ms: NOW };
    let state = then(state, disarmed);
    assert!(state.proposals.is_empty());
    assert_eq!(code(asks(&state, &grace(), NOW)), "switch-already-disarmed");
}

#[test]
fn another_tenants_switch_is_as_absent_as_none() {
    let other = ArmSwitch { reach: Reach::Tenant(TenantId::new("other").unwrap()), ..wide(SwitchScope::Tool) };
    let foreign = armed(other, &ada(), &GovernanceState::default());
    assert!(!may_see_switch(tina().by(), &foreign) && may_see_switch(ada().by(), &foreign));
    assert_eq!(asks(&with(foreign), &tina(), NOW).unwrap_err().code(), "no-such-switch");
    let named = KillSwitch {
        tenant_id: None,
        target_id: Some("other".to_owned()),
        ..armed(wide(SwitchScope::Tenant), &ada(), &GovernanceState::default())
    };
    assert!(!may_see_switch(tina().by(), &named), "it names another tenant");
    assert!(may_see_switch(tina().by(), &armed(wide(SwitchScope::Tool), &ada(), &GovernanceState::default())));
}
