//! `Idempotency-Key`: a run id that follows from who asks, where, and under which key.
//!
//! The key needs no table of its own: the run under the derived id is the record that it was used, durable with the run
//! and for as long. Another tenant, another member or another route derive another id, so nobody is answered with what
//! somebody else has submitted (C-072, C-074).

use axum::http::HeaderMap;
use signalbox_domain::ids::RunId;
use uuid::Uuid;

use crate::api::{Caller, ErrorKind};
use crate::errors::Refusal;
use crate::validate::bad;

/// The header.
pub(super) const HEADER: &str = "idempotency-key";
/// Longest key, in bytes.
const KEY_BYTES_MAX: usize = 255;
/// The namespace of the ids, itself derived from a name so that anybody can compute it again.
const NAMESPACE_NAME: &[u8] = b"signalbox/idempotency-key/v1";

/// The key of a request, if it has one.
pub(super) fn key(headers: &HeaderMap) -> Result<Option<String>, Refusal> {
    let mut given = headers.get_all(HEADER).iter();
    let (one, other) = (given.next(), given.next());
    let Some(one) = one else { return Ok(None) };
    let refused = |message: &str| Err(bad("idempotency-key-invalid", HEADER, message));
    if other.is_some() {
        return refused("`Idempotency-Key` is given twice");
    }
    match one.to_str() {
        Ok(text) if (1..=KEY_BYTES_MAX).contains(&text.len()) => Ok(Some(text.to_owned())),
        Ok(_) | Err(_) => refused("`Idempotency-Key` must be 1 to 255 visible ASCII characters"),
    }
}

/// The id of the run that this caller submits at this route under this key.
pub(super) fn run_id(caller: &Caller, route: &str, key: &str) -> RunId {
    let namespace = Uuid::new_v5(&Uuid::NAMESPACE_OID, NAMESPACE_NAME);
    let mut name = Vec::new();
    for part in [caller.tenant_id.as_str(), caller.actor.actor_id.as_str(), route, key] {
        // The length in front keeps two neighbouring parts from being cut differently under one id.
        name.extend_from_slice(&(part.len() as u64).to_be_bytes());
        name.extend_from_slice(part.as_bytes());
    }
    RunId::new(Uuid::new_v5(&namespace, &name))
}

/// The key stands for another submission.
pub(super) fn reused() -> Refusal {
    let message = "this `Idempotency-Key` was used for another submission; use another key for another run";
    Refusal::new(ErrorKind::Invalid, "idempotency-key-reused", message)
}
