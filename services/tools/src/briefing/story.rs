//! Everything that is no advisory: articles, notes, pages and entries of feeds.

use super::block::{BlockKind, Reading};
use super::claims;
use super::dates;
use super::extract::{Extracted, blank};
use super::mapped::Mapped;
use super::model::{Kind, Quote, Supports};
use super::quote::Quotable;
use super::safe;
use super::select;

/// How many sentences sum a story up.
const SUMMARY_SENTENCES: usize = 3;
/// How many of the first blocks may hold a line like "Published: 14 August 2026".
const DATE_BLOCKS: usize = 6;
/// Longest line that may state the date, in bytes.
const DATE_LINE_BYTES_MAX: usize = 120;
/// How heavy an instruction must be to be quoted from a story.
const INSTRUCTION_WEIGHT_MIN: u8 = 3;

/// What a front matter or a feed says of a story, stronger than what its text says.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stated {
    pub(crate) title: Option<String>,
    pub(crate) date: Option<String>,
    pub(crate) link: Option<String>,
}

/// Makes an item of a reading; nothing if it has neither a title nor a sentence.
pub(crate) fn read(source: Quotable<'_>, id: &str, stated: &Stated, reading: &Reading) -> Option<Extracted> {
    let heading = reading.title.as_ref().or_else(|| {
        let first = |level: fn(u8) -> bool| {
            reading.blocks.iter().find(|block| matches!(block.kind, BlockKind::Heading(l) if level(l)))
        };
        first(|level| level == 1).or_else(|| first(|_| true)).map(|block| &block.text)
    });
    let sentences = select::all(&reading.blocks);
    let mut item = blank(id, source.name);
    item.kind = Kind::Story;
    item.kind_from = "not an advisory".to_owned();
    let title = stated.title.clone().or_else(|| heading.map(|text| text.text().to_owned()));
    let title = title.or_else(|| sentences.first().map(|sentence| safe::cut(sentence.text(), 120).to_owned()))?;
    item.title = safe::clean(safe::cut(&title, 300));
    item.date = stated
        .date
        .clone()
        .or_else(|| reading.date.clone())
        .or_else(|| labelled_date(reading))
        .or_else(|| date_in_name(source.name));
    item.link = stated.link.as_deref().or(reading.link.as_deref()).and_then(safe::link);
    item.link_from = item.link.as_ref().map(|_| "stated".to_owned());
    item.subjects = claims::subjects(&item.title, &sentences);

    let mut quotes: Vec<Option<Quote>> = Vec::new();
    if let Some(text) = heading.filter(|text| stated.title.is_none() || stated.title.as_deref() == Some(text.text())) {
        quotes.push(quote_all(source, text, Supports::Title));
    }
    let told = select::instructions(&sentences, INSTRUCTION_WEIGHT_MIN, false);
    let summary = select::key(&sentences, &item.title, SUMMARY_SENTENCES);
    let quoted =
        |index: usize, supports| source.quote(sentences[index].block, sentences[index].range.clone(), supports);
    quotes.extend(summary.iter().filter(|index| !told.contains(index)).map(|index| quoted(*index, Supports::Summary)));
    quotes.extend(told.iter().map(|index| quoted(*index, Supports::WhatToDo)));
    item.quotes = quotes.into_iter().flatten().collect();
    if item.quotes.is_empty() {
        return None;
    }
    let claims = claims::claims(&item, &sentences, source);
    Some(Extracted { items: vec![item], claims, ..Extracted::default() })
}

fn quote_all(source: Quotable<'_>, text: &Mapped, supports: Supports) -> Option<Quote> {
    source.quote(text, 0..text.text().len(), supports)
}

/// A short line near the top that says it is the date.
fn labelled_date(reading: &Reading) -> Option<String> {
    let labels = ["date", "published", "posted", "issued", "written"];
    reading.blocks.iter().take(DATE_BLOCKS).find_map(|block| {
        let text = block.text.text();
        let lower = text.trim_start_matches(['*', '_', '(']).to_lowercase();
        let states = text.len() <= DATE_LINE_BYTES_MAX && labels.iter().any(|label| lower.starts_with(label));
        // A line that is nothing but a day is a dateline.
        let found = dates::find(text).into_iter().find(|found| found.year.is_some())?;
        let bare = found.range.len() >= text.trim().trim_end_matches('.').len();
        (states || bare).then(|| found.value())
    })
}

/// `2026-08-14-notes.md`.
fn date_in_name(name: &str) -> Option<String> {
    let file = name.rsplit('/').next()?;
    file.get(..10).filter(|head| dates::is_day(head)).map(str::to_owned)
}
