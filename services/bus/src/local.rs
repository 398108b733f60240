//! The bus of one process.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use async_trait::async_trait;
use signalbox_ports::bus::{Bus, Notice};

use crate::heard::Heard;

/// A bus between the nodes of one process.
#[derive(Debug, Default)]
pub struct LocalBus {
    heard: Arc<Heard>,
    ends: Arc<Mutex<Vec<Weak<Heard>>>>,
}

impl LocalBus {
    /// A bus of one node. Further nodes [`join`](Self::join) it.
    pub fn new() -> Self {
        Self::default().listening()
    }

    /// Another node's end of the same bus; it hears what is announced from now on.
    #[must_use]
    pub fn join(&self) -> Self {
        Self { heard: Arc::default(), ends: Arc::clone(&self.ends) }.listening()
    }

    fn listening(self) -> Self {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&self.heard));
        self.heard.hear(Notice::Missed);
        self
    }
}

#[async_trait]
impl Bus for LocalBus {
    fn announce(&self, notice: Notice) {
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        ends.retain(|end| {
            let Some(end) = end.upgrade() else { return false };
            if !Arc::ptr_eq(&end, &self.heard) {
                end.hear(notice);
            }
            true
        });
    }

    async fn next(&self) -> Notice {
        self.heard.next().await
    }
}

#[cfg(test)]
mod tests {
    use signalbox_ports::conformance::BusFixture;

    use super::*;

    async fn open() -> BusFixture {
        let one = LocalBus::new();
        let (two, three) = (one.join(), one.join());
        BusFixture::over([Arc::new(one), Arc::new(two), Arc::new(three)], ())
    }

    signalbox_ports::bus_conformance!(crate::local::tests::open);
}
