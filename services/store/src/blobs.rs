//! Big values in a folder, through the interface that also speaks to object stores.

use std::path::Path;

use async_trait::async_trait;
use bytes::Bytes;
use object_store::local::LocalFileSystem;
use object_store::path::Path as Key;
use object_store::{ObjectStoreExt, PutPayload};
use signalbox_domain::canonical::sha256_hex;
use signalbox_domain::ids::TenantId;
use signalbox_ports::blobs::Blobs;
use signalbox_ports::journal::StoreError;

use crate::open_error::OpenError;
use crate::sqlite::create_private_dir;

/// Values under `<dir>/blobs/<tenant>/<first two digits>/<SHA-256>`.
///
/// A value is written to a temporary file, synced, renamed into place, and its folder synced: after `put` has answered,
/// it survives a power cut, and before that nobody sees half of it.
#[derive(Debug)]
pub struct FileBlobs {
    store: LocalFileSystem,
}

impl FileBlobs {
    /// The blobs of a data directory; the folder is created if it is not there.
    pub fn open(dir: &Path) -> Result<Self, OpenError> {
        let unavailable = |problem: String| OpenError::Unavailable { place: dir.display().to_string(), problem };
        let root = dir.join("blobs");
        create_private_dir(&root).map_err(|error| unavailable(error.to_string()))?;
        let store = LocalFileSystem::new_with_prefix(root).map_err(|error| unavailable(error.to_string()))?;
        Ok(Self { store: store.with_fsync(true) })
    }
}

#[async_trait]
impl Blobs for FileBlobs {
    async fn put(&self, tenant: &TenantId, bytes: Bytes) -> Result<String, StoreError> {
        let sha256 = sha256_hex(&bytes);
        // Written even if it is there already: what is there may be damaged.
        let payload = PutPayload::from_bytes(bytes);
        self.store.put(&key(tenant, &sha256), payload).await.map_err(|error| unavailable("write", &error))?;
        Ok(sha256)
    }

    async fn get(&self, tenant: &TenantId, sha256: &str) -> Result<Option<Bytes>, StoreError> {
        let is_hash = sha256.len() == 64 && sha256.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if !is_hash {
            return Ok(None);
        }
        let found = match self.store.get(&key(tenant, sha256)).await {
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            found => found.map_err(|error| unavailable("read", &error))?,
        };
        let bytes = found.bytes().await.map_err(|error| unavailable("read", &error))?;
        if sha256_hex(&bytes) == sha256 {
            Ok(Some(bytes))
        } else {
            Err(StoreError::BlobDamaged { sha256: sha256.to_owned() })
        }
    }
}

/// The parts are encoded one by one, so that a tenant named `..` stays a folder of that name.
fn key(tenant: &TenantId, sha256: &str) -> Key {
    let shard = sha256.get(..2).unwrap_or_default();
    Key::from_iter([tenant.as_str(), shard, sha256])
}

fn unavailable(doing: &str, error: &object_store::Error) -> StoreError {
    StoreError::Unavailable(format!("cannot {doing} a value in the object store: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> TenantId {
        TenantId::new(name).unwrap()
    }

    #[tokio::test]
    async fn a_value_comes_back_to_its_own_tenant_alone() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = FileBlobs::open(dir.path()).unwrap();
        let value = Bytes::from_static(b"a value \0 with a nul");
        let sha256 = blobs.put(&tenant("acme"), value.clone()).await.unwrap();
        assert_eq!(blobs.put(&tenant("acme"), value.clone()).await.unwrap(), sha256);
        let again = FileBlobs::open(dir.path()).unwrap();
        assert_eq!(again.get(&tenant("acme"), &sha256).await.unwrap(), Some(value));
        assert_eq!(again.get(&tenant("globex"), &sha256).await.unwrap(), None);
        assert!(dir.path().join("blobs/acme").join(&sha256[..2]).join(&sha256).is_file());
    }

    #[tokio::test]
    async fn a_damaged_value_is_reported_and_mended_by_putting_it_again() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = FileBlobs::open(dir.path()).unwrap();
        let value = Bytes::from_static(b"the truth");
        let sha256 = blobs.put(&tenant("acme"), value.clone()).await.unwrap();
        std::fs::write(dir.path().join("blobs/acme").join(&sha256[..2]).join(&sha256), b"a rumour!").unwrap();
        let damaged = blobs.get(&tenant("acme"), &sha256).await.unwrap_err();
        assert_eq!(damaged.code(), "blob-damaged");
        blobs.put(&tenant("acme"), value.clone()).await.unwrap();
        assert_eq!(blobs.get(&tenant("acme"), &sha256).await.unwrap(), Some(value));
    }

    #[tokio::test]
    async fn no_name_leads_out_of_the_folder() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("secret"), b"keep out").unwrap();
        let blobs = FileBlobs::open(dir.path()).unwrap();
        for name in ["../../secret", "..", "", &"A".repeat(64), &"/".repeat(64)] {
            assert_eq!(blobs.get(&tenant("acme"), name).await.unwrap(), None, "{name}");
        }
        let sha256 = blobs.put(&tenant(".."), Bytes::from_static(b"odd tenant")).await.unwrap();
        assert!(!dir.path().join(&sha256[..2]).exists());
        assert!(blobs.get(&tenant(".."), &sha256).await.unwrap().is_some());
    }
}
