//! Which version of its lead agent a submitted run gets, and the shadow beside it (FBK-007 to FBK-009).
//!
//! The view this is decided on may be a moment old: another node routes by a rollout for up to a second after it was frozen.

use std::sync::atomic::Ordering;

use signalbox_domain::feedback::rollout::{Rollout, RolloutMode, RolloutState};
use signalbox_domain::feedback::routing::{
    RolloutArm, Route, Routed, Routing, give_side, may_route, route_invocation, shadow_of, stands,
};
use signalbox_domain::governance::change::GovernanceState;
use signalbox_domain::identity::Actor;
use signalbox_domain::ids::RunKey;
use signalbox_domain::invocation::estimate;
use signalbox_domain::run::event::{RunEvent, RunSubmitted};
use signalbox_domain::run::submission;

use super::NodeHandle;
use crate::api::{ApiError, Caller};

impl NodeHandle {
    /// Gives a run that was accepted its side, if a rollout has a say in it; answers the rollout whose challenger works beside.
    pub(super) fn route(&self, submitted: &mut RunSubmitted) -> Option<Rollout> {
        if !may_route(submitted) {
            return None;
        }
        let view = self.inner.shared.governance.view();
        let invocation = Routed {
            tenant_id: &submitted.tenant_id,
            user_id: &submitted.submitted_by.actor_id,
            agent_id: &submitted.root_agent_id,
        };
        let route = route_invocation(&view.state.rollouts, invocation)?;
        // Whoever has named another version than the champion gets that; and a rollout whose versions were moved by hand has
        // nothing to compare any more.
        if submitted.root_agent_semver != route.rollout.champion_semver || !still_stands(&view.state, route, submitted)
        {
            return None;
        }
        // What the challenger may not cost is no run to compare the two by, whichever side it would be on.
        if !self.challenger_affords(&view.state, route.rollout, submitted) {
            return None;
        }
        give_side(submitted, route);
        pin(&view.state, submitted);
        route.shadowed.then(|| route.rollout.clone())
    }

    /// True if the plan is not estimated above what a run of the challenger may cost (REG-040).
    fn challenger_affords(&self, state: &GovernanceState, rollout: &Rollout, submitted: &RunSubmitted) -> bool {
        let (tenant, agent) = (&submitted.tenant_id, &submitted.root_agent_id);
        let versions = state.registry.for_tenant(tenant, agent);
        versions.iter().find(|entry| entry.agent_semver == rollout.challenger_semver).is_some_and(|entry| {
            let class = self.inner.config.invocations.class_of(tenant, agent, entry.cost_class);
            estimate(&submitted.plan) <= class.bound()
        })
    }

    /// Submits the challenger's run beside one, in a task of its own: whatever becomes of it, nobody waits.
    pub(super) fn cast_shadow(&self, run: RunSubmitted, rollout: Rollout) {
        // Shadows never take the last places.
        if self.inner.active.load(Ordering::Relaxed) >= self.inner.config.runs_active_max / 2 {
            tracing::info!(run = %run.run_id, rollout = %rollout.rollout_id, "no room for a shadow");
            return;
        }
        let node = self.clone();
        tokio::spawn(async move {
            if let Err(error) = node.create_shadow(&run, &rollout).await {
                tracing::warn!(run = %run.run_id, %error, code = error.code(), "no shadow");
            }
        });
    }

    /// The same for a run that is there already: its submitter has said it twice, perhaps because a node died in between.
    pub(super) async fn cast_shadow_again(&self, run_key: RunKey, routing: Option<&Routing>) -> Result<(), ApiError> {
        let Some(routing) = routing.filter(|routing| {
            routing.mode == RolloutMode::Shadow && routing.arm == RolloutArm::Champion && routing.shadow_of.is_none()
        }) else {
            return Ok(());
        };
        let view = self.inner.shared.governance.view();
        let live = |known: &&Rollout| known.rollout_id == routing.rollout_id && known.state == RolloutState::Live;
        let Some(rollout) = view.state.rollouts.iter().find(live).cloned() else { return Ok(()) };
        let first = self.inner.shared.store.read(run_key, 0, 1).await?;
        if let Some(RunEvent::RunSubmitted(run)) = first.first().and_then(|event| event.event()) {
            self.cast_shadow(*run, rollout);
        }
        Ok(())
    }

    async fn create_shadow(&self, run: &RunSubmitted, rollout: &Rollout) -> Result<(), ApiError> {
        let view = self.inner.shared.governance.view();
        let route = Route { rollout, answers: RolloutArm::Champion, shadowed: true };
        let Some(mut shadow) = shadow_of(run, route, RunKey::new(self.inner.ports.ids.fresh())) else {
            return Ok(());
        };
        pin(&view.state, &mut shadow);
        let now = self.inner.shared.clock.now();
        shadow.grants = submission::mint_grants(&shadow, now);
        let system =
            Caller { tenant_id: run.tenant_id.clone(), actor: Actor::system(), scopes: Vec::new(), surface: "api" };
        self.create(&system, shadow, Vec::new(), now).await?;
        Ok(())
    }
}

fn still_stands(state: &GovernanceState, route: Route<'_>, submitted: &RunSubmitted) -> bool {
    let versions = state.registry.for_tenant(&submitted.tenant_id, &submitted.root_agent_id);
    stands(route.rollout, |semver| {
        versions.iter().find(|entry| entry.agent_semver == semver).map(|entry| entry.lifecycle)
    })
}

/// The run keeps what is known of the version it was given.
fn pin(state: &GovernanceState, submitted: &mut RunSubmitted) {
    let versions = state.registry.for_tenant(&submitted.tenant_id, &submitted.root_agent_id);
    if let Some(entry) = versions.iter().find(|entry| entry.agent_semver == submitted.root_agent_semver) {
        submitted.agents.pin(entry);
    }
}
