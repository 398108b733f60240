//! The briefing tools' readers: Markdown, HTML, feeds, advisories, plain text; and everything that is made of what they read.

#![allow(clippy::unwrap_used, reason = "a target panics to say what is wrong")]

use signalbox_tools::briefing::compose::draft;
use signalbox_tools::briefing::factcheck::{check_citations, check_claims};
use signalbox_tools::briefing::ground::{Request, ground};
use signalbox_tools::briefing::model::Document;
use signalbox_tools::briefing::persona::{edit_draft, narration};
use signalbox_tools::briefing::render::{Pack, render};

/// A name and a media type on the first line, a source after it. Every quote stands in the source, and nothing hidden or
/// active reaches a page.
pub(super) fn briefing(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (head, text) = text.split_once('\n').unwrap_or(("", &text));
    let (name, media_type) = head.split_once('|').unwrap_or((head, ""));
    let document = Document {
        uri: String::new(),
        name: name.to_owned(),
        media_type: media_type.to_owned(),
        sha256: String::new(),
        text: text.to_owned(),
    };
    let documents = vec![document];
    let query = Some("release of a version".to_owned());
    let request = Request { documents: documents.clone(), query, ..Request::default() };
    let Ok(ground) = ground(request) else { return };
    for quote in ground.items.iter().flat_map(|item| &item.quotes) {
        assert_eq!(text.get(quote.start..quote.end), Some(quote.text.as_str()), "a quote is not in its source");
    }
    let claims = check_claims(&ground.claims, documents.clone());
    let mut draft = draft(ground);
    let tone = edit_draft(&mut draft);
    let citations = check_citations(&draft, documents);
    assert_eq!(citations.quotes, citations.found, "a quote is not found again");
    let _ = narration(&draft);
    let pack = render(Pack { draft: &draft, claims: &claims, citations: &citations, tone: &tone }).unwrap();
    for page in [&pack.markdown, &pack.html] {
        let bad = page.chars().find(|c| c.is_control() && *c != '\n' || matches!(c, '\u{202a}'..='\u{202e}'));
        assert_eq!(bad, None, "a hidden character reaches a page");
    }
    let lower = pack.html.to_lowercase();
    for active in ["<script", "<iframe", "<img", "<object", "href=\"javascript:", "href=\"data:"] {
        assert!(!lower.contains(active), "{active} reaches the page");
    }
    serde_json::from_str::<serde_json::Value>(&pack.json).unwrap();
}
