//! One request on its way to its handler: who calls, and what was sent, read strictly.

use std::future::Future;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use url::form_urlencoded;

use super::operations::Parameter;
use super::read;
use crate::api::{Caller, ErrorKind};
use crate::errors::Refusal;
use crate::service::Runs;
use crate::validate::{self, bad};

/// What a handler gives.
pub(crate) type Answered = Pin<Box<dyn Future<Output = Result<Response<Body>, Refusal>> + Send>>;

/// A request to one operation.
pub(crate) struct Call {
    /// The node, and all that stands before it.
    pub(crate) runs: Arc<Runs>,
    /// Nobody on an open route.
    pub(super) caller: Option<Caller>,
    pub(super) params: Vec<(String, String)>,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    pub(super) body: Body,
}

impl Call {
    /// Who calls.
    pub(crate) fn caller(&self) -> Result<Caller, Refusal> {
        let nobody = || Refusal::new(ErrorKind::Internal, "internal", "an open route asked who calls");
        self.caller.clone().ok_or_else(nobody)
    }

    /// An id in the path.
    pub(crate) fn id<T: FromStr<Err: std::fmt::Display>>(&self, name: &str) -> Result<T, Refusal> {
        let text = self.params.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value);
        validate::id(name, text)
    }

    /// The body as JSON; nothing sent is an empty object.
    pub(crate) async fn value(&mut self) -> Result<Value, Refusal> {
        read::value(&self.headers, std::mem::take(&mut self.body)).await
    }

    /// The body as what this operation takes.
    pub(crate) async fn body<T: DeserializeOwned>(&mut self) -> Result<T, Refusal> {
        read::typed(self.value().await?)
    }
}

/// What stands behind the `?`.
#[derive(Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Refuses what the operation does not know, and whatever is given twice that may stand once.
    pub(super) fn read(text: &str, known: &[Parameter]) -> Result<Self, Refusal> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for (name, value) in form_urlencoded::parse(text.as_bytes()) {
            let shown: String = name.chars().take(64).collect();
            let Some(parameter) = known.iter().find(|parameter| parameter.name == name) else {
                return Err(bad("unknown-field", &shown, format!("`{shown}` is no parameter of this address")));
            };
            if !parameter.repeated && pairs.iter().any(|(other, _)| *other == name) {
                return Err(bad("field-repeated", &shown, format!("`{shown}` is given twice")));
            }
            if value.contains(char::REPLACEMENT_CHARACTER) {
                return Err(bad("field-invalid", &shown, format!("`{shown}` is not UTF-8")));
            }
            pairs.push((name.into_owned(), value.into_owned()));
        }
        Ok(Self(pairs))
    }
    /// A parameter, or an empty text.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.0.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }
    /// A parameter that may stand several times.
    pub(crate) fn all(&self, name: &str) -> Vec<String> {
        self.0.iter().filter(|(known, _)| known == name).map(|(_, value)| value.clone()).collect()
    }
    /// Yes or no, if it was given.
    pub(crate) fn flag(&self, name: &str) -> Result<Option<bool>, Refusal> {
        match self.0.iter().find(|(known, _)| known == name).map(|(_, text)| text.as_str()) {
            None => Ok(None),
            Some("true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            Some(_) => Err(bad("field-invalid", name, format!("`{name}` must be `true` or `false`"))),
        }
    }
    /// A whole number that is not negative, if it was given.
    pub(crate) fn number(&self, name: &str) -> Result<Option<u64>, Refusal> {
        match self.0.iter().find(|(known, _)| known == name) {
            None => Ok(None),
            Some((_, text)) => number(name, text).map(Some),
        }
    }
}

/// A whole number that is not negative.
pub(super) fn number(name: &str, text: &str) -> Result<u64, Refusal> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let read = if digits { text.parse().ok() } else { None };
    read.ok_or_else(|| bad("field-invalid", name, format!("`{name}` must be a whole number from 0 up")))
}

/// An answer of JSON.
pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Result<Response<Body>, Refusal> {
    let bytes = serde_json::to_vec(value)
        .map_err(|error| Refusal::new(ErrorKind::Internal, "answer-not-json", error.to_string()))?;
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}
