//! Books and papers as they come: PDF and EPUB read to texts that can be quoted.
//!
//! A PDF becomes one text, its pages parted by form feeds, so that a place in it is a page. An EPUB becomes its chapters,
//! each byte for byte the file it is in the book. Both are hostile until read: bytes, pages, entries, nesting and what
//! comes out of compression are bounded, and a panic of a reader costs its source and nothing else.

pub(crate) mod epub;
pub(crate) mod pdf;
#[cfg(test)]
mod samples;

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Largest PDF or EPUB, in bytes.
pub(crate) const MATERIAL_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Most text of one of them, in bytes.
pub(crate) const TEXT_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Why a material gave nothing: a stable code, and words.
pub(crate) type Unread = (&'static str, String);

/// The texts of a PDF or of an EPUB, whichever the bytes are.
///
/// # Errors
/// The stable code of why there are none.
pub fn texts(bytes: &[u8]) -> Result<Vec<String>, &'static str> {
    if bytes.len() > MATERIAL_BYTES_MAX {
        return Err("source-too-large");
    }
    if bytes.starts_with(b"PK") {
        let chapters = epub::chapters(bytes).map_err(|(code, _)| code)?;
        return Ok(chapters.into_iter().map(|chapter| chapter.text).collect());
    }
    pdf::text(bytes).map(|text| vec![text]).map_err(|(code, _)| code)
}

/// Runs a reader; its panic is an error like any other.
pub(crate) fn guarded<T>(code: &'static str, read: impl FnOnce() -> Result<T, Unread>) -> Result<T, Unread> {
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| {
        tracing::warn!(code, "a reader panicked on a source");
        Err((code, "it is broken in a way its reader cannot bear".to_owned()))
    })
}
