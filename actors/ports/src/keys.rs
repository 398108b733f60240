//! API keys: their rows, shared by every node of a store. What a key may be and do is decided by the rules.

use async_trait::async_trait;
use signalbox_domain::identity::{ApiKey, Revoked};
use signalbox_domain::ids::{KeyId, TenantId};
use signalbox_domain::time::UnixMs;

use crate::journal::StoreError;

/// Most live keys one tenant may have.
pub const LIVE_KEYS_MAX: usize = 1_000;
/// Most keys that are listed.
pub const LISTED_KEYS_MAX: usize = 1_000;

/// What became of a new key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyMade {
    /// It is durable.
    Made,
    /// The tenant has as many live keys as it may.
    TooMany,
}

/// What an act is answered that would make one key too many: whoever decided on it has not counted.
pub fn too_many_keys() -> StoreError {
    StoreError::Poison("the tenant has as many live API keys as it may".into())
}

/// The keys of all tenants. A row is never removed, and who made it and who took it back is written once.
#[async_trait]
pub trait Keys: Send + Sync + 'static {
    /// Keeps a new key. Keys that are expired when it is made, or revoked, do not count towards [`LIVE_KEYS_MAX`]. An id that
    /// is taken is [`StoreError::Poison`].
    async fn make(&self, key: ApiKey) -> Result<KeyMade, StoreError>;
    /// The key of an id, of whichever tenant.
    async fn key(&self, key: KeyId) -> Result<Option<ApiKey>, StoreError>;
    /// Keys of a tenant, the newest first, at most [`LISTED_KEYS_MAX`]; those that are good for nothing at `live_at` are left
    /// out if an instant is given.
    async fn keys_of(&self, tenant: &TenantId, live_at: Option<UnixMs>) -> Result<Vec<ApiKey>, StoreError>;
    /// Takes a key of a tenant back, and answers its row; `None` if the tenant has no such key. Whoever is second changes
    /// nothing.
    async fn revoke(&self, tenant: &TenantId, key: KeyId, revoked: Revoked) -> Result<Option<ApiKey>, StoreError>;
    /// Notes that a key was used. An earlier instant than the one that is noted changes nothing, nor does an unknown key.
    async fn used(&self, key: KeyId, at: UnixMs) -> Result<(), StoreError>;
}
