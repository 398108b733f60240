//! RSS, Atom and JSON Feed to entries.
//!
//! The entry's text may be HTML that is escaped inside XML, so it is read through two layers; both keep positions, and
//! a quote is still a run of bytes of the feed itself.

use std::collections::BTreeMap;
use std::ops::Range;

use serde_json::Value;

use super::html;
use super::markup::{Dialect, Token, tokens};
use crate::briefing::block::{Block, Reading};
use crate::briefing::dates;
use crate::briefing::mapped::Mapped;
use crate::briefing::model::ITEMS_PER_DOCUMENT_MAX;

/// What a feed is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Feed {
    Rss,
    Atom,
    Json,
}

/// Whether a text is a feed, judged by how it begins.
pub(crate) fn detect(text: &str) -> Option<Feed> {
    let head: String = text.trim_start_matches('\u{feff}').trim_start().chars().take(1_024).collect();
    if head.starts_with('{') && head.contains("\"version\"") {
        let value: Value = serde_json::from_str(text.trim_start_matches('\u{feff}')).ok()?;
        let version = value.get("version").and_then(Value::as_str).unwrap_or_default();
        return version.contains("jsonfeed.org/version").then_some(Feed::Json);
    }
    let root = tokens(&Mapped::source(&head), Dialect::Xml).into_iter().find_map(|token| match token {
        Token::Open { name, .. } => Some(name),
        Token::Text(_) | Token::Close { .. } => None,
    })?;
    match root.as_str() {
        "rss" | "rdf" => Some(Feed::Rss),
        "feed" => Some(Feed::Atom),
        _ => None,
    }
}

/// The entries of a feed.
pub(crate) fn entries(text: &str, feed: Feed) -> Vec<Reading> {
    match feed {
        Feed::Rss => xml(text, "item"),
        Feed::Atom => xml(text, "entry"),
        Feed::Json => json(text),
    }
}

fn xml(text: &str, element: &str) -> Vec<Reading> {
    let mut entries: Vec<Reading> = Vec::new();
    let mut entry: Option<Entry> = None;
    // The child of the entry that is being read.
    let mut field: Option<String> = None;
    for token in tokens(&Mapped::source(text), Dialect::Xml) {
        if entries.len() >= ITEMS_PER_DOCUMENT_MAX {
            break;
        }
        match &token {
            Token::Open { name, .. } if name == element => entry = Some(Entry::default()),
            Token::Close { name, .. } if name == element => {
                entries.extend(entry.take().map(Entry::finish));
                field = None;
            }
            Token::Open { name, alone, .. } => {
                let Some(entry) = &mut entry else { continue };
                if name == "link" {
                    let relation = token.attribute("rel").unwrap_or("alternate");
                    if let (None, "alternate", Some(href)) = (&entry.link, relation, token.attribute("href")) {
                        entry.link = Some(href.to_owned());
                    }
                }
                if field.is_none() && !alone {
                    field = Some(name.clone());
                }
            }
            Token::Close { name, .. } => {
                if field.as_ref() == Some(name) {
                    field = None;
                }
            }
            Token::Text(text) => {
                if let (Some(entry), Some(field)) = (&mut entry, &field) {
                    entry.text(field, text);
                }
            }
        }
    }
    entries
}

#[derive(Default)]
struct Entry {
    title: Mapped,
    link: Option<String>,
    published: Option<String>,
    updated: Option<String>,
    summary: Mapped,
    content: Mapped,
}

impl Entry {
    fn text(&mut self, field: &str, text: &Mapped) {
        let plain = text.text().trim();
        match field {
            "title" => self.title.push_piece(text, 0..text.text().len()),
            "link" if !plain.is_empty() && self.link.is_none() => self.link = Some(plain.to_owned()),
            "pubdate" | "published" | "issued" | "date" => self.published = dates::leading(plain),
            "updated" | "modified" => self.updated = dates::leading(plain),
            "description" | "summary" => self.summary.push_piece(text, 0..text.text().len()),
            "encoded" | "content" => self.content.push_piece(text, 0..text.text().len()),
            _ => {}
        }
    }

    fn finish(self) -> Reading {
        let body = if self.content.is_blank() { &self.summary } else { &self.content };
        let title = html::blocks(&self.title).into_iter().next().map(|block| block.text);
        Reading { title, date: self.published.or(self.updated), link: self.link, blocks: html::blocks(body) }
    }
}

fn json(text: &str) -> Vec<Reading> {
    let Ok(value) = serde_json::from_str::<Value>(text.trim_start_matches('\u{feff}')) else { return Vec::new() };
    let items = value.get("items").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let literals = Literals::new(text);
    // Strings are looked for in the order of the entries, so that equal titles find their own place.
    let mut cursor = text.find("\"items\"").unwrap_or(0);
    let read = |item: &Value| {
        let field = |name: &str| item.get(name).and_then(Value::as_str);
        let from = cursor;
        let mut locate = |value: &str| {
            let (at, inner) = literals.find(value, from)?;
            cursor = cursor.max(at + inner.len());
            Some(unescape(inner, at))
        };
        let title = field("title").and_then(&mut locate).map(|title| fold(&title));
        let blocks: Vec<Block> = match (field("content_html"), field("content_text"), field("summary")) {
            (Some(html), _, _) => locate(html).map(|html| html::blocks(&html)).unwrap_or_default(),
            (None, Some(plain), _) | (None, None, Some(plain)) => {
                locate(plain).map(|plain| paragraphs(&plain)).unwrap_or_default()
            }
            (None, None, None) => Vec::new(),
        };
        Reading {
            title,
            date: field("date_published").or(field("date_modified")).and_then(dates::leading),
            link: field("url").or(field("external_url")).map(str::to_owned),
            blocks,
        }
    };
    items.iter().take(ITEMS_PER_DOCUMENT_MAX).map(read).collect()
}

/// The string literals of a JSON text by what they mean, so that any spelling of a value is found, in one pass.
struct Literals<'t> {
    text: &'t str,
    /// Where the inside of each literal stands, in order.
    places: BTreeMap<String, Vec<Range<usize>>>,
}

impl<'t> Literals<'t> {
    fn new(text: &'t str) -> Self {
        let mut places: BTreeMap<String, Vec<Range<usize>>> = BTreeMap::new();
        let bytes = text.as_bytes();
        let mut position = 0;
        while let Some(open) = bytes.get(position..).and_then(|rest| rest.iter().position(|b| *b == b'"')) {
            let start = position + open + 1;
            let mut end = start;
            while end < bytes.len() && bytes[end] != b'"' {
                end += if bytes[end] == b'\\' { 2 } else { 1 };
            }
            if let Some(meant) = text.get(start - 1..end + 1).and_then(|literal| serde_json::from_str(literal).ok()) {
                places.entry(meant).or_default().push(start..end);
            }
            position = end + 1;
        }
        Self { text, places }
    }

    /// The first literal from `from` on that means `value`: where its inside stands, and the inside.
    fn find(&self, value: &str, from: usize) -> Option<(usize, &'t str)> {
        let places = self.places.get(value)?;
        let place = places.get(places.partition_point(|place| place.start < from))?;
        Some((place.start, self.text.get(place.clone())?))
    }
}

/// Reads the inside of a JSON string literal that stands at `at`.
fn unescape(inner: &str, at: usize) -> Mapped {
    let mut out = Mapped::default();
    let mut position = 0;
    while let Some(c) = inner.get(position..).and_then(|rest| rest.chars().next()) {
        let length = match (c, inner.as_bytes().get(position + 1)) {
            ('\\', Some(b'u')) => {
                let surrogate = inner.get(position + 2..position + 3).is_some_and(|d| d.eq_ignore_ascii_case("d"))
                    && inner.get(position + 6..position + 8) == Some("\\u");
                if surrogate { 12 } else { 6 }
            }
            ('\\', Some(_)) => 2,
            _ => c.len_utf8(),
        };
        let end = (position + length).min(inner.len());
        let meant: String = inner
            .get(position..end)
            .and_then(|escape| serde_json::from_str(&format!("\"{escape}\"")).ok())
            .unwrap_or_default();
        meant.chars().for_each(|c| out.push_char(c, at + position..at + end));
        position = end;
    }
    out
}

fn fold(text: &Mapped) -> Mapped {
    let mut folded = Mapped::default();
    html::push_folded(&mut folded, text);
    folded.trimmed()
}

/// Paragraphs of plain text that already has positions of its own.
fn paragraphs(text: &Mapped) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut position = 0;
    for part in text.text().split("\n\n") {
        let piece = fold(&text.piece(position..position + part.len()));
        if !piece.is_blank() {
            blocks.push(Block { kind: crate::briefing::block::BlockKind::Paragraph, text: piece });
        }
        position += part.len() + 2;
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    const RSS: &str = "<?xml version=\"1.0\"?><rss><channel><title>C</title><item><title>Kite &amp; Co</title>\
        <link>https://news.example/1</link><pubDate>Fri, 14 Aug 2026 09:30:00 +0000</pubDate>\
        <description>&lt;p&gt;One &amp;amp; only kite.&lt;/p&gt;</description></item>\
        <item><title>Second</title><description><![CDATA[<p>Two kites.</p>]]></description></item></channel></rss>";
    const ATOM: &str = "<feed xmlns=\"http://www.w3.org/2005/Atom\"><title>C</title><entry><title>Kite</title>\
        <link rel=\"self\" href=\"https://news.example/self\"/><link href=\"https://news.example/2\"/>\
        <updated>2026-08-15T00:00:00Z</updated><summary>It flies.</summary></entry></feed>";
    const JSON: &str = r#"{"version":"https://jsonfeed.org/version/1.1","title":"C","items":[
        {"id":"1","title":"Caf\u00e9","url":"https://news.example/3","date_published":"2026-08-16T10:00:00Z",
         "content_text":"It said \"yes\".\n\nThen it closed."}]}"#;

    fn check(source: &str, feed: Feed, wanted: &[(&str, &str, &str, &str)]) {
        assert_eq!(detect(source), Some(feed));
        let entries = entries(source, feed);
        let rows: Vec<(String, String, String, String)> = entries
            .iter()
            .map(|entry| {
                let text = &entry.blocks[0].text;
                (
                    entry.title.as_ref().map(|title| title.text().to_owned()).unwrap_or_default(),
                    entry.date.clone().unwrap_or_default(),
                    entry.link.clone().unwrap_or_default(),
                    source[text.source_range(0..text.text().len())].to_owned(),
                )
            })
            .collect();
        let wanted: Vec<(String, String, String, String)> =
            wanted.iter().map(|(t, d, l, q)| ((*t).into(), (*d).into(), (*l).into(), (*q).into())).collect();
        assert_eq!(rows, wanted);
    }

    #[test]
    fn rss_entries_are_read_and_their_text_is_found_byte_for_byte() {
        check(
            RSS,
            Feed::Rss,
            &[
                ("Kite & Co", "2026-08-14", "https://news.example/1", "One &amp;amp; only kite."),
                ("Second", "", "", "Two kites."),
            ],
        );
    }

    #[test]
    fn atom_entries_are_read_and_their_text_is_found_byte_for_byte() {
        check(ATOM, Feed::Atom, &[("Kite", "2026-08-15", "https://news.example/2", "It flies.")]);
    }

    #[test]
    fn json_feed_entries_are_read_and_their_text_is_found_byte_for_byte() {
        check(JSON, Feed::Json, &[("Café", "2026-08-16", "https://news.example/3", "It said \\\"yes\\\".")]);
    }

    #[test]
    fn a_json_string_is_found_however_it_is_spelled() {
        let source = r#"{"version":"https:\/\/jsonfeed.org\/version\/1.1","items":[
            {"title":"\u0041 kite","content_text":"It \u0066lies \ud83e\ude81 over\/under."}]}"#;
        check(source, Feed::Json, &[("A kite", "", "", r"It \u0066lies \ud83e\ude81 over\/under.")]);
    }

    #[test]
    fn other_texts_are_no_feeds() {
        for text in ["", "{}", "<html><p>x", "{\"version\":\"1\"}", "# Title", "<rss"] {
            assert_eq!(detect(text), None, "{text}");
        }
    }
}
