//! Which switch ends a run that asks for nothing, and which only waits for its next call (KIL-010).

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use signalbox_domain::governance::kill_switch::{KillSwitch, SwitchScope};
use signalbox_domain::ids::{ActorId, SwitchId, TenantId};
use signalbox_domain::run::plan::Step;
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::run::sweep::{sweep, swept_by};
use signalbox_domain::time::UnixMs;

use crate::given::{START, Story, agent, gate, tool, wait};

fn switch(scope: SwitchScope, target: Option<&str>) -> KillSwitch {
    KillSwitch {
        switch_id: SwitchId::new(format!("{}-{}", scope.as_str(), target.unwrap_or("all"))).unwrap(),
        tenant_id: None,
        scope,
        target_id: target.map(str::to_owned),
        armed_by: ActorId::new("grace").unwrap(),
        armed_at_unix_ms: UnixMs(1),
        reason: "it misbehaves".to_owned(),
        user_visible_status_copy: "Stopped.".to_owned(),
        safe_degradation_mode_id: None,
        expires_at_unix_ms: None,
        disarmed_at_unix_ms: None,
    }
}

fn swept(story: &Story, switches: &[KillSwitch]) -> Option<String> {
    swept_by(&story.run, switches, story.now).map(|switch| switch.switch_id.to_string())
}

/// A run of `ref.research` that only waits.
fn idle() -> Story {
    Story::started(vec![wait("w", 60, &[]), tool("next", &["w"])])
}

/// The same with a call of `memory.read` out, by another agent.
fn calling_as_editing() -> Story {
    let by_editing = Step { agent_id: Some(agent("ref.editing")), ..tool("out", &[]) };
    let mut story = Story::started(vec![by_editing, wait("w", 60, &[])]);
    story.call("out");
    story
}

#[test]
fn each_scope_sweeps_by_what_the_run_is_or_by_the_call_it_has_out() {
    use SwitchScope as S;
    // Scope, target, ends a run that calls nothing, ends one that calls memory.read as another agent.
    let table = [
        (S::Global, None, true, true),
        (S::Tenant, Some("acme"), true, true),
        (S::Tenant, Some("other"), false, false),
        (S::Family, Some("research"), true, true),
        (S::Family, Some("editing"), false, true),
        (S::Family, Some("narration"), false, false),
        (S::Agent, Some("ref.research"), true, true),
        (S::Agent, Some("ref.editing"), false, true),
        (S::Agent, Some("ref.narration"), false, false),
        (S::Tool, Some("memory.read"), false, true),
        (S::Tool, Some("web.fetch"), false, false),
        (S::Provider, Some("local"), false, false),
        (S::Region, Some("eu-1"), false, false),
    ];
    for (scope, target, ends_idle, ends_calling) in table {
        let armed = [switch(scope, target)];
        assert_eq!(swept(&idle(), &armed).is_some(), ends_idle, "{scope:?} {target:?}");
        assert_eq!(swept(&calling_as_editing(), &armed).is_some(), ends_calling, "{scope:?} {target:?}");
    }
}

#[test]
fn a_run_whose_plan_calls_no_tool_is_swept_too() {
    for steps in [vec![wait("w", 60, &[])], vec![gate("g", &[])]] {
        let story = Story::started(steps);
        for armed in [switch(SwitchScope::Global, None), switch(SwitchScope::Tenant, Some("acme"))] {
            assert_eq!(swept(&story, std::slice::from_ref(&armed)), Some(armed.switch_id.to_string()));
        }
    }
}

#[test]
fn a_broader_switch_that_does_not_match_yet_hides_no_narrower_one_that_does() {
    let idle = idle();
    // The tool of a step that is not begun is no reason to end the run; the agent is.
    let armed = [switch(SwitchScope::Tool, Some("memory.read")), switch(SwitchScope::Agent, Some("ref.research"))];
    assert_eq!(swept(&idle, &armed).as_deref(), Some("agent-ref.research"));
    let armed = [
        switch(SwitchScope::Region, Some("eu-1")),
        switch(SwitchScope::Provider, Some("local")),
        switch(SwitchScope::Agent, Some("ref.research")),
    ];
    assert_eq!(swept(&idle, &armed).as_deref(), Some("agent-ref.research"));
    assert_eq!(swept(&calling_as_editing(), &armed).as_deref(), Some("agent-ref.research"));
}

#[test]
fn a_switch_of_another_tenant_one_that_has_expired_and_one_that_was_disarmed_sweep_nothing() {
    let all = switch(SwitchScope::Global, None);
    let foreign = KillSwitch { tenant_id: Some(TenantId::new("other").unwrap()), ..all.clone() };
    let expired = KillSwitch { expires_at_unix_ms: Some(START), ..all.clone() };
    let disarmed = KillSwitch { disarmed_at_unix_ms: Some(START), ..all.clone() };
    for story in [idle(), calling_as_editing()] {
        assert_eq!(swept(&story, &[foreign.clone(), expired.clone(), disarmed.clone()]), None);
        let own = KillSwitch { tenant_id: Some(story.run.tenant_id.clone()), ..all.clone() };
        let lasting = KillSwitch { expires_at_unix_ms: Some(START.plus_ms(1)), ..all.clone() };
        assert!(swept(&story, &[own]).is_some() && swept(&story, &[lasting]).is_some());
    }
}

#[test]
fn a_call_that_has_ended_is_no_reason_any_more() {
    let mut story = calling_as_editing();
    let call_id = story.run.tool_calls[0].call_id;
    story.end(call_id, crate::given::answered(serde_json::json!(1)));
    assert_eq!(swept(&story, &[switch(SwitchScope::Tool, Some("memory.read"))]), None);
}

#[test]
fn a_run_that_is_over_is_left_alone() {
    let all = switch(SwitchScope::Global, None);
    for status in RunStatus::ALL {
        let mut story = Story::standing(status);
        let over = status.is_terminal();
        assert_eq!(swept(&story, std::slice::from_ref(&all)).is_none(), over, "{}", status.as_str());
        assert_eq!(sweep(&story.run, &all).is_empty(), over);
        story.write(sweep(&story.run, &all));
        assert!(over || story.status() == RunStatus::Killed);
        assert!(story.run.approvals.iter().all(|approval| !approval.is_open()));
    }
}

fn any_switch() -> impl Strategy<Value = KillSwitch> {
    let targets =
        ["acme", "other", "research", "editing", "ref.research", "ref.editing", "memory.read", "web.fetch", "eu-1"];
    let of = (select(SwitchScope::ALL.to_vec()), select(targets.to_vec()), any::<[bool; 3]>(), 0..4_i64);
    (of, 0..1_000_u32).prop_map(|((scope, target, [foreign, expired, disarmed], at), id)| KillSwitch {
        switch_id: SwitchId::new(format!("s-{id}")).unwrap(),
        tenant_id: foreign.then(|| TenantId::new("other").unwrap()),
        expires_at_unix_ms: expired.then_some(START),
        disarmed_at_unix_ms: disarmed.then_some(START),
        armed_at_unix_ms: UnixMs(at),
        ..switch(scope, (scope != SwitchScope::Global).then_some(target))
    })
}

proptest! {
    #[test]
    fn of_all_switches_that_sweep_a_run_alone_the_broadest_is_blamed(switches in vec(any_switch(), 0..12)) {
        for story in [idle(), calling_as_editing()] {
            let alone: Vec<_> =
                switches.iter().filter(|switch| swept(&story, std::slice::from_ref(switch)).is_some()).collect();
            let blamed = swept_by(&story.run, &switches, story.now);
            prop_assert_eq!(blamed.is_some(), !alone.is_empty());
            let Some(blamed) = blamed else { continue };
            prop_assert!(alone.contains(&blamed));
            for other in alone {
                let (a, b) = (blamed.scope.breadth(), other.scope.breadth());
                prop_assert!(a > b || (a == b && blamed.armed_at_unix_ms <= other.armed_at_unix_ms));
            }
        }
    }
}
