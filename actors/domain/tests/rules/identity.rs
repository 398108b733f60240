//! Who may do what, what a token says, and what a key is.

use serde_json::{Value, json};
use signalbox_domain::identity::{
    Action, Actor, ApiKey, Caller, ClaimNames, ClaimRules, ClaimsError, KEY_TTL_SECONDS_MAX, KeyState, KeyText, NewKey,
    Reach, Revoked, Role, SCOPES_MAX, last_used_shown, may_create, reach, read_claims, tenant_of,
};
use signalbox_domain::ids::{ActorId, KeyId, TenantId};
use signalbox_domain::time::UnixMs;
use uuid::Uuid;

const NOW: i64 = 1_800_000_000;

fn rules() -> ClaimRules {
    ClaimRules {
        issuer: "https://issuer.example".to_owned(),
        audience: "signalbox".to_owned(),
        leeway_seconds: 30,
        names: ClaimNames::default(),
    }
}

fn claims() -> Value {
    json!({
        "iss": "https://issuer.example", "aud": "signalbox", "sub": "ann", "exp": NOW + 600, "iat": NOW, "tenant": "acme",
        "role": "creator", "scope": "tool:web.fetch approve:teacher",
    })
}

fn read(claims: &Value) -> Result<Caller, ClaimsError> {
    read_claims(claims.to_string().as_bytes(), &rules(), NOW)
}

fn with(claim: &str, value: Value) -> Result<Caller, ClaimsError> {
    let mut claims = claims();
    claims[claim] = value;
    read(&claims)
}

fn without(claim: &str) -> Result<Caller, ClaimsError> {
    let mut claims = claims();
    claims.as_object_mut().unwrap().remove(claim);
    read(&claims)
}

fn caller(role: Role, scopes: &[&str]) -> Caller {
    Caller {
        tenant_id: TenantId::new("acme").unwrap(),
        actor: Actor { actor_id: ActorId::new("ann").unwrap(), role },
        scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
        surface: "api",
    }
}

#[test]
fn each_role_reaches_as_far_as_the_table_says_with_each_action() {
    use Reach::{Nothing as N, Own as O, Platform as P, Tenant as T};
    // customer, creator, service, tenant-operator, platform-operator
    let table = [
        ("submit", [T, T, T, T, P]),
        ("read-runs", [O, O, O, T, P]),
        ("pause", [O, O, O, T, P]),
        ("resume", [O, O, O, T, P]),
        ("cancel", [O, O, O, T, P]),
        ("choose-branch", [O, O, O, T, P]),
        ("kill", [N, N, N, T, P]),
        ("retry", [N, N, N, T, P]),
        ("step", [N, N, N, T, P]),
        ("fork", [N, N, N, T, P]),
        ("approve", [T, T, T, T, P]),
        ("replay", [N, N, N, T, P]),
        ("export", [N, N, N, T, P]),
        ("manage-keys", [N, N, N, T, P]),
        ("read-governance", [N, N, N, T, P]),
        ("change-governance", [N, N, N, T, P]),
        ("act-in-another-tenant", [N, N, N, N, P]),
    ];
    assert_eq!(Action::ALL.map(Action::as_str), table.map(|(name, _)| name));
    for (action, (name, row)) in Action::ALL.into_iter().zip(table) {
        for (role, expected) in Role::ALL.into_iter().zip(row) {
            assert_eq!(reach(role, action), expected, "{name} as {}", role.as_str());
        }
    }
}

#[test]
fn only_the_platforms_operator_acts_in_another_tenant() {
    let (own, other) = (TenantId::new("acme").unwrap(), TenantId::new("globex").unwrap());
    for role in Role::ALL {
        let caller = caller(role, &[]);
        assert_eq!(tenant_of(&caller, own.clone()).ok(), Some(own.clone()), "its own changes nothing");
        let wanted = (role == Role::PlatformOperator).then(|| other.clone());
        assert_eq!(tenant_of(&caller, other.clone()).ok(), wanted, "{role:?}");
    }
}

#[test]
fn a_good_token_makes_the_caller_it_says() {
    let said = read(&claims()).unwrap();
    let expected = Caller {
        scopes: vec!["approve:teacher".to_owned(), "tool:web.fetch".to_owned()],
        ..caller(Role::Creator, &[])
    };
    assert_eq!(said, expected);
    for role in Role::ALL {
        assert_eq!(with("role", json!(role.as_str())).unwrap().actor.role, role);
    }
    assert_eq!(with("aud", json!(["other", "signalbox"])).unwrap(), expected);
    assert_eq!(with("scope", json!(["tool:web.fetch", "approve:teacher"])).unwrap(), expected);
    assert_eq!(without("scope").unwrap().scopes, Vec::<String>::new(), "no scope, no scopes");
    assert!(without("iat").is_ok() && without("nbf").is_ok());
}

#[test]
fn a_claim_that_is_missing_makes_a_token_worth_nothing() {
    for claim in ["iss", "aud", "sub", "exp", "tenant", "role"] {
        assert_eq!(without(claim).unwrap_err(), ClaimsError::Missing(claim.to_owned()));
    }
}

#[test]
fn another_issuer_or_audience_is_refused_to_the_letter() {
    for other in ["https://issuer.example/", "https://ISSUER.example", "", "https://issuer.example\0"] {
        assert_eq!(with("iss", json!(other)).unwrap_err(), ClaimsError::WrongIssuer, "{other:?}");
    }
    for other in [json!("other"), json!([]), json!(["signalbox2", "SIGNALBOX"]), json!("signalbox ")] {
        assert_eq!(with("aud", other.clone()).unwrap_err(), ClaimsError::WrongAudience, "{other}");
    }
    for odd in [json!(7), json!(["signalbox", 7]), json!({"signalbox": true}), json!(null)] {
        assert!(matches!(with("aud", odd).unwrap_err(), ClaimsError::Malformed { .. }));
    }
}

#[test]
fn a_token_is_good_from_its_beginning_to_its_end_give_or_take_the_leeway() {
    for (claim, at, told) in [
        ("exp", NOW - 29, None),
        ("exp", NOW - 30, Some(ClaimsError::Expired)),
        ("exp", 0, Some(ClaimsError::Expired)),
        ("exp", -1, Some(ClaimsError::Expired)),
        ("nbf", NOW + 30, None),
        ("nbf", NOW + 31, Some(ClaimsError::NotYetValid)),
        ("iat", NOW + 30, None),
        ("iat", NOW + 31, Some(ClaimsError::NotYetValid)),
        ("iat", -1, None),
    ] {
        assert_eq!(with(claim, json!(at)).err(), told, "{claim} {at}");
    }
    assert!(with("exp", json!(NOW as f64 + 0.5)).is_ok(), "a fraction is allowed");
    for odd in [json!("1900000000"), json!(null), json!([1]), json!(true)] {
        assert!(matches!(with("exp", odd).unwrap_err(), ClaimsError::Malformed { .. }));
    }
    let far = claims().to_string().replace(&(NOW + 600).to_string(), "1e300");
    assert!(matches!(read_claims(far.as_bytes(), &rules(), NOW), Err(ClaimsError::Json(_))), "no instant at all");
}

#[test]
fn a_subject_a_tenant_a_role_or_a_scope_of_another_form_is_refused() {
    for (claim, odd) in [
        ("sub", json!("")),
        ("sub", json!("ann\0")),
        ("sub", json!("änn")),
        ("sub", json!("a".repeat(129))),
        ("sub", json!(7)),
        ("tenant", json!("acme globex")),
        ("tenant", json!(["acme"])),
        ("tenant", json!("../globex")),
        ("role", json!("root")),
        ("role", json!("Platform-Operator")),
        ("role", json!(["platform-operator"])),
        ("role", json!("")),
        ("scope", json!(7)),
        ("scope", json!(["a", 7])),
        ("scope", json!(["a b"])),
        ("scope", json!([""])),
        ("scope", json!("tool:\u{e9}")),
        ("scope", json!("tab\there")),
        ("scope", json!("s".repeat(129))),
        ("scope", json!(vec!["s"; SCOPES_MAX + 1])),
    ] {
        assert!(matches!(with(claim, odd.clone()).unwrap_err(), ClaimsError::Malformed { .. }), "{claim} {odd}");
    }
    for ours in ["system:run", "key:loader", "dev:operator"] {
        assert_eq!(with("sub", json!(ours)).unwrap_err(), ClaimsError::ReservedSubject, "{ours}");
    }
}

#[test]
fn claims_that_stand_twice_or_are_no_object_are_refused() {
    let twice = claims().to_string().replacen('{', r#"{"role":"platform-operator","#, 1);
    assert!(matches!(read_claims(twice.as_bytes(), &rules(), NOW), Err(ClaimsError::Json(_))));
    let deep = format!(r#"{{"x":{}{}}}"#, "[".repeat(20), "]".repeat(20));
    for odd in ["", "[]", "null", "7", "\"ann\"", "{", "\u{feff}{}", &deep, &"[".repeat(9_000)] {
        assert!(read_claims(odd.as_bytes(), &rules(), NOW).is_err(), "{odd:?}");
    }
    assert!(read_claims(b"\xff\xfe{}", &rules(), NOW).is_err());
}

#[test]
fn claims_may_be_called_something_else_and_are_then_looked_for_there_alone() {
    let names = ClaimNames { tenant: "https://acme.example/tenant".to_owned(), ..ClaimNames::default() };
    let rules = ClaimRules { names, ..rules() };
    let told = read_claims(claims().to_string().as_bytes(), &rules, NOW).unwrap_err();
    assert_eq!(told, ClaimsError::Missing("https://acme.example/tenant".to_owned()));
    let mut claims = claims();
    claims["https://acme.example/tenant"] = json!("globex");
    assert_eq!(read_claims(claims.to_string().as_bytes(), &rules, NOW).unwrap().tenant_id.as_str(), "globex");
}

fn key_text() -> KeyText {
    KeyText::new(KeyId::new(Uuid::from_u128(7)), [0xab; 32])
}

#[test]
fn a_key_is_read_as_it_was_revealed_and_in_no_other_form() {
    let text = key_text().reveal();
    assert_eq!(text.len(), 4 + 32 + 1 + 64);
    assert_eq!(KeyText::parse(&text), Some(key_text()));
    let id = Uuid::from_u128(7).to_string();
    for odd in [
        String::new(),
        "sbk_".to_owned(),
        text.to_uppercase(),
        text.replacen("sbk_", "SBK_", 1),
        format!("{text}0"),
        format!("{text} "),
        format!(" {text}"),
        text[..text.len() - 1].to_owned(),
        text.replace('_', "-"),
        text.replacen(&"ab".repeat(32), &"AB".repeat(32), 1),
        format!("sbk_{id}_{}", "ab".repeat(32)),
        format!("sbk_{}_{}", "é".repeat(16), "ab".repeat(32)),
        format!("sbk_{}\0_{}", "0".repeat(31), "ab".repeat(32)),
    ] {
        assert_eq!(KeyText::parse(&odd), None, "{odd:?}");
    }
    assert!(!format!("{:?}", key_text()).contains("abab"), "nothing prints the secret");
}

#[test]
fn the_hash_of_a_key_depends_on_all_of_it() {
    let same = KeyText::parse(&key_text().reveal()).unwrap();
    assert_eq!(same.hash(), key_text().hash());
    let other_id = KeyText::new(KeyId::new(Uuid::from_u128(8)), [0xab; 32]);
    let mut secret = [0xab; 32];
    secret[31] = 0xaa;
    let other_secret = KeyText::new(KeyId::new(Uuid::from_u128(7)), secret);
    assert_ne!(other_id.hash(), key_text().hash());
    assert_ne!(other_secret.hash(), key_text().hash());
}

fn new_key(role: Role, scopes: &[&str]) -> NewKey {
    let scopes = scopes.iter().map(|scope| (*scope).to_owned()).collect();
    NewKey { name: "loader".to_owned(), role, scopes, ttl_seconds: 3_600 }
}

#[test]
fn a_key_has_at_most_what_whoever_makes_it_has() {
    let says = |by: &Caller, new: &NewKey| may_create(by, new).map_or_else(|denial| denial.code(), |()| "ok");
    let scopes = ["tool:web.fetch"];
    for role in [Role::Customer, Role::Creator, Role::Service] {
        assert_eq!(says(&caller(role, &scopes), &new_key(role, &[])), "not-authorized", "{role:?}");
    }
    let (tenant, platform) = (caller(Role::TenantOperator, &scopes), caller(Role::PlatformOperator, &[]));
    for role in Role::ALL {
        let may = if role == Role::PlatformOperator { "not-authorized" } else { "ok" };
        assert_eq!(says(&tenant, &new_key(role, &scopes)), may, "{role:?}");
        assert_eq!(says(&platform, &new_key(role, &scopes)), "ok", "{role:?}");
    }
    assert_eq!(says(&tenant, &new_key(Role::Service, &["approve:guardian"])), "not-authorized");
}

#[test]
fn a_key_with_an_odd_name_scope_or_life_is_not_made() {
    let operator = caller(Role::PlatformOperator, &[]);
    let says = |new: NewKey| may_create(&operator, &new).map_or_else(|denial| denial.code(), |()| "ok");
    let good = || new_key(Role::Service, &[]);
    for name in ["", "a b", "a\0", "é", &"n".repeat(101)] {
        assert_eq!(says(NewKey { name: name.to_owned(), ..good() }), "key-name-invalid", "{name:?}");
    }
    assert_eq!(says(NewKey { name: "n".repeat(100), ..good() }), "ok");
    for scope in ["", "a b", "\"", "é", "a\0"] {
        assert_eq!(says(new_key(Role::Service, &[scope])), "key-scopes-invalid", "{scope:?}");
    }
    for ttl_seconds in [0, 59, KEY_TTL_SECONDS_MAX + 1, u64::MAX] {
        assert_eq!(says(NewKey { ttl_seconds, ..good() }), "key-ttl-invalid", "{ttl_seconds}");
    }
    for ttl_seconds in [60, KEY_TTL_SECONDS_MAX] {
        assert_eq!(says(NewKey { ttl_seconds, ..good() }), "ok");
    }
}

#[test]
fn a_key_is_live_until_it_expires_or_is_taken_back() {
    let key = ApiKey {
        key_id: KeyId::new(Uuid::from_u128(7)),
        tenant_id: TenantId::new("acme").unwrap(),
        name: "loader".to_owned(),
        role: Role::Service,
        scopes: vec!["tool:web.fetch".to_owned()],
        hash: key_text().hash(),
        created_at: UnixMs(0),
        created_by: caller(Role::TenantOperator, &[]).actor,
        expires_at: UnixMs(1_000),
        revoked: None,
        last_used_at: None,
    };
    assert_eq!((key.state(UnixMs(999)), key.state(UnixMs(1_000))), (KeyState::Live, KeyState::Expired));
    let by = caller(Role::TenantOperator, &[]).actor;
    let revoked = ApiKey { revoked: Some(Revoked { at: UnixMs(5), by }), ..key.clone() };
    assert_eq!((revoked.state(UnixMs(4)), revoked.state(UnixMs(2_000))), (KeyState::Revoked, KeyState::Revoked));
    let calls = key.caller().unwrap();
    assert_eq!((calls.actor.actor_id.as_str(), calls.actor.role), ("key:loader", Role::Service));
    assert_eq!((calls.tenant_id.as_str(), calls.scopes), ("acme", vec!["tool:web.fetch".to_owned()]));
    assert_eq!(last_used_shown(UnixMs(3_600_000 * 5 + 1_234)), UnixMs(3_600_000 * 5));
    assert_eq!(last_used_shown(UnixMs(-1)), UnixMs(-3_600_000));
}
