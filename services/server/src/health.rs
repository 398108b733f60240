//! Health by service, as the node is ready for it: it says no while the lease is lost or the store cannot be reached, and
//! from the moment on that the server drains.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::api::RunApi;

/// How often the node is asked.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Tells of these services, and of the server as a whole, what the node says of itself, until the server drains.
pub(crate) async fn follow(
    health: HealthReporter,
    services: &[&str],
    node: Arc<dyn RunApi>,
    mut draining: watch::Receiver<bool>,
) {
    let mut told = None;
    loop {
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

/// The first word, before anybody can ask.
pub(crate) async fn tell(health: &HealthReporter, services: &[&str], ready: bool) {
    let status = if ready { ServingStatus::Serving } else { ServingStatus::NotServing };
    for service in std::iter::once(&"").chain(services) {
        health.set_service_status(*service, status).await;
    }
}
