//! The connection to a server, and requests with a bound on their time.

use std::time::Duration;

use clap::Args;
use signalbox_proto::v1::run_service_client::RunServiceClient;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use url::Url;

use crate::failure::Failure;

/// The client of the runs service.
pub(crate) type Client = RunServiceClient<Channel>;

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
}

impl Connection {
    /// To an address.
    pub(crate) fn to(addr: String) -> Self {
        Self { addr }
    }
    /// Connects.
    pub(crate) async fn open(&self) -> Result<Client, Failure> {
        let addr = &self.addr;
        let invalid = || Failure::usage("addr-invalid", format!("`{addr}` is no address such as {ADDR_DEFAULT}"));
        let url = Url::parse(addr).map_err(|_| invalid())?;
        if url.scheme() != "http" || url.host().is_none() {
            return Err(invalid());
        }
        let endpoint = Endpoint::from_shared(addr.to_owned())
            .map_err(|_| invalid())?
            .connect_timeout(CONNECT_WITHIN)
            .http2_keep_alive_interval(KEEPALIVE_EVERY)
            .tcp_nodelay(true);
        let channel = endpoint
            .connect()
            .await
            .map_err(|_| Failure::new("server-unreachable", format!("nobody answers at {addr}")))?;
        Ok(Client::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX))
    }
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
