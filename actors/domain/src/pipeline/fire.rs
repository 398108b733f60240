//! Triggering a pipeline: what is looked at, and the submission that comes of it. From there on it is a run like any other.

use serde_json::{Value, json};
use uuid::Uuid;

use super::customize::EffectivePipeline;
use super::expand::expand_read;
use super::input::{InputError, PipelineInput};
use crate::governance::budget::OnExceeded;
use crate::governance::grant::{Constraints, Grant, GrantScope};
use crate::identity::Actor;
use crate::ids::{GrantId, PipelineId, RunId, TenantId, ToolId};
use crate::mode::{InvocationTier, Mode, in_words};
use crate::quantity::BudgetCategory;
use crate::run::plan::{Plan, StepKind};
use crate::run::submission::{PlanInput, RunBudget, Submission};
use crate::time::UnixMs;

/// Longest id of a trigger, in bytes.
pub const FIRE_ID_BYTES_MAX: usize = 256;
/// What ids of triggers are derived under; it never changes, or a trigger that is said again would run again.
const FIRE_NAMESPACE: Uuid = Uuid::from_u128(0x5b7a_11f1_9e0c_4d2a_8f53_70a1_c0de_0001);
/// The member of a run's inputs that holds what whoever triggered it gave.
pub const INPUT_KEY: &str = "input";
/// The member of a run's inputs that holds the id of the trigger.
pub const FIRE_KEY: &str = "fireId";

/// A trigger as somebody asks for it.
#[derive(Debug, Clone, PartialEq)]
pub struct FirePipeline {
    /// Which pipeline.
    pub pipeline_id: PipelineId,
    /// The version that is meant; the one there is if absent.
    pub pipeline_semver: Option<String>,
    /// What the pipeline is given.
    pub input: Value,
    /// The mode; the pipeline's own if absent (PIP-023).
    pub mode: Option<Mode>,
    /// Names the trigger: said again, it answers the same run (PIP-028).
    pub fire_id: Option<String>,
}

/// Why a trigger is refused. Nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FireDenial {
    /// No such pipeline.
    #[error("there is no pipeline `{0}`")]
    NoSuchPipeline(PipelineId),
    /// The pipeline is there in another version.
    #[error("the pipeline `{pipeline_id}` is at version {current}, and {asked} was asked for")]
    OtherVersion {
        /// Which.
        pipeline_id: PipelineId,
        /// The version there is.
        current: String,
        /// The version that was asked for.
        asked: String,
    },
    /// The caller's standing is too low (PIP-006).
    #[error("the pipeline `{pipeline_id}` is for callers of tier {tier} and above; yours is {own}")]
    TierRequired {
        /// Which.
        pipeline_id: PipelineId,
        /// The lowest tier.
        tier: String,
        /// The caller's.
        own: &'static str,
    },
    /// The pipeline's life cycle takes no such trigger (PIP-003).
    #[error("the pipeline `{pipeline_id}` is `{state}` and takes no trigger in this mode")]
    NotLive {
        /// Which.
        pipeline_id: PipelineId,
        /// Where it stands.
        state: &'static str,
    },
    /// None of the pipeline's modes, or none that the tenant has left it.
    #[error("the pipeline `{pipeline_id}` may not be triggered in mode `{mode}`; allowed: {allowed}")]
    ModeNotAllowed {
        /// Which.
        pipeline_id: PipelineId,
        /// The mode.
        mode: &'static str,
        /// Those that are.
        allowed: String,
    },
    /// The input does not fit.
    #[error(transparent)]
    Input(#[from] InputError),
    /// A run that is no rehearsal of a pipeline.
    #[error("run {0} is no rehearsal of a pipeline; rehearse one")]
    NoRehearsal(RunId),
    /// An id of a trigger that is none.
    #[error("the id of a trigger has 1 to {FIRE_ID_BYTES_MAX} bytes without control characters")]
    BadFireId,
}

impl FireDenial {
    /// Stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NoSuchPipeline(_) => "no-such-pipeline",
            Self::OtherVersion { .. } => "no-such-pipeline-version",
            Self::TierRequired { .. } => "pipeline_tier_required",
            Self::NotLive { .. } => "pipeline-not-live",
            Self::ModeNotAllowed { .. } => "pipeline-mode-not-allowed",
            Self::Input(_) => InputError::CODE,
            Self::NoRehearsal(_) => "not-a-rehearsal",
            Self::BadFireId => "fire-id-invalid",
        }
    }
}

/// The run of a trigger: the same for the same tenant, pipeline and id, on every node and after every restart (PIP-028).
pub fn fire_run_id(tenant: &TenantId, pipeline: &PipelineId, fire_id: &str) -> RunId {
    RunId::new(Uuid::new_v5(&FIRE_NAMESPACE, format!("{tenant}/{pipeline}/{fire_id}").as_bytes()))
}

/// Decides on a trigger of a pipeline as it is for the caller's tenant: the submission that comes of it.
///
/// # Errors
/// The first thing that stands against it.
pub fn fire(
    order: &FirePipeline,
    effective: &EffectivePipeline,
    tier: InvocationTier,
) -> Result<Submission, FireDenial> {
    let spec = &effective.spec;
    let pipeline_id = || spec.pipeline_id.clone();
    if let Some(asked) = order.pipeline_semver.as_ref().filter(|asked| **asked != spec.semver) {
        let asked = asked.chars().filter(|c| !c.is_control()).take(64).collect();
        return Err(FireDenial::OtherVersion { pipeline_id: pipeline_id(), current: spec.semver.clone(), asked });
    }
    if !spec.may_be_triggered_by(tier) {
        let (tier, own) = (spec.tier.clone(), tier.as_str());
        return Err(FireDenial::TierRequired { pipeline_id: pipeline_id(), tier, own });
    }
    let mode = order.mode.unwrap_or(effective.default_mode);
    if !spec.lifecycle_state.accepts(mode) {
        let state = spec.lifecycle_state.as_str();
        return Err(FireDenial::NotLive { pipeline_id: pipeline_id(), state });
    }
    if !effective.modes.contains(&mode) {
        let allowed = in_words(&effective.modes);
        return Err(FireDenial::ModeNotAllowed { pipeline_id: pipeline_id(), mode: mode.as_str(), allowed });
    }
    let is_id = |id: &str| (1..=FIRE_ID_BYTES_MAX).contains(&id.len()) && !id.chars().any(char::is_control);
    if order.fire_id.as_deref().is_some_and(|id| !is_id(id)) {
        return Err(FireDenial::BadFireId);
    }
    let input = PipelineInput::read(spec, &order.input)?;
    let mut inputs = json!({ INPUT_KEY: input.to_value() });
    if let Some(fire_id) = &order.fire_id {
        inputs[FIRE_KEY] = json!(fire_id);
    }
    let root = spec.root_agent_id().ok_or_else(|| FireDenial::NoSuchPipeline(pipeline_id()))?;
    let plan = expand_read(spec, &input);
    let takes_part = |agent: &&crate::ids::AgentId| {
        *agent == root || plan.steps.iter().any(|step| step.agent_id.as_ref() == Some(*agent))
    };
    Ok(Submission {
        root_agent_id: root.clone(),
        inputs,
        agent_versions: effective
            .agent_versions
            .iter()
            .filter(|(agent, _)| takes_part(agent))
            .map(|(agent, semver)| (agent.clone(), semver.clone()))
            .collect(),
        plan: PlanInput::Plan(plan),
        mode: mode.as_str().to_owned(),
        pipeline_id: Some(pipeline_id()),
        pipeline_semver: Some(spec.semver.clone()),
        budgets: vec![RunBudget {
            category: BudgetCategory::CostUnits,
            limit: spec.total_budget_cap,
            on_exceeded: OnExceeded::Kill,
        }],
        invocation: None,
        mode_override: None,
        handoffs: None,
    })
}

/// The grant that an instance holds for what it writes: exactly the paths that the pipeline itself names, in the folder of
/// its run, and nothing else (PIP-007, EXE-015). The pipeline ships with the platform, which has approved those paths by
/// that; no input can name one.
pub fn instance_grants(plan: &Plan, tenant_id: &TenantId, run_id: RunId, now: UnixMs) -> Vec<Grant> {
    let path = |kind: &StepKind| {
        let StepKind::Tool { tool_id, args, .. } = kind else { return None };
        let path = args.get("path")?.as_str()?;
        (tool_id.as_str() == "file.write").then(|| path.to_owned())
    };
    let mut paths: Vec<String> = plan.steps.iter().filter_map(|step| path(&step.kind)).collect();
    paths.sort();
    paths.dedup();
    let Ok(grant_id) = GrantId::new(format!("instance.{run_id}.file.write")) else { return Vec::new() };
    if paths.is_empty() {
        return Vec::new();
    }
    let constraints = Constraints {
        hosts: Some(Vec::new()),
        paths: Some(paths),
        secret_ids: Some(Vec::new()),
        ..Constraints::default()
    };
    vec![Grant {
        grant_id,
        scope: GrantScope::PerPipelineInstance,
        scope_key: run_id.to_string(),
        tenant_id: tenant_id.clone(),
        tool_id: ToolId::constant("file.write"),
        tool_range: "^1.0.0".to_owned(),
        constraints,
        delegable: None,
        issued_by: Actor::system().actor_id,
        issued_at_unix_ms: now,
        expires_at_unix_ms: None,
        revoked_at_unix_ms: None,
        rationale: "the files that the pipeline itself names, in the folder of its run".to_owned(),
        audit_event_id: format!("{run_id}/1"),
        renewed_from_grant_id: None,
    }]
}
