//! What nodes tell each other through the store: whose runs have commands, and who has swept.

use std::sync::Arc;

use signalbox_domain::ids::{NodeIncarnation, RunKey};
use signalbox_ports::journal::StoreError;
use signalbox_ports::leases::{NodeSweep, SWEPT_EPOCHS_KEPT, WAITING_RUNS_MAX};

use super::SqliteStore;
use super::rows::{blob, failed};
use crate::rows::{int, node_sweeps, run_keys};

pub(super) async fn waiting(store: &SqliteStore, node: NodeIncarnation) -> Result<Vec<RunKey>, StoreError> {
    let rows = sqlx::query(
        "SELECT run_key FROM runs WHERE closed = 0 AND owner_incarnation IS NOT NULL AND inbox_len > 0 \
         AND owner_incarnation = ? LIMIT ?",
    )
    .bind(blob(node.uuid()))
    .bind(int(WAITING_RUNS_MAX as u64))
    .fetch_all(&store.readers)
    .await
    .map_err(failed("look for runs with commands"))?;
    run_keys(&rows)
}

pub(super) async fn sweepers(store: &SqliteStore, epoch: u64) -> Result<Vec<NodeSweep>, StoreError> {
    let rows = sqlx::query(
        "SELECT n.incarnation, n.name, (SELECT s.at FROM node_sweeps AS s WHERE s.incarnation = n.incarnation \
         AND s.epoch >= ? ORDER BY s.epoch LIMIT 1) AS at FROM nodes AS n WHERE n.given_up = 0 AND n.session = ? \
         ORDER BY n.incarnation",
    )
    .bind(int(epoch))
    .bind(store.session)
    .fetch_all(&store.readers)
    .await
    .map_err(failed("read who has swept"))?;
    node_sweeps(&rows)
}

pub(super) async fn swept(store: &SqliteStore, node: NodeIncarnation, epoch: u64) -> Result<(), StoreError> {
    let (clock, epoch) = (Arc::clone(&store.clock), int(epoch));
    store
        .writer
        .transact(move |conn| Box::pin(async move { remember(conn, node, epoch, clock.now_micros().0).await }))
        .await
}

async fn remember(
    conn: &mut sqlx::sqlite::SqliteConnection,
    node: NodeIncarnation,
    epoch: i64,
    at: i64,
) -> Result<(), StoreError> {
    sqlx::query("INSERT INTO node_sweeps (incarnation, epoch, at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING")
        .bind(blob(node.uuid()))
        .bind(epoch)
        .bind(at)
        .execute(&mut *conn)
        .await
        .map_err(failed("remember a sweep"))?;
    sqlx::query(
        "DELETE FROM node_sweeps WHERE (incarnation = ? AND epoch <= ?) \
         OR incarnation NOT IN (SELECT incarnation FROM nodes)",
    )
    .bind(blob(node.uuid()))
    .bind(epoch.saturating_sub(int(SWEPT_EPOCHS_KEPT)))
    .execute(conn)
    .await
    .map_err(failed("forget old sweeps"))?;
    Ok(())
}
