//! Watching a run as server-sent events.
//!
//! The id of an event is its `seq`, so a browser that reconnects says by itself where to go on, and misses nothing and
//! sees nothing twice. If `Last-Event-ID` and `?after=` are both given, the header wins: whoever reconnects repeats the
//! address it began with, and the header is what it has seen since (C-068). Whatever stands in an event, it stays one
//! event: every line of the data is sent as a line of data, whichever way it is ended (C-070).

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, Response, StatusCode};
use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt as _};
use serde::Serialize;
use signalbox_domain::ids::RunId;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::call::{Answered, Call, number};
use super::problem::{Problem, RequestId};
use super::shapes::{EndOfEvents, ProgressLine};
use super::views;
use crate::api::{Caller, WatchItem};
use crate::errors::Refusal;
use crate::service::Runs;
use crate::validate::bad;

/// The header in which a browser says what it has seen.
const LAST_EVENT_ID: &str = "last-event-id";
/// How often something is sent although nothing happens, so that nobody between takes the connection for dead.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(15);
/// A comment: read by nobody, kept by nobody.
pub(crate) const HEARTBEAT: &str = ": still here\n\n";
/// What a browser is told to wait before it reconnects, in milliseconds.
const RECONNECT: &str = "retry: 1000\n\n";

/// `GET /v1/runs/{runId}/events`
pub(super) fn watch(call: Call) -> Answered {
    Box::pin(async move {
        let caller = call.caller()?;
        let run_id: RunId = call.id("runId")?;
        let after = cursor(&call)?;
        if after > 0 {
            let run = call.runs.api.get(&caller, run_id).await?;
            // The one answer after which a browser does not reconnect.
            if run.closed && after == run.last_seq {
                let mut response = Response::new(Body::empty());
                *response.status_mut() = StatusCode::NO_CONTENT;
                return Ok(response);
            }
        }
        let items = call.runs.relay(&caller, run_id, after, call.headers.clone()).await?.boxed();
        let id = RequestId::of(&call.headers);
        let watching = Watching { runs: call.runs, caller, run_id, id, items, beat: beat(), over: false };
        let mut response = Response::new(Body::from_stream(frames(watching)));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        // A proxy that collects answers before it passes them on would hold the events back.
        headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
        Ok(response)
    })
}

fn cursor(call: &Call) -> Result<u64, Refusal> {
    let mut given = call.headers.get_all(LAST_EVENT_ID).iter();
    let header = match (given.next(), given.next()) {
        (None, _) => None,
        (Some(one), None) => Some(one.to_str().unwrap_or("?")),
        (Some(_), Some(_)) => return Err(bad("field-repeated", LAST_EVENT_ID, "`Last-Event-ID` is given twice")),
    };
    // Read in any case: an address that makes no sense is told so although the header wins.
    let after = call.query.number("after")?;
    match header {
        // What a browser sends that has seen no event with an id.
        Some("") | None => Ok(after.unwrap_or(0)),
        Some(text) => number(LAST_EVENT_ID, text),
    }
}

pub(crate) fn beat() -> Interval {
    let mut beat = interval(HEARTBEAT_EVERY);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick comes at once, and the head of the stream is sent then anyway.
    beat.reset();
    beat
}

struct Watching {
    runs: Arc<Runs>,
    caller: Caller,
    run_id: RunId,
    id: RequestId,
    items: BoxStream<'static, Result<WatchItem, Refusal>>,
    beat: Interval,
    over: bool,
}

fn frames(watching: Watching) -> impl Stream<Item = Result<Bytes, std::convert::Infallible>> + Send + 'static {
    let head = stream::iter([Ok(Bytes::from_static(RECONNECT.as_bytes()))]);
    head.chain(stream::unfold(watching, |mut watching| async move {
        let frame = watching.next().await?;
        Some((Ok(Bytes::from(frame)), watching))
    }))
}

impl Watching {
    async fn next(&mut self) -> Option<String> {
        if self.over {
            return None;
        }
        let item = tokio::select! {
            biased;
            item = self.items.next() => item,
            _ = self.beat.tick() => return Some(HEARTBEAT.to_owned()),
        };
        self.beat.reset();
        match item {
            Some(Ok(WatchItem::Event(event))) => Some(frame(Some(event.seq), None, &views::event(&event))),
            Some(Ok(WatchItem::Told { event, summary })) => {
                Some(frame(Some(event.seq), None, &views::told(&event, summary.as_deref())))
            }
            Some(Ok(WatchItem::Progress { kind, step_id, message, percent })) => {
                let progress_kind = kind.as_str();
                let line = ProgressLine { step_id: step_id.to_string(), message, percent, progress_kind };
                Some(frame(None, Some("progress"), &line))
            }
            Some(Err(refusal)) => {
                self.over = true;
                Some(frame(None, Some("error"), &Problem::of(&refusal, &self.id).0))
            }
            None => {
                self.over = true;
                self.end().await
            }
        }
    }

    // The last frame moves the reader's cursor past events it may not see, so that it is not sent back for them.
    async fn end(&mut self) -> Option<String> {
        match self.runs.api.get(&self.caller, self.run_id).await {
            Ok(run) if run.closed => {
                let end = EndOfEvents {
                    run_id: run.run_id.to_string(),
                    status: run.status.as_str().to_owned(),
                    last_seq: run.last_seq,
                };
                Some(frame(Some(run.last_seq), Some("end"), &end))
            }
            // It was the node that ended: whoever reconnects finds another.
            Ok(_) | Err(_) => None,
        }
    }
}

fn frame(id: Option<u64>, event: Option<&'static str>, data: &impl Serialize) -> String {
    // These types are always JSON: their keys are texts and their numbers whole.
    raw_frame(id, event, &serde_json::to_string(data).unwrap_or_default())
}

/// One event. A carriage return ends a line as much as a line feed does, and each line of data is marked as data.
pub(crate) fn raw_frame(id: Option<u64>, event: Option<&'static str>, data: &str) -> String {
    let mut frame = String::with_capacity(data.len() + 32);
    if let Some(id) = id {
        frame.push_str(&format!("id: {id}\n"));
    }
    if let Some(event) = event {
        frame.push_str(&format!("event: {event}\n"));
    }
    for line in data.replace("\r\n", "\n").split(['\n', '\r']) {
        frame.push_str("data: ");
        frame.push_str(line);
        frame.push('\n');
    }
    frame.push('\n');
    frame
}
