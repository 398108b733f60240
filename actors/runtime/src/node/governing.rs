//! Managing what every call is held against: kill switches, and how any act of management is carried out.
//!
//! An act is decided by a pure rule on the rules as this node has just read them, and written only if nothing has happened
//! since; so it does not matter how many nodes manage at once.

use std::sync::Arc;
use std::time::Duration;

use signalbox_domain::governance::audit::{AuditBody, AuditKind, Subject};
use signalbox_domain::governance::change::{DisarmProposal, GovernanceChange, GovernanceState};
use signalbox_domain::governance::kill_switch::KillSwitch;
use signalbox_domain::governance::switching::{self, ArmSwitch, Arming, Disarming, Operator, SwitchDenial};
use signalbox_domain::ids::{NodeIncarnation, SwitchId, TenantId};
use signalbox_domain::time::{UnixMicros, UnixMs};
use signalbox_ports::acts::{Act, Acted, Done, Effect, SwitchReach};
use signalbox_ports::bus::Notice;
use signalbox_ports::clock::BootInstant;
use signalbox_ports::leases::NodeSweep;

use super::NodeHandle;
use crate::api::{ApiError, Caller};
use crate::run::Reached;
use crate::runs;

/// How often an act is decided anew because others acted in between.
const ACT_TRIES: usize = 10;
/// How long arming waits for its sweep, if it is asked to.
const SWEEP_WAIT_MS: u64 = 30_000;
/// First pause between two looks at how far a sweep is; doubles up to [`SWEEP_LOOK_MAX`].
const SWEEP_LOOK: Duration = Duration::from_millis(2);
const SWEEP_LOOK_MAX: Duration = Duration::from_millis(50);

/// A switch and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct SwitchStanding {
    /// The switch.
    pub switch: KillSwitch,
    /// `armed`, `disarmed` or `expired`.
    pub state: &'static str,
    /// What waits for another identity to disarm it.
    pub proposal: Option<DisarmProposal>,
    /// What it has done, if that was asked.
    pub effect: Option<SwitchEffect>,
}

/// A live node, and since when it has swept for a switch: the runs it had in hand are ended, and their calls cancelled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SweptNode {
    /// The node.
    pub node: NodeIncarnation,
    /// Its name for people.
    pub name: String,
    /// By the store's clock; `None` if it has not yet.
    pub swept_at: Option<UnixMicros>,
    /// How long after the switch was armed that was; zero for a node that began later.
    pub swept_after: Option<Duration>,
}

/// What a switch has done.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SwitchEffect {
    /// Runs it has ended.
    pub killed: u64,
    /// Runs it reaches that are not over; of one that is disarmed, those it had left.
    pub left: u64,
    /// Calls of runs it has ended that are still out on this node.
    pub calls_out: u64,
    /// Every live node. Of a switch that is armed no more, none.
    pub nodes: Vec<SweptNode>,
}

/// A switch that was armed.
#[derive(Debug, Clone, PartialEq)]
pub struct ArmedSwitch {
    /// The switch.
    pub standing: SwitchStanding,
    /// True if the same was armed before.
    pub replayed: bool,
    /// The epoch since which no matching call is admitted.
    pub epoch: u64,
    /// When that was, by the store's clock.
    pub committed_at: UnixMs,
    /// How long after the request nothing was left that it matches, on any node; `None` if that was not waited for, or not in vain.
    pub swept_after: Option<Duration>,
}

/// What became of disarming.
#[derive(Debug, Clone, PartialEq)]
pub struct DisarmedSwitch {
    /// The switch.
    pub standing: SwitchStanding,
    /// False if another identity must confirm.
    pub disarmed: bool,
}

/// An act as it was decided.
pub(super) struct Draft {
    pub(super) tenant_id: Option<TenantId>,
    pub(super) kind: AuditKind,
    pub(super) subject: Subject,
    pub(super) body: AuditBody,
    pub(super) effect: Effect,
}

/// What follows from a wish.
pub(super) enum Decided<T> {
    /// An act.
    Act(Box<Draft>, T),
    /// Nothing is to be done.
    Nothing(T),
}

impl<T> Decided<T> {
    /// What the caller is told; the act itself is left undone.
    pub(super) fn answer(self) -> T {
        match self {
            Self::Act(_, answer) | Self::Nothing(answer) => answer,
        }
    }
}

/// What an act on a rule would change.
#[derive(Debug, Clone, PartialEq)]
pub struct Forecast<T> {
    /// The rule as it stands; `None` if there is none in force.
    pub before: Option<T>,
    /// The rule as it would stand.
    pub after: T,
    /// True if nothing would have to be changed.
    pub unchanged: bool,
}

/// JSON of something in the audit journal.
pub(super) fn recorded(value: &impl serde::Serialize) -> Option<serde_json::Value> {
    serde_json::to_value(value).ok()
}

pub(super) const fn operator(caller: &Caller) -> Operator<'_> {
    Operator { tenant_id: &caller.tenant_id, actor: &caller.actor }
}

impl NodeHandle {
    /// Carries an act out: decided on what is in force now, and again if others act in between.
    pub(super) async fn act<T, F>(
        &self,
        caller: &Caller,
        decide: impl Fn(Arc<GovernanceState>) -> F + Send + Sync,
    ) -> Result<(T, Option<Done>), ApiError>
    where
        T: Send,
        F: Future<Output = Result<Decided<T>, ApiError>> + Send,
    {
        let shared = &self.inner.shared;
        for tried in 0..ACT_TRIES {
            let head = self.inner.ports.acts.audit_head().await?;
            shared.governance.refresh().await;
            let view = shared.governance.view();
            let (draft, answer) = match decide(view.state.clone()).await? {
                Decided::Act(draft, answer) => (*draft, answer),
                Decided::Nothing(answer) => return Ok((answer, None)),
            };
            let act = Act {
                expected_seq: head.seq,
                expected_epoch: view.state.epoch,
                tenant_id: draft.tenant_id,
                actor: caller.actor.clone(),
                kind: draft.kind,
                subject: draft.subject,
                body: draft.body,
                effect: draft.effect,
            };
            match self.inner.ports.acts.act(act).await? {
                Acted::Done(done) => {
                    if let Some(change) = &done.change {
                        self.inner.ports.bus.announce(Notice::Governance(change.epoch));
                    }
                    shared.governance.refresh().await;
                    return Ok((answer, Some(*done)));
                }
                // Two that collided must not collide again in step.
                Acted::Stale => tokio::time::sleep(Duration::from_millis(tried as u64 * 3 + 1)).await,
            }
        }
        Err(ApiError::Contended)
    }

    /// The rules as they are now, for what only asks what an act would come to.
    pub(super) async fn state_now(&self) -> Arc<GovernanceState> {
        self.inner.shared.governance.refresh().await;
        self.inner.shared.governance.view().state.clone()
    }

    /// Arms a switch. With `wait` this returns when nothing is left that it matches, or after half a minute.
    pub async fn arm_switch(&self, caller: &Caller, order: ArmSwitch, wait: bool) -> Result<ArmedSwitch, ApiError> {
        let began = self.inner.shared.clock.boot();
        let order = &order;
        let (arming, done) = self
            .act(caller, move |state| async move {
                let now = self.inner.shared.clock.now();
                match switching::arm(order.clone(), operator(caller), &state, now)? {
                    Arming::Already(switch) => Ok(Decided::Nothing((switch, true))),
                    Arming::Arm(switch) => {
                        let known = state.switches.iter().find(|known| known.switch_id == switch.switch_id);
                        let body = AuditBody {
                            reason: switch.reason.clone(),
                            before: known.and_then(recorded),
                            after: recorded(&switch),
                            details: None,
                        };
                        let draft = Draft {
                            tenant_id: switch.tenant_id.clone(),
                            kind: AuditKind::SwitchArmed,
                            subject: Subject::switch(&switch.switch_id),
                            body,
                            effect: Effect::Change(GovernanceChange::SwitchArmed(switch.clone())),
                        };
                        Ok(Decided::Act(Box::new(draft), (switch, false)))
                    }
                }
            })
            .await?;
        let (switch, replayed) = arming;
        let _ = self.inner.sweeps.cast(crate::sweeps::Msg::Look);
        let (epoch, committed_at) = match done.and_then(|done| done.change) {
            Some(change) => (change.epoch, change.at_unix_ms),
            None => self.armed_at(&switch).await?,
        };
        let swept_after = if wait { self.until_swept(&switch, epoch, began).await? } else { None };
        let effect = if wait { Some(self.effect(&switch).await?) } else { None };
        Ok(ArmedSwitch { standing: self.standing(switch, effect), replayed, epoch, committed_at, swept_after })
    }

    /// What `arm_switch` would stop, decided by the same rule on what is in force now. Nothing is written; the epoch and the
    /// instant are those it was decided at.
    pub async fn would_arm_switch(&self, caller: &Caller, order: ArmSwitch) -> Result<ArmedSwitch, ApiError> {
        let shared = &self.inner.shared;
        shared.governance.refresh().await;
        let (view, now) = (shared.governance.view(), shared.clock.now());
        let (switch, replayed) = match switching::arm(order, operator(caller), &view.state, now)? {
            Arming::Already(switch) => (switch, true),
            Arming::Arm(switch) => (switch, false),
        };
        // Nobody has swept for what is not armed.
        let effect = SwitchEffect { nodes: Vec::new(), ..self.effect(&switch).await? };
        let standing = SwitchStanding { switch, state: "armed", proposal: None, effect: Some(effect) };
        Ok(ArmedSwitch { standing, replayed, epoch: view.state.epoch, committed_at: now, swept_after: None })
    }

    /// What `disarm_switch` would do, decided by the same rule on what is in force now. Nothing is written.
    pub async fn would_disarm_switch(
        &self,
        caller: &Caller,
        switch_id: &SwitchId,
        reason: &str,
    ) -> Result<DisarmedSwitch, ApiError> {
        let shared = &self.inner.shared;
        shared.governance.refresh().await;
        let (view, second) = (shared.governance.view(), &self.inner.config.second_identity);
        let disarming =
            switching::disarm(switch_id, reason, operator(caller), &view.state, second, shared.clock.now())?;
        let disarmed = matches!(disarming, Disarming::Disarm { .. });
        Ok(DisarmedSwitch { standing: self.switch(caller, switch_id).await?, disarmed })
    }

    /// Disarms a switch, or asks another identity to.
    pub async fn disarm_switch(
        &self,
        caller: &Caller,
        switch_id: &SwitchId,
        reason: &str,
    ) -> Result<DisarmedSwitch, ApiError> {
        let second = &self.inner.config.second_identity;
        let (disarmed, _) = self
            .act(caller, move |state| async move {
                let now = self.inner.shared.clock.now();
                let subject = Subject::switch(switch_id);
                match switching::disarm(switch_id, reason, operator(caller), &state, second, now)? {
                    Disarming::Waits(_) => Ok(Decided::Nothing(false)),
                    Disarming::Propose { switch, proposal } => {
                        let body = AuditBody {
                            reason: reason.to_owned(),
                            before: recorded(&switch),
                            after: recorded(&switch),
                            details: recorded(&proposal),
                        };
                        let draft = Draft {
                            tenant_id: switch.tenant_id,
                            kind: AuditKind::SwitchDisarmProposed,
                            subject,
                            body,
                            effect: Effect::Change(GovernanceChange::SwitchDisarmProposed(proposal)),
                        };
                        Ok(Decided::Act(Box::new(draft), false))
                    }
                    Disarming::Disarm { switch, confirms } => {
                        let reach = self.inner.ports.acts.reach(&switch, &state.registry).await?;
                        let body = AuditBody {
                            reason: reason.to_owned(),
                            before: recorded(&switch),
                            after: recorded(&KillSwitch { disarmed_at_unix_ms: Some(now), ..switch.clone() }),
                            details: Some(serde_json::json!({
                                "killed": reach.killed, "left": reach.left, "confirms": confirms,
                            })),
                        };
                        let draft = Draft {
                            tenant_id: switch.tenant_id,
                            kind: AuditKind::SwitchDisarmed,
                            subject,
                            body,
                            effect: Effect::Change(GovernanceChange::SwitchDisarmed {
                                switch_id: switch_id.clone(),
                                at_unix_ms: now,
                            }),
                        };
                        Ok(Decided::Act(Box::new(draft), true))
                    }
                }
            })
            .await?;
        Ok(DisarmedSwitch { standing: self.switch(caller, switch_id).await?, disarmed })
    }

    /// One switch, with what it has done.
    pub async fn switch(&self, caller: &Caller, switch_id: &SwitchId) -> Result<SwitchStanding, ApiError> {
        let known = self.switches(caller).await?.into_iter().find(|known| known.switch.switch_id == *switch_id);
        let known = known.ok_or_else(|| SwitchDenial::NoSuchSwitch(switch_id.to_string()))?;
        let effect = self.effect(&known.switch).await?;
        Ok(SwitchStanding { effect: Some(effect), ..known })
    }

    /// The switches the caller may see, in the order they were first armed.
    pub async fn switches(&self, caller: &Caller) -> Result<Vec<SwitchStanding>, ApiError> {
        check_operator(caller)?;
        self.inner.shared.governance.refresh().await;
        let view = self.inner.shared.governance.view();
        let seen = view.state.switches.iter().filter(|switch| switching::may_see_switch(operator(caller), switch));
        Ok(seen.map(|switch| self.standing(switch.clone(), None)).collect())
    }

    /// The governance epoch this node has read: when it moves, something has happened to the rules.
    pub fn governance_epoch(&self) -> u64 {
        self.inner.shared.governance.view().state.epoch
    }

    fn standing(&self, switch: KillSwitch, effect: Option<SwitchEffect>) -> SwitchStanding {
        let now = self.inner.shared.clock.now();
        let view = self.inner.shared.governance.view();
        let open = view.state.proposals.iter().find(|open| open.switch_id == switch.switch_id);
        let state = switching::standing(&switch, now);
        let proposal = open.filter(|open| state == "armed" && now < open.lapses_at_unix_ms).cloned();
        SwitchStanding { switch, state, proposal, effect }
    }

    async fn effect(&self, switch: &KillSwitch) -> Result<SwitchEffect, ApiError> {
        let here = self.reached(switch).await;
        let SwitchReach { killed, left } =
            self.inner.ports.acts.reach(switch, &self.inner.shared.governance.view().state.registry).await?;
        let left = if switch.disarmed_at_unix_ms.is_some() {
            self.left_at_disarming(switch).await?
        } else if switch.scope.is_of_runs() {
            left
        } else {
            here.left
        };
        let nodes = if switch.disarmed_at_unix_ms.is_some() { Vec::new() } else { self.swept_nodes(switch).await? };
        Ok(SwitchEffect { killed, left, calls_out: here.calls_out, nodes })
    }

    async fn swept_nodes(&self, switch: &KillSwitch) -> Result<Vec<SweptNode>, ApiError> {
        let (epoch, armed_at) = self.armed_at(switch).await?;
        let told = self.inner.ports.leases.sweepers(epoch).await?;
        let after = |at: UnixMicros| Duration::from_micros(u64::try_from(at.0 - armed_at.micros().0).unwrap_or(0));
        Ok(told
            .into_iter()
            .map(|NodeSweep { node, name, swept_at }| SweptNode {
                node,
                name,
                swept_at,
                swept_after: swept_at.map(after),
            })
            .collect())
    }

    /// What was recorded when the switch was disarmed.
    async fn left_at_disarming(&self, switch: &KillSwitch) -> Result<u64, ApiError> {
        let last = self.inner.ports.acts.last_act(&Subject::switch(&switch.switch_id)).await?;
        let details = last.and_then(|event| event.said()).and_then(|said| said.details);
        Ok(details.and_then(|details| details.get("left")?.as_u64()).unwrap_or_default())
    }

    /// When a switch that is armed was, and the epoch of that.
    async fn armed_at(&self, switch: &KillSwitch) -> Result<(u64, UnixMs), ApiError> {
        let changes = self.inner.ports.governance.changes(0).await?;
        let armed = changes.iter().rev().find(|known| {
            matches!(&known.change, GovernanceChange::SwitchArmed(armed) if armed.switch_id == switch.switch_id)
        });
        Ok(armed.map_or((0, switch.armed_at_unix_ms), |known| (known.epoch, known.at_unix_ms)))
    }

    /// What the switch has left to do in the runs this node has in hand.
    async fn reached(&self, switch: &KillSwitch) -> Reached {
        let switch = Arc::new(switch.clone());
        let within = Some(Duration::from_secs(5));
        let asked = self.inner.runs.call(|reply| runs::Msg::Reached(switch, reply), within).await;
        match asked {
            Ok(ractor::rpc::CallResult::Success(reached)) => reached,
            // Nobody who could say that nothing is left.
            Ok(ractor::rpc::CallResult::Timeout | ractor::rpc::CallResult::SenderError) | Err(_) => {
                Reached { left: 1, calls_out: 0 }
            }
        }
    }

    /// True once every live node has said that it swept under this epoch.
    async fn all_swept(&self, epoch: u64) -> Result<bool, ApiError> {
        Ok(self.inner.ports.leases.sweepers(epoch).await?.iter().all(|node| node.swept_at.is_some()))
    }

    async fn until_swept(
        &self,
        switch: &KillSwitch,
        epoch: u64,
        began: BootInstant,
    ) -> Result<Option<Duration>, ApiError> {
        let clock = &self.inner.shared.clock;
        let mut look = SWEEP_LOOK;
        let registry = || self.inner.shared.governance.view().state.registry.clone();
        loop {
            let here = self.reached(switch).await;
            let at_rest = if here.left == 0 && here.calls_out == 0 {
                let all_swept = self.all_swept(epoch).await?;
                let at_rest =
                    !switch.scope.is_of_runs() || self.inner.ports.acts.reach(switch, &registry()).await?.left == 0;
                if all_swept && at_rest {
                    return Ok(Some(Duration::from_nanos(clock.boot().0.saturating_sub(began.0))));
                }
                true
            } else {
                false
            };
            if clock.boot().ms_since(began) > SWEEP_WAIT_MS {
                return Ok(None);
            }
            if at_rest {
                let _ = self.inner.sweeps.cast(crate::sweeps::Msg::Look);
            }
            tokio::time::sleep(look).await;
            look = (look * 2).min(SWEEP_LOOK_MAX);
        }
    }
}

/// Rules are shown to operators only.
pub(super) fn check_operator(caller: &Caller) -> Result<(), ApiError> {
    if switching::may_see(operator(caller), Some(&caller.tenant_id)) {
        return Ok(());
    }
    Err(ApiError::OperatorsOnly(caller.actor.role.as_str()))
}
