//! Calls and their records: what each attempt leaves behind, and what a finished one gives to its run.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use signalbox_domain::governance::gate::{Stage, StageAnswer};
use signalbox_domain::quantity::{BudgetCategory, Micros};
use signalbox_domain::run::call;
use signalbox_domain::run::event::{CallOutcome, DecisionLabel, Evidence, GroundingState, RunEvent};
use signalbox_domain::run::evolve::fold;
use signalbox_domain::run::plan::{Plan, Step};
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::run::step::{CallEnding, CallResult, StepState};

use crate::given::{
    Story, agent, answered, answered_with, artifact, calling, ended, failed, measuring, micros, optional, plan,
    step_id, submitted, tool,
};

fn grounded(state: GroundingState, citation_count: u64) -> CallResult {
    let evidence =
        Some(Evidence { evidence_pack_id: format!("pack-{citation_count}"), grounding_state: state, citation_count });
    ended(CallEnding::Answered { partial: false, output: json!(1), evidence, effects: vec![], artifacts: vec![] })
}

fn labels(story: &Story) -> Vec<DecisionLabel> {
    story.run.decision_rationale.iter().map(|decision| decision.decision_label).collect()
}

#[test]
fn there_are_nine_outcomes() {
    use CallOutcome as O;
    let all = [O::Pending, O::Ok, O::Partial, O::Error, O::Denied, O::Throttled, O::Held, O::Killed, O::Unknown];
    let names = ["pending", "ok", "partial", "error", "denied", "throttled", "held", "killed", "unknown"];
    for (outcome, name) in all.into_iter().zip(names) {
        assert_eq!(outcome.as_str(), name);
        assert_eq!(serde_json::to_value(outcome).unwrap(), name);
    }
    assert!(serde_json::from_value::<CallOutcome>(json!("done")).is_err());
}

#[test]
fn every_record_has_what_an_auditor_looks_for_and_names_entries_that_exist() {
    let mut story = Story::started(vec![tool("a", &[]), tool("b", &[])]);
    story.does("a", measuring(&[(BudgetCategory::CostUnits, 0.25)], answered(json!(1))));
    story.denies("b", "no-matching-grant");
    for record in &story.run.tool_calls {
        let json = serde_json::to_value(record).unwrap();
        for field in ["argsHash", "outcome", "costUnits", "scopeCheckResultId", "auditEventId"] {
            assert!(json.get(field).is_some_and(|value| value != ""), "{field}");
        }
        let seq: u64 = record.audit_event_id.rsplit('/').next().unwrap().parse().unwrap();
        let entry = &story.events[usize::try_from(seq).unwrap() - 1];
        let event = entry.event().unwrap();
        let admits = matches!(&event, RunEvent::CallPending(pending) if pending.call_id == record.call_id);
        let refuses = matches!(&event, RunEvent::CallRefused(refused) if refused.call_id == record.call_id);
        assert!(admits || refuses, "{event:?}");
        assert!(record.scope_check_result_id.starts_with(&record.call_id.to_string()));
    }
}

#[test]
fn capability_checks_are_named_by_their_call() {
    let mut story = Story::started(vec![tool("a", &[])]);
    let call = story.call("a");
    let record = story.run.call(call).unwrap();
    let wanted = ["grant", "isolation"].map(|check| format!("{call}/{check}"));
    assert_eq!(record.capability_audit_ids, wanted);
}

#[test]
fn calls_have_different_ids_in_every_step_and_run() {
    let story = Story::started(vec![tool("a", &[]), tool("b", &[])]);
    let mut other = submitted(&plan(vec![tool("a", &[])]));
    other.run_key = signalbox_domain::ids::RunKey::new(uuid::Uuid::from_u128(12));
    let ids = [story.prepared("a").call_id, story.prepared("b").call_id, Story::begins(other).prepared("a").call_id];
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), 3);
    assert_eq!(story.prepared("a").call_id, story.prepared("a").call_id);
}

#[test]
fn a_denied_call_is_recorded_with_its_reason_at_no_cost_and_fails_its_step() {
    let mut story = Story::started(vec![tool("a", &[]), tool("b", &["a"])]);
    let prepared = story.prepared("a");
    let answers = vec![StageAnswer {
        stage: Stage::Grant,
        passed: false,
        code: "no-matching-grant".into(),
        detail: "issue one".into(),
    }];
    let ask = call::deny(&prepared, "no-matching-grant", "there is no grant", answers.clone(), story.now);
    story.asked(ask);
    story.go_on();
    let record = story.run.call(prepared.call_id).unwrap();
    assert_eq!((record.outcome, record.cost_units), (CallOutcome::Denied, Micros::ZERO));
    assert_eq!(record.error.as_ref().unwrap().code, "no-matching-grant");
    assert_eq!(record.args_hash, prepared.args_hash);
    let kept = story.events.iter().find_map(|event| {
        if let RunEvent::CallRefused(refused) = event.event().unwrap() { Some(refused.answers) } else { None }
    });
    assert_eq!(kept, Some(answers), "what every stage said is kept for whoever asks why");
    let end = story.run.end.clone().unwrap();
    assert_eq!((end.status, end.code.as_deref()), (RunStatus::Failed, Some("no-matching-grant")));
    assert_eq!(end.step_id, Some(step_id("a")));
}

#[test]
fn a_denial_at_each_stage_leaves_one_record_with_its_reason() {
    let codes = [
        "agent_tools_not_configured",
        "tool_scope_missing",
        "no-matching-grant",
        "all-matches-revoked",
        "host-not-allowed",
    ];
    for code in codes {
        let mut story = Story::started(vec![tool("a", &[])]);
        story.denies("a", code);
        let [record] = &story.run.tool_calls[..] else { panic!("one record") };
        assert_eq!((record.outcome, record.error.as_ref().unwrap().code.as_str()), (CallOutcome::Denied, code));
    }
}

#[test]
fn a_denied_optional_step_is_skipped_with_the_label_tool_skipped_and_the_run_goes_on() {
    let mut story = Story::started(vec![optional(tool("a", &[])), tool("b", &["a"])]);
    story.denies("a", "no-matching-grant");
    assert!(matches!(story.state("a"), StepState::Skipped { branch_not_taken: false, .. }));
    assert_eq!(labels(&story), [DecisionLabel::ToolSkipped]);
    assert_eq!(story.ready(), ["b"]);
    story.does("b", answered(json!(1)));
    assert_eq!(story.status(), RunStatus::Completed);
}

#[test]
fn a_failing_optional_step_is_skipped_too() {
    let mut story = Story::started(vec![optional(tool("a", &[]))]);
    story.does("a", failed("tool-timeout"));
    assert_eq!(story.status(), RunStatus::Completed);
    assert_eq!(labels(&story), [DecisionLabel::ToolSkipped]);
}

#[test]
fn a_plan_of_three_calls_with_the_second_denied_tells_of_each_and_how_it_ended() {
    let mut story = Story::started(vec![tool("one", &[]), tool("two", &["one"]), tool("three", &["two"])]);
    story.does("one", answered(json!(1)));
    story.denies("two", "tool_scope_missing");
    let outcomes: Vec<_> = story.run.tool_calls.iter().map(|call| (call.step_id.as_str(), call.outcome)).collect();
    assert_eq!(outcomes, [("one", CallOutcome::Ok), ("two", CallOutcome::Denied)]);
    assert_eq!(story.state("three"), &StepState::Pending);
    assert_eq!(story.status(), RunStatus::Failed);
}

#[test]
fn a_step_that_fails_before_its_call_fails_the_run_with_its_code() {
    let mut story = Story::started(vec![tool("a", &[])]);
    let step = story.run.plan.steps[0].clone();
    let secret = "ghp_FAKE00000000000000000000000000000000";
    story.write([call::fail_step(&step, "binding-not-found", &format!("{secret} {}", "x".repeat(3_000)))]);
    story.go_on();
    assert_eq!(story.run.end.clone().unwrap().code.as_deref(), Some("binding-not-found"));
    let StepState::Failed { message, .. } = story.state("a") else { panic!("failed") };
    assert!(!message.contains("FAKE") && message.chars().count() <= 2_000);
}

#[test]
fn a_finished_call_gives_its_output_its_evidence_and_its_checkpoints() {
    let mut story = Story::started(vec![tool("a", &[])]);
    let ending = CallEnding::Answered {
        partial: true,
        output: json!({"missing": "b.txt"}),
        evidence: Some(Evidence {
            evidence_pack_id: "pack".to_owned(),
            grounding_state: GroundingState::PartiallyGrounded,
            citation_count: 4,
        }),
        effects: vec!["wrote ghp_FAKE00000000000000000000000000000000".to_owned()],
        artifacts: vec![artifact("one"), artifact("two")],
    };
    let call = story.does("a", ended(ending));
    let record = story.run.call(call).unwrap();
    assert_eq!((record.outcome, record.latency_ms), (CallOutcome::Partial, Some(12)));
    assert!(!record.effects[0].contains("FAKE"));
    let json = serde_json::to_value(&story.run).unwrap();
    let entry = &json["evidenceTrail"][0];
    assert_eq!(
        (&entry["evidencePackId"], &entry["groundingState"], &entry["citationCount"], &entry["stageId"]),
        (&json!("pack"), &json!("partially-grounded"), &json!(4), &json!("a"))
    );
    let keys: Vec<_> = json["intermediateArtifacts"].as_array().unwrap().iter().map(|a| &a["persistedKey"]).collect();
    assert_eq!(keys, [&json!(artifact("one").persisted_key), &json!(artifact("two").persisted_key)]);
}

#[test]
fn each_stage_of_a_grounded_pipeline_adds_one_entry_to_the_evidence_trail() {
    let steps = ["select", "draft", "check"];
    let chain = steps.iter().enumerate().map(|(i, id)| tool(id, &steps[i.saturating_sub(1)..i]));
    let mut story = Story::started(chain.collect());
    for (count, id) in (1..).zip(steps) {
        story.does(id, grounded(GroundingState::Grounded, count));
    }
    let stages: Vec<_> = story.run.evidence_trail.iter().map(|entry| entry.stage_id.as_str()).collect();
    assert_eq!(stages, steps);
}

/// A run of an agent of this family whose only call ends like this.
fn by(family: &str, result: CallResult) -> Story {
    let mut story = Story::started(vec![Step { agent_id: Some(agent(family)), ..tool("a", &[]) }]);
    story.does("a", result);
    story
}

#[test]
fn an_agent_that_must_cite_and_has_nothing_to_cite_abstains() {
    for (state, count) in
        [(GroundingState::Ungrounded, 0), (GroundingState::Ungrounded, 3), (GroundingState::Grounded, 0)]
    {
        let story = by("ref.research", grounded(state, count));
        assert_eq!(story.status(), RunStatus::Failed, "{state:?} {count}");
        assert_eq!(story.run.end.clone().unwrap().code.as_deref(), Some("abstained"));
        assert_eq!(labels(&story), [DecisionLabel::Abstained]);
        assert_eq!(story.run.evidence_trail.len(), 1, "the trail shows why");
    }
}

#[test]
fn an_agent_that_can_cite_or_need_not_does_not_abstain() {
    let fine = [
        ("ref.research", grounded(GroundingState::Grounded, 2)),
        ("ref.research", grounded(GroundingState::PartiallyGrounded, 1)),
        ("ref.research", grounded(GroundingState::NotRequired, 0)),
        ("ref.research", answered(json!(1))),
        ("ref.editing", grounded(GroundingState::Ungrounded, 0)),
    ];
    for (family, result) in fine {
        assert_eq!(by(family, result.clone()).status(), RunStatus::Completed, "{family} {result:?}");
    }
}

#[test]
fn grounding_states_and_decision_labels_are_closed_sets() {
    for state in ["grounded", "partially-grounded", "ungrounded", "not-required"] {
        assert!(serde_json::from_value::<GroundingState>(json!(state)).is_ok(), "{state}");
    }
    let labels = [
        "plan-replanned",
        "gate-failed",
        "abstained",
        "gate-passed",
        "branch-chosen",
        "model-fallback",
        "tool-skipped",
        "retry",
        "degraded",
        "handoff-dispatched",
    ];
    for label in labels {
        assert!(serde_json::from_value::<DecisionLabel>(json!(label)).is_ok(), "{label}");
    }
    for unknown in ["", "Retry", "grounded-ish", "gate_failed"] {
        assert!(serde_json::from_value::<DecisionLabel>(json!(unknown)).is_err(), "{unknown}");
        assert!(serde_json::from_value::<GroundingState>(json!(unknown)).is_err(), "{unknown}");
    }
}

#[test]
fn a_restart_after_the_second_of_four_stages_goes_on_at_the_third() {
    let mut story = Story::started(vec![tool("1", &[]), tool("2", &["1"]), tool("3", &["2"]), tool("4", &["3"])]);
    for id in ["1", "2"] {
        story.does(id, answered_with(json!(id), vec![artifact(id)]));
    }
    let restarted = fold(&story.events).unwrap();
    assert_eq!(restarted.ready_to_bind(story.now), [2]);
    let keys: Vec<_> = restarted.intermediate_artifacts.iter().map(|c| c.artifact.persisted_key.clone()).collect();
    assert_eq!(keys, ["1", "2"].map(|id| artifact(id).persisted_key));
}

#[test]
fn cost_and_evidence_are_booked_under_the_stage_a_step_belongs_to() {
    let staged = |id: &str| Step {
        stage_id: Some(signalbox_domain::ids::StageId::new("draft").unwrap()),
        ..calling("sophia.ground", json!({}), id, &[])
    };
    let mut story = Story::started(vec![staged("one"), staged("two")]);
    for id in ["one", "two"] {
        story.does(id, measuring(&[(BudgetCategory::CostUnits, 1.5)], grounded(GroundingState::Grounded, 1)));
    }
    let per_stage: Vec<_> = story.run.cost_ledger.per_stage_cost_units.iter().map(|(s, c)| (s.as_str(), *c)).collect();
    assert_eq!(per_stage, [("draft", micros(3.0))]);
    assert!(story.run.evidence_trail.iter().all(|entry| entry.stage_id.as_str() == "draft"));
}

#[test]
fn an_error_message_of_a_tool_is_redacted_and_bounded() {
    let mut story = Story::started(vec![tool("a", &[])]);
    let message = format!("token ghp_FAKE00000000000000000000000000000000 {}", "x".repeat(5_000));
    let call = story.does("a", ended(CallEnding::Failed { code: "tool-failed".to_owned(), message }));
    let error = story.run.call(call).unwrap().error.clone().unwrap();
    assert!(!error.message.contains("FAKE"));
    assert_eq!(error.message.chars().count(), 2_000);
}

#[test]
fn a_run_with_a_failed_step_begins_nothing_new_and_ends_when_its_calls_are_settled() {
    let both = Plan { max_parallel: Some(2), ..plan(vec![tool("a", &[]), tool("b", &[]), tool("c", &[])]) };
    let mut story = Story::begins(submitted(&both));
    story.go_on();
    let (a, b) = (story.call("a"), story.call("b"));
    story.end(a, failed("tool-failed"));
    assert!(story.run.is_failing() && story.ready().is_empty());
    assert_eq!(story.status(), RunStatus::Running);
    story.end(b, answered(Value::Null));
    assert_eq!(story.status(), RunStatus::Failed);
    assert_eq!(story.state("c"), &StepState::Pending);
    assert!(story.run.closed);
}
