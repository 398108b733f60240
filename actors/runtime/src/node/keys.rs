//! API keys made and revoked as acts: each has its record in the audit journal, in one transaction with the key's row.
//!
//! What a key may be is decided before; here it becomes an act. The record says what the key is for and never its hash.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value, json};
use signalbox_domain::governance::audit::{AuditBody, AuditKind, Subject};
use signalbox_domain::identity::{Actor, ApiKey, Revoked};
use signalbox_domain::ids::{KeyId, TenantId};
use signalbox_domain::time::UnixMs;
use signalbox_ports::acts::Effect;
use signalbox_ports::journal::StoreError;
use signalbox_ports::keys::{KeyMade, Keys, LIVE_KEYS_MAX};

use super::NodeHandle;
use super::governing::{Decided, Draft};
use crate::api::{ApiError, Caller};

/// The keys of a store, whose every change is an act of the node.
pub struct AuditedKeys {
    node: NodeHandle,
    keys: Arc<dyn Keys>,
}

impl NodeHandle {
    /// The same keys, made and revoked as acts of this node.
    pub fn audited_keys(&self, keys: Arc<dyn Keys>) -> AuditedKeys {
        AuditedKeys { node: self.clone(), keys }
    }
}

#[async_trait]
impl Keys for AuditedKeys {
    async fn make(&self, key: ApiKey) -> Result<KeyMade, StoreError> {
        let (caller, key) = (acting(&key.tenant_id, &key.created_by), &key);
        let made = self.node.act(&caller, move |_| async move {
            // Every key is made by an act, so this count stands until this act is written, or the act is decided anew.
            if self.keys.keys_of(&key.tenant_id, Some(key.created_at)).await?.len() >= LIVE_KEYS_MAX {
                return Ok(Decided::Nothing(KeyMade::TooMany));
            }
            let reason = format!("the API key `{}` is made", key.name);
            let body = AuditBody { reason, after: Some(told(key)), ..AuditBody::default() };
            let effect = Effect::MakeApiKey(Box::new(key.clone()));
            Ok(Decided::Act(Box::new(draft(AuditKind::ApiKeyMade, key, body, effect)), KeyMade::Made))
        });
        made.await.map(|(made, _)| made).map_err(store_error)
    }

    async fn key(&self, key: KeyId) -> Result<Option<ApiKey>, StoreError> {
        self.keys.key(key).await
    }

    async fn keys_of(&self, tenant: &TenantId, live_at: Option<UnixMs>) -> Result<Vec<ApiKey>, StoreError> {
        self.keys.keys_of(tenant, live_at).await
    }

    async fn revoke(&self, tenant: &TenantId, key: KeyId, revoked: Revoked) -> Result<Option<ApiKey>, StoreError> {
        let (caller, revoked) = (acting(tenant, &revoked.by), &revoked);
        let gone = self.node.act(&caller, move |_| async move {
            let row = self.keys.key(key).await?.filter(|row| row.tenant_id == *tenant);
            let Some(row) = row.filter(|row| row.revoked.is_none()) else {
                // Another tenant's is as absent as none (I11), and whoever is second changes nothing.
                let row = self.keys.key(key).await?.filter(|row| row.tenant_id == *tenant);
                return Ok(Decided::Nothing(row));
            };
            let after = ApiKey { revoked: Some(revoked.clone()), ..row.clone() };
            let reason = format!("the API key `{}` is revoked", row.name);
            let body =
                AuditBody { reason, before: Some(told(&row)), after: Some(told(&after)), ..AuditBody::default() };
            let effect = Effect::RevokeApiKey(tenant.clone(), key, revoked.clone());
            Ok(Decided::Act(Box::new(draft(AuditKind::ApiKeyRevoked, &after, body, effect)), Some(after)))
        });
        gone.await.map(|(row, _)| row).map_err(store_error)
    }

    async fn used(&self, key: KeyId, at: UnixMs) -> Result<(), StoreError> {
        self.keys.used(key, at).await
    }
}

fn acting(tenant: &TenantId, by: &Actor) -> Caller {
    Caller { tenant_id: tenant.clone(), actor: by.clone(), scopes: Vec::new(), surface: "system" }
}

fn draft(kind: AuditKind, key: &ApiKey, body: AuditBody, effect: Effect) -> Draft {
    Draft { tenant_id: Some(key.tenant_id.clone()), kind, subject: Subject::api_key(&key.key_id), body, effect }
}

/// What is recorded of a key: not its hash, by which guesses could be tried.
fn told(key: &ApiKey) -> Value {
    json!({
        "keyId": key.key_id.to_string(), "tenantId": key.tenant_id, "name": key.name, "role": key.role.as_str(),
        "scopes": key.scopes, "createdAtUnixMs": key.created_at, "expiresAtUnixMs": key.expires_at,
        "revokedAtUnixMs": key.revoked.as_ref().map(|revoked| revoked.at),
    })
}

fn store_error(error: ApiError) -> StoreError {
    // Beside what the store says, an act may be contended, and then it was not written.
    if let ApiError::Store(error) = error { error } else { StoreError::Unavailable(error.to_string()) }
}
