//! Canonical JSON (RFC 8785) and digests over it (RUN-013).

use serde_json::Value;
use sha2::{Digest, Sha256};

/// A number that a double cannot hold exactly, so that two amounts could share a digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the number {0} cannot be held exactly by a double; send it as a string")]
pub struct NumberNotExact(pub String);

impl NumberNotExact {
    /// Stable code.
    pub const CODE: &str = "number-not-exact";
}

/// Lower-case hex SHA-256.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(DIGITS[usize::from(byte >> 4)]);
        text.push(DIGITS[usize::from(byte & 15)]);
    }
    text
}

/// RFC 8785 bytes of a value whose numbers are all exact.
pub fn canonical_bytes(value: &Value) -> Result<Vec<u8>, NumberNotExact> {
    check_numbers(value)?;
    serde_json_canonicalizer::to_vec(value).map_err(|error| NumberNotExact(error.to_string()))
}

/// Lower-case hex SHA-256 over the canonical form: `argsHash`, digests of approvals and submissions.
pub fn digest(value: &Value) -> Result<String, NumberNotExact> {
    canonical_bytes(value).map(|bytes| sha256_hex(&bytes))
}

fn check_numbers(value: &Value) -> Result<(), NumberNotExact> {
    const EXACT: u64 = 1 << 53;
    match value {
        Value::Number(number) => {
            let exact = match (number.as_u64(), number.as_i64()) {
                (Some(n), _) => n <= EXACT,
                (None, Some(n)) => n.unsigned_abs() <= EXACT,
                // Beyond 2^53 a literal may have been rounded on its way in.
                (None, None) => number.as_f64().is_some_and(|n| n.abs() <= EXACT as f64),
            };
            if exact { Ok(()) } else { Err(NumberNotExact(number.to_string())) }
        }
        Value::Array(items) => items.iter().try_for_each(check_numbers),
        Value::Object(members) => members.values().try_for_each(check_numbers),
        Value::Null | Value::Bool(_) | Value::String(_) => Ok(()),
    }
}
