//! An exported journal as lines of JSON: a head, one line for each event, and a tail.
//!
//! The head names what else was hashed; the tail says how many events there were, so that a file that was cut is told
//! from one that is whole. Bodies are texts holding the exact bytes that were hashed.

use serde::{Deserialize, Serialize};

use crate::identity::{Actor, Role, Visibility};
use crate::ids::{ActorId, RunKey, TenantId};
use crate::run::chain::{EventHash, StoredEvent};
use crate::time::UnixMicros;

/// The format's name and version, in the head.
pub const FORMAT: &str = "signalbox.journal.v1";

/// The first line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Head {
    /// [`FORMAT`].
    pub format: String,
    /// The run's public id.
    pub run_id: String,
    /// Part of what is hashed.
    pub tenant_id: TenantId,
    /// Part of what is hashed.
    pub run_key: RunKey,
}

/// The last line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Tail {
    /// How many events there are.
    pub events: u64,
    /// The hash of the last of them.
    pub head_hash: String,
}

/// The line of one event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Line {
    /// From 1 without gaps.
    pub seq: u64,
    /// When.
    pub at_unix_micros: i64,
    /// Who.
    pub actor_id: ActorId,
    /// In which standing.
    pub actor_role: Role,
    /// Who may see it.
    pub visibility: Visibility,
    /// What happened.
    pub kind: String,
    /// Version of the body.
    pub version: u16,
    /// The exact bytes that were hashed, as text.
    pub body: String,
    /// Hash of the event before.
    pub prev_hash: EventHash,
    /// Hash of this one.
    pub hash: EventHash,
}

impl From<&StoredEvent> for Line {
    fn from(event: &StoredEvent) -> Self {
        Self {
            seq: event.seq,
            at_unix_micros: event.at.0,
            actor_id: event.actor.actor_id.clone(),
            actor_role: event.actor.role,
            visibility: event.visibility,
            kind: event.kind.clone(),
            version: event.version,
            // JSON is UTF-8; bytes that are not would be found by their hash.
            body: String::from_utf8_lossy(&event.body).into_owned(),
            prev_hash: event.prev_hash,
            hash: event.hash,
        }
    }
}

impl Line {
    /// The event, as one of the run with this internal key.
    pub fn into_stored(self, run_key: RunKey) -> StoredEvent {
        StoredEvent {
            run_key,
            seq: self.seq,
            at: UnixMicros(self.at_unix_micros),
            actor: Actor { actor_id: self.actor_id, role: self.actor_role },
            visibility: self.visibility,
            kind: self.kind,
            version: self.version,
            body: self.body.into_bytes(),
            prev_hash: self.prev_hash,
            hash: self.hash,
        }
    }
}
