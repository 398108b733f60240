//! Kill switches (KIL): the broadest active one that matches a call is to blame.

use serde::{Deserialize, Serialize};

use crate::governance::target::Target;
use crate::ids::{ActorId, AgentId, ProviderId, RegionId, SwitchId, TenantId, ToolId};
use crate::registry::AGENT_FAMILIES;
use crate::time::UnixMs;

/// Planes that a family switch may name although they are no family (OVL-025).
pub const RESERVED_PLANES: [&str; 3] = ["creative-autonomy", "kernel", "turns"];
/// What a switch may offer in place of a blank failure (KIL-011).
pub const SAFE_DEGRADATION_MODES: [&str; 4] = ["cached-answer", "read-only", "queue-for-later", "human-handover"];
/// What a degradation mode offers: a word for programs and a sentence for people; `None` for a mode that is not known.
pub fn degradation_offer(mode: &str) -> Option<(&'static str, &'static str)> {
    Some(match mode {
        "cached-answer" => ("last-answer", "the last good answer, marked as old"),
        "read-only" => ("look-only", "looking, but nothing that changes anything"),
        "queue-for-later" => ("submit-later", "the request is kept, and done when the switch is gone"),
        "human-handover" => ("person", "a person takes over"),
        _ => return None,
    })
}

/// Most bytes of a reason or of the text shown to customers.
pub const SWITCH_TEXT_BYTES_MAX: usize = 2_000;

/// What a switch stops (KIL-001).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SwitchScope {
    /// One agent.
    Agent,
    /// One family of agents, or a reserved plane (OVL-025).
    Family,
    /// One tenant.
    Tenant,
    /// One provider.
    Provider,
    /// One region.
    Region,
    /// One tool.
    Tool,
    /// Everything.
    Global,
}

impl SwitchScope {
    /// All seven.
    pub const ALL: [Self; 7] =
        [Self::Agent, Self::Family, Self::Tenant, Self::Provider, Self::Region, Self::Tool, Self::Global];

    /// How broad it is; among several the broadest is blamed (KIL-002).
    pub const fn breadth(self) -> u8 {
        match self {
            Self::Global => 6,
            Self::Region => 5,
            Self::Provider => 4,
            Self::Tenant => 3,
            Self::Family => 2,
            Self::Agent => 1,
            Self::Tool => 0,
        }
    }

    /// True for scopes that a run is in by itself, whatever it calls; the others hold for single calls (KIL-010).
    pub const fn is_of_runs(self) -> bool {
        match self {
            Self::Global | Self::Tenant | Self::Family | Self::Agent => true,
            Self::Region | Self::Provider | Self::Tool => false,
        }
    }

    /// The wire string.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Family => "family",
            Self::Tenant => "tenant",
            Self::Provider => "provider",
            Self::Region => "region",
            Self::Tool => "tool",
            Self::Global => "global",
        }
    }
}

/// An armed or formerly armed switch (KIL-005).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KillSwitch {
    /// Names the switch.
    pub switch_id: SwitchId,
    /// Stops only calls of this tenant; absent: of all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<TenantId>,
    /// What kind of thing it stops.
    pub scope: SwitchScope,
    /// Which one; absent for `global`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_id: Option<String>,
    /// Who armed it.
    pub armed_by: ActorId,
    /// When.
    pub armed_at_unix_ms: UnixMs,
    /// Why.
    pub reason: String,
    /// What the customer is shown.
    pub user_visible_status_copy: String,
    /// How to degrade gracefully.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub safe_degradation_mode_id: Option<String>,
    /// When it ends by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at_unix_ms: Option<UnixMs>,
    /// When it was disarmed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disarmed_at_unix_ms: Option<UnixMs>,
}

/// Why a switch makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SwitchError {
    /// A `global` switch that names a target, or another one that names none.
    #[error("`targetId` must name what is stopped, and must be absent for scope `global`")]
    BadTarget,
    /// A family that does not exist.
    #[error("`{0}` is neither an agent family nor one of the planes creative-autonomy, kernel and turns")]
    UnknownFamily(String),
    /// A tenant's switch for another tenant.
    #[error("a switch of one tenant cannot stop another tenant")]
    TwoTenants,
    /// No reason.
    #[error("`reason` is empty; say why the switch is armed")]
    NoReason,
    /// Nothing to show to customers.
    #[error("`userVisibleStatusCopy` is empty; say what customers are to read")]
    NoStatusCopy,
    /// A text that is too long.
    #[error("`reason` and `userVisibleStatusCopy` may have at most {SWITCH_TEXT_BYTES_MAX} bytes each")]
    TextTooLong,
    /// An unknown way to degrade.
    #[error("`{0}` is no degradation mode; use cached-answer, read-only, queue-for-later or human-handover")]
    UnknownDegradationMode(String),
    /// It would end before it begins.
    #[error("`expiresAtUnixMs` lies before the switch is armed")]
    ExpiresTooEarly,
}

impl SwitchError {
    /// Stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::BadTarget => "switch-target-invalid",
            Self::UnknownFamily(_) => "unknown-family",
            Self::TwoTenants => "switch-two-tenants",
            Self::NoReason => "reason-required",
            Self::NoStatusCopy => "status-copy-required",
            Self::TextTooLong => "switch-text-too-long",
            Self::UnknownDegradationMode(_) => "unknown-degradation-mode",
            Self::ExpiresTooEarly => "switch-expires-too-early",
        }
    }
}

impl KillSwitch {
    /// Checks that the switch makes sense before it is armed.
    ///
    /// # Errors
    /// The first thing that does not.
    pub fn validate(&self) -> Result<(), SwitchError> {
        let quoted = |text: &str| text.chars().take(64).collect::<String>();
        let well_formed = |id: &str| match self.scope {
            SwitchScope::Agent => AgentId::new(id).is_ok(),
            SwitchScope::Tenant => TenantId::new(id).is_ok(),
            SwitchScope::Provider => ProviderId::new(id).is_ok(),
            SwitchScope::Region => RegionId::new(id).is_ok(),
            SwitchScope::Tool => ToolId::new(id).is_ok(),
            SwitchScope::Family | SwitchScope::Global => true,
        };
        match (self.scope, self.target_id.as_deref()) {
            (SwitchScope::Global, None) => {}
            (SwitchScope::Family, Some(id)) if !AGENT_FAMILIES.contains(&id) && !RESERVED_PLANES.contains(&id) => {
                return Err(SwitchError::UnknownFamily(quoted(id)));
            }
            (SwitchScope::Tenant, Some(id)) if self.tenant_id.as_ref().is_some_and(|tenant| tenant.as_str() != id) => {
                return Err(SwitchError::TwoTenants);
            }
            (SwitchScope::Global, Some(_)) | (_, None) => return Err(SwitchError::BadTarget),
            (_, Some(id)) if !well_formed(id) => return Err(SwitchError::BadTarget),
            (_, Some(_)) => {}
        }
        if self.reason.trim().is_empty() {
            return Err(SwitchError::NoReason);
        }
        if self.user_visible_status_copy.trim().is_empty() {
            return Err(SwitchError::NoStatusCopy);
        }
        if self.reason.len().max(self.user_visible_status_copy.len()) > SWITCH_TEXT_BYTES_MAX {
            return Err(SwitchError::TextTooLong);
        }
        match self.safe_degradation_mode_id.as_deref() {
            Some(mode) if !SAFE_DEGRADATION_MODES.contains(&mode) => {
                return Err(SwitchError::UnknownDegradationMode(quoted(mode)));
            }
            Some(_) | None => {}
        }
        if self.expires_at_unix_ms.is_some_and(|end| end <= self.armed_at_unix_ms) {
            return Err(SwitchError::ExpiresTooEarly);
        }
        Ok(())
    }

    /// Neither disarmed nor expired (KIL-005). A switch that lies in the store is in force, whatever this machine's
    /// clock says about when it was armed.
    pub fn is_active(&self, now: UnixMs) -> bool {
        self.disarmed_at_unix_ms.is_none() && self.expires_at_unix_ms.is_none_or(|end| now < end)
    }

    /// True if it stops runs of this tenant and lead agent, which is of this family, whatever they call, as long as it is
    /// active (KIL-010).
    pub fn reaches(&self, tenant: &TenantId, root_agent: &AgentId, family: Option<&str>) -> bool {
        if self.tenant_id.as_ref().is_some_and(|own| own != tenant) {
            return false;
        }
        let names = |id: Option<&str>| id.is_some() && id == self.target_id.as_deref();
        match self.scope {
            SwitchScope::Global => true,
            SwitchScope::Tenant => names(Some(tenant.as_str())),
            SwitchScope::Family => names(family),
            SwitchScope::Agent => names(Some(root_agent.as_str())),
            SwitchScope::Region | SwitchScope::Provider | SwitchScope::Tool => false,
        }
    }

    /// The same where nobody can say which family the agent is of: then a switch on a family may reach the run, and the run
    /// itself knows.
    pub fn may_reach(&self, tenant: &TenantId, root_agent: &AgentId) -> bool {
        let family = crate::registry::family_of(root_agent);
        let unknown = family.is_none() && self.scope == SwitchScope::Family;
        self.reaches(tenant, root_agent, family.or(self.target_id.as_deref().filter(|_| unknown)))
    }

    /// True if it stops calls with this target, as long as it is active.
    pub fn matches(&self, target: &Target) -> bool {
        if self.tenant_id.as_ref().is_some_and(|tenant| tenant != &target.tenant_id) {
            return false;
        }
        let names = |id: Option<&str>| id.is_some() && id == self.target_id.as_deref();
        match self.scope {
            SwitchScope::Global => true,
            SwitchScope::Agent => names(Some(target.agent_id.as_str())),
            SwitchScope::Family => names(target.family.as_deref()),
            SwitchScope::Tenant => names(Some(target.tenant_id.as_str())),
            SwitchScope::Provider => names(target.provider_id.as_ref().map(ProviderId::as_str)),
            SwitchScope::Region => names(target.region.as_ref().map(RegionId::as_str)),
            SwitchScope::Tool => names(Some(target.tool_id.as_str())),
        }
    }
}

/// The switch that stops a call, if any does (KIL-002, KIL-004).
pub fn decide_execution<'a>(switches: &'a [KillSwitch], target: &Target, now: UnixMs) -> Option<&'a KillSwitch> {
    blamed(switches.iter().filter(|switch| switch.is_active(now) && switch.matches(target)))
}

/// Which of several switches that all match is to blame: the broadest, among equals the earliest armed, then the smallest
/// id (KIL-002, KIL-004).
pub fn blamed<'a>(matching: impl Iterator<Item = &'a KillSwitch>) -> Option<&'a KillSwitch> {
    matching.min_by(|a, b| {
        (b.scope.breadth().cmp(&a.scope.breadth()))
            .then_with(|| a.armed_at_unix_ms.cmp(&b.armed_at_unix_ms))
            .then_with(|| a.switch_id.cmp(&b.switch_id))
    })
}
