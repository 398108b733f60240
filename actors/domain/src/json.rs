//! Reading JSON from outside: size, depth, duplicate keys and numbers are checked before anything is believed.
//!
//! Why not `serde_json` alone: it lets the last of two equal keys win, so a rule that reads `deny` can load as
//! `allow`; and it rounds large numbers, so two amounts can share one digest.

use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The largest whole number up to which a double holds every whole number.
const EXACT_MAX: u64 = 1 << 53;
/// Most characters of outside text that are repeated in a message.
const QUOTE_CHARS_MAX: usize = 64;

/// How big a document may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes.
    pub bytes_max: usize,
    /// Most levels of arrays and objects inside each other; more than 127 are never read.
    pub depth_max: usize,
}

impl Limits {
    /// 1 MiB and 64 levels.
    pub const DEFAULT: Self = Self { bytes_max: 1024 * 1024, depth_max: 64 };
}

/// Why a document was not read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// More bytes than allowed.
    #[error("the JSON has {bytes} bytes; at most {bytes_max} are allowed")]
    TooLarge {
        /// How many it has.
        bytes: usize,
        /// How many are allowed.
        bytes_max: usize,
    },
    /// More levels than allowed.
    #[error("the JSON is nested deeper than {depth_max} levels")]
    TooDeep {
        /// How many are allowed.
        depth_max: usize,
    },
    /// One object names one key twice, so that two readers could believe different things.
    #[error("the key `{0}` stands twice in one object")]
    DuplicateKey(String),
    /// A number that a double cannot hold exactly.
    #[error("the number {0} cannot be held exactly by a double; send it as a string")]
    NumberNotExact(String),
    /// Bytes that are not UTF-8, or an escape for half of a character.
    #[error("the JSON is not Unicode text: {0}")]
    NotUnicode(&'static str),
    /// Not JSON.
    #[error("not valid JSON: {0}")]
    Invalid(String),
    /// JSON, but not what is expected here.
    #[error("the JSON is not of the expected shape: {0}")]
    WrongShape(String),
}

impl JsonError {
    /// Stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::TooLarge { .. } => "json-too-large",
            Self::TooDeep { .. } => "json-too-deep",
            Self::DuplicateKey(_) => "json-duplicate-key",
            Self::NumberNotExact(_) => "number-not-exact",
            Self::NotUnicode(_) => "json-not-unicode",
            Self::Invalid(_) | Self::WrongShape(_) => "json-invalid",
        }
    }
}

/// Reads one document. A NUL inside a string is legal JSON and kept.
///
/// # Errors
/// The first thing wrong with it, see [`JsonError`].
pub fn parse_strict(bytes: &[u8], limits: Limits) -> Result<Value, JsonError> {
    if bytes.len() > limits.bytes_max {
        return Err(JsonError::TooLarge { bytes: bytes.len(), bytes_max: limits.bytes_max });
    }
    let text = std::str::from_utf8(bytes).map_err(|_| JsonError::NotUnicode("the bytes are not UTF-8"))?;
    scan(text, limits.depth_max)?;
    let duplicate = RefCell::new(None);
    let mut reader = serde_json::Deserializer::from_str(text);
    let read = Strict(&duplicate).deserialize(&mut reader).and_then(|value| reader.end().map(|()| value));
    match (read, duplicate.into_inner()) {
        (_, Some(key)) => Err(JsonError::DuplicateKey(key)),
        (Ok(value), None) => Ok(value),
        (Err(error), None) => Err(JsonError::Invalid(error.to_string())),
    }
}

/// Reads one document of a known shape.
///
/// # Errors
/// As [`parse_strict`]; a document of another shape is `json-invalid` too.
pub fn parse_as<T: DeserializeOwned>(bytes: &[u8], limits: Limits) -> Result<T, JsonError> {
    serde_json::from_value(parse_strict(bytes, limits)?).map_err(|error| JsonError::WrongShape(error.to_string()))
}

/// Checks depth, escapes and numbers without building anything. It trusts no syntax: what it lets through is
/// still read by a real parser.
fn scan(text: &str, depth_max: usize) -> Result<(), JsonError> {
    let bytes = text.as_bytes();
    let mut depth = 0_usize;
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => at = scan_string(bytes, at + 1)?,
            b'[' | b'{' => {
                depth += 1;
                if depth > depth_max {
                    return Err(JsonError::TooDeep { depth_max });
                }
                at += 1;
            }
            b']' | b'}' => {
                depth = depth.saturating_sub(1);
                at += 1;
            }
            b'-' | b'0'..=b'9' => {
                let length =
                    bytes[at..].iter().take_while(|b| matches!(b, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E'));
                let end = at + length.count();
                check_number(&text[at..end])?;
                at = end;
            }
            _ => at += 1,
        }
    }
    Ok(())
}

/// From inside a string to just behind its closing quote.
fn scan_string(bytes: &[u8], mut at: usize) -> Result<usize, JsonError> {
    const HALF: JsonError = JsonError::NotUnicode("an escape stands for half of a character");
    while at < bytes.len() {
        match bytes[at] {
            b'"' => return Ok(at + 1),
            b'\\' => match escaped_unit(bytes, at) {
                Some(0xD800..=0xDBFF) => match escaped_unit(bytes, at + 6) {
                    Some(0xDC00..=0xDFFF) => at += 12,
                    Some(_) | None => return Err(HALF),
                },
                Some(0xDC00..=0xDFFF) => return Err(HALF),
                Some(_) => at += 6,
                None => at += 2,
            },
            _ => at += 1,
        }
    }
    Ok(at)
}

/// The UTF-16 unit that a `\uXXXX` at this place stands for.
fn escaped_unit(bytes: &[u8], at: usize) -> Option<u16> {
    let digits = bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
    digits.iter().try_fold(0_u16, |unit, digit| {
        let digit = char::from(*digit).to_digit(16)?;
        Some(unit << 4 | u16::try_from(digit).ok()?)
    })
}

fn check_number(literal: &str) -> Result<(), JsonError> {
    let digits = literal.strip_prefix('-').unwrap_or(literal);
    let exact = if digits.bytes().all(|b| b.is_ascii_digit()) {
        // An empty run of digits is for the parser to refuse.
        digits.is_empty() || digits.parse::<u64>().is_ok_and(|n| n <= EXACT_MAX)
    } else {
        // From 2^53 on a fraction or exponent may already have been rounded.
        literal.parse::<f64>().map_or(true, |n| n.abs() < EXACT_MAX as f64)
    };
    if exact { Ok(()) } else { Err(JsonError::NumberNotExact(literal.chars().take(QUOTE_CHARS_MAX).collect())) }
}

/// Builds a value and remembers the first key that stands twice.
#[derive(Clone, Copy)]
struct Strict<'a>(&'a RefCell<Option<String>>);

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(Value::Bool(v))
    }
    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(Value::Number(v.into()))
    }
    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        Ok(Value::Number(v.into()))
    }
    fn visit_f64<E: serde::de::Error>(self, v: f64) -> Result<Value, E> {
        Number::from_f64(v).map(Value::Number).ok_or_else(|| E::custom("a number is not finite"))
    }
    fn visit_str<E>(self, v: &str) -> Result<Value, E> {
        Ok(Value::String(v.to_owned()))
    }
    fn visit_string<E>(self, v: String) -> Result<Value, E> {
        Ok(Value::String(v))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            if object.contains_key(&key) {
                self.0.borrow_mut().get_or_insert_with(|| key.chars().take(QUOTE_CHARS_MAX).collect());
                return Err(serde::de::Error::custom("a key stands twice in one object"));
            }
            let value = members.next_value_seed(self)?;
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Result<Value, &'static str> {
        parse_strict(text.as_bytes(), Limits::DEFAULT).map_err(|error| error.code())
    }

    #[test]
    fn ordinary_json_reads_as_itself() {
        let text = r#"{"a":[1,-2.5,1e3,true,false,null,"x\n\u00e9"],"b":{"c":{}}}"#;
        assert_eq!(read(text), Ok(json!({"a": [1, -2.5, 1e3, true, false, null, "x\né"], "b": {"c": {}}})));
    }

    #[test]
    fn a_key_that_stands_twice_is_refused_at_any_depth() {
        assert_eq!(read(r#"{"effect":"deny","effect":"allow"}"#), Err("json-duplicate-key"));
        assert_eq!(read(r#"[{"x":{"toolId":1,"toolId":2}}]"#), Err("json-duplicate-key"));
        assert_eq!(read(r#"{"a":1,"\u0061":2}"#), Err("json-duplicate-key"), "an escape spells the same key");
        assert_eq!(read(r#"{"a":{"k":1},"b":{"k":1}}"#), Ok(json!({"a": {"k": 1}, "b": {"k": 1}})));
    }

    #[test]
    fn a_document_over_the_limits_is_refused() {
        let limits = Limits { bytes_max: 8, depth_max: 2 };
        let code = |text: &str| parse_strict(text.as_bytes(), limits).map_err(|error| error.code());
        assert_eq!(code("[[1]]"), Ok(json!([[1]])));
        assert_eq!(code("[[[]]]"), Err("json-too-deep"));
        assert_eq!(code("[1,2,3,4,5]"), Err("json-too-large"));
        assert_eq!(read(&"[".repeat(100_000)), Err("json-too-deep"));
        assert_eq!(read(r#"["[[[[", "]"]"#), Ok(json!(["[[[[", "]"])), "brackets in strings are text");
    }

    #[test]
    fn a_number_that_a_double_cannot_hold_is_refused() {
        assert_eq!(read("9007199254740992"), Ok(json!(9_007_199_254_740_992_u64)));
        for text in
            ["9007199254740993", "-9007199254740993", "1e16", "9007199254740993.0", "1e400", "99999999999999999999999"]
        {
            assert_eq!(read(text), Err("number-not-exact"), "{text}");
        }
        assert_eq!(read("-0.25"), Ok(json!(-0.25)));
    }

    #[test]
    fn half_a_character_is_refused_and_a_whole_one_kept() {
        for text in [r#""\ud83d""#, r#""\ude00x""#, r#""\ud83dx""#, r#""\ud83d\u0041""#, r#"{"\udc00":1}"#] {
            assert_eq!(read(text), Err("json-not-unicode"), "{text}");
        }
        assert_eq!(read(r#""\ud83d\ude00""#), Ok(json!("😀")));
        assert_eq!(read(r#""\\ud83d""#), Ok(json!("\\ud83d")), "a spelled-out escape is text");
        assert_eq!(parse_strict(b"\"\xff\"", Limits::DEFAULT).map_err(|e| e.code()), Err("json-not-unicode"));
    }

    #[test]
    fn a_nul_in_a_string_is_kept() {
        assert_eq!(read(r#"{"k\u0000":"a\u0000b"}"#), Ok(json!({"k\0": "a\0b"})));
    }

    #[test]
    fn what_is_not_json_is_refused() {
        for text in
            ["", "{", "[1,]", "{\"a\":}", "nul", "1 2", "[1] x", "\"abc", "'a'", "-", "01", "+1", "NaN", "\"\\x\""]
        {
            assert_eq!(read(text), Err("json-invalid"), "{text}");
        }
    }

    #[test]
    fn a_document_of_another_shape_is_refused() {
        assert_eq!(parse_as::<Vec<u8>>(b"[1,2]", Limits::DEFAULT), Ok(vec![1, 2]));
        assert_eq!(parse_as::<Vec<u8>>(b"{}", Limits::DEFAULT).map_err(|e| e.code()), Err("json-invalid"));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse_strict(&bytes, Limits::DEFAULT);
        }

        #[test]
        fn no_text_of_json_characters_makes_it_panic(text in r#"[\[\]{}",:\\u0-9dDeE+.\- ]{0,80}"#) {
            let _ = parse_strict(text.as_bytes(), Limits::DEFAULT);
        }

        #[test]
        fn strings_survive_a_round_trip(text in any::<String>()) {
            let written = Value::String(text.clone()).to_string();
            prop_assert_eq!(parse_strict(written.as_bytes(), Limits::DEFAULT), Ok(Value::String(text)));
        }
    }
}
