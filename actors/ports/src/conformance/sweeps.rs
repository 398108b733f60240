//! An armed switch reaches the runs that no node holds (KIL-010).

use std::sync::Arc;

use signalbox_domain::governance::change::GovernanceChange;
use signalbox_domain::governance::kill_switch::{KillSwitch, SwitchScope};
use signalbox_domain::ids::{RunKey, SwitchId};
use signalbox_domain::run::append::{Entry, EntryRefusal, RunProjection};
use signalbox_domain::run::status::RunStatus;

use super::world::*;
use crate::clock::Clock;
use crate::journal::AppendError;
use crate::leases::Swept;

fn switch(id: &str, scope: SwitchScope, target: Option<&str>) -> KillSwitch {
    let GovernanceChange::SwitchArmed(on_a_tool) = switch_on(id) else { panic!("switch_on arms no switch") };
    KillSwitch { scope, target_id: target.map(str::to_owned), switch_id: SwitchId::new(id).unwrap(), ..on_a_tool }
}

fn everything() -> KillSwitch {
    switch("all", SwitchScope::Global, None)
}

fn page(id: &str, woken: usize, over: bool) -> Option<Swept> {
    Some(Swept { switch_id: SwitchId::new(id).unwrap(), woken, over })
}

impl Fixture {
    async fn arm(&self, switch: KillSwitch) {
        self.governance.change(GovernanceChange::SwitchArmed(switch), &operator()).await.unwrap();
    }

    async fn disarm(&self, id: &str) {
        let change =
            GovernanceChange::SwitchDisarmed { switch_id: SwitchId::new(id).unwrap(), at_unix_ms: self.clock.now() };
        self.governance.change(change, &operator()).await.unwrap();
    }

    async fn sweep(&self, limit: usize) -> Option<Swept> {
        self.leases.sweep(limit).await.unwrap()
    }

    async fn parked_of(&self, tenant: &str, number: u64) -> RunKey {
        let head = self.create(new_run(tenant, number)).await;
        let parked = Entry { park: true, ..entry(&head) };
        self.append(self.up_to_date(parked).await).await.unwrap();
        head.run_key
    }

    async fn woken(&self) -> Vec<RunKey> {
        let claimed = self.leases.claim(node(1), 100).await.unwrap();
        let mut keys: Vec<_> = claimed.iter().map(|head| head.run_key).collect();
        keys.sort_unstable();
        keys
    }
}

pub async fn an_armed_switch_wakes_the_parked_runs_it_reaches_and_no_others(f: &Fixture) {
    let (ours, theirs) = (f.parked_of("acme", 1).await, f.parked_of("other", 2).await);
    assert_eq!(f.sweep(10).await, None, "nothing is armed");
    // Runs of these tests are led by `ref.research`.
    f.arm(switch("agent", SwitchScope::Agent, Some("ref.editing"))).await;
    f.arm(switch("family", SwitchScope::Family, Some("editing"))).await;
    assert_eq!(f.sweep(10).await, page("agent", 0, true));
    assert_eq!(f.sweep(10).await, page("family", 0, true));
    assert_eq!((f.sweep(10).await, f.woken().await), (None, vec![]));

    f.arm(switch("tenant", SwitchScope::Tenant, Some("acme"))).await;
    assert_eq!(f.sweep(10).await, page("tenant", 1, true));
    assert_eq!(f.woken().await, [ours]);
    let within = KillSwitch { tenant_id: Some(tenant("acme")), ..switch("own", SwitchScope::Family, Some("research")) };
    f.arm(within).await;
    assert_eq!(f.sweep(10).await, page("own", 0, true));
    f.arm(switch("research", SwitchScope::Agent, Some("ref.research"))).await;
    assert_eq!(f.sweep(10).await, page("research", 1, true));
    assert_eq!(f.woken().await, [theirs]);
    assert_eq!(f.sweep(10).await, None);
}

pub async fn a_switch_on_calls_wakes_no_parked_run(f: &Fixture) {
    f.parked_of("acme", 1).await;
    for (scope, target) in
        [(SwitchScope::Tool, "source.fetch"), (SwitchScope::Provider, "local"), (SwitchScope::Region, "eu-1")]
    {
        f.arm(switch(target, scope, Some(target))).await;
    }
    assert_eq!((f.sweep(10).await, f.woken().await), (None, vec![]), "no parked run has a call out");
}

pub async fn a_sweep_goes_on_where_it_was_and_ends_with_its_last_page(f: &Fixture) {
    let mut parked = Vec::new();
    for number in 0..5 {
        parked.push(f.parked_of("acme", number).await);
    }
    f.arm(everything()).await;
    assert_eq!(f.sweep(2).await, page("all", 2, false));
    assert_eq!(f.woken().await, parked[..2]);
    assert_eq!(f.sweep(2).await, page("all", 2, false), "not from the start again");
    assert_eq!(f.sweep(2).await, page("all", 1, true));
    assert_eq!(f.woken().await, parked[2..]);
    assert_eq!(f.sweep(2).await, None);
}

pub async fn no_two_take_the_same_page_of_a_sweep(f: &Fixture) {
    for number in 0..20 {
        f.parked_of("acme", number).await;
    }
    f.arm(everything()).await;
    let mut nodes = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let leases = Arc::clone(&f.leases);
        nodes.spawn(async move {
            let mut woken = 0;
            // Whoever finds the sweep in another's hand has nothing to do, and looks again later.
            for _ in 0..100 {
                woken += leases.sweep(3).await.unwrap().map_or(0, |page| page.woken);
                tokio::task::yield_now().await;
            }
            woken
        });
    }
    assert_eq!(nodes.join_all().await.iter().sum::<usize>(), 20);
    assert_eq!((f.sweep(3).await, f.woken().await.len()), (None, 20));
}

pub async fn a_run_that_a_node_holds_or_that_is_closed_is_passed_over(f: &Fixture) {
    let held = f.run(1).await;
    let closing = f.run(2).await;
    let closed = RunProjection { status: RunStatus::Completed, closed: true, ..projection() };
    f.append(Entry { park: true, projection: Some(closed), ..saying(&closing, "the end") }).await.unwrap();
    let parked = f.parked_of("acme", 3).await;
    f.arm(everything()).await;
    assert_eq!(f.sweep(1).await, page("all", 1, false));
    assert_eq!(f.sweep(1).await, page("all", 0, true));
    assert_eq!(f.woken().await, [parked]);
    assert_eq!(f.head(held.run_key).await, held);
}

pub async fn disarming_or_expiry_stops_an_unfinished_sweep(f: &Fixture) {
    for number in 0..4 {
        f.parked_of("acme", number).await;
    }
    let until = f.clock.now().plus_ms(1_000);
    f.arm(everything()).await;
    f.arm(KillSwitch { expires_at_unix_ms: Some(until), ..switch("brief", SwitchScope::Global, None) }).await;
    assert_eq!(f.sweep(1).await, page("all", 1, false));
    f.disarm("all").await;
    assert_eq!(f.sweep(1).await, page("brief", 1, false));
    f.clock.advance_ms(1_000);
    assert_eq!(f.sweep(1).await, page("brief", 0, true));
    assert_eq!((f.sweep(1).await, f.woken().await.len()), (None, 2));
}

pub async fn a_switch_armed_again_sweeps_again(f: &Fixture) {
    let first = f.parked_of("acme", 1).await;
    f.arm(everything()).await;
    assert_eq!(f.sweep(10).await, page("all", 1, true));
    assert_eq!(f.woken().await, [first]);
    f.disarm("all").await;
    let second = f.parked_of("acme", 2).await;
    f.arm(everything()).await;
    f.arm(everything()).await;
    assert_eq!(f.sweep(10).await, page("all", 1, true));
    assert_eq!(f.woken().await, [second]);
    assert_eq!(f.sweep(10).await, None);
}

pub async fn a_run_is_not_parked_under_switches_its_owner_has_not_read(f: &Fixture) {
    let head = f.run(1).await;
    let park = Entry { park: true, ..entry(&head) };
    let foreign = KillSwitch { tenant_id: Some(tenant("other")), ..everything() };
    f.arm(foreign).await;
    f.governance.change(switch_on("source.fetch"), &operator()).await.unwrap();
    f.arm(everything()).await;
    let refused = f.append(park.clone()).await.unwrap_err();
    assert_eq!(refused, AppendError::Refused(EntryRefusal::GovernanceStale));
    assert_eq!(f.head(head.run_key).await, head, "nothing of it was written");
    assert!(f.append(Entry { governance_epoch: 3, ..park }).await.unwrap().head.owner.is_none());
    // What concerns other tenants, or calls, keeps nobody awake.
    let other = f.run(2).await;
    f.governance.change(switch_on("web.fetch"), &operator()).await.unwrap();
    let foreign = KillSwitch { tenant_id: Some(tenant("other")), ..switch("theirs", SwitchScope::Global, None) };
    f.arm(foreign).await;
    assert!(f.append(Entry { park: true, governance_epoch: 3, ..entry(&other) }).await.is_ok());
}
