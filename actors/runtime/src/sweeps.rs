//! Armed switches on their way through the runs that no node holds (KIL-010).
//!
//! The store keeps which sweeps are unfinished and how far they are; this actor takes them on, page by page. A page gives
//! the parked runs it reaches something to do. Whoever claims them then, here or on another node, loads them, and a run
//! that is loaded holds itself against the switches first.

use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use signalbox_ports::leases::{Leases, SWEEP_RUNS_MAX};

use crate::leases;

/// How often unfinished sweeps are looked for: another node may have died in the middle of one.
const EVERY: Duration = Duration::from_secs(1);

pub(crate) enum Msg {
    Look,
}

pub(crate) struct SweepsActor;

impl Actor for SweepsActor {
    type Msg = Msg;
    type State = (Arc<dyn Leases>, ActorRef<leases::Msg>);
    type Arguments = (Arc<dyn Leases>, ActorRef<leases::Msg>);

    async fn pre_start(&self, myself: ActorRef<Msg>, args: Self::Arguments) -> Result<Self::State, ActorProcessingErr> {
        myself.send_interval(EVERY, || Msg::Look);
        Ok(args)
    }

    async fn handle(
        &self,
        myself: ActorRef<Msg>,
        Msg::Look: Msg,
        (store, claims): &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match store.sweep(SWEEP_RUNS_MAX).await {
            Ok(Some(page)) => {
                tracing::info!(switch = %page.switch_id, woken = page.woken, over = page.over, "a switch sweeps");
                if page.woken > 0 {
                    let _ = claims.cast(leases::Msg::Tick);
                }
                let _ = myself.cast(Msg::Look);
            }
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "the sweeps cannot go on yet"),
        }
        Ok(())
    }
}
