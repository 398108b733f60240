//! Model steps by their rules alone: what an answer becomes, what verification finds in a journal that breaks them, and how
//! rewinds, forks and replays go with steps that were added on the way.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use signalbox_domain::canonical;
use signalbox_domain::ids::CallId;
use signalbox_domain::quantity::{BudgetCategory, Micros};
use signalbox_domain::run::call::{self, Prepared};
use signalbox_domain::run::chain::{EventHash, StoredEvent};
use signalbox_domain::run::event::{DecisionLabel, StoredValue};
use signalbox_domain::run::evolve::fold;
use signalbox_domain::run::model_step::{
    Finish, ModelAnswer, ModelLimits, Pricing, ProposedCall, added_by, answer_value, as_submitted, cut_result,
    turn_args, turn_entry,
};
use signalbox_domain::run::plan::{Step, StepKind};
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::run::step::StepState;
use signalbox_domain::run::verify::verify;
use uuid::Uuid;

use crate::given::{Story, answered, failed, optional, plan, retry, step_id, tenant, tool, tool_id};

fn thinking(limits: ModelLimits) -> Step {
    let kind =
        StepKind::Model { prompt: json!("x"), tools: vec![tool_id("memory.read"), tool_id("memory.write")], limits };
    Step { kind, ..tool("think", &[]) }
}

fn says(text: &str) -> ModelAnswer {
    ModelAnswer { text: text.to_owned(), ..ModelAnswer::default() }
}

fn proposes(calls: &[(&str, &str)]) -> ModelAnswer {
    let calls = calls.iter().enumerate().map(|(place, (name, arguments))| ProposedCall {
        id: format!("c{place}"),
        name: (*name).to_owned(),
        arguments: (*arguments).to_owned(),
    });
    ModelAnswer { calls: calls.collect(), finish: Finish::Calls, ..ModelAnswer::default() }
}

/// The turn's call as it would be asked for.
fn asking(story: &Story, id: &str) -> Prepared {
    let step = story.run.plan.step(&step_id(id)).unwrap().clone();
    let output = |step: &_| match story.run.output_of(step)? {
        StoredValue::Inline(value) => Some(value.clone()),
        StoredValue::Blob { .. } => None,
    };
    let args = turn_args(&story.run, &step, &json!("x"), &output).unwrap();
    Prepared {
        call_id: story.run.next_call_id(&step),
        target: story.run.target_of(&step).unwrap(),
        args_hash: canonical::digest(&args).unwrap(),
        redacted_args: StoredValue::Inline(args.clone()),
        secrets: BTreeMap::new(),
        args,
        step,
    }
}

fn ask(story: &mut Story, id: &str) -> CallId {
    let prepared = asking(story, id);
    let entry = turn_entry(&prepared.args, &Pricing::default(), 1_000, false);
    let mut admissible = story.admissible(&Prepared {
        target: {
            let mut t = prepared.target.clone();
            t.tool_id = tool_id("memory.read");
            t
        },
        ..prepared.clone()
    });
    admissible.ceiling = entry.ceiling;
    admissible.reservations = Vec::new();
    admissible.recovery = entry.recovery;
    story.asked(call::admit(&prepared, &admissible, story.now));
    prepared.call_id
}

fn turn(story: &mut Story, id: &str, answer: &ModelAnswer) -> CallId {
    let call = ask(story, id);
    story.end(call, answered(answer_value(answer)));
    call
}

fn begun(limits: ModelLimits) -> Story {
    let story = Story::started(vec![thinking(limits), tool("after", &["think"])]);
    assert_eq!(story.state("think"), &StepState::Conversing);
    story
}

fn codes(events: &[StoredEvent], story: &Story) -> Vec<String> {
    verify(&tenant(), story.run.run_key, events).findings.into_iter().map(|finding| finding.code).collect()
}

fn rehashed(mut events: Vec<StoredEvent>) -> Vec<StoredEvent> {
    let (mut seq, mut prev_hash) = (0, EventHash::ZERO);
    for event in &mut events {
        seq += 1;
        event.seq = seq;
        event.prev_hash = prev_hash;
        event.hash = event.expected_hash(&tenant());
        prev_hash = event.hash;
    }
    events
}

fn without(story: &Story, kind: &str) -> Vec<StoredEvent> {
    let place = story.events.iter().position(|event| event.kind == kind).unwrap();
    let mut events = story.events.clone();
    events.remove(place);
    rehashed(events)
}

fn replaced(story: &Story, kind: &str, change: impl Fn(&mut Value)) -> Vec<StoredEvent> {
    let mut events = story.events.clone();
    let event = events.iter_mut().find(|event| event.kind == kind).unwrap();
    let mut body: Value = serde_json::from_slice(&event.body).unwrap();
    change(&mut body);
    event.body = body.to_string().into_bytes();
    rehashed(events)
}

fn whole() -> Story {
    let mut story = begun(ModelLimits::default());
    turn(&mut story, "think:1", &proposes(&[("memory.read", r#"{"key":"a"}"#), ("rm", "{}")]));
    story.does("think:1.1", answered(json!({ "value": 1 })));
    turn(&mut story, "think:2", &says("done"));
    story.does("after", answered(json!({})));
    story
}

#[test]
fn the_plan_grows_by_what_is_taken_on_and_shrinks_to_what_was_submitted() {
    let story = whole();
    assert_eq!(story.status(), RunStatus::Completed);
    let ids: Vec<&str> = story.run.plan.steps.iter().map(|step| step.step_id.as_str()).collect();
    assert_eq!(ids, ["think", "after", "think:1", "think:1.1", "think:2"]);
    assert_eq!(story.run.steps.len(), ids.len());
    assert_eq!(added_by(&story.run.plan, &step_id("think:1.1")).unwrap().step_id, step_id("think"));
    assert_eq!(as_submitted(&story.run.plan), plan(vec![thinking(ModelLimits::default()), tool("after", &["think"])]));
    assert_eq!(story.run.conversation(&step_id("think")).unwrap().refusals, 1);
    assert_eq!(story.run.percent(), 100);
}

#[test]
fn the_envelope_is_the_fold_of_the_journal_with_what_it_added() {
    let story = whole();
    for (place, past) in story.past.iter().enumerate() {
        assert_eq!(&fold(&story.events[..=place]).unwrap(), past, "event {}", place + 1);
    }
    let snapshot = serde_json::to_vec(&story.run).unwrap();
    assert_eq!(serde_json::from_slice::<signalbox_domain::run::envelope::RunEnvelope>(&snapshot).unwrap(), story.run);
}

#[test]
fn nothing_is_found_in_a_sound_journal_and_what_is_missing_is() {
    let story = whole();
    assert_eq!(codes(&story.events, &story), Vec::<String>::new());
    assert!(codes(&without(&story, "model-asked"), &story).contains(&"turn-not-asked".to_owned()));
    // Without the answer the proposal is nobody's.
    let found = codes(&without(&story, "model-answered"), &story);
    assert!(found.contains(&"call-without-proposal".to_owned()), "{found:?}");
    let forged = replaced(&story, "model-answered", |body| body["callId"] = json!(Uuid::from_u128(9)));
    assert!(codes(&forged, &story).contains(&"answer-without-turn".to_owned()));
    let forged = replaced(&story, "model-answered", |body| body["proposed"][0]["argsHash"] = json!("00".repeat(32)));
    assert!(codes(&forged, &story).contains(&"call-differs-from-proposal".to_owned()));
    let forged = replaced(&story, "model-answered", |body| body["proposed"][0]["index"] = json!(7));
    assert!(codes(&forged, &story).contains(&"proposal-misnamed".to_owned()));
    let mut twice = story.events.clone();
    let place = twice.iter().position(|event| event.kind == "model-answered").unwrap();
    twice.insert(place, twice[place].clone());
    assert!(codes(&rehashed(twice), &story).contains(&"answered-twice".to_owned()));
}

#[test]
fn an_answer_is_judged_within_the_bounds_of_its_step() {
    let limits = ModelLimits { calls: Some(2), calls_per_turn: Some(3), ..ModelLimits::default() };
    let mut story = begun(limits);
    let call = r#"{"key":"a"}"#;
    turn(&mut story, "think:1", &proposes(&[("memory.read", call), ("memory.read", call), ("memory.read", call)]));
    let refused = &story.run.conversation(&step_id("think")).unwrap().refused[&1];
    assert_eq!((refused.len(), refused[0].index, refused[0].code.as_str()), (1, 2, "model-calls-used-up"));
    assert_eq!(story.ready(), ["think:1.1", "think:1.2"]);
}

#[test]
fn hostile_arguments_are_refused_each_with_why() {
    let mut story = begun(ModelLimits { calls_per_turn: Some(16), refusals: Some(16), ..ModelLimits::default() });
    let deep = format!("{}1{}", "{\"a\":".repeat(40), "}".repeat(40));
    let big = format!(r#"{{"a":"{}"}}"#, "x".repeat(70_000));
    let cases =
        ["", "null", "[]", "{", r#"{"a":1,"a":2}"#, r#"{"a":1e999}"#, &deep, &big, "{\"a\":\"\u{0}\"}", "\u{feff}{}"];
    let calls: Vec<_> = cases.iter().map(|arguments| ("memory.read", *arguments)).collect();
    turn(&mut story, "think:1", &proposes(&calls));
    let conversation = story.run.conversation(&step_id("think")).unwrap();
    // No arguments at all are none, which is an object.
    assert_eq!(conversation.proposed.len(), 1, "{:#?}", conversation.proposed);
    assert!(conversation.refused[&1].iter().all(|refused| refused.code == "malformed-arguments"));
}

#[test]
fn a_call_that_failed_is_told_to_the_model_and_does_not_fail_the_run() {
    let mut story = begun(ModelLimits::default());
    turn(&mut story, "think:1", &proposes(&[("memory.read", "{}")]));
    story.does("think:1.1", failed("no-such-key"));
    let told = asking(&story, "think:2").args["messages"].to_string();
    assert!(told.contains("no-such-key"), "{told}");
    turn(&mut story, "think:2", &says("nothing there"));
    assert!(matches!(story.state("think"), StepState::Done { .. }));
}

#[test]
fn proposals_that_the_gate_refuses_count_as_refused() {
    let mut story = begun(ModelLimits { refusals: Some(1), ..ModelLimits::default() });
    turn(&mut story, "think:1", &proposes(&[("memory.read", "{}"), ("memory.write", "{}")]));
    story.denies("think:1.1", "grant-missing");
    story.denies("think:1.2", "grant-missing");
    turn(&mut story, "think:2", &proposes(&[("memory.read", "{}")]));
    assert_eq!(story.run.end.as_ref().unwrap().code.as_deref(), Some("model-refusals-used-up"));
}

#[test]
fn an_optional_step_whose_model_fails_is_left_out() {
    let mut story = Story::started(vec![optional(thinking(ModelLimits::default())), tool("after", &["think"])]);
    let call = ask(&mut story, "think:1");
    story.end(call, failed("model-refused"));
    assert!(matches!(story.state("think"), StepState::Skipped { .. }));
    assert_eq!(story.ready(), ["after"]);
}

#[test]
fn a_transient_failure_goes_to_the_fallback_once() {
    let mut story = begun(ModelLimits::default());
    let call = ask(&mut story, "think:1");
    story.end(call, failed("model-unavailable"));
    assert_eq!(story.run.decision_rationale.last().unwrap().decision_label, DecisionLabel::ModelFallback);
    assert_eq!(asking(&story, "think:2").args["model"], "fallback");
    let call = ask(&mut story, "think:2");
    story.end(call, failed("model-unavailable"));
    assert_eq!(story.run.end.as_ref().unwrap().code.as_deref(), Some("model-unavailable"));
}

#[test]
fn a_rewound_model_step_begins_anew_and_names_its_turns_further() {
    let mut story = begun(ModelLimits::default());
    turn(&mut story, "think:1", &proposes(&[("memory.read", "{}")]));
    story.command(crate::given::pause()).unwrap();
    assert!(story.command(retry("think:1.1")).is_err(), "a proposal is nothing by itself");
    story.command(retry("think")).unwrap();
    story.go_on();
    assert!(matches!(story.state("think:1.1"), StepState::Skipped { .. }));
    // The turn that was to follow was there already, and is never taken.
    assert!(matches!(story.state("think:2"), StepState::Skipped { .. }));
    assert_eq!(story.run.conversation(&step_id("think")).unwrap().first_turn, 3);
    assert_eq!(asking(&story, "think:3").args["turn"], 1, "it knows nothing of what was said before");
    turn(&mut story, "think:3", &says("again"));
    story.does("after", answered(json!({})));
    assert_eq!(story.status(), RunStatus::Completed);
    assert_eq!(codes(&story.events, &story), Vec::<String>::new());
}

#[test]
fn what_names_itself_like_a_turn_is_no_plan() {
    let refused = |steps: Vec<Step>| plan(steps).validate().unwrap_err().code();
    assert_eq!(refused(vec![thinking(ModelLimits::default()), tool("think:1", &[])]), "bad-step");
    assert_eq!(refused(vec![thinking(ModelLimits { turns: Some(0), ..ModelLimits::default() })]), "bad-step");
    assert_eq!(refused(vec![thinking(ModelLimits { calls: Some(65), ..ModelLimits::default() })]), "bad-step");
    let turn = Step { kind: StepKind::Turn { of: step_id("think"), number: 1 }, ..tool("t", &[]) };
    assert_eq!(refused(vec![turn]), "step-kind-not-available");
    let long = Step { step_id: step_id(&"x".repeat(126)), ..thinking(ModelLimits::default()) };
    assert_eq!(refused(vec![long]), "bad-step");
    // Ids with a colon are fine where no model step has that name.
    plan(vec![tool("think:1", &[])]).validate().unwrap();
}

#[test]
fn a_turn_is_priced_by_its_tokens_in_every_category() {
    let usage = Pricing::default().usage(2_000, 500);
    assert_eq!(usage.get(BudgetCategory::CostUnits), Micros::units(4));
    assert_eq!(usage.get(BudgetCategory::InputTokens), Micros::units(2_000));
    assert_eq!(usage.get(BudgetCategory::OutputTokens), Micros::units(500));
    assert_eq!(usage.get(BudgetCategory::ExternalCalls), Micros::units(1));
    // Nothing overflows, whatever a provider reports.
    assert!(Pricing::default().usage(u64::MAX, u64::MAX).get(BudgetCategory::CostUnits) > Micros::ZERO);
}

#[test]
fn a_result_is_cut_between_characters() {
    let cut = cut_result("ä".repeat(40_000));
    assert!(cut.len() < 33_000 && cut.ends_with("bytes)"), "{}", &cut[cut.len() - 60..]);
}

#[test]
fn an_operator_sees_who_was_asked_before_the_call_is_out() {
    let mut story = begun(ModelLimits::default());
    ask(&mut story, "think:1");
    let kinds: Vec<&str> = story.events.iter().rev().take(2).map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["call-pending", "model-asked"]);
    let target = story.run.target_of(story.run.plan.step(&step_id("think:1")).unwrap()).unwrap();
    assert_eq!(target.provider_id.unwrap().as_str(), "openai-compatible");
}
