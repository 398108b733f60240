//! What a token says, once its signature has been found good: its claims, checked and made a caller of.
//!
//! Strict on purpose. A claim that is there twice, that has another type, or that is missing makes the whole token worth
//! nothing; nothing is guessed and nothing has a default but the scopes, which are none.

use serde_json::{Map, Value};

use super::{Actor, Caller, RESERVED_PREFIXES, Role, check_scopes};
use crate::ids::{ActorId, TenantId};
use crate::json::{self, JsonError, Limits};

/// Difference between clocks that is forgiven unless something else is configured, in seconds.
pub const LEEWAY_SECONDS_DEFAULT: u64 = 30;
/// Most that may be configured, in seconds.
pub const LEEWAY_SECONDS_MAX: u64 = 300;

/// Claims may have this size; a token is bounded before it is decoded.
const LIMITS: Limits = Limits { bytes_max: 8 * 1024, depth_max: 8 };
/// Where calls with a token come from (INV-002).
const SURFACE: &str = "api";

/// The claims that are not named by a standard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimNames {
    /// The tenant.
    pub tenant: String,
    /// The role.
    pub role: String,
    /// The scopes: one text with spaces, or a list of texts.
    pub scope: String,
}

impl Default for ClaimNames {
    fn default() -> Self {
        Self { tenant: "tenant".to_owned(), role: "role".to_owned(), scope: "scope".to_owned() }
    }
}

/// What a token must say to be believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimRules {
    /// Who must have issued it.
    pub issuer: String,
    /// Whom it must be meant for.
    pub audience: String,
    /// Difference between clocks that is forgiven, in seconds.
    pub leeway_seconds: u64,
    /// How the claims are called.
    pub names: ClaimNames,
}

/// Why claims are not believed. For the log alone: whoever sent the token learns only that it is not good.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClaimsError {
    /// Not a JSON object without duplicates.
    #[error("the claims cannot be read: {0}")]
    Json(#[from] JsonError),
    /// Not an object.
    #[error("the claims are not an object")]
    NotAnObject,
    /// A claim that must be there.
    #[error("the claim `{0}` is missing")]
    Missing(String),
    /// A claim of another type or form.
    #[error("the claim `{claim}` is not {what}")]
    Malformed {
        /// The claim.
        claim: String,
        /// What it must be.
        what: &'static str,
    },
    /// From somebody else.
    #[error("another issuer")]
    WrongIssuer,
    /// For somebody else.
    #[error("another audience")]
    WrongAudience,
    /// Its time is over.
    #[error("expired")]
    Expired,
    /// Its time has not come.
    #[error("not valid yet")]
    NotYetValid,
    /// It calls itself what only this runtime may.
    #[error("the subject begins like an actor of the runtime itself")]
    ReservedSubject,
}

/// Reads the claims of a token whose signature is good, at an instant in seconds since the Unix epoch.
pub fn read_claims(bytes: &[u8], rules: &ClaimRules, now_seconds: i64) -> Result<Caller, ClaimsError> {
    let Value::Object(claims) = json::parse_strict(bytes, LIMITS)? else { return Err(ClaimsError::NotAnObject) };
    if text(&claims, "iss")? != rules.issuer {
        return Err(ClaimsError::WrongIssuer);
    }
    check_audience(&claims, &rules.audience)?;
    check_time(&claims, i64::try_from(rules.leeway_seconds.min(LEEWAY_SECONDS_MAX)).unwrap_or(0), now_seconds)?;
    let subject = text(&claims, "sub")?;
    if RESERVED_PREFIXES.iter().any(|reserved| subject.starts_with(reserved)) {
        return Err(ClaimsError::ReservedSubject);
    }
    let malformed = |claim: &str, what| ClaimsError::Malformed { claim: claim.to_owned(), what };
    let names = &rules.names;
    let actor_id = ActorId::new(subject).map_err(|_| malformed("sub", "an id"))?;
    let tenant_id = TenantId::new(text(&claims, &names.tenant)?).map_err(|_| malformed(&names.tenant, "an id"))?;
    let role = Role::parse(text(&claims, &names.role)?).ok_or_else(|| malformed(&names.role, "a role"))?;
    let scopes = scopes(&claims, &names.scope)?;
    Ok(Caller { tenant_id, actor: Actor { actor_id, role }, scopes, surface: SURFACE })
}

fn text<'c>(claims: &'c Map<String, Value>, claim: &str) -> Result<&'c str, ClaimsError> {
    match claims.get(claim) {
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(ClaimsError::Malformed { claim: claim.to_owned(), what: "a text" }),
        None => Err(ClaimsError::Missing(claim.to_owned())),
    }
}

fn check_audience(claims: &Map<String, Value>, audience: &str) -> Result<(), ClaimsError> {
    let malformed = || ClaimsError::Malformed { claim: "aud".to_owned(), what: "a text or a list of texts" };
    let is_meant = match claims.get("aud") {
        None => return Err(ClaimsError::Missing("aud".to_owned())),
        Some(Value::String(one)) => one == audience,
        Some(Value::Array(many)) => {
            let texts: Vec<&str> = many.iter().map(Value::as_str).collect::<Option<_>>().ok_or_else(malformed)?;
            texts.contains(&audience)
        }
        Some(_) => return Err(malformed()),
    };
    if is_meant { Ok(()) } else { Err(ClaimsError::WrongAudience) }
}

fn check_time(claims: &Map<String, Value>, leeway: i64, now: i64) -> Result<(), ClaimsError> {
    let expires = instant(claims, "exp")?.ok_or_else(|| ClaimsError::Missing("exp".to_owned()))?;
    if now >= expires.saturating_add(leeway) {
        return Err(ClaimsError::Expired);
    }
    // A token from the future was issued by a clock, or by somebody, that cannot be trusted.
    for claim in ["nbf", "iat"] {
        if instant(claims, claim)?.is_some_and(|at| at > now.saturating_add(leeway)) {
            return Err(ClaimsError::NotYetValid);
        }
    }
    Ok(())
}

/// Seconds since the Unix epoch; a fraction counts for nothing.
fn instant(claims: &Map<String, Value>, claim: &str) -> Result<Option<i64>, ClaimsError> {
    let Some(value) = claims.get(claim) else { return Ok(None) };
    // The strict reader lets no number through that a double does not hold, so the cast is exact but for the fraction.
    let seconds = value.as_i64().or_else(|| value.as_f64().map(|seconds| seconds.floor() as i64));
    seconds.map(Some).ok_or_else(|| ClaimsError::Malformed { claim: claim.to_owned(), what: "a number" })
}

fn scopes(claims: &Map<String, Value>, claim: &str) -> Result<Vec<String>, ClaimsError> {
    let malformed = || ClaimsError::Malformed { claim: claim.to_owned(), what: "a text or a list of scopes" };
    let mut scopes: Vec<String> = match claims.get(claim) {
        None => Vec::new(),
        Some(Value::String(text)) => text.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect(),
        Some(Value::Array(many)) => {
            many.iter().map(|one| one.as_str().map(str::to_owned)).collect::<Option<_>>().ok_or_else(malformed)?
        }
        Some(_) => return Err(malformed()),
    };
    check_scopes(scopes.iter().map(String::as_str)).map_err(|_| malformed())?;
    scopes.sort();
    scopes.dedup();
    Ok(scopes)
}
