//! The store's clock: the server's, so that every node stamps and measures by the same one.

use std::sync::Arc;

use signalbox_domain::time::UnixMicros;
use signalbox_ports::clock::Clock;
use sqlx::PgConnection;

use super::errors::{Problem, failed};

/// An expression for the server's clock as it is when the expression is evaluated, in Unix microseconds. In a query over a
/// sub-query that locks rows, it is evaluated after each row's lock was taken.
macro_rules! server_now {
    () => {
        "(extract(epoch FROM clock_timestamp()) * 1000000)::int8"
    };
}
pub(super) use server_now;

/// What the store stamps events with, and measures windows and leases by.
pub(super) enum StoreClock {
    /// `clock_timestamp()` of the server, read after the locks were taken.
    Server,
    /// A clock in the hand of a test, which counts as the server's.
    Injected(Arc<dyn Clock>),
}

impl StoreClock {
    /// What the clock shows, given what the server's own clock showed after the last lock.
    pub(super) fn after_locks(&self, server: UnixMicros) -> UnixMicros {
        match self {
            Self::Server => server,
            Self::Injected(clock) => clock.now_micros(),
        }
    }

    /// What the clock shows now.
    pub(super) async fn now(&self, conn: &mut PgConnection) -> Result<UnixMicros, Problem> {
        match self {
            Self::Server => {
                let now = sqlx::query_scalar(concat!("SELECT ", server_now!())).fetch_one(conn).await;
                now.map(UnixMicros).map_err(failed("read the server's clock"))
            }
            Self::Injected(clock) => Ok(clock.now_micros()),
        }
    }

    /// What stands in for the server's clock inside a statement: `COALESCE($n, server)`.
    pub(super) fn injected(&self) -> Option<i64> {
        match self {
            Self::Server => None,
            Self::Injected(clock) => Some(clock.now_micros().0),
        }
    }
}
