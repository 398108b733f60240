//! Runs, their events and snapshots.

use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::{Params, params};
use signalbox_domain::ids::{RunId, RunKey, TenantId};
use signalbox_domain::run::append::{Entry, RunHead};
use signalbox_domain::run::chain::StoredEvent;
use signalbox_ports::clock::BootInstant;
use signalbox_ports::journal::{AppendError, Appended, Created, Journal, NewRun, READ_EVENTS_MAX, StoreError};
use sqlx::sqlite::SqliteConnection;

use super::SqliteStore;
use super::append::append;
use super::direct::Transaction;
use super::rows::{blob, failed};
use crate::cells::Cells as _;
use crate::rows::{EventPage, count, int, run_columns, run_row};

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
        let find = "SELECT r.last_seq, e.seq, e.at, e.actor_id, e.actor_role, e.visibility, e.kind, e.version, e.body, \
                    e.prev_hash, e.hash FROM runs AS r LEFT JOIN run_events AS e ON e.run_key = r.run_key AND e.seq > ?2 \
                    WHERE r.run_key = ?1 ORDER BY e.seq LIMIT ?3";
        let look = move |conn: &Transaction<'_>| {
            let mut page = EventPage::after(run, after_seq, limit);
            let values = params![run.uuid().into_bytes(), int(after_seq), int(limit as u64)];
            conn.each("read events", find, values, |row| page.take(row))?;
            page.finish()
        };
        self.reading.look(look).await
    }

    async fn head(&self, run: RunKey) -> Result<Option<RunHead>, StoreError> {
        let sql = concat!("SELECT ", run_columns!(), " FROM runs WHERE run_key = ?1");
        self.reading.look(move |conn| head(conn, "read the row of a run", sql, [run.uuid().into_bytes()])).await
    }

    async fn find(&self, tenant: &TenantId, run: RunId) -> Result<Option<RunHead>, StoreError> {
        let tenant = tenant.clone();
        let sql = concat!("SELECT ", run_columns!(), " FROM runs WHERE tenant = ?1 AND run_id = ?2");
        let look = move |conn: &Transaction<'_>| {
            head(conn, "find a run", sql, params![tenant.as_str(), run.uuid().into_bytes()])
        };
        self.reading.look(look).await
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

fn head(
    conn: &Transaction<'_>,
    doing: &'static str,
    sql: &'static str,
    values: impl Params,
) -> Result<Option<RunHead>, StoreError> {
    let mut found = None;
    conn.each(doing, sql, values, |row| found = Some(run_row(row)))?;
    Ok(found.transpose()?.map(|run| run.head))
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
