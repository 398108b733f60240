//! One feed for each run that is watched: it hears the run's news once and hands them on to all who watch, and it alone
//! looks at the journal while there are none. So a run pays the same for one watcher as for ten thousand.
//!
//! Watchers stand in rows of at most [`ROW_MAX`]. After each row the feed lets everything else have its turn, so that
//! between two steps of a run there is never more than a row to be woken. Events are shared, never copied.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use signalbox_domain::ids::{NodeIncarnation, RunKey, StepId};
use signalbox_domain::run::chain::StoredEvent;
use signalbox_ports::journal::{Journal, READ_EVENTS_MAX, StoreError};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Semaphore, broadcast};
use tokio::time::{Instant, timeout};

use crate::elsewhere::Elsewhere;
use crate::progress::{Item, ProgressHub};

/// News a watcher may fall behind before it has to read the journal.
const BEHIND_MAX: usize = 64;
/// Watchers that are woken at once.
const ROW_MAX: usize = 64;
/// Readings of the journal for watchers that go on at once. What watchers want never fills the store.
const READINGS_MAX: usize = 4;
/// How often the journal of a run is looked at that another node may write.
const LOOK_ELSEWHERE: Duration = Duration::from_secs(1);
/// The same of a run of this node's own, whose news come by themselves.
const LOOK_HERE: Duration = Duration::from_secs(5);
/// How long the store is left alone after it has failed.
const REST: Duration = Duration::from_secs(1);

/// What watchers of a run hear.
#[derive(Debug, Clone)]
pub(crate) enum News {
    Event(Arc<StoredEvent>),
    Progress { step_id: StepId, message: Arc<str>, percent: Option<u8> },
}

/// The feeds of a node.
#[derive(Clone)]
pub(crate) struct Feeds(Arc<Inner>);

struct Inner {
    hub: ProgressHub,
    elsewhere: Elsewhere,
    journal: Arc<dyn Journal>,
    node: NodeIncarnation,
    readings: Semaphore,
    open: Mutex<HashMap<RunKey, Weak<Feed>>>,
}

/// One feed, alive while somebody watches.
#[derive(Default)]
struct Feed {
    rows: Mutex<Rows>,
}

#[derive(Default)]
struct Rows {
    rows: Vec<broadcast::Sender<News>>,
    /// Nothing will be handed on any more.
    over: bool,
}

/// A place in a feed; dropping it gives the place up.
pub(crate) struct Seat {
    pub(crate) news: broadcast::Receiver<News>,
    _feed: Arc<Feed>,
}

impl Feeds {
    pub(crate) fn new(
        hub: ProgressHub,
        elsewhere: Elsewhere,
        journal: Arc<dyn Journal>,
        node: NodeIncarnation,
    ) -> Self {
        let readings = Semaphore::new(READINGS_MAX);
        Self(Arc::new(Inner { hub, elsewhere, journal, node, readings, open: Mutex::default() }))
    }

    /// A seat among those who watch a run. What happened before is in the journal; what happens from now on comes here.
    pub(crate) fn sit(&self, run: RunKey) -> Seat {
        let mut open = self.0.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(feed) = open.get(&run).and_then(Weak::upgrade)
            && let Some(news) = feed.seat()
        {
            return Seat { news, _feed: feed };
        }
        open.retain(|_, feed| feed.strong_count() > 0);
        let (row, news) = broadcast::channel(BEHIND_MAX);
        let feed = Arc::new(Feed { rows: Mutex::new(Rows { rows: vec![row], over: false }) });
        open.insert(run, Arc::downgrade(&feed));
        // Heard from before anybody reads: what happens in between is sent, or read, but never missed.
        let hub = self.0.hub.subscribe(run);
        tokio::spawn(keep(self.0.clone(), run, Arc::downgrade(&feed), hub));
        Seat { news, _feed: feed }
    }

    /// A page of the journal, when it is this watcher's turn.
    pub(crate) async fn read(&self, run: RunKey, after: u64) -> Result<Vec<StoredEvent>, StoreError> {
        let _turn = self.0.readings.acquire().await;
        self.0.journal.read(run, after, READ_EVENTS_MAX).await
    }

    /// True once nothing more can come after `last`.
    pub(crate) async fn is_over(&self, run: RunKey, last: u64) -> Result<bool, StoreError> {
        let _turn = self.0.readings.acquire().await;
        let head = self.0.journal.head(run).await?;
        Ok(head.is_none_or(|head| head.closed && head.last_seq <= last))
    }
}

impl Feed {
    /// A receiver in a row with room; `None` if the feed is over.
    fn seat(&self) -> Option<broadcast::Receiver<News>> {
        let mut all = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        if all.over {
            return None;
        }
        if let Some(row) = all.rows.iter().find(|row| row.receiver_count() < ROW_MAX) {
            return Some(row.subscribe());
        }
        let (row, news) = broadcast::channel(BEHIND_MAX);
        all.rows.push(row);
        Some(news)
    }

    fn rows(&self) -> Vec<broadcast::Sender<News>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner).rows.clone()
    }

    /// Whoever still listens hears that there is nothing more to hear.
    fn end(&self) {
        *self.rows.lock().unwrap_or_else(PoisonError::into_inner) = Rows { rows: Vec::new(), over: true };
    }
}

/// Hands news on until the run is over or nobody watches any more.
async fn keep(feeds: Arc<Inner>, run: RunKey, feed: Weak<Feed>, mut hub: broadcast::Receiver<Item>) {
    let mut last = None;
    let mut wait = LOOK_ELSEWHERE;
    // Whoever holds the run, if it is another node, says from now on when it moves.
    feeds.elsewhere.follows(run);
    let mut said = Instant::now();
    loop {
        let heard = timeout(wait, hub.recv()).await;
        let Some(feed) = feed.upgrade() else { return };
        let over = match heard {
            Ok(Ok(Item::Event(event))) if last.is_none_or(|last| event.seq == last + 1) => {
                last = Some(event.seq);
                hand_on(&feed, News::Event(event)).await
            }
            Ok(Ok(Item::Event(event))) if last.is_some_and(|last| event.seq <= last) => false,
            Ok(Ok(Item::Progress { step_id, message, percent })) => {
                hand_on(&feed, News::Progress { step_id, message: message.into(), percent }).await
            }
            Ok(Ok(Item::Answered)) => false,
            // A gap, or silence: what there is lies in the journal.
            Ok(Ok(Item::Event(_) | Item::Elsewhere) | Err(RecvError::Lagged(_))) | Err(_) => {
                let (looked, owned) = look(&feeds, run, &feed, &mut last).await;
                wait = if owned { LOOK_HERE } else { LOOK_ELSEWHERE };
                if !owned && said.elapsed() >= LOOK_ELSEWHERE {
                    feeds.elsewhere.follows(run);
                    said = Instant::now();
                }
                looked
            }
            // The hub lives as long as the node.
            Ok(Err(RecvError::Closed)) => true,
        };
        if over {
            feed.end();
            return;
        }
    }
}

/// Reads what the journal has and was not handed on, once for all who watch; with whether the run is over, and whether it
/// is this node's own.
async fn look(feeds: &Inner, run: RunKey, feed: &Feed, last: &mut Option<u64>) -> (bool, bool) {
    let head = {
        let _turn = feeds.readings.acquire().await;
        feeds.journal.head(run).await
    };
    let head = match head {
        Ok(Some(head)) => head,
        Ok(None) => return (true, false),
        Err(error) => {
            tracing::debug!(%error, "the journal of a watched run could not be looked at");
            tokio::time::sleep(REST).await;
            return (false, false);
        }
    };
    let owned = head.owner == Some(feeds.node);
    // Whoever watches has read up to some event that is no later than this one, or reads on by itself.
    let mut at = last.unwrap_or(head.last_seq.saturating_sub(1));
    while at < head.last_seq {
        let page = {
            let _turn = feeds.readings.acquire().await;
            feeds.journal.read(run, at, READ_EVENTS_MAX).await
        };
        let page = match page {
            Ok(page) if !page.is_empty() => page,
            Ok(_) => break,
            Err(error) => {
                tracing::debug!(%error, "the journal of a watched run could not be read");
                tokio::time::sleep(REST).await;
                return (false, owned);
            }
        };
        for event in page {
            at = event.seq;
            *last = Some(at);
            if hand_on(feed, News::Event(Arc::new(event))).await {
                return (true, owned);
            }
        }
    }
    (false, owned)
}

/// Row by row; true if these are the last news of the run.
async fn hand_on(feed: &Feed, news: News) -> bool {
    let is_last = matches!(&news, News::Event(event) if event.kind == "run-closed");
    let rows = feed.rows();
    for row in &rows {
        // Nobody in a row is no error.
        let _ = row.send(news.clone());
        if rows.len() > 1 {
            tokio::task::yield_now().await;
        }
    }
    is_last
}
