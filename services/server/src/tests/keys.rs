//! API keys: made, shown once, recognized, taken back everywhere.

use std::sync::Arc;
use std::time::Duration;

use signalbox_domain::identity::{KeyText, NewKey, Role};
use signalbox_domain::run::status::RunStatus;
use signalbox_ports::clock::Clock;
use signalbox_ports::journal::StoreError;
use signalbox_ports::keys::Keys;
use signalbox_proto::v1::identity_service_client::IdentityServiceClient;
use signalbox_proto::v1::run_service_client::RunServiceClient;
use signalbox_proto::v1::{self};
use signalbox_tests::issuer::Signer;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tonic::{Code, Request};

use super::tokens::{World, bearer};
use super::{RandomIds, as_role, as_tenant, fixture, reason, run_id, tenant};
use crate::api::Caller;
use crate::fake::{FakeNode, envelope};
use crate::fake_feedback::FakeFeedback;
use crate::fake_governance::FakeGovernance;
use crate::fake_pipelines::FakePipelines;
use crate::identity::{ApiKeys, Credentials, Identify};
use crate::serve::{Edge, ServeLimits, serve_watched};

fn new_key(role: Role) -> NewKey {
    NewKey { name: "loader".to_owned(), role, scopes: vec!["tool:web.fetch".to_owned()], ttl_seconds: 3_600 }
}

/// A caller that may make any key.
fn operator() -> Caller {
    super::caller("acme", "olga", Role::PlatformOperator)
}

async fn told(identity: &Credentials, secret: &str) -> String {
    match identity.identify(&bearer(secret)).await {
        Ok(caller) => caller.actor.actor_id.to_string(),
        Err(refusal) => refusal.code().to_owned(),
    }
}

#[tokio::test]
async fn a_key_lets_its_holder_in_as_what_it_says_until_it_expires() {
    let (world, _dir) = World::with(&[Signer::EdDsa(1)]).await;
    let (key, text) = world.keys.make(&operator(), new_key(Role::Service)).await.unwrap();
    let caller = world.identity.identify(&bearer(&text.reveal())).await.unwrap();
    assert_eq!((caller.tenant_id.as_str(), caller.actor.actor_id.as_str()), ("acme", "key:loader"));
    assert_eq!((caller.actor.role, caller.scopes), (Role::Service, vec!["tool:web.fetch".to_owned()]));
    let other = KeyText::new(key.key_id, [7; 32]).reveal();
    assert_eq!(told(&world.identity, &other).await, "unauthenticated", "the secret of another");
    for odd in [text.reveal().to_uppercase(), format!("{}0", text.reveal()), "sbk_".to_owned()] {
        assert_eq!(told(&world.identity, &odd).await, "unauthenticated", "{odd}");
    }
    world.clock.advance_ms(3_600_000);
    assert_eq!(told(&world.identity, &text.reveal()).await, "unauthenticated", "its hour is over");
}

#[tokio::test]
async fn a_key_that_was_taken_back_is_good_for_nothing_within_five_seconds_on_every_node() {
    let (world, _dir) = World::with(&[Signer::EdDsa(1)]).await;
    let node = || Arc::new(ApiKeys::new(world.store.clone(), world.clock.clone(), Arc::new(RandomIds)));
    let other = Credentials::new(None, Some(node()), world.clock.clone());
    let (key, text) = world.keys.make(&operator(), new_key(Role::Service)).await.unwrap();
    let secret = text.reveal();
    assert_eq!(
        (told(&world.identity, &secret).await, told(&other, &secret).await),
        ("key:loader".into(), "key:loader".into())
    );
    world.keys.revoke(&operator(), key.key_id).await.unwrap();
    assert_eq!(told(&world.identity, &secret).await, "unauthenticated", "at once where it was done");
    assert_eq!(told(&other, &secret).await, "key:loader", "elsewhere the row is believed for a moment");
    world.clock.advance_ms(2_000);
    assert_eq!(told(&other, &secret).await, "unauthenticated");
}

#[tokio::test]
async fn a_store_that_cannot_be_asked_makes_no_key_good_or_bad() {
    let (world, _dir) = World::with(&[Signer::EdDsa(1)]).await;
    let (_, text) = world.keys.make(&operator(), new_key(Role::Service)).await.unwrap();
    assert_eq!(told(&world.identity, &text.reveal()).await, "key:loader");
    world.store.fail_with(Some(StoreError::Unavailable("away".into())));
    assert_eq!(told(&world.identity, &text.reveal()).await, "key:loader", "it was just read");
    world.clock.advance_ms(2_000);
    assert_eq!(told(&world.identity, &text.reveal()).await, "store-unavailable");
    assert_eq!(told(&world.identity, &Signer::EdDsa(1).token(&world.claims())).await, "ann", "tokens need no store");
    world.store.fail_with(None);
    assert_eq!(told(&world.identity, &text.reveal()).await, "key:loader");
}

#[tokio::test]
async fn the_use_of_a_key_is_noted_by_the_hour_and_once() {
    let (world, _dir) = World::with(&[Signer::EdDsa(1)]).await;
    let (key, text) =
        world.keys.make(&operator(), NewKey { ttl_seconds: 86_400, ..new_key(Role::Service) }).await.unwrap();
    for _ in 0..2 {
        for _ in 0..20 {
            assert_eq!(told(&world.identity, &text.reveal()).await, "key:loader");
        }
        let hour = world.clock.now().0.div_euclid(3_600_000) * 3_600_000;
        let noted = async || world.store.key(key.key_id).await.unwrap().unwrap().last_used_at;
        tokio::time::timeout(Duration::from_secs(10), async {
            while noted().await.map(|at| at.0) != Some(hour) {
                tokio::task::yield_now().await;
            }
        })
        .await
        .unwrap();
        world.clock.advance_ms(3_600_000);
    }
}

#[tokio::test]
async fn an_identity_without_tokens_or_without_keys_believes_the_other_alone() {
    let (world, _dir) = World::with(&[Signer::EdDsa(1)]).await;
    let (_, text) = world.keys.make(&operator(), new_key(Role::Service)).await.unwrap();
    let token = Signer::EdDsa(1).token(&world.claims());
    let keys_alone = Credentials::new(None, Some(world.keys.clone()), world.clock.clone());
    assert_eq!(
        (told(&keys_alone, &text.reveal()).await, told(&keys_alone, &token).await),
        ("key:loader".into(), "unauthenticated".into())
    );
    let neither = Credentials::new(None, None, world.clock.clone());
    for credential in [text.reveal(), token] {
        assert_eq!(told(&neither, &credential).await, "unauthenticated");
    }
}

#[tokio::test]
async fn keys_are_made_listed_and_revoked_over_the_wire() {
    let fixture = fixture().await;
    let mut client = IdentityServiceClient::new(fixture.channel.clone());
    let create =
        |role: &str| v1::CreateApiKeyRequest { name: "loader".into(), role: role.into(), ..Default::default() };
    let made = client.create_api_key(create("service")).await.unwrap().into_inner();
    let key = made.api_key.clone().unwrap();
    assert!(made.secret.starts_with("sbk_") && !format!("{made:?}").contains(&made.secret), "nothing prints it");
    assert_eq!((key.state.as_str(), key.role.as_str(), key.created_by.as_str()), ("live", "service", "tester"));
    assert_eq!(key.expires_at_unix_ms - key.created_at_unix_ms, 90 * 86_400_000);
    let list = |include_ended| v1::ListApiKeysRequest { include_ended };
    assert_eq!(client.list_api_keys(list(false)).await.unwrap().into_inner().api_keys, std::slice::from_ref(&key));
    assert!(client.list_api_keys(as_tenant("globex", list(true))).await.unwrap().into_inner().api_keys.is_empty());

    let revoke = || v1::RevokeApiKeyRequest { key_id: key.key_id.clone() };
    let foreign = client.revoke_api_key(as_tenant("globex", revoke())).await.unwrap_err();
    assert_eq!((foreign.code(), reason(&foreign).as_str()), (Code::NotFound, "no-such-key"));
    for _ in 0..2 {
        let revoked = client.revoke_api_key(revoke()).await.unwrap().into_inner().api_key.unwrap();
        assert_eq!((revoked.state.as_str(), revoked.revoked_by.as_str()), ("revoked", "tester"));
        assert!(revoked.revoked_at_unix_ms >= key.created_at_unix_ms);
    }
    assert!(client.list_api_keys(list(false)).await.unwrap().into_inner().api_keys.is_empty());
    let all = client.list_api_keys(list(true)).await.unwrap().into_inner().api_keys;
    assert_eq!((all.len(), all[0].revoked_by.as_str()), (1, "tester"), "who made it and who took it back stays");
}

#[tokio::test]
async fn whoever_is_no_operator_manages_no_keys_and_what_makes_no_sense_is_refused_by_field() {
    let fixture = fixture().await;
    let mut client = IdentityServiceClient::new(fixture.channel.clone());
    let create = || v1::CreateApiKeyRequest { name: "loader".into(), role: "customer".into(), ..Default::default() };
    for role in ["customer", "creator"] {
        let told = [
            client.create_api_key(as_role(role, create())).await.unwrap_err(),
            client.list_api_keys(as_role(role, v1::ListApiKeysRequest::default())).await.unwrap_err(),
            client
                .revoke_api_key(as_role(role, v1::RevokeApiKeyRequest { key_id: run_id(1).to_string() }))
                .await
                .unwrap_err(),
        ];
        for status in told {
            assert_eq!((status.code(), reason(&status).as_str()), (Code::PermissionDenied, "not-authorized"), "{role}");
        }
    }
    let higher = v1::CreateApiKeyRequest { role: "platform-operator".into(), ..create() };
    let told = client.create_api_key(as_role("tenant-operator", higher)).await.unwrap_err();
    assert_eq!(reason(&told), "not-authorized");
    for (field, request, code) in [
        ("name", v1::CreateApiKeyRequest { name: "a\0".into(), ..create() }, "key-name-invalid"),
        ("role", v1::CreateApiKeyRequest { role: "root".into(), ..create() }, "role-unknown"),
        ("scopes", v1::CreateApiKeyRequest { scopes: vec!["a b".into()], ..create() }, "key-scopes-invalid"),
        ("ttl_seconds", v1::CreateApiKeyRequest { ttl_seconds: u64::MAX, ..create() }, "key-ttl-invalid"),
    ] {
        let told = client.create_api_key(request).await.unwrap_err();
        assert_eq!((reason(&told).as_str(), super::field(&told).as_str()), (code, field));
    }
    for (key_id, code) in [("", "field-missing"), ("7", "id-invalid")] {
        let told = client.revoke_api_key(v1::RevokeApiKeyRequest { key_id: key_id.into() }).await.unwrap_err();
        assert_eq!(reason(&told), code);
    }
}

#[tokio::test]
async fn everybody_is_told_who_they_are_and_what_they_may_do() {
    let fixture = fixture().await;
    let mut client = IdentityServiceClient::new(fixture.channel.clone());
    let me = client.who_am_i(as_role("customer", v1::WhoAmIRequest {})).await.unwrap().into_inner();
    assert_eq!((me.actor_id.as_str(), me.tenant_id.as_str(), me.role.as_str()), ("tester", "acme", "customer"));
    let may = |me: &v1::WhoAmIResponse, action: &str| {
        me.permissions.iter().find(|may| may.action == action).map(|may| may.reach.clone())
    };
    assert_eq!((may(&me, "pause").as_deref(), may(&me, "kill")), (Some("own"), None));
    let me = client.who_am_i(v1::WhoAmIRequest {}).await.unwrap().into_inner();
    assert_eq!(may(&me, "kill").as_deref(), Some("platform"));
}

#[tokio::test]
async fn nothing_of_a_request_is_read_before_its_caller_is_known() {
    let fixture = fixture().await;
    let huge = v1::SubmitRunRequest { submission_json: vec![b' '; 5 << 20].into(), ..Default::default() };
    let told = RunServiceClient::new(fixture.channel.clone()).submit_run(as_role("nobody", huge.clone())).await;
    assert_eq!(reason(&told.unwrap_err()), "unauthenticated");
    let told = RunServiceClient::new(fixture.channel.clone()).submit_run(huge).await.unwrap_err();
    assert_ne!(told.code(), Code::Unauthenticated, "{told}");
}

#[tokio::test]
async fn an_open_watch_ends_when_its_key_is_taken_back() {
    let (world, _dir) = World::with(&[Signer::EdDsa(1)]).await;
    let node = Arc::new(FakeNode::default());
    node.hold(envelope(run_id(1), &tenant("acme"), RunStatus::Running));
    let (_feed, source) = tokio::sync::mpsc::channel(1);
    node.watch_from(source);
    let limits = ServeLimits::default();
    let edge = Edge {
        api: node,
        governance: Arc::new(FakeGovernance::default()),
        webhooks: Arc::new(FakeGovernance::default()),
        schedules: Arc::new(FakeGovernance::default()),
        feedback: Arc::new(FakeFeedback),
        pipelines: Arc::new(FakePipelines),
        registry: Arc::new(FakeGovernance::default()),
        identity: world.identity.clone(),
        keys: world.keys.clone(),
        ids: Arc::new(RandomIds),
        tls: None,
        limits,
        spans: None,
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(serve_watched(listener, edge, Arc::new(Semaphore::new(1)), std::future::pending()));
    let mut client = RunServiceClient::connect(address).await.unwrap();
    let (key, text) = world.keys.make(&operator(), new_key(Role::TenantOperator)).await.unwrap();
    let watch = || {
        let mut request = Request::new(v1::WatchRunRequest { run_id: run_id(1).to_string(), after_seq: 0 });
        request.metadata_mut().insert("authorization", format!("Bearer {}", text.reveal()).parse().unwrap());
        request
    };
    let mut events = client.watch_run(watch()).await.unwrap().into_inner();
    world.keys.revoke(&operator(), key.key_id).await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(5), events.message()).await.expect("within five seconds");
    assert_eq!(reason(&ended.unwrap_err()), "unauthenticated");
    assert_eq!(reason(&client.watch_run(watch()).await.unwrap_err()), "unauthenticated");
}
