//! Sealing with AES-256-GCM-SIV: what lies in the object store sealed can be read, and changed, by nobody without the key.
//!
//! A sealed document is `SBX1`, the length and text of its key's id, a random nonce, the ciphertext and its tag. Tenant, run
//! and part are authenticated with it, so that it opens as nothing else. The mode does not fall apart when two nodes happen to
//! draw the same nonce.

use std::collections::BTreeSet;
use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, Nonce, RandomizedNonceKey};
use signalbox_ports::sealing::{SealContext, SealError, Sealing};
use signalbox_ports::zeroize::Zeroizing;

/// Length of a key in bytes.
pub const SEALING_KEY_BYTES: usize = 32;
/// Longest id of a key, in bytes.
const KEY_ID_BYTES_MAX: usize = 64;
const MAGIC: &[u8; 4] = b"SBX1";
const NONCE_BYTES: usize = 12;

/// Why keys cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The id is empty, too long, or holds something else than letters, digits, `.`, `_` and `-`.
    #[error("the id of a sealing key has 1 to {KEY_ID_BYTES_MAX} letters, digits and . _ -")]
    BadId,
    /// Two keys of one id.
    #[error("there are two sealing keys `{0}`")]
    Twice(String),
    /// Not 32 bytes.
    #[error("the sealing key `{0}` must have {SEALING_KEY_BYTES} bytes")]
    BadLength(String),
}

/// Several keys: the first one seals, all of them open.
pub struct KeyRing {
    keys: Vec<(String, RandomizedNonceKey)>,
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<&str> = self.keys.iter().map(|(id, _)| id.as_str()).collect();
        f.debug_struct("KeyRing").field("keys", &ids).finish_non_exhaustive()
    }
}

impl KeyRing {
    /// A ring of these keys, each with its id. An empty one seals nothing.
    pub fn new(keys: impl IntoIterator<Item = (String, Zeroizing<Vec<u8>>)>) -> Result<Self, KeyError> {
        let mut ring = Self { keys: Vec::new() };
        let mut seen = BTreeSet::new();
        for (id, bytes) in keys {
            let fits = |c: u8| c.is_ascii_alphanumeric() || b"._-".contains(&c);
            if id.is_empty() || id.len() > KEY_ID_BYTES_MAX || !id.bytes().all(fits) {
                return Err(KeyError::BadId);
            }
            if !seen.insert(id.clone()) {
                return Err(KeyError::Twice(id));
            }
            match RandomizedNonceKey::new(&AES_256_GCM_SIV, &bytes) {
                Ok(key) if bytes.len() == SEALING_KEY_BYTES => ring.keys.push((id, key)),
                Ok(_) | Err(_) => return Err(KeyError::BadLength(id)),
            }
        }
        Ok(ring)
    }
}

/// A new key, from the machine's own randomness.
pub fn fresh_sealing_key() -> Result<Zeroizing<Vec<u8>>, SealError> {
    let mut key = Zeroizing::new(vec![0; SEALING_KEY_BYTES]);
    aws_lc_rs::rand::fill(&mut key).map_err(|_| SealError::Failed)?;
    Ok(key)
}

impl Sealing for KeyRing {
    fn seal(&self, context: &SealContext, plain: &[u8]) -> Result<Vec<u8>, SealError> {
        let (id, key) = self.keys.first().ok_or(SealError::NoKey)?;
        let mut body = plain.to_vec();
        let nonce = key.seal_in_place_append_tag(aad(id, context), &mut body).map_err(|_| SealError::Failed)?;
        let mut sealed = MAGIC.to_vec();
        // At most 64.
        sealed.push(u8::try_from(id.len()).map_err(|_| SealError::Failed)?);
        sealed.extend_from_slice(id.as_bytes());
        sealed.extend_from_slice(nonce.as_ref());
        sealed.append(&mut body);
        Ok(sealed)
    }

    fn open(&self, context: &SealContext, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, SealError> {
        let rest = sealed.strip_prefix(MAGIC).ok_or(SealError::Damaged)?;
        let (length, rest) = rest.split_first().ok_or(SealError::Damaged)?;
        let (id, rest) = rest.split_at_checked(usize::from(*length)).ok_or(SealError::Damaged)?;
        let id = std::str::from_utf8(id).map_err(|_| SealError::Damaged)?;
        let (nonce, body) = rest.split_first_chunk::<NONCE_BYTES>().ok_or(SealError::Damaged)?;
        let known = self.keys.iter().find(|(known, _)| known == id);
        let Some((_, key)) = known else {
            return Err(SealError::UnknownKey(id.chars().filter(|c| !c.is_control()).collect()));
        };
        let mut plain = Zeroizing::new(body.to_vec());
        let opened = key.open_in_place(Nonce::assume_unique_for_key(*nonce), aad(id, context), &mut plain);
        let length = opened.map_err(|_| SealError::Damaged)?.len();
        plain.truncate(length);
        Ok(plain)
    }
}

/// What is authenticated beside the document: each part with its length, so that no two contexts give the same bytes.
fn aad(key_id: &str, context: &SealContext) -> Aad<Vec<u8>> {
    let (run, part) = (context.run_key.to_string(), context.part.name());
    let mut bytes = b"signalbox.sealed.v1".to_vec();
    for text in [key_id, context.tenant_id.as_str(), &run, &part] {
        bytes.extend_from_slice(&(text.len() as u64).to_be_bytes());
        bytes.extend_from_slice(text.as_bytes());
    }
    Aad::from(bytes)
}

#[cfg(test)]
mod tests {
    use signalbox_domain::ids::{RunKey, StepId, TenantId};
    use signalbox_domain::run::sealed::Part;
    use uuid::Uuid;

    use super::*;

    fn ring(keys: &[(&str, u8)]) -> KeyRing {
        KeyRing::new(keys.iter().map(|(id, byte)| ((*id).to_owned(), Zeroizing::new(vec![*byte; 32])))).unwrap()
    }

    fn context(tenant: &str, run: u128, part: Part) -> SealContext {
        SealContext { tenant_id: TenantId::new(tenant).unwrap(), run_key: RunKey::new(Uuid::from_u128(run)), part }
    }

    fn step(id: &str) -> Part {
        Part::Step(StepId::new(id).unwrap())
    }

    #[test]
    fn what_is_sealed_opens_under_its_own_context_alone() {
        let ring = ring(&[("a", 1)]);
        let own = context("acme", 1, step("send"));
        let sealed = ring.seal(&own, b"password=FAKE").unwrap();
        assert_eq!(ring.open(&own, &sealed).unwrap().as_slice(), b"password=FAKE");
        assert!(!sealed.windows(4).any(|four| four == b"FAKE"));
        assert_ne!(sealed, ring.seal(&own, b"password=FAKE").unwrap(), "equal documents do not look equal");
        for other in [
            context("globex", 1, step("send")),
            context("acme", 2, step("send")),
            context("acme", 1, step("sent")),
            context("acme", 1, Part::Inputs),
        ] {
            assert_eq!(ring.open(&other, &sealed).unwrap_err(), SealError::Damaged);
        }
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_found() {
        let ring = ring(&[("a", 1)]);
        let own = context("acme", 1, Part::Inputs);
        let sealed = ring.seal(&own, b"{}").unwrap();
        for at in 0..sealed.len() {
            let mut flipped = sealed.clone();
            flipped[at] ^= 1;
            assert!(ring.open(&own, &flipped).is_err(), "byte {at}");
            assert!(ring.open(&own, &sealed[..at]).is_err(), "cut at {at}");
        }
        assert!(ring.open(&own, &[&sealed[..], b"x"].concat()).is_err());
    }

    #[test]
    fn the_first_key_seals_and_every_key_opens() {
        let own = context("acme", 1, Part::Inputs);
        let old = ring(&[("old", 1)]).seal(&own, b"then").unwrap();
        let both = ring(&[("new", 2), ("old", 1)]);
        assert_eq!(both.open(&own, &old).unwrap().as_slice(), b"then");
        let new = both.seal(&own, b"now").unwrap();
        assert_eq!(ring(&[("new", 2)]).open(&own, &new).unwrap().as_slice(), b"now");
        assert_eq!(ring(&[("new", 2)]).open(&own, &old).unwrap_err(), SealError::UnknownKey("old".to_owned()));
        assert_eq!(ring(&[("new", 3)]).open(&own, &new).unwrap_err(), SealError::Damaged, "another key of that id");
    }

    #[test]
    fn without_a_key_nothing_is_sealed_and_bad_keys_are_refused() {
        let own = context("acme", 1, Part::Inputs);
        assert_eq!(ring(&[]).seal(&own, b"x").unwrap_err().code(), "sealing-key-missing");
        let refused = |id: &str, length: usize| {
            KeyRing::new([(id.to_owned(), Zeroizing::new(vec![7; length]))]).unwrap_err().to_string()
        };
        assert!(refused("a", 31).contains("32 bytes") && refused("a", 64).contains("32 bytes"));
        assert!(refused("", 32).contains("id") && refused("a b", 32).contains("id"));
        let twice = [("a".to_owned(), Zeroizing::new(vec![1; 32])), ("a".to_owned(), Zeroizing::new(vec![2; 32]))];
        assert_eq!(KeyRing::new(twice).unwrap_err(), KeyError::Twice("a".to_owned()));
        assert!(format!("{:?}", ring(&[("a", 65)])).contains("\"a\""));
        assert_ne!(fresh_sealing_key().unwrap(), fresh_sealing_key().unwrap());
    }
}
