//! Why certificates cannot be used.

use std::path::PathBuf;

/// Why certificates cannot be used. Nothing of a key is ever repeated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("`{}` cannot be read: {problem}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// In words.
        problem: String,
    },
    /// A file does not hold what it should, in PEM.
    #[error("`{}` holds no {expected} in PEM", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What was looked for.
        expected: &'static str,
    },
    /// Well-formed, and not usable.
    #[error("`{}` cannot be used: {problem}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// In words.
        problem: String,
    },
    /// A certificate without its key, or a key without its certificate.
    #[error("a client certificate and its key are given together or not at all")]
    HalfAPair,
    /// The certificates that this machine trusts cannot be found out.
    #[error("the certificates this machine trusts cannot be read: {0}; name one with a CA file")]
    NoTrust(String),
}

impl TlsError {
    /// Stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } => "tls-file-unreadable",
            Self::Malformed { .. } => "tls-file-malformed",
            Self::Unusable { .. } => "tls-file-unusable",
            Self::HalfAPair => "tls-key-missing",
            Self::NoTrust(_) => "tls-no-trust",
        }
    }
}
