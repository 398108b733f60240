//! What the rules cost, without any store, wire or actor: the gate, deciding and folding, binding, redaction, cron.
//!
//! The gate is measured beside a large installation, and what it allocates is counted: on the way to an admission nothing
//! but the record may be.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, Criterion};
use serde_json::{Value, json};
use signalbox_benches::rules::{self, Failure, NOW};
use signalbox_domain::governance::gate::{Verdict, gate};
use signalbox_domain::ids::StepId;
use signalbox_domain::pipeline::cron::{Cron, Zone};
use signalbox_domain::redact::redact_value;
use signalbox_domain::run::advance::{advance, projection};
use signalbox_domain::run::binding::{self, Sources};
use signalbox_domain::run::call;
use signalbox_domain::run::evolve::{evolve, fold};
use signalbox_domain::run::settle::settle;

fn main() -> Result<(), Failure> {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .sample_size(20)
        .without_plots()
        .configure_from_args();
    gates(&mut criterion)?;
    runs(&mut criterion)?;
    values(&mut criterion)?;
    criterion.final_summary();
    Ok(())
}

fn gates(criterion: &mut Criterion) -> Result<(), Failure> {
    let place = rules::Place::large()?;
    let (attempt, snapshot) = (place.attempt(), place.snapshot());
    let decision = gate(&attempt, &snapshot);
    let Verdict::Admit(admissible) = &decision.verdict else {
        return Err(format!("the call is not admitted: {:?}", decision.objection()).into());
    };
    let whole = allocation_counter::measure(|| drop(black_box(gate(black_box(&attempt), black_box(&snapshot)))));
    let record = allocation_counter::measure(|| drop(black_box(admissible.clone())));
    rules::say(&format!(
        "gate: {} allocations, {} bytes; a copy of the record alone: {} allocations, {} bytes",
        whole.count_total, whole.bytes_total, record.count_total, record.bytes_total
    ));
    criterion.bench_function("gate/admit beside 100 switches, 20 meters, 50 grants, 10 buckets", |bencher| {
        bencher.iter(|| gate(black_box(&attempt), black_box(&snapshot)));
    });
    Ok(())
}

fn runs(criterion: &mut Criterion) -> Result<(), Failure> {
    let history = rules::History::of(10)?;
    let envelope = fold(&history.events)?;
    criterion.bench_function("run/fold a journal of 10 calls", |bencher| {
        bencher.iter(|| fold(black_box(&history.events)));
    });
    criterion.bench_function("run/copy the envelope after 10 calls", |bencher| {
        bencher.iter(|| black_box(&envelope).clone());
    });
    let half = history.half_way()?;
    criterion.bench_function("run/decide: settle a call and what follows", |bencher| {
        bencher.iter(|| {
            let (events, release) = settle(black_box(&half.run), &half.ended, NOW);
            (events, release, advance(&half.run, NOW))
        });
    });
    criterion.bench_function("run/decide: admit a call", |bencher| {
        bencher.iter(|| call::admit(black_box(&half.prepared), &half.admissible, NOW));
    });
    criterion.bench_function("run/evolve: one settled call", |bencher| {
        bencher.iter_batched_ref(
            || half.run.clone(),
            |run| evolve(run, NOW.micros(), black_box(&half.settled)),
            BatchSize::SmallInput,
        );
    });
    criterion.bench_function("run/projection", |bencher| bencher.iter(|| projection(black_box(&envelope))));
    Ok(())
}

fn values(criterion: &mut Criterion) -> Result<(), Failure> {
    let envelope = fold(&rules::History::of(10)?.events)?;
    let output =
        json!({ "items": (0..50).map(|n| json!({ "title": format!("item {n}"), "n": n })).collect::<Vec<_>>() });
    let arguments = json!({
        "first": { "$from": "/steps/s0/output/items/0/title" },
        "last": { "$from": "/steps/s9/output/items/49" },
        "inputs": { "$from": "/inputs" },
        "text": "a plain text",
    });
    let read = |_: &StepId| -> Option<Value> { Some(output.clone()) };
    criterion.bench_function("binding/three pointers", |bencher| {
        let sources = Sources { run: &envelope, inputs: &envelope.inputs, output: &read };
        bencher.iter(|| binding::bind(black_box(&arguments), sources));
    });
    let small = json!({ "step": 3, "key": "a plain text" });
    let page =
        json!({ "text": "A sentence of ordinary length, as tools are given them. ".repeat(40), "nested": output });
    criterion.bench_function("redaction/a small value", |bencher| bencher.iter(|| redact_value(black_box(&small))));
    criterion.bench_function("redaction/a page", |bencher| bencher.iter(|| redact_value(black_box(&page))));
    let cron: Cron = "*/15 9-17 * * 1-5".parse()?;
    let zone: Zone = "Europe/Berlin".parse()?;
    criterion.bench_function("cron/next instant", |bencher| bencher.iter(|| cron.next_after(&zone, black_box(NOW))));
    Ok(())
}
