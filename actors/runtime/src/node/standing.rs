//! Where a node stands, for whoever watches over nodes. Nothing is asked of the store: this is answered however it fares.

use std::sync::atomic::Ordering;
use std::time::Duration;

use signalbox_ports::bus::BusStanding;

use super::NodeHandle;
use crate::governance::Revocations;

/// Where a node stands at this instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeStanding {
    /// It takes runs.
    pub ready: bool,
    /// It holds its lease, which it can renew only at a store that answers.
    pub lease_held: bool,
    /// It is shutting down.
    pub draining: bool,
    /// The governance epoch it has read.
    pub governance_epoch: u64,
    /// How long ago the store confirmed that epoch.
    pub governance_age: Duration,
    /// Kill switches in force.
    pub switches_armed: u64,
    /// How soon revocations of grants were heard of.
    pub revocations: Revocations,
    /// How the bus to the other nodes is: `none`, `heard` or `cut`. A node is ready without one.
    pub bus: &'static str,
}

impl NodeHandle {
    /// Where it stands now.
    pub fn node_standing(&self) -> NodeStanding {
        let shared = &self.inner.shared;
        let (boot, now) = (shared.clock.boot(), shared.clock.now());
        let view = shared.governance.view();
        let armed = view.state.switches.iter().filter(|switch| switch.is_active(now)).count();
        NodeStanding {
            ready: self.is_ready(),
            lease_held: shared.lease.is_held(boot),
            draining: self.inner.draining.load(Ordering::Relaxed),
            governance_epoch: view.state.epoch,
            governance_age: Duration::from_millis(boot.ms_since(view.checked())),
            switches_armed: armed as u64,
            revocations: shared.governance.revocations(),
            bus: match self.bus() {
                BusStanding::Local => "none",
                BusStanding::Connected => "heard",
                BusStanding::Cut(_) => "cut",
            },
        }
    }
}
