//! Time that stands still until a test moves it, and ids that count.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use signalbox_domain::time::{UnixMicros, UnixMs};
use uuid::Uuid;

use crate::clock::{BootInstant, Clock, Ids};

/// Both clocks of a node, in the hand of a test. They begin at 2027-01-15T08:00:00Z and one hour after boot.
#[derive(Debug)]
pub struct ManualClock {
    wall_micros: AtomicI64,
    boot_nanos: AtomicU64,
}

impl Default for ManualClock {
    fn default() -> Self {
        Self { wall_micros: AtomicI64::new(1_800_000_000_000_000), boot_nanos: AtomicU64::new(3_600_000_000_000) }
    }
}

impl ManualClock {
    /// Lets time pass on both clocks.
    pub fn advance_ms(&self, ms: u64) {
        let micros = i64::try_from(ms.saturating_mul(1_000)).unwrap_or(i64::MAX);
        self.wall_micros.fetch_add(micros, Ordering::SeqCst);
        self.boot_nanos.fetch_add(ms.saturating_mul(1_000_000), Ordering::SeqCst);
    }
    /// Sets the wall clock, as an operator or a time server may; the boot clock does not notice.
    pub fn set_wall(&self, at: UnixMicros) {
        self.wall_micros.store(at.0, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> UnixMs {
        self.now_micros().ms()
    }
    fn now_micros(&self) -> UnixMicros {
        UnixMicros(self.wall_micros.load(Ordering::SeqCst))
    }
    fn boot(&self) -> BootInstant {
        BootInstant(self.boot_nanos.load(Ordering::SeqCst))
    }
}

/// Ids in rising order, the same in every run of a test.
#[derive(Debug)]
pub struct SequentialIds {
    next: AtomicU64,
}

impl Default for SequentialIds {
    fn default() -> Self {
        Self::starting_at(1)
    }
}

impl SequentialIds {
    /// Begins with this number: two sources in one test must not meet.
    pub const fn starting_at(first: u64) -> Self {
        Self { next: AtomicU64::new(first) }
    }
}

impl Ids for SequentialIds {
    fn fresh(&self) -> Uuid {
        // A version 7 UUID whose instant is the count.
        let count = self.next.fetch_add(1, Ordering::SeqCst);
        uuid::Builder::from_unix_timestamp_millis(count, &[0; 10]).into_uuid()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequential_ids_rise_and_repeat_from_test_to_test() {
        let take = || {
            let ids = SequentialIds::default();
            (0..1_000).map(|_| ids.fresh()).collect::<Vec<_>>()
        };
        let ids = take();
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(ids, take());
    }

    #[test]
    fn setting_the_wall_clock_does_not_touch_the_boot_clock() {
        let clock = ManualClock::default();
        let boot = clock.boot();
        clock.set_wall(UnixMicros(5));
        assert_eq!((clock.now_micros(), clock.boot()), (UnixMicros(5), boot));
        clock.advance_ms(3);
        assert_eq!((clock.now_micros(), clock.boot().ms_since(boot)), (UnixMicros(3_005), 3));
    }
}
