//! Governance changes: what moves the epoch, and whether a change can concern a call.

use serde::{Deserialize, Serialize};

use crate::governance::grant::Grant;
use crate::governance::kill_switch::KillSwitch;
use crate::governance::throttle::BucketRule;
use crate::ids::{GrantId, SwitchId};
use crate::time::UnixMs;

/// One change, in the order of epochs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", content = "body", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum GovernanceChange {
    /// A switch was armed.
    SwitchArmed(KillSwitch),
    /// A switch was disarmed.
    SwitchDisarmed {
        /// Which.
        switch_id: SwitchId,
        /// When.
        at_unix_ms: UnixMs,
    },
    /// A shared grant was issued.
    GrantIssued(Grant),
    /// A shared grant was revoked.
    GrantRevoked {
        /// Which.
        grant_id: GrantId,
        /// When.
        at_unix_ms: UnixMs,
    },
    /// The rules of all buckets were set.
    ThrottlesSet(Vec<BucketRule>),
}

/// A change with the epoch it made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EpochChange {
    /// From 1, without gaps.
    pub epoch: u64,
    /// When it was committed, by the store's clock.
    pub at_unix_ms: UnixMs,
    /// What changed.
    pub change: GovernanceChange,
}
