//! The relay between a run's events and one watching client.
//!
//! It filters by what the caller may see (DSH-010) and bounds what a slow reader can hold: if the buffer stays full for
//! the stall time, the stream ends with `watch-too-slow` and the cursor to go on from, so nothing is lost by being slow
//! and nobody else waits for it. It also ends when the server drains.

use std::time::Duration;

use futures::{Stream, StreamExt as _, future, stream};
use signalbox_domain::identity::Visibility;
use signalbox_domain::run::progress::should_deliver_to_subscriber;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot, watch};
use tokio_stream::wrappers::ReceiverStream;

use crate::api::{ApiError, Caller, ErrorKind, WatchItem};
use crate::errors::{self, Refusal};

/// What one watch may hold, and for how long a reader may stand still.
#[derive(Debug, Clone, Copy)]
pub struct WatchLimits {
    /// Items that wait for the reader.
    pub buffer: usize,
    /// How long the buffer may stay full.
    pub stall: Duration,
}

/// One watch: who watches, from which cursor on.
pub(crate) struct Relay {
    pub(crate) subscriber: Caller,
    pub(crate) after_seq: u64,
    pub(crate) limits: WatchLimits,
    pub(crate) draining: watch::Receiver<bool>,
    pub(crate) permit: OwnedSemaphorePermit,
}

impl Relay {
    /// Starts relaying; the stream ends with the source, or with an error that says where to go on.
    pub(crate) fn start(
        self,
        source: mpsc::Receiver<Result<WatchItem, ApiError>>,
    ) -> impl Stream<Item = Result<WatchItem, Refusal>> + Send + 'static {
        let (to_reader, from_relay) = mpsc::channel(self.limits.buffer.max(1));
        let (last_word, heard) = oneshot::channel();
        tokio::spawn(async move {
            if let Some(error) = self.run(source, to_reader).await {
                // The reader may be gone by now; then nobody needs the error.
                let _ = last_word.send(error);
            }
        });
        // The error travels beside the buffer, because the buffer is full when it matters.
        let end = stream::once(heard).filter_map(|error| future::ready(error.ok()));
        ReceiverStream::new(from_relay).map(Ok).chain(end.map(Err))
    }

    async fn run(
        mut self,
        mut source: mpsc::Receiver<Result<WatchItem, ApiError>>,
        to_reader: mpsc::Sender<WatchItem>,
    ) -> Option<Refusal> {
        // Held until the watch ends.
        let _permit = self.permit;
        let mut cursor = self.after_seq;
        loop {
            let item = tokio::select! {
                // An error of the wait means the server is gone, which is draining too.
                _ = self.draining.wait_for(|draining| *draining) => return Some(draining(cursor)),
                () = to_reader.closed() => return None,
                item = source.recv() => item,
            };
            let item = match item? {
                Ok(item) => item,
                Err(error) => return Some(Refusal::from(error).with("afterSeq", cursor.to_string())),
            };
            let seq = match &item {
                WatchItem::Event(event) | WatchItem::Told { event, .. } => Some(event.seq),
                WatchItem::Progress { .. } => None,
            };
            if let Some(visible) = visible(item, &self.subscriber) {
                match to_reader.send_timeout(visible, self.limits.stall).await {
                    Ok(()) => {}
                    Err(mpsc::error::SendTimeoutError::Timeout(_)) => return Some(too_slow(cursor)),
                    Err(mpsc::error::SendTimeoutError::Closed(_)) => return None,
                }
            }
            cursor = seq.unwrap_or(cursor);
        }
    }
}

/// The item as the subscriber may see it, if at all: customers are told of an event in words alone.
fn visible(item: WatchItem, subscriber: &Caller) -> Option<WatchItem> {
    let visibility = match &item {
        WatchItem::Event(event) | WatchItem::Told { event, .. } => event.visibility,
        WatchItem::Progress { kind, .. } => kind.visibility(),
    };
    let (reader, tenant) = (subscriber.actor.role, &subscriber.tenant_id);
    // The run was found in the subscriber's tenant.
    if !should_deliver_to_subscriber(visibility, tenant, reader, tenant) {
        return None;
    }
    match item {
        WatchItem::Event(event) if reader.sees() == Visibility::Customer => {
            Some(WatchItem::Told { event, summary: None })
        }
        item @ (WatchItem::Event(_) | WatchItem::Told { .. } | WatchItem::Progress { .. }) => Some(item),
    }
}

fn too_slow(cursor: u64) -> Refusal {
    let message = format!("the watch was read too slowly and has ended; watch again after event {cursor}");
    Refusal::new(ErrorKind::Conflict, "watch-too-slow", message)
        .with("afterSeq", cursor.to_string())
        .with(errors::DETAIL_RETRY, "0")
}

fn draining(cursor: u64) -> Refusal {
    let message = format!("the server is shutting down; watch again after event {cursor} once it is back");
    Refusal::new(ErrorKind::Unavailable, "server-draining", message).with("afterSeq", cursor.to_string())
}
