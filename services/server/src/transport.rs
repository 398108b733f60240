//! What happens to a gRPC call before and around its method: its deadline, and the refusals of the transport itself, which
//! are given the same form as all others.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::{Stream, StreamExt as _, future, stream};
use http::{HeaderMap, Request, Response};
use tokio::time::{Instant, sleep_until};
use tonic::body::Body;
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};
use tower::{Layer, Service};

use crate::api::ErrorKind;
use crate::errors::{self, Refusal};

/// Names how long the caller still waits (gRPC over HTTP/2).
const TIMEOUT: &str = "grpc-timeout";
/// Most digits of it.
const TIMEOUT_DIGITS_MAX: usize = 8;
/// The transport's own clock for a deadline says less when it is up, so this one is a little ahead of it.
const AHEAD: Duration = Duration::from_millis(1);

/// How long a caller still waits; `None` if it does not say.
///
/// # Errors
/// If what it says is none of the forms there are.
pub(crate) fn timeout_of(headers: &HeaderMap) -> Result<Option<Duration>, Refusal> {
    let Some(value) = headers.get(TIMEOUT) else { return Ok(None) };
    let parsed = value.to_str().ok().and_then(parse);
    parsed.map(Some).ok_or_else(|| {
        let message = "`grpc-timeout` must be up to eight digits and one of H, M, S, m, u, n";
        Refusal::new(ErrorKind::Invalid, "deadline-invalid", message).with(errors::DETAIL_FIELD, TIMEOUT)
    })
}

fn parse(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > TIMEOUT_DIGITS_MAX || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let n: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(n * 3_600),
        "M" => Duration::from_secs(n * 60),
        "S" => Duration::from_secs(n),
        "m" => Duration::from_millis(n),
        "u" => Duration::from_micros(n),
        "n" => Duration::from_nanos(n),
        _ => return None,
    })
}

/// The instant at which the caller of a stream stops listening.
pub(crate) fn deadline_of(metadata: &MetadataMap) -> Result<Option<Instant>, Refusal> {
    Ok(timeout_of(&metadata.clone().into_headers())?.and_then(|timeout| Instant::now().checked_add(timeout)))
}

/// A stream that ends with the deadline of its caller.
pub(crate) fn until<T: Send + 'static>(
    deadline: Option<Instant>,
    items: impl Stream<Item = Result<T, Status>> + Send + 'static,
) -> impl Stream<Item = Result<T, Status>> + Send + 'static {
    let over = async move {
        match deadline {
            Some(deadline) => sleep_until(deadline).await,
            None => future::pending().await,
        }
    };
    // The end of the items is the end of the stream, and so is the end of the time, with an error.
    let items = items.map(Some).chain(stream::iter([None]));
    let ending = stream::once(over).flat_map(|()| stream::iter([Some(Err(errors::to_status(&exceeded()))), None]));
    stream::select(items, ending).take_while(|item| future::ready(item.is_some())).filter_map(future::ready)
}

fn exceeded() -> Refusal {
    let message = "the caller's deadline has passed; what was asked for may have happened all the same";
    Refusal::new(ErrorKind::Unavailable, "deadline-exceeded", message)
}

/// Holds calls to their deadlines, and gives the transport's own refusals the form of all others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadlines;

impl<S> Layer<S> for Deadlines {
    type Service = Held<S>;
    fn layer(&self, inner: S) -> Held<S> {
        Held(inner)
    }
}

/// A service behind [`Deadlines`].
#[derive(Debug, Clone)]
pub(crate) struct Held<S>(S);

impl<S> Service<Request<Body>> for Held<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Send,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        if !is_grpc(request.headers()) {
            return Box::pin(self.0.call(request));
        }
        let timeout = match timeout_of(request.headers()) {
            Ok(timeout) => timeout,
            Err(refusal) => return Box::pin(future::ready(Ok(refused(&refusal)))),
        };
        if timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Box::pin(future::ready(Ok(refused(&exceeded()))));
        }
        let answer = self.0.call(request);
        Box::pin(async move {
            let answered = match timeout.map(|timeout| timeout.saturating_sub(AHEAD)) {
                None => answer.await,
                Some(timeout) => match tokio::time::timeout(timeout, answer).await {
                    Ok(answered) => answered,
                    Err(_) => return Ok(refused(&exceeded())),
                },
            };
            answered.map(in_our_form)
        })
    }
}

pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(http::header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

fn refused(refusal: &Refusal) -> Response<Body> {
    errors::to_status(refusal).into_http()
}

/// A refusal that came from below the methods carries no details; everything else is left as it is.
fn in_our_form(response: Response<Body>) -> Response<Body> {
    let Some(status) = Status::from_header_map(response.headers()) else { return response };
    if !status.details().is_empty() {
        return response;
    }
    match below(&status) {
        Some(refusal) => refused(&refusal),
        None => response,
    }
}

fn below(status: &Status) -> Option<Refusal> {
    match status.code() {
        Code::OutOfRange => {
            let most = crate::MESSAGE_BYTES_MAX;
            let message = format!("the message is larger than {most} bytes, which is the most that is read");
            let refusal = Refusal::new(ErrorKind::Invalid, "message-too-large", message);
            Some(refusal.with("bytesMax", most.to_string()))
        }
        Code::Unimplemented => {
            let message = "there is no such method, or not in this form; reflection lists those there are";
            Some(Refusal::new(ErrorKind::NotFound, "no-such-method", message))
        }
        // What this server finds wrong inside itself always carries its code, so this is about what came in.
        Code::Internal => {
            Some(Refusal::new(ErrorKind::Invalid, "message-malformed", "the message is none of this method"))
        }
        Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::InvalidArgument
        | Code::DeadlineExceeded
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::ResourceExhausted
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::Unavailable
        | Code::DataLoss
        | Code::Unauthenticated => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_read_in_each_of_its_units_and_in_no_other_form() {
        let read = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(TIMEOUT, http::HeaderValue::from_bytes(text.as_bytes()).unwrap());
            timeout_of(&headers)
        };
        for (text, ms) in [("2H", 7_200_000), ("3M", 180_000), ("4S", 4_000), ("5m", 5), ("6000u", 6), ("0n", 0)] {
            assert_eq!(read(text).unwrap(), Some(Duration::from_millis(ms)), "{text}");
        }
        assert!(read("99999999H").unwrap().is_some());
        for text in ["", "S", "1", "1s", "-1S", "+1S", "1.5S", "999999999S", "1 S", "１S", "1Ü"] {
            assert_eq!(read(text).unwrap_err().code(), "deadline-invalid", "{text}");
        }
        assert_eq!(timeout_of(&HeaderMap::new()).unwrap(), None);
    }

    #[tokio::test]
    async fn a_stream_ends_with_its_items_or_with_its_deadline_whichever_comes_first() {
        let deadline = Some(Instant::now() + Duration::from_millis(200));
        let short: Vec<_> = until(deadline, stream::iter([Ok(1), Ok(2)])).collect().await;
        assert_eq!(short.len(), 2);
        let long: Vec<_> = until(deadline, stream::iter([Ok(1)]).chain(stream::pending())).collect().await;
        assert_eq!(long[0].as_ref().unwrap(), &1);
        assert_eq!((long.len(), long[1].as_ref().unwrap_err().code()), (2, Code::DeadlineExceeded));
        let unbounded: Vec<_> = until(None, stream::iter([Ok(1)])).collect().await;
        assert_eq!(unbounded.len(), 1);
    }
}
