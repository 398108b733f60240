//! Scopes: the words in which a credential says what it allows beside its role.

/// Most scopes one credential may have.
pub const SCOPES_MAX: usize = 200;
/// Longest scope, in bytes.
const SCOPE_BYTES_MAX: usize = 128;

/// Lets its holder answer questions that are put to a teacher (HND-002).
pub const APPROVE_TEACHER: &str = "approve:teacher";
/// Lets its holder answer questions that are put to a guardian (HND-002).
pub const APPROVE_GUARDIAN: &str = "approve:guardian";

/// Refuses a list of scopes that no credential may have: too many, too long, or not words of printable ASCII.
pub fn check_scopes<'s>(scopes: impl IntoIterator<Item = &'s str>) -> Result<(), String> {
    for (index, scope) in scopes.into_iter().enumerate() {
        if index >= SCOPES_MAX {
            return Err(format!("a credential has at most {SCOPES_MAX} scopes"));
        }
        // The characters of RFC 6749: what else is in a scope could be read in two ways.
        let is_word = |b: u8| b.is_ascii_graphic() && !matches!(b, b'"' | b'\\');
        if scope.is_empty() || scope.len() > SCOPE_BYTES_MAX || !scope.bytes().all(is_word) {
            return Err(format!("a scope is a word of at most {SCOPE_BYTES_MAX} printable ASCII characters"));
        }
    }
    Ok(())
}
