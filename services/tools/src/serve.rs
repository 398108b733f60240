//! Serving tools on a socket.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use signalbox_tls::{AcceptLimits, ServerTls, incoming};
use tokio::net::TcpListener;
use tonic::transport::Server;

use crate::limits::HTTP2_WINDOW;
use crate::server::ToolServer;

/// How long calls may go on after the shutdown has begun.
pub const DRAIN_MAX: Duration = Duration::from_secs(10);
/// How long cancelled calls may take to say so.
const LAST_WORDS_MAX: Duration = Duration::from_secs(3);
/// Most calls under way on one connection.
const STREAMS_MAX: u32 = 1_024;

/// Why serving ended badly.
#[derive(Debug, thiserror::Error)]
#[error("the executor cannot serve")]
pub struct ServeError(#[from] tonic::transport::Error);

impl ServeError {
    /// Stable code.
    pub const fn code(&self) -> &'static str {
        "executor-cannot-serve"
    }
}

/// Serves until `shutdown` resolves. Then new calls are refused, those that run get [`DRAIN_MAX`], and what is still
/// running after that is cancelled.
pub async fn serve(
    listener: TcpListener,
    tls: Option<Arc<ServerTls>>,
    server: ToolServer,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ServeError> {
    let (began, begun) = tokio::sync::oneshot::channel();
    let draining = server.clone();
    let graceful = async move {
        shutdown.await;
        draining.drain();
        // The other end is gone only if serving has ended already.
        let _ = began.send(());
    };
    let serving = builder()
        .add_service(server.service())
        .serve_with_incoming_shutdown(incoming(listener, tls, AcceptLimits::default()), graceful);
    let hurry = async {
        // An error means that serving has ended, which the other branch sees.
        if begun.await.is_err() {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(DRAIN_MAX).await;
        server.cancel_all();
        tokio::time::sleep(LAST_WORDS_MAX).await;
    };
    tokio::select! {
        served = serving => Ok(served?),
        () = hurry => Ok(()),
    }
}

/// A gRPC server with the settings of an executor.
pub(crate) fn builder() -> Server {
    Server::builder()
        .initial_stream_window_size(HTTP2_WINDOW)
        .initial_connection_window_size(HTTP2_WINDOW)
        .max_concurrent_streams(STREAMS_MAX)
        .tcp_nodelay(true)
}
