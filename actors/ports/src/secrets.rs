//! Values that tools need and nobody may see: where they come from, and in what they are carried.

use std::fmt;

use async_trait::async_trait;
use signalbox_domain::governance::isolation::SecretRule;
use signalbox_domain::ids::{SecretId, TenantId};
use zeroize::Zeroizing;

/// The value of a secret. Nothing prints it, and its memory is wiped when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretValue(Zeroizing<String>);

impl SecretValue {
    /// A value that has just been read.
    pub fn new(value: String) -> Self {
        Self(Zeroizing::new(value))
    }
    /// The value itself: for the executor that is given it, and for whoever looks for it in what the executor says.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

/// Why there is no value. Neither holds anything of the value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// Its source does not give it now.
    #[error("the secret `{secret_id}` cannot be read: {problem}; see `from` of its entry in the configuration")]
    Unreadable {
        /// Which.
        secret_id: SecretId,
        /// What is wrong with its source.
        problem: String,
    },
    /// There is none of this id in this tenant.
    #[error("there is no secret `{0}`")]
    Unknown(SecretId),
}

impl SecretError {
    /// Stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } => "secret-unreadable",
            Self::Unknown(_) => "secret-unknown",
        }
    }
}

/// The secrets of an installation.
#[async_trait]
pub trait Secrets: Send + Sync + 'static {
    /// Who may use which; the gate asks these.
    fn rules(&self) -> &[SecretRule];
    /// The value as it is now. Asked for one admitted call at a time, after its admission.
    async fn value(&self, tenant: &TenantId, secret: &SecretId) -> Result<SecretValue, SecretError>;
    /// The value of a secret that signs webhooks of this tenant, or of the platform. No tool is given one of these, and no
    /// webhook is signed with any other.
    async fn webhook_key(&self, _tenant: Option<&TenantId>, secret: &SecretId) -> Result<SecretValue, SecretError> {
        Err(SecretError::Unknown(secret.clone()))
    }
}
