//! Hand-offs (HND): sub-runs, their money, their authority, their end, and what reaches them from above.

use std::time::Duration;

use serde_json::{Value, json};
use signalbox_domain::governance::kill_switch::SwitchScope;
use signalbox_domain::ids::RunId;
use signalbox_domain::quantity::{BudgetCategory, Micros};
use signalbox_domain::run::decide::RunCommand;
use signalbox_domain::run::envelope::RunEnvelope;
use signalbox_domain::run::event::{ApprovalDecision, CallOutcome};
use signalbox_domain::run::plan::ApprovalRequirement;
use signalbox_domain::run::status::RunStatus;
use signalbox_domain::run::step::{CallEnding, CallResult, StepState};
use signalbox_ports::inbox::{CommandClass, Inbox, InboxCommand};
use signalbox_runtime::ApiError;

use crate::harness::{World, chain, operator, step, switch, tool};

fn hand(id: &str, agent: &str, plan: Value, more: Value) -> Value {
    let mut step = json!({ "stepId": id, "kind": "agent", "agentId": agent, "plan": { "steps": plan } });
    step.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    step
}

/// A plan in a mode that may hand off; such a mode demands a gate, and this one stands before everything else.
fn deep(mut plan: Value) -> Value {
    for step in plan.as_array_mut().unwrap() {
        let after = step.as_object_mut().unwrap().entry("dependsOnStepIds").or_insert_with(|| json!([]));
        after.as_array_mut().unwrap().push(json!("begin"));
    }
    plan.as_array_mut().unwrap().insert(0, json!({ "stepId": "begin", "kind": "approval", "prompt": "Begin?" }));
    json!({ "rootAgentId": "ref.course-generation", "mode": "deep", "plan": plan })
}

/// Submits it and lets it begin.
async fn begin(world: &World, body: Value) -> RunId {
    let run = world.submit_as(&operator(), body).await.unwrap();
    let asked = world.until(run, |run| !run.approvals.is_empty()).await;
    world.decide(asked.approvals[0].approval_id, ApprovalDecision::Approve).await.unwrap();
    run
}

async fn submit(world: &World, plan: Value) -> RunId {
    begin(world, deep(plan)).await
}

fn child(run: &RunEnvelope, index: usize) -> RunId {
    run.handoffs[index].child_run_id
}

/// The books of a run and of everything below it agree, and nothing is left held (I7).
async fn balanced(world: &World, run: RunId) {
    let mut waiting = vec![run];
    while let Some(id) = waiting.pop() {
        let run = world.until_closed(id).await;
        for own in &run.run_budgets {
            assert_eq!(own.meter.reserved, Micros::ZERO, "nothing is held once a run is closed");
        }
        let mut spent = Micros::ZERO;
        for call in &run.tool_calls {
            spent = spent.plus(call.cost_units);
        }
        for handoff in &run.handoffs {
            let child = world.until_closed(handoff.child_run_id).await;
            let used = handoff.used.as_ref().unwrap().get(BudgetCategory::CostUnits);
            assert_eq!(used, child.cost_ledger.total_cost_units, "the parent has what the child says");
            spent = spent.plus(used);
            waiting.push(handoff.child_run_id);
        }
        assert_eq!(run.cost_ledger.total_cost_units, spent, "own and child, each once");
    }
}

fn ends(ending: CallEnding, units: Option<f64>) -> CallResult {
    CallResult { ending, measured: units.map(|units| vec![(BudgetCategory::CostUnits, units)]), latency_ms: 1 }
}

fn answered() -> CallEnding {
    let (evidence, effects, artifacts) = (None, Vec::new(), Vec::new());
    CallEnding::Answered { partial: false, output: json!({ "found": 3 }), evidence, effects, artifacts }
}

fn slow(world: &World) {
    world.tools.on(&tool("memory.read"), |_, _| async {
        tokio::time::sleep(Duration::from_secs(30)).await;
        ends(answered(), None)
    });
}

#[tokio::test(start_paused = true)]
async fn a_hand_off_runs_as_a_run_of_its_own_and_its_output_and_its_cost_come_back_once() {
    let world = World::new().await;
    world.tools.script(&tool("memory.read"), [ends(answered(), Some(0.5))]);
    let below = json!([{ "stepId": "read", "kind": "tool", "toolId": "memory.read", "args": { "key": { "$from": "/inputs/topic" } } }]);
    let plan = json!([
        hand("look", "ref.research", below, json!({ "input": { "topic": "moons" }, "subBudget": 2 })),
        { "stepId": "keep", "kind": "tool", "toolId": "memory.write", "dependsOnStepIds": ["look"],
          "args": { "value": { "$from": "/steps/look/output/found" } } },
    ]);
    let run = submit(&world, plan).await;
    let parent = world.until_closed(run).await;
    assert_eq!(parent.status, RunStatus::Completed);
    let sub = world.until_closed(child(&parent, 0)).await;
    assert_eq!((sub.status, sub.parent_run_id), (RunStatus::Completed, Some(run)));
    assert_eq!(sub.root_agent_id.as_str(), "ref.research");
    assert_eq!(sub.provenance_bundle_id, parent.provenance_bundle_id, "one bundle through the chain (RUN-020)");
    assert_eq!(sub.attribution_chain.to_string(), "ref.course-generation > ref.research");
    assert_eq!(sub.run_budgets[0].budget.limit, Micros::units(2));
    let stage = format!("handoff:{}", sub.run_id);
    let posted = parent.cost_ledger.per_stage_cost_units.iter().find(|(id, _)| id.as_str() == stage);
    assert_eq!(posted.map(|(_, units)| *units), Some(Micros(500_000)));
    balanced(&world, run).await;
}

#[tokio::test(start_paused = true)]
async fn each_reason_against_a_hand_off_is_recorded_and_fails_its_step() {
    let read = || chain("memory.read", 1);
    let many = |count: usize| -> Value {
        (0..count).map(|n| hand(&format!("h{n}"), "ref.research", read(), json!({ "subBudget": 1 }))).collect()
    };
    let wide = json!({ "delegate": { "toolIds": ["web.fetch"] }, "subBudget": 1 });
    let wide_limits = json!({ "delegate": { "maxFanoutDegree": 5 }, "subBudget": 1 });
    let cases = [
        (json!([hand("h0", "ref.course-generation", read(), json!({ "subBudget": 1 }))]), "cycle-detected"),
        (many(5), "fanout-exceeded"),
        (json!([hand("h0", "ref.research", read(), wide)]), "authority-widening-rejected"),
        (json!([hand("h0", "ref.research", read(), wide_limits)]), "authority-widening-rejected"),
        (json!([hand("h0", "ref.research", read(), json!({ "subBudget": 0 }))]), "budget-non-positive"),
        (json!([hand("h0", "ref.research", read(), json!({ "subBudget": 1_000_000 }))]), "budget-exceeds-parent"),
    ];
    for (plan, code) in cases {
        let world = World::new().await;
        slow(&world);
        let run = submit(&world, plan).await;
        let parent = world.until_closed(run).await;
        assert_eq!(parent.end.as_ref().unwrap().code.as_deref(), Some(code));
        assert!(world.kinds(run).await.contains(&"handoff-denied".to_owned()), "{code}");
        balanced(&world, run).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_chain_that_is_stored_decides_about_cycles_and_depth_and_not_the_request() {
    let world = World::new().await;
    // A > B > A, each in a run of its own.
    let again = json!([hand("back", "ref.course-generation", chain("memory.read", 1), json!({ "subBudget": 1 }))]);
    let plan = json!([hand("there", "ref.research", again, json!({ "subBudget": 2 }))]);
    let run = submit(&world, plan.clone()).await;
    let parent = world.until_closed(run).await;
    assert_eq!(parent.end.as_ref().unwrap().code.as_deref(), Some("sub-run-failed"));
    let sub = world.until_closed(child(&parent, 0)).await;
    assert_eq!(sub.end.as_ref().unwrap().code.as_deref(), Some("cycle-detected"));
    let mut allowed = deep(plan);
    allowed["handoffs"] = json!({ "allowCycle": true });
    let run = begin(&world, allowed).await;
    assert_eq!(world.until_closed(run).await.status, RunStatus::Completed, "the root has declared it");
    let agents =
        ["ref.research", "ref.drafting", "ref.editing", "ref.fact-checking", "ref.translation", "ref.narration"];
    let nested = agents
        .iter()
        .rev()
        .fold(chain("memory.read", 1), |plan, agent| json!([hand("down", agent, plan, json!({ "subBudget": 1 }))]));
    let run = submit(&world, nested).await;
    let mut at = world.until_closed(run).await;
    let mut depth = 0;
    while let Some(handoff) = at.handoffs.first() {
        at = world.until_closed(handoff.child_run_id).await;
        depth += 1;
    }
    assert_eq!(depth, 5);
    assert_eq!(at.end.as_ref().unwrap().code.as_deref(), Some("depth-cap-exceeded"));
    // No body can say whose child a run is.
    let mut forged = deep(chain("memory.read", 1));
    forged["parentRunId"] = json!(run.to_string());
    let refused = signalbox_domain::run::submission::parse(forged.to_string().as_bytes()).unwrap_err();
    assert_eq!(refused.code(), "json-invalid");
}

#[tokio::test(start_paused = true)]
async fn authority_is_a_part_of_what_was_delegated_at_every_hop_and_an_empty_list_means_none() {
    let world = World::new().await;
    // The grandchild's agent could use it by its registration; what was handed on could not (C-055).
    let inner = json!([hand("deeper", "ref.fact-checking", chain("sophia.ground", 1), json!({ "subBudget": 1 }))]);
    let more = json!({ "subBudget": 2, "delegate": { "toolIds": ["memory.read"] } });
    let run = submit(&world, json!([hand("down", "ref.research", inner, more)])).await;
    let parent = world.until_closed(run).await;
    let sub = world.until_closed(child(&parent, 0)).await;
    assert_eq!(sub.end.as_ref().unwrap().code.as_deref(), Some("authority-widening-rejected"));
    let none = json!({ "subBudget": 1, "delegate": { "toolIds": [] } });
    let run = submit(&world, json!([hand("down", "ref.research", chain("memory.read", 1), none)])).await;
    let parent = world.until_closed(run).await;
    let sub = world.until_closed(child(&parent, 0)).await;
    assert_eq!(sub.end.as_ref().unwrap().code.as_deref(), Some("tool-not-delegated"));
    assert_eq!(world.tools.count(&tool("memory.read")), 0);
    let cases = [
        (json!({ "readOnly": true }), "memory.write", "delegated-read-only"),
        (json!({ "maxCalls": 1 }), "memory.read", "delegated-calls-used-up"),
    ];
    for (given, tool_id, code) in cases {
        let more = json!({ "subBudget": 8, "delegate": { "capabilityModifiers": given } });
        let run = submit(&world, json!([hand("down", "ref.drafting", chain(tool_id, 2), more)])).await;
        let parent = world.until_closed(run).await;
        let sub = world.until_closed(child(&parent, 0)).await;
        assert_eq!(sub.end.as_ref().unwrap().code.as_deref(), Some(code));
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_sub_run_uses_beyond_its_budget_is_charged_to_its_parent_and_said() {
    let world = World::new().await;
    slow(&world);
    let look = hand("look", "ref.research", chain("memory.read", 1), json!({ "subBudget": 1 }));
    let run = submit(&world, json!([look])).await;
    let parent = world.until(run, |run| !run.handoffs.is_empty()).await;
    // Calls are charged within what they hold, so that a sub-run cannot do this by itself: it is said as the runtime says it.
    let ledger = json!({ "totalCostUnits": 3.5, "perStageCostUnits": {}, "perToolCostUnits": { "memory.read": 3.5 },
        "inputTokenCount": 0, "outputTokenCount": 0, "gpuMinutes": 0, "voiceSeconds": 0, "avatarSeconds": 0,
        "retrievalCount": 0, "externalCallCount": 0, "storageBytes": 0 });
    let end = json!({ "childRunId": child(&parent, 0), "status": "completed", "ledger": ledger });
    let order = json!({ "command": { "command": "sub-run-ended", "end": end },
        "actor": signalbox_domain::identity::Actor::system() });
    for _ in 0..2 {
        let command = InboxCommand {
            command_id: crate::harness::fresh_command(),
            class: CommandClass::Other,
            body: order.to_string().into_bytes(),
        };
        world.store.deliver(parent.run_key, command).await.unwrap();
    }
    let parent = world.until_closed(run).await;
    assert_eq!(parent.cost_ledger.total_cost_units, Micros(3_500_000), "charged in full, and once");
    let meter = &parent.run_budgets[0].meter;
    assert_eq!((meter.consumed, meter.reserved), (Micros(3_500_000), Micros::ZERO));
    let events = world.node.export(&operator(), run).await.unwrap().2;
    assert!(events.iter().any(|event| String::from_utf8_lossy(&event.body).contains("subagent_budget_exceeded")));
    assert!(parent.has_warnings);
    // What the sub-run itself tells at its end comes too late, and changes nothing.
    world.until_closed(child(&parent, 0)).await;
    assert_eq!(world.kinds(run).await.iter().filter(|kind| *kind == "handoff-reconciled").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn two_hand_offs_that_race_for_the_same_money_cannot_both_have_it() {
    let world = World::new().await;
    slow(&world);
    let plan = json!([
        hand("a", "ref.research", chain("memory.read", 1), json!({ "subBudget": 40 })),
        hand("b", "ref.drafting", chain("memory.read", 1), json!({ "subBudget": 40 })),
    ]);
    let mut body = deep(plan);
    body["budgets"] = json!([{ "category": "cost-units", "limit": 40 }]);
    let run = begin(&world, body).await;
    let parent = world.until_closed(run).await;
    assert_eq!(parent.end.as_ref().unwrap().code.as_deref(), Some("budget-exceeds-parent"));
    assert_eq!(parent.handoffs.len(), 1);
    // The child outlived its parent's end and was told of it; what it did not spend came back.
    assert_eq!(world.until_closed(child(&parent, 0)).await.status, RunStatus::Cancelled);
    balanced(&world, run).await;
}

#[tokio::test(start_paused = true)]
async fn a_requirement_parks_the_sub_run_until_somebody_who_may_has_agreed() {
    for (decision, status) in
        [(ApprovalDecision::Approve, RunStatus::Completed), (ApprovalDecision::Reject, RunStatus::Failed)]
    {
        let world = World::new().await;
        let more = json!({ "subBudget": 1, "requirement": "operator" });
        let run = submit(&world, json!([hand("look", "ref.research", chain("memory.read", 1), more)])).await;
        let parent = world.until(run, |run| !run.handoffs.is_empty()).await;
        let sub = world.until_status(child(&parent, 0), RunStatus::AwaitingApproval).await;
        assert_eq!(sub.approvals[0].requirement, ApprovalRequirement::Operator);
        assert_eq!(world.tools.count(&tool("memory.read")), 0);
        world.decide(sub.approvals[0].approval_id, decision).await.unwrap();
        assert_eq!(world.until_closed(run).await.status, status);
        balanced(&world, run).await;
    }
}

/// Three levels, each with a call out.
fn tree() -> Value {
    let leaf = chain("memory.read", 2);
    let middle =
        json!([step("m", "memory.read", &[]), hand("deeper", "ref.drafting", leaf, json!({ "subBudget": 3 }))]);
    json!([step("t", "memory.read", &[]), hand("down", "ref.research", middle, json!({ "subBudget": 6 }))])
}

async fn levels(world: &World, run: RunId) -> [RunId; 3] {
    let top = world.until(run, |run| !run.handoffs.is_empty()).await;
    let middle = world.until(child(&top, 0), |run| !run.handoffs.is_empty()).await;
    let leaf = child(&middle, 0);
    world.until(leaf, |run| run.open_calls().next().is_some()).await;
    [run, middle.run_id, leaf]
}

#[tokio::test(start_paused = true)]
async fn a_kill_a_cancel_and_a_switch_reach_every_live_run_below() {
    for way in ["kill", "cancel", "switch"] {
        let world = World::new().await;
        slow(&world);
        let run = submit(&world, tree()).await;
        let levels = levels(&world, run).await;
        let reason = "enough".to_owned();
        let status = match way {
            "kill" => {
                world.command(run, RunCommand::Kill { reason, blamed_id: None }).await.unwrap();
                RunStatus::Killed
            }
            "cancel" => {
                world.command(run, RunCommand::Cancel { reason }).await.unwrap();
                RunStatus::Cancelled
            }
            _ => {
                world.change(switch("s", SwitchScope::Agent, Some("ref.course-generation"))).await;
                RunStatus::Killed
            }
        };
        for level in levels {
            assert_eq!(world.until_closed(level).await.status, status, "{way}");
        }
        let made = world.tools.count(&tool("memory.read"));
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(world.tools.count(&tool("memory.read")), made, "none admits a call after it");
        balanced(&world, run).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_holds_every_live_run_below_and_a_resume_lets_them_go_on() {
    let world = World::new().await;
    slow(&world);
    let run = submit(&world, tree()).await;
    let levels = levels(&world, run).await;
    world.command(run, RunCommand::Pause { reason: "wait".to_owned() }).await.unwrap();
    for level in levels {
        world.until_status(level, RunStatus::Paused).await;
    }
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(world.tools.count(&tool("memory.read")), 3, "the fourth call waits");
    world.command(run, RunCommand::Resume { reason: "on".to_owned() }).await.unwrap();
    assert_eq!(world.until_closed(run).await.status, RunStatus::Completed);
    assert_eq!(world.tools.count(&tool("memory.read")), 4);
    balanced(&world, run).await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_moment_loses_no_end_and_counts_none_twice() {
    for wait in 0..24 {
        let mut world = World::new().await;
        world.tools.on(&tool("memory.read"), |_, _| async {
            tokio::time::sleep(Duration::from_millis(5)).await;
            ends(answered(), Some(0.5))
        });
        let run = submit(&world, tree()).await;
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_millis(wait)).await;
            world.crash().await;
        }
        balanced(&world, run).await;
        let parent = world.get(run).await;
        let kinds = world.kinds(run).await;
        assert_eq!(kinds.iter().filter(|kind| *kind == "handoff-reconciled").count(), parent.handoffs.len());
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_but_the_runtime_says_that_a_sub_run_has_ended() {
    let world = World::new().await;
    slow(&world);
    let run =
        submit(&world, json!([hand("look", "ref.research", chain("memory.read", 1), json!({ "subBudget": 1 }))])).await;
    let parent = world.until(run, |run| !run.handoffs.is_empty()).await;
    let end = json!({ "command": "sub-run-ended", "end": { "childRunId": child(&parent, 0), "status": "completed",
        "ledger": signalbox_domain::run::ledger::RunCostLedger::default() } });
    let forged: RunCommand = serde_json::from_value(end).unwrap();
    let refused = world.command(run, forged).await.unwrap_err();
    assert!(matches!(&refused, ApiError::DeniedBefore { code, .. } if code == "not-authorized"), "{refused}");
    let parent = world.until_closed(run).await;
    assert_eq!(parent.status, RunStatus::Completed);
    assert!(matches!(parent.steps[1], StepState::Done { output: Some(_), .. }));
    assert!(parent.tool_calls.iter().all(|call| call.outcome == CallOutcome::Ok));
}

/// A generator that says the same for the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

const AGENTS: [&str; 4] = ["ref.research", "ref.drafting", "ref.editing", "ref.translation"];

/// A random plan of calls and hand-offs, some of which ask for more than there is, or for whom is there already.
fn random_plan(dice: &mut Dice, depth: usize) -> Value {
    let mut steps = vec![step("own", "memory.read", &[])];
    for n in 0..dice.roll(3) {
        if depth == 3 {
            break;
        }
        let agent = AGENTS[if dice.roll(8) == 0 { 0 } else { depth }];
        let mut more = json!({ "subBudget": 1 + dice.roll(12) });
        if dice.roll(6) == 0 {
            more["delegate"] = json!({ "toolIds": [] });
        }
        let mut below = hand(&format!("h{n}"), agent, random_plan(dice, depth + 1), more);
        below["optional"] = json!(dice.roll(2) == 0);
        steps.push(below);
    }
    Value::Array(steps)
}

/// I7 and I6 over random trees: nodes crash at random moments, trees are killed, cancelled and paused on the way, tools use
/// more than they may; and at the end every book balances, and no run below was allowed what its parent was not.
#[tokio::test(start_paused = true)]
async fn i7_and_i6_hold_over_random_trees_whatever_crashes() {
    for seed in 0..60 {
        let mut dice = Dice(seed);
        let mut world = World::new().await;
        let over = dice.roll(3) == 0;
        world.tools.on(&tool("memory.read"), move |_, _| async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            ends(answered(), Some(if over { 2.25 } else { 0.5 }))
        });
        let mut body = deep(random_plan(&mut dice, 0));
        body["budgets"] = json!([{ "category": "cost-units", "limit": 5 + dice.roll(30) }]);
        let run = begin(&world, body).await;
        for _ in 0..1 + dice.roll(4) {
            tokio::time::sleep(Duration::from_millis(dice.roll(120))).await;
            let reason = "by the dice".to_owned();
            let _ = match dice.roll(9) {
                0 => world.command(run, RunCommand::Kill { reason, blamed_id: None }).await,
                1 => world.command(run, RunCommand::Cancel { reason }).await,
                2 => world.command(run, RunCommand::Pause { reason }).await,
                _ => {
                    world.crash().await;
                    continue;
                }
            };
        }
        let _ = world.command(run, RunCommand::Resume { reason: "on".to_owned() }).await;
        balanced(&world, run).await;
        narrowed(&world, run).await;
    }
}

async fn narrowed(world: &World, run: RunId) {
    let mut waiting = vec![run];
    while let Some(id) = waiting.pop() {
        let parent = world.get(id).await;
        for handoff in &parent.handoffs {
            let child = world.get(handoff.child_run_id).await;
            assert!(child.authority().within(&parent.authority()), "authority only narrows");
            let tools = &child.authority().tool_ids;
            assert!(child.tool_calls.iter().all(|call| tools.contains(&call.tool_id)));
            waiting.push(child.run_id);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_sub_run_may_work_on_another_node_than_its_parent() {
    let world = World::new().await;
    slow(&world);
    let run = submit(&world, tree()).await;
    let levels = levels(&world, run).await;
    // The first node goes on; a second one takes what is given up, and neither hears of the other but through the store.
    let (other, _) =
        signalbox_runtime::Node::start(signalbox_runtime::NodeConfig::default(), world.ports.clone()).await.unwrap();
    world.command(run, RunCommand::Pause { reason: "wait".to_owned() }).await.unwrap();
    for level in levels {
        world.until_status(level, RunStatus::Paused).await;
    }
    // What is held is parked after a while, and whoever is poked first has it.
    tokio::time::sleep(Duration::from_secs(120)).await;
    let resume = RunCommand::Resume { reason: "on".to_owned() };
    other.command(&operator(), levels[2], crate::harness::fresh_command(), resume.clone()).await.unwrap();
    let _ = world.command(run, resume).await;
    assert_eq!(world.until_closed(run).await.status, RunStatus::Completed);
    balanced(&world, run).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_sub_run_leaves_behind_names_every_agent_down_to_the_one_that_made_it() {
    let world = World::new().await;
    let artifact = signalbox_domain::run::event::ArtifactRef {
        name: "notes.md".to_owned(),
        persisted_key: "runs/notes.md".to_owned(),
        media_type: "text/markdown".to_owned(),
        sha256: "00".repeat(32),
        size: 3,
    };
    let (evidence, effects, artifacts) = (None, Vec::new(), vec![artifact]);
    let ending = CallEnding::Answered { partial: false, output: json!({}), evidence, effects, artifacts };
    world.tools.script(&tool("memory.read"), [ends(ending, None)]);
    let mut plan = chain("memory.read", 1);
    for agent in ["ref.editing", "ref.drafting", "ref.research"] {
        plan = json!([hand("down", agent, plan, json!({ "subBudget": 3 }))]);
    }
    let run = submit(&world, plan).await;
    let parent = world.until_closed(run).await;
    assert_eq!(parent.status, RunStatus::Completed, "{:?}", parent.end);
    let chain = "ref.course-generation > ref.research > ref.drafting > ref.editing";
    assert_eq!(parent.intermediate_artifacts[0].attribution.to_string(), chain);
    let mut at = parent.clone();
    while let Some(handoff) = at.handoffs.first() {
        at = world.get(handoff.child_run_id).await;
        assert_eq!(at.provenance_bundle_id, parent.provenance_bundle_id);
    }
    assert_eq!(at.attribution_chain.to_string(), chain);
}

#[tokio::test(start_paused = true)]
async fn a_sub_run_uses_what_the_holder_of_a_grant_may_hand_on_and_no_more() {
    use signalbox_domain::governance::change::GovernanceChange;
    use signalbox_domain::governance::grant::Constraints;
    let hosts = |host: &str| Some(Constraints { hosts: Some(vec![host.to_owned()]), ..Constraints::default() });
    let cases = [(None, "no-matching-grant"), (hosts("other.example"), "host-not-allowed"), (hosts("example.org"), "")];
    for (delegable, code) in cases {
        let world = World::new().await;
        let GovernanceChange::GrantIssued(grant) = crate::harness::tenant_grant("web.fetch") else { panic!() };
        world
            .change(GovernanceChange::GrantIssued(signalbox_domain::governance::grant::Grant { delegable, ..grant }))
            .await;
        let fetch = json!([{ "stepId": "get", "kind": "tool", "toolId": "web.fetch", "args": { "url": "https://example.org/" } }]);
        let mut body = deep(json!([hand("look", "ref.research", fetch, json!({ "subBudget": 20 }))]));
        body["rootAgentId"] = json!("ref.citation-verification");
        let run = begin(&world, body).await;
        let parent = world.until_closed(run).await;
        let sub = world.until_closed(child(&parent, 0)).await;
        let ended = sub.end.as_ref().unwrap().code.clone().unwrap_or_default();
        if code != "host-not-allowed" {
            assert_eq!(ended, code);
        }
        assert_eq!(world.tools.count(&tool("web.fetch")), usize::from(code.is_empty()), "{ended}");
    }
}
