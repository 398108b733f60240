//! A tenant's own variant of a pipeline (PIP-024, PIP-025). It only tightens: what nobody may leave out stays, and no bound
//! is raised.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::expand::expand;
use super::registry::PipelineRegistry;
use super::spec::{Action, MandatoryGate, PipelineSpec, StepTemplate};
use crate::governance::budgeting::Expected;
use crate::governance::kill_switch::SWITCH_TEXT_BYTES_MAX;
use crate::governance::switching::{Operator, within};
use crate::identity::Role;
use crate::ids::{AgentId, PipelineId, StepId, TenantId};
use crate::mode::{Mode, in_words};
use crate::quantity::Micros;
use crate::registry::{AgentRegistry, AgentViewer, Invocable, Ways};
use crate::run::plan::ApprovalRequirement;
use crate::time::UnixMs;

/// Most gates a tenant adds to one pipeline.
pub const ADDED_GATES_MAX: usize = 20;
/// What is behind the id of the step after which a tenant asks.
const ADDED_GATE: &str = ".tenant-gate";
/// Longest question of an added gate, in bytes.
const PROMPT_BYTES_MAX: usize = 1_000;

/// What a tenant has made of a pipeline. Left out, everything is as the pipeline has it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Tightening {
    /// Optional steps that are never made.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub disabled_steps: BTreeSet<StepId>,
    /// Questions that are asked beside the pipeline's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub added_gates: Vec<AddedGate>,
    /// A lower cap, in cost units.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_budget_cap: Option<Micros>,
    /// The modes it may be triggered in, of those it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modes: Option<BTreeSet<Mode>>,
    /// Versions of agents that take part, where another is meant than the one in use.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub agent_versions: BTreeMap<AgentId, String>,
}

/// A question that a tenant adds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AddedGate {
    /// The step after which it is asked; everything that waits for that step waits for the answer too.
    pub after: StepId,
    /// Who must agree.
    pub requirement: ApprovalRequirement,
    /// The question.
    pub prompt: String,
}

/// A tenant's variant as it is kept (PIP-024).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TenantPipelineCustomization {
    /// Whose.
    pub tenant_id: TenantId,
    /// Of which pipeline.
    pub pipeline_id: PipelineId,
    /// The version it was made for.
    pub pipeline_semver: String,
    /// What is tighter.
    pub tightening: Tightening,
    /// When it was put.
    pub put_at_unix_ms: UnixMs,
}

/// A pipeline as it is for one tenant.
#[derive(Debug, Clone, PartialEq)]
pub struct EffectivePipeline {
    /// The pipeline, with the tenant's gates in it and without the steps it leaves out.
    pub spec: PipelineSpec,
    /// The modes it may be triggered in.
    pub modes: BTreeSet<Mode>,
    /// The mode of a trigger that names none.
    pub default_mode: Mode,
    /// Versions of agents.
    pub agent_versions: BTreeMap<AgentId, String>,
    /// True if the tenant has made it tighter.
    pub customized: bool,
}

/// A customization as somebody asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutCustomization {
    /// Of which pipeline.
    pub pipeline_id: PipelineId,
    /// Whose; the caller's tenant if absent.
    pub tenant_id: Option<TenantId>,
    /// What is to be tighter; nothing at all takes the customization away.
    pub tightening: Tightening,
    /// Why.
    pub reason: String,
    /// The revision that the caller has seen.
    pub expected: Expected,
}

/// Why a customization is not put.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CustomizationDenial {
    /// It would allow what the pipeline does not (PIP-025).
    #[error("{0}; a customization only makes a pipeline tighter")]
    Widens(String),
    /// It names what is not there, or makes no sense.
    #[error("{0}")]
    Senseless(String),
    /// No such pipeline.
    #[error("there is no pipeline `{0}`")]
    NoSuchPipeline(PipelineId),
    /// The role does not cover it, or the tenant is another one.
    #[error("{0}")]
    NotAuthorized(String),
    /// No reason, or one that is too long.
    #[error("`reason` must say why, in at most {SWITCH_TEXT_BYTES_MAX} bytes")]
    BadReason,
    /// Somebody else has changed it since.
    #[error("the customization is at revision {actual}, and you have seen {expected}; look at it again")]
    StaleRevision {
        /// What the caller has seen.
        expected: u64,
        /// What it is.
        actual: u64,
    },
}

impl CustomizationDenial {
    /// Stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Widens(_) => "customization-widens",
            Self::Senseless(_) => "customization-invalid",
            Self::NoSuchPipeline(_) => "no-such-pipeline",
            Self::NotAuthorized(_) => "not-authorized",
            Self::BadReason => "reason-required",
            Self::StaleRevision { .. } => "stale-revision",
        }
    }
}

/// The modes a pipeline may be triggered in: those of several agents (PIP-023).
pub fn modes_of(spec: &PipelineSpec) -> BTreeSet<Mode> {
    Mode::ALL.into_iter().filter(|mode| mode.meta().multi_agent && spec.lifecycle_state.accepts(*mode)).collect()
}

/// A pipeline as it is for a tenant: with its customization, or as it ships (PIP-024).
///
/// Whatever a customization says, the outcome is no wider than the pipeline: one that was put on an older version keeps to
/// what the newer one allows.
pub fn effective_pipeline_for_tenant(
    spec: &PipelineSpec,
    customization: Option<&TenantPipelineCustomization>,
) -> EffectivePipeline {
    let tightening = customization.map(|own| own.tightening.clone()).unwrap_or_default();
    let customized = tightening != Tightening::default();
    let mut modes = modes_of(spec);
    if let Some(only) = &tightening.modes {
        modes.retain(|mode| only.contains(mode));
    }
    let mut own = spec.clone();
    for stage in &mut own.plan {
        let optional = stage.optional;
        stage.steps.retain(|step| {
            !tightening.disabled_steps.contains(&step.step_id)
                || !(optional || step.optional)
                || is_gate(spec, &step.step_id)
        });
    }
    let gone: Vec<StepTemplate> = spec
        .templates()
        .filter(|(_, step)| own.template(&step.step_id).is_none())
        .map(|(_, step)| step.clone())
        .collect();
    for step in &gone {
        pass_over(&mut own, step);
    }
    own.plan.retain(|stage| !stage.steps.is_empty());
    for gate in &tightening.added_gates {
        add_gate(&mut own, gate);
    }
    if let Some(cap) = tightening.total_budget_cap {
        own.total_budget_cap = own.total_budget_cap.min(cap);
    }
    let default_mode = if modes.contains(&spec.default_mode()) {
        spec.default_mode()
    } else {
        // The least of what is left; without anything, what the pipeline would run in is refused.
        modes.iter().next().copied().unwrap_or_else(|| spec.default_mode())
    };
    EffectivePipeline { spec: own, modes, default_mode, agent_versions: tightening.agent_versions, customized }
}

fn is_gate(spec: &PipelineSpec, step: &StepId) -> bool {
    spec.mandatory_approval_gates.iter().any(|gate| gate.step_id == *step)
}

/// Takes a step out: what waited for it waits for what it waited for, and what it gave is nothing.
fn pass_over(spec: &mut PipelineSpec, gone: &StepTemplate) {
    let bound = format!("/steps/{}/", gone.step_id);
    for step in spec.plan.iter_mut().flat_map(|stage| &mut stage.steps) {
        if let Some(at) = step.after.iter().position(|id| *id == gone.step_id) {
            step.after.remove(at);
            for id in &gone.after {
                if !step.after.contains(id) {
                    step.after.push(id.clone());
                }
            }
        }
        match &mut step.action {
            Action::Call { args, .. } => forget(args, &bound),
            Action::Ask { subject, .. } => forget(subject, &bound),
        }
    }
}

fn forget(value: &mut Value, bound: &str) {
    let binds = value.get("$from").and_then(Value::as_str).is_some_and(|pointer| pointer.starts_with(bound));
    match value {
        whole if binds => *whole = Value::Null,
        Value::Object(members) => members.values_mut().for_each(|member| forget(member, bound)),
        Value::Array(items) => items.iter_mut().for_each(|item| forget(item, bound)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn added_id(gate: &AddedGate) -> Option<StepId> {
    StepId::new(format!("{}{ADDED_GATE}", gate.after)).ok()
}

fn add_gate(spec: &mut PipelineSpec, gate: &AddedGate) {
    let Some(step_id) = added_id(gate).filter(|id| spec.template(id).is_none()) else { return };
    if spec.template(&gate.after).is_none() {
        return;
    }
    for step in spec.plan.iter_mut().flat_map(|stage| &mut stage.steps) {
        if step.after.contains(&gate.after) {
            step.after.push(step_id.clone());
        }
    }
    let asks = StepTemplate {
        step_id: step_id.clone(),
        after: vec![gate.after.clone()],
        agent_id: None,
        handed_on: false,
        optional: false,
        only_if: None,
        for_each: None,
        action: Action::Ask { prompt: gate.prompt.clone(), subject: Value::Null, refuse_if: None },
    };
    for stage in &mut spec.plan {
        if let Some(at) = stage.steps.iter().position(|step| step.step_id == gate.after) {
            stage.steps.insert(at + 1, asks);
            break;
        }
    }
    spec.mandatory_approval_gates.push(MandatoryGate { step_id, requirement: gate.requirement, instead: Vec::new() });
}

/// What was decided about a customization.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Customizing {
    /// It stands already.
    Already,
    /// It is to be put.
    Put(TenantPipelineCustomization),
}

/// Decides on a customization: `known` is what stands, `revision` the last act on it.
///
/// # Errors
/// Why it is not put.
pub fn customize(
    order: &PutCustomization,
    by: Operator<'_>,
    known: Option<&TenantPipelineCustomization>,
    revision: u64,
    agents: &AgentRegistry,
    now: UnixMs,
) -> Result<Customizing, CustomizationDenial> {
    match by.actor.role {
        Role::PlatformOperator | Role::TenantOperator => {}
        role @ (Role::Customer | Role::Creator | Role::Service) => {
            let why = format!("a {} may not change a pipeline; it is for operators", role.as_str());
            return Err(CustomizationDenial::NotAuthorized(why));
        }
    }
    if order.reason.trim().is_empty() || order.reason.len() > SWITCH_TEXT_BYTES_MAX {
        return Err(CustomizationDenial::BadReason);
    }
    let tenant_id = order.tenant_id.as_ref().unwrap_or(by.tenant_id);
    within(by, Some(tenant_id)).map_err(|why| CustomizationDenial::NotAuthorized(why.to_owned()))?;
    let spec = PipelineRegistry::shipped().get(&order.pipeline_id);
    let spec = spec.ok_or_else(|| CustomizationDenial::NoSuchPipeline(order.pipeline_id.clone()))?;
    only_tightens(spec, &order.tightening)?;
    versions_are_there(spec, &order.tightening, tenant_id, agents)?;
    let seen = match order.expected {
        Expected::Any => None,
        Expected::None => Some(0),
        Expected::Revision(expected) => Some(expected),
    };
    if let Some(expected) = seen.filter(|expected| *expected != revision) {
        return Err(CustomizationDenial::StaleRevision { expected, actual: revision });
    }
    let stands = known.map(|own| &own.tightening).cloned().unwrap_or_default();
    if stands == order.tightening {
        return Ok(Customizing::Already);
    }
    Ok(Customizing::Put(TenantPipelineCustomization {
        tenant_id: tenant_id.clone(),
        pipeline_id: order.pipeline_id.clone(),
        pipeline_semver: spec.semver.clone(),
        tightening: order.tightening.clone(),
        put_at_unix_ms: now,
    }))
}

/// True only of what makes a pipeline tighter (PIP-025).
///
/// # Errors
/// The first thing that would loosen it, or that makes no sense.
pub fn only_tightens(spec: &PipelineSpec, wish: &Tightening) -> Result<(), CustomizationDenial> {
    let widens = |why: String| Err(CustomizationDenial::Widens(why));
    let senseless = |why: String| Err(CustomizationDenial::Senseless(why));
    for id in &wish.disabled_steps {
        let Some((stage, step)) = spec.template(id) else {
            return senseless(format!("`disabledSteps`: the pipeline has no step `{id}`"));
        };
        if is_gate(spec, id) {
            return widens(format!("`{id}` is a mandatory gate and cannot be taken out"));
        }
        if !(stage.optional || step.optional) {
            return widens(format!("the step `{id}` is not optional and cannot be left out"));
        }
    }
    if let Some(cap) = wish.total_budget_cap {
        if cap > spec.total_budget_cap {
            return widens(format!("the cap {cap} is above the pipeline's {}", spec.total_budget_cap));
        }
        if cap <= Micros::ZERO {
            return senseless("`totalBudgetCap` must be above 0".to_owned());
        }
    }
    if let Some(only) = &wish.modes {
        let own = modes_of(spec);
        if let Some(other) = only.iter().find(|mode| !own.contains(mode)) {
            return widens(format!("the mode `{}` is none of the pipeline's: {}", other.as_str(), in_words(&own)));
        }
        if only.is_empty() {
            return senseless("`modes` allows none; suspend what triggers the pipeline instead".to_owned());
        }
    }
    check_gates(spec, wish)?;
    // Whatever was asked for, a plan must come of it.
    let own = TenantPipelineCustomization {
        tenant_id: TenantId::constant("trial"),
        pipeline_id: spec.pipeline_id.clone(),
        pipeline_semver: spec.semver.clone(),
        tightening: wish.clone(),
        put_at_unix_ms: UnixMs(0),
    };
    let effective = effective_pipeline_for_tenant(spec, Some(&own)).spec;
    let plan = expand(&effective, &effective.example_input(true)).map_err(|error| error.to_string());
    match plan.and_then(|plan| plan.validate().map_err(|error| error.to_string())) {
        Ok(()) => Ok(()),
        Err(problem) => senseless(format!("no sound plan comes of it: {problem}")),
    }
}

fn check_gates(spec: &PipelineSpec, wish: &Tightening) -> Result<(), CustomizationDenial> {
    let senseless = |why: String| Err(CustomizationDenial::Senseless(why));
    if wish.added_gates.len() > ADDED_GATES_MAX {
        return senseless(format!("`addedGates` may have at most {ADDED_GATES_MAX}"));
    }
    let mut places = BTreeSet::new();
    for gate in &wish.added_gates {
        if !places.insert(&gate.after) {
            return senseless(format!("`addedGates` asks twice after `{}`", gate.after));
        }
        if gate.requirement == ApprovalRequirement::None {
            return senseless(format!("the gate after `{}` asks nobody", gate.after));
        }
        if gate.prompt.trim().is_empty() || gate.prompt.len() > PROMPT_BYTES_MAX || gate.prompt.contains('\0') {
            return senseless(format!("`prompt` must ask something, in at most {PROMPT_BYTES_MAX} bytes"));
        }
        let each = spec.template(&gate.after).map(|(_, step)| step.for_each.is_some());
        if each.is_none() || wish.disabled_steps.contains(&gate.after) || added_id(gate).is_none() {
            return senseless(format!("`addedGates`: there is no step `{}` to ask after", gate.after));
        }
    }
    Ok(())
}

fn versions_are_there(
    spec: &PipelineSpec,
    wish: &Tightening,
    tenant_id: &TenantId,
    agents: &AgentRegistry,
) -> Result<(), CustomizationDenial> {
    let senseless = |why: String| Err(CustomizationDenial::Senseless(why));
    let viewer = AgentViewer { tenant_id, role: Role::TenantOperator };
    let ways = Ways { rehearsal: false, pipeline: true };
    for (agent, semver) in &wish.agent_versions {
        if !spec.participating_agent_ids.contains(agent) {
            return senseless(format!("`agentVersions`: the agent `{agent}` takes no part"));
        }
        let shown: String = semver.chars().filter(|c| !c.is_control()).take(64).collect();
        match agents.resolve(viewer, agent, Some(semver), ways) {
            None => return senseless(format!("the agent `{agent}` has no version {shown}")),
            Some(entry) if ways.invocable(entry.lifecycle) == Invocable::No => {
                let state = entry.lifecycle.as_str();
                return senseless(format!("version {shown} of `{agent}` is `{state}` and may not be invoked"));
            }
            Some(_) => {}
        }
    }
    Ok(())
}
