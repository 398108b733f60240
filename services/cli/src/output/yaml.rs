//! JSON written as YAML, with its members in their order. A value goes by way of its JSON, so that both notations say the
//! same with the same names.

use std::fmt;

use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::ser::{SerializeMap as _, SerializeSeq as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A JSON text as YAML.
pub(super) fn from_json(text: &str) -> Result<String, String> {
    let node: Node = serde_json::from_str(text).map_err(|error| error.to_string())?;
    serde_saphyr::to_string(&node).map_err(|error| error.to_string())
}

enum Node {
    Null,
    Bool(bool),
    Signed(i64),
    Unsigned(u64),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

impl Serialize for Node {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => to.serialize_unit(),
            Self::Bool(value) => to.serialize_bool(*value),
            Self::Signed(value) => to.serialize_i64(*value),
            Self::Unsigned(value) => to.serialize_u64(*value),
            Self::Float(value) => to.serialize_f64(*value),
            Self::Text(value) => to.serialize_str(value),
            Self::List(items) => {
                let mut list = to.serialize_seq(Some(items.len()))?;
                for item in items {
                    list.serialize_element(item)?;
                }
                list.end()
            }
            Self::Map(members) => {
                let mut map = to.serialize_map(Some(members.len()))?;
                for (name, value) in members {
                    map.serialize_entry(name, value)?;
                }
                map.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }
    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }
    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Bool(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Signed(value))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Unsigned(value))
    }
    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Float(value))
    }
    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Text(value.to_owned()))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Node::List(list))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Node, A::Error> {
        let mut map = Vec::new();
        while let Some(member) = members.next_entry()? {
            map.push(member);
        }
        Ok(Node::Map(map))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn back(value: &Value) -> Value {
        let text = from_json(&value.to_string()).unwrap();
        serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    #[test]
    fn members_keep_their_order() {
        let text = from_json(r#"{"zeta":1,"alpha":{"b":[true,null],"a":"x"}}"#).unwrap();
        assert!(text.find("zeta").unwrap() < text.find("alpha").unwrap(), "{text}");
        assert!(text.find("b:").unwrap() < text.find("a: x").unwrap(), "{text}");
    }

    #[test]
    fn a_text_that_looks_like_something_else_stays_a_text() {
        for text in [
            "",
            " ",
            "yes",
            "No",
            "null",
            "~",
            "1",
            "1e3",
            "0x1f",
            "1_000",
            ".inf",
            "2026-01-31",
            "12:30:45",
            "on",
            "- a",
            "a: b",
            "a #b",
            "#a",
            "&a",
            "*a",
            "!a",
            "%a",
            "@a",
            "`a",
            "'",
            "\"",
            "{",
            "[",
            "|",
            ">",
            "?",
            ":",
            "a\nb",
            "a\n",
            "\n",
            "\na",
            " a",
            "a ",
            "a\tb",
            "\t",
            "a\rb",
            "\u{1b}[2J",
            "\u{0}",
            "\u{85}",
            "\u{2028}",
            "\u{feff}a",
            "---",
            "...",
            "<<",
            "=",
            "\\",
            "ü",
            "日本",
            "\u{1f600}",
            "a\n  b\n\nc\n",
        ] {
            assert_eq!(back(&json!({ "x": text, "y": [text] })), json!({ "x": text, "y": [text] }), "{text:?}");
            assert_eq!(back(&json!({ text: 1 })), json!({ text: 1 }), "{text:?} as a name");
        }
    }

    #[test]
    fn numbers_and_shapes_come_back_as_they_went() {
        let value = json!({
            "empty": {}, "none": [], "nested": [[1], [], [{"a": []}]], "min": i64::MIN, "max": u64::MAX,
            "small": 1.5e-7, "whole": 3.0, "deep": {"a": {"b": {"c": [null]}}}
        });
        assert_eq!(back(&value), value);
    }
}
