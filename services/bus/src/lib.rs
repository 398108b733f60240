//! The bus that announces governance changes: in-process here, Redis later.
//!
//! A message carries nothing but an epoch, and nobody believes it: whoever hears it reads the rows from the store. So a
//! bus may lose and merge messages, and this one does: a listener that is slow hears only the highest epoch.

use std::sync::Arc;

use async_trait::async_trait;
use signalbox_ports::bus::Bus;
use tokio::sync::{Mutex, watch};

/// A bus between the nodes of one process.
#[derive(Debug)]
pub struct LocalBus {
    epoch: Arc<watch::Sender<u64>>,
    /// Behind a lock because listening moves the mark of what was heard. One node listens; it has no rival here.
    heard: Mutex<watch::Receiver<u64>>,
}

impl LocalBus {
    /// A bus of one node. Further nodes [`join`](Self::join) it.
    pub fn new() -> Self {
        Self::listening_to(Arc::new(watch::Sender::new(0)))
    }

    /// Another node's end of the same bus; it hears what is announced from now on.
    #[must_use]
    pub fn join(&self) -> Self {
        Self::listening_to(Arc::clone(&self.epoch))
    }

    fn listening_to(epoch: Arc<watch::Sender<u64>>) -> Self {
        let heard = Mutex::new(epoch.subscribe());
        Self { epoch, heard }
    }
}

impl Default for LocalBus {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Bus for LocalBus {
    async fn announce(&self, epoch: u64) {
        // Announcements may overtake each other; a lower one says nothing new.
        self.epoch.send_if_modified(|known| {
            let news = epoch > *known;
            *known = epoch.max(*known);
            news
        });
    }

    async fn next(&self) -> u64 {
        let mut heard = self.heard.lock().await;
        // The sender lives in `self`, so the channel cannot be closed while this waits.
        let _ = heard.changed().await;
        *heard.borrow_and_update()
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    fn is_waiting(next: impl Future<Output = u64>) -> bool {
        pin!(next).poll(&mut Context::from_waker(Waker::noop())).is_pending()
    }

    #[tokio::test]
    async fn every_node_hears_an_announcement_once() {
        let one = LocalBus::new();
        let two = one.join();
        one.announce(3).await;
        assert_eq!((one.next().await, two.next().await), (3, 3));
        assert!(is_waiting(one.next()) && is_waiting(two.next()));
    }

    #[tokio::test]
    async fn announcements_merge_into_the_highest_and_a_lower_one_says_nothing() {
        let bus = LocalBus::new();
        for epoch in [4, 9, 7] {
            bus.announce(epoch).await;
        }
        assert_eq!(bus.next().await, 9);
        bus.announce(8).await;
        assert!(is_waiting(bus.next()));
    }

    #[tokio::test]
    async fn a_listener_that_gives_up_waiting_loses_nothing() {
        let bus = LocalBus::new();
        assert!(is_waiting(bus.next()));
        bus.announce(1).await;
        assert_eq!(bus.next().await, 1);
    }
}
