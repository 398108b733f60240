//! Calls found open after a crash, and answers that come too late (RUN-026).

use serde_json::json;
use signalbox_domain::catalog::Recovery;
use signalbox_domain::quantity::{BudgetCategory, Micros, Usage};
use signalbox_domain::run::call;
use signalbox_domain::run::event::{CallOutcome, Evidence, GroundingState, RunEvent};
use signalbox_domain::run::evolve::fold;
use signalbox_domain::run::settle::{ATTEMPTS_MAX, Recover, recover, unknown_result};
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::run::step::{CallEnding, StepState};

use crate::given::{
    Story, answer, answered, answered_with, artifact, ended, failed, kill, lost, measuring, not_started, tool,
};

fn crashed_with(recovery: Recovery) -> Story {
    let mut story = Story::started(vec![tool("a", &[])]);
    story.call_recovering("a", recovery);
    // What the next owner has is the journal alone.
    story.run = fold(&story.events).unwrap();
    story
}

fn orphan(story: &Story) -> Recover {
    recover(&story.run, &story.run.tool_calls[0])
}

#[test]
fn a_crash_before_the_pending_record_leaves_the_step_ready_under_the_same_call_id() {
    let story = Story::started(vec![tool("a", &[])]);
    let after = fold(&story.events).unwrap();
    assert_eq!(after.ready_to_bind(story.now), [0]);
    assert_eq!(after.next_call_id(&after.plan.steps[0]), story.prepared("a").call_id);
}

#[test]
fn each_policy_recovers_an_open_call_in_its_own_way() {
    assert_eq!(orphan(&crashed_with(Recovery::Idempotent)), Recover::Redispatch { attempt: 2 });
    assert_eq!(orphan(&crashed_with(Recovery::Deduplicating)), Recover::AskOutcome);
    assert_eq!(orphan(&crashed_with(Recovery::AtMostOnce)), Recover::Unknown);
    assert_eq!(Recovery::default(), Recovery::AtMostOnce);
}

#[test]
fn a_call_that_is_sent_again_keeps_its_id_and_its_reservation() {
    let mut story = crashed_with(Recovery::Idempotent);
    let record = story.run.tool_calls[0].clone();
    story.after_ms(6_000);
    assert_eq!(story.status(), RunStatus::AwaitingTool);
    let target = story.run.target_of(&story.run.plan.steps[0]).unwrap();
    story.asked(call::redispatch(&record, target, 2, story.now));
    let again = story.run.tool_calls[0].clone();
    assert_eq!(story.run.tool_calls.len(), 1);
    assert_eq!((again.call_id, again.attempt, &again.reservations), (record.call_id, 2, &record.reservations));
    assert_eq!(story.status(), RunStatus::Running, "it is young again");
    story.end(record.call_id, answered(json!(1)));
    assert_eq!(story.status(), RunStatus::Completed);
}

#[test]
fn a_call_that_brings_its_node_down_again_and_again_is_given_up() {
    let mut story = crashed_with(Recovery::Idempotent);
    let target = story.run.target_of(&story.run.plan.steps[0]).unwrap();
    let mut sent = 1;
    while let Recover::Redispatch { attempt } = orphan(&story) {
        let record = story.run.tool_calls[0].clone();
        story.asked(call::redispatch(&record, target.clone(), attempt, story.now));
        sent += 1;
    }
    assert_eq!(sent, ATTEMPTS_MAX);
    assert_eq!(orphan(&story), Recover::Unknown);
}

#[test]
fn an_open_call_of_a_run_that_is_over_is_cancelled_whatever_its_policy() {
    for recovery in [Recovery::Idempotent, Recovery::Deduplicating, Recovery::AtMostOnce] {
        let mut story = crashed_with(recovery);
        story.command(kill()).unwrap();
        assert_eq!(orphan(&story), Recover::Cancel);
    }
}

#[test]
fn a_call_nobody_knows_of_is_charged_in_full_once_and_asked_about() {
    let mut story = crashed_with(Recovery::AtMostOnce);
    let call = story.run.tool_calls[0].clone();
    story.end(call.call_id, unknown_result("the node went away"));
    assert_eq!(story.kinds_from(4), ["call-settled", "approval-requested"]);
    let settled = story.run.call(call.call_id).unwrap();
    assert_eq!((settled.outcome, &settled.charged), (CallOutcome::Unknown, &call.estimated_usage));
    assert_eq!(story.status(), RunStatus::AwaitingApproval);
}

#[test]
fn a_late_result_is_taken_as_the_answer_while_the_question_is_open() {
    let mut story = Story::started(vec![tool("a", &[]), tool("after", &["a"])]);
    let call = story.does("a", lost());
    let question = story.run.approvals[0].approval_id;
    let spent = story.run.cost_ledger.clone();
    let late = answered_with(json!({"after": "all"}), vec![artifact("late")]);
    story.end(call, measuring(&[(BudgetCategory::CostUnits, 0.0)], late));
    assert!(matches!(story.state("a"), StepState::Done { output: Some(_), .. }));
    assert_eq!(story.run.intermediate_artifacts[0].artifact, artifact("late"));
    assert_eq!(story.status(), RunStatus::Running);
    assert_eq!(story.ready(), ["after"]);
    assert_eq!(story.run.cost_ledger, spent, "it was charged when it was settled");
    let approve = answer(question, signalbox_domain::run::event::ApprovalDecision::Approve);
    assert_eq!(story.says(&approve), "approval-closed");
}

#[test]
fn a_late_failure_answers_nothing() {
    let mut story = Story::started(vec![tool("a", &[])]);
    let call = story.does("a", lost());
    story.end(call, failed("tool-failed"));
    assert_eq!(story.status(), RunStatus::AwaitingApproval);
    assert_eq!(story.kinds_from(story.run.last_seq), ["late-evidence"]);
}

#[test]
fn a_late_result_without_citations_does_not_answer_for_an_agent_that_must_cite() {
    let mut story = Story::started(vec![tool("a", &[])]);
    let call = story.does("a", lost());
    let evidence = Evidence {
        evidence_pack_id: "pack".to_owned(),
        grounding_state: GroundingState::Ungrounded,
        citation_count: 0,
    };
    let ending = CallEnding::Answered {
        partial: false,
        output: json!(1),
        evidence: Some(evidence),
        effects: vec![],
        artifacts: vec![],
    };
    story.end(call, ended(ending));
    assert_eq!(story.status(), RunStatus::AwaitingApproval);
}

#[test]
fn a_late_result_changes_nothing_once_somebody_has_answered() {
    let mut story = Story::started(vec![tool("a", &[])]);
    let first = story.does("a", lost());
    let question = story.run.approvals[0].approval_id;
    story.command(answer(question, signalbox_domain::run::event::ApprovalDecision::Approve)).unwrap();
    let second = story.call("a");
    story.end(first, answered(json!("late")));
    assert_eq!(story.state("a"), &StepState::InFlight { call_id: second });
    story.end(second, answered(json!("second")));
    assert_eq!(story.status(), RunStatus::Completed);
}

#[test]
fn a_second_answer_to_a_settled_call_is_kept_and_counts_for_nothing() {
    let mut story = Story::started(vec![tool("a", &[]), tool("b", &[])]);
    let call = story.does("a", answered(json!(1)));
    let before = story.run.clone();
    assert!(story.end(call, answered(json!(2))).is_none(), "nothing is released twice");
    assert_eq!(story.kinds_from(before.last_seq + 1), ["late-evidence"]);
    assert_eq!((&story.run.steps, &story.run.cost_ledger), (&before.steps, &before.cost_ledger));
    for silent in [not_started(), lost(), ended(CallEnding::Cancelled)] {
        story.end(call, silent);
    }
    assert_eq!(story.run.last_seq, before.last_seq + 1, "only results are evidence");
}

#[test]
fn nothing_is_written_for_a_call_the_run_does_not_know_or_after_the_run_is_closed() {
    let mut story = Story::started(vec![tool("a", &[])]);
    let stranger = Story::started(vec![tool("b", &[])]).prepared("b").call_id;
    let before = story.run.last_seq;
    story.end(stranger, answered(json!(1)));
    assert_eq!(story.run.last_seq, before);
    let call = story.does("a", answered(json!(1)));
    assert!(story.run.closed);
    let before = story.run.last_seq;
    story.end(call, answered(json!(2)));
    assert_eq!(story.run.last_seq, before);
}

#[test]
fn a_call_that_never_began_asks_again_under_another_id_and_leaves_its_grant_unused() {
    let mut story = Story::started(vec![tool("a", &[])]);
    let first = story.does("a", not_started());
    assert_eq!(story.run.call(first).unwrap().outcome, CallOutcome::Held);
    assert_eq!(story.status(), RunStatus::Running);
    assert_eq!(story.ready(), ["a"]);
    assert!(story.run.grant_uses.values().all(|uses| *uses == 0));
    let second = story.does("a", answered(json!(1)));
    assert_ne!(first, second);
    assert!(story.run.grant_uses.values().all(|uses| *uses == 1));
    assert_eq!(story.status(), RunStatus::Completed);
}

#[test]
fn a_call_that_never_begins_fails_its_step_in_the_end() {
    let mut story = Story::started(vec![tool("a", &[])]);
    let mut tries = 0;
    while story.status() == RunStatus::Running || story.status() == RunStatus::Starting {
        story.does("a", not_started());
        tries += 1;
    }
    assert_eq!(tries, ATTEMPTS_MAX + 1);
    assert_eq!(story.run.end.clone().unwrap().code.as_deref(), Some("executor-unreachable"));
    assert_eq!(story.run.cost_ledger.total_cost_units, Micros::ZERO);
}

#[test]
fn what_a_settlement_gives_back_is_what_the_append_held() {
    let mut story = Story::started(vec![tool("a", &[])]);
    let prepared = story.prepared("a");
    let mut admissible = story.admissible(&prepared);
    let held = |id: &str| signalbox_domain::run::event::Reservation {
        budget_id: signalbox_domain::ids::BudgetId::new(id).unwrap(),
        category: BudgetCategory::CostUnits,
        amount: Micros::units(1),
    };
    admissible.reservations = vec![held("in-force"), held("retired")];
    let mut ask = call::admit(&prepared, &admissible, story.now);
    // The store stamps a reading for each meter it has reserved on.
    let RunEvent::CallPending(pending) = &mut ask.events[0].event else { panic!("an admission") };
    pending.meters = vec![signalbox_domain::governance::budget::MeterReading {
        budget_id: held("in-force").budget_id,
        category: BudgetCategory::CostUnits,
        consumed: Micros::ZERO,
        reserved: Micros::units(1),
        limit: Micros::units(9),
        asked: Micros::units(1),
    }];
    story.asked(ask);
    let release = story.end(prepared.call_id, answered(json!(1))).unwrap();
    assert_eq!(release.reservations, [held("in-force")]);
    assert_eq!(
        release.charged,
        Usage::of(BudgetCategory::CostUnits, Micros::units(1)).with(BudgetCategory::Retrievals, Micros::units(1))
    );
}
