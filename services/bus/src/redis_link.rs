//! One connection to Redis, from its handshake to the instant it is found dead.
//!
//! RESP3 lets one connection hear and speak, so the connection whose life is watched is the one that hears.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Msg, PushInfo, PushKind, RedisConnectionInfo, RedisError};
use signalbox_tls::ClientTls;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::heard::Heard;
use crate::message::{self, Sender};
use crate::redis_address::RedisAddress;

/// How long it may take until a connection hears.
const CONNECT_WITHIN: Duration = Duration::from_secs(3);
/// How long Redis may take to answer before the connection counts as dead.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// Why nothing is heard.
#[derive(Debug, thiserror::Error)]
pub enum BusError {
    /// Nobody there.
    #[error("no connection: {0}")]
    Connect(std::io::Error),
    /// It answers too late, or not at all.
    #[error("no answer within {} ms", .0.as_millis())]
    Silent(Duration),
    /// It refuses the node, is no Redis, or one older than 6.
    #[error("refused: {0}")]
    Refused(RedisError),
    /// The connection is gone.
    #[error("the connection was cut")]
    Cut,
    /// Redis counts no listener although this node listens.
    #[error("what is said is not heard by this node itself")]
    Deaf,
}

impl BusError {
    /// Stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Connect(_) | Self::Silent(_) | Self::Cut => "bus-unreachable",
            Self::Refused(_) | Self::Deaf => "bus-refused",
        }
    }
}

/// What a connection hears, and for whom.
#[derive(Debug, Clone)]
pub(crate) struct Ear {
    pub(crate) channel: String,
    pub(crate) sender: Sender,
    pub(crate) heard: Arc<Heard>,
}

/// A connection that hears.
pub(crate) struct Link {
    connection: MultiplexedConnection,
    cut: Arc<Notify>,
    driver: JoinHandle<()>,
}

impl Link {
    /// Connects and subscribes.
    pub(crate) async fn open(address: &RedisAddress, tls: Option<&ClientTls>, ear: &Ear) -> Result<Self, BusError> {
        timeout(CONNECT_WITHIN, Self::connect(address, tls, ear)).await.map_err(|_| BusError::Silent(CONNECT_WITHIN))?
    }

    async fn connect(address: &RedisAddress, tls: Option<&ClientTls>, ear: &Ear) -> Result<Self, BusError> {
        let stream = TcpStream::connect((address.host.as_str(), address.port)).await.map_err(BusError::Connect)?;
        stream.set_nodelay(true).map_err(BusError::Connect)?;
        let cut = Arc::new(Notify::new());
        let (connection, driver) = match tls {
            None => handshake(&address.login, stream, ear, &cut).await?,
            Some(tls) => {
                let stream = tls.wrap(&address.host, stream).await.map_err(BusError::Connect)?;
                handshake(&address.login, stream, ear, &cut).await?
            }
        };
        let mut link = Self { connection, cut, driver: tokio::spawn(driver) };
        link.connection.subscribe(ear.channel.as_str()).await.map_err(answer_lost)?;
        Ok(link)
    }

    /// Ready when the connection is known to be gone.
    pub(crate) async fn until_cut(&self) {
        self.cut.notified().await;
    }

    /// Finds out whether anybody is there.
    pub(crate) async fn ping(&mut self) -> Result<(), BusError> {
        redis::cmd("PING").query_async::<()>(&mut self.connection).await.map_err(answer_lost)
    }

    /// Says these messages on a channel that this connection hears.
    pub(crate) async fn publish(&mut self, channel: &str, messages: &[String]) -> Result<(), BusError> {
        let mut pipe = redis::pipe();
        for message in messages {
            pipe.cmd("PUBLISH").arg(channel).arg(message);
        }
        let heard: Vec<u64> = pipe.query_async(&mut self.connection).await.map_err(answer_lost)?;
        // This connection listens itself, so somebody hears, or it is no longer subscribed.
        if heard.contains(&0) { Err(BusError::Deaf) } else { Ok(()) }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

type Driver = Pin<Box<dyn Future<Output = ()> + Send>>;

async fn handshake<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    login: &RedisConnectionInfo,
    stream: S,
    ear: &Ear,
    cut: &Arc<Notify>,
) -> Result<(MultiplexedConnection, Driver), BusError> {
    let (ear, cut) = (ear.clone(), Arc::clone(cut));
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(ANSWER_WITHIN)).set_push_sender(
        move |push: PushInfo| -> Result<(), std::convert::Infallible> {
            listen(&ear, &cut, push);
            Ok(())
        },
    );
    let opened = MultiplexedConnection::new_with_config(login, stream, config).await;
    let (connection, driver) = opened.map_err(BusError::Refused)?;
    Ok((connection, Box::pin(driver)))
}

fn listen(ear: &Ear, cut: &Notify, push: PushInfo) {
    if push.kind == PushKind::Disconnection {
        cut.notify_one();
        return;
    }
    let Some(said) = Msg::from_push_info(push) else { return };
    if said.get_channel_name() != ear.channel {
        return;
    }
    match message::read(said.get_payload_bytes()) {
        Some((sender, _)) if sender == ear.sender => {}
        Some((_, notice)) => ear.heard.hear(notice),
        None => tracing::debug!(bytes = said.get_payload_bytes().len(), "the bus said something that is no notice"),
    }
}

fn answer_lost(error: RedisError) -> BusError {
    if error.is_timeout() {
        BusError::Silent(ANSWER_WITHIN)
    } else if error.is_io_error() || error.is_connection_dropped() {
        BusError::Cut
    } else {
        BusError::Refused(error)
    }
}
