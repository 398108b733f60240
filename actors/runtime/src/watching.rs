//! Following a run: first what the journal holds behind the cursor, then the news. Whoever falls behind reads the journal
//! again, so nothing is missed and nothing comes twice (DSH-012).

use std::sync::Arc;

use signalbox_domain::ids::RunKey;
use signalbox_domain::run::progress::ProgressKind;
use signalbox_ports::journal::READ_EVENTS_MAX;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;

use crate::api::{ApiError, WatchItem};
use crate::feeds::{Feeds, News, Seat};

/// Sends a run's events behind `after_seq` until the run is closed or nobody listens any more.
pub(crate) async fn follow(
    feeds: &Feeds,
    run: RunKey,
    after_seq: u64,
    mut seat: Seat,
    items: &mpsc::Sender<Result<WatchItem, ApiError>>,
) -> Result<(), ApiError> {
    let mut last = after_seq;
    loop {
        // Whatever was missed lies in the journal; the news only say that there is something.
        let mut read_any = false;
        loop {
            let page = feeds.read(run, last).await?;
            let is_end = page.len() < READ_EVENTS_MAX;
            read_any |= !page.is_empty();
            for event in page {
                last = event.seq;
                let closed = event.kind == "run-closed";
                if items.send(Ok(WatchItem::Event(Arc::new(event)))).await.is_err() || closed {
                    return Ok(());
                }
            }
            if is_end {
                break;
            }
        }
        // A journal that has ended ends with its closing, and that was not among what was read just now.
        if !read_any && feeds.is_over(run, last).await? {
            return Ok(());
        }
        loop {
            let news = tokio::select! {
                () = items.closed() => return Ok(()),
                news = seat.news.recv() => news,
            };
            match news {
                Ok(News::Event(event)) if event.seq == last + 1 => {
                    last = event.seq;
                    let closed = event.kind == "run-closed";
                    if items.send(Ok(WatchItem::Event(event))).await.is_err() || closed {
                        return Ok(());
                    }
                }
                Ok(News::Event(event)) if event.seq > last => break,
                Ok(News::Event(_)) => {}
                Ok(News::Progress { step_id, message, percent }) => {
                    let message = message.as_ref().to_owned();
                    // As internal as the call it belongs to.
                    let line = WatchItem::Progress { kind: ProgressKind::ToolCalled, step_id, message, percent };
                    if items.send(Ok(line)).await.is_err() {
                        return Ok(());
                    }
                }
                Err(RecvError::Lagged(_)) => break,
                // The feed has ended, and what it had to say last is in the journal.
                Err(RecvError::Closed) => {
                    seat = feeds.sit(run);
                    break;
                }
            }
        }
    }
}
