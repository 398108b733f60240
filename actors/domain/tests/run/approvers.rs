//! Named approvers: those and nobody else, and never whoever submitted the run.

use serde_json::json;
use signalbox_domain::identity::{Actor, Role};
use signalbox_domain::run::advance::projection;
use signalbox_domain::run::approvers::APPROVERS_MAX;
use signalbox_domain::run::decide::{Denial, decide};
use signalbox_domain::run::event::ApprovalDecision;
use signalbox_domain::run::plan::ApprovalRequirement;
use signalbox_domain::run::submission::{accept, parse};

use crate::given::{
    Story, actor, answer, approved_by, asking, gate, lost, naming, operator, plan, submission_of, submitted_by, tool,
};

const OPERATORS: [Role; 2] = [Role::TenantOperator, Role::PlatformOperator];

/// What each of these hears who tries to say yes at a gate that names approvers.
fn says(story: &Story, by: &Actor) -> &'static str {
    let approval = story.run.approvals[0].approval_id;
    let decided = decide(&story.run, &answer(approval, ApprovalDecision::Approve), &story.context_of(by));
    decided.map_or_else(|denial| denial.code(), |_| "ok")
}

fn asked(actor_ids: &[&str], roles: &[Role]) -> Story {
    let mut story = Story::started(vec![naming(actor_ids, roles, gate("gate", &[]))]);
    story.asks("gate");
    story
}

#[test]
fn only_who_is_named_by_id_may_answer() {
    let story = asked(&["otto", "olga"], &[]);
    assert_eq!(says(&story, &operator()), "ok");
    assert_eq!(says(&story, &actor("olga", Role::PlatformOperator)), "ok");
    assert_eq!(says(&story, &actor("oscar", Role::TenantOperator)), "not-an-approver");
    assert_eq!(says(&story, &actor("OTTO", Role::TenantOperator)), "not-an-approver", "an id is exact");
}

#[test]
fn only_who_has_a_named_role_may_answer() {
    let story = asked(&[], &[Role::PlatformOperator]);
    assert_eq!(says(&story, &actor("pia", Role::PlatformOperator)), "ok");
    assert_eq!(says(&story, &operator()), "not-an-approver");
}

#[test]
fn an_id_or_a_role_is_enough_where_both_are_named() {
    let story = asked(&["otto"], &[Role::PlatformOperator]);
    assert_eq!(says(&story, &operator()), "ok");
    assert_eq!(says(&story, &actor("pia", Role::PlatformOperator)), "ok");
    assert_eq!(says(&story, &actor("oscar", Role::TenantOperator)), "not-an-approver");
}

#[test]
fn a_name_lends_nobody_the_standing_that_is_required() {
    let story = asked(&["carl"], &[]);
    for role in [Role::Customer, Role::Creator, Role::Service] {
        assert_eq!(says(&story, &actor("carl", role)), "not-authorized", "{role:?}");
    }
    assert_eq!(says(&story, &actor("carl", Role::TenantOperator)), "ok");
}

#[test]
fn whoever_submitted_the_run_is_not_among_the_approvers_even_by_role() {
    let mut story = asked(&[], &OPERATORS);
    story.run.submitted_by = operator();
    assert_eq!(says(&story, &operator()), "not-an-approver");
    assert_eq!(says(&story, &actor("oscar", Role::TenantOperator)), "ok");
    let mut unnamed = Story::started(vec![gate("gate", &[])]);
    unnamed.run.submitted_by = operator();
    unnamed.asks("gate");
    assert_eq!(says(&unnamed, &operator()), "ok", "without names the requirement alone decides");
}

#[test]
fn whoever_submits_cannot_name_itself() {
    let plan = plan(vec![naming(&["olga", "ann"], &[], gate("gate", &[]))]);
    let refused = accept(submission_of(&plan), submitted_by(), Vec::new()).unwrap_err();
    assert_eq!(refused.code(), "bad-step");
    assert!(refused.to_string().contains("name others"), "{refused}");
}

#[test]
fn names_are_refused_where_they_make_no_sense() {
    use ApprovalRequirement as R;
    let code = |step| plan(vec![step]).validate().map_or_else(|error| error.code(), |()| "ok");
    for requirement in [R::Operator, R::Teacher, R::Guardian] {
        assert_eq!(code(naming(&["olga"], &OPERATORS, asking(requirement, "a", &[]))), "ok", "{requirement:?}");
        // A teacher or a guardian may have any role; what makes one of somebody is a scope.
        let told = if requirement == R::Operator { "bad-step" } else { "ok" };
        for role in [Role::Customer, Role::Creator, Role::Service] {
            assert_eq!(code(naming(&[], &[role], asking(requirement, "a", &[]))), told, "{requirement:?} {role:?}");
        }
    }
    for requirement in [R::None, R::UserConfirmBeforeProceed] {
        assert_eq!(code(naming(&["olga"], &[], asking(requirement, "a", &[]))), "bad-step", "{requirement:?}");
    }
    assert_eq!(code(naming(&[], &[], gate("a", &[]))), "bad-step");
    let many: Vec<String> = (0..=APPROVERS_MAX).map(|i| format!("o{i}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(code(naming(&many, &[], gate("a", &[]))), "bad-step");
    assert_eq!(code(naming(&many[1..], &[], gate("a", &[]))), "ok");
}

#[test]
fn names_that_could_be_read_in_two_ways_are_refused() {
    let code = |approvers: &str| {
        let text = format!(
            r#"{{"rootAgentId": "ref.research", "plan": [{{"stepId": "g", "kind": "approval", "approvers": {approvers}}}]}}"#
        );
        parse(text.as_bytes()).map_or_else(|error| error.code(), |_| "ok")
    };
    assert_eq!(code(r#"{"actorIds": ["olga"]}"#), "ok");
    assert_eq!(code(r#"{"actorIds": ["olga"], "actorIds": ["ann"]}"#), "json-duplicate-key");
    for wrong in [r#"{"actors": ["olga"]}"#, r#"{"roles": ["root"]}"#, r#"["olga"]"#, r#"{"actorIds": ["o l g a"]}"#] {
        assert_eq!(code(wrong), "json-invalid", "{wrong}");
    }
    let step = |more: &str| {
        let text =
            format!(r#"{{"rootAgentId": "ref.research", "plan": [{{"stepId": "g", "kind": "approval", {more}}}]}}"#);
        parse(text.as_bytes()).map_or_else(|error| error.code(), |_| "ok")
    };
    assert_eq!(step(r#""requirement": "operator", "requirement": "none""#), "json-duplicate-key");
    assert_eq!(step(r#""subject": {"approved": false, "approved": true}"#), "json-duplicate-key");
}

#[test]
fn who_may_answer_is_listed_with_the_question() {
    let story = asked(&["otto"], &[Role::PlatformOperator]);
    let row = serde_json::to_value(&projection(&story.run).open_approvals[0]).unwrap();
    assert_eq!(row["approvers"], json!({"actorIds": ["otto"], "roles": ["platform-operator"]}));
}

#[test]
fn a_row_from_before_there_were_names_still_reads() {
    let story = asked(&["otto"], &[]);
    let mut row = serde_json::to_value(&projection(&story.run).open_approvals[0]).unwrap();
    for field in ["approvers", "reminded", "remindAtUnixMs"] {
        row.as_object_mut().unwrap().remove(field);
    }
    let read: signalbox_domain::run::append::OpenApproval = serde_json::from_value::<_>(row).unwrap();
    assert_eq!((read.approvers, read.reminded), (None, false));
}

#[test]
fn sending_a_lost_call_anew_takes_the_standing_that_letting_it_through_took() {
    let mut story =
        Story::started(vec![naming(&["olga"], &[], gate("gate", &[])), approved_by("gate", tool("a", &[]))]);
    let approval = story.asks("gate");
    let olga = actor("olga", Role::TenantOperator);
    story.command_by(&olga, answer(approval, ApprovalDecision::Approve)).unwrap();
    story.does("a", lost());
    let about_the_call = story.run.approvals[1].approval_id;
    let again = answer(about_the_call, ApprovalDecision::Approve);
    assert_eq!(story.command_by(&operator(), again.clone()), Err(Denial::NotAnApprover(about_the_call)));
    story.command_by(&olga, again).unwrap();
    assert_eq!((story.ready(), story.unapproved("a")), (vec!["a"], None));
}
