//! Questions to people: who may answer, once, in time, and about exactly what was shown (RUN-022).

use serde_json::json;
use signalbox_domain::identity::Role;
use signalbox_domain::ids::ApprovalId;
use signalbox_domain::run::advance::{advance, next_wake, projection};
use signalbox_domain::run::approval;
use signalbox_domain::run::decide::{Context, RunCommand, decide};
use signalbox_domain::run::event::{ApprovalDecision, ApprovalReason, DecisionLabel, RunEvent, StoredValue};
use signalbox_domain::run::plan::{APPROVAL_TTL_SECONDS_DEFAULT, ApprovalRequirement, Plan, StepKind};
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::run::step::StepState;
use uuid::Uuid;

use crate::given::{
    START, Story, actor, answer, answered, asking, gate, kill, lost, operator, optional, pause, step_id, submitter,
    tool,
};

/// A run that asks whether it may go on.
fn asked() -> (Story, ApprovalId) {
    let mut story = Story::started(vec![gate("gate", &[]), tool("after", &["gate"])]);
    let approval = story.asks("gate");
    (story, approval)
}

fn labels(story: &Story) -> Vec<DecisionLabel> {
    story.run.decision_rationale.iter().map(|decision| decision.decision_label).collect()
}

#[test]
fn yes_lets_the_run_go_on() {
    let (mut story, approval) = asked();
    assert_eq!(story.status(), RunStatus::AwaitingApproval);
    story.command(answer(approval, ApprovalDecision::Approve)).unwrap();
    assert_eq!(story.status(), RunStatus::Running);
    assert_eq!(story.ready(), ["after"]);
    assert_eq!(labels(&story), [DecisionLabel::GatePassed]);
    let record = &story.run.approvals[0];
    assert_eq!((record.decision, record.decided_by.as_ref()), (Some(ApprovalDecision::Approve), Some(&operator())));
}

#[test]
fn no_fails_the_run_with_the_label_gate_failed() {
    let (mut story, approval) = asked();
    story.command(answer(approval, ApprovalDecision::Reject)).unwrap();
    assert_eq!(story.status(), RunStatus::Failed);
    let end = story.run.end.clone().unwrap();
    assert_eq!((end.code.as_deref(), end.step_id), (Some("approval-rejected"), Some(step_id("gate"))));
    assert_eq!(labels(&story), [DecisionLabel::GateFailed]);
}

#[test]
fn silence_fails_the_run_in_the_end_with_a_reminder_at_half_time() {
    let (mut story, approval) = asked();
    assert_eq!(next_wake(&story.run), Some(START.plus_seconds(500)));
    story.after_ms(499_999);
    assert!(!story.run.approvals[0].reminded);
    story.after_ms(1);
    assert_eq!(story.kinds_from(4), ["approval-reminded"]);
    assert_eq!(next_wake(&story.run), Some(START.plus_seconds(1_000)));
    story.after_ms(499_999);
    assert_eq!(story.status(), RunStatus::AwaitingApproval);
    assert_eq!(story.says(&answer(approval, ApprovalDecision::Approve)), "ok", "the last moment counts");
    story.now = story.now.plus_ms(1);
    assert_eq!(story.says(&answer(approval, ApprovalDecision::Approve)), "approval-closed");
    story.go_on();
    assert_eq!(story.status(), RunStatus::Failed);
    assert_eq!(story.run.end.clone().unwrap().code.as_deref(), Some("approval-expired"));
    assert_eq!(labels(&story), [DecisionLabel::GateFailed]);
    assert_eq!(story.run.decision_rationale[0].text, "approval-expired");
}

#[test]
fn silence_counts_while_the_run_is_held_too() {
    let mut story = Story::started(vec![gate("gate", &[]), tool("beside", &[])]);
    story.asks("gate");
    story.command(pause()).unwrap();
    story.after_ms(1_000_000);
    assert_eq!(story.status(), RunStatus::Failed);
}

#[test]
fn a_gate_waits_seven_days_unless_it_says_otherwise() {
    assert_eq!(APPROVAL_TTL_SECONDS_DEFAULT, 604_800);
    let plan: Plan = serde_json::from_value(json!({"steps": [{"stepId": "gate", "kind": "approval"}]})).unwrap();
    let StepKind::Approval { approval_ttl_seconds, requirement, .. } = plan.steps[0].kind.clone() else {
        panic!("a gate")
    };
    assert_eq!((approval_ttl_seconds, requirement), (604_800, ApprovalRequirement::Operator));
}

#[test]
fn an_answer_counts_once() {
    let (mut story, approval) = asked();
    story.command(answer(approval, ApprovalDecision::Approve)).unwrap();
    for again in [ApprovalDecision::Approve, ApprovalDecision::Reject] {
        assert_eq!(story.says(&answer(approval, again)), "approval-closed");
    }
}

#[test]
fn an_answer_holds_for_exactly_what_was_shown() {
    let (story, approval_id) = asked();
    let seen = |digest: &str| RunCommand::DecideApproval {
        approval_id,
        decision: ApprovalDecision::Approve,
        reason: "read it".to_owned(),
        subject_digest: Some(digest.to_owned()),
    };
    let digest = &story.run.approvals[0].subject_digest;
    assert_eq!(story.says(&seen(digest)), "ok");
    assert_eq!(story.says(&seen(&digest.replace(|c: char| c.is_ascii_digit(), "0"))), "approval-subject-changed");
}

#[test]
fn one_changed_value_another_step_or_another_run_is_another_subject() {
    let (story, _) = asked();
    let digest = |story: &Story, id: &str, subject| {
        let step = story.run.plan.step(&step_id(id)).unwrap();
        let new = approval::request(&story.run, step, &subject, StoredValue::Inline(subject.clone()), START).unwrap();
        let RunEvent::ApprovalRequested(asked) = new.event else { panic!("no question") };
        asked.subject_digest
    };
    let mut other_run = story.clone();
    other_run.run.run_id = signalbox_domain::ids::RunId::new(Uuid::from_u128(99));
    let two_gates = Story::started(vec![gate("gate", &[]), gate("other", &[])]);
    let digests = [
        digest(&story, "gate", json!({"pages": 3})),
        digest(&story, "gate", json!({"pages": 4})),
        digest(&two_gates, "other", json!({"pages": 3})),
        digest(&other_run, "gate", json!({"pages": 3})),
    ];
    assert_eq!(digests.iter().collect::<std::collections::BTreeSet<_>>().len(), 4);
    assert_eq!(digests[0], story.run.approvals[0].subject_digest);
}

#[test]
fn an_answer_that_does_not_fit_the_question_is_refused() {
    let (story, approval) = asked();
    assert_eq!(story.says(&answer(approval, ApprovalDecision::Skip)), "decision-not-allowed");
    let unknown = ApprovalId::new(Uuid::from_u128(4));
    assert_eq!(story.says(&answer(unknown, ApprovalDecision::Approve)), "no-such-approval");
    let speechless = RunCommand::DecideApproval {
        approval_id: approval,
        decision: ApprovalDecision::Approve,
        reason: "  ".to_owned(),
        subject_digest: None,
    };
    assert_eq!(story.says(&speechless), "reason-required");
}

#[test]
fn a_question_of_a_run_that_is_over_cannot_be_answered() {
    let (mut story, approval) = asked();
    story.command(kill()).unwrap();
    assert_eq!(story.says(&answer(approval, ApprovalDecision::Approve)), "run-terminal");
    assert!(story.run.approvals[0].lapsed);
    assert!(projection(&story.run).open_approvals.is_empty());
}

#[test]
fn a_question_that_was_answered_or_ran_out_is_closed_also_after_the_run_is_over() {
    let (mut story, approval) = asked();
    story.command(answer(approval, ApprovalDecision::Reject)).unwrap();
    assert_eq!(story.status(), RunStatus::Failed);
    assert_eq!(story.says(&answer(approval, ApprovalDecision::Approve)), "approval-closed");
    let (mut story, approval) = asked();
    story.after_ms(1_000_000);
    assert_eq!(story.status(), RunStatus::Failed);
    assert_eq!(story.says(&answer(approval, ApprovalDecision::Approve)), "approval-closed");
    let (mut story, approval) = asked();
    story.command(kill()).unwrap();
    story.now = story.now.plus_ms(2_000_000);
    assert_eq!(story.says(&answer(approval, ApprovalDecision::Approve)), "run-terminal", "and stays what it was");
}

#[test]
fn a_clock_that_steps_back_neither_reminds_twice_nor_opens_what_was_closed() {
    let (mut story, approval) = asked();
    story.after_ms(500_000);
    story.after_ms(-400_000);
    story.after_ms(400_000);
    assert_eq!(story.kinds_from(4), ["approval-reminded"]);
    story.after_ms(499_999);
    story.after_ms(-100_000);
    assert_eq!(story.says(&answer(approval, ApprovalDecision::Approve)), "ok", "it waits the longer");
    story.after_ms(100_001);
    assert_eq!(story.run.end.clone().unwrap().code.as_deref(), Some("approval-expired"));
    story.after_ms(-1_000_000);
    assert_eq!(story.says(&answer(approval, ApprovalDecision::Approve)), "approval-closed");
}

#[test]
fn a_question_that_ran_out_unseen_is_not_reminded_of() {
    let (mut story, _) = asked();
    story.after_ms(5_000_000);
    let kinds = story.kinds_from(4);
    assert_eq!(kinds.first(), Some(&"approval-expired"), "{kinds:?}");
    assert!(!kinds.contains(&"approval-reminded"));
}

#[test]
fn a_digest_in_another_form_is_another_digest() {
    let (story, approval_id) = asked();
    let digest = story.run.approvals[0].subject_digest.clone();
    for other in [digest.to_uppercase(), digest[..63].to_owned(), format!("{digest}0"), String::new(), "\0".repeat(64)]
    {
        let told = RunCommand::DecideApproval {
            approval_id,
            decision: ApprovalDecision::Approve,
            reason: "read it".to_owned(),
            subject_digest: Some(other.clone()),
        };
        assert_eq!(story.says(&told), "approval-subject-changed", "{other:?}");
    }
}

#[test]
fn who_may_answer_depends_on_what_is_required() {
    use ApprovalRequirement as R;
    let says = |requirement, by: &signalbox_domain::identity::Actor, scope: &str| {
        let mut story = Story::started(vec![asking(requirement, "gate", &[])]);
        let approval = story.asks("gate");
        let scopes = scope.split_whitespace().map(str::to_owned).collect();
        let context = Context { now: story.now, actor: by.clone(), scopes, expected_seq: None };
        let decided = decide(&story.run, &answer(approval, ApprovalDecision::Approve), &context);
        decided.map_or_else(|denial| denial.code(), |_| "ok")
    };
    let platform = actor("pia", Role::PlatformOperator);
    let (teacher, guardian) = (actor("tess", Role::Creator), actor("gus", Role::Customer));
    let people = [
        (operator(), ""),
        (platform, ""),
        (teacher, "approve:teacher tool:web.fetch"),
        (guardian, "approve:guardian"),
        (submitter(), ""),
    ];
    let table = [
        (R::Operator, [true, true, false, false, false]),
        (R::Teacher, [false, false, true, false, false]),
        (R::Guardian, [false, false, false, true, false]),
        (R::UserConfirmBeforeProceed, [false, false, false, false, true]),
    ];
    for (requirement, row) in table {
        for ((by, scope), may) in people.iter().zip(row) {
            let told = if may { "ok" } else { "not-authorized" };
            assert_eq!(says(requirement, by, scope), told, "{requirement:?} {by:?}");
        }
    }
    assert_eq!(says(R::Teacher, &operator(), "approve:teacher"), "ok", "an operator may be a teacher as well");
    for near in ["approve:teachers", "approve:", "APPROVE:TEACHER", "teacher", "approve:guardian"] {
        assert_eq!(says(R::Teacher, &actor("tess", Role::Creator), near), "not-authorized", "{near}");
    }
}

#[test]
fn a_gate_that_asks_nobody_is_no_gate() {
    let mut story = Story::started(vec![asking(ApprovalRequirement::None, "gate", &[]), tool("after", &["gate"])]);
    let step = story.run.plan.steps[0].clone();
    let event = approval::request(&story.run, &step, &json!(null), StoredValue::Inline(json!(null)), story.now);
    story.write(event);
    assert!(matches!(story.state("gate"), StepState::Skipped { branch_not_taken: false, .. }));
    assert_eq!(story.ready(), ["after"]);
}

#[test]
fn secrets_in_questions_and_answers_are_not_kept() {
    let secret = "ghp_FAKE00000000000000000000000000000000";
    let (mut story, approval) = asked();
    let reason = format!("my key is {secret}");
    let told = RunCommand::DecideApproval {
        approval_id: approval,
        decision: ApprovalDecision::Approve,
        reason,
        subject_digest: None,
    };
    story.command(told).unwrap();
    assert!(story.events.iter().all(|event| !String::from_utf8_lossy(&event.body).contains("FAKE")));
}

#[test]
fn an_optional_gate_is_obeyed_all_the_same() {
    let mut story = Story::started(vec![optional(gate("gate", &[])), tool("after", &["gate"])]);
    let approval = story.asks("gate");
    story.command(answer(approval, ApprovalDecision::Reject)).unwrap();
    assert_eq!(story.status(), RunStatus::Failed);
}

#[test]
fn open_questions_are_listed_with_what_a_decider_needs() {
    let (story, approval) = asked();
    let rows = projection(&story.run).open_approvals;
    assert_eq!(rows.len(), 1);
    assert_eq!(
        (rows[0].approval_id, rows[0].step_id.as_str(), rows[0].reason),
        (approval, "gate", ApprovalReason::Gate)
    );
    assert_eq!(rows[0].subject_digest, story.run.approvals[0].subject_digest);
    assert_eq!(rows[0].prompt, "May it go on?");
    assert_eq!((rows[0].remind_at_unix_ms, rows[0].reminded), (START.plus_seconds(500), false));
    let mut story = story;
    story.after_ms(500_000);
    assert!(projection(&story.run).open_approvals[0].reminded, "that somebody was reminded is seen in the list");
}

/// A run that asks what became of a call.
fn asked_about_a_lost_call(step: signalbox_domain::run::plan::Step) -> (Story, ApprovalId) {
    let mut story = Story::started(vec![step, tool("after", &["a"])]);
    story.does("a", lost());
    let approval = story.run.approvals[0].clone();
    assert_eq!(story.status(), RunStatus::AwaitingApproval);
    assert_eq!(approval.reason, ApprovalReason::UnknownCallOutcome);
    assert_eq!(approval.call_id, Some(story.run.tool_calls[0].call_id));
    let StoredValue::Inline(subject) = &approval.subject else { panic!("small") };
    assert_eq!(subject["argsHash"], story.run.tool_calls[0].args_hash);
    (story, approval.approval_id)
}

#[test]
fn a_lost_call_can_be_sent_anew_under_another_id() {
    let (mut story, approval) = asked_about_a_lost_call(tool("a", &[]));
    story.command(answer(approval, ApprovalDecision::Approve)).unwrap();
    assert_eq!(story.ready(), ["a"]);
    let (first, second) = (story.run.tool_calls[0].call_id, story.does("a", answered(json!(1))));
    assert_ne!(first, second);
    assert_eq!(labels(&story), [DecisionLabel::Retry]);
    assert_eq!(story.ready(), ["after"]);
}

#[test]
fn a_lost_call_can_be_taken_as_done() {
    let (mut story, approval) = asked_about_a_lost_call(tool("a", &[]));
    story.command(answer(approval, ApprovalDecision::Skip)).unwrap();
    assert!(matches!(story.state("a"), StepState::Skipped { branch_not_taken: false, .. }));
    assert_eq!(story.ready(), ["after"]);
}

#[test]
fn a_lost_call_can_fail_its_step() {
    let (mut story, approval) = asked_about_a_lost_call(tool("a", &[]));
    story.command(answer(approval, ApprovalDecision::Reject)).unwrap();
    assert_eq!(story.run.end.clone().unwrap().code.as_deref(), Some("unknown-call-outcome"));
    let (mut story, approval) = asked_about_a_lost_call(optional(tool("a", &[])));
    story.command(answer(approval, ApprovalDecision::Reject)).unwrap();
    assert_eq!(labels(&story), [DecisionLabel::ToolSkipped]);
    assert_eq!(story.ready(), ["after"]);
}

#[test]
fn nothing_is_due_while_a_question_waits() {
    let (story, _) = asked();
    assert!(advance(&story.run, story.now).is_empty());
    assert!(story.run.is_waiting(story.now));
}
