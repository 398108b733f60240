//! The head of a Markdown file: a fenced `toml` block, `+++` TOML, or `---` lines of `key: value`.
//!
//! Heads are written by hand, so a field of an unexpected type is not taken, and the rest of the head is used. Each
//! field knows where it stands, because what is said from a head is quoted like any other sentence.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// How a file begins.
#[derive(Debug)]
pub(crate) enum Head<'s> {
    /// No head.
    Absent,
    /// TOML, and where the text after it begins.
    Toml(TomlHead<'s>, usize),
    /// Lines of `key: value`, and where the text after them begins.
    Lines(Vec<(String, String)>, usize),
    /// It begins like a TOML head but is none; why.
    Broken(String),
}

/// Reads the head of a text.
pub(crate) fn read(source: &str) -> Head<'_> {
    let start = source.len() - source.trim_start_matches('\u{feff}').trim_start().len();
    let rest = &source[start..];
    let fences = [("```toml", "```"), ("~~~toml", "~~~"), ("+++", "+++"), ("---", "---")];
    let Some((open, close)) = fences.into_iter().find(|(open, _)| first_line(rest).trim_end() == *open) else {
        return Head::Absent;
    };
    let body_at = start + first_line(rest).len();
    let Some((body, after)) = until_line(source, body_at, close) else {
        // `---` may be a rule, and an example may begin with a fence; only an advisory's head must be whole.
        let is_head = open != "---" && source[body_at..].trim_start().starts_with("[advisory]");
        return if is_head { Head::Broken(format!("its head has no closing `{close}` line")) } else { Head::Absent };
    };
    if open == "---" {
        return Head::Lines(lines(body), after);
    }
    match DeTable::parse(body) {
        Ok(table) => Head::Toml(TomlHead { source, at: body_at, table }, after),
        Err(_) if !body.contains("[advisory]") && open != "+++" => Head::Absent,
        Err(error) => Head::Broken(format!("its head is not TOML: {}", error.message())),
    }
}

fn first_line(text: &str) -> &str {
    text.split_inclusive('\n').next().unwrap_or_default()
}

/// The text from `at` to a line that is `close`, and where the next line begins.
fn until_line<'s>(source: &'s str, at: usize, close: &str) -> Option<(&'s str, usize)> {
    let mut position = at;
    for line in source.get(at..)?.split_inclusive('\n') {
        if line.trim_end() == close {
            return Some((&source[at..position], position + line.len()));
        }
        position += line.len();
    }
    None
}

/// Top-level `key: value` lines; quotes around a value are taken off.
fn lines(body: &str) -> Vec<(String, String)> {
    let field = |line: &str| {
        let (key, value) = line.split_once(':')?;
        let key = key.trim_end();
        let plain = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
        let value = value.trim().trim_matches(['"', '\'']).trim();
        (plain && !value.is_empty()).then(|| (key.to_ascii_lowercase(), value.to_owned()))
    };
    body.lines().filter_map(field).take(64).collect()
}

/// A TOML head with its place in the source.
#[derive(Debug)]
pub(crate) struct TomlHead<'s> {
    source: &'s str,
    at: usize,
    table: Spanned<DeTable<'s>>,
}

impl<'s> TomlHead<'s> {
    /// Whether the table is there.
    pub(crate) fn has(&self, table: &str) -> bool {
        self.table(&[table]).is_some()
    }
    /// Whether a field is there, whatever its type.
    pub(crate) fn has_field(&self, path: &[&str]) -> bool {
        self.value(path).is_some()
    }
    /// A field of text. A TOML date counts as its text.
    pub(crate) fn text(&self, path: &[&str]) -> Option<String> {
        match self.value(path)?.get_ref() {
            DeValue::String(text) => Some(text.to_string()),
            DeValue::Datetime(moment) => Some(moment.to_string()),
            DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_) | DeValue::Array(_) | DeValue::Table(_) => {
                None
            }
        }
    }
    /// A list of texts; a single text counts as a list of one, and what is no text is left out.
    pub(crate) fn list(&self, path: &[&str]) -> Vec<String> {
        self.value(path).map(|value| texts(value.get_ref())).unwrap_or_default()
    }
    /// The lists of a table, by key.
    pub(crate) fn lists(&self, path: &[&str]) -> Vec<(String, Vec<String>)> {
        let Some(table) = self.table(path) else { return Vec::new() };
        table.iter().map(|(key, value)| (key.get_ref().to_string(), texts(value.get_ref()))).collect()
    }
    /// The whole line, or lines, in which a field stands.
    pub(crate) fn line(&self, path: &[&str]) -> Option<Range<usize>> {
        let span = self.value(path)?.span();
        let (start, end) = (self.at + span.start, self.at + span.end);
        let line = self.source.get(..start)?.rfind('\n').map_or(0, |position| position + 1);
        Some(line.max(self.at)..end)
    }
    /// The entry of a table whose keys are paths, such as `"a::b" = [..]`.
    pub(crate) fn first_line_of_table(&self, path: &[&str]) -> Option<Range<usize>> {
        let table = self.table(path)?;
        let first =
            table.iter().map(|(key, value)| key.span().start..value.span().end).min_by_key(|span| span.start)?;
        Some(self.at + first.start..self.at + first.end)
    }

    fn table(&self, path: &[&str]) -> Option<&DeTable<'s>> {
        let mut table = self.table.get_ref();
        for key in path {
            table = table.get(*key)?.get_ref().as_table()?;
        }
        Some(table)
    }

    fn value(&self, path: &[&str]) -> Option<&Spanned<DeValue<'s>>> {
        let (last, tables) = path.split_last()?;
        self.table(tables)?.get(*last)
    }
}

fn texts(value: &DeValue<'_>) -> Vec<String> {
    match (value.as_str(), value.as_array()) {
        (Some(text), _) => vec![text.to_owned()],
        (None, Some(list)) => {
            list.iter().filter_map(|entry| entry.get_ref().as_str().map(str::to_owned)).take(256).collect()
        }
        (None, None) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FENCED: &str = "```toml\n[advisory]\nid = \"DEMO-1\"\ndate = 2026-08-01\nodd = 3\n\n[versions]\n\
                          patched = [\n  \">= 1.0.0\",\n]\n```\n\n# Title\n";

    #[test]
    fn a_fenced_head_gives_texts_dates_and_lists_and_says_where_they_stand() {
        let Head::Toml(head, after) = read(FENCED) else { panic!("a TOML head") };
        assert_eq!(head.text(&["advisory", "id"]).as_deref(), Some("DEMO-1"));
        assert_eq!(head.text(&["advisory", "date"]).as_deref(), Some("2026-08-01"));
        assert_eq!(head.list(&["versions", "patched"]), [">= 1.0.0"]);
        assert_eq!(head.line(&["versions", "patched"]).map(|r| &FENCED[r]), Some("patched = [\n  \">= 1.0.0\",\n]"));
        assert_eq!(&FENCED[after..], "\n# Title\n");
    }

    #[test]
    fn a_field_of_an_odd_type_is_not_taken_and_the_rest_is_used() {
        let Head::Toml(head, _) = read(FENCED) else { panic!("a TOML head") };
        assert_eq!(head.text(&["advisory", "odd"]), None);
        assert!(head.has_field(&["advisory", "odd"]));
        assert_eq!(head.text(&["advisory", "missing"]), None);
        assert!(!head.has("affected"));
    }

    #[test]
    fn other_heads_are_read_too_with_a_byte_order_mark_and_windows_line_ends() {
        let Head::Lines(fields, after) = read("\u{feff}---\r\ntitle: \"A: b\"\r\nDate: 2026-08-01\r\n---\r\nText")
        else {
            panic!("lines")
        };
        assert_eq!(fields, [("title".into(), "A: b".into()), ("date".into(), "2026-08-01".into())]);
        assert_eq!(after, 46);
        assert!(matches!(read("+++\ntitle = \"x\"\n+++\nText"), Head::Toml(..)));
    }

    #[test]
    fn a_broken_head_says_why_and_an_example_in_a_text_is_no_head() {
        let broken = |text: &str| {
            let Head::Broken(why) = read(text) else { panic!("not broken: {text}") };
            why
        };
        assert!(broken("```toml\n[advisory]\nid = \"x\n```\n").starts_with("its head is not TOML"));
        assert!(broken("```toml\n[advisory]\nid = \"x\"\n").starts_with("its head has no closing"));
        assert!(matches!(read("```toml\n[package\n```\n# How to"), Head::Absent));
        assert!(matches!(read("---\nJust a rule"), Head::Absent));
        assert!(matches!(read("# Title"), Head::Absent));
    }
}
