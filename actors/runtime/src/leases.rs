//! The node's lease, and the claims on runs that wait for a node.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use signalbox_domain::ids::NodeIncarnation;
use signalbox_ports::clock::{BootInstant, Clock};
use signalbox_ports::journal::StoreError;
use signalbox_ports::leases::{LEASE_MS, Leases};

use crate::runs;

/// Renewals and claims happen this often.
const EVERY: Duration = Duration::from_secs(1);
/// Most runs claimed at once; a full page is followed by another at once.
const CLAIM_MAX: usize = 128;
/// The node stops admitting this long before the store could give its runs away.
const MARGIN_MS: u64 = 2_000;

/// When the lease was last renewed, by this node's own clock (I10). Runs read it, and its actor alone writes it.
///
/// A node whose lease may have run out admits nothing and keeps its runs: what is out comes home to the actor that sent it.
/// If the store has given nothing away by the time it answers again, the node goes on where it was; otherwise each append is
/// refused by the run's lease epoch.
#[derive(Clone)]
pub(crate) struct Lease(Arc<AtomicU64>);

impl Lease {
    /// A lease that was asked for at this instant.
    pub(crate) fn asked_at(asked: BootInstant) -> Self {
        Self(Arc::new(AtomicU64::new(asked.0)))
    }

    /// True while the store cannot have given the node's runs away.
    pub(crate) fn is_held(&self, now: BootInstant) -> bool {
        now.ms_since(BootInstant(self.0.load(Ordering::Acquire))) + MARGIN_MS <= LEASE_MS
    }

    fn renewed(&self, asked: BootInstant) {
        self.0.store(asked.0, Ordering::Release);
    }
}

pub(crate) enum Msg {
    Tick,
    /// No more claims; the lease is kept until the node is gone.
    Drain,
}

pub(crate) struct LeasesActor;

pub(crate) struct State {
    leases: Arc<dyn Leases>,
    clock: Arc<dyn Clock>,
    node: NodeIncarnation,
    name: String,
    runs: ActorRef<runs::Msg>,
    lease: Lease,
    /// Not while the node shuts down.
    claiming: bool,
}

impl Actor for LeasesActor {
    type Msg = Msg;
    type State = State;
    type Arguments = (Arc<dyn Leases>, Arc<dyn Clock>, NodeIncarnation, String, ActorRef<runs::Msg>, Lease);

    async fn pre_start(
        &self,
        myself: ActorRef<Msg>,
        (leases, clock, node, name, runs, lease): Self::Arguments,
    ) -> Result<State, ActorProcessingErr> {
        myself.send_interval(EVERY, || Msg::Tick);
        let _ = myself.cast(Msg::Tick);
        Ok(State { leases, clock, node, name, runs, lease, claiming: true })
    }

    async fn handle(&self, myself: ActorRef<Msg>, message: Msg, state: &mut State) -> Result<(), ActorProcessingErr> {
        match message {
            Msg::Drain => {
                state.claiming = false;
                Ok(())
            }
            Msg::Tick => state.tick(&myself).await,
        }
    }
}

impl State {
    async fn tick(&mut self, myself: &ActorRef<Msg>) -> Result<(), ActorProcessingErr> {
        // Measured from before the renewal was sent: the store's clock starts no earlier.
        let asked = self.clock.boot();
        match self.leases.renew(self.node, &self.name).await {
            Ok(true) => self.lease.renewed(asked),
            // Given back by this node itself, which is on its way out.
            Ok(false) if !self.claiming => return Ok(()),
            Ok(false) => {
                // Its runs are somebody else's now. The node ends; another incarnation may begin in its place.
                let _ = self.runs.cast(runs::Msg::Fenced);
                return Err("the store has given the node's lease up".into());
            }
            Err(error) => {
                let held = self.lease.is_held(self.clock.boot());
                tracing::warn!(%error, held, "the lease could not be renewed; without one nothing new is admitted");
                return Ok(());
            }
        }
        if !self.claiming {
            return Ok(());
        }
        match self.leases.claim(self.node, CLAIM_MAX).await {
            Ok(heads) => {
                let full = heads.len() == CLAIM_MAX;
                for head in heads {
                    let _ = self.runs.cast(runs::Msg::Own(Box::new(head)));
                }
                if full {
                    let _ = myself.cast(Msg::Tick);
                }
            }
            // The node may have been given runs that it does not know of, and nobody else gets those while it lives.
            Err(error @ StoreError::Unknown(_)) => return Err(error.into()),
            Err(error) => tracing::warn!(%error, "no runs could be claimed"),
        }
        Ok(())
    }
}
