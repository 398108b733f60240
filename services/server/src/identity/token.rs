//! A signed token: a JWT in compact form (RFC 7515, 7519), taken apart strictly and checked against a key set.
//!
//! The key decides the algorithm. What the header says of it is only compared; where the header points to keys (`jku`, `x5u`)
//! or brings its own (`jwk`, `x5c`), it is not listened to. Until the signature is found good nothing of the claims is read,
//! and what is done until then is bounded by the length of the token.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, crypto};
use serde_json::{Map, Value};
use signalbox_domain::identity::ClaimsError;
use signalbox_domain::json::{self, JsonError, Limits};

use super::jwk::KeySet;

/// Largest header of a token, in bytes as it travels.
const HEADER_CHARS_MAX: usize = 2 * 1024;
/// What a header may be when it is decoded.
const HEADER_LIMITS: Limits = Limits { bytes_max: 2 * 1024, depth_max: 8 };
/// The types of token that are meant for this (RFC 7519, RFC 9068).
const TYPES: [&str; 3] = ["jwt", "at+jwt", "application/at+jwt"];

/// Why a token is not believed. For the log alone; nothing of the token is in it but the name of its key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum TokenError {
    #[error("not a token of three parts")]
    NotThreeParts,
    #[error("the header of the token is not base64url")]
    HeaderEncoding,
    #[error("the header of the token cannot be read: {0}")]
    HeaderJson(#[from] JsonError),
    #[error("the header of the token is not an object, or `{0}` in it is not what it must be")]
    HeaderShape(&'static str),
    #[error("the algorithm of the token is none of EdDSA, ES256 and RS256")]
    AlgorithmNotAllowed,
    #[error("the token has critical headers, and none is understood here")]
    Critical,
    #[error("the token is of a type that is not meant for this")]
    Type,
    #[error("the token wraps another one")]
    Nested,
    #[error("the token is signed by the key {0:?}, which the key set does not have")]
    UnknownKey(String),
    #[error("the token names another algorithm than its key is for")]
    AlgorithmOfAnotherKey,
    #[error("the signature is not good")]
    Signature,
    #[error("the claims of the token are not base64url")]
    ClaimsEncoding,
    #[error("{0}")]
    Claims(#[from] ClaimsError),
}

/// A token taken apart; nothing of it is believed.
#[derive(Debug)]
pub(super) struct Token<'t> {
    kid: Option<String>,
    algorithm: Algorithm,
    message: &'t str,
    claims: &'t str,
    signature: &'t str,
}

impl<'t> Token<'t> {
    /// Takes a token apart.
    pub(super) fn parse(text: &'t str) -> Result<Self, TokenError> {
        let mut parts = text.split('.');
        let (Some(header), Some(claims), Some(signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(TokenError::NotThreeParts);
        };
        if header.len() > HEADER_CHARS_MAX {
            return Err(TokenError::HeaderEncoding);
        }
        let decoded = URL_SAFE_NO_PAD.decode(header).map_err(|_| TokenError::HeaderEncoding)?;
        let Value::Object(said) = json::parse_strict(&decoded, HEADER_LIMITS)? else {
            return Err(TokenError::HeaderShape("it"));
        };
        let algorithm = match text_of(&said, "alg")? {
            Some("EdDSA") => Algorithm::EdDSA,
            Some("ES256") => Algorithm::ES256,
            Some("RS256") => Algorithm::RS256,
            Some(_) | None => return Err(TokenError::AlgorithmNotAllowed),
        };
        if said.contains_key("crit") {
            return Err(TokenError::Critical);
        }
        if text_of(&said, "typ")?.is_some_and(|typ| !TYPES.contains(&typ.to_ascii_lowercase().as_str())) {
            return Err(TokenError::Type);
        }
        if said.contains_key("cty") || said.contains_key("enc") || said.contains_key("zip") {
            return Err(TokenError::Nested);
        }
        let kid = text_of(&said, "kid")?.map(str::to_owned);
        // Header, dot, claims: all that stands before the last dot.
        let message = &text[..header.len() + 1 + claims.len()];
        Ok(Self { kid, algorithm, message, claims, signature })
    }

    /// The bytes of the claims, if the signature is good.
    pub(super) fn verify(&self, keys: &KeySet) -> Result<Vec<u8>, TokenError> {
        let Some(key) = keys.find(self.kid.as_deref()) else {
            return Err(TokenError::UnknownKey(self.kid.iter().flat_map(|kid| kid.chars().take(64)).collect()));
        };
        if key.algorithm != self.algorithm {
            return Err(TokenError::AlgorithmOfAnotherKey);
        }
        match crypto::verify(self.signature, self.message.as_bytes(), &key.key, key.algorithm) {
            Ok(true) => URL_SAFE_NO_PAD.decode(self.claims).map_err(|_| TokenError::ClaimsEncoding),
            Ok(false) | Err(_) => Err(TokenError::Signature),
        }
    }
}

fn text_of<'h>(header: &'h Map<String, Value>, member: &'static str) -> Result<Option<&'h str>, TokenError> {
    match header.get(member) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(TokenError::HeaderShape(member)),
    }
}
