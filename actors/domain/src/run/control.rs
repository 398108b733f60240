//! The controls (CTL): pure functions from a run and a command to an audit record and an effect, or a typed denial.

use std::collections::BTreeSet;

use crate::canonical;
use crate::governance::budget::Budget;
use crate::handoff::handed::HandedOff;
use crate::identity::{self, Action, Actor, Reach};
use crate::ids::{BranchId, CommandId, RunId, RunKey, StepId};
use crate::invocation::hands_off;
use crate::mode::Mode;
use crate::run::append::NewEvent;
use crate::run::decide::{Context, Denial, REASON_BYTES_MAX, RunCommand};
use crate::run::envelope::RunEnvelope;
use crate::run::event::{
    CarriedOutput, ControlApplied, ControlEffect, ControlKind, OutputKind, Overrides, PauseCause, RunControlAuditEvent,
    RunEvent, RunFinished, RunSubmitted,
};
use crate::run::evolve::evolve;
use crate::run::model_step;
use crate::run::plan::{Step, StepKind};
use crate::run::status::RunStatus;
use crate::run::step::StepState;
use crate::run::submission::run_budget_id;

/// A control that was accepted: the run after it, and who did what and why (CTL-001).
#[derive(Debug, Clone, PartialEq)]
pub struct ControlResult {
    /// The run after the control.
    pub envelope: RunEnvelope,
    /// The audit record.
    pub audit: RunControlAuditEvent,
}

/// CTL-001 as one function: the same input gives the same output, and a denial changes nothing.
pub fn control(run: &RunEnvelope, command: &RunCommand, context: &Context) -> Result<ControlResult, Denial> {
    let events = crate::run::decide::decide(run, command, context)?;
    let mut envelope = run.clone();
    let mut audit = None;
    for new in &events {
        if let RunEvent::ControlApplied(applied) = &new.event {
            audit = Some(applied.audit.clone());
        }
        evolve(&mut envelope, context.now.micros(), &new.event);
    }
    // An approval's decision is its own record and no control.
    audit.map(|audit| ControlResult { envelope, audit }).ok_or(Denial::DecisionNotAllowed)
}

/// Who may use which control (CTL-019).
pub fn may_control(actor: &Actor, kind: ControlKind, run: &RunEnvelope) -> bool {
    match identity::reach(actor.role, Action::Steer(kind)) {
        // A tenant operator never sees another tenant's run: the edge answers that it does not exist.
        Reach::Platform | Reach::Tenant => true,
        Reach::Own => actor.actor_id == run.submitted_by.actor_id,
        Reach::Nothing => false,
    }
}

/// Decides every control but `fork`, which makes another run.
pub fn decide(run: &RunEnvelope, command: &RunCommand, context: &Context) -> Result<Vec<NewEvent>, Denial> {
    let kind = kind_of(command);
    if run.end.is_some() {
        return Err(Denial::RunTerminal(run.status));
    }
    if !may_control(&context.actor, kind, run) {
        return Err(Denial::NotAuthorized { role: context.actor.role });
    }
    if matches!(kind, ControlKind::Kill) && command.reason().trim().is_empty() {
        return Err(Denial::ReasonRequired);
    }
    let effect = effect_of(run, command, context)?;
    let end = end_of(run, command);
    let applied = ControlApplied { audit: audit(run, command, kind, &effect, end.as_ref(), context), effect };
    let mut events = vec![NewEvent::by(context.actor.clone(), RunEvent::ControlApplied(Box::new(applied)))];
    if let Some(end) = end {
        events.push(NewEvent::by(context.actor.clone(), RunEvent::RunFinished(Box::new(end))));
    }
    Ok(events)
}

const fn kind_of(command: &RunCommand) -> ControlKind {
    match command {
        RunCommand::Pause { .. } => ControlKind::Pause,
        RunCommand::Resume { .. } => ControlKind::Resume,
        RunCommand::Cancel { .. } => ControlKind::Cancel,
        RunCommand::Kill { .. } => ControlKind::Kill,
        RunCommand::ChooseBranch { .. } => ControlKind::BranchChosen,
        RunCommand::RetryWithChanges { .. } => ControlKind::RetryWithChanges,
        RunCommand::OperatorStep { .. } | RunCommand::DecideApproval { .. } | RunCommand::SubRunEnded { .. } => {
            ControlKind::OperatorStep
        }
    }
}

fn effect_of(run: &RunEnvelope, command: &RunCommand, context: &Context) -> Result<ControlEffect, Denial> {
    let status = run.status_at(context.now);
    match command {
        RunCommand::Pause { .. } => match status {
            RunStatus::Queued
            | RunStatus::Starting
            | RunStatus::Running
            | RunStatus::AwaitingTool
            | RunStatus::AwaitingBranchSelection => Ok(ControlEffect::Paused { cause: PauseCause::Operator }),
            RunStatus::Paused
            | RunStatus::AwaitingApproval
            | RunStatus::Cancelled
            | RunStatus::Killed
            | RunStatus::Failed
            | RunStatus::Completed => Err(Denial::InvalidStatusForPause(status)),
        },
        RunCommand::Resume { .. } if status == RunStatus::Paused => Ok(ControlEffect::Resumed),
        RunCommand::Resume { .. } => Err(Denial::InvalidStatusForResume(status)),
        RunCommand::Cancel { .. } | RunCommand::Kill { .. } => Ok(ControlEffect::Ended),
        RunCommand::ChooseBranch { step_id, branch_id, .. } => choose_branch(run, status, step_id.as_ref(), branch_id),
        RunCommand::RetryWithChanges { step_id, overrides, .. } => retry(run, status, step_id, overrides),
        RunCommand::OperatorStep { step_id, .. } => operator_step(run, status, step_id.as_ref()),
        RunCommand::DecideApproval { .. } | RunCommand::SubRunEnded { .. } => Err(Denial::NoSuchStep),
    }
}

fn choose_branch(
    run: &RunEnvelope,
    status: RunStatus,
    step_id: Option<&StepId>,
    branch_id: &BranchId,
) -> Result<ControlEffect, Denial> {
    // Other steps may be at work beside a branch that waits; a run that is held goes nowhere.
    if run.hold.is_some() {
        return Err(Denial::InvalidStatusForBranch(status));
    }
    let waiting = |step: &&Step| matches!(run.step_state(&step.step_id), Some(StepState::AwaitingBranch));
    let step = match step_id {
        Some(id) => run.plan.step(id).filter(waiting),
        None => run.plan.steps.iter().find(waiting),
    }
    .ok_or(Denial::InvalidStatusForBranch(status))?;
    let offered =
        matches!(&step.kind, StepKind::Branch { branches } if branches.iter().any(|b| &b.branch_id == branch_id));
    if !offered {
        return Err(Denial::NoSuchBranch(branch_id.clone()));
    }
    Ok(ControlEffect::BranchChosen { step_id: step.step_id.clone(), branch_id: branch_id.clone() })
}

fn retry(
    run: &RunEnvelope,
    status: RunStatus,
    step_id: &StepId,
    overrides: &Overrides,
) -> Result<ControlEffect, Denial> {
    let held = matches!(status, RunStatus::Paused | RunStatus::AwaitingApproval | RunStatus::AwaitingBranchSelection);
    if !held {
        return Err(Denial::InvalidStatusForRetry(status));
    }
    let step = run.plan.step(step_id).ok_or(Denial::NoSuchStep)?;
    // A turn or a proposal is nothing by itself: its model step is done again.
    if model_step::added_by(&run.plan, step_id).is_some() {
        return Err(Denial::NoSuchStep);
    }
    let behind = run.plan.behind(step_id);
    // A call that is out there cannot be taken back: it must be settled before its step is done again.
    let out = run.open_calls().map(|call| &call.step_id).chain(run.live_handoffs().map(|handoff| &handoff.step_id));
    if out.into_iter().any(|step| behind.contains(step)) {
        return Err(Denial::InvalidStatusForRetry(status));
    }
    let refuse = |what: &str| Err(Denial::OverrideNotAllowed(what.to_owned()));
    for id in overrides.params.keys() {
        if !behind.contains(id) || !matches!(run.plan.step(id).map(|s| &s.kind), Some(StepKind::Tool { .. })) {
            return refuse("`params` may only replace arguments of tool steps that will be done again");
        }
    }
    let mut replaced = overrides.params.iter().filter_map(|(id, args)| Some((run.plan.step(id)?, args)));
    if let Some(problem) = replaced.find_map(|(step, args)| run.plan.guard_problem(step, args)) {
        return refuse(&problem);
    }
    if overrides.model_binding.is_some() {
        return refuse("no step of this run uses a model");
    }
    if let Some(mode) = &overrides.mode
        && !tightens(&run.mode, mode)
    {
        return refuse("`mode` may only become tighter");
    }
    let hands_on = || run.plan.steps.iter().zip(&run.steps).any(|(step, state)| !state.is_over() && hands_off(step));
    if overrides.mode.as_deref().and_then(Mode::parse).is_some_and(|mode| !mode.meta().multi_agent) && hands_on() {
        return refuse("`mode` would not allow a hand-off that is still to come");
    }
    if let Some(branch) = &overrides.branch
        && !matches!(&step.kind, StepKind::Branch { branches } if branches.iter().any(|b| &b.branch_id == branch))
    {
        return refuse("`branch` must be one of the branches of the step that is rewound to");
    }
    if overrides.branch.is_some() && !run.dependencies_are_over(step) {
        return refuse("`branch` cannot be chosen before the steps ahead of it are over");
    }
    Ok(ControlEffect::Rewound { step_id: step_id.clone(), overrides: overrides.clone() })
}

// The modes by what they may cost (MOD-001 to MOD-004); the rehearsal is apart and never changed into.
fn tightens(from: &str, to: &str) -> bool {
    const ORDER: [&str; 4] = ["fast", "balanced", "deep", "exhaustive"];
    let rank = |mode: &str| ORDER.iter().position(|known| *known == mode);
    matches!((rank(from), rank(to)), (Some(from), Some(to)) if to <= from)
}

fn operator_step(run: &RunEnvelope, status: RunStatus, step_id: Option<&StepId>) -> Result<ControlEffect, Denial> {
    if run.hold.is_none() {
        return Err(Denial::InvalidStatusForStep(status));
    }
    let order = run.plan.topological_order().map_err(|_| Denial::NoSuchStep)?;
    let can_go =
        |index: &usize| run.is_ready(*index) || matches!(run.steps.get(*index), Some(StepState::Throttled { .. }));
    let mut ready = order.into_iter().filter(can_go).map(|index| &run.plan.steps[index].step_id);
    let step = match step_id {
        Some(id) => ready.find(|candidate| *candidate == id),
        None => ready.next(),
    };
    step.map(|id| ControlEffect::StepPermitted { step_id: id.clone() }).ok_or(Denial::NoSuchStep)
}

fn end_of(run: &RunEnvelope, command: &RunCommand) -> Option<RunFinished> {
    let (status, code, blamed_id) = match command {
        RunCommand::Cancel { .. } => (RunStatus::Cancelled, "cancelled-by-operator", None),
        RunCommand::Kill { blamed_id, .. } => (RunStatus::Killed, "killed-by-operator", blamed_id.clone()),
        RunCommand::Pause { .. }
        | RunCommand::Resume { .. }
        | RunCommand::ChooseBranch { .. }
        | RunCommand::RetryWithChanges { .. }
        | RunCommand::OperatorStep { .. }
        | RunCommand::DecideApproval { .. }
        | RunCommand::SubRunEnded { .. } => return None,
    };
    Some(RunFinished {
        status,
        code: Some(code.to_owned()),
        message: Some(reason_text(command)),
        user_visible_status_copy: None,
        safe_degradation_mode_id: None,
        blamed_id,
        step_id: None,
        outputs: run.bundle(OutputKind::PartialOnFailure),
    })
}

fn reason_text(command: &RunCommand) -> String {
    crate::redact::redact_text(command.reason()).into_owned()
}

fn audit(
    run: &RunEnvelope,
    command: &RunCommand,
    kind: ControlKind,
    effect: &ControlEffect,
    end: Option<&RunFinished>,
    context: &Context,
) -> RunControlAuditEvent {
    let from_status = run.status_at(context.now);
    let mut audit = RunControlAuditEvent {
        audit_event_id: format!("{}/{}", run.run_id, run.last_seq + 1),
        kind,
        run_id: run.run_id,
        actor_id: context.actor.actor_id.clone(),
        role: context.actor.role,
        at_unix_ms: context.now,
        from_status,
        to_status: from_status,
        reason_text: reason_text(command),
        command_hash: command_hash(command),
    };
    audit.to_status = end.map_or_else(
        || {
            let applied = ControlApplied { audit: audit.clone(), effect: effect.clone() };
            let mut after = run.clone();
            evolve(&mut after, context.now.micros(), &RunEvent::ControlApplied(Box::new(applied)));
            after.status
        },
        |end| end.status,
    );
    audit
}

fn command_hash(command: &RunCommand) -> String {
    let value = serde_json::to_value(command).unwrap_or(serde_json::Value::Null);
    // Arguments in overrides may hold numbers that do not canonicalise; their plain text still names the command.
    canonical::digest(&value).unwrap_or_else(|_| canonical::sha256_hex(value.to_string().as_bytes()))
}

/// What a fork is made of beside its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fork<'a> {
    /// The internal key of the new run.
    pub run_key: RunKey,
    /// The id of the new run, and whether the tenant already has a run of that id.
    pub fresh: Option<(RunId, bool)>,
    /// Names the command.
    pub command_id: CommandId,
    /// What the credential of whoever forks allows: the new run may do no more.
    pub scopes: &'a [String],
    /// Why.
    pub reason: &'a str,
}

/// A fork: the first events of a new run (CTL-009, CTL-010). The source stays as it is.
pub fn fork(run: &RunEnvelope, fork: &Fork<'_>, context: &Context) -> Result<Vec<NewEvent>, Denial> {
    if context.expected_seq.is_some_and(|expected| expected != run.last_seq) {
        let expected = context.expected_seq.unwrap_or_default();
        return Err(Denial::StaleRevision { expected, actual: run.last_seq });
    }
    if fork.reason.len() > REASON_BYTES_MAX {
        return Err(Denial::ReasonTooLong);
    }
    if !may_control(&context.actor, ControlKind::Fork, run) {
        return Err(Denial::NotAuthorized { role: context.actor.role });
    }
    let run_id = match fork.fresh {
        Some((id, false)) if id != run.run_id && !id.uuid().is_nil() => id,
        Some(_) | None => return Err(Denial::ForkWithoutFreshId),
    };
    let submitted = RunSubmitted {
        run_key: fork.run_key,
        run_id,
        tenant_id: run.tenant_id.clone(),
        root_agent_id: run.root_agent_id.clone(),
        root_agent_semver: run.root_agent_semver.clone(),
        agents: run.agents.clone(),
        // A fork is made by an operator's hand; what comes of it says nothing of either version.
        routing: None,
        parent_run_id: run.parent_run_id,
        forked_from_run_id: Some(run.run_id),
        pipeline_id: run.pipeline_id.clone(),
        pipeline_semver: run.pipeline_semver.clone(),
        surface: run.surface.clone(),
        mode: run.mode.clone(),
        invocation: run.invocation.clone(),
        mode_bounds: run.mode_bounds,
        submitted_by: context.actor.clone(),
        scopes: crate::run::submission::narrowed(fork.scopes.to_vec(), run.invocation.as_ref()),
        plan: model_step::as_submitted(&run.plan),
        inputs: (*run.inputs).clone(),
        sealed: run.sealed.clone(),
        // No grants are copied: whoever forks must be granted anew.
        grants: Vec::new(),
        budgets: run.run_budgets.iter().map(|own| budget_of(run_id, &own.budget)).collect(),
        provenance_bundle_id: run.provenance_bundle_id.clone(),
        submission_hash: run.submission_hash.clone(),
        carried_outputs: carried(run),
        handoff_rules: run.handoff_rules,
        // It says where it comes from, and is nobody's child: what it costs is in nobody else's books. What bounded its
        // source bounds it too (I6).
        handed_off: run.handed_off.as_deref().map(|handed| Box::new(HandedOff { parent: None, ..handed.clone() })),
    };
    let audit = RunControlAuditEvent {
        audit_event_id: format!("{run_id}/2"),
        kind: ControlKind::Fork,
        run_id: run.run_id,
        actor_id: context.actor.actor_id.clone(),
        role: context.actor.role,
        at_unix_ms: context.now,
        from_status: run.status_at(context.now),
        to_status: RunStatus::Queued,
        reason_text: crate::redact::redact_text(fork.reason).into_owned(),
        command_hash: fork_hash(run.run_id, run_id, fork.command_id),
    };
    let applied = ControlApplied { audit, effect: ControlEffect::Forked };
    Ok(vec![
        NewEvent::by(context.actor.clone(), RunEvent::RunSubmitted(Box::new(submitted))),
        NewEvent::by(context.actor.clone(), RunEvent::ControlApplied(Box::new(applied))),
    ])
}

/// True if this run was made by the fork of `source` that this command asked for: the command is said once more.
pub fn is_fork_by(second: &RunEvent, source: RunId, run_id: RunId, command_id: CommandId) -> bool {
    matches!(second, RunEvent::ControlApplied(applied)
        if applied.audit.kind == ControlKind::Fork
            && applied.audit.command_hash == fork_hash(source, run_id, command_id))
}

fn fork_hash(source: RunId, run_id: RunId, command_id: CommandId) -> String {
    canonical::sha256_hex(format!("fork/{source}/{run_id}/{command_id}").as_bytes())
}

// A budget of the source would not apply to the fork: it is the run's own.
fn budget_of(run_id: RunId, of_source: &Budget) -> Budget {
    Budget { budget_id: run_budget_id(run_id, of_source.category), scope_key: run_id.to_string(), ..of_source.clone() }
}

// Finished steps with what they gave. Branches are chosen anew, so what lies behind one is not taken over.
fn carried(run: &RunEnvelope) -> Vec<CarriedOutput> {
    let branches = run.plan.steps.iter().filter(|step| matches!(step.kind, StepKind::Branch { .. }));
    let undecided: BTreeSet<StepId> = branches.flat_map(|step| run.plan.behind(&step.step_id)).collect();
    let steps = run.plan.steps.iter().map(|step| &step.step_id).filter(|id| !undecided.contains(*id));
    let steps = steps.filter(|id| model_step::added_by(&run.plan, id).is_none());
    steps
        .filter_map(|step_id| {
            let output = run.output_of(step_id)?.clone();
            let checkpoints = run.intermediate_artifacts.iter().filter(|checkpoint| &checkpoint.step_id == step_id);
            let evidence = run.evidence_trail.iter().find(|entry| &entry.step_id == step_id);
            Some(CarriedOutput {
                step_id: step_id.clone(),
                output,
                artifacts: checkpoints.map(|checkpoint| checkpoint.artifact.clone()).collect(),
                evidence: evidence.map(|entry| entry.evidence.clone()),
            })
        })
        .collect()
}
