//! Grants (GRA).

use proptest::prelude::*;
use signalbox_domain::governance::grant::{
    Grant, GrantDenialReason, GrantQuery, GrantScope, Renewal, renew_grant, resolve_grant,
};
use signalbox_domain::ids::{ActorId, GrantId, RunId, TenantId, ToolId};
use signalbox_domain::time::UnixMs;

use crate::common::{NOW, grant, run_id, tenant, tool};

struct Asked {
    tenant: TenantId,
    tool: ToolId,
    semver: &'static str,
    run: RunId,
    user: ActorId,
}

fn asked() -> Asked {
    let user = ActorId::new("ada").unwrap();
    Asked { tenant: tenant("acme"), tool: tool("memory.read"), semver: "1.0.0", run: run_id(), user }
}

fn resolve<'a>(grants: &'a [Grant], asked: &Asked) -> Result<&'a str, &'static str> {
    let query = GrantQuery {
        tenant_id: &asked.tenant,
        tool_id: &asked.tool,
        tool_semver: asked.semver,
        run_id: asked.run,
        user_id: &asked.user,
        session_id: Some("session-1"),
        pipeline_instance: Some("instance-1"),
    };
    resolve_grant(grants.iter(), &query, NOW).map(|grant| grant.grant_id.as_str()).map_err(GrantDenialReason::code)
}

fn expired(grant: Grant) -> Grant {
    Grant { expires_at_unix_ms: Some(NOW), ..grant }
}

fn revoked(grant: Grant) -> Grant {
    Grant { revoked_at_unix_ms: Some(UnixMs(2_000)), ..grant }
}

#[test]
fn of_any_two_scopes_the_more_specific_decides() {
    assert_eq!(GrantScope::ALL.map(GrantScope::priority), [100, 80, 60, 40, 20]);
    for a in GrantScope::ALL {
        for b in GrantScope::ALL.into_iter().filter(|b| b.priority() < a.priority()) {
            for grants in [[grant("a", a), grant("b", b)], [grant("b", b), grant("a", a)]] {
                assert_eq!(resolve(&grants, &asked()), Ok("a"));
            }
        }
    }
}

#[test]
fn a_dead_grant_yields_to_a_live_one() {
    let live = grant("live", GrantScope::PerTenant);
    for dead in [expired(grant("dead", GrantScope::PerRun)), revoked(grant("dead", GrantScope::PerRun))] {
        assert_eq!(resolve(&[dead, live.clone()], &asked()), Ok("live"));
    }
}

#[test]
fn each_reason_for_having_no_grant_has_its_code() {
    let own = grant("own", GrantScope::PerRun);
    assert_eq!(resolve(&[], &asked()), Err("no-matching-grant"));
    assert_eq!(resolve(&[expired(own.clone())], &asked()), Err("all-matches-expired"));
    assert_eq!(resolve(&[revoked(own.clone())], &asked()), Err("all-matches-revoked"));
    assert_eq!(resolve(&[expired(own.clone()), revoked(own.clone())], &asked()), Err("all-matches-revoked"));
    assert_eq!(resolve(&[revoked(expired(own))], &asked()), Err("all-matches-revoked"));
}

#[test]
fn among_equals_the_last_issued_decides_and_then_the_smallest_id() {
    let at = |id, ms| Grant { issued_at_unix_ms: UnixMs(ms), ..grant(id, GrantScope::PerRun) };
    for grants in [[at("a", 5), at("b", 9), at("c", 9)], [at("c", 9), at("b", 9), at("a", 5)]] {
        assert_eq!(resolve(&grants, &asked()), Ok("b"));
    }
}

#[test]
fn tool_version_tenant_and_scope_key_must_all_be_equal() {
    let other_run: RunId = "00000000-0000-4000-8000-000000000000".parse().unwrap();
    for scope in GrantScope::ALL {
        let grants = [grant("g", scope)];
        assert_eq!(resolve(&grants, &asked()), Ok("g"));
        let denied = |asked: Asked| assert_eq!(resolve(&grants, &asked), Err("no-matching-grant"), "{scope:?}");
        denied(Asked { tool: tool("memory.write"), ..asked() });
        denied(Asked { semver: "2.0.0", ..asked() });
        denied(Asked { semver: "not a version", ..asked() });
        denied(Asked { tenant: tenant("umbrella"), ..asked() });
        let other_key = [Grant { scope_key: "other".to_owned(), ..grant("g", scope) }];
        assert_eq!(resolve(&other_key, &asked()), Err("no-matching-grant"));
    }
    assert_eq!(
        resolve(&[grant("g", GrantScope::PerRun)], &Asked { run: other_run, ..asked() }),
        Err("no-matching-grant")
    );
    let bob = ActorId::new("bob").unwrap();
    assert_eq!(resolve(&[grant("g", GrantScope::PerUser)], &Asked { user: bob, ..asked() }), Err("no-matching-grant"));
}

#[test]
fn a_grant_lives_no_longer_than_its_scope_allows() {
    let until = |scope, seconds| {
        let issued = grant("g", scope);
        let end = issued.issued_at_unix_ms.plus_seconds(seconds);
        Grant { expires_at_unix_ms: Some(end), ..issued }.validate().map_err(|error| error.code())
    };
    for (scope, seconds) in
        [(GrantScope::PerSession, 12 * 3_600), (GrantScope::PerUser, 30 * 86_400), (GrantScope::PerTenant, 90 * 86_400)]
    {
        assert_eq!(until(scope, seconds), Ok(()));
        assert_eq!(until(scope, seconds + 1), Err("ttl-too-long"));
        let endless = Grant { expires_at_unix_ms: None, ..grant("g", scope) };
        assert_eq!(endless.validate().map_err(|error| error.code()), Err("ttl-too-long"));
    }
    for scope in [GrantScope::PerRun, GrantScope::PerPipelineInstance] {
        assert_eq!(Grant { expires_at_unix_ms: None, ..grant("g", scope) }.validate(), Ok(()));
    }
}

#[test]
fn a_grant_that_makes_no_sense_is_refused_by_its_code() {
    let code = |grant: Grant| grant.validate().map_err(|error| error.code());
    let own = || grant("g", GrantScope::PerRun);
    assert_eq!(code(Grant { rationale: " \t".to_owned(), ..own() }), Err("rationale-required"));
    assert_eq!(code(Grant { audit_event_id: String::new(), ..own() }), Err("audit-required"));
    assert_eq!(code(Grant { tool_range: "newest".to_owned(), ..own() }), Err("tool-range-invalid"));
    assert_eq!(code(Grant { scope_key: String::new(), ..own() }), Err("scope-key-invalid"));
    assert_eq!(
        code(Grant { scope_key: "umbrella".to_owned(), ..grant("g", GrantScope::PerTenant) }),
        Err("scope-key-invalid")
    );
}

#[test]
fn a_renewal_needs_a_rationale_and_a_record() {
    let renewal = |rationale: &str, audit: &str| Renewal {
        grant_id: GrantId::new("new").unwrap(),
        issued_by: ActorId::new("operator").unwrap(),
        expires_at_unix_ms: Some(NOW.plus_seconds(60)),
        rationale: rationale.to_owned(),
        audit_event_id: audit.to_owned(),
    };
    let old = grant("old", GrantScope::PerSession);
    let code = |old: &Grant, renewal, now| renew_grant(old, renewal, now).map_err(|error| error.code());
    assert_eq!(code(&old, renewal(" ", "a"), NOW), Err("rationale-required"));
    assert_eq!(code(&old, renewal("r", "  "), NOW), Err("audit-required"));
    let renewed = renew_grant(&old, renewal("r", "a"), NOW).unwrap();
    assert_eq!(renewed.renewed_from_grant_id.as_ref().map(GrantId::as_str), Some("old"));
    assert_eq!((renewed.grant_id.as_str(), renewed.issued_at_unix_ms), ("new", NOW));
    assert_eq!(renewed.constraints, old.constraints);

    assert_eq!(code(&revoked(old.clone()), renewal("r", "a"), NOW), Err("grant-revoked"));
    let day = 24 * 3_600;
    let later = |seconds| Renewal { expires_at_unix_ms: Some(NOW.plus_seconds(seconds + 60)), ..renewal("r", "a") };
    assert!(renew_grant(&expired(old.clone()), later(day), NOW.plus_seconds(day)).is_ok());
    assert_eq!(code(&expired(old.clone()), later(day + 1), NOW.plus_seconds(day + 1)), Err("grant-expired"));
    assert_eq!(code(&old, later(day), NOW), Err("ttl-too-long"));
}

fn any_grant() -> impl Strategy<Value = Grant> {
    (0..5_usize, 0_i64..4, 0..4_u8, any::<bool>(), any::<bool>()).prop_map(|(scope, issued, id, dead, gone)| {
        let mut grant = grant(&format!("g{id}"), GrantScope::ALL[scope]);
        grant.issued_at_unix_ms = UnixMs(issued);
        grant = if dead { expired(grant) } else { grant };
        if gone { revoked(grant) } else { grant }
    })
}

proptest! {
    #[test]
    fn the_order_of_the_grants_never_matters(mut grants in proptest::collection::vec(any_grant(), 0..8), turn in 0..8_usize) {
        let first = resolve(&grants, &asked()).map(str::to_owned);
        grants.reverse();
        let length = grants.len();
        if length > 0 {
            grants.rotate_left(turn % length);
        }
        prop_assert_eq!(first, resolve(&grants, &asked()).map(str::to_owned));
    }
}
