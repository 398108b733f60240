//! API keys: what one looks like, what is kept of it, and who may make which.
//!
//! A key is `sbk_<id>_<secret>`. The id finds its row; of the secret only a hash is kept. One round of SHA-256 is enough,
//! since the secret is 256 random bits and no word: there is nothing to guess that a slow hash would protect.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::{Action, Actor, Caller, Reach, Role, check_scopes, reach};
use crate::canonical::hex;
use crate::ids::{ActorId, IdError, KeyId, TenantId};
use crate::time::UnixMs;

/// How every key begins, so that people and scanners recognize one.
pub const KEY_PREFIX: &str = "sbk_";
/// Random bytes of a secret.
pub const SECRET_BYTES: usize = 32;
/// How long a key is good for unless something else is asked for, in seconds: 90 days.
pub const KEY_TTL_SECONDS_DEFAULT: u64 = 90 * 86_400;
/// Longest life of a key, in seconds: 366 days.
pub const KEY_TTL_SECONDS_MAX: u64 = 366 * 86_400;
/// Longest name, in bytes; with its prefix it must be an actor's id.
const NAME_BYTES_MAX: usize = 100;
/// When a key was last used is told by the hour.
const HOUR_MS: i64 = 3_600_000;
/// Where calls with a key come from (INV-002).
const SURFACE: &str = "api";

/// A whole key as its holder has it. Nothing prints the secret.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyText {
    /// Finds the row.
    pub key_id: KeyId,
    secret: [u8; SECRET_BYTES],
}

impl KeyText {
    /// A key of random bytes.
    pub const fn new(key_id: KeyId, secret: [u8; SECRET_BYTES]) -> Self {
        Self { key_id, secret }
    }

    /// Reads a key; `None` if it is none. Exactly one text is a given key.
    pub fn parse(text: &str) -> Option<Self> {
        let (id, secret) = text.strip_prefix(KEY_PREFIX)?.split_once('_')?;
        let key_id = KeyId::new(Uuid::from_bytes(bytes(id)?));
        Some(Self { key_id, secret: bytes(secret)? })
    }

    /// The key in full, to be shown once.
    pub fn reveal(&self) -> String {
        format!("{KEY_PREFIX}{}_{}", self.key_id.uuid().simple(), hex(&self.secret))
    }

    /// What is kept of it: bound to the id, so that a hash moved to another row opens nothing.
    pub fn hash(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update(b"signalbox.api-key.v1\n");
        hash.update(self.key_id.uuid().as_bytes());
        hash.update(self.secret);
        hash.finalize().into()
    }
}

impl fmt::Debug for KeyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{KEY_PREFIX}{}_…", self.key_id.uuid().simple())
    }
}

// Lower-case hexadecimal digits, exactly as many as there are bytes.
fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |b: u8| match b {
        b'0'..=b'9' => Some(b - b'0'),
        b'a'..=b'f' => Some(b - b'a' + 10),
        _ => None,
    };
    if text.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

/// Who took a key back, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revoked {
    /// When.
    pub at: UnixMs,
    /// Who.
    pub by: Actor,
}

/// The row of a key. It is never removed: who made it and who took it back is there for good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKey {
    /// The key.
    pub key_id: KeyId,
    /// The tenant it acts in.
    pub tenant_id: TenantId,
    /// What it is for. Keys of one name act as one actor, so that a key can be replaced by another.
    pub name: String,
    /// The standing it acts with.
    pub role: Role,
    /// What it allows.
    pub scopes: Vec<String>,
    /// The hash of the whole key.
    pub hash: [u8; 32],
    /// When it was made.
    pub created_at: UnixMs,
    /// Who made it.
    pub created_by: Actor,
    /// From when on it is good for nothing.
    pub expires_at: UnixMs,
    /// Who took it back, and when.
    pub revoked: Option<Revoked>,
    /// The hour it was last used in.
    pub last_used_at: Option<UnixMs>,
}

/// What a key is good for at an instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyState {
    /// For what it says.
    Live,
    /// For nothing: its time is over.
    Expired,
    /// For nothing: somebody took it back.
    Revoked,
}

impl KeyState {
    /// The wire string.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
        }
    }
}

impl ApiKey {
    /// What the key is good for.
    pub fn state(&self, now: UnixMs) -> KeyState {
        if self.revoked.is_some() {
            KeyState::Revoked
        } else if now >= self.expires_at {
            KeyState::Expired
        } else {
            KeyState::Live
        }
    }

    /// Whoever calls with it.
    pub fn caller(&self) -> Result<Caller, IdError> {
        let actor = Actor { actor_id: actor_of(&self.name)?, role: self.role };
        Ok(Caller { tenant_id: self.tenant_id.clone(), actor, scopes: self.scopes.clone(), surface: SURFACE })
    }
}

fn actor_of(name: &str) -> Result<ActorId, IdError> {
    ActorId::new(format!("key:{name}"))
}

/// The hour of an instant: nobody needs to know more about when a key was used, and a row is written once an hour at most.
pub const fn last_used_shown(at: UnixMs) -> UnixMs {
    UnixMs(at.0.div_euclid(HOUR_MS) * HOUR_MS)
}

/// A key that somebody wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewKey {
    /// What it is for.
    pub name: String,
    /// The standing.
    pub role: Role,
    /// The scopes.
    pub scopes: Vec<String>,
    /// How long it is good for, in seconds.
    pub ttl_seconds: u64,
}

/// Why a key is not made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyDenial {
    /// Not by this role.
    #[error("keys are managed by operators")]
    NotAuthorized,
    /// A role above the creator's own.
    #[error("a key may not have the role {0} unless a platform-operator makes it")]
    RoleTooHigh(&'static str),
    /// A scope that the creator does not have itself.
    #[error("a key may not have a scope that whoever makes it lacks, such as `{0}`")]
    ScopeNotHeld(String),
    /// Not a name.
    #[error("`name` must be 1 to {NAME_BYTES_MAX} of ASCII letters, digits and . _ : @ -")]
    NameInvalid,
    /// Not scopes.
    #[error("`scopes`: {0}")]
    ScopesInvalid(String),
    /// A life of nothing, or too long a one.
    #[error("a key is good for at least a minute and at most {KEY_TTL_SECONDS_MAX} seconds")]
    TtlInvalid,
}

impl KeyDenial {
    /// Stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NotAuthorized | Self::RoleTooHigh(_) | Self::ScopeNotHeld(_) => "not-authorized",
            Self::NameInvalid => "key-name-invalid",
            Self::ScopesInvalid(_) => "key-scopes-invalid",
            Self::TtlInvalid => "key-ttl-invalid",
        }
    }
}

/// Whether a caller may make a key: authority only narrows, so a key has at most what its maker has.
pub fn may_create(creator: &Caller, new: &NewKey) -> Result<(), KeyDenial> {
    let reach = reach(creator.actor.role, Action::ManageKeys);
    if reach < Reach::Tenant {
        return Err(KeyDenial::NotAuthorized);
    }
    if new.name.len() > NAME_BYTES_MAX || ActorId::from_str(&new.name).is_err() {
        return Err(KeyDenial::NameInvalid);
    }
    if !(60..=KEY_TTL_SECONDS_MAX).contains(&new.ttl_seconds) {
        return Err(KeyDenial::TtlInvalid);
    }
    check_scopes(new.scopes.iter().map(String::as_str)).map_err(KeyDenial::ScopesInvalid)?;
    if reach == Reach::Platform {
        return Ok(());
    }
    if new.role > creator.actor.role {
        return Err(KeyDenial::RoleTooHigh(new.role.as_str()));
    }
    match new.scopes.iter().find(|scope| !creator.has_scope(scope)) {
        Some(scope) => Err(KeyDenial::ScopeNotHeld(scope.clone())),
        None => Ok(()),
    }
}
