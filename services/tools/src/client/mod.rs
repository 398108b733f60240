//! The executor client: the only code that can reach a tool, and it takes an [`Admitted`] by value (I1).
//!
//! It never sends a call twice. What it cannot know it calls unknown; what certainly did not happen it calls not
//! started; and an executor that breaks the contract is told apart from a tool that failed.

mod answer;
mod breaker;
mod dispatch;
mod executor;
mod registered;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_hostile;
#[cfg(test)]
mod tests_private;
#[cfg(test)]
mod tests_transport;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::rt::TokioIo;
use signalbox_domain::catalog::Recovery;
use signalbox_domain::ids::{CallId, ToolId};
use signalbox_domain::registry::{DescribedTool, ExecutorDenial, ExecutorRegistration, RegisteredExecutor};
use signalbox_domain::run::step::{CallEnding, CallResult};
use signalbox_ports::clock::Clock;
use signalbox_ports::journal::Admitted;
use signalbox_ports::tools::{CallOrder, CallProgress, KnownOutcome, Permit, Tools};
use signalbox_proto::v1;
use signalbox_proto::v1::tool_executor_client::ToolExecutorClient;
use signalbox_proto::v1::tool_executor_server::{ToolExecutor, ToolExecutorServer};
use signalbox_tls::ClientTls;
use tokio::io::DuplexStream;
use tokio::sync::{Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint as Target, Uri};
use tower::ServiceExt as _;

use self::breaker::Breaker;
use self::dispatch::WatchedChannel;
use self::executor::Executor;
use self::registered::Registered;
pub use self::registered::RegisteredRules;
use crate::limits::{HTTP2_WINDOW, MESSAGE_BYTES_MAX};
use crate::server::ToolServer;

/// Calls that may run on one executor at once, unless configured otherwise.
pub const CONCURRENCY_DEFAULT: usize = 64;
/// What the executor in this process is called.
const IN_PROCESS: &str = "in-process";
/// How long a connection may take to be made.
const CONNECT_MAX: Duration = Duration::from_secs(2);
/// Bytes in flight inside the process.
const DUPLEX_BYTES: usize = 1024 * 1024;

/// Where an executor is.
#[derive(Debug, Clone)]
pub enum Endpoint {
    /// In this process, behind the same gRPC service.
    InProcess(ToolServer),
    /// At `http://host:port`.
    Uri(String),
    /// At `https://host:port`.
    Secure {
        /// The address.
        uri: String,
        /// Whom to trust there, and the certificate to show.
        tls: ClientTls,
    },
}

/// Why the executors cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    /// Not an address.
    #[error("`{0}` is not the address of an executor; use http://host:port or https://host:port")]
    Address(String),
    /// It does not answer, or not sensibly.
    #[error("the executor {name} does not describe its tools: {problem}")]
    Describe {
        /// Which.
        name: String,
        /// In words.
        problem: String,
    },
    /// Two executors serve one tool.
    #[error("the tool `{0}` is served twice")]
    ToolBoundTwice(ToolId),
}

impl BindError {
    /// Stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Address(_) => "executor-address-invalid",
            Self::Describe { .. } => "executor-not-described",
            Self::ToolBoundTwice(_) => "tool-bound-twice",
        }
    }
}

/// What the client takes a result for. An author of an executor can ask this of what the executor sends, and so do our
/// own tests of hostile input.
pub fn taken_for(result: v1::ToolResult) -> CallResult {
    let read = answer::read(result).unwrap_or_else(|error| answer::protocol_error(&error.to_string()));
    let (ending, measured) = read;
    CallResult { ending, measured, latency_ms: 0 }
}

/// The tools and versions that the client would bind of a description.
///
/// # Errors
/// What in it is malformed, or more than the catalog gives.
pub fn tools_described(described: &v1::DescribeResponse) -> Result<Vec<(ToolId, String, Recovery)>, String> {
    described.tools.iter().map(|tool| crate::wire::bound_tool_in(tool).map_err(|error| error.to_string())).collect()
}

/// The executors of an installation.
pub struct ExecutorClient {
    /// Those of the configuration: fixed, and they come first.
    tools: BTreeMap<ToolId, Bound>,
    /// Those that were registered while the node runs.
    registered: ArcSwap<Registered>,
    rules: RegisteredRules,
    concurrency: usize,
    clock: Arc<dyn Clock>,
}

#[derive(Clone)]
struct Bound {
    executor: Arc<Executor>,
    semver: String,
    declared: Recovery,
}

impl std::fmt::Debug for ExecutorClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExecutorClient").field("tools", &self.tools.keys()).finish_non_exhaustive()
    }
}

impl ExecutorClient {
    /// A client of tools in this process.
    pub async fn connect_in_process(server: ToolServer, clock: Arc<dyn Clock>) -> Result<Self, BindError> {
        Self::connect_all([Endpoint::InProcess(server)], CONCURRENCY_DEFAULT, clock).await
    }

    /// A client of one executor elsewhere.
    pub async fn connect(uri: &str, clock: Arc<dyn Clock>) -> Result<Self, BindError> {
        Self::connect_all([Endpoint::Uri(uri.to_owned())], CONCURRENCY_DEFAULT, clock).await
    }

    /// A client of several executors, each asked what it serves, each with `concurrency` calls at most. A tool of this process gives
    /// way to an executor elsewhere that serves it: whoever configures one wants it used.
    pub async fn connect_all(
        endpoints: impl IntoIterator<Item = Endpoint>,
        concurrency: usize,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, BindError> {
        let channels: Result<Vec<_>, _> = endpoints
            .into_iter()
            .map(|endpoint| match endpoint {
                Endpoint::InProcess(server) => Ok((IN_PROCESS.to_owned(), in_process(server.service()))),
                Endpoint::Uri(uri) => remote(&uri, None).map(|channel| (uri, channel)),
                Endpoint::Secure { uri, tls } => remote(&uri, Some(tls)).map(|channel| (uri, channel)),
            })
            .collect();
        Self::bind(channels?, concurrency, clock).await
    }

    /// Asks each executor what it serves.
    async fn bind(
        channels: Vec<(String, Channel)>,
        concurrency: usize,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, BindError> {
        let (registered, rules) = (ArcSwap::default(), RegisteredRules::default());
        let mut client = Self { tools: BTreeMap::new(), registered, rules, concurrency, clock };
        for (name, channel) in channels {
            let executor = Arc::new(client.executor(name.clone(), channel));
            let described = executor.describe().await.and_then(|response| tools_described(&response));
            for (tool, semver, declared) in described.map_err(|problem| BindError::Describe { name, problem })? {
                let bound = Bound { executor: Arc::clone(&executor), semver, declared };
                let is_elsewhere = executor.name != IN_PROCESS;
                match client.tools.get(&tool) {
                    None => {}
                    Some(before) if is_elsewhere && before.executor.name == IN_PROCESS => {
                        tracing::info!(%tool, executor = executor.name, "takes the place of the bundled tool");
                    }
                    Some(_) => return Err(BindError::ToolBoundTwice(tool)),
                }
                client.tools.insert(tool, bound);
            }
        }
        Ok(client)
    }

    /// The same client, with what the configuration says of executors that are registered while the node runs.
    #[must_use]
    pub fn with_rules(self, rules: RegisteredRules) -> Self {
        Self { rules, ..self }
    }

    fn executor(&self, name: String, channel: Channel) -> Executor {
        let client = ToolExecutorClient::new(WatchedChannel(channel))
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        Executor {
            name,
            client,
            permits: Arc::new(Semaphore::new(self.concurrency)),
            breaker: Breaker::default(),
            clock: Arc::clone(&self.clock),
        }
    }

    /// Where a tool is called.
    fn bound(&self, tool: &ToolId) -> Option<Bound> {
        self.tools.get(tool).cloned().or_else(|| self.registered.load().tools.get(tool).cloned())
    }

    /// Where a call of a tool that may be out still can be asked for.
    fn last(&self, tool: &ToolId) -> Option<Arc<Executor>> {
        let fixed = self.tools.get(tool).map(|bound| Arc::clone(&bound.executor));
        fixed.or_else(|| self.registered.load().last.get(tool).cloned())
    }
}

/// A channel into a server of this process. Should a connection ever end, the next call makes another.
fn in_process<E: ToolExecutor>(service: ToolExecutorServer<E>) -> Channel {
    let (accept, incoming) = mpsc::channel::<std::io::Result<DuplexStream>>(1);
    let serving = crate::serve::builder().add_service(service);
    tokio::spawn(async move {
        // Ends when the channel, and with it the connector, is dropped.
        if let Err(error) = serving.serve_with_incoming(ReceiverStream::new(incoming)).await {
            tracing::error!(%error, "the in-process executor ended");
        }
    });
    let connector = tower::service_fn(move |_: Uri| {
        let accept = accept.clone();
        async move {
            let (ours, theirs) = tokio::io::duplex(DUPLEX_BYTES);
            accept.send(Ok(theirs)).await.map_err(|_| std::io::Error::from(std::io::ErrorKind::NotConnected))?;
            Ok::<_, std::io::Error>(TokioIo::new(ours))
        }
    });
    with_windows(Target::from_static("http://in-process")).connect_with_connector_lazy(connector)
}

/// A channel to an executor elsewhere. It connects at the first call and again whenever it has to.
fn remote(uri: &str, tls: Option<ClientTls>) -> Result<Channel, BindError> {
    let parsed = parsed(uri, tls.is_some())?;
    Ok(channel_over(parsed, HttpConnector::new(), tls))
}

fn parsed(uri: &str, private: bool) -> Result<Uri, BindError> {
    let address = || BindError::Address(crate::wire::short(uri));
    let parsed: Uri = uri.parse().map_err(|_| address())?;
    let scheme = if private { "https" } else { "http" };
    if parsed.scheme_str() != Some(scheme) || parsed.host().is_none() {
        return Err(address());
    }
    Ok(parsed)
}

fn channel_over<R>(parsed: Uri, mut connector: HttpConnector<R>, tls: Option<ClientTls>) -> Channel
where
    R: tower::Service<Name, Error: Into<tower::BoxError>, Future: Send> + Clone + Send + Sync + 'static,
    R::Response: Iterator<Item = SocketAddr> + Send,
{
    // Whether there is TLS above is not its business.
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT_MAX));
    // What was handed to the kernel and is not acknowledged within two seconds never arrives.
    #[cfg(target_os = "linux")]
    connector.set_tcp_user_timeout(Some(crate::limits::DISPATCH_WINDOW));
    let target = with_windows(Target::from(parsed))
        .http2_keep_alive_interval(crate::limits::HEARTBEAT)
        .keep_alive_timeout(crate::limits::HEARTBEAT);
    let Some(tls) = tls else { return target.connect_with_connector_lazy(connector) };
    let private = tower::service_fn(move |uri: Uri| {
        let (tls, tcp) = (tls.clone(), connector.clone());
        async move {
            let host = uri.host().unwrap_or_default().to_owned();
            let stream = tcp.oneshot(uri).await.map_err(std::io::Error::other)?;
            tls.connect(&host, stream.into_inner()).await.map(TokioIo::new)
        }
    });
    target.connect_with_connector_lazy(private)
}

fn with_windows(target: Target) -> Target {
    target.initial_stream_window_size(HTTP2_WINDOW).initial_connection_window_size(HTTP2_WINDOW)
}

#[async_trait]
impl Tools for ExecutorClient {
    fn configured(&self) -> Vec<(ToolId, String)> {
        let registered = self.registered.load();
        let all = self.tools.iter().chain(&registered.tools);
        all.map(|(tool, bound)| (tool.clone(), bound.semver.clone())).collect()
    }

    fn semver(&self, tool: &ToolId) -> Option<String> {
        self.bound(tool).map(|bound| bound.semver)
    }

    fn declared(&self, tool: &ToolId) -> Option<Recovery> {
        self.bound(tool).map(|bound| bound.declared)
    }

    fn permit(&self, tool: &ToolId) -> Option<Permit> {
        self.bound(tool)?.executor.permit()
    }

    async fn execute(
        &self,
        admitted: Admitted,
        order: CallOrder,
        permit: Permit,
        progress: mpsc::Sender<CallProgress>,
    ) -> CallResult {
        let not_started = |code: &str, message: String| {
            let ending = CallEnding::NotStarted { code: code.to_owned(), message };
            CallResult { ending, measured: None, latency_ms: 0 }
        };
        let result = match self.bound(&order.tool_id) {
            Some(bound) if bound.semver == order.tool_semver => bound.executor.execute(admitted, order, progress).await,
            // Another executor has been bound since the call was admitted.
            Some(bound) => {
                let (tool, semver, admitted) = (&order.tool_id, &bound.semver, &order.tool_semver);
                let message = format!("`{tool}` is served in version {semver}, and {admitted} was admitted");
                not_started("tool-version-mismatch", message)
            }
            None => not_started("tool-not-served", format!("no executor serves `{}`", order.tool_id)),
        };
        drop(permit);
        result
    }

    async fn cancel(&self, tool: &ToolId, call: CallId) {
        if let Some(executor) = self.last(tool) {
            executor.cancel(call).await;
        }
    }

    async fn describe(&self, executor: &ExecutorRegistration) -> Result<Vec<DescribedTool>, ExecutorDenial> {
        self.described_by(executor).await
    }

    fn follow(&self, executors: &[RegisteredExecutor]) {
        self.use_registered(executors);
    }

    async fn outcome(&self, tool: &ToolId, call: CallId) -> KnownOutcome {
        match self.last(tool) {
            Some(executor) => executor.outcome(call).await,
            None => KnownOutcome::NotKept,
        }
    }
}
