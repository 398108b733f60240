//! A wire that can go dead without being cut: nothing more comes through, and nobody is told.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

pub(crate) struct Proxy {
    pub(crate) port: u16,
    dead: Arc<AtomicBool>,
}

impl Proxy {
    pub(crate) async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Self { port: listener.local_addr().unwrap().port(), dead: Arc::default() };
        let dead = Arc::clone(&proxy.dead);
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let Ok(far) = TcpStream::connect(("127.0.0.1", port)).await else { continue };
                let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
                tokio::spawn(pass(near_in, far_out, Arc::clone(&dead)));
                tokio::spawn(pass(far_in, near_out, Arc::clone(&dead)));
            }
        });
        proxy
    }

    pub(crate) fn goes_dead(&self, dead: bool) {
        self.dead.store(dead, Ordering::SeqCst);
    }
}

async fn pass(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    dead: Arc<AtomicBool>,
) {
    let mut bytes = vec![0; 64 * 1_024];
    let mut died = false;
    while let Ok(read @ 1..) = from.read(&mut bytes).await {
        died |= dead.load(Ordering::SeqCst);
        // What went into a dead wire does not come out when another is laid.
        if !died && to.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
    if died {
        // Nobody hears that one end has hung up.
        std::future::pending::<()>().await;
    }
}
