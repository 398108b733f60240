//! A web of this machine alone, for tests: canned answers on 127.0.0.1, and names that lead there.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use signalbox_domain::governance::egress::HostExemption;
use signalbox_domain::governance::grant::Constraints;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::{Resolver, WebFetcher};

/// Names that lead where a test says.
#[derive(Default)]
pub(crate) struct Names(BTreeMap<String, Vec<IpAddr>>);

#[async_trait]
impl Resolver for Names {
    async fn resolve(&self, host: &str, _: u16) -> io::Result<Vec<IpAddr>> {
        self.0.get(host).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// A server that gives one answer for each path, and the requests it has seen.
pub(crate) struct Site {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Site {
    /// Serves whole HTTP answers by path; `None` is a server that never answers.
    pub(crate) async fn serve(answers: impl Fn(&str) -> Option<Vec<u8>> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (seen, answers) = (Arc::<Mutex<Vec<String>>>::default(), Arc::new(answers));
        let log = Arc::clone(&seen);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (log, answers) = (Arc::clone(&log), Arc::clone(&answers));
                tokio::spawn(async move {
                    let mut request = Vec::new();
                    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
                        if stream.read_buf(&mut request).await.unwrap_or(0) == 0 {
                            return;
                        }
                    }
                    let request = String::from_utf8_lossy(&request).into_owned();
                    let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
                    log.lock().unwrap().push(request);
                    match answers(&path) {
                        Some(answer) => {
                            let _ = stream.write_all(&answer).await;
                            let _ = stream.shutdown().await;
                        }
                        None => std::future::pending().await,
                    }
                });
            }
        });
        Self { address, seen }
    }
    pub(crate) fn requests(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
    /// A URL of this site under a name.
    pub(crate) fn url(&self, host: &str, path: &str) -> String {
        format!("http://{host}:{}{path}", self.address.port())
    }
}

/// A server that says `head` and then `piece` again and again, with a pause in between, for ever.
pub(crate) async fn dripping(head: Vec<u8>, piece: Vec<u8>, pause: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (head, piece) = (head.clone(), piece.clone());
            tokio::spawn(async move {
                // Whatever is said before the question would be no answer to it.
                let mut said = stream.read_buf(&mut Vec::new()).await.map(drop);
                if said.is_ok() {
                    said = stream.write_all(&head).await;
                }
                while said.is_ok() {
                    tokio::time::sleep(pause).await;
                    said = stream.write_all(&piece).await;
                }
            });
        }
    });
    address
}

/// A whole answer.
pub(crate) fn http(status: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut answer = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n", body.len());
    for (name, value) in headers {
        answer.push_str(&format!("{name}: {value}\r\n"));
    }
    answer.push_str("\r\n");
    [answer.as_bytes(), body].concat()
}

/// A fetcher for which `inside.test` and `other.test` lead to this machine by an operator's exemption, `evil.test` leads
/// there without one, and `rebind.test` has one good and one bad address.
pub(crate) fn fetcher() -> Arc<WebFetcher> {
    let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let names = [
        ("inside.test", vec![here]),
        ("other.test", vec![here]),
        ("evil.test", vec![here]),
        ("private.test", vec![IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1))]),
        ("rebind.test", vec![IpAddr::V4(Ipv4Addr::new(93, 184, 215, 14)), here]),
        ("empty.test", vec![]),
    ];
    let names = Names(names.map(|(name, addresses)| (name.to_owned(), addresses)).into());
    let exempt = ["inside.test", "other.test"]
        .map(|host| HostExemption { host: host.to_owned(), cidr: "127.0.0.0/8".parse().unwrap() });
    Arc::new(WebFetcher::new(exempt.into(), Arc::new(names)))
}

/// A grant for plain HTTP.
pub(crate) fn plain_http() -> Constraints {
    Constraints { schemes: Some(vec!["http".to_owned()]), ..Constraints::default() }
}
