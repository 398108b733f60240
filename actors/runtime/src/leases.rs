//! The node's lease, and the claims on runs that wait for a node.

use std::sync::Arc;
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
/// The node stops this long before the store could give its runs away.
const MARGIN_MS: u64 = 2_000;

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
    renewed: BootInstant,
    claiming: bool,
}

impl Actor for LeasesActor {
    type Msg = Msg;
    type State = State;
    type Arguments = (Arc<dyn Leases>, Arc<dyn Clock>, NodeIncarnation, String, ActorRef<runs::Msg>);

    async fn pre_start(
        &self,
        myself: ActorRef<Msg>,
        (leases, clock, node, name, runs): Self::Arguments,
    ) -> Result<State, ActorProcessingErr> {
        myself.send_interval(EVERY, || Msg::Tick);
        let _ = myself.cast(Msg::Tick);
        let renewed = clock.boot();
        Ok(State { leases, clock, node, name, runs, renewed, claiming: true })
    }

    async fn handle(&self, myself: ActorRef<Msg>, message: Msg, state: &mut State) -> Result<(), ActorProcessingErr> {
        match message {
            Msg::Drain => state.claiming = false,
            Msg::Tick => state.tick(&myself).await?,
        }
        Ok(())
    }
}

impl State {
    async fn tick(&mut self, myself: &ActorRef<Msg>) -> Result<(), ActorProcessingErr> {
        // Measured from before the renewal was sent: the store's clock starts no earlier.
        let asked = self.clock.boot();
        match self.leases.renew(self.node, &self.name).await {
            Ok(true) => self.renewed = asked,
            Ok(false) => return self.fence("the store has given the lease up"),
            Err(error) => {
                tracing::warn!(%error, "the lease could not be renewed");
                if self.clock.boot().ms_since(self.renewed) + MARGIN_MS > LEASE_MS {
                    return self.fence("the lease ran out before it could be renewed");
                }
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

    /// Its runs are others' now, and this incarnation gets none ever again: the node ends, and its process with it.
    fn fence(&mut self, why: &'static str) -> Result<(), ActorProcessingErr> {
        self.claiming = false;
        let _ = self.runs.cast(runs::Msg::Fenced);
        Err(why.into())
    }
}
