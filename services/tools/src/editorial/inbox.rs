//! The entry in the editorial inbox: what there is to decide first, then the draft with its quotes.

use serde_json::{Value, json};

use super::story::Story;
use super::tone::Tone;
use crate::briefing::model::Quote;
use crate::folder::{Files, both, data, rendered};
use crate::page::{Entry, Page, counted};

/// Most findings of the tone review that are shown.
const FINDINGS_SHOWN_MAX: usize = 40;

fn cited(quote: &Quote) -> String {
    format!("{}, bytes {} to {}", quote.source, quote.start, quote.end)
}

/// The files of an entry.
pub(super) fn entry(story: &Story, tone: Option<&Tone>) -> Value {
    let mut page = Page::new(story.title.clone());
    let differing = story.counterclaims.iter().filter(|one| one.kind != "contrast").count();
    let own = tone.map_or(0, |tone| tone.findings.iter().filter(|finding| !finding.quoted).count());
    page.note(format!(
        "A draft for the editor, put together from {}. No model wrote it: every statement is a sentence of a source.",
        counted(story.sources.len(), "source", "sources")
    ));
    page.heading(2, "To decide");
    let mut decide: Vec<Entry> = Vec::new();
    if differing > 0 {
        decide.push(Entry::led(
            "Disagreements:",
            format!(
                "{} between sources, listed under “What speaks against it”.",
                counted(differing, "disagreement", "disagreements")
            ),
        ));
    }
    decide.extend(story.open.iter().map(Entry::text));
    if let Some(tone) = tone {
        decide.push(Entry::led("Tone:", tone.in_words()));
    }
    page.list(decide);
    page.heading(2, "The draft");
    for line in &story.summary {
        page.text(line.clone());
    }
    let mut topic: Option<&str> = None;
    for point in &story.points {
        if topic != Some(point.topic.as_str()) {
            page.heading(2, point.topic.clone());
            topic = Some(&point.topic);
        }
        let date = point.date.as_ref().map(|date| format!(" ({date})")).unwrap_or_default();
        page.heading(3, format!("{}{date}", point.headline));
        for quote in &point.quotes {
            page.quote(quote.plain.clone(), cited(quote));
        }
    }
    page.heading(2, "What speaks against it");
    if story.counterclaims.is_empty() {
        page.text("No source contradicts another, and none objects.");
    }
    for one in &story.counterclaims {
        let kind = match one.kind.as_str() {
            "figures-differ" => "Figures differ",
            "denied" => "Denied",
            _ => "Objected to",
        };
        page.heading(3, format!("{kind}: {}", one.about));
        page.quote(one.claim.plain.clone(), cited(&one.claim));
        page.quote(one.counter.plain.clone(), cited(&one.counter));
    }
    if let Some(tone) = tone.filter(|tone| !tone.findings.is_empty()) {
        page.heading(2, "Tone review");
        let row = |finding: &super::tone::Finding| {
            let whose = if finding.quoted { "a source" } else { "the draft" };
            vec![finding.rule.clone(), finding.around.clone(), whose.to_owned(), finding.advice.clone()]
        };
        page.table(
            &["Rule", "Words", "Of", "Advice"],
            tone.findings.iter().take(FINDINGS_SHOWN_MAX).map(row).collect(),
        );
    }
    page.heading(2, "Sources");
    page.table(
        &["Source", "Read as", "SHA-256"],
        story
            .sources
            .iter()
            .map(|row| vec![row.name.clone(), row.read_as.clone(), format!("`{}`", row.sha256)])
            .collect(),
    );
    if !story.unusable.is_empty() {
        page.text("Not used:");
        page.list(story.unusable.iter().map(|one| Entry::led(format!("{}:", one.name), one.reason.clone())).collect());
    }
    page.note(story.checks.join(" "));
    let mut files = Files::new();
    both(&mut files, "story", &page);
    files.insert("story.json".to_owned(), data(&json!({ "story": story, "tone": tone })));
    let counts = json!({
        "points": story.points.len(),
        "counterclaims": story.counterclaims.len(),
        "disagreements": differing,
        "toneFindings": own,
        "sources": story.sources.len(),
        "unusable": story.unusable.len(),
    });
    rendered(&story.title, &counts, files)
}
