//! Live subscribers. What is sent here is a copy of what the journal holds; whoever falls behind reads the journal.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use signalbox_domain::ids::{RunKey, StepId};
use signalbox_domain::run::chain::StoredEvent;
use tokio::sync::broadcast;

/// Items a subscriber may fall behind before it has to read the journal.
const BEHIND_MAX: usize = 64;

#[derive(Debug, Clone)]
pub(crate) enum Item {
    Event(Arc<StoredEvent>),
    Progress {
        step_id: StepId,
        message: String,
        percent: Option<u8>,
    },
    /// A command was answered without an event.
    Answered,
    /// What comes next may be written, or was, by another node: the journal says.
    Elsewhere,
}

/// Who watches what.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProgressHub {
    runs: Arc<Mutex<HashMap<RunKey, broadcast::Sender<Item>>>>,
}

impl ProgressHub {
    pub(crate) fn subscribe(&self, run: RunKey) -> broadcast::Receiver<Item> {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        // Runs that nobody watches any more are forgotten here, so the map is bounded by the watchers.
        runs.retain(|key, sender| *key == run || sender.receiver_count() > 0);
        runs.entry(run).or_insert_with(|| broadcast::channel(BEHIND_MAX).0).subscribe()
    }

    /// Tells everybody who watches anything.
    pub(crate) fn publish_all(&self, item: &Item) {
        let runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        for sender in runs.values() {
            let _ = sender.send(item.clone());
        }
    }

    pub(crate) fn publish(&self, run: RunKey, item: Item) {
        let runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = runs.get(&run) {
            // No receiver is no error: everybody has stopped watching.
            let _ = sender.send(item);
        }
    }
}
