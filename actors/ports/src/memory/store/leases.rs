//! Which node owns which run.

use std::collections::BTreeMap;

use async_trait::async_trait;
use signalbox_domain::ids::{NodeIncarnation, RunKey};
use signalbox_domain::run::append::RunHead;

use super::{Lease, MemoryStore, Run, State};
use crate::clock::BootInstant;
use crate::journal::StoreError;
use crate::leases::{
    CLAIM_RUNS_MAX, LEASE_MS, LEASE_REMEMBERED_MS, Leases, NodeSweep, SWEEP_RUNS_MAX, SWEPT_EPOCHS_KEPT, Swept,
    WAITING_RUNS_MAX,
};

#[async_trait]
impl Leases for MemoryStore {
    async fn renew(&self, node: NodeIncarnation, name: &str) -> Result<bool, StoreError> {
        let ends = BootInstant(self.clock.boot().0.saturating_add(LEASE_MS * 1_000_000));
        let mut state = self.state()?;
        let lease = state.nodes.entry(node).or_insert_with(|| Lease::ending(ends, name));
        if !lease.given_up {
            lease.ends = ends;
        }
        Ok(!lease.given_up)
    }

    async fn claim(&self, node: NodeIncarnation, limit: usize) -> Result<Vec<RunHead>, StoreError> {
        let (now, boot) = (self.now().ms(), self.clock.boot());
        let mut state = self.state()?;
        if !state.may_claim(node, boot) {
            return Ok(Vec::new());
        }
        let State { runs, nodes, .. } = &mut *state;
        let has_work = |run: &Run| {
            run.waiting().next().is_some() || run.projection.wake_at.is_some_and(|at| at <= now) || !run.parked
        };
        let claimable = runs.values_mut().filter(|run| match run.head.owner {
            _ if run.head.closed => false,
            None => has_work(run),
            Some(owner) => owner != node && nodes.get(&owner).is_none_or(|lease| lease.given_up),
        });
        Ok(claimable.take(limit.min(CLAIM_RUNS_MAX)).map(|run| run.claimed_by(node)).collect())
    }

    async fn claim_one(&self, node: NodeIncarnation, run: RunKey) -> Result<Option<RunHead>, StoreError> {
        let boot = self.clock.boot();
        let mut state = self.state()?;
        if !state.may_claim(node, boot) {
            return Ok(None);
        }
        let State { runs, nodes, .. } = &mut *state;
        let Some(run) = runs.get_mut(&run).filter(|run| !run.head.closed) else { return Ok(None) };
        Ok(match run.head.owner {
            Some(owner) if owner == node => Some(run.head.clone()),
            Some(owner) if nodes.get(&owner).is_some_and(|lease| !lease.given_up) => None,
            Some(_) | None => Some(run.claimed_by(node)),
        })
    }

    async fn sweep(&self, limit: usize) -> Result<Option<Swept>, StoreError> {
        let now = self.now().ms();
        Ok(self.state()?.sweep(limit.min(SWEEP_RUNS_MAX), now))
    }

    async fn waiting(&self, node: NodeIncarnation) -> Result<Vec<RunKey>, StoreError> {
        let state = self.state()?;
        let waits = |run: &&Run| run.head.owner == Some(node) && !run.head.closed && run.head.inbox_len > 0;
        Ok(state.runs.values().filter(waits).take(WAITING_RUNS_MAX).map(|run| run.head.run_key).collect())
    }

    async fn swept(&self, node: NodeIncarnation, epoch: u64) -> Result<(), StoreError> {
        let at = self.now();
        let mut state = self.state()?;
        if let Some(lease) = state.nodes.get_mut(&node) {
            lease.swept.entry(epoch).or_insert(at);
            lease.swept.retain(|known, _| *known + SWEPT_EPOCHS_KEPT > epoch);
        }
        Ok(())
    }

    async fn sweepers(&self, epoch: u64) -> Result<Vec<NodeSweep>, StoreError> {
        let state = self.state()?;
        let live = state.nodes.iter().filter(|(_, lease)| !lease.given_up);
        let told = live.map(|(node, lease)| NodeSweep {
            node: *node,
            name: lease.name.clone(),
            swept_at: lease.swept.range(epoch..).next().map(|(_, at)| *at),
        });
        Ok(told.collect())
    }

    async fn release(&self, node: NodeIncarnation) -> Result<(), StoreError> {
        let ends = self.clock.boot();
        self.state()?.nodes.insert(node, Lease { given_up: true, ..Lease::ending(ends, "") });
        Ok(())
    }
}

impl State {
    /// Gives up every lease but the node's own that has run out, and says whether the node may claim.
    fn may_claim(&mut self, node: NodeIncarnation, boot: BootInstant) -> bool {
        for (other, lease) in &mut self.nodes {
            lease.given_up |= *other != node && lease.ends <= boot;
        }
        self.nodes.retain(|other, lease| *other == node || boot.ms_since(lease.ends) < LEASE_REMEMBERED_MS);
        self.nodes.get(&node).is_some_and(|lease| !lease.given_up && lease.ends > boot)
    }
}

impl Lease {
    fn ending(ends: BootInstant, name: &str) -> Self {
        Self { ends, given_up: false, name: name.to_owned(), swept: BTreeMap::new() }
    }
}

impl Run {
    fn claimed_by(&mut self, node: NodeIncarnation) -> RunHead {
        self.head.owner = Some(node);
        self.head.lease_epoch += 1;
        self.parked = false;
        self.head.clone()
    }
}
