//! The two bounds of a grant at a hand-off: a sub-run uses what its holder may hand on, and of that what was delegated.
//!
//! A grant of the parent's run alone is copied into the sub-run's first event. A grant that runs share is read anew for each
//! call, so that taking it back reaches every sub-run at once (GRA-009).

use crate::governance::bounds::host_within;
use crate::governance::grant::{Constraints, Grant, GrantScope};
use crate::handoff::dispatch::CapabilityModifiers;
use crate::handoff::handed::HandedOff;
use crate::ids::{GrantId, RunId};
use crate::run::envelope::RunEnvelope;
use crate::run::event::RunSubmitted;

/// The grants of a new sub-run: those that are minted for its own plan, and what its parent's own grants let be handed on.
pub fn hand_on(run: &RunEnvelope, child: &RunSubmitted, minted: Vec<Grant>) -> Vec<Grant> {
    let Some(handed) = child.handed_off.as_deref() else { return minted };
    let delegated = |grant: &Grant| handed.authority.tool_ids.contains(&grant.tool_id);
    let limits = &handed.authority.capability_modifiers;
    let own = minted.into_iter().filter(delegated).map(|grant| {
        let constraints = meet(&grant.constraints, limits);
        Grant { constraints, ..grant }
    });
    let from_parent = run.grants.iter().filter(|grant| delegated(grant) && grant.revoked_at_unix_ms.is_none());
    let handed_on = from_parent.filter_map(|grant| {
        let delegable = meet(grant.delegable.as_ref()?, limits);
        Some(Grant {
            grant_id: GrantId::new(format!("handed.{}.{}", child.run_id, grant.tool_id)).ok()?,
            scope: GrantScope::PerRun,
            scope_key: child.run_id.to_string(),
            constraints: delegable.clone(),
            delegable: Some(delegable),
            ..grant.clone()
        })
    });
    // What was handed on stands before what is minted: it was approved for this work.
    handed_on.chain(own).collect()
}

/// The grants that runs share as a sub-run may use them: only what their holder may hand on, within what was delegated, and
/// those of the runs above as if they were its own.
pub fn as_handed_on(shared: &[Grant], handed: &HandedOff, own: RunId) -> Vec<Grant> {
    shared.iter().filter_map(|grant| one_handed_on(grant, handed, own)).collect()
}

fn one_handed_on(grant: &Grant, handed: &HandedOff, own: RunId) -> Option<Grant> {
    let limits = &handed.authority.capability_modifiers;
    let tied_to_run = matches!(grant.scope, GrantScope::PerRun | GrantScope::PerPipelineInstance);
    // Issued for this very sub-run by an operator: it is its holder.
    if tied_to_run && grant.scope_key == own.to_string() {
        return Some(Grant { constraints: meet(&grant.constraints, limits), ..grant.clone() });
    }
    let constraints = meet(grant.delegable.as_ref()?, limits);
    let above = |key: &str| handed.ancestors.iter().any(|run| run.to_string() == key);
    let scope_key = match tied_to_run {
        true if above(&grant.scope_key) => own.to_string(),
        true | false => grant.scope_key.clone(),
    };
    Some(Grant { constraints, scope_key, ..grant.clone() })
}

/// What both allow.
fn meet(bounds: &Constraints, limits: &CapabilityModifiers) -> Constraints {
    let hosts = match (&bounds.hosts, &limits.hosts) {
        (bound, None) => bound.clone(),
        (None, Some(limit)) => Some(limit.iter().cloned().collect()),
        (Some(bound), Some(limit)) => {
            let inner = bound.iter().filter(|host| limit.iter().any(|other| host_within(host, other)));
            let outer = limit.iter().filter(|host| bound.iter().any(|other| host_within(host, other)));
            let mut both: Vec<String> = inner.chain(outer).cloned().collect();
            both.sort();
            both.dedup();
            Some(both)
        }
    };
    let paths = match (&bounds.paths, &limits.path_prefixes) {
        (bound, None) => bound.clone(),
        // Without paths a grant allows the run's own folder and nothing outside it.
        (None, Some(limit)) => Some(limit.iter().filter(|path| !path.starts_with('/')).cloned().collect()),
        (Some(bound), Some(limit)) => {
            let within = crate::governance::isolation::is_within;
            let limit: Vec<String> = limit.iter().cloned().collect();
            let inner = bound.iter().filter(|path| within(path, &limit));
            let outer = limit.iter().filter(|path| within(path, bound));
            let mut both: Vec<String> = inner.chain(outer).cloned().collect();
            both.sort();
            both.dedup();
            Some(both)
        }
    };
    let secret_ids = match (&bounds.secret_ids, &limits.secret_ids) {
        (Some(bound), Some(limit)) => Some(bound.iter().filter(|id| limit.contains(*id)).cloned().collect()),
        (bound, _) => bound.clone(),
    };
    Constraints { hosts, paths, secret_ids, ..bounds.clone() }
}
