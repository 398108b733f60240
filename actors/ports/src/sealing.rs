//! Sealing: what must be read again and may not lie anywhere in clear.

use signalbox_domain::ids::{RunKey, TenantId};
use signalbox_domain::run::sealed::Part;
use zeroize::Zeroizing;

/// What a document belongs to. A sealed document opens under exactly the context it was sealed under.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealContext {
    /// Whose it is.
    pub tenant_id: TenantId,
    /// The run it was sealed for.
    pub run_key: RunKey,
    /// Which document of the run.
    pub part: Part,
}

/// Why something is not sealed or not opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// There is no key to seal with.
    #[error(
        "it holds something that looks like a secret, and there is no key to seal it with: give the secret as a handle \
         {{\"$secret\": \"id\"}}, or configure a key under [[sealingKeys]]"
    )]
    NoKey,
    /// The key it was sealed with is not configured any more.
    #[error("it is sealed with the key `{0}`, which is not configured; add that key under [[sealingKeys]] again")]
    UnknownKey(String),
    /// It is not what was sealed, or belongs to something else.
    #[error("the sealed value is damaged, or belongs to something else")]
    Damaged,
    /// The machinery failed.
    #[error("it could not be sealed")]
    Failed,
}

impl SealError {
    /// Stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NoKey => "sealing-key-missing",
            Self::UnknownKey(_) => "sealing-key-unknown",
            Self::Damaged => "sealed-value-damaged",
            Self::Failed => "sealing-failed",
        }
    }
}

/// Authenticated encryption with the installation's keys.
pub trait Sealing: Send + Sync + 'static {
    /// Seals bytes with the newest key.
    fn seal(&self, context: &SealContext, plain: &[u8]) -> Result<Vec<u8>, SealError>;
    /// The bytes again.
    fn open(&self, context: &SealContext, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, SealError>;
}
