//! Which node owns which run, by the server's clock.
//!
//! A lease that has run out is given up by whoever claims next, once; a node that finds its own given up stops writing, and
//! could not write if it did not, since each claim raises the run's lease epoch. Nobody waits for a run here that somebody
//! else has locked: it is in good hands, and comes up again.

use std::sync::Arc;

use async_trait::async_trait;
use signalbox_domain::ids::{NodeIncarnation, RunKey};
use signalbox_domain::run::append::RunHead;
use signalbox_domain::time::UnixMicros;
use signalbox_ports::journal::StoreError;
use signalbox_ports::leases::{CLAIM_RUNS_MAX, LEASE_MS, LEASE_REMEMBERED_MS, Leases, NodeSweep, RUN_FORMAT, Swept};
use sqlx::PgConnection;

use super::errors::{Problem, failed};
use super::store_clock::{StoreClock, server_now};
use super::transaction::{Attempts, Ended, GovernanceLock, in_task, in_time};
use super::{PostgresStore, Shared, nodes, sweeps};
use crate::cells::Cells as _;
use crate::rows::{claimed_heads, int, run_columns, run_row};

/// Most old leases that one claim forgets.
const FORGOTTEN_MAX: i64 = 1_000;

#[async_trait]
impl Leases for PostgresStore {
    async fn renew(&self, node: NodeIncarnation, name: &str) -> Result<bool, StoreError> {
        let (shared, name) = (Arc::clone(&self.shared), name.to_owned());
        in_task(async move {
            let mut attempts = Attempts::new();
            loop {
                if let Some(held) = attempts.settle_repeatable(renew_once(&shared, node, &name).await).await? {
                    return Ok(held);
                }
            }
        })
        .await
    }

    async fn claim(&self, node: NodeIncarnation, limit: usize) -> Result<Vec<RunHead>, StoreError> {
        let (shared, limit) = (Arc::clone(&self.shared), int(limit.min(CLAIM_RUNS_MAX) as u64));
        in_task(async move {
            let mut attempts = Attempts::new();
            let (mut claimed, why) = loop {
                match attempts.settle(claim_once(&shared, node, limit).await).await? {
                    None => {}
                    Some(Ended::Committed(claimed)) => return Ok(claimed),
                    Some(Ended::Lost(claimed, why)) => break (claimed, why),
                }
            };
            // No later claim would find them: they have a live owner, who would not know of them.
            attempts.was_lost(why).await?;
            loop {
                match attempts.settle_repeatable(still_held(&shared, &claimed).await).await {
                    Ok(None) => {}
                    Ok(Some(held)) => {
                        claimed.retain(|head| held.contains(&head.run_key));
                        return Ok(claimed);
                    }
                    Err(StoreError::Unknown(problem)) => attempts.was_lost(problem).await?,
                    Err(error) => return Err(error),
                }
            }
        })
        .await
    }

    async fn claim_one(&self, node: NodeIncarnation, run: RunKey) -> Result<Option<RunHead>, StoreError> {
        let shared = Arc::clone(&self.shared);
        in_task(async move {
            let mut attempts = Attempts::new();
            loop {
                // Its own run is given to a node as it is, so asking twice is harmless.
                if let Some(claimed) = attempts.settle_repeatable(claim_one_once(&shared, node, run).await).await? {
                    return Ok(claimed);
                }
            }
        })
        .await
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
        let shared = Arc::clone(&self.shared);
        in_task(async move {
            let mut attempts = Attempts::new();
            loop {
                if let Some(()) = attempts.settle_repeatable(release_once(&shared, node).await).await? {
                    return Ok(());
                }
            }
        })
        .await
    }
}

async fn renew_once(shared: &Shared, node: NodeIncarnation, name: &str) -> Result<Ended<bool>, Problem> {
    let mut transaction = shared.control.begin(GovernanceLock::None).await?;
    let renewed = sqlx::query_scalar(concat!(
        "INSERT INTO nodes AS n (incarnation, name, expires_at, given_up) VALUES ($1, $2, COALESCE($3::int8, ",
        server_now!(),
        ") + $4, FALSE) ON CONFLICT (incarnation) DO UPDATE SET expires_at = EXCLUDED.expires_at RETURNING NOT n.given_up"
    ))
    .bind(node.uuid())
    .bind(name.as_bytes())
    .bind(shared.clock.injected())
    .bind(int(LEASE_MS * 1_000))
    .fetch_one(transaction.conn()?);
    let outcome = in_time(async { renewed.await.map_err(failed("renew a lease")) }).await;
    transaction.end(outcome).await
}

async fn release_once(shared: &Shared, node: NodeIncarnation) -> Result<Ended<()>, Problem> {
    let mut transaction = shared.control.begin(GovernanceLock::None).await?;
    let released = sqlx::query(concat!(
        "INSERT INTO nodes (incarnation, name, expires_at, given_up) VALUES ($1, '', COALESCE($2::int8, ",
        server_now!(),
        "), TRUE) ON CONFLICT (incarnation) DO UPDATE SET given_up = TRUE"
    ))
    .bind(node.uuid())
    .bind(shared.clock.injected())
    .execute(transaction.conn()?);
    let outcome = in_time(async { released.await.map(|_| ()).map_err(failed("release a lease")) }).await;
    transaction.end(outcome).await
}

async fn claim_once(shared: &Shared, node: NodeIncarnation, limit: i64) -> Result<Ended<Vec<RunHead>>, Problem> {
    let mut transaction = shared.control.begin(GovernanceLock::None).await?;
    let conn = transaction.conn()?;
    let outcome = in_time(async {
        match claiming_since(conn, node, &shared.clock).await? {
            Some(now) => claim(conn, node, limit, now).await,
            None => Ok(Vec::new()),
        }
    });
    let outcome = outcome.await;
    transaction.end(outcome).await
}

async fn claim_one_once(
    shared: &Shared,
    node: NodeIncarnation,
    run: RunKey,
) -> Result<Ended<Option<RunHead>>, Problem> {
    let mut transaction = shared.control.begin(GovernanceLock::None).await?;
    let conn = transaction.conn()?;
    let outcome = in_time(async {
        match claiming_since(conn, node, &shared.clock).await? {
            Some(_) => claim_one(conn, node, run).await,
            None => Ok(None),
        }
    });
    let outcome = outcome.await;
    transaction.end(outcome).await
}

/// Gives up every lease but the node's own that has run out, and forgets old ones. Says by which time the node may claim, if it may: its own lease
/// is locked, so that nobody gives it up in the middle.
async fn claiming_since(
    conn: &mut PgConnection,
    node: NodeIncarnation,
    clock: &StoreClock,
) -> Result<Option<UnixMicros>, Problem> {
    let own = sqlx::query("SELECT expires_at, given_up FROM nodes WHERE incarnation = $1 FOR SHARE")
        .bind(node.uuid())
        .fetch_optional(&mut *conn)
        .await
        .map_err(failed("lock a lease"))?;
    let now = clock.now(conn).await?;
    // A lease that is being renewed right now has not run out.
    sqlx::query(
        "UPDATE nodes SET given_up = TRUE WHERE incarnation = ANY(ARRAY(SELECT incarnation FROM nodes \
         WHERE NOT given_up AND incarnation <> $1 AND expires_at <= $2 ORDER BY incarnation FOR UPDATE SKIP LOCKED))",
    )
    .bind(node.uuid())
    .bind(now.0)
    .execute(&mut *conn)
    .await
    .map_err(failed("give up leases"))?;
    sqlx::query(
        "DELETE FROM nodes WHERE incarnation = ANY(ARRAY(SELECT incarnation FROM nodes \
         WHERE given_up AND incarnation <> $1 AND expires_at <= $2 ORDER BY incarnation LIMIT $3 FOR UPDATE SKIP LOCKED))",
    )
    .bind(node.uuid())
    .bind(now.0.saturating_sub(int(LEASE_REMEMBERED_MS * 1_000)))
    .bind(FORGOTTEN_MAX)
    .execute(conn)
    .await
    .map_err(failed("forget old leases"))?;
    let unreadable = |problem| StoreError::Unavailable(format!("a lease cannot be read: {problem}"));
    let Some(own) = own else { return Ok(None) };
    let is_held = !own.flag("given_up").map_err(unreadable)? && own.int("expires_at").map_err(unreadable)? > now.0;
    Ok(is_held.then_some(now))
}

/// True of a run whose owner has no lease.
macro_rules! orphaned {
    () => {
        "NOT EXISTS (SELECT 1 FROM nodes AS n WHERE n.incarnation = r.owner_incarnation AND NOT n.given_up)"
    };
}

async fn claim(
    conn: &mut PgConnection,
    node: NodeIncarnation,
    limit: i64,
    now: UnixMicros,
) -> Result<Vec<RunHead>, Problem> {
    // Each part has its partial index, and stops at the limit, however many runs wait.
    let claimed = sqlx::query(concat!(
        "WITH with_work AS (SELECT run_key FROM runs AS r WHERE NOT closed AND owner_incarnation IS NULL \
         AND (inbox_len > 0 OR NOT parked) AND format <= $3 LIMIT $4 FOR UPDATE SKIP LOCKED), \
         due AS (SELECT run_key FROM runs AS r WHERE NOT closed AND owner_incarnation IS NULL \
         AND wake_at_ms IS NOT NULL AND wake_at_ms <= $2 AND format <= $3 LIMIT $4 FOR UPDATE SKIP LOCKED), \
         orphaned AS (SELECT run_key FROM runs AS r WHERE NOT closed AND owner_incarnation IS NOT NULL AND ",
        orphaned!(),
        " AND format <= $3 LIMIT $4 FOR UPDATE OF r SKIP LOCKED), \
         chosen AS (SELECT run_key FROM with_work UNION SELECT run_key FROM due UNION SELECT run_key FROM orphaned \
         LIMIT $4) \
         UPDATE runs SET owner_incarnation = $1, lease_epoch = lease_epoch + 1, parked = FALSE \
         WHERE run_key = ANY(ARRAY(SELECT run_key FROM chosen)) RETURNING ",
        run_columns!(),
    ))
    .bind(node.uuid())
    .bind(now.ms().0)
    .bind(i64::from(RUN_FORMAT))
    .bind(limit)
    .fetch_all(conn)
    .await
    .map_err(failed("claim runs"))?;
    Ok(claimed_heads(&claimed))
}

async fn claim_one(conn: &mut PgConnection, node: NodeIncarnation, run: RunKey) -> Result<Option<RunHead>, Problem> {
    // Whoever owns it already gets it as it is: its own appends must not be fenced.
    let row = sqlx::query(concat!(
        "UPDATE runs AS r SET lease_epoch = lease_epoch + (owner_incarnation IS DISTINCT FROM $1)::int, \
         owner_incarnation = $1, parked = FALSE WHERE run_key = $3 AND NOT closed AND format <= $2 \
         AND (owner_incarnation IS NULL OR owner_incarnation = $1 OR ",
        orphaned!(),
        ") RETURNING ",
        run_columns!(),
    ))
    .bind(node.uuid())
    .bind(i64::from(RUN_FORMAT))
    .bind(run.uuid())
    .fetch_optional(conn)
    .await
    .map_err(failed("claim a run"))?;
    Ok(row.map(|row| run_row(&row).map(|run| run.head)).transpose()?)
}

/// Which of these claims stand, once the transaction that made them has ended one way or the other.
async fn still_held(shared: &Shared, claimed: &[RunHead]) -> Result<Ended<Vec<RunKey>>, Problem> {
    let mut transaction = shared.control.begin(GovernanceLock::None).await?;
    let keys: Vec<_> = claimed.iter().map(|head| head.run_key.uuid()).collect();
    let rows = sqlx::query(concat!(
        "SELECT ",
        run_columns!(),
        " FROM runs WHERE run_key = ANY($1) ORDER BY run_key FOR UPDATE"
    ))
    .bind(keys)
    .fetch_all(transaction.conn()?);
    let outcome = in_time(async { rows.await.map_err(failed("look for claims")) }).await.map(|rows| {
        let heads = rows.iter().filter_map(|row| run_row(row).ok()).map(|run| run.head);
        let stands = |head: &RunHead| {
            claimed.iter().any(|claim| {
                (claim.run_key, claim.owner, claim.lease_epoch) == (head.run_key, head.owner, head.lease_epoch)
            })
        };
        heads.filter(stands).map(|head| head.run_key).collect()
    });
    transaction.end(outcome).await
}
