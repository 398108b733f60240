//! From a document to items: finds out what it is and has it read.
//!
//! One broken document must not cost the others their place: whatever cannot be used says so, with a code.

use super::advisory;
use super::block::{Block, Reading};
use super::dates;
use super::mapped::Mapped;
use super::model::{Claim, DOCUMENT_BYTES_MAX, Document, Item, Kind, Quote, Supports, Unusable};
use super::quote::Quotable;
use super::read::feed::{self, Feed};
use super::read::head::{self, Head};
use super::read::{html, markdown, plain};
use super::safe;
use super::select::{self, Sentence};
use super::story::{self, Stated};

/// What a document gave.
#[derive(Debug, Clone, Default)]
pub(crate) struct Extracted {
    pub(crate) items: Vec<Item>,
    pub(crate) claims: Vec<Claim>,
    /// All sentences, if they were asked for.
    pub(crate) sentences: Vec<Quote>,
}

impl Extracted {
    /// The same with the sentences of these blocks.
    fn and_sentences(mut self, source: Quotable<'_>, blocks: &[Block], wanted: bool) -> Self {
        if wanted {
            let quote = |one: Sentence<'_>| source.quote(one.block, one.range, Supports::Summary);
            self.sentences.extend(select::all(blocks).into_iter().filter_map(quote));
        }
        self
    }
}

/// An item with an id and a source and nothing else.
pub(crate) fn blank(id: &str, source: &str) -> Item {
    Item {
        id: id.to_owned(),
        package: None,
        kind: Kind::Notice,
        kind_from: String::new(),
        title: String::new(),
        date: None,
        severity: None,
        affected: None,
        patched: None,
        unaffected: None,
        named_versions: Vec::new(),
        affected_functions: Vec::new(),
        action: None,
        link: None,
        link_from: None,
        references: Vec::new(),
        aliases: Vec::new(),
        categories: Vec::new(),
        keywords: Vec::new(),
        subjects: Vec::new(),
        source: source.to_owned(),
        quotes: Vec::new(),
    }
}

/// Reads a document, with all its sentences if they are wanted. Beside what it gave it says what it was read as.
pub(crate) fn extract(document: &Document, sentences: bool) -> Result<(Extracted, &'static str), Unusable> {
    let unusable =
        |code: &str, reason: String| Err(Unusable { name: document.name.clone(), code: code.to_owned(), reason });
    let text = document.text.as_str();
    if text.len() > DOCUMENT_BYTES_MAX {
        return unusable(
            "document-too-large",
            format!("it has {} bytes; at most {DOCUMENT_BYTES_MAX} are read", text.len()),
        );
    }
    if text.trim().is_empty() {
        return unusable("document-empty", "it has no text".to_owned());
    }
    if is_binary(text) && document.media_type != "application/pdf" {
        return unusable("document-not-text", "it looks like binary data, not text".to_owned());
    }
    let source = Quotable { name: &document.name, text };
    let (stories, read_as) = if let Some(format) = feed::detect(text) {
        (entries(source, format, sentences), read_as(format))
    } else if is_html(document) {
        let reading = html::read(&Mapped::source(text));
        (one(source, document, &Stated::default(), &reading, sentences), "html")
    } else if document.media_type == "application/pdf" {
        (one(source, document, &Stated::default(), &markdown_reading(text, 0), sentences), "pdf")
    } else if is_plain(document) {
        (one(source, document, &Stated::default(), &plain::read(text, 0), sentences), "text")
    } else {
        match head::read(text) {
            Head::Broken(reason) => return unusable("head-not-readable", reason),
            Head::Toml(head, after) if head.has("advisory") => {
                let blocks = markdown::blocks(text, after);
                let read = advisory::read(source, &head, &blocks);
                return read.map(|extracted| (extracted.and_sentences(source, &blocks, sentences), "advisory"));
            }
            Head::Toml(head, after) => {
                let field = |name: &str| head.text(&[name]);
                let stated = stated(field("title"), field("date"), field("link").or(field("url")));
                (one(source, document, &stated, &markdown_reading(text, after), sentences), "markdown")
            }
            Head::Lines(lines, after) => {
                let field = |name: &str| lines.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
                let stated = stated(field("title"), field("date"), field("link").or(field("url")));
                (one(source, document, &stated, &markdown_reading(text, after), sentences), "markdown")
            }
            Head::Absent => {
                (one(source, document, &Stated::default(), &markdown_reading(text, 0), sentences), "markdown")
            }
        }
    };
    if stories.items.is_empty() {
        return unusable("document-without-sentences", "it has no sentence that could be quoted".to_owned());
    }
    Ok((stories, read_as))
}

/// Reads a document as one text with headings, whatever it is; for those who want its structure and not its items.
pub(crate) fn reading(document: &Document) -> Result<(Reading, &'static str), Unusable> {
    let unusable = |code: &str, reason: &str| Unusable {
        name: document.name.clone(),
        code: code.to_owned(),
        reason: reason.to_owned(),
    };
    let text = document.text.as_str();
    if text.len() > DOCUMENT_BYTES_MAX {
        return Err(unusable("document-too-large", "it is too long; parts of up to 2 MiB are read"));
    }
    if text.trim().is_empty() {
        return Err(unusable("document-empty", "it has no text"));
    }
    if is_binary(text) && document.media_type != "application/pdf" {
        return Err(unusable("document-not-text", "it looks like binary data, not text"));
    }
    if let Some(format) = feed::detect(text) {
        let entries = feed::entries(text, format);
        let blocks = entries.into_iter().flat_map(|entry| entry.blocks).collect();
        return Ok((Reading { blocks, ..Reading::default() }, read_as(format)));
    }
    if is_html(document) {
        return Ok((html::read(&Mapped::source(text)), "html"));
    }
    if document.media_type != "application/pdf" && is_plain(document) {
        return Ok((plain::read(text, 0), "text"));
    }
    let after = match head::read(text) {
        Head::Toml(_, after) | Head::Lines(_, after) => after,
        Head::Absent | Head::Broken(_) => 0,
    };
    let kind = if document.media_type == "application/pdf" { "pdf" } else { "markdown" };
    Ok((markdown_reading(text, after), kind))
}

fn one(source: Quotable<'_>, document: &Document, stated: &Stated, reading: &Reading, sentences: bool) -> Extracted {
    let extracted = story::read(source, &document.name, stated, reading).unwrap_or_default();
    let mut extracted = extracted.and_sentences(source, &reading.blocks, sentences);
    for item in &mut extracted.items {
        // A page fetched from the web is its own link.
        if item.link.is_none() && document.uri.starts_with("http") {
            item.link = safe::link(&document.uri);
            item.link_from = item.link.as_ref().map(|_| "fetched from".to_owned());
        }
    }
    extracted
}

fn entries(source: Quotable<'_>, format: Feed, sentences: bool) -> Extracted {
    let mut all = Extracted::default();
    for (index, reading) in feed::entries(source.text, format).iter().enumerate() {
        let id = format!("{}#{}", source.name, index + 1);
        if let Some(mut one) = story::read(source, &id, &Stated::default(), reading) {
            all.items.append(&mut one.items);
            all.claims.append(&mut one.claims);
            all = all.and_sentences(source, &reading.blocks, sentences);
        }
    }
    all
}

const fn read_as(format: Feed) -> &'static str {
    match format {
        Feed::Rss => "rss",
        Feed::Atom => "atom",
        Feed::Json => "json-feed",
    }
}

fn markdown_reading(text: &str, at: usize) -> Reading {
    Reading { blocks: markdown::blocks(text, at), ..Reading::default() }
}

fn stated(title: Option<String>, date: Option<String>, link: Option<String>) -> Stated {
    Stated { title, date: date.as_deref().and_then(dates::leading), link }
}

fn has_ending(document: &Document, endings: &[&str]) -> bool {
    let name = document.name.to_ascii_lowercase();
    endings.iter().any(|ending| name.ends_with(ending))
}

fn is_html(document: &Document) -> bool {
    let head: String = document.text.trim_start_matches('\u{feff}').trim_start().chars().take(15).collect();
    let head = head.to_ascii_lowercase();
    document.media_type.starts_with("text/html")
        || document.media_type.starts_with("application/xhtml")
        || head.starts_with("<!doctype html")
        || head.starts_with("<html")
}

/// Text unless it is marked or looks like Markdown.
fn is_plain(document: &Document) -> bool {
    if has_ending(document, &[".md", ".markdown"]) || document.media_type.starts_with("text/markdown") {
        return false;
    }
    let marked = ["# ", "## ", "```", "+++", "---"].iter().any(|mark| document.text.trim_start().starts_with(mark))
        || document.text.contains("\n# ")
        || document.text.contains("\n## ");
    has_ending(document, &[".txt", ".text"]) || !marked
}

/// More than one control character in two hundred, or a NUL among the first bytes.
fn is_binary(text: &str) -> bool {
    let head = || text.chars().take(20_000);
    let odd = head().filter(|c| c.is_control() && !matches!(c, '\n' | '\r' | '\t' | '\u{c}')).count();
    let lost = head().filter(|c| *c == '\u{fffd}').count();
    (odd + lost) * 200 > head().count().max(200)
}
