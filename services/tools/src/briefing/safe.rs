//! Text and links from strangers, made fit to be printed.
//!
//! A source may hold anything: control characters, marks that turn the direction of text around, markup, links that run
//! scripts. Quotes stay as they are in `briefing.json`, escaped; what is shown to people goes through here.

use url::Url;

use super::model::FIELD_BYTES_MAX;

/// Longest text that is shown in one place, in bytes.
const SHOWN_BYTES_MAX: usize = 700;
/// Most combining marks that may follow one character.
const MARKS_MAX: usize = 3;

/// Characters that steer how text is shown without being seen themselves.
pub(crate) fn is_hidden(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}'
    )
}

/// Turns the direction of text around; its place is shown, because the text was written to look like another.
fn is_turning(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn is_mark(c: char) -> bool {
    matches!(c,
        '\u{300}'..='\u{36f}' | '\u{483}'..='\u{489}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}'
        | '\u{20d0}'..='\u{20ff}' | '\u{fe20}'..='\u{fe2f}'
    )
}

/// One line of visible text: control characters become spaces, hidden ones go, and what is too long is cut.
pub(crate) fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len().min(SHOWN_BYTES_MAX));
    let mut marks = 0;
    for c in text.chars() {
        marks = if is_mark(c) { marks + 1 } else { 0 };
        if marks > MARKS_MAX {
            continue;
        }
        if is_turning(c) {
            out.push('\u{fffd}');
        } else if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') || c.is_whitespace() {
            if !out.ends_with(' ') {
                out.push(' ');
            }
        } else if !is_hidden(c) {
            out.push(c);
        }
        if out.len() > SHOWN_BYTES_MAX {
            return format!("{}…", cut(&out, SHOWN_BYTES_MAX));
        }
    }
    out.trim().to_owned()
}

/// The longest prefix of at most `most` bytes that ends before a space, or at a character if there is none.
pub(crate) fn cut(text: &str, most: usize) -> &str {
    if text.len() <= most {
        return text;
    }
    let mut end = most;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let head = &text[..end];
    let word = head.rfind(char::is_whitespace).filter(|at| *at > end / 2);
    head[..word.unwrap_or(end)].trim_end()
}

/// A link that may be offered: `http`, `https` or `mailto`, without credentials, and spelled without surprises.
pub(crate) fn link(text: &str) -> Option<String> {
    let text = text.trim();
    if text.is_empty() || text.len() > FIELD_BYTES_MAX {
        return None;
    }
    let url = Url::parse(text).ok()?;
    let allowed = match url.scheme() {
        // A name before the host is where a link hides the host it really goes to.
        "http" | "https" => url.host_str().is_some() && url.username().is_empty() && url.password().is_none(),
        "mailto" => url.path().contains('@'),
        _ => false,
    };
    // As it was written if that is harmless everywhere, else in the spelling of the URL standard.
    let harmless =
        |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '\'' | '<' | '>' | '\\' | '`' | '{' | '}' | '|' | '^');
    let spelled = if text.chars().all(harmless) { text.to_owned() } else { String::from(url) };
    let spelled = spelled
        .replace('<', "%3C")
        .replace('>', "%3E")
        .replace('`', "%60")
        .replace('|', "%7C")
        .replace('\'', "%27")
        .replace('\\', "%5C");
    (allowed && spelled.chars().all(|c| c.is_ascii_graphic())).then_some(spelled)
}

/// A piece of shown text: code stands between backticks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) is_code: bool,
    pub(crate) text: String,
}

/// Cuts shown text into plain and code pieces; a backtick without a partner is an apostrophe.
pub(crate) fn spans(text: &str) -> Vec<Span> {
    let parts: Vec<&str> = text.split('`').collect();
    let last = parts.len() - 1;
    let mut spans: Vec<Span> = Vec::new();
    for (index, part) in parts.into_iter().enumerate() {
        let is_code = index % 2 == 1;
        if is_code && index == last {
            spans.push(Span { is_code: false, text: format!("'{part}") });
        } else if !part.is_empty() {
            spans.push(Span { is_code, text: part.to_owned() });
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_hidden_characters_go_and_turned_text_is_marked() {
        assert_eq!(clean("a\0b\x1b[31mc\r\nd"), "a b [31mc d");
        assert_eq!(clean("user\u{202e}txt.exe"), "user\u{fffd}txt.exe");
        assert_eq!(clean("ze\u{200b}ro\u{feff}"), "zero");
        assert_eq!(clean(&format!("e{}", "\u{301}".repeat(50))), format!("e{}", "\u{301}".repeat(3)));
    }

    #[test]
    fn a_huge_line_is_cut_at_a_word() {
        let shown = clean(&"word ".repeat(100_000));
        assert!(shown.len() <= SHOWN_BYTES_MAX + 4 && shown.ends_with("word…"), "{shown}");
        assert_eq!(cut("äöü", 3), "ä");
    }

    #[test]
    fn only_web_and_mail_links_are_offered_and_none_that_hides_its_host() {
        assert_eq!(link("https://news.example/a?b=1&c=2#d").as_deref(), Some("https://news.example/a?b=1&c=2#d"));
        assert_eq!(link("mailto:desk@news.example").as_deref(), Some("mailto:desk@news.example"));
        for bad in [
            "javascript:alert(1)",
            "JaVaScRiPt:alert(1)",
            "java\nscript:alert(1)",
            "data:text/html,x",
            "file:///etc/passwd",
            "//news.example",
            "news.example",
            "https://good.example@evil.example/",
            "https:///",
            "mailto:nobody",
            "",
        ] {
            assert_eq!(link(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_link_cannot_break_out_of_where_it_is_printed() {
        let spelled = link("https://news.example/a b\"><script>alert('1')</script>`|").unwrap();
        assert!(!spelled.contains(['"', '<', '>', ' ', '`', '|', '\'']), "{spelled}");
        assert!(link("https://bücher.example/").unwrap().starts_with("https://xn--"));
    }

    #[test]
    fn code_is_cut_out_and_a_lone_backtick_is_no_code() {
        let plain = |text: &str| Span { is_code: false, text: text.to_owned() };
        let code = |text: &str| Span { is_code: true, text: text.to_owned() };
        assert_eq!(spans("use `a` now"), [plain("use "), code("a"), plain(" now")]);
        assert_eq!(spans("it`s"), [plain("it"), plain("'s")]);
        assert_eq!(spans(""), []);
    }
}
