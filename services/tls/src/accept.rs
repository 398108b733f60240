//! Accepting connections. Handshakes happen beside the accepting, have little time, and make room for newer ones, so that
//! somebody who connects and says nothing holds up nobody.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::{Connected, TcpConnectInfo};

use crate::ServerTls;

/// Connections that are accepted and not yet taken by the server.
const WAITING_MAX: usize = 64;
/// Rest after an accept that failed for want of something of this process, such as file descriptors.
const REST: Duration = Duration::from_millis(100);

/// Bounds on handshakes.
#[derive(Debug, Clone, Copy)]
pub struct AcceptLimits {
    /// How long one may take.
    pub handshake_within: Duration,
    /// How many may be under way at once; one more ends the oldest.
    pub handshakes_max: usize,
}

impl Default for AcceptLimits {
    fn default() -> Self {
        Self { handshake_within: Duration::from_secs(5), handshakes_max: 512 }
    }
}

/// A connection that is ready for requests.
#[derive(Debug)]
pub enum Connection {
    /// Without TLS.
    Plain(TcpStream),
    /// With TLS, after its handshake.
    Tls(Box<TlsStream<TcpStream>>),
}

/// The connections that come in at a listener, encrypted if there are certificates. Dropping the stream closes the
/// listener.
pub fn incoming(
    listener: TcpListener,
    tls: Option<Arc<ServerTls>>,
    limits: AcceptLimits,
) -> ReceiverStream<io::Result<Connection>> {
    let (ready, connections) = mpsc::channel(WAITING_MAX);
    tokio::spawn(async move {
        match tls {
            None => accept_plain(&listener, &ready).await,
            Some(tls) => {
                tokio::select! {
                    () = accept_private(&listener, &tls, limits, &ready) => {}
                    () = tls.keep_fresh() => {}
                }
            }
        }
    });
    ReceiverStream::new(connections)
}

async fn accept_plain(listener: &TcpListener, ready: &mpsc::Sender<io::Result<Connection>>) {
    while let Some((stream, _)) = next(listener, ready).await {
        if ready.send(Ok(Connection::Plain(stream))).await.is_err() {
            return;
        }
    }
}

async fn accept_private(
    listener: &TcpListener,
    tls: &ServerTls,
    limits: AcceptLimits,
    ready: &mpsc::Sender<io::Result<Connection>>,
) {
    let mut handshakes = JoinSet::new();
    let mut oldest_first: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let accepted = tokio::select! {
            accepted = next(listener, ready) => accepted,
            Some(_) = handshakes.join_next() => {
                oldest_first.retain(|handshake| !handshake.is_finished());
                continue;
            }
        };
        let Some((stream, peer)) = accepted else { return };
        if oldest_first.len() >= limits.handshakes_max
            && let Some(oldest) = oldest_first.pop_front()
        {
            oldest.abort();
        }
        let (acceptor, ready) = (tls.acceptor(), ready.clone());
        oldest_first.push_back(handshakes.spawn(async move {
            match tokio::time::timeout(limits.handshake_within, acceptor.accept(stream)).await {
                // An error of the sending means that the server has ended.
                Ok(Ok(stream)) => drop(ready.send(Ok(Connection::Tls(Box::new(stream)))).await),
                Ok(Err(error)) => tracing::debug!(%peer, %error, "a TLS handshake failed"),
                Err(_) => tracing::debug!(%peer, "a TLS handshake took too long"),
            }
        }));
    }
}

/// The next connection; `None` once nobody takes any.
async fn next(listener: &TcpListener, ready: &mpsc::Sender<io::Result<Connection>>) -> Option<(TcpStream, SocketAddr)> {
    loop {
        let accepted = tokio::select! {
            () = ready.closed() => return None,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                if let Err(error) = stream.set_nodelay(true) {
                    // It is gone already; the server will find out as with any other.
                    tracing::debug!(%peer, %error, "a connection could not be set up");
                }
                return Some((stream, peer));
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(REST).await;
            }
        }
    }
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;
    fn connect_info(&self) -> TcpConnectInfo {
        match self {
            Self::Plain(stream) => stream.connect_info(),
            Self::Tls(stream) => stream.get_ref().0.connect_info(),
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }
    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }
}
