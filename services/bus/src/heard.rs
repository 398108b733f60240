//! What was heard and not yet followed up: merged, so that it is bounded however much is said.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use signalbox_ports::bus::Notice;
use tokio::sync::Notify;

/// Notices of runs that may wait. One more, and all of them become one: something was missed.
const WAITING_MAX: usize = 4_096;

#[derive(Debug, Default)]
pub(crate) struct Heard {
    waiting: Mutex<Waiting>,
    news: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    missed: bool,
    /// The highest of those that wait. One that was taken is forgotten: a lie must not hide what is true later.
    epoch: Option<u64>,
    /// Each once, in the order in which they came.
    order: VecDeque<Notice>,
    known: HashSet<Notice>,
}

impl Heard {
    pub(crate) fn hear(&self, notice: Notice) {
        self.waiting().add(notice);
        self.news.notify_one();
    }

    /// The next one; rules before runs.
    pub(crate) async fn next(&self) -> Notice {
        loop {
            if let Some(notice) = self.waiting().take() {
                return notice;
            }
            self.news.notified().await;
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn add(&mut self, notice: Notice) {
        match notice {
            Notice::Governance(epoch) => self.epoch = Some(self.epoch.map_or(epoch, |known| known.max(epoch))),
            Notice::Missed => self.all_missed(),
            Notice::Inbox(_) | Notice::Moved(_) | Notice::Watched(_) if self.known.len() >= WAITING_MAX => {
                self.all_missed();
            }
            Notice::Inbox(_) | Notice::Moved(_) | Notice::Watched(_) => {
                if self.known.insert(notice) {
                    self.order.push_back(notice);
                }
            }
        }
    }

    /// Whoever reads everything needs no single notice.
    fn all_missed(&mut self) {
        *self = Self { missed: true, ..Self::default() };
    }

    fn take(&mut self) -> Option<Notice> {
        if std::mem::take(&mut self.missed) {
            return Some(Notice::Missed);
        }
        if let Some(epoch) = self.epoch.take() {
            return Some(Notice::Governance(epoch));
        }
        let notice = self.order.pop_front()?;
        self.known.remove(&notice);
        Some(notice)
    }
}

#[cfg(test)]
mod tests {
    use signalbox_ports::conformance::world::run_key;

    use super::*;

    #[tokio::test]
    async fn a_flood_of_notices_becomes_one() {
        let heard = Heard::default();
        for number in 0..WAITING_MAX as u64 + 1 {
            heard.hear(Notice::Inbox(run_key("acme", number)));
        }
        assert_eq!(heard.next().await, Notice::Missed);
        assert_eq!(heard.waiting().take(), None);
    }

    #[tokio::test]
    async fn a_lie_about_the_epoch_hides_no_later_truth() {
        let heard = Heard::default();
        heard.hear(Notice::Governance(u64::MAX));
        assert_eq!(heard.next().await, Notice::Governance(u64::MAX));
        heard.hear(Notice::Governance(3));
        assert_eq!(heard.next().await, Notice::Governance(3));
    }
}
