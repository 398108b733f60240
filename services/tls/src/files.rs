//! Certificates and keys as files, and whatever is built of them: built again when their content changes, and kept as it
//! was when the new content is of no use.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::TlsError;

/// Largest file, in bytes: thousands of certificates.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A file as it was read.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Content {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl Content {
    pub(crate) fn read(path: &Path) -> Result<Self, TlsError> {
        let unreadable = |problem: String| TlsError::Unreadable { path: path.to_owned(), problem };
        let file = File::open(path).map_err(|error| unreadable(error.kind().to_string()))?;
        let mut bytes = Vec::new();
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| unreadable(error.kind().to_string()))?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(unreadable("it has more than 1 MiB".to_owned()));
        }
        Ok(Self { path: path.to_owned(), bytes })
    }

    /// The certificates, at least one.
    pub(crate) fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.bytes).collect();
        match read {
            Ok(certificates) if !certificates.is_empty() => Ok(certificates),
            Ok(_) | Err(_) => Err(TlsError::Malformed { path: self.path.clone(), expected: "certificate" }),
        }
    }

    /// The private key.
    pub(crate) fn key(&self) -> Result<PrivateKeyDer<'static>, TlsError> {
        let malformed = |_| TlsError::Malformed { path: self.path.clone(), expected: "private key" };
        PrivateKeyDer::from_pem_slice(&self.bytes).map_err(malformed)
    }

    /// The certificates as what is trusted.
    pub(crate) fn roots(&self) -> Result<RootCertStore, TlsError> {
        let mut roots = RootCertStore::empty();
        for certificate in self.certificates()? {
            roots.add(certificate).map_err(|error| self.unusable(error))?;
        }
        Ok(roots)
    }

    pub(crate) fn unusable(&self, error: impl std::fmt::Display) -> TlsError {
        TlsError::Unusable { path: self.path.clone(), problem: error.to_string() }
    }
}

/// What can be built of files.
pub(crate) trait Built: Sized {
    /// The files.
    type Files;
    /// Their content.
    type Contents: PartialEq;
    /// Reads the files.
    fn read(files: &Self::Files) -> Result<Self::Contents, TlsError>;
    /// Builds it.
    fn build(contents: &Self::Contents) -> Result<Self, TlsError>;
}

/// Something built of files, as new as they are.
pub(crate) struct Fresh<T: Built> {
    files: T::Files,
    /// What was read last, whether or not it was of use, so that a broken file is reported once.
    seen: Mutex<Result<T::Contents, TlsError>>,
    current: ArcSwap<T>,
}

impl<T: Built> Fresh<T> {
    pub(crate) fn load(files: T::Files) -> Result<Self, TlsError> {
        let contents = T::read(&files)?;
        let current = ArcSwap::from_pointee(T::build(&contents)?);
        Ok(Self { files, seen: Mutex::new(Ok(contents)), current })
    }

    pub(crate) fn current(&self) -> Arc<T> {
        self.current.load_full()
    }

    /// Looks at the files again. True if they have changed and what was built of them is in use; an error if they have
    /// changed and are of no use, told once for each change.
    pub(crate) fn refresh(&self) -> Result<bool, TlsError> {
        let read = T::read(&self.files);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if *seen == read {
            return Ok(false);
        }
        let built = match &read {
            Ok(contents) => T::build(contents),
            Err(error) => Err(error.clone()),
        };
        *seen = read;
        self.current.store(Arc::new(built?));
        Ok(true)
    }
}
