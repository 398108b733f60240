//! From a ready `agent` step to the ask that makes its sub-run, or to the denial that is recorded instead.
//!
//! Parent's event, deduction and the sub-run's first events are one append: [`ask`] puts them together, the store writes them
//! in one transaction or not at all.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use uuid::Builder;

use crate::canonical;
use crate::governance::budget::{Budget, BudgetScope, OnExceeded};
use crate::governance::target::Target;
use crate::handoff::dispatch::{Authority, Dispatch, DispatchDenialReason, Parent, validate_dispatch};
use crate::handoff::handed::{HandedOff, ParentLink};
use crate::handoff::handed_grants::hand_on;
use crate::handoff::{ChainLink, derive_attribution_chain};
use crate::ids::{AgentId, CallId, RunId, RunKey, StepId, ToolId};
use crate::invocation::estimate;
use crate::mode::HANDOFF_TOOL;
use crate::quantity::{BudgetCategory, Micros, Usage};
use crate::run::advance::projection;
use crate::run::append::{Ask, NewEvent, SubRun};
use crate::run::envelope::RunEnvelope;
use crate::run::event::{HandoffDenied, HandoffDispatched, RunEvent, RunSubmitted};
use crate::run::evolve::submitted_run;
use crate::run::plan::{APPROVAL_TTL_SECONDS_DEFAULT, ApprovalRequirement, Handoff, Plan, Step, StepKind};
use crate::run::sealed::SealedPlan;
use crate::run::submission::{mint_grants, run_budget_id};
use crate::time::UnixMs;

/// The step that a sub-run begins with if somebody must agree to it (HND-001). No plan of a hand-off may use this id.
pub const APPROVAL_STEP: &str = "handoff.approval";

impl RunEnvelope {
    /// What is left of the run's own budget in a category; `None` if it has none.
    pub fn left_of(&self, category: BudgetCategory) -> Option<Micros> {
        let own = self.run_budgets.iter().find(|own| own.budget.category == category)?;
        Some(own.budget.limit.minus(own.meter.consumed).minus(own.meter.reserved))
    }

    /// The key and the id of the sub-run that the step begins next: the same however often it is worked out, another once the
    /// step was begun anew.
    fn next_child(&self, step: &Step, now: UnixMs) -> (RunKey, RunId) {
        let ordinal = self.step_attempts.get(&step.step_id).copied().unwrap_or(0);
        let name = step.step_id.as_str();
        let public = RunId::new(self.run_key.derive("sub-run", name, ordinal));
        let mut tail = [0; 10];
        let derived = self.run_key.derive("sub-run-key", name, ordinal).into_bytes();
        tail.copy_from_slice(&derived[..10]);
        // In the order of time, as all keys are: lists and partitions rely on it.
        let millis = u64::try_from(now.0).unwrap_or_default();
        (RunKey::new(Builder::from_unix_timestamp_millis(millis, &tail).into_uuid()), public)
    }
}

/// The first event of the sub-run, before its inputs are redacted, or the record of why there is none.
///
/// # Errors
/// The denial, as the event that is recorded.
pub fn submission(run: &RunEnvelope, step: &Step, input: Value, now: UnixMs) -> Result<RunSubmitted, Box<NewEvent>> {
    let StepKind::Agent(handoff) = &step.kind else {
        return Err(Box::new(crate::run::call::fail_step(step, "internal", "the step hands nothing off")));
    };
    let agent_id = run.agent_of(step).clone();
    let (chain, parents) = (run.chain(), run.authority());
    let authority = delegated(handoff, &parents);
    let sub_budget = handoff.sub_budget.unwrap_or_else(|| estimate(&handoff.plan));
    let parent = Parent {
        chain: &chain,
        depth_cap: run.depth_cap(),
        authority: &parents,
        live_children: u32::try_from(run.live_handoffs().count()).unwrap_or(u32::MAX),
        remaining: run.left_of(BudgetCategory::CostUnits).unwrap_or(Micros::ZERO),
    };
    let dispatch = Dispatch { agent_id: &agent_id, authority: &authority, sub_budget };
    if let Err(reason) = validate_dispatch(&parent, &dispatch) {
        return Err(Box::new(denied(run, step, &parent, &dispatch, reason, now)));
    }
    let (run_key, run_id) = run.next_child(step, now);
    let mut ancestors = run.handed_off.as_ref().map(|handed| handed.ancestors.clone()).unwrap_or_default();
    ancestors.push(run.run_id);
    let mut below = chain;
    below.push(ChainLink { agent_id: agent_id.clone(), allow_cycle: false });
    let given = given(run, &handoff.plan, sub_budget);
    let link = ParentLink { run_key: run.run_key, step_id: step.step_id.clone() };
    let handed =
        HandedOff { parent: Some(link), ancestors, chain: below, depth_cap: run.depth_cap(), authority, sub_budget };
    let mut submitted = RunSubmitted {
        run_key,
        run_id,
        tenant_id: run.tenant_id.clone(),
        root_agent_semver: run.agents.semver_of(&agent_id).unwrap_or_default().to_owned(),
        root_agent_id: agent_id,
        agents: run.agents.clone(),
        routing: None,
        parent_run_id: Some(run.run_id),
        forked_from_run_id: None,
        pipeline_id: run.pipeline_id.clone(),
        pipeline_semver: run.pipeline_semver.clone(),
        surface: run.surface.clone(),
        mode: run.mode.clone(),
        submitted_by: run.submitted_by.clone(),
        scopes: run.scopes.clone(),
        invocation: run.invocation.clone(),
        mode_bounds: run.mode_bounds,
        submission_hash: hash_of(run, step, handoff, &input),
        plan: approved_first(handoff, step),
        inputs: input,
        sealed: SealedPlan::default(),
        grants: Vec::new(),
        budgets: budgets(run, run_id, &given),
        provenance_bundle_id: run.provenance_bundle_id.clone(),
        carried_outputs: Vec::new(),
        handoff_rules: None,
        handed_off: Some(Box::new(handed)),
    };
    submitted.grants = hand_on(run, &submitted, mint_grants(&submitted, now));
    Ok(submitted)
}

/// The ask that begins the sub-run: the parent's event, the deduction that follows from it, and the sub-run itself.
pub fn ask(run: &RunEnvelope, step: &Step, submitted: RunSubmitted, now: UnixMs) -> Ask {
    let envelope = submitted_run(&submitted, now.micros());
    let projection = projection(&envelope);
    let handed = submitted.handed_off.as_deref();
    let requirement =
        if let StepKind::Agent(handoff) = &step.kind { handoff.requirement } else { ApprovalRequirement::None };
    let given = submitted.budgets.iter().fold(Usage::none(), |given, own| given.with(own.category, own.limit));
    let dispatched = HandoffDispatched {
        step_id: step.step_id.clone(),
        stage_id: step.stage(),
        agent_id: submitted.root_agent_id.clone(),
        agent_semver: submitted.root_agent_semver.clone(),
        child_run_id: submitted.run_id,
        child_run_key: submitted.run_key,
        attribution: derive_attribution_chain(handed.map_or(&[], |handed| &handed.chain)),
        authority: handed.map(|handed| handed.authority.clone()),
        given,
        requirement,
        dispatched_at_unix_ms: now,
    };
    let target = target(run, &submitted.root_agent_id);
    let sub_run = SubRun {
        run_key: submitted.run_key,
        run_id: submitted.run_id,
        tenant_id: submitted.tenant_id.clone(),
        events: vec![NewEvent::by(run.submitted_by.clone(), RunEvent::RunSubmitted(Box::new(submitted)))],
        projection,
    };
    Ask {
        events: vec![NewEvent::system(RunEvent::HandoffDispatched(Box::new(dispatched)))],
        // No call: the id names the ask among those of its append.
        call_id: CallId::new(sub_run.run_id.uuid()),
        step_id: step.step_id.clone(),
        target,
        sub_run: Some(Box::new(sub_run)),
    }
}

// What a change of governance is held against that arrives before the sub-run is there.
fn target(run: &RunEnvelope, agent: &AgentId) -> Target {
    Target {
        tenant_id: run.tenant_id.clone(),
        run_id: run.run_id,
        user_id: run.submitted_by.actor_id.clone(),
        role: run.submitted_by.role,
        family: run.agents.family_of(agent).map(str::to_owned),
        agent_id: agent.clone(),
        pipeline_id: run.pipeline_id.clone(),
        tool_id: ToolId::constant(HANDOFF_TOOL),
        provider_id: None,
        region: None,
    }
}

fn delegated(handoff: &Handoff, parents: &Authority) -> Authority {
    let wish = handoff.delegate.clone().unwrap_or_default();
    let named = || -> BTreeSet<ToolId> {
        handoff.plan.all_steps().into_iter().filter_map(|step| step.kind.tool_id()).cloned().collect()
    };
    Authority {
        tool_ids: wish.tool_ids.unwrap_or_else(named),
        max_fanout_degree: wish.max_fanout_degree.unwrap_or(parents.max_fanout_degree),
        capability_modifiers: wish.capability_modifiers.unwrap_or_else(|| parents.capability_modifiers.clone()),
    }
}

fn denied(
    run: &RunEnvelope,
    step: &Step,
    parent: &Parent<'_>,
    dispatch: &Dispatch<'_>,
    reason: DispatchDenialReason,
    now: UnixMs,
) -> NewEvent {
    let beyond = dispatch.authority.tool_ids.difference(&parent.authority.tool_ids).cloned().collect();
    NewEvent::system(RunEvent::HandoffDenied(Box::new(HandoffDenied {
        step_id: step.step_id.clone(),
        stage_id: step.stage(),
        agent_id: dispatch.agent_id.clone(),
        reason,
        message: reason.to_string(),
        chain: derive_attribution_chain(parent.chain),
        depth_cap: parent.depth_cap,
        live_children: parent.live_children,
        max_fanout_degree: parent.authority.max_fanout_degree,
        tools_beyond: beyond,
        sub_budget: dispatch.sub_budget,
        remaining: parent.remaining,
        attempt: run.step_attempts.get(&step.step_id).copied().unwrap_or(0),
        at_unix_ms: now,
    })))
}

/// What is taken from the parent, by category: the sub-budget, and of every other budget the run has, as much as the plan's
/// calls may use by the catalog, if there is so much. So no limit of the parent is escaped by handing off (C-056).
fn given(run: &RunEnvelope, plan: &Plan, sub_budget: Micros) -> Usage {
    let mut given = Usage::none().with(BudgetCategory::CostUnits, sub_budget);
    for own in run.run_budgets.iter().filter(|own| own.budget.category != BudgetCategory::CostUnits) {
        let category = own.budget.category;
        let tools = plan.all_steps().into_iter().filter_map(|step| step.kind.tool_id());
        let most = tools
            .filter_map(crate::catalog::entry)
            .fold(Micros::ZERO, |sum, tool| sum.plus(tool.ceiling.get(category)));
        let left = run.left_of(category).unwrap_or(Micros::ZERO).max(Micros::ZERO);
        given = given.with(category, most.min(left));
    }
    given
}

fn budgets(run: &RunEnvelope, child: RunId, given: &Usage) -> Vec<Budget> {
    let mut budgets: Vec<Budget> = run
        .run_budgets
        .iter()
        .map(|own| Budget {
            budget_id: run_budget_id(child, own.budget.category),
            scope_key: child.to_string(),
            limit: given.get(own.budget.category),
            ..own.budget.clone()
        })
        .collect();
    if !budgets.iter().any(|budget| budget.category == BudgetCategory::CostUnits) {
        budgets.push(Budget {
            budget_id: run_budget_id(child, BudgetCategory::CostUnits),
            tenant_id: Some(run.tenant_id.clone()),
            scope: BudgetScope::Run,
            scope_key: child.to_string(),
            category: BudgetCategory::CostUnits,
            limit: given.get(BudgetCategory::CostUnits),
            calendar: None,
            period_seconds: None,
            anchor_unix_seconds: 0,
            warn_ratio: Micros(800_000),
            grace_ratio: Micros(1_000_000),
            grace_seconds: 0,
            on_exceeded: OnExceeded::default(),
        });
    }
    budgets
}

// Whoever must agree is asked by the sub-run itself, before any other step of it begins.
fn approved_first(handoff: &Handoff, step: &Step) -> Plan {
    let mut plan = handoff.plan.clone();
    if handoff.requirement == ApprovalRequirement::None {
        return plan;
    }
    let gate = StepId::constant(APPROVAL_STEP);
    for first in plan.steps.iter_mut().filter(|step| step.dependencies().next().is_none()) {
        first.depends_on_step_ids.push(gate.clone());
    }
    let asks = Step {
        step_id: gate,
        stage_id: None,
        agent_id: None,
        depends_on_step_ids: Vec::new(),
        when: None,
        optional: false,
        kind: StepKind::Approval {
            requirement: handoff.requirement,
            approvers: None,
            prompt: format!("May the work of step `{}` be handed to this agent?", step.step_id),
            subject: json!({ "input": { "$from": "/inputs" } }),
            approval_ttl_seconds: APPROVAL_TTL_SECONDS_DEFAULT,
            refuse_if: None,
        },
    };
    plan.steps.insert(0, asks);
    plan
}

fn hash_of(run: &RunEnvelope, step: &Step, handoff: &Handoff, input: &Value) -> String {
    let all = json!({ "parent": run.run_id, "step": step.step_id, "handoff": handoff, "input": input });
    canonical::digest(&all).unwrap_or_else(|_| canonical::sha256_hex(all.to_string().as_bytes()))
}
