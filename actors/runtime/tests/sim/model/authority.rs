//! Switches and grants: what may be admitted at all (I5).
//!
//! Whether one has expired is read off the clocks of several machines, so only what is certain counts: a switch binds until
//! the first clock has passed its end, and a grant is void a minute after the last one has.

use std::collections::BTreeMap;

use signalbox_domain::governance::change::GovernanceChange;
use signalbox_domain::governance::grant::{Grant, GrantScope};
use signalbox_domain::governance::kill_switch::{KillSwitch, SwitchScope};
use signalbox_domain::governance::target::Target;
use signalbox_domain::ids::{GrantId, SwitchId};
use signalbox_domain::run::event::CallPending;
use signalbox_domain::time::UnixMs;

use super::RunModel;

type Said = Vec<(&'static str, String)>;

/// How long after its end a grant is void whatever happened to the clocks.
const CERTAIN_AFTER_MS: u64 = 60_000;

#[derive(Default)]
pub(crate) struct Authority {
    switches: BTreeMap<SwitchId, Armed>,
    grants: BTreeMap<GrantId, Issued>,
}

struct Armed {
    switch: KillSwitch,
    binds: bool,
}

struct Issued {
    grant: Grant,
    revoked: bool,
    over_since: Option<u64>,
}

/// True if the switch stops calls of this target.
fn stops(switch: &KillSwitch, target: &Target) -> bool {
    let named = switch.target_id.as_deref();
    switch.tenant_id.as_ref().is_none_or(|tenant| *tenant == target.tenant_id)
        && match switch.scope {
            SwitchScope::Global => true,
            SwitchScope::Tenant => named == Some(target.tenant_id.as_str()),
            SwitchScope::Tool => named == Some(target.tool_id.as_str()),
            SwitchScope::Agent => named == Some(target.agent_id.as_str()),
            SwitchScope::Family => named == target.agent_id.as_str().strip_prefix("ref."),
            SwitchScope::Provider | SwitchScope::Region => false,
        }
}

impl Authority {
    pub(crate) fn changed(&mut self, change: &GovernanceChange) {
        match change {
            GovernanceChange::SwitchArmed(switch) => {
                let armed = Armed { switch: switch.clone(), binds: true };
                self.switches.insert(switch.switch_id.clone(), armed);
            }
            GovernanceChange::SwitchDisarmed { switch_id, .. } => {
                self.switches.remove(switch_id);
            }
            GovernanceChange::GrantIssued(grant) => {
                let issued = Issued { grant: grant.clone(), revoked: false, over_since: None };
                self.grants.insert(grant.grant_id.clone(), issued);
            }
            GovernanceChange::GrantRevoked { grant_id, .. } => {
                if let Some(issued) = self.grants.get_mut(grant_id) {
                    issued.revoked = true;
                }
            }
            GovernanceChange::ThrottlesSet(_)
            | GovernanceChange::ThrottleSet(_)
            | GovernanceChange::ThrottleRemoved { .. }
            | GovernanceChange::BudgetOpened(_)
            | GovernanceChange::SwitchDisarmProposed(_)
            | GovernanceChange::WebhookPut(_)
            | GovernanceChange::WebhookRemoved { .. }
            | GovernanceChange::SchedulePut(_)
            | GovernanceChange::ScheduleRemoved { .. }
            | GovernanceChange::AgentPublished(_)
            | GovernanceChange::AgentMoved(_)
            | GovernanceChange::ExecutorRegistered(_)
            | GovernanceChange::PipelineCustomized(_)
            | GovernanceChange::RolloutSet { .. }
            | GovernanceChange::ExecutorRetired { .. } => {}
        }
    }

    pub(crate) fn tick(&mut self, earliest: UnixMs, latest: UnixMs, boot_ms: u64) {
        for armed in self.switches.values_mut() {
            armed.binds &= armed.switch.expires_at_unix_ms.is_none_or(|end| latest < end);
        }
        for issued in self.grants.values_mut() {
            let over = issued.grant.expires_at_unix_ms.is_some_and(|end| earliest >= end);
            issued.over_since = if over { issued.over_since.or(Some(boot_ms)) } else { None };
        }
    }

    pub(crate) fn armed(&self) -> Vec<SwitchId> {
        self.switches.keys().cloned().collect()
    }

    pub(crate) fn issued(&self) -> Vec<GrantId> {
        self.grants.iter().filter(|(_, issued)| !issued.revoked).map(|(id, _)| id.clone()).collect()
    }

    /// A call was admitted, or admitted again.
    pub(crate) fn admitted(&self, target: &Target) -> Said {
        let against = self.switches.values().filter(|armed| armed.binds && stops(&armed.switch, target));
        against.map(|armed| ("I5", format!("admitted although switch {} is armed", armed.switch.switch_id))).collect()
    }

    /// The grant a call was admitted under is there, live, and meant for it.
    pub(crate) fn granted(&self, run: &RunModel, pending: &CallPending, target: &Target, boot_ms: u64) -> Said {
        let id = &pending.grant_id;
        let own = run.submitted.grants.iter().find(|grant| grant.grant_id == *id);
        let shared = self.grants.get(id);
        let Some(grant) = own.or(shared.map(|issued| &issued.grant)) else {
            return vec![("grant", format!("admitted under grant {id}, which nobody issued"))];
        };
        let mut said = Said::new();
        let fits = grant.tool_id == target.tool_id
            && grant.tenant_id == target.tenant_id
            && match grant.scope {
                GrantScope::PerRun => grant.scope_key == target.run_id.to_string(),
                GrantScope::PerTenant => grant.scope_key == target.tenant_id.as_str(),
                GrantScope::PerUser => grant.scope_key == target.user_id.as_str(),
                GrantScope::PerSession | GrantScope::PerPipelineInstance => false,
            };
        if !fits {
            said.push(("grant", format!("admitted under grant {id}, which is not meant for it")));
        }
        if own.is_none() && shared.is_some_and(|issued| issued.revoked) {
            said.push(("grant", format!("admitted under grant {id}, which is revoked")));
        }
        let over = |since: u64| boot_ms > since + CERTAIN_AFTER_MS;
        if shared.and_then(|issued| issued.over_since).is_some_and(over) {
            said.push(("grant", format!("admitted under grant {id}, which has expired")));
        }
        let used = run.uses_of(id);
        if grant.constraints.max_calls.is_some_and(|max| used > max) {
            said.push(("grant", format!("grant {id} is used {used} times")));
        }
        said
    }
}
