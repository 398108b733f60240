//! The listener for probes and scrapers: `/livez`, `/readyz`, `/metrics`.

use std::future::Future;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::Serialize;
use tokio::net::TcpListener;

use crate::metrics::{Metrics, Watched};

/// What scrapers take it for.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Why the listener ended.
#[derive(Debug, thiserror::Error)]
pub enum OpsError {
    /// It could not go on.
    #[error("probes and scrapers are not answered any more: {0}")]
    Failed(#[from] std::io::Error),
}

impl OpsError {
    /// Stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Failed(_) => "ops-listener-failed",
        }
    }
}

#[derive(Clone)]
struct Ops {
    metrics: Metrics,
    node: Arc<dyn Watched>,
}

/// Why the node takes runs or does not.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Readiness {
    ready: bool,
    lease_held: bool,
    draining: bool,
    governance_epoch: u64,
    governance_age_ms: u64,
    /// Not counted for `ready`: without a bus the node is only slower to hear.
    bus: &'static str,
}

/// Answers until `shutdown` is ready. Nothing it tells is about a tenant, and nobody is asked who they are.
///
/// # Errors
/// [`OpsError::Failed`] if the listener cannot go on.
pub async fn serve(
    listener: TcpListener,
    metrics: Metrics,
    node: Arc<dyn Watched>,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), OpsError> {
    let router = Router::new()
        .route("/livez", get(|| async { "alive\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(scraped))
        .with_state(Ops { metrics, node });
    Ok(axum::serve(listener, router).with_graceful_shutdown(shutdown).await?)
}

async fn ready(State(ops): State<Ops>) -> Response {
    let now = ops.node.standing();
    let status = if now.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let readiness = Readiness {
        ready: now.ready,
        lease_held: now.lease_held,
        draining: now.draining,
        governance_epoch: now.governance_epoch,
        governance_age_ms: u64::try_from(now.governance_age.as_millis()).unwrap_or(u64::MAX),
        bus: now.bus,
    };
    (status, Json(readiness)).into_response()
}

async fn scraped(State(ops): State<Ops>) -> Response {
    match ops.metrics.text(ops.node.standing()) {
        Ok(text) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
