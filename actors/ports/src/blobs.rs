//! Values too big for the journal, by content hash, under a tenant prefix.

use async_trait::async_trait;
use bytes::Bytes;
use signalbox_domain::ids::TenantId;

use crate::journal::StoreError;

/// Values longer than this many bytes go to the object store.
pub const INLINE_BYTES_MAX: usize = 16 * 1_024;

/// The object store.
#[async_trait]
pub trait Blobs: Send + Sync + 'static {
    /// Keeps the bytes durably and answers their lower-case hex SHA-256. Keeping the same bytes twice is harmless.
    async fn put(&self, tenant: &TenantId, bytes: Bytes) -> Result<String, StoreError>;
    /// The bytes under a hash, checked against it; `None` if they are not there, [`StoreError::BlobDamaged`] if they are
    /// not what was put there.
    async fn get(&self, tenant: &TenantId, sha256: &str) -> Result<Option<Bytes>, StoreError>;
}
