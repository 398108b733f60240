//! Runs, their events and snapshots.

use std::sync::Arc;

use async_trait::async_trait;
use signalbox_domain::ids::{RunId, RunKey, TenantId};
use signalbox_domain::run::append::{Entry, RunHead};
use signalbox_domain::run::chain::StoredEvent;
use signalbox_ports::clock::BootInstant;
use signalbox_ports::journal::{AppendError, Appended, Created, Journal, NewRun, READ_EVENTS_MAX, StoreError};
use sqlx::sqlite::SqliteConnection;

use super::SqliteStore;
use super::append::append;
use super::rows::{blob, failed};
use crate::cells::Cells as _;
use crate::rows::{count, int, read_events, run_columns, run_row};

#[async_trait]
impl Journal for SqliteStore {
    async fn create(&self, run: NewRun) -> Result<Created, StoreError> {
        self.writer.create(run).await
    }

    async fn append(&self, batch: Vec<Entry>, append_began: BootInstant) -> Vec<Result<Appended, AppendError>> {
        let (clock, length) = (Arc::clone(&self.clock), batch.len());
        let answers = self.writer.direct(move |direct| append(direct, &batch, clock.as_ref())).await;
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
