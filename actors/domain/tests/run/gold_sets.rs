//! What goes into a gold set (FBK-013, FBK-015), and what a shadow of a run is (FBK-009).

use serde_json::json;
use signalbox_domain::feedback::gold_set::{
    DurableGoldSetEntryRow, GOLD_ENTRIES_MAX, GOLD_VALUE_BYTES_MAX, GoldSetFacts, PromoteGold, RUBRIC_BYTES_MAX,
    input_hash, promote,
};
use signalbox_domain::feedback::rollout::{Rollout, RolloutMode, RolloutState};
use signalbox_domain::feedback::routing::{RolloutArm, Routed, give_side, may_route, route_invocation, shadow_of};
use signalbox_domain::governance::switching::Operator;
use signalbox_domain::identity::{Caller, Role, may_see};
use signalbox_domain::ids::{AgentId, GoldSetEntryId, GoldSetId, RolloutId, RunId, RunKey};
use signalbox_domain::quantity::Micros;
use signalbox_domain::run::event::RunSubmitted;
use signalbox_domain::time::UnixMs;
use uuid::Uuid;

use crate::given::{Story, actor, answered, fork_in_the_road, operator, plan, submitted, submitter, tenant, tool};

const ENTRY: GoldSetEntryId = GoldSetEntryId::new(Uuid::from_u128(5));

fn wish() -> PromoteGold {
    PromoteGold {
        gold_set_id: GoldSetId::new("gold.research").unwrap(),
        source_run_id: RunId::new(Uuid::from_u128(7)),
        expected_output: json!({"items": 3}),
        rubric: "names three tides".to_owned(),
    }
}

fn completed() -> Story {
    let mut story = Story::started(vec![tool("1", &[])]);
    story.does("1", answered(json!({"ok": true})));
    story.go_on();
    story
}

fn put(story: &Story, wish: &PromoteGold, facts: GoldSetFacts) -> Result<DurableGoldSetEntryRow, &'static str> {
    let (tenant, actor) = (tenant(), operator());
    let by = Operator { tenant_id: &tenant, actor: &actor };
    promote(wish, &story.run, facts, ENTRY, by, UnixMs(99)).map_err(|denial| denial.code())
}

#[test]
fn the_input_of_a_completed_run_goes_in_with_what_is_expected_of_it() {
    let story = completed();
    let row = put(&story, &wish(), GoldSetFacts::default()).unwrap();
    assert_eq!((row.entry_id, row.source_run_id, row.promoted_at), (ENTRY, story.run.run_id, UnixMs(99)));
    assert_eq!((row.agent_id.as_str(), row.agent_semver.as_str()), ("ref.research", "1.0.0"));
    assert_eq!((&row.input, row.input_hash.clone()), (&*story.run.inputs, input_hash(&story.run.inputs).unwrap()));
    let json = serde_json::to_value(&row).unwrap();
    let mut names: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    let all = [
        "agentId",
        "agentSemver",
        "entryId",
        "expectedOutput",
        "goldSetId",
        "input",
        "inputHash",
        "promotedAt",
        "promotedBy",
        "rubric",
        "schemaVersion",
        "sourceRunId",
    ];
    assert_eq!(names, all);
    assert_eq!(serde_json::from_value::<DurableGoldSetEntryRow>(json).unwrap(), row);
}

#[test]
fn a_run_that_is_not_completed_a_duplicate_and_a_full_set_are_refused() {
    let running = Story::started(vec![tool("1", &[])]);
    assert_eq!(put(&running, &wish(), GoldSetFacts::default()), Err("source-run-not-completed"));
    let there = GoldSetFacts { same_input: Some(GoldSetEntryId::new(Uuid::from_u128(1))), entries: 1 };
    assert_eq!(put(&completed(), &wish(), there), Err("gold-set-entry-exists"));
    let full = GoldSetFacts { same_input: None, entries: GOLD_ENTRIES_MAX };
    assert_eq!(put(&completed(), &wish(), full), Err("gold-set-full"));
}

#[test]
fn what_is_too_big_or_says_nothing_is_refused_and_secrets_are_masked() {
    let big = PromoteGold { expected_output: json!("x".repeat(GOLD_VALUE_BYTES_MAX)), ..wish() };
    assert_eq!(put(&completed(), &big, GoldSetFacts::default()), Err("gold-set-entry-too-big"));
    let long = PromoteGold { rubric: "x".repeat(RUBRIC_BYTES_MAX + 1), ..wish() };
    assert_eq!(put(&completed(), &long, GoldSetFacts::default()), Err("gold-set-entry-too-big"));
    let none = PromoteGold { rubric: " ".to_owned(), ..wish() };
    assert_eq!(put(&completed(), &none, GoldSetFacts::default()), Err("rubric-required"));
    let secret = PromoteGold { expected_output: json!({"password": "hunter2-is-fake"}), ..wish() };
    let row = put(&completed(), &secret, GoldSetFacts::default()).unwrap();
    assert!(!serde_json::to_string(&row).unwrap().contains("hunter2"));
}

#[test]
fn gold_sets_are_for_operators() {
    for role in [Role::Customer, Role::Creator, Role::Service] {
        let (tenant, actor) = (tenant(), actor("ulla", role));
        let by = Operator { tenant_id: &tenant, actor: &actor };
        let denied = promote(&wish(), &completed().run, GoldSetFacts::default(), ENTRY, by, UnixMs(1)).unwrap_err();
        assert_eq!(denied.code(), "not-authorized");
    }
}

fn shadow_rollout() -> Rollout {
    Rollout {
        rollout_id: RolloutId::new("r").unwrap(),
        tenant_id: None,
        agent_id: AgentId::new("ref.research").unwrap(),
        champion_semver: "1.0.0".to_owned(),
        challenger_semver: "1.1.0".to_owned(),
        mode: RolloutMode::Shadow,
        canary_fraction: Micros::ZERO,
        state: RolloutState::Live,
        prior_champion: None,
        started_by: operator().actor_id,
        started_at_unix_ms: UnixMs(0),
        changed_at_unix_ms: UnixMs(0),
        reason: "a trial".to_owned(),
    }
}

fn with_its_shadow(run: &mut RunSubmitted, fresh: u128) -> Option<RunSubmitted> {
    let rollouts = [shadow_rollout()];
    let (tenant, user, agent) = (run.tenant_id.clone(), run.submitted_by.actor_id.clone(), run.root_agent_id.clone());
    let route = route_invocation(&rollouts, Routed { tenant_id: &tenant, user_id: &user, agent_id: &agent }).unwrap();
    give_side(run, route);
    shadow_of(run, route, RunKey::new(Uuid::from_u128(fresh)))
}

#[test]
fn a_shadow_is_a_rehearsal_of_the_challenger_without_grants_and_under_budgets_of_its_own() {
    let mut run = submitted(&plan(vec![tool("1", &[])]));
    let shadow = with_its_shadow(&mut run, 1).unwrap();
    let side = run.routing.clone().unwrap();
    assert_eq!((run.root_agent_semver.as_str(), side.arm, side.shadow_of), ("1.0.0", RolloutArm::Champion, None));
    let its_side = shadow.routing.clone().unwrap();
    assert_eq!((shadow.root_agent_semver.as_str(), shadow.mode.as_str()), ("1.1.0", "rehearsal-dry-run"));
    assert_eq!((its_side.arm, its_side.shadow_of), (RolloutArm::Challenger, Some(run.run_id)));
    assert_eq!(its_side.min_evaluation_score, Micros(700_000), "the bar of the mode that was asked for, for both");
    assert!(shadow.grants.is_empty());
    assert_eq!(shadow.budgets.len(), run.budgets.len());
    for own in &shadow.budgets {
        assert_eq!(own.scope_key, shadow.run_id.to_string());
        assert!(run.budgets.iter().all(|other| other.budget_id != own.budget_id));
    }
    assert_eq!(with_its_shadow(&mut run.clone(), 2).unwrap().run_id, shadow.run_id, "said again it is the same run");
    assert_ne!(shadow.run_id, run.run_id);
}

#[test]
fn a_plan_that_asks_somebody_to_choose_has_no_shadow() {
    let mut run = submitted(&plan(vec![fork_in_the_road("1", &["a", "b"], &[])]));
    assert_eq!(with_its_shadow(&mut run, 1), None);
}

#[test]
fn rehearsals_forks_and_pipelines_are_not_routed() {
    let run = submitted(&plan(vec![tool("1", &[])]));
    assert!(may_route(&run));
    let rehearsal = RunSubmitted { mode: "rehearsal-dry-run".to_owned(), ..run.clone() };
    let fork = RunSubmitted { forked_from_run_id: Some(run.run_id), ..run.clone() };
    let child = RunSubmitted { parent_run_id: Some(run.run_id), ..run.clone() };
    let pipeline = RunSubmitted { pipeline_id: Some("a.b".parse().unwrap()), ..run };
    assert!([rehearsal, fork, child, pipeline].iter().all(|run| !may_route(run)));
}

#[test]
fn a_shadow_is_shown_to_operators_alone() {
    let mut run = submitted(&plan(vec![tool("1", &[])]));
    let shadow = with_its_shadow(&mut run, 1).unwrap();
    assert_eq!(run.listed_under(), submitter().actor_id);
    assert_eq!(shadow.listed_under().as_str(), "system:shadow");
    let (run, shadow) = (Story::begins(run).run, Story::begins(shadow).run);
    let sees = |actor: signalbox_domain::identity::Actor, run| {
        may_see(&Caller { tenant_id: tenant(), actor, scopes: Vec::new(), surface: "api" }, run)
    };
    assert!(sees(submitter(), &run) && !sees(submitter(), &shadow));
    assert!(sees(operator(), &run) && sees(operator(), &shadow));
}
