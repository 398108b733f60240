//! Making inputs of inputs: bytes are changed like bytes, and JSON also like JSON, so that most of it still parses.

use serde_json::{Value, json};

use super::INPUT_BYTES_MAX;

/// What parsers have stumbled over.
const TOKENS: &[&[u8]] = &[
    b"\0",
    b"\xff",
    b"\xc0\x80",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b"\r\n",
    b"\n\n",
    b"\t",
    b"\"",
    b"'",
    b"\\",
    b"\\u0000",
    b"\\ud83d",
    b"\\udc00",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"null",
    b"-0",
    b"1e308",
    b"9007199254740993",
    b"-9223372036854775808",
    b"18446744073709551615",
    b"0.0000001",
    b"{\"$from\":\"/inputs\"}",
    b"$$from",
    b"~0~1",
    b"/steps/",
    b"..",
    b"://",
    b"@",
    b"[::1]",
    b"127.1",
    b"0x7f",
    b"%2e",
    b"%00",
    b"xn--",
    b"\xe2\x80\xae",
    b"\xe2\x80\x8b",
    b"\xcc\x81",
    b"\xf0\x9f\x98\x80",
    b"password=",
    b"Bearer ",
    b"-----BEGIN PRIVATE KEY-----",
    b"<",
    b"</",
    b"<!--",
    b"<![CDATA[",
    b"&#x0;",
    b"&amp;",
    b"```",
    b"---",
    b">=1.0.0,",
];

/// Inputs made of a corpus, one after the other, always the same ones.
pub(super) struct Mutator {
    seeds: Vec<Vec<u8>>,
    state: u64,
}

impl Mutator {
    pub(super) const fn new(seeds: Vec<Vec<u8>>) -> Self {
        Self { seeds, state: 0x5167_6e61_6c62_6f78 }
    }

    /// The next input.
    pub(super) fn next(&mut self) -> Vec<u8> {
        let mut bytes = self.seed();
        if self.below(2) == 0
            && let Ok(mut value) = serde_json::from_slice::<Value>(&bytes)
        {
            for _ in 0..=self.below(3) {
                self.change_value(&mut value);
            }
            bytes = value.to_string().into_bytes();
            if self.below(2) == 0 {
                return self.cut(bytes);
            }
        }
        for _ in 0..=self.below(4) {
            self.change_bytes(&mut bytes);
        }
        self.cut(bytes)
    }

    /// splitmix64.
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`; 0 if there is none.
    fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.random() % end).unwrap_or(0)
    }

    fn seed(&mut self) -> Vec<u8> {
        let at = self.below(self.seeds.len());
        self.seeds.get(at).cloned().unwrap_or_default()
    }

    fn cut(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        bytes.truncate(INPUT_BYTES_MAX);
        bytes
    }

    fn change_bytes(&mut self, bytes: &mut Vec<u8>) {
        let at = self.below(bytes.len() + 1);
        let end = (at + 1 + self.below(32)).min(bytes.len());
        match self.below(8) {
            0 => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << (self.random() % 8);
                }
            }
            1 => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = self.random().to_le_bytes()[0];
                }
            }
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(at..end.max(at))),
            4 => {
                // Said twice: keys, lines, elements.
                let piece = bytes[at..end.max(at)].to_vec();
                let times = 1 + self.below(3);
                bytes.splice(at..at, piece.repeat(times));
            }
            5 => {
                let other = self.seed();
                let from = self.below(other.len() + 1);
                let piece = other[from..(from + self.below(256)).min(other.len())].to_vec();
                bytes.splice(at..at, piece);
            }
            6 => {
                let token = TOKENS[self.below(TOKENS.len())];
                let times = if self.below(16) == 0 { 200 } else { 1 };
                bytes.splice(at..at, token.repeat(times));
            }
            _ => {
                let token = TOKENS[self.below(TOKENS.len())];
                bytes.splice(at..end.max(at), token.iter().copied());
            }
        }
    }

    fn change_value(&mut self, value: &mut Value) {
        let place = self.below(count(value));
        let twin = self.below(count(value));
        let copy = nth(value, &mut { twin }).cloned().unwrap_or(Value::Null);
        let change = self.below(6);
        let odd = self.odd();
        let at = self.below(8);
        let Some(place) = nth_mut(value, &mut { place }) else { return };
        match (change, &mut *place) {
            (0, Value::Object(members)) => {
                let key = members.keys().nth(at % members.len().max(1)).cloned();
                if let Some(key) = key {
                    members.remove(&key);
                }
            }
            (0, Value::Array(items)) if !items.is_empty() => drop(items.remove(at % items.len())),
            (1, Value::Object(members)) => {
                let key = odd.as_str().map_or_else(|| "stepId".to_owned(), str::to_owned);
                members.insert(key, copy);
            }
            (1, Value::Array(items)) => items.push(copy),
            (2, Value::Array(items)) => items.reverse(),
            (3, _) => *place = copy,
            (4, _) => {
                *place = (0..at * 12)
                    .fold(place.take(), |inner, n| if n % 2 == 0 { json!([inner]) } else { json!({ "x": inner }) })
            }
            _ => *place = odd,
        }
    }

    /// A value nobody expects where it stands.
    fn odd(&mut self) -> Value {
        match self.below(18) {
            0 => Value::Null,
            1 => json!(true),
            2 => json!(-1),
            3 => json!(0),
            4 => json!(i64::MIN),
            5 => json!(u64::MAX),
            6 => json!(1e308),
            7 => json!(0.000_000_1),
            8 => json!(9_007_199_254_740_992_u64),
            9 => json!(""),
            10 => json!("a\0b"),
            11 => json!("\u{202e}\u{feff}"),
            12 => json!("../../x"),
            13 => json!({ "$from": "/inputs" }),
            14 => json!("x".repeat(5_000)),
            15 => json!([]),
            16 => json!({}),
            _ => json!(String::from_utf8_lossy(TOKENS[self.below(TOKENS.len())])),
        }
    }
}

fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(members) => members.values().map(count).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

fn nth<'v>(value: &'v Value, left: &mut usize) -> Option<&'v Value> {
    if *left == 0 {
        return Some(value);
    }
    *left -= 1;
    match value {
        Value::Array(items) => items.iter().find_map(|item| nth(item, left)),
        Value::Object(members) => members.values().find_map(|member| nth(member, left)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

fn nth_mut<'v>(value: &'v mut Value, left: &mut usize) -> Option<&'v mut Value> {
    if *left == 0 {
        return Some(value);
    }
    *left -= 1;
    match value {
        Value::Array(items) => items.iter_mut().find_map(|item| nth_mut(item, left)),
        Value::Object(members) => members.values_mut().find_map(|member| nth_mut(member, left)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}
