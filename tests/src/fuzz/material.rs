//! What people bring: PDF, EPUB and calendar files.

#![allow(clippy::unwrap_used, reason = "a target panics to say what is wrong")]

use signalbox_tools::{material, week};

/// Largest text of one material, in bytes.
const TEXT_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Texts or a code; never more text than is bounded. A panic of the PDF reader costs its source alone, so it is no fault here.
pub(super) fn material(bytes: &[u8]) {
    let read = std::panic::catch_unwind(|| material::texts(bytes));
    let texts = match read {
        Ok(Ok(texts)) => texts,
        Ok(Err(_)) | Err(_) => return,
    };
    // Marks of Markdown may be added to what a PDF says.
    assert!(texts.iter().map(String::len).sum::<usize>() <= 3 * TEXT_BYTES_MAX, "more text than is bounded");
}

/// Entries and failures, both bounded.
pub(super) fn calendar(bytes: &[u8]) {
    let (entries, failures) = week::read_of(bytes.to_vec());
    assert!(entries <= 10_000 && failures <= 200, "{entries} entries and {failures} failures");
}
