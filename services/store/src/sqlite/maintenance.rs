//! An operator's tools.

use async_trait::async_trait;
use signalbox_domain::ids::{RunKey, StoreIncarnation};
use signalbox_ports::journal::StoreError;
use signalbox_ports::maintenance::{LIVE_RUNS_MAX, Maintenance};

use super::SqliteStore;
use super::rows::{blob, failed};
use crate::cells::Cells as _;
use crate::rows::int;

#[async_trait]
impl Maintenance for SqliteStore {
    async fn live_runs(&self, after: Option<RunKey>) -> Result<Vec<RunKey>, StoreError> {
        let rows = sqlx::query(
            "SELECT run_key FROM runs WHERE closed = 0 AND (?1 IS NULL OR run_key > ?1) ORDER BY run_key LIMIT ?2",
        )
        .bind(after.map(|after| blob(after.uuid())))
        .bind(int(LIVE_RUNS_MAX as u64))
        .fetch_all(&self.readers)
        .await
        .map_err(failed("list live runs"))?;
        rows.iter().map(|row| row.id("run_key").map(RunKey::new).map_err(StoreError::Unavailable)).collect()
    }

    async fn begin_incarnation(&self) -> Result<StoreIncarnation, StoreError> {
        let incarnation = uuid::Uuid::now_v7();
        self.writer
            .transact(move |conn| {
                Box::pin(async move {
                    sqlx::query("UPDATE store_meta SET incarnation = ?")
                        .bind(blob(incarnation))
                        .execute(conn)
                        .await
                        .map_err(failed("begin an incarnation"))?;
                    Ok(StoreIncarnation::new(incarnation))
                })
            })
            .await
    }
}
