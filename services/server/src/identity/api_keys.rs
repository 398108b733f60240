//! API keys at work: made, listed, taken back, and recognized.
//!
//! A node remembers a key's row for two seconds, so that a busy machine does not cost a read of the store for each call, and
//! so that a key that was taken back at one node is good for nothing at any other five seconds later at most. Of keys that do
//! not exist nothing is remembered longer, and only so many are looked for at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use signalbox_domain::identity::{Action, KeyDenial, Reach};
use signalbox_domain::identity::{
    ApiKey, KeyState, KeyText, NewKey, Revoked, SECRET_BYTES, last_used_shown, may_create, reach,
};
use signalbox_domain::ids::KeyId;
use signalbox_domain::time::UnixMs;
use signalbox_ports::clock::{BootInstant, Clock, Ids};
use signalbox_ports::journal::StoreError;
use signalbox_ports::keys::{KeyMade, Keys};
use subtle::ConstantTimeEq as _;
use tokio::sync::Semaphore;

use crate::api::{ApiError, Caller, ErrorKind};
use crate::errors::Refusal;
use crate::validate::bad;

/// How long a row is believed, in milliseconds. With the time a read may take it stays under the five seconds within which a
/// key that was taken back is good for nothing anywhere.
const REMEMBERED_MS: u64 = 2_000;
/// Most rows that are remembered.
const REMEMBERED_MAX: usize = 10_000;
/// Most keys that are looked for at once.
const LOOKUPS_MAX: usize = 32;
/// How long anybody waits for its turn.
const LOOKUP_TURN_WITHIN: Duration = Duration::from_secs(2);

/// Why a key lets nobody in.
#[derive(Debug, thiserror::Error)]
pub(super) enum KeyProblem {
    #[error("there is no API key {0}")]
    Unknown(KeyId),
    #[error("the secret of API key {0} is another")]
    WrongSecret(KeyId),
    #[error("API key {0} is {1}")]
    Ended(KeyId, &'static str),
    #[error("too many API keys are looked for at once")]
    Busy,
    #[error("API keys cannot be looked for: {0}")]
    Store(StoreError),
    #[error("API key {0} has a row that cannot be what was written")]
    Damaged(KeyId),
}

/// The API keys of a store, as one node sees them.
pub struct ApiKeys {
    store: Arc<dyn Keys>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
    remembered: Mutex<HashMap<KeyId, Remembered>>,
    lookups: Semaphore,
}

struct Remembered {
    key: Option<ApiKey>,
    read: BootInstant,
}

impl ApiKeys {
    /// The keys of a store.
    pub fn new(store: Arc<dyn Keys>, clock: Arc<dyn Clock>, ids: Arc<dyn Ids>) -> Self {
        Self { store, clock, ids, remembered: Mutex::default(), lookups: Semaphore::new(LOOKUPS_MAX) }
    }

    /// Whoever calls with a key.
    pub(super) async fn recognize(&self, text: &KeyText) -> Result<Caller, KeyProblem> {
        let id = text.key_id;
        let key = self.look_up(id).await?.ok_or(KeyProblem::Unknown(id))?;
        if !bool::from(key.hash.ct_eq(&text.hash())) {
            return Err(KeyProblem::WrongSecret(id));
        }
        let now = self.clock.now();
        match key.state(now) {
            KeyState::Live => {}
            ended @ (KeyState::Expired | KeyState::Revoked) => return Err(KeyProblem::Ended(id, ended.as_str())),
        }
        self.note_use(&key, last_used_shown(now));
        key.caller().map_err(|_| KeyProblem::Damaged(id))
    }

    async fn look_up(&self, id: KeyId) -> Result<Option<ApiKey>, KeyProblem> {
        if let Some(known) = self.remembered().get(&id).filter(|row| self.is_fresh(row)) {
            return Ok(known.key.clone());
        }
        let turn = tokio::time::timeout(LOOKUP_TURN_WITHIN, self.lookups.acquire()).await;
        let _turn = turn.ok().and_then(Result::ok).ok_or(KeyProblem::Busy)?;
        // Its instant is the one before the read: what is taken back meanwhile must not be believed any longer for it.
        let read = self.clock.boot();
        let key = self.store.key(id).await.map_err(KeyProblem::Store)?;
        let mut remembered = self.remembered();
        if remembered.len() >= REMEMBERED_MAX {
            remembered.retain(|_, row| self.is_fresh(row));
        }
        if remembered.len() < REMEMBERED_MAX {
            remembered.insert(id, Remembered { key: key.clone(), read });
        }
        Ok(key)
    }

    fn is_fresh(&self, row: &Remembered) -> bool {
        self.clock.boot().ms_since(row.read) < REMEMBERED_MS
    }

    fn remembered(&self) -> std::sync::MutexGuard<'_, HashMap<KeyId, Remembered>> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // Beside the call, which does not wait for it, and at most once an hour for each key and node.
    fn note_use(&self, key: &ApiKey, hour: UnixMs) {
        if key.last_used_at.is_some_and(|noted| noted >= hour) {
            return;
        }
        if let Some(row) = self.remembered().get_mut(&key.key_id).and_then(|row| row.key.as_mut()) {
            row.last_used_at = Some(hour);
        }
        let (store, key_id) = (Arc::clone(&self.store), key.key_id);
        tokio::spawn(async move {
            if let Err(error) = store.used(key_id, hour).await {
                tracing::warn!(%error, %key_id, "the use of an API key could not be noted");
            }
        });
    }

    /// Makes a key. Its text is given here and never again.
    pub async fn make(&self, by: &Caller, new: NewKey) -> Result<(ApiKey, KeyText), Refusal> {
        may_create(by, &new).map_err(|denial| denied(&denial))?;
        let mut secret = [0; SECRET_BYTES];
        getrandom::fill(&mut secret)
            .map_err(|error| Refusal::new(ErrorKind::Internal, "no-randomness", error.to_string()))?;
        let text = KeyText::new(KeyId::new(self.ids.fresh()), secret);
        let now = self.clock.now();
        let ttl = i64::try_from(new.ttl_seconds).unwrap_or(i64::MAX);
        let key = ApiKey {
            key_id: text.key_id,
            tenant_id: by.tenant_id.clone(),
            name: new.name,
            role: new.role,
            scopes: new.scopes,
            hash: text.hash(),
            created_at: now,
            created_by: by.actor.clone(),
            expires_at: now.plus_seconds(ttl),
            revoked: None,
            last_used_at: None,
        };
        match self.store.make(key.clone()).await.map_err(ApiError::from)? {
            KeyMade::Made => Ok((key, text)),
            KeyMade::TooMany => Err(Refusal::new(
                ErrorKind::PreconditionFailed,
                "too-many-keys",
                "this tenant has as many live API keys as it may; revoke some first",
            )),
        }
    }

    /// Keys of the caller's tenant, the newest first.
    pub async fn list(&self, by: &Caller, with_ended: bool) -> Result<Vec<ApiKey>, Refusal> {
        check_manages(by)?;
        let live_at = (!with_ended).then(|| self.clock.now());
        Ok(self.store.keys_of(&by.tenant_id, live_at).await.map_err(ApiError::from)?)
    }

    /// Takes a key of the caller's tenant back. Doing it twice is harmless.
    pub async fn revoke(&self, by: &Caller, id: KeyId) -> Result<ApiKey, Refusal> {
        check_manages(by)?;
        let revoked = Revoked { at: self.clock.now(), by: by.actor.clone() };
        let key = self.store.revoke(&by.tenant_id, id, revoked).await.map_err(ApiError::from)?;
        self.remembered().remove(&id);
        key.ok_or_else(|| {
            Refusal::new(ErrorKind::NotFound, "no-such-key", format!("there is no API key {id}"))
                .with("keyId", id.to_string())
        })
    }

    /// What a key is good for now.
    pub(super) fn state(&self, key: &ApiKey) -> KeyState {
        key.state(self.clock.now())
    }
}

fn check_manages(by: &Caller) -> Result<(), Refusal> {
    if reach(by.actor.role, Action::ManageKeys) >= Reach::Tenant {
        return Ok(());
    }
    Err(denied(&KeyDenial::NotAuthorized))
}

fn denied(denial: &KeyDenial) -> Refusal {
    match denial {
        KeyDenial::NotAuthorized | KeyDenial::RoleTooHigh(_) | KeyDenial::ScopeNotHeld(_) => {
            Refusal::new(ErrorKind::PermissionDenied, denial.code(), denial.to_string())
        }
        KeyDenial::NameInvalid => bad(denial.code(), "name", denial.to_string()),
        KeyDenial::ScopesInvalid(_) => bad(denial.code(), "scopes", denial.to_string()),
        KeyDenial::TtlInvalid => bad(denial.code(), "ttl_seconds", denial.to_string()),
    }
}
