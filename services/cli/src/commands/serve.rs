//! `serve` and `tools serve`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Subcommand};
use serde_json::json;
use signalbox_ports::clock::{Clock, SystemClock};
use signalbox_server::identity::{DevIdentity, Identify, check_listen};
use signalbox_tls::ServerFiles;
use tokio::net::TcpListener;

use super::catalog::CatalogCommand;
use super::store::store_address;
use crate::args::DATA_DEFAULT;
use crate::bus_file::{BusAddress, BusPlace};
use crate::config::{Config, LISTEN_DEFAULT, StoreAddress};
use crate::failure::Failure;
use crate::output::{Out, warn};
use crate::traces_file;
use crate::wire::{
    Serving, Station, WatchedNode, asked_to_end, bundled_tools, serve_failed, server_ended, server_tls, shut_down,
    start,
};

/// `serve`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  signalbox serve
  signalbox serve --config signalbox.toml --data ./data
  signalbox serve --store postgres://signalbox@db.example/signalbox --bus redis://bus.example")]
pub(crate) struct ServeArgs {
    /// The folder that keeps everything [default: ./data].
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// The PostgreSQL that keeps the journal, as postgres://user@host/database [default: SQLite in the data folder].
    /// With a password it is better given in the environment or the configuration file, where no process list shows it.
    #[arg(long, env = "SIGNALBOX_STORE", hide_env_values = true, value_name = "URL", value_parser = store_address)]
    pub(crate) store: Option<StoreAddress>,
    /// The Redis by which nodes of one store tell each other at once what they find in it within a second otherwise, as
    /// redis://host:6379 or rediss://user:password@host:6379 [default: none].
    #[arg(long, env = "SIGNALBOX_BUS", hide_env_values = true, value_name = "URL", value_parser = bus_address)]
    pub(crate) bus: Option<BusAddress>,
    /// The address that is listened on [default: 127.0.0.1:7420].
    #[arg(long, value_name = "IP:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// The address that answers probes and scrapers: /livez, /readyz and /metrics. Without it nobody does.
    #[arg(long, value_name = "IP:PORT")]
    pub(crate) ops_listen: Option<SocketAddr>,
    /// The collector that is told by OTLP over gRPC what runs and calls did, span by span [default: none].
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT", value_name = "URL")]
    pub(crate) otlp: Option<String>,
    /// The configuration file.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// `tools`.
#[derive(Debug, Subcommand)]
pub(crate) enum ToolsCommand {
    /// Serves the bundled tools to other signalbox processes.
    #[command(after_help = "Example:
  signalbox tools serve --listen 127.0.0.1:7421")]
    Serve(ToolsServeArgs),
    /// Shows the catalog.
    #[command(flatten)]
    Catalog(CatalogCommand),
}

/// `tools serve`.
#[derive(Debug, Args)]
pub(crate) struct ToolsServeArgs {
    /// The address that is listened on.
    #[arg(long, default_value = "127.0.0.1:7421", value_name = "IP:PORT")]
    listen: SocketAddr,
    /// The folder that the tools keep their files in.
    #[arg(long, default_value = DATA_DEFAULT, value_name = "DIR")]
    data: PathBuf,
    /// Certificates; without any, it speaks in clear.
    #[command(flatten)]
    tls: TlsArgs,
}

/// Certificates of a server.
#[derive(Debug, Args)]
pub(crate) struct TlsArgs {
    /// The certificate, followed by those that lead to its authority, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its private key, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Authorities of client certificates, in PEM: whoever has none of theirs is refused. Only with this may an address
    /// be listened on that other machines reach.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,
}

impl TlsArgs {
    fn files(self) -> Option<ServerFiles> {
        Some(ServerFiles { cert: self.tls_cert?, key: self.tls_key?, client_ca: self.tls_client_ca })
    }
}

/// The address of a bus on the command line.
pub(crate) fn bus_address(text: &str) -> Result<BusAddress, String> {
    text.parse()
}

/// Serves runs until the process is asked to end.
pub(crate) async fn run(args: ServeArgs, out: &mut Out) -> Result<(), Failure> {
    let config = args.config.as_deref().map(Config::read).transpose()?;
    let from_file = config.as_ref();
    let listen = args.listen.or_else(|| from_file.and_then(|config| config.listen)).unwrap_or(LISTEN_DEFAULT);
    let data = args.data.or_else(|| from_file.and_then(|config| config.data.clone()));
    let data = data.unwrap_or_else(|| PathBuf::from(DATA_DEFAULT));
    let store = args.store.or_else(|| from_file.and_then(|config| config.store.clone()));
    let bus = BusPlace::of(args.bus.as_ref(), from_file.and_then(|config| config.bus.as_ref()))?;
    if bus.is_some() && store.is_none() {
        warn("bus-without-database", "with SQLite there is one node, and nobody whom the bus could tell anything");
    }
    let limits = from_file.map(Config::serve_limits).unwrap_or_default();

    // The address first: one that may not be served, or is taken, is found out before the data folder is touched.
    let configured = from_file.and_then(|config| config.identity.as_ref());
    let tls = server_tls(from_file.and_then(Config::tls_files), listen)?;
    let listener = match configured {
        Some(_) => signalbox_server::bind_identified(listen).await,
        None => signalbox_server::bind(listen, development_identity()?.as_ref()).await,
    };
    let listener = listener.map_err(|error| serve_failed(&error))?;
    let ops_listen = args.ops_listen.or_else(|| from_file.and_then(|config| config.ops_listen));
    let ops = match ops_listen {
        Some(listen) => Some(listen_on(listen).await?),
        None => None,
    };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let tokens = match configured {
        Some(entry) => entry.tokens(&clock).await?,
        None => None,
    };
    let traces = traces_file::start(args.otlp.as_deref(), from_file.and_then(|config| config.traces.as_ref()))?;
    let mut station = start(&data, store.as_ref(), bus, from_file, traces).await?;
    let identity = match configured {
        Some(entry) => entry.identity(tokens, &station.keys, &station.clock),
        None => development_identity()?,
    };
    let mut serving = Serving::start(&station, listener, identity, limits, tls)?;
    if configured.is_none() {
        warn(
            "development-identity",
            &format!("everybody who reaches {} on this machine is the platform's operator", serving.listen),
        );
    }
    let ops_listen = ops.map(|ops| answer_probes(&station, ops)).transpose()?;
    if out.is_json() {
        out.json(&json!({ "listen": serving.listen, "data": data, "opsListen": ops_listen }))?;
    } else {
        out.line(&format!("signalbox listens on {} and keeps its data in {}", serving.listen, data.display()))?;
        if let Some(listen) = ops_listen {
            out.line(&format!("probes and scrapers are answered at http://{listen}"))?;
        }
    }
    tokio::select! {
        () = asked_to_end() => {}
        _ = &mut station.ended => {
            serving.stop();
            return Err(node_ended());
        }
        served = &mut serving.ended => {
            station.node.drain().await;
            return server_ended(served);
        }
    }
    tokio::select! {
        ended = shut_down(station, serving) => ended,
        () = asked_to_end() => Err(Failure::new("interrupted", "asked to end twice; what was under way is cut")),
    }
}

/// Serves the bundled tools until the process is asked to end.
pub(crate) async fn tools(args: ToolsServeArgs, out: &mut Out) -> Result<(), Failure> {
    let ToolsServeArgs { listen, data, tls } = args;
    let files = tls.files();
    let is_closed = files.as_ref().is_some_and(|files| files.client_ca.is_some());
    // Unless its clients show certificates nobody is identified here either, and a tool that is reached past the gate is
    // not governed at all.
    if !is_closed {
        check_listen(listen, development_identity()?.as_ref()).map_err(|error| serve_failed(&error.into()))?;
    }
    let tls = server_tls(files, listen)?;
    let listener = listen_on(listen).await?;
    let listen = listener.local_addr().map_err(|error| Failure::new("listen-failed", error.to_string()))?;
    if !is_closed {
        warn("development-identity", &format!("everybody who reaches {listen} on this machine can call these tools"));
    }
    if out.is_json() {
        out.json(&json!({ "listen": listen, "data": data }))?;
    } else {
        out.line(&format!("the bundled tools listen on {listen} and keep their files in {}", data.display()))?;
    }
    signalbox_tools::serve(listener, tls, bundled_tools(&data, Vec::new()), asked_to_end())
        .await
        .map_err(|error| Failure::new(error.code(), error.to_string()))
}

async fn listen_on(listen: SocketAddr) -> Result<TcpListener, Failure> {
    let bound = TcpListener::bind(listen).await;
    bound.map_err(|error| Failure::new("listen-failed", format!("cannot listen on {listen}: {error}")))
}

/// Answers probes and scrapers as long as the process lives: a node that drains is still asked whether it is ready.
fn answer_probes(station: &Station, listener: TcpListener) -> Result<SocketAddr, Failure> {
    let listen = listener.local_addr().map_err(|error| Failure::new("listen-failed", error.to_string()))?;
    let node = Arc::new(WatchedNode(station.node.clone()));
    let answering = signalbox_telemetry::serve(listener, station.metrics.clone(), node, std::future::pending());
    tokio::spawn(async move {
        if let Err(error) = answering.await {
            tracing::error!(%error, code = error.code(), "the node goes on without being watched");
        }
    });
    Ok(listen)
}

/// The identity of a server that none is configured for.
pub(crate) fn development_identity() -> Result<Arc<dyn Identify>, Failure> {
    let identity = DevIdentity::new().map_err(|error| Failure::new("start-failed", error.to_string()))?;
    Ok(Arc::new(identity))
}

/// The node has stopped although nobody asked it to.
pub(crate) fn node_ended() -> Failure {
    Failure::new("node-stopped", "a part of the node failed, and the node has stopped; the log says which")
        .next("start it again: every run goes on from its last journal entry")
}
