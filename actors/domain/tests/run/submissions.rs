//! What a caller may submit, and what its run is given.

use serde_json::{Value, json};
use signalbox_domain::governance::budget::{BudgetScope, OnExceeded};
use signalbox_domain::quantity::{BudgetCategory, Micros};
use signalbox_domain::run::event::RunSubmitted;
use signalbox_domain::run::plan::PlanError;
use signalbox_domain::run::submission::{
    BUDGETS_MAX, COST_QUALITY_MODES, SubmissionError, accept, mint_grants, missing_scope, parse, submission_hash,
};

use crate::given::{START, calling, optional, plan, submitted, submitted_by, tool};

fn sound() -> Value {
    json!({"rootAgentId": "ref.research", "plan": [{"stepId": "a", "kind": "tool", "toolId": "memory.read", "args": {}}]})
}

fn with(field: &str, value: Value) -> Value {
    let mut submission = sound();
    submission[field] = value;
    submission
}

fn accepted(json: &Value) -> Result<RunSubmitted, SubmissionError> {
    accept(parse(json.to_string().as_bytes())?, submitted_by(), Vec::new())
}

fn code(json: &Value) -> &'static str {
    accepted(json).map_or_else(|error| error.code(), |_| "ok")
}

#[test]
fn a_sound_submission_becomes_the_first_event_of_its_run() {
    let submitted = accepted(&sound()).unwrap();
    let by = submitted_by();
    assert_eq!((submitted.run_key, submitted.run_id, submitted.tenant_id), (by.run_key, by.run_id, by.tenant_id));
    assert_eq!((submitted.submitted_by, submitted.scopes), (by.actor, by.scopes));
    assert_eq!((submitted.mode.as_str(), submitted.root_agent_semver.as_str()), ("balanced", "1.0.0"));
    assert!(submitted.grants.is_empty() && submitted.parent_run_id.is_none());
    let [budget] = &submitted.budgets[..] else { panic!("the mode's ceiling is its one budget") };
    assert_eq!((budget.category, budget.limit), (BudgetCategory::CostUnits, Micros::units(500)));
    assert!(!submitted.provenance_bundle_id.is_empty());
}

#[test]
fn a_plan_comes_as_a_list_or_with_its_fan_out() {
    let list = accepted(&sound()).unwrap().plan;
    let whole = accepted(&with("plan", json!({"steps": sound()["plan"], "maxParallel": 3}))).unwrap().plan;
    assert_eq!((list.steps.clone(), list.max_parallel), (whole.steps, None));
    assert_eq!(whole.max_parallel, Some(3));
}

#[test]
fn unknown_fields_are_refused_wherever_they_stand() {
    assert_eq!(code(&with("tenantId", json!("other"))), "json-invalid");
    assert_eq!(code(&with("grants", json!([]))), "json-invalid", "grants are not the client's to give");
    let step = |field: &str| {
        let mut step = sound()["plan"][0].clone();
        step[field] = json!(1);
        with("plan", json!([step]))
    };
    assert_eq!(code(&step("seconds")), "unknown-field", "a tool step does not wait");
    assert_eq!(code(&step("timeout")), "unknown-field");
    assert_eq!(code(&with("plan", json!({"steps": [], "parallel": 3}))), "json-invalid");
}

#[test]
fn json_that_two_readers_could_read_in_two_ways_is_refused() {
    let parse_code = |text: &str| parse(text.as_bytes()).map_or_else(|error| error.code(), |_| "ok");
    assert_eq!(parse_code(r#"{"rootAgentId": "a", "rootAgentId": "b", "plan": []}"#), "json-duplicate-key");
    assert_eq!(
        parse_code(&with("inputs", json!(0)).to_string().replace(":0", ":9007199254740993")),
        "number-not-exact"
    );
    assert_eq!(parse_code(&"[".repeat(100)), "json-too-deep");
    assert_eq!(parse_code("not json"), "json-invalid");
    assert_eq!(parse_code("[]"), "json-invalid");
}

#[test]
fn a_plan_that_is_not_sound_is_refused_by_the_one_validator() {
    assert_eq!(code(&with("plan", json!([]))), PlanError::Empty.code());
    let cycle = json!([{"stepId": "a", "kind": "wait", "seconds": 1, "dependsOnStepIds": ["a"]}]);
    assert_eq!(code(&with("plan", cycle)), "self-dependency");
}

#[test]
fn unknown_tools_agents_and_modes_are_refused() {
    let mut submission = sound();
    submission["plan"][0]["toolId"] = json!("rm.rf");
    assert_eq!(code(&submission), "unknown-tool");
    assert_eq!(code(&with("rootAgentId", json!("ref.nobody"))), "unknown-agent");
    let mut submission = sound();
    submission["plan"][0]["agentId"] = json!("ref.nobody");
    assert_eq!(code(&submission), "unknown-agent");
    assert_eq!(code(&with("mode", json!("turbo"))), "unknown-mode");
    for mode in COST_QUALITY_MODES {
        assert_eq!(code(&with("mode", json!(mode))), "ok", "{mode}");
    }
}

#[test]
fn a_run_has_at_most_one_budget_for_each_category_and_each_is_its_own() {
    let budget = |category: &str, limit: f64| json!({"category": category, "limit": limit});
    let submitted = accepted(&with("budgets", json!([budget("cost-units", 2.5)]))).unwrap();
    let [own] = &submitted.budgets[..] else { panic!("one budget") };
    assert_eq!((own.scope, own.scope_key.as_str()), (BudgetScope::Run, submitted.run_id.to_string().as_str()));
    assert_eq!(
        (own.category, own.limit, own.on_exceeded),
        (BudgetCategory::CostUnits, Micros(2_500_000), OnExceeded::Kill)
    );
    assert_eq!(own.validate(), Ok(()));

    assert_eq!(code(&with("budgets", json!([budget("cost-units", 1.0), budget("cost-units", 2.0)]))), "bad-budget");
    assert_eq!(code(&with("budgets", json!([budget("cost-units", -1.0)]))), "bad-budget");
    assert_eq!(code(&with("budgets", json!([budget("patience", 1.0)]))), "json-invalid");
    assert_eq!(
        code(&with("budgets", json!([{"category": "cost-units", "limit": 1, "scopeKey": "x"}]))),
        "json-invalid"
    );
    let all: Vec<_> = BudgetCategory::ALL.iter().map(|category| budget(category.as_str(), 1.0)).collect();
    assert_eq!(all.len(), BUDGETS_MAX);
    assert_eq!(code(&with("budgets", json!(all))), "ok");
}

#[test]
fn the_hash_of_a_submission_tells_a_repeat_from_another_run() {
    let hash = |text: &str| submission_hash(&parse(text.as_bytes()).unwrap()).unwrap();
    let plan = r#"[{"stepId":"a","kind":"wait","seconds":1}]"#;
    let one = hash(&format!(r#"{{"rootAgentId":"ref.research","plan":{plan},"inputs":{{"x":1,"y":2}}}}"#));
    let same =
        hash(&format!(r#"{{"inputs":{{"y":2,"x":1}},"mode":"balanced","plan":{plan},"rootAgentId":"ref.research"}}"#));
    let other = hash(&format!(r#"{{"rootAgentId":"ref.research","plan":{plan},"inputs":{{"x":1,"y":3}}}}"#));
    assert_eq!(one, same);
    assert_ne!(one, other);
}

#[test]
fn grants_are_minted_for_bounded_tools_alone_and_for_this_run() {
    let steps = vec![
        tool("a", &[]),
        tool("b", &[]),
        calling("web.fetch", json!({}), "c", &[]),
        calling("notify.send", json!({}), "d", &[]),
        calling("code.exec", json!({}), "e", &[]),
        calling("sophia.ground", json!({}), "f", &[]),
    ];
    let submitted = submitted(&plan(steps));
    let minted = mint_grants(&submitted, START);
    let tools: Vec<_> = minted.iter().map(|grant| grant.tool_id.as_str()).collect();
    assert_eq!(tools, ["memory.read", "sophia.ground"]);
    for grant in minted {
        assert_eq!((grant.scope_key, grant.tenant_id), (submitted.run_id.to_string(), submitted.tenant_id.clone()));
        assert!(grant.delegable.is_none());
    }
}

#[test]
fn a_scope_that_a_planned_tool_needs_and_the_caller_lacks_is_named() {
    assert_eq!(missing_scope(&submitted(&plan(vec![tool("a", &[])]))), None);
    let ground = || calling("sophia.ground", json!({}), "b", &[]);
    assert_eq!(missing_scope(&submitted(&plan(vec![ground()]))).as_deref(), Some("tool:sophia.ground"));
    assert_eq!(missing_scope(&submitted(&plan(vec![optional(ground())]))), None, "the run can do without");
}
