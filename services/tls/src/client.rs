//! The client's end: which servers it trusts, and who it is.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls_platform_verifier::BuilderVerifierExt as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::TlsError;
use crate::files::{Built, Content, Fresh};

/// How long a handshake may take.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(5);
/// gRPC is HTTP/2.
const ALPN: &[u8] = b"h2";

/// An encrypted connection to a server that is who it says.
pub type ClientConnection = tokio_rustls::client::TlsStream<TcpStream>;

/// Where a client's certificates are. The default trusts what the machine trusts, and shows no certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientFiles {
    /// Authorities of servers, in PEM, instead of those the machine trusts.
    pub ca: Option<PathBuf>,
    /// The client's certificate, followed by those that lead to its authority, in PEM.
    pub cert: Option<PathBuf>,
    /// Its private key, in PEM.
    pub key: Option<PathBuf>,
}

/// A client's certificates, as new as their files. Cheap to clone.
#[derive(Clone)]
pub struct ClientTls(Arc<Fresh<Connector>>);

impl std::fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClientTls(…)")
    }
}

/// With HTTP/2, and with no protocol of its own.
struct Connector {
    http: TlsConnector,
    bare: TlsConnector,
}

#[derive(PartialEq)]
struct Contents {
    ca: Option<Content>,
    pair: Option<(Content, Content)>,
}

impl Built for Connector {
    type Files = ClientFiles;
    type Contents = Contents;

    fn read(files: &ClientFiles) -> Result<Contents, TlsError> {
        let pair = match (&files.cert, &files.key) {
            (None, None) => None,
            (Some(cert), Some(key)) => Some((Content::read(cert)?, Content::read(key)?)),
            (Some(_), None) | (None, Some(_)) => return Err(TlsError::HalfAPair),
        };
        Ok(Contents { ca: files.ca.as_deref().map(Content::read).transpose()?, pair })
    }

    fn build(contents: &Contents) -> Result<Self, TlsError> {
        let no_trust = |error: tokio_rustls::rustls::Error| TlsError::NoTrust(error.to_string());
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(no_trust)?;
        let config = match &contents.ca {
            Some(authorities) => config.with_root_certificates(authorities.roots()?),
            None => config.with_platform_verifier().map_err(no_trust)?,
        };
        let mut config = match &contents.pair {
            None => config.with_no_client_auth(),
            Some((cert, key)) => {
                config.with_client_auth_cert(cert.certificates()?, key.key()?).map_err(|error| key.unusable(error))?
            }
        };
        let bare = TlsConnector::from(Arc::new(config.clone()));
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(Self { http: TlsConnector::from(Arc::new(config)), bare })
    }
}

impl ClientTls {
    /// Reads the files.
    ///
    /// # Errors
    /// If one of them is of no use, or the key is not the certificate's.
    pub fn load(files: ClientFiles) -> Result<Self, TlsError> {
        Fresh::load(files).map(|fresh| Self(Arc::new(fresh)))
    }

    /// Makes a connection private, with certificates as they are by now. `host` is whom the server has to be; an IPv6
    /// address may stand in brackets, as in a URL.
    ///
    /// # Errors
    /// If the server is not trusted, does not take the client's certificate, or speaks no HTTP/2.
    pub async fn connect(&self, host: &str, stream: TcpStream) -> io::Result<ClientConnection> {
        self.refresh();
        let connection = shake_hands(&self.0.current().http, host, stream).await?;
        if connection.get_ref().1.alpn_protocol() != Some(ALPN) {
            return Err(io::Error::other("the server does not speak HTTP/2 over TLS"));
        }
        Ok(connection)
    }

    /// The same for a protocol that is not HTTP/2, such as that of Redis.
    ///
    /// # Errors
    /// If the server is not trusted, or does not take the client's certificate.
    pub async fn wrap(&self, host: &str, stream: TcpStream) -> io::Result<ClientConnection> {
        self.refresh();
        shake_hands(&self.0.current().bare, host, stream).await
    }

    fn refresh(&self) {
        if let Err(error) = self.0.refresh() {
            tracing::error!(code = error.code(), %error, "the TLS certificates have changed and are of no use; the old ones stay");
        }
    }
}

async fn shake_hands(connector: &TlsConnector, host: &str, stream: TcpStream) -> io::Result<ClientConnection> {
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let name = ServerName::try_from(bare.to_owned()).map_err(invalid)?;
    tokio::time::timeout(HANDSHAKE_WITHIN, connector.connect(name, stream)).await?
}
