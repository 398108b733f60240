//! Redaction: secrets are masked before text is stored, logged or shown to a model (KGV-013, KGV-014).
//!
//! Five shapes are known: private keys, JSON Web Tokens, bearer credentials, provider API keys, and assignments such
//! as `password=…`. Every pattern runs in linear time. What only looks like a secret stays as it is: hashes, UUIDs,
//! counters of tokens, placeholders and prose are needed by later steps, and masking them would break those.
//!
//! [`scrub`] takes out values that are known to be secret, [`stream`] redacts a text that comes in pieces.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde_json::{Map, Value};

pub mod scrub;
pub mod stream;

/// What kind of secret was masked. It is all that is left of the secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RedactionKind {
    /// A private key in PEM form.
    PrivateKey,
    /// A JSON Web Token, signed, encrypted or neither.
    Jwt,
    /// A credential behind `Bearer` or in an `Authorization` header.
    Bearer,
    /// A key in the form of a known provider.
    ApiKey,
    /// A value given to a name such as `password`.
    Assignment,
}

impl RedactionKind {
    /// All five.
    pub const ALL: [Self; 5] = [Self::PrivateKey, Self::Jwt, Self::Bearer, Self::ApiKey, Self::Assignment];

    /// What the secret is replaced with.
    pub const fn mask(self) -> &'static str {
        match self {
            Self::PrivateKey => "[redacted:private_key]",
            Self::Jwt => "[redacted:jwt]",
            Self::Bearer => "[redacted:bearer]",
            Self::ApiKey => "[redacted:api_key]",
            Self::Assignment => "[redacted:assignment]",
        }
    }
}

/// Most times a text is looked at again because something in it was masked.
const PASSES_MAX: usize = 8;

/// Masks every secret in a text. Doing it twice changes nothing more.
pub fn redact_text(text: &str) -> Cow<'_, str> {
    let mut redacted = redact_once(text);
    // A mask is a boundary that was not there before: what stood glued to one secret can be seen to be another.
    for _ in 1..PASSES_MAX {
        let Cow::Owned(masked) = &redacted else { break };
        match redact_once(masked) {
            Cow::Owned(again) if again != *masked => redacted = Cow::Owned(again),
            Cow::Owned(_) | Cow::Borrowed(_) => break,
        }
    }
    redacted
}

fn redact_once(text: &str) -> Cow<'_, str> {
    let redacted = redact_visible(text);
    if !redacted.contains(is_invisible) {
        return redacted;
    }
    // Invisible characters can cut a key or a secret in two for a pattern, not for whoever copies it. Only a text
    // that does hide a secret loses them.
    let bare: String = redacted.chars().filter(|c| !is_invisible(*c)).collect();
    match redact_visible(&bare) {
        Cow::Borrowed(_) => redacted,
        Cow::Owned(found) => Cow::Owned(found),
    }
}

/// Masks every secret in a JSON value, in keys of objects too, and says whether anything was changed. A string under
/// a key such as `password` is a secret whatever it looks like; a handle `{"$secret": id}` is not.
pub fn redact_value(value: &Value) -> (Value, bool) {
    let mut changed = false;
    let redacted = redact_under(value, None, &mut changed);
    (redacted, changed)
}

fn redact_under(value: &Value, key: Option<KeyStrength>, changed: &mut bool) -> Value {
    let mut mask = || {
        *changed = true;
        Value::String(RedactionKind::Assignment.mask().to_owned())
    };
    match value {
        Value::String(text) if key.is_some_and(|key| key.makes_secret(text, false)) => mask(),
        Value::Number(_) if key == Some(KeyStrength::Strong) => mask(),
        Value::String(text) => match redact_text(text) {
            Cow::Borrowed(_) => value.clone(),
            Cow::Owned(redacted) => {
                *changed = true;
                Value::String(redacted)
            }
        },
        Value::Array(items) => Value::Array(items.iter().map(|item| redact_under(item, key, changed)).collect()),
        Value::Object(members) => {
            let mut object = Map::new();
            for (name, member) in members {
                let redacted_name = redact_text(name);
                *changed |= matches!(redacted_name, Cow::Owned(_));
                object.insert(redacted_name.into_owned(), redact_under(member, key_strength(name), changed));
            }
            Value::Object(object)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

fn redact_visible(text: &str) -> Cow<'_, str> {
    use RedactionKind::{ApiKey, Assignment, Bearer, Jwt, PrivateKey};

    let mut text = Cow::Borrowed(text);
    let assigns = |text: &str| text.contains([':', '=']);
    // The second argument has to be true for the pattern to match; asking it first spares most texts the pattern.
    apply(&mut text, |text| text.contains("PRIVATE KEY"), &PRIVATE_KEY, PrivateKey, |_| true);
    apply(&mut text, |text| text.contains("PRIVATE KEY"), &PRIVATE_KEY_CUT, PrivateKey, |_| true);
    apply(&mut text, |text| text.contains("eyJ"), &JWT, Jwt, |_| true);
    apply(&mut text, assigns, &AUTHORIZATION, Bearer, |_| true);
    apply(&mut text, |text| text.contains(char::is_whitespace), &BEARER, Bearer, |found| has_digit(found.secret));
    apply(&mut text, |text| text.len() >= API_KEY_BYTES_MIN, &API_KEY, ApiKey, |_| true);
    apply(&mut text, |text| text.contains('-'), &API_KEY_SHORT_PREFIX, ApiKey, |found| has_digit(found.secret));
    apply(&mut text, |text| text.contains("://"), &USERINFO, Assignment, |found| !is_placeholder(found.secret));
    apply(&mut text, assigns, &ASSIGNMENT, Assignment, |found| found.is_assigned());
    apply(&mut text, |text| text.contains("--"), &FLAG, Assignment, |found| !is_placeholder(found.secret));
    apply(&mut text, |text| text.contains("-p"), &MYSQL_FLAG, Assignment, |_| true);
    text
}

/// One match of a pattern in a text.
struct Found<'t> {
    text: &'t str,
    /// The whole match begins here.
    start: usize,
    /// What may have to be masked.
    secret: &'t str,
    /// It ends here.
    end: usize,
    /// The name it is given to, for assignments.
    key: Option<&'t str>,
    /// The name stood in quotes.
    key_quoted: bool,
    /// Stands between the name and the value.
    separator: &'t str,
    /// The value stood in quotes.
    quoted: bool,
}

impl<'t> Found<'t> {
    fn new(text: &'t str, captures: &Captures<'t>) -> Option<Self> {
        let quoted = ["dq", "sq", "eq"].iter().find_map(|name| captures.name(name));
        let secret = quoted.or_else(|| captures.name("s"))?;
        Some(Self {
            text,
            start: captures.get(0)?.start(),
            secret: secret.as_str(),
            end: secret.end(),
            key: captures.name("key").map(|key| key.as_str()),
            key_quoted: captures.name("kq").is_some(),
            separator: captures.name("sep").map_or("", |separator| separator.as_str()),
            quoted: quoted.is_some(),
        })
    }

    fn is_assigned(&self) -> bool {
        // `$secret` names a handle, not a secret.
        if self.text[..self.start].ends_with('$') || is_placeholder(self.secret) {
            return false;
        }
        // A name, a call or an index is code or structure, not a value.
        if !self.quoted && self.secret.ends_with([':', '(', '[']) {
            return false;
        }
        let strength = self.key.and_then(key_strength).unwrap_or(KeyStrength::Weak);
        let plain = !self.quoted && self.separator.contains(':') && !self.is_alone() && !has_symbol(self.secret);
        strength.makes_secret(self.secret, plain)
    }

    /// Nothing follows on the line: not the first word of a sentence.
    fn is_alone(&self) -> bool {
        let next = self.text[self.end..].chars().find(|c| !matches!(c, ' ' | '\t'));
        next.is_none_or(|c| matches!(c, '\n' | '\r' | ',' | ';' | '&' | '}' | ']' | ')' | '"' | '\'' | '\\'))
    }

    /// A bare number or word under a quoted key: without quotes the result would no longer be JSON.
    fn needs_quotes(&self) -> bool {
        self.key_quoted && !self.quoted && !self.text[..self.end - self.secret.len()].ends_with(['"', '\''])
    }
}

/// Masks the secret of each match of which `is_secret` says that it is one.
fn apply(
    text: &mut Cow<'_, str>,
    may_match: impl Fn(&str) -> bool,
    pattern: &Pattern,
    kind: RedactionKind,
    is_secret: impl Fn(&Found<'_>) -> bool,
) {
    if !may_match(text) {
        return;
    }
    // Whether there is a match at all is told without remembering where.
    let Some(regex) = pattern.as_ref().filter(|regex| regex.is_match(text)) else { return };
    let mut out = String::new();
    let mut copied = 0;
    for captures in regex.captures_iter(text) {
        let Some(found) = Found::new(text, &captures).filter(&is_secret) else { continue };
        let quote = if found.needs_quotes() { "\"" } else { "" };
        out.push_str(&text[copied..found.end - found.secret.len()]);
        out.extend([quote, kind.mask(), quote]);
        copied = found.end;
    }
    if copied > 0 {
        out.push_str(&text[copied..]);
        *text = Cow::Owned(out);
    }
}

/// How surely what a name is given to is a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyStrength {
    /// Whatever it looks like.
    Strong,
    /// Only if it looks random: there are many harmless tokens.
    Weak,
}

impl KeyStrength {
    /// `plain` says that the value may be the first word of a sentence.
    fn makes_secret(self, value: &str, plain: bool) -> bool {
        match self {
            Self::Strong => !is_placeholder(value) && !plain,
            Self::Weak => (value.len() >= 8 && has_digit(value) && !all_digits(value)) || value.contains('='),
        }
    }
}

/// `None` if the name promises no secret.
fn key_strength(name: &str) -> Option<KeyStrength> {
    // A handle names a secret without holding it.
    if name.starts_with('$') {
        return None;
    }
    let ends = |pattern: &Pattern| pattern.as_ref().is_some_and(|regex| regex.is_match(name));
    if ends(&STRONG_KEY) {
        return Some(KeyStrength::Strong);
    }
    ends(&WEAK_KEY).then_some(KeyStrength::Weak)
}

fn has_digit(value: &str) -> bool {
    value.bytes().any(|b| b.is_ascii_digit())
}

fn all_digits(value: &str) -> bool {
    value.bytes().all(|b| b.is_ascii_digit())
}

/// Something that an English word does not have.
fn has_symbol(value: &str) -> bool {
    value.bytes().any(|b| b.is_ascii_digit() || b"@#$%^*+=_~|".contains(&b))
}

/// Words that stand where a secret would, and are none.
const HARMLESS: [&str; 36] = [
    "none",
    "null",
    "nil",
    "true",
    "false",
    "undefined",
    "yes",
    "no",
    "required",
    "optional",
    "missing",
    "invalid",
    "incorrect",
    "expired",
    "changed",
    "empty",
    "hidden",
    "unset",
    "str",
    "string",
    "int",
    "integer",
    "bool",
    "boolean",
    "text",
    "bytes",
    "number",
    "any",
    "object",
    "varchar",
    "char",
    "option",
    "password",
    "secret",
    "token",
    "redacted",
];

fn is_placeholder(value: &str) -> bool {
    let value = value.trim_end_matches(['.', ',', ':', ';', '!', '?']);
    if value.bytes().all(|b| b"*.-_xX?".contains(&b)) || HARMLESS.iter().any(|word| value.eq_ignore_ascii_case(word)) {
        return true;
    }
    if let Some(rest) = strip_prefix_ignore_case(value, "[redacted") {
        return rest.bytes().all(|b| b.is_ascii_alphabetic() || b":_-]".contains(&b));
    }
    let is_variable = |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_uppercase() || b == b'_');
    value.starts_with("${")
        || value.starts_with("$(")
        || value.starts_with("{{")
        || value.starts_with('<')
        || value.strip_prefix('$').is_some_and(is_variable)
        || value.strip_prefix('%').and_then(|v| v.strip_suffix('%')).is_some_and(is_variable)
}

fn strip_prefix_ignore_case<'t>(text: &'t str, prefix: &str) -> Option<&'t str> {
    let (head, tail) = text.split_at_checked(prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then_some(tail)
}

/// Zero-width and direction characters: they change what a pattern sees, not what a person sees.
const fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

// The pattern texts are constants; a test compiles them all, so `None` never happens.
type Pattern = LazyLock<Option<Regex>>;

const STRONG_KEYS: &str = r"pass(?:word|wd|phrase|code)|passwort|kennwort|contrase(?:ñ|n)a|senha|pwd|secret|credential|(?:api|access|account|secret|private|signing|encryption|license)[_\-]?key";
const WEAK_KEYS: &str = r"token|authorization";

static STRONG_KEY: Pattern = LazyLock::new(|| Regex::new(&format!("(?i)(?:{STRONG_KEYS})$")).ok());
static WEAK_KEY: Pattern = LazyLock::new(|| Regex::new(&format!("(?i)(?:{WEAK_KEYS})$")).ok());

static PRIVATE_KEY: Pattern = LazyLock::new(|| {
    Regex::new(r"(?s)(?<s>-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)").ok()
});
/// A private key whose end is missing: everything that can belong to it.
static PRIVATE_KEY_CUT: Pattern = LazyLock::new(|| {
    Regex::new(r"(?<s>-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----[A-Za-z0-9+/=\s\\]*)").ok()
});
/// Three parts, or five when encrypted; the last may be empty.
static JWT: Pattern =
    LazyLock::new(|| Regex::new(r"(?:^|[^A-Za-z0-9_\-])(?<s>eyJ[A-Za-z0-9_\-]{4,}(?:\.[A-Za-z0-9_\-]*){2,4})").ok());
static AUTHORIZATION: Pattern = LazyLock::new(|| {
    Regex::new(r#"(?i)authorization\\*["']?\s*[:=]\s*\\*["']?(?:bearer|basic|token|negotiate|api-?key)\s+(?<s>[^\s"'\\,;<>\[\]{}$]{4,})"#).ok()
});
static BEARER: Pattern = LazyLock::new(|| Regex::new(r"(?i)(?:^|[^a-z0-9_])bearer\s+(?<s>[a-z0-9._~+/=\-]{8,})").ok());
/// The shortest key of [`API_KEY`]: `xoxb-` and ten characters.
const API_KEY_BYTES_MIN: usize = 15;

/// Prefixes that nothing else begins with.
static API_KEY: Pattern = LazyLock::new(|| {
    Regex::new(concat!(
        r"(?:^|[^A-Za-z0-9_\-])(?<s>",
        r"gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}",
        r"|gl(?:pat|dt|rt|ptt|ft|soat|cbt|imt|agent)-[A-Za-z0-9_\-]{16,}",
        r"|AIza[A-Za-z0-9_\-]{30,}|ya29\.[A-Za-z0-9_\-]{20,}|GOCSPX-[A-Za-z0-9_\-]{20,}",
        r"|xox[abeoprs]-[A-Za-z0-9\-]{10,}|xapp-[0-9]-[A-Za-z0-9\-]{20,}",
        r"|(?:AKIA|ASIA)[0-9A-Z]{16}|do[opr]_v1_[a-f0-9]{32,}|AGE-SECRET-KEY-1[0-9A-Z]{30,}",
        r"|[prs]k_(?:live|test)_[A-Za-z0-9]{10,}|whsec_[A-Za-z0-9]{16,}",
        r"|npm_[A-Za-z0-9]{30,}|pypi-[A-Za-z0-9_\-]{40,}|hf_[A-Za-z0-9]{20,}|gsk_[A-Za-z0-9]{20,}",
        r"|SG\.[A-Za-z0-9_\-]{16,}\.[A-Za-z0-9_\-]{16,}|hv[sb]\.[A-Za-z0-9_\-]{20,}|shp(?:at|ca|pa|ss)_[a-f0-9]{32}",
        r"|dapi[a-f0-9]{32}|lin_api_[A-Za-z0-9]{20,}|ntn_[A-Za-z0-9]{20,}|r8_[A-Za-z0-9]{30,}",
        r")"
    ))
    .ok()
});
/// Prefixes that ordinary hyphenated words share.
static API_KEY_SHORT_PREFIX: Pattern =
    LazyLock::new(|| Regex::new(r"(?:^|[^A-Za-z0-9_\-])(?<s>(?:sk|pk|rk|xai|pplx)-[A-Za-z0-9_\-]{20,})").ok());
/// The password of a URL.
static USERINFO: Pattern = LazyLock::new(|| Regex::new(r#"://[^\s/:@"'<>\[]*:(?<s>[^\s/"'<>]+)@"#).ok());
static ASSIGNMENT: Pattern = LazyLock::new(|| {
    Regex::new(&format!(
        concat!(
            r#"(?is)(?<key>{strong}|{weak})(?<kq>\\*["'])?(?<sep>\s*(?:=>|:=|[:=])\s*)"#,
            r#"(?:"(?<dq>(?:[^"\\]|\\.)+)"|'(?<sq>(?:[^'\\]|\\.)+)'|\\"(?<eq>(?:[^"\\]|\\\\\\.|\\\\[^"\\]|\\[^"\\])+)\\"|\\*["']?(?<s>(?:[^\s"'\\&;,)}}\]<>]|\\[^\s"'])+))"#
        ),
        strong = STRONG_KEYS,
        weak = WEAK_KEYS
    ))
    .ok()
});
/// `--password value`.
static FLAG: Pattern = LazyLock::new(|| {
    Regex::new(&format!(r#"(?i)--(?:[a-z0-9]+-)*(?:{STRONG_KEYS}|{WEAK_KEYS})\s+["']?(?<s>[^\s"'\-][^\s"']*)"#)).ok()
});
/// `-pvalue` in front of `-u`; alone it could be any flag.
static MYSQL_FLAG: Pattern = LazyLock::new(|| Regex::new(r"(?:^|\s)-p(?<s>[^\s\-\[]\S{3,})\s+-u\s?\S").ok());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_compiles() {
        for pattern in [
            &STRONG_KEY,
            &WEAK_KEY,
            &PRIVATE_KEY,
            &PRIVATE_KEY_CUT,
            &JWT,
            &AUTHORIZATION,
            &BEARER,
            &API_KEY,
            &API_KEY_SHORT_PREFIX,
            &USERINFO,
            &ASSIGNMENT,
            &FLAG,
            &MYSQL_FLAG,
        ] {
            assert!(pattern.is_some());
        }
    }
}
