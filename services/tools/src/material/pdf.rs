//! PDF to text: the words of each page in the order they are drawn, with lines, paragraphs and headings told by where and
//! how large they stand.
//!
//! The text is Markdown, so that a heading is one; a form feed stands between pages. Pictures, forms and layout in
//! columns are not understood: a scanned page has no text, and says so.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use lopdf::content::Content;
use lopdf::{Document, Encoding, Object};

use super::{TEXT_BYTES_MAX, Unread};

/// Between two pages.
pub(crate) const PAGE_BREAK: char = '\u{c}';
/// Most pages.
const PAGES_MAX: usize = 2_000;
/// Most bytes of one page's content once it is unpacked.
const PAGE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Most drawing instructions of one page.
const OPERATIONS_MAX: usize = 400_000;
/// A gap in a line that is a space, in thousandths of the letter size.
const SPACE_GAP: f64 = -180.0;
/// Width of a letter beside its height, on average.
const LETTER_WIDTH: f64 = 0.55;
/// A line this much larger than most of the text is a heading.
const HEADING_RATIO: f64 = 1.15;
/// Longest heading, in bytes.
const HEADING_BYTES_MAX: usize = 200;

/// A line as it is drawn.
#[derive(Debug, Default, Clone)]
struct Line {
    text: String,
    /// Height of the letters.
    size: f64,
    /// How far up the page.
    y: f64,
}

/// Reads all pages.
pub(crate) fn text(bytes: &[u8]) -> Result<String, Unread> {
    let broken = |error: lopdf::Error| {
        tracing::debug!(%error, "a PDF could not be read");
        ("pdf-broken", "it is no PDF that can be read".to_owned())
    };
    let document = Document::load_mem(bytes).map_err(broken)?;
    if document.is_encrypted() || document.was_encrypted() {
        return Err(("pdf-encrypted", "it is encrypted; give a copy without a password".to_owned()));
    }
    let pages = document.get_pages();
    if pages.len() > PAGES_MAX {
        return Err(("pdf-too-long", format!("it has {} pages; at most {PAGES_MAX} are read", pages.len())));
    }
    let mut lines: Vec<Vec<Line>> = Vec::new();
    let mut size = 0;
    for page in pages.into_values() {
        let read = page_lines(&document, page).map_err(broken)?;
        size += read.iter().map(|line| line.text.len()).sum::<usize>();
        if size > TEXT_BYTES_MAX {
            return Err(("source-too-large", "it has more than 2 MiB of text".to_owned()));
        }
        lines.push(read);
    }
    let body = body_size(&lines);
    let mut out = String::new();
    for (number, page) in lines.iter().enumerate() {
        if number > 0 {
            let _ = write!(out, "\n{PAGE_BREAK}\n\n");
        }
        write_page(&mut out, page, body);
    }
    if out.trim_matches(|c: char| c.is_whitespace() || c == PAGE_BREAK).is_empty() {
        return Err(("pdf-without-text", "it has no text; a scan must be read by a text recognition first".to_owned()));
    }
    Ok(out)
}

/// The page a byte of the text stands on, from 1.
pub(crate) fn page_of(text: &str, at: usize) -> usize {
    1 + text.as_bytes().iter().take(at).filter(|byte| **byte == PAGE_BREAK as u8).count()
}

/// The size of most letters.
fn body_size(pages: &[Vec<Line>]) -> f64 {
    let mut sizes: BTreeMap<i64, usize> = BTreeMap::new();
    for line in pages.iter().flatten() {
        *sizes.entry((line.size * 10.0) as i64).or_default() += line.text.len();
    }
    sizes.into_iter().max_by_key(|(_, count)| *count).map_or(0.0, |(size, _)| size as f64 / 10.0)
}

/// Where and how letters are drawn.
#[derive(Debug, Clone, Copy)]
struct Pen {
    size: f64,
    scale: f64,
    leading: f64,
    line: (f64, f64),
}

fn page_lines(document: &Document, page: lopdf::ObjectId) -> Result<Vec<Line>, lopdf::Error> {
    let encodings: BTreeMap<Vec<u8>, Encoding<'_>> = document
        .get_page_fonts(page)?
        .into_iter()
        .filter_map(|(name, font)| {
            font.get_font_encoding_with_limit(document, PAGE_BYTES_MAX).ok().map(|encoding| (name, encoding))
        })
        .collect();
    let content = Content::decode(&document.get_page_content_with_limit(page, PAGE_BYTES_MAX)?)?;
    let mut drawing = Drawing {
        encodings: &encodings,
        encoding: None,
        pen: Pen { size: 1.0, scale: 1.0, leading: 0.0, line: (0.0, 0.0) },
        drawn: 0,
        lines: Vec::new(),
    };
    for operation in content.operations.iter().take(OPERATIONS_MAX) {
        drawing.take(&operation.operator, &operation.operands);
    }
    Ok(drawing.lines.into_iter().filter(|line| !line.text.trim().is_empty()).collect())
}

struct Drawing<'d> {
    encodings: &'d BTreeMap<Vec<u8>, Encoding<'d>>,
    encoding: Option<&'d Encoding<'d>>,
    pen: Pen,
    /// Letters since the place was last set.
    drawn: u32,
    lines: Vec<Line>,
}

fn number(operands: &[Object], index: usize) -> f64 {
    let value = operands.get(index).and_then(|operand| operand.as_float().ok()).map_or(0.0, f64::from);
    if value.is_finite() { value.clamp(-1e7, 1e7) } else { 0.0 }
}

impl Drawing<'_> {
    fn take(&mut self, operator: &str, operands: &[Object]) {
        match operator {
            "BT" => {
                self.drawn = 0;
                self.pen = Pen { scale: 1.0, line: (0.0, 0.0), ..self.pen };
            }
            "Tf" => {
                self.encoding =
                    operands.first().and_then(|name| name.as_name().ok()).and_then(|name| self.encodings.get(name));
                self.pen.size = number(operands, 1).abs();
            }
            "TL" => self.pen.leading = number(operands, 0),
            "Tm" => {
                self.pen.scale = number(operands, 3).abs();
                self.pen.line = (number(operands, 4), number(operands, 5));
            }
            "Td" | "TD" => {
                let (x, y) = (number(operands, 0), number(operands, 1));
                if operator == "TD" {
                    self.pen.leading = -y;
                }
                self.pen.line = (self.pen.line.0 + x * self.pen.scale, self.pen.line.1 + y * self.pen.scale);
                // Many programs place parts of a word one by one and write the spaces themselves. Only a move far beyond what
                // was drawn is a gap, such as between two cells of a table.
                let drawn = f64::from(self.drawn) * LETTER_WIDTH * self.pen.size;
                if y == 0.0 && x > drawn + self.pen.size {
                    self.gap();
                }
                self.drawn = 0;
            }
            "T*" => self.next_line(),
            "Tj" => self.show(operands),
            "TJ" => {
                if let Some(Object::Array(parts)) = operands.first() {
                    self.show(parts);
                }
            }
            "'" => {
                self.next_line();
                self.show(operands);
            }
            "\"" => {
                self.next_line();
                self.show(operands.get(2..).unwrap_or_default());
            }
            _ => {}
        }
    }

    fn next_line(&mut self) {
        self.pen.line.1 -= self.pen.leading * self.pen.scale;
    }

    fn gap(&mut self) {
        if let Some(line) = self.lines.last_mut()
            && !line.text.is_empty()
            && !line.text.ends_with(' ')
        {
            line.text.push(' ');
        }
    }

    fn show(&mut self, parts: &[Object]) {
        let Some(encoding) = self.encoding else { return };
        let (y, size) = (self.pen.line.1, self.pen.size * self.pen.scale);
        if self.lines.last().is_none_or(|line| (line.y - y).abs() > size * 0.3) {
            self.lines.push(Line { text: String::new(), size, y });
        }
        for part in parts {
            match part {
                Object::String(bytes, _) => {
                    let words = Document::decode_text(encoding, bytes).unwrap_or_default();
                    self.drawn = self.drawn.saturating_add(u32::try_from(words.chars().count()).unwrap_or(u32::MAX));
                    if let Some(line) = self.lines.last_mut() {
                        line.text.extend(words.chars().map(|c| if c.is_control() { ' ' } else { c }));
                        line.size = line.size.max(size);
                    }
                }
                Object::Integer(_) | Object::Real(_) if number(std::slice::from_ref(part), 0) < SPACE_GAP => self.gap(),
                Object::Integer(_)
                | Object::Real(_)
                | Object::Null
                | Object::Boolean(_)
                | Object::Name(_)
                | Object::Array(_)
                | Object::Dictionary(_)
                | Object::Stream(_)
                | Object::Reference(_) => {}
            }
        }
    }
}

/// A page as Markdown: lines that follow closely are a paragraph, and what is hyphenated at the end of a line is joined.
fn write_page(out: &mut String, lines: &[Line], body: f64) {
    let mut before: Option<&Line> = None;
    for line in lines {
        let text = line.text.split_whitespace().collect::<Vec<_>>().join(" ");
        let is_heading = line.size > body * HEADING_RATIO && text.len() <= HEADING_BYTES_MAX;
        let was_heading = before.is_some_and(|before| before.size > body * HEADING_RATIO);
        let follows = before.is_some_and(|before| {
            let down = before.y - line.y;
            down > 0.0 && down < line.size.max(before.size) * 1.75 && before.size == line.size
        });
        if follows && is_heading == was_heading {
            // A word parted at the end of a line is one word again.
            let parted = out.ends_with('-')
                && out.chars().rev().nth(1).is_some_and(char::is_alphabetic)
                && text.starts_with(char::is_lowercase);
            if parted {
                out.pop();
            } else {
                out.push(if is_heading { ' ' } else { '\n' });
            }
        } else {
            if before.is_some() {
                out.push_str("\n\n");
            }
            if is_heading {
                out.push_str(if line.size > body * 1.6 { "# " } else { "## " });
            }
        }
        push_escaped(out, &text);
        before = Some(line);
    }
    out.push('\n');
}

/// What Markdown would take for a mark is none here.
fn push_escaped(out: &mut String, text: &str) {
    if text.starts_with(['#', '>', '+', '-', '=', '~']) {
        out.push('\\');
    }
    for c in text.chars() {
        if matches!(c, '*' | '_' | '`' | '<' | '[' | ']' | '\\' | '|') {
            out.push('\\');
        }
        out.push(c);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A PDF of one font; each page is a list of size, height and text.
    pub(crate) fn sample(pages: &[&[(f64, f64, &str)]]) -> Vec<u8> {
        let mut objects = vec![String::new(); 3];
        let mut kids = String::new();
        for page in pages {
            let mut stream = String::new();
            for (size, y, text) in *page {
                let _ = writeln!(stream, "BT /F1 {size} Tf 72 {y} Td ({text}) Tj ET");
            }
            let number = objects.len() + 1;
            let _ = write!(kids, "{number} 0 R ");
            objects.push(format!(
                "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Resources << /Font << /F1 3 0 R >> >> /Contents {} 0 R >>",
                number + 1
            ));
            objects.push(format!("<< /Length {} >>\nstream\n{stream}endstream", stream.len()));
        }
        objects[0] = "<< /Type /Catalog /Pages 2 0 R >>".to_owned();
        objects[1] = format!("<< /Type /Pages /Kids [{kids}] /Count {} >>", pages.len());
        objects[2] = "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>".to_owned();
        let mut out = "%PDF-1.4\n".to_owned();
        let mut places = Vec::new();
        for (index, object) in objects.iter().enumerate() {
            places.push(out.len());
            let _ = writeln!(out, "{} 0 obj\n{object}\nendobj", index + 1);
        }
        let start = out.len();
        let _ = writeln!(out, "xref\n0 {}\n0000000000 65535 f ", objects.len() + 1);
        for place in places {
            let _ = writeln!(out, "{place:010} 00000 n ");
        }
        let _ = writeln!(out, "trailer\n<< /Size {} /Root 1 0 R >>\nstartxref\n{start}\n%%EOF", objects.len() + 1);
        out.into_bytes()
    }

    #[test]
    fn pages_headings_and_paragraphs_are_told_apart_and_parted_words_are_joined() {
        let bytes = sample(&[
            &[
                (20.0, 760.0, "Tides"),
                (11.0, 720.0, "The sea rises and falls twice a day, be-"),
                (11.0, 706.0, "cause of the Moon."),
                (11.0, 670.0, "A new paragraph * here."),
            ],
            &[(14.0, 760.0, "Spring tides"), (11.0, 730.0, "They come at new Moon.")],
        ]);
        let text = text(&bytes).unwrap();
        assert_eq!(
            text,
            "# Tides\n\nThe sea rises and falls twice a day, because of the Moon.\n\nA new paragraph \\* here.\n\n\u{c}\n\n## Spring \
             tides\n\nThey come at new Moon.\n"
        );
        assert_eq!(page_of(&text, 3), 1);
        assert_eq!(page_of(&text, text.find("They").unwrap()), 2);
    }

    #[test]
    fn parts_of_a_word_that_are_placed_one_by_one_stay_one_word_and_cells_stay_apart() {
        // The sample writes one string a line; what is between the brackets goes on with further placings.
        let line = "T) Tj 7 0 Td (ides) Tj 200 0 Td (table";
        let text = text(&sample(&[&[(11.0, 700.0, line)]])).unwrap();
        assert_eq!(text, "Tides table\n");
    }

    #[test]
    fn what_is_broken_or_empty_is_refused_by_its_code() {
        let whole = sample(&[&[(11.0, 700.0, "Some words.")]]);
        assert_eq!(text(b"%PDF-1.4\nnothing").unwrap_err().0, "pdf-broken");
        assert_eq!(text(&sample(&[&[]])).unwrap_err().0, "pdf-without-text");
        // Cut anywhere and bent anywhere, it gives a text or a code, never a panic that gets out.
        for cut in (0..whole.len()).step_by(7) {
            let _ = super::super::guarded("pdf-broken", || text(&whole[..cut]));
            let mut bent = whole.clone();
            bent[cut] ^= 0x55;
            let _ = super::super::guarded("pdf-broken", || text(&bent));
        }
    }
}
