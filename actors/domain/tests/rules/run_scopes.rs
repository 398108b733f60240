//! Whose runs a caller may ask for at once.

use signalbox_domain::identity::{Action, Actor, Caller, OthersDenied, Reach, Role, Scope, Whose, reach, scope_of};
use signalbox_domain::ids::{ActorId, TenantId};

fn tenant(id: &str) -> TenantId {
    TenantId::new(id).unwrap()
}

fn caller(role: Role) -> Caller {
    let actor = Actor { actor_id: ActorId::new("ann").unwrap(), role };
    Caller { tenant_id: tenant("acme"), actor, scopes: Vec::new(), surface: "api" }
}

#[test]
fn whoever_is_no_operator_is_shown_its_own_runs_alone() {
    let own = Scope::Submitter(tenant("acme"), ActorId::new("ann").unwrap());
    for role in Role::ALL {
        let expected =
            if reach(role, Action::ReadRuns) < Reach::Tenant { &own } else { &Scope::Tenant(tenant("acme")) };
        assert_eq!(scope_of(&caller(role), Whose::Own).as_ref(), Ok(expected), "{role:?}");
        assert_eq!(scope_of(&caller(role), Whose::Of(tenant("acme"))).as_ref(), Ok(expected), "{role:?}");
    }
    assert_eq!(scope_of(&caller(Role::Customer), Whose::Own), Ok(own));
}

#[test]
fn i11_only_an_operator_of_the_installation_asks_for_what_belongs_to_others() {
    for role in Role::ALL {
        let may = role == Role::PlatformOperator;
        let of = scope_of(&caller(role), Whose::Of(tenant("globex")));
        assert_eq!(of, if may { Ok(Scope::Tenant(tenant("globex"))) } else { Err(OthersDenied) }, "{role:?}");
        let all = scope_of(&caller(role), Whose::All);
        assert_eq!(all, if may { Ok(Scope::AllTenants) } else { Err(OthersDenied) }, "{role:?}");
    }
}

#[test]
fn a_scope_says_what_it_is_within() {
    let ann = ActorId::new("ann").unwrap();
    let own = Scope::Submitter(tenant("acme"), ann.clone());
    assert_eq!((own.tenant(), own.submitter()), (Some(&tenant("acme")), Some(&ann)));
    let within = Scope::Tenant(tenant("acme"));
    assert_eq!((within.tenant(), within.submitter()), (Some(&tenant("acme")), None));
    assert_eq!((Scope::AllTenants.tenant(), Scope::AllTenants.submitter()), (None, None));
}
