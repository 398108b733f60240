//! Days, numbers and versions in a sentence: the things two sources can disagree about.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use super::dates;
use super::model::FigureKind;
use super::prose::{Word, is_stop, stem, words};

static VERSION: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^[vV]?(\d{1,6}\.\d{1,6}(?:\.\d{1,6}){0,2}(?:-[0-9A-Za-z.]{1,24})?)$").ok());

/// Words of scale after a number.
const SCALES: [(&str, u64); 3] = [("thousand", 1_000), ("million", 1_000_000), ("billion", 1_000_000_000)];
const NUMBER_WORDS: [&str; 13] =
    ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"];
const HEDGES: [&str; 14] = [
    "about",
    "approximately",
    "around",
    "roughly",
    "nearly",
    "almost",
    "some",
    "circa",
    "over",
    "than",
    "least",
    "most",
    "up",
    "estimated",
];

/// A figure of a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Figure {
    /// Where it stands.
    pub(crate) range: Range<usize>,
    pub(crate) kind: FigureKind,
    /// In one spelling.
    pub(crate) value: String,
    /// For a number what is counted, as a stem; for a version whose it is, lower case.
    pub(crate) unit: Option<String>,
    /// "About" and the like stand before it.
    pub(crate) hedged: bool,
}

/// All figures of a sentence, in order.
pub(crate) fn figures(text: &str) -> Vec<Figure> {
    let days = dates::find(text);
    let words = words(text);
    let mut found: Vec<Figure> = days
        .iter()
        .map(|day| Figure {
            range: day.range.clone(),
            kind: FigureKind::Date,
            value: day.value(),
            unit: None,
            hedged: hedged(text, &words, day.range.start),
        })
        .collect();
    for (index, word) in words.iter().enumerate() {
        let next = days.partition_point(|day| day.range.end <= word.range.start);
        if days.get(next).is_some_and(|day| day.range.start < word.range.end) {
            continue;
        }
        found.extend(version(text, &words, index).or_else(|| number(text, &words, index)));
    }
    found.sort_by_key(|figure| figure.range.start);
    found
}

fn version(text: &str, words: &[Word], index: usize) -> Option<Figure> {
    let word = &words[index];
    let raw = word.text(text);
    let value = VERSION.as_ref()?.captures(raw)?.get(1)?.as_str();
    let marked = raw.starts_with(['v', 'V']) || value.matches('.').count() >= 2 || word.is_code;
    let before = index.checked_sub(1).map(|before| &words[before]).filter(|before| adjacent(text, before, word));
    // "Rust 1.85": the name before a version is whose version it is.
    let name = before.filter(|before| is_name(text, before)).map(|before| before.text(text).to_lowercase());
    let cue = before.is_some_and(|before| {
        matches!(before.text(text).to_ascii_lowercase().as_str(), "version" | "versions" | "release" | "releases")
    });
    let compared = text[..word.range.start].trim_end().ends_with(['>', '<', '=', '^', '~']);
    let after = words.get(index + 1).filter(|after| adjacent(text, word, after));
    let scaled = after.is_some_and(|after| {
        let after = after.text(text).to_ascii_lowercase();
        SCALES.iter().any(|(scale, _)| *scale == after) || matches!(after.as_str(), "percent" | "per" | "points")
    }) || text[word.range.end..].starts_with('%');
    let is_version = !scaled && (marked || cue || compared || name.is_some());
    is_version.then(|| Figure {
        range: word.range.clone(),
        kind: FigureKind::Version,
        value: value.to_owned(),
        unit: name.filter(|name| name != "version"),
        hedged: hedged(text, words, word.range.start),
    })
}

fn number(text: &str, words: &[Word], index: usize) -> Option<Figure> {
    let word = &words[index];
    let raw = word.text(text);
    if word.is_code {
        return None;
    }
    let mut value = plain_number(raw)?;
    let mut end = word.range.end;
    let mut next = index + 1;
    let scale = words.get(next).and_then(|word| {
        let name = word.text(text).to_ascii_lowercase();
        SCALES.iter().find(|(scale, _)| *scale == name).map(|(_, factor)| *factor)
    });
    if let Some(factor) = scale {
        value = scaled(&value, factor)?;
        end = words[next].range.end;
        next += 1;
    }
    let unit = if text[end..].starts_with('%') {
        end += 1;
        Some("percent".to_owned())
    } else {
        // What is counted is the last plain word of a short run: "14 new server nodes" counts nodes.
        let mut unit = None;
        for word in words[next..].iter().take(3) {
            let gap = &text[end..word.range.start];
            let plain = word.text(text);
            let lower = plain.to_lowercase();
            let ends = gap.trim() != "" || word.is_code || is_stop(&lower) || !plain.chars().all(char::is_alphabetic);
            if ends {
                break;
            }
            end = word.range.end;
            unit = Some(stem(&lower));
            if lower.ends_with('s') {
                break;
            }
        }
        Some(unit?)
    };
    Some(Figure {
        range: word.range.start..end,
        kind: FigureKind::Number,
        value,
        unit,
        hedged: hedged(text, words, word.range.start),
    })
}

/// A number without its thousands separators; number words up to twelve, except "one", which rarely counts.
fn plain_number(raw: &str) -> Option<String> {
    let lower = raw.to_ascii_lowercase();
    if let Some(number) = NUMBER_WORDS.iter().position(|word| *word == lower) {
        return (number != 1).then(|| number.to_string());
    }
    let digits: String = raw.chars().filter(|c| *c != ',').collect();
    let (whole, part) = digits.split_once('.').unwrap_or((&digits, "0"));
    let is_number = |text: &str| !text.is_empty() && text.len() <= 15 && text.bytes().all(|b| b.is_ascii_digit());
    if !is_number(whole) || !is_number(part) {
        return None;
    }
    // A lone year is no amount, and a day of the month was read before.
    let whole = whole.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    let part = part.trim_end_matches('0');
    Some(if part.is_empty() { whole.to_owned() } else { format!("{whole}.{part}") })
}

/// `2.5` and a million give `2500000`.
fn scaled(value: &str, factor: u64) -> Option<String> {
    let (whole, part) = value.split_once('.').unwrap_or((value, ""));
    let places = factor.ilog10() as usize;
    if part.len() > places {
        return None;
    }
    let digits = format!("{whole}{part}{}", "0".repeat(places - part.len()));
    let digits = digits.trim_start_matches('0');
    Some(if digits.is_empty() { "0".to_owned() } else { digits.to_owned() })
}

fn hedged(text: &str, words: &[Word], at: usize) -> bool {
    let before = &words[..words.partition_point(|word| word.range.end <= at)];
    before.iter().rev().take(2).any(|word| HEDGES.contains(&word.text(text).to_ascii_lowercase().as_str()))
        || text[..at].trim_end().ends_with('~')
}

fn adjacent(text: &str, before: &Word, after: &Word) -> bool {
    text[before.range.end..after.range.start].chars().all(|c| c.is_whitespace() || matches!(c, '`' | 'v'))
}

/// Whether a word is written like a name: code, or with a capital, and no day, month or sentence opener.
pub(crate) fn is_name(text: &str, word: &Word) -> bool {
    const NEVER: [&str; 20] = [
        "january",
        "february",
        "march",
        "april",
        "june",
        "july",
        "august",
        "september",
        "october",
        "november",
        "december",
        "monday",
        "tuesday",
        "wednesday",
        "thursday",
        "friday",
        "saturday",
        "sunday",
        "version",
        "release",
    ];
    let raw = word.text(text);
    let lower = raw.to_lowercase();
    let written = word.is_code || raw.chars().next().is_some_and(char::is_uppercase);
    let lettered = raw.chars().filter(|c| c.is_alphabetic()).count() >= 2;
    written && lettered && !is_stop(&lower) && !NEVER.contains(&lower.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &str) -> Vec<(FigureKind, String, Option<String>, bool)> {
        figures(text).into_iter().map(|f| (f.kind, f.value, f.unit, f.hedged)).collect()
    }
    fn row(
        kind: FigureKind,
        value: &str,
        unit: Option<&str>,
        hedged: bool,
    ) -> (FigureKind, String, Option<String>, bool) {
        (kind, value.to_owned(), unit.map(str::to_owned), hedged)
    }

    #[test]
    fn days_numbers_and_versions_are_told_apart() {
        use FigureKind::{Date, Number, Version};
        assert_eq!(
            rows("Larkspur 3.0 ships on 14 September 2026 with 1,240 tests and needs Rust 1.85."),
            [
                row(Version, "3.0", Some("larkspur"), false),
                row(Date, "2026-09-14", None, false),
                row(Number, "1240", Some("test"), false),
                row(Version, "1.85", Some("rust"), false),
            ]
        );
        assert_eq!(rows("about 2.5 million people"), [row(Number, "2500000", Some("peopl"), true)]);
        assert_eq!(
            rows("It rose by 7.5% to two versions"),
            [row(Number, "7.5", Some("percent"), false), row(Number, "2", Some("version"), false)]
        );
    }

    #[test]
    fn a_version_may_carry_a_v_a_comparison_or_stand_in_code() {
        use FigureKind::Version;
        assert_eq!(rows("Patched in v0.4.16."), [row(Version, "0.4.16", None, false)]);
        assert_eq!(rows("starting with version `0.45.0`"), [row(Version, "0.45.0", None, false)]);
        assert_eq!(rows("use >= 1.2"), [row(Version, "1.2", None, false)]);
    }

    #[test]
    fn ids_lone_numbers_and_code_are_no_figures() {
        for text in ["RUSTSEC-2026-0236", "CWE-415 is one of them", "`1 << 33554399`", "in 2026.", "a 86th time"] {
            assert_eq!(rows(text), [], "{text}");
        }
    }

    #[test]
    fn hostile_numbers_do_not_overflow() {
        assert_eq!(rows(&format!("{} billion tests", "9".repeat(40))), []);
        assert_eq!(rows("999999999999999 billion tests").len(), 1);
    }
}
