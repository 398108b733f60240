//! Markdown to blocks. Code blocks, raw HTML and images are left out: the first are no sentences, the others are not
//! what a reader of the page sees.

use std::ops::Range;

use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use crate::briefing::block::{BLOCKS_MAX, Block, BlockKind};
use crate::briefing::mapped::Mapped;

/// Reads `source` from byte `at` on.
pub(crate) fn blocks(source: &str, at: usize) -> Vec<Block> {
    let Some(body) = source.get(at..) else { return Vec::new() };
    let mut reader = Reader { source, at, blocks: Vec::new(), open: None, silent: 0 };
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH;
    for (event, range) in Parser::new_ext(body, options).into_offset_iter() {
        if reader.blocks.len() >= BLOCKS_MAX {
            break;
        }
        reader.take(event, range.start + at..range.end + at);
    }
    reader.close();
    reader.blocks
}

struct Reader<'s> {
    source: &'s str,
    at: usize,
    blocks: Vec<Block>,
    open: Option<Block>,
    /// How many elements are open whose text is left out.
    silent: usize,
}

impl Reader<'_> {
    fn take(&mut self, event: Event<'_>, range: Range<usize>) {
        match event {
            Event::Start(tag) => self.start(&tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => self.text(&text, range),
            Event::Code(code) => self.code(&code, range),
            Event::SoftBreak | Event::HardBreak => {
                if let Some(block) = &mut self.open {
                    block.text.push_space(range);
                }
            }
            Event::InlineMath(_)
            | Event::DisplayMath(_)
            | Event::Html(_)
            | Event::InlineHtml(_)
            | Event::FootnoteReference(_)
            | Event::Rule
            | Event::TaskListMarker(_) => {}
        }
    }

    fn start(&mut self, tag: &Tag<'_>) {
        if let Tag::Heading { level, .. } = tag {
            self.begin(BlockKind::Heading(depth(*level)));
        } else if matches!(tag, Tag::Paragraph) {
            self.begin(BlockKind::Paragraph);
        } else if matches!(tag, Tag::Item | Tag::TableCell) {
            self.begin(BlockKind::Entry);
        } else if matches!(tag, Tag::CodeBlock(_) | Tag::HtmlBlock | Tag::Image { .. } | Tag::MetadataBlock(_)) {
            self.silent += 1;
        }
    }

    fn end(&mut self, tag: TagEnd) {
        if matches!(tag, TagEnd::Heading(_) | TagEnd::Paragraph | TagEnd::Item | TagEnd::TableCell) {
            self.close();
        } else if matches!(tag, TagEnd::CodeBlock | TagEnd::HtmlBlock | TagEnd::Image | TagEnd::MetadataBlock(_)) {
            self.silent = self.silent.saturating_sub(1);
        }
    }

    fn begin(&mut self, kind: BlockKind) {
        // A paragraph inside a list entry goes on as that entry.
        let kind = match (&self.open, kind) {
            (Some(open), BlockKind::Paragraph) if open.kind == BlockKind::Entry && open.text.is_blank() => open.kind,
            _ => kind,
        };
        self.close();
        self.open = Some(Block { kind, text: Mapped::default() });
    }

    fn close(&mut self) {
        if let Some(block) = self.open.take()
            && !block.text.is_blank()
        {
            self.blocks.push(Block { kind: block.kind, text: block.text.trimmed() });
        }
    }

    fn text(&mut self, text: &str, range: Range<usize>) {
        let Some(block) = self.open.as_mut().filter(|_| self.silent == 0) else { return };
        let same = self.source.get(range.clone()) == Some(text);
        for (offset, c) in text.char_indices() {
            // An entity or an escape stands for all of its source; anything else for itself.
            let source = if same { range.start + offset..range.start + offset + c.len_utf8() } else { range.clone() };
            match c {
                '`' => block.text.push_char('\'', source),
                c if c.is_whitespace() => block.text.push_space(source),
                c => block.text.push_char(c, source),
            }
        }
    }

    fn code(&mut self, code: &str, range: Range<usize>) {
        let Some(block) = self.open.as_mut().filter(|_| self.silent == 0) else { return };
        let ticks = self.source[range.start.max(self.at)..].bytes().take_while(|b| *b == b'`').count().max(1);
        let inner = self.source.get(range.start + ticks..range.end.saturating_sub(ticks)).unwrap_or_default();
        block.text.push_char('`', range.start..range.start + ticks);
        match inner.find(code) {
            Some(offset) if !code.contains(['`', '\n']) => {
                block.text.push_source(code, range.start + ticks + offset);
            }
            _ => code.chars().for_each(|c| {
                let c = if c == '`' {
                    '\''
                } else if c.is_whitespace() {
                    ' '
                } else {
                    c
                };
                block.text.push_char(c, range.clone());
            }),
        }
        block.text.push_char('`', range.end.saturating_sub(ticks)..range.end);
    }
}

const fn depth(level: HeadingLevel) -> u8 {
    match level {
        HeadingLevel::H1 => 1,
        HeadingLevel::H2 => 2,
        HeadingLevel::H3 => 3,
        HeadingLevel::H4 => 4,
        HeadingLevel::H5 => 5,
        HeadingLevel::H6 => 6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str) -> Vec<(BlockKind, String)> {
        blocks(source, 0).into_iter().map(|block| (block.kind, block.text.text().to_owned())).collect()
    }

    #[test]
    fn headings_paragraphs_and_entries_are_read_and_code_blocks_images_and_raw_html_are_not() {
        let source = "# A `b` c\n\nOne\ntwo.\n\n```rust\nlet x = 1;\n```\n\n<script>alert(1)</script>\n\n\
                      - first <b>bold</b>\n- second\n\n![alt](x.png)\n\n| h |\n|---|\n| cell |\n";
        assert_eq!(
            texts(source),
            [
                (BlockKind::Heading(1), "A `b` c".to_owned()),
                (BlockKind::Paragraph, "One two.".to_owned()),
                (BlockKind::Entry, "first bold".to_owned()),
                (BlockKind::Entry, "second".to_owned()),
                (BlockKind::Entry, "h".to_owned()),
                (BlockKind::Entry, "cell".to_owned()),
            ]
        );
    }

    #[test]
    fn a_range_of_a_block_is_found_byte_for_byte_in_the_source() {
        let source = "Intro.\n\nSee [`nostr`](https://x.example/a) &amp; *more*\nhere. ``a`b`` end.";
        let block = &blocks(source, 0)[1];
        assert_eq!(block.text.text(), "See `nostr` & more here. `a'b` end.");
        let range = block.text.source_range(0.."See `nostr` & more here.".len());
        assert_eq!(&source[range], "See [`nostr`](https://x.example/a) &amp; *more*\nhere.");
    }

    #[test]
    fn reading_starts_at_the_byte_it_is_told_and_counts_from_the_start() {
        let source = "+++\na = 1\n+++\n# Title\n";
        let block = &blocks(source, 14)[0];
        assert_eq!(block.text.text(), "Title");
        assert_eq!(&source[block.text.source_range(0..5)], "Title");
    }

    #[test]
    fn a_hostile_nest_of_quotes_and_lists_is_read_in_bounded_time() {
        let source = format!("{}deep", "> - ".repeat(50_000));
        assert!(blocks(&source, 0).len() <= 1);
    }
}
