//! What a rehearsal does not do (MOD-006, MOD-007, I12): which calls a stand-in answers, and what it answers.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};
use signalbox_domain::catalog::{Effect, catalog};
use signalbox_domain::ids::{StepId, ToolId};
use signalbox_domain::mode::{COST_QUALITY_MODES, SIMULATED_KEY, is_simulated, recorded, simulates, stand_in};
use signalbox_domain::run::plan::Plan;

fn tool(id: &str) -> ToolId {
    ToolId::new(id).unwrap()
}

fn plan(steps: Value) -> Plan {
    serde_json::from_value(json!({ "steps": steps })).unwrap()
}

fn answer(plan: &Plan, step: &str) -> Value {
    let id = StepId::new(step).unwrap();
    let tool = plan.step(&id).unwrap().kind.tool_id().unwrap().clone();
    stand_in(plan, &id, &tool, &json!({}))
}

#[test]
fn whatever_changes_makes_steers_or_leaves_is_simulated_and_nothing_else() {
    let simulated: BTreeSet<&str> =
        catalog().iter().filter(|entry| is_simulated(entry)).map(|entry| entry.tool_id.as_str()).collect();
    let real: BTreeSet<&str> =
        catalog().iter().map(|entry| entry.tool_id.as_str()).filter(|tool| !simulated.contains(tool)).collect();
    let looks =
        ["calendar.read", "file.read", "memory.read", "sophia.fact_check", "sophia.ground", "themis.adjudicate"];
    assert_eq!(real, looks.into());
    for entry in catalog() {
        assert!(simulated.contains(entry.tool_id.as_str()) || (entry.effect == Effect::Read && !entry.external));
    }
}

#[test]
fn only_a_rehearsal_simulates_and_it_does_so_for_what_nobody_knows_and_what_is_guarded() {
    for mode in COST_QUALITY_MODES {
        let rehearsal = mode == "rehearsal-dry-run";
        assert_eq!(simulates(mode, &tool("memory.write"), false), rehearsal, "{mode}");
        assert_eq!(simulates(mode, &tool("no.such.tool"), false), rehearsal, "{mode}");
        assert_eq!(simulates(mode, &tool("memory.read"), true), rehearsal, "{mode}");
        assert!(!simulates(mode, &tool("memory.read"), false), "{mode}");
    }
    assert!(!simulates("REHEARSAL-DRY-RUN", &tool("memory.write"), false), "no such mode");
}

#[test]
fn every_stand_in_says_that_it_is_one() {
    for entry in catalog() {
        let plan = plan(json!([{"stepId": "s", "kind": "tool", "toolId": entry.tool_id}]));
        assert_eq!(answer(&plan, "s")[SIMULATED_KEY], json!(true), "{}", entry.tool_id);
    }
}

#[test]
fn what_later_steps_bind_to_is_there() {
    let plan = plan(json!([
        {"stepId": "make", "kind": "tool", "toolId": "generate.image"},
        {"stepId": "use", "kind": "tool", "toolId": "memory.write", "dependsOnStepIds": ["make"], "args": {
            "a": {"$from": "/steps/make/output/cover/url"}, "b": [{"$from": "/steps/make/output/sizes/1"}],
            "c": {"$from": "/steps/make/output/odd~1name"}, "d": {"$from": "/steps/make/output"},
            "e": {"$from": "/inputs/make"}}},
        {"stepId": "ask", "kind": "approval", "dependsOnStepIds": ["make"],
            "subject": {"$from": "/steps/make/output/summary"}},
    ]));
    let answer = answer(&plan, "make");
    for pointer in ["/cover/url", "/sizes/1", "/odd~1name", "/summary"] {
        assert!(answer.pointer(pointer).is_some(), "{pointer}: {answer}");
    }
}

#[test]
fn a_stand_in_holds_nothing_of_the_arguments() {
    let plan = plan(json!([{"stepId": "s", "kind": "tool", "toolId": "memory.write"}]));
    let id = StepId::new("s").unwrap();
    let with = |args: Value| stand_in(&plan, &id, &tool("memory.write"), &args);
    assert_eq!(with(json!({"key": "private words"})), with(json!({})));
}

#[test]
fn a_tool_with_several_ways_to_work_has_a_recording_for_each() {
    let of = |mode: &str| recorded(&tool("composition.suggest"), &json!({ "mode": mode }));
    assert!(of("draft").is_some_and(|kept| kept.get("draft").is_some()));
    assert!(of("render").is_some_and(|kept| kept.get("markdown").is_some()));
    for other in ["", "sideways", "__proto__"] {
        assert!(of(other).is_none(), "{other}");
    }
    assert!(recorded(&tool("composition.suggest"), &json!({"mode": {"length": 1}})).is_none());
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

#[test]
fn a_pointer_cannot_make_a_stand_in_that_the_journal_could_not_hold() {
    let bind = |pointer: &str| {
        plan(json!([
            {"stepId": "make", "kind": "tool", "toolId": "generate.image"},
            {"stepId": "use", "kind": "tool", "toolId": "memory.write", "dependsOnStepIds": ["make"],
                "args": {"a": {"$from": format!("/steps/make/output{pointer}")}}},
        ]))
    };
    let deep = "/a".repeat(5_000);
    let long = format!("/{}", "9".repeat(300));
    for pointer in [deep.as_str(), "/list/4000000000", &long, "/list/99999", "//", "/~", "/~2", "/-"] {
        let answer = answer(&bind(pointer), "make");
        let short: String = pointer.chars().take(20).collect();
        assert!(depth(&answer) <= 20 && answer.to_string().len() < 5_000, "{short}");
        assert_eq!(answer[SIMULATED_KEY], json!(true), "{short}");
    }
}

proptest! {
    #[test]
    fn any_bindings_make_a_flagged_object(pointers in prop::collection::vec("(/[a-z0-9~]{0,3}){0,6}", 0..8)) {
        let args: Vec<Value> =
            pointers.iter().map(|pointer| json!({"$from": format!("/steps/make/output{pointer}")})).collect();
        let plan = plan(json!([
            {"stepId": "make", "kind": "tool", "toolId": "source.fetch"},
            {"stepId": "use", "kind": "tool", "toolId": "memory.write", "dependsOnStepIds": ["make"], "args": args},
        ]));
        let answer = answer(&plan, "make");
        prop_assert_eq!(&answer[SIMULATED_KEY], &json!(true));
        prop_assert!(answer["documents"].is_array());
    }
}
