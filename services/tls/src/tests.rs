//! Both ends against each other, with certificates made on the spot.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_stream::StreamExt as _;

use crate::testing::Authority;
use crate::{AcceptLimits, ClientConnection, ClientFiles, ClientTls, Connection, ServerFiles, ServerTls, incoming};

/// An authority in a folder of its own.
struct Place {
    _folder: TempDir,
    authority: Authority,
}

impl Place {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let authority = Authority::new(folder.path());
        Self { _folder: folder, authority }
    }
    fn path(&self, name: &str) -> PathBuf {
        self.authority.path(name)
    }
    /// A client that trusts this authority, with its certificate of a name.
    fn client(&self, name: Option<&str>) -> ClientTls {
        ClientTls::load(self.authority.client(name)).unwrap()
    }
}

/// A server that repeats what it is told.
async fn echo(files: ServerFiles, limits: AcceptLimits) -> (u16, Arc<ServerTls>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let tls = Arc::new(ServerTls::load(files).unwrap());
    let mut connections = incoming(listener, Some(tls.clone()), limits);
    tokio::spawn(async move {
        while let Some(Ok(connection)) = connections.next().await {
            assert!(matches!(connection, Connection::Tls(_)));
            tokio::spawn(async move {
                let (mut from, mut to) = tokio::io::split(connection);
                let _ = tokio::io::copy(&mut from, &mut to).await;
            });
        }
    });
    (port, tls)
}

async fn repeats(connection: &mut ClientConnection) -> io::Result<()> {
    connection.write_all(b"hello").await?;
    let mut heard = [0; 5];
    connection.read_exact(&mut heard).await?;
    assert_eq!(&heard, b"hello");
    Ok(())
}

/// Connects and is understood: with TLS 1.3 a client hears only then whether its certificate was taken.
async fn talks(client: &ClientTls, host: &str, port: u16) -> io::Result<ClientConnection> {
    let stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let mut connection = client.connect(host, stream).await?;
    repeats(&mut connection).await?;
    Ok(connection)
}

#[tokio::test]
async fn a_server_is_trusted_by_its_authority_and_its_name_and_for_nothing_else() {
    let (place, elsewhere) = (Place::new(), Place::new());
    let (port, _) = echo(place.authority.server("server"), AcceptLimits::default()).await;
    talks(&place.client(None), "localhost", port).await.unwrap();
    assert!(talks(&elsewhere.client(None), "localhost", port).await.is_err(), "another authority");
    assert!(talks(&place.client(None), "example.org", port).await.is_err(), "another name");
    assert!(talks(&place.client(None), "[::1]", port).await.is_err(), "another address");
    let anybody = ClientTls::load(ClientFiles::default()).unwrap();
    assert!(talks(&anybody, "localhost", port).await.is_err(), "the machine does not trust this authority");
}

#[tokio::test]
async fn a_certificate_that_has_run_out_is_refused_at_either_end() {
    let place = Place::new();
    place.authority.issue_until("old", 2001);
    let (port, _) = echo(place.authority.server("old"), AcceptLimits::default()).await;
    assert!(talks(&place.client(None), "localhost", port).await.is_err(), "the server's");
    let (port, _) = echo(place.authority.mutual("server"), AcceptLimits::default()).await;
    assert!(talks(&place.client(Some("old")), "localhost", port).await.is_err(), "the client's");
}

#[tokio::test]
async fn where_client_certificates_are_asked_for_nobody_gets_in_without_one_of_that_authority() {
    let (place, elsewhere) = (Place::new(), Place::new());
    place.authority.issue("client");
    elsewhere.authority.issue("stranger");
    let (port, _) = echo(place.authority.mutual("server"), AcceptLimits::default()).await;
    talks(&place.client(Some("client")), "localhost", port).await.unwrap();
    assert!(talks(&place.client(None), "localhost", port).await.is_err(), "none");
    let stranger = ClientFiles { ca: Some(place.path("ca.pem")), ..elsewhere.authority.client(Some("stranger")) };
    assert!(talks(&ClientTls::load(stranger).unwrap(), "localhost", port).await.is_err(), "a stranger's");
}

#[tokio::test]
async fn changed_files_are_used_by_new_connections_while_old_ones_go_on_and_broken_ones_change_nothing() {
    let place = Place::new();
    let (port, tls) = echo(place.authority.server("server"), AcceptLimits::default()).await;
    let mut old = talks(&place.client(None), "localhost", port).await.unwrap();

    std::fs::write(place.path("server.pem"), "-----BEGIN CERTIFICATE-----\nhalf of").unwrap();
    let told = tls.refresh().unwrap_err();
    assert_eq!(told.code(), "tls-file-malformed");
    assert_eq!(tls.refresh(), Ok(false), "told once");
    talks(&place.client(None), "localhost", port).await.unwrap();

    let own = std::fs::read(place.path("ca.pem")).unwrap();
    let before = place.client(None);
    let other = Authority::new(place.authority.path("").as_path());
    assert_eq!((tls.refresh(), tls.refresh()), (Ok(true), Ok(false)));
    talks(&place.client(None), "localhost", port).await.unwrap();
    repeats(&mut old).await.unwrap();

    // The client looks at its own files too, before each connection.
    talks(&before, "localhost", port).await.unwrap();
    std::fs::write(other.path("ca.pem"), own).unwrap();
    assert!(talks(&before, "localhost", port).await.is_err(), "the old authority");
}

#[tokio::test]
async fn files_are_looked_at_without_being_told() {
    let place = Place::new();
    let (port, _) = echo(place.authority.server("server"), AcceptLimits::default()).await;
    let elsewhere = Place::new();
    for name in ["server.pem", "server.key"] {
        std::fs::copy(elsewhere.path(name), place.path(name)).unwrap();
    }
    for _ in 0..200 {
        if talks(&place.client(None), "localhost", port).await.is_err() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the new certificate is never shown");
}

#[tokio::test]
async fn whoever_connects_and_says_nothing_or_nonsense_holds_up_nobody() {
    let place = Place::new();
    let limits = AcceptLimits { handshake_within: Duration::from_millis(300), handshakes_max: 4 };
    let (port, _) = echo(place.authority.server("server"), limits).await;
    let mut silent = Vec::new();
    for _ in 0..8 {
        silent.push(TcpStream::connect(("127.0.0.1", port)).await.unwrap());
    }
    talks(&place.client(None), "localhost", port).await.unwrap();
    let mut plain = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut heard = Vec::new();
    let _ = plain.read_to_end(&mut heard).await;
    assert!(!heard.starts_with(b"HTTP"), "nothing is said in clear");
    for mut stream in silent {
        // Let go: by a newer one, or after its time.
        let ended = tokio::time::timeout(Duration::from_secs(20), stream.read(&mut [0; 64])).await.unwrap();
        assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    }
    talks(&place.client(None), "localhost", port).await.unwrap();
}

#[test]
fn files_that_are_of_no_use_are_refused_with_a_code_and_without_their_content() {
    let place = Place::new();
    place.authority.issue("other");
    std::fs::write(place.path("empty"), "").unwrap();
    std::fs::write(place.path("big"), vec![b'x'; (1 << 20) + 1]).unwrap();
    let key = std::fs::read_to_string(place.path("server.key")).unwrap();
    let server = |cert: &str, key: &str, client_ca: Option<&str>| {
        let client_ca = client_ca.map(|name| place.path(name));
        let error =
            ServerTls::load(ServerFiles { cert: place.path(cert), key: place.path(key), client_ca }).unwrap_err();
        assert!(!key.is_empty() && error.to_string().len() < 500, "{error}");
        error
    };
    let cases = [
        (server("missing", "server.key", None), "tls-file-unreadable"),
        (server("big", "server.key", None), "tls-file-unreadable"),
        (server("empty", "server.key", None), "tls-file-malformed"),
        (server("server.pem", "server.pem", None), "tls-file-malformed"),
        (server("server.key", "server.key", None), "tls-file-malformed"),
        (server("server.pem", "other.key", None), "tls-file-unusable"),
        (server("server.pem", "server.key", Some("empty")), "tls-file-malformed"),
        (server("server.pem", "server.key", Some("missing")), "tls-file-unreadable"),
    ];
    for (error, code) in cases {
        assert_eq!(error.code(), code, "{error}");
        assert!(key.lines().all(|line| !error.to_string().contains(line)), "{error}");
    }
    let half = ClientFiles { cert: Some(place.path("server.pem")), ..ClientFiles::default() };
    assert_eq!(ClientTls::load(half).unwrap_err().code(), "tls-key-missing");
}
