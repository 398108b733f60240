//! The edge behind TLS: the one port, for those who may.

use std::sync::Arc;

use hyper_util::rt::TokioIo;
use signalbox_proto::v1;
use signalbox_proto::v1::run_service_client::RunServiceClient;
use signalbox_tls::testing::Authority;
use signalbox_tls::{ClientFiles, ClientTls, ServerFiles, ServerTls};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tonic::transport::{Channel, Endpoint, Uri};

use super::{Fixture, STALL, fixture_behind, hold_a_run, run_id};

/// An edge behind TLS, with a run.
async fn private(files: ServerFiles) -> Fixture {
    let fixture = fixture_behind(STALL, Some(Arc::new(ServerTls::load(files).unwrap()))).await;
    hold_a_run(&fixture);
    fixture
}

async fn channel(fixture: &Fixture, files: ClientFiles) -> Result<Channel, tonic::transport::Error> {
    let (tls, address) = (ClientTls::load(files).unwrap(), fixture.address);
    let connector = tower::service_fn(move |_: Uri| {
        let tls = tls.clone();
        async move {
            let stream = TcpStream::connect(address).await?;
            tls.connect("localhost", stream).await.map(TokioIo::new)
        }
    });
    Endpoint::from_static("https://localhost").connect_with_connector(connector).await
}

async fn asks(fixture: &Fixture, files: ClientFiles) -> bool {
    let Ok(channel) = channel(fixture, files).await else { return false };
    let get = v1::GetRunRequest { run_id: run_id(1).to_string() };
    RunServiceClient::new(channel).get_run(get).await.is_ok()
}

#[tokio::test]
async fn whoever_trusts_the_server_is_served_and_nothing_is_said_in_clear() {
    let (folder, other) = (tempfile::TempDir::new().unwrap(), tempfile::TempDir::new().unwrap());
    let (authority, stranger) = (Authority::new(folder.path()), Authority::new(other.path()));
    let fixture = private(authority.server("server")).await;
    assert!(asks(&fixture, authority.client(None)).await);
    assert!(!asks(&fixture, stranger.client(None)).await, "the client does not trust it");
    // The fixture's own client speaks in clear.
    let get = v1::GetRunRequest { run_id: run_id(1).to_string() };
    assert!(fixture.client.clone().get_run(get).await.is_err());
    let mut plain = TcpStream::connect(fixture.address).await.unwrap();
    plain.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    let mut heard = Vec::new();
    let _ = plain.read_to_end(&mut heard).await;
    // At most the alert of TLS, which is seven bytes.
    assert!(heard.len() <= 7, "{heard:?}");
}

#[tokio::test]
async fn where_certificates_are_asked_for_nobody_is_served_without_one() {
    let folder = tempfile::TempDir::new().unwrap();
    let authority = Authority::new(folder.path());
    authority.issue("service");
    authority.issue_until("old", 2001);
    let fixture = private(authority.mutual("server")).await;
    assert!(asks(&fixture, authority.client(Some("service"))).await);
    assert!(!asks(&fixture, authority.client(None)).await, "none");
    assert!(!asks(&fixture, authority.client(Some("old"))).await, "one that has run out");
}

#[tokio::test]
async fn a_connection_outlives_the_certificate_it_was_made_with_and_new_ones_see_the_new_one() {
    let folder = tempfile::TempDir::new().unwrap();
    let authority = Authority::new(folder.path());
    let tls = Arc::new(ServerTls::load(authority.server("server")).unwrap());
    let fixture = fixture_behind(STALL, Some(tls.clone())).await;
    hold_a_run(&fixture);
    let old = authority.client(None);
    let open = channel(&fixture, old.clone()).await.unwrap();
    let kept = folder.path().join("kept.pem");
    std::fs::copy(folder.path().join("ca.pem"), &kept).unwrap();
    let renewed = Authority::new(folder.path());
    // The server looks by itself every other second; here it is told.
    let _ = tls.refresh();
    let get = v1::GetRunRequest { run_id: run_id(1).to_string() };
    assert!(RunServiceClient::new(open).get_run(get).await.is_ok(), "the open connection goes on");
    assert!(asks(&fixture, renewed.client(None)).await, "the new certificate is shown");
    assert!(!asks(&fixture, ClientFiles { ca: Some(kept), ..old }).await, "the old one is not");
}
