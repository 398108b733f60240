//! Armed switches on their way through the parked runs.

use std::ops::Bound;

use signalbox_domain::governance::change::GovernanceChange;
use signalbox_domain::time::UnixMs;

use super::{State, Sweep};
use crate::leases::Swept;

impl State {
    /// What a governance change means for the sweeps: arming begins one, disarming stops it.
    pub(super) fn follow(&mut self, change: &GovernanceChange) {
        match change {
            GovernanceChange::SwitchArmed(switch) => {
                self.sweeps.retain(|sweep| sweep.switch.switch_id != switch.switch_id);
                if switch.scope.is_of_runs() {
                    self.sweeps.push(Sweep { switch: switch.clone(), after: None });
                }
            }
            GovernanceChange::SwitchDisarmed { switch_id, .. } => {
                self.sweeps.retain(|sweep| sweep.switch.switch_id != *switch_id);
            }
            GovernanceChange::GrantIssued(_)
            | GovernanceChange::GrantRevoked { .. }
            | GovernanceChange::ThrottlesSet(_)
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

    pub(super) fn sweep(&mut self, limit: usize, now: UnixMs) -> Option<Swept> {
        let Self { sweeps, runs, .. } = self;
        let sweep = sweeps.first_mut()?;
        let switch_id = sweep.switch.switch_id.clone();
        let mut swept = Swept { switch_id, woken: 0, over: !sweep.switch.is_active(now) };
        if !swept.over {
            let behind = (sweep.after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
            let parked =
                runs.range_mut(behind).filter(|(_, run)| run.parked && run.head.owner.is_none() && !run.head.closed);
            let mut seen = 0;
            for (key, run) in parked.take(limit) {
                seen += 1;
                sweep.after = Some(*key);
                if sweep.switch.may_reach(&run.head.tenant_id, &run.root_agent_id) {
                    run.parked = false;
                    swept.woken += 1;
                }
            }
            swept.over = seen < limit;
        }
        if swept.over {
            sweeps.remove(0);
        }
        Some(swept)
    }
}
