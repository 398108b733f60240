//! The issuer's keys: a JWK set (RFC 7517), read strictly, each key pinned to the one algorithm it is for.
//!
//! Keys of other kinds are left out: an issuer may publish more than is of use here. A set that is wrong in itself is refused
//! whole: with a private key in it, with one name for two keys, or too big.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey};
use serde_json::{Map, Value};
use signalbox_domain::json::{self, JsonError, Limits};

/// Largest set, in bytes.
pub(super) const SET_BYTES_MAX: usize = 256 * 1024;
/// Most keys of a set.
const KEYS_MAX: usize = 100;
/// Longest name of a key, in bytes.
const KID_BYTES_MAX: usize = 256;
/// What only the holder of a key may know (RFC 7518).
const PRIVATE_MEMBERS: [&str; 7] = ["d", "p", "q", "dp", "dq", "qi", "oth"];
/// Bits of an RSA modulus that are accepted.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2_048..=8_192;

/// Why a set is of no use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeySetError {
    /// Not JSON.
    #[error("the key set cannot be read: {0}")]
    Json(#[from] JsonError),
    /// JSON, but no key set.
    #[error("a key set is an object whose `keys` is a list of at most {KEYS_MAX} objects")]
    NotASet,
    /// A key that is not the public half alone.
    #[error("the key set holds a private or a shared key; publish the public halves alone")]
    PrivateKey,
    /// Two keys of one name.
    #[error("two keys of the set are both named {0:?}")]
    SameName(String),
    /// Nothing to check a signature with.
    #[error("the set has no key for EdDSA (Ed25519), ES256 or RS256")]
    NoUsableKey,
}

/// One public key, and the only algorithm it is used with.
pub(super) struct VerifyingKey {
    kid: Option<String>,
    pub(super) algorithm: Algorithm,
    pub(super) key: DecodingKey,
}

/// The public keys of an issuer.
#[derive(Default)]
pub struct KeySet {
    keys: Vec<VerifyingKey>,
}

impl std::fmt::Debug for KeySet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.keys.iter().map(|key| (&key.kid, key.algorithm))).finish()
    }
}

impl KeySet {
    /// Reads a set.
    pub fn parse(bytes: &[u8]) -> Result<Self, KeySetError> {
        let document = json::parse_strict(bytes, Limits { bytes_max: SET_BYTES_MAX, depth_max: 8 })?;
        let listed = document.get("keys").and_then(Value::as_array).ok_or(KeySetError::NotASet)?;
        if listed.len() > KEYS_MAX {
            return Err(KeySetError::NotASet);
        }
        let (mut keys, mut names) = (Vec::new(), BTreeSet::new());
        for entry in listed {
            let jwk = entry.as_object().ok_or(KeySetError::NotASet)?;
            let is_shared = text(jwk, "kty") == Some("oct");
            if is_shared || PRIVATE_MEMBERS.iter().any(|member| jwk.contains_key(*member)) {
                return Err(KeySetError::PrivateKey);
            }
            let Some(key) = usable(jwk) else { continue };
            if let Some(kid) = &key.kid
                && !names.insert(kid.clone())
            {
                return Err(KeySetError::SameName(kid.chars().take(64).collect()));
            }
            keys.push(key);
        }
        if keys.is_empty() { Err(KeySetError::NoUsableKey) } else { Ok(Self { keys }) }
    }

    /// The key of a name; without a name, the only key there is.
    pub(super) fn find(&self, kid: Option<&str>) -> Option<&VerifyingKey> {
        match (kid, self.keys.as_slice()) {
            (Some(kid), keys) => keys.iter().find(|key| key.kid.as_deref() == Some(kid)),
            (None, [only]) => Some(only),
            (None, _) => None,
        }
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// True if no signature can be checked.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

fn text<'j>(jwk: &'j Map<String, Value>, member: &str) -> Option<&'j str> {
    jwk.get(member).and_then(Value::as_str)
}

// The key, if it is one that signatures are checked with here.
fn usable(jwk: &Map<String, Value>) -> Option<VerifyingKey> {
    let signs = jwk.get("use").is_none_or(|is_for| is_for == "sig");
    let verifies =
        jwk.get("key_ops").is_none_or(|ops| ops.as_array().is_some_and(|ops| ops.contains(&"verify".into())));
    let kid = match jwk.get("kid") {
        None => None,
        Some(Value::String(kid)) if kid.len() <= KID_BYTES_MAX => Some(kid.clone()),
        Some(_) => return None,
    };
    let (algorithm, name, key) = match (text(jwk, "kty")?, text(jwk, "crv")) {
        ("OKP", Some("Ed25519")) => {
            bytes(jwk, "x").filter(|x| x.len() == 32)?;
            (Algorithm::EdDSA, "EdDSA", DecodingKey::from_ed_components(text(jwk, "x")?))
        }
        ("EC", Some("P-256")) => {
            bytes(jwk, "x").filter(|x| x.len() == 32)?;
            bytes(jwk, "y").filter(|y| y.len() == 32)?;
            (Algorithm::ES256, "ES256", DecodingKey::from_ec_components(text(jwk, "x")?, text(jwk, "y")?))
        }
        ("RSA", None) => {
            let modulus = bytes(jwk, "n")?;
            let bits = modulus.len() * 8 - modulus.first()?.leading_zeros() as usize;
            if !RSA_BITS.contains(&bits) {
                return None;
            }
            (Algorithm::RS256, "RS256", DecodingKey::from_rsa_components(text(jwk, "n")?, text(jwk, "e")?))
        }
        _ => return None,
    };
    let same = jwk.get("alg").is_none_or(|alg| alg == name);
    (signs && verifies && same).then_some(())?;
    Some(VerifyingKey { kid, algorithm, key: key.ok()? })
}

fn bytes(jwk: &Map<String, Value>, member: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text(jwk, member)?).ok()
}
