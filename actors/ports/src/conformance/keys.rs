//! API keys are kept as they were made, taken back once, and never met by another tenant.

use signalbox_domain::identity::{Actor, ApiKey, Revoked, Role};
use signalbox_domain::ids::{ActorId, KeyId};
use signalbox_domain::time::UnixMs;
use uuid::Uuid;

use super::world::*;
use crate::keys::{KeyMade, LISTED_KEYS_MAX, LIVE_KEYS_MAX};

fn by(name: &str) -> Actor {
    Actor { actor_id: ActorId::new(name).unwrap(), role: Role::TenantOperator }
}

fn api_key(of: &str, number: u128) -> ApiKey {
    let at = i64::try_from(number).unwrap();
    ApiKey {
        key_id: KeyId::new(Uuid::from_u128(number)),
        tenant_id: tenant(of),
        name: "loader".to_owned(),
        role: Role::Service,
        scopes: vec!["tool:web.fetch".to_owned(), "approve:teacher".to_owned()],
        hash: [u8::try_from(number % 251).unwrap(); 32],
        created_at: UnixMs(at),
        created_by: by("otto"),
        expires_at: UnixMs(at + 1_000_000),
        revoked: None,
        last_used_at: None,
    }
}

pub async fn a_key_comes_back_as_it_was_made(f: &Fixture) {
    let plain = ApiKey { scopes: Vec::new(), role: Role::PlatformOperator, ..api_key("acme", 2) };
    for key in [api_key("acme", 1), plain] {
        assert_eq!(f.keys.make(key.clone()).await.unwrap(), KeyMade::Made);
        assert_eq!(f.keys.key(key.key_id).await.unwrap(), Some(key));
    }
    assert_eq!(f.keys.key(api_key("acme", 9).key_id).await.unwrap(), None);
    let taken = f.keys.make(ApiKey { hash: [9; 32], ..api_key("globex", 1) }).await.unwrap_err();
    assert_eq!(taken.code(), "entry-refused-by-store");
    assert_eq!(
        f.keys.key(api_key("acme", 1).key_id).await.unwrap(),
        Some(api_key("acme", 1)),
        "nothing is overwritten"
    );
}

pub async fn keys_are_listed_by_tenant_the_newest_first(f: &Fixture) {
    for key in [api_key("acme", 1), api_key("acme", 3), api_key("globex", 2)] {
        f.keys.make(key).await.unwrap();
    }
    let revoked = Revoked { at: UnixMs(50), by: by("olga") };
    f.keys.make(api_key("acme", 4)).await.unwrap();
    f.keys.revoke(&tenant("acme"), api_key("acme", 4).key_id, revoked).await.unwrap();
    let listed = async |of: &str, live_at| -> Vec<u128> {
        let keys = f.keys.keys_of(&tenant(of), live_at).await.unwrap();
        keys.iter().map(|key| key.key_id.uuid().as_u128()).collect()
    };
    assert_eq!(listed("acme", None).await, [4, 3, 1]);
    assert_eq!(listed("acme", Some(UnixMs(60))).await, [3, 1], "a key that was taken back is left out");
    assert_eq!(listed("acme", Some(UnixMs(1_000_001))).await, [3], "and one that has expired, to the millisecond");
    assert_eq!(listed("globex", None).await, [2]);
    assert_eq!(listed("initech", None).await, []);
}

pub async fn a_key_is_taken_back_once_and_by_its_own_tenant(f: &Fixture) {
    let key = api_key("acme", 1);
    f.keys.make(key.clone()).await.unwrap();
    let (first, second) = (Revoked { at: UnixMs(5), by: by("olga") }, Revoked { at: UnixMs(6), by: by("otto") });
    assert_eq!(f.keys.revoke(&tenant("globex"), key.key_id, first.clone()).await.unwrap(), None);
    assert_eq!(f.keys.key(key.key_id).await.unwrap(), Some(key.clone()));
    let gone = ApiKey { revoked: Some(first.clone()), ..key.clone() };
    assert_eq!(f.keys.revoke(&tenant("acme"), key.key_id, first).await.unwrap(), Some(gone.clone()));
    assert_eq!(f.keys.revoke(&tenant("acme"), key.key_id, second).await.unwrap(), Some(gone.clone()));
    assert_eq!(f.keys.key(key.key_id).await.unwrap(), Some(gone));
    assert_eq!(
        f.keys
            .revoke(&tenant("acme"), api_key("acme", 2).key_id, Revoked { at: UnixMs(1), by: by("olga") })
            .await
            .unwrap(),
        None
    );
}

pub async fn the_last_use_of_a_key_never_goes_back(f: &Fixture) {
    let key = api_key("acme", 1);
    f.keys.make(key.clone()).await.unwrap();
    for (at, noted) in [(7, 7), (3, 7), (9, 9)] {
        f.keys.used(key.key_id, UnixMs(at)).await.unwrap();
        assert_eq!(f.keys.key(key.key_id).await.unwrap().unwrap().last_used_at, Some(UnixMs(noted)));
    }
    f.keys.used(api_key("acme", 2).key_id, UnixMs(1)).await.unwrap();
}

pub async fn a_tenant_has_only_so_many_live_keys(f: &Fixture) {
    for number in 1..=LIVE_KEYS_MAX as u128 {
        assert_eq!(f.keys.make(api_key("acme", number)).await.unwrap(), KeyMade::Made);
    }
    let more = api_key("acme", LIVE_KEYS_MAX as u128 + 1);
    assert_eq!(f.keys.make(more.clone()).await.unwrap(), KeyMade::TooMany);
    assert_eq!(f.keys.key(more.key_id).await.unwrap(), None);
    assert_eq!(f.keys.make(ApiKey { tenant_id: tenant("globex"), ..more.clone() }).await.unwrap(), KeyMade::Made);
    f.keys.revoke(&tenant("acme"), api_key("acme", 1).key_id, Revoked { at: UnixMs(1), by: by("olga") }).await.unwrap();
    let other = ApiKey { key_id: api_key("acme", 5_000).key_id, ..more };
    assert_eq!(f.keys.make(other.clone()).await.unwrap(), KeyMade::Made);
    // Once those before have expired there is room again.
    let later = ApiKey { created_at: UnixMs(2_000_000), ..api_key("acme", 6_000) };
    assert_eq!(f.keys.make(later).await.unwrap(), KeyMade::Made);
    let listed = f.keys.keys_of(&tenant("acme"), None).await.unwrap();
    assert_eq!((listed.len(), listed[0].key_id), (LISTED_KEYS_MAX, api_key("acme", 6_000).key_id));
}
