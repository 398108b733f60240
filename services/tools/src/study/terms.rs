//! Terms: what a text explains, told by how it explains it; and what it speaks of most.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use regex::Regex;

use super::model::{PointKind, Section, TERMS_MAX, Term};
use crate::briefing::model::Document;
use crate::briefing::prose::{is_stop, stem, words};

/// Most words of a term.
const WORDS_MAX: usize = 4;
/// How often a word must come up to be a term without being explained.
const MENTIONS_MIN: usize = 6;
/// Most terms that are only often used.
const USED_MAX: usize = 5;

/// How sentences explain: "A neap tide is a …", "… is called a neap tide", "X means …".
static EXPLAINS: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    const TERM: &str = r"(?P<term>[^\W\d_][\w’'-]*(?: [^\W\d_][\w’'-]*){0,3})";
    [
        format!(r"^(?:An? |The )?{TERM} (?:is|are) (?:an?|the|any|one of|what|when|where|how|called|named)\b"),
        format!(r"^(?:An? |The )?{TERM},? (?:means|refers to|denotes|stands for|describes)\b"),
        format!(
            r"\b(?:is|are) (?:called|named|known as|termed) (?:an? |the )?{TERM}(?:[.,;]|$| and | when | because )"
        ),
    ]
    .into_iter()
    .filter_map(|pattern| Regex::new(&pattern).ok())
    .collect()
});

/// Words that stand where a term would and are none.
const NO_TERMS: [&str; 30] = [
    "it",
    "this",
    "that",
    "these",
    "those",
    "there",
    "he",
    "she",
    "they",
    "we",
    "you",
    "i",
    "one",
    "what",
    "which",
    "who",
    "here",
    "everything",
    "nothing",
    "reason",
    "result",
    "first",
    "second",
    "third",
    "next",
    "last",
    "other",
    "answer",
    "both",
    "each",
];

/// What a sentence explains.
pub(super) fn defined(sentence: &str) -> Option<String> {
    EXPLAINS.iter().rev().find_map(|pattern| {
        let term = pattern.captures(sentence)?.name("term")?.as_str();
        is_term(term).then(|| lowered(term))
    })
}

fn is_term(term: &str) -> bool {
    let parts: Vec<String> = term.split(' ').map(str::to_lowercase).collect();
    let content = parts.iter().filter(|part| !is_stop(part)).count();
    parts.len() <= WORDS_MAX
        && term.len() >= 3
        && content > 0
        && parts.first().is_some_and(|part| !NO_TERMS.contains(&part.as_str()) && !is_stop(part))
        && parts.last().is_some_and(|part| !NO_TERMS.contains(&part.as_str()) && !is_stop(part))
        && !parts.iter().any(|part| {
            matches!(part.as_str(), "of" | "in" | "on" | "and" | "or" | "for" | "to" | "with" | "that" | "which")
        })
}

/// A term in small letters, unless it is written like a name.
fn lowered(term: &str) -> String {
    let mut rest = term.split(' ').skip(1);
    let is_name = rest.any(|part| part.starts_with(char::is_uppercase)) || term.chars().skip(1).any(char::is_uppercase);
    if is_name { term.to_owned() } else { term.to_lowercase() }
}

/// A key under which "tides" and "tide" are one term.
fn key(term: &str) -> Vec<String> {
    term.split(' ').map(stem).collect()
}

/// The terms of a material, in alphabetical order.
pub(super) fn terms(sections: &[Section], documents: &[Document]) -> Vec<Term> {
    let mut found: Vec<Term> = Vec::new();
    let mut keys: BTreeSet<Vec<String>> = BTreeSet::new();
    for section in sections {
        for point in section.points.iter().filter(|point| point.kind == PointKind::Definition) {
            let Some(term) = &point.about else { continue };
            if keys.insert(key(term)) && found.len() < TERMS_MAX {
                found.push(Term {
                    term: term.clone(),
                    cited: point.cited.clone(),
                    defined: true,
                    mentions: 0,
                    section: section.id.clone(),
                });
            }
        }
    }
    let stems: Vec<String> = documents
        .iter()
        .flat_map(|document| {
            let text = document.text.as_str();
            words(text).into_iter().map(move |word| stem(word.text(text)))
        })
        .collect();
    for term in &mut found {
        let wanted = key(&term.term);
        term.mentions = stems.windows(wanted.len().max(1)).filter(|window| *window == wanted.as_slice()).count();
    }
    found.extend(used(sections, &keys));
    found.sort_by_key(|term| term.term.to_lowercase());
    found
}

/// Words that come up in many kept sentences and are explained in none.
fn used(sections: &[Section], known: &BTreeSet<Vec<String>>) -> Vec<Term> {
    let explained: BTreeSet<&String> = known.iter().flatten().collect();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut first: BTreeMap<String, Term> = BTreeMap::new();
    for section in sections {
        for point in &section.points {
            let text = point.cited.quote.plain.as_str();
            for word in words(text) {
                let spelled = word.text(text);
                let lower = spelled.to_lowercase();
                let stem = stem(&lower);
                let says_little =
                    is_stop(&lower) || lower.len() < 4 || !lower.chars().all(|c| c.is_alphabetic() || c == '-');
                if says_little || explained.contains(&stem) {
                    continue;
                }
                *counts.entry(stem.clone()).or_default() += 1;
                first.entry(stem).or_insert_with(|| Term {
                    term: lower,
                    cited: point.cited.clone(),
                    defined: false,
                    mentions: 0,
                    section: section.id.clone(),
                });
            }
        }
    }
    let mut best: Vec<(usize, Term)> = counts
        .into_iter()
        .filter(|(_, count)| *count >= MENTIONS_MIN)
        .filter_map(|(stem, count)| first.remove(&stem).map(|term| (count, Term { mentions: count, ..term })))
        .collect();
    best.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.term.cmp(&b.1.term)));
    best.into_iter().take(USED_MAX).map(|(_, term)| term).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_that_explain_are_told_from_others() {
        for (sentence, term) in [
            ("A neap tide is a tide with a small range.", Some("neap tide")),
            ("Tides are the rise and fall of the sea.", Some("tides")),
            ("The higher of the two is called spring tide.", Some("spring tide")),
            ("A gauge that measures this is known as a tide gauge.", Some("tide gauge")),
            ("Ebb means the falling of the water.", Some("ebb")),
            ("It is a fine day.", None),
            ("This is the end.", None),
            ("The reason is the wind.", None),
            ("The harbour of Larkspur is a quiet place.", None),
            ("The sea rises twice a day.", None),
        ] {
            assert_eq!(defined(sentence).as_deref(), term, "{sentence}");
        }
    }
}
