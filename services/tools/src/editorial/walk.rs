//! Going through a work of any shape: which texts in it were written here, and which are words of a source.
//!
//! A work is JSON that a pipeline's step gave. An object that names a source, a start, an end and a text is a quote;
//! what people wrote here stands under a few known keys. Anything else is data and is left alone.

use serde_json::Value;

use crate::briefing::model::Quote;

/// Keys under which prose stands that was written here.
const PROSE: [&str; 12] = [
    "text",
    "lines",
    "introduction",
    "summary",
    "goal",
    "goals",
    "intro",
    "notes",
    "advice",
    "needs",
    "todo",
    "exercise",
];
/// Deepest nesting that is followed. Arguments of a call are never deeper.
const DEPTH_MAX: usize = 64;
/// Most texts that are looked at.
const TEXTS_MAX: usize = 200_000;

/// A text of a work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Prose<'w> {
    /// The keys that lead to it.
    pub(crate) place: String,
    pub(crate) text: &'w str,
    /// It is of a source.
    pub(crate) quoted: bool,
}

/// Whether an object is a quote.
fn is_quote(value: &Value) -> bool {
    ["source", "start", "end", "text"].iter().all(|key| value.get(key).is_some())
}

/// All prose of a work, in order.
pub(crate) fn prose(work: &Value) -> Vec<Prose<'_>> {
    let mut found = Vec::new();
    walk_prose(work, "", false, 0, &mut found);
    found
}

fn walk_prose<'w>(value: &'w Value, place: &str, here: bool, depth: usize, found: &mut Vec<Prose<'w>>) {
    if depth > DEPTH_MAX || found.len() >= TEXTS_MAX {
        return;
    }
    match value {
        Value::String(text) if here => found.push(Prose { place: place.to_owned(), text, quoted: false }),
        Value::Array(all) => {
            for (index, one) in all.iter().enumerate() {
                walk_prose(one, &format!("{place}/{index}"), here, depth + 1, found);
            }
        }
        Value::Object(_) if is_quote(value) => {
            let shown = value.get("plain").or(value.get("text")).and_then(Value::as_str);
            found.extend(shown.map(|text| Prose { place: place.to_owned(), text, quoted: true }));
        }
        Value::Object(members) => {
            for (key, one) in members {
                let inner = if place.is_empty() { key.clone() } else { format!("{place}/{key}") };
                walk_prose(one, &inner, PROSE.contains(&key.as_str()), depth + 1, found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Rewrites the prose of a work that was written here.
pub(crate) fn rewrite(work: &mut Value, edit: &mut impl FnMut(&str, &str) -> String) {
    walk_rewrite(work, "", false, 0, edit);
}

fn walk_rewrite(value: &mut Value, place: &str, here: bool, depth: usize, edit: &mut impl FnMut(&str, &str) -> String) {
    if depth > DEPTH_MAX || is_quote(value) {
        return;
    }
    match value {
        Value::String(text) if here => *text = edit(place, text),
        Value::Array(all) => {
            for (index, one) in all.iter_mut().enumerate() {
                walk_rewrite(one, &format!("{place}/{index}"), here, depth + 1, edit);
            }
        }
        Value::Object(members) => {
            for (key, one) in members.iter_mut() {
                let inner = if place.is_empty() { key.clone() } else { format!("{place}/{key}") };
                walk_rewrite(one, &inner, PROSE.contains(&key.as_str()), depth + 1, edit);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// All quotes of a work, in order, each with its place in the work.
pub(crate) fn quotes(work: &Value) -> Vec<(String, Quote)> {
    let mut found = Vec::new();
    walk_objects(work, "", 0, &mut |place, value| {
        if is_quote(value) && found.len() < TEXTS_MAX {
            found.push((place.to_owned(), as_quote(value)));
            return true;
        }
        false
    });
    found
}

/// Calls on every object of a work; an object for which `of` answers true is not entered.
pub(crate) fn walk_objects(value: &Value, place: &str, depth: usize, of: &mut impl FnMut(&str, &Value) -> bool) {
    if depth > DEPTH_MAX {
        return;
    }
    match value {
        Value::Array(all) => {
            for (index, one) in all.iter().enumerate() {
                walk_objects(one, &format!("{place}/{index}"), depth + 1, of);
            }
        }
        Value::Object(members) => {
            if of(place, value) {
                return;
            }
            for (key, one) in members {
                let inner = if place.is_empty() { key.clone() } else { format!("{place}/{key}") };
                walk_objects(one, &inner, depth + 1, of);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// What is no whole quote becomes one that no source can bear out.
fn as_quote(value: &Value) -> Quote {
    let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let number = |key: &str| value.get(key).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
    Quote {
        source: text("source"),
        start: number("start").unwrap_or(usize::MAX),
        end: number("end").unwrap_or(0),
        text: text("text"),
        plain: text("plain"),
        supports: crate::briefing::model::Supports::Summary,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn prose_is_rewritten_and_quotes_ids_and_data_are_not() {
        let quote = json!({ "source": "a.md", "start": 0, "end": 3, "text": "abc" });
        let mut work =
            json!({ "id": "abc", "text": "abc", "lines": ["abc"], "quote": quote, "data": { "abc": "abc" } });
        rewrite(&mut work, &mut |_, text| text.to_uppercase());
        assert_eq!(
            work,
            json!({ "id": "abc", "text": "ABC", "lines": ["ABC"], "quote": quote, "data": { "abc": "abc" } })
        );
        assert_eq!(quotes(&work).len(), 1);
    }

    #[test]
    fn nesting_without_end_is_left_at_its_bound() {
        let mut deep = json!("x");
        for _ in 0..500 {
            deep = json!({ "text": [deep] });
        }
        assert_eq!(prose(&deep), []);
    }
}
