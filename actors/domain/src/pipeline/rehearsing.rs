//! What a rehearsal of a pipeline has shown: what a real run would cost, whom it would ask, and what would stop it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::spec::PipelineSpec;
use crate::governance::grant::Grant;
use crate::governance::kill_switch::KillSwitch;
use crate::ids::{PipelineId, RunId, StageId, StepId, SwitchId, ToolId};
use crate::invocation::estimate;
use crate::quantity::Micros;
use crate::run::envelope::RunEnvelope;
use crate::run::event::ApprovalDecision;
use crate::run::plan::{ApprovalRequirement, Plan, StepKind};
use crate::run::status::RunStatus;
use crate::run::step::StepState;

/// The result of a rehearsal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rehearsal {
    /// The run of the rehearsal.
    pub run_id: RunId,
    /// The pipeline.
    pub pipeline_id: PipelineId,
    /// Its version.
    pub pipeline_semver: String,
    /// Where the run stands.
    pub status: RunStatus,
    /// True once nothing more can come of it.
    pub over: bool,
    /// The code of its end, if it ended otherwise than well.
    pub code: Option<String>,
    /// That end in words.
    pub message: Option<String>,
    /// What a real run would cost.
    pub cost: CostRange,
    /// The stages and how far they were gone through, in the order of the plan.
    pub stages: Vec<StageRehearsed>,
    /// Who would be asked, in the order of the plan.
    pub approvals: Vec<ApprovalRehearsed>,
    /// Armed switches that would stop a real run, and where.
    pub switches: Vec<SwitchRehearsed>,
    /// Tools that a real run calls and that no executor serves. An optional stage goes without; any other is refused.
    pub tools_not_configured: Vec<ToolRehearsed>,
    /// Tools that a real run calls under a standing grant, and none is live.
    pub grants_missing: Vec<ToolRehearsed>,
}

/// What a real run would cost, in cost units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CostRange {
    /// Without the optional steps, each call made once.
    pub least: Micros,
    /// What the calls of the rehearsal came to.
    pub rehearsed: Micros,
    /// With all steps, each call at its ceiling.
    pub most: Micros,
    /// The pipeline's cap, at which a run is stopped.
    pub cap: Micros,
}

/// A stage of a rehearsal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StageRehearsed {
    /// The stage.
    pub stage_id: StageId,
    /// `done`, `left-out`, `failed` or `not-reached`.
    pub state: String,
    /// Calls that a stand-in answered.
    pub simulated_calls: usize,
    /// Calls that were really made; they only look inside the installation.
    pub real_calls: usize,
}

/// A question of a rehearsal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalRehearsed {
    /// The step that asks.
    pub step_id: StepId,
    /// Who would have to agree.
    pub requirement: ApprovalRequirement,
    /// The question.
    pub prompt: String,
    /// `would-be-asked`, `refused-by-itself` or `not-reached`.
    pub outcome: String,
}

/// A switch that would stop a real run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SwitchRehearsed {
    /// The switch.
    pub switch_id: SwitchId,
    /// Why it was armed.
    pub reason: String,
    /// The first step that it would stop.
    pub step_id: StepId,
    /// How many steps it would stop.
    pub steps: usize,
}

/// A tool that a real run would lack.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolRehearsed {
    /// The tool.
    pub tool_id: ToolId,
    /// True if every stage that calls it may be left out.
    pub optional: bool,
}

/// What is in force, as the node that is asked has read it.
#[derive(Debug, Clone, Copy)]
pub struct InForce<'a> {
    /// Switches that are active.
    pub switches: &'a [&'a KillSwitch],
    /// Standing grants that are live and could be the run's.
    pub grants: &'a [&'a Grant],
    /// Tools that an executor serves.
    pub configured: &'a BTreeSet<ToolId>,
}

/// The result of a rehearsal; `None` if the run is no rehearsal of this pipeline.
pub fn rehearsal_of(spec: &PipelineSpec, run: &RunEnvelope, cap: Micros, force: InForce<'_>) -> Option<Rehearsal> {
    if !run.is_rehearsal() || run.pipeline_id.as_ref() != Some(&spec.pipeline_id) {
        return None;
    }
    let simulated = run.simulated_ledger.as_ref().map_or(Micros::ZERO, |ledger| ledger.total_cost_units);
    let required = Plan {
        steps: run.plan.steps.iter().filter(|step| !step.optional).cloned().collect(),
        max_parallel: run.plan.max_parallel,
    };
    let end = run.end.as_ref();
    Some(Rehearsal {
        run_id: run.run_id,
        pipeline_id: spec.pipeline_id.clone(),
        pipeline_semver: run.pipeline_semver.clone().unwrap_or_default(),
        status: run.status,
        over: run.end.is_some(),
        code: end.and_then(|end| end.code.clone()),
        message: end.and_then(|end| end.message.clone()),
        cost: CostRange {
            least: estimate(&required).min(cap),
            rehearsed: run.cost_ledger.total_cost_units.plus(simulated),
            most: estimate(&run.plan).min(cap),
            cap,
        },
        stages: stages(run),
        approvals: approvals(run),
        switches: force.switches.iter().filter_map(|switch| bites(run, switch)).collect(),
        tools_not_configured: tools(run, |tool| !force.configured.contains(tool)),
        grants_missing: tools(run, |tool| {
            let bounded = crate::catalog::entry(tool).is_some_and(crate::catalog::CatalogEntry::is_bounded);
            // What the instance writes, it holds a grant of its own for; files are read under the paths of a standing grant.
            let reads = run.plan.steps.iter().any(|step| step.kind.tool_id() == Some(tool) && names_files(&step.kind));
            (reads || (!bounded && tool.as_str() != "file.write"))
                && !force.grants.iter().any(|grant| grant.tool_id == *tool)
        }),
    })
}

fn names_files(kind: &StepKind) -> bool {
    matches!(kind, StepKind::Tool { args, .. } if args.get("uris").is_some())
}

fn stages(run: &RunEnvelope) -> Vec<StageRehearsed> {
    let mut stages: Vec<StageRehearsed> = Vec::new();
    for (step, state) in run.plan.steps.iter().zip(&run.steps) {
        let stage_id = step.stage();
        let word = match state {
            StepState::Done { .. } => "done",
            StepState::Skipped { .. } => "left-out",
            StepState::Failed { .. } => "failed",
            StepState::Pending
            | StepState::InFlight { .. }
            | StepState::Throttled { .. }
            | StepState::AwaitingApproval { .. }
            | StepState::AwaitingBranch
            | StepState::HandedOff { .. }
            | StepState::Conversing
            | StepState::Waiting { .. } => "not-reached",
        };
        let calls = |simulated: bool| {
            run.tool_calls.iter().filter(|call| call.step_id == step.step_id && call.simulated == simulated).count()
        };
        let (simulated_calls, real_calls) = (calls(true), calls(false));
        match stages.iter_mut().find(|known| known.stage_id == stage_id) {
            Some(known) => {
                known.simulated_calls += simulated_calls;
                known.real_calls += real_calls;
                if rank(word) > rank(&known.state) {
                    word.clone_into(&mut known.state);
                }
            }
            None => stages.push(StageRehearsed { stage_id, state: word.to_owned(), simulated_calls, real_calls }),
        }
    }
    stages
}

// The worst that happened to one of its steps is what is told of a stage; what was left out quietly is not.
fn rank(word: &str) -> u8 {
    match word {
        "left-out" => 0,
        "done" => 1,
        "not-reached" => 2,
        _ => 3,
    }
}

fn approvals(run: &RunEnvelope) -> Vec<ApprovalRehearsed> {
    let asked = run.plan.steps.iter().filter_map(|step| {
        let StepKind::Approval { requirement, prompt, .. } = &step.kind else { return None };
        let record = run.approvals.iter().rev().find(|asked| asked.step_id == step.step_id);
        let outcome = match record.map(|asked| asked.decision) {
            Some(Some(ApprovalDecision::Reject)) => "refused-by-itself",
            Some(_) => "would-be-asked",
            None => "not-reached",
        };
        Some(ApprovalRehearsed {
            step_id: step.step_id.clone(),
            requirement: *requirement,
            prompt: prompt.clone(),
            outcome: outcome.to_owned(),
        })
    });
    asked.collect()
}

fn bites(run: &RunEnvelope, switch: &KillSwitch) -> Option<SwitchRehearsed> {
    let stopped =
        run.plan.steps.iter().filter(|step| run.target_of(step).is_some_and(|target| switch.matches(&target)));
    let stopped: Vec<&StepId> = stopped.map(|step| &step.step_id).collect();
    let first = stopped.first()?;
    Some(SwitchRehearsed {
        switch_id: switch.switch_id.clone(),
        reason: switch.reason.clone(),
        step_id: (*first).clone(),
        steps: stopped.len(),
    })
}

fn tools(run: &RunEnvelope, lacking: impl Fn(&ToolId) -> bool) -> Vec<ToolRehearsed> {
    let called: BTreeSet<&ToolId> = run.plan.steps.iter().filter_map(|step| step.kind.tool_id()).collect();
    let lacks = called.into_iter().filter(|tool| lacking(tool));
    lacks
        .map(|tool| {
            let mut uses = run.plan.steps.iter().filter(|step| step.kind.tool_id() == Some(tool));
            ToolRehearsed { tool_id: tool.clone(), optional: uses.all(|step| step.optional) }
        })
        .collect()
}
