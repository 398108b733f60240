//! Runs, their events and snapshots.

use std::sync::Arc;

use async_trait::async_trait;
use signalbox_domain::ids::{RunId, RunKey, TenantId};
use signalbox_domain::run::append::{Entry, RunHead};
use signalbox_domain::run::chain::StoredEvent;
use signalbox_domain::time::UnixMicros;
use signalbox_ports::clock::BootInstant;
use signalbox_ports::journal::{AppendError, Appended, Created, Journal, NewRun, READ_EVENTS_MAX, StoreError};
use signalbox_ports::leases::RUN_FORMAT;
use sqlx::sqlite::SqliteConnection;

use super::SqliteStore;
use super::append::{append, insert_approvals, insert_events};
use super::rows::{blob, failed};
use crate::batch::approvals_json;
use crate::cells::Cells as _;
use crate::rows::{count, int, read_events, run_columns, run_row};

#[async_trait]
impl Journal for SqliteStore {
    async fn create(&self, run: NewRun) -> Result<Created, StoreError> {
        let clock = Arc::clone(&self.clock);
        self.writer.transact(move |conn| Box::pin(async move { create(conn, &run, clock.now_micros()).await })).await
    }

    async fn append(&self, batch: Vec<Entry>, append_began: BootInstant) -> Vec<Result<Appended, AppendError>> {
        let (clock, length) = (Arc::clone(&self.clock), batch.len());
        let answers = self
            .writer
            .run(move |connection| Box::pin(async move { append(connection, &batch, clock.as_ref()).await }))
            .await;
        match answers {
            Ok(answers) => answers
                .into_iter()
                .map(|answer| answer.map(|accepted| Appended::accept(accepted, append_began)))
                .collect(),
            Err(error) => (0..length).map(|_| Err(error.clone().into())).collect(),
        }
    }

    async fn read(&self, run: RunKey, after_seq: u64, limit: usize) -> Result<Vec<StoredEvent>, StoreError> {
        let limit = limit.min(READ_EVENTS_MAX);
        // One statement, so that the row of the run and its events are of one moment.
        let rows = sqlx::query(
            "SELECT r.last_seq, e.seq, e.at, e.actor_id, e.actor_role, e.visibility, e.kind, e.version, e.body, \
             e.prev_hash, e.hash FROM runs AS r LEFT JOIN run_events AS e ON e.run_key = r.run_key AND e.seq > ?2 \
             WHERE r.run_key = ?1 ORDER BY e.seq LIMIT ?3",
        )
        .bind(blob(run.uuid()))
        .bind(int(after_seq))
        .bind(int(limit as u64))
        .fetch_all(&self.readers)
        .await
        .map_err(failed("read events"))?;
        read_events(run, after_seq, limit, &rows)
    }

    async fn head(&self, run: RunKey) -> Result<Option<RunHead>, StoreError> {
        let row = sqlx::query(concat!("SELECT ", run_columns!(), " FROM runs WHERE run_key = ?"))
            .bind(blob(run.uuid()))
            .fetch_optional(&self.readers)
            .await
            .map_err(failed("read the row of a run"))?;
        row.map(|row| run_row(&row).map(|run| run.head)).transpose()
    }

    async fn find(&self, tenant: &TenantId, run: RunId) -> Result<Option<RunHead>, StoreError> {
        let row = sqlx::query(FIND).bind(tenant.as_str()).bind(blob(run.uuid())).fetch_optional(&self.readers).await;
        let row = row.map_err(failed("find a run"))?;
        row.map(|row| run_row(&row).map(|run| run.head)).transpose()
    }

    async fn put_snapshot(&self, run: RunKey, seq: u64, fold_version: u32, bytes: Vec<u8>) -> Result<(), StoreError> {
        self.writer
            .transact(move |conn| Box::pin(async move { put_snapshot(conn, run, seq, fold_version, bytes).await }))
            .await
    }

    async fn snapshot(&self, run: RunKey, fold_version: u32) -> Result<Option<(u64, Vec<u8>)>, StoreError> {
        let row = sqlx::query("SELECT seq, bytes FROM run_snapshots WHERE run_key = ? AND fold_version = ?")
            .bind(blob(run.uuid()))
            .bind(fold_version)
            .fetch_optional(&self.readers)
            .await
            .map_err(failed("read a snapshot"))?;
        // A snapshot is only a short cut: one that cannot be read is as good as none.
        Ok(row.and_then(|row| Some((count(&row, "seq").ok()?, row.bytes("bytes").ok()?.to_vec()))))
    }
}

const FIND: &str = concat!("SELECT ", run_columns!(), " FROM runs WHERE tenant = ? AND run_id = ?");

async fn create(conn: &mut SqliteConnection, run: &NewRun, now: UnixMicros) -> Result<Created, StoreError> {
    let existing = sqlx::query(FIND)
        .bind(run.tenant_id.to_string())
        .bind(blob(run.run_id.uuid()))
        .fetch_optional(&mut *conn)
        .await
        .map_err(failed("find a run"))?;
    if let Some(row) = existing {
        return Ok(Created::Exists(run_row(&row)?.head));
    }
    let taken: i64 = sqlx::query_scalar("SELECT count(*) FROM runs WHERE run_key = ?")
        .bind(blob(run.run_key.uuid()))
        .fetch_one(&mut *conn)
        .await
        .map_err(failed("find a run"))?;
    if taken > 0 {
        return Err(StoreError::Poison("the run key is taken".into()));
    }
    let (head, events) = run.first_rows(now)?;
    let submitted = run.submitted()?;
    sqlx::query(
        "INSERT INTO runs (run_key, tenant, run_id, owner_incarnation, lease_epoch, last_seq, last_hash, last_at, \
         control_seq, inbox_len, wake_at_ms, parked, closed, format) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, 0, ?, 0, ?, ?)",
    )
    .bind(blob(head.run_key.uuid()))
    .bind(head.tenant_id.to_string())
    .bind(blob(head.run_id.uuid()))
    .bind(head.owner.map(|owner| blob(owner.uuid())))
    .bind(int(head.lease_epoch))
    .bind(int(head.last_seq))
    .bind(head.last_hash.0.to_vec())
    .bind(head.last_at.0)
    .bind(run.projection.wake_at.map(|at| at.0))
    .bind(head.closed)
    .bind(RUN_FORMAT)
    .execute(&mut *conn)
    .await
    .map_err(failed("write the row of a run"))?;
    sqlx::query(
        "INSERT INTO run_dashboard (run_key, tenant, pipeline_id, root_agent_id, submitted_at, status, \
         total_cost_micros, percent, waiting_for, open_approvals) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(blob(head.run_key.uuid()))
    .bind(head.tenant_id.to_string())
    .bind(submitted.pipeline_id.as_ref().map(ToString::to_string))
    .bind(submitted.root_agent_id.to_string())
    .bind(now.0)
    .bind(run.projection.status.as_str())
    .bind(run.projection.total_cost_micros)
    .bind(i64::from(run.projection.percent))
    .bind(run.projection.waiting_for.clone())
    .bind(approvals_json(&run.projection.open_approvals))
    .execute(&mut *conn)
    .await
    .map_err(failed("write the dashboard"))?;
    insert_events(conn, &events).await?;
    let open: Vec<_> = run.projection.open_approvals.iter().map(|open| (run.run_key, &run.tenant_id, open)).collect();
    insert_approvals(conn, &open).await?;
    Ok(Created::New { head, events })
}

async fn put_snapshot(
    conn: &mut SqliteConnection,
    run: RunKey,
    seq: u64,
    fold_version: u32,
    bytes: Vec<u8>,
) -> Result<(), StoreError> {
    let known: i64 = sqlx::query_scalar("SELECT count(*) FROM runs WHERE run_key = ?")
        .bind(blob(run.uuid()))
        .fetch_one(&mut *conn)
        .await
        .map_err(failed("find a run"))?;
    if known == 0 {
        return Err(StoreError::Poison("there is no such run".into()));
    }
    sqlx::query(
        "INSERT INTO run_snapshots (run_key, seq, fold_version, bytes) VALUES (?, ?, ?, ?) ON CONFLICT (run_key) \
         DO UPDATE SET seq = excluded.seq, fold_version = excluded.fold_version, bytes = excluded.bytes \
         WHERE excluded.fold_version <> fold_version OR excluded.seq > seq",
    )
    .bind(blob(run.uuid()))
    .bind(int(seq))
    .bind(fold_version)
    .bind(bytes)
    .execute(conn)
    .await
    .map_err(failed("keep a snapshot"))?;
    Ok(())
}
