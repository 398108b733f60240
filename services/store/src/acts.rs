//! Acts of management as both databases keep them: what their rows mean.

use signalbox_domain::governance::audit::{AuditEvent, AuditHead, Subject};
use signalbox_domain::governance::budget::EndedWindow;
use signalbox_domain::governance::kill_switch::KillSwitch;
use signalbox_domain::identity::Actor;
use signalbox_domain::ids::{ActorId, AgentId, BudgetId, RunId, RunKey, TenantId};
use signalbox_domain::quantity::Micros;
use signalbox_domain::registry::AgentRegistry;
use signalbox_domain::time::UnixMicros;
use signalbox_ports::journal::StoreError;

use crate::cells::Cells;
use crate::rows::{count, hash, number, word};

/// The statuses of runs that are over, for SQL: whatever else a run is, a switch may still end it.
macro_rules! over {
    () => {
        "('completed', 'failed', 'cancelled', 'killed')"
    };
}
pub(crate) use over;

fn unreadable(problem: String) -> StoreError {
    StoreError::Unavailable(format!("the audit journal cannot be read: {problem}"))
}

/// The only row of `audit_head`.
pub(crate) fn audit_head(row: &impl Cells) -> Result<AuditHead, StoreError> {
    let parse = || Ok(AuditHead { seq: count(row, "seq")?, hash: hash(row, "hash")?, at: UnixMicros(row.int("at")?) });
    parse().map_err(unreadable)
}

/// A record. Its body is not looked at: bytes nobody wrote are for the verifier to find, not to hide the others.
pub(crate) fn audit_event(row: &impl Cells) -> Result<AuditEvent, StoreError> {
    let parse = || {
        let tenant = row.text_or_null("tenant")?.map(TenantId::new).transpose();
        Ok(AuditEvent {
            seq: count(row, "seq")?,
            at: UnixMicros(row.int("at")?),
            tenant_id: tenant.map_err(|error| error.to_string())?,
            actor: Actor {
                actor_id: ActorId::new(row.text("actor_id")?).map_err(|error| error.to_string())?,
                role: word(row, "actor_role")?,
            },
            kind: row.text("kind")?.to_owned(),
            subject: Subject::stored(row.text("subject")?),
            version: number(row, "version")?,
            epoch: count(row, "epoch")?,
            body: row.bytes("body")?.to_vec(),
            prev_hash: hash(row, "prev_hash")?,
            hash: hash(row, "hash")?,
        })
    };
    parse().map_err(unreadable)
}

/// A window of a budget that is over.
pub(crate) fn ended_window(row: &impl Cells) -> Result<EndedWindow, StoreError> {
    let parse = || {
        Ok(EndedWindow {
            budget_id: BudgetId::new(row.text("budget_id")?).map_err(|error| error.to_string())?,
            window_start_unix_seconds: row.int("starts")?,
            ended_unix_seconds: row.int("ended")?,
            consumed: Micros(row.int("consumed")?),
            limit: Micros(row.int("limit_micros")?),
        })
    };
    parse().map_err(|problem: String| StoreError::Unavailable(format!("a window cannot be read: {problem}")))
}

/// A run by its key and by the name it is known by.
pub(crate) fn named_run(row: &impl Cells) -> Result<(RunKey, TenantId, RunId), StoreError> {
    let parse = || {
        let tenant = TenantId::new(row.text("tenant")?).map_err(|error| error.to_string())?;
        Ok((RunKey::new(row.id("run_key")?), tenant, RunId::new(row.id("run_id")?)))
    };
    parse().map_err(|problem: String| StoreError::Unavailable(format!("a run cannot be read: {problem}")))
}

/// How many runs that are not over a switch reaches, from groups of them by tenant and lead agent.
pub(crate) fn left(switch: &KillSwitch, registry: &AgentRegistry, groups: &[impl Cells]) -> Result<u64, StoreError> {
    let mut left = 0;
    for row in groups {
        let tenant = row.text("tenant").map_err(unreadable)?;
        let agent = row.text("root_agent_id").map_err(unreadable)?;
        if let (Ok(tenant), Ok(agent)) = (TenantId::new(tenant), AgentId::new(agent))
            && switch.reaches(&tenant, &agent, registry.family_of(&tenant, &agent))
        {
            left += count(row, "runs").map_err(unreadable)?;
        }
    }
    Ok(left)
}
