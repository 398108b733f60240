//! Recorded runs decided again: the same as before if nothing is otherwise, and stopped exactly where the rules say if it is.

use signalbox_domain::governance::budget::{Budget, BudgetScope, OnExceeded};
use signalbox_domain::governance::kill_switch::{KillSwitch, SwitchScope};
use signalbox_domain::ids::{ActorId, BudgetId, SwitchId};
use signalbox_domain::quantity::{BudgetCategory, Micros};
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::run::whatif::{Change, Recorded, WhatIf, whatif};
use signalbox_domain::time::UnixMs;

use crate::given::{Story, answered, measuring, optional, tenant, tool};

fn budget(limit: i64) -> Budget {
    Budget {
        budget_id: BudgetId::new("whatif.tenant").unwrap(),
        tenant_id: Some(tenant()),
        scope: BudgetScope::Tenant,
        scope_key: tenant().to_string(),
        category: BudgetCategory::CostUnits,
        limit: Micros::units(limit),
        calendar: None,
        period_seconds: None,
        anchor_unix_seconds: 0,
        warn_ratio: Micros(800_000),
        grace_ratio: Micros(1_000_000),
        grace_seconds: 0,
        on_exceeded: OnExceeded::Kill,
    }
}

fn switch(scope: SwitchScope, target: Option<&str>) -> KillSwitch {
    KillSwitch {
        switch_id: SwitchId::new("whatif").unwrap(),
        tenant_id: None,
        scope,
        target_id: target.map(str::to_owned),
        armed_by: ActorId::new("ann").unwrap(),
        armed_at_unix_ms: UnixMs(0),
        reason: "what if".to_owned(),
        user_visible_status_copy: String::new(),
        safe_degradation_mode_id: None,
        expires_at_unix_ms: None,
        disarmed_at_unix_ms: None,
    }
}

fn three_calls() -> Story {
    let mut story = Story::started(vec![tool("a", &[]), tool("b", &["a"]), tool("c", &["b"])]);
    for id in ["a", "b", "c"] {
        let spent = measuring(&[(BudgetCategory::CostUnits, 1.0)], answered(serde_json::json!({})));
        story.does(id, spent);
    }
    story
}

fn asked(story: &Story, change: &Change) -> WhatIf {
    whatif(&[Recorded { run_key: story.run.run_key, events: &story.events }], change).unwrap()
}

#[test]
fn nothing_goes_otherwise_where_there_is_room() {
    let story = three_calls();
    let found = asked(&story, &Change { budgets: vec![budget(1_000)], ..Change::default() });
    assert_eq!((found.runs, found.calls, found.otherwise.len()), (1, 3, 0));
    assert_eq!(found.meters[0].consumed, story.run.cost_ledger.total_cost_units);
    assert_eq!(found.meters[0].reserved, Micros::ZERO);
}

#[test]
fn a_run_stops_at_the_call_that_would_have_passed_the_limit_and_makes_none_after_it() {
    let story = three_calls();
    let found = asked(&story, &Change { budgets: vec![budget(2)], ..Change::default() });
    let run = &found.otherwise[0];
    assert_eq!((run.recorded_status, run.status), (RunStatus::Completed, RunStatus::Killed));
    let objection = &run.objections[0];
    assert_eq!((objection.code.as_str(), objection.stops), ("budget-exceeded", true));
    let place = usize::try_from(objection.seq).unwrap() - 1;
    assert_eq!(story.events[place].kind, "call-pending");
    assert!(run.cost_units < run.recorded_cost_units);
    assert!(found.meters[0].consumed <= Micros::units(2), "no overspend here either");
    assert_eq!(found.meters[0].reserved, Micros::ZERO);
    let paused = Budget { on_exceeded: OnExceeded::Pause, ..budget(2) };
    let found = asked(&story, &Change { budgets: vec![paused], ..Change::default() });
    assert_eq!(found.otherwise[0].status, RunStatus::Paused);
}

#[test]
fn a_switch_on_what_a_run_is_ends_it_before_its_first_call() {
    let story = three_calls();
    let global = Change { switches: vec![switch(SwitchScope::Global, None)], ..Change::default() };
    let found = asked(&story, &global);
    assert_eq!((found.calls, found.otherwise[0].objections[0].seq), (0, 1));
    let other = Change { switches: vec![switch(SwitchScope::Tool, Some("web.fetch"))], ..Change::default() };
    assert!(asked(&story, &other).otherwise.is_empty());
}

#[test]
fn grants_that_are_not_there_deny_and_an_optional_step_is_only_left_out() {
    let mut story = Story::started(vec![optional(tool("a", &[])), tool("b", &["a"])]);
    for id in ["a", "b"] {
        story.does(id, answered(serde_json::json!({})));
    }
    let found = asked(&story, &Change { grants: Some(Vec::new()), ..Change::default() });
    let stops: Vec<bool> = found.otherwise[0].objections.iter().map(|objection| objection.stops).collect();
    assert_eq!(stops, [false, true]);
    assert_eq!(found.otherwise[0].status, RunStatus::Failed);
}

#[test]
fn a_journal_that_does_not_fold_is_said_and_not_decided() {
    let story = three_calls();
    let cut = &story.events[1..];
    let refused = whatif(&[Recorded { run_key: story.run.run_key, events: cut }], &Change::default());
    assert_eq!(refused.unwrap_err().0, story.run.run_key);
}
