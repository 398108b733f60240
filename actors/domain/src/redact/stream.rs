//! Redaction of a text that comes in pieces, such as the progress of a tool (C-046).
//!
//! A secret cut in two by the edge of a piece is whole for whoever reads both. So what may be the beginning of a secret is
//! held back until its end is known; everything else goes on at once. What is held is bounded.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use regex::Regex;

use super::scrub::{SCRUBBED, Scrubber};
use super::{PRIVATE_KEY, Pattern, RedactionKind, STRONG_KEYS, WEAK_KEYS, is_invisible, redact_text};

/// Most bytes that are held back. Whatever is longer is no secret anybody waits for: the rest of the text is left out.
pub const HELD_BYTES_MAX: usize = 16 * 1_024;
/// So much of what was shown is remembered, in bytes: a name such as `password` may end one piece, and its value begin the next.
const SHOWN_BYTES_MAX: usize = 256;

/// One text in pieces. Invisible characters are left out of it: they only hide what they stand in.
#[derive(Debug, Default)]
pub struct Redactor {
    scrubber: Arc<Scrubber>,
    /// The end of what was shown.
    shown: String,
    held: String,
    gave_up: bool,
}

impl Redactor {
    /// A text in which also these values may not stand.
    pub fn new(scrubber: Arc<Scrubber>) -> Self {
        Self { scrubber, ..Self::default() }
    }

    /// The next piece; what of the text may be shown now.
    pub fn push(&mut self, piece: &str) -> String {
        if self.gave_up {
            return String::new();
        }
        self.held.extend(piece.chars().filter(|c| !is_invisible(*c)));
        let text = [self.shown.as_str(), &self.held].concat();
        let open = open_from(&text).min(self.scrubber.open_from(&text)).max(self.shown.len());
        let held = text[open..].to_owned();
        if held.len() > HELD_BYTES_MAX {
            self.gave_up = true;
            let mut shown = self.show(&text[..open]);
            shown.push_str(SCRUBBED);
            self.held.clear();
            return shown;
        }
        self.held = held;
        self.show(&text[..open])
    }

    /// The text is over; what was held back, redacted.
    pub fn finish(&mut self) -> String {
        let mut text = [self.shown.as_str(), &self.held].concat();
        let open = private_key_from(&text);
        if open < text.len() {
            text.truncate(open);
            text.push_str(RedactionKind::PrivateKey.mask());
        }
        self.held.clear();
        self.show(&text)
    }

    /// Redacts a text that begins with what was shown, and answers what is new in it.
    fn show(&mut self, text: &str) -> String {
        let scrubbed = self.scrubber.text(text);
        let redacted: Cow<'_, str> = redact_text(&scrubbed);
        let same = redacted.chars().zip(self.shown.chars()).take_while(|(now, before)| now == before);
        let known: usize = same.map(|(c, _)| c.len_utf8()).sum();
        let new = redacted[known..].to_owned();
        self.shown.push_str(&new);
        let mut from = self.shown.len().saturating_sub(SHOWN_BYTES_MAX);
        while !self.shown.is_char_boundary(from) {
            from += 1;
        }
        // Not in the middle of a word: half a word may look like something else.
        let from = if from == 0 {
            0
        } else {
            self.shown[from..].find(char::is_whitespace).map_or(from, |word_end| from + word_end)
        };
        self.shown.drain(..from);
        new
    }
}

/// Where, at the end of a text, something begins that may become a secret; the length of the text if nothing does.
fn open_from(text: &str) -> usize {
    let patterns = [&OPEN_RUN, &OPEN_BEARER, &OPEN_HEADER, &OPEN_ASSIGNMENT, &OPEN_FLAG, &OPEN_USERINFO, &OPEN_MYSQL];
    let opens = patterns.into_iter().filter_map(|pattern| {
        let captures = pattern.as_ref()?.captures(text)?;
        Some(captures.name("s")?.start())
    });
    opens.min().unwrap_or(text.len()).min(private_key_from(text))
}

/// Where a private key begins of which the end has not come.
fn private_key_from(text: &str) -> usize {
    let Some((begin, whole)) = PRIVATE_KEY_BEGIN.as_ref().zip(PRIVATE_KEY.as_ref()) else { return 0 };
    let begun = begin.find_iter(text).map(|found| found.start());
    let ended: Vec<_> = whole.find_iter(text).map(|found| found.range()).collect();
    begun.into_iter().find(|at| !ended.iter().any(|range| range.contains(at))).unwrap_or(text.len())
}

static PRIVATE_KEY_BEGIN: Pattern =
    LazyLock::new(|| Regex::new(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----").ok());
/// What begins like a key or token of a known form, up to the end.
static OPEN_RUN: Pattern = LazyLock::new(|| {
    Regex::new(concat!(
        r"(?:^|[^A-Za-z0-9_\-])(?<s>(?:",
        r"gh[pousr]_|github_pat_|gl(?:pat|dt|rt|ptt|ft|soat|cbt|imt|agent)-|AIza|ya29\.|GOCSPX-|xox[abeoprs]-|xapp-",
        r"|AKIA|ASIA|do[opr]_v1_|AGE-SECRET-KEY-1|[prs]k_(?:live|test)_|whsec_|npm_|pypi-|hf_|gsk_|SG\.|hv[sb]\.",
        r"|shp(?:at|ca|pa|ss)_|dapi|lin_api_|ntn_|r8_|(?:sk|pk|rk|xai|pplx)-|eyJ",
        r")[A-Za-z0-9_.\-]*)$"
    ))
    .ok()
});
static OPEN_BEARER: Pattern =
    LazyLock::new(|| Regex::new(r"(?i)(?:^|[^a-z0-9_])bearer\s+(?<s>[a-z0-9._~+/=\-]*)$").ok());
static OPEN_HEADER: Pattern = LazyLock::new(|| {
    Regex::new(r#"(?i)authorization\\*["']?\s*[:=]\s*\\*["']?(?:bearer|basic|token|negotiate|api-?key)\s+(?<s>[^\s"'\\,;<>\[\]{}$]*)$"#).ok()
});
static OPEN_ASSIGNMENT: Pattern = LazyLock::new(|| {
    Regex::new(&format!(
        concat!(
            r#"(?is)(?:{strong}|{weak})(?:\\*["'])?\s*(?:=>|:=|[:=])\s*"#,
            r#"(?<s>"(?:[^"\\]|\\.)*\\?|'(?:[^'\\]|\\.)*\\?|\\+"[^"\\]*\\?|\\*["']?(?:[^\s"'\\&;,)}}\]<>]|\\[^\s"']?)*)$"#
        ),
        strong = STRONG_KEYS,
        weak = WEAK_KEYS
    ))
    .ok()
});
static OPEN_FLAG: Pattern = LazyLock::new(|| {
    Regex::new(&format!(r#"(?i)--(?:[a-z0-9]+-)*(?:{STRONG_KEYS}|{WEAK_KEYS})\s+["']?(?<s>[^\s"'\-][^\s"']*)$"#)).ok()
});
static OPEN_USERINFO: Pattern = LazyLock::new(|| Regex::new(r#"://[^\s/:@"'<>\[]*:(?<s>[^\s/"'<>]*)$"#).ok());
static OPEN_MYSQL: Pattern = LazyLock::new(|| Regex::new(r"(?:^|\s)-p(?<s>[^\s\-\[]\S*(?:\s+(?:-(?:u\s?)?)?)?)$").ok());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_compiles() {
        for pattern in [
            &PRIVATE_KEY_BEGIN,
            &OPEN_RUN,
            &OPEN_BEARER,
            &OPEN_HEADER,
            &OPEN_ASSIGNMENT,
            &OPEN_FLAG,
            &OPEN_USERINFO,
            &OPEN_MYSQL,
        ] {
            assert!(pattern.is_some());
        }
    }
}
