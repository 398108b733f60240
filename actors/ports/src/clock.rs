//! Time and fresh ids, injected everywhere (RUN-031).

use signalbox_domain::time::UnixMs;
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
    /// Boot time, for leases, buckets and the dispatch window.
    fn boot(&self) -> BootInstant;
}

/// Fresh ids.
pub trait Ids: Send + Sync + 'static {
    /// A time-ordered UUID (v7).
    fn fresh(&self) -> Uuid;
}
