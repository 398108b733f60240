//! Managing rollouts: beginning, moving and reading them. Each act is one entry of the governance log; a promotion or a
//! rollback moves the agent's versions in the same entry.

use signalbox_domain::feedback::outcome::{ArmTallies, FEEDBACK_WINDOW_MS, tally};
use signalbox_domain::feedback::readiness::{Readiness, evaluate_readiness};
use signalbox_domain::feedback::rollout::{
    self, OnRollout, Rollout, RolloutDenial, StartRollout, Succession, may_see, scope_of,
};
use signalbox_domain::governance::audit::{AuditBody, AuditKind, Subject};
use signalbox_domain::governance::budgeting::Expected;
use signalbox_domain::governance::change::{GovernanceChange, GovernanceState};
use signalbox_domain::ids::RolloutId;
use signalbox_domain::registry::{AgentLifecycle, AgentMove, MovedBy, RegistryDenial};
use signalbox_ports::acts::Effect;

use super::NodeHandle;
use super::governing::{Decided, Draft, check_operator, operator, recorded};
use crate::api::{ApiError, Caller};

/// What may be done to a rollout that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RolloutStep {
    /// The challenger becomes champion, if it is ready.
    Promote,
    /// Everything goes to the champion for now.
    Freeze,
    /// It goes on from where it was.
    Unfreeze,
    /// The champion from before the promotion is champion again.
    Rollback,
    /// It is given up.
    End,
}

impl RolloutStep {
    const fn kind(self) -> AuditKind {
        match self {
            Self::Promote => AuditKind::ChallengerPromoted,
            Self::Freeze => AuditKind::RolloutFrozen,
            Self::Unfreeze => AuditKind::RolloutUnfrozen,
            Self::Rollback => AuditKind::RolloutRolledBack,
            Self::End => AuditKind::RolloutEnded,
        }
    }
}

/// A rollout, its figures now, and its revision.
#[derive(Debug, Clone, PartialEq)]
pub struct RolloutStanding {
    /// The rollout.
    pub rollout: Rollout,
    /// The last act on it.
    pub revision: u64,
    /// What its runs have come to.
    pub tallies: ArmTallies,
    /// What that says of the challenger.
    pub readiness: Readiness,
}

impl NodeHandle {
    /// Begins a rollout.
    pub async fn start_rollout(&self, caller: &Caller, wish: StartRollout) -> Result<RolloutStanding, ApiError> {
        let wish = &wish;
        self.act(caller, move |state| async move {
            let now = self.inner.shared.clock.now();
            let scope = scope_of(wish.tenant_id.as_ref(), &wish.agent_id, &state.registry);
            let stands =
                |agent: &_, semver: &str| state.registry.get(&scope, agent, semver).map(|entry| entry.lifecycle);
            let rollout = rollout::start(wish.clone(), operator(caller), &state.rollouts, stands, now)?;
            Ok(Decided::Act(Box::new(draft(AuditKind::RolloutStarted, None, rollout, None, None)), ()))
        })
        .await?;
        self.rollout(caller, &wish.rollout_id).await
    }

    /// Moves a rollout that is there.
    pub async fn move_rollout(
        &self,
        caller: &Caller,
        id: &RolloutId,
        step: RolloutStep,
        reason: &str,
        expected: Expected,
    ) -> Result<RolloutStanding, ApiError> {
        self.act(caller, move |state| async move {
            let known = self.seen_rollout(caller, &state, id)?.clone();
            let revision = self.rollout_revision(id).await?;
            let now = self.inner.shared.clock.now();
            let act = OnRollout { rollout: &known, revision, expected, by: operator(caller), reason, now };
            let (moved, succession, details) = match step {
                RolloutStep::Promote => {
                    let (tallies, readiness) = self.figures(&known).await?;
                    let (moved, succession) = rollout::promote(act, readiness.verdict)?;
                    let details = serde_json::json!({
                        "champion": tallies.champion.arm(), "challenger": tallies.challenger.arm(),
                        "z": readiness.z, "p": readiness.p, "verdict": readiness.verdict,
                    });
                    (moved, Some((succession, MovedBy::Promotion)), Some(details))
                }
                RolloutStep::Freeze => (rollout::freeze(act)?, None, None),
                RolloutStep::Unfreeze => (rollout::unfreeze(act)?, None, None),
                RolloutStep::Rollback => {
                    let (moved, succession) = rollout::rollback(act)?;
                    (moved, Some((succession, MovedBy::Rollback)), None)
                }
                RolloutStep::End => (rollout::end(act)?, None, None),
            };
            let agent_move = match succession {
                Some((succession, by)) => Some(succeed(caller, &state, &known, &succession, by)?),
                None => None,
            };
            let draft = draft(step.kind(), Some(&known), moved, agent_move, details);
            Ok(Decided::Act(Box::new(draft), ()))
        })
        .await?;
        self.rollout(caller, id).await
    }

    /// One rollout, with its figures as they are now.
    pub async fn rollout(&self, caller: &Caller, id: &RolloutId) -> Result<RolloutStanding, ApiError> {
        check_operator(caller)?;
        self.inner.shared.governance.refresh().await;
        let view = self.inner.shared.governance.view();
        let rollout = self.seen_rollout(caller, &view.state, id)?.clone();
        let (tallies, readiness) = self.figures(&rollout).await?;
        Ok(RolloutStanding { revision: self.rollout_revision(id).await?, rollout, tallies, readiness })
    }

    /// The rollouts the caller may see, in the order they were begun.
    pub async fn rollouts(&self, caller: &Caller) -> Result<Vec<Rollout>, ApiError> {
        check_operator(caller)?;
        self.inner.shared.governance.refresh().await;
        let view = self.inner.shared.governance.view();
        Ok(view.state.rollouts.iter().filter(|known| may_see(operator(caller), known)).cloned().collect())
    }

    fn seen_rollout<'s>(
        &self,
        caller: &Caller,
        state: &'s GovernanceState,
        id: &RolloutId,
    ) -> Result<&'s Rollout, ApiError> {
        check_operator(caller)?;
        let known = state.rollouts.iter().find(|known| known.rollout_id == *id && may_see(operator(caller), known));
        known.ok_or_else(|| RolloutDenial::NoSuchRollout(id.to_string()).into())
    }

    async fn figures(&self, rollout: &Rollout) -> Result<(ArmTallies, Readiness), ApiError> {
        let open_since = self.inner.shared.clock.now().plus_ms(-FEEDBACK_WINDOW_MS);
        let tallies = tally(&self.inner.ports.feedback.outcomes(&rollout.rollout_id, open_since).await?);
        let readiness = evaluate_readiness(tallies.champion.arm(), tallies.challenger.arm());
        Ok((tallies, readiness.map_err(|error| ApiError::Internal(error.to_string()))?))
    }

    async fn rollout_revision(&self, id: &RolloutId) -> Result<u64, ApiError> {
        Ok(self.inner.ports.acts.last_act(&Subject::rollout(id)).await?.map_or(0, |act| act.seq))
    }
}

/// The move of the agent's versions that goes with a promotion or a rollback (REG-037).
fn succeed(
    caller: &Caller,
    state: &GovernanceState,
    rollout: &Rollout,
    succession: &Succession,
    by: MovedBy,
) -> Result<AgentMove, ApiError> {
    let scope = scope_of(rollout.tenant_id.as_ref(), &rollout.agent_id, &state.registry);
    rollout::may_succeed(operator(caller), &scope)?;
    let champion = AgentLifecycle::Champion;
    let moved = state.registry.decide_move(&scope, &rollout.agent_id, &succession.champion, champion, by);
    let moved = moved.map_err(RegistryDenial::from)?;
    if moved.demoted_semver.as_deref() != Some(succession.deprecated.as_str()) {
        return Err(RolloutDenial::ChampionChanged { expected: succession.deprecated.clone() }.into());
    }
    Ok(moved)
}

fn draft(
    kind: AuditKind,
    before: Option<&Rollout>,
    rollout: Rollout,
    moved: Option<AgentMove>,
    details: Option<serde_json::Value>,
) -> Draft {
    let body = AuditBody {
        reason: rollout.reason.clone(),
        before: before.and_then(recorded),
        after: recorded(&rollout),
        details: details.or_else(|| moved.as_ref().and_then(recorded)),
    };
    Draft {
        tenant_id: rollout.tenant_id.clone(),
        kind,
        subject: Subject::rollout(&rollout.rollout_id),
        body,
        effect: Effect::Change(GovernanceChange::RolloutSet { rollout, moved }),
    }
}
