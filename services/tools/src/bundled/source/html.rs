//! HTML reduced to its text. Later steps quote this text, so it is made once, here, and always the same way.
//!
//! A page is scanned for tags, not parsed into a tree: building the tree of a page that is made to be expensive takes
//! time and memory that grow with the square of its size, and text needs no tree. The scan looks at each byte once.
//! Character references are decoded by the HTML tokenizer, which has the table.

use std::cell::RefCell;

use html5ever::tendril::StrTendril;
use html5ever::tokenizer::{BufferQueue, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts};

/// Most attributes of one tag that are looked at.
const ATTRIBUTES_MAX: usize = 64;

/// What a page gives.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) text: String,
    pub(super) title: Option<String>,
    pub(super) published: Option<String>,
}

/// Reads a page, or a fragment such as the body of a feed's entry.
pub(super) fn read(html: &str) -> Page {
    let mut reader = Reader::default();
    let mut rest = html;
    while let Some(at) = rest.find('<') {
        let (before, from) = rest.split_at(at);
        reader.text(before);
        rest = reader.markup(from);
    }
    reader.text(rest);
    reader.finish()
}

/// The text of a fragment alone.
pub(super) fn text_of(html: &str) -> String {
    read(html).text
}

#[derive(Debug, Default)]
struct Reader {
    text: Text,
    title: Option<String>,
    meta_published: Option<String>,
    time_published: Option<String>,
    /// The element whose content is left out, and how often it is open.
    hidden: Option<(String, usize)>,
    /// How many `pre` are open.
    verbatim: usize,
}

impl Reader {
    fn text(&mut self, raw: &str) {
        if self.hidden.is_none() && !raw.is_empty() {
            self.text.push(&decode(raw), self.verbatim > 0);
        }
    }

    /// Reads what begins with `<`; gives back what follows it.
    fn markup<'a>(&mut self, from: &'a str) -> &'a str {
        let after = from.get(1..).unwrap_or_default();
        if let Some(comment) = after.strip_prefix("!--") {
            return comment.split_once("-->").map_or("", |(_, rest)| rest);
        }
        if after.starts_with(['!', '?']) {
            return after.split_once('>').map_or("", |(_, rest)| rest);
        }
        let (closes, named) = after.strip_prefix('/').map_or((false, after), |named| (true, named));
        if !named.starts_with(|c: char| c.is_ascii_alphabetic()) {
            self.text("<");
            return after;
        }
        let (tag, rest) = Tag::read(named);
        if closes {
            self.close(&tag.name);
            return rest;
        }
        self.open(&tag);
        // The content of these is no markup.
        match tag.name.as_str() {
            "script" | "style" | "noscript" | "iframe" | "xmp" | "noembed" => until_closed(rest, &tag.name).1,
            "textarea" => until_closed(rest, &tag.name).1,
            "title" => {
                let (title, rest) = until_closed(rest, &tag.name);
                if self.title.is_none() && self.hidden.as_ref().is_none_or(|(name, _)| name == "head") {
                    self.title = Some(collapse(&decode(title))).filter(|title| !title.is_empty());
                }
                rest
            }
            _ => rest,
        }
    }

    fn open(&mut self, tag: &Tag) {
        let name = tag.name.as_str();
        if name == "meta" && tag.get("property") == Some("article:published_time") && self.meta_published.is_none() {
            self.meta_published = tag.get("content").map(|when| collapse(&decode(when)));
        }
        if name == "time" && self.time_published.is_none() {
            self.time_published = tag.get("datetime").map(|when| collapse(&decode(when)));
        }
        if let Some((hidden, depth)) = &mut self.hidden {
            if hidden == name && !tag.self_closing {
                *depth += 1;
            } else if hidden == "head" && name == "body" {
                // The end of a head may be left out.
                self.hidden = None;
            }
            return;
        }
        self.text.break_at(name, true);
        if name == "pre" {
            self.verbatim += 1;
        }
        let leaves_out = matches!(name, "head" | "template" | "svg" | "math" | "nav" | "button" | "select");
        if leaves_out && !tag.self_closing {
            self.hidden = Some((name.to_owned(), 1));
        }
    }

    fn close(&mut self, name: &str) {
        if let Some((hidden, depth)) = &mut self.hidden {
            if hidden == name {
                *depth -= 1;
            }
            if *depth == 0 || matches!(name, "body" | "html") {
                self.hidden = None;
            }
            return;
        }
        self.text.break_at(name, false);
        if name == "pre" {
            self.verbatim = self.verbatim.saturating_sub(1);
        }
    }

    fn finish(self) -> Page {
        let published = self.meta_published.or(self.time_published).filter(|when| !when.is_empty());
        Page { text: self.text.finish(), title: self.title, published }
    }
}

/// The start of an element.
#[derive(Debug)]
struct Tag {
    name: String,
    attributes: Vec<(String, String)>,
    self_closing: bool,
}

impl Tag {
    /// Reads from the name to behind the `>`.
    fn read(named: &str) -> (Self, &str) {
        let end = named.find(|c: char| c.is_ascii_whitespace() || matches!(c, '/' | '>')).unwrap_or(named.len());
        let (name, mut rest) = named.split_at(end);
        let mut tag = Self { name: name.to_ascii_lowercase(), attributes: Vec::new(), self_closing: false };
        loop {
            rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace());
            if let Some(behind) = rest.strip_prefix('>') {
                return (tag, behind);
            }
            if let Some(behind) = rest.strip_prefix('/') {
                tag.self_closing = behind.starts_with('>');
                rest = behind;
                continue;
            }
            if rest.is_empty() {
                return (tag, rest);
            }
            let (name, value, behind) = attribute(rest);
            if tag.attributes.len() < ATTRIBUTES_MAX {
                tag.attributes.push((name.to_ascii_lowercase(), value.to_owned()));
            }
            rest = behind;
        }
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// One attribute with its raw value, and what follows. Takes at least one character.
fn attribute(from: &str) -> (&str, &str, &str) {
    let is_end = |c: char| c.is_ascii_whitespace() || matches!(c, '/' | '>' | '=');
    // A name may begin with `=`.
    let first = from.chars().next().map_or(0, char::len_utf8);
    let end = from.get(first..).and_then(|rest| rest.find(is_end)).map_or(from.len(), |at| at + first);
    let (name, rest) = from.split_at(end);
    let Some(value) = rest.trim_start_matches(|c: char| c.is_ascii_whitespace()).strip_prefix('=') else {
        return (name, "", rest);
    };
    let value = value.trim_start_matches(|c: char| c.is_ascii_whitespace());
    for quote in ['"', '\''] {
        if let Some(quoted) = value.strip_prefix(quote) {
            let (value, rest) = quoted.split_once(quote).unwrap_or((quoted, ""));
            return (name, value, rest);
        }
    }
    let end = value.find(|c: char| c.is_ascii_whitespace() || c == '>').unwrap_or(value.len());
    let (value, rest) = value.split_at(end);
    (name, value, rest)
}

/// The raw content up to `</name`, and what begins there.
fn until_closed<'a>(from: &'a str, name: &str) -> (&'a str, &'a str) {
    let mut searched = 0;
    while let Some(found) = from.get(searched..).and_then(|rest| rest.find("</")) {
        let at = searched + found;
        let behind = from.get(at + 2..).unwrap_or_default();
        if behind.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name)) {
            return from.split_at(at);
        }
        searched = at + 2;
    }
    (from, "")
}

/// Decodes character references, and nothing else: what is given has no tags.
fn decode(raw: &str) -> String {
    #[derive(Default)]
    struct Characters(RefCell<String>);
    impl TokenSink for Characters {
        type Handle = ();
        fn process_token(&self, token: Token, _: u64) -> TokenSinkResult<()> {
            if let Token::CharacterTokens(text) = token {
                self.0.borrow_mut().push_str(&text);
            }
            TokenSinkResult::Continue
        }
    }
    if !raw.contains('&') {
        return raw.to_owned();
    }
    let tokenizer = Tokenizer::new(Characters::default(), TokenizerOpts::default());
    let input = BufferQueue::default();
    input.push_back(StrTendril::from_slice(raw));
    // Nothing in this sink stops the tokenizer, so one feeding takes all.
    let _ = tokenizer.feed(&input);
    tokenizer.end();
    tokenizer.sink.0.take()
}

/// Text under way: white space is collapsed, blocks are kept apart.
#[derive(Debug, Default)]
struct Text {
    text: String,
    space: bool,
    newlines: usize,
}

impl Text {
    fn break_at(&mut self, name: &str, opens: bool) {
        let lines = match name {
            "p" | "div" | "section" | "article" | "main" | "header" | "footer" | "aside" | "blockquote" | "pre"
            | "ul" | "ol" | "dl" | "table" | "figure" | "figcaption" | "h1" | "h2" | "h3" | "h4" | "h5" | "h6"
            | "hr" | "form" => 2,
            "li" | "tr" | "dt" | "dd" => 1,
            "br" if opens => 1,
            "td" | "th" => {
                self.space = true;
                0
            }
            _ => 0,
        };
        self.newlines = self.newlines.max(lines);
    }

    fn push(&mut self, piece: &str, verbatim: bool) {
        if verbatim {
            self.separate();
            self.text.push_str(piece);
            return;
        }
        self.space |= piece.starts_with(char::is_whitespace);
        for word in piece.split_whitespace() {
            self.separate();
            self.text.push_str(word);
            self.space = true;
        }
        if !piece.trim().is_empty() {
            self.space = piece.ends_with(char::is_whitespace);
        }
    }

    fn separate(&mut self) {
        if !self.text.is_empty() {
            if self.newlines > 0 {
                self.text.extend(std::iter::repeat_n('\n', self.newlines));
            } else if self.space {
                self.text.push(' ');
            }
        }
        (self.newlines, self.space) = (0, false);
    }

    fn finish(self) -> String {
        self.text.trim().to_owned()
    }
}

fn collapse(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_gives_its_title_its_date_and_its_text_in_blocks() {
        let page = read(
            "<!DOCTYPE html><html><head><title> The  Title &amp; more</title>\
             <meta property='article:published_time' content='2026-05-01T08:00:00Z'><style>p{}</style></head>\
             <body><nav>Home<nav>x</nav></nav><h1>Head</h1><p>One\n  <b>two</b>, three.</p><script>x('<p>no</p>')</script>\
             <!-- <p>no</p> --><ul><li>a<li>b</ul><table><tr><td>1</td><td>2</td></tr></table><p>x<br>y &lt; z &euro;</p></body>",
        );
        assert_eq!(page.title.as_deref(), Some("The Title & more"));
        assert_eq!(page.published.as_deref(), Some("2026-05-01T08:00:00Z"));
        assert_eq!(page.text, "Head\n\nOne two, three.\n\na\nb\n\n1 2\n\nx\ny < z €");
    }

    #[test]
    fn words_that_touch_stay_together_and_verbatim_text_keeps_its_lines() {
        assert_eq!(text_of("<p>wo<i>rd</i> <i> x</i></p>"), "word x");
        assert_eq!(text_of("<pre>a\n  b</pre>"), "a\n  b");
        assert_eq!(text_of("1 < 2 && 3 > 2 <3"), "1 < 2 && 3 > 2 <3");
    }

    #[test]
    fn tags_are_read_to_their_end_whatever_stands_in_their_attributes() {
        assert_eq!(text_of("a<img alt=\"x > y\" src='<p>'/>b<a href=x/y>c</a =\"\"><p data=>d"), "abc\n\nd");
        let time = read("<body><time DateTime = \"2026-05-02\" datetime=x>May</time>");
        assert_eq!((time.published.as_deref(), time.text.as_str()), (Some("2026-05-02"), "May"));
    }

    #[test]
    fn a_page_that_breaks_off_anywhere_is_read_as_far_as_it_goes() {
        let page = "<head><title>t</title><body>x<a href='y'>z</a><!-- c --><script>s</script>&amp;é<br/>";
        for end in page.char_indices().map(|(at, _)| at) {
            let _ = read(&page[..end]);
        }
        assert_eq!(text_of("<head><title>t</title><body>x"), "x", "the end of a head may be left out");
        assert_eq!(text_of("a<script>b"), "a");
    }

    #[test]
    fn a_page_made_to_be_expensive_costs_no_more_than_its_length() {
        let hostile = [
            "<div>".repeat(200_000),
            format!("<a {}>x", "b ".repeat(500_000)),
            "<b a=1><p>".repeat(100_000),
            "<script></".repeat(100_000),
            "<!--".repeat(200_000),
            "</".repeat(400_000),
            "&".repeat(1_000_000),
            "<title></".repeat(100_000),
        ];
        for page in hostile {
            assert!(read(&page).text.len() <= page.len());
        }
    }
}
