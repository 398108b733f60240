//! API keys.

use async_trait::async_trait;
use signalbox_domain::identity::{ApiKey, Revoked};
use signalbox_domain::ids::{KeyId, TenantId};
use signalbox_domain::time::UnixMs;
use signalbox_ports::journal::StoreError;
use signalbox_ports::keys::{KeyMade, Keys, LISTED_KEYS_MAX, LIVE_KEYS_MAX};
use sqlx::sqlite::SqliteConnection;

use super::SqliteStore;
use super::rows::{blob, failed};
use crate::keys::{api_key, key_columns, scopes_json};
use crate::rows::{int, readable};

#[async_trait]
impl Keys for SqliteStore {
    async fn make(&self, key: ApiKey) -> Result<KeyMade, StoreError> {
        self.writer.transact(move |conn| Box::pin(async move { make(conn, &key).await })).await
    }

    async fn key(&self, key: KeyId) -> Result<Option<ApiKey>, StoreError> {
        let row = sqlx::query(concat!("SELECT ", key_columns!(), " FROM api_keys WHERE key_id = ?"))
            .bind(blob(key.uuid()))
            .fetch_optional(&self.readers)
            .await
            .map_err(failed("read an API key"))?;
        row.map(|row| api_key(&row).map_err(StoreError::Unavailable)).transpose()
    }

    async fn keys_of(&self, tenant: &TenantId, live_at: Option<UnixMs>) -> Result<Vec<ApiKey>, StoreError> {
        let rows = sqlx::query(concat!(
            "SELECT ",
            key_columns!(),
            " FROM api_keys WHERE tenant = ?1 AND (?2 IS NULL OR (revoked_at_ms IS NULL AND expires_at_ms > ?2)) \
             ORDER BY created_at_ms DESC, key_id DESC LIMIT ?3"
        ))
        .bind(tenant.as_str())
        .bind(live_at.map(|now| now.0))
        .bind(int(LISTED_KEYS_MAX as u64))
        .fetch_all(&self.readers)
        .await
        .map_err(failed("list API keys"))?;
        Ok(rows.iter().filter_map(|row| readable("an API key", api_key(row))).collect())
    }

    async fn revoke(&self, tenant: &TenantId, key: KeyId, revoked: Revoked) -> Result<Option<ApiKey>, StoreError> {
        let tenant = tenant.to_string();
        self.writer.transact(move |conn| Box::pin(async move { revoke(conn, &tenant, key, &revoked).await })).await
    }

    async fn used(&self, key: KeyId, at: UnixMs) -> Result<(), StoreError> {
        self.writer
            .transact(move |conn| {
                Box::pin(async move {
                    sqlx::query(
                        "UPDATE api_keys SET last_used_at_ms = ?1 \
                         WHERE key_id = ?2 AND (last_used_at_ms IS NULL OR last_used_at_ms < ?1)",
                    )
                    .bind(at.0)
                    .bind(blob(key.uuid()))
                    .execute(conn)
                    .await
                    .map_err(failed("note the use of an API key"))?;
                    Ok(())
                })
            })
            .await
    }
}

pub(super) async fn make(conn: &mut SqliteConnection, key: &ApiKey) -> Result<KeyMade, StoreError> {
    let live: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM api_keys WHERE tenant = ? AND revoked_at_ms IS NULL AND expires_at_ms > ?",
    )
    .bind(key.tenant_id.as_str())
    .bind(key.created_at.0)
    .fetch_one(&mut *conn)
    .await
    .map_err(failed("count API keys"))?;
    if live >= int(LIVE_KEYS_MAX as u64) {
        return Ok(KeyMade::TooMany);
    }
    sqlx::query(
        "INSERT INTO api_keys (key_id, tenant, name, role, scopes, hash, created_at_ms, created_by, created_by_role, \
         expires_at_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(blob(key.key_id.uuid()))
    .bind(key.tenant_id.as_str())
    .bind(key.name.as_str())
    .bind(key.role.as_str())
    .bind(scopes_json(key))
    .bind(key.hash.to_vec())
    .bind(key.created_at.0)
    .bind(key.created_by.actor_id.as_str())
    .bind(key.created_by.role.as_str())
    .bind(key.expires_at.0)
    .execute(conn)
    .await
    .map_err(failed("keep an API key"))?;
    Ok(KeyMade::Made)
}

pub(super) async fn revoke(
    conn: &mut SqliteConnection,
    tenant: &str,
    key: KeyId,
    revoked: &Revoked,
) -> Result<Option<ApiKey>, StoreError> {
    sqlx::query(
        "UPDATE api_keys SET revoked_at_ms = ?, revoked_by = ?, revoked_by_role = ? \
         WHERE key_id = ? AND tenant = ? AND revoked_at_ms IS NULL",
    )
    .bind(revoked.at.0)
    .bind(revoked.by.actor_id.as_str())
    .bind(revoked.by.role.as_str())
    .bind(blob(key.uuid()))
    .bind(tenant)
    .execute(&mut *conn)
    .await
    .map_err(failed("revoke an API key"))?;
    let row = sqlx::query(concat!("SELECT ", key_columns!(), " FROM api_keys WHERE key_id = ? AND tenant = ?"))
        .bind(blob(key.uuid()))
        .bind(tenant)
        .fetch_optional(conn)
        .await
        .map_err(failed("read an API key"))?;
    row.map(|row| api_key(&row).map_err(StoreError::Unavailable)).transpose()
}
