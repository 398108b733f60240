//! Why credentials were refused, for the log: enough for an operator to see what is wrong, and never so much that somebody
//! outside could fill a disk with it.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use signalbox_ports::clock::{BootInstant, Clock};

/// How often a line is written at most, in milliseconds.
const LINE_EVERY_MS: u64 = 1_000;

pub(super) struct Refusals {
    clock: Arc<dyn Clock>,
    last: Mutex<Last>,
}

#[derive(Default)]
struct Last {
    written: Option<BootInstant>,
    unwritten: u64,
}

impl Refusals {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, last: Mutex::default() }
    }

    /// Notes why. The reason must hold nothing of the credential.
    pub(super) fn note(&self, why: &dyn fmt::Display) {
        if let Some(unwritten) = self.due() {
            tracing::warn!(%why, unwritten, "a credential was refused");
        }
    }

    /// How many were not written since the last one that was, if it is time for another.
    fn due(&self) -> Option<u64> {
        let now = self.clock.boot();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.written.is_some_and(|written| now.ms_since(written) < LINE_EVERY_MS) {
            last.unwritten += 1;
            return None;
        }
        last.written = Some(now);
        Some(std::mem::take(&mut last.unwritten))
    }
}

#[cfg(test)]
mod tests {
    use signalbox_ports::memory::ManualClock;

    use super::*;

    #[test]
    fn a_flood_of_refusals_is_one_line_a_second() {
        let clock = Arc::new(ManualClock::default());
        let refusals = Refusals::new(clock.clone());
        assert_eq!(refusals.due(), Some(0));
        for _ in 0..1_000 {
            assert_eq!(refusals.due(), None);
        }
        clock.advance_ms(LINE_EVERY_MS);
        assert_eq!(refusals.due(), Some(1_000), "and it says how many were left out");
    }
}
