//! The tone review: words that judge, hedge, exaggerate or hide who says something, each found by a rule that can be read.
//!
//! It changes nothing. What it finds in words of a source is marked as quoted: a quote stays as it is, but an editor may
//! want to choose another one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use regex::Regex;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::walk::{Prose, prose};
use crate::page::counted;

/// Most findings that are listed; all are counted.
pub(crate) const FINDINGS_MAX: usize = 500;
/// Most characters of a text that are shown around a finding.
const AROUND_CHARS: usize = 60;

/// A rule: its code, what is wrong, and its words as patterns.
struct Rule {
    code: &'static str,
    advice: &'static str,
    words: &'static [&'static str],
}

/// The rules, documented in `docs/pipeline-tools.md`.
const RULES: [Rule; 5] = [
    Rule {
        code: "loaded-word",
        advice: "it judges; say what happened instead",
        words: &[
            "regime",
            "slammed?",
            "blasted?",
            "so-called",
            "notorious(?:ly)?",
            "radical",
            "extremists?",
            "scandal(?:ous)?",
            "disgraceful",
            "outrageous",
            "shocking(?:ly)?",
            "shameful",
            "cronies",
            "mob",
            "propaganda",
            "brutal(?:ly)?",
            "heroic(?:ally)?",
            "disastrous(?:ly)?",
            "catastrophic",
            "reckless(?:ly)?",
            "infamous",
            "hysterical",
            "ludicrous",
            "fiasco",
        ],
    },
    Rule {
        code: "hedge",
        advice: "it takes back what it says; say how sure the source is",
        words: &[
            "perhaps",
            "possibly",
            "arguably",
            "presumably",
            "seemingly",
            "apparently",
            "somewhat",
            "sort of",
            "kind of",
            "it (?:seems|appears) that",
            "in a sense",
            "more or less",
            "to some extent",
            "could potentially",
            "may or may not",
        ],
    },
    Rule {
        code: "passive-attribution",
        advice: "nobody is named who says it; name the source",
        words: &[
            r"it (?:is|was|has been) (?:said|claimed|believed|thought|reported|alleged|rumou?red|understood|feared|known)",
            r"(?:is|are|was|were) (?:widely |generally |often )?(?:said|believed|thought|alleged|rumou?red|considered|regarded|seen) (?:to|as)",
            "reportedly",
            "allegedly",
            "critics (?:say|claim)",
            "sources (?:say|claim)",
            "experts (?:say|agree|believe)",
            "many (?:people )?(?:say|believe|think)",
            "some (?:people )?(?:say|believe|think)",
            "observers (?:say|note)",
        ],
    },
    Rule {
        code: "absolute",
        advice: "it leaves no exception; check whether there is none",
        words: &[
            "always",
            "never",
            "everybody",
            "everyone",
            "nobody",
            "no one",
            "undoubtedly",
            "undeniabl[ey]",
            "certainly",
            "obviously",
            "clearly",
            "without (?:a )?doubt",
            "all experts",
            "completely",
            "totally",
        ],
    },
    Rule {
        code: "exaggeration",
        advice: "it is louder than a fact; give the figure",
        words: &[
            "huge",
            "massive(?:ly)?",
            "skyrocket(?:ed|ing)?",
            "plummet(?:ed|ing)?",
            "soar(?:ed|ing)?",
            "dramatic(?:ally)?",
            "explosive",
            "staggering",
            "unbelievable",
            "historic",
            "unprecedented",
            "game[- ]changing",
            "revolutionary",
            "stunning",
            "incredibl[ey]",
            "amazing(?:ly)?",
        ],
    },
];

static PATTERNS: LazyLock<Vec<(&'static Rule, Regex)>> = LazyLock::new(|| {
    let pattern = |rule: &'static Rule| {
        Regex::new(&format!(r"(?i)\b(?:{})\b", rule.words.join("|"))).ok().map(|pattern| (rule, pattern))
    };
    RULES.iter().filter_map(pattern).collect()
});

/// One thing an editor should look at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Finding {
    /// Where in the work, such as `points/2/summary`.
    pub(crate) place: String,
    /// Which rule.
    pub(crate) rule: String,
    /// The words.
    pub(crate) words: String,
    /// The words with what stands around them.
    pub(crate) around: String,
    /// What to do about it.
    pub(crate) advice: String,
    /// True if a source says it.
    pub(crate) quoted: bool,
}

/// What the review found.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Tone {
    /// At most [`FINDINGS_MAX`].
    pub(crate) findings: Vec<Finding>,
    /// Rule to how often it was broken.
    pub(crate) counts: BTreeMap<String, usize>,
    /// True if nothing was found in what was written here.
    pub(crate) clear: bool,
}

impl Tone {
    /// The result in a sentence.
    pub(crate) fn in_words(&self) -> String {
        let all: usize = self.counts.values().sum();
        if all == 0 {
            return "The tone review found nothing.".to_owned();
        }
        let rules: Vec<String> = self.counts.iter().map(|(rule, count)| format!("{rule} {count}")).collect();
        format!("The tone review has {}: {}.", counted(all, "finding", "findings"), rules.join(", "))
    }
}

/// Reviews every text of a work.
pub(crate) fn review(work: &Value) -> Tone {
    let mut tone = Tone { clear: true, ..Tone::default() };
    // A quote that stands in two places is looked at once.
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for Prose { place, text, quoted } in prose(work) {
        if !seen.insert(text) {
            continue;
        }
        for (rule, pattern) in PATTERNS.iter() {
            for found in pattern.find_iter(text) {
                *tone.counts.entry(rule.code.to_owned()).or_default() += 1;
                tone.clear &= quoted;
                if tone.findings.len() < FINDINGS_MAX {
                    tone.findings.push(Finding {
                        place: place.clone(),
                        rule: rule.code.to_owned(),
                        words: found.as_str().to_owned(),
                        around: around(text, found.start(), found.end()),
                        advice: rule.advice.to_owned(),
                        quoted,
                    });
                }
            }
        }
    }
    tone
}

fn around(text: &str, start: usize, end: usize) -> String {
    let before = text.get(..start).unwrap_or_default();
    let after = text.get(end..).unwrap_or_default();
    let from = before.char_indices().rev().nth(AROUND_CHARS).map(|(at, _)| at);
    let to = after.char_indices().nth(AROUND_CHARS).map(|(at, _)| at);
    let (head, tail) = (if from.is_some() { "…" } else { "" }, if to.is_some() { "…" } else { "" });
    let from = from.unwrap_or(0);
    let to = end + to.unwrap_or(after.len());
    format!("{head}{}{tail}", text.get(from..to).unwrap_or_default().trim())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_rule_finds_its_words_and_says_what_to_do() {
        let work = json!({ "summary": [
            "The regime slammed the plan.", "It is arguably late.", "It is said to be late; critics say so.",
            "They never came.", "A huge crowd.", "The council met on Monday and counted 40 votes.",
        ]});
        let tone = review(&work);
        let rows: Vec<(&str, &str)> = tone.findings.iter().map(|f| (f.rule.as_str(), f.words.as_str())).collect();
        assert_eq!(
            rows,
            [
                ("loaded-word", "regime"),
                ("loaded-word", "slammed"),
                ("hedge", "arguably"),
                ("passive-attribution", "It is said"),
                ("passive-attribution", "critics say"),
                ("absolute", "never"),
                ("exaggeration", "huge"),
            ]
        );
        assert!(!tone.clear);
    }

    #[test]
    fn what_a_source_says_is_marked_and_does_not_spoil_the_text() {
        let quote = json!({ "source": "a.md", "start": 0, "end": 5, "text": "A huge crowd", "plain": "A huge crowd" });
        let tone = review(&json!({ "points": [{ "quote": quote }] }));
        assert!(tone.clear && tone.findings[0].quoted, "{tone:?}");
    }
}
