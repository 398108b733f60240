//! The server's end: who it is, and whose certificates its clients need.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::server::WebPkiClientVerifier;

use crate::TlsError;
use crate::files::{Built, Content, Fresh};

/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// What is spoken above TLS.
const ALPN: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Where a server's certificates are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerFiles {
    /// The certificate, followed by those that lead to its authority, in PEM.
    pub cert: PathBuf,
    /// Its private key, in PEM.
    pub key: PathBuf,
    /// Authorities of client certificates, in PEM. If given, a client without one of theirs is refused.
    pub client_ca: Option<PathBuf>,
}

/// A server's certificates, as new as their files.
pub struct ServerTls(Fresh<Acceptor>);

impl std::fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ServerTls(…)")
    }
}

/// TLS 1.2 and 1.3, as the library's defaults have them.
pub(crate) struct Acceptor(TlsAcceptor);

#[derive(PartialEq)]
pub(crate) struct Contents {
    cert: Content,
    key: Content,
    client_ca: Option<Content>,
}

impl Built for Acceptor {
    type Files = ServerFiles;
    type Contents = Contents;

    fn read(files: &ServerFiles) -> Result<Contents, TlsError> {
        let client_ca = files.client_ca.as_deref().map(Content::read).transpose()?;
        Ok(Contents { cert: Content::read(&files.cert)?, key: Content::read(&files.key)?, client_ca })
    }

    fn build(contents: &Contents) -> Result<Self, TlsError> {
        let provider = Arc::new(default_provider());
        let config = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| contents.cert.unusable(error))?;
        let config = match &contents.client_ca {
            None => config.with_no_client_auth(),
            Some(authorities) => {
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(authorities.roots()?), provider).build();
                config.with_client_cert_verifier(verifier.map_err(|error| authorities.unusable(error))?)
            }
        };
        // A key that is not the certificate's is refused here.
        let mut config = config
            .with_single_cert(contents.cert.certificates()?, contents.key.key()?)
            .map_err(|error| contents.key.unusable(error))?;
        config.alpn_protocols = ALPN.iter().map(|name| name.to_vec()).collect();
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }
}

impl ServerTls {
    /// Reads the files.
    ///
    /// # Errors
    /// If one of them is of no use, or the key is not the certificate's.
    pub fn load(files: ServerFiles) -> Result<Self, TlsError> {
        Fresh::load(files).map(Self)
    }

    /// What the next connection is accepted with.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.0.current().0.clone()
    }

    /// Looks at the files now. Connections that are open go on as they are.
    ///
    /// # Errors
    /// If they have changed and are of no use: what was there before stays in use.
    pub fn refresh(&self) -> Result<bool, TlsError> {
        self.0.refresh()
    }

    /// Looks at the files every other second, for ever, and says in the log what came of it.
    pub async fn keep_fresh(&self) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            match self.refresh() {
                Ok(false) => {}
                Ok(true) => tracing::info!("the TLS certificates have changed; new connections use the new ones"),
                Err(error) => {
                    let code = error.code();
                    tracing::error!(code, %error, "the TLS certificates have changed and are of no use; the old ones stay");
                }
            }
        }
    }
}
