//! What nodes tell each other through the store: whose runs have commands, and who has swept.

use std::sync::Arc;

use signalbox_domain::ids::{NodeIncarnation, RunKey};
use signalbox_ports::journal::StoreError;
use signalbox_ports::leases::{NodeSweep, SWEPT_EPOCHS_KEPT, WAITING_RUNS_MAX};

use super::errors::{Problem, failed};
use super::store_clock::server_now;
use super::transaction::{Attempts, Ended, GovernanceLock, in_task, in_time};
use super::{PostgresStore, Shared};
use crate::rows::{int, node_sweeps, run_keys};

pub(super) async fn waiting(store: &PostgresStore, node: NodeIncarnation) -> Result<Vec<RunKey>, StoreError> {
    // Its index has exactly these rows, and is empty on most days.
    let query = sqlx::query(
        "SELECT run_key FROM runs WHERE NOT closed AND owner_incarnation IS NOT NULL AND inbox_len > 0 \
         AND owner_incarnation = $1 LIMIT $2",
    );
    let query = query.bind(node.uuid()).bind(int(WAITING_RUNS_MAX as u64));
    run_keys(&store.shared.control_readers.all("look for runs with commands", query).await?)
}

pub(super) async fn sweepers(store: &PostgresStore, epoch: u64) -> Result<Vec<NodeSweep>, StoreError> {
    let query = sqlx::query(
        "SELECT n.incarnation, n.name, (SELECT s.at FROM node_sweeps AS s WHERE s.incarnation = n.incarnation \
         AND s.epoch >= $1 ORDER BY s.epoch LIMIT 1) AS at FROM nodes AS n WHERE NOT n.given_up ORDER BY n.incarnation",
    );
    node_sweeps(&store.shared.control_readers.all("read who has swept", query.bind(int(epoch))).await?)
}

pub(super) async fn swept(store: &PostgresStore, node: NodeIncarnation, epoch: u64) -> Result<(), StoreError> {
    let shared = Arc::clone(&store.shared);
    in_task(async move {
        let mut attempts = Attempts::new();
        loop {
            if let Some(()) = attempts.settle_repeatable(swept_once(&shared, node, int(epoch)).await).await? {
                return Ok(());
            }
        }
    })
    .await
}

async fn swept_once(shared: &Shared, node: NodeIncarnation, epoch: i64) -> Result<Ended<()>, Problem> {
    let mut transaction = shared.control.begin(GovernanceLock::None).await?;
    let conn = transaction.conn()?;
    let outcome = in_time(async {
        sqlx::query(concat!(
            "INSERT INTO node_sweeps (incarnation, epoch, at) VALUES ($1, $2, COALESCE($3::int8, ",
            server_now!(),
            ")) ON CONFLICT (incarnation, epoch) DO NOTHING"
        ))
        .bind(node.uuid())
        .bind(epoch)
        .bind(shared.clock.injected())
        .execute(&mut *conn)
        .await
        .map_err(failed("remember a sweep"))?;
        sqlx::query(
            "DELETE FROM node_sweeps AS s WHERE (s.incarnation = $1 AND s.epoch <= $2) \
             OR NOT EXISTS (SELECT 1 FROM nodes AS n WHERE n.incarnation = s.incarnation)",
        )
        .bind(node.uuid())
        .bind(epoch.saturating_sub(int(SWEPT_EPOCHS_KEPT)))
        .execute(conn)
        .await
        .map_err(failed("forget old sweeps"))?;
        Ok(())
    });
    let outcome = outcome.await;
    transaction.end(outcome).await
}
