//! Health by service, as the node is ready for it: it says no while the lease is lost or the store cannot be reached, and
//! from the moment on that the server drains.
//!
//! The bus to the other nodes is told of by itself, as [`BUS`]: a node is ready without one, only slower to hear.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::api::{BusStanding, RunApi};

/// The name that the bus is asked for by.
pub(crate) const BUS: &str = "signalbox.bus";
/// How often the node is asked.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Tells of these services, and of the server as a whole, what the node says of itself, until the server drains.
pub(crate) async fn follow(
    health: HealthReporter,
    services: &[&str],
    node: Arc<dyn RunApi>,
    mut draining: watch::Receiver<bool>,
) {
    let (mut told, mut bus_told) = (None, None);
    loop {
        let heard = !matches!(node.bus(), BusStanding::Cut(_));
        if bus_told != Some(heard) {
            health.set_service_status(BUS, status(heard)).await;
            bus_told = Some(heard);
        }
        let ready = node.is_ready() && !*draining.borrow();
        if told != Some(ready) {
            tell(&health, services, ready).await;
            told = Some(ready);
        }
        if *draining.borrow() {
            return;
        }
        tokio::select! {
            // An error means that the server is gone, and then nobody asks.
            changed = draining.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
}

fn status(good: bool) -> ServingStatus {
    if good { ServingStatus::Serving } else { ServingStatus::NotServing }
}

/// The first word, before anybody can ask.
pub(crate) async fn tell(health: &HealthReporter, services: &[&str], ready: bool) {
    let status = status(ready);
    for service in std::iter::once(&"").chain(services) {
        health.set_service_status(*service, status).await;
    }
}
