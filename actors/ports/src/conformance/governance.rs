//! The epoch: what has changed, in one order, without gaps.

use std::sync::Arc;

use signalbox_domain::governance::change::GovernanceChange;
use signalbox_domain::ids::SwitchId;

use super::world::*;
use crate::clock::Clock;

pub async fn epochs_have_no_gaps_however_many_change_at_once(f: &Fixture) {
    let (incarnation, epoch) = f.governance.epoch().await.unwrap();
    assert_eq!(epoch, 0);
    let mut operators = tokio::task::JoinSet::new();
    for number in 0..20 {
        let governance = Arc::clone(&f.governance);
        operators.spawn(async move { governance.change(switch_on(&format!("tool-{number}")), &operator()).await });
    }
    let mut epochs: Vec<_> = operators.join_all().await.into_iter().map(|change| change.unwrap().epoch).collect();
    epochs.sort_unstable();
    assert_eq!(epochs, (1..=20).collect::<Vec<_>>());
    assert_eq!(f.governance.epoch().await.unwrap(), (incarnation, 20));
}

pub async fn changes_come_back_as_they_were_made(f: &Fixture) {
    let disarmed = GovernanceChange::SwitchDisarmed {
        switch_id: SwitchId::new("switch-web.fetch").unwrap(),
        at_unix_ms: f.clock.now(),
    };
    let mut made = Vec::new();
    for change in [switch_on("web.fetch"), disarmed, GovernanceChange::ThrottlesSet(vec![])] {
        made.push(f.governance.change(change, &operator()).await.unwrap());
        f.clock.advance_ms(5);
    }
    assert_eq!(f.governance.changes(0).await.unwrap(), made);
    assert_eq!(f.governance.changes(2).await.unwrap(), made[2..]);
    assert_eq!(f.governance.changes(3).await.unwrap(), []);
    assert_eq!(made[1].at_unix_ms.since(made[0].at_unix_ms), 5);
}
