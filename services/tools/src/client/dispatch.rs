//! The last look before a call leaves this process (I5).
//!
//! A request can wait in the channel for a connection long after it was sent in the eyes of its caller. So the window of
//! its admission is checked once more at the instant the connection asks for the message, and what happened there is
//! remembered: a call whose message was never asked for was certainly not begun.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use signalbox_ports::clock::{BootInstant, Clock};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{Body as HttpBody, http};
use tonic::transport::Channel;
use tonic::transport::channel::ResponseFuture;
use tower::Service;

const WAITING: u8 = 0;
const SENT: u8 = 1;
const STOPPED: u8 = 2;

/// Whether the message of a call has been handed to its connection.
#[derive(Debug, Default)]
pub(super) struct Fate(AtomicU8);

impl Fate {
    /// True if this is the one instant at which the message may go.
    fn send(&self) -> bool {
        self.0.compare_exchange(WAITING, SENT, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
    /// Keeps the message from being handed over from now on; true if it had been before.
    pub(super) fn stop(&self) -> bool {
        self.0.compare_exchange(WAITING, STOPPED, Ordering::AcqRel, Ordering::Acquire) == Err(SENT)
    }
}

/// Travels with a request, in its extensions.
#[derive(Clone)]
pub(super) struct Dispatch {
    pub(super) clock: Arc<dyn Clock>,
    /// The end of the admission's window.
    pub(super) not_after: BootInstant,
    pub(super) fate: Arc<Fate>,
}

/// A channel that takes the last look at requests which carry a [`Dispatch`].
#[derive(Debug, Clone)]
pub(super) struct WatchedChannel(pub(super) Channel);

impl Service<http::Request<Body>> for WatchedChannel {
    type Response = http::Response<Body>;
    type Error = tonic::transport::Error;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Service::poll_ready(&mut self.0, context)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        if let Some(dispatch) = request.extensions_mut().remove::<Dispatch>() {
            request = request.map(|body| Body::new(LastLook { body, dispatch: Some(dispatch) }));
        }
        self.0.call(request)
    }
}

struct LastLook {
    body: Body,
    dispatch: Option<Dispatch>,
}

impl HttpBody for LastLook {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Status>>> {
        if let Some(dispatch) = self.dispatch.take() {
            let late = dispatch.clock.boot() > dispatch.not_after;
            if late {
                dispatch.fate.stop();
            }
            if late || !dispatch.fate.send() {
                return Poll::Ready(Some(Err(Status::cancelled("the window of the admission is over"))));
            }
        }
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}
