//! Scrubbing: known secret values are taken out of whatever the tool that was given them says (CAP-013).
//!
//! A value is found as it is, and as encoders write it: base64 (standard and URL-safe, at each of its three alignments),
//! percent-encoded, escaped as in JSON, and hexadecimal. One pass in linear time finds all of them.

use std::borrow::Cow;
use std::fmt;

use regex::{Regex, RegexBuilder};
use serde_json::{Map, Value};

use crate::run::event::{ArtifactRef, Evidence};
use crate::run::step::{CallEnding, CallResult};

/// What is left of a secret value.
pub const SCRUBBED: &str = "[redacted]";
/// Shortest value that can be scrubbed, in bytes: a shorter one occurs everywhere by chance.
pub const SECRET_BYTES_MIN: usize = 8;
/// Longest value that can be scrubbed, in bytes.
pub const SECRET_BYTES_MAX: usize = 4 * 1_024;
/// Lines of a value this long are secrets of their own: a tool may show a key line by line.
const LINE_BYTES_MIN: usize = 16;
/// So much of a value may stand at the end of a chunk before it is held back.
const SHOWN_MAX: usize = 3;
/// Most memory the compiled pattern may take, in bytes.
const PATTERN_BYTES_MAX: usize = 64 * 1_024 * 1_024;

/// Why a value cannot be used as a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UnfitSecret {
    /// Too short to be told from other text.
    #[error("a secret must have at least {SECRET_BYTES_MIN} bytes")]
    TooShort,
    /// Too long.
    #[error("a secret may have at most {SECRET_BYTES_MAX} bytes")]
    TooLong,
}

impl UnfitSecret {
    /// Stable code.
    pub const fn code(self) -> &'static str {
        match self {
            Self::TooShort => "secret-too-short",
            Self::TooLong => "secret-too-long",
        }
    }
}

/// Takes the values of one call's secrets out of texts and values.
#[derive(Clone, Default)]
pub struct Scrubber {
    forms: Vec<Form>,
    pattern: Option<Regex>,
}

impl fmt::Debug for Scrubber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scrubber").field("forms", &self.forms.len()).finish_non_exhaustive()
    }
}

/// One way in which a value can be written: for each place, what may stand there.
#[derive(Clone)]
struct Form {
    places: Vec<Vec<String>>,
    /// Characters beside it that hold bits of the value.
    before: &'static str,
    after: &'static str,
}

impl Scrubber {
    /// A scrubber of these values; of none it changes nothing.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Result<Self, UnfitSecret> {
        let mut forms = Vec::new();
        for secret in secrets {
            fits(secret)?;
            forms.extend(forms_of(secret));
            let lines = secret.lines().map(str::trim).filter(|line| line.len() >= LINE_BYTES_MIN && *line != secret);
            forms.extend(lines.flat_map(forms_of));
        }
        if forms.is_empty() {
            return Ok(Self::default());
        }
        let pattern: Vec<String> = forms.iter().map(Form::pattern).collect();
        let pattern = RegexBuilder::new(&pattern.join("|")).size_limit(PATTERN_BYTES_MAX).build();
        Ok(Self { forms, pattern: Some(pattern.map_err(|_| UnfitSecret::TooLong)?) })
    }

    /// True if there is no value to look for.
    pub const fn is_idle(&self) -> bool {
        self.pattern.is_none()
    }

    /// The text without the values.
    pub fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.pattern.as_ref().map_or(Cow::Borrowed(text), |pattern| pattern.replace_all(text, SCRUBBED))
    }

    /// The value without the values, in keys and numbers too.
    pub fn value(&self, value: Value) -> Value {
        if self.pattern.is_none() {
            return value;
        }
        match value {
            Value::String(text) => Value::String(self.owned(text)),
            Value::Number(number) => match self.text(&number.to_string()) {
                Cow::Borrowed(_) => Value::Number(number),
                Cow::Owned(scrubbed) => Value::String(scrubbed),
            },
            Value::Array(items) => Value::Array(items.into_iter().map(|item| self.value(item)).collect()),
            Value::Object(members) => {
                let members = members.into_iter().map(|(key, member)| (self.owned(key), self.value(member)));
                Value::Object(members.collect::<Map<_, _>>())
            }
            Value::Null | Value::Bool(_) => value,
        }
    }

    /// Everything a call says of its end, without the values.
    pub fn result(&self, result: CallResult) -> CallResult {
        if self.pattern.is_none() {
            return result;
        }
        let ending = match result.ending {
            CallEnding::Answered { partial, output, evidence, effects, artifacts } => CallEnding::Answered {
                partial,
                output: self.value(output),
                evidence: evidence.map(|told| Evidence { evidence_pack_id: self.owned(told.evidence_pack_id), ..told }),
                effects: effects.into_iter().map(|effect| self.owned(effect)).collect(),
                artifacts: artifacts.into_iter().map(|artifact| self.artifact(artifact)).collect(),
            },
            CallEnding::Failed { code, message } => {
                CallEnding::Failed { code: self.owned(code), message: self.owned(message) }
            }
            CallEnding::NotStarted { code, message } => {
                CallEnding::NotStarted { code: self.owned(code), message: self.owned(message) }
            }
            CallEnding::Unknown { message } => CallEnding::Unknown { message: self.owned(message) },
            CallEnding::Cancelled => CallEnding::Cancelled,
        };
        CallResult { ending, ..result }
    }

    fn artifact(&self, artifact: ArtifactRef) -> ArtifactRef {
        ArtifactRef {
            name: self.owned(artifact.name),
            persisted_key: self.owned(artifact.persisted_key),
            media_type: self.owned(artifact.media_type),
            ..artifact
        }
    }

    fn owned(&self, text: String) -> String {
        match self.text(&text) {
            Cow::Borrowed(_) => text,
            Cow::Owned(scrubbed) => scrubbed,
        }
    }

    /// Where, at the end of a text, something begins that may become one of the values; the length of the text if
    /// nothing does.
    pub(super) fn open_from(&self, text: &str) -> usize {
        let longest = self.forms.iter().map(|form| form.bytes_max()).max().unwrap_or(0);
        let from = text.len().saturating_sub(longest);
        let starts = text.char_indices().map(|(at, _)| at).filter(|at| *at >= from);
        let open = |at: &usize| text.len() - at > SHOWN_MAX && self.forms.iter().any(|form| form.opens(&text[*at..]));
        starts.into_iter().find(open).unwrap_or(text.len())
    }
}

/// Whether a value can be told from other text, and is no longer than it may be.
pub fn fits(secret: &str) -> Result<(), UnfitSecret> {
    match secret.len() {
        ..SECRET_BYTES_MIN => Err(UnfitSecret::TooShort),
        SECRET_BYTES_MIN..=SECRET_BYTES_MAX => Ok(()),
        _ => Err(UnfitSecret::TooLong),
    }
}

impl Form {
    fn plain(places: Vec<Vec<String>>) -> Self {
        Self { places, before: "", after: "" }
    }

    fn pattern(&self) -> String {
        let mut pattern = self.before.to_owned();
        for place in &self.places {
            let escaped: Vec<String> = place.iter().map(|way| regex::escape(way)).collect();
            match escaped.as_slice() {
                [one] => pattern.push_str(one),
                several => pattern.extend(["(?:", &several.join("|"), ")"]),
            }
        }
        pattern.push_str(self.after);
        pattern
    }

    fn bytes_max(&self) -> usize {
        self.places.iter().map(|place| place.iter().map(String::len).max().unwrap_or(0)).sum()
    }

    /// True if the text ends before the form does, and agrees with it so far.
    fn opens(&self, text: &str) -> bool {
        let mut rest = vec![text];
        for place in &self.places {
            let mut next: Vec<&str> = Vec::new();
            for text in &rest {
                for way in place {
                    match text.strip_prefix(way.as_str()) {
                        Some(left) if !next.contains(&left) => next.push(left),
                        Some(_) => {}
                        None if way.starts_with(text) => return true,
                        None => {}
                    }
                }
            }
            if next.is_empty() {
                return false;
            }
            rest = next;
        }
        false
    }
}

fn forms_of(secret: &str) -> Vec<Form> {
    let mut forms = vec![Form::plain(secret.chars().map(ways_of).collect())];
    let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
    forms.push(Form::plain(hex.chars().map(|digit| both_cases(digit.to_string())).collect()));
    forms.extend((0..3).map(|alignment| base64_form(secret.as_bytes(), alignment)));
    forms
}

/// How a character may be written: as it is, percent-encoded, or escaped as in JSON.
fn ways_of(c: char) -> Vec<String> {
    let mut utf8 = [0; 4];
    let percent: String = c.encode_utf8(&mut utf8).bytes().map(|byte| format!("%{byte:02x}")).collect();
    let digits: String = c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("{unit:04x}")).collect();
    let escape = |digits: &str| -> String {
        digits.as_bytes().chunks(4).map(|unit| format!("\\u{}", String::from_utf8_lossy(unit))).collect()
    };
    let mut ways = vec![c.to_string()];
    ways.extend(both_cases(percent));
    ways.extend([escape(&digits), escape(&digits.to_uppercase())]);
    ways.extend(match c {
        ' ' => Some("+".to_owned()),
        '"' | '\\' | '/' => Some(format!("\\{c}")),
        '\n' => Some("\\n".to_owned()),
        '\r' => Some("\\r".to_owned()),
        '\t' => Some("\\t".to_owned()),
        _ => None,
    });
    // A way that begins with another would otherwise never be tried.
    ways.sort_by_key(|way| std::cmp::Reverse(way.len()));
    ways.dedup();
    ways
}

fn both_cases(text: String) -> Vec<String> {
    let upper = text.to_uppercase();
    if upper == text { vec![text] } else { vec![text, upper] }
}

/// The digits that a value has in base64 wherever it stands: those that also hold bits of its neighbours are left out.
fn base64_form(secret: &[u8], alignment: usize) -> Form {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const NEIGHBOUR: &str = "[A-Za-z0-9+/_-]?";
    let bits: Vec<bool> = std::iter::repeat_n(false, alignment * 8)
        .chain(secret.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1 == 1)))
        .collect();
    let whole = bits.chunks_exact(6).skip((alignment * 8).div_ceil(6));
    let digits = whole.map(|six| DIGITS[six.iter().fold(0, |number, bit| number << 1 | usize::from(*bit))]);
    let places = digits.map(|digit| match digit {
        b'+' => ["+", "-", "%2B", "%2b"].map(str::to_owned).to_vec(),
        b'/' => ["/", "_", "\\/", "%2F", "%2f"].map(str::to_owned).to_vec(),
        other => vec![char::from(other).to_string()],
    });
    let shares_last = !bits.len().is_multiple_of(6);
    Form {
        places: places.collect(),
        before: if alignment == 0 { "" } else { NEIGHBOUR },
        after: if shares_last { "[A-Za-z0-9+/_-]?={0,2}" } else { "={0,2}" },
    }
}
