//! A plan is data: a DAG of steps with stable ids (RUN-009, RUN-010).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::handoff::beginning::APPROVAL_STEP;
use crate::handoff::handed::Delegation;
use crate::ids::{AgentId, BranchId, StageId, StepId, ToolId};
use crate::quantity::Micros;
use crate::redact::redact_value;
use crate::run::approvers::Approvers;
use crate::run::binding;
use crate::run::model_step::{self, ModelLimits};

/// Most steps a plan may have.
pub const STEPS_MAX: usize = 200;
/// How long an approval waits for an answer unless its step says otherwise (RUN-022).
pub const APPROVAL_TTL_SECONDS_DEFAULT: u64 = 604_800;
/// Longest wait of a `wait` step: 366 days.
pub const WAIT_SECONDS_MAX: u64 = 366 * 86_400;
/// Most tool calls of one run that are in flight at once unless the plan says less.
pub const FAN_OUT_DEFAULT: u32 = 8;
/// Highest fan-out a plan may ask for.
pub const FAN_OUT_MAX: u32 = 64;

/// An ordered list of steps whose edges form a DAG.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Plan {
    /// The steps, in declaration order.
    pub steps: Vec<Step>,
    /// Most tool calls in flight at once, at most 64; 8 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_parallel: Option<u32>,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// Unique in the plan.
    pub step_id: StepId,
    /// The stage the step belongs to; its own id if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage_id: Option<StageId>,
    /// The agent whose authority the step uses; the run's root agent if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<AgentId>,
    /// Steps that must be over before this one starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on_step_ids: Vec<StepId>,
    /// The step runs only if that branch was chosen; otherwise it is skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<BranchCondition>,
    /// A failing optional step is skipped with label `tool-skipped` and the run goes on (ADM-019).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
    /// What the step does.
    #[serde(flatten)]
    pub kind: StepKind,
}

/// A branch that must have been chosen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BranchCondition {
    /// The branch step.
    pub step_id: StepId,
    /// The branch that must have been chosen there.
    pub branch_id: BranchId,
}

/// What a step does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "lowercase", rename_all_fields = "camelCase")]
pub enum StepKind {
    /// One planned tool call.
    Tool {
        /// The tool.
        tool_id: ToolId,
        /// JSON in which `{"$from": pointer}` is replaced when the call is made.
        #[serde(default)]
        args: Value,
        /// The approval step that must have let exactly this call through: it shows the bound arguments, and the call is
        /// made with those or not at all. The call waits for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        approved_by: Option<StepId>,
    },
    /// A hand-off to a sub-run.
    Agent(Box<Handoff>),
    /// A model proposes calls inside the step's grants.
    Model {
        /// What the model is told: a text, or an object with `text`, `system` and whatever else it is to see. Bound like tool
        /// arguments.
        #[serde(default)]
        prompt: Value,
        /// The tools it may propose calls of; none if absent.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tools: Vec<ToolId>,
        /// How long it may go on.
        #[serde(default, skip_serializing_if = "ModelLimits::is_usual")]
        limits: ModelLimits,
    },
    /// One turn of a model step. The journal adds it to a plan; nobody submits one.
    Turn {
        /// The model step.
        of: StepId,
        /// Which turn.
        number: u32,
    },
    /// Somebody must say yes.
    Approval {
        /// Who may answer.
        #[serde(default)]
        requirement: ApprovalRequirement,
        /// Who of those may answer; all of them if absent. Whoever submitted the run may then not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        approvers: Option<Approvers>,
        /// The question, shown to whoever decides.
        #[serde(default)]
        prompt: String,
        /// JSON shown beside the question, bound like tool arguments; the decision is bound to its digest.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        subject: Value,
        /// How long the answer is waited for.
        #[serde(default = "approval_ttl_default")]
        approval_ttl_seconds: u64,
        /// A place in the subject, as a JSON Pointer: if anything is found there, the gate says no by itself and nobody is
        /// asked (PIP-012). Nothing is `null`, `false`, 0, and what is empty.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refuse_if: Option<String>,
    },
    /// Somebody chooses one of several ways on.
    Branch {
        /// The ways.
        branches: Vec<BranchOption>,
    },
    /// Time passes.
    Wait {
        /// How long, in seconds.
        seconds: u64,
    },
}

/// Work that is handed to another agent: a plan of its own, carried out by a sub-run (HND). The step's `agentId` is that agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Handoff {
    /// What the sub-run's plan reads under `/inputs`; bound like tool arguments.
    #[serde(default)]
    pub input: Value,
    /// What the sub-run does. Journals from before there were sub-runs have steps without one; none is submitted.
    #[serde(default = "no_plan", skip_serializing_if = "is_no_plan")]
    pub plan: Plan,
    /// The most it may cost; what its tools may cost at most by the catalog, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sub_budget: Option<Micros>,
    /// Who must agree before it works (HND-001).
    #[serde(default = "nobody", skip_serializing_if = "is_nobody")]
    pub requirement: ApprovalRequirement,
    /// What it may do; its plan's tools, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegate: Option<Delegation>,
}

const fn no_plan() -> Plan {
    Plan { steps: Vec::new(), max_parallel: None }
}

fn is_no_plan(plan: &Plan) -> bool {
    plan.steps.is_empty()
}

const fn nobody() -> ApprovalRequirement {
    ApprovalRequirement::None
}

fn is_nobody(requirement: &ApprovalRequirement) -> bool {
    *requirement == ApprovalRequirement::None
}

impl StepKind {
    /// The wire string of the kind.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Tool { .. } => "tool",
            Self::Agent { .. } => "agent",
            Self::Model { .. } => "model",
            Self::Turn { .. } => "turn",
            Self::Approval { .. } => "approval",
            Self::Branch { .. } => "branch",
            Self::Wait { .. } => "wait",
        }
    }

    /// The tool of a tool step.
    pub const fn tool_id(&self) -> Option<&ToolId> {
        if let Self::Tool { tool_id, .. } = self { Some(tool_id) } else { None }
    }

    /// The approval step that a tool step is let through by.
    pub const fn approved_by(&self) -> Option<&StepId> {
        if let Self::Tool { approved_by: Some(gate), .. } = self { Some(gate) } else { None }
    }
}

const fn approval_ttl_default() -> u64 {
    APPROVAL_TTL_SECONDS_DEFAULT
}

/// One way on from a branch step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BranchOption {
    /// Unique in its step.
    pub branch_id: BranchId,
    /// Shown to whoever chooses.
    #[serde(default)]
    pub title: String,
}

/// Who must agree (HND-001).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ApprovalRequirement {
    /// Nobody.
    None,
    /// An operator of the tenant or the platform.
    #[default]
    Operator,
    /// A teacher of the learner's class.
    Teacher,
    /// A guardian of the learner.
    Guardian,
    /// The user who invoked the run.
    UserConfirmBeforeProceed,
}

/// Why a plan is refused (RUN-010).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// No step at all.
    #[error("the plan has no steps")]
    Empty,
    /// Two steps with one id.
    #[error("two steps have the id `{0}`")]
    DuplicateStepId(StepId),
    /// An edge to a step that does not exist.
    #[error("step `{step}` depends on `{on}`, which is not in the plan")]
    UnknownDependency {
        /// The dependent step.
        step: StepId,
        /// The missing one.
        on: StepId,
    },
    /// A step that depends on itself.
    #[error("step `{0}` depends on itself")]
    SelfDependency(StepId),
    /// Steps that wait for each other.
    #[error("the steps wait for each other in a circle through `{0}`")]
    Cycle(StepId),
    /// More than [`STEPS_MAX`] steps.
    #[error("the plan has {0} steps; at most {STEPS_MAX} are allowed")]
    TooManySteps(usize),
    /// A `turn` is made by its model step alone.
    #[error("step `{step}` is of kind `{kind}`, which this version cannot run")]
    StepKindNotAvailable {
        /// The step.
        step: StepId,
        /// Its kind.
        kind: &'static str,
    },
    /// A step whose own fields make no sense.
    #[error("step `{step}`: {problem}")]
    BadStep {
        /// The step.
        step: StepId,
        /// What is wrong and what would be right.
        problem: String,
    },
}

impl PlanError {
    /// Stable for ever.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Empty => "empty-plan",
            Self::DuplicateStepId(_) => "duplicate-step-id",
            Self::UnknownDependency { .. } => "unknown-dependency",
            Self::SelfDependency(_) => "self-dependency",
            Self::Cycle(_) => "cycle",
            Self::TooManySteps(_) => "too-many-steps",
            Self::StepKindNotAvailable { .. } => "step-kind-not-available",
            Self::BadStep { .. } => "bad-step",
        }
    }
}

impl Plan {
    /// The step with this id.
    pub fn step(&self, id: &StepId) -> Option<&Step> {
        self.steps.iter().find(|step| &step.step_id == id)
    }

    /// Where the step with this id stands, looked for from a place in the plan: backwards first, since most steps wait for one
    /// that stands shortly before them. Whether a long plan is ready is asked again with each event.
    pub fn position(&self, id: &StepId, near: usize) -> Option<usize> {
        let is_it = |step: &Step| &step.step_id == id;
        let (before, behind) = self.steps.split_at(near.min(self.steps.len()));
        let found = before.iter().rposition(is_it);
        found.or_else(|| behind.iter().position(is_it).map(|index| near.min(self.steps.len()) + index))
    }

    /// Checks everything RUN-010 asks for; the first violation is returned.
    pub fn validate(&self) -> Result<(), PlanError> {
        if self.steps.is_empty() {
            return Err(PlanError::Empty);
        }
        if self.steps.len() > STEPS_MAX {
            return Err(PlanError::TooManySteps(self.steps.len()));
        }
        let mut ids = BTreeSet::new();
        for step in &self.steps {
            if !ids.insert(&step.step_id) {
                return Err(PlanError::DuplicateStepId(step.step_id.clone()));
            }
        }
        for step in &self.steps {
            for on in step.dependencies() {
                if on == &step.step_id {
                    return Err(PlanError::SelfDependency(step.step_id.clone()));
                }
                if !ids.contains(on) {
                    return Err(PlanError::UnknownDependency { step: step.step_id.clone(), on: on.clone() });
                }
            }
        }
        self.topological_order().map_err(PlanError::Cycle)?;
        self.steps.iter().try_for_each(|step| self.validate_step(step))
    }

    /// Indices of the steps so that each comes after what it depends on, ties broken by declaration order;
    /// the error names a step on a circle.
    pub fn topological_order(&self) -> Result<Vec<usize>, StepId> {
        let index: BTreeMap<&StepId, usize> = self.steps.iter().enumerate().map(|(i, s)| (&s.step_id, i)).collect();
        let mut waits_for: Vec<usize> = vec![0; self.steps.len()];
        let mut dependents: Vec<Vec<usize>> = vec![Vec::new(); self.steps.len()];
        for (i, step) in self.steps.iter().enumerate() {
            let edges: BTreeSet<usize> = step.dependencies().filter_map(|on| index.get(on).copied()).collect();
            waits_for[i] = edges.len();
            for on in edges {
                dependents[on].push(i);
            }
        }
        let mut ready: BTreeSet<usize> = (0..self.steps.len()).filter(|i| waits_for[*i] == 0).collect();
        let mut order = Vec::with_capacity(self.steps.len());
        while let Some(i) = ready.pop_first() {
            order.push(i);
            for &dependent in &dependents[i] {
                waits_for[dependent] -= 1;
                if waits_for[dependent] == 0 {
                    ready.insert(dependent);
                }
            }
        }
        match (0..self.steps.len()).find(|i| waits_for[*i] > 0) {
            None => Ok(order),
            Some(stuck) => Err(self.on_a_circle(stuck, &index, &waits_for)),
        }
    }

    // Every stuck step waits for a stuck one, so a walk along those must come round to a step it has been at before.
    fn on_a_circle(&self, stuck: usize, index: &BTreeMap<&StepId, usize>, waits_for: &[usize]) -> StepId {
        let mut at = stuck;
        let mut seen = BTreeSet::new();
        while seen.insert(at) {
            let mut stuck = self.steps[at].dependencies().filter_map(|on| index.get(on).copied());
            at = stuck.find(|i| waits_for[*i] > 0).unwrap_or(at);
        }
        self.steps[at].step_id.clone()
    }

    fn validate_step(&self, step: &Step) -> Result<(), PlanError> {
        let bad = |problem: &str| Err(PlanError::BadStep { step: step.step_id.clone(), problem: problem.to_owned() });
        if let Some(condition) = &step.when {
            match self.step(&condition.step_id).map(|s| &s.kind) {
                Some(StepKind::Branch { branches }) if branches.iter().any(|b| b.branch_id == condition.branch_id) => {}
                _ => return bad("`when` must name a branch step of this plan and one of its branches"),
            }
        }
        match &step.kind {
            StepKind::Tool { args, .. } => match self.guard_problem(step, args) {
                Some(problem) => bad(&problem),
                None => Ok(()),
            },
            StepKind::Agent(handoff) => {
                if step.agent_id.is_none() {
                    return bad("a hand-off names in `agentId` to whom");
                }
                match handoff.problem() {
                    Some(problem) => bad(&problem),
                    None => handoff.plan.validate(),
                }
            }
            StepKind::Turn { .. } => {
                Err(PlanError::StepKindNotAvailable { step: step.step_id.clone(), kind: step.kind.as_str() })
            }
            StepKind::Model { .. } => model_step::problem(self, step),
            StepKind::Approval { approval_ttl_seconds, .. } if *approval_ttl_seconds == 0 => {
                bad("`approvalTtlSeconds` must be at least 1")
            }
            StepKind::Approval { approval_ttl_seconds, .. } if *approval_ttl_seconds > WAIT_SECONDS_MAX => {
                bad("`approvalTtlSeconds` may be at most 366 days")
            }
            StepKind::Approval { refuse_if: Some(place), .. } if !place.is_empty() && !place.starts_with('/') => {
                bad("`refuseIf` is a JSON Pointer into the subject, such as /contradictions")
            }
            StepKind::Approval { requirement, approvers: Some(approvers), .. } => match approvers.problem(*requirement)
            {
                Some(problem) => bad(&problem),
                None => Ok(()),
            },
            StepKind::Approval { approvers: None, .. } => Ok(()),
            StepKind::Branch { branches } => {
                let distinct: BTreeSet<_> = branches.iter().map(|b| &b.branch_id).collect();
                if branches.is_empty() || distinct.len() != branches.len() {
                    return bad("`branches` needs at least one branch, each with its own id");
                }
                Ok(())
            }
            StepKind::Wait { seconds } if *seconds > WAIT_SECONDS_MAX => bad("`seconds` may be at most 366 days"),
            StepKind::Wait { .. } => Ok(()),
        }
    }

    /// Most calls in flight at once.
    pub fn fan_out(&self) -> u32 {
        self.max_parallel.unwrap_or(FAN_OUT_DEFAULT).clamp(1, FAN_OUT_MAX)
    }
}

impl Step {
    /// Everything the step waits for: its declared dependencies, the branch it hangs on, and the gate that lets it through.
    pub fn dependencies(&self) -> impl Iterator<Item = &StepId> {
        self.depends_on_step_ids.iter().chain(self.when.as_ref().map(|w| &w.step_id)).chain(self.kind.approved_by())
    }
    /// The stage the step's cost and evidence are booked under.
    pub fn stage(&self) -> StageId {
        self.stage_id.clone().unwrap_or_else(|| {
            // A step id obeys the same rules as a stage id.
            StageId::new(self.step_id.as_str()).unwrap_or_else(|_| StageId::constant("step"))
        })
    }
}

impl Plan {
    /// The step, every step that waits for it, directly or not, and the gates that let any of those through with what
    /// waits for them: in plan order. A decision is used once, so a call that is made anew is asked about anew.
    pub fn behind(&self, from: &StepId) -> Vec<StepId> {
        let mut reached: BTreeSet<&StepId> = BTreeSet::from([from]);
        loop {
            let before = reached.len();
            for step in &self.steps {
                if step.dependencies().any(|on| reached.contains(on)) {
                    reached.insert(&step.step_id);
                }
                if reached.contains(&step.step_id) {
                    reached.extend(step.kind.approved_by());
                }
                // What a model step has added goes with it.
                if model_step::added_by(self, &step.step_id).is_some_and(|owner| reached.contains(&owner.step_id)) {
                    reached.insert(&step.step_id);
                }
            }
            if reached.len() == before {
                break;
            }
        }
        self.steps.iter().map(|step| &step.step_id).filter(|id| reached.contains(id)).cloned().collect()
    }

    /// Every step that must be over before this one starts.
    fn ahead<'a>(&'a self, of: &'a StepId) -> BTreeSet<&'a StepId> {
        let mut reached = BTreeSet::new();
        let mut waiting = vec![of];
        while let Some(step) = waiting.pop().and_then(|id| self.step(id)) {
            waiting.extend(step.dependencies().filter(|on| reached.insert(*on)));
        }
        reached
    }

    /// Why a gate could not show exactly the call that the step makes with these arguments; `None` if it can, or if no gate
    /// lets the step through.
    pub(super) fn guard_problem(&self, step: &Step, args: &Value) -> Option<String> {
        let gate = step.kind.approved_by()?;
        let asks = |kind: &StepKind| matches!(kind, StepKind::Approval { requirement, .. } if *requirement != ApprovalRequirement::None);
        if !self.step(gate).is_some_and(|step| asks(&step.kind)) {
            return Some("`approvedBy` must name an approval step of this plan that asks somebody".to_owned());
        }
        let ahead = self.ahead(gate);
        let late = binding::steps_bound(args).into_iter().find(|on| !ahead.contains(on))?;
        Some(format!(
            "`args` bind to the output of `{late}`, for which `{gate}` does not wait; let it depend on that step"
        ))
    }
}

impl Handoff {
    /// What is wrong with it by itself; its plan is checked as any plan is.
    fn problem(&self) -> Option<String> {
        if self.plan.step(&StepId::constant(APPROVAL_STEP)).is_some() {
            return Some(format!("no step of `plan` may be called `{APPROVAL_STEP}`"));
        }
        if self.requirement != ApprovalRequirement::None && self.plan.steps.len() >= STEPS_MAX {
            return Some("`plan` has no room for the approval that `requirement` asks for".to_owned());
        }
        // It is kept as it is, in one journal after another: what is secret goes through `input`, or is a handle.
        let shown = self.plan.steps.iter().filter_map(|step| step.kind.document());
        let mut shown = shown.map(redact_value);
        shown.any(|(_, changed)| changed).then(|| {
            "`plan` holds something that looks like a secret; give it in `input`, or name it {\"$secret\": \"id\"}"
                .to_owned()
        })
    }
}
