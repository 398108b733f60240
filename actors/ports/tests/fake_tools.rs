//! Executors for tests do what a test tells them, and only what was admitted.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail the test")]

use std::sync::Arc;

use serde_json::json;
use signalbox_domain::governance::grant::Constraints;
use signalbox_domain::ids::ToolId;
use signalbox_domain::quantity::Usage;
use signalbox_domain::run::append::{Entry, RunHead};
use signalbox_domain::run::step::{CallEnding, CallResult};
use signalbox_ports::conformance::Fixture;
use signalbox_ports::conformance::world::{ask, call, entry, step};
use signalbox_ports::journal::{Admitted, AskOutcome};
use signalbox_ports::memory::{FakeTools, ManualClock, MemoryStore};
use signalbox_ports::tools::{CallOrder, KnownOutcome, Tools};
use tokio::sync::mpsc;

fn fetch() -> ToolId {
    ToolId::new("source.fetch").unwrap()
}

struct World {
    clock: Arc<ManualClock>,
    fixture: Fixture,
    head: RunHead,
}

impl World {
    async fn new() -> Self {
        let clock = Arc::new(ManualClock::default());
        let fixture = Fixture::over(Arc::new(MemoryStore::new(clock.clone())), clock.clone(), ());
        let head = fixture.run(1).await;
        Self { clock, fixture, head }
    }

    async fn admitted(&mut self, number: u64) -> Admitted {
        let asking = Entry { asks: vec![ask(&self.head, number, &[])], ..entry(&self.head) };
        let mut appended = self.fixture.append(asking).await.unwrap();
        self.head = appended.head;
        match appended.asks.remove(0) {
            AskOutcome::Admitted(admitted) => admitted,
            other @ (AskOutcome::Recorded | AskOutcome::Refused(_)) => panic!("{other:?}"),
        }
    }

    async fn execute(&mut self, tools: &FakeTools, number: u64) -> CallResult {
        let permit = tools.permit(&fetch()).unwrap();
        let order = order(&self.head, number);
        tools.execute(self.admitted(number).await, order, permit, mpsc::channel(1).0).await
    }
}

fn order(head: &RunHead, number: u64) -> CallOrder {
    CallOrder {
        call_id: call(number),
        attempt: 1,
        tenant_id: head.tenant_id.clone(),
        run_id: head.run_id,
        step_id: step("one"),
        tool_id: fetch(),
        tool_semver: "1.0.0".into(),
        args: json!({}),
        secrets: std::collections::BTreeMap::new(),
        ceiling: Usage::none(),
        timeout_ms: 1_000,
        constraints: Constraints::default(),
        trace: None,
    }
}

#[tokio::test]
async fn a_script_answers_first_and_the_behaviour_after_it() {
    let mut world = World::new().await;
    let tools = FakeTools::new([fetch()]);
    tools.on(&fetch(), async |order, _| FakeTools::answered(json!(order.attempt)));
    tools.script(&fetch(), [FakeTools::answered(json!("first"))]);
    assert_eq!(world.execute(&tools, 1).await, FakeTools::answered(json!("first")));
    assert_eq!(world.execute(&tools, 2).await, FakeTools::answered(json!(1)));
    assert_eq!(tools.count(&fetch()), 2);
    assert_eq!(tools.calls().iter().map(|order| order.call_id).collect::<Vec<_>>(), [call(1), call(2)]);
    assert_eq!(tools.configured(), [(fetch(), "1.0.0".to_owned())]);
}

#[tokio::test]
async fn a_hanging_call_ends_when_it_is_cancelled() {
    let mut world = World::new().await;
    let tools = FakeTools::new([fetch()]);
    tools.hang(&fetch());
    let cancelling = async {
        tools.begun(1).await;
        tools.cancel(&fetch(), call(2)).await;
        tools.cancel(&fetch(), call(1)).await;
    };
    let (result, ()) = tokio::join!(world.execute(&tools, 1), cancelling);
    assert_eq!(result.ending, CallEnding::Cancelled);
    assert_eq!(tools.cancelled(), [call(2), call(1)]);
}

#[tokio::test]
async fn a_permit_is_held_for_the_time_of_a_call() {
    let mut world = World::new().await;
    let tools = FakeTools::new([fetch()]);
    tools.set_permits(&fetch(), 1);
    let permit = tools.permit(&fetch());
    assert!(permit.is_some() && tools.permit(&fetch()).is_none());
    drop(permit);
    world.execute(&tools, 1).await;
    assert!(tools.permit(&fetch()).is_some());
    assert!(tools.permit(&ToolId::new("web.fetch").unwrap()).is_none());
}

#[tokio::test]
async fn an_admission_older_than_two_seconds_is_not_begun() {
    let mut world = World::new().await;
    let tools = FakeTools::new([fetch()]).with_clock(world.clock.clone());
    for age_ms in [2_000, 2_001] {
        let (admitted, order) = (world.admitted(age_ms).await, order(&world.head, age_ms));
        world.clock.advance_ms(age_ms);
        let result = tools.execute(admitted, order, tools.permit(&fetch()).unwrap(), mpsc::channel(1).0).await;
        let missed = matches!(&result.ending, CallEnding::NotStarted { code, .. } if code == "dispatch-window-missed");
        assert_eq!((missed, tools.count(&fetch())), (age_ms > 2_000, 1));
    }
}

#[tokio::test]
async fn an_outcome_is_what_the_test_said() {
    let tools = FakeTools::new([fetch()]);
    assert_eq!(tools.outcome(&fetch(), call(1)).await, KnownOutcome::NotSeen);
    tools.set_outcome(call(1), KnownOutcome::Running);
    assert_eq!(tools.outcome(&fetch(), call(1)).await, KnownOutcome::Running);
}
