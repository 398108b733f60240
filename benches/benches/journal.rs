//! What an event costs before any store is asked: stamping it into the hash chain, checking the chain, and the canonical
//! digest of a call's arguments.
//!
//! Measured short on purpose: the whole bench ends within a minute, so that it is run.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput};
use serde_json::{Value, json};
use signalbox_domain::canonical;
use signalbox_domain::ids::{RunId, RunKey, StepId, TenantId};
use signalbox_domain::run::append::{NewEvent, RunHead, stamp};
use signalbox_domain::run::chain::{EventHash, StoredEvent};
use signalbox_domain::run::event::RunEvent;
use signalbox_domain::time::UnixMicros;
use uuid::Uuid;

/// Events in the chain that is written and checked: a long run's worth.
const EVENTS: u64 = 1_000;

fn head(tenant_id: TenantId) -> RunHead {
    RunHead {
        run_key: RunKey::new(Uuid::from_u128(1)),
        run_id: RunId::new(Uuid::from_u128(2)),
        tenant_id,
        owner: None,
        lease_epoch: 1,
        last_seq: 0,
        last_hash: EventHash::ZERO,
        last_at: UnixMicros(0),
        control_seq: 0,
        inbox_len: 0,
        closed: false,
    }
}

fn append(head: &mut RunHead, event: &NewEvent) -> Vec<StoredEvent> {
    (0..EVENTS).map(|tick| stamp(head, UnixMicros(tick as i64), event)).collect()
}

/// True if every link holds: what an auditor does before looking at what the events say.
fn holds(tenant: &TenantId, events: &[StoredEvent]) -> bool {
    let mut before = EventHash::ZERO;
    events.iter().zip(1..).all(|(event, seq)| {
        let holds = event.seq == seq && event.prev_hash == before && event.hash == event.expected_hash(tenant);
        before = event.hash;
        holds
    })
}

/// Arguments of a tool call as big as a page of text.
fn arguments() -> Value {
    json!({
        "uris": (0..20).map(|i| format!("https://example.com/feeds/{i}.xml")).collect::<Vec<_>>(),
        "since": "2026-11-23",
        "limits": { "bytes": 1_048_576, "seconds": 20, "redirects": 5 },
        "text": "A sentence of ordinary length, as tools are given them. ".repeat(40),
    })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(4))
        .sample_size(20)
        .without_plots()
        .configure_from_args();

    let tenant = TenantId::new("acme")?;
    let event = NewEvent::system(RunEvent::StepFailed {
        step_id: StepId::new("select_stories.001")?,
        code: "tool-timeout".to_owned(),
        message: "the tool did not answer within 60 s".to_owned(),
    });
    let chain = append(&mut head(tenant.clone()), &event);
    let arguments = arguments();

    let mut group = criterion.benchmark_group("chain");
    group.throughput(Throughput::Elements(EVENTS));
    group.bench_function("append 1000 events", |bencher| {
        bencher.iter_batched_ref(
            || head(tenant.clone()),
            |head| append(head, black_box(&event)),
            BatchSize::SmallInput,
        );
    });
    group.bench_function("verify 1000 events", |bencher| bencher.iter(|| holds(&tenant, black_box(&chain))));
    group.finish();

    criterion.bench_function("canonical digest of a call's arguments", |bencher| {
        bencher.iter(|| canonical::digest(black_box(&arguments)));
    });
    criterion.final_summary();
    Ok(())
}
