//! API keys.

use async_trait::async_trait;
use signalbox_domain::identity::{ApiKey, KeyState, Revoked};
use signalbox_domain::ids::{KeyId, TenantId};
use signalbox_domain::time::UnixMs;

use super::{MemoryStore, State};
use crate::journal::StoreError;
use crate::keys::{KeyMade, Keys, LISTED_KEYS_MAX, LIVE_KEYS_MAX};

#[async_trait]
impl Keys for MemoryStore {
    async fn make(&self, key: ApiKey) -> Result<KeyMade, StoreError> {
        self.state()?.make_key(key)
    }

    async fn key(&self, key: KeyId) -> Result<Option<ApiKey>, StoreError> {
        Ok(self.state()?.keys.get(&key).cloned())
    }

    async fn keys_of(&self, tenant: &TenantId, live_at: Option<UnixMs>) -> Result<Vec<ApiKey>, StoreError> {
        let state = self.state()?;
        let listed =
            |key: &&ApiKey| key.tenant_id == *tenant && live_at.is_none_or(|now| key.state(now) == KeyState::Live);
        let mut keys: Vec<ApiKey> = state.keys.values().filter(listed).cloned().collect();
        keys.sort_by_key(|key| std::cmp::Reverse((key.created_at, key.key_id)));
        keys.truncate(LISTED_KEYS_MAX);
        Ok(keys)
    }

    async fn revoke(&self, tenant: &TenantId, key: KeyId, revoked: Revoked) -> Result<Option<ApiKey>, StoreError> {
        Ok(self.state()?.revoke_key(tenant, key, revoked))
    }

    async fn used(&self, key: KeyId, at: UnixMs) -> Result<(), StoreError> {
        if let Some(key) = self.state()?.keys.get_mut(&key) {
            key.last_used_at = key.last_used_at.max(Some(at));
        }
        Ok(())
    }
}

impl State {
    pub(super) fn make_key(&mut self, key: ApiKey) -> Result<KeyMade, StoreError> {
        if self.keys.contains_key(&key.key_id) {
            return Err(StoreError::Poison("the key id is taken".into()));
        }
        let live = |other: &&ApiKey| other.tenant_id == key.tenant_id && other.state(key.created_at) == KeyState::Live;
        if self.keys.values().filter(live).count() >= LIVE_KEYS_MAX {
            return Ok(KeyMade::TooMany);
        }
        self.keys.insert(key.key_id, key);
        Ok(KeyMade::Made)
    }

    pub(super) fn revoke_key(&mut self, tenant: &TenantId, key: KeyId, revoked: Revoked) -> Option<ApiKey> {
        let key = self.keys.get_mut(&key).filter(|key| key.tenant_id == *tenant)?;
        key.revoked.get_or_insert(revoked);
        Some(key.clone())
    }
}
