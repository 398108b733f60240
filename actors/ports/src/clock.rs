//! Time and fresh ids, injected everywhere (RUN-031).

use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use signalbox_domain::time::{UnixMicros, UnixMs};
use uuid::Uuid;

/// A reading of a clock that counts suspension and is never set: nanoseconds since boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BootInstant(pub u64);

impl BootInstant {
    /// Milliseconds from `earlier` to here; zero if it is later.
    pub const fn ms_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0) / 1_000_000
    }
}

/// The clocks of this node.
pub trait Clock: Send + Sync + 'static {
    /// Wall time, for deadlines that people see.
    fn now(&self) -> UnixMs;
    /// Wall time in the precision of the journal.
    fn now_micros(&self) -> UnixMicros {
        self.now().micros()
    }
    /// Boot time, for leases, buckets and the dispatch window.
    fn boot(&self) -> BootInstant;
}

/// Fresh ids.
pub trait Ids: Send + Sync + 'static {
    /// A time-ordered UUID (v7).
    fn fresh(&self) -> Uuid;
}

/// The clocks of the machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

/// Counts while the machine sleeps, so that a lease cannot outlive a suspension. Elsewhere than on Linux the monotonic
/// clock is the nearest there is.
#[cfg(any(target_os = "linux", target_os = "android"))]
const BOOT_CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const BOOT_CLOCK: ClockId = ClockId::Monotonic;

impl Clock for SystemClock {
    fn now(&self) -> UnixMs {
        self.now_micros().ms()
    }
    fn now_micros(&self) -> UnixMicros {
        // A machine whose clock stands before 1970 is treated as standing at 1970: no instant of a run is earlier.
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        UnixMicros(i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX))
    }
    fn boot(&self) -> BootInstant {
        let reading = clock_gettime(BOOT_CLOCK);
        let seconds = u64::try_from(reading.tv_sec).unwrap_or_default();
        let nanos = u64::try_from(reading.tv_nsec).unwrap_or_default();
        BootInstant(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
    }
}

/// Ids from the system's random numbers, in order of time.
#[derive(Debug, Clone, Copy, Default)]
pub struct RandomIds;

impl Ids for RandomIds {
    fn fresh(&self) -> Uuid {
        Uuid::now_v7()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clocks_move_forward_and_agree_in_precision() {
        let (wall, boot) = (SystemClock.now(), SystemClock.boot());
        assert!(SystemClock.now_micros() >= wall.micros());
        assert!(SystemClock.boot() >= boot && boot.0 > 0);
    }

    #[test]
    fn random_ids_are_ordered_by_time() {
        let ids: Vec<_> = (0..100).map(|_| RandomIds.fresh()).collect();
        assert!(ids.is_sorted() && ids.iter().all(|id| id.get_version_num() == 7));
    }
}
