//! How runs end, and when they are closed: terminal is true at once, closed when the last call is settled (RUN-012, I8).

use serde_json::json;
use signalbox_domain::governance::gate::Blame;
use signalbox_domain::ids::BudgetId;
use signalbox_domain::quantity::{BudgetCategory, Micros, Usage};
use signalbox_domain::run::advance::projection;
use signalbox_domain::run::call;
use signalbox_domain::run::event::{CallOutcome, GovernanceAudited, OutputKind, RunEvent};
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::run::step::CallEnding;
use signalbox_domain::run::verify::verify;

use crate::given::{
    Story, answered, answered_with, artifact, cancel, ended, failed, kill, measuring, micros, not_started, step_id,
    tenant, tool,
};
use crate::steps::switch;

fn killed_in_flight() -> (Story, signalbox_domain::ids::CallId) {
    let mut story = Story::started(vec![tool("a", &[]), tool("b", &["a"])]);
    let call = story.call("a");
    story.command(kill()).unwrap();
    (story, call)
}

#[test]
fn a_kill_is_true_at_once_and_the_open_call_keeps_its_reservation() {
    let (story, call) = killed_in_flight();
    assert_eq!(story.status(), RunStatus::Killed);
    assert!(!story.run.closed);
    let record = story.run.call(call).unwrap();
    assert_eq!((record.outcome, record.open), (CallOutcome::Killed, true));
    assert!(story.ready().is_empty());
    assert_eq!(story.kinds_from(4), ["control-applied", "run-finished"]);
}

#[test]
fn an_open_call_of_a_killed_run_is_settled_once_and_then_the_run_is_closed() {
    let (mut story, call) = killed_in_flight();
    story.end(call, ended(CallEnding::Cancelled));
    assert_eq!(story.kinds_from(6), ["call-settled", "run-closed"]);
    assert!(story.run.closed);
    let record = story.run.call(call).unwrap();
    assert_eq!((record.outcome, record.open), (CallOutcome::Killed, false));
    assert_eq!(record.charged, record.estimated_usage, "nobody measured it, so all of it is charged");
    let before = story.run.clone();
    story.end(call, answered(json!(1)));
    assert_eq!(story.run, before, "nothing may follow the closing");
    assert_eq!(verify(&tenant(), story.run.run_key, &story.events).findings, []);
}

#[test]
fn a_result_that_arrives_after_the_kill_is_charged_as_measured_and_kept_as_evidence() {
    let (mut story, call) = killed_in_flight();
    story.end(call, measuring(&[(BudgetCategory::CostUnits, 0.5)], answered_with(json!("late"), vec![artifact("x")])));
    assert_eq!(story.kinds_from(6), ["call-settled", "late-evidence", "run-closed"]);
    let record = story.run.call(call).unwrap();
    assert_eq!(record.charged, Usage::of(BudgetCategory::CostUnits, micros(0.5)));
    assert!(record.output.is_none() && story.run.intermediate_artifacts.is_empty() && story.run.outputs.is_empty());
    assert_eq!(story.status(), RunStatus::Killed);
}

#[test]
fn a_call_that_was_never_sent_before_the_kill_costs_nothing() {
    let (mut story, call) = killed_in_flight();
    story.end(call, not_started());
    assert_eq!(story.run.cost_ledger.total_cost_units, Micros::ZERO);
    assert!(story.run.closed);
}

#[test]
fn an_overshoot_after_the_kill_is_seen_in_the_measured_usage_alone() {
    let (mut story, call) = killed_in_flight();
    story.end(call, measuring(&[(BudgetCategory::CostUnits, 9.0)], answered(json!(1))));
    assert!(!story.kinds_from(6).contains(&"governance-audited"));
    assert_eq!(verify(&tenant(), story.run.run_key, &story.events).findings, []);
    let settled = story.events.iter().find_map(|event| {
        if let RunEvent::CallSettled(settled) = event.event().unwrap() { settled.measured_usage } else { None }
    });
    assert_eq!(settled, Some(Usage::of(BudgetCategory::CostUnits, micros(9.0))));
}

#[test]
fn a_closed_run_has_no_pending_record_and_no_open_reservation() {
    for story in [RunStatus::Cancelled, RunStatus::Killed, RunStatus::Failed, RunStatus::Completed].map(Story::standing)
    {
        assert!(story.run.closed && projection(&story.run).closed);
        assert!(story.run.tool_calls.iter().all(|call| !call.open && call.outcome != CallOutcome::Pending));
        assert!(story.run.run_budgets.iter().all(|own| own.meter.reserved == Micros::ZERO));
    }
}

#[test]
fn a_cancelled_run_is_closed_by_its_calls_too() {
    let mut story = Story::started(vec![tool("a", &[])]);
    let call = story.call("a");
    story.command(cancel()).unwrap();
    assert_eq!((story.status(), story.run.closed), (RunStatus::Cancelled, false));
    story.end(call, failed("whatever"));
    assert_eq!((story.status(), story.run.closed), (RunStatus::Cancelled, true));
}

#[test]
fn a_switch_kills_the_call_that_asks_and_the_run_with_it() {
    let mut story = Story::started(vec![tool("a", &[])]);
    let ask = call::kill(&story.run, &story.prepared("a"), &Blame::Switch(Box::new(switch())), Vec::new(), story.now);
    story.asked(ask);
    story.go_on();
    assert_eq!(story.kinds_from(3), ["call-refused", "governance-audited", "run-finished", "run-closed"]);
    let end = story.run.end.clone().unwrap();
    assert_eq!((end.status, end.code.as_deref()), (RunStatus::Killed, Some("kill-switch")));
    assert_eq!((end.blamed_id.as_deref(), end.step_id), (Some("stop-all"), Some(step_id("a"))));
    assert_eq!(end.user_visible_status_copy.as_deref(), Some("We are looking into it."));
    assert_eq!(end.safe_degradation_mode_id.as_deref(), Some("read-only"));
    assert_eq!(story.run.tool_calls[0].outcome, CallOutcome::Killed);
    assert_eq!(story.run.tool_calls[0].cost_units, Micros::ZERO);
}

#[test]
fn a_budget_kills_with_the_readings_that_decided() {
    let mut story = Story::started(vec![tool("a", &[])]);
    let budget_id = BudgetId::new("acme.monthly").unwrap();
    let readings = vec![signalbox_domain::governance::budget::MeterReading {
        budget_id: budget_id.clone(),
        category: BudgetCategory::CostUnits,
        consumed: micros(9.5),
        reserved: Micros::ZERO,
        limit: Micros::units(10),
        asked: Micros::units(1),
    }];
    let blame = Blame::Budget { budget_id: budget_id.clone(), readings: readings.clone() };
    let ask = call::kill(&story.run, &story.prepared("a"), &blame, Vec::new(), story.now);
    story.asked(ask);
    let end = story.run.end.clone().unwrap();
    assert_eq!((end.status, end.blamed_id.as_deref()), (RunStatus::Killed, Some("acme.monthly")));
    // Customers see the end; figures are for those who see the audit record.
    assert_eq!(end.message.as_deref(), Some("budget `acme.monthly` is used up"));
    let audited = story.events.iter().find_map(|event| {
        if let RunEvent::GovernanceAudited(audited) = event.event().unwrap() { Some(*audited) } else { None }
    });
    assert_eq!(audited, Some(GovernanceAudited::Budget { budget_id, readings }));
}

#[test]
fn a_budget_that_pauses_ends_nothing() {
    let mut story = Story::started(vec![tool("a", &[])]);
    let budget = BudgetId::new("acme.monthly").unwrap();
    let ask = call::pause_for_quota(&story.run, &story.prepared("a"), &budget, &[], story.now);
    story.asked(ask);
    story.go_on();
    assert_eq!(story.status(), RunStatus::Paused);
    assert_eq!(story.run.waiting_for().as_deref(), Some("a larger budget"));
    story.command(crate::given::resume()).unwrap();
    assert_eq!(story.ready(), ["a"], "nothing is lost");
}

fn kinds(story: &Story) -> Vec<OutputKind> {
    story.run.outputs.iter().map(|bundle| bundle.kind).collect()
}

#[test]
fn a_finished_run_gives_its_final_outputs_by_stage() {
    let mut story = Story::started(vec![tool("a", &[]), tool("b", &["a"]), tool("none", &["b"])]);
    story.does("a", answered_with(json!(1), vec![artifact("one")]));
    story.does("b", answered_with(json!(2), vec![artifact("two"), artifact("three")]));
    story.does("none", answered(json!(3)));
    assert_eq!(kinds(&story), [OutputKind::Final, OutputKind::Final]);
    assert_eq!(story.run.outputs[1].stage_id.as_str(), "b");
    assert_eq!(story.run.outputs[1].artifacts, [artifact("two"), artifact("three")]);
}

#[test]
fn a_run_that_fails_after_one_finished_stage_gives_one_partial_bundle_and_no_final_one() {
    let mut story = Story::started(vec![tool("a", &[]), tool("b", &["a"])]);
    story.does("a", answered_with(json!(1), vec![artifact("one")]));
    story.does("b", failed("tool-failed"));
    assert_eq!(kinds(&story), [OutputKind::PartialOnFailure]);
    let names = ["final", "intermediate", "preview", "partial-on-failure"];
    let all = [OutputKind::Final, OutputKind::Intermediate, OutputKind::Preview, OutputKind::PartialOnFailure];
    assert_eq!(serde_json::to_value(all).unwrap(), json!(names));
}

#[test]
fn killed_and_cancelled_runs_give_what_there_was() {
    for command in [kill(), cancel()] {
        let mut story = Story::started(vec![tool("a", &[]), tool("b", &["a"])]);
        story.does("a", answered_with(json!(1), vec![artifact("one")]));
        story.command(command).unwrap();
        assert_eq!(kinds(&story), [OutputKind::PartialOnFailure]);
    }
}
