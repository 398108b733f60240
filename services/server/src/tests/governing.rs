//! Governance over the wire: what is refused before anybody acts on it, and what each "no" looks like.

use signalbox_domain::governance::audit::{AuditBody, AuditEvent, Subject};
use signalbox_domain::identity::Actor;
use signalbox_domain::run::chain::EventHash;
use signalbox_domain::time::UnixMicros;
use signalbox_proto::v1;
use signalbox_proto::v1::governance_service_client::GovernanceServiceClient;
use tonic::Code;
use tonic::transport::Channel;

use super::{Fixture, as_role, as_tenant, field, fixture, reason};

fn client(fixture: &Fixture) -> GovernanceServiceClient<Channel> {
    GovernanceServiceClient::new(fixture.channel.clone())
}

fn order(id: &str) -> v1::ArmSwitchRequest {
    v1::ArmSwitchRequest {
        switch_id: id.to_owned(),
        scope: v1::SwitchScope::Tool.into(),
        target_id: "web.fetch".to_owned(),
        reason: "a drill".to_owned(),
        user_visible_status_copy: "Later.".to_owned(),
        ..Default::default()
    }
}

#[tokio::test]
async fn a_switch_is_armed_for_the_callers_tenant_unless_it_says_otherwise() {
    let fixture = fixture().await;
    let mut client = client(&fixture);
    let armed = client.arm_switch(order("")).await.unwrap().into_inner().switch.unwrap();
    assert!(armed.switch_id.starts_with("switch-"), "{}", armed.switch_id);
    assert_eq!((armed.tenant_id.as_str(), armed.state.as_str()), ("acme", "armed"));
    let named = v1::ArmSwitchRequest { tenant_id: "other".to_owned(), ..order("b") };
    assert_eq!(client.arm_switch(named).await.unwrap().into_inner().switch.unwrap().tenant_id, "other");
    let wide = v1::ArmSwitchRequest { platform_wide: true, ..order("c") };
    assert_eq!(client.arm_switch(wide).await.unwrap().into_inner().switch.unwrap().tenant_id, "");
    let again = client.arm_switch(v1::ArmSwitchRequest { platform_wide: true, ..order("c") }).await.unwrap();
    assert!(again.into_inner().replayed);
    // Another tenant's switch is as absent as none.
    let seen = client.list_switches(as_tenant("other", v1::ListSwitchesRequest::default())).await.unwrap().into_inner();
    assert_eq!(seen.switches.len(), 3, "a platform operator sees all");
    let mut request = as_role("tenant-operator", v1::ListSwitchesRequest::default());
    request.metadata_mut().insert("tenant", "other".parse().unwrap());
    let seen = client.list_switches(request).await.unwrap().into_inner().switches;
    assert_eq!(seen.iter().map(|switch| switch.switch_id.as_str()).collect::<Vec<_>>(), ["b", "c"]);
}

#[tokio::test]
async fn every_senseless_switch_is_refused_with_its_code_and_its_field() {
    let fixture = fixture().await;
    let mut client = client(&fixture);
    let long = "x".repeat(2_001);
    let expiry = v1::arm_switch_request::Expiry::ExpiresAfterSeconds;
    let at = v1::arm_switch_request::Expiry::ExpiresAtUnixMs;
    let table = [
        (v1::ArmSwitchRequest { scope: 0, ..order("a") }, "switch-scope-invalid", "scope"),
        (v1::ArmSwitchRequest { scope: 99, ..order("a") }, "switch-scope-invalid", "scope"),
        (order("no spaces"), "id-invalid", "switch_id"),
        (v1::ArmSwitchRequest { target_id: String::new(), ..order("a") }, "switch-target-invalid", "target_id"),
        (v1::ArmSwitchRequest { target_id: "web.fetchh".into(), ..order("a") }, "switch-target-unknown", "target_id"),
        (v1::ArmSwitchRequest { target_id: "__proto__".into(), ..order("a") }, "switch-target-unknown", "target_id"),
        (v1::ArmSwitchRequest { reason: " ".into(), ..order("a") }, "reason-required", "reason"),
        (v1::ArmSwitchRequest { reason: long.clone(), ..order("a") }, "switch-text-too-long", "reason"),
        (v1::ArmSwitchRequest { reason: "a\0b".into(), ..order("a") }, "text-invalid", "reason"),
        (
            v1::ArmSwitchRequest { user_visible_status_copy: String::new(), ..order("a") },
            "status-copy-required",
            "user_visible_status_copy",
        ),
        (
            v1::ArmSwitchRequest { safe_degradation_mode_id: "panic".into(), ..order("a") },
            "unknown-degradation-mode",
            "safe_degradation_mode_id",
        ),
        (
            v1::ArmSwitchRequest { platform_wide: true, tenant_id: "acme".into(), ..order("a") },
            "reach-invalid",
            "platform_wide",
        ),
        (v1::ArmSwitchRequest { expiry: Some(expiry(0)), ..order("a") }, "expiry-invalid", "expires_after_seconds"),
        (
            v1::ArmSwitchRequest { expiry: Some(expiry(u64::MAX)), ..order("a") },
            "expiry-invalid",
            "expires_after_seconds",
        ),
        (v1::ArmSwitchRequest { expiry: Some(at(1)), ..order("a") }, "switch-expires-too-early", "expires_at_unix_ms"),
        (
            v1::ArmSwitchRequest { expiry: Some(at(i64::MIN)), ..order("a") },
            "switch-expires-too-early",
            "expires_at_unix_ms",
        ),
        (
            v1::ArmSwitchRequest { scope: v1::SwitchScope::Global.into(), target_id: String::new(), ..order("a") },
            "switch-reach-missing",
            "platform_wide",
        ),
        (
            v1::ArmSwitchRequest { scope: v1::SwitchScope::Family.into(), target_id: "nobody".into(), ..order("a") },
            "unknown-family",
            "target_id",
        ),
    ];
    for (request, code, at_fault) in table {
        let status = client.arm_switch(request).await.unwrap_err();
        assert_eq!((status.code(), reason(&status).as_str()), (Code::InvalidArgument, code));
        assert_eq!(field(&status), at_fault, "{code}");
    }
    let plane =
        v1::ArmSwitchRequest { scope: v1::SwitchScope::Family.into(), target_id: "kernel".into(), ..order("k") };
    assert!(client.arm_switch(plane).await.is_ok(), "a reserved plane counts as a family");
}

#[tokio::test]
async fn who_may_not_and_what_is_not_there_have_statuses_of_their_own() {
    let fixture = fixture().await;
    let mut client = client(&fixture);
    let refused = client.arm_switch(as_role("creator", order("a"))).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::PermissionDenied, "not-authorized"));
    let refused = client.list_switches(as_role("customer", v1::ListSwitchesRequest::default())).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    let gone = client.get_switch(v1::GetSwitchRequest { switch_id: "nowhere".into() }).await.unwrap_err();
    assert_eq!((gone.code(), reason(&gone).as_str()), (Code::NotFound, "no-such-switch"));
    client.arm_switch(order("a")).await.unwrap();
    let other = v1::ArmSwitchRequest { reason: "something else".into(), ..order("a") };
    let taken = client.arm_switch(other).await.unwrap_err();
    assert_eq!((taken.code(), reason(&taken).as_str()), (Code::AlreadyExists, "switch-id-conflict"));
    let stale = v1::TopUpBudgetRequest {
        budget_id: "b".into(),
        amount_micros: 1,
        reason: "x".into(),
        expected_revision: 1,
        dry_run: false,
    };
    let stale = client.top_up_budget(stale).await.unwrap_err();
    assert_eq!((stale.code(), reason(&stale).as_str()), (Code::Aborted, "stale-revision"));
}

#[tokio::test]
async fn every_senseless_budget_is_refused_with_its_code() {
    let fixture = fixture().await;
    let mut client = client(&fixture);
    let rule = r#"{"budgetId":"b","scope":"tool","scopeKey":"web.fetch","category":"cost-units","limit":10}"#;
    let wish =
        |json: String| v1::PutBudgetRequest { budget_json: json.into(), reason: "why".into(), ..Default::default() };
    let put = client.put_budget(wish(rule.to_owned())).await.unwrap().into_inner().budget.unwrap();
    assert_eq!((put.tenant_id.as_str(), put.limit_micros), ("acme", 10_000_000));
    let table = [
        ("\"limit\":10", "\"limit\":-1", "budget-limit-negative"),
        ("\"limit\":10", "\"limit\":0.0000001", "budget-invalid"),
        ("\"limit\":10", "\"limit\":1e300", "number-not-exact"),
        ("\"limit\":10", "\"limit\":99999999999999999999", "number-not-exact"),
        ("\"limit\":10", "\"limit\":\"ten\"", "budget-invalid"),
        ("\"limit\":10", "\"limit\":10,\"limit\":20", "json-duplicate-key"),
        ("\"limit\":10", "\"limit\":10,\"__proto__\":{}", "budget-invalid"),
        ("\"limit\":10", "\"limit\":10,\"periodSeconds\":0", "budget-period-invalid"),
        ("\"limit\":10", "\"limit\":10,\"periodSeconds\":-5", "budget-invalid"),
        ("\"limit\":10", "\"limit\":10,\"periodSeconds\":1.5", "budget-invalid"),
        ("\"limit\":10", "\"limit\":10,\"warnRatio\":2", "budget-ratio-invalid"),
        ("\"limit\":10", "\"limit\":10,\"graceRatio\":0.5", "budget-ratio-invalid"),
        ("\"limit\":10", "\"limit\":10,\"onExceeded\":\"explode\"", "budget-invalid"),
        (
            "\"limit\":10",
            "\"limit\":10,\"calendar\":{\"unit\":\"day\",\"timeZone\":\"Mars/Base\"}",
            "budget-calendar-invalid",
        ),
        ("\"limit\":10", "\"limit\":10,\"calendar\":{\"unit\":\"eon\",\"timeZone\":\"UTC\"}", "budget-invalid"),
        ("cost-units", "dollars", "budget-invalid"),
        ("\"tool\"", "\"planet\"", "budget-invalid"),
        ("web.fetch", "web.fetchh", "budget-scope-key-invalid"),
        ("web.fetch", "", "budget-scope-key-empty"),
        ("\"b\"", "\"no spaces\"", "budget-invalid"),
        ("{", "[{", "json-invalid"),
    ];
    for (from, to, code) in table {
        let status = client.put_budget(wish(rule.replacen(from, to, 1))).await.unwrap_err();
        assert_eq!((status.code(), reason(&status).as_str()), (Code::InvalidArgument, code), "{to}");
    }
    let silent =
        client.put_budget(v1::PutBudgetRequest { reason: " ".into(), ..wish(rule.to_owned()) }).await.unwrap_err();
    assert_eq!(reason(&silent), "reason-required");
    let both = v1::PutBudgetRequest { expects_none: true, expected_revision: 3, ..wish(rule.to_owned()) };
    assert_eq!(reason(&client.put_budget(both).await.unwrap_err()), "revision-invalid");
    let new = v1::PutBudgetRequest { expected_revision: 3, ..wish(rule.to_owned()) };
    let stale = client.put_budget(new).await.unwrap_err();
    assert_eq!((stale.code(), reason(&stale).as_str()), (Code::Aborted, "stale-revision"));
}

fn act(seq: u64, subject: Subject) -> AuditEvent {
    AuditEvent {
        seq,
        at: UnixMicros(1),
        tenant_id: None,
        actor: Actor::system(),
        kind: "switch-armed".to_owned(),
        subject,
        version: 1,
        epoch: seq,
        body: AuditBody::default().to_bytes(),
        prev_hash: EventHash::ZERO,
        hash: EventHash::ZERO,
    }
}

#[tokio::test]
async fn a_watch_tells_what_happens_to_switches_from_its_cursor_on_and_ends_when_the_server_drains() {
    let mut fixture = fixture().await;
    fixture.governance.record(act(1, Subject::switch(&"a")));
    fixture.governance.record(act(2, Subject::budget(&"b")));
    fixture.governance.record(act(3, Subject::switch(&"c")));
    let request = v1::WatchSwitchesRequest { after_seq: 1 };
    let mut watch = client(&fixture).watch_switches(request).await.unwrap().into_inner();
    let next = |item: Option<v1::WatchSwitchesResponse>| item.unwrap().event.unwrap().seq;
    assert_eq!(next(watch.message().await.unwrap()), 3, "what is about a budget is left out");
    fixture.governance.record(act(4, Subject::switch(&"d")));
    assert_eq!(next(watch.message().await.unwrap()), 4);
    fixture.stop.take().unwrap().send(()).unwrap();
    let ended = watch.message().await.unwrap_err();
    assert_eq!(reason(&ended), "server-draining");
}

fn grant_wish(json: &str) -> v1::IssueGrantRequest {
    v1::IssueGrantRequest {
        grant_json: json.as_bytes().to_vec().into(),
        rationale: "the desk".to_owned(),
        // A minute after the time of the fake.
        expiry: Some(v1::issue_grant_request::Expiry::ExpiresAtUnixMs(1_800_000_060_000)),
        ..Default::default()
    }
}

const GRANT: &str = r#"{"grantId":"g","scope":"per-user","scopeKey":"ann","toolId":"web.fetch"}"#;

#[tokio::test]
async fn every_senseless_grant_and_throttle_is_refused_with_its_code_and_its_field() {
    let fixture = fixture().await;
    let mut client = client(&fixture);
    let table = [
        ("\"per-user\"", "\"per-planet\"", "grant-invalid", "grant_json"),
        ("\"scope\"", "\"__proto__\":1,\"scope\"", "grant-invalid", "grant_json"),
        ("\"grantId\":\"g\"", "\"grantId\":\"no spaces\"", "grant-invalid", "grant_json"),
        ("\"scope\"", "\"scope\":\"per-run\",\"scope\"", "json-duplicate-key", "grant_json"),
        ("{\"g", "{\"constraints\":{\"maxCalls\":1,\"maxCalls\":9},\"g", "json-duplicate-key", "grant_json"),
        ("{\"g", "{\"constraints\":{\"maxCalls\":-1},\"g", "grant-invalid", "grant_json"),
        ("{\"g", "{\"constraints\":{\"maxCalls\":1e300},\"g", "number-not-exact", "grant_json"),
        ("{\"g", "{\"constraints\":{\"maxCalls\":0},\"g", "grant-bound-invalid", "grant_json.constraints.maxCalls"),
        ("{\"g", "{\"issuedBy\":\"eve\",\"g", "grant-invalid", "grant_json"),
        ("\"web.fetch\"", "\"web.fetchh\"", "unknown-tool", "grant_json.toolId"),
        (",\"scopeKey\":\"ann\"", "", "scope-key-invalid", "grant_json.scopeKey"),
    ];
    for (from, to, code, at_fault) in table {
        let status = client.issue_grant(grant_wish(&GRANT.replacen(from, to, 1))).await.unwrap_err();
        assert_eq!((status.code(), reason(&status).as_str()), (Code::InvalidArgument, code), "{to}");
        assert_eq!(field(&status), at_fault, "{to}");
    }
    let at = v1::issue_grant_request::Expiry::ExpiresAtUnixMs;
    for (expiry, code) in [(at(1), "grant-expires-too-early"), (at(i64::MAX), "ttl-too-long")] {
        let status = client.issue_grant(v1::IssueGrantRequest { expiry: Some(expiry), ..grant_wish(GRANT) }).await;
        assert_eq!(reason(&status.unwrap_err()), code);
    }
    let mute = v1::IssueGrantRequest { rationale: " ".to_owned(), ..grant_wish(GRANT) };
    assert_eq!(reason(&client.issue_grant(mute).await.unwrap_err()), "rationale-required");
    let listed = v1::ListGrantsRequest { scope: "per-planet".to_owned(), ..Default::default() };
    assert_eq!(reason(&client.list_grants(listed).await.unwrap_err()), "grant-scope-invalid");
    let rule = |json: &str| v1::SetThrottleRequest {
        rule_json: json.as_bytes().to_vec().into(),
        reason: "why".to_owned(),
        ..Default::default()
    };
    for (json, code) in [
        (r#"{"bucketId":"b","capacity":1,"capacity":2,"refillPerSecond":1}"#, "json-duplicate-key"),
        (r#"{"bucketId":"b","capacity":0.999999,"refillPerSecond":1}"#, "bucket-too-small"),
        (r#"{"bucketId":"b","capacity":1,"refillPerSecond":-1}"#, "bucket-no-refill"),
        (r#"{"bucketId":"b","capacity":"1","refillPerSecond":1}"#, "throttle-invalid"),
        (r#"{"bucketId":"b","capacity":1,"refillPerSecond":1,"per":["planet"]}"#, "throttle-invalid"),
        (r#"{"bucketId":"b","capacity":1,"refillPerSecond":1,"toolId":"__proto__"}"#, "throttle-target-unknown"),
        (r#"{"bucketId":"b","capacity":1,"refillPerSecond":1,"tokens":5}"#, "throttle-invalid"),
    ] {
        let status = client.set_throttle(rule(json)).await.unwrap_err();
        assert_eq!((status.code(), reason(&status).as_str()), (Code::InvalidArgument, code), "{json}");
    }
}

#[tokio::test]
async fn grants_and_throttles_that_others_have_changed_are_aborted_and_foreign_ones_absent() {
    let fixture = fixture().await;
    let mut client = client(&fixture);
    let issued = client.issue_grant(grant_wish(GRANT)).await.unwrap().into_inner().grant.unwrap();
    assert_eq!((issued.tenant_id.as_str(), issued.state.as_str()), ("acme", "live"));
    let other = v1::IssueGrantRequest { rationale: "another".to_owned(), ..grant_wish(GRANT) };
    let taken = client.issue_grant(other).await.unwrap_err();
    assert_eq!((taken.code(), reason(&taken).as_str()), (Code::AlreadyExists, "grant-id-conflict"));
    let revoke = |expected_revision| v1::RevokeGrantRequest {
        grant_id: "g".to_owned(),
        reason: "closed".to_owned(),
        expected_revision,
        dry_run: false,
    };
    let stale = client.revoke_grant(revoke(9)).await.unwrap_err();
    assert_eq!((stale.code(), reason(&stale).as_str()), (Code::Aborted, "stale-revision"));
    let mut foreign = as_role("tenant-operator", revoke(0));
    foreign.metadata_mut().insert("tenant", "other".parse().unwrap());
    let absent = client.revoke_grant(foreign).await.unwrap_err();
    assert_eq!((absent.code(), reason(&absent).as_str()), (Code::NotFound, "no-such-grant"));
    let denied = client.issue_grant(as_role("creator", grant_wish(GRANT))).await.unwrap_err();
    assert_eq!((denied.code(), reason(&denied).as_str()), (Code::PermissionDenied, "not-authorized"));
    assert!(!client.revoke_grant(revoke(1)).await.unwrap().into_inner().already);
    assert!(client.revoke_grant(revoke(0)).await.unwrap().into_inner().already);
    let renew = v1::RenewGrantRequest {
        grant_id: "g".to_owned(),
        rationale: "again".to_owned(),
        expiry: Some(v1::renew_grant_request::Expiry::ExpiresAfterSeconds(60)),
        ..Default::default()
    };
    let dead = client.renew_grant(renew).await.unwrap_err();
    assert_eq!((dead.code(), reason(&dead).as_str()), (Code::FailedPrecondition, "grant-revoked"));

    let rule = br#"{"bucketId":"t","capacity":2,"refillPerSecond":1,"per":["tool"]}"#.to_vec();
    let set = |expected_revision, platform_wide| v1::SetThrottleRequest {
        rule_json: rule.clone().into(),
        reason: "why".to_owned(),
        expected_revision,
        platform_wide,
        ..Default::default()
    };
    let wide = client.set_throttle(set(0, true)).await.unwrap().into_inner().throttle.unwrap();
    assert!(wide.platform_wide && wide.tenant_id.is_empty());
    let stale = client.set_throttle(set(9, true)).await.unwrap_err();
    assert_eq!(stale.code(), Code::Aborted);
    let mine = client.set_throttle(as_role("tenant-operator", set(0, true))).await.unwrap_err();
    assert_eq!(mine.code(), Code::PermissionDenied);
}
