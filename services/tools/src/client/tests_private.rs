//! Executors elsewhere: over TLS, and how long they are told that anybody waits.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use signalbox_domain::run::step::{CallEnding, CallResult};
use signalbox_tls::testing::Authority;
use signalbox_tls::{ClientTls, ServerFiles, ServerTls};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;

use super::testing::{Bench, HandClock, ScriptedTool, order};
use super::{BindError, CONCURRENCY_DEFAULT, Endpoint, ExecutorClient};
use crate::server::ToolServer;
use crate::tool::{Answer, Measured, ToolOutcome};

fn answering() -> ToolServer {
    ScriptedTool::new(|_, _| async { ToolOutcome::Ok(Answer::new(json!({}), Measured::new())) }).server()
}

/// An executor behind TLS, and its address.
async fn private(files: ServerFiles) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let tls = Arc::new(ServerTls::load(files).unwrap());
    tokio::spawn(crate::serve(listener, Some(tls), answering(), std::future::pending()));
    format!("https://localhost:{port}")
}

async fn bound(endpoint: Endpoint) -> Result<Bench, BindError> {
    let clock = Arc::new(HandClock::default());
    let client = ExecutorClient::connect_all([endpoint], CONCURRENCY_DEFAULT, clock.clone()).await?;
    Ok(Bench { client, clock })
}

fn is_answered(result: &CallResult) -> bool {
    matches!(result.ending, CallEnding::Answered { .. })
}

#[tokio::test]
async fn an_executor_is_called_over_tls_by_whom_it_trusts_and_if_it_is_trusted() {
    let (folder, other) = (tempfile::TempDir::new().unwrap(), tempfile::TempDir::new().unwrap());
    let (authority, stranger) = (Authority::new(folder.path()), Authority::new(other.path()));
    authority.issue("node");
    let secure = |uri: &String, files| Endpoint::Secure { uri: uri.clone(), tls: ClientTls::load(files).unwrap() };

    let open = private(authority.server("server")).await;
    let bench = bound(secure(&open, authority.client(None))).await.unwrap();
    assert!(is_answered(&bench.call(order(1)).await));
    let mutual = private(authority.mutual("server")).await;
    let bench = bound(secure(&mutual, authority.client(Some("node")))).await.unwrap();
    assert!(is_answered(&bench.call(order(2)).await));

    for (refused, why) in [
        (secure(&open, stranger.client(None)), "another authority"),
        (secure(&mutual, authority.client(None)), "no certificate"),
        (Endpoint::Uri(open.replace("https", "http")), "in clear"),
    ] {
        assert_eq!(bound(refused).await.err().map(|error| error.code()), Some("executor-not-described"), "{why}");
    }
    for wrong in [
        Endpoint::Uri(open.clone()),
        secure(&"http://localhost:1".to_owned(), authority.client(None)),
        secure(&"https://".to_owned(), authority.client(None)),
    ] {
        assert_eq!(bound(wrong).await.err().map(|error| error.code()), Some("executor-address-invalid"));
    }
}

#[tokio::test]
async fn every_request_says_how_long_its_answer_is_waited_for_and_a_call_no_longer_than_it_may_take() {
    let (uri, heard) = hearing("grpc-timeout").await;
    let bench = bound(Endpoint::Uri(uri)).await.unwrap();
    let mut short = order(1);
    short.timeout_ms = 2_000;
    assert!(is_answered(&bench.call(short).await));
    let waited: Vec<Duration> = heard.lock().unwrap().iter().map(|text| read(text.as_deref().unwrap())).collect();
    assert_eq!(waited.len(), 2, "describe and execute: {waited:?}");
    assert!(waited[1] <= Duration::from_secs(2) && waited[1] > Duration::ZERO, "{waited:?}");
}

#[tokio::test]
async fn an_executor_is_told_the_span_of_its_call_where_traces_are_recorded() {
    let (uri, heard) = hearing("traceparent").await;
    let bench = bound(Endpoint::Uri(uri)).await.unwrap();
    let mut traced = order(1);
    traced.trace = Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00".parse().unwrap());
    let said = traced.trace.map(|trace| trace.to_string());
    assert!(is_answered(&bench.call(order(2)).await) && is_answered(&bench.call(traced).await));
    assert_eq!(*heard.lock().unwrap(), [None, None, said], "describe, and two calls");
}

/// An executor that notes one header of each request, and where it listens.
async fn hearing(header: &'static str) -> (String, Arc<Mutex<Vec<Option<String>>>>) {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let ear = Arc::clone(&heard);
    let listen = tonic::service::InterceptorLayer::new(move |request: tonic::Request<()>| {
        let said = request.metadata().get(header).map(|value| value.to_str().unwrap().to_owned());
        ear.lock().unwrap().push(said);
        Ok(request)
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}", listener.local_addr().unwrap());
    let serving = crate::serve::builder().layer(listen).add_service(answering().service());
    tokio::spawn(serving.serve_with_incoming(TcpListenerStream::new(listener)));
    (uri, heard)
}

/// The header, as tonic's client writes it.
fn read(text: &str) -> Duration {
    let (digits, unit) = text.split_at(text.len() - 1);
    let n: u64 = digits.parse().unwrap();
    match unit {
        "n" => Duration::from_nanos(n),
        "u" => Duration::from_micros(n),
        "m" => Duration::from_millis(n),
        "S" => Duration::from_secs(n),
        other => panic!("{other}"),
    }
}
