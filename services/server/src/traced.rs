//! The span of each request, and whose trace it belongs to.
//!
//! A caller that names its own span (`traceparent`, W3C) finds the request under it, and a run it submits linked to it. What is
//! no `traceparent` is as good as none: nothing is refused for it, and nothing is decided by it.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Instant, SystemTime};

use http::{HeaderMap, Request, Response};
use signalbox_domain::run::trace::TraceContext;
use signalbox_ports::clock::Ids;
use signalbox_ports::trace::{AnsweredRequest, RequestSpans, caused_by};
use tonic::body::Body;
use tower::{Layer, Service};

use crate::transport::is_grpc;

/// Names the caller's span.
const PARENT: &str = "traceparent";

/// Gives each request a span, if anybody records them.
#[derive(Clone)]
pub(crate) struct Traced {
    pub(crate) spans: Option<Arc<dyn RequestSpans>>,
    pub(crate) ids: Arc<dyn Ids>,
}

impl<S> Layer<S> for Traced {
    type Service = Spanned<S>;
    fn layer(&self, inner: S) -> Spanned<S> {
        Spanned { inner, traced: self.clone() }
    }
}

/// A service behind [`Traced`].
#[derive(Clone)]
pub(crate) struct Spanned<S> {
    inner: S,
    traced: Traced,
}

impl<S> Service<Request<Body>> for Spanned<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Send,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Some(spans) = self.traced.spans.clone() else { return Box::pin(self.inner.call(request)) };
        let parent = parent_of(request.headers());
        let span = beneath(parent, self.traced.ids.as_ref());
        // A caller that records its trace sees all of it; of the others a share is recorded.
        let sampled = parent.is_some_and(|parent| parent.sampled) || (parent.is_none() && spans.records(&span));
        let span = TraceContext { sampled, ..span };
        let (began, watch) = (SystemTime::now(), Instant::now());
        let path = request.uri().path();
        let (name, path) = if is_grpc(request.headers()) {
            (path.trim_start_matches('/').to_owned(), None)
        } else {
            (request.method().to_string(), Some(path.to_owned()))
        };
        let answer = caused_by(span, self.inner.call(request));
        Box::pin(async move {
            let answer = answer.await?;
            if sampled {
                let status = answer.headers().get("grpc-status").and_then(|status| status.to_str().ok());
                spans.answered(AnsweredRequest {
                    name,
                    path,
                    span,
                    parent: parent.map(|parent| parent.span_id),
                    began,
                    took: watch.elapsed(),
                    status: answer.status().as_u16(),
                    grpc_status: status.and_then(|status| status.parse().ok()),
                });
            }
            Ok(answer)
        })
    }
}

fn parent_of(headers: &HeaderMap) -> Option<TraceContext> {
    headers.get(PARENT)?.to_str().ok()?.parse().ok()
}

/// A span of its own in the parent's trace, or in one of its own.
fn beneath(parent: Option<TraceContext>, ids: &dyn Ids) -> TraceContext {
    let fresh = ids.fresh();
    let (_, low) = fresh.as_u64_pair();
    let span_id = low.max(1).to_be_bytes();
    match parent {
        Some(parent) => parent.with_span(span_id),
        None => TraceContext { trace_id: *fresh.as_bytes(), span_id, sampled: true },
    }
}
