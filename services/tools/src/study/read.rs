//! From documents to material: sections under their headings, and of each section the sentences that matter.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;
use signalbox_domain::canonical::sha256_hex;

use super::model::{Cited, Material, POINTS_MAX, Point, PointKind, SECTIONS_MAX, Section, SourceRow};
use super::terms;
use crate::briefing::block::{Block, BlockKind, Reading};
use crate::briefing::extract;
use crate::briefing::figures::figures;
use crate::briefing::ground::named;
use crate::briefing::mapped::Mapped;
use crate::briefing::model::{Document, FigureKind, Supports, Unusable};
use crate::briefing::prose::words;
use crate::briefing::quote::Quotable;
use crate::briefing::safe::{clean, cut};
use crate::briefing::select::{self, Sentence};
use crate::material::pdf::{PAGE_BREAK, page_of};

/// Sentences that stand for a section.
const KEY_SENTENCES: usize = 3;
/// Sentences of each other kind that are kept of one section.
const OTHERS_MAX: usize = 3;
/// Longest title, in bytes.
const TITLE_BYTES_MAX: usize = 160;
/// Longest line of plain text that can be a heading, in bytes.
const HEADING_LINE_BYTES_MAX: usize = 80;

static REASON: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"(?i)\b(?:because|so that|therefore|which is why|that is why|for this reason)\b").ok()
});

/// Reads the documents in the order of their names.
pub(super) fn material(documents: Vec<Document>, failures: Vec<Unusable>, title: Option<String>) -> Material {
    let (mut sections, mut sources, mut unusable) = (Vec::new(), Vec::new(), failures);
    let mut texts: BTreeSet<String> = BTreeSet::new();
    let documents = named(documents);
    for document in &documents {
        let refuse = |code: &str, reason: &str| Unusable {
            name: document.name.clone(),
            code: code.to_owned(),
            reason: reason.to_owned(),
        };
        let digest = sha256_hex(document.text.as_bytes());
        if !texts.insert(digest.clone()) {
            unusable.push(refuse("document-repeated", "the same text was read already"));
            continue;
        }
        let (mut reading, read_as) = match extract::reading(document) {
            Ok(read) => read,
            Err(error) => {
                unusable.push(error);
                continue;
            }
        };
        if read_as == "text" {
            lift_headings(&mut reading, &document.text);
        }
        let before = sections.len();
        split(document, &reading, &mut sections);
        if sections.len() == before {
            unusable.push(refuse("document-without-sentences", "it has no sentence that could be quoted"));
            continue;
        }
        if sections.len() > SECTIONS_MAX {
            sections.truncate(SECTIONS_MAX);
            unusable.push(refuse("too-many-sections", "only the first thousand sections of the material are read"));
        }
        let sha256 = if document.sha256.len() == 64 { document.sha256.clone() } else { digest };
        let count = sections.len().saturating_sub(before);
        sources.push(SourceRow { name: document.name.clone(), sha256, read_as: read_as.to_owned(), sections: count });
    }
    for (index, section) in sections.iter_mut().enumerate() {
        section.id = format!("s{:03}", index + 1);
    }
    let given = title.map(|title| clean(cut(&title, TITLE_BYTES_MAX))).filter(|title| !title.is_empty());
    let title = given.unwrap_or_else(|| own_title(&sections, &sources));
    let terms = terms::terms(&sections, &documents);
    unusable.sort();
    unusable.dedup();
    Material { title, sources, sections, terms, unusable }
}

/// The first large heading; the name of the only source; or what it is.
fn own_title(sections: &[Section], sources: &[SourceRow]) -> String {
    match (sections.first(), sources) {
        (Some(first), [_]) => first.title.clone(),
        (Some(first), _) => format!("{} and more", first.title),
        (None, _) => "Material".to_owned(),
    }
}

/// Plain text has no marked headings: a short line of its own without an end mark, before a longer paragraph, is one.
fn lift_headings(reading: &mut Reading, source: &str) {
    let lengths: Vec<usize> = reading.blocks.iter().map(|block| block.text.text().len()).collect();
    for (index, block) in reading.blocks.iter_mut().enumerate().skip(1) {
        let text = block.text.text();
        let next = lengths.get(index + 1).copied().unwrap_or(0);
        let range = block.text.source_range(0..text.len());
        let one_line = source.get(range).is_some_and(|raw| !raw.contains('\n'));
        let bare = !text.ends_with(['.', ':', ';', ',', '!', '?', '”', '"'])
            && text.starts_with(|c: char| c.is_uppercase() || c.is_numeric());
        if block.kind == BlockKind::Paragraph
            && one_line
            && bare
            && text.len() <= HEADING_LINE_BYTES_MAX
            && next > text.len()
        {
            block.kind = BlockKind::Heading(2);
        }
    }
}

/// Cuts a document at its headings.
fn split(document: &Document, reading: &Reading, sections: &mut Vec<Section>) {
    let mut path: Vec<(u8, String)> = Vec::new();
    let mut level = 1;
    let mut title = reading.title.as_ref().map_or_else(|| without_ending(&document.name), shown);
    let mut body: Vec<Block> = Vec::new();
    let mut finish = |path: &[(u8, String)], level: u8, title: &str, body: &mut Vec<Block>| {
        let body = std::mem::take(body);
        let above: Vec<&str> =
            path.iter().filter(|(above, _)| *above < level).map(|(_, title)| title.as_str()).collect();
        if let Some(section) = section(document, level, title, &above, &body)
            && sections.len() <= SECTIONS_MAX
        {
            sections.push(section);
        }
    };
    for block in &reading.blocks {
        if block.text.text().trim_matches(|c: char| c == PAGE_BREAK || c.is_whitespace()).is_empty() {
            continue;
        }
        match block.kind {
            BlockKind::Heading(next) => {
                finish(&path, level, &title, &mut body);
                (level, title) = (next, shown(&block.text));
                path.retain(|(above, _)| *above < next);
                path.push((next, title.clone()));
            }
            BlockKind::Paragraph | BlockKind::Entry => body.push(block.clone()),
        }
    }
    finish(&path, level, &title, &mut body);
}

fn shown(text: &Mapped) -> String {
    clean(cut(text.text(), TITLE_BYTES_MAX))
}

fn without_ending(name: &str) -> String {
    let file = name.rsplit('/').next().unwrap_or(name);
    file.rsplit_once('.').map_or(file, |(stem, _)| stem).replace(['-', '_'], " ")
}

/// A section of its blocks; nothing if it has no sentence.
fn section(document: &Document, level: u8, title: &str, above: &[&str], body: &[Block]) -> Option<Section> {
    let all = select::all(body);
    let source = Quotable { name: &document.name, text: &document.text };
    let where_ = |at: usize| place(document, above, title, at);
    let first = body.first().map_or(0, |block| block.text.source_range(0..block.text.text().len()).start);
    let keys: BTreeSet<usize> = select::key(&all, title, KEY_SENTENCES).into_iter().collect();
    let mut points: Vec<(usize, Point)> = Vec::new();
    let mut counts = [0_usize; 3];
    for (index, sentence) in all.iter().enumerate() {
        let leads = keys.contains(&index);
        let (kind, about) = kind(sentence);
        let slot = match kind {
            PointKind::Definition => Some(0),
            PointKind::Reason => Some(1),
            PointKind::Figure => Some(2),
            PointKind::Key => None,
        };
        let wanted = leads || slot.is_some_and(|slot| counts.get(slot).is_some_and(|count| *count < OTHERS_MAX));
        if !wanted || points.len() >= POINTS_MAX || sentence.is_entry && !leads {
            continue;
        }
        if let Some(count) = slot.and_then(|slot| counts.get_mut(slot)) {
            *count += 1;
        }
        // "This leaning is called batter" needs the sentence before it.
        let before = index.checked_sub(1).and_then(|before| all.get(before));
        let leans = matches!(kind, PointKind::Definition | PointKind::Reason) && begins_elsewhere(sentence.text());
        let start = before
            .filter(|before| leans && std::ptr::eq(before.block, sentence.block))
            .map_or(sentence.range.start, |before| before.range.start);
        if let Some(quote) = source.quote(sentence.block, start..sentence.range.end, Supports::Summary) {
            let cited = Cited { place: where_(quote.start), quote };
            points.push((index, Point { kind, cited, leads, about }));
        }
    }
    let words = body.iter().map(|block| words(block.text.text()).len()).sum();
    (!points.is_empty()).then(|| Section {
        id: String::new(),
        level,
        title: title.to_owned(),
        place: where_(first),
        source: document.name.clone(),
        words,
        points: points.into_iter().map(|(_, point)| point).collect(),
    })
}

/// Whether a sentence begins with a word that stands for something said before.
fn begins_elsewhere(text: &str) -> bool {
    let first = text.split_whitespace().next().unwrap_or_default();
    matches!(first, "This" | "These" | "That" | "Those" | "It" | "They" | "Its" | "Their")
}

/// What sort of sentence it is, and what it defines or counts.
fn kind(sentence: &Sentence<'_>) -> (PointKind, Option<String>) {
    let text = sentence.text();
    if let Some(term) = terms::defined(text) {
        return (PointKind::Definition, Some(term));
    }
    if REASON.as_ref().is_some_and(|reason| reason.is_match(text)) {
        return (PointKind::Reason, None);
    }
    // "Two times" is a figure too, but nobody would be asked for it.
    let mut given = figures(text)
        .into_iter()
        .filter(|figure| matches!(figure.kind, FigureKind::Number | FigureKind::Date))
        .filter_map(|figure| text.get(figure.range).map(str::to_owned));
    match given.find(|figure| figure.bytes().any(|byte| byte.is_ascii_digit())) {
        Some(figure) => (PointKind::Figure, Some(figure)),
        None => (PointKind::Key, None),
    }
}

/// Where a byte stands, as a reader would say it.
fn place(document: &Document, above: &[&str], title: &str, at: usize) -> String {
    let mut parts = vec![document.name.clone()];
    if document.media_type == "application/pdf" {
        parts.push(format!("page {}", page_of(&document.text, at)));
    }
    let mut path: Vec<&str> = above.to_vec();
    path.push(title);
    parts.push(format!("“{}”", path.join(" › ")));
    parts.join(", ")
}
