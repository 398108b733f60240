//! When a request is said again, and how long is waited before.

use std::time::Duration;

use tonic::{Code, Status};
use tonic_types::StatusExt as _;

/// The first pause where the server does not say how long; it doubles.
const PAUSE_FIRST: Duration = Duration::from_millis(100);

/// What is repeated. A server that says how long to wait (`google.rpc.RetryInfo`) is believed up to `wait_max`: a longer
/// wait is the caller's to decide on, and the refusal comes back at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// Most repetitions of one request; 0: none.
    pub tries_max: u32,
    /// Longest pause before a repetition.
    pub wait_max: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self { tries_max: 4, wait_max: Duration::from_secs(5) }
    }
}

/// True if this status was made on this side because the connection broke: one that came over it has no cause. It may say
/// `UNKNOWN`, as when a server is killed in the middle of a stream.
pub fn connection_broke(status: &Status) -> bool {
    std::error::Error::source(status).is_some()
}

impl Retry {
    /// Nothing is repeated.
    pub const NEVER: Self = Self { tries_max: 0, wait_max: Duration::ZERO };

    /// How long to wait before saying it again after `told` repetitions; `None` if it is not said again.
    pub(super) fn pause(&self, status: &Status, told: u32) -> Option<Duration> {
        if told >= self.tries_max {
            return None;
        }
        match status.get_details_retry_info().and_then(|retry| retry.retry_delay) {
            Some(pause) => (pause <= self.wait_max).then_some(pause),
            None if matches!(status.code(), Code::Unavailable | Code::Aborted) || connection_broke(status) => {
                Some(PAUSE_FIRST.saturating_mul(1 << told.min(16)).min(self.wait_max))
            }
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use tonic_types::ErrorDetails;

    use super::*;

    fn later(seconds: u64) -> Status {
        let details = ErrorDetails::with_retry_info(Some(Duration::from_secs(seconds)));
        Status::with_error_details(Code::ResourceExhausted, "later", details)
    }

    #[test]
    fn a_server_that_says_how_long_to_wait_is_believed_within_the_bound() {
        let retry = Retry::default();
        assert_eq!(retry.pause(&later(3), 0), Some(Duration::from_secs(3)));
        assert_eq!(retry.pause(&later(60), 0), None, "a minute is the caller's to decide on");
        assert_eq!(retry.pause(&later(3), retry.tries_max), None);
        assert_eq!(Retry::NEVER.pause(&later(0), 0), None);
    }

    #[test]
    fn a_broken_connection_is_told_from_a_server_that_says_it_does_not_know() {
        let broken = Status::from_error(Box::new(std::io::Error::from(std::io::ErrorKind::BrokenPipe)));
        assert!(connection_broke(&broken) && Retry::default().pause(&broken, 0).is_some());
        assert_eq!(Retry::default().pause(&Status::unknown("a bug"), 0), None);
    }

    #[test]
    fn only_what_passes_by_itself_is_said_again() {
        let retry = Retry::default();
        assert_eq!(retry.pause(&Status::unavailable("gone"), 1), Some(PAUSE_FIRST * 2));
        assert_eq!(retry.pause(&Status::unavailable("gone"), 3), Some(PAUSE_FIRST * 8));
        for refused in [Status::not_found("x"), Status::invalid_argument("x"), Status::resource_exhausted("x")] {
            assert_eq!(retry.pause(&refused, 0), None, "{refused}");
        }
    }
}
