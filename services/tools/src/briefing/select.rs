//! Which sentences of a document stand for it.
//!
//! Extractive on purpose: the pack says what its sources say, in their words, and each sentence can be looked up.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use super::block::{Block, BlockKind};
use super::bm25::Index;
use super::mapped::Mapped;
use super::prose::{SENTENCES_MAX, sentences, stems};
use super::safe::cut;

/// How many of the first sentences the key sentences of a story are chosen from.
const STORY_WINDOW: usize = 400;
/// Shortest sentence that can stand for a text, in bytes.
const SENTENCE_BYTES_MIN: usize = 24;
/// How much of a sentence is read, in bytes.
const SENTENCE_BYTES_MAX: usize = 4_000;
/// Most instructions that are quoted for one item.
const INSTRUCTIONS_MAX: usize = 2;

/// A sentence of a document.
#[derive(Debug, Clone)]
pub(crate) struct Sentence<'b> {
    pub(crate) block: &'b Mapped,
    pub(crate) range: Range<usize>,
    /// It stands in a list or table.
    pub(crate) is_entry: bool,
}

impl Sentence<'_> {
    pub(crate) fn text(&self) -> &str {
        self.block.text().get(self.range.clone()).unwrap_or_default()
    }
    /// Whether it can stand for the text: whole, and not the lead-in of something that follows.
    fn stands_alone(&self) -> bool {
        let text = self.text();
        text.len() >= SENTENCE_BYTES_MIN && !text.ends_with(':') && text.split(' ').count() >= 4
    }
}

/// The sentences of all blocks that are no headings.
pub(crate) fn all(blocks: &[Block]) -> Vec<Sentence<'_>> {
    blocks
        .iter()
        .filter(|block| !matches!(block.kind, BlockKind::Heading(_)))
        .flat_map(|block| {
            let is_entry = block.kind == BlockKind::Entry;
            let text = block.text.text();
            sentences(text).into_iter().map(move |range| {
                // A sentence longer than that is no sentence; its beginning is read and quoted like one.
                let length = cut(&text[range.clone()], SENTENCE_BYTES_MAX).len();
                Sentence { block: &block.text, range: range.start..range.start + length, is_entry }
            })
        })
        .take(SENTENCES_MAX)
        .collect()
}

/// The first sentences that stand alone, leaving out those that are used elsewhere.
pub(crate) fn first(all: &[Sentence<'_>], most: usize, except: &BTreeSet<usize>) -> Vec<usize> {
    let running = |entries: bool| {
        let fits = move |(index, sentence): (usize, &Sentence<'_>)| {
            let use_it = !except.contains(&index) && sentence.stands_alone() && (entries || !sentence.is_entry);
            use_it.then_some(index)
        };
        all.iter().enumerate().filter_map(fits).take(most).collect::<Vec<_>>()
    };
    let found = running(false);
    if found.is_empty() { running(true) } else { found }
}

/// The lead and the sentences that say most about the title, in the order of the text.
pub(crate) fn key(all: &[Sentence<'_>], title: &str, most: usize) -> Vec<usize> {
    let Some(&lead) = first(all, 1, &BTreeSet::new()).first() else { return Vec::new() };
    let window = &all[..all.len().min(STORY_WINDOW)];
    let index = Index::new(window.iter().map(|sentence| stems(sentence.text())));
    let mut query = stems(title);
    query.extend(stems(all[lead].text()));
    let mut chosen = BTreeSet::from([lead]);
    for (position, _) in index.best(&query, window.len()) {
        if chosen.len() >= most {
            break;
        }
        if window[position].stands_alone() && !window[position].is_entry && !same_words(all, &chosen, position) {
            chosen.insert(position);
        }
    }
    // A short text may say nothing more about its title; its next sentence is better than none.
    if chosen.len() < 2 {
        chosen.extend(first(all, 1, &chosen));
    }
    chosen.into_iter().collect()
}

/// A sentence that repeats one already chosen adds nothing.
fn same_words(all: &[Sentence<'_>], chosen: &BTreeSet<usize>, position: usize) -> bool {
    let words: BTreeSet<String> = stems(all[position].text()).into_iter().collect();
    chosen.iter().any(|other| {
        let others: BTreeSet<String> = stems(all[*other].text()).into_iter().collect();
        words.intersection(&others).count() * 10 >= words.len().min(others.len()).max(1) * 8
    })
}

const ACTS: &str = "upgrade|update|migrate|move|switch|replace|rotate|revoke|audit|review|avoid|disable|remove|uninstall|\
                    pin|downgrade|re-?encrypt|regenerate|reset|patch|stop using|check";

/// Cues of an instruction, the strongest first.
static CUES: LazyLock<Vec<(u8, Regex)>> = LazyLock::new(|| {
    const DUTY: &str = "must|should|need to|needs to|have to|advised to|recommended to|encouraged to";
    const DONE: &str = "fixed|patched|resolved|addressed|corrected";
    let cues = [
        // Told to do something: "Upgrade to 2.0", "Users should migrate", "must be migrated".
        (3, format!(r"(?i)^(?:please |users? |to (?:fix|mitigate)[^,]*, )?(?:{ACTS})\b")),
        (3, format!(r"(?i)\b(?:{DUTY})\b.{{0,40}}\b(?:{ACTS})(?:d|ed)?\b")),
        // Advised, or what stands in the way of it.
        (2, r"(?i)\brecommend(?:s|ed)?\b".to_owned()),
        (2, r"(?i)\bwork-?arounds?\b|\bmitigations?\b".to_owned()),
        (2, r"(?i)\b(?:no|without)\b.{0,24}\b(?:fix|patch)(?:es|ed)?\b".to_owned()),
        (1, format!(r"(?i)\b(?:{DONE}) (?:in|by|with)\b|^fix(?:ed)?\b|^patched\b")),
    ];
    cues.into_iter().filter_map(|(weight, cue)| Regex::new(&cue).ok().map(|cue| (weight, cue))).collect()
});

/// How strongly a sentence reads as an instruction; 0 is not at all.
pub(crate) fn instruction(sentence: &str) -> u8 {
    CUES.iter().find(|(_, cue)| cue.is_match(sentence)).map_or(0, |(weight, _)| *weight)
}

/// The sentences that say what to do, in the order of the text, at least of this weight. Entries of lists count if they
/// are asked for: in an advisory they are steps, in a list of changes they only sound like it.
pub(crate) fn instructions(all: &[Sentence<'_>], least: u8, entries: bool) -> Vec<usize> {
    let mut found: Vec<(u8, usize)> = all
        .iter()
        .enumerate()
        .filter(|(_, sentence)| entries || !sentence.is_entry)
        .filter(|(_, sentence)| sentence.text().len() >= 12 && !sentence.text().ends_with(['?', ':']))
        .map(|(index, sentence)| (instruction(sentence.text()), index))
        // "Patched in 2.0." alone says what the head says already.
        .filter(|(weight, index)| *weight >= least && (*weight > 1 || all[*index].text().len() >= 40))
        .collect();
    found.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    // Where something stronger is said, "fixed in 2.0" adds nothing.
    let strongest = found.first().map_or(0, |(weight, _)| *weight);
    found.retain(|(weight, _)| *weight > 1 || strongest == 1);
    found.truncate(INSTRUCTIONS_MAX);
    let mut chosen: Vec<usize> = found.into_iter().map(|(_, index)| index).collect();
    chosen.sort_unstable();
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::briefing::read::markdown;

    #[test]
    fn instructions_are_told_from_other_sentences_and_ranked() {
        for (sentence, weight) in [
            ("Upgrade to 2.0.0 or later and audit registered keys.", 3),
            ("Users should migrate to `newkite`.", 3),
            ("Old files must be migrated only by hand.", 3),
            ("There is no workaround short of upgrading.", 2),
            ("The repository is archived with no fix available.", 2),
            ("The flaw is fixed in 0.8.0 by marking these functions `unsafe`.", 1),
            ("An attacker could obtain truncated data.", 0),
            ("The specification requires it to throw.", 0),
        ] {
            assert_eq!(instruction(sentence), weight, "{sentence}");
        }
    }

    #[test]
    fn the_key_sentences_are_the_lead_and_what_says_most_about_the_title() {
        let source = "# The harbour kite festival moves\n\nThe festival committee met on Monday evening. \
                      Tea was served to everybody there. The harbour kite festival moves to the north quay. \
                      Somebody sang a long song.\n";
        let blocks = markdown::blocks(source, 0);
        let all = all(&blocks);
        let chosen: Vec<&str> =
            key(&all, "The harbour kite festival moves", 2).into_iter().map(|index| all[index].text()).collect();
        assert_eq!(
            chosen,
            ["The festival committee met on Monday evening.", "The harbour kite festival moves to the north quay."]
        );
    }

    #[test]
    fn a_document_of_list_entries_is_summed_up_by_its_entries() {
        let blocks = markdown::blocks("# News\n\n- The quay was painted green this week.\n- Short.\n", 0);
        assert_eq!(first(&all(&blocks), 2, &BTreeSet::new()), [0]);
        let blocks = markdown::blocks("```\ncode\n```\n", 0);
        assert_eq!(first(&all(&blocks), 2, &BTreeSet::new()), Vec::<usize>::new());
    }
}
