//! Which node owns which run.
//!
//! The lock on the data directory proves that there is no other process, so every lease of an earlier opening is void.
//! Leases of this opening count all the same: several nodes may live in one process, as they do in tests.

use std::sync::Arc;

use async_trait::async_trait;
use signalbox_domain::ids::{NodeIncarnation, RunKey};
use signalbox_domain::run::append::RunHead;
use signalbox_domain::time::UnixMs;
use signalbox_ports::clock::BootInstant;
use signalbox_ports::journal::StoreError;
use signalbox_ports::leases::{CLAIM_RUNS_MAX, LEASE_MS, LEASE_REMEMBERED_MS, Leases, NodeSweep, RUN_FORMAT, Swept};
use sqlx::sqlite::SqliteConnection;

use super::rows::{blob, failed};
use super::{SqliteStore, nodes, sweeps};
use crate::rows::{claimed_heads, int, run_columns, run_row};

#[async_trait]
impl Leases for SqliteStore {
    async fn renew(&self, node: NodeIncarnation, name: &str) -> Result<bool, StoreError> {
        let (clock, session, name) = (Arc::clone(&self.clock), self.session, name.to_owned());
        self.writer
            .transact(move |conn| {
                Box::pin(async move {
                    let ends = int(clock.boot().0.saturating_add(LEASE_MS * 1_000_000));
                    sqlx::query_scalar(
                        "INSERT INTO nodes (incarnation, name, session, ends_boot, given_up) VALUES (?, ?, ?, ?, 0) \
                         ON CONFLICT (incarnation) DO UPDATE SET \
                         given_up = given_up OR session <> excluded.session, ends_boot = excluded.ends_boot \
                         RETURNING NOT given_up",
                    )
                    .bind(blob(node.uuid()))
                    .bind(name)
                    .bind(session)
                    .bind(ends)
                    .fetch_one(conn)
                    .await
                    .map_err(failed("renew a lease"))
                })
            })
            .await
    }

    async fn claim(&self, node: NodeIncarnation, limit: usize) -> Result<Vec<RunHead>, StoreError> {
        let claiming = self.claiming(node);
        let limit = int(limit.min(CLAIM_RUNS_MAX) as u64);
        self.writer.transact(move |conn| Box::pin(async move { claiming.claim(conn, limit).await })).await
    }

    async fn claim_one(&self, node: NodeIncarnation, run: RunKey) -> Result<Option<RunHead>, StoreError> {
        let claiming = self.claiming(node);
        self.writer.transact(move |conn| Box::pin(async move { claiming.claim_one(conn, run).await })).await
    }

    async fn sweep(&self, limit: usize) -> Result<Option<Swept>, StoreError> {
        sweeps::sweep(self, limit).await
    }

    async fn waiting(&self, node: NodeIncarnation) -> Result<Vec<RunKey>, StoreError> {
        nodes::waiting(self, node).await
    }

    async fn swept(&self, node: NodeIncarnation, epoch: u64) -> Result<(), StoreError> {
        nodes::swept(self, node, epoch).await
    }

    async fn sweepers(&self, epoch: u64) -> Result<Vec<NodeSweep>, StoreError> {
        nodes::sweepers(self, epoch).await
    }

    async fn release(&self, node: NodeIncarnation) -> Result<(), StoreError> {
        let (session, ends) = (self.session, int(self.clock.boot().0));
        self.writer
            .transact(move |conn| {
                Box::pin(async move {
                    sqlx::query(
                        "INSERT INTO nodes (incarnation, name, session, ends_boot, given_up) VALUES (?, '', ?, ?, 1) \
                         ON CONFLICT (incarnation) DO UPDATE SET given_up = 1",
                    )
                    .bind(blob(node.uuid()))
                    .bind(session)
                    .bind(ends)
                    .execute(conn)
                    .await
                    .map_err(failed("release a lease"))?;
                    Ok(())
                })
            })
            .await
    }
}

impl SqliteStore {
    fn claiming(&self, node: NodeIncarnation) -> Claiming {
        Claiming { node, session: self.session, now: self.clock.now(), boot: self.clock.boot() }
    }
}

/// Who claims, and when.
struct Claiming {
    node: NodeIncarnation,
    session: i64,
    now: UnixMs,
    boot: BootInstant,
}

impl Claiming {
    async fn claim(&self, conn: &mut SqliteConnection, limit: i64) -> Result<Vec<RunHead>, StoreError> {
        if !self.may_claim(conn).await? {
            return Ok(Vec::new());
        }
        // Each branch has its partial index, and stops at the limit, however many runs wait.
        let claimed = sqlx::query(concat!(
            "UPDATE runs SET owner_incarnation = ?1, lease_epoch = lease_epoch + 1, parked = 0 WHERE run_key IN (\
             SELECT * FROM (SELECT run_key FROM runs WHERE closed = 0 AND owner_incarnation IS NULL \
             AND (inbox_len > 0 OR parked = 0) AND format <= ?4 LIMIT ?5) \
             UNION SELECT * FROM (SELECT run_key FROM runs WHERE closed = 0 AND owner_incarnation IS NULL \
             AND wake_at_ms IS NOT NULL AND wake_at_ms <= ?3 AND format <= ?4 LIMIT ?5) \
             UNION SELECT * FROM (SELECT run_key FROM runs WHERE closed = 0 AND owner_incarnation IS NOT NULL \
             AND owner_incarnation NOT IN (SELECT incarnation FROM nodes WHERE session = ?2 AND given_up = 0) \
             AND format <= ?4 LIMIT ?5) \
             LIMIT ?5) RETURNING ",
            run_columns!(),
        ))
        .bind(blob(self.node.uuid()))
        .bind(self.session)
        .bind(self.now.0)
        .bind(RUN_FORMAT)
        .bind(limit)
        .fetch_all(conn)
        .await
        .map_err(failed("claim runs"))?;
        Ok(claimed_heads(&claimed))
    }

    async fn claim_one(&self, conn: &mut SqliteConnection, run: RunKey) -> Result<Option<RunHead>, StoreError> {
        if !self.may_claim(conn).await? {
            return Ok(None);
        }
        // Whoever owns it already gets it as it is: its own appends must not be fenced.
        let row = sqlx::query(concat!(
            "UPDATE runs SET lease_epoch = lease_epoch + (owner_incarnation IS NOT ?1), owner_incarnation = ?1, \
             parked = 0 WHERE run_key = ?4 AND closed = 0 AND format <= ?3 AND (owner_incarnation IS NULL \
             OR owner_incarnation = ?1 \
             OR owner_incarnation NOT IN (SELECT incarnation FROM nodes WHERE session = ?2 AND given_up = 0)) RETURNING ",
            run_columns!(),
        ))
        .bind(blob(self.node.uuid()))
        .bind(self.session)
        .bind(RUN_FORMAT)
        .bind(blob(run.uuid()))
        .fetch_optional(conn)
        .await
        .map_err(failed("claim a run"))?;
        row.map(|row| run_row(&row).map(|run| run.head)).transpose()
    }

    /// Gives up every lease but the node's own that has run out, forgets the old ones, and says whether the node may claim.
    async fn may_claim(&self, conn: &mut SqliteConnection) -> Result<bool, StoreError> {
        let (node, boot) = (blob(self.node.uuid()), int(self.boot.0));
        sqlx::query("UPDATE nodes SET given_up = 1 WHERE given_up = 0 AND incarnation <> ? AND (session <> ? OR ends_boot <= ?)")
            .bind(node.clone())
            .bind(self.session)
            .bind(boot)
            .execute(&mut *conn)
            .await
            .map_err(failed("give up leases"))?;
        // Nobody of an earlier opening can come back: its process had the lock of the data directory.
        sqlx::query("DELETE FROM nodes WHERE incarnation <> ? AND (session <> ? OR ends_boot <= ?)")
            .bind(node.clone())
            .bind(self.session)
            .bind(boot.saturating_sub(int(LEASE_REMEMBERED_MS * 1_000_000)))
            .execute(&mut *conn)
            .await
            .map_err(failed("forget old leases"))?;
        let held: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM nodes WHERE incarnation = ? AND session = ? AND given_up = 0 AND ends_boot > ?",
        )
        .bind(node)
        .bind(self.session)
        .bind(boot)
        .fetch_one(conn)
        .await
        .map_err(failed("read a lease"))?;
        Ok(held > 0)
    }
}
