//! From bytes to documents: what counts as a text that later steps can quote, and why a source may give nothing.
//!
//! A document carries its source byte for byte, markup and all. So a quote is a run of bytes of the source itself, and
//! anybody who has the file can look it up; what the markup means is for the step that reads it. Of a PDF it carries the
//! text of the pages, of an EPUB each chapter.

use serde::Serialize;
use signalbox_domain::canonical::sha256_hex;

use crate::material::{MATERIAL_BYTES_MAX, Unread, epub, guarded, pdf};

/// Largest text source, in bytes.
pub(crate) const SOURCE_BYTES_MAX: usize = 2 * 1024 * 1024;

/// One text that later steps may quote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Document {
    /// Where it came from; only for what came from the web.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) uri: Option<String>,
    /// Names it within the run; never a path of this machine.
    pub(crate) name: String,
    /// What it is.
    pub(crate) media_type: String,
    /// Lower-case hex SHA-256 of its bytes.
    pub(crate) sha256: String,
    /// Exactly these bytes. Against them quotes are checked.
    pub(crate) text: String,
}

/// A source that gave nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct SourceFailure {
    /// As in [`Document`].
    pub(crate) name: String,
    /// Stable code.
    pub(crate) code: &'static str,
    /// In words.
    pub(crate) message: String,
}

impl SourceFailure {
    pub(crate) fn new(name: impl Into<String>, code: &'static str, message: impl Into<String>) -> Self {
        Self { name: name.into(), code, message: message.into() }
    }
}

/// A source as it was fetched.
#[derive(Debug)]
pub(crate) struct Raw {
    pub(crate) name: String,
    pub(crate) uri: Option<String>,
    /// What a server says it is, without parameters; absent for files.
    pub(crate) declared: Option<String>,
    pub(crate) bytes: Vec<u8>,
}

/// Reads a source: one document, or the chapters of a book.
pub(crate) fn read(raw: Raw) -> Result<Vec<Document>, SourceFailure> {
    let material = if raw.bytes.starts_with(b"%PDF-") || is_declared(&raw, "application/pdf", ".pdf") {
        Some(pdf(&raw))
    } else if is_declared(&raw, "application/epub+zip", ".epub") {
        Some(epub(&raw))
    } else {
        None
    };
    match material {
        Some(read) => read.map_err(|(code, message)| SourceFailure::new(raw.name, code, message)),
        None => read_text(raw).map(|document| vec![document]),
    }
}

fn is_declared(raw: &Raw, media_type: &str, ending: &str) -> bool {
    let silent = matches!(raw.declared.as_deref(), None | Some("" | "application/octet-stream"));
    raw.declared.as_deref() == Some(media_type) || silent && raw.name.to_ascii_lowercase().ends_with(ending)
}

/// The text of its pages. Its digest is that of the file, so it differs from the digest of the text.
fn pdf(raw: &Raw) -> Result<Vec<Document>, Unread> {
    bounded(raw)?;
    let text = guarded("pdf-broken", || pdf::text(&raw.bytes))?;
    Ok(vec![Document {
        uri: raw.uri.clone(),
        name: raw.name.clone(),
        media_type: "application/pdf".to_owned(),
        sha256: sha256_hex(&raw.bytes),
        text,
    }])
}

/// Its chapters, each a document of its own below the name of the book.
fn epub(raw: &Raw) -> Result<Vec<Document>, Unread> {
    bounded(raw)?;
    let chapters = guarded("epub-broken", || epub::chapters(&raw.bytes))?;
    let document = |chapter: epub::Chapter| Document {
        uri: raw.uri.clone(),
        name: format!("{}/{}", raw.name, chapter.name),
        media_type: "application/xhtml+xml".to_owned(),
        sha256: sha256_hex(chapter.text.as_bytes()),
        text: chapter.text,
    };
    Ok(chapters.into_iter().map(document).collect())
}

/// Nothing is read of what is too large.
fn bounded(raw: &Raw) -> Result<(), Unread> {
    if raw.bytes.len() > MATERIAL_BYTES_MAX {
        return Err(("source-too-large", "it has more than 16 MiB".to_owned()));
    }
    Ok(())
}

fn read_text(raw: Raw) -> Result<Document, SourceFailure> {
    let Raw { name, uri, declared, bytes } = raw;
    let fail = |code, message: String| Err(SourceFailure::new(name.clone(), code, message));
    let Some(media_type) = media_type(&name, declared.as_deref()).filter(|_| !looks_binary(&bytes)) else {
        let message = "it is not a text; Markdown, HTML, plain text, feeds, JSON, PDF and EPUB can be read";
        return fail("source-not-text", message.to_owned());
    };
    if bytes.len() > SOURCE_BYTES_MAX {
        return fail("source-too-large", "it has more than 2 MiB".to_owned());
    }
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let at = error.utf8_error().valid_up_to();
            return fail("source-not-utf8", format!("it is not UTF-8: what stands at byte {at} does not fit"));
        }
    };
    // A byte order mark alone is nothing either.
    if text.trim_start_matches('\u{feff}').trim().is_empty() {
        return fail("source-empty", "there is nothing in it".to_owned());
    }
    Ok(Document { uri, media_type, sha256: sha256_hex(text.as_bytes()), text, name })
}

/// What a source is: by what a server says, else by its name. A name without a known ending is taken as plain text until
/// its bytes say otherwise. `None`: certainly not a text.
fn media_type(name: &str, declared: Option<&str>) -> Option<String> {
    match declared {
        // What says nothing, or is said of everything.
        None | Some("" | "application/octet-stream" | "text/plain") => {}
        Some(declared) => {
            let is_markup = declared.ends_with("+xml") || declared.ends_with("+json");
            let is_text = declared.starts_with("text/")
                || matches!(declared, "application/xml" | "application/json")
                || (declared.starts_with("application/") && is_markup);
            return is_text.then(|| declared.to_owned());
        }
    }
    let file = name.rsplit_once('/').map_or(name, |(_, file)| file);
    let ending = file.rsplit_once('.').map_or("", |(_, ending)| ending).to_ascii_lowercase();
    let known = match ending.as_str() {
        "md" | "markdown" => "text/markdown",
        "html" | "htm" => "text/html",
        "xhtml" => "application/xhtml+xml",
        "rss" => "application/rss+xml",
        "atom" => "application/atom+xml",
        "xml" | "rdf" => "application/xml",
        "json" | "jsonfeed" => "application/json",
        "pdf" | "png" | "jpg" | "jpeg" | "gif" | "webp" | "zip" | "gz" | "docx" | "xlsx" | "pptx" | "mp3" | "mp4"
        | "exe" => return None,
        _ => "text/plain",
    };
    Some(known.to_owned())
}

/// True for bytes that no text has, or that formats which are no texts begin with.
fn looks_binary(bytes: &[u8]) -> bool {
    const BEGINNINGS: [&[u8]; 6] = [b"%PDF-", b"PK\x03\x04", b"\x89PNG", b"GIF8", b"\xff\xd8\xff", b"\x1f\x8b"];
    BEGINNINGS.iter().any(|beginning| bytes.starts_with(beginning)) || bytes.contains(&0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, bytes: &[u8]) -> Result<Document, SourceFailure> {
        let raw = Raw { name: name.to_owned(), uri: None, declared: None, bytes: bytes.to_vec() };
        read(raw).map(|mut documents| documents.pop().unwrap())
    }

    #[test]
    fn a_text_stays_byte_for_byte_what_it_was() {
        let text = "\u{feff}---\r\ntitle: x\n---\n  <b>Ümlaut</b> \t\n";
        let kinds =
            [("a/b.md", "text/markdown"), ("notes", "text/plain"), ("x.log", "text/plain"), ("a.HTML", "text/html")];
        for (name, media_type) in kinds {
            let document = file(name, text.as_bytes()).unwrap();
            assert_eq!((document.text.as_str(), document.media_type.as_str()), (text, media_type));
            assert_eq!(document.sha256, sha256_hex(text.as_bytes()));
            assert_eq!((document.uri, document.name.as_str()), (None, name));
        }
    }

    #[test]
    fn each_reason_to_give_nothing_has_its_code() {
        let large = vec![b'x'; SOURCE_BYTES_MAX + 1];
        let cases: [(&str, &[u8], &str); 11] = [
            ("a.pdf", b"hello", "pdf-broken"),
            ("a.txt", b"%PDF-1.7 \xff", "pdf-broken"),
            ("a.epub", b"hello", "epub-broken"),
            ("a.zip", b"PK\x03\x04", "source-not-text"),
            ("a.txt", b"a\0b", "source-not-text"),
            ("a.txt", b"caf\xe9", "source-not-utf8"),
            ("a.txt", b"", "source-empty"),
            ("a.md", b" \n\t", "source-empty"),
            ("a.md", b"\xef\xbb\xbf\n", "source-empty"),
            ("a.txt", &large, "source-too-large"),
            ("a.png", &large, "source-not-text"),
        ];
        for (name, bytes, code) in cases {
            let failure = file(name, bytes).unwrap_err();
            assert_eq!((failure.code, failure.name.as_str()), (code, name));
        }
    }

    #[test]
    fn what_a_server_declares_counts_more_than_a_name() {
        let cases = [
            (Some("text/html"), "a.md", Some("text/html")),
            (Some("application/rss+xml"), "a", Some("application/rss+xml")),
            (Some("application/feed+json"), "a", Some("application/feed+json")),
            (Some("image/svg+xml"), "a.md", None),
            (Some("application/pdf"), "a.md", None),
            (Some("text/plain"), "a.md", Some("text/markdown")),
            (Some("application/octet-stream"), "v1.2/feed.atom", Some("application/atom+xml")),
            (None, "v1.md/plain", Some("text/plain")),
        ];
        for (declared, name, expected) in cases {
            assert_eq!(media_type(name, declared).as_deref(), expected, "{declared:?} {name}");
        }
    }
}
