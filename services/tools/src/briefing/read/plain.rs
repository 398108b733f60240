//! Plain text to blocks: paragraphs stand between blank lines; a first line on its own is the title.

use crate::briefing::block::{BLOCKS_MAX, Block, BlockKind, Reading};
use crate::briefing::mapped::Mapped;

/// Longest line that is taken as a title, in bytes.
const TITLE_BYTES_MAX: usize = 160;

/// Reads a text from byte `at` on.
pub(crate) fn read(source: &str, at: usize) -> Reading {
    let mut reading = Reading::default();
    let mut paragraph = Mapped::default();
    let mut lines = 0_usize;
    let mut position = at;
    let body = source.get(at..).unwrap_or_default();
    for line in body.split_inclusive('\n').chain(["\n"]) {
        if line.trim().is_empty() || is_rule(line) {
            let text = std::mem::take(&mut paragraph).trimmed();
            if !text.is_blank() {
                let kind = if reading.title.is_none() && reading.blocks.is_empty() && is_title(&text, lines) {
                    reading.title = Some(text.clone());
                    BlockKind::Heading(1)
                } else {
                    BlockKind::Paragraph
                };
                reading.blocks.push(Block { kind, text });
            }
            lines = 0;
        } else {
            lines += 1;
            for (offset, c) in line.char_indices() {
                let range = position + offset..position + offset + c.len_utf8();
                match c {
                    '`' => paragraph.push_char('\'', range),
                    c if c.is_whitespace() => paragraph.push_space(range),
                    c => paragraph.push_char(c, range),
                }
            }
        }
        position += line.len();
        if reading.blocks.len() >= BLOCKS_MAX {
            break;
        }
    }
    reading
}

fn is_title(text: &Mapped, lines: usize) -> bool {
    lines == 1 && text.text().len() <= TITLE_BYTES_MAX && !text.text().ends_with(['.', ':', ';'])
}

/// A line of nothing but `=`, `-`, `*` or `_`.
fn is_rule(line: &str) -> bool {
    let line = line.trim();
    line.len() >= 3 && ['=', '-', '*', '_'].iter().any(|mark| line.chars().all(|c| c == *mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_stand_between_blank_lines_and_the_first_line_is_the_title() {
        let source = "Harbour notes\n=============\n\nFirst line\r\nsecond line.\n\nNext.";
        let reading = read(source, 0);
        assert_eq!(reading.title.as_ref().map(Mapped::text), Some("Harbour notes"));
        let texts: Vec<&str> = reading.blocks.iter().map(|block| block.text.text()).collect();
        assert_eq!(texts, ["Harbour notes", "First line second line.", "Next."]);
        let text = &reading.blocks[1].text;
        assert_eq!(&source[text.source_range(0..text.text().len())], "First line\r\nsecond line.");
    }

    #[test]
    fn a_first_paragraph_of_sentences_is_no_title() {
        assert_eq!(read("It rained. It poured.\n\nMore.", 0).title, None);
    }
}
