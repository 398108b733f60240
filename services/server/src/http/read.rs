//! Bodies: whatever is not exactly right is refused with the field named, before a node hears of it.

use std::time::Duration;

use axum::body::Body;
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use futures::StreamExt as _;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use signalbox_domain::json::{self, JsonError, Limits};

use crate::api::ErrorKind;
use crate::errors::Refusal;
use crate::validate::bad;

/// How long a body may take to arrive.
const BODY_WITHIN: Duration = Duration::from_secs(30);
/// What the whole body is called where a field is named.
const BODY: &str = "body";

/// A body of JSON, read as strictly as a submission. Where nothing at all was sent it is an empty object.
pub(super) async fn value(headers: &HeaderMap, body: Body) -> Result<Value, Refusal> {
    check_length(headers)?;
    let bytes = match tokio::time::timeout(BODY_WITHIN, all(body)).await {
        Ok(bytes) => bytes?,
        Err(_) => {
            let message = format!("the body took longer than {} s to arrive", BODY_WITHIN.as_secs());
            return Err(Refusal::new(ErrorKind::Invalid, "body-too-slow", message));
        }
    };
    if bytes.is_empty() && !headers.contains_key(CONTENT_TYPE) {
        return Ok(Value::Object(Map::new()));
    }
    check_type(headers)?;
    parsed(&bytes)
}

/// JSON of any bytes: size, depth, duplicate keys, text that is none and numbers that a double cannot hold are refused.
pub(crate) fn parsed(bytes: &[u8]) -> Result<Value, Refusal> {
    json::parse_strict(bytes, Limits::DEFAULT).map_err(|error| {
        if matches!(error, JsonError::TooLarge { .. }) {
            return Refusal::new(ErrorKind::Invalid, error.code(), error.to_string());
        }
        bad(error.code(), BODY, error.to_string())
    })
}

/// What an operation takes, out of JSON.
pub(crate) fn typed<T: DeserializeOwned>(value: Value) -> Result<T, Refusal> {
    if !value.is_object() {
        return Err(bad("json-invalid", BODY, "the body must be a JSON object"));
    }
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        let text = error.inner().to_string();
        let (code, named) = match (quoted(&text, "missing field `"), quoted(&text, "unknown field `")) {
            (Some(name), _) => ("field-missing", Some(name)),
            (None, Some(name)) => ("unknown-field", Some(name)),
            (None, None) => ("field-invalid", None),
        };
        let field = field_at(&path, named);
        bad(code, &field, format!("`{field}`: {text}"))
    })
}

/// The field that serde's text names, such as in "unknown field `x`, expected …".
pub(super) fn named_in(text: &str) -> Option<&str> {
    quoted(text, "missing field `").or_else(|| quoted(text, "unknown field `")).filter(|name| !name.is_empty())
}

fn quoted<'a>(text: &'a str, before: &str) -> Option<&'a str> {
    text.split_once(before).and_then(|(_, rest)| rest.split_once('`')).map(|(name, _)| name)
}

// The path leads to the object for a field that is missing, and may lead to the field for one that is unknown.
fn field_at(path: &str, named: Option<&str>) -> String {
    let path = if path == "." { "" } else { path };
    let field = match named {
        None => path.to_owned(),
        Some(name) if path == name || path.ends_with(&format!(".{name}")) => path.to_owned(),
        Some(name) if path.is_empty() => name.to_owned(),
        Some(name) => format!("{path}.{name}"),
    };
    if field.is_empty() { BODY.to_owned() } else { field.chars().take(200).collect() }
}

async fn all(body: Body) -> Result<Vec<u8>, Refusal> {
    let mut bytes = Vec::new();
    let mut pieces = body.into_data_stream();
    while let Some(piece) = pieces.next().await {
        let piece =
            piece.map_err(|_| Refusal::new(ErrorKind::Invalid, "body-cut", "the body ended before it was whole"))?;
        if bytes.len() + piece.len() > Limits::DEFAULT.bytes_max {
            return Err(too_large());
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

fn too_large() -> Refusal {
    let message = format!("the body may have at most {} bytes", Limits::DEFAULT.bytes_max);
    Refusal::new(ErrorKind::Invalid, "json-too-large", message)
}

fn check_length(headers: &HeaderMap) -> Result<(), Refusal> {
    let told = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    match told {
        Some(bytes) if bytes > Limits::DEFAULT.bytes_max => Err(too_large()),
        Some(_) | None => Ok(()),
    }
}

fn check_type(headers: &HeaderMap) -> Result<(), Refusal> {
    let refused = |message: &str| Err(Refusal::new(ErrorKind::Invalid, "content-type-unsupported", message));
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    let one = match (types.next(), types.next()) {
        (Some(one), None) => one.to_str().unwrap_or_default(),
        _ => "",
    };
    let (kind, rest) = one.split_once(';').unwrap_or((one, ""));
    if !kind.trim().eq_ignore_ascii_case("application/json") {
        return refused("the body must be sent as `content-type: application/json`");
    }
    let rest = rest.trim().to_ascii_lowercase();
    if !matches!(rest.as_str(), "" | "charset=utf-8" | "charset=\"utf-8\"") {
        return refused("JSON is UTF-8; the content type takes no other parameter than `charset=utf-8`");
    }
    match headers.get(CONTENT_ENCODING) {
        Some(encoding) if encoding.as_bytes() != b"identity" => refused("the body may not be compressed"),
        Some(_) | None => Ok(()),
    }
}
