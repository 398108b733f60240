//! Rollouts: one version of an agent is tried against the one in use, and replaces it only if it does better (FBK-010 to
//! FBK-012).
//!
//! ```text
//!            freeze                promote (challenger-ready)
//!   frozen <--------> live ----------------------------------> promoted <------> frozen
//!      |    unfreeze    |                                          |
//!      +------ end -----+--> ended                                 +-- rollback --> rolled-back
//! ```
//!
//! A rollout is one value of the governance log; each act sets it anew, and with a promotion or a rollback moves the agent's
//! versions in the same entry (REG-037).

use serde::{Deserialize, Serialize};

use crate::feedback::readiness::ReadinessVerdict;
use crate::feedback::routing::RolloutArm;
use crate::governance::budgeting::Expected;
use crate::governance::kill_switch::SWITCH_TEXT_BYTES_MAX;
use crate::governance::switching::{self, Operator};
use crate::ids::{ActorId, AgentId, RolloutId, TenantId};
use crate::quantity::Micros;
use crate::registry::{AgentLifecycle, AgentRegistry, TenantScope};
use crate::time::UnixMs;

/// The largest share of users a canary may have: half (FBK-008).
pub const CANARY_FRACTION_MAX: Micros = Micros(500_000);
/// Most rollouts that are kept, the finished ones too: each node holds them all.
pub const ROLLOUTS_MAX: usize = 10_000;

/// The transitions of a rollout (FBK-010).
pub const ROLLOUT_TRANSITIONS: [RolloutTransition; 3] = [
    RolloutTransition::PromoteChallengerToChampion,
    RolloutTransition::FreezeRollout,
    RolloutTransition::RollbackToPriorChampion,
];

/// What becomes of a rollout (FBK-010).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RolloutTransition {
    /// The challenger becomes champion.
    PromoteChallengerToChampion,
    /// Everything goes to the champion, and nothing is decided for now.
    FreezeRollout,
    /// The champion from before the promotion is champion again.
    RollbackToPriorChampion,
}

impl RolloutTransition {
    /// The wire string.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PromoteChallengerToChampion => "promote-challenger-to-champion",
            Self::FreezeRollout => "freeze-rollout",
            Self::RollbackToPriorChampion => "rollback-to-prior-champion",
        }
    }

    /// The transition with this wire string.
    pub fn parse(text: &str) -> Option<Self> {
        ROLLOUT_TRANSITIONS.into_iter().find(|transition| transition.as_str() == text)
    }
}

/// How the new version is tried (FBK-007).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum RolloutMode {
    /// It works beside the champion, and its answer reaches nobody.
    Shadow,
    /// A share of the users gets it.
    Canary,
}

impl RolloutMode {
    /// The wire string.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Shadow => "shadow",
            Self::Canary => "canary",
        }
    }
}

/// Where a rollout stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RolloutState {
    /// Runs are routed and counted.
    Live,
    /// Everything goes to the champion until an operator says otherwise.
    Frozen,
    /// The challenger is champion.
    Promoted,
    /// It was, and the champion from before is champion again.
    RolledBack,
    /// Given up without a promotion.
    Ended,
}

impl RolloutState {
    /// The wire string.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Frozen => "frozen",
            Self::Promoted => "promoted",
            Self::RolledBack => "rolled-back",
            Self::Ended => "ended",
        }
    }
}

/// One comparison of two versions of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rollout {
    /// Names it.
    pub rollout_id: RolloutId,
    /// Only runs of this tenant are routed; absent: those of all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<TenantId>,
    /// The agent.
    pub agent_id: AgentId,
    /// The version in use when it began.
    pub champion_semver: String,
    /// The version that is tried.
    pub challenger_semver: String,
    /// How.
    pub mode: RolloutMode,
    /// The share of users that get the challenger; 0 in mode `shadow`.
    pub canary_fraction: Micros,
    /// Where it stands.
    pub state: RolloutState,
    /// The version that the promotion has replaced, for the way back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prior_champion: Option<String>,
    /// Who began it.
    pub started_by: ActorId,
    /// When.
    pub started_at_unix_ms: UnixMs,
    /// When it came to where it stands.
    pub changed_at_unix_ms: UnixMs,
    /// Why it stands there, in the words of whoever brought it there.
    pub reason: String,
}

impl Rollout {
    /// The version of a side.
    pub fn semver_of(&self, arm: RolloutArm) -> &str {
        match arm {
            RolloutArm::Champion => &self.champion_semver,
            RolloutArm::Challenger => &self.challenger_semver,
        }
    }

    /// True while no other rollout may try a version of its agent.
    pub const fn is_open(&self) -> bool {
        matches!(self.state, RolloutState::Live | RolloutState::Frozen)
    }

    fn moved(&self, state: RolloutState, reason: &str, now: UnixMs) -> Self {
        Self { state, reason: reason.to_owned(), changed_at_unix_ms: now, ..self.clone() }
    }
}

/// A rollout as somebody asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartRollout {
    /// Its id.
    pub rollout_id: RolloutId,
    /// Whose runs it routes; absent: everybody's.
    pub tenant_id: Option<TenantId>,
    /// The agent.
    pub agent_id: AgentId,
    /// The version in use.
    pub champion_semver: String,
    /// The version to be tried.
    pub challenger_semver: String,
    /// How.
    pub mode: RolloutMode,
    /// The share of users, from 0 to 0.5; 0 in mode `shadow`.
    pub canary_fraction: Micros,
    /// Why.
    pub reason: String,
}

/// Two versions that change places (REG-037).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Succession {
    /// Becomes champion.
    pub champion: String,
    /// Becomes deprecated.
    pub deprecated: String,
}

/// Why a rollout is not begun or not moved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RolloutDenial {
    /// The role does not cover it, or the tenant is another one.
    #[error("{0}")]
    NotAuthorized(String),
    /// No rollout of this id that the caller may see.
    #[error("there is no rollout `{0}`")]
    NoSuchRollout(String),
    /// The id is taken.
    #[error("the id `{0}` belongs to another rollout; choose another id")]
    IdTaken(RolloutId),
    /// The agent is being tried already.
    #[error("the rollout `{0}` of this agent is open; promote, roll back or end it first")]
    Exists(RolloutId),
    /// Both sides are one.
    #[error("champion and challenger are both version {0}; name two versions")]
    SameArms(String),
    /// No such agent, or no such version of it.
    #[error("there is no version {semver} of the agent `{agent}`; register it first")]
    UnknownVersion {
        /// The agent.
        agent: AgentId,
        /// The version.
        semver: String,
    },
    /// A version that does not stand where the rollout needs it.
    #[error("version {semver} is `{}`, and the {side} of a {} rollout must be {needed}", .stands.as_str(), .mode.as_str())]
    WrongLifecycle {
        /// The version.
        semver: String,
        /// Where it stands.
        stands: AgentLifecycle,
        /// Which side it was to be.
        side: &'static str,
        /// How it was to be tried.
        mode: RolloutMode,
        /// What would be right.
        needed: &'static str,
    },
    /// A share that is none.
    #[error("`canaryFraction` is {0}; it is a decimal from 0 to 0.5 with at most six places, and 0 in mode shadow")]
    BadFraction(Micros),
    /// No reason, or one that is too long.
    #[error("`reason` must say why, in at most {SWITCH_TEXT_BYTES_MAX} bytes")]
    BadReason,
    /// The agent has another champion than the one that was compared.
    #[error("version {expected} is not the agent's champion any more, so there is nothing to compare; end the rollout")]
    ChampionChanged {
        /// The version that was.
        expected: String,
    },
    /// So many are kept.
    #[error("{ROLLOUTS_MAX} rollouts are kept, and no more can be begun")]
    TooMany,
    /// The challenger has not shown that it does better (FBK-011).
    #[error("the challenger is not ready: {}; a promotion needs `challenger-ready`", .0.as_str())]
    ReadinessRequired(ReadinessVerdict),
    /// No promotion, so no way back (FBK-012).
    #[error("the rollout has promoted nothing, so there is no champion to go back to; end it instead")]
    NoPriorChampion,
    /// Everything but a rollback waits for an operator to unfreeze it (FBK-012).
    #[error("the rollout is frozen; it can be unfrozen, rolled back or ended")]
    Frozen,
    /// It does not stand where that can be done.
    #[error("the rollout is `{}`; that cannot be done from there", .0.as_str())]
    WrongState(RolloutState),
    /// Somebody else has changed it since.
    #[error("the rollout is at revision {actual}, and you have seen {expected}; look at it again")]
    StaleRevision {
        /// What the caller has seen.
        expected: u64,
        /// What it is.
        actual: u64,
    },
}

impl RolloutDenial {
    /// Stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NotAuthorized(_) => "not-authorized",
            Self::NoSuchRollout(_) => "no-such-rollout",
            Self::IdTaken(_) => "rollout-id-conflict",
            Self::Exists(_) => "rollout-exists",
            Self::SameArms(_) => "rollout-same-arms",
            Self::UnknownVersion { .. } => "agent-version-unknown",
            Self::WrongLifecycle { .. } => "rollout-lifecycle-mismatch",
            Self::BadFraction(_) => "canary-fraction-invalid",
            Self::BadReason => "reason-required",
            Self::ChampionChanged { .. } => "rollout-champion-changed",
            Self::TooMany => "too-many-rollouts",
            Self::ReadinessRequired(_) => "readiness-required",
            Self::NoPriorChampion => "no-prior-champion",
            Self::Frozen => "rollout-frozen",
            Self::WrongState(_) => "rollout-state-invalid",
            Self::StaleRevision { .. } => "stale-revision",
        }
    }
}

/// True if the caller may be shown a rollout. Another tenant's is as absent as none (I11).
pub fn may_see(by: Operator<'_>, rollout: &Rollout) -> bool {
    switching::may_see(by, rollout.tenant_id.as_ref())
}

/// Whose agent a rollout is about: the tenant's own, or else the platform's.
pub fn scope_of(tenant: Option<&TenantId>, agent: &AgentId, registry: &AgentRegistry) -> TenantScope {
    let own = tenant.map(|tenant| TenantScope::Tenant(tenant.clone()));
    own.filter(|own| !registry.versions(own, agent).is_empty()).unwrap_or(TenantScope::Platform)
}

/// Whether the caller may change which version of an agent is the champion: whoever it is shown to is given it, so the platform's
/// agents are for the platform's operators.
///
/// # Errors
/// Somebody else's agent.
pub fn may_succeed(by: Operator<'_>, scope: &TenantScope) -> Result<(), RolloutDenial> {
    may_change(by, scope.tenant_id())
}

/// Decides on beginning a rollout. `rollouts` are all that are known; `stands` says where a version of an agent stands, as far
/// as runs of the rollout's tenants can have it.
///
/// # Errors
/// Whatever is wrong with the wish; nothing is begun.
pub fn start(
    wish: StartRollout,
    by: Operator<'_>,
    rollouts: &[Rollout],
    stands: impl Fn(&AgentId, &str) -> Option<AgentLifecycle>,
    now: UnixMs,
) -> Result<Rollout, RolloutDenial> {
    may_change(by, wish.tenant_id.as_ref())?;
    check_reason(&wish.reason)?;
    let fraction_max = match wish.mode {
        RolloutMode::Canary => CANARY_FRACTION_MAX,
        RolloutMode::Shadow => Micros::ZERO,
    };
    if wish.canary_fraction < Micros::ZERO || wish.canary_fraction > fraction_max {
        return Err(RolloutDenial::BadFraction(wish.canary_fraction));
    }
    if wish.champion_semver == wish.challenger_semver {
        return Err(RolloutDenial::SameArms(wish.champion_semver));
    }
    check_stands(&wish, &wish.champion_semver, RolloutArm::Champion, &stands)?;
    check_stands(&wish, &wish.challenger_semver, RolloutArm::Challenger, &stands)?;
    if rollouts.iter().any(|known| known.rollout_id == wish.rollout_id) {
        return Err(RolloutDenial::IdTaken(wish.rollout_id));
    }
    let meets = |known: &&Rollout| {
        let apart = matches!((&known.tenant_id, &wish.tenant_id), (Some(one), Some(other)) if one != other);
        known.is_open() && known.agent_id == wish.agent_id && !apart
    };
    if let Some(open) = rollouts.iter().find(meets) {
        return Err(RolloutDenial::Exists(open.rollout_id.clone()));
    }
    if rollouts.len() >= ROLLOUTS_MAX {
        return Err(RolloutDenial::TooMany);
    }
    Ok(Rollout {
        rollout_id: wish.rollout_id,
        tenant_id: wish.tenant_id,
        agent_id: wish.agent_id,
        champion_semver: wish.champion_semver,
        challenger_semver: wish.challenger_semver,
        mode: wish.mode,
        canary_fraction: wish.canary_fraction,
        state: RolloutState::Live,
        prior_champion: None,
        started_by: by.actor.actor_id.clone(),
        started_at_unix_ms: now,
        changed_at_unix_ms: now,
        reason: wish.reason,
    })
}

/// An act on a rollout that is there.
#[derive(Debug, Clone, Copy)]
pub struct OnRollout<'a> {
    /// The rollout as it stands.
    pub rollout: &'a Rollout,
    /// The last act on it.
    pub revision: u64,
    /// The revision the caller has seen.
    pub expected: Expected,
    /// Who acts.
    pub by: Operator<'a>,
    /// Why.
    pub reason: &'a str,
    /// Now.
    pub now: UnixMs,
}

impl OnRollout<'_> {
    fn check(&self) -> Result<(), RolloutDenial> {
        may_change(self.by, self.rollout.tenant_id.as_ref())?;
        check_reason(self.reason)?;
        match self.expected {
            Expected::Revision(seen) if seen != self.revision => {
                Err(RolloutDenial::StaleRevision { expected: seen, actual: self.revision })
            }
            Expected::Any | Expected::None | Expected::Revision(_) => Ok(()),
        }
    }

    fn to(&self, state: RolloutState) -> Rollout {
        self.rollout.moved(state, self.reason, self.now)
    }
}

/// Decides on making the challenger champion (FBK-011).
///
/// # Errors
/// A verdict other than `challenger-ready`, and a rollout that is not live.
pub fn promote(act: OnRollout<'_>, verdict: ReadinessVerdict) -> Result<(Rollout, Succession), RolloutDenial> {
    act.check()?;
    match act.rollout.state {
        RolloutState::Live => {}
        RolloutState::Frozen => return Err(RolloutDenial::Frozen),
        state @ (RolloutState::Promoted | RolloutState::RolledBack | RolloutState::Ended) => {
            return Err(RolloutDenial::WrongState(state));
        }
    }
    if verdict != ReadinessVerdict::ChallengerReady {
        return Err(RolloutDenial::ReadinessRequired(verdict));
    }
    let Rollout { champion_semver, challenger_semver, .. } = act.rollout;
    let rollout = Rollout { prior_champion: Some(champion_semver.clone()), ..act.to(RolloutState::Promoted) };
    Ok((rollout, Succession { champion: challenger_semver.clone(), deprecated: champion_semver.clone() }))
}

/// Decides on freezing a rollout (FBK-012): one that is live, or one whose promotion is in doubt.
///
/// # Errors
/// A rollout that is frozen already, or over.
pub fn freeze(act: OnRollout<'_>) -> Result<Rollout, RolloutDenial> {
    act.check()?;
    match act.rollout.state {
        RolloutState::Live | RolloutState::Promoted => Ok(act.to(RolloutState::Frozen)),
        RolloutState::Frozen => Err(RolloutDenial::Frozen),
        state @ (RolloutState::RolledBack | RolloutState::Ended) => Err(RolloutDenial::WrongState(state)),
    }
}

/// Decides on letting a frozen rollout go on from where it was.
///
/// # Errors
/// A rollout that is not frozen.
pub fn unfreeze(act: OnRollout<'_>) -> Result<Rollout, RolloutDenial> {
    act.check()?;
    match (act.rollout.state, &act.rollout.prior_champion) {
        (RolloutState::Frozen, None) => Ok(act.to(RolloutState::Live)),
        (RolloutState::Frozen, Some(_)) => Ok(act.to(RolloutState::Promoted)),
        (state, _) => Err(RolloutDenial::WrongState(state)),
    }
}

/// Decides on going back to the champion from before the promotion, also of a frozen rollout (FBK-012).
///
/// # Errors
/// A rollout that has promoted nothing, or is over.
pub fn rollback(act: OnRollout<'_>) -> Result<(Rollout, Succession), RolloutDenial> {
    act.check()?;
    match (act.rollout.state, &act.rollout.prior_champion) {
        (state @ (RolloutState::RolledBack | RolloutState::Ended), _) => Err(RolloutDenial::WrongState(state)),
        (_, None) => Err(RolloutDenial::NoPriorChampion),
        (_, Some(prior)) => {
            let succession = Succession { champion: prior.clone(), deprecated: act.rollout.challenger_semver.clone() };
            Ok((act.to(RolloutState::RolledBack), succession))
        }
    }
}

/// Decides on giving a rollout up that has promoted nothing. Everything goes to the champion, as while it is frozen.
///
/// # Errors
/// A rollout that has promoted, or is over.
pub fn end(act: OnRollout<'_>) -> Result<Rollout, RolloutDenial> {
    act.check()?;
    match (act.rollout.state, &act.rollout.prior_champion) {
        (RolloutState::Live | RolloutState::Frozen, None) => Ok(act.to(RolloutState::Ended)),
        (state, _) => Err(RolloutDenial::WrongState(state)),
    }
}

fn may_change(by: Operator<'_>, tenant: Option<&TenantId>) -> Result<(), RolloutDenial> {
    if !switching::may_see(by, Some(by.tenant_id)) {
        let role = by.actor.role.as_str();
        return Err(RolloutDenial::NotAuthorized(format!("a {role} may not manage rollouts; they are for operators")));
    }
    switching::within(by, tenant).map_err(|why| RolloutDenial::NotAuthorized(why.to_owned()))
}

fn check_reason(reason: &str) -> Result<(), RolloutDenial> {
    if reason.trim().is_empty() || reason.len() > SWITCH_TEXT_BYTES_MAX {
        return Err(RolloutDenial::BadReason);
    }
    Ok(())
}

fn check_stands(
    wish: &StartRollout,
    semver: &str,
    side: RolloutArm,
    stands: &impl Fn(&AgentId, &str) -> Option<AgentLifecycle>,
) -> Result<(), RolloutDenial> {
    let Some(there) = stands(&wish.agent_id, semver) else {
        return Err(RolloutDenial::UnknownVersion { agent: wish.agent_id.clone(), semver: semver.to_owned() });
    };
    let (fits, needed) = match (side, wish.mode) {
        (RolloutArm::Champion, _) => (there == AgentLifecycle::Champion, "`champion`"),
        (RolloutArm::Challenger, RolloutMode::Canary) => (there == AgentLifecycle::Challenger, "`challenger`"),
        (RolloutArm::Challenger, RolloutMode::Shadow) => {
            (matches!(there, AgentLifecycle::Challenger | AgentLifecycle::Shadow), "`shadow` or `challenger`")
        }
    };
    if fits {
        return Ok(());
    }
    let semver = semver.to_owned();
    Err(RolloutDenial::WrongLifecycle { semver, stands: there, side: side.as_str(), mode: wish.mode, needed })
}
