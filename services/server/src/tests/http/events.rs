//! Watching by server-sent events, read by a parser of its own that follows the WHATWG rules.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use signalbox_domain::identity::Visibility;
use signalbox_domain::ids::StepId;
use signalbox_domain::run::progress::ProgressKind;
use signalbox_domain::run::status::RunStatus;
use signalbox_ports::journal::StoreError;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::super::{Fixture, fixture_with, hold_a_run, run_id, tenant, with_a_run};
use super::{Reply, ask, head};
use crate::api::{ApiError, WatchItem};
use crate::fake::{envelope, event};

/// An event as a browser sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    last_event_id: String,
    kind: String,
    data: String,
}

/// The event stream interpretation of the WHATWG, line by line.
fn parse(text: &str) -> Vec<Seen> {
    let text = text.replace("\r\n", "\n");
    let (mut seen, mut id, mut kind, mut data) = (Vec::new(), String::new(), String::new(), Vec::new());
    for line in text.split(['\n', '\r']) {
        if line.is_empty() {
            if !data.is_empty() {
                let kind = if kind.is_empty() { "message".to_owned() } else { kind.clone() };
                seen.push(Seen { last_event_id: id.clone(), kind, data: data.join("\n") });
            }
            kind.clear();
            data.clear();
            continue;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" if !value.contains('\0') => id = value.to_owned(),
            "event" => kind = value.to_owned(),
            "data" => data.push(value.to_owned()),
            _ => {}
        }
    }
    seen
}

fn seqs(reply: &Reply) -> Vec<u64> {
    let messages = parse(&reply.text()).into_iter().filter(|seen| seen.kind == "message");
    messages
        .map(|seen| {
            let seq = serde_json::from_str::<Value>(&seen.data).unwrap()["seq"].as_u64().unwrap();
            assert_eq!(seen.last_event_id, seq.to_string());
            seq
        })
        .collect()
}

fn events(rest: &str) -> String {
    format!("/v1/runs/{}/events{rest}", run_id(1))
}

async fn watch(fixture: &Fixture, rest: &str, headers: &[(&str, &str)]) -> Reply {
    let reply = ask(fixture.address, "GET", &events(rest), headers).await;
    fixture.until_watches_are_free().await;
    reply
}

/// A run of six events that is closed.
async fn closed() -> Fixture {
    let fixture = with_a_run().await;
    let mut run = envelope(run_id(1), &tenant("acme"), RunStatus::Completed);
    run.last_seq = 6;
    fixture.node.hold(run);
    fixture.node.record((1..=6).map(|seq| event(seq, Visibility::Customer)).collect());
    fixture
}

#[tokio::test]
async fn a_stream_has_every_event_once_and_ends_after_the_run_is_closed() {
    let fixture = closed().await;
    let whole = watch(&fixture, "", &[]).await;
    assert_eq!((whole.status, whole.header("content-type")), (200, "text/event-stream"));
    assert_eq!((whole.header("cache-control"), whole.header("x-accel-buffering")), ("no-store", "no"));
    assert_eq!(seqs(&whole), [1, 2, 3, 4, 5, 6]);
    let last = parse(&whole.text()).pop().unwrap();
    assert_eq!((last.kind.as_str(), last.last_event_id.as_str()), ("end", "6"));
    let said: Value = serde_json::from_str(&last.data).unwrap();
    assert_eq!(said, json!({"runId": run_id(1), "status": "completed", "lastSeq": 6}));
    let body: Value = serde_json::from_str(&parse(&whole.text())[0].data).unwrap();
    assert_eq!(
        (&body["kind"], &body["body"], &body["actorId"]),
        (&json!("run-started"), &json!({}), &json!("system:run"))
    );
    // Nothing is left to say; a browser stops asking.
    assert_eq!(watch(&fixture, "", &[("last-event-id", "6")]).await.status, 204);
}

#[tokio::test]
async fn whoever_reconnects_with_its_cursor_misses_nothing_and_sees_nothing_twice_wherever_it_was_cut() {
    let fixture = closed().await;
    for cut in 0..=5_u64 {
        let cursor = cut.to_string();
        let by_header = watch(&fixture, "", &[("last-event-id", &cursor)]).await;
        let by_query = watch(&fixture, &format!("?after={cut}"), &[]).await;
        let expected: Vec<u64> = (cut + 1..=6).collect();
        assert_eq!((seqs(&by_header), seqs(&by_query)), (expected.clone(), expected));
    }
    // Cut before anything came, and again: the cursor is the client's own, so it cannot be forgotten.
    for _ in 0..2 {
        let mut stream = TcpStream::connect(fixture.address).await.unwrap();
        let request = format!("{}\r\n", head("GET", &events(""), &[("last-event-id", "4")]));
        stream.write_all(request.as_bytes()).await.unwrap();
        drop(stream);
        fixture.until_watches_are_free().await;
    }
    assert_eq!(seqs(&watch(&fixture, "", &[("last-event-id", "4")]).await), [5, 6]);
}

#[tokio::test]
async fn of_two_cursors_the_header_counts() {
    let fixture = closed().await;
    assert_eq!(seqs(&watch(&fixture, "?after=1", &[("last-event-id", "4")]).await), [5, 6]);
    assert_eq!(seqs(&watch(&fixture, "?after=5", &[("last-event-id", "2")]).await), [3, 4, 5, 6]);
    assert_eq!(seqs(&watch(&fixture, "?after=4", &[("last-event-id", "")]).await), [5, 6]);
}

#[tokio::test]
async fn cursors_that_make_no_sense_are_refused() {
    let fixture = closed().await;
    for (rest, headers, code, field) in [
        ("?after=-1", vec![], "field-invalid", "after"),
        ("?after=x", vec![], "field-invalid", "after"),
        ("?after=", vec![], "field-invalid", "after"),
        ("?after=1.0", vec![], "field-invalid", "after"),
        ("?after=99999999999999999999", vec![], "field-invalid", "after"),
        ("?after=7", vec![], "cursor-unknown", "after"),
        ("?after=18446744073709551615", vec![], "cursor-unknown", "after"),
        ("", vec![("last-event-id", "-3")], "field-invalid", "last-event-id"),
        ("", vec![("last-event-id", "run-7/4")], "field-invalid", "last-event-id"),
        ("", vec![("last-event-id", "1"), ("last-event-id", "2")], "field-repeated", "last-event-id"),
        ("?after=x", vec![("last-event-id", "2")], "field-invalid", "after"),
    ] {
        let refused = watch(&fixture, rest, &headers).await;
        assert_eq!(
            (refused.problem(), refused.field().as_str()),
            ((400, code.to_owned()), field),
            "{rest} {headers:?}"
        );
    }
}

#[tokio::test]
async fn a_caller_sees_events_up_to_its_standing_and_no_higher() {
    let fixture = with_a_run().await;
    let levels = [Visibility::Customer, Visibility::Creator, Visibility::TenantOperator, Visibility::PlatformOperator];
    fixture.node.record((1..).zip(levels).map(|(seq, level)| event(seq, level)).collect());
    for (role, expected) in [("customer", vec![1]), ("creator", vec![1, 2]), ("tenant-operator", vec![1, 2, 3])] {
        assert_eq!(seqs(&watch(&fixture, "", &[("role", role)]).await), expected, "{role}");
    }
    assert_eq!(seqs(&watch(&fixture, "", &[]).await), [1, 2, 3, 4]);
}

#[tokio::test]
async fn no_text_can_put_fields_or_events_into_a_stream() {
    let fixture = with_a_run().await;
    let hostile = [
        "a\rid: 999\revent: agent_done\r\rdata: x",
        "line1\nline2",
        "\r\n\r\nevent: error\r\ndata: {}\r\n\r\n",
        "\u{2028}id: 7\u{0}",
        ": comment\n\n",
    ];
    let (feed, source) = mpsc::channel(16);
    for (index, text) in hostile.iter().enumerate() {
        let mut event = event(index as u64 + 1, Visibility::Customer);
        // As a writer of another kind might: line ends between the tokens are JSON too.
        event.body = format!("{{\r\n\"text\":\r{}\n}}", json!(text)).into_bytes();
        feed.try_send(Ok(WatchItem::Event(Arc::new(event)))).unwrap();
        let line = WatchItem::Progress {
            kind: ProgressKind::Narration,
            step_id: StepId::new("s1").unwrap(),
            message: (*text).to_owned(),
            percent: None,
        };
        feed.try_send(Ok(line)).unwrap();
    }
    drop(feed);
    fixture.node.watch_from(source);
    let seen = parse(&watch(&fixture, "", &[]).await.text());
    assert_eq!(seen.len(), hostile.len() * 2, "{seen:?}");
    for (index, text) in hostile.iter().enumerate() {
        let (event, line) = (&seen[index * 2], &seen[index * 2 + 1]);
        assert_eq!((event.kind.as_str(), event.last_event_id.as_str()), ("message", (index + 1).to_string().as_str()));
        assert_eq!(line.kind, "progress");
        let event: Value = serde_json::from_str(&event.data).unwrap();
        let line: Value = serde_json::from_str(&line.data).unwrap();
        assert_eq!((&event["body"]["text"], &line["message"]), (&json!(text), &json!(text)));
    }
    // The writer itself, given line ends that no JSON has.
    for text in hostile {
        let frame = crate::http::raw_frame(Some(3), Some("progress"), text);
        let read = parse(&frame);
        assert_eq!(read.len(), 1, "{frame:?}");
        assert_eq!(read[0].data, text.replace("\r\n", "\n").replace('\r', "\n"));
        assert_eq!(read[0].last_event_id, "3");
    }
}

#[tokio::test]
async fn an_error_of_the_source_is_the_last_event_and_says_where_to_go_on() {
    let fixture = with_a_run().await;
    let (feed, source) = mpsc::channel(4);
    feed.try_send(Ok(WatchItem::Event(Arc::new(event(1, Visibility::Customer))))).unwrap();
    feed.try_send(Err(ApiError::Store(StoreError::Unavailable("away".to_owned())))).unwrap();
    fixture.node.watch_from(source);
    let seen = parse(&watch(&fixture, "", &[("x-request-id", "w-1")]).await.text());
    let last = seen.last().unwrap();
    assert_eq!((seen.len(), last.kind.as_str(), last.last_event_id.as_str()), (2, "error", "1"));
    let problem: Value = serde_json::from_str(&last.data).unwrap();
    assert_eq!((&problem["code"], &problem["status"]), (&json!("store-unavailable"), &json!(503)));
    assert_eq!((&problem["details"]["afterSeq"], &problem["requestId"]), (&json!("1"), &json!("w-1")));
}

#[tokio::test]
async fn a_reader_that_is_too_slow_is_let_go_with_the_cursor_to_go_on_from() {
    let fixture = fixture_with(Duration::from_millis(50)).await;
    hold_a_run(&fixture);
    let big = |seq| {
        let mut event = event(seq, Visibility::Customer);
        event.body = format!("\"{}\"", "x".repeat(100_000)).into_bytes();
        event
    };
    fixture.node.record((1..=150).map(big).collect());
    let mut stream = TcpStream::connect(fixture.address).await.unwrap();
    stream.write_all(format!("{}\r\n", head("GET", &events(""), &[])).as_bytes()).await.unwrap();
    while fixture.watches.available_permits() > 1 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Nothing is read until the server has let the reader go: the run has not waited for it.
    fixture.until_watches_are_free().await;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let seen = parse(&Reply::read(&answer).text());
    let last = seen.last().unwrap();
    assert_eq!(last.kind, "error");
    let problem: Value = serde_json::from_str(&last.data).unwrap();
    assert_eq!(problem["code"], "watch-too-slow");
    assert_eq!(problem["details"]["afterSeq"], last.last_event_id);
    assert!(seen.len() < 150);
}

#[tokio::test]
async fn a_silent_stream_is_kept_alive_by_comments() {
    assert_eq!(crate::http::beat().period(), Duration::from_secs(15));
    assert!(parse(crate::http::HEARTBEAT).is_empty(), "a comment is no event");
}

#[tokio::test]
async fn watches_over_both_edges_share_one_bound() {
    let mut fixture = with_a_run().await;
    let (feed, source) = mpsc::channel(1);
    fixture.node.watch_from(source);
    let grpc = signalbox_proto::v1::WatchRunRequest { run_id: run_id(1).to_string(), after_seq: 0 };
    let held = fixture.client.watch_run(grpc).await.unwrap();
    let (other_feed, source) = mpsc::channel(1);
    fixture.node.watch_from(source);
    let mut stream = TcpStream::connect(fixture.address).await.unwrap();
    stream.write_all(format!("{}\r\n", head("GET", &events(""), &[])).as_bytes()).await.unwrap();
    let mut first = [0; 16];
    stream.read_exact(&mut first).await.unwrap();
    let refused = ask(fixture.address, "GET", &events(""), &[]).await;
    assert_eq!(refused.problem(), (429, "too-many-watches".to_owned()));
    assert_eq!(refused.header("retry-after"), "1");
    drop((feed, other_feed, held));
}

#[tokio::test]
async fn a_server_that_drains_ends_its_streams_with_a_cursor_and_then_itself() {
    let mut fixture = with_a_run().await;
    let (feed, source) = mpsc::channel(4);
    feed.try_send(Ok(WatchItem::Event(Arc::new(event(1, Visibility::Customer))))).unwrap();
    fixture.node.watch_from(source);
    let address = fixture.address;
    let watching = tokio::spawn(async move { ask(address, "GET", &events(""), &[]).await });
    // One of the two places is taken once the watch has begun.
    while fixture.watches.available_permits() > 1 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    fixture.stop.take().unwrap().send(()).unwrap();
    let last = parse(&watching.await.unwrap().text()).pop().unwrap();
    assert_eq!(last.kind, "error");
    let problem: Value = serde_json::from_str(&last.data).unwrap();
    assert_eq!((&problem["code"], &problem["details"]["afterSeq"]), (&json!("server-draining"), &json!("1")));
    drop((fixture.client, fixture.channel));
    fixture.serving.await.unwrap().unwrap();
}
