//! The hash chain of a journal (I9, RUN-024).

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::identity::{Actor, Visibility};
use crate::ids::{RunKey, TenantId};
use crate::run::event::RunEvent;
use crate::time::UnixMicros;

/// SHA-256 over everything an event says and the hash before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct EventHash(pub [u8; 32]);

impl EventHash {
    /// What the first event of a run points back to.
    pub const ZERO: Self = Self([0; 32]);
    /// Lower-case hex.
    pub fn hex(&self) -> String {
        crate::canonical::hex(&self.0)
    }
    /// Reads lower-case hex.
    pub fn from_hex(text: &str) -> Option<Self> {
        if text.len() != 64 || !text.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
            return None;
        }
        let mut bytes = [0; 32];
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[i * 2..i * 2 + 2], 16).ok()?;
        }
        Some(Self(bytes))
    }
}

impl Serialize for EventHash {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.hex())
    }
}

impl<'de> Deserialize<'de> for EventHash {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        Self::from_hex(&text).ok_or_else(|| serde::de::Error::custom("not 64 hexadecimal digits"))
    }
}

/// An event as it lies in the journal.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredEvent {
    /// The run.
    pub run_key: RunKey,
    /// From 1 without gaps.
    pub seq: u64,
    /// When, by the store's clock, never before the event ahead of it.
    pub at: UnixMicros,
    /// Who caused it.
    pub actor: Actor,
    /// Who may see it.
    pub visibility: Visibility,
    /// Kind.
    pub kind: String,
    /// Version of the body.
    pub version: u16,
    /// The exact bytes that were hashed: JSON.
    pub body: Vec<u8>,
    /// Hash of the event before.
    pub prev_hash: EventHash,
    /// Hash of this one.
    pub hash: EventHash,
}

impl StoredEvent {
    /// The event inside; `None` if its kind or body is unknown to this version.
    pub fn event(&self) -> Option<RunEvent> {
        RunEvent::decode(&self.kind, &self.body)
    }

    /// What the hash of this event must be.
    pub fn expected_hash(&self, tenant: &TenantId) -> EventHash {
        let mut hasher = Sha256::new();
        let mut field = |bytes: &[u8]| {
            // The length in front keeps two neighbouring fields from being cut differently under one hash.
            hasher.update((bytes.len() as u64).to_be_bytes());
            hasher.update(bytes);
        };
        field(b"signalbox.event.v1");
        field(&self.prev_hash.0);
        field(tenant.as_str().as_bytes());
        field(self.run_key.uuid().as_bytes());
        field(&self.seq.to_be_bytes());
        field(&self.at.0.to_be_bytes());
        field(self.actor.actor_id.as_str().as_bytes());
        field(self.actor.role.as_str().as_bytes());
        field(self.visibility.as_str().as_bytes());
        field(self.kind.as_bytes());
        field(&self.version.to_be_bytes());
        field(&self.body);
        EventHash(hasher.finalize().into())
    }
}
