//! Making quotes: the one place where words of a source become a [`Quote`].

use std::ops::Range;

use super::mapped::Mapped;
use super::model::{QUOTE_BYTES_MAX, Quote, Supports};
use super::safe::cut;

/// A source that can be quoted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Quotable<'s> {
    pub(crate) name: &'s str,
    pub(crate) text: &'s str,
}

impl Quotable<'_> {
    /// Quotes a range of readable text; a long one up to a word boundary.
    pub(crate) fn quote(&self, text: &Mapped, range: Range<usize>, supports: Supports) -> Option<Quote> {
        let plain = text.text().get(range.clone())?;
        let shown = cut(plain, QUOTE_BYTES_MAX);
        let source = text.source_range(range.start..range.start + shown.len());
        let ellipsis = if shown.len() < plain.len() { "…" } else { "" };
        self.raw(source, format!("{shown}{ellipsis}"), supports)
    }

    /// Quotes bytes of the source itself, such as a line of a head.
    pub(crate) fn bytes(&self, range: Range<usize>, supports: Supports) -> Option<Quote> {
        let shown = cut(self.text.get(range.clone())?, QUOTE_BYTES_MAX);
        let plain: Vec<&str> = shown.split_whitespace().collect();
        self.raw(range.start..range.start + shown.len(), plain.join(" ").replace('`', "'"), supports)
    }

    fn raw(&self, range: Range<usize>, plain: String, supports: Supports) -> Option<Quote> {
        let text = self.text.get(range.clone()).filter(|text| !text.trim().is_empty())?;
        Some(Quote {
            source: self.name.to_owned(),
            start: range.start,
            end: range.end,
            text: text.to_owned(),
            plain,
            supports,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quote_equals_the_bytes_it_names_even_when_it_is_cut() {
        let source = format!("Début. {}", "mot ".repeat(400));
        let quotable = Quotable { name: "a.txt", text: &source };
        let text = Mapped::source(&source);
        let quote = quotable.quote(&text, 0..source.len(), Supports::Summary).unwrap();
        assert_eq!(quote.text, &source[quote.start..quote.end]);
        assert!(quote.text.len() <= QUOTE_BYTES_MAX && quote.plain.ends_with("mot…"));
    }

    #[test]
    fn nothing_is_quoted_from_outside_the_source() {
        let quotable = Quotable { name: "a.txt", text: "short" };
        assert_eq!(quotable.bytes(3..9, Supports::Date), None);
        assert_eq!(quotable.bytes(2..2, Supports::Date), None);
    }
}
