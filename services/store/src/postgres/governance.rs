//! Governance changes and meters.
//!
//! A change holds the governance lock alone, from before its first row to its COMMIT: what an append reads under the shared
//! lock is all there is, and what is committed after it is read by every later one.

use std::sync::Arc;

use async_trait::async_trait;
use signalbox_domain::governance::budget::{Budget, EndedWindow, MeteredBudget};
use signalbox_domain::governance::change::{EpochChange, GovernanceChange};
use signalbox_domain::ids::{ActorId, BudgetId, StoreIncarnation};
use signalbox_domain::time::{UnixMicros, UnixMs};
use signalbox_ports::governance::{Governance, check_readable};
use signalbox_ports::journal::StoreError;
use sqlx::PgConnection;

use super::errors::{Problem, failed};
use super::store_clock::server_now;
use super::transaction::{Attempts, Ended, GovernanceLock, in_task, in_time};
use super::{PostgresStore, Shared, schedules, sweeps, webhooks};
use crate::cells::Cells as _;
use crate::governance::{BUDGETS_ACTOR, Putting, epoch_changes, incarnation_and_epoch, rolled, unreadable_meter};
use crate::rows::int;

#[async_trait]
impl Governance for PostgresStore {
    async fn epoch(&self) -> Result<(StoreIncarnation, u64), StoreError> {
        let query = sqlx::query("SELECT incarnation, epoch FROM store_meta");
        let row = self.shared.control_readers.first("read the epoch", query).await?;
        let missing = || StoreError::Unavailable("the epoch cannot be read: it is missing".into());
        incarnation_and_epoch(&row.ok_or_else(missing)?)
    }

    async fn changes(&self, after_epoch: u64) -> Result<Vec<EpochChange>, StoreError> {
        let query = sqlx::query(CHANGES_AFTER).bind(int(after_epoch));
        epoch_changes(&self.shared.control_readers.all("read governance changes", query).await?)
    }

    async fn change(&self, change: GovernanceChange, by: &ActorId) -> Result<EpochChange, StoreError> {
        let (shared, by) = (Arc::clone(&self.shared), by.clone());
        in_task(async move {
            let mut attempts = Attempts::new();
            let mut lost = Vec::new();
            loop {
                match attempts.settle(change_once(&shared, &change, &by, &lost).await).await? {
                    None => {}
                    Some(Ended::Committed(made)) => return Ok(made),
                    Some(Ended::Lost(made, why)) => {
                        attempts.was_lost(why).await?;
                        lost.push(made);
                    }
                }
            }
        })
        .await
    }

    async fn put_budget(&self, budget: Budget) -> Result<(), StoreError> {
        let shared = Arc::clone(&self.shared);
        in_task(async move {
            let mut attempts = Attempts::new();
            loop {
                if let Some(()) = attempts.settle_repeatable(put_budget_once(&shared, &budget).await).await? {
                    return Ok(());
                }
            }
        })
        .await
    }

    async fn retire_budget(&self, budget: &BudgetId) -> Result<(), StoreError> {
        let (shared, budget) = (Arc::clone(&self.shared), budget.clone());
        in_task(async move {
            let mut attempts = Attempts::new();
            loop {
                if let Some(()) = attempts.settle_repeatable(retire_once(&shared, &budget).await).await? {
                    return Ok(());
                }
            }
        })
        .await
    }

    async fn budgets(&self) -> Result<Vec<MeteredBudget>, StoreError> {
        let query = sqlx::query(concat!(
            "SELECT *, COALESCE($1::int8, ",
            server_now!(),
            ") AS now FROM meters WHERE NOT retired ORDER BY budget_id"
        ));
        let query = query.bind(self.shared.clock.injected());
        let rows = self.shared.control_readers.all("read meters", query).await?;
        rows.iter().map(|row| rolled(row, UnixMicros(row.int("now").map_err(unreadable_meter)?))).collect()
    }
}

const CHANGES_AFTER: &str = "SELECT epoch, at_ms, body FROM governance_changes WHERE epoch > $1 ORDER BY epoch";

/// The changes after an epoch, oldest first. One that cannot be read fails all: nothing may be admitted past it.
pub(super) async fn changes_after(conn: &mut PgConnection, after_epoch: u64) -> Result<Vec<EpochChange>, Problem> {
    let rows = sqlx::query(CHANGES_AFTER)
        .bind(int(after_epoch))
        .fetch_all(conn)
        .await
        .map_err(failed("read governance changes"))?;
    Ok(epoch_changes(&rows)?)
}

/// Writes a change, unless one of `lost`, whose commits were not answered, turns out to be there: the exclusive lock has
/// waited for those transactions.
async fn change_once(
    shared: &Shared,
    change: &GovernanceChange,
    by: &ActorId,
    lost: &[EpochChange],
) -> Result<Ended<EpochChange>, Problem> {
    let mut transaction = shared.control.begin(GovernanceLock::Exclusive).await?;
    let conn = transaction.conn()?;
    let outcome = in_time(async {
        for made in lost {
            if has_landed(conn, made, by).await? {
                return Ok(made.clone());
            }
        }
        let now = shared.clock.now(conn).await?;
        write_change(conn, change.clone(), by.as_str(), now.ms()).await
    });
    let outcome = outcome.await;
    transaction.end(outcome).await
}

async fn has_landed(conn: &mut PgConnection, made: &EpochChange, by: &ActorId) -> Result<bool, Problem> {
    sqlx::query_scalar(
        "SELECT EXISTS (SELECT 1 FROM governance_changes WHERE epoch = $1 AND at_ms = $2 AND changed_by = $3 AND body = $4)",
    )
    .bind(int(made.epoch))
    .bind(made.at_unix_ms.0)
    .bind(by.as_str())
    .bind(check_readable(&made.change)?)
    .fetch_one(conn)
    .await
    .map_err(failed("look for a governance change"))
}

/// Raises the epoch and writes the change that raised it.
pub(super) async fn write_change(
    conn: &mut PgConnection,
    change: GovernanceChange,
    by: &str,
    at_unix_ms: UnixMs,
) -> Result<EpochChange, Problem> {
    let body = check_readable(&change)?;
    let epoch: i64 = sqlx::query_scalar("UPDATE store_meta SET epoch = epoch + 1 RETURNING epoch")
        .fetch_one(&mut *conn)
        .await
        .map_err(failed("raise the epoch"))?;
    sqlx::query("INSERT INTO governance_changes (epoch, at_ms, changed_by, body) VALUES ($1, $2, $3, $4)")
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

/// Whether a budget comes into force is known only from its row, and the lock comes before any row: so it is taken alone
/// even where only a limit changes.
async fn put_budget_once(shared: &Shared, budget: &Budget) -> Result<Ended<()>, Problem> {
    let mut transaction = shared.control.begin(GovernanceLock::Exclusive).await?;
    let conn = transaction.conn()?;
    let outcome = in_time(async {
        let now = shared.clock.now(conn).await?;
        put_budget(conn, budget, BUDGETS_ACTOR, now).await.map(|_| ())
    });
    let outcome = outcome.await;
    transaction.end(outcome).await
}

/// Writes a budget; answers the change that goes with it, if it comes into force.
pub(super) async fn put_budget(
    conn: &mut PgConnection,
    budget: &Budget,
    by: &str,
    now: UnixMicros,
) -> Result<Option<EpochChange>, Problem> {
    let row = sqlx::query("SELECT * FROM meters WHERE budget_id = $1 FOR UPDATE")
        .bind(budget.budget_id.as_str())
        .fetch_optional(&mut *conn)
        .await
        .map_err(failed("read a meter"))?;
    let Putting { opening, meter, ended, rule } = Putting::of(budget, row.as_ref(), now)?;
    let opened = match opening {
        Some(change) => Some(write_change(conn, change, by, now.ms()).await?),
        None => None,
    };
    if let Some(window) = ended {
        keep_window(conn, &window).await?;
    }
    sqlx::query(
        "INSERT INTO meters (budget_id, budget, window_start_seconds, consumed, reserved, grace_end_seconds, retired) \
         VALUES ($1, $2, $3, $4, $5, $6, FALSE) ON CONFLICT (budget_id) DO UPDATE SET budget = EXCLUDED.budget, \
         window_start_seconds = EXCLUDED.window_start_seconds, consumed = EXCLUDED.consumed, \
         reserved = EXCLUDED.reserved, grace_end_seconds = EXCLUDED.grace_end_seconds, retired = FALSE",
    )
    .bind(budget.budget_id.as_str())
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

async fn retire_once(shared: &Shared, budget: &BudgetId) -> Result<Ended<()>, Problem> {
    let mut transaction = shared.control.begin(GovernanceLock::None).await?;
    let retired = retire_budget(transaction.conn()?, budget);
    let outcome = in_time(retired).await;
    transaction.end(outcome).await
}

pub(super) async fn retire_budget(conn: &mut PgConnection, budget: &BudgetId) -> Result<(), Problem> {
    let retired = sqlx::query("UPDATE meters SET retired = TRUE WHERE budget_id = $1");
    retired.bind(budget.as_str()).execute(conn).await.map_err(failed("retire a budget"))?;
    Ok(())
}

async fn keep_window(conn: &mut PgConnection, window: &EndedWindow) -> Result<(), Problem> {
    sqlx::query(
        "INSERT INTO meter_windows (budget_id, starts, ended, consumed, limit_micros) VALUES ($1, $2, $3, $4, $5) \
         ON CONFLICT DO NOTHING",
    )
    .bind(window.budget_id.as_str())
    .bind(window.window_start_unix_seconds)
    .bind(window.ended_unix_seconds)
    .bind(window.consumed.0)
    .bind(window.limit.0)
    .execute(conn)
    .await
    .map_err(failed("keep a window"))?;
    Ok(())
}
