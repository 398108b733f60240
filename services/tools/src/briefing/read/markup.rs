//! A tolerant tokenizer for HTML and XML that keeps source positions.
//!
//! Parsers that build a tree throw positions away, and a quote needs them. What is read here is text, not behaviour: no
//! tree is built, nothing is executed, and every byte is looked at a bounded number of times.

use std::ops::Range;

use crate::briefing::mapped::Mapped;

/// Most attributes that are kept of one tag.
const ATTRIBUTES_MAX: usize = 32;
/// Longest entity that is decoded, in bytes.
const ENTITY_BYTES_MAX: usize = 12;

/// A piece of markup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Token {
    /// Text with entities decoded.
    Text(Mapped),
    /// A tag that opens, or stands alone.
    Open { name: String, attributes: Vec<(String, String)>, alone: bool, at: Range<usize> },
    /// A tag that closes.
    Close { name: String, at: Range<usize> },
}

impl Token {
    /// The value of an attribute of an opening tag.
    pub(crate) fn attribute(&self, wanted: &str) -> Option<&str> {
        match self {
            Self::Open { attributes, .. } => {
                attributes.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str())
            }
            Self::Text(_) | Self::Close { .. } => None,
        }
    }
}

/// Which rules hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// `<script>` and `<style>` hold raw text, which is dropped.
    Html,
    /// CDATA sections are text; prefixes of names are dropped.
    Xml,
}

/// Cuts markup into tokens.
pub(crate) fn tokens(input: &Mapped, dialect: Dialect) -> Vec<Token> {
    let mut cutter = Cutter { input, dialect, position: 0, out: Vec::new() };
    while cutter.position < input.text().len() {
        cutter.step();
    }
    cutter.out
}

struct Cutter<'i> {
    input: &'i Mapped,
    dialect: Dialect,
    position: usize,
    out: Vec<Token>,
}

impl Cutter<'_> {
    fn rest(&self) -> &str {
        self.input.text().get(self.position..).unwrap_or_default()
    }

    fn step(&mut self) {
        let rest = self.rest();
        if let Some(comment) = rest.strip_prefix("<!--") {
            return self.skip_past(4 + comment.find("-->").map_or(comment.len(), |end| end + 3));
        }
        if self.dialect == Dialect::Xml
            && let Some(data) = rest.strip_prefix("<![CDATA[")
        {
            let length = data.find("]]>").unwrap_or(data.len());
            let start = self.position + 9;
            self.out.push(Token::Text(self.input.piece(start..start + length)));
            return self.skip_past(9 + length + 3);
        }
        let second = rest.as_bytes().get(1).copied().unwrap_or_default();
        if rest.starts_with('<') && matches!(second, b'!' | b'?') {
            return self.skip_past(rest.find('>').map_or(rest.len(), |end| end + 1));
        }
        if rest.starts_with('<') && (second == b'/' || second.is_ascii_alphabetic()) {
            return self.tag();
        }
        // Text up to the next thing that can be a tag; a lone `<` is text too.
        let length = rest.bytes().skip(1).position(|byte| byte == b'<').map_or(rest.len(), |end| end + 1);
        let text = decoded(self.input, self.position..self.position + length);
        self.out.push(Token::Text(text));
        self.position += length;
    }

    fn skip_past(&mut self, length: usize) {
        self.position = (self.position + length).min(self.input.text().len());
    }

    fn tag(&mut self) {
        let (length, name, attributes, closing, alone) = {
            let rest = self.rest();
            let length = tag_length(rest);
            let inner = rest.get(1..length.saturating_sub(1).max(1)).unwrap_or_default();
            let closing = inner.starts_with('/');
            let inner = inner.trim_start_matches('/');
            let alone = inner.ends_with('/');
            let inner = inner.trim_end_matches('/');
            let end = inner.find(|c: char| c.is_whitespace() || c == '/').unwrap_or(inner.len());
            let (name, tail) = inner.split_at(end);
            (length, self.name(name), attributes(tail), closing, alone)
        };
        let at = self.input.source_range(self.position..self.position + length);
        self.skip_past(length);
        if closing {
            self.out.push(Token::Close { name, at });
            return;
        }
        let raw = self.dialect == Dialect::Html && !alone && matches!(name.as_str(), "script" | "style" | "textarea");
        if raw {
            let wanted = format!("</{name}");
            let length = find_ignoring_case(self.rest(), &wanted).unwrap_or(self.rest().len());
            self.skip_past(length);
        }
        self.out.push(Token::Open { name, attributes, alone, at });
    }

    fn name(&self, name: &str) -> String {
        let local = match self.dialect {
            Dialect::Html => name,
            Dialect::Xml => name.rsplit(':').next().unwrap_or(name),
        };
        local.to_ascii_lowercase()
    }
}

/// The length of a tag including its brackets; quotes protect a `>`. A tag that never ends takes the rest.
fn tag_length(rest: &str) -> usize {
    let mut quote = None;
    for (position, byte) in rest.bytes().enumerate() {
        match (quote, byte) {
            (None, b'>') => return position + 1,
            (None, b'"' | b'\'') if rest.as_bytes().get(position.wrapping_sub(1)) == Some(&b'=') => quote = Some(byte),
            (Some(open), byte) if open == byte => quote = None,
            _ => {}
        }
    }
    // An unclosed quote must not swallow the document.
    rest.find('>').map_or(rest.len(), |end| end + 1)
}

fn attributes(tail: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = tail.trim_start();
    while !rest.is_empty() && found.len() < ATTRIBUTES_MAX {
        let end = rest.find(|c: char| c.is_whitespace() || c == '=').unwrap_or(rest.len());
        let name = rest[..end].to_ascii_lowercase();
        rest = rest[end..].trim_start();
        let mut value = "";
        if let Some(after) = rest.strip_prefix('=') {
            let after = after.trim_start();
            let quote = after.chars().next().filter(|c| matches!(c, '"' | '\''));
            (value, rest) = match quote {
                Some(quote) => after[1..].split_once(quote).unwrap_or((&after[1..], "")),
                None => after.split_once(char::is_whitespace).unwrap_or((after, "")),
            };
            rest = rest.trim_start();
        } else if end == 0 {
            break;
        }
        if !name.is_empty() {
            found.push((name, decoded(&Mapped::source(value), 0..value.len()).text().to_owned()));
        }
    }
    found
}

/// Text with entities decoded, each standing for the whole of its source.
pub(crate) fn decoded(input: &Mapped, range: Range<usize>) -> Mapped {
    let mut out = Mapped::default();
    let text = input.text().get(range.clone()).unwrap_or_default();
    let mut position = 0;
    while let Some(offset) = text[position..].find('&') {
        let ampersand = position + offset;
        out.push_piece(input, range.start + position..range.start + ampersand);
        let window = &text.as_bytes()[ampersand..text.len().min(ampersand + ENTITY_BYTES_MAX)];
        let entity = window.iter().position(|b| *b == b';').and_then(|end| {
            let name = text.get(ampersand + 1..ampersand + end)?;
            Some((end + 1, entity(name)?))
        });
        let length = entity.map_or(1, |(length, _)| length);
        let c = entity.map_or('&', |(_, c)| c);
        out.push_char(c, input.source_range(range.start + ampersand..range.start + ampersand + length));
        position = ampersand + length;
    }
    out.push_piece(input, range.start + position..range.end);
    out
}

/// The character of an entity: numeric, or one of those that prose uses.
fn entity(name: &str) -> Option<char> {
    if let Some(number) = name.strip_prefix('#') {
        let code = match number.strip_prefix(['x', 'X']) {
            Some(hex) => u32::from_str_radix(hex, 16).ok()?,
            None => number.parse().ok()?,
        };
        return char::from_u32(code).filter(|c| *c != '\0');
    }
    Some(match name {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" => '\'',
        "nbsp" => '\u{a0}',
        "ndash" => '–',
        "mdash" => '—',
        "hellip" => '…',
        "lsquo" => '‘',
        "rsquo" => '’',
        "ldquo" => '“',
        "rdquo" => '”',
        "laquo" => '«',
        "raquo" => '»',
        "middot" => '·',
        "bull" => '•',
        "copy" => '©',
        "reg" => '®',
        "trade" => '™',
        "times" => '×',
        "euro" => '€',
        "pound" => '£',
        "sect" => '§',
        "deg" => '°',
        "auml" => 'ä',
        "ouml" => 'ö',
        "uuml" => 'ü',
        "Auml" => 'Ä',
        "Ouml" => 'Ö',
        "Uuml" => 'Ü',
        "szlig" => 'ß',
        "eacute" => 'é',
        "egrave" => 'è',
        "agrave" => 'à',
        "ccedil" => 'ç',
        "ntilde" => 'ñ',
        _ => return None,
    })
}

fn find_ignoring_case(text: &str, wanted: &str) -> Option<usize> {
    let (text, wanted) = (text.as_bytes(), wanted.as_bytes());
    text.windows(wanted.len()).position(|window| window.eq_ignore_ascii_case(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shapes(source: &str, dialect: Dialect) -> Vec<String> {
        let shape = |token: Token| match token {
            Token::Text(text) => format!("'{}'", text.text()),
            Token::Open { name, alone, .. } => format!("<{name}{}>", if alone { "/" } else { "" }),
            Token::Close { name, .. } => format!("</{name}>"),
        };
        tokens(&Mapped::source(source), dialect).into_iter().map(shape).collect()
    }

    #[test]
    fn tags_text_comments_and_raw_elements_are_told_apart() {
        let source = "<!doctype html><P class=\"a>b\">x &lt; y<br/><!-- no --><script>if (a<b) {}</SCRIPT>z</p>";
        assert_eq!(shapes(source, Dialect::Html), ["<p>", "'x < y'", "<br/>", "<script>", "</script>", "'z'", "</p>"]);
    }

    #[test]
    fn cdata_and_prefixes_are_read_as_xml_has_them() {
        let source = "<?xml version=\"1.0\"?><dc:date>now</dc:date><t><![CDATA[<b>x</b>]]></t>";
        assert_eq!(shapes(source, Dialect::Xml), ["<date>", "'now'", "</date>", "<t>", "'<b>x</b>'", "</t>"]);
    }

    #[test]
    fn decoded_text_still_knows_its_source_bytes() {
        let source = "a&amp;b &#8217; &#x2014; &bogus; &";
        let text = decoded(&Mapped::source(source), 0..source.len());
        assert_eq!(text.text(), "a&b ’ — &bogus; &");
        assert_eq!(&source[text.source_range(1..2)], "&amp;");
        assert_eq!(&source[text.source_range(0..3)], "a&amp;b");
    }

    #[test]
    fn attributes_are_read_with_and_without_quotes() {
        let all = tokens(&Mapped::source("<a href='x?a=1&amp;b=2' rel=next hidden>"), Dialect::Html);
        assert_eq!(all[0].attribute("href"), Some("x?a=1&b=2"));
        assert_eq!(all[0].attribute("rel"), Some("next"));
        assert_eq!(all[0].attribute("hidden"), Some(""));
    }

    #[test]
    fn broken_markup_ends_instead_of_looping() {
        for source in ["<", "<a", "<a href=\"x", "</", "<!--", "<![CDATA[x", "a<b c", "<a =x>", "<script>", "&#0;"] {
            shapes(source, Dialect::Html);
            shapes(source, Dialect::Xml);
        }
        assert_eq!(shapes("1 < 2", Dialect::Html), ["'1 '", "'< 2'"]);
        assert_eq!(shapes("é<b>", Dialect::Html), ["'é'", "<b>"]);
    }
}
