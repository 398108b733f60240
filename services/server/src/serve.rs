//! Listening, health, reflection, HTTP beside gRPC, limits and the orderly end.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use signalbox_ports::clock::Ids;
use signalbox_ports::trace::RequestSpans;
use signalbox_proto::v1;
use signalbox_proto::v1::dashboard_service_server::DashboardServiceServer;
use signalbox_proto::v1::feedback_service_server::FeedbackServiceServer;
use signalbox_proto::v1::governance_service_server::GovernanceServiceServer;
use signalbox_proto::v1::identity_service_server::IdentityServiceServer;
use signalbox_proto::v1::pipeline_service_server::PipelineServiceServer;
use signalbox_proto::v1::registry_service_server::RegistryServiceServer;
use signalbox_proto::v1::run_service_server::RunServiceServer;
use signalbox_proto::v1::schedule_service_server::ScheduleServiceServer;
use signalbox_proto::v1::webhook_service_server::WebhookServiceServer;
use signalbox_tls::{AcceptLimits, ServerTls, incoming};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tonic::server::NamedService;
use tonic::service::Routes;

use crate::api::{FeedbackApi, GovernanceApi, PipelineApi, RegistryApi, RunApi, ScheduleApi, WebhookApi};
use crate::dashboard::Dashboard;
use crate::feedback::Feedbacks;
use crate::governing::Governing;
use crate::identity::{ApiKeys, Door, Identify, Identities, IdentityNotConfigured, check_listen};
use crate::pipelines::Pipelines;
use crate::rates::{RateError, Rates, RequestRate};
use crate::registry::Registry;
use crate::schedules::Schedules;
use crate::service::Runs;
use crate::traced::Traced;
use crate::transport::Deadlines;
use crate::watch::WatchLimits;
use crate::webhooks::Webhooks;
use crate::{health, http};

/// Largest message that is accepted, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 4 << 20;
/// Largest message that is sent, in bytes: the envelope of a big run.
pub const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Requests of one connection that are worked on at once.
const REQUESTS_PER_CONNECTION_MAX: usize = 256;
/// Streams one connection may have open.
const STREAMS_PER_CONNECTION_MAX: u32 = 1_024;
/// Largest block of headers, in bytes.
const HEADER_BYTES_MAX: u32 = 16 << 10;
/// How often a silent connection is asked whether it is still there.
const KEEPALIVE_EVERY: Duration = Duration::from_secs(30);
/// How long it has to answer.
const KEEPALIVE_WITHIN: Duration = Duration::from_secs(10);
/// After so long a connection takes no new requests, so that clients spread over nodes that came later. Streams go on.
const CONNECTION_AGE_MAX: Duration = Duration::from_secs(60 * 60);
/// How long requests in work may take once the server drains.
const DRAIN_WITHIN: Duration = Duration::from_secs(20);

/// Bounds an operator may set.
#[derive(Debug, Clone, Copy)]
pub struct ServeLimits {
    /// Watches open at once, over all connections.
    pub watches_max: usize,
    /// What one watch may hold.
    pub watch: WatchLimits,
    /// How often one caller may ask; as often as it likes if not set.
    pub requests: Option<RequestRate>,
}

impl Default for ServeLimits {
    fn default() -> Self {
        Self { watches_max: 1_024, watch: WatchLimits { buffer: 256, stall: Duration::from_secs(10) }, requests: None }
    }
}

/// What is served, and to whom.
#[derive(Clone)]
pub struct Edge {
    /// The node.
    pub api: Arc<dyn RunApi>,
    /// The node, as whoever manages governance sees it.
    pub governance: Arc<dyn GovernanceApi>,
    /// The node, as whoever manages webhooks sees it.
    pub webhooks: Arc<dyn WebhookApi>,
    /// The node, as whoever manages agents and executors sees it.
    pub registry: Arc<dyn RegistryApi>,
    /// The node, as whoever compares versions of agents sees it.
    pub feedback: Arc<dyn FeedbackApi>,
    /// The node, as whoever manages schedules sees it.
    pub schedules: Arc<dyn ScheduleApi>,
    /// The node, as whoever triggers pipelines sees it.
    pub pipelines: Arc<dyn PipelineApi>,
    /// Tells callers apart.
    pub identity: Arc<dyn Identify>,
    /// API keys of the store.
    pub keys: Arc<ApiKeys>,
    /// Fresh ids for commands whose caller names none.
    pub ids: Arc<dyn Ids>,
    /// Bounds.
    pub limits: ServeLimits,
    /// Certificates; without any, what is said can be read along the way.
    pub tls: Option<Arc<ServerTls>>,
    /// Whoever records the spans of requests, if anybody does.
    pub spans: Option<Arc<dyn RequestSpans>>,
}

/// Why serving did not begin or did not go on.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address may not be served with this identity.
    #[error(transparent)]
    IdentityNotConfigured(#[from] IdentityNotConfigured),
    /// The address cannot be listened on.
    #[error("cannot listen on {listen}")]
    Listen {
        /// The address.
        listen: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The machinery below failed.
    #[error("the server failed")]
    Transport(#[from] tonic::transport::Error),
    /// The rate of requests makes no sense.
    #[error("the rate of requests makes no sense")]
    Rate(#[from] RateError),
    /// The service descriptions compiled into this binary cannot be read.
    #[error("the service descriptions are broken")]
    Reflection(#[from] tonic_reflection::server::Error),
}

impl ServeError {
    /// Stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::IdentityNotConfigured(_) => IdentityNotConfigured::CODE,
            Self::Listen { .. } => "listen-failed",
            Self::Transport(_) => "server-failed",
            Self::Rate(_) => "config-invalid",
            Self::Reflection(_) => "reflection-failed",
        }
    }
}

/// Takes the address, unless the identity forbids it.
pub async fn bind(listen: SocketAddr, identity: &dyn Identify) -> Result<TcpListener, ServeError> {
    check_listen(listen, identity)?;
    bind_identified(listen).await
}

/// Takes the address for an identity that tells callers apart.
pub async fn bind_identified(listen: SocketAddr) -> Result<TcpListener, ServeError> {
    TcpListener::bind(listen).await.map_err(|source| ServeError::Listen { listen, source })
}

/// Serves until `shutdown` is ready, then drains: health says no, watches end with a cursor to go on from, requests in
/// work are finished, and connections close.
pub async fn serve(
    listener: TcpListener,
    edge: Edge,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ServeError> {
    let watches = Arc::new(Semaphore::new(edge.limits.watches_max));
    serve_watched(listener, edge, watches, shutdown).await
}

/// The same over given places for watches.
pub(crate) async fn serve_watched(
    listener: TcpListener,
    edge: Edge,
    watches: Arc<Semaphore>,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ServeError> {
    let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
    let listen = listener.local_addr().map_err(|source| ServeError::Listen { listen: unknown, source })?;
    check_listen(listen, edge.identity.as_ref())?;
    let (drain, draining) = watch::channel(false);
    let (health, health_service) = tonic_health::server::health_reporter();
    health::tell(&health, &SERVICES, edge.api.is_ready()).await;
    let well = health::follow(health, &SERVICES, edge.api.clone(), draining.clone());
    let tls = edge.tls.clone();
    let traced = Traced { spans: edge.spans.clone(), ids: edge.ids.clone() };
    let routes = routes(edge, watches, draining.clone())?.add_service(health_service);
    let stop = async {
        shutdown.await;
        drain.send_replace(true);
    };
    let mut stopped = draining;
    let serving = tonic::transport::Server::builder()
        .concurrency_limit_per_connection(REQUESTS_PER_CONNECTION_MAX)
        .max_concurrent_streams(STREAMS_PER_CONNECTION_MAX)
        .http2_max_header_list_size(HEADER_BYTES_MAX)
        .http2_keepalive_interval(Some(KEEPALIVE_EVERY))
        .http2_keepalive_timeout(Some(KEEPALIVE_WITHIN))
        .max_connection_age(CONNECTION_AGE_MAX)
        .accept_http1(true)
        .layer(traced)
        .layer(Deadlines)
        .add_routes(routes)
        .serve_with_incoming_shutdown(incoming(listener, tls, AcceptLimits::default()), stop);
    let serving = async {
        tokio::select! {
            result = serving => result,
            // Health has its last word when the server drains, and the serving goes on to its end.
            () = async { well.await; std::future::pending().await } => Ok(()),
        }
    };
    tokio::select! {
        result = serving => result.map_err(ServeError::from),
        () = async {
            // The sender lives as long as this function, so the wait cannot fail.
            let _ = stopped.wait_for(|draining| *draining).await;
            tokio::time::sleep(DRAIN_WITHIN).await;
        } => {
            tracing::warn!("requests were still in work after the time to drain; they are cut");
            Ok(())
        }
    }
}

/// The services that health knows by name.
const SERVICES: [&str; 9] = [
    <RunServiceServer<Runs> as NamedService>::NAME,
    <DashboardServiceServer<Dashboard> as NamedService>::NAME,
    <GovernanceServiceServer<Governing> as NamedService>::NAME,
    <IdentityServiceServer<Identities> as NamedService>::NAME,
    <WebhookServiceServer<Webhooks> as NamedService>::NAME,
    <RegistryServiceServer<Registry> as NamedService>::NAME,
    <FeedbackServiceServer<Feedbacks> as NamedService>::NAME,
    <ScheduleServiceServer<Schedules> as NamedService>::NAME,
    <PipelineServiceServer<Pipelines> as NamedService>::NAME,
];

/// Everything that is answered at the port, whatever protocol it is asked in.
fn routes(edge: Edge, watches: Arc<Semaphore>, draining: watch::Receiver<bool>) -> Result<Routes, ServeError> {
    let identity = edge.identity.clone();
    let rates = Arc::new(Rates::new(edge.limits.requests)?);
    let identities = IdentityServiceServer::new(Identities { keys: edge.keys })
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(ANSWER_BYTES_MAX);
    let governing = Governing {
        api: edge.governance.clone(),
        identity: edge.identity.clone(),
        ids: edge.ids.clone(),
        watches: watches.clone(),
        draining: draining.clone(),
    };
    let governing = GovernanceServiceServer::new(governing)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(ANSWER_BYTES_MAX);
    let webhooks = WebhookServiceServer::new(Webhooks { api: edge.webhooks })
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(ANSWER_BYTES_MAX);
    let registry = RegistryServiceServer::new(Registry { api: edge.registry })
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(ANSWER_BYTES_MAX);
    let feedback = FeedbackServiceServer::new(Feedbacks { api: edge.feedback.clone() })
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(ANSWER_BYTES_MAX);
    let schedules = ScheduleServiceServer::new(Schedules { api: edge.schedules })
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(ANSWER_BYTES_MAX);
    let pipelines = PipelineServiceServer::new(Pipelines { api: edge.pipelines })
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(ANSWER_BYTES_MAX);
    let dashboard = Dashboard { api: edge.api.clone() };
    let dashboard = DashboardServiceServer::new(dashboard)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(ANSWER_BYTES_MAX);
    let runs = Arc::new(Runs {
        api: edge.api,
        governance: edge.governance,
        feedback: edge.feedback,
        identity: edge.identity,
        ids: edge.ids,
        rates: rates.clone(),
        watch_limits: edge.limits.watch,
        watches,
        draining,
    });
    let http = http::router(runs.clone());
    let runs = RunServiceServer::from_arc(runs)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(ANSWER_BYTES_MAX);
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(v1::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()?;
    // What is no call of gRPC is HTTP's to answer, so the last word is HTTP's too.
    let grpc = Routes::new(Door::before(runs, &identity, &rates))
        .add_service(Door::before(governing, &identity, &rates))
        .add_service(Door::before(dashboard, &identity, &rates))
        .add_service(Door::before(registry, &identity, &rates))
        .add_service(Door::before(feedback, &identity, &rates))
        .add_service(Door::before(pipelines, &identity, &rates))
        .add_service(Door::before(identities, &identity, &rates))
        .add_service(Door::before(webhooks, &identity, &rates))
        .add_service(Door::before(schedules, &identity, &rates))
        .add_service(reflection)
        .into_axum_router()
        .reset_fallback();
    Ok(Routes::from(grpc.merge(http)))
}
