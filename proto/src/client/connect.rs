//! How a server is reached: its address, what is shown to it, and how long is waited.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use signalbox_tls::{ClientConnection, ClientFiles, ClientTls};
use tokio::net::TcpStream;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Request, Status};

use super::{ANSWER_BYTES_MAX, Client, ClientError, Retry};
use crate::v1::run_service_client::RunServiceClient;

/// A connection that shows its credential with every request.
pub type Wire = InterceptedService<Channel, Credential>;

/// How long a connection may take to come about.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// How long a single answer may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// How often a silent connection is asked whether it is still there.
const KEEPALIVE_EVERY: Duration = Duration::from_secs(20);
/// The port of an https server whose address names none.
const HTTPS_PORT: u16 = 443;
/// The metadata that names a tenant, which only a platform operator may.
const TENANT_KEY: &str = "signalbox-tenant";

/// Where a server is, and how it is spoken to.
#[derive(Debug, Clone)]
pub struct Connect {
    addr: String,
    credential: Credential,
    files: ClientFiles,
    pub(super) answer_within: Duration,
    pub(super) retry: Retry,
}

/// What is shown with every request. It holds a secret, so nothing prints it.
#[derive(Clone, Default)]
pub struct Credential {
    bearer: Option<MetadataValue<Ascii>>,
    tenant: Option<MetadataValue<Ascii>>,
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential(…)")
    }
}

impl Interceptor for Credential {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(bearer) = &self.bearer {
            request.metadata_mut().insert("authorization", bearer.clone());
        }
        if let Some(tenant) = &self.tenant {
            request.metadata_mut().insert(TENANT_KEY, tenant.clone());
        }
        Ok(request)
    }
}

impl Connect {
    /// To an address such as `http://127.0.0.1:7420` or `https://signalbox.example:7420`.
    pub fn to(addr: impl Into<String>) -> Self {
        Self {
            addr: addr.into(),
            credential: Credential::default(),
            files: ClientFiles::default(),
            answer_within: ANSWER_WITHIN,
            retry: Retry::default(),
        }
    }

    /// Shows this bearer token. It goes over TLS, or to this machine, and nowhere else.
    ///
    /// # Errors
    /// A token with characters that no header takes; the token is not repeated.
    pub fn token(mut self, token: &str) -> Result<Self, ClientError> {
        let mut bearer: MetadataValue<Ascii> =
            format!("Bearer {}", token.trim()).parse().map_err(|_| ClientError::Credential("token"))?;
        bearer.set_sensitive(true);
        self.credential.bearer = Some(bearer);
        Ok(self)
    }

    /// Speaks for this tenant, which only a platform operator may.
    ///
    /// # Errors
    /// A name that no header takes.
    pub fn tenant(mut self, tenant: &str) -> Result<Self, ClientError> {
        self.credential.tenant = Some(tenant.parse().map_err(|_| ClientError::Credential("tenant"))?);
        Ok(self)
    }

    /// For an `https://` address: which authorities are trusted instead of those this machine trusts, and which
    /// certificate is shown.
    #[must_use]
    pub fn tls(mut self, files: ClientFiles) -> Self {
        self.files = files;
        self
    }

    /// How long a single answer may take; half a minute unless said.
    #[must_use]
    pub const fn answer_within(mut self, limit: Duration) -> Self {
        self.answer_within = limit;
        self
    }

    /// What is repeated, and how often.
    #[must_use]
    pub const fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// Connects, for any of the services.
    ///
    /// # Errors
    /// An address that is none, a certificate that cannot be read, or a server that does not answer.
    pub async fn wire(&self) -> Result<Wire, ClientError> {
        let (endpoint, secure) = self.endpoint()?;
        let connected = if secure {
            let tls = ClientTls::load(self.files.clone()).map_err(ClientError::Certificates)?;
            endpoint.connect_with_connector(private(tls)).await
        } else {
            endpoint.connect().await
        };
        let channel = connected.map_err(|error| failed(&self.addr, &error))?;
        Ok(InterceptedService::new(channel, self.credential.clone()))
    }

    /// Connects.
    ///
    /// # Errors
    /// As [`Connect::wire`].
    pub async fn open(self) -> Result<Client, ClientError> {
        let runs = RunServiceClient::new(self.wire().await?).max_decoding_message_size(ANSWER_BYTES_MAX);
        Ok(Client { runs, connect: self })
    }

    fn endpoint(&self) -> Result<(Endpoint, bool), ClientError> {
        let invalid = || ClientError::Address(self.addr.clone());
        let uri: Uri = self.addr.parse().map_err(|_| invalid())?;
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(invalid)?;
        let secure = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            Some(_) | None => return Err(invalid()),
        };
        if !secure && self.credential.bearer.is_some() && !is_this_machine(host) {
            return Err(ClientError::TokenInClear(self.addr.clone()));
        }
        let endpoint = Endpoint::from(uri)
            .connect_timeout(CONNECT_WITHIN)
            .http2_keep_alive_interval(KEEPALIVE_EVERY)
            .tcp_nodelay(true);
        Ok((endpoint, secure))
    }
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Connecting = Pin<Box<dyn Future<Output = Result<TokioIo<ClientConnection>, BoxError>> + Send>>;

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

/// Nobody answers, or whoever does is not spoken with.
fn failed(addr: &str, error: &tonic::transport::Error) -> ClientError {
    let addr = addr.to_owned();
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        if let Some(problem) = inner.downcast_ref::<TlsProblem>() {
            return ClientError::Tls { addr, problem: problem.to_string() };
        }
        cause = inner;
    }
    // The innermost cause says what matters: `transport error` alone helps nobody.
    ClientError::Unreachable { addr, why: cause.to_string() }
}

fn is_this_machine(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || bare.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_does_not_go_out_in_clear() {
        let to = |addr: &str| Connect::to(addr).token("FAKE-token").unwrap().endpoint().map(drop);
        assert!(matches!(to("http://signalbox.example:7420"), Err(ClientError::TokenInClear(_))));
        for here in ["http://127.0.0.1:1", "http://[::1]:1", "http://localhost:1"] {
            assert!(to(here).is_ok(), "{here}");
        }
        assert!(!format!("{:?}", Connect::to("http://a").token("FAKE-token").unwrap()).contains("FAKE"));
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for addr in ["", "nonsense", "ftp://a:1", "http://", "127.0.0.1:7420", "http://a b"] {
            assert!(matches!(Connect::to(addr).endpoint(), Err(ClientError::Address(_))), "{addr}");
        }
    }

    #[test]
    fn a_token_that_no_header_takes_is_refused_without_repeating_it() {
        let refused = Connect::to("http://a").token("FAKE\n-token").unwrap_err().to_string();
        assert!(!refused.contains("FAKE"), "{refused}");
    }
}
