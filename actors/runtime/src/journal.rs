//! Group commit: appends of all runs are collected and written in one transaction while the last one commits.
//!
//! There is no linger timer: the first append goes out at once, and whatever arrives while it commits is the next batch.
//! Whoever finds nobody committing starts a task that writes until nothing waits any more; so an append goes through no
//! hand but that task's.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use signalbox_domain::run::append::Entry;
use signalbox_ports::clock::Clock;
use signalbox_ports::journal::{AppendError, Appended, Journal, StoreError};
use tokio::sync::oneshot;

use crate::caught::caught;

/// Most entries of one transaction.
const BATCH_ENTRIES_MAX: usize = 512;

type Answer = Result<Appended, AppendError>;

/// Cheap to clone; appends wait for their transaction.
#[derive(Clone)]
pub(crate) struct JournalHandle(Arc<GroupCommit>);

struct GroupCommit {
    journal: Arc<dyn Journal>,
    clock: Arc<dyn Clock>,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    entries: Vec<Entry>,
    /// One for each entry.
    replies: Vec<oneshot::Sender<Answer>>,
    /// A task is writing, and looks here again when it has.
    committing: bool,
}

impl JournalHandle {
    pub(crate) fn new(journal: Arc<dyn Journal>, clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(GroupCommit { journal, clock, queue: Mutex::default() }))
    }

    /// Writes one entry, together with whatever else is waiting.
    pub(crate) async fn append(&self, entry: Entry) -> Answer {
        let (reply, answered) = oneshot::channel();
        let begins = {
            let mut queue = self.0.lock();
            queue.entries.push(entry);
            queue.replies.push(reply);
            !std::mem::replace(&mut queue.committing, true)
        };
        if begins {
            tokio::spawn(commit(Arc::clone(&self.0)));
        }
        // The commit was lost with its task: whether it happened is found out by reading.
        answered.await.unwrap_or_else(|_| Err(StoreError::Unknown("the journal's task went away".to_owned()).into()))
    }
}

impl GroupCommit {
    /// The next batch; `None`, and nobody commits any more, if nothing waits.
    fn next(&self) -> Option<(Vec<Entry>, Vec<oneshot::Sender<Answer>>)> {
        let mut queue = self.lock();
        if queue.entries.is_empty() {
            queue.committing = false;
            return None;
        }
        let most = queue.entries.len().min(BATCH_ENTRIES_MAX);
        let (later, later_replies) = (queue.entries.split_off(most), queue.replies.split_off(most));
        let entries = std::mem::replace(&mut queue.entries, later);
        Some((entries, std::mem::replace(&mut queue.replies, later_replies)))
    }

    // Nothing panics while it holds this lock, so what a poisoned one guards is still whole.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn commit(group: Arc<GroupCommit>) {
    while let Some((entries, replies)) = group.next() {
        let began = group.clock.boot();
        // A panic in a store ends this batch and not the group commit.
        match caught(group.journal.append(entries, began)).await {
            Ok(answers) => {
                for (reply, answer) in replies.into_iter().zip(answers) {
                    // A run that no longer waits has been stopped; its journal is read when it is loaded again.
                    let _ = reply.send(answer);
                }
            }
            Err(error) => {
                tracing::error!(%error, "a store failed while appending");
                for reply in replies {
                    let _ = reply.send(Err(StoreError::Unknown("the store failed while writing".to_owned()).into()));
                }
            }
        }
    }
}
