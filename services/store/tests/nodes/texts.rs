//! Texts that have hurt databases before go through a real run, and come back as they were (I9).

use serde_json::{Value, json};
use signalbox_domain::json::{Limits, parse_strict};
use signalbox_domain::run::event::StoredValue;
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::run::step::{CallEnding, CallResult};
use signalbox_ports::memory::FakeTools;
use signalbox_runtime::WatchItem;
use signalbox_store::PostgresOptions;

use crate::database::Database;
use crate::database::server::Server;
use crate::station::{Station, caller, chain, tool, tools};

fn outputs() -> Vec<Value> {
    vec![
        json!({ "k\0": "a\0b" }),
        json!({ "spelled out": "\\u0000", "and escaped": "\\\\u0000" }),
        json!({ "t": "\u{1f600}", "cut here": format!("{}\u{1f600}", "a".repeat(255)) }),
        json!({ "noncharacters": "\u{fffe}\u{ffff}\u{10ffff}", "replacement": "\u{fffd}" }),
        // Too big for the journal: it goes through the object store.
        json!({ "big": "\0\u{1f600}".repeat(10_000) }),
    ]
}

/// The outputs of a run's steps as they are stored, in order; the big one as its place says.
async fn stored(station: &Station, run: &signalbox_domain::run::envelope::RunEnvelope) -> Vec<Value> {
    let mut stored = Vec::new();
    for step in 0..outputs().len() {
        let step = signalbox_domain::ids::StepId::new(format!("s{step}")).unwrap();
        stored.push(match run.output_of(&step).unwrap() {
            StoredValue::Inline(value) => value.clone(),
            StoredValue::Blob { sha256, .. } => {
                let bytes = station.ports.blobs.get(&run.tenant_id, sha256).await.unwrap().unwrap();
                serde_json::from_slice(&bytes).unwrap()
            }
        });
    }
    stored
}

async fn strange_texts_go_through(mut station: Station, database: Option<&Database>) {
    station.tools.script(&tool(), outputs().into_iter().map(FakeTools::answered));
    let run = station.submit("acme", &chain(outputs().len())).await.unwrap();
    let envelope = station.closed("acme", run).await;
    assert_eq!(envelope.status, RunStatus::Completed);
    assert_eq!(stored(&station, &envelope).await, outputs());

    // An error text with raw NUL bytes in it fails its step with its own code, and nothing else.
    let ending = CallEnding::Failed { code: "tool-broken".into(), message: "a\0b\0 \u{1f600}".into() };
    station.tools.script(&tool(), [CallResult { ending, measured: None, latency_ms: 1 }]);
    let failed = station.submit("acme", &chain(1)).await.unwrap();
    let envelope = station.closed("acme", failed).await;
    assert_eq!((envelope.status, envelope.end.unwrap().code.as_deref()), (RunStatus::Failed, Some("tool-broken")));
    let error = envelope.tool_calls[0].error.as_ref().unwrap();
    assert_eq!(error.message, "a\0b\0 \u{1f600}");

    halves_of_characters_fail_their_step_alone(&station).await;

    // Another node reads the same, and whoever watches sees the whole of it.
    station = station.crash(database).await;
    let envelope = station.closed("acme", run).await;
    assert_eq!(stored(&station, &envelope).await, outputs());
    let mut items = station.node.watch(&caller("acme"), run, 0).await.unwrap();
    let mut seen = 0;
    while let Some(item) = items.recv().await {
        if let WatchItem::Event(event) = item.unwrap() {
            seen += 1;
            assert_eq!(event.seq, seen);
        }
    }
    assert_eq!(seen, envelope.last_seq);

    // A run in the middle of which the node dies goes on with what was stored.
    station.tools.script(&tool(), outputs().into_iter().take(2).map(FakeTools::answered));
    station.tools.hang(&tool());
    let resumed = station.submit("acme", &chain(3)).await.unwrap();
    station.until("acme", resumed, |run| run.tool_calls.len() == 3).await;
    station.tools.on(&tool(), async |_, _| FakeTools::answered(json!("\0")));
    station = station.crash(database).await;
    let envelope = station.closed("acme", resumed).await;
    assert_eq!(envelope.status, RunStatus::Completed);
    let last = signalbox_domain::ids::StepId::new("s2").unwrap();
    assert_eq!(envelope.output_of(&last), Some(&StoredValue::Inline(json!("\0"))));
}

/// What an executor sends, read as the client in front of it reads it: half of a character is no JSON.
fn read(raw: &[u8]) -> CallResult {
    match parse_strict(raw, Limits::DEFAULT) {
        Ok(output) => FakeTools::answered(output),
        Err(error) => {
            let ending = CallEnding::Failed { code: "tool-protocol-error".into(), message: error.to_string() };
            CallResult { ending, measured: None, latency_ms: 1 }
        }
    }
}

async fn halves_of_characters_fail_their_step_alone(station: &Station) {
    let first = signalbox_domain::ids::StepId::new("s0").unwrap();
    for raw in [r#"{"t":"\ud83d"}"#, r#"{"t":"\ude00x"}"#] {
        station.tools.script(&tool(), [read(raw.as_bytes())]);
        let run = station.submit("acme", &chain(1)).await.unwrap();
        let envelope = station.closed("acme", run).await;
        assert_eq!(envelope.status, RunStatus::Failed);
        assert_eq!(envelope.end.unwrap().code.as_deref(), Some("tool-protocol-error"), "{raw}");
    }
    station.tools.script(&tool(), [read(br#"{"t":"\ud83d\ude00","u":"\\ud83d"}"#)]);
    let run = station.submit("acme", &chain(1)).await.unwrap();
    let envelope = station.closed("acme", run).await;
    let whole = json!({ "t": "\u{1f600}", "u": "\\ud83d" });
    assert_eq!(envelope.output_of(&first), Some(&StoredValue::Inline(whole)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nul_escapes_and_emoji_in_outputs_and_errors_come_back_from_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    strange_texts_go_through(Station::on_sqlite(dir.path(), tools()).await, None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nul_escapes_and_emoji_in_outputs_and_errors_come_back_from_postgres_and_its_log_says_nothing() {
    let server = Server::start(&["log_error_verbosity=verbose"]);
    let database = Database::create_on(&server.url()).await;
    let station = Station::on_postgres(&database, PostgresOptions::default(), tools()).await;
    strange_texts_go_through(station, Some(&database)).await;
    for code in ["22P05", "22021", "25P02"] {
        assert!(!server.log().contains(code), "{}", server.log());
    }
}
