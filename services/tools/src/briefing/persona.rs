//! The tone policy `lilith.scribe`: plain sentences, no praise, no exclamation marks.
//!
//! It edits only what was written here. Words of a source, whether between quotation marks or in code, and addresses
//! are left as they are: a quote that was edited would be none.

use std::ops::Range;
use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde::{Deserialize, Serialize};

use super::compose::Draft;
use super::safe::cut;

/// The persona whose policy this is.
pub const PERSONA: &str = "lilith.scribe";
/// Longest text that is edited in one call, in bytes.
pub const TEXT_BYTES_MAX: usize = 256 * 1024;
/// Most changes that are reported; all are made.
const CHANGES_MAX: usize = 200;
/// Longest narration, in bytes.
const NARRATION_BYTES_MAX: usize = 6_000;

/// One thing that was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// Which text.
    pub place: String,
    /// `hype`, `filler` or `exclamation`.
    pub rule: String,
    /// What stood there.
    pub before: String,
    /// What stands there now.
    pub after: String,
}

/// Words of praise that say nothing, as patterns.
const HYPE: [&str; 21] = [
    "revolutionary",
    "game[- ]changing",
    "ground-?breaking",
    "cutting[- ]edge",
    "state[- ]of[- ]the[- ]art",
    "world[- ]class",
    "best[- ]in[- ]class",
    "next[- ]generation",
    "amazing(?:ly)?",
    "incredibl[ey]",
    "awesome",
    "exciting(?:ly)?",
    "stunning",
    "unprecedented",
    "seamless(?:ly)?",
    "effortless(?:ly)?",
    "blazing(?:ly)?[- ]?fast",
    "mind-?blowing",
    "must-have",
    "delighted",
    "thrilled",
];

const FILLERS: &str = "very|really|truly|literally|basically|simply put,|needless to say,|of course,";

/// Rule, pattern, replacement.
static RULES: LazyLock<Vec<(&'static str, Regex, &'static str)>> = LazyLock::new(|| {
    let rules = [
        ("hype", format!(r"(?i)\b(?:{})\b\s*", HYPE.join("|")), ""),
        ("filler", format!(r"(?i)\b(?:{FILLERS})\s+"), ""),
        ("exclamation", "!+".to_owned(), "."),
    ];
    rules.into_iter().filter_map(|(rule, pattern, to)| Regex::new(&pattern).ok().map(|p| (rule, p, to))).collect()
});

static PROTECTED: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r#"`[^`]*`|“[^”]*”|"[^"]*"|«[^»]*»|(?m)^>.*$|https?://\S+"#).ok());

/// Applies the policy to one text.
pub fn edit(place: &str, text: &str, changes: &mut Vec<Change>) -> String {
    let mut text = text.to_owned();
    for (rule, pattern, to) in RULES.iter() {
        let protected = protected(&text);
        let replaced = pattern.replace_all(&text, |found: &Captures<'_>| {
            let whole = found.get_match();
            let inside = protected.iter().any(|range| range.start < whole.end() && whole.start() < range.end);
            if inside {
                return whole.as_str().to_owned();
            }
            if changes.len() < CHANGES_MAX {
                changes.push(Change {
                    place: place.to_owned(),
                    rule: (*rule).to_owned(),
                    before: whole.as_str().to_owned(),
                    after: (*to).to_owned(),
                });
            }
            (*to).to_owned()
        });
        text = replaced.into_owned();
    }
    text
}

fn protected(text: &str) -> Vec<Range<usize>> {
    PROTECTED.as_ref().map(|pattern| pattern.find_iter(text).map(|found| found.range()).collect()).unwrap_or_default()
}

/// Applies the policy to every sentence of a draft that was written here, and to nothing else.
pub fn edit_draft(draft: &mut Draft) -> Vec<Change> {
    let mut changes = Vec::new();
    for (index, line) in draft.glance.iter_mut().enumerate() {
        *line = edit(&format!("glance {}", index + 1), line, &mut changes);
    }
    for section in &mut draft.sections {
        for line in &mut section.intro {
            *line = edit(&format!("section {}", section.heading), line, &mut changes);
        }
    }
    for group in &mut draft.actions {
        group.heading = edit("actions", &group.heading, &mut changes);
    }
    for item in &mut draft.items {
        if let Some(action) = &mut item.action {
            action.text = edit(&format!("what to do about {}", item.id), &action.text, &mut changes);
        }
    }
    changes
}

/// The pack to be read aloud: the glance and the headlines, without marks that are only for the eye.
pub fn narration(draft: &Draft) -> String {
    let mut text = format!("{}.\n{}\n", draft.title, draft.glance.join(" "));
    for section in &draft.sections {
        text.push_str(&format!("\n{}.\n", section.heading));
        for item in draft.items.iter().filter(|item| section.items.contains(&item.id)) {
            let title = item.title.trim_end_matches('.');
            let action = item.action.as_ref().map(|action| format!(" {}", action.text)).unwrap_or_default();
            text.push_str(&format!("{title}.{action}\n"));
            if text.len() > NARRATION_BYTES_MAX {
                return cut(&text, NARRATION_BYTES_MAX).replace('`', "");
            }
        }
    }
    text.replace('`', "")
}

/// What a picture for the cover is asked for. It names no source, so that nothing of one can steer it.
pub fn cover_prompt(draft: &Draft) -> String {
    format!("A calm, abstract cover for a briefing of {} items. No text, no logos, no people.", draft.items.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edited(text: &str) -> (String, Vec<String>) {
        let mut changes = Vec::new();
        let text = edit("text", text, &mut changes);
        (text, changes.into_iter().map(|change| change.rule).collect())
    }

    #[test]
    fn praise_fillers_and_exclamation_marks_go() {
        let (text, rules) = edited("An amazing release, truly fast!! Use it.");
        assert_eq!(text, "An release, fast. Use it.");
        assert_eq!(rules, ["hype", "filler", "exclamation"]);
    }

    #[test]
    fn quotes_code_and_addresses_are_never_edited() {
        for text in [
            "They say “An amazing tool!” today.",
            "Use `amazing!` now.",
            "> Amazing!\nplain",
            "See https://x.example/amazing! next.",
            "It is \"revolutionary!\" they say.",
        ] {
            assert_eq!(edited(text), (text.to_owned(), Vec::new()));
        }
    }

    #[test]
    fn a_plain_text_stays_as_it_is() {
        let text = "Upgrade `paperkite` to `>= 2.0.0`.";
        assert_eq!(edited(text), (text.to_owned(), Vec::new()));
    }
}
