//! Who submits what: random plans, budgets, switches, grants and bucket rules.

use serde_json::{Value, json};
use signalbox_domain::governance::budget::{Budget, BudgetScope, OnExceeded};
use signalbox_domain::governance::change::GovernanceChange;
use signalbox_domain::governance::grant::{Constraints, Grant, GrantScope};
use signalbox_domain::governance::kill_switch::{KillSwitch, SwitchScope};
use signalbox_domain::governance::throttle::BucketRule;
use signalbox_domain::identity::{Actor, Role};
use signalbox_domain::ids::{ActorId, BucketId, BudgetId, GrantId, SwitchId, TenantId, ToolId};
use signalbox_domain::quantity::{BudgetCategory, Micros};
use signalbox_domain::time::UnixMs;
use signalbox_runtime::Caller;

use crate::dice::Dice;

pub(crate) const TENANTS: [&str; 2] = ["acme", "beta"];
const AGENTS: [(&str, &[&str]); 3] = [
    (
        "ref.course-generation",
        &["memory.read", "memory.write", "composition.suggest", "persona.invoke", "sophia.ground", "file.read"],
    ),
    ("ref.study-plan-synthesis", &["calendar.read", "calendar.write", "memory.write", "notify.send", "memory.read"]),
    ("ref.support-triage", &["notify.send", "calendar.read", "memory.read"]),
];

pub(crate) fn caller(tenant: &str, name: &str, role: Role) -> Caller {
    Caller {
        tenant_id: TenantId::new(tenant).unwrap(),
        actor: Actor { actor_id: ActorId::new(name).unwrap(), role },
        scopes: signalbox_domain::catalog::V1_TOOL_IDS.iter().map(|tool| format!("tool:{tool}")).collect(),
        surface: "api",
    }
}

/// An operator of a tenant.
pub(crate) fn operator(tenant: &str) -> Caller {
    caller(tenant, "ada", Role::TenantOperator)
}

pub(crate) fn somebody(dice: &mut Dice) -> Caller {
    let tenant = *dice.pick(&TENANTS).unwrap();
    match dice.below(3) {
        0 => caller(tenant, "carol", Role::Creator),
        1 => caller(tenant, "batch", Role::Service),
        _ => operator(tenant),
    }
}

/// Steps that later ones can refer to.
#[derive(Default)]
struct Earlier {
    branches: Vec<String>,
    tools: Vec<String>,
}

fn step(dice: &mut Dice, at: u64, earlier: &mut Earlier, agent: (&str, &[&str])) -> Value {
    let id = format!("s{at}");
    let mut after: Vec<String> = (0..dice.below(3).min(at)).map(|_| format!("s{}", dice.below(at))).collect();
    after.sort();
    after.dedup();
    let mut step = json!({ "stepId": id, "dependsOnStepIds": after, "optional": dice.chance(25) });
    if let Some(branch) = dice.pick(&earlier.branches).filter(|_| at > 0)
        && dice.chance(40)
    {
        step["when"] = json!({ "stepId": branch, "branchId": dice.pick(&["left", "right"]).unwrap() });
    }
    let kind = dice.below(20);
    match kind {
        0..2 => {
            step["kind"] = json!("approval");
            step["prompt"] = json!("go on?");
            step["approvalTtlSeconds"] = json!(dice.between(4, 60));
            step["optional"] = json!(false);
            if dice.chance(15) {
                step["requirement"] = json!("none");
            }
        }
        2..4 => {
            step["kind"] = json!("branch");
            step["branches"] = json!([{ "branchId": "left" }, { "branchId": "right" }]);
            step["optional"] = json!(false);
            earlier.branches.push(id);
        }
        4..6 => {
            step["kind"] = json!("wait");
            step["seconds"] = json!(dice.between(0, 20));
            step["optional"] = json!(false);
        }
        _ => {
            step["kind"] = json!("tool");
            let other = dice.chance(15);
            let (name, tools) = if other { *dice.pick(&AGENTS).unwrap() } else { agent };
            if other {
                step["agentId"] = json!(name);
            }
            let strange = dice.chance(2);
            let tool = if strange { "sophia.ground" } else { dice.pick(tools).unwrap() };
            step["toolId"] = json!(tool);
            let mut args = json!({ "key": format!("k{at}"), "path": format!("notes/k{at}.md"), "n": dice.below(9) });
            // Mostly to what gives something.
            let gives = |on: &&String| earlier.tools.contains(on);
            if let Some(on) = after.iter().find(gives).filter(|_| dice.chance(40)) {
                args["value"] = json!({ "$from": format!("/steps/{on}/output/value") });
            } else if dice.chance(20) {
                args["value"] = json!({ "$from": "/inputs/topic" });
            }
            step["args"] = args;
            earlier.tools.push(id);
        }
    }
    step
}

/// A submission, as JSON.
pub(crate) fn submission(dice: &mut Dice) -> Value {
    let agent = *dice.pick(&AGENTS).unwrap();
    let mut earlier = Earlier::default();
    let count = dice.between(2, 9);
    let steps: Vec<Value> = (0..count).map(|at| step(dice, at, &mut earlier, agent)).collect();
    let mut plan = json!({ "steps": steps });
    if dice.chance(50) {
        plan["maxParallel"] = json!(dice.between(1, 3));
    }
    let mut body = json!({ "rootAgentId": agent.0, "plan": plan, "inputs": { "topic": "tides" } });
    if dice.chance(30) {
        let on_exceeded = *dice.pick(&["kill", "pause"]).unwrap();
        body["budgets"] = json!([{ "category": "cost-units", "limit": dice.between(1, 8), "onExceeded": on_exceeded }]);
    }
    if dice.chance(12) {
        body["mode"] = json!("rehearsal-dry-run");
    }
    if dice.chance(20) {
        body["pipelineId"] = json!("sim.pipeline");
    }
    body
}

pub(crate) fn switch(dice: &mut Dice, now: UnixMs) -> GovernanceChange {
    let tenant = *dice.pick(&TENANTS).unwrap();
    let (scope, target) = match dice.below(12) {
        0 => (SwitchScope::Global, None),
        1..3 => (SwitchScope::Tenant, Some(tenant)),
        3..5 => (SwitchScope::Agent, dice.pick(&AGENTS).map(|agent| agent.0)),
        5 => (SwitchScope::Family, Some("course-generation")),
        _ => (SwitchScope::Tool, dice.pick(&crate::executors::TOOLS).copied()),
    };
    let expires = dice.chance(50).then(|| now.plus_ms(i64::try_from(dice.between(500, 20_000)).unwrap()));
    GovernanceChange::SwitchArmed(KillSwitch {
        switch_id: SwitchId::new(format!("switch-{}", dice.below(4))).unwrap(),
        tenant_id: dice.chance(30).then(|| TenantId::new(tenant).unwrap()),
        scope,
        target_id: target.map(str::to_owned),
        armed_by: ActorId::new("grace").unwrap(),
        armed_at_unix_ms: now,
        reason: "a drill".to_owned(),
        user_visible_status_copy: "We paused this.".to_owned(),
        safe_degradation_mode_id: None,
        expires_at_unix_ms: expires,
        disarmed_at_unix_ms: None,
    })
}

pub(crate) fn last_switch() -> SwitchId {
    SwitchId::new("the-last").unwrap()
}

/// Stops everything a tenant does.
pub(crate) fn tenant_switch(tenant: &str, now: UnixMs) -> GovernanceChange {
    GovernanceChange::SwitchArmed(KillSwitch {
        switch_id: last_switch(),
        tenant_id: Some(TenantId::new(tenant).unwrap()),
        scope: SwitchScope::Tenant,
        target_id: Some(tenant.to_owned()),
        armed_by: ActorId::new("grace").unwrap(),
        armed_at_unix_ms: now,
        reason: "the last drill".to_owned(),
        user_visible_status_copy: "We paused this.".to_owned(),
        safe_degradation_mode_id: None,
        expires_at_unix_ms: None,
        disarmed_at_unix_ms: None,
    })
}

/// A run that does nothing for long.
pub(crate) fn nap() -> Value {
    let nap = json!({ "stepId": "nap", "kind": "wait", "seconds": 3_600 });
    json!({ "rootAgentId": AGENTS[0].0, "plan": { "steps": [nap] }, "inputs": {} })
}

pub(crate) fn grant(dice: &mut Dice, now: UnixMs, tool: &str) -> GovernanceChange {
    let tenant = *dice.pick(&TENANTS).unwrap();
    grant_in(dice, now, tool, tenant)
}

pub(crate) fn grant_in(dice: &mut Dice, now: UnixMs, tool: &str, tenant: &str) -> GovernanceChange {
    let per_user = dice.chance(30);
    let constraints = Constraints { max_calls: dice.chance(20).then(|| dice.between(1, 3)), ..Constraints::default() };
    let expires = dice.chance(40).then(|| now.plus_ms(i64::try_from(dice.between(500, 60_000)).unwrap()));
    GovernanceChange::GrantIssued(Grant {
        grant_id: GrantId::new(format!("grant-{}", dice.below(1_000_000))).unwrap(),
        scope: if per_user { GrantScope::PerUser } else { GrantScope::PerTenant },
        scope_key: if per_user { "ada" } else { tenant }.to_owned(),
        tenant_id: TenantId::new(tenant).unwrap(),
        tool_id: ToolId::new(tool).unwrap(),
        tool_range: "^1.0.0".to_owned(),
        constraints,
        delegable: None,
        issued_by: ActorId::new("grace").unwrap(),
        issued_at_unix_ms: now,
        expires_at_unix_ms: expires,
        revoked_at_unix_ms: None,
        rationale: "a schedule".to_owned(),
        audit_event_id: "audit/1".to_owned(),
        renewed_from_grant_id: None,
    })
}

pub(crate) fn budget(dice: &mut Dice) -> Budget {
    let tenant = *dice.pick(&TENANTS).unwrap();
    let (scope, key) = match dice.below(5) {
        0 | 1 => (BudgetScope::Tenant, tenant),
        2 => (BudgetScope::User, "ada"),
        3 => (BudgetScope::Tool, *dice.pick(&["memory.read", "memory.write", "calendar.write"]).unwrap()),
        _ => (BudgetScope::Agent, AGENTS[0].0),
    };
    let soft = dice.chance(20);
    Budget {
        budget_id: BudgetId::new(format!("budget.{key}")).unwrap(),
        tenant_id: (scope == BudgetScope::Tenant).then(|| TenantId::new(tenant).unwrap()),
        scope,
        scope_key: key.to_owned(),
        category: BudgetCategory::CostUnits,
        limit: Micros::units(i64::try_from(dice.between(1, 12)).unwrap()),
        calendar: None,
        period_seconds: dice.chance(40).then(|| dice.between(5, 40)),
        anchor_unix_seconds: 0,
        warn_ratio: Micros(800_000),
        grace_ratio: Micros(if soft { 1_100_000 } else { 1_000_000 }),
        grace_seconds: if soft { 10 } else { 0 },
        on_exceeded: if dice.chance(50) { OnExceeded::Kill } else { OnExceeded::Pause },
    }
}

pub(crate) fn buckets(dice: &mut Dice) -> GovernanceChange {
    let rules = (0..dice.below(3)).map(|at| BucketRule {
        bucket_id: BucketId::new(format!("bucket-{at}")).unwrap(),
        tenant_id: None,
        tool_id: dice.chance(50).then(|| (*dice.pick(&crate::executors::TOOLS).unwrap()).to_owned()),
        user_id: None,
        provider_id: None,
        agent_id: None,
        per: Vec::new(),
        capacity: Micros::units(i64::try_from(dice.between(1, 3)).unwrap()),
        refill_per_second: Micros(i64::try_from(dice.between(50_000, 3_000_000)).unwrap()),
    });
    GovernanceChange::ThrottlesSet(rules.collect())
}
