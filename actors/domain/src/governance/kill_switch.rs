//! Kill switches (KIL): the broadest active one that matches a call is to blame.

use serde::{Deserialize, Serialize};

use crate::ids::{ActorId, SwitchId, TenantId};
use crate::time::UnixMs;

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
