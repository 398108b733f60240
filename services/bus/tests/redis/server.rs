//! A Redis of a test's own.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Ended when it is dropped.
pub(crate) struct Redis {
    child: Option<Child>,
    pub(crate) port: u16,
    password: Option<&'static str>,
}

pub(crate) async fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port()
}

impl Redis {
    pub(crate) async fn start() -> Self {
        Self::with(free_port().await, None).await
    }

    pub(crate) async fn with(port: u16, password: Option<&'static str>) -> Self {
        let mut redis = Self { child: None, port, password };
        redis.start_again().await;
        redis
    }

    pub(crate) async fn start_again(&mut self) {
        let port = self.port.to_string();
        let mut command = Command::new("redis-server");
        command.args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", "/tmp"]);
        if let Some(password) = self.password {
            command.args(["--requirepass", password]);
        }
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        // Never skipped: a suite that is green because it could not be run is worth nothing.
        self.child = Some(child.unwrap_or_else(|error| panic!("redis-server: {error}; apt-get install redis-server")));
        for _ in 0..500 {
            if TcpStream::connect(("127.0.0.1", self.port)).await.is_ok() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("redis-server does not listen");
    }

    pub(crate) fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    pub(crate) fn url(&self) -> String {
        let login = self.password.map(|password| format!(":{password}@")).unwrap_or_default();
        format!("redis://{login}127.0.0.1:{}", self.port)
    }

    /// Says something as somebody else would, and returns the beginning of the answer.
    pub(crate) async fn say(&self, words: &[&[u8]]) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend(format!("${}\r\n", word.len()).into_bytes());
            bytes.extend_from_slice(word);
            bytes.extend_from_slice(b"\r\n");
        }
        stream.write_all(&bytes).await.unwrap();
        let mut answer = vec![0; 64 * 1_024];
        let read = stream.read(&mut answer).await.unwrap();
        String::from_utf8_lossy(&answer[..read]).into_owned()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.stop();
    }
}
