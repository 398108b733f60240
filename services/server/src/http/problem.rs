//! Refusals as problems in the form of RFC 9457. Status, code and what may be told come from the one table.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;
use uuid::Uuid;

use crate::errors::{DETAIL_FIELD, Refusal, Told};

/// Names a request, in every answer and in the log.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The detail that holds the methods an address takes.
pub(crate) const DETAIL_ALLOW: &str = "allow";
const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");
/// Longest request id of a client's own that is taken.
const REQUEST_ID_BYTES_MAX: usize = 128;

/// The name of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestId(String);

impl RequestId {
    /// The client's own if it is one word of letters, digits and `-_.:`, and a fresh one otherwise.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let sane = |text: &&str| {
            (1..=REQUEST_ID_BYTES_MAX).contains(&text.len())
                && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b':'))
        };
        let mut given = headers.get_all(REQUEST_ID).iter();
        let own = match (given.next(), given.next()) {
            (Some(one), None) => one.to_str().ok().filter(sane),
            _ => None,
        };
        Self(own.map_or_else(|| Uuid::new_v4().to_string(), str::to_owned))
    }
    /// The same as the value of a header.
    pub(crate) fn header(&self) -> HeaderValue {
        // It holds nothing but what a header may hold.
        HeaderValue::from_str(&self.0).unwrap_or(HeaderValue::from_static("-"))
    }
}

impl std::fmt::Display for RequestId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a request was not answered as asked, in the form of RFC 9457.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Problem {
    /// Names the kind of problem: `urn:signalbox:problem:` and the code.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// The code in words.
    pub(crate) title: String,
    /// The HTTP status.
    pub(crate) status: u16,
    /// What is wrong, and what to do about it, for people.
    pub(crate) detail: String,
    /// Stable for ever; the same as the reason of a gRPC error.
    pub(crate) code: String,
    /// Leads to the lines of the log.
    pub(crate) request_id: String,
    /// Facts for machines, such as `field`, `runId`, `scope` or `retryAfterSeconds`.
    pub(crate) details: BTreeMap<String, String>,
}

impl Problem {
    /// The problem a refusal is told as.
    pub(crate) fn of(refusal: &Refusal, id: &RequestId) -> (Self, Told) {
        let told = refusal.told(&id.0);
        let title = told.code.replace(['-', '_'], " ");
        let mut details: BTreeMap<String, String> =
            told.details.iter().map(|(key, fact)| ((*key).to_owned(), fact.clone())).collect();
        let mut detail = told.message.clone();
        // What both edges check names its fields as gRPC does.
        if let Some(field) = details.get_mut(DETAIL_FIELD) {
            let ours = our_name(field);
            detail = detail.replace(&format!("`{field}`"), &format!("`{ours}`"));
            *field = ours;
        }
        let problem = Self {
            kind: format!("urn:signalbox:problem:{}", told.code),
            title,
            status: told.http,
            detail,
            code: told.code.clone(),
            request_id: id.to_string(),
            details,
        };
        (problem, told)
    }
}

/// The answer a refusal is.
pub(crate) fn response(refusal: &Refusal, id: &RequestId) -> Response<Body> {
    let (problem, told) = Problem::of(refusal, id);
    // A problem is made of texts and a number, which are always JSON.
    let body = serde_json::to_vec(&problem).unwrap_or_default();
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = StatusCode::from_u16(told.http).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, PROBLEM_JSON);
    if let Some(delay) = told.retry_after {
        put(headers, RETRY_AFTER, &delay.as_secs().to_string());
    }
    if response.status() == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if let Some(allow) = refusal.detail(DETAIL_ALLOW) {
        put(response.headers_mut(), ALLOW, allow);
    }
    response
}

/// Sets a header to text of our own.
pub(crate) fn put(headers: &mut HeaderMap, name: HeaderName, text: &str) {
    if let Ok(value) = HeaderValue::from_str(text) {
        headers.insert(name, value);
    }
}

/// What a field of a gRPC message is called in a body or a query.
fn our_name(field: &str) -> String {
    match field {
        "after_seq" => "after".to_owned(),
        "retry_with_changes.overrides_json" => "overrides".to_owned(),
        _ => {
            // A control is a message of its own there, and an address of its own here.
            let controls = ["choose_branch.", "retry_with_changes.", "operator_step.", "fork."];
            camel_case(controls.iter().find_map(|control| field.strip_prefix(control)).unwrap_or(field))
        }
    }
}

fn camel_case(name: &str) -> String {
    let mut camel = String::with_capacity(name.len());
    let mut raise = false;
    for c in name.chars() {
        match c {
            '_' => raise = true,
            c if raise => {
                camel.push(c.to_ascii_uppercase());
                raise = false;
            }
            c => camel.push(c),
        }
    }
    camel
}
