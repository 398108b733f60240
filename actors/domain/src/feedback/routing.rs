//! Which version of an agent a run is given to (FBK-007 to FBK-009).

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::feedback::rollout::{Rollout, RolloutMode, RolloutState};
use crate::governance::budget::Budget;
use crate::ids::{ActorId, AgentId, RolloutId, RunId, RunKey, TenantId};
use crate::mode::{Mode, ModeBounds};
use crate::quantity::Micros;
use crate::registry::{AgentEntry, AgentLifecycle, Invocable, invocable};
use crate::run::event::RunSubmitted;
use crate::run::plan::StepKind;

/// One side of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum RolloutArm {
    /// The version in use.
    Champion,
    /// The version that is tried.
    Challenger,
}

impl RolloutArm {
    /// The wire string.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Champion => "champion",
            Self::Challenger => "challenger",
        }
    }
}

/// Why a run has the version it has: kept in its first event and in its envelope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Routing {
    /// The rollout that decided.
    pub rollout_id: RolloutId,
    /// How it tries the new version.
    pub mode: RolloutMode,
    /// Which side the run is counted on.
    pub arm: RolloutArm,
    /// What an evaluation of the run must reach to count as success: the bar of the mode that was asked for, for both arms.
    pub min_evaluation_score: Micros,
    /// The run beside which this one works unseen; only shadow runs have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shadow_of: Option<RunId>,
}

/// The invocation that is to be routed.
#[derive(Debug, Clone, Copy)]
pub struct Routed<'a> {
    /// From the credential.
    pub tenant_id: &'a TenantId,
    /// Who submits: the same user is always on the same side.
    pub user_id: &'a ActorId,
    /// The lead agent.
    pub agent_id: &'a AgentId,
}

/// What a rollout makes of an invocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route<'r> {
    /// The rollout.
    pub rollout: &'r Rollout,
    /// The version that answers.
    pub answers: RolloutArm,
    /// True if the challenger works unseen beside it.
    pub shadowed: bool,
}

/// The route of an invocation; `None` if no rollout has a say in it (FBK-007). A frozen rollout has none: everything goes to
/// the champion, and nothing is counted (FBK-012).
pub fn route_invocation<'r>(rollouts: &'r [Rollout], invocation: Routed<'_>) -> Option<Route<'r>> {
    let rollout = rollouts.iter().find(|rollout| {
        rollout.state == RolloutState::Live
            && rollout.agent_id == *invocation.agent_id
            && rollout.tenant_id.as_ref().is_none_or(|tenant| tenant == invocation.tenant_id)
    })?;
    Some(match rollout.mode {
        RolloutMode::Shadow => Route { rollout, answers: RolloutArm::Champion, shadowed: true },
        RolloutMode::Canary => {
            let chosen = is_chosen(rollout, invocation);
            let answers = if chosen { RolloutArm::Challenger } else { RolloutArm::Champion };
            Route { rollout, answers, shadowed: false }
        }
    })
}

/// True if the canary's share of users has this one in it (FBK-008).
pub fn is_chosen(rollout: &Rollout, invocation: Routed<'_>) -> bool {
    let place = place_of(&rollout.rollout_id, invocation.tenant_id, invocation.user_id);
    // place / 2^64 < millionths / 10^6, without a division that rounds.
    let millionths = u128::try_from(rollout.canary_fraction.0).unwrap_or(0);
    u128::from(place) * 1_000_000 < millionths << 64
}

/// Where a user stands in a rollout, evenly spread over 0 to 2^64: the first eight bytes, big-endian, of SHA-256 over the
/// rollout's id, the tenant's and the user's, each with its length in front as eight bytes, big-endian. The lengths keep two
/// neighbouring ids from being cut differently under one digest.
pub fn place_of(rollout: &RolloutId, tenant: &TenantId, user: &ActorId) -> u64 {
    let mut hasher = Sha256::new();
    for id in [rollout.as_str(), tenant.as_str(), user.as_str()] {
        hasher.update((id.len() as u64).to_be_bytes());
        hasher.update(id.as_bytes());
    }
    let digest: [u8; 32] = hasher.finalize().into();
    digest.iter().take(8).fold(0, |place, byte| place << 8 | u64::from(*byte))
}

/// True if a run may be given to another version at all: rehearsals and forks are no traffic, and a pipeline has pinned the
/// versions it was written for.
pub fn may_route(run: &RunSubmitted) -> bool {
    let rehearses = Mode::parse(&run.mode).is_some_and(Mode::is_rehearsal);
    !rehearses && run.forked_from_run_id.is_none() && run.parent_run_id.is_none() && run.pipeline_id.is_none()
}

/// True if both versions of a rollout still stand where it can give runs to them (REG-038).
pub fn stands(rollout: &Rollout, at: impl Fn(&str) -> Option<AgentLifecycle>) -> bool {
    let by_routing = |state| invocable(state, AgentEntry::FeedbackRouting) != Invocable::No;
    at(&rollout.champion_semver) == Some(AgentLifecycle::Champion)
        && at(&rollout.challenger_semver).is_some_and(by_routing)
}

/// Gives a run its side (FBK-008). What was asked for stays as it is.
pub fn give_side(run: &mut RunSubmitted, route: Route<'_>) {
    let bar = run.mode_bounds.map_or(Micros::ZERO, |bounds| bounds.min_evaluation_score);
    run.root_agent_semver = route.rollout.semver_of(route.answers).to_owned();
    run.routing = Some(Routing {
        rollout_id: route.rollout.rollout_id.clone(),
        mode: route.rollout.mode,
        arm: route.answers,
        min_evaluation_score: bar,
        shadow_of: None,
    });
}

/// The challenger's run beside one that was given to the champion (FBK-009): a rehearsal, so that nothing it does is felt
/// outside, with no grant and with budgets of its own, so that it takes nothing from anybody. Its public id follows from the
/// key of the run, so that a repetition makes no second one; `run_key` is a fresh one. `None` for a plan that asks people to
/// choose: nobody is to hear of a shadow.
pub fn shadow_of(run: &RunSubmitted, route: Route<'_>, run_key: RunKey) -> Option<RunSubmitted> {
    let asks = |kind: &StepKind| matches!(kind, StepKind::Branch { .. });
    if !route.shadowed || run.plan.steps.iter().any(|step| asks(&step.kind)) {
        return None;
    }
    let name = route.rollout.rollout_id.as_str();
    let run_id = RunId::new(run.run_key.derive("shadow", name, 0));
    let bar = run.mode_bounds.map_or(Micros::ZERO, |bounds| bounds.min_evaluation_score);
    let bounds = ModeBounds::from(Mode::RehearsalDryRun.meta());
    let cost_max = run.mode_bounds.map_or(bounds.max_cost_units, |own| own.max_cost_units.min(bounds.max_cost_units));
    let own = |budget: &Budget| Budget {
        budget_id: crate::run::submission::run_budget_id(run_id, budget.category),
        scope_key: run_id.to_string(),
        limit: if budget.category == crate::quantity::BudgetCategory::CostUnits {
            budget.limit.min(cost_max)
        } else {
            budget.limit
        },
        ..budget.clone()
    };
    Some(RunSubmitted {
        run_key,
        run_id,
        root_agent_semver: route.rollout.challenger_semver.clone(),
        mode: Mode::RehearsalDryRun.as_str().to_owned(),
        mode_bounds: Some(ModeBounds { max_cost_units: cost_max, ..bounds }),
        grants: Vec::new(),
        budgets: run.budgets.iter().map(own).collect(),
        routing: Some(Routing {
            rollout_id: route.rollout.rollout_id.clone(),
            mode: route.rollout.mode,
            arm: RolloutArm::Challenger,
            min_evaluation_score: bar,
            shadow_of: Some(run.run_id),
        }),
        ..run.clone()
    })
}

impl RunSubmitted {
    /// Whose run it is in lists. What works unseen beside a run is in nobody's: only those who see a whole tenant come upon it
    /// (FBK-007).
    pub fn listed_under(&self) -> ActorId {
        if is_shadow(self.routing.as_ref()) {
            return ActorId::constant("system:shadow");
        }
        self.submitted_by.actor_id.clone()
    }
}

/// True if a run works unseen beside another one.
pub fn is_shadow(routing: Option<&Routing>) -> bool {
    routing.is_some_and(|routing| routing.shadow_of.is_some())
}
