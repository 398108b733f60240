//! Foreign code inside a task of ours: if it panics, the task goes on and says so. A task of its own would do the same, for
//! one more hand that everything goes through.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

/// The work ended in a panic; what it had is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it panicked")]
pub(crate) struct Panicked;

/// Does the work and catches its panic. Nothing of the work is used afterwards, so nothing broken is seen.
pub(crate) async fn caught<F: Future>(work: F) -> Result<F::Output, Panicked> {
    let mut work = pin!(work);
    poll_fn(|context| {
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context)));
        polled.map_or(Poll::Ready(Err(Panicked)), |polled| polled.map(Ok))
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_ends_the_work_and_not_the_task() {
        let works = std::hint::black_box(false);
        let panics = caught(async {
            tokio::task::yield_now().await;
            assert!(works, "on purpose");
        });
        assert_eq!(panics.await, Err(Panicked));
        assert_eq!(caught(async { 1 }).await, Ok(1));
    }
}
