//! Gates that guard a call: what runs is exactly what was approved, or it does not run (C-057).

use serde_json::{Value, json};
use signalbox_domain::canonical;
use signalbox_domain::ids::ApprovalId;
use signalbox_domain::quantity::Micros;
use signalbox_domain::run::approval;
use signalbox_domain::run::call;
use signalbox_domain::run::event::{ApprovalDecision, Overrides, RunEvent, StoredValue};
use signalbox_domain::run::plan::{ApprovalRequirement, Step, StepKind};
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::run::step::StepState;
use signalbox_domain::run::verify::verify;

use crate::given::{
    START, Story, agent, answer, answered, approved_by, asking, calling, fork_in_the_road, gate, lost, not_started,
    pause, plan, resume, retry, retry_with, step_id, tenant, tool, tool_id, when,
};

fn transfer() -> Value {
    json!({"to": "acme", "amount": 10, "lines": [{"n": 1}], "note": {"$from": "/steps/read/output/note"}})
}

/// `read`, then a gate over the call `pay`, whose note is what `read` gave.
fn steps() -> Vec<Step> {
    let pay = approved_by("gate", calling("memory.write", transfer(), "pay", &[]));
    vec![tool("read", &[]), gate("gate", &["read"]), pay]
}

fn asked() -> (Story, ApprovalId) {
    let mut story = Story::started(steps());
    story.does("read", answered(json!({"note": "first"})));
    let approval = story.asks("gate");
    (story, approval)
}

fn approved() -> Story {
    let (mut story, approval) = asked();
    story.command(answer(approval, ApprovalDecision::Approve)).unwrap();
    story
}

fn subject(story: &Story) -> Value {
    match &story.run.approvals.last().unwrap().subject {
        StoredValue::Inline(subject) => subject.clone(),
        StoredValue::Blob { .. } => panic!("small"),
    }
}

fn params(step: &str, args: Value) -> Overrides {
    Overrides { params: [(step_id(step), args)].into(), ..Overrides::default() }
}

/// The same value with one leaf changed, for each leaf, and with a member more or less.
fn mutations(value: &Value) -> Vec<Value> {
    match value {
        Value::Object(members) => {
            let mut all = Vec::new();
            for (key, member) in members {
                let with = |new: Option<Value>| {
                    let mut changed = members.clone();
                    match new {
                        Some(new) => drop(changed.insert(key.clone(), new)),
                        None => drop(changed.remove(key)),
                    }
                    Value::Object(changed)
                };
                all.push(with(None));
                all.extend(mutations(member).into_iter().map(|new| with(Some(new))));
            }
            let mut more = members.clone();
            more.insert("more".to_owned(), Value::Null);
            all.push(Value::Object(more));
            all
        }
        Value::Array(items) => {
            let mut all = vec![json!([])];
            all.push([items.as_slice(), &[Value::Null]].concat().into());
            for (i, item) in items.iter().enumerate() {
                let with = |new: Value| {
                    let mut changed = items.clone();
                    changed[i] = new;
                    Value::Array(changed)
                };
                all.extend(mutations(item).into_iter().map(with));
            }
            all
        }
        Value::Number(number) => vec![json!(number.as_i64().unwrap() * 100), json!(number.to_string())],
        Value::String(text) => vec![json!(format!("{text} ")), json!(text.to_uppercase() + "X")],
        Value::Null | Value::Bool(_) => vec![json!("other")],
    }
}

#[test]
fn a_gate_shows_the_calls_it_guards_with_their_arguments_bound() {
    let (story, _) = asked();
    let args = json!({"to": "acme", "amount": 10, "lines": [{"n": 1}], "note": "first"});
    let action = json!({"stepId": "pay", "agentId": "ref.research", "toolId": "memory.write", "args": args});
    assert_eq!(subject(&story), json!({"subject": {"pages": 3}, "actions": [action]}));
    let action = &story.run.approvals[0].actions[0];
    assert_eq!((action.step_id.as_str(), action.tool_id.as_str()), ("pay", "memory.write"));
    assert_eq!(action.args_hash, canonical::digest(&args).unwrap());
}

#[test]
fn what_was_approved_may_run_and_is_what_the_call_carries() {
    let mut story = approved();
    assert_eq!((story.ready(), story.unapproved("pay")), (vec!["pay"], None));
    story.does("pay", answered(json!(1)));
    assert_eq!(story.status(), RunStatus::Completed);
    assert_eq!(story.run.tool_calls[1].args_hash, story.run.approvals[0].actions[0].args_hash);
}

#[test]
fn nothing_else_is_let_through_by_the_same_yes() {
    let story = approved();
    let step = story.run.plan.step(&step_id("pay")).unwrap();
    let bound = story.prepared("pay").args;
    let changed = mutations(&bound);
    assert!(changed.len() > 15, "{}", changed.len());
    for args in changed {
        let hash = canonical::digest(&args).unwrap();
        let objection = approval::objection(&story.run, step, &hash);
        assert!(objection.is_some_and(|why| why.contains("another call")), "{args}");
    }
    let hash = canonical::digest(&bound).unwrap();
    assert_eq!(approval::objection(&story.run, step, &hash), None);
    let other = |change: fn(&mut Step)| {
        let mut step = step.clone();
        change(&mut step);
        approval::objection(&story.run, &step, &hash)
    };
    assert!(other(|step| step.step_id = step_id("pay2")).is_some());
    assert!(other(|step| step.agent_id = Some(agent("ref.other"))).is_some());
    let other_tool = other(|step| {
        if let StepKind::Tool { tool_id: tool, .. } = &mut step.kind {
            *tool = tool_id("notify.send");
        }
    });
    assert!(other_tool.is_some());
}

#[test]
fn one_changed_argument_is_asked_about_anew_and_nothing_runs_before_that() {
    for args in mutations(&transfer()) {
        // A binding that is itself changed leads nowhere, or is no binding any more; that is another test.
        if args.get("note") != transfer().get("note") {
            continue;
        }
        let mut story = approved();
        let first = story.run.approvals[0].clone();
        story.command(pause()).unwrap();
        story.command(retry_with("pay", params("pay", args.clone()))).unwrap();
        assert_eq!(story.ready(), ["gate"], "{args}");
        assert!(story.unapproved("pay").is_some(), "{args}");
        let second = story.asks("gate");
        assert_ne!((second, &story.run.approvals[1].subject_digest), (first.approval_id, &first.subject_digest));
        assert!(story.ready().is_empty() && story.unapproved("pay").is_some());
        let spent = story.run.cost_ledger.clone();
        assert_eq!(story.says(&answer(first.approval_id, ApprovalDecision::Approve)), "approval-closed");
        story.command(answer(second, ApprovalDecision::Reject)).unwrap();
        assert_eq!(story.status(), RunStatus::Failed);
        assert_eq!((story.run.tool_calls.len(), &story.run.cost_ledger), (1, &spent), "only `read` was ever called");
    }
}

#[test]
fn a_value_that_moved_in_between_is_asked_about_anew() {
    let mut story = approved();
    story.command(pause()).unwrap();
    story.command(retry("read")).unwrap();
    assert_eq!(story.ready(), ["read"]);
    story.does("read", answered(json!({"note": "second"})));
    assert_eq!(story.ready(), ["gate"]);
    assert!(story.unapproved("pay").is_some_and(|why| why.contains("another call")));
    let second = story.asks("gate");
    assert_eq!(subject(&story)["actions"][0]["args"]["note"], "second");
    story.command(answer(second, ApprovalDecision::Approve)).unwrap();
    assert_eq!((story.ready(), story.unapproved("pay")), (vec!["pay"], None));
}

#[test]
fn a_yes_is_used_once() {
    let mut story = Story::started([steps(), vec![gate("end", &["pay"])]].concat());
    story.does("read", answered(json!({"note": "first"})));
    let first = story.asks("gate");
    story.command(answer(first, ApprovalDecision::Approve)).unwrap();
    story.does("pay", answered(json!(1)));
    story.asks("end");
    // Doing it again with the very same arguments is another deed.
    story.command(retry("pay")).unwrap();
    assert_eq!(story.ready(), ["gate"]);
    assert_eq!(story.says(&answer(first, ApprovalDecision::Approve)), "approval-closed");
    assert_ne!(story.asks("gate"), first);
}

#[test]
fn a_call_that_never_began_and_one_that_waits_for_its_turn_still_have_their_yes() {
    let mut story = approved();
    story.throttles("pay", 30);
    story.after_ms(30_000);
    assert_eq!((story.ready(), story.unapproved("pay")), (vec!["pay"], None));
    story.does("pay", not_started());
    assert_eq!((story.ready(), story.unapproved("pay")), (vec!["pay"], None));
    story.command(pause()).unwrap();
    story.command(resume()).unwrap();
    assert_eq!((story.ready(), story.unapproved("pay")), (vec!["pay"], None));
}

#[test]
fn a_lost_call_is_sent_anew_only_as_it_was_approved() {
    let mut story = approved();
    story.does("pay", lost());
    let about = story.run.approvals[1].approval_id;
    story.command(answer(about, ApprovalDecision::Approve)).unwrap();
    assert_eq!((story.ready(), story.unapproved("pay")), (vec!["pay"], None));
}

#[test]
fn without_a_yes_nothing_is_let_through() {
    let (story, _) = asked();
    assert!(story.unapproved("pay").is_some_and(|why| why.contains("has not let")));
    // A gate that lies on a branch not taken was never asked, and a step that waits for more than it goes on.
    let way = fork_in_the_road("way", &["left", "right"], &[]);
    let gate = when(gate("gate", &[]), "way", "left");
    let mut story = Story::started(vec![way, gate, tool("x", &[]), approved_by("gate", tool("pay", &["x"]))]);
    story.command(crate::given::choose("right")).unwrap();
    story.does("x", answered(json!(1)));
    assert!(matches!(story.state("gate"), StepState::Skipped { .. }));
    assert_eq!(story.ready(), ["pay"]);
    assert!(story.unapproved("pay").is_some_and(|why| why.contains("has not let")));
}

#[test]
fn a_step_without_a_gate_needs_no_yes() {
    let mut story = Story::started(vec![gate("gate", &[]), tool("a", &["gate"])]);
    let approval = story.asks("gate");
    story.command(answer(approval, ApprovalDecision::Approve)).unwrap();
    assert_eq!(story.unapproved("a"), None);
    assert!(story.run.approvals[0].actions.is_empty());
    assert_eq!(subject(&story), json!({"pages": 3}), "it shows what the plan says and nothing else");
}

#[test]
fn a_gate_guards_several_calls_at_once() {
    let pay = |id: &str| approved_by("gate", calling("memory.write", json!({"key": id}), id, &[]));
    let mut story = Story::started(vec![gate("gate", &[]), pay("one"), pay("two")]);
    let approval = story.asks("gate");
    let hashes: Vec<_> = story.run.approvals[0].actions.iter().map(|action| action.args_hash.clone()).collect();
    assert_eq!(hashes.len(), 2);
    story.command(answer(approval, ApprovalDecision::Approve)).unwrap();
    assert_eq!((story.unapproved("one"), story.unapproved("two")), (None, None));
    let one = story.run.plan.step(&step_id("one")).unwrap();
    assert!(approval::objection(&story.run, one, &hashes[1]).is_some(), "each has its own yes");
}

#[test]
fn a_plan_whose_gate_could_not_show_the_call_is_refused() {
    let code = |steps: Vec<Step>| plan(steps).validate().map_or_else(|error| error.code(), |()| "ok");
    assert_eq!(code(steps()), "ok");
    assert_eq!(code(vec![approved_by("ghost", tool("a", &[]))]), "unknown-dependency");
    assert_eq!(code(vec![approved_by("a", tool("a", &[]))]), "self-dependency");
    assert_eq!(code(vec![tool("b", &[]), approved_by("b", tool("a", &[]))]), "bad-step", "it asks nobody");
    let nobody = asking(ApprovalRequirement::None, "gate", &[]);
    assert_eq!(code(vec![nobody, approved_by("gate", tool("a", &[]))]), "bad-step");
    assert_eq!(code(vec![gate("gate", &["a"]), approved_by("gate", tool("a", &[]))]), "cycle");
    let late = json!({"$from": "/steps/late/output"});
    let pay = |args| approved_by("gate", calling("memory.write", args, "pay", &["late"]));
    let unseen = vec![gate("gate", &[]), tool("late", &[]), pay(late.clone())];
    assert_eq!(code(unseen), "bad-step", "the gate does not wait for what the call binds");
    assert_eq!(code(vec![tool("late", &[]), gate("gate", &["late"]), pay(late)]), "ok");
    let through = json!([{"x": {"$from": "/steps/first/output"}}]);
    let chain = vec![tool("first", &[]), tool("late", &["first"]), gate("gate", &["late"]), pay(through)];
    assert_eq!(code(chain), "ok", "what lies further ahead counts");
}

#[test]
fn an_override_that_the_gate_could_not_show_is_refused() {
    let late = tool("late", &["read"]);
    let mut story = Story::started([steps(), vec![late]].concat());
    story.does("read", answered(json!({"note": "first"})));
    story.does("late", answered(json!(1)));
    let approval = story.asks("gate");
    story.command(answer(approval, ApprovalDecision::Approve)).unwrap();
    story.command(pause()).unwrap();
    let unseen = retry_with("pay", params("pay", json!({"$from": "/steps/late/output"})));
    assert_eq!(story.says(&unseen), "override-not-allowed");
    assert_eq!(story.says(&retry_with("pay", params("pay", json!({"$from": "/steps/read/output"})))), "ok");
}

#[test]
fn a_rewind_takes_the_gate_along_with_all_that_waits_for_it() {
    let plan = plan([steps(), vec![tool("beside", &["gate"]), tool("after", &["pay"])]].concat());
    let behind = plan.behind(&step_id("pay"));
    let behind: Vec<_> = behind.iter().map(|id| id.as_str()).collect();
    assert_eq!(behind, ["gate", "pay", "beside", "after"]);
}

#[test]
fn a_question_without_a_digest_is_not_asked() {
    // Two amounts that a double cannot tell apart would share a digest, and one yes would be a yes to both.
    let story = Story::started(vec![gate("gate", &[])]);
    let step = story.run.plan.step(&step_id("gate")).unwrap();
    let amount: Value = serde_json::from_str(r#"{"amount": 9007199254740993}"#).unwrap();
    let event = approval::request(&story.run, step, &amount, StoredValue::Inline(amount.clone()), START).unwrap().event;
    assert!(matches!(&event, RunEvent::StepFailed { code, .. } if code == "number-not-exact"), "{event:?}");
}

#[test]
fn a_journal_in_which_something_else_ran_than_was_approved_is_found_out() {
    let mut story = approved();
    story.does("pay", answered(json!(1)));
    let report = verify(&tenant(), story.run.run_key, &story.events);
    assert!(report.ok, "{:#?}", report.findings);
    let mut story = approved();
    let mut prepared = story.prepared("pay");
    prepared.args_hash = canonical::digest(&json!({"amount": 1000})).unwrap();
    let admissible = story.admissible(&prepared);
    story.asked(call::admit(&prepared, &admissible, story.now));
    story.end(prepared.call_id, answered(json!(1)));
    let report = verify(&tenant(), story.run.run_key, &story.events);
    assert_eq!(report.findings.iter().map(|finding| finding.code.as_str()).collect::<Vec<_>>(), ["call-not-approved"]);
}

#[test]
fn nothing_is_charged_for_a_call_that_its_gate_does_not_let_through() {
    let mut story = approved();
    let before = story.run.cost_ledger.clone();
    story.denies("pay", "action-not-approved");
    assert_eq!(story.run.cost_ledger.total_cost_units, before.total_cost_units);
    assert_eq!(
        story.run.tool_calls[1].charged.get(signalbox_domain::quantity::BudgetCategory::CostUnits),
        Micros::ZERO
    );
    assert_eq!(story.run.end.clone().unwrap().code.as_deref(), Some("action-not-approved"));
}

#[test]
fn a_fork_asks_anew_about_the_calls_that_it_does_not_take_over() {
    let story = approved();
    let mut fork = crate::forks::fork_of(&story);
    fork.go_on();
    assert!(matches!(fork.state("read"), StepState::Done { .. }));
    assert_eq!((fork.ready(), fork.run.approvals.len()), (vec!["gate"], 0));
    assert!(fork.unapproved("pay").is_some());
}
