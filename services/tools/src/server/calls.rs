//! What a server remembers of calls: which run now, how others ended, and which it must never run.
//!
//! The memory lasts as long as the process and is bounded. Results are kept while there is room; the bare fact that a
//! call was seen or refused is kept much longer, because a call that is run twice is worse than one that is refused.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prost::Message as _;
use signalbox_domain::ids::CallId;
use signalbox_proto::v1::ToolResult;
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;

use crate::tool::ProgressLine;

/// Most calls that run at once.
const RUNNING_MAX: usize = 1_024;
/// Lines of progress kept for a slow listener.
const LINES_MAX: usize = 16;

/// How much is remembered.
#[derive(Debug, Clone, Copy)]
pub(super) struct MemoryLimits {
    /// Most ids of which anything is known.
    pub(super) ids_max: usize,
    /// Most bytes of results.
    pub(super) result_bytes_max: usize,
}

impl Default for MemoryLimits {
    fn default() -> Self {
        Self { ids_max: 100_000, result_bytes_max: 64 * 1024 * 1024 }
    }
}

/// How a call ended.
#[derive(Debug, Clone)]
pub(super) enum Finish {
    /// With a result.
    Result(Arc<ToolResult>),
    /// The tool was told to stop and did not: what it did is not known.
    Lost,
}

/// The two ends that listeners of a running call need.
#[derive(Debug)]
pub(super) struct Listening {
    pub(super) lines: broadcast::Receiver<ProgressLine>,
    pub(super) finish: watch::Receiver<Option<Finish>>,
}

/// What whoever runs a call needs.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) stop: CancellationToken,
    pub(super) lines: broadcast::Sender<ProgressLine>,
    finish: watch::Sender<Option<Finish>>,
}

/// What is to be done with a call that came in.
#[derive(Debug)]
pub(super) enum Entrance {
    /// Run it.
    Run(Running, Listening),
    /// It runs already: listen.
    Join(Listening),
    /// It has ended: say so again.
    Repeat(Arc<ToolResult>),
    /// It has ended, and how is no longer known.
    Forgotten,
    /// It must not run.
    Refuse(&'static str, &'static str),
}

/// What is known of a call.
#[derive(Debug)]
pub(super) enum Known {
    Running,
    Ended(Arc<ToolResult>),
    /// Cancelled or disowned before it began.
    Refused,
    /// It began, but its result is gone.
    Forgotten,
    Nothing,
}

/// The memory.
#[derive(Debug, Default)]
pub(super) struct Calls {
    limits: MemoryLimits,
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    running: HashMap<CallId, Open>,
    past: HashMap<CallId, Past>,
    /// Ids in the order in which they came into `past`, oldest first.
    order: VecDeque<CallId>,
    /// Ids whose results are still kept, oldest first.
    kept: VecDeque<CallId>,
    kept_bytes: usize,
    draining: bool,
}

#[derive(Debug)]
struct Open {
    fingerprint: String,
    stop: CancellationToken,
    lines: broadcast::Sender<ProgressLine>,
    finish: watch::Receiver<Option<Finish>>,
}

#[derive(Debug)]
enum Past {
    Refused,
    Ended { fingerprint: String, result: Option<Arc<ToolResult>> },
}

impl Calls {
    /// Decides about a call that came in. `fingerprint` stands for what is asked: an id names one question for ever.
    /// `may_repeat` says that a call may be run again if its result is gone.
    pub(super) fn enter(&self, call: CallId, fingerprint: String, may_repeat: bool) -> Entrance {
        const OTHER: Entrance = Entrance::Refuse("call-id-reused", "this call id was used for another call");
        let mut book = self.lock();
        if let Some(open) = book.running.get(&call) {
            return if open.fingerprint == fingerprint { Entrance::Join(open.listen()) } else { OTHER };
        }
        match book.past.get(&call) {
            Some(Past::Refused) => return Entrance::Refuse("call-refused", "this call was cancelled before it began"),
            Some(Past::Ended { fingerprint: before, .. }) if *before != fingerprint => return OTHER,
            Some(Past::Ended { result: Some(result), .. }) => return Entrance::Repeat(Arc::clone(result)),
            Some(Past::Ended { result: None, .. }) if !may_repeat => return Entrance::Forgotten,
            Some(Past::Ended { result: None, .. }) | None => {}
        }
        if book.draining {
            return Entrance::Refuse("executor-draining", "the executor is shutting down");
        }
        if book.running.len() >= RUNNING_MAX {
            return Entrance::Refuse("executor-busy", "the executor runs as many calls as it can");
        }
        let (lines, _) = broadcast::channel(LINES_MAX);
        let (finish, finished) = watch::channel(None);
        let open = Open { fingerprint, stop: CancellationToken::new(), lines, finish: finished };
        let listening = open.listen();
        let running = Running { stop: open.stop.clone(), lines: open.lines.clone(), finish };
        book.running.insert(call, open);
        Entrance::Run(running, listening)
    }

    /// Writes down how a call ended, and tells all who listen.
    pub(super) fn leave(&self, call: CallId, running: &Running, finish: Finish) {
        {
            let mut book = self.lock();
            let fingerprint = book.running.remove(&call).map(|open| open.fingerprint).unwrap_or_default();
            let result = match &finish {
                Finish::Result(result) => Some(Arc::clone(result)),
                Finish::Lost => None,
            };
            book.remember(call, Past::Ended { fingerprint, result }, self.limits);
        }
        running.finish.send_replace(Some(finish));
    }

    /// Stops a call, or refuses it for ever if it has not begun.
    pub(super) fn cancel(&self, call: CallId) {
        let mut book = self.lock();
        if let Some(open) = book.running.get(&call) {
            open.stop.cancel();
        } else if !book.past.contains_key(&call) {
            book.remember(call, Past::Refused, self.limits);
        }
    }

    /// Looks a call up.
    pub(super) fn known(&self, call: CallId) -> Known {
        let book = self.lock();
        if book.running.contains_key(&call) {
            return Known::Running;
        }
        match book.past.get(&call) {
            Some(Past::Refused) => Known::Refused,
            Some(Past::Ended { result: Some(result), .. }) => Known::Ended(Arc::clone(result)),
            Some(Past::Ended { result: None, .. }) => Known::Forgotten,
            None => Known::Nothing,
        }
    }

    /// Takes no new call from now on.
    pub(super) fn drain(&self) {
        self.lock().draining = true;
    }

    /// Stops every call.
    pub(super) fn cancel_all(&self) {
        self.lock().running.values().for_each(|open| open.stop.cancel());
    }

    /// Nothing panics while it holds this lock, so what a poisoned one guards is still whole.
    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    fn listen(&self) -> Listening {
        Listening { lines: self.lines.subscribe(), finish: self.finish.clone() }
    }
}

impl Book {
    fn remember(&mut self, call: CallId, past: Past, limits: MemoryLimits) {
        if let Past::Ended { result: Some(result), .. } = &past {
            self.kept_bytes += result.encoded_len();
            self.kept.push_back(call);
        }
        if self.past.insert(call, past).is_none() {
            self.order.push_back(call);
        }
        while self.order.len() > limits.ids_max {
            let Some(oldest) = self.order.pop_front() else { break };
            self.forget_result(oldest);
            self.past.remove(&oldest);
        }
        while self.kept_bytes > limits.result_bytes_max {
            let Some(oldest) = self.kept.pop_front() else { break };
            self.forget_result(oldest);
        }
    }

    fn forget_result(&mut self, call: CallId) {
        if let Some(Past::Ended { result, .. }) = self.past.get_mut(&call)
            && let Some(result) = result.take()
        {
            self.kept_bytes = self.kept_bytes.saturating_sub(result.encoded_len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn id(n: u128) -> CallId {
        CallId::new(Uuid::from_u128(n))
    }

    fn run(calls: &Calls, call: CallId, output: usize) {
        let Entrance::Run(running, _) = calls.enter(call, "f".into(), false) else { panic!("not run") };
        let result = ToolResult { output_json: vec![b' '; output].into(), ..ToolResult::default() };
        calls.leave(call, &running, Finish::Result(Arc::new(result)));
    }

    #[test]
    fn results_make_room_for_newer_ones_but_their_calls_stay_known() {
        let calls = Calls { limits: MemoryLimits { ids_max: 10, result_bytes_max: 250 }, ..Calls::default() };
        (1..=3).for_each(|n| run(&calls, id(n), 100));
        assert!(matches!(calls.known(id(1)), Known::Forgotten));
        assert!(matches!(calls.known(id(3)), Known::Ended(_)));
        assert!(matches!(calls.enter(id(1), "f".into(), false), Entrance::Forgotten));
        assert!(matches!(calls.enter(id(1), "f".into(), true), Entrance::Run(..)));
    }

    #[test]
    fn the_memory_of_ids_is_bounded_and_forgets_the_oldest_first() {
        let calls = Calls { limits: MemoryLimits { ids_max: 2, result_bytes_max: 1_000 }, ..Calls::default() };
        (1..=3).for_each(|n| calls.cancel(id(n)));
        assert!(matches!(calls.known(id(1)), Known::Nothing));
        assert!(matches!(calls.known(id(2)), Known::Refused));
        assert_eq!(calls.lock().order.len(), 2);
        assert_eq!(calls.lock().past.len(), 2);
    }

    #[test]
    fn no_more_than_the_bound_run_at_once() {
        let calls = Calls::default();
        let all: Vec<_> = (0..RUNNING_MAX as u128).map(|n| calls.enter(id(n), "f".into(), false)).collect();
        assert!(all.iter().all(|entrance| matches!(entrance, Entrance::Run(..))));
        let more = calls.enter(id(u128::MAX), "f".into(), false);
        assert!(matches!(more, Entrance::Refuse("executor-busy", _)));
    }
}
