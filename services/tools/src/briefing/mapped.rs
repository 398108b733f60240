//! Text that remembers where it came from.
//!
//! A quote must be found byte for byte in its source, but nobody wants to read `&amp;` or a line break in the middle of
//! a sentence. So every reader makes text for people in which each byte knows the bytes of the source behind it; a
//! sentence of that text is then a range of the source.

use std::ops::Range;

/// Readable text over a source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Mapped {
    text: String,
    /// For each byte of `text`, the source bytes of the character it belongs to.
    spans: Vec<(u32, u32)>,
}

impl Mapped {
    /// A source as it is.
    pub(crate) fn source(text: &str) -> Self {
        let mut mapped = Self::default();
        mapped.push_source(text, 0);
        mapped
    }
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
    pub(crate) fn is_blank(&self) -> bool {
        self.text.trim().is_empty()
    }
    /// Adds source text that stands at `at`.
    pub(crate) fn push_source(&mut self, text: &str, at: usize) {
        for (offset, c) in text.char_indices() {
            self.push_char(c, at + offset..at + offset + c.len_utf8());
        }
    }
    /// Adds a character that stands for these source bytes.
    pub(crate) fn push_char(&mut self, c: char, source: Range<usize>) {
        self.text.push(c);
        let span = (to_u32(source.start), to_u32(source.end));
        self.spans.extend(std::iter::repeat_n(span, c.len_utf8()));
    }
    /// Adds a piece of another text over the same source.
    pub(crate) fn push_piece(&mut self, other: &Self, range: Range<usize>) {
        if let (Some(text), Some(spans)) = (other.text.get(range.clone()), other.spans.get(range)) {
            self.text.push_str(text);
            self.spans.extend_from_slice(spans);
        }
    }
    /// Adds one space for these source bytes, unless there is one already or nothing before it.
    pub(crate) fn push_space(&mut self, source: Range<usize>) {
        if !self.text.is_empty() && !self.text.ends_with(' ') {
            self.push_char(' ', source);
        }
    }
    /// A piece as a text of its own.
    pub(crate) fn piece(&self, range: Range<usize>) -> Self {
        let mut piece = Self::default();
        piece.push_piece(self, range);
        piece
    }
    /// The source bytes behind a range of the text; empty at 0 for an empty range.
    pub(crate) fn source_range(&self, range: Range<usize>) -> Range<usize> {
        let spans = self.spans.get(range).unwrap_or_default();
        // Markup may be read out of order, so the ends are looked for and not taken from the edges.
        let start = spans.iter().map(|span| span.0).min().unwrap_or(0);
        let end = spans.iter().map(|span| span.1).max().unwrap_or(0);
        start as usize..end as usize
    }
    /// The text without white space at its ends.
    pub(crate) fn trimmed(&self) -> Self {
        let start = self.text.len() - self.text.trim_start().len();
        let end = start + self.text.trim().len();
        self.piece(start..end)
    }
}

// Documents are at most 2 MiB long, so this never saturates in practice.
fn to_u32(position: usize) -> u32 {
    u32::try_from(position).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_the_text_knows_the_source_bytes_behind_it() {
        let source = "a &amp; é";
        let mut mapped = Mapped::default();
        mapped.push_source("a ", 0);
        mapped.push_char('&', 2..7);
        mapped.push_source(" é", 7);
        assert_eq!(mapped.text(), "a & é");
        assert_eq!(&source[mapped.source_range(2..3)], "&amp;");
        assert_eq!(&source[mapped.source_range(0..mapped.text().len())], source);
        assert_eq!(mapped.source_range(4..6), 8..10);
    }

    #[test]
    fn a_piece_keeps_its_place_in_the_source() {
        let mapped = Mapped::source("  one two ");
        let trimmed = mapped.trimmed();
        assert_eq!(trimmed.text(), "one two");
        assert_eq!(trimmed.source_range(4..7), 6..9);
        assert_eq!(mapped.source_range(3..3), 0..0);
    }
}
