//! What an operator is shown at a glance (DSH-013).

use serde::Serialize;

use crate::dashboard::RunCounts;
use crate::governance::kill_switch::KillSwitch;
use crate::ids::TenantId;
use crate::time::UnixMs;

/// Counts per bucket and the switches in force, of one tenant or of all.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OperatorSnapshot {
    /// When it was taken.
    pub taken_at_unix_ms: UnixMs,
    /// Whose runs are counted; absent: everybody's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<TenantId>,
    /// One count for each bucket.
    pub counts: RunCounts,
    /// The switches in force that can stop these runs, in the order they were armed.
    pub active_switches: Vec<KillSwitch>,
    /// The epoch of governance that the switches are as of.
    pub governance_epoch: u64,
}

/// The switches that are in force and can stop runs of this tenant, or of any if none is named.
pub fn active_switches<'a>(
    switches: &'a [KillSwitch],
    tenant: Option<&TenantId>,
    now: UnixMs,
) -> impl Iterator<Item = &'a KillSwitch> {
    let concerns = move |switch: &KillSwitch| match (tenant, &switch.tenant_id) {
        (Some(tenant), Some(of)) => tenant == of,
        (None, _) | (_, None) => true,
    };
    switches.iter().filter(move |switch| switch.is_active(now) && concerns(switch))
}
