//! Where a run of a pipeline differs from what the pipeline pins (PIP-029, PIP-030).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::fire::INPUT_KEY;
use super::input::PipelineInput;
use super::spec::{PipelineSpec, STAGE_DEPTH, Stage, StepTemplate};
use crate::ids::{AgentId, RunId, StageId, StepId};
use crate::mode::ComplianceBreach;
use crate::run::envelope::RunEnvelope;
use crate::run::event::{ApprovalDecision, ApprovalReason};
use crate::run::status::RunStatus;
use crate::run::step::StepState;

/// In which way a run differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviationKind {
    /// Hand-offs went deeper than is expected, or less deep.
    DepthDeviation,
    /// A stage that is not optional was not gone through.
    MissingStage,
    /// An agent that takes no part.
    UnexpectedAgent,
    /// A mandatory gate that let nothing through, and was passed nevertheless.
    GateSkipped,
    /// It cost more than the pipeline's cap.
    CostOverCap,
    /// It took longer than its mode allows.
    LatencyOverBudget,
    /// It was evaluated below its mode's bar.
    EvaluationBelowBar,
}

impl DeviationKind {
    /// All seven, in the order in which they are told.
    pub const ALL: [Self; 7] = [
        Self::DepthDeviation,
        Self::MissingStage,
        Self::UnexpectedAgent,
        Self::GateSkipped,
        Self::CostOverCap,
        Self::LatencyOverBudget,
        Self::EvaluationBelowBar,
    ];

    /// The wire string.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DepthDeviation => "depth-deviation",
            Self::MissingStage => "missing-stage",
            Self::UnexpectedAgent => "unexpected-agent",
            Self::GateSkipped => "gate-skipped",
            Self::CostOverCap => "cost-over-cap",
            Self::LatencyOverBudget => "latency-over-budget",
            Self::EvaluationBelowBar => "evaluation-below-bar",
        }
    }
}

/// One difference of one run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PipelineDeviation {
    /// In which way.
    pub kind: DeviationKind,
    /// The run.
    pub run_id: RunId,
    /// The stage, agent or gate; for bounds, what was measured.
    pub subject: String,
    /// In words, with what was expected.
    pub message: String,
}

/// Everything in which a run differs from its pipeline, in the order of [`DeviationKind::ALL`]; nothing if it is as it
/// should be. Whether stages were gone through is asked only of a run that completed: one that was stopped did not skip them.
pub fn detect_pipeline_deviation(spec: &PipelineSpec, run: &RunEnvelope) -> Vec<PipelineDeviation> {
    let mut found = Found { run_id: run.run_id, deviations: Vec::new() };
    let completed = run.status == RunStatus::Completed;
    if completed {
        depth(spec, run, &mut found);
        stages(spec, run, &mut found);
    }
    agents(spec, run, &mut found);
    if completed {
        gates(spec, run, &mut found);
    }
    let cost = run.cost_ledger.total_cost_units;
    if cost > spec.total_budget_cap {
        let message = format!("it cost {cost} units, and the pipeline's cap is {}", spec.total_budget_cap);
        found.add(DeviationKind::CostOverCap, cost.to_string(), message);
    }
    if let Some(compliance) = &run.compliance {
        if compliance.breaches.contains(&ComplianceBreach::LatencyExceeded) {
            let (took, allowed) = (compliance.latency_ms, compliance.p95_latency_budget_ms);
            let message = format!("it took {took} ms, and its mode allows {allowed} ms");
            found.add(DeviationKind::LatencyOverBudget, took.to_string(), message);
        }
        if compliance.breaches.contains(&ComplianceBreach::EvaluationBelowBar) {
            let mode = compliance.mode.as_str();
            let message = format!("it was evaluated below the bar of its mode `{mode}`");
            found.add(DeviationKind::EvaluationBelowBar, mode.to_owned(), message);
        }
    }
    found.deviations
}

struct Found {
    run_id: RunId,
    deviations: Vec<PipelineDeviation>,
}

impl Found {
    fn add(&mut self, kind: DeviationKind, subject: String, message: String) {
        self.deviations.push(PipelineDeviation { kind, run_id: self.run_id, subject, message });
    }
}

/// The template that a step of a run was made of.
fn template_of<'s>(spec: &'s PipelineSpec, step: &StepId) -> Option<(&'s Stage, &'s StepTemplate)> {
    spec.template(step).or_else(|| {
        let (template, number) = step.as_str().rsplit_once('.')?;
        let counted = number.len() >= 3 && number.bytes().all(|byte| byte.is_ascii_digit());
        let id = StepId::new(template).ok().filter(|_| counted)?;
        spec.template(&id).filter(|(_, step)| step.for_each.is_some())
    })
}

/// How deep the hand-offs of a run went: its stages are dispatched by the instance, and a step is one deeper if it was handed
/// on to another agent than its stage's.
fn depth_of(spec: &PipelineSpec, run: &RunEnvelope) -> u32 {
    let depth = |step: &StepId, agent: &AgentId| match template_of(spec, step) {
        Some((stage, template)) if template.handed_on && *agent != stage.agent_id => STAGE_DEPTH + 1,
        Some(_) | None => STAGE_DEPTH,
    };
    let made = run.plan.steps.iter().zip(&run.steps).filter(|(_, state)| matches!(state, StepState::Done { .. }));
    made.map(|(step, _)| depth(&step.step_id, run.agent_of(step))).max().unwrap_or(0)
}

fn depth(spec: &PipelineSpec, run: &RunEnvelope, found: &mut Found) {
    let depth = depth_of(spec, run);
    if depth != spec.expected_handoff_depth {
        let message = format!("hand-offs went {depth} deep, and {} is expected", spec.expected_handoff_depth);
        found.add(DeviationKind::DepthDeviation, depth.to_string(), message);
    }
}

fn stages(spec: &PipelineSpec, run: &RunEnvelope, found: &mut Found) {
    let done = run.plan.steps.iter().zip(&run.steps).filter(|(_, state)| matches!(state, StepState::Done { .. }));
    let gone_through: BTreeSet<StageId> = done.map(|(step, _)| step.stage()).collect();
    for stage in spec.plan.iter().filter(|stage| !stage.optional && !gone_through.contains(&stage.stage_id)) {
        let message = format!("the run completed without the stage `{}`", stage.stage_id);
        found.add(DeviationKind::MissingStage, stage.stage_id.to_string(), message);
    }
}

fn agents(spec: &PipelineSpec, run: &RunEnvelope, found: &mut Found) {
    let steps = run.plan.steps.iter().map(|step| run.agent_of(step));
    let calls = run.tool_calls.iter().map(|call| &call.agent_id);
    let used: BTreeSet<&AgentId> = steps.chain(calls).collect();
    for agent in used.into_iter().filter(|agent| !spec.participating_agent_ids.contains(agent)) {
        let message = format!("the agent `{agent}` takes no part in the pipeline");
        found.add(DeviationKind::UnexpectedAgent, agent.to_string(), message);
    }
}

fn gates(spec: &PipelineSpec, run: &RunEnvelope, found: &mut Found) {
    let input = run.inputs.get(INPUT_KEY).and_then(|input| PipelineInput::read(spec, input).ok());
    for gate in &spec.mandatory_approval_gates {
        let condition = spec.template(&gate.step_id).and_then(|(_, step)| step.only_if.as_ref());
        // Where the input cannot be read any more, only what holds for every input is asked for.
        let is_due = condition.is_none_or(|condition| input.as_ref().is_some_and(|input| input.holds(condition)));
        let passed = run.approvals.iter().any(|asked| {
            asked.step_id == gate.step_id
                && asked.reason == ApprovalReason::Gate
                && asked.decision == Some(ApprovalDecision::Approve)
        });
        if is_due && !passed {
            let message = format!("the run completed, and nobody has agreed at `{}`", gate.step_id);
            found.add(DeviationKind::GateSkipped, gate.step_id.to_string(), message);
        }
    }
}
