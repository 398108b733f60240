//! Feeds: one document for each entry.

use feed_rs::model::Entry;
use serde::Deserialize;

use super::document::{Document, SourceFailure, Yield, document};
use super::html;

/// Most entries taken from one feed; more are named as missing.
const ENTRIES_MAX: usize = 500;
/// Deepest nesting of elements that is parsed.
const DEPTH_MAX: usize = 200;

/// True if JSON says that it is a feed.
pub(super) fn is_json_feed(text: &str) -> bool {
    #[derive(Deserialize)]
    struct Head {
        version: String,
    }
    serde_json::from_str::<Head>(text).is_ok_and(|head| head.version.starts_with("https://jsonfeed.org/"))
}

/// Reads a feed of any kind. Its entries are named `<feed>#1` and so on, in the order of the feed.
pub(super) fn read(name: &str, uri: Option<&str>, text: &str) -> Yield {
    let no_feed =
        || Yield::failed(name, "source-not-a-feed", "it is not a feed that can be read (RSS, Atom or JSON Feed)");
    // The parser recurses, so a feed that is nested without end would end the process.
    if nesting(text) > DEPTH_MAX {
        return no_feed();
    }
    let Ok(feed) = feed_rs::parser::Builder::new().base_uri(uri).build().parse(text.as_bytes()) else {
        return no_feed();
    };
    if feed.entries.is_empty() {
        return Yield::failed(name, "source-empty", "there are no entries in this feed");
    }
    let mut given = Yield::default();
    let all = feed.entries.len();
    for (i, entry) in feed.entries.into_iter().take(ENTRIES_MAX).enumerate() {
        let name = format!("{name}#{}", i + 1);
        match entry_document(&name, uri, entry) {
            Some(document) => given.documents.push(document),
            None => {
                let message = "there is no text in this entry".to_owned();
                given.failures.push(SourceFailure { name, code: "source-empty", message });
            }
        }
    }
    if all > ENTRIES_MAX {
        let message = format!("only the first {ENTRIES_MAX} of {all} entries were taken");
        given.failures.push(SourceFailure { name: name.to_owned(), code: "source-too-many-entries", message });
    }
    given
}

fn entry_document(name: &str, uri: Option<&str>, entry: Entry) -> Option<Document> {
    let title = entry.title.map(|title| plain(&title.content)).filter(|title| !title.is_empty());
    let content =
        entry.content.and_then(|content| content.body).map(|body| plain(&body)).filter(|body| !body.is_empty());
    let body = content.or_else(|| entry.summary.map(|summary| plain(&summary.content)).filter(|body| !body.is_empty()));
    let text = match (&title, body) {
        (Some(title), Some(body)) => format!("{title}\n\n{body}"),
        (Some(title), None) => title.clone(),
        (None, Some(body)) => body,
        (None, None) => return None,
    };
    let link = entry.links.iter().find(|link| link.rel.as_deref().is_none_or(|rel| rel == "alternate"));
    let is_web = |link: &&str| link.starts_with("https://") || link.starts_with("http://");
    Some(Document {
        link: link.map(|link| link.href.as_str()).filter(is_web).map(str::to_owned),
        published: entry
            .published
            .or(entry.updated)
            .and_then(|when| jiff::Timestamp::from_second(when.timestamp()).ok().map(|when| when.to_string())),
        title,
        ..document(name, uri.map(str::to_owned), "text/plain", text)
    })
}

/// The text of a field that may be HTML, whatever the feed says it is.
fn plain(content: &str) -> String {
    let has_tags = content
        .match_indices('<')
        .any(|(at, _)| content[at + 1..].starts_with(|c: char| c.is_ascii_alphabetic() || matches!(c, '/' | '!')));
    let has_entities = content.contains('&') && content.contains(';');
    if has_tags || has_entities { html::text_of(content) } else { content.trim().to_owned() }
}

/// An upper bound of how deeply elements are nested, without parsing: openings minus closings.
fn nesting(text: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0_usize);
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(found) = bytes.get(at..).and_then(|rest| rest.iter().position(|b| *b == b'<')) {
        at += found + 1;
        let rest = bytes.get(at..).unwrap_or_default();
        if rest.starts_with(b"![CDATA[") {
            at += rest.windows(3).position(|w| w == b"]]>").unwrap_or(rest.len());
        } else if rest.starts_with(b"!--") {
            at += rest.windows(3).position(|w| w == b"-->").unwrap_or(rest.len());
        } else if rest.starts_with(b"/") {
            depth = depth.saturating_sub(1);
        } else if !rest.starts_with(b"?") && !rest.starts_with(b"!") {
            // `>` may stand inside an attribute; then the element counts as open, which errs to the safe side.
            let end = rest.iter().position(|b| *b == b'>').unwrap_or(rest.len());
            if !rest.get(..end).is_some_and(|tag| tag.ends_with(b"/")) {
                depth += 1;
                deepest = deepest.max(depth);
            }
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;

    const RSS: &str = r#"<?xml version="1.0"?><rss version="2.0"><channel><title>F</title><link>https://f.example/</link>
        <item><title>One &amp; two</title><link>https://f.example/1</link><pubDate>Fri, 01 May 2026 08:00:00 GMT</pubDate>
        <description><![CDATA[<p>First <b>para</b>.</p><p>Second.</p>]]></description></item>
        <item><title></title></item>
        <item><title>Only a title</title><link>javascript:alert(1)</link></item></channel></rss>"#;

    #[test]
    fn each_entry_of_an_rss_feed_is_a_document_with_title_link_and_date() {
        let given = read("news.xml", None, RSS);
        let first = &given.documents[0];
        assert_eq!((first.name.as_str(), first.text.as_str()), ("news.xml#1", "One & two\n\nFirst para.\n\nSecond."));
        assert_eq!(first.title.as_deref(), Some("One & two"));
        assert_eq!(first.link.as_deref(), Some("https://f.example/1"));
        assert_eq!(first.published.as_deref(), Some("2026-05-01T08:00:00Z"));
        assert_eq!(
            (given.documents[1].name.as_str(), given.documents[1].text.as_str()),
            ("news.xml#3", "Only a title")
        );
        assert_eq!(given.documents[1].link, None, "a link that is not one of the web is not passed on");
        assert_eq!((given.failures[0].name.as_str(), given.failures[0].code), ("news.xml#2", "source-empty"));
    }

    #[test]
    fn atom_and_json_feeds_give_documents_too() {
        let atom = r#"<feed xmlns="http://www.w3.org/2005/Atom"><title>F</title><id>f</id><updated>2026-05-02T00:00:00Z</updated>
            <entry><id>1</id><title>A</title><link href="https://f.example/a"/><updated>2026-05-02T00:00:00Z</updated>
            <content type="html">&lt;p&gt;Body&lt;/p&gt;</content></entry></feed>"#;
        let document = read("f.atom", Some("https://f.example/feed"), atom).documents.remove(0);
        assert_eq!(
            (document.text.as_str(), document.published.as_deref()),
            ("A\n\nBody", Some("2026-05-02T00:00:00Z"))
        );
        assert_eq!(document.uri.as_deref(), Some("https://f.example/feed"));
        let json = r#"{"version":"https://jsonfeed.org/version/1.1","title":"F","items":[{"id":"1","url":"https://f.example/j","title":"J","content_text":"5 < 6"}]}"#;
        assert!(is_json_feed(json) && !is_json_feed(r#"{"version":1}"#));
        let document = read("f.json", None, json).documents.remove(0);
        assert_eq!((document.text.as_str(), document.link.as_deref()), ("J\n\n5 < 6", Some("https://f.example/j")));
    }

    #[test]
    fn a_feed_with_too_many_entries_says_what_was_left_out() {
        let items = "<item><title>x</title></item>".repeat(ENTRIES_MAX + 1);
        let given = read("f.xml", None, &format!("<rss version=\"2.0\"><channel>{items}</channel></rss>"));
        assert_eq!((given.documents.len(), given.failures[0].code), (ENTRIES_MAX, "source-too-many-entries"));
    }

    #[test]
    fn a_feed_nested_without_end_is_refused_before_it_is_parsed() {
        let deep = format!("<rss version=\"2.0\"><channel><item><description>{}", "<a>".repeat(400_000));
        assert_eq!(read("f.xml", None, &deep).failures[0].code, "source-not-a-feed");
        assert_eq!(nesting("<a><b/><![CDATA[<x><x>]]><!-- <x> --></a><?p?><a></a>"), 1);
    }
}
