//! What both databases do alike with API keys: what a row means.

use signalbox_domain::identity::{Actor, ApiKey, Revoked};
use signalbox_domain::ids::{ActorId, KeyId, TenantId};
use signalbox_domain::time::UnixMs;

use crate::cells::Cells;
use crate::rows::{json, word};

/// The columns [`api_key`] reads, of `api_keys`.
macro_rules! key_columns {
    () => {
        "key_id, tenant, name, role, scopes, hash, created_at_ms, created_by, created_by_role, expires_at_ms, \
         revoked_at_ms, revoked_by, revoked_by_role, last_used_at_ms"
    };
}
pub(crate) use key_columns;

/// A key out of its row.
pub(crate) fn api_key(row: &impl Cells) -> Result<ApiKey, String> {
    let invalid = |error: signalbox_domain::ids::IdError| error.to_string();
    let revoked = match (row.int_or_null("revoked_at_ms")?, row.text_or_null("revoked_by")?) {
        (Some(at), Some(by)) => {
            let by = Actor { actor_id: ActorId::new(by).map_err(invalid)?, role: word(row, "revoked_by_role")? };
            Some(Revoked { at: UnixMs(at), by })
        }
        (None, None) => None,
        (Some(_), None) | (None, Some(_)) => return Err("half of a revocation is there".to_owned()),
    };
    let created_by = ActorId::new(row.text("created_by")?).map_err(invalid)?;
    Ok(ApiKey {
        key_id: KeyId::new(row.id("key_id")?),
        tenant_id: TenantId::new(row.text("tenant")?).map_err(invalid)?,
        name: row.text("name")?.to_owned(),
        role: word(row, "role")?,
        scopes: json(row, "scopes")?,
        hash: row.bytes("hash")?.try_into().map_err(|_| "`hash` does not have 32 bytes".to_owned())?,
        created_at: UnixMs(row.int("created_at_ms")?),
        created_by: Actor { actor_id: created_by, role: word(row, "created_by_role")? },
        expires_at: UnixMs(row.int("expires_at_ms")?),
        revoked,
        last_used_at: row.int_or_null("last_used_at_ms")?.map(UnixMs),
    })
}

/// The scopes as they are kept.
pub(crate) fn scopes_json(key: &ApiKey) -> Vec<u8> {
    serde_json::json!(key.scopes).to_string().into_bytes()
}
