//! API keys.

use std::sync::Arc;

use async_trait::async_trait;
use signalbox_domain::identity::{ApiKey, Revoked};
use signalbox_domain::ids::{KeyId, TenantId};
use signalbox_domain::time::UnixMs;
use signalbox_ports::journal::StoreError;
use signalbox_ports::keys::{KeyMade, Keys, LISTED_KEYS_MAX, LIVE_KEYS_MAX};
use sqlx::PgConnection;

use super::errors::{Problem, failed};
use super::transaction::{Attempts, Ended, GovernanceLock, in_task, in_time};
use super::{PostgresStore, Shared};
use crate::keys::{api_key, key_columns, scopes_json};
use crate::rows::{int, readable};

#[async_trait]
impl Keys for PostgresStore {
    async fn make(&self, key: ApiKey) -> Result<KeyMade, StoreError> {
        let shared = Arc::clone(&self.shared);
        in_task(async move {
            let mut attempts = Attempts::new();
            loop {
                if let Some(made) = attempts.settle_repeatable(make_once(&shared, &key).await).await? {
                    return Ok(made);
                }
            }
        })
        .await
    }

    async fn key(&self, key: KeyId) -> Result<Option<ApiKey>, StoreError> {
        let query = sqlx::query(concat!("SELECT ", key_columns!(), " FROM api_keys WHERE key_id = $1"));
        let row = self.shared.control_readers.first("read an API key", query.bind(key.uuid())).await?;
        row.map(|row| api_key(&row).map_err(StoreError::Unavailable)).transpose()
    }

    async fn keys_of(&self, tenant: &TenantId, live_at: Option<UnixMs>) -> Result<Vec<ApiKey>, StoreError> {
        let query = sqlx::query(concat!(
            "SELECT ",
            key_columns!(),
            " FROM api_keys WHERE tenant = $1 AND ($2::int8 IS NULL OR (revoked_at_ms IS NULL AND expires_at_ms > $2)) \
             ORDER BY created_at_ms DESC, key_id DESC LIMIT $3"
        ));
        let query = query.bind(tenant.as_str()).bind(live_at.map(|now| now.0)).bind(int(LISTED_KEYS_MAX as u64));
        let rows = self.shared.readers.all("list API keys", query).await?;
        Ok(rows.iter().filter_map(|row| readable("an API key", api_key(row))).collect())
    }

    async fn revoke(&self, tenant: &TenantId, key: KeyId, revoked: Revoked) -> Result<Option<ApiKey>, StoreError> {
        let (shared, tenant) = (Arc::clone(&self.shared), tenant.clone());
        in_task(async move {
            let mut attempts = Attempts::new();
            loop {
                let done = revoke_once(&shared, &tenant, key, &revoked).await;
                if let Some(key) = attempts.settle_repeatable(done).await? {
                    return Ok(key);
                }
            }
        })
        .await
    }

    async fn used(&self, key: KeyId, at: UnixMs) -> Result<(), StoreError> {
        let shared = Arc::clone(&self.shared);
        in_task(async move {
            let mut attempts = Attempts::new();
            loop {
                if let Some(()) = attempts.settle_repeatable(used_once(&shared, key, at).await).await? {
                    return Ok(());
                }
            }
        })
        .await
    }
}

async fn make_once(shared: &Shared, key: &ApiKey) -> Result<Ended<KeyMade>, Problem> {
    let mut transaction = shared.control.begin(GovernanceLock::None).await?;
    let outcome = in_time(make(transaction.conn()?, key)).await;
    transaction.end(outcome).await
}

pub(super) async fn make(conn: &mut PgConnection, key: &ApiKey) -> Result<KeyMade, Problem> {
    // An attempt whose commit was not answered may have left it: the same key is there already, and made.
    let there: Option<Vec<u8>> = sqlx::query_scalar("SELECT hash FROM api_keys WHERE key_id = $1")
        .bind(key.key_id.uuid())
        .fetch_optional(&mut *conn)
        .await
        .map_err(failed("read an API key"))?;
    match there {
        Some(hash) if hash == key.hash => return Ok(KeyMade::Made),
        Some(_) => return Err(StoreError::Poison("the key id is taken".into()).into()),
        None => {}
    }
    let made = sqlx::query(
        "INSERT INTO api_keys (key_id, tenant, name, role, scopes, hash, created_at_ms, created_by, created_by_role, \
         expires_at_ms) SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10 WHERE (SELECT count(*) FROM api_keys \
         WHERE tenant = $2 AND revoked_at_ms IS NULL AND expires_at_ms > $7) < $11",
    )
    .bind(key.key_id.uuid())
    .bind(key.tenant_id.as_str())
    .bind(key.name.as_str())
    .bind(key.role.as_str())
    .bind(scopes_json(key))
    .bind(key.hash.as_slice())
    .bind(key.created_at.0)
    .bind(key.created_by.actor_id.as_str())
    .bind(key.created_by.role.as_str())
    .bind(key.expires_at.0)
    .bind(int(LIVE_KEYS_MAX as u64))
    .execute(conn)
    .await
    .map_err(failed("keep an API key"))?;
    Ok(if made.rows_affected() == 0 { KeyMade::TooMany } else { KeyMade::Made })
}

async fn revoke_once(
    shared: &Shared,
    tenant: &TenantId,
    key: KeyId,
    revoked: &Revoked,
) -> Result<Ended<Option<ApiKey>>, Problem> {
    let mut transaction = shared.control.begin(GovernanceLock::None).await?;
    let outcome = in_time(revoke(transaction.conn()?, tenant, key, revoked)).await;
    transaction.end(outcome).await
}

pub(super) async fn revoke(
    conn: &mut PgConnection,
    tenant: &TenantId,
    key: KeyId,
    revoked: &Revoked,
) -> Result<Option<ApiKey>, Problem> {
    // The row's lock makes whoever comes second see what the first has written.
    sqlx::query(
        "UPDATE api_keys SET revoked_at_ms = $1, revoked_by = $2, revoked_by_role = $3 \
         WHERE key_id = $4 AND tenant = $5 AND revoked_at_ms IS NULL",
    )
    .bind(revoked.at.0)
    .bind(revoked.by.actor_id.as_str())
    .bind(revoked.by.role.as_str())
    .bind(key.uuid())
    .bind(tenant.as_str())
    .execute(&mut *conn)
    .await
    .map_err(failed("revoke an API key"))?;
    let row = sqlx::query(concat!("SELECT ", key_columns!(), " FROM api_keys WHERE key_id = $1 AND tenant = $2"))
        .bind(key.uuid())
        .bind(tenant.as_str())
        .fetch_optional(conn)
        .await
        .map_err(failed("read an API key"))?;
    row.map(|row| api_key(&row).map_err(|problem| StoreError::Unavailable(problem).into())).transpose()
}

async fn used_once(shared: &Shared, key: KeyId, at: UnixMs) -> Result<Ended<()>, Problem> {
    let mut transaction = shared.control.begin(GovernanceLock::None).await?;
    let noting = sqlx::query(
        "UPDATE api_keys SET last_used_at_ms = $1 \
         WHERE key_id = $2 AND (last_used_at_ms IS NULL OR last_used_at_ms < $1)",
    )
    .bind(at.0)
    .bind(key.uuid())
    .execute(transaction.conn()?);
    let outcome = in_time(async { noting.await.map(|_| ()).map_err(failed("note the use of an API key")) }).await;
    transaction.end(outcome).await
}
