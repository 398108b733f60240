//! Managing grants: who may, what is refused, and what a renewal ties together.

use serde_json::json;
use signalbox_domain::governance::bounds::within;
use signalbox_domain::governance::budgeting::Expected;
use signalbox_domain::governance::cascade::{
    Cascade, SubRun, emit_expiry_cascade, emit_revocation_cascade, emit_tool_kill_switch_cascade,
};
use signalbox_domain::governance::change::{EpochChange, GovernanceChange, GovernanceState};
use signalbox_domain::governance::grant::{Constraints, Grant, GrantScope};
use signalbox_domain::governance::granting::{
    self, GRANTS_LIVE_MAX, GrantDenial, IssueGrant, Issuing, RenewGrant, Revoking,
};
use signalbox_domain::governance::switching::Operator;
use signalbox_domain::identity::{Actor, Role};
use signalbox_domain::ids::{ActorId, GrantId, RunId, SwitchId, TenantId};
use signalbox_domain::time::UnixMs;
use uuid::Uuid;

use crate::common::{NOW, RUN, grant, run_id, tenant, tool};

fn id(text: &str) -> GrantId {
    GrantId::new(text).unwrap()
}

fn actor(role: Role) -> Actor {
    Actor { actor_id: ActorId::new("olga").unwrap(), role }
}

fn order(name: &str) -> IssueGrant {
    IssueGrant {
        grant_id: id(name),
        tenant_id: None,
        scope: GrantScope::PerUser,
        scope_key: Some("ada".to_owned()),
        tool_id: tool("web.fetch"),
        tool_range: None,
        constraints: bounds(json!({ "hosts": ["*.example.org"] })),
        delegable: None,
        expires_at_unix_ms: Some(NOW.plus_seconds(60)),
        rationale: "the press desk".to_owned(),
    }
}

fn bounds(value: serde_json::Value) -> Constraints {
    serde_json::from_value(value).unwrap()
}

/// What asking for this comes to, by an operator of this role in the tenant `acme`.
fn asked(order: IssueGrant, role: Role, state: &GovernanceState) -> Result<Issuing, GrantDenial> {
    let (own, actor) = (tenant("acme"), actor(role));
    let by = Operator { tenant_id: &own, actor: &actor };
    granting::issue(order, "audit/7".to_owned(), by, state, NOW)
}

fn code(order: IssueGrant) -> &'static str {
    asked(order, Role::TenantOperator, &GovernanceState::default()).map_or_else(|denial| denial.code(), |_| "ok")
}

fn with(grants: Vec<Grant>) -> GovernanceState {
    GovernanceState { grants, ..GovernanceState::default() }
}

fn issued(answer: Result<Issuing, GrantDenial>) -> Grant {
    match answer.unwrap() {
        Issuing::Issue(grant) | Issuing::Already(grant) => grant,
    }
}

#[test]
fn a_grant_is_issued_with_its_defaults_and_its_record() {
    let grant = issued(asked(order("g"), Role::TenantOperator, &GovernanceState::default()));
    assert_eq!((grant.tenant_id.as_str(), grant.tool_range.as_str()), ("acme", "^1.0.0"));
    assert_eq!((grant.audit_event_id.as_str(), grant.issued_at_unix_ms), ("audit/7", NOW));
    let tenant_wide = IssueGrant { scope: GrantScope::PerTenant, scope_key: None, ..order("g") };
    assert_eq!(issued(asked(tenant_wide, Role::TenantOperator, &GovernanceState::default())).scope_key, "acme");
}

#[test]
fn saying_it_twice_is_harmless_and_an_id_is_never_used_for_two_grants() {
    let first = issued(asked(order("g"), Role::TenantOperator, &GovernanceState::default()));
    let state = with(vec![first.clone()]);
    assert_eq!(asked(order("g"), Role::TenantOperator, &state), Ok(Issuing::Already(first.clone())));
    let other = IssueGrant { rationale: "something else".to_owned(), ..order("g") };
    assert_eq!(asked(other, Role::TenantOperator, &state).unwrap_err().code(), "grant-id-conflict");
    let gone = with(vec![Grant { revoked_at_unix_ms: Some(NOW), ..first }]);
    assert_eq!(asked(order("g"), Role::TenantOperator, &gone).unwrap_err().code(), "grant-id-conflict");
}

#[test]
fn a_tenants_operator_grants_inside_its_tenant_and_critical_tools_not_to_all_of_it() {
    let of = |role, order| asked(order, role, &GovernanceState::default()).map_err(|denial| denial.code());
    let foreign = || IssueGrant { tenant_id: Some(tenant("umbrella")), ..order("g") };
    assert_eq!(of(Role::TenantOperator, foreign()).unwrap_err(), "not-authorized");
    assert_eq!(issued(asked(foreign(), Role::PlatformOperator, &with(vec![]))).tenant_id.as_str(), "umbrella");
    for role in [Role::Customer, Role::Creator, Role::Service] {
        assert_eq!(of(role, order("g")).unwrap_err(), "not-authorized");
    }
    let critical = |scope, key: &str| IssueGrant {
        tool_id: tool("code.exec"),
        scope,
        scope_key: Some(key.to_owned()),
        constraints: Constraints::default(),
        ..order("g")
    };
    let wide = || critical(GrantScope::PerTenant, "acme");
    assert_eq!(of(Role::TenantOperator, wide()).unwrap_err(), "not-authorized");
    assert!(of(Role::PlatformOperator, wide()).is_ok());
    assert!(of(Role::TenantOperator, critical(GrantScope::PerRun, RUN)).is_ok());
}

#[test]
fn every_senseless_grant_is_refused_by_its_code() {
    let bounded = |value| IssueGrant { constraints: bounds(value), ..order("g") };
    let handed_on = |value| IssueGrant { delegable: Some(bounds(value)), ..order("g") };
    let scoped = |scope, key: Option<&str>| IssueGrant { scope, scope_key: key.map(str::to_owned), ..order("g") };
    let until = |end: UnixMs| IssueGrant { expires_at_unix_ms: Some(end), ..order("g") };
    let table = [
        (IssueGrant { rationale: " \t".to_owned(), ..order("g") }, "rationale-required"),
        (IssueGrant { rationale: "x".repeat(2_001), ..order("g") }, "reason-required"),
        (IssueGrant { tool_id: tool("web.fetchh"), ..order("g") }, "unknown-tool"),
        (IssueGrant { tool_id: tool("__proto__"), ..order("g") }, "unknown-tool"),
        (IssueGrant { tool_range: Some("newest".to_owned()), ..order("g") }, "tool-range-invalid"),
        (scoped(GrantScope::PerUser, None), "scope-key-invalid"),
        (scoped(GrantScope::PerUser, Some("no spaces")), "scope-key-invalid"),
        (scoped(GrantScope::PerRun, Some("not-a-run")), "scope-key-invalid"),
        (scoped(GrantScope::PerPipelineInstance, Some("p")), "scope-key-invalid"),
        (scoped(GrantScope::PerTenant, Some("umbrella")), "scope-key-invalid"),
        (until(NOW), "grant-expires-too-early"),
        (until(UnixMs(i64::MIN)), "grant-expires-too-early"),
        (until(NOW.plus_seconds(30 * 86_400 + 1)), "ttl-too-long"),
        (until(UnixMs(i64::MAX)), "ttl-too-long"),
        (IssueGrant { expires_at_unix_ms: None, ..order("g") }, "ttl-too-long"),
        (bounded(json!({ "maxCalls": 0 })), "grant-bound-invalid"),
        (bounded(json!({ "maxCostUnits": -1 })), "grant-bound-invalid"),
        (bounded(json!({ "hosts": ["https://a.org/"] })), "grant-bound-invalid"),
        (bounded(json!({ "hosts": [""] })), "grant-bound-invalid"),
        (bounded(json!({ "hosts": vec!["a.org"; 101] })), "grant-bound-invalid"),
        (bounded(json!({ "paths": ["/data/../etc"] })), "grant-bound-invalid"),
        (bounded(json!({ "methods": ["GET /"] })), "grant-bound-invalid"),
        (bounded(json!({ "schemes": ["file"] })), "grant-bound-invalid"),
        (handed_on(json!({ "hosts": ["*"] })), "grant-delegable-too-wide"),
        (handed_on(json!({})), "grant-delegable-too-wide"),
        (handed_on(json!({ "hosts": ["a.example.org"], "schemes": ["http"] })), "grant-delegable-too-wide"),
        (handed_on(json!({ "hosts": ["a.example.org"] })), "ok"),
        (bounded(json!({ "maxCalls": u64::MAX, "maxCostUnits": 0 })), "ok"),
    ];
    for (order, expected) in table {
        assert_eq!(code(order.clone()), expected, "{order:?}");
    }
}

#[test]
fn what_is_handed_on_is_a_part_of_what_may_be_used() {
    let fits = |inner, outer| within(&bounds(inner), &bounds(outer));
    let outer = || {
        json!({ "hosts": ["*.a.org", "b.org"], "paths": ["/data"], "methods": ["GET", "POST"], "schemes": ["https"],
            "secretIds": ["k1", "k2"], "maxCalls": 3, "maxCostUnits": 2 })
    };
    assert_eq!(fits(outer(), outer()), Ok(()));
    let change = |field: &str, value: serde_json::Value| {
        let mut inner = outer();
        inner[field] = value;
        fits(inner, outer())
    };
    for (field, value) in [
        ("hosts", json!(["x.a.org", "*.y.a.org", "B.ORG."])),
        ("hosts", json!([])),
        ("paths", json!(["/data/today"])),
        ("methods", json!(["post"])),
        ("secretIds", json!(["k2"])),
        ("maxCalls", json!(1)),
        ("maxCostUnits", json!(0.5)),
    ] {
        assert_eq!(change(field, value.clone()), Ok(()), "{field} {value}");
    }
    for (field, value) in [
        ("hosts", json!(["a.org"])),
        ("hosts", json!(["*"])),
        ("hosts", json!(["*.org"])),
        ("hosts", json!(["*.b.org"])),
        ("paths", json!(["/database"])),
        ("paths", json!(["data"])),
        ("methods", json!(["DELETE"])),
        ("schemes", json!(["http"])),
        ("secretIds", json!(["k3"])),
        ("maxCalls", json!(4)),
        ("maxCostUnits", json!(2.000001)),
        ("hosts", json!(null)),
        ("paths", json!(null)),
        ("maxCalls", json!(null)),
        ("maxCostUnits", json!(null)),
    ] {
        assert_eq!(change(field, value.clone()), Err(field), "{field} {value}");
    }
    // What is left out means what it means when a call is checked.
    assert_eq!(fits(json!({ "secretIds": ["k"] }), json!({})), Err("secretIds"));
    assert_eq!(fits(json!({ "paths": ["/etc"] }), json!({})), Err("paths"));
    assert_eq!(fits(json!({ "methods": ["POST"] }), json!({})), Err("methods"));
    assert_eq!(fits(json!({ "hosts": ["a.org"], "methods": ["GET"], "maxCalls": 1 }), json!({})), Ok(()));
}

#[test]
fn a_renewal_continues_a_grant_once_and_needs_the_revision_that_is() {
    let old = issued(asked(order("old"), Role::TenantOperator, &GovernanceState::default()));
    let (own, olga) = (tenant("acme"), actor(Role::TenantOperator));
    let by = Operator { tenant_id: &own, actor: &olga };
    let wish = |new: &str, expected| RenewGrant {
        grant_id: id("old"),
        new_grant_id: id(new),
        expires_at_unix_ms: Some(NOW.plus_seconds(3_600)),
        rationale: "the desk stays".to_owned(),
        expected,
    };
    let renew = |order, state: &GovernanceState| granting::renew(order, "audit/9".to_owned(), 4, by, state, NOW);
    let state = with(vec![old.clone()]);
    assert_eq!(renew(wish("new", Expected::Revision(3)), &state).unwrap_err().code(), "stale-revision");
    let new = issued(renew(wish("new", Expected::Revision(4)), &state));
    assert_eq!(new.renewed_from_grant_id, Some(id("old")));
    assert_eq!((new.scope_key.as_str(), &new.constraints), ("ada", &old.constraints));
    let both = with(vec![old.clone(), new.clone()]);
    assert_eq!(renew(wish("new", Expected::Any), &both), Ok(Issuing::Already(new)));
    assert_eq!(renew(wish("newer", Expected::Any), &both).unwrap_err().code(), "grant-renewed");
    assert_eq!(renew(wish("old", Expected::Any), &state).unwrap_err().code(), "grant-id-conflict");
    let long = RenewGrant { expires_at_unix_ms: Some(NOW.plus_seconds(31 * 86_400)), ..wish("n", Expected::Any) };
    assert_eq!(renew(long, &state).unwrap_err().code(), "ttl-too-long");
    let mute = RenewGrant { rationale: "\n ".to_owned(), ..wish("n", Expected::Any) };
    assert_eq!(renew(mute, &state).unwrap_err().code(), "rationale-required");
    let revoked = with(vec![Grant { revoked_at_unix_ms: Some(NOW), ..old.clone() }]);
    assert_eq!(renew(wish("n", Expected::Any), &revoked).unwrap_err().code(), "grant-revoked");
    let day = 24 * 3_600 * 1_000;
    let over = |ms| with(vec![Grant { expires_at_unix_ms: Some(UnixMs(NOW.0 - ms)), ..old.clone() }]);
    assert!(renew(wish("n", Expected::Any), &over(day)).is_ok());
    assert_eq!(renew(wish("n", Expected::Any), &over(day + 1)).unwrap_err().code(), "grant-expired");
    assert_eq!(renew(wish("n", Expected::Any), &with(vec![])).unwrap_err().code(), "no-such-grant");
}

#[test]
fn a_renewed_grant_is_revoked_with_all_that_it_is_tied_to() {
    let tied = |name: &str, from: Option<&str>| Grant {
        renewed_from_grant_id: from.map(id),
        ..grant(name, GrantScope::PerUser)
    };
    let grants = [tied("a", None), tied("b", Some("a")), tied("c", Some("b")), tied("other", None)];
    for named in ["a", "b", "c"] {
        let mut state = with(grants.to_vec());
        let change = GovernanceChange::GrantRevoked { grant_id: id(named), at_unix_ms: NOW };
        state.apply(&EpochChange { epoch: 1, at_unix_ms: NOW, change });
        let live: Vec<_> = state.grants.iter().filter(|grant| grant.revoked_at_unix_ms.is_none()).collect();
        assert_eq!(live.len(), 1, "{named}");
        assert_eq!(live[0].grant_id, id("other"));
    }
}

#[test]
fn revoking_twice_is_harmless_and_another_tenants_grant_is_as_absent_as_none() {
    let (own, other): (TenantId, TenantId) = (tenant("acme"), tenant("umbrella"));
    let creator = actor(Role::Creator);
    let olga = actor(Role::TenantOperator);
    let state = with(vec![grant("g", GrantScope::PerUser)]);
    let revoke = |tenant_id, actor, reason: &str, expected, state: &GovernanceState| {
        granting::revoke(&id("g"), reason, expected, 4, Operator { tenant_id, actor }, state)
            .map_err(|denial| denial.code())
    };
    assert_eq!(revoke(&other, &olga, "why", Expected::Any, &state), Err("no-such-grant"));
    assert_eq!(revoke(&own, &creator, "why", Expected::Any, &state), Err("not-authorized"));
    assert_eq!(revoke(&own, &olga, " ", Expected::Any, &state), Err("reason-required"));
    assert_eq!(revoke(&own, &olga, "why", Expected::Revision(3), &state), Err("stale-revision"));
    assert!(matches!(revoke(&own, &olga, "why", Expected::Revision(4), &state), Ok(Revoking::Revoke(_))));
    let gone = with(vec![Grant { revoked_at_unix_ms: Some(NOW), ..grant("g", GrantScope::PerUser) }]);
    assert_eq!(revoke(&own, &olga, "why", Expected::Revision(3), &gone), Ok(Revoking::Already));
}

#[test]
fn no_more_grants_are_live_than_a_call_can_be_held_against() {
    let many = |count| with((0..count).map(|n| grant(&format!("g{n}"), GrantScope::PerUser)).collect());
    let code = |state: &GovernanceState| asked(order("one-more"), Role::TenantOperator, state).map_err(|d| d.code());
    assert!(code(&many(GRANTS_LIVE_MAX - 1)).is_ok());
    assert_eq!(code(&many(GRANTS_LIVE_MAX)), Err("too-many-grants"));
}

fn sub_runs() -> [SubRun; 3] {
    [1, 2, 3].map(|n| SubRun { run_id: RunId::new(Uuid::from_u128(n)), is_terminal: n == 3 })
}

#[test]
fn a_cascade_reaches_each_sub_run_that_has_not_ended_and_no_other() {
    let sub_runs = sub_runs();
    let cascade = Cascade { parent_run_id: run_id(), sub_runs: &sub_runs, caused_at: NOW, now: NOW };
    for events in [emit_revocation_cascade(&cascade, &id("g")), emit_expiry_cascade(&cascade, &id("g"))] {
        let told: Vec<_> = events.iter().map(|event| event.run_id).collect();
        assert_eq!(told, [sub_runs[0].run_id, sub_runs[1].run_id]);
        assert!(events.iter().all(|event| event.parent_run_id == run_id()));
    }
    let wire = serde_json::to_value(&emit_expiry_cascade(&cascade, &id("g"))[0]).unwrap();
    assert_eq!((&wire["cause"], &wire["grantId"]), (&json!("grant-expired"), &json!("g")));
}

#[test]
fn a_cascaded_event_says_whether_it_kept_the_five_seconds() {
    let sub_runs = sub_runs();
    let kept = |ms: i64| {
        let cascade = Cascade { parent_run_id: run_id(), sub_runs: &sub_runs, caused_at: NOW, now: NOW.plus_ms(ms) };
        let events = emit_tool_kill_switch_cascade(&cascade, &SwitchId::new("s").unwrap(), &tool("web.fetch"));
        assert_eq!(events.len(), 2);
        events.iter().all(|event| event.within_five_second_slo)
    };
    assert!(kept(0) && kept(5_000) && kept(-40));
    assert!(!kept(5_001) && !kept(i64::MAX - NOW.0));
}
