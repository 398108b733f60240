//! The suite that defines what an implementation of [`Bus`] must do: with three ends of one bus, each of them hearing.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::world::run_key;
use crate::bus::{Bus, Notice};

/// How long a bus may take. Far longer than any takes.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long nothing must come.
const SILENCE: Duration = Duration::from_millis(300);

/// Three ends of one bus, and what must live as long as they.
pub struct BusFixture {
    ends: [Arc<dyn Bus>; 3],
    _kept: Box<dyn std::any::Any + Send + Sync>,
}

impl BusFixture {
    pub fn over(ends: [Arc<dyn Bus>; 3], kept: impl Send + Sync + 'static) -> Self {
        Self { ends, _kept: Box::new(kept) }
    }

    async fn hearing(&self) -> &[Arc<dyn Bus>; 3] {
        for end in &self.ends {
            assert_eq!(heard(end.next()).await, Notice::Missed, "an end that begins to hear says so first");
        }
        &self.ends
    }
}

async fn heard(next: impl Future<Output = Notice>) -> Notice {
    timeout(PATIENCE, next).await.expect("nothing was heard")
}

async fn is_silent(end: &Arc<dyn Bus>) -> bool {
    timeout(SILENCE, end.next()).await.is_err()
}

pub async fn whatever_a_node_says_the_others_hear_and_it_does_not(f: &BusFixture) {
    let [one, two, three] = f.hearing().await;
    let run = run_key("acme", 1);
    for notice in [Notice::Governance(7), Notice::Inbox(run), Notice::Moved(run), Notice::Watched(run)] {
        one.announce(notice);
        assert_eq!((heard(two.next()).await, heard(three.next()).await), (notice, notice));
    }
    assert!(is_silent(one).await && is_silent(two).await && is_silent(three).await);
}

pub async fn notices_that_wait_are_merged_and_rules_come_first(f: &BusFixture) {
    let [one, two, three] = f.hearing().await;
    let run = run_key("acme", 1);
    for notice in [Notice::Inbox(run), Notice::Governance(4), Notice::Inbox(run), Notice::Governance(9)] {
        one.announce(notice);
    }
    one.announce(Notice::Governance(7));
    // Whatever is said last has been heard by all: then everything before it waits.
    three.announce(Notice::Moved(run));
    let mut all = Vec::new();
    while let Ok(notice) = timeout(SILENCE, two.next()).await {
        all.push(notice);
    }
    // They may be taken while others are still coming; each is there, and the highest epoch.
    assert!(all.contains(&Notice::Inbox(run)) && all.contains(&Notice::Moved(run)), "{all:?}");
    assert!(all.contains(&Notice::Governance(9)), "{all:?}");
}

pub async fn a_later_epoch_is_heard_after_a_higher_one(f: &BusFixture) {
    let [one, two, _] = f.hearing().await;
    one.announce(Notice::Governance(u64::MAX));
    assert_eq!(heard(two.next()).await, Notice::Governance(u64::MAX));
    one.announce(Notice::Governance(3));
    assert_eq!(heard(two.next()).await, Notice::Governance(3), "what was a lie hides nothing");
}

pub async fn whoever_gives_up_waiting_loses_nothing(f: &BusFixture) {
    let [one, two, _] = f.hearing().await;
    assert!(is_silent(two).await);
    one.announce(Notice::Governance(1));
    assert_eq!(heard(two.next()).await, Notice::Governance(1));
}

pub async fn of_a_flood_each_run_is_heard_of_or_it_is_said_that_something_was_missed(f: &BusFixture) {
    let [one, two, _] = f.hearing().await;
    let runs: Vec<_> = (0..10_000).map(|number| run_key("acme", number)).collect();
    for run in &runs {
        one.announce(Notice::Inbox(*run));
    }
    // What an end says after a flood comes through, whatever became of the flood.
    tokio::time::sleep(SILENCE).await;
    one.announce(Notice::Governance(1));
    let mut heard_of = 0;
    loop {
        match heard(two.next()).await {
            Notice::Governance(1) | Notice::Missed => break,
            Notice::Governance(_) | Notice::Inbox(_) | Notice::Moved(_) | Notice::Watched(_) => heard_of += 1,
        }
    }
    assert!(heard_of <= runs.len());
}

/// One `#[tokio::test]` for each case of the suite. `$open` is an async function that opens a [`BusFixture`].
#[macro_export]
macro_rules! bus_conformance {
    ($open:path) => {
        $crate::bus_conformance! { @each $open;
            whatever_a_node_says_the_others_hear_and_it_does_not,
            notices_that_wait_are_merged_and_rules_come_first,
            a_later_epoch_is_heard_after_a_higher_one,
            whoever_gives_up_waiting_loses_nothing,
            of_a_flood_each_run_is_heard_of_or_it_is_said_that_something_was_missed,
        }
    };
    (@each $open:path; $($case:ident),+ $(,)?) => { $(
        #[tokio::test]
        async fn $case() {
            $crate::conformance::$case(&$open().await).await;
        }
    )+ };
}
