//! Secrets and seals for tests.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use signalbox_domain::governance::isolation::SecretRule;
use signalbox_domain::ids::{SecretId, TenantId};
use zeroize::Zeroizing;

use crate::sealing::{SealContext, SealError, Sealing};
use crate::secrets::{SecretError, SecretValue, Secrets};

/// Secrets that a test sets and takes away.
#[derive(Debug, Default)]
pub struct MemorySecrets {
    rules: Vec<SecretRule>,
    values: Mutex<BTreeMap<SecretId, SecretValue>>,
}

impl MemorySecrets {
    /// Secrets under these rules; none has a value yet.
    pub fn new(rules: impl IntoIterator<Item = SecretRule>) -> Self {
        Self { rules: rules.into_iter().collect(), values: Mutex::default() }
    }
    /// Gives a secret a value.
    pub fn set(&self, secret: &SecretId, value: &str) {
        self.values().insert(secret.clone(), SecretValue::new(value.to_owned()));
    }
    /// From now on the source of a secret gives nothing.
    pub fn unset(&self, secret: &SecretId) {
        self.values().remove(secret);
    }
    fn values(&self) -> MutexGuard<'_, BTreeMap<SecretId, SecretValue>> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Secrets for MemorySecrets {
    fn rules(&self) -> &[SecretRule] {
        &self.rules
    }

    async fn value(&self, tenant: &TenantId, secret: &SecretId) -> Result<SecretValue, SecretError> {
        if !self.rules.iter().any(|rule| rule.secret_id == *secret && rule.tenant_id == *tenant) {
            return Err(SecretError::Unknown(secret.clone()));
        }
        let unreadable =
            || SecretError::Unreadable { secret_id: secret.clone(), problem: "it is not there".to_owned() };
        self.values().get(secret).cloned().ok_or_else(unreadable)
    }
}

/// Seals nothing but looks the part: what is sealed is not to be read at a glance, and opens only under its own context.
#[derive(Debug, Clone, Default)]
pub struct FakeSeal {
    key: Option<u8>,
}

impl FakeSeal {
    /// A seal that has a key.
    pub const fn new() -> Self {
        Self { key: Some(0x5a) }
    }
}

impl Sealing for FakeSeal {
    fn seal(&self, context: &SealContext, plain: &[u8]) -> Result<Vec<u8>, SealError> {
        let key = self.key.ok_or(SealError::NoKey)?;
        let mut sealed = format!("{context:?}\n").into_bytes();
        sealed.extend(plain.iter().map(|byte| byte ^ key));
        Ok(sealed)
    }

    fn open(&self, context: &SealContext, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, SealError> {
        let key = self.key.ok_or_else(|| SealError::UnknownKey("fake".to_owned()))?;
        let rest = sealed.strip_prefix(format!("{context:?}\n").as_bytes()).ok_or(SealError::Damaged)?;
        Ok(Zeroizing::new(rest.iter().map(|byte| byte ^ key).collect()))
    }
}
