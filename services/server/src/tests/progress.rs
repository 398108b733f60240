//! Who is told what of a run, over a real connection (DSH-008 to DSH-012).

use std::sync::Arc;

use signalbox_domain::identity::Visibility;
use signalbox_domain::ids::StepId;
use signalbox_domain::run::chain::StoredEvent;
use signalbox_domain::run::event::RunEvent;
use signalbox_domain::run::progress::{CustomerSummary, ProgressKind, RUN_PROGRESS_KINDS};
use signalbox_proto::v1;
use signalbox_proto::v1::watch_run_response::Item;
use tokio::sync::mpsc;

use super::{Fixture, as_role, run_id, with_a_run};
use crate::api::WatchItem;
use crate::fake::event;

/// The four subscribers, rising.
const SUBSCRIBERS: [&str; 4] = ["customer", "creator", "tenant-operator", "platform-operator"];

/// Words of this kind, for people.
pub(super) fn line(kind: ProgressKind) -> WatchItem {
    WatchItem::Progress {
        kind,
        step_id: StepId::new("s1").unwrap(),
        message: kind.as_str().to_owned(),
        percent: Some(50),
    }
}

/// What a subscriber receives of these items.
async fn received(fixture: &mut Fixture, role: &'static str, items: Vec<WatchItem>) -> Vec<Item> {
    let (feed, source) = mpsc::channel(items.len().max(1));
    for item in items {
        feed.try_send(Ok(item)).unwrap();
    }
    drop(feed);
    fixture.node.watch_from(source);
    let request = v1::WatchRunRequest { run_id: run_id(1).to_string(), after_seq: 0 };
    // Who claims no role is the operator of the platform here.
    let request = if role == "platform-operator" { tonic::Request::new(request) } else { as_role(role, request) };
    let mut stream = fixture.client.watch_run(request).await.unwrap().into_inner();
    let mut received = Vec::new();
    while let Some(message) = stream.message().await.unwrap() {
        received.push(message.item.unwrap());
    }
    fixture.until_watches_are_free().await;
    received
}

#[tokio::test]
async fn each_of_seventeen_kinds_reaches_the_subscribers_of_its_rank_and_above() {
    let mut fixture = with_a_run().await;
    for (rank, role) in SUBSCRIBERS.into_iter().enumerate() {
        let items = RUN_PROGRESS_KINDS.map(line).to_vec();
        let shown: Vec<_> = received(&mut fixture, role, items)
            .await
            .into_iter()
            .map(|item| match item {
                Item::Progress(line) => line.progress_kind,
                Item::Event(event) => panic!("{event:?}"),
            })
            .collect();
        let internal = ["tool_called", "tool_result", "handoff", "budget_warning", "throttled"];
        let expected: Vec<_> = RUN_PROGRESS_KINDS
            .iter()
            .map(|kind| kind.as_str())
            .filter(|kind| rank >= 2 || !internal.contains(kind))
            .filter(|kind| rank >= 3 || *kind != "operator_note")
            .collect();
        assert_eq!(shown, expected, "{role}");
    }
}

/// Every event there can be, as visible as its kind is.
fn every_event() -> Vec<StoredEvent> {
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../../actors/domain/tests/golden");
    let mut names: Vec<_> = std::fs::read_dir(golden).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    let read = |(seq, path): (u64, std::path::PathBuf)| {
        let name = path.file_name().unwrap().to_str().unwrap();
        let (kind, body) = (name.split('.').next().unwrap().to_owned(), std::fs::read(&path).unwrap());
        let visibility = RunEvent::decode(&kind, &body).unwrap().visibility();
        StoredEvent { kind, body, ..event(seq, visibility) }
    };
    (1..).zip(names).map(read).collect()
}

fn summary() -> Arc<CustomerSummary> {
    Arc::new(CustomerSummary {
        headline: "Your run is in progress.".to_owned(),
        percent: 33,
        current_step: Some("step 2 of 3".to_owned()),
        waiting_for: None,
    })
}

#[tokio::test]
async fn every_event_carries_its_kind_and_customers_are_told_of_it_in_words_alone() {
    let mut fixture = with_a_run().await;
    let events = every_event();
    let known: Vec<_> = RUN_PROGRESS_KINDS.iter().map(|kind| kind.as_str()).collect();
    for role in SUBSCRIBERS {
        let is_customer = role == "customer";
        let items = events.iter().cloned().map(Arc::new).map(|event| match event.visibility {
            Visibility::Customer if is_customer => WatchItem::Told { event, summary: Some(summary()) },
            Visibility::Customer | Visibility::Creator | Visibility::TenantOperator | Visibility::PlatformOperator => {
                WatchItem::Event(event)
            }
        });
        let shown = received(&mut fixture, role, items.collect()).await;
        let expected =
            events.iter().filter(|event| role.ends_with("operator") || event.visibility == Visibility::Customer);
        assert_eq!(shown.len(), expected.count(), "{role}");
        for item in shown {
            let Item::Event(event) = item else { panic!("an event") };
            assert!(known.contains(&event.progress_kind.as_str()), "{role}: {event:?}");
            assert_eq!(event.body_json.is_empty(), is_customer, "{role}: {}", event.kind);
            assert_eq!(event.hash.is_empty() && event.prev_hash.is_empty(), is_customer);
            assert_eq!(event.actor_id.is_empty() && event.actor_role.is_empty(), is_customer);
            assert_eq!(event.summary.is_some(), is_customer);
            if let Some(told) = event.summary {
                assert_eq!((told.percent, told.current_step.as_str()), (33, "step 2 of 3"));
                assert_eq!((told.headline.as_str(), told.waiting_for.as_str()), ("Your run is in progress.", ""));
            }
        }
    }
}

#[tokio::test]
async fn a_customer_whose_words_are_missing_is_still_shown_no_body() {
    let mut fixture = with_a_run().await;
    let items = every_event().into_iter().map(Arc::new).map(WatchItem::Event).collect();
    for item in received(&mut fixture, "customer", items).await {
        let Item::Event(event) = item else { panic!("an event") };
        assert!(event.body_json.is_empty() && event.hash.is_empty() && event.summary.is_none());
        assert_eq!(event.visibility, "customer");
    }
}
