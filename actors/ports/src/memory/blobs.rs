//! Blobs in a map.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use signalbox_domain::canonical::sha256_hex;
use signalbox_domain::ids::TenantId;

use crate::blobs::Blobs;
use crate::journal::StoreError;

/// An object store that forgets everything with the process.
#[derive(Debug, Default)]
pub struct MemoryBlobs {
    kept: Mutex<BTreeMap<(TenantId, String), Bytes>>,
}

#[async_trait]
impl Blobs for MemoryBlobs {
    async fn put(&self, tenant: &TenantId, bytes: Bytes) -> Result<String, StoreError> {
        let sha256 = sha256_hex(&bytes);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.insert((tenant.clone(), sha256.clone()), bytes);
        Ok(sha256)
    }

    async fn get(&self, tenant: &TenantId, sha256: &str) -> Result<Option<Bytes>, StoreError> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(kept.get(&(tenant.clone(), sha256.to_owned())).cloned())
    }
}
