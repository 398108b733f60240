//! From sentences to claims: each figure a document gives, of whom it says it, and in what respect.

use std::collections::{BTreeMap, BTreeSet};

use super::figures::{Figure, figures, is_name};
use super::model::{CLAIMS_PER_ITEM_MAX, Claim, FigureKind, Item, Supports};
use super::prose::{is_stop, stem, words};
use super::quote::Quotable;
use super::select::Sentence;

/// How many words before and after a figure tell in what respect it is said.
const CONTEXT_BEFORE: usize = 9;
const CONTEXT_AFTER: usize = 5;
/// Most names of one sentence.
const NAMES_MAX: usize = 64;
/// Most subjects of one document.
const SUBJECTS_MAX: usize = 4;

/// The names a text is about: those of its title that come up again, else those of its title, else its commonest.
pub(crate) fn subjects(title: &str, sentences: &[Sentence<'_>]) -> Vec<String> {
    // Here the first word of a sentence counts too: what is written like a name again and again is one.
    let mut written: BTreeMap<String, usize> = BTreeMap::new();
    for sentence in sentences {
        let text = sentence.text();
        for word in words(text).into_iter().filter(|word| is_name(text, word)) {
            *written.entry(word.text(text).to_lowercase()).or_default() += 1;
        }
    }
    let set: BTreeSet<String> = written.keys().cloned().collect();
    let titled = names(title, &set);
    let mut chosen: Vec<String> = titled.iter().filter(|name| set.contains(*name)).cloned().collect();
    if chosen.is_empty() {
        chosen = titled;
    }
    if chosen.is_empty() {
        let repeated = written.iter().filter(|(_, count)| **count > 1);
        let commonest = repeated.max_by_key(|(name, count)| (**count, std::cmp::Reverse(*name)));
        chosen.extend(commonest.map(|(name, _)| name.clone()));
    }
    chosen.dedup();
    chosen.truncate(SUBJECTS_MAX);
    chosen
}

/// The names of a sentence, lower case. Its first word counts only if it is code or known as a name from elsewhere.
fn names(text: &str, known: &BTreeSet<String>) -> Vec<String> {
    let mut found = Vec::new();
    for (index, word) in words(text).into_iter().enumerate() {
        let lower = word.text(text).to_lowercase();
        if is_name(text, &word) && (index > 0 || word.is_code || known.contains(&lower)) && !found.contains(&lower) {
            found.push(lower);
        }
        if found.len() >= NAMES_MAX {
            break;
        }
    }
    found
}

/// The claims of an item, in the order of its sentences. Ids are given later, when all items are known.
pub(crate) fn claims(item: &Item, sentences: &[Sentence<'_>], source: Quotable<'_>) -> Vec<Claim> {
    let known: BTreeSet<String> = sentences
        .iter()
        .flat_map(|sentence| names(sentence.text(), &BTreeSet::new()))
        .chain(item.subjects.iter().cloned())
        .collect();
    let mut claims = Vec::new();
    for sentence in sentences {
        let text = sentence.text();
        let figures = figures(text);
        if figures.is_empty() {
            continue;
        }
        let Some(quote) = source.quote(sentence.block, sentence.range.clone(), Supports::Summary) else { continue };
        // The rest of a sentence that was too long to quote is not claimed either.
        let quoted = quote.plain.trim_end_matches('…').len();
        let owners: BTreeSet<&String> = figures.iter().filter_map(|figure| figure.unit.as_ref()).collect();
        let named: Vec<String> = names(text, &known)
            .into_iter()
            .filter(|name| !owners.contains(name) || item.subjects.contains(name))
            .collect();
        let own = named.is_empty() || begins_with_itself(text) && !item.subjects.is_empty();
        let said_of = if own { item.subjects.clone() } else { named.clone() };
        let release = figures
            .iter()
            .find(|f| f.kind == FigureKind::Version && f.unit.as_ref().is_some_and(|of| said_of.contains(of)))
            .map(|figure| figure.value.clone());
        for figure in figures.iter().filter(|figure| figure.range.end <= quoted) {
            if claims.len() >= CLAIMS_PER_ITEM_MAX {
                return claims;
            }
            claims.push(Claim {
                id: String::new(),
                item: item.id.clone(),
                kind: figure.kind,
                value: figure.value.clone(),
                unit: figure.unit.clone(),
                subjects: antecedent(text, figure).map_or_else(|| said_of.clone(), |name| vec![name]),
                release: release.clone(),
                context: context(text, figure, &figures, &named),
                hedged: figure.hedged,
                text: quote.plain.clone(),
                quote: quote.clone(),
            });
        }
    }
    claims
}

/// "This crate's minimum supported `rustc` version" is said of the crate, whatever else the sentence names.
fn begins_with_itself(text: &str) -> bool {
    let first = text.split_whitespace().next().unwrap_or_default().to_lowercase();
    matches!(first.as_str(), "this" | "these" | "it" | "its" | "we" | "our")
}

/// The name right before ", which" is what the rest of the sentence is about.
fn antecedent(text: &str, figure: &Figure) -> Option<String> {
    let before = text.get(..figure.range.start)?;
    let clause = [", which ", ", who "].iter().filter_map(|word| before.rfind(word)).max()?;
    let head = before.get(..clause)?;
    let last = words(head).pop()?;
    let ends_there = head.get(last.range.end..).is_some_and(|rest| rest.chars().all(|c| c == '`'));
    (ends_there && is_name(head, &last)).then(|| last.text(head).to_lowercase())
}

/// Stems of the words around a figure, without names and other figures, sorted.
fn context(text: &str, figure: &Figure, figures: &[Figure], names: &[String]) -> Vec<String> {
    let all = words(text);
    let inside = |range: &std::ops::Range<usize>, at: usize| range.start <= at && at < range.end;
    let before = all.iter().rev().filter(|word| word.range.end <= figure.range.start).take(CONTEXT_BEFORE);
    let after = all.iter().filter(|word| word.range.start >= figure.range.end).take(CONTEXT_AFTER);
    let stems: BTreeSet<String> = before
        .chain(after)
        .filter(|word| !figures.iter().any(|other| inside(&other.range, word.range.start)))
        .map(|word| word.text(text).to_lowercase())
        .filter(|word| {
            !is_stop(word)
                && !names.contains(word)
                && figure.unit.as_ref() != Some(word)
                && word.chars().any(char::is_alphabetic)
        })
        .map(|word| stem(&word))
        .collect();
    stems.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::briefing::read::markdown;
    use crate::briefing::select;

    const SOURCE: &str = "# Larkspur gets a date\n\nThe Larkspur team met again. Larkspur 3.0 ships on 14 September \
                          2026. It needs Rust 1.85 at least. Volunteers of Petrel wrote 12 guides. \
                          It thanks `rustdoc`, which counted 40 pages, and `rustc` for 7 warnings.\n";

    /// Value, subjects, release, context.
    type Row = (String, Vec<String>, Option<String>, Vec<String>);

    fn rows() -> Vec<Row> {
        let blocks = markdown::blocks(SOURCE, 0);
        let sentences = select::all(&blocks);
        let mut item = crate::briefing::extract::blank("a.md", "a.md");
        item.subjects = subjects("Larkspur gets a date", &sentences);
        let claims = claims(&item, &sentences, Quotable { name: "a.md", text: SOURCE });
        assert!(claims.iter().all(|claim| SOURCE[claim.quote.start..claim.quote.end] == claim.quote.text));
        claims.into_iter().map(|claim| (claim.value, claim.subjects, claim.release, claim.context)).collect()
    }

    fn list(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn each_figure_is_said_of_the_named_subject_or_else_of_the_documents() {
        assert_eq!(
            rows(),
            [
                ("3.0".to_owned(), list(&["larkspur"]), Some("3.0".to_owned()), list(&["releas"])),
                ("2026-09-14".to_owned(), list(&["larkspur"]), Some("3.0".to_owned()), list(&["releas"])),
                ("1.85".to_owned(), list(&["larkspur"]), None, list(&["requir"])),
                ("12".to_owned(), list(&["petrel"]), None, list(&["volunteer", "wrot"])),
                ("40".to_owned(), list(&["rustdoc"]), None, list(&["count", "thank"])),
                ("7".to_owned(), list(&["rustdoc"]), None, list(&["count", "thank"])),
            ]
        );
    }
}
