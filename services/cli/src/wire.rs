//! Wiring: which implementation stands behind each port, in the order in which they are opened.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use signalbox_domain::governance::egress::HostExemption;
use signalbox_domain::governance::switching::SecondIdentity;
use signalbox_ports::acts::Acts;
use signalbox_ports::blobs::Blobs;
use signalbox_ports::bus::Notice;
use signalbox_ports::clock::{Clock, Ids, RandomIds, SystemClock};
use signalbox_ports::directory::Directory;
use signalbox_ports::feedback::Feedback;
use signalbox_ports::governance::Governance;
use signalbox_ports::inbox::Inbox;
use signalbox_ports::journal::Journal;
use signalbox_ports::keys::Keys;
use signalbox_ports::leases::Leases;
use signalbox_ports::maintenance::Maintenance;
use signalbox_ports::schedules::Schedules;
use signalbox_ports::trace::RequestSpans;
use signalbox_ports::webhooks::Deliveries;
use signalbox_runtime::{Node, NodeConfig, NodeHandle, NodeStanding, Ports};
use signalbox_server::identity::{ApiKeys, Identify};
use signalbox_server::{Edge, ServeError, ServeLimits};
use signalbox_store::{FileBlobs, OpenError, PostgresOptions, PostgresStore, SqliteOptions, SqliteStore};
use signalbox_telemetry::{Metrics, Standing, Traces, Watched};
use signalbox_tls::{ServerFiles, ServerTls};
use signalbox_tools::bundled::{self, BundledConfig};
use signalbox_tools::client::{CONCURRENCY_DEFAULT, Endpoint, RegisteredRules};
use signalbox_tools::webhook::WebhookCourier;
use signalbox_tools::{ExecutorClient, ToolServer};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::bus_file::{self, BusPlace};
use crate::config::{Config, LimitsEntry, StoreAddress};
use crate::failure::Failure;
use crate::output::warn;
use crate::secrets::{ConfiguredSecrets, key_ring};
use crate::{governance_file, invocation_file, models_file};

/// A running node.
pub(crate) struct Station {
    /// The way to it.
    pub(crate) node: NodeHandle,
    /// Ends when the node does.
    pub(crate) ended: JoinHandle<()>,
    /// The object store.
    pub(crate) blobs: Arc<dyn Blobs>,
    /// API keys of the store.
    pub(crate) keys: Arc<ApiKeys>,
    /// Time.
    pub(crate) clock: Arc<dyn Clock>,
    /// Fresh ids.
    pub(crate) ids: Arc<dyn Ids>,
    /// What the node has done, counted.
    pub(crate) metrics: Metrics,
    /// Where spans go, if anywhere.
    pub(crate) traces: Option<Traces>,
}

/// A node as it is watched over.
pub(crate) struct WatchedNode(pub(crate) NodeHandle);

impl Watched for WatchedNode {
    fn standing(&self) -> Standing {
        let NodeStanding {
            ready,
            lease_held,
            draining,
            governance_epoch,
            governance_age,
            switches_armed,
            revocations,
            bus,
        } = self.0.node_standing();
        Standing {
            ready,
            lease_held,
            draining,
            governance_epoch,
            governance_age,
            switches_armed,
            revocations_applied: revocations.applied,
            revocations_slo_missed: revocations.slo_missed,
            bus,
        }
    }
}

/// One store behind each of its ports.
pub(crate) struct StorePorts {
    journal: Arc<dyn Journal>,
    directory: Arc<dyn Directory>,
    /// Inboxes.
    pub(crate) inbox: Arc<dyn Inbox>,
    leases: Arc<dyn Leases>,
    governance: Arc<dyn Governance>,
    acts: Arc<dyn Acts>,
    deliveries: Arc<dyn Deliveries>,
    /// An operator's tools.
    pub(crate) maintenance: Arc<dyn Maintenance>,
    keys: Arc<dyn Keys>,
    feedback: Arc<dyn Feedback>,
    schedules: Arc<dyn Schedules>,
}

impl StorePorts {
    fn over<
        S: Journal
            + Directory
            + Inbox
            + Leases
            + Governance
            + Acts
            + Deliveries
            + Maintenance
            + Keys
            + Feedback
            + Schedules,
    >(
        store: S,
    ) -> Self {
        let store = Arc::new(store);
        Self {
            journal: store.clone(),
            directory: store.clone(),
            inbox: store.clone(),
            leases: store.clone(),
            governance: store.clone(),
            acts: store.clone(),
            deliveries: store.clone(),
            maintenance: store.clone(),
            keys: store.clone(),
            feedback: store.clone(),
            schedules: store,
        }
    }

    /// Opens the store: the database at an address, or the one in the data folder. Migrations run on the way.
    pub(crate) async fn open(
        data: &Path,
        address: Option<&StoreAddress>,
        clock: &Arc<dyn Clock>,
        limits: LimitsEntry,
    ) -> Result<Self, Failure> {
        let opened = match address {
            Some(address) => {
                // The server's own clock counts: the nodes that share it agree on no other.
                PostgresStore::connect(address.as_str(), PostgresOptions::default()).await.map(Self::over)
            }
            None => {
                let bytes_max = limits.store_bytes_max;
                let options = SqliteOptions { clock: clock.clone(), bytes_max, ..SqliteOptions::default() };
                SqliteStore::open(data, options).await.map(Self::over)
            }
        };
        opened.map_err(|error: OpenError| Failure::new(error.code(), error.to_string()))
    }
}

/// Opens the store, applies the configuration to it if there is one, binds the executors, and starts a node.
pub(crate) async fn start(
    data: &Path,
    address: Option<&StoreAddress>,
    bus: Option<BusPlace>,
    config: Option<&Config>,
    traces: Option<Traces>,
) -> Result<Station, Failure> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let ids: Arc<dyn Ids> = Arc::new(RandomIds);
    let limits = config.map(|config| config.limits).unwrap_or_default();
    let store = StorePorts::open(data, address, &clock, limits).await?;
    let blobs: Arc<dyn Blobs> =
        Arc::new(FileBlobs::open(data).map_err(|error| Failure::new(error.code(), error.to_string()))?);
    if let Some(config) = config {
        let applied =
            governance_file::apply(store.governance.as_ref(), store.acts.as_ref(), config, clock.now()).await?;
        tracing::info!(?applied, "the configuration is applied");
    }
    let secrets = ConfiguredSecrets::new(config.map(|config| config.secrets.as_slice()).unwrap_or_default());
    let secrets = secrets.with_webhook_keys(config.map(|config| config.webhook_secrets.as_slice()).unwrap_or_default());
    // With a database, several nodes must read what one of them has sealed: a key in one data folder would not do.
    let own_key = address.is_none().then_some(data);
    let keys = key_ring(config.map(|config| config.sealing_keys.as_slice()).unwrap_or_default(), own_key)?;
    let elsewhere: Vec<Endpoint> = config
        .iter()
        .flat_map(|config| &config.executors)
        .map(|executor| executor.endpoint().map_err(|error| Failure::new(error.code(), error.to_string())))
        .collect::<Result<_, _>>()?;
    let exemptions = config.map(|config| config.exemptions.clone()).unwrap_or_default();
    let endpoints = std::iter::once(Endpoint::InProcess(bundled_tools(data, exemptions.clone()))).chain(elsewhere);
    let concurrency = limits.calls_per_executor_max.unwrap_or(CONCURRENCY_DEFAULT);
    let tools = ExecutorClient::connect_all(endpoints, concurrency, clock.clone()).await.map_err(|error| {
        Failure::new(error.code(), error.to_string()).next("check [[executors]] in the configuration file")
    })?;
    let models = models_file::models(config.map(|config| config.models.as_slice()).unwrap_or_default(), clock.clone())?;
    let mut tls = BTreeMap::new();
    for entry in config.iter().flat_map(|config| &config.executor_tls) {
        let loaded = entry.load().map_err(|error| Failure::new(error.code(), error.to_string()))?;
        tls.insert(entry.tls_id.clone(), loaded);
    }
    let tools = tools.with_rules(RegisteredRules { exempt: exemptions.clone(), tls });
    let metrics = Metrics::new();
    let (journal, tools) = (metrics.journal(store.journal), metrics.tools(Arc::new(tools)));
    let (journal, tools) = match &traces {
        Some(traces) => (traces.journal(journal), traces.tools(tools, clock.clone())),
        None => (journal, tools),
    };
    let (incarnation, epoch) = (store.governance.epoch().await)
        .map_err(|error| Failure::new(error.code(), format!("the store cannot be read: {error}")))?;
    let bus = bus_file::start(bus, incarnation);
    // What the configuration has changed, other nodes hear of too.
    bus.announce(Notice::Governance(epoch));
    let ports = Ports {
        journal,
        directory: store.directory,
        inbox: store.inbox,
        leases: store.leases,
        governance: store.governance,
        acts: store.acts,
        deliveries: store.deliveries,
        courier: Arc::new(WebhookCourier::default()),
        feedback: store.feedback,
        schedules: store.schedules,
        blobs: blobs.clone(),
        bus,
        tools,
        models: Arc::new(models),
        secrets: Arc::new(secrets),
        sealing: Arc::new(keys),
        clock: clock.clone(),
        ids: ids.clone(),
    };
    let second_identity = config.and_then(|config| config.second_identity_scopes.clone()).map(SecondIdentity);
    let second_identity = second_identity.unwrap_or_default();
    let invocations = invocation_file::policies(config.map(|config| config.invocations.as_slice()).unwrap_or_default());
    let webhook_exempt = config.map(|config| config.webhook_exemptions.clone()).unwrap_or_default();
    let mut node =
        NodeConfig { exempt: exemptions, webhook_exempt, second_identity, invocations, ..NodeConfig::default() };
    if let Some(most) = limits.runs_active_max {
        node.runs_active_max = most;
    }
    let (node, ended) =
        Node::start(node, ports).await.map_err(|error| Failure::new(error.code(), error.to_string()))?;
    // Made and revoked as acts, so that the audit journal has them.
    let keys = Arc::new(node.audited_keys(store.keys));
    let keys = Arc::new(ApiKeys::new(keys, clock.clone(), ids.clone()));
    Ok(Station { node, ended, blobs, keys, clock, ids, metrics, traces })
}

/// The tools that come with signalbox, keeping their files in a data folder.
pub(crate) fn bundled_tools(data: &Path, exemptions: Vec<HostExemption>) -> ToolServer {
    bundled::registry(BundledConfig { data_dir: absolute(data), exemptions })
}

/// The absolute form of a path that need not be there yet.
pub(crate) fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// A server in front of a node.
pub(crate) struct Serving {
    /// Where it listens.
    pub(crate) listen: SocketAddr,
    /// Ends when the server does.
    pub(crate) ended: JoinHandle<Result<(), ServeError>>,
    stop: Option<oneshot::Sender<()>>,
}

impl Serving {
    /// Serves a node on a listener.
    pub(crate) fn start(
        station: &Station,
        listener: TcpListener,
        identity: Arc<dyn Identify>,
        limits: ServeLimits,
        tls: Option<Arc<ServerTls>>,
    ) -> Result<Self, Failure> {
        let listen = listener.local_addr().map_err(|error| Failure::new("listen-failed", error.to_string()))?;
        let edge = Edge {
            api: Arc::new(station.node.clone()),
            governance: Arc::new(station.node.clone()),
            webhooks: Arc::new(station.node.clone()),
            registry: Arc::new(station.node.clone()),
            feedback: Arc::new(station.node.clone()),
            schedules: Arc::new(station.node.clone()),
            pipelines: Arc::new(station.node.clone()),
            identity,
            keys: station.keys.clone(),
            ids: station.ids.clone(),
            limits,
            tls,
            spans: station.traces.clone().map(|traces| Arc::new(traces) as Arc<dyn RequestSpans>),
        };
        let (stop, stopped) = oneshot::channel();
        let ended = tokio::spawn(signalbox_server::serve(listener, edge, async {
            // An error means that whoever could stop the server is gone, which stops it too.
            let _ = stopped.await;
        }));
        Ok(Self { listen, ended, stop: Some(stop) })
    }

    /// Tells the server to drain.
    pub(crate) fn stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // An error means that it has ended already.
            let _ = stop.send(());
        }
    }
}

/// Ends a server and the node behind it in good order: first nobody new comes in, then what is under way ends.
pub(crate) async fn shut_down(station: Station, mut serving: Serving) -> Result<(), Failure> {
    serving.stop();
    let served = serving.ended.await;
    station.node.drain().await;
    if let Err(error) = station.ended.await {
        tracing::error!(%error, "the node did not end in good order");
    }
    if let Some(traces) = station.traces {
        // A task that fails has told what it could.
        let _ = tokio::task::spawn_blocking(move || traces.end()).await;
    }
    server_ended(served)
}

/// A server's certificates, if it is to have any. Who serves other machines without is told that everybody can listen.
pub(crate) fn server_tls(files: Option<ServerFiles>, listen: SocketAddr) -> Result<Option<Arc<ServerTls>>, Failure> {
    let tls =
        files.map(ServerTls::load).transpose().map_err(|error| Failure::usage(error.code(), error.to_string()))?;
    if tls.is_none() && !listen.ip().is_loopback() {
        let text = format!(
            "{listen} is served in clear: whoever is on the way reads credentials and runs, and can change them"
        );
        warn("no-tls", &text);
    }
    Ok(tls.map(Arc::new))
}

/// How a server ended.
pub(crate) fn server_ended(served: Result<Result<(), ServeError>, tokio::task::JoinError>) -> Result<(), Failure> {
    match served {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(serve_failed(&error)),
        Err(error) => Err(Failure::new("server-failed", format!("the server ended by a bug of its own: {error}"))),
    }
}

/// A server's error, with what is behind it.
pub(crate) fn serve_failed(error: &ServeError) -> Failure {
    let mut message = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        message.push_str(&format!(": {error}"));
        cause = error.source();
    }
    Failure::new(error.code(), message)
}

/// Ready when the process is asked to end.
pub(crate) async fn asked_to_end() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
            return;
        }
    }
    // Without a handler the process ends at once, as by default.
    let _ = tokio::signal::ctrl_c().await;
}
