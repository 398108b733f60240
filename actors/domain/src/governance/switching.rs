//! Arming and disarming (KIL-007): who may do what, and what follows. Disarming is the dangerous act.

use std::collections::BTreeSet;

use crate::catalog;
use crate::governance::change::{DisarmProposal, GovernanceState};
use crate::governance::kill_switch::{KillSwitch, SWITCH_TEXT_BYTES_MAX, SwitchError, SwitchScope};
use crate::identity::{Actor, Role};
use crate::ids::{AgentId, SwitchId, TenantId, ToolId};
use crate::registry::AgentRegistry;
use crate::time::UnixMs;

/// How long a proposal to disarm waits for another identity: an hour.
pub const PROPOSAL_LAPSES_AFTER_MS: i64 = 60 * 60 * 1_000;
/// Most switches that are armed at once, over all tenants: every call is held against each of them.
pub const SWITCHES_ARMED_MAX: usize = 10_000;

/// Whoever manages, as the credential says.
#[derive(Debug, Clone, Copy)]
pub struct Operator<'a> {
    /// The tenant of the credential.
    pub tenant_id: &'a TenantId,
    /// Who, in which standing.
    pub actor: &'a Actor,
}

/// Whose calls a rule concerns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// Those of the caller's tenant; of a switch on a tenant, that tenant's.
    Own,
    /// Those of this tenant.
    Tenant(TenantId),
    /// Everybody's.
    Platform,
}

/// A switch as somebody asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArmSwitch {
    /// Its id; saying it twice under one is harmless.
    pub switch_id: SwitchId,
    /// Whose calls it stops.
    pub reach: Reach,
    /// What kind of thing it stops.
    pub scope: SwitchScope,
    /// Which one; absent for `global`.
    pub target_id: Option<String>,
    /// Why.
    pub reason: String,
    /// What customers read.
    pub user_visible_status_copy: String,
    /// How to degrade gracefully.
    pub safe_degradation_mode_id: Option<String>,
    /// When it ends by itself.
    pub expires_at_unix_ms: Option<UnixMs>,
}

/// Scopes whose switches two identities must disarm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecondIdentity(pub BTreeSet<SwitchScope>);

impl Default for SecondIdentity {
    /// `global` alone (KIL-007).
    fn default() -> Self {
        Self([SwitchScope::Global].into())
    }
}

/// Why a switch is neither armed nor disarmed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SwitchDenial {
    /// It makes no sense.
    #[error(transparent)]
    Senseless(#[from] SwitchError),
    /// The role does not cover the scope, or the tenant is another one.
    #[error("{0}")]
    NotAuthorized(String),
    /// A switch on everything that does not say whose.
    #[error("a `global` switch must say whom it stops: name a tenant, or mark it platform-wide")]
    ReachMissing,
    /// No switch of this id that the caller may see.
    #[error("there is no switch `{0}`")]
    NoSuchSwitch(String),
    /// The id is that of another switch that is armed.
    #[error("the switch `{0}` is armed and says something else; choose another id, or disarm it first")]
    IdTaken(SwitchId),
    /// A tool or an agent that is not there: the switch would stop nothing, and nobody would notice.
    #[error("there is no {0} `{1}`; a switch on it would stop nothing")]
    UnknownTarget(&'static str, String),
    /// It was disarmed before.
    #[error("the switch `{0}` is disarmed already")]
    AlreadyDisarmed(SwitchId),
    /// It has ended by itself.
    #[error("the switch `{0}` has expired; nothing is left to disarm")]
    Expired(SwitchId),
    /// So many are armed that each call would be held against too many.
    #[error("{SWITCHES_ARMED_MAX} switches are armed; disarm some, or arm one of a broader scope")]
    TooMany,
}

impl SwitchDenial {
    /// Stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Senseless(error) => error.code(),
            Self::NotAuthorized(_) => "not-authorized",
            Self::ReachMissing => "switch-reach-missing",
            Self::NoSuchSwitch(_) => "no-such-switch",
            Self::IdTaken(_) => "switch-id-conflict",
            Self::UnknownTarget(..) => "switch-target-unknown",
            Self::AlreadyDisarmed(_) => "switch-already-disarmed",
            Self::Expired(_) => "switch-expired",
            Self::TooMany => "too-many-switches",
        }
    }
}

/// What follows from asking to arm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arming {
    /// It is armed now.
    Arm(KillSwitch),
    /// The same was armed before under this id, and still is.
    Already(KillSwitch),
}

/// What follows from asking to disarm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Disarming {
    /// It is disarmed now.
    Disarm {
        /// As it was.
        switch: KillSwitch,
        /// What the other identity had asked, if two were needed.
        confirms: Option<DisarmProposal>,
    },
    /// Another identity must confirm.
    Propose {
        /// As it is.
        switch: KillSwitch,
        /// What is asked.
        proposal: DisarmProposal,
    },
    /// The same identity has asked before: still another one must confirm.
    Waits(DisarmProposal),
}

/// True if the role may arm and disarm switches of this scope (KIL-007): a platform operator all, a tenant's operator those
/// on a tenant, an agent or a tool, within its tenant.
pub const fn may_switch(role: Role, scope: SwitchScope) -> bool {
    match role {
        Role::PlatformOperator => true,
        Role::TenantOperator => matches!(scope, SwitchScope::Tenant | SwitchScope::Agent | SwitchScope::Tool),
        Role::Customer | Role::Creator | Role::Service => false,
    }
}

/// True if the caller may be shown a rule of this tenant, or of the whole platform. Rules are for operators.
pub fn may_see(by: Operator<'_>, tenant: Option<&TenantId>) -> bool {
    match by.actor.role {
        Role::PlatformOperator => true,
        Role::TenantOperator => tenant.is_none_or(|tenant| tenant == by.tenant_id),
        Role::Customer | Role::Creator | Role::Service => false,
    }
}

/// True if the caller may be shown this switch: one that can stop nothing of its tenant is as absent as none (I11).
pub fn may_see_switch(by: Operator<'_>, switch: &KillSwitch) -> bool {
    let names_another =
        switch.scope == SwitchScope::Tenant && switch.target_id.as_deref() != Some(by.tenant_id.as_str());
    may_see(by, switch.tenant_id.as_ref()) && (by.actor.role == Role::PlatformOperator || !names_another)
}

/// Decides on arming a switch.
pub fn arm(order: ArmSwitch, by: Operator<'_>, state: &GovernanceState, now: UnixMs) -> Result<Arming, SwitchDenial> {
    if !may_switch(by.actor.role, order.scope) {
        return Err(not_of(by.actor.role, order.scope));
    }
    let tenant_id = match order.reach {
        Reach::Platform => None,
        Reach::Tenant(tenant) => Some(tenant),
        Reach::Own if order.scope == SwitchScope::Global => return Err(SwitchDenial::ReachMissing),
        Reach::Own if order.scope == SwitchScope::Tenant => {
            // Whom a switch on a tenant stops, its target says.
            let target = order.target_id.as_deref().unwrap_or_default();
            Some(TenantId::new(target).map_err(|_| SwitchError::BadTarget)?)
        }
        Reach::Own => Some(by.tenant_id.clone()),
    };
    within(by, tenant_id.as_ref()).map_err(outside)?;
    let switch = KillSwitch {
        switch_id: order.switch_id,
        tenant_id,
        scope: order.scope,
        target_id: order.target_id,
        armed_by: by.actor.actor_id.clone(),
        armed_at_unix_ms: now,
        reason: order.reason,
        user_visible_status_copy: order.user_visible_status_copy,
        safe_degradation_mode_id: order.safe_degradation_mode_id,
        expires_at_unix_ms: order.expires_at_unix_ms,
        disarmed_at_unix_ms: None,
    };
    switch.validate()?;
    check_known(&switch, &state.registry)?;
    let known = state.switches.iter().find(|known| known.switch_id == switch.switch_id);
    match known {
        // An id of another tenant's switch is taken, whatever that one says: nothing of it may be replaced or repeated.
        Some(known) if !may_see_switch(by, known) => return Err(SwitchDenial::IdTaken(switch.switch_id)),
        Some(known) if known.is_active(now) && is_same(known, &switch) => return Ok(Arming::Already(known.clone())),
        Some(known) if known.is_active(now) || known.tenant_id != switch.tenant_id => {
            return Err(SwitchDenial::IdTaken(switch.switch_id));
        }
        Some(_) | None => {}
    }
    if state.switches.iter().filter(|known| known.is_active(now)).count() >= SWITCHES_ARMED_MAX {
        return Err(SwitchDenial::TooMany);
    }
    Ok(Arming::Arm(switch))
}

/// Decides on disarming a switch.
pub fn disarm(
    switch_id: &SwitchId,
    reason: &str,
    by: Operator<'_>,
    state: &GovernanceState,
    second: &SecondIdentity,
    now: UnixMs,
) -> Result<Disarming, SwitchDenial> {
    let known = state.switches.iter().find(|known| known.switch_id == *switch_id && may_see_switch(by, known));
    let Some(switch) = known else {
        // Whoever may manage no switch at all learns nothing about which there are.
        return Err(if may_switch(by.actor.role, SwitchScope::Tool) {
            SwitchDenial::NoSuchSwitch(switch_id.to_string())
        } else {
            not_of(by.actor.role, SwitchScope::Tool)
        });
    };
    if !may_switch(by.actor.role, switch.scope) {
        return Err(not_of(by.actor.role, switch.scope));
    }
    within(by, switch.tenant_id.as_ref()).map_err(outside)?;
    if reason.trim().is_empty() {
        return Err(SwitchError::NoReason.into());
    }
    if reason.len() > SWITCH_TEXT_BYTES_MAX {
        return Err(SwitchError::TextTooLong.into());
    }
    if switch.disarmed_at_unix_ms.is_some() {
        return Err(SwitchDenial::AlreadyDisarmed(switch_id.clone()));
    }
    if !switch.is_active(now) {
        return Err(SwitchDenial::Expired(switch_id.clone()));
    }
    if !second.0.contains(&switch.scope) {
        return Ok(Disarming::Disarm { switch: switch.clone(), confirms: None });
    }
    let open = state.proposals.iter().find(|open| open.switch_id == *switch_id && now < open.lapses_at_unix_ms);
    Ok(match open {
        Some(open) if open.proposed_by == by.actor.actor_id => Disarming::Waits(open.clone()),
        Some(open) => Disarming::Disarm { switch: switch.clone(), confirms: Some(open.clone()) },
        None => Disarming::Propose {
            switch: switch.clone(),
            proposal: DisarmProposal {
                switch_id: switch_id.clone(),
                proposed_by: by.actor.actor_id.clone(),
                proposed_at_unix_ms: now,
                lapses_at_unix_ms: now.plus_ms(PROPOSAL_LAPSES_AFTER_MS),
                reason: reason.to_owned(),
            },
        },
    })
}

/// Where a switch stands (KIL-005).
pub fn standing(switch: &KillSwitch, now: UnixMs) -> &'static str {
    if switch.disarmed_at_unix_ms.is_some() {
        "disarmed"
    } else if switch.is_active(now) {
        "armed"
    } else {
        "expired"
    }
}

/// A platform operator may manage every tenant's rules and the platform's, a tenant's operator those of its own. Answers why
/// not, in words.
pub(crate) fn within(by: Operator<'_>, tenant: Option<&TenantId>) -> Result<(), &'static str> {
    match (by.actor.role, tenant) {
        (Role::PlatformOperator, _) => Ok(()),
        (_, Some(tenant)) if tenant == by.tenant_id => Ok(()),
        (_, Some(_)) => Err("another tenant's rules are not yours to change"),
        (_, None) => Err("only a platform operator may change what is platform-wide"),
    }
}

fn outside(why: &'static str) -> SwitchDenial {
    SwitchDenial::NotAuthorized(why.to_owned())
}

fn check_known(switch: &KillSwitch, registry: &AgentRegistry) -> Result<(), SwitchDenial> {
    let target = switch.target_id.as_deref().unwrap_or_default();
    let known = match switch.scope {
        SwitchScope::Tool => ToolId::new(target).is_ok_and(|tool| catalog::entry(&tool).is_some()),
        SwitchScope::Agent => AgentId::new(target).is_ok_and(|agent| registry.knows(switch.tenant_id.as_ref(), &agent)),
        // Tenants, providers and regions are not listed anywhere; families were looked at before.
        SwitchScope::Family
        | SwitchScope::Tenant
        | SwitchScope::Provider
        | SwitchScope::Region
        | SwitchScope::Global => true,
    };
    if known { Ok(()) } else { Err(SwitchDenial::UnknownTarget(switch.scope.as_str(), target.to_owned())) }
}

fn not_of(role: Role, scope: SwitchScope) -> SwitchDenial {
    SwitchDenial::NotAuthorized(format!(
        "a {} may not arm or disarm switches of scope {}",
        role.as_str(),
        scope.as_str()
    ))
}

// When it was armed is no part of what is asked for; who armed it is: another identity's switch is its own. An expiry may be
// asked for as a time or as a length, so either may be the same.
fn is_same(known: &KillSwitch, asked: &KillSwitch) -> bool {
    let lasts = |switch: &KillSwitch| switch.expires_at_unix_ms.map(|end| end.since(switch.armed_at_unix_ms));
    // A length is asked for in whole seconds; the moment a request took on its way is no other length.
    let same_length = match (lasts(known), lasts(asked)) {
        (Some(known), Some(asked)) => known.abs_diff(asked) < 1_000,
        (known, asked) => known == asked,
    };
    let expires_at_unix_ms = if same_length { known.expires_at_unix_ms } else { asked.expires_at_unix_ms };
    *known == KillSwitch { armed_at_unix_ms: known.armed_at_unix_ms, expires_at_unix_ms, ..asked.clone() }
}
