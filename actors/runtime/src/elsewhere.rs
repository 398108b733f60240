//! What this node says to the others, and of which runs: somebody may follow a run at a node that does not hold it, or wait
//! there for the answer to a command.
//!
//! All of it is a courtesy. Whoever is told nothing finds everything in the store, a little later.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use signalbox_domain::ids::RunKey;
use signalbox_ports::bus::{Bus, Notice};
use signalbox_ports::clock::{BootInstant, Clock};

/// How long a run counts as followed elsewhere after somebody has said so. Who follows one says so every second.
const WATCHED_FOR_MS: u64 = 5_000;
/// Runs that are remembered as followed elsewhere. More of them are found by those who follow, once a second.
const WATCHED_MAX: usize = 10_000;

/// The way to the other nodes.
#[derive(Clone)]
pub(crate) struct Elsewhere(Arc<Inner>);

struct Inner {
    bus: Arc<dyn Bus>,
    clock: Arc<dyn Clock>,
    /// False while nothing is followed elsewhere, so that an append looks no further.
    any: AtomicBool,
    watched: Mutex<HashMap<RunKey, BootInstant>>,
}

impl Elsewhere {
    pub(crate) fn new(bus: Arc<dyn Bus>, clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(Inner { bus, clock, any: AtomicBool::new(false), watched: Mutex::default() }))
    }

    /// A command lies in the inbox of a run.
    pub(crate) fn commanded(&self, run: RunKey) {
        self.0.bus.announce(Notice::Inbox(run));
    }

    /// Somebody follows a run here, and another node may hold it.
    pub(crate) fn follows(&self, run: RunKey) {
        self.0.bus.announce(Notice::Watched(run));
    }

    /// A run of this node has written; said if somebody elsewhere may wait for it.
    pub(crate) fn wrote(&self, run: RunKey, answers: bool) {
        if answers || self.is_watched(run) {
            self.0.bus.announce(Notice::Moved(run));
        }
    }

    /// Another node says that somebody follows a run there.
    pub(crate) fn is_followed(&self, run: RunKey) {
        let now = self.0.clock.boot();
        let mut watched = self.0.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if watched.len() >= WATCHED_MAX {
            watched.retain(|_, since| now.ms_since(*since) < WATCHED_FOR_MS);
        }
        if watched.len() < WATCHED_MAX {
            watched.insert(run, now);
            self.0.any.store(true, Ordering::Release);
        }
    }

    fn is_watched(&self, run: RunKey) -> bool {
        if !self.0.any.load(Ordering::Acquire) {
            return false;
        }
        let now = self.0.clock.boot();
        let mut watched = self.0.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(since) = watched.get(&run) else { return false };
        if now.ms_since(*since) < WATCHED_FOR_MS {
            return true;
        }
        watched.remove(&run);
        if watched.is_empty() {
            self.0.any.store(false, Ordering::Release);
        }
        false
    }
}
