//! Calls of this process that are out, and answers that are not in the journal yet. They outlive the actor of their run:
//! one that is loaded again within the process waits for the same answers instead of recovering what was never lost.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use signalbox_domain::ids::{CallId, RunKey, ToolId};
use signalbox_domain::run::settle::Ended;

/// Where a call is that this process knows more about than the journal.
#[derive(Clone)]
pub(crate) enum Flight {
    /// A task will report on it.
    Out(ToolId),
    /// This came back.
    Ended(Arc<Ended>),
}

/// Every such call, by run.
#[derive(Default)]
pub(crate) struct Flights(Mutex<BTreeMap<RunKey, BTreeMap<CallId, Flight>>>);

impl Flights {
    /// A task has been started that will report on this call.
    pub(crate) fn began(&self, run: RunKey, call: CallId, tool: ToolId) {
        self.lock().entry(run).or_default().insert(call, Flight::Out(tool));
    }

    /// The task has reported.
    pub(crate) fn ended(&self, run: RunKey, ended: Ended) {
        self.lock().entry(run).or_default().insert(ended.call_id, Flight::Ended(Arc::new(ended)));
    }

    /// The answer to a call, if it is here and not in the journal yet.
    pub(crate) fn answer(&self, run: RunKey, call: CallId) -> Option<Arc<Ended>> {
        match self.lock().get(&run)?.get(&call)? {
            Flight::Ended(ended) => Some(Arc::clone(ended)),
            Flight::Out(_) => None,
        }
    }

    /// True if an answer of this run lies here.
    pub(crate) fn has_answer(&self, run: RunKey) -> bool {
        let flights = self.lock();
        flights.get(&run).is_some_and(|of_run| of_run.values().any(|flight| matches!(flight, Flight::Ended(_))))
    }

    /// The journal knows all there is to know of the call.
    pub(crate) fn landed(&self, run: RunKey, call: CallId) {
        let mut flights = self.lock();
        if let Some(of_run) = flights.get_mut(&run) {
            of_run.remove(&call);
            if of_run.is_empty() {
                flights.remove(&run);
            }
        }
    }

    /// The run takes no answers any more, or not from this process.
    pub(crate) fn over(&self, run: RunKey) {
        self.lock().remove(&run);
    }

    /// What there is of a run.
    pub(crate) fn of(&self, run: RunKey) -> BTreeMap<CallId, Flight> {
        self.lock().get(&run).cloned().unwrap_or_default()
    }

    // Nothing panics while it holds this lock, so what a poisoned one guards is still whole.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<RunKey, BTreeMap<CallId, Flight>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
