//! What an operator's tools find and change.

use signalbox_domain::run::append::{Entry, RunProjection};
use signalbox_domain::run::status::RunStatus;

use super::world::*;
use crate::maintenance::LIVE_RUNS_MAX;

pub async fn live_runs_of_all_tenants_are_listed_in_pages(f: &Fixture) {
    for number in 0..5 {
        f.run(number).await;
    }
    f.create(new_run("globex", 7)).await;
    let parked = f.parked(9, None).await;
    let closed = f.run(11).await;
    let over = RunProjection { status: RunStatus::Completed, closed: true, ..projection() };
    f.append(Entry { projection: Some(over), ..entry(&closed) }).await.unwrap();
    let all = f.maintenance.live_runs(None).await.unwrap();
    assert_eq!(all.len(), 7);
    assert!(all.is_sorted() && all.contains(&parked.run_key) && !all.contains(&closed.run_key));
    assert_eq!(f.maintenance.live_runs(Some(all[2])).await.unwrap(), all[3..]);
    assert_eq!(f.maintenance.live_runs(all.last().copied()).await.unwrap(), []);
    assert!(all.len() <= LIVE_RUNS_MAX);
}

pub async fn an_incarnation_that_is_begun_is_another_and_keeps_the_epoch(f: &Fixture) {
    f.governance.change(switch_on("web.fetch"), &operator()).await.unwrap();
    let (before, epoch) = f.governance.epoch().await.unwrap();
    let begun = f.maintenance.begin_incarnation().await.unwrap();
    assert_ne!(begun, before);
    assert_eq!(f.governance.epoch().await.unwrap(), (begun, epoch));
}
