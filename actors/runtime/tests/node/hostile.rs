//! Executors that mean harm, as far as a run is concerned: what it records and pays, and that it goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use signalbox_domain::governance::budget::{Budget, BudgetScope, OnExceeded};
use signalbox_domain::ids::{BudgetId, TenantId};
use signalbox_domain::quantity::{BudgetCategory, Micros};
use signalbox_domain::run::event::{CallOutcome, GovernanceAudited, RunEvent};
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::run::step::{CallEnding, CallResult};
use signalbox_ports::governance::Governance as _;
use signalbox_ports::memory::FakeTools;
use signalbox_ports::tools::CallProgress;
use signalbox_runtime::WatchItem;

use crate::harness::{World, chain, operator, step, tool};

fn budget(limit: i64) -> Budget {
    Budget {
        budget_id: BudgetId::new("acme-total").unwrap(),
        tenant_id: Some(TenantId::new("acme").unwrap()),
        scope: BudgetScope::Tenant,
        scope_key: "acme".to_owned(),
        category: BudgetCategory::CostUnits,
        limit: Micros::units(limit),
        calendar: None,
        period_seconds: None,
        anchor_unix_seconds: 0,
        warn_ratio: Micros(800_000),
        grace_ratio: Micros(1_000_000),
        grace_seconds: 0,
        on_exceeded: OnExceeded::Kill,
    }
}

fn using(units: f64, ending: Option<CallEnding>) -> CallResult {
    let answered = FakeTools::answered(json!({ "n": 1 }));
    let measured = Some(vec![(BudgetCategory::CostUnits, units)]);
    CallResult { ending: ending.unwrap_or(answered.ending), measured, latency_ms: 1 }
}

/// The overshoots a run's journal tells of: how far each went beyond its reservation, in cost units.
async fn overshoots(world: &World, run: signalbox_domain::ids::RunId) -> Vec<Micros> {
    let (_, _, events) = world.node.export(&operator(), run).await.unwrap();
    let beyond = events.iter().filter_map(|stored| {
        let RunEvent::GovernanceAudited(audited) = stored.event().unwrap() else { return None };
        let GovernanceAudited::Overshoot { beyond, .. } = *audited else { return None };
        Some(beyond.get(BudgetCategory::CostUnits))
    });
    beyond.collect()
}

#[tokio::test(start_paused = true)]
async fn more_than_was_reserved_is_an_event_and_is_charged_up_to_the_reservation_in_ledger_and_meter() {
    let failed = CallEnding::Failed { code: "broken".to_owned(), message: "it broke".to_owned() };
    // What one call of the price 1 reports; what it is charged; how far beyond its reservation it says it went.
    let cases = [
        (using(0.25, None), Micros(250_000), None),
        (using(1.0, None), Micros::units(1), None),
        (using(1.000_001, None), Micros::units(1), Some(Micros(1))),
        (using(9.0, None), Micros::units(1), Some(Micros::units(8))),
        (using(9.0, Some(failed)), Micros::units(1), Some(Micros::units(8))),
        (using(f64::NAN, None), Micros::units(1), Some(Micros::ZERO)),
        (using(f64::INFINITY, None), Micros::units(1), Some(Micros::ZERO)),
        (using(f64::NEG_INFINITY, None), Micros::units(1), Some(Micros::ZERO)),
        (using(-0.5, None), Micros::units(1), Some(Micros::ZERO)),
        (using(1e300, None), Micros::units(1), Some(Micros::ZERO)),
        (using(9.3e18, None), Micros::units(1), Some(Micros::ZERO)),
        (using(-0.0, None), Micros::ZERO, None),
    ];
    for (result, charged, beyond) in cases {
        let world = World::new().await;
        world.store.put_budget(budget(100)).await.unwrap();
        let (name, goes_on) = (format!("{result:?}"), matches!(result.ending, CallEnding::Answered { .. }));
        world.tools.script(&tool("memory.read"), [result.clone(), using(1.0, None)]);
        let run = world.submit(chain("memory.read", 2)).await;
        let envelope = world.until_closed(run).await;
        let status = if goes_on { RunStatus::Completed } else { RunStatus::Failed };
        assert_eq!(envelope.status, status, "{name}");
        assert_eq!(overshoots(&world, run).await, beyond.into_iter().collect::<Vec<_>>(), "{name}");
        let record = &envelope.tool_calls[0];
        assert_eq!(record.charged.get(BudgetCategory::CostUnits), charged, "{name}");
        let total = if goes_on { charged.plus(Micros::units(1)) } else { charged };
        assert_eq!(envelope.cost_ledger.total_cost_units, total, "{name}");
        let meter = &world.store.budgets().await.unwrap()[0].meter;
        assert_eq!((meter.consumed, meter.reserved), (total, Micros::ZERO), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_output_of_nuls_and_odd_characters_is_kept_and_bound_as_it_is() {
    let world = World::new().await;
    let odd = json!({ "k\0": "a\0b\u{202e}\u{feff}", "n": -0.0, "deep": [[[[{}]]]], "": "\u{10ffff}" });
    world.tools.script(&tool("memory.read"), [FakeTools::answered(odd.clone())]);
    let bound = json!({ "stepId": "b", "kind": "tool", "toolId": "memory.write", "dependsOnStepIds": ["a"],
        "args": { "key": "x", "value": { "$from": "/steps/a/output" }, "one": { "$from": "/steps/a/output/k\0" } } });
    let run = world.submit(json!([step("a", "memory.read", &[]), bound])).await;
    assert_eq!(world.until_closed(run).await.status, RunStatus::Completed);
    let args = &world.tools.calls()[1].args;
    assert_eq!((&args["value"], &args["one"]), (&odd, &odd["k\0"]));
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_lines_of_progress_hold_up_neither_the_run_nor_those_who_watch_it() {
    const LINES: usize = 10_000;
    let world = World::new().await;
    let taken = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&taken);
    world.tools.on(&tool("memory.read"), move |_, progress| {
        let counter = Arc::clone(&counter);
        async move {
            for n in 0..LINES {
                let line = CallProgress { message: format!("line {n} {}", "x".repeat(480)), percent: None };
                counter.fetch_add(usize::from(progress.try_send(line).is_ok()), Ordering::SeqCst);
                if n % 100 == 0 {
                    tokio::task::yield_now().await;
                }
            }
            FakeTools::answered(json!({}))
        }
    });
    let began = tokio::time::Instant::now();
    let run = world.submit(chain("memory.read", 1)).await;
    let (mut reads, asleep) =
        (world.node.watch(&operator(), run, 0).await.unwrap(), world.node.watch(&operator(), run, 0).await.unwrap());
    let (mut seqs, mut lines) = (Vec::new(), 0);
    while let Some(item) = reads.recv().await {
        match item.unwrap() {
            WatchItem::Event(event) | WatchItem::Told { event, .. } => seqs.push(event.seq),
            WatchItem::Progress { .. } => lines += 1,
        }
    }
    let envelope = world.until_closed(run).await;
    assert_eq!(envelope.status, RunStatus::Completed);
    assert_eq!(seqs, (1..=envelope.last_seq).collect::<Vec<_>>(), "whoever reads misses no event");
    assert!(
        lines <= taken.load(Ordering::SeqCst) && taken.load(Ordering::SeqCst) < LINES,
        "what does not fit is dropped"
    );
    // Time stands still while anybody works, so waiting for the one who sleeps would show here.
    assert!(began.elapsed().as_secs() < 1, "{:?}", began.elapsed());
    drop(asleep);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_panics_over_an_answer_leaves_a_call_of_unknown_outcome_and_a_run_that_goes_on() {
    let world = World::new().await;
    world.store.put_budget(budget(100)).await.unwrap();
    let calls = AtomicUsize::new(0);
    world.tools.on(&tool("memory.read"), move |_, _| {
        let first = calls.fetch_add(1, Ordering::SeqCst) == 0;
        async move { if first { panic!("a bug in the client") } else { FakeTools::answered(json!({})) } }
    });
    let run = world.submit(chain("memory.read", 1)).await;
    let envelope = world.until_closed(run).await;
    assert_eq!((envelope.status, envelope.tool_calls[0].outcome), (RunStatus::Completed, CallOutcome::Ok));
    assert_eq!(world.tools.count(&tool("memory.read")), 2, "an idempotent call is sent again under its own id");
    let meter = &world.store.budgets().await.unwrap()[0].meter;
    assert_eq!((meter.consumed, meter.reserved), (Micros::units(1), Micros::ZERO));
}
