//! HTTP/JSON beside gRPC, on the same port and over the same node (EXE-001, EXE-020).
//!
//! [`operations::OPERATIONS`] is the one table of what can be asked: the router is built from it, and so is the OpenAPI
//! document, so neither can know what the other does not. Whatever is asked, the order is the same: who calls (401),
//! then what was sent (400, 413, 415), and only then the node (EXE-013). Errors are problems in the form of RFC 9457 with
//! the status of the one table in [`crate::errors`] (EXE-018).

mod admin;
mod approvals;
mod call;
mod compliance;
mod events;
mod execute;
mod feedback;
mod idempotency;
mod openapi;
mod operations;
mod problem;
mod read;
mod runs;
mod schemas;
mod shapes;
mod views;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequestParts as _, RawPathParams, Request};
use axum::http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, Response, StatusCode};
use axum::response::IntoResponse as _;
use axum::routing::any;
use signalbox_ports::trace::carried;
use tracing::Instrument as _;

use self::call::{Call, Query};
#[cfg(test)]
pub(crate) use self::events::{HEARTBEAT, beat, raw_frame};
#[cfg(test)]
pub(crate) use self::execute::planned;
#[cfg(test)]
pub(crate) use self::openapi::document;
use self::operations::{OPERATIONS, Operation, Verb};
use self::problem::RequestId;
#[cfg(test)]
pub(crate) use self::read::{parsed, typed};
#[cfg(test)]
pub(crate) use self::runs::submitted;
#[cfg(test)]
pub(crate) use self::shapes::{
    ChooseBranchRequest, ControlRequest, DecideRequest, ExecuteRequest, ForkRequest, RetryRequest, StepRequest,
};
use crate::api::ErrorKind;
use crate::errors::Refusal;
use crate::service::Runs;

/// Largest head of a request, in bytes: names and values of all headers.
const HEADERS_BYTES_MAX: usize = 16 << 10;
/// Longest path and query, in bytes.
const TARGET_BYTES_MAX: usize = 8 << 10;

/// The routes over one node. Whatever is no route is answered with a problem, or with `UNIMPLEMENTED` if it was a call
/// of gRPC.
pub(crate) fn router(runs: Arc<Runs>) -> Router {
    let mut paths: BTreeMap<&'static str, Vec<&'static Operation>> = BTreeMap::new();
    for operation in OPERATIONS {
        paths.entry(operation.path).or_default().push(operation);
    }
    let mut router = Router::new();
    for (path, operations) in paths {
        let runs = runs.clone();
        let operations: Arc<[&'static Operation]> = operations.into();
        router = router.route(path, any(move |request: Request| served(runs.clone(), operations.clone(), request)));
    }
    router.fallback(no_route)
}

async fn served(runs: Arc<Runs>, operations: Arc<[&'static Operation]>, request: Request) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let id = RequestId::of(&parts.headers);
    let path = operations.first().map_or("", |operation| operation.path);
    // The path as it stands in the table: what a client puts in place of an id may be anything.
    let span = tracing::info_span!("http", request_id = %id, method = %parts.method, path);
    let answered = answer(runs, &operations, parts, body).instrument(span.clone()).await;
    let response = match answered {
        Ok(response) => response,
        Err(refusal) => problem::response(&refusal, &id),
    };
    span.in_scope(|| tracing::info!(status = response.status().as_u16(), "answered"));
    finished(response, &id)
}

/// What stands in the head of every answer.
fn finished(mut response: Response<Body>, id: &RequestId) -> Response<Body> {
    let headers = response.headers_mut();
    headers.insert(problem::REQUEST_ID, id.header());
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

async fn answer(
    runs: Arc<Runs>,
    operations: &[&'static Operation],
    mut parts: Parts,
    body: Body,
) -> Result<Response<Body>, Refusal> {
    check_head(&parts)?;
    // A body is left out of the answer to HEAD by the protocol itself.
    let verb = match parts.method {
        Method::GET | Method::HEAD => Some(Verb::Get),
        Method::POST => Some(Verb::Post),
        _ => None,
    };
    let Some(operation) = operations.iter().find(|operation| Some(operation.verb) == verb) else {
        return other_method(&parts.method, operations);
    };
    let caller = if operation.open { None } else { Some(runs.identity.identify(&parts.headers).await?) };
    caller.iter().try_for_each(|caller| runs.rates.take(caller))?;
    let params = RawPathParams::from_request_parts(&mut parts, &())
        .await
        .map_err(|_| Refusal::new(ErrorKind::Invalid, "path-invalid", "the path is not UTF-8"))?;
    let params = params.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let query = Query::read(parts.uri.query().unwrap_or_default(), operation.query)?;
    let call = Call { runs, caller, params, query, headers: parts.headers, body };
    match operation.verb {
        Verb::Get => (operation.handler)(call).await,
        // What has begun is finished although the client hangs up: a dropped request would leave a run that is durable
        // and that nobody takes up (C-074).
        Verb::Post => {
            let finished = tokio::spawn(carried((operation.handler)(call).in_current_span())).await;
            finished.map_err(|error| Refusal::new(ErrorKind::Internal, "internal", error.to_string()))?
        }
    }
}

fn check_head(parts: &Parts) -> Result<(), Refusal> {
    let bytes: usize = parts.headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if bytes > HEADERS_BYTES_MAX {
        let message = format!("the headers have {bytes} bytes; at most {HEADERS_BYTES_MAX} are allowed");
        return Err(Refusal::new(ErrorKind::Invalid, "headers-too-large", message));
    }
    let target = parts.uri.path_and_query().map_or(0, |target| target.as_str().len());
    if target > TARGET_BYTES_MAX {
        let message = format!("the address has {target} bytes; at most {TARGET_BYTES_MAX} are allowed");
        return Err(Refusal::new(ErrorKind::Invalid, "address-too-long", message));
    }
    Ok(())
}

fn other_method(method: &Method, operations: &[&'static Operation]) -> Result<Response<Body>, Refusal> {
    let mut allowed: Vec<&str> = vec!["OPTIONS"];
    for operation in operations {
        allowed.extend(operation.verb.methods());
    }
    let allowed = allowed.join(", ");
    if method == Method::OPTIONS {
        let mut response = StatusCode::NO_CONTENT.into_response();
        problem::put(response.headers_mut(), ALLOW, &allowed);
        return Ok(response);
    }
    let message = format!("this address takes {allowed}");
    Err(Refusal::new(ErrorKind::Invalid, "method-not-allowed", message).with(problem::DETAIL_ALLOW, allowed))
}

async fn no_route(request: Request) -> Response<Body> {
    let grpc = request.headers().get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
    if grpc {
        return tonic::Status::unimplemented("there is no such call").into_http();
    }
    let id = RequestId::of(request.headers());
    let refusal = Refusal::new(
        ErrorKind::NotFound,
        "no-such-route",
        "there is nothing at this address; /openapi.json lists what there is",
    );
    finished(problem::response(&refusal, &id), &id)
}
