//! HTTP over a real connection, spoken by hand so that anything can be said.

mod admin;
mod contract;
mod described;
mod events;
mod feedback;
mod fuzz;
mod ladder;
mod node;
mod rates;
mod repeats;
mod resources;
mod strict;

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// What was answered.
#[derive(Debug, Clone)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Reply {
    fn read(bytes: &[u8]) -> Self {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or_else(|| panic!("{bytes:?}"));
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers: Vec<(String, String)> = lines
            .map(|line| line.split_once(": ").unwrap())
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let mut reply = Self { status, headers, body: bytes[end + 4..].to_vec() };
        if reply.header("transfer-encoding") == "chunked" {
            reply.body = whole(&reply.body);
        }
        reply
    }
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
    pub(super) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }
    /// Status and code of a problem, after checking that it is one.
    pub(super) fn problem(&self) -> (u16, String) {
        assert_eq!(self.header("content-type"), "application/problem+json", "{}", self.text());
        let problem = self.json();
        let code = problem["code"].as_str().unwrap().to_owned();
        assert_eq!(problem["status"], self.status);
        assert_eq!(problem["type"], format!("urn:signalbox:problem:{code}"));
        assert_eq!(problem["requestId"], self.header("x-request-id"));
        assert!(!problem["title"].as_str().unwrap().is_empty() && problem["details"].is_object());
        assert!(!problem["detail"].as_str().unwrap().is_empty());
        (self.status, code)
    }
    pub(super) fn field(&self) -> String {
        self.json()["details"]["field"].as_str().unwrap_or_default().to_owned()
    }
}

// As far as it goes: a stream may be cut anywhere.
fn whole(mut chunked: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = chunked.windows(2).position(|two| two == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&chunked[..end]).unwrap(), 16).unwrap();
        if size == 0 || chunked.len() < end + 2 + size {
            break;
        }
        body.extend_from_slice(&chunked[end + 2..end + 2 + size]);
        chunked = chunked.get(end + 4 + size..).unwrap_or_default();
    }
    body
}

/// Sends any bytes and reads until the server closes.
pub(super) async fn raw(address: SocketAddr, bytes: &[u8]) -> Reply {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // A server that refuses early may have closed before it was told everything.
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    Reply::read(&answer)
}

pub(super) fn head(method: &str, target: &str, headers: &[(&str, &str)]) -> String {
    let mut head = format!("{method} {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head
}

/// A request without a body.
pub(super) async fn ask(address: SocketAddr, method: &str, target: &str, headers: &[(&str, &str)]) -> Reply {
    raw(address, format!("{}\r\n", head(method, target, headers)).as_bytes()).await
}

pub(super) async fn get(address: SocketAddr, target: &str) -> Reply {
    ask(address, "GET", target, &[]).await
}

/// A request with any body.
pub(super) async fn send(address: SocketAddr, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
    let mut bytes = head("POST", target, headers).into_bytes();
    bytes.extend_from_slice(format!("content-length: {}\r\n\r\n", body.len()).as_bytes());
    bytes.extend_from_slice(body);
    raw(address, &bytes).await
}

pub(super) const JSON: (&str, &str) = ("content-type", "application/json");

pub(super) async fn post(address: SocketAddr, target: &str, body: &Value) -> Reply {
    send(address, target, &[JSON], body.to_string().as_bytes()).await
}
