//! Watches: cursors, visibility, slow readers, draining; and health beside them.

use std::sync::Arc;
use std::time::Duration;

use signalbox_domain::identity::Visibility;
use signalbox_ports::journal::StoreError;
use signalbox_proto::v1;
use signalbox_proto::v1::watch_run_response::Item;
use tokio::sync::mpsc;
use tonic::{Code, Streaming};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt;

use signalbox_domain::run::progress::ProgressKind;

use super::progress::line;
use super::{as_role, fixture_with, hold_a_run, reason, run_id, with_a_run};
use crate::api::{ApiError, WatchItem};
use crate::fake::event;

fn watch(after_seq: u64) -> v1::WatchRunRequest {
    v1::WatchRunRequest { run_id: run_id(1).to_string(), after_seq }
}

async fn next_seq(stream: &mut Streaming<v1::WatchRunResponse>) -> Option<u64> {
    match stream.message().await.unwrap()?.item? {
        Item::Event(event) => Some(event.seq),
        Item::Progress(_) => Some(0),
    }
}

async fn all_seqs(stream: &mut Streaming<v1::WatchRunResponse>) -> Vec<u64> {
    let mut seqs = Vec::new();
    while let Some(seq) = next_seq(stream).await {
        seqs.push(seq);
    }
    seqs
}

fn metadata(status: &tonic::Status, key: &str) -> String {
    status.get_details_error_info().and_then(|info| info.metadata.get(key).cloned()).unwrap_or_default()
}

#[tokio::test]
async fn a_client_that_reconnects_with_its_cursor_misses_nothing_and_sees_nothing_twice() {
    let mut fixture = with_a_run().await;
    fixture.node.record((1..=6).map(|seq| event(seq, Visibility::Customer)).collect());
    for cut in 0..=6 {
        let mut first = fixture.client.watch_run(watch(0)).await.unwrap().into_inner();
        let mut seen = Vec::new();
        for _ in 0..cut {
            seen.extend(next_seq(&mut first).await);
        }
        drop(first);
        let cursor = seen.last().copied().unwrap_or(0);
        let mut second = fixture.client.watch_run(watch(cursor)).await.unwrap().into_inner();
        seen.extend(all_seqs(&mut second).await);
        assert_eq!(seen, [1, 2, 3, 4, 5, 6], "cut after {cut}");
        // Both watches are over once the server has noticed; the next round needs their places.
        fixture.until_watches_are_free().await;
    }
}

#[tokio::test]
async fn a_caller_sees_events_up_to_its_standing_and_no_higher() {
    let mut fixture = with_a_run().await;
    let levels = [Visibility::Customer, Visibility::Creator, Visibility::TenantOperator, Visibility::PlatformOperator];
    fixture.node.record((1..).zip(levels).map(|(seq, level)| event(seq, level)).collect());
    for (role, expected) in [("customer", vec![1]), ("creator", vec![1, 2]), ("tenant-operator", vec![1, 2, 3])] {
        let mut stream = fixture.client.watch_run(as_role(role, watch(0))).await.unwrap().into_inner();
        assert_eq!(all_seqs(&mut stream).await, expected, "{role}");
        fixture.until_watches_are_free().await;
    }
    let mut stream = fixture.client.watch_run(watch(0)).await.unwrap().into_inner();
    assert_eq!(all_seqs(&mut stream).await, [1, 2, 3, 4]);
}

#[tokio::test]
async fn the_words_of_a_running_tool_are_shown_from_operators_of_the_tenant_up() {
    let mut fixture = with_a_run().await;
    for (role, expected) in [("customer", vec![1]), ("tenant-operator", vec![0, 1])] {
        let (feed, source) = mpsc::channel(4);
        feed.try_send(Ok(line(ProgressKind::ToolCalled))).unwrap();
        feed.try_send(Ok(WatchItem::Event(Arc::new(event(1, Visibility::Customer))))).unwrap();
        drop(feed);
        fixture.node.watch_from(source);
        let mut stream = fixture.client.watch_run(as_role(role, watch(0))).await.unwrap().into_inner();
        assert_eq!(all_seqs(&mut stream).await, expected, "{role}");
        fixture.until_watches_are_free().await;
    }
}

#[tokio::test]
async fn an_error_of_the_source_ends_the_watch_with_its_code_and_the_cursor() {
    let mut fixture = with_a_run().await;
    let (feed, source) = mpsc::channel(4);
    feed.try_send(Ok(WatchItem::Event(Arc::new(event(1, Visibility::Customer))))).unwrap();
    feed.try_send(Err(ApiError::Store(StoreError::Unavailable("away".to_owned())))).unwrap();
    fixture.node.watch_from(source);
    let mut stream = fixture.client.watch_run(watch(0)).await.unwrap().into_inner();
    assert_eq!(next_seq(&mut stream).await, Some(1));
    let status = stream.message().await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::Unavailable, "store-unavailable"));
    assert_eq!(metadata(&status, "afterSeq"), "1");
}

#[tokio::test]
async fn a_reader_that_is_too_slow_is_let_go_with_the_cursor_to_go_on_from() {
    let mut fixture = fixture_with(Duration::from_millis(50)).await;
    hold_a_run(&fixture);
    // Bodies big enough to fill the connection's window, so that the reader's standing still is felt.
    let big = |seq| {
        let mut event = event(seq, Visibility::Customer);
        event.body = format!("\"{}\"", "x".repeat(40_000)).into_bytes();
        event
    };
    fixture.node.record((1..=400).map(big).collect());
    let mut stream = fixture.client.watch_run(watch(0)).await.unwrap().into_inner();
    fixture.until_watches_are_free().await;
    let mut last = 0;
    let status = loop {
        match stream.message().await {
            Ok(Some(v1::WatchRunResponse { item: Some(Item::Event(event)) })) => {
                assert_eq!(event.seq, last + 1);
                last = event.seq;
            }
            Ok(other) => panic!("the watch went on to {other:?}"),
            Err(status) => break status,
        }
    };
    assert_eq!((status.code(), reason(&status).as_str()), (Code::Aborted, "watch-too-slow"));
    assert_eq!(metadata(&status, "afterSeq"), last.to_string());
    assert!(last < 400);
}

#[tokio::test]
async fn the_number_of_open_watches_is_bounded() {
    let mut fixture = with_a_run().await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let (feed, source) = mpsc::channel(1);
        fixture.node.watch_from(source);
        held.push((feed, fixture.client.watch_run(watch(0)).await.unwrap()));
    }
    let refused = fixture.client.watch_run(watch(0)).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::ResourceExhausted, "too-many-watches"));
    assert!(refused.get_details_retry_info().is_some());
}

#[tokio::test]
async fn a_server_that_drains_ends_its_watches_with_a_cursor_and_then_itself() {
    let mut fixture = with_a_run().await;
    let (feed, source) = mpsc::channel(4);
    feed.try_send(Ok(WatchItem::Event(Arc::new(event(1, Visibility::Customer))))).unwrap();
    fixture.node.watch_from(source);
    let mut stream = fixture.client.watch_run(watch(0)).await.unwrap().into_inner();
    assert_eq!(next_seq(&mut stream).await, Some(1));
    fixture.stop.take().unwrap().send(()).unwrap();
    let status = stream.message().await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::Unavailable, "server-draining"));
    assert_eq!(metadata(&status, "afterSeq"), "1");
    drop(fixture.client);
    drop(fixture.channel);
    fixture.serving.await.unwrap().unwrap();
}

#[tokio::test]
async fn health_speaks_for_the_server_and_for_the_service() {
    let fixture = with_a_run().await;
    let mut health = HealthClient::new(fixture.channel.clone());
    for service in ["", "signalbox.v1.RunService", "signalbox.v1.DashboardService"] {
        let answer = health.check(HealthCheckRequest { service: service.to_owned() }).await.unwrap().into_inner();
        assert_eq!(answer.status, 1, "{service}");
    }
    let unknown = health.check(HealthCheckRequest { service: "other".to_owned() }).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
}

#[tokio::test]
async fn reflection_lists_the_service() {
    use tonic_reflection::pb::v1::ServerReflectionRequest;
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
    use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

    let fixture = with_a_run().await;
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut client = ServerReflectionClient::new(fixture.channel.clone());
    let mut answers = client.server_reflection_info(futures::stream::iter([request])).await.unwrap().into_inner();
    let Some(MessageResponse::ListServicesResponse(list)) = answers.message().await.unwrap().unwrap().message_response
    else {
        panic!("no list");
    };
    assert!(list.service.iter().any(|service| service.name == "signalbox.v1.RunService"));
}
