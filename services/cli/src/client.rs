//! The connection to a server, and requests with a bound on their time.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use clap::Args;
use hyper_util::rt::TokioIo;
use signalbox_proto::v1::governance_service_client::GovernanceServiceClient;
use signalbox_proto::v1::run_service_client::RunServiceClient;
use signalbox_tls::{ClientConnection, ClientFiles, ClientTls};
use tokio::net::TcpStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Request, Status};
use url::Url;

use crate::failure::Failure;

/// The client of the runs service.
pub(crate) type Client = RunServiceClient<Channel>;

/// The client of the governance service.
pub(crate) type Governance = GovernanceServiceClient<Channel>;

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Connecting = Pin<Box<dyn Future<Output = Result<TokioIo<ClientConnection>, BoxError>> + Send>>;

/// The port of a server whose address names none.
const HTTPS_PORT: u16 = 443;
/// Where a server is looked for unless something else is said.
pub(crate) const ADDR_DEFAULT: &str = "http://127.0.0.1:7420";

/// How long a connection may take to come about.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// How long a single answer may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// How often a silent connection is asked whether it is still there.
const KEEPALIVE_EVERY: Duration = Duration::from_secs(20);
/// Largest answer that is read: the envelope of a big run.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// Which server is asked, and how it is reached.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub(crate) struct Connection {
    /// The server that is asked.
    #[arg(long, global = true, env = "SIGNALBOX_ADDR", default_value = ADDR_DEFAULT, value_name = "URL")]
    addr: String,
    /// Authorities of an https:// server, in PEM, instead of those this machine trusts.
    #[arg(long, global = true, env = "SIGNALBOX_CA", value_name = "FILE")]
    ca: Option<PathBuf>,
    /// The certificate to show to a server that asks for one, in PEM.
    #[arg(long, global = true, env = "SIGNALBOX_CLIENT_CERT", value_name = "FILE")]
    client_cert: Option<PathBuf>,
    /// The private key of that certificate, in PEM.
    #[arg(long, global = true, env = "SIGNALBOX_CLIENT_KEY", value_name = "FILE")]
    client_key: Option<PathBuf>,
}

impl Connection {
    /// To an address.
    pub(crate) fn to(addr: String) -> Self {
        Self { addr, ca: None, client_cert: None, client_key: None }
    }
    fn tls(&self) -> Result<ClientTls, Failure> {
        let files = ClientFiles { ca: self.ca.clone(), cert: self.client_cert.clone(), key: self.client_key.clone() };
        ClientTls::load(files).map_err(|error| Failure::usage(error.code(), error.to_string()))
    }
    /// Connects to the server's runs.
    pub(crate) async fn open(&self) -> Result<Client, Failure> {
        Ok(Client::new(self.channel().await?).max_decoding_message_size(ANSWER_BYTES_MAX))
    }
    /// Connects to the server's governance.
    pub(crate) async fn governance(&self) -> Result<Governance, Failure> {
        Ok(Governance::new(self.channel().await?).max_decoding_message_size(ANSWER_BYTES_MAX))
    }
    async fn channel(&self) -> Result<Channel, Failure> {
        let addr = &self.addr;
        let invalid = || Failure::usage("addr-invalid", format!("`{addr}` is no address such as {ADDR_DEFAULT}"));
        let url = Url::parse(addr).map_err(|_| invalid())?;
        if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
            return Err(invalid());
        }
        let endpoint = Endpoint::from_shared(addr.to_owned())
            .map_err(|_| invalid())?
            .connect_timeout(CONNECT_WITHIN)
            .http2_keep_alive_interval(KEEPALIVE_EVERY)
            .tcp_nodelay(true);
        let channel = match url.scheme() {
            "https" => endpoint.connect_with_connector(private(self.tls()?)).await,
            _ => endpoint.connect().await,
        };
        channel.map_err(|error| unreachable(addr, &error))
    }
}

/// Nobody answers, or whoever does is not spoken with.
fn unreachable(addr: &str, error: &tonic::transport::Error) -> Failure {
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if let Some(problem) = error.downcast_ref::<TlsProblem>() {
            let next = "see --ca, --client-cert and --client-key, and whether the server speaks TLS at all";
            return Failure::new("tls-failed", format!("{addr}: {problem}")).next(next);
        }
        cause = error.source();
    }
    Failure::new("server-unreachable", format!("nobody answers at {addr}"))
}

/// Somebody answered, and no private connection came about.
#[derive(Debug, thiserror::Error)]
#[error("no private connection comes about: {0}")]
struct TlsProblem(std::io::Error);

/// Connects and makes the connection private.
fn private(
    tls: ClientTls,
) -> impl tower::Service<Uri, Response = TokioIo<ClientConnection>, Error = BoxError, Future = Connecting> + Send + 'static
{
    tower::service_fn(move |uri: Uri| -> Connecting {
        let tls = tls.clone();
        Box::pin(async move {
            let host = uri.host().unwrap_or_default();
            let bare = host.trim_start_matches('[').trim_end_matches(']');
            let stream = TcpStream::connect((bare, uri.port_u16().unwrap_or(HTTPS_PORT))).await?;
            stream.set_nodelay(true)?;
            Ok(TokioIo::new(tls.connect(host, stream).await.map_err(TlsProblem)?))
        })
    })
}

/// A request whose answer must come within half a minute.
pub(crate) fn timed<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(ANSWER_WITHIN);
    request
}

/// How often a command that is durable and not answered yet is asked for again.
const PENDING_TRIES: usize = 3;

/// Sends a command until the run has answered it. Saying it again is harmless, because it carries its id.
pub(crate) async fn until_answered<T>(send: impl AsyncFn() -> Result<T, Status>) -> Result<T, Failure> {
    for _ in 1..PENDING_TRIES {
        match send().await.map_err(Failure::from) {
            Err(failure) if failure.code == "answer-pending" => {}
            answered => return answered,
        }
    }
    send().await.map_err(Failure::from)
}
