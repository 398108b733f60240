//! Armed switches on their way through the parked runs.

use std::sync::Arc;

use serde_json::json;
use signalbox_domain::governance::change::GovernanceChange;
use signalbox_domain::governance::kill_switch::KillSwitch;
use signalbox_domain::time::UnixMs;
use signalbox_ports::governance::check_readable;
use signalbox_ports::journal::StoreError;
use signalbox_ports::leases::{SWEEP_RUNS_MAX, Swept};
use sqlx::sqlite::SqliteConnection;
use uuid::Uuid;

use super::SqliteStore;
use super::rows::{blob, failed, hex_id};
use crate::cells::Cells as _;
use crate::rows::{int, json, parked_runs, reached};

/// What a governance change means for the sweeps: arming begins one, disarming stops it.
pub(super) async fn follow(
    conn: &mut SqliteConnection,
    change: &GovernanceChange,
    epoch: i64,
) -> Result<(), StoreError> {
    let statement = match change {
        GovernanceChange::SwitchArmed(switch) if switch.scope.is_of_runs() => sqlx::query(
            "INSERT INTO sweeps (switch_id, epoch, switch, cursor) VALUES (?, ?, ?, ?) ON CONFLICT (switch_id) \
             DO UPDATE SET epoch = excluded.epoch, switch = excluded.switch, cursor = excluded.cursor",
        )
        .bind(switch.switch_id.to_string())
        .bind(epoch)
        .bind(check_readable(switch)?)
        .bind(blob(Uuid::nil())),
        GovernanceChange::SwitchArmed(KillSwitch { switch_id, .. })
        | GovernanceChange::SwitchDisarmed { switch_id, .. } => {
            sqlx::query("DELETE FROM sweeps WHERE switch_id = ?").bind(switch_id.to_string())
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
        | GovernanceChange::ScheduleRemoved { .. } => return Ok(()),
        GovernanceChange::AgentPublished(_)
        | GovernanceChange::AgentMoved(_)
        | GovernanceChange::ExecutorRegistered(_)
        | GovernanceChange::PipelineCustomized(_)
        | GovernanceChange::RolloutSet { .. }
        | GovernanceChange::ExecutorRetired { .. } => return Ok(()),
    };
    statement.execute(conn).await.map(|_| ()).map_err(failed("begin or stop a sweep"))
}

/// Takes the oldest sweep a page further.
pub(super) async fn sweep(store: &SqliteStore, limit: usize) -> Result<Option<Swept>, StoreError> {
    let clock = Arc::clone(&store.clock);
    let limit = limit.min(SWEEP_RUNS_MAX);
    store.writer.transact(move |conn| Box::pin(async move { page(conn, limit, clock.now()).await })).await
}

async fn page(conn: &mut SqliteConnection, limit: usize, now: UnixMs) -> Result<Option<Swept>, StoreError> {
    let oldest = sqlx::query("SELECT switch, cursor FROM sweeps ORDER BY epoch LIMIT 1")
        .fetch_optional(&mut *conn)
        .await
        .map_err(failed("read a sweep"))?;
    let Some(row) = oldest else { return Ok(None) };
    let unreadable = |problem| StoreError::Unavailable(format!("a sweep cannot be read: {problem}"));
    let switch: KillSwitch = json(&row, "switch").map_err(unreadable)?;
    let cursor = row.id("cursor").map_err(unreadable)?;
    let mut swept = Swept { switch_id: switch.switch_id.clone(), woken: 0, over: !switch.is_active(now) };
    if !swept.over {
        let rows = sqlx::query(
            "SELECT r.run_key, r.tenant, d.root_agent_id FROM runs AS r JOIN run_dashboard AS d ON d.run_key = r.run_key \
             WHERE r.closed = 0 AND r.owner_incarnation IS NULL AND r.parked = 1 AND r.run_key > ? \
             ORDER BY r.run_key LIMIT ?",
        )
        .bind(blob(cursor))
        .bind(int(limit as u64))
        .fetch_all(&mut *conn)
        .await
        .map_err(failed("read parked runs"))?;
        let keys: Vec<_> = reached(&switch, &parked_runs(&rows)).map(hex_id).collect();
        swept.woken = keys.len();
        swept.over = rows.len() < limit;
        sqlx::query("UPDATE runs SET parked = 0 WHERE run_key IN (SELECT unhex(value) FROM json_each(?))")
            .bind(json!(keys).to_string())
            .execute(&mut *conn)
            .await
            .map_err(failed("wake parked runs"))?;
        if let Some(last) = rows.last() {
            sqlx::query("UPDATE sweeps SET cursor = ? WHERE switch_id = ?")
                .bind(blob(last.id("run_key").map_err(unreadable)?))
                .bind(switch.switch_id.to_string())
                .execute(&mut *conn)
                .await
                .map_err(failed("move a sweep on"))?;
        }
    }
    if swept.over {
        sqlx::query("DELETE FROM sweeps WHERE switch_id = ?")
            .bind(switch.switch_id.to_string())
            .execute(conn)
            .await
            .map_err(failed("end a sweep"))?;
    }
    Ok(Some(swept))
}
