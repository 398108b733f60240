//! Governance changes and meters.

use std::sync::Arc;

use async_trait::async_trait;
use signalbox_domain::governance::budget::{Budget, MeteredBudget};
use signalbox_domain::governance::change::{EpochChange, GovernanceChange};
use signalbox_domain::ids::{ActorId, BudgetId, StoreIncarnation};
use signalbox_domain::time::{UnixMicros, UnixMs};
use signalbox_ports::governance::{Governance, check_readable};
use signalbox_ports::journal::StoreError;
use sqlx::sqlite::{SqliteConnection, SqliteExecutor};

use super::rows::failed;
use super::{SqliteStore, append, schedules, sweeps, webhooks};
use crate::governance::{BUDGETS_ACTOR, Putting, epoch_changes, incarnation_and_epoch, rolled};
use crate::rows::int;

#[async_trait]
impl Governance for SqliteStore {
    async fn epoch(&self) -> Result<(StoreIncarnation, u64), StoreError> {
        let row = sqlx::query("SELECT incarnation, epoch FROM store_meta").fetch_one(&self.readers).await;
        let row = row.map_err(failed("read the epoch"))?;
        incarnation_and_epoch(&row)
    }

    async fn changes(&self, after_epoch: u64) -> Result<Vec<EpochChange>, StoreError> {
        changes_after(&self.readers, after_epoch).await
    }

    async fn change(&self, change: GovernanceChange, by: &ActorId) -> Result<EpochChange, StoreError> {
        let (clock, by) = (Arc::clone(&self.clock), by.clone());
        // The writer's transaction is the exclusive lock: no append can be in one at the same time.
        self.writer
            .transact(move |conn| Box::pin(async move { write_change(conn, change, by.as_str(), clock.now()).await }))
            .await
    }

    async fn put_budget(&self, budget: Budget) -> Result<(), StoreError> {
        let clock = Arc::clone(&self.clock);
        self.writer
            .transact(move |conn| {
                Box::pin(async move { put_budget(conn, &budget, BUDGETS_ACTOR, clock.now_micros()).await })
            })
            .await
            .map(|_| ())
    }

    async fn retire_budget(&self, budget: &BudgetId) -> Result<(), StoreError> {
        let budget = budget.clone();
        self.writer.transact(move |conn| Box::pin(async move { retire_budget(conn, &budget).await })).await
    }

    async fn budgets(&self) -> Result<Vec<MeteredBudget>, StoreError> {
        let now = self.clock.now_micros();
        let rows = sqlx::query("SELECT * FROM meters WHERE retired = 0 ORDER BY budget_id")
            .fetch_all(&self.readers)
            .await
            .map_err(failed("read meters"))?;
        rows.iter().map(|row| rolled(row, now)).collect()
    }
}

/// The changes after an epoch, oldest first. One that cannot be read fails all: nothing may be admitted past it.
pub(super) async fn changes_after<'e>(
    on: impl SqliteExecutor<'e>,
    after_epoch: u64,
) -> Result<Vec<EpochChange>, StoreError> {
    let rows = sqlx::query("SELECT epoch, at_ms, body FROM governance_changes WHERE epoch > ? ORDER BY epoch")
        .bind(int(after_epoch))
        .fetch_all(on)
        .await
        .map_err(failed("read governance changes"))?;
    epoch_changes(&rows)
}

/// Raises the epoch and writes the change that raised it.
pub(super) async fn write_change(
    conn: &mut SqliteConnection,
    change: GovernanceChange,
    by: &str,
    at_unix_ms: UnixMs,
) -> Result<EpochChange, StoreError> {
    let body = check_readable(&change)?;
    let epoch: i64 = sqlx::query_scalar("UPDATE store_meta SET epoch = epoch + 1 RETURNING epoch")
        .fetch_one(&mut *conn)
        .await
        .map_err(failed("raise the epoch"))?;
    sqlx::query("INSERT INTO governance_changes (epoch, at_ms, changed_by, body) VALUES (?, ?, ?, ?)")
        .bind(epoch)
        .bind(at_unix_ms.0)
        .bind(by)
        .bind(body)
        .execute(&mut *conn)
        .await
        .map_err(failed("write a governance change"))?;
    sweeps::follow(conn, &change, epoch).await?;
    webhooks::follow(conn, &change).await?;
    schedules::follow(conn, &change).await?;
    Ok(EpochChange { epoch: u64::try_from(epoch).unwrap_or_default(), at_unix_ms, change })
}

pub(super) async fn retire_budget(conn: &mut SqliteConnection, budget: &BudgetId) -> Result<(), StoreError> {
    sqlx::query("UPDATE meters SET retired = 1 WHERE budget_id = ?")
        .bind(budget.as_str())
        .execute(conn)
        .await
        .map_err(failed("retire a budget"))?;
    Ok(())
}

/// Writes a budget; answers the change that goes with it, if it comes into force.
pub(super) async fn put_budget(
    conn: &mut SqliteConnection,
    budget: &Budget,
    by: &str,
    now: UnixMicros,
) -> Result<Option<EpochChange>, StoreError> {
    let row = sqlx::query("SELECT * FROM meters WHERE budget_id = ?")
        .bind(budget.budget_id.to_string())
        .fetch_optional(&mut *conn)
        .await
        .map_err(failed("read a meter"))?;
    let Putting { opening, meter, ended, rule } = Putting::of(budget, row.as_ref(), now)?;
    let opened = match opening {
        Some(change) => Some(write_change(conn, change, by, now.ms()).await?),
        None => None,
    };
    if let Some(window) = &ended {
        let query = sqlx::query(append::KEEP_WINDOW)
            .bind(window.budget_id.as_str())
            .bind(window.window_start_unix_seconds)
            .bind(window.ended_unix_seconds)
            .bind(window.consumed.0)
            .bind(window.limit.0);
        query.execute(&mut *conn).await.map_err(failed("keep windows"))?;
    }
    sqlx::query(
        "INSERT INTO meters (budget_id, budget, window_start_seconds, consumed, reserved, grace_end_seconds, retired) \
         VALUES (?, ?, ?, ?, ?, ?, 0) ON CONFLICT (budget_id) DO UPDATE SET budget = excluded.budget, \
         window_start_seconds = excluded.window_start_seconds, consumed = excluded.consumed, \
         reserved = excluded.reserved, grace_end_seconds = excluded.grace_end_seconds, retired = 0",
    )
    .bind(budget.budget_id.to_string())
    .bind(rule)
    .bind(meter.window_start_unix_seconds)
    .bind(meter.consumed.0)
    .bind(meter.reserved.0)
    .bind(meter.grace_end_unix_seconds)
    .execute(conn)
    .await
    .map_err(failed("write a meter"))?;
    Ok(opened)
}
