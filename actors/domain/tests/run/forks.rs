//! A fork is another run: what it takes over, and what it must be given anew (CTL-009, CTL-010).

use serde_json::json;
use signalbox_domain::governance::budget::applies;
use signalbox_domain::identity::Role;
use signalbox_domain::ids::{CommandId, RunId, RunKey};
use signalbox_domain::run::append::NewEvent;
use signalbox_domain::run::control::{Fork, fork, is_fork_by};
use signalbox_domain::run::decide::{Context, Denial, REASON_BYTES_MAX};
use signalbox_domain::run::event::{
    ControlEffect, ControlKind, Evidence, GroundingState, RunEvent, RunSubmitted, StoredValue,
};
use signalbox_domain::run::ledger::RunCostLedger;
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::run::step::{CallEnding, StepState};
use signalbox_domain::run::submission::{accept, parse};
use signalbox_domain::run::verify::verify;
use uuid::Uuid;

use crate::given::{
    Story, actor, answered, artifact, choose, ended, failed, fork_in_the_road, gate, grant, operator, plan, submitted,
    submitted_by, submitter, tenant, tool, tool_id, when,
};

const FRESH: RunId = RunId::new(Uuid::from_u128(8));
const FRESH_KEY: RunKey = RunKey::new(Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0002));

fn forked(story: &Story, fresh: Option<(RunId, bool)>) -> Result<Vec<NewEvent>, Denial> {
    fork(&story.run, &asked(fresh, &scopes()), &story.context_of(&operator()))
}

const COMMAND: CommandId = CommandId::new(Uuid::from_u128(5));

fn scopes() -> Vec<String> {
    vec!["tool:memory.write".to_owned()]
}

fn asked(fresh: Option<(RunId, bool)>, scopes: &[String]) -> Fork<'_> {
    Fork { run_key: FRESH_KEY, fresh, command_id: COMMAND, scopes, reason: "try again" }
}

/// The fork with its first two events written.
pub(crate) fn fork_of(story: &Story) -> Story {
    let mut events = forked(story, Some((FRESH, false))).unwrap().into_iter();
    let Some(RunEvent::RunSubmitted(submitted)) = events.next().map(|new| new.event) else { panic!("no beginning") };
    let mut fork = Story::begins(*submitted);
    fork.write(events);
    fork
}

/// A run that failed at its second step, with a grant and a budget of its own.
fn failed_run() -> Story {
    let json = json!({
        "rootAgentId": "ref.research", "plan": plan(vec![tool("1", &[]), tool("2", &["1"])]),
        "budgets": [{"category": "cost-units", "limit": 10, "onExceeded": "pause"}], "pipelineId": "weekly", "pipelineSemver": "1.2.0",
    });
    let submission = parse(json.to_string().as_bytes()).unwrap();
    let accepted = accept(submission, submitted_by(), vec![grant(&tool_id("memory.read"))]).unwrap();
    let parent_run_id = Some(RunId::new(Uuid::from_u128(3)));
    let mut story = Story::begins(RunSubmitted { parent_run_id, ..accepted });
    story.go_on();
    let evidence =
        Evidence { evidence_pack_id: "pack".to_owned(), grounding_state: GroundingState::Grounded, citation_count: 1 };
    let ending = CallEnding::Answered {
        partial: false,
        output: json!({"kept": true}),
        evidence: Some(evidence),
        effects: vec![],
        artifacts: vec![artifact("one")],
    };
    story.does("1", ended(ending));
    story.does("2", failed("tool-failed"));
    story
}

#[test]
fn a_fork_needs_an_id_of_its_own_that_is_not_in_use() {
    let story = failed_run();
    let own = story.run.run_id;
    for fresh in [None, Some((own, false)), Some((RunId::new(Uuid::nil()), false)), Some((FRESH, true))] {
        assert_eq!(forked(&story, fresh).unwrap_err().code(), "fork-without-fresh-id", "{fresh:?}");
    }
    assert!(forked(&story, Some((FRESH, false))).is_ok());
}

#[test]
fn a_fork_is_for_operators() {
    let story = failed_run();
    for by in [submitter(), actor("bob", Role::Customer)] {
        let denied = fork(&story.run, &asked(Some((FRESH, false)), &scopes()), &story.context_of(&by));
        assert_eq!(denied.unwrap_err().code(), "not-authorized");
    }
}

#[test]
fn a_fork_of_a_failed_run_is_queued_with_what_was_done_and_nothing_spent() {
    let story = failed_run();
    let source = story.run.clone();
    let fork = fork_of(&story);
    let run = &fork.run;
    assert_eq!(run.status, RunStatus::Queued);
    assert_eq!((run.run_key, run.run_id), (FRESH_KEY, FRESH));
    assert_eq!(run.forked_from_run_id, Some(source.run_id));
    assert_eq!(run.parent_run_id, source.parent_run_id);
    assert_eq!((&run.pipeline_id, &run.pipeline_semver), (&source.pipeline_id, &source.pipeline_semver));
    assert_eq!(run.provenance_bundle_id, source.provenance_bundle_id);
    assert_eq!((&run.plan, &run.inputs), (&source.plan, &source.inputs));
    assert_eq!(run.cost_ledger, RunCostLedger::default());
    assert_eq!(run.scopes, scopes(), "what its forker may, not what the source's submitter might");
    assert!(run.grants.is_empty() && run.grant_uses.is_empty() && run.tool_calls.is_empty());
    assert_eq!(run.intermediate_artifacts, source.intermediate_artifacts);
    assert_eq!(run.evidence_trail, source.evidence_trail);
    assert_eq!(fork.state("1"), story.state("1"));
    assert_eq!(fork.state("2"), &StepState::Pending);
    assert_eq!(story.run, source, "the source stays as it is");
}

#[test]
fn a_fork_goes_on_where_its_source_stopped_and_gives_what_both_made() {
    let mut fork = fork_of(&failed_run());
    fork.go_on();
    assert_eq!(fork.status(), RunStatus::Starting, "nothing has begun in this run");
    assert_eq!(fork.ready(), ["2"]);
    fork.does("2", crate::given::answered_with(json!(2), vec![artifact("two")]));
    assert_eq!(fork.status(), RunStatus::Completed);
    let names: Vec<_> = fork.run.outputs.iter().flat_map(|bundle| &bundle.artifacts).map(|a| a.name.as_str()).collect();
    assert_eq!(names, ["one", "two"]);
    let report = verify(&tenant(), FRESH_KEY, &fork.events);
    assert_eq!(report.findings, []);
}

#[test]
fn the_budgets_of_a_fork_are_its_own_and_do_apply_to_it() {
    let story = failed_run();
    let fork = fork_of(&story);
    let (own, source) = (&fork.run.run_budgets[0], &story.run.run_budgets[0]);
    let target = fork.run.target_of(&fork.run.plan.steps[1]).unwrap();
    assert!(applies(&own.budget, &target));
    assert!(!applies(&source.budget, &target));
    assert_ne!(own.budget.budget_id, source.budget.budget_id);
    assert_eq!((own.budget.limit, own.budget.on_exceeded), (source.budget.limit, source.budget.on_exceeded));
    assert_eq!(own.meter, Default::default(), "nothing is spent of them");
}

#[test]
fn a_fork_leaves_an_audit_record_in_the_new_run() {
    let story = failed_run();
    let fork = fork_of(&story);
    let Some(RunEvent::ControlApplied(applied)) = fork.events[1].event() else { panic!("no control") };
    assert_eq!((applied.audit.kind, &applied.effect), (ControlKind::Fork, &ControlEffect::Forked));
    assert_eq!((applied.audit.from_status, applied.audit.to_status), (RunStatus::Failed, RunStatus::Queued));
    assert_eq!(applied.audit.run_id, story.run.run_id);
    assert_eq!(applied.audit.reason_text, "try again");
}

#[test]
fn fork_is_the_one_control_that_any_status_allows() {
    for status in RunStatus::ALL {
        assert!(forked(&Story::standing(status), Some((FRESH, false))).is_ok(), "{}", status.as_str());
    }
}

#[test]
fn a_fork_of_a_finished_run_finishes_without_calling_anything() {
    let mut fork = fork_of(&Story::standing(RunStatus::Completed));
    fork.go_on();
    assert_eq!(fork.status(), RunStatus::Completed);
    assert!(fork.run.tool_calls.is_empty());
    assert_eq!(verify(&tenant(), FRESH_KEY, &fork.events).findings, []);
}

#[test]
fn decisions_are_made_anew_in_a_fork() {
    let mut story = Story::started(vec![
        tool("before", &[]),
        gate("gate", &["before"]),
        fork_in_the_road("way", &["left", "right"], &["before"]),
        when(tool("l", &[]), "way", "left"),
        when(tool("r", &[]), "way", "right"),
    ]);
    story.does("before", answered(json!(1)));
    let approval = story.asks("gate");
    story.command(crate::given::answer(approval, signalbox_domain::run::event::ApprovalDecision::Approve)).unwrap();
    story.command(choose("left")).unwrap();
    story.does("l", answered(json!(1)));

    let mut fork = fork_of(&story);
    fork.go_on();
    let StepState::Done { output: Some(output), .. } = fork.state("before") else { panic!("it is not done") };
    assert!(matches!(**output, StoredValue::Inline(_)));
    assert_eq!(fork.ready(), ["gate"]);
    assert_eq!(fork.state("way"), &StepState::AwaitingBranch);
    fork.command(choose("right")).unwrap();
    assert!(matches!(fork.state("l"), StepState::Skipped { .. }), "what lay on the other branch is not taken over");
}

#[test]
fn a_run_that_is_no_fork_names_no_source() {
    let run = Story::begins(submitted(&plan(vec![tool("a", &[])]))).run;
    let json = serde_json::to_value(&run).unwrap();
    for absent in ["parentRunId", "forkedFromRunId", "pipelineId", "pipelineSemver"] {
        assert!(json.get(absent).is_none(), "{absent}");
    }
    let child = serde_json::to_value(failed_run().run).unwrap();
    for present in ["parentRunId", "pipelineId", "pipelineSemver"] {
        assert!(child.get(present).is_some(), "{present}");
    }
}

#[test]
fn a_fork_is_refused_if_the_source_has_moved_on_or_the_reason_is_a_book() {
    let story = failed_run();
    let stale = Context { expected_seq: Some(1), ..story.context_of(&operator()) };
    let seen = Context { expected_seq: Some(story.run.last_seq), ..stale.clone() };
    let scopes = scopes();
    let asked = asked(Some((FRESH, false)), &scopes);
    assert_eq!(fork(&story.run, &asked, &stale).unwrap_err().code(), "stale-revision");
    assert!(fork(&story.run, &asked, &seen).is_ok());
    let book = "x".repeat(REASON_BYTES_MAX + 1);
    assert_eq!(fork(&story.run, &Fork { reason: &book, ..asked }, &seen).unwrap_err().code(), "reason-too-long");
}

#[test]
fn a_fork_is_known_again_by_the_command_that_made_it() {
    let story = failed_run();
    let second = fork_of(&story).events[1].event().unwrap();
    let source = story.run.run_id;
    assert!(is_fork_by(&second, source, FRESH, COMMAND));
    assert!(!is_fork_by(&second, source, FRESH, CommandId::new(Uuid::from_u128(6))));
    assert!(!is_fork_by(&second, FRESH, source, COMMAND));
    assert!(!is_fork_by(&story.events[1].event().unwrap(), source, FRESH, COMMAND));
}
