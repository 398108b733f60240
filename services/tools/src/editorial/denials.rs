//! Denials: two sources that say the same of a subject, one of them with a "not".
//!
//! Figures that differ are found by the fact check. This finds sentences with nearly the same words of which one is negated.
//! A rule of form, not of meaning: it can miss one, and what it reports is shown with both quotes.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::briefing::extract::extract;
use crate::briefing::ground::named;
use crate::briefing::model::{Document, Quote};
use crate::briefing::prose::{stems, words};

/// Most sentences that are compared.
const SENTENCES_MAX: usize = 6_000;
/// A stem in more sentences than this tells none apart.
const COMMON_MAX: usize = 60;
/// Most denials that are reported.
const DENIALS_MAX: usize = 200;
/// Words two sentences must share beside the negation.
const SHARED_MIN: usize = 3;
/// How many of the shorter sentence's words must be shared, in tenths.
const SHARED_TENTHS: usize = 7;

/// Words that turn a sentence round.
const NEGATIONS: [&str; 20] = [
    "not", "no", "never", "none", "nobody", "nothing", "neither", "nor", "without", "cannot", "denies", "denied",
    "deny", "denying", "refuses", "refused", "rejects", "rejected", "disputes", "disputed",
];

/// What one source says and another denies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Denial {
    pub(crate) says: Quote,
    pub(crate) denies: Quote,
}

/// All sentences of the documents, in order, as quotes.
pub(super) fn sentences(documents: Vec<Document>) -> Vec<Quote> {
    let mut all = Vec::new();
    for document in named(documents) {
        if let Ok((extracted, _)) = extract(&document, true) {
            all.extend(extracted.sentences);
        }
        if all.len() >= SENTENCES_MAX {
            all.truncate(SENTENCES_MAX);
            break;
        }
    }
    all
}

/// Whether a sentence is negated.
pub(super) fn is_negated(text: &str) -> bool {
    words(text).iter().any(|word| {
        let word = word.text(text).to_lowercase();
        NEGATIONS.contains(&word.as_str()) || word.ends_with("n't") || word.ends_with("n’t")
    })
}

/// The words of a sentence that say what it is about, without what negates it.
pub(super) fn content(text: &str) -> BTreeSet<String> {
    let negating: BTreeSet<String> = NEGATIONS.iter().flat_map(|word| stems(word)).collect();
    stems(text).into_iter().filter(|stem| !negating.contains(stem)).collect()
}

/// The denials among these sentences.
pub(super) fn denials(sentences: &[Quote]) -> Vec<Denial> {
    let read: Vec<(BTreeSet<String>, bool)> =
        sentences.iter().map(|quote| (content(&quote.plain), is_negated(&quote.plain))).collect();
    let mut places: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, (stems, _)) in read.iter().enumerate() {
        for stem in stems {
            places.entry(stem).or_default().push(index);
        }
    }
    let mut found = Vec::new();
    for (index, (stems, negated)) in read.iter().enumerate().filter(|(_, (_, negated))| *negated) {
        let mut candidates: BTreeMap<usize, usize> = BTreeMap::new();
        for stem in stems {
            let others = places.get(stem.as_str()).map_or(&[][..], Vec::as_slice);
            if others.len() <= COMMON_MAX {
                for other in others {
                    *candidates.entry(*other).or_default() += 1;
                }
            }
        }
        for (other, _) in candidates {
            let (Some((others, other_negated)), Some(says), Some(denies)) =
                (read.get(other), sentences.get(other), sentences.get(index))
            else {
                continue;
            };
            let shared = stems.intersection(others).count();
            let least = stems.len().min(others.len());
            let same = shared >= SHARED_MIN && shared * 10 >= least * SHARED_TENTHS;
            if *negated != *other_negated && same && says.source != denies.source && found.len() < DENIALS_MAX {
                found.push(Denial { says: says.clone(), denies: denies.clone() });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(name: &str, text: &str) -> Document {
        Document {
            uri: String::new(),
            name: name.to_owned(),
            media_type: "text/markdown".to_owned(),
            sha256: String::new(),
            text: text.to_owned(),
        }
    }

    fn found(a: &str, b: &str) -> usize {
        denials(&sentences(vec![
            document("a.md", &format!("# A\n\n{a}\n")),
            document("b.md", &format!("# B\n\n{b}\n")),
        ]))
        .len()
    }

    #[test]
    fn the_same_words_with_and_without_a_not_are_a_denial() {
        assert_eq!(
            found("The council approved the new bridge on Monday.", "The council has not approved the new bridge."),
            1
        );
        assert_eq!(
            found("The mill will close in winter for repairs.", "The mill won't close in winter for repairs."),
            1
        );
    }

    #[test]
    fn other_subjects_agreement_and_one_source_are_none() {
        assert_eq!(found("The council approved the new bridge.", "The school has not approved a new roof."), 0);
        assert_eq!(
            found("The council has not approved the new bridge.", "The council never approved the new bridge."),
            0
        );
        let one = document(
            "a.md",
            "# A\n\nThe council approved the new bridge. The council has not approved the new bridge.\n",
        );
        assert_eq!(denials(&sentences(vec![one])), []);
    }
}
