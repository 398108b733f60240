//! Armed switches on their way through the parked runs.
//!
//! A page locks its sweep's row and then the runs it wakes. A run that somebody else has locked is passed over: a command is
//! being put into its inbox, or a node is claiming it, and either of them brings it to a node that reads the switches.

use std::sync::Arc;

use signalbox_domain::governance::change::GovernanceChange;
use signalbox_domain::governance::kill_switch::KillSwitch;
use signalbox_ports::governance::check_readable;
use signalbox_ports::journal::StoreError;
use signalbox_ports::leases::{SWEEP_RUNS_MAX, Swept};
use sqlx::PgConnection;
use uuid::Uuid;

use super::errors::{Problem, failed};
use super::store_clock::StoreClock;
use super::transaction::{Attempts, Ended, GovernanceLock, in_task, in_time};
use super::{PostgresStore, Shared};
use crate::cells::Cells as _;
use crate::rows::{int, json, parked_runs, reached};

/// What a governance change means for the sweeps: arming begins one, disarming stops it.
pub(super) async fn follow(conn: &mut PgConnection, change: &GovernanceChange, epoch: i64) -> Result<(), Problem> {
    let statement = match change {
        GovernanceChange::SwitchArmed(switch) if switch.scope.is_of_runs() => sqlx::query(
            "INSERT INTO sweeps (switch_id, epoch, switch, cursor) VALUES ($1, $2, $3, $4) ON CONFLICT (switch_id) \
             DO UPDATE SET epoch = EXCLUDED.epoch, switch = EXCLUDED.switch, cursor = EXCLUDED.cursor",
        )
        .bind(switch.switch_id.as_str())
        .bind(epoch)
        .bind(check_readable(switch)?)
        .bind(Uuid::nil()),
        GovernanceChange::SwitchArmed(KillSwitch { switch_id, .. })
        | GovernanceChange::SwitchDisarmed { switch_id, .. } => {
            sqlx::query("DELETE FROM sweeps WHERE switch_id = $1").bind(switch_id.as_str())
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

/// Takes the oldest sweep that nobody else has in hand a page further. If the answer to its COMMIT is lost, the next page is
/// taken instead.
pub(super) async fn sweep(store: &PostgresStore, limit: usize) -> Result<Option<Swept>, StoreError> {
    let (shared, limit) = (Arc::clone(&store.shared), limit.min(SWEEP_RUNS_MAX));
    in_task(async move {
        let mut attempts = Attempts::new();
        loop {
            if let Some(swept) = attempts.settle_repeatable(sweep_once(&shared, limit).await).await? {
                return Ok(swept);
            }
        }
    })
    .await
}

async fn sweep_once(shared: &Shared, limit: usize) -> Result<Ended<Option<Swept>>, Problem> {
    let mut transaction = shared.control.begin(GovernanceLock::None).await?;
    let outcome = in_time(page(transaction.conn()?, limit, &shared.clock)).await;
    transaction.end(outcome).await
}

async fn page(conn: &mut PgConnection, limit: usize, clock: &StoreClock) -> Result<Option<Swept>, Problem> {
    let oldest = sqlx::query("SELECT switch, cursor FROM sweeps ORDER BY epoch LIMIT 1 FOR UPDATE SKIP LOCKED")
        .fetch_optional(&mut *conn)
        .await
        .map_err(failed("lock a sweep"))?;
    let Some(row) = oldest else { return Ok(None) };
    let unreadable = |problem| StoreError::Unavailable(format!("a sweep cannot be read: {problem}"));
    let switch: KillSwitch = json(&row, "switch").map_err(unreadable)?;
    let cursor = row.id("cursor").map_err(unreadable)?;
    let now = clock.now(conn).await?.ms();
    let mut swept = Swept { switch_id: switch.switch_id.clone(), woken: 0, over: !switch.is_active(now) };
    if !swept.over {
        let rows = sqlx::query(
            "SELECT r.run_key, r.tenant, d.root_agent_id FROM runs AS r JOIN run_dashboard AS d ON d.run_key = r.run_key \
             WHERE NOT r.closed AND r.owner_incarnation IS NULL AND r.parked AND r.run_key > $1 \
             ORDER BY r.run_key LIMIT $2",
        )
        .bind(cursor)
        .bind(int(limit as u64))
        .fetch_all(&mut *conn)
        .await
        .map_err(failed("read parked runs"))?;
        swept.woken = wake(conn, reached(&switch, &parked_runs(&rows)).collect()).await?;
        swept.over = rows.len() < limit;
        if let Some(last) = rows.last() {
            sqlx::query("UPDATE sweeps SET cursor = $1 WHERE switch_id = $2")
                .bind(last.id("run_key").map_err(unreadable)?)
                .bind(switch.switch_id.as_str())
                .execute(&mut *conn)
                .await
                .map_err(failed("move a sweep on"))?;
        }
    }
    if swept.over {
        sqlx::query("DELETE FROM sweeps WHERE switch_id = $1")
            .bind(switch.switch_id.as_str())
            .execute(conn)
            .await
            .map_err(failed("end a sweep"))?;
    }
    Ok(Some(swept))
}

async fn wake(conn: &mut PgConnection, runs: Vec<Uuid>) -> Result<usize, Problem> {
    let woken = sqlx::query(
        "UPDATE runs SET parked = FALSE WHERE run_key = ANY(ARRAY(SELECT run_key FROM runs WHERE run_key = ANY($1) \
         AND NOT closed AND owner_incarnation IS NULL AND parked ORDER BY run_key FOR UPDATE SKIP LOCKED))",
    )
    .bind(runs)
    .execute(conn)
    .await
    .map_err(failed("wake parked runs"))?;
    Ok(usize::try_from(woken.rows_affected()).unwrap_or(usize::MAX))
}
