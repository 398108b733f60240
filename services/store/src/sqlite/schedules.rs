//! Fires of schedules.

use async_trait::async_trait;
use signalbox_domain::governance::change::GovernanceChange;
use signalbox_domain::pipeline::schedule::{FireState, NewFire};
use signalbox_domain::time::UnixMs;
use signalbox_ports::journal::StoreError;
use signalbox_ports::schedules::{
    Advance, FIRES_FORGOTTEN_MAX, FIRES_KEPT_MS, FIRES_MAX, Fire, FireFilter, FiresOf, HELD_FOR_MS, Noted, Record,
    STARTED_LOOKED_AT, ScheduleKey, Schedules,
};
use sqlx::sqlite::SqliteConnection;

use super::SqliteStore;
use super::rows::{blob, failed};
use crate::acts::over;
use crate::rows::int;
use crate::schedules::{dealt_with, fire, fire_columns, open_fires};

#[async_trait]
impl Schedules for SqliteStore {
    async fn record(&self, schedule: &ScheduleKey) -> Result<Record, StoreError> {
        let row = sqlx::query("SELECT * FROM schedule_records WHERE tenant = ? AND schedule_id = ?")
            .bind(schedule.tenant_id.as_str())
            .bind(schedule.schedule_id.as_str())
            .fetch_optional(&self.readers)
            .await
            .map_err(failed("read a schedule"))?;
        let (version, considered_until) = row.as_ref().map(dealt_with).transpose()?.unwrap_or_default();
        let rows = sqlx::query(open_fires!("?1", "?2", "?3"))
            .bind(schedule.tenant_id.as_str())
            .bind(schedule.schedule_id.as_str())
            .bind(int(STARTED_LOOKED_AT as u64))
            .fetch_all(&self.readers)
            .await
            .map_err(failed("read fires"))?;
        let mut open: Vec<Fire> = rows.iter().map(fire).collect::<Result<_, _>>()?;
        open.sort_by_key(|fire| fire.at);
        Ok(Record { version, considered_until, open, now: self.clock.now() })
    }

    async fn advance(&self, advance: Advance) -> Result<bool, StoreError> {
        let now = self.clock.now();
        self.writer.transact(move |conn| Box::pin(async move { move_on(conn, &advance, now).await })).await
    }

    async fn claim_fires(&self, limit: usize) -> Result<Vec<Fire>, StoreError> {
        let now = self.clock.now();
        // Nothing is written, and nobody waits for the writer, unless something is due.
        let due: bool = sqlx::query_scalar(
            "SELECT EXISTS (SELECT 1 FROM schedule_fires WHERE state = 'waiting' AND next_at_ms <= ?)",
        )
        .bind(now.0)
        .fetch_one(&self.readers)
        .await
        .map_err(failed("look for fires"))?;
        if !due {
            return Ok(Vec::new());
        }
        self.writer.transact(move |conn| Box::pin(async move { claim(conn, limit, now).await })).await
    }

    async fn note_fire(&self, claimed: &Fire, noted: Noted) -> Result<bool, StoreError> {
        let claimed = claimed.clone();
        self.writer.transact(move |conn| Box::pin(async move { note(conn, &claimed, &noted).await })).await
    }

    async fn fires(&self, filter: &FireFilter) -> Result<Vec<Fire>, StoreError> {
        let rows = sqlx::query(concat!(
            "SELECT ",
            fire_columns!(),
            " FROM schedule_fires AS f WHERE f.tenant = ?1 AND (?2 IS NULL OR f.schedule_id = ?2) \
             AND (?3 IS NULL OR f.state = ?3) ORDER BY f.at_ms DESC, f.schedule_id DESC, f.through_ms DESC LIMIT ?4"
        ))
        .bind(filter.tenant_id.as_str())
        .bind(filter.schedule_id.as_ref().map(|id| id.as_str()))
        .bind(filter.state.map(FireState::as_str))
        .bind(int(filter.limit.min(FIRES_MAX) as u64))
        .fetch_all(&self.readers)
        .await
        .map_err(failed("read fires"))?;
        rows.iter().map(fire).collect()
    }

    async fn fire(&self, schedule: &ScheduleKey, at: UnixMs) -> Result<Option<Fire>, StoreError> {
        let row = sqlx::query(concat!(
            "SELECT ",
            fire_columns!(),
            " FROM schedule_fires AS f WHERE f.tenant = ?1 AND f.schedule_id = ?2 AND f.at_ms = ?3 AND f.through_ms = ?3"
        ))
        .bind(schedule.tenant_id.as_str())
        .bind(schedule.schedule_id.as_str())
        .bind(at.0)
        .fetch_optional(&self.readers)
        .await
        .map_err(failed("read a fire"))?;
        row.as_ref().map(fire).transpose()
    }

    async fn forget_fires(&self) -> Result<usize, StoreError> {
        let before = self.clock.now().plus_ms(-FIRES_KEPT_MS);
        self.writer.transact(move |conn| Box::pin(async move { forget(conn, before).await })).await
    }
}

/// Records a fire; what happens if the slot has one already is said behind.
macro_rules! insert_fire {
    ($known:literal) => {
        concat!(
            "INSERT INTO schedule_fires (tenant, schedule_id, at_ms, through_ms, slots, state, reason, attempts, \
             next_at_ms, recorded_at_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0, ?8, ?9) ",
            $known
        )
    };
}

async fn move_on(conn: &mut SqliteConnection, advance: &Advance, now: UnixMs) -> Result<bool, StoreError> {
    let Advance { schedule, version, considered_until, fires, released, overtaken } = advance;
    let moved = if *version == 0 {
        sqlx::query(
            "INSERT INTO schedule_records (tenant, schedule_id, version, considered_until_ms) VALUES (?1, ?2, 1, ?3) \
             ON CONFLICT DO NOTHING",
        )
        .bind(schedule.tenant_id.as_str())
        .bind(schedule.schedule_id.as_str())
        .bind(considered_until.map(|at| at.0))
    } else {
        sqlx::query(
            "UPDATE schedule_records SET version = version + 1, \
             considered_until_ms = COALESCE(?3, considered_until_ms) \
             WHERE tenant = ?1 AND schedule_id = ?2 AND version = ?4",
        )
        .bind(schedule.tenant_id.as_str())
        .bind(schedule.schedule_id.as_str())
        .bind(considered_until.map(|at| at.0))
        .bind(int(*version))
    };
    let moved = moved.execute(&mut *conn).await.map_err(failed("move a schedule on"))?;
    if moved.rows_affected() == 0 {
        return Ok(false);
    }
    for at in released {
        sqlx::query(
            "UPDATE schedule_fires SET state = 'waiting', next_at_ms = ?4 WHERE tenant = ?1 AND schedule_id = ?2 \
             AND at_ms = ?3 AND through_ms = ?3 AND state = 'buffered'",
        )
        .bind(schedule.tenant_id.as_str())
        .bind(schedule.schedule_id.as_str())
        .bind(at.0)
        .bind(now.0)
        .execute(&mut *conn)
        .await
        .map_err(failed("release a fire"))?;
    }
    for at in overtaken {
        sqlx::query(
            "UPDATE schedule_fires SET state = 'skipped', reason = 'overtaken' WHERE tenant = ?1 AND schedule_id = ?2 \
             AND at_ms = ?3 AND through_ms = ?3 AND state IN ('waiting', 'buffered')",
        )
        .bind(schedule.tenant_id.as_str())
        .bind(schedule.schedule_id.as_str())
        .bind(at.0)
        .execute(&mut *conn)
        .await
        .map_err(failed("overtake a fire"))?;
    }
    for new in fires {
        insert(conn, schedule, new, now, insert_fire!("ON CONFLICT DO NOTHING")).await?;
    }
    Ok(true)
}

async fn insert(
    conn: &mut SqliteConnection,
    schedule: &ScheduleKey,
    new: &NewFire,
    now: UnixMs,
    statement: &'static str,
) -> Result<(), StoreError> {
    sqlx::query(statement)
        .bind(schedule.tenant_id.as_str())
        .bind(schedule.schedule_id.as_str())
        .bind(new.at.0)
        .bind(new.through.0)
        .bind(int(new.slots))
        .bind(new.state.as_str())
        .bind(new.reason.map(|reason| reason.as_str()))
        .bind(new.start_at.0)
        .bind(now.0)
        .execute(conn)
        .await
        .map_err(failed("record a fire"))?;
    Ok(())
}

/// Fires that an act records: those that nothing becomes of any more begin anew.
pub(super) async fn put_fires(conn: &mut SqliteConnection, of: &FiresOf, now: UnixMs) -> Result<(), StoreError> {
    for new in &of.fires {
        let anew = insert_fire!(
            "ON CONFLICT (tenant, schedule_id, at_ms, through_ms) DO UPDATE SET state = excluded.state, \
             reason = NULL, details = NULL, attempts = 0, next_at_ms = excluded.next_at_ms \
             WHERE schedule_fires.state IN ('skipped', 'suppressed', 'dead')"
        );
        insert(conn, &of.schedule, new, now, anew).await?;
    }
    Ok(())
}

/// What a governance change means for fires: those of a schedule that is gone begin no more.
pub(super) async fn follow(conn: &mut SqliteConnection, change: &GovernanceChange) -> Result<(), StoreError> {
    let GovernanceChange::ScheduleRemoved { tenant_id, schedule_id } = change else { return Ok(()) };
    for statement in [
        "DELETE FROM schedule_records WHERE tenant = ?1 AND schedule_id = ?2",
        "UPDATE schedule_fires SET state = 'skipped', reason = 'removed' WHERE tenant = ?1 AND schedule_id = ?2 \
         AND state IN ('waiting', 'buffered')",
    ] {
        let done = sqlx::query(statement).bind(tenant_id.as_str()).bind(schedule_id.as_str()).execute(&mut *conn).await;
        done.map_err(failed("follow a schedule"))?;
    }
    Ok(())
}

async fn claim(conn: &mut SqliteConnection, limit: usize, now: UnixMs) -> Result<Vec<Fire>, StoreError> {
    let rows = sqlx::query(
        "UPDATE schedule_fires SET attempts = attempts + 1, next_at_ms = ?1, last_at_ms = ?2 \
         WHERE (tenant, schedule_id, at_ms, through_ms) IN (SELECT tenant, schedule_id, at_ms, through_ms \
         FROM schedule_fires WHERE state = 'waiting' AND next_at_ms <= ?2 ORDER BY next_at_ms LIMIT ?3) RETURNING *",
    )
    .bind(now.plus_ms(HELD_FOR_MS).0)
    .bind(now.0)
    .bind(int(limit.min(FIRES_MAX) as u64))
    .fetch_all(conn)
    .await
    .map_err(failed("claim fires"))?;
    let mut fires = rows.iter().map(fire).collect::<Result<Vec<_>, _>>()?;
    fires.sort_by_key(|fire| fire.at);
    Ok(fires)
}

async fn note(conn: &mut SqliteConnection, claimed: &Fire, noted: &Noted) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "UPDATE schedule_fires SET state = ?1, reason = ?2, details = ?3, run_id = ?4, attempts = ?5, next_at_ms = ?6 \
         WHERE tenant = ?7 AND schedule_id = ?8 AND at_ms = ?9 AND through_ms = ?10 AND state = 'waiting' \
         AND next_at_ms = ?11",
    )
    .bind(noted.state.as_str())
    .bind(noted.reason.map(|reason| reason.as_str()))
    .bind(noted.details.as_deref())
    .bind(noted.run_id.map(|run| blob(run.uuid())))
    .bind(i64::from(noted.attempts))
    .bind(noted.next_at.0)
    .bind(claimed.schedule.tenant_id.as_str())
    .bind(claimed.schedule.schedule_id.as_str())
    .bind(claimed.at.0)
    .bind(claimed.through.0)
    .bind(claimed.next_at.0)
    .execute(conn)
    .await
    .map_err(failed("note a fire"))?;
    Ok(done.rows_affected() > 0)
}

async fn forget(conn: &mut SqliteConnection, before: UnixMs) -> Result<usize, StoreError> {
    let gone = sqlx::query(
        "DELETE FROM schedule_fires WHERE (tenant, schedule_id, at_ms, through_ms) IN (SELECT tenant, schedule_id, at_ms, \
         through_ms FROM schedule_fires WHERE recorded_at_ms < ?1 AND state NOT IN ('waiting', 'buffered') LIMIT ?2)",
    )
    .bind(before.0)
    .bind(int(FIRES_FORGOTTEN_MAX as u64))
    .execute(conn)
    .await
    .map_err(failed("forget fires"))?;
    Ok(usize::try_from(gone.rows_affected()).unwrap_or(usize::MAX))
}
