//! Kind and body of an event apart, as they are stored, without a tree of values in between: every event goes this way.

use serde::de::value::StrDeserializer;
use serde::de::{DeserializeSeed, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserializer, forward_to_deserialize_any};
use serde_json::Error;

use super::RunEvent;

/// Kind and body of `{"kind":…,"body":…}`, which serde writes in this order, without spaces, and with a plain kind.
pub(super) fn split(mut text: Vec<u8>) -> (String, Vec<u8>) {
    const BEFORE_KIND: &[u8] = br#"{"kind":""#;
    const BETWEEN: &[u8] = br#"","body":"#;
    let kind_ends = text.iter().skip(BEFORE_KIND.len()).position(|byte| *byte == b'"').unwrap_or_default();
    let kind_ends = BEFORE_KIND.len() + kind_ends;
    let kind = text.get(BEFORE_KIND.len()..kind_ends).unwrap_or_default();
    let kind = String::from_utf8_lossy(kind).into_owned();
    let has_body = text.get(kind_ends..).is_some_and(|rest| rest.starts_with(BETWEEN)) && text.ends_with(b"}");
    if !has_body {
        return (kind, b"{}".to_vec());
    }
    text.pop();
    text.drain(..kind_ends + BETWEEN.len());
    (kind, text)
}

/// The event of a kind with this body, which must be one JSON value and nothing more.
pub(super) fn join(kind: &str, body: &[u8]) -> Result<RunEvent, Error> {
    let mut body = serde_json::Deserializer::from_slice(body);
    let event = serde::Deserialize::deserialize(Tagged { kind, body: &mut body })?;
    body.end()?;
    Ok(event)
}

/// What serde takes for a map of two entries, the kind first.
struct Tagged<'a, D> {
    kind: &'a str,
    body: D,
}

impl<'de, D: Deserializer<'de, Error = Error>> Deserializer<'de> for Tagged<'_, D> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_map(Entries { kind: self.kind, body: Some(self.body), at: 0 })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

struct Entries<'a, D> {
    kind: &'a str,
    body: Option<D>,
    at: u8,
}

impl<'de, D: Deserializer<'de, Error = Error>> MapAccess<'de> for Entries<'_, D> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let key = match self.at {
            0 => "kind",
            1 => "body",
            _ => return Ok(None),
        };
        self.at += 1;
        let key: StrDeserializer<'_, Error> = key.into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        match self.body.take_if(|_| self.at > 1) {
            Some(body) => seed.deserialize(body),
            None => {
                let kind: StrDeserializer<'_, Error> = self.kind.into_deserializer();
                seed.deserialize(kind)
            }
        }
    }
}
