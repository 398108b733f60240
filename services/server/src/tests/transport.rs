//! What the transport itself says: deadlines, messages that are too large or none at all, methods that do not exist,
//! health that follows the node, and TLS in front of it all.

use std::time::Duration;

use prost::Message;
use signalbox_domain::identity::Visibility;
use signalbox_proto::v1;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt as _;

use super::{fixture, reason, run_id, with_a_run};
use crate::fake::event;

fn get() -> v1::GetRunRequest {
    v1::GetRunRequest { run_id: run_id(1).to_string() }
}

fn with_timeout<T>(message: T, timeout: &'static str) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("grpc-timeout", timeout.parse().unwrap());
    request
}

/// What the server itself says; the usual client would lose patience first.
async fn ask(fixture: &super::Fixture, method: &str, timeout: &str, message: &impl Message) -> Status {
    let stream = TcpStream::connect(fixture.address).await.unwrap();
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::post(format!("http://{}/signalbox.v1.RunService/{method}", fixture.address))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("grpc-timeout", timeout)
        .body(())
        .unwrap();
    let (response, mut body) = client.send_request(request, false).unwrap();
    let mut frame = vec![0];
    frame.extend(u32::try_from(message.encoded_len()).unwrap().to_be_bytes());
    message.encode(&mut frame).unwrap();
    body.send_data(frame.into(), true).unwrap();
    let (head, mut body) = response.await.unwrap().into_parts();
    if let Some(status) = Status::from_header_map(&head.headers) {
        return status;
    }
    while let Some(data) = body.data().await {
        drop(data.unwrap());
    }
    Status::from_header_map(&body.trailers().await.unwrap().unwrap()).unwrap()
}

#[tokio::test]
async fn a_call_whose_deadline_has_passed_is_not_worked_on() {
    let fixture = with_a_run().await;
    let submission_json = br#"{"rootAgentId":"ref.research","plan":[]}"#.as_slice().into();
    let submit = v1::SubmitRunRequest { run_id: String::new(), submission_json };
    for passed in ["0m", "0H", "0n"] {
        let refused = ask(&fixture, "SubmitRun", passed, &submit).await;
        assert_eq!((refused.code(), reason(&refused).as_str()), (Code::DeadlineExceeded, "deadline-exceeded"));
    }
    assert!(fixture.node.submissions().is_empty());
    for nonsense in ["soon", "-1S", "999999999S"] {
        let refused = ask(&fixture, "SubmitRun", nonsense, &submit).await;
        assert_eq!((refused.code(), reason(&refused).as_str()), (Code::InvalidArgument, "deadline-invalid"));
    }
    assert!(fixture.node.submissions().is_empty());
    assert_eq!(ask(&fixture, "SubmitRun", "30S", &submit).await.code(), Code::Ok);
}

#[tokio::test]
async fn a_call_that_takes_longer_than_its_caller_waits_is_given_up() {
    let fixture = with_a_run().await;
    fixture.node.hang();
    let refused = ask(&fixture, "GetRun", "50m", &get()).await;
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::DeadlineExceeded, "deadline-exceeded"));
    assert!(fixture.node.until_given_up(Duration::from_secs(20)).await, "the node still works for nobody");
}

#[tokio::test]
async fn a_watch_ends_with_the_deadline_of_its_caller() {
    let mut fixture = with_a_run().await;
    let (feed, source) = mpsc::channel(1);
    fixture.node.watch_from(source);
    let watch = v1::WatchRunRequest { run_id: run_id(1).to_string(), after_seq: 0 };
    // The client's own clock would end the wait for the headers only.
    let mut stream = fixture.client.watch_run(with_timeout(watch, "300m")).await.unwrap().into_inner();
    let ended = stream.message().await.unwrap_err();
    assert_eq!((ended.code(), reason(&ended).as_str()), (Code::DeadlineExceeded, "deadline-exceeded"));
    fixture.until_watches_are_free().await;
    drop(feed);
}

#[tokio::test]
async fn a_cursor_behind_the_last_event_is_refused_with_what_there_is_and_the_last_one_is_not() {
    let mut fixture = with_a_run().await;
    fixture.node.record((1..=6).map(|seq| event(seq, Visibility::Customer)).collect());
    let watch = |after_seq| v1::WatchRunRequest { run_id: run_id(1).to_string(), after_seq };
    for unknown in [7, 1 << 40, u64::MAX] {
        let refused = fixture.client.watch_run(watch(unknown)).await.unwrap_err();
        assert_eq!((refused.code(), reason(&refused).as_str()), (Code::InvalidArgument, "cursor-unknown"));
        assert_eq!(refused.get_details_error_info().unwrap().metadata["lastSeq"], "6");
        assert_eq!(super::field(&refused), "after_seq");
        fixture.until_watches_are_free().await;
    }
    assert!(fixture.client.watch_run(watch(6)).await.is_ok());
}

#[tokio::test]
async fn a_message_that_is_too_large_is_refused_with_a_code() {
    let mut fixture = fixture().await;
    let large =
        |bytes: usize| v1::SubmitRunRequest { run_id: String::new(), submission_json: vec![b' '; bytes].into() };
    for (bytes, code) in
        [((4 << 20) + 1, "message-too-large"), (20 << 20, "message-too-large"), (4_000_000, "json-too-large")]
    {
        let refused = fixture.client.submit_run(large(bytes)).await.unwrap_err();
        assert_eq!((refused.code(), reason(&refused).as_str()), (Code::ResourceExhausted, code), "{bytes}");
    }
    assert!(fixture.node.submissions().is_empty());
}

#[tokio::test]
async fn bytes_that_are_no_message_and_methods_that_do_not_exist_are_refused_with_a_code() {
    let fixture = with_a_run().await;
    // A client whose messages are any bytes: `bytes` is encoded as it is.
    let ask = async |path: &'static str, bytes: Vec<u8>| {
        let mut grpc = tonic::client::Grpc::new(fixture.channel.clone());
        grpc.ready().await.unwrap();
        let path = http::uri::PathAndQuery::from_static(path);
        grpc.unary(Request::new(bytes), path, super::raw::RawCodec).await.unwrap_err()
    };
    let malformed = ask("/signalbox.v1.RunService/GetRun", vec![0xff; 40]).await;
    assert_eq!((malformed.code(), reason(&malformed).as_str()), (Code::InvalidArgument, "message-malformed"));
    let not_text = ask("/signalbox.v1.RunService/GetRun", vec![0x0a, 2, 0xc3, 0x28]).await;
    assert_eq!((not_text.code(), reason(&not_text).as_str()), (Code::InvalidArgument, "message-malformed"));
    for path in ["/signalbox.v1.RunService/Nothing", "/signalbox.v9.RunService/GetRun", "/x"] {
        let unknown = ask(path, Vec::new()).await;
        assert_eq!((unknown.code(), reason(&unknown).as_str()), (Code::Unimplemented, "no-such-method"), "{path}");
    }
}

#[tokio::test]
async fn health_follows_what_the_node_says_of_itself_for_the_server_and_for_the_service() {
    let fixture = with_a_run().await;
    let mut health = HealthClient::new(fixture.channel.clone());
    let mut followed =
        health.watch(HealthCheckRequest { service: "signalbox.v1.RunService".to_owned() }).await.unwrap().into_inner();
    assert_eq!(followed.message().await.unwrap().unwrap().status, 1);
    fixture.node.ready(false);
    assert_eq!(followed.message().await.unwrap().unwrap().status, 2);
    assert_eq!(health.check(HealthCheckRequest::default()).await.unwrap().into_inner().status, 2);
    fixture.node.ready(true);
    assert_eq!(followed.message().await.unwrap().unwrap().status, 1);
}

/// The clock is paused, and goes on by itself while nothing else does: the wait costs no time.
#[tokio::test(start_paused = true)]
async fn a_connection_whose_other_end_says_nothing_any_more_is_closed() {
    const PING: u8 = 6;
    let fixture = fixture().await;
    let mut stream = TcpStream::connect(fixture.address).await.unwrap();
    // The preface and empty settings, and from then on not a word: as a machine that was switched off.
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let began = tokio::time::Instant::now();
    let mut pinged = None;
    loop {
        let mut head = [0; 9];
        if stream.read_exact(&mut head).await.is_err() {
            break;
        }
        let mut body = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
        stream.read_exact(&mut body).await.unwrap();
        if head[3] == PING {
            pinged.get_or_insert(began.elapsed());
        }
    }
    assert!(pinged.is_some_and(|after| after >= Duration::from_secs(30)), "{pinged:?}");
    assert!(began.elapsed() < Duration::from_secs(120), "{:?}", began.elapsed());
}
