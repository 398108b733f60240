//! Following a run: first what the journal holds behind the cursor, then the news. Whoever falls behind reads the journal
//! again, so nothing is missed and nothing comes twice (DSH-012).

use std::time::Duration;

use signalbox_domain::ids::RunKey;
use signalbox_ports::journal::{Journal, READ_EVENTS_MAX};
use tokio::sync::mpsc;

use crate::api::{ApiError, WatchItem};
use crate::progress::Item;

/// How often the journal is looked at although nothing was announced.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Sends a run's events behind `after_seq` until the run is closed or nobody listens any more.
pub(crate) async fn follow(
    journal: &dyn Journal,
    run: RunKey,
    after_seq: u64,
    mut news: tokio::sync::broadcast::Receiver<Item>,
    items: &mpsc::Sender<Result<WatchItem, ApiError>>,
) -> Result<(), ApiError> {
    use tokio::sync::broadcast::error::RecvError;
    let mut last = after_seq;
    loop {
        // Whatever was missed lies in the journal; the news only say that there is something.
        loop {
            let page = journal.read(run, last, READ_EVENTS_MAX).await?;
            if page.is_empty() {
                break;
            }
            for event in page {
                last = event.seq;
                let closed = event.kind == "run-closed";
                if items.send(Ok(WatchItem::Event(event))).await.is_err() || closed {
                    return Ok(());
                }
            }
        }
        if journal.head(run).await?.is_some_and(|head| head.closed && head.last_seq <= last) {
            return Ok(());
        }
        loop {
            match tokio::time::timeout(LOOK_AGAIN, news.recv()).await {
                Ok(Ok(Item::Event(event))) if event.seq == last + 1 => {
                    last = event.seq;
                    let closed = event.kind == "run-closed";
                    let sent = items.send(Ok(WatchItem::Event((*event).clone()))).await;
                    if sent.is_err() || closed {
                        return Ok(());
                    }
                }
                Ok(Ok(Item::Event(event))) if event.seq > last => break,
                Ok(Ok(Item::Progress { step_id, message, percent })) => {
                    let line = WatchItem::Progress { step_id, message, percent };
                    if items.send(Ok(line)).await.is_err() {
                        return Ok(());
                    }
                }
                Ok(Ok(Item::Event(_) | Item::Answered)) => {}
                Ok(Err(RecvError::Lagged(_))) | Err(_) => break,
                Ok(Err(RecvError::Closed)) => return Ok(()),
            }
            if items.is_closed() {
                return Ok(());
            }
        }
    }
}
