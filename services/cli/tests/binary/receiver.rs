//! A receiver of webhooks on this machine, of a few lines: it keeps what comes in and answers as a test says.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// How a request is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reply {
    /// With this status.
    Status(u16),
    /// With this status, and `Retry-After`.
    Later(u16, u64),
    /// By a redirect to a path of the same receiver.
    Elsewhere(&'static str),
    /// With 200 and ten mebibytes.
    TenMebibytes,
    /// Not at all; the connection stays open.
    Nothing,
    /// By hanging up.
    HangUp,
}

/// A request.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) path: String,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }
    pub(crate) fn event(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
    /// True if the key has signed it: computed here from nothing but SHA-256.
    pub(crate) fn is_signed_with(&self, key: &[u8]) -> bool {
        let said = format!("{}.{}.", self.header("webhook-id"), self.header("webhook-timestamp"));
        let expected = format!("v1,{}", base64(&hmac(key, &[said.as_bytes(), &self.body].concat())));
        self.header("webhook-signature").split(' ').any(|signature| signature == expected)
    }
}

fn hmac(key: &[u8], message: &[u8]) -> Vec<u8> {
    assert!(key.len() <= 64);
    let pad = |byte: u8| (0..64).map(|at| key.get(at).copied().unwrap_or(0) ^ byte).collect::<Vec<u8>>();
    let inner = Sha256::digest([pad(0x36).as_slice(), message].concat());
    Sha256::digest([pad(0x5c).as_slice(), inner.as_slice()].concat()).to_vec()
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let word = three.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for at in 0..4 {
            let digit = DIGITS[(word >> (18 - 6 * at)) as usize & 63];
            text.push(if at <= three.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

/// The receiver. Its threads end with the test's process.
#[derive(Clone)]
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Received>>>,
}

impl Receiver {
    /// Listens; `answer` is told what came in, and how many came to the same path before.
    pub(crate) fn start(answer: impl Fn(&Received, usize) -> Reply + Send + Sync + 'static) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").unwrap(), answer)
    }

    pub(crate) fn on(
        listener: TcpListener,
        answer: impl Fn(&Received, usize) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let receiver = Self { address: listener.local_addr().unwrap(), seen: Arc::default() };
        let (seen, answer) = (Arc::clone(&receiver.seen), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (seen, answer) = (Arc::clone(&seen), Arc::clone(&answer));
                std::thread::spawn(move || serve(stream, &seen, answer.as_ref()));
            }
        });
        receiver
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// What came to a path, in order.
    pub(crate) fn at(&self, path: &str) -> Vec<Received> {
        self.seen.lock().unwrap().iter().filter(|request| request.path == path).cloned().collect()
    }

    /// Waits until so many have come to a path.
    pub(crate) fn wait(&self, path: &str, count: usize) -> Vec<Received> {
        let begun = Instant::now();
        loop {
            let seen = self.at(path);
            if seen.len() >= count {
                return seen;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "{path}: {} of {count}", seen.len());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn serve(stream: TcpStream, seen: &Mutex<Vec<Received>>, answer: &(dyn Fn(&Received, usize) -> Reply + Sync)) {
    let Some((mut stream, received)) = read(stream) else { return };
    let before = {
        let mut seen = seen.lock().unwrap();
        let before = seen.iter().filter(|known| known.path == received.path).count();
        seen.push(received.clone());
        before
    };
    let said = |status: u16, more: &str| {
        format!("HTTP/1.1 {status} Said\r\ncontent-length: 0\r\nconnection: close\r\n{more}\r\n").into_bytes()
    };
    // Whoever asked may have hung up.
    let _ = match answer(&received, before) {
        Reply::Status(status) => stream.write_all(&said(status, "")),
        Reply::Later(status, seconds) => stream.write_all(&said(status, &format!("retry-after: {seconds}\r\n"))),
        Reply::Elsewhere(path) => stream.write_all(&said(307, &format!("location: {path}\r\n"))),
        Reply::TenMebibytes => {
            let head = format!("HTTP/1.1 200 Said\r\ncontent-length: {}\r\n\r\n", 10 << 20);
            stream.write_all(&[head.into_bytes(), vec![b'x'; 10 << 20]].concat())
        }
        Reply::Nothing => {
            std::thread::sleep(Duration::from_secs(120));
            Ok(())
        }
        Reply::HangUp => Ok(()),
    };
}

fn read(stream: TcpStream) -> Option<(TcpStream, Received)> {
    let mut reader = BufReader::new(stream);
    let mut line = || {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|read| *read > 0).map(|_| line.trim_end().to_owned())
    };
    let path = line()?.split(' ').nth(1)?.to_owned();
    let mut headers = Vec::new();
    loop {
        match line()? {
            end if end.is_empty() => break,
            header => {
                let (name, value) = header.split_once(':')?;
                headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
            }
        }
    }
    let mut received = Received { path, headers, body: Vec::new() };
    received.body = vec![0; received.header("content-length").parse().ok()?];
    let mut body = std::mem::take(&mut received.body);
    reader.read_exact(&mut body).ok()?;
    received.body = body;
    Some((reader.into_inner(), received))
}
