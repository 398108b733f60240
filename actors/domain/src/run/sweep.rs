//! Sweeping: an armed switch ends a matching run at once, also one that asks for nothing (KIL-010).
//!
//! What a run is, its tenant, its lead agent and that one's family, is there as long as the run, so such a switch ends it
//! wherever it stands. What a call is aimed at is there only while the call is out: a run that is idle, or calls something
//! else, stops at its next call of that kind.

use crate::governance::gate::Blame;
use crate::governance::kill_switch::{KillSwitch, blamed};
use crate::run::append::NewEvent;
use crate::run::call::{killed, switch_audit};
use crate::run::envelope::RunEnvelope;
use crate::run::event::RunEvent;
use crate::time::UnixMs;

/// The switch that ends the run although it asks for nothing, if any does: of all that match the run, or a call it has out,
/// the broadest (KIL-002, KIL-004).
pub fn swept_by<'a>(run: &RunEnvelope, switches: &'a [KillSwitch], now: UnixMs) -> Option<&'a KillSwitch> {
    if run.end.is_some() {
        return None;
    }
    let out: Vec<_> = run.open_calls().filter_map(|call| run.target_of(run.plan.step(&call.step_id)?)).collect();
    blamed(switches.iter().filter(|switch| {
        let on_a_call = || out.iter().any(|target| switch.matches(target));
        let family = run.agents.family_of(&run.root_agent_id);
        switch.is_active(now) && (switch.reaches(&run.tenant_id, &run.root_agent_id, family) || on_a_call())
    }))
}

/// The end of a run that a switch sweeps.
pub fn sweep(run: &RunEnvelope, switch: &KillSwitch) -> Vec<NewEvent> {
    if run.end.is_some() {
        return Vec::new();
    }
    let end = killed(run, &Blame::Switch(Box::new(switch.clone())));
    vec![
        NewEvent::system(RunEvent::GovernanceAudited(Box::new(switch_audit(switch)))),
        NewEvent::system(RunEvent::RunFinished(Box::new(end))),
    ]
}
