//! An operator's tools.

use std::sync::Arc;

use async_trait::async_trait;
use signalbox_domain::ids::{RunKey, StoreIncarnation};
use signalbox_ports::journal::StoreError;
use signalbox_ports::maintenance::{LIVE_RUNS_MAX, Maintenance};

use super::errors::{Problem, failed};
use super::transaction::{Attempts, Ended, GovernanceLock, in_task, in_time};
use super::{PostgresStore, Shared};
use crate::cells::Cells as _;
use crate::rows::int;

#[async_trait]
impl Maintenance for PostgresStore {
    async fn live_runs(&self, after: Option<RunKey>) -> Result<Vec<RunKey>, StoreError> {
        let query = sqlx::query(
            "SELECT run_key FROM runs WHERE NOT closed AND ($1::uuid IS NULL OR run_key > $1) ORDER BY run_key LIMIT $2",
        );
        let query = query.bind(after.map(|after| after.uuid())).bind(int(LIVE_RUNS_MAX as u64));
        let rows = self.shared.readers.all("list live runs", query).await?;
        rows.iter().map(|row| row.id("run_key").map(RunKey::new).map_err(StoreError::Unavailable)).collect()
    }

    async fn begin_incarnation(&self) -> Result<StoreIncarnation, StoreError> {
        let shared = Arc::clone(&self.shared);
        let incarnation = StoreIncarnation::new(uuid::Uuid::now_v7());
        in_task(async move {
            let mut attempts = Attempts::new();
            loop {
                let begun = begin_once(&shared, incarnation).await;
                if let Some(()) = attempts.settle_repeatable(begun).await? {
                    return Ok(incarnation);
                }
            }
        })
        .await
    }
}

// Under the exclusive lock: no append that was judged under the old incarnation commits after it.
async fn begin_once(shared: &Shared, incarnation: StoreIncarnation) -> Result<Ended<()>, Problem> {
    let mut transaction = shared.control.begin(GovernanceLock::Exclusive).await?;
    let begun =
        sqlx::query("UPDATE store_meta SET incarnation = $1").bind(incarnation.uuid()).execute(transaction.conn()?);
    let outcome = in_time(async { begun.await.map(|_| ()).map_err(failed("begin an incarnation")) }).await;
    transaction.end(outcome).await
}
