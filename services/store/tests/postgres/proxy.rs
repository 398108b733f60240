//! A link to the server that can be cut, at the moment that hurts most.

use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::database::Database;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Link {
    Up,
    /// Every connection ends, and a new one ends at once.
    Down,
    /// The next COMMIT never reaches the server.
    CutBeforeCommit,
    /// The next COMMIT reaches the server, and its answer never comes back.
    CutAfterCommit,
    /// The node stops with its COMMIT on its lips: the connection stays, and nothing comes any more.
    StopBeforeCommit,
}

pub(crate) struct Proxy {
    port: u16,
    link: Arc<watch::Sender<Link>>,
}

impl Proxy {
    pub(crate) async fn to(database: &Database) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, link) = (listener.local_addr().unwrap().port(), Arc::new(watch::Sender::new(Link::Up)));
        let (address, accepting) = (database.address(), Arc::clone(&link));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(relay(client, address.clone(), Arc::clone(&accepting)));
            }
        });
        Self { port, link }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn set(&self, link: Link) {
        self.link.send_replace(link);
    }

    /// True once the cut that was asked for has been made.
    pub(crate) fn is_up(&self) -> bool {
        *self.link.borrow() == Link::Up
    }
}

/// Carries bytes both ways until one side or the link ends. Both sockets close with it.
async fn relay(mut client: TcpStream, address: (String, u16), link: Arc<watch::Sender<Link>>) {
    let mut changes = link.subscribe();
    if *changes.borrow_and_update() == Link::Down {
        return;
    }
    let Ok(mut server) = TcpStream::connect(address).await else { return };
    let (mut up, mut down) = (vec![0; 65_536], vec![0; 65_536]);
    loop {
        tokio::select! {
            _ = changes.changed() => {
                if *changes.borrow() == Link::Down {
                    return;
                }
            }
            read = client.read(&mut up) => {
                let Ok(length @ 1..) = read else { return };
                let is_commit = up[..length].windows(7).any(|bytes| bytes == b"COMMIT\0");
                let cut = if is_commit { take_cut(&link) } else { None };
                if cut == Some(Link::CutBeforeCommit) {
                    return;
                }
                if cut == Some(Link::StopBeforeCommit) {
                    // Until the server has had enough of waiting.
                    while matches!(server.read(&mut down).await, Ok(1..)) {}
                    return;
                }
                if server.write_all(&up[..length]).await.is_err() {
                    return;
                }
                if cut == Some(Link::CutAfterCommit) {
                    // Only once the server has answered is it sure to have committed.
                    let _ = server.read(&mut down).await;
                    return;
                }
            }
            read = server.read(&mut down) => {
                let Ok(length @ 1..) = read else { return };
                if client.write_all(&down[..length]).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// The cut that is to be made at this COMMIT, if one is: it is made once.
fn take_cut(link: &watch::Sender<Link>) -> Option<Link> {
    let mut cut = None;
    link.send_if_modified(|link| {
        if matches!(link, Link::CutBeforeCommit | Link::CutAfterCommit | Link::StopBeforeCommit) {
            cut = Some(std::mem::replace(link, Link::Up));
        }
        cut.is_some()
    });
    cut
}
