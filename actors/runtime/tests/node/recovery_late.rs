//! Answers that come late: to a question that is open, to a run that is parked, and to one that is over.

use std::time::Duration;

use serde_json::json;
use signalbox_domain::catalog::Recovery;
use signalbox_domain::ids::{CallId, RunId};
use signalbox_domain::quantity::{BudgetCategory, Micros};
use signalbox_domain::run::decide::RunCommand;
use signalbox_domain::run::envelope::RunEnvelope;
use signalbox_domain::run::event::CallOutcome;
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::run::step::CallResult;
use signalbox_ports::memory::FakeTools;
use signalbox_ports::tools::KnownOutcome;

use crate::harness::{World, operator, step, tool};

const TOOL: &str = "calendar.write";

/// A run whose only call is out, at an executor that does not hear a cancel.
async fn out(recovery: Recovery) -> (World, RunId, CallId) {
    let world = World::with(FakeTools::new([tool(TOOL)]), |_| {}).await;
    world.tools.deafen(&tool(TOOL));
    world.tools.declare(&tool(TOOL), recovery);
    world.tools.hang(&tool(TOOL));
    let body = json!({ "rootAgentId": "ref.study-plan-synthesis", "plan": [step("a", TOOL, &[])] });
    let run = world.submit_as(&operator(), body).await.unwrap();
    world.tools.begun(1).await;
    let call = world.until(run, |run| run.open_calls().count() == 1).await.tool_calls[0].call_id;
    (world, run, call)
}

fn answer(units: f64) -> CallResult {
    CallResult { measured: Some(vec![(BudgetCategory::CostUnits, units)]), ..FakeTools::answered(json!({ "n": 1 })) }
}

fn ended(units: f64) -> KnownOutcome {
    KnownOutcome::Ended(Box::new(answer(units)))
}

fn kill() -> RunCommand {
    RunCommand::Kill { reason: "enough".to_owned(), blamed_id: None }
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_brings_a_parked_run_back_and_nobody_needs_to_decide() {
    let (mut world, run, call) = out(Recovery::AtMostOnce).await;
    world.tools.set_outcome(call, KnownOutcome::Running);
    world.crash().await;
    world.until_status(run, RunStatus::AwaitingApproval).await;
    // Long enough for the run's actor to be gone.
    tokio::time::sleep(Duration::from_secs(20)).await;
    world.tools.set_outcome(call, ended(0.25));
    let closed = world.until_closed(run).await;
    assert_eq!(closed.status, RunStatus::Completed);
    assert_eq!((closed.approvals[0].decision, closed.approvals[0].lapsed), (None, true));
    assert_eq!(closed.cost_ledger.total_cost_units, Micros::units(1), "it was charged when it was settled");
    assert_eq!(world.tools.count(&tool(TOOL)), 1);
}

#[tokio::test(start_paused = true)]
async fn an_executor_that_has_nothing_to_say_leaves_the_question_open() {
    for said in [KnownOutcome::NotKept, KnownOutcome::NotSeen, KnownOutcome::Running] {
        let (mut world, run, call) = out(Recovery::AtMostOnce).await;
        world.tools.set_outcome(call, said.clone());
        world.crash().await;
        world.until_status(run, RunStatus::AwaitingApproval).await;
        tokio::time::sleep(Duration::from_secs(300)).await;
        assert_eq!(world.get(run).await.status, RunStatus::AwaitingApproval, "{said:?}");
        assert!(!world.kinds(run).await.contains(&"late-evidence".to_owned()));
    }
}

#[tokio::test(start_paused = true)]
async fn an_executor_that_still_works_is_asked_until_it_has_ended_or_the_time_of_the_call_is_over() {
    let (mut world, run, call) = out(Recovery::Deduplicating).await;
    world.tools.set_outcome(call, KnownOutcome::Running);
    world.crash().await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(world.get(run).await.tool_calls[0].open);
    world.tools.set_outcome(call, ended(0.25));
    let closed = world.until_closed(run).await;
    assert_eq!((closed.status, closed.cost_ledger.total_cost_units), (RunStatus::Completed, Micros(250_000)));

    let (mut world, run, call) = out(Recovery::Deduplicating).await;
    world.tools.set_outcome(call, KnownOutcome::Running);
    world.crash().await;
    tokio::time::sleep(Duration::from_secs(70)).await;
    let waiting = world.until_status(run, RunStatus::AwaitingApproval).await;
    assert_eq!(waiting.tool_calls[0].outcome, CallOutcome::Unknown);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_lost_between_live_processes_is_asked_for_once() {
    for (recovery, said, status) in [
        (Recovery::Deduplicating, ended(0.25), RunStatus::Completed),
        (Recovery::Deduplicating, KnownOutcome::NotKept, RunStatus::AwaitingApproval),
        // Settled as unknown first, and answered after all.
        (Recovery::AtMostOnce, ended(0.25), RunStatus::Completed),
        (Recovery::AtMostOnce, KnownOutcome::NotKept, RunStatus::AwaitingApproval),
    ] {
        let world = World::with(FakeTools::new([tool(TOOL)]), |_| {}).await;
        world.tools.declare(&tool(TOOL), recovery);
        let tools = world.tools.clone();
        world.tools.on(&tool(TOOL), move |order, _| {
            let (tools, said) = (tools.clone(), said.clone());
            async move {
                tools.set_outcome(order.call_id, said);
                signalbox_domain::run::settle::unknown_result("the conversation broke off")
            }
        });
        let body = json!({ "rootAgentId": "ref.study-plan-synthesis", "plan": [step("a", TOOL, &[])] });
        let run = world.submit_as(&operator(), body).await.unwrap();
        world.until_status(run, status).await;
        assert_eq!(world.tools.count(&tool(TOOL)), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_of_a_killed_run_is_charged_what_its_executor_says_it_used() {
    for (said, charged, evidence) in [
        (ended(0.25), Micros(250_000), true),
        (KnownOutcome::NotSeen, Micros::ZERO, false),
        (KnownOutcome::NotKept, Micros::units(1), false),
        (KnownOutcome::Running, Micros::units(1), false),
    ] {
        let (mut world, run, call) = out(Recovery::AtMostOnce).await;
        world.tools.set_outcome(call, said.clone());
        world.command(run, kill()).await.unwrap();
        let over = world.get(run).await;
        assert_eq!((over.status, over.closed, over.tool_calls[0].open), (RunStatus::Killed, false, true));
        world.crash().await;
        tokio::time::sleep(Duration::from_secs(70)).await;
        let closed = world.until_closed(run).await;
        assert_eq!(closed.status, RunStatus::Killed);
        assert_eq!(closed.tool_calls[0].outcome, CallOutcome::Killed);
        assert_eq!(closed.cost_ledger.total_cost_units, charged, "{said:?}");
        let kinds = world.kinds(run).await;
        assert_eq!(kinds.contains(&"late-evidence".to_owned()), evidence, "{said:?}");
        assert_eq!(kinds.iter().filter(|kind| *kind == "call-settled").count(), 1);
        assert!(world.tools.cancelled().contains(&call));
    }
}

#[tokio::test(start_paused = true)]
async fn a_closed_run_takes_nothing_any_more() {
    let (mut world, run, _) = out(Recovery::AtMostOnce).await;
    world.command(run, kill()).await.unwrap();
    world.crash().await;
    let closed: RunEnvelope = world.until_closed(run).await;
    for command in [kill(), RunCommand::Resume { reason: "no".to_owned() }] {
        assert_eq!(world.command(run, command).await.unwrap_err().code(), "run-terminal");
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.get(run).await.last_seq, closed.last_seq);
}

#[tokio::test(start_paused = true)]
async fn what_its_executor_declares_at_most_once_is_not_sent_again_although_the_catalog_would_allow_it() {
    let mut world = World::new().await;
    world.tools.declare(&tool("memory.read"), Recovery::AtMostOnce);
    world.tools.hang(&tool("memory.read"));
    let run = world.submit(crate::harness::chain("memory.read", 1)).await;
    world.tools.begun(1).await;
    world.until(run, |run| run.open_calls().count() == 1).await;
    world.crash().await;
    world.until_status(run, RunStatus::AwaitingApproval).await;
    assert_eq!(world.tools.count(&tool("memory.read")), 1);
}
