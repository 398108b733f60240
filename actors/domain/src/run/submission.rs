//! What a caller submits, checked as a whole before anything is written.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::canonical;
use crate::governance::budget::{Budget, BudgetScope, OnExceeded};
use crate::governance::grant::{Constraints, Grant, GrantScope};
use crate::handoff::handed::{DEPTH_CAP_MAX, HandoffRules};
use crate::identity::Actor;
use crate::ids::{AgentId, BudgetId, GrantId, PipelineId, RunId, RunKey, StageId, StepId, TenantId, ToolId};
use crate::invocation::{InvocationEnvelope, StoredInvocation, Surface};
use crate::json::{self, JsonError};
use crate::mode::{Mode, ModeOverride, OverrideRejected, apply_override, simulates};
use crate::pipeline::spec_of;
use crate::quantity::{BudgetCategory, Micros};
use crate::redact::redact_text;
use crate::registry::{AgentRegistry, AgentRegistryEntry, AgentViewer, PinnedAgents, Ways};
use crate::run::binding::names_secret;
use crate::run::event::RunSubmitted;
use crate::run::model_step::{self, MODEL_TURN_SEMVER};
use crate::run::plan::{Plan, PlanError, Step, StepKind};
use crate::run::sealed::SealedPlan;
use crate::time::UnixMs;

pub use crate::mode::COST_QUALITY_MODES;

/// Most steps of a plan and of all the plans that its hand-offs carry.
pub const ALL_STEPS_MAX: usize = 1_000;
/// Most run-scope budgets of one run.
pub const BUDGETS_MAX: usize = 9;

/// A run to be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Submission {
    /// The lead agent, such as `ref.research`.
    pub root_agent_id: AgentId,
    /// The plan: `{"steps": […]}` or just the list of steps.
    pub plan: PlanInput,
    /// What bindings read under `/inputs`.
    #[serde(default)]
    pub inputs: Value,
    /// Versions of agents of the run, where another is meant than the champion: to rehearse one, say (REG-038).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub agent_versions: BTreeMap<AgentId, String>,
    /// Cost-quality mode; `balanced` if left out.
    #[serde(default = "mode_default")]
    pub mode: String,
    /// The pipeline this run is an instance of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline_id: Option<PipelineId>,
    /// Its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline_semver: Option<String>,
    /// Limits for this run alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub budgets: Vec<RunBudget>,
    /// What whoever triggers it declares (INV-003 to INV-005). Left out, the run means to use all of its credential.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invocation: Option<InvocationEnvelope>,
    /// What is to be tighter than the mode has it (MOD-010).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode_override: Option<ModeOverride>,
    /// What holds of all hand-offs below the run (HND-003, HND-004).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handoffs: Option<HandoffRules>,
}

fn mode_default() -> String {
    Mode::DEFAULT.as_str().to_owned()
}

/// A plan in either of its two forms.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum PlanInput {
    /// `{"steps": […], "maxParallel": n}`.
    Plan(Plan),
    /// `[…]`.
    Steps(Vec<Step>),
}

impl PlanInput {
    /// The plan.
    pub fn into_plan(self) -> Plan {
        match self {
            Self::Plan(plan) => plan,
            Self::Steps(steps) => Plan { steps, max_parallel: None },
        }
    }
}

/// A limit for one run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RunBudget {
    /// What it is kept in.
    pub category: BudgetCategory,
    /// The limit.
    pub limit: Micros,
    /// What happens when it is exceeded.
    #[serde(default)]
    pub on_exceeded: OnExceeded,
}

/// Why a submission is refused. Nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubmissionError {
    /// Not acceptable JSON, or not of the shape.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// The plan is not sound.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A field that steps of this kind do not have.
    #[error("step {index} has a field `{field}` that a step of its kind does not have")]
    UnknownStepField {
        /// Place of the step in the list, from 0.
        index: usize,
        /// The field.
        field: String,
    },
    /// A tool that is not in the catalog.
    #[error("step `{step}` uses the tool `{tool}`, which is not in the catalog")]
    UnknownTool {
        /// The step.
        step: String,
        /// The tool.
        tool: ToolId,
    },
    /// An agent that is not registered.
    #[error("the agent `{0}` is not registered")]
    UnknownAgent(AgentId),
    /// A version that an agent does not have.
    #[error("the agent `{agent}` has no version {semver}")]
    UnknownAgentVersion {
        /// The agent.
        agent: AgentId,
        /// The version.
        semver: String,
    },
    /// A version of an agent that takes no part.
    #[error("`agentVersions` names the agent `{0}`, which takes no part in the run")]
    AgentTakesNoPart(AgentId),
    /// Not one of the five modes.
    #[error("`{0}` is not a mode; use one of fast, balanced, deep, exhaustive, rehearsal-dry-run")]
    UnknownMode(String),
    /// An override that would loosen the mode.
    #[error(transparent)]
    Override(#[from] OverrideRejected),
    /// An invocation envelope that makes no sense.
    #[error("`{member}`: {problem}")]
    BadInvocation {
        /// The member.
        member: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// A place that no run can be triggered from (INV-001).
    #[error("`{0}` is no invocation surface")]
    UnknownSurface(String),
    /// An id that looks like a secret. It is not repeated here.
    #[error("{0} looks like a secret; ids are shown and kept as they are, so choose another")]
    SecretInId(&'static str),
    /// Hand-offs that cannot be.
    #[error("`handoffs`: {0}")]
    BadHandoffs(String),
    /// A budget that makes no sense.
    #[error("budget {index}: {problem}")]
    BadBudget {
        /// Place in the list, from 0.
        index: usize,
        /// What is wrong.
        problem: &'static str,
    },
}

impl SubmissionError {
    /// Stable for ever.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Json(error) => error.code(),
            Self::Plan(error) => error.code(),
            Self::UnknownStepField { .. } => "unknown-field",
            Self::UnknownTool { .. } => "unknown-tool",
            Self::UnknownAgent(_) => "unknown-agent",
            Self::UnknownAgentVersion { .. } => "unknown-agent-version",
            Self::AgentTakesNoPart(_) => "agent-takes-no-part",
            Self::UnknownMode(_) => "unknown-mode",
            Self::Override(error) => error.code(),
            Self::BadInvocation { .. } => "bad-invocation",
            Self::UnknownSurface(_) => "unknown-surface",
            Self::SecretInId(_) => "secret-in-id",
            Self::BadHandoffs(_) => "bad-handoffs",
            Self::BadBudget { .. } => "bad-budget",
        }
    }
}

const STEP_FIELDS: [&str; 7] = ["stepId", "stageId", "agentId", "dependsOnStepIds", "when", "optional", "kind"];

/// Reads a submission: duplicate keys, deep nesting, inexact numbers and unknown fields are refused.
pub fn parse(bytes: &[u8]) -> Result<Submission, SubmissionError> {
    read(json::parse_strict(bytes, json::Limits::DEFAULT)?)
}

/// Reads a submission out of JSON that was read strictly before.
pub fn read(value: Value) -> Result<Submission, SubmissionError> {
    if !value.is_object() {
        let problem = "a submission is an object with at least `rootAgentId` and `plan`";
        return Err(JsonError::WrongShape(problem.to_owned()).into());
    }
    let steps = value.get("plan").and_then(|plan| plan.get("steps").or(Some(plan))).and_then(Value::as_array);
    // `Step` is flattened, so serde alone would let unknown fields pass.
    for (index, step) in steps.into_iter().flatten().enumerate() {
        check_fields(index, step)?;
    }
    serde_json::from_value(value).map_err(|error| JsonError::WrongShape(error.to_string()).into())
}

fn check_fields(index: usize, step: &Value) -> Result<(), SubmissionError> {
    let own: &[&str] = match step.get("kind").and_then(Value::as_str) {
        Some("tool") => &["toolId", "args", "approvedBy"],
        Some("agent") => {
            let steps = step.get("plan").and_then(|plan| plan.get("steps")).and_then(Value::as_array);
            for (index, step) in steps.into_iter().flatten().enumerate() {
                check_fields(index, step)?;
            }
            &["input", "plan", "subBudget", "requirement", "delegate"]
        }
        Some("model") => &["prompt", "tools", "limits"],
        Some("approval") => &["requirement", "approvers", "prompt", "subject", "approvalTtlSeconds", "refuseIf"],
        Some("branch") => &["branches"],
        Some("wait") => &["seconds"],
        _ => return Ok(()),
    };
    let known = |field: &str| STEP_FIELDS.contains(&field) || own.contains(&field);
    match step.as_object().and_then(|members| members.keys().find(|key| !known(key))) {
        Some(field) => Err(SubmissionError::UnknownStepField { index, field: field.chars().take(100).collect() }),
        None => Ok(()),
    }
}

/// Whoever submits, and under which ids.
#[derive(Debug, Clone)]
pub struct Submitter {
    /// The internal key.
    pub run_key: RunKey,
    /// The public id.
    pub run_id: RunId,
    /// From the credential.
    pub tenant_id: TenantId,
    /// From the credential.
    pub actor: Actor,
    /// From the credential.
    pub scopes: Vec<String>,
    /// Where the run was triggered (INV-002).
    pub surface: String,
}

/// Checks a submission on the agents that ship with this version, as [`accept_among`] does.
///
/// # Errors
/// Why it is refused.
pub fn accept(
    submission: Submission,
    submitter: Submitter,
    grants: Vec<Grant>,
) -> Result<RunSubmitted, SubmissionError> {
    accept_among(submission, submitter, grants, &AgentRegistry::default())
}

/// Checks a submission and makes the run's first event of it. `grants` are those a broker has approved (EXE-015); the run
/// keeps the versions of its agents that the registry has now, whatever is published later.
///
/// # Errors
/// Why it is refused.
pub fn accept_among(
    submission: Submission,
    submitter: Submitter,
    grants: Vec<Grant>,
    registry: &AgentRegistry,
) -> Result<RunSubmitted, SubmissionError> {
    let submission_hash = submission_hash(&submission)?;
    let ids_are_open = [submission.pipeline_id.as_ref().map(PipelineId::as_str), submission.pipeline_semver.as_deref()];
    check_open("pipelineId or pipelineSemver", ids_are_open.into_iter().flatten())?;
    let plan = submission.plan.into_plan();
    plan.all_steps().into_iter().try_for_each(check_step_ids)?;
    plan.validate()?;
    check_depth(&plan, submission.handoffs)?;
    for step in plan.all_steps() {
        if let Some(tool_id) = step.kind.tool_id()
            && crate::catalog::entry(tool_id).is_none()
        {
            return Err(SubmissionError::UnknownTool { step: step.step_id.to_string(), tool: tool_id.clone() });
        }
        let offered = if let StepKind::Model { tools, .. } = &step.kind { tools.as_slice() } else { &[] };
        if let Some(tool) = offered.iter().find(|tool| crate::catalog::entry(tool).is_none()) {
            return Err(SubmissionError::UnknownTool { step: step.step_id.to_string(), tool: tool.clone() });
        }
        approvers_are_others(step, &submitter.actor)?;
    }
    let ways = Ways {
        rehearsal: Mode::parse(&submission.mode).is_some_and(Mode::is_rehearsal),
        pipeline: submission
            .pipeline_id
            .as_ref()
            .is_some_and(|id| spec_of(id, submission.pipeline_semver.as_deref()).is_some()),
    };
    let steps = plan.all_steps();
    let taking_part = || steps.iter().filter_map(|step| step.agent_id.as_ref()).chain([&submission.root_agent_id]);
    if let Some(other) = submission.agent_versions.keys().find(|agent| !taking_part().any(|own| own == *agent)) {
        return Err(SubmissionError::AgentTakesNoPart(other.clone()));
    }
    let viewer = AgentViewer { tenant_id: &submitter.tenant_id, role: submitter.actor.role };
    let mut agents = PinnedAgents::default();
    let mut root_agent_semver = String::new();
    for agent in taking_part() {
        let entry = meant(registry, viewer, agent, submission.agent_versions.get(agent), ways)?;
        if *agent == submission.root_agent_id {
            root_agent_semver.clone_from(&entry.agent_semver);
        }
        agents.pin(entry);
    }
    let Some(mode) = Mode::parse(&submission.mode) else {
        return Err(SubmissionError::UnknownMode(submission.mode.chars().take(100).collect()));
    };
    if Surface::parse(&submitter.surface).is_none() {
        return Err(SubmissionError::UnknownSurface(submitter.surface.chars().take(100).collect()));
    }
    if let Some((member, problem)) = submission.invocation.as_ref().and_then(InvocationEnvelope::problem) {
        return Err(SubmissionError::BadInvocation { member, problem });
    }
    // Whether the mode may be chosen is for the preflight to say, beside everything else that it finds.
    let wanted = submission.mode_override.clone().unwrap_or_default();
    let bounds = apply_override(mode, &wanted, &BTreeSet::from(Mode::ALL), true)?;
    let pipeline = submission.pipeline_id.as_ref().and_then(|id| spec_of(id, submission.pipeline_semver.as_deref()));
    let cost_max = pipeline.map_or(bounds.max_cost_units, |spec| spec.total_budget_cap.min(bounds.max_cost_units));
    let budgets = bound_by_mode(run_budgets(&submission.budgets, &submitter)?, cost_max, &submitter);
    let grants = without_simulated(&submission.mode, &plan, grants);
    Ok(RunSubmitted {
        run_key: submitter.run_key,
        run_id: submitter.run_id,
        tenant_id: submitter.tenant_id,
        root_agent_semver,
        agents,
        root_agent_id: submission.root_agent_id,
        routing: None,
        parent_run_id: None,
        forked_from_run_id: None,
        pipeline_id: submission.pipeline_id,
        pipeline_semver: submission.pipeline_semver,
        surface: submitter.surface,
        mode: bounds.mode.as_str().to_owned(),
        invocation: submission.invocation.as_ref().map(InvocationEnvelope::stored),
        mode_bounds: Some(bounds),
        submitted_by: submitter.actor,
        scopes: submitter.scopes,
        plan,
        inputs: submission.inputs,
        sealed: SealedPlan::default(),
        grants,
        budgets,
        provenance_bundle_id: submitter.run_key.derive("provenance", "root", 0).to_string(),
        submission_hash,
        carried_outputs: Vec::new(),
        handoff_rules: submission.handoffs,
        handed_off: None,
    })
}

// The mode's ceiling is a budget of the run like any other, and the smaller one binds (MOD-001 to MOD-005, PIP-023).
fn bound_by_mode(mut budgets: Vec<Budget>, cost_max: Micros, submitter: &Submitter) -> Vec<Budget> {
    match budgets.iter_mut().find(|budget| budget.category == BudgetCategory::CostUnits) {
        Some(own) => own.limit = own.limit.min(cost_max),
        None => budgets.push(run_budget(BudgetCategory::CostUnits, cost_max, OnExceeded::default(), submitter)),
    }
    budgets
}

// A rehearsal holds no grant for anything that could have an effect, whoever has approved one (I12).
fn without_simulated(mode: &str, plan: &Plan, mut grants: Vec<Grant>) -> Vec<Grant> {
    grants.retain(|grant| !simulates_tool(mode, plan, &grant.tool_id));
    grants
}

// One step that is guarded makes the whole tool one that no grant is minted for: grants are by tool, not by step.
fn simulates_tool(mode: &str, plan: &Plan, tool: &ToolId) -> bool {
    let guarded = |step: &Step| step.kind.approved_by().is_some();
    let uses = plan.steps.iter().filter(|step| step.kind.tool_id() == Some(tool));
    simulates(mode, tool, false)
        || (uses.clone().count() > 0 && uses.clone().all(guarded) && simulates(mode, tool, true))
}

/// The scopes that a run has: those of the credential which its invocation declares; all of them if it declares nothing.
pub(crate) fn narrowed(mut scopes: Vec<String>, invocation: Option<&StoredInvocation>) -> Vec<String> {
    if let Some(invocation) = invocation {
        scopes.retain(|scope| invocation.entitlements.contains(scope));
    }
    scopes
}

impl RunSubmitted {
    /// Keeps the versions of the run's agents and takes over where they stand now: another run is made of one, and is held
    /// against what holds today.
    pub fn agents_now(&mut self, registry: &AgentRegistry) {
        let steps = self.plan.all_steps();
        let taking_part = steps.iter().filter_map(|step| step.agent_id.as_ref()).chain([&self.root_agent_id]);
        let mut agents = self.agents.clone();
        for agent in taking_part {
            let known = registry.for_tenant(&self.tenant_id, agent).iter();
            let semver = self.agents.semver_of(agent);
            if let Some(entry) = known.into_iter().find(|entry| Some(entry.agent_semver.as_str()) == semver) {
                agents.pin(entry);
            }
        }
        self.agents = agents;
    }

    /// Leaves the run only the scopes that its invocation declares, once both were looked at.
    pub fn narrow(&mut self) {
        self.scopes = narrowed(std::mem::take(&mut self.scopes), self.invocation.as_ref());
    }
}

/// Ids stand everywhere in clear, so none of them may be a secret.
fn check_step_ids(step: &Step) -> Result<(), SubmissionError> {
    let branches = if let StepKind::Branch { branches } = &step.kind { branches.as_slice() } else { &[] };
    check_open("a stepId", [step.step_id.as_str()])?;
    check_open("a stageId", step.stage_id.as_ref().map(StageId::as_str))?;
    check_open("a stepId of dependsOnStepIds", step.depends_on_step_ids.iter().map(StepId::as_str))?;
    check_open("a branchId", branches.iter().map(|branch| branch.branch_id.as_str()))
}

fn check_open<'a>(what: &'static str, ids: impl IntoIterator<Item = &'a str>) -> Result<(), SubmissionError> {
    match ids.into_iter().any(|id| matches!(redact_text(id), Cow::Owned(_))) {
        true => Err(SubmissionError::SecretInId(what)),
        false => Ok(()),
    }
}

// A plan cannot carry deeper hand-offs than the deepest chain that may be asked for.
fn check_depth(plan: &Plan, rules: Option<HandoffRules>) -> Result<(), SubmissionError> {
    let bad = |problem: String| Err(SubmissionError::BadHandoffs(problem));
    if rules.is_some_and(|rules| rules.depth_cap > DEPTH_CAP_MAX) {
        return bad(format!("`depthCap` may be at most {DEPTH_CAP_MAX}"));
    }
    let steps = plan.all_steps().len();
    if steps > ALL_STEPS_MAX {
        return bad(format!(
            "the plan and those of its hand-offs have {steps} steps; at most {ALL_STEPS_MAX} are allowed"
        ));
    }
    Ok(())
}

/// The digest that tells a repeat from another run under the same id (EXE-010).
pub fn submission_hash(submission: &Submission) -> Result<String, SubmissionError> {
    let value = serde_json::to_value(submission).map_err(|error| JsonError::WrongShape(error.to_string()))?;
    canonical::digest(&value).map_err(|error| JsonError::NumberNotExact(error.0).into())
}

fn meant<'r>(
    registry: &'r AgentRegistry,
    viewer: AgentViewer<'_>,
    agent: &AgentId,
    named: Option<&String>,
    ways: Ways,
) -> Result<&'r AgentRegistryEntry, SubmissionError> {
    if let Some(entry) = registry.resolve(viewer, agent, named.map(String::as_str), ways) {
        return Ok(entry);
    }
    match named.filter(|_| registry.resolve(viewer, agent, None, ways).is_some()) {
        Some(semver) => Err(SubmissionError::UnknownAgentVersion {
            agent: agent.clone(),
            semver: semver.chars().filter(|c| !c.is_control()).take(64).collect(),
        }),
        None => Err(SubmissionError::UnknownAgent(agent.clone())),
    }
}

// Whoever submits a run cannot name itself as the one who approves it.
fn approvers_are_others(step: &Step, submitter: &Actor) -> Result<(), SubmissionError> {
    if let StepKind::Approval { approvers: Some(approvers), .. } = &step.kind
        && approvers.actor_ids.contains(&submitter.actor_id)
    {
        let problem = "`approvers.actorIds` names you, and whoever submits a run cannot approve it; name others";
        return Err(PlanError::BadStep { step: step.step_id.clone(), problem: problem.to_owned() }.into());
    }
    Ok(())
}

fn run_budgets(wanted: &[RunBudget], submitter: &Submitter) -> Result<Vec<Budget>, SubmissionError> {
    let bad = |index, problem| Err(SubmissionError::BadBudget { index, problem });
    if wanted.len() > BUDGETS_MAX {
        return bad(BUDGETS_MAX, "a run may have at most nine budgets, one for each category");
    }
    let mut budgets: Vec<Budget> = Vec::new();
    for (index, budget) in wanted.iter().enumerate() {
        if budget.limit < Micros::ZERO {
            return bad(index, "a limit may not be negative");
        }
        if budgets.iter().any(|other| other.category == budget.category) {
            return bad(index, "there is already a budget for this category");
        }
        budgets.push(run_budget(budget.category, budget.limit, budget.on_exceeded, submitter));
    }
    Ok(budgets)
}

fn run_budget(category: BudgetCategory, limit: Micros, on_exceeded: OnExceeded, submitter: &Submitter) -> Budget {
    Budget {
        budget_id: run_budget_id(submitter.run_id, category),
        tenant_id: Some(submitter.tenant_id.clone()),
        scope: BudgetScope::Run,
        scope_key: submitter.run_id.to_string(),
        category,
        limit,
        calendar: None,
        period_seconds: None,
        anchor_unix_seconds: 0,
        warn_ratio: Micros(800_000),
        grace_ratio: Micros(1_000_000),
        grace_seconds: 0,
        on_exceeded,
    }
}

/// The name of a run's own budget for a category.
pub(crate) fn run_budget_id(run_id: RunId, category: BudgetCategory) -> BudgetId {
    // A UUID and a category are made of nothing but what an id may be made of.
    BudgetId::new(format!("run.{run_id}.{}", category.as_str())).unwrap_or_else(|_| BudgetId::constant("run"))
}

/// The first scope a planned tool needs and the submitter does not have (EXE-006, CAT-009).
pub fn missing_scope(submitted: &RunSubmitted) -> Option<String> {
    let needed = submitted.plan.all_steps().into_iter().filter(|step| !step.optional);
    let tools = needed.filter_map(|step| step.kind.tool_id()).filter_map(crate::catalog::entry);
    tools
        .flat_map(|entry| entry.required_scopes.iter())
        .find(|scope| !submitted.scopes.iter().any(|own| own == *scope))
        .map(|scope| scope.to_string())
}

/// Exact per-run grants for the planned tools of low and medium risk that pick no hosts and need no secret (EXE-014).
/// Everything else needs a grant that a broker or an operator has issued (EXE-015).
pub fn mint_grants(submitted: &RunSubmitted, now: UnixMs) -> Vec<Grant> {
    let mut tools: Vec<&ToolId> = submitted.plan.steps.iter().filter_map(|step| step.kind.tool_id()).collect();
    let models = || {
        submitted
            .plan
            .steps
            .iter()
            .filter_map(|step| if let StepKind::Model { tools, .. } = &step.kind { Some(tools) } else { None })
    };
    tools.extend(models().flatten());
    tools.sort();
    tools.dedup();
    // Whoever is to be given a secret needs a grant that names it.
    let named = |step: &Step, tool: &ToolId| matches!(&step.kind, StepKind::Tool { tool_id, args, .. } if tool_id == tool && names_secret(args));
    tools.retain(|tool| !submitted.plan.steps.iter().any(|step| named(step, tool)));
    tools.retain(|tool| crate::catalog::entry(tool).is_some_and(crate::catalog::CatalogEntry::is_bounded));
    tools.retain(|tool| !simulates_tool(&submitted.mode, &submitted.plan, tool));
    let turns = models().next().and_then(|_| mint_at(submitted, &model_step::turn_tool(), MODEL_TURN_SEMVER, now));
    tools.into_iter().filter_map(|tool| mint(submitted, tool, now)).chain(turns).collect()
}

fn mint(submitted: &RunSubmitted, tool: &ToolId, now: UnixMs) -> Option<Grant> {
    mint_at(submitted, tool, &crate::catalog::entry(tool)?.semver, now)
}

fn mint_at(submitted: &RunSubmitted, tool: &ToolId, semver: &str, now: UnixMs) -> Option<Grant> {
    // What an instance of a pipeline may do is held by the instance, not by the run of one of its stages (PIP-007).
    let instance = submitted.pipeline_id.as_ref();
    let instance = instance.and_then(|id| spec_of(id, submitted.pipeline_semver.as_deref()));
    Some(Grant {
        grant_id: GrantId::new(format!("run.{}.{tool}", submitted.run_id)).ok()?,
        scope: if instance.is_some() { GrantScope::PerPipelineInstance } else { GrantScope::PerRun },
        scope_key: submitted.run_id.to_string(),
        tenant_id: submitted.tenant_id.clone(),
        tool_id: tool.clone(),
        tool_range: format!("^{semver}"),
        constraints: Constraints::default(),
        delegable: None,
        issued_by: Actor::system().actor_id,
        issued_at_unix_ms: now,
        expires_at_unix_ms: None,
        revoked_at_unix_ms: None,
        rationale: "planned by the submission; bounded by the catalog".to_owned(),
        audit_event_id: format!("{}/1", submitted.run_id),
        renewed_from_grant_id: None,
    })
}
