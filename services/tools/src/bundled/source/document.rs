//! From bytes to documents: what each kind of source gives, and why it may give nothing.

use serde::Serialize;
use signalbox_domain::canonical::sha256_hex;

use super::{feed, html};

/// Largest source, in bytes.
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
    /// What the source was.
    pub(crate) media_type: String,
    /// Lower-case hex SHA-256 of `text`.
    pub(crate) sha256: String,
    /// Against this text quotes are checked, byte by byte.
    pub(crate) text: String,
    /// Its title, if it says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) title: Option<String>,
    /// Where to read it, for entries of feeds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) link: Option<String>,
    /// When it was published, as it says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) published: Option<String>,
}

/// A source that gave nothing, or not all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct SourceFailure {
    /// As in [`Document`].
    pub(crate) name: String,
    /// Stable code.
    pub(crate) code: &'static str,
    /// In words.
    pub(crate) message: String,
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

/// What a source gave.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Yield {
    pub(crate) documents: Vec<Document>,
    pub(crate) failures: Vec<SourceFailure>,
}

impl Yield {
    pub(crate) fn failed(name: impl Into<String>, code: &'static str, message: impl Into<String>) -> Self {
        let failure = SourceFailure { name: name.into(), code, message: message.into() };
        Self { documents: Vec::new(), failures: vec![failure] }
    }
}

/// The kinds of sources that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Markdown,
    Plain,
    Html,
    Xml,
    Json,
}

/// Reads a source.
pub(crate) fn read(raw: Raw) -> Yield {
    let Raw { name, uri, declared, bytes } = raw;
    let not_text = "it is not a text; Markdown, HTML, plain text, feeds and JSON can be read";
    let Some(kind) = kind(&name, declared.as_deref()) else { return Yield::failed(name, "source-not-text", not_text) };
    if bytes.len() > SOURCE_BYTES_MAX {
        return Yield::failed(name, "source-too-large", "it has more than 2 MiB");
    }
    if looks_binary(&bytes) {
        return Yield::failed(name, "source-not-text", not_text);
    }
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let message = format!("it is not UTF-8: byte {} does not fit", error.utf8_error().valid_up_to());
            return Yield::failed(name, "source-not-utf8", message);
        }
    };
    // A byte order mark is no part of the text.
    let text = text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text);
    if text.trim().is_empty() {
        return Yield::failed(name, "source-empty", "there is nothing in it");
    }
    let whole = |media_type: &str, text: String| document(&name, uri.clone(), media_type, text);
    let document = match kind {
        Kind::Markdown => whole("text/markdown", text),
        Kind::Plain => whole("text/plain", text),
        Kind::Html => {
            let page = html::read(&text);
            Document { title: page.title, published: page.published, ..whole("text/html", page.text) }
        }
        Kind::Xml => return feed::read(&name, uri.as_deref(), &text),
        Kind::Json if feed::is_json_feed(&text) => return feed::read(&name, uri.as_deref(), &text),
        Kind::Json => match serde_json::from_str::<serde::de::IgnoredAny>(&text) {
            Ok(_) => whole("application/json", text),
            Err(error) => return Yield::failed(name, "source-not-json", format!("it is not JSON: {error}")),
        },
    };
    if document.text.is_empty() {
        return Yield::failed(name, "source-empty", "there is no text in it");
    }
    Yield { documents: vec![document], failures: Vec::new() }
}

/// A document of nothing but its text.
pub(super) fn document(name: &str, uri: Option<String>, media_type: &str, text: String) -> Document {
    Document {
        uri,
        name: name.to_owned(),
        media_type: media_type.to_owned(),
        sha256: sha256_hex(text.as_bytes()),
        text,
        title: None,
        link: None,
        published: None,
    }
}

/// What a source is: by what a server says, else by its name. A name without a known ending is taken as text until its
/// bytes say otherwise.
fn kind(name: &str, declared: Option<&str>) -> Option<Kind> {
    match declared.map(str::to_ascii_lowercase).as_deref() {
        None | Some("" | "application/octet-stream" | "text/plain") => {}
        Some("text/html" | "application/xhtml+xml") => return Some(Kind::Html),
        Some("text/markdown" | "text/x-markdown") => return Some(Kind::Markdown),
        Some("application/json" | "text/json") => return Some(Kind::Json),
        Some("application/xml" | "text/xml") => return Some(Kind::Xml),
        Some(other) if other.ends_with("+xml") && !other.starts_with("image/") => return Some(Kind::Xml),
        Some(other) if other.ends_with("+json") => return Some(Kind::Json),
        Some(other) if other.starts_with("text/") => return Some(Kind::Plain),
        Some(_) => return None,
    }
    let file = name.rsplit_once('/').map_or(name, |(_, file)| file);
    let ending = file.rsplit_once('.').map_or("", |(_, ending)| ending).to_ascii_lowercase();
    match ending.as_str() {
        "md" | "markdown" => Some(Kind::Markdown),
        "html" | "htm" | "xhtml" => Some(Kind::Html),
        "rss" | "atom" | "xml" | "rdf" => Some(Kind::Xml),
        "json" | "jsonfeed" => Some(Kind::Json),
        "pdf" | "png" | "jpg" | "jpeg" | "gif" | "webp" | "zip" | "gz" | "docx" | "xlsx" | "pptx" | "mp3" | "mp4"
        | "exe" => None,
        _ => Some(Kind::Plain),
    }
}

/// True for bytes that no text has, or that formats which are no texts begin with.
fn looks_binary(bytes: &[u8]) -> bool {
    const BEGINNINGS: [&[u8]; 6] = [b"%PDF-", b"PK\x03\x04", b"\x89PNG", b"GIF8", b"\xff\xd8\xff", b"\x1f\x8b"];
    BEGINNINGS.iter().any(|beginning| bytes.starts_with(beginning)) || bytes.contains(&0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, bytes: &[u8]) -> Yield {
        read(Raw { name: name.to_owned(), uri: None, declared: None, bytes: bytes.to_vec() })
    }

    #[test]
    fn plain_text_and_markdown_stay_byte_for_byte_what_they_were() {
        for (name, media_type) in [("a/b.md", "text/markdown"), ("notes", "text/plain"), ("x.log", "text/plain")] {
            let text = "---\r\ntitle: x\n---\n  Ümlaut \t\n";
            let document = file(name, text.as_bytes()).documents.remove(0);
            assert_eq!((document.text.as_str(), document.media_type.as_str()), (text, media_type));
            assert_eq!(document.sha256, sha256_hex(text.as_bytes()));
            assert_eq!((document.uri, document.name.as_str()), (None, name));
        }
        assert_eq!(file("bom.md", b"\xef\xbb\xbfx").documents[0].text, "x");
    }

    #[test]
    fn each_reason_to_give_nothing_has_its_code() {
        let large = vec![b'x'; SOURCE_BYTES_MAX + 1];
        let cases: [(&str, &[u8], &str); 11] = [
            ("a.pdf", b"hello", "source-not-text"),
            ("a.txt", b"%PDF-1.7 \xff", "source-not-text"),
            ("a.txt", b"a\0b", "source-not-text"),
            ("a.txt", b"caf\xe9", "source-not-utf8"),
            ("a.txt", b"", "source-empty"),
            ("a.md", b" \n\t", "source-empty"),
            ("a.html", b"<p> </p>", "source-empty"),
            ("a.txt", &large, "source-too-large"),
            ("a.json", b"{", "source-not-json"),
            ("a.xml", b"<html></html>", "source-not-a-feed"),
            ("a.rss", b"no xml", "source-not-a-feed"),
        ];
        for (name, bytes, code) in cases {
            let given = file(name, bytes);
            assert!(given.documents.is_empty(), "{name}");
            assert_eq!((given.failures[0].code, given.failures[0].name.as_str()), (code, name));
        }
    }

    #[test]
    fn what_a_server_declares_counts_more_than_a_name() {
        let cases = [
            (Some("text/html"), "a.md", Some(Kind::Html)),
            (Some("application/rss+xml"), "a", Some(Kind::Xml)),
            (Some("application/feed+json"), "a", Some(Kind::Json)),
            (Some("image/svg+xml"), "a.md", None),
            (Some("application/pdf"), "a.md", None),
            (Some("text/plain"), "a.md", Some(Kind::Markdown)),
            (Some("application/octet-stream"), "v1.2/feed.atom", Some(Kind::Xml)),
            (None, "v1.md/plain", Some(Kind::Plain)),
        ];
        for (declared, name, expected) in cases {
            assert_eq!(kind(name, declared), expected, "{declared:?} {name}");
        }
    }
}
