//! The door of a gRPC service: nothing of a request is read but its headers until its caller is known.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::{Request, Response};
use tonic::body::Body;
use tonic::server::NamedService;
use tower::Service;

use super::Identify;
use crate::api::{Caller, ErrorKind};
use crate::errors::{self, Refusal};
use crate::rates::Rates;

/// A service that only identified callers reach, each as often as it may.
#[derive(Clone)]
pub(crate) struct Door<S> {
    inner: S,
    identity: Arc<dyn Identify>,
    rates: Arc<Rates>,
}

impl<S> Door<S> {
    /// In front of a service.
    pub(crate) fn before(inner: S, identity: &Arc<dyn Identify>, rates: &Arc<Rates>) -> Self {
        Self { inner, identity: Arc::clone(identity), rates: Arc::clone(rates) }
    }
}

impl<S: NamedService> NamedService for Door<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request<Body>> for Door<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        // The one that was polled is the one that is ready.
        let waiting = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, waiting);
        let (identity, rates) = (Arc::clone(&self.identity), Arc::clone(&self.rates));
        Box::pin(async move {
            let caller = identity.identify(request.headers()).await;
            match caller.and_then(|caller| rates.take(&caller).map(|()| caller)) {
                Ok(caller) => {
                    request.extensions_mut().insert(caller);
                    inner.call(request).await
                }
                Err(refusal) => Ok(errors::to_status(&refusal).into_http()),
            }
        })
    }
}

/// The caller of a request that came through the door.
pub(crate) fn caller_of<T>(request: &tonic::Request<T>) -> Result<Caller, Refusal> {
    let caller = request.extensions().get::<Caller>().cloned();
    caller.ok_or_else(|| {
        Refusal::new(ErrorKind::Internal, "caller-unknown", "a request reached a service without passing its door")
    })
}
