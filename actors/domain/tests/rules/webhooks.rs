//! Webhooks: where they may lead, who may put which, what is told of what, and when it is tried again.

use std::collections::BTreeSet;

use signalbox_domain::governance::budgeting::Expected;
use signalbox_domain::governance::change::{EpochChange, GovernanceChange, GovernanceState};
use signalbox_domain::governance::egress::HostExemption;
use signalbox_domain::governance::switching::{Operator, Reach};
use signalbox_domain::identity::{Actor, Role};
use signalbox_domain::ids::{ActorId, SecretId, TenantId, WebhookId};
use signalbox_domain::time::UnixMs;
use signalbox_domain::webhook::{
    Answer, DELIVERY_GIVES_UP_AFTER_MS, EventType, Next, PutWebhook, Putting, RETRY_FIRST_MS, RETRY_LONGEST_MS,
    WEBHOOKS_PER_TENANT_MAX, check_webhook_url, disable, find, judge_answer, put, remove, retry_delay_ms,
};

fn tenant(name: &str) -> TenantId {
    TenantId::new(name).unwrap()
}

fn actor(role: Role) -> Actor {
    Actor { actor_id: ActorId::new("olga").unwrap(), role }
}

fn wish(id: &str) -> PutWebhook {
    PutWebhook {
        webhook_id: WebhookId::new(id).unwrap(),
        reach: Reach::Own,
        url: "https://hooks.example/a".into(),
        events: vec![EventType::RunKilled, EventType::SwitchArmed, EventType::RunKilled],
        secret_ids: vec![SecretId::new("key").unwrap()],
        enabled: true,
        reason: "on call".into(),
        expected: Expected::Any,
    }
}

fn then(mut state: GovernanceState, putting: Putting) -> GovernanceState {
    let Putting::Put(webhook) = putting else { panic!("nothing is put") };
    let change = GovernanceChange::WebhookPut(webhook);
    state.apply(&EpochChange { epoch: state.epoch + 1, at_unix_ms: UnixMs(0), change });
    state
}

/// What a wish of somebody of `acme` is answered with.
fn asked(wish: PutWebhook, role: Role, state: &GovernanceState, revision: u64) -> Result<Putting, &'static str> {
    let (tenant_id, actor) = (tenant("acme"), actor(role));
    put(wish, Operator { tenant_id: &tenant_id, actor: &actor }, state, revision, &[]).map_err(|denial| denial.code())
}

#[test]
fn an_exempt_host_may_be_reached_over_plain_http_and_no_other() {
    let exempt = [HostExemption { host: "127.0.0.1".into(), cidr: "127.0.0.0/8".parse().unwrap() }];
    let code = |url: &str, exempt: &[HostExemption]| check_webhook_url(url, exempt).map_err(|error| error.code());
    assert!(code("http://127.0.0.1:8080/a", &exempt).is_ok());
    assert_eq!(code("http://127.0.0.1:8080/a", &[]).unwrap_err(), "scheme-not-allowed");
    assert_eq!(code("https://127.0.0.1:8080/a", &[]).unwrap_err(), "ssrf-loopback");
    assert_eq!(code("http://127.0.0.2:8080/a", &exempt).unwrap_err(), "scheme-not-allowed");
    assert_eq!(code("http://hooks.example/a", &exempt).unwrap_err(), "scheme-not-allowed");
    assert!(code("https://hooks.example:8443/a?b=c", &[]).is_ok());
    assert_eq!(code("https://hooks.example:25/", &[]).unwrap_err(), "webhook-port-not-allowed");
    assert_eq!(code("https://hooks.example/#x", &[]).unwrap_err(), "webhook-url-invalid");
    let metadata = [HostExemption { host: "169.254.169.254".into(), cidr: "169.254.0.0/16".parse().unwrap() }];
    assert!(code("http://169.254.169.254/", &metadata).is_err(), "no configuration opens these");
}

#[test]
fn operators_put_webhooks_of_their_own_reach_and_nobody_else_any() {
    let state = GovernanceState::default();
    let of = |reach: Reach, role| asked(PutWebhook { reach, ..wish("w") }, role, &state, 0);
    let Ok(Putting::Put(own)) = of(Reach::Own, Role::TenantOperator) else { panic!("it is put") };
    assert_eq!((own.tenant_id, own.events), (Some(tenant("acme")), vec![EventType::SwitchArmed, EventType::RunKilled]));
    assert_eq!(of(Reach::Platform, Role::TenantOperator).unwrap_err(), "not-authorized");
    assert_eq!(of(Reach::Tenant(tenant("globex")), Role::TenantOperator).unwrap_err(), "not-authorized");
    assert!(of(Reach::Platform, Role::PlatformOperator).is_ok());
    assert!(of(Reach::Tenant(tenant("globex")), Role::PlatformOperator).is_ok());
    for role in [Role::Customer, Role::Creator, Role::Service] {
        assert_eq!(of(Reach::Own, role).unwrap_err(), "not-authorized");
    }
}

#[test]
fn a_webhook_is_found_by_its_own_operators_and_absent_for_everybody_else() {
    let state = then(
        GovernanceState::default(),
        asked(wish("w"), Role::TenantOperator, &GovernanceState::default(), 0).unwrap(),
    );
    let look = |of: &str, role| {
        let (tenant_id, actor) = (tenant(of), actor(role));
        let by = Operator { tenant_id: &tenant_id, actor: &actor };
        find(&WebhookId::new("w").unwrap(), by, &state).map(|_| ()).map_err(|denial| denial.code())
    };
    assert!(look("acme", Role::TenantOperator).is_ok() && look("globex", Role::PlatformOperator).is_ok());
    assert_eq!(look("globex", Role::TenantOperator).unwrap_err(), "no-such-webhook");
    assert_eq!(look("acme", Role::Creator).unwrap_err(), "not-authorized");
}

#[test]
fn revisions_ids_and_numbers_are_held_to() {
    let none = GovernanceState::default();
    let state = then(none.clone(), asked(wish("w"), Role::TenantOperator, &none, 0).unwrap());
    let again = |change: &dyn Fn(&mut PutWebhook)| {
        let mut wish = wish("w");
        change(&mut wish);
        asked(wish, Role::PlatformOperator, &state, 7).map(|putting| matches!(putting, Putting::Unchanged(_)))
    };
    assert_eq!(again(&|_| {}), Ok(true));
    assert_eq!(again(&|wish| wish.expected = Expected::Revision(7)), Ok(true));
    assert_eq!(again(&|wish| wish.expected = Expected::Revision(6)), Err("stale-revision"));
    assert_eq!(again(&|wish| wish.expected = Expected::None), Err("webhook-exists"));
    assert_eq!(again(&|wish| wish.reach = Reach::Platform), Err("webhook-id-conflict"));
    assert_eq!(again(&|wish| wish.enabled = false), Ok(false));
    assert_eq!(again(&|wish| wish.events.clear()), Err("webhook-events-missing"));
    assert_eq!(again(&|wish| wish.events = vec![EventType::Ping]), Err("webhook-events-missing"));
    assert_eq!(again(&|wish| wish.secret_ids.clear()), Err("webhook-secrets-invalid"));
    assert_eq!(again(&|wish| wish.reason = " ".into()), Err("reason-required"));
    let mut state = none;
    for number in 0..WEBHOOKS_PER_TENANT_MAX {
        let put = asked(wish(&format!("w{number}")), Role::TenantOperator, &state, 0).unwrap();
        state = then(state, put);
    }
    assert_eq!(asked(wish("more"), Role::TenantOperator, &state, 0).unwrap_err(), "too-many-webhooks");
    assert!(asked(PutWebhook { reach: Reach::Platform, ..wish("more") }, Role::PlatformOperator, &state, 0).is_ok());
}

#[test]
fn an_endpoint_that_is_gone_disables_the_webhook_that_still_leads_there() {
    let none = GovernanceState::default();
    let state = then(none.clone(), asked(wish("w"), Role::TenantOperator, &none, 0).unwrap());
    let id = WebhookId::new("w").unwrap();
    assert!(disable(&id, "https://other.example/", &state).is_none(), "somebody has changed it since");
    let (before, after) = disable(&id, "https://hooks.example/a", &state).unwrap();
    assert!(before.enabled && !after.enabled && after.disabled_because.is_some());
    let state = then(state, Putting::Put(after));
    assert!(disable(&id, "https://hooks.example/a", &state).is_none());
    let (tenant_id, actor) = (tenant("acme"), actor(Role::TenantOperator));
    let by = Operator { tenant_id: &tenant_id, actor: &actor };
    let removed = remove(&id, "over", Expected::Any, by, &state, 1).unwrap();
    let mut state = state;
    let change = GovernanceChange::WebhookRemoved { webhook_id: removed.webhook_id };
    state.apply(&EpochChange { epoch: state.epoch + 1, at_unix_ms: UnixMs(0), change });
    assert!(state.webhooks.is_empty());
}

#[test]
fn waits_double_up_to_half_an_hour_and_are_a_random_part_of_that() {
    for (attempts, bound) in
        [(1, RETRY_FIRST_MS), (2, 2_000), (5, 16_000), (12, RETRY_LONGEST_MS), (u32::MAX, RETRY_LONGEST_MS)]
    {
        assert_eq!(retry_delay_ms(attempts, bound), bound);
        assert_eq!((retry_delay_ms(attempts, 0), retry_delay_ms(attempts, bound + 1)), (0, 0));
    }
}

#[test]
fn what_follows_from_an_answer() {
    let now = UnixMs(1_000_000);
    let status = |status, retry_after_seconds| Answer::Status { status, retry_after_seconds };
    let judged = |answer: &Answer| judge_answer(answer, 1, now, now, 500);
    assert_eq!(judged(&status(204, None)), Next::Delivered);
    assert_eq!(judged(&status(410, Some(5))), Next::Dead);
    for answer in [status(307, None), status(500, None), Answer::Failed { code: "c".into(), message: "m".into() }] {
        assert_eq!(judged(&answer), Next::Retry(now.plus_ms(500)));
        assert!(answer.problem().is_some());
    }
    assert_eq!(judged(&status(503, Some(30))), Next::Retry(now.plus_seconds(30)));
    assert_eq!(judged(&status(429, Some(u64::MAX))), Next::Retry(now.plus_seconds(3_600)), "bounded");
    let late = now.plus_ms(DELIVERY_GIVES_UP_AFTER_MS);
    assert_eq!(judge_answer(&status(500, None), 90, now, late, 1), Next::Dead);
    let long = Answer::Failed { code: "c".into(), message: "ü".repeat(1_000) }.problem().unwrap();
    assert!(long.len() <= 256);
}

#[test]
fn each_type_reads_back_from_both_of_its_names() {
    let names: BTreeSet<_> = EventType::ALL.into_iter().map(EventType::as_str).collect();
    assert_eq!(names.len(), EventType::ALL.len());
    for event in EventType::ALL {
        assert_eq!(event.as_str().parse(), Ok(event));
        assert_eq!(event.full_name().parse(), Ok(event));
        assert_eq!(serde_json::from_str::<EventType>(&serde_json::to_string(&event).unwrap()).unwrap(), event);
    }
    for none in ["", "run", "run.completed ", "RUN.COMPLETED", "webhook.ping", "dev.signalbox.", "__proto__"] {
        assert!(none.parse::<EventType>().is_err(), "{none}");
    }
}
