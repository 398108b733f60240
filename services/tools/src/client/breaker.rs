//! A circuit breaker: an executor that keeps failing is left alone for a while.
//!
//! While the circuit is open there is no permit, so calls are held before anything is reserved for them. After five
//! seconds one call may try; its end decides.

use std::sync::{Mutex, PoisonError};

use signalbox_ports::clock::BootInstant;

/// Failures in a row that open the circuit.
const FAILURES_MAX: u32 = 5;
/// Overshoots that open the circuit. They need not follow each other.
const OVERSHOOTS_MAX: u32 = 3;
/// How long it stays open, and how long a probe may keep others waiting.
const REST_MS: u64 = 5_000;

#[derive(Debug, Default)]
pub(super) struct Breaker {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    failures: u32,
    overshoots: u32,
    /// Since when the circuit is open, or its last probe is out.
    open_since: Option<BootInstant>,
}

impl Breaker {
    /// True if a call may be tried now. With an open circuit this hands out the one probe of the next five seconds.
    pub(super) fn admits(&self, now: BootInstant) -> bool {
        self.with(|state| match state.open_since {
            None => true,
            Some(since) if now.ms_since(since) < REST_MS => false,
            Some(_) => {
                state.open_since = Some(now);
                true
            }
        })
    }

    /// A call was answered properly.
    pub(super) fn answered(&self) {
        self.with(|state| {
            state.failures = 0;
            state.open_since = None;
        });
    }

    /// A call was not answered, or not as the contract says.
    pub(super) fn failed(&self, now: BootInstant) {
        self.with(|state| {
            state.failures = state.failures.saturating_add(1);
            if state.failures >= FAILURES_MAX {
                state.open_since = Some(now);
            }
        });
    }

    /// A call was answered, but used more than its ceiling, or says nonsense about what it used.
    pub(super) fn overshot(&self, now: BootInstant) {
        self.with(|state| {
            state.failures = 0;
            state.overshoots = state.overshoots.saturating_add(1);
            if state.overshoots >= OVERSHOOTS_MAX {
                state.open_since = Some(now);
                // The next three open it again.
                state.overshoots = 0;
            }
        });
    }

    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        // Nothing panics while it holds this lock, so what a poisoned one guards is still whole.
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> BootInstant {
        BootInstant(ms * 1_000_000)
    }

    #[test]
    fn five_failures_in_a_row_open_it_and_one_answer_between_them_does_not() {
        let breaker = Breaker::default();
        (0..4).for_each(|_| breaker.failed(at(0)));
        breaker.answered();
        (0..4).for_each(|_| breaker.failed(at(0)));
        assert!(breaker.admits(at(0)));
        breaker.failed(at(0));
        assert!(!breaker.admits(at(4_999)));
    }

    #[test]
    fn after_its_rest_one_probe_goes_and_its_end_decides() {
        let breaker = Breaker::default();
        (0..5).for_each(|_| breaker.failed(at(0)));
        assert!(breaker.admits(at(5_000)));
        assert!(!breaker.admits(at(5_001)), "one probe at a time");
        breaker.failed(at(6_000));
        assert!(!breaker.admits(at(10_999)));
        assert!(breaker.admits(at(11_000)));
        breaker.answered();
        assert!(breaker.admits(at(11_001)) && breaker.admits(at(11_001)));
    }

    #[test]
    fn a_probe_that_never_ends_does_not_keep_it_shut_for_ever() {
        let breaker = Breaker::default();
        (0..5).for_each(|_| breaker.failed(at(0)));
        assert!(breaker.admits(at(5_000)));
        assert!(breaker.admits(at(10_000)));
    }

    #[test]
    fn three_overshoots_open_it_even_with_answers_between_them() {
        let breaker = Breaker::default();
        for _ in 0..2 {
            breaker.overshot(at(0));
            breaker.answered();
        }
        assert!(breaker.admits(at(0)));
        breaker.overshot(at(0));
        assert!(!breaker.admits(at(1)));
    }
}
