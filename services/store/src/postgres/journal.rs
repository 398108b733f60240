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
use signalbox_ports::webhooks::told_of_run;
use sqlx::PgConnection;

use super::append::{append, insert_approvals, insert_events};
use super::errors::{Problem, failed};
use super::transaction::{Attempts, Ended, GovernanceLock, in_task, in_time};
use super::{PostgresStore, Shared, webhooks};
use crate::batch::approvals_json;
use crate::cells::Cells as _;
use crate::dashboard::{cost_band, ended_at};
use crate::rows::{count, int, read_events, run_columns, run_row};

#[async_trait]
impl Journal for PostgresStore {
    async fn create(&self, run: NewRun) -> Result<Created, StoreError> {
        let shared = Arc::clone(&self.shared);
        in_task(async move { create(&shared, &run).await }).await
    }

    async fn append(&self, batch: Vec<Entry>, append_began: BootInstant) -> Vec<Result<Appended, AppendError>> {
        let (shared, length) = (Arc::clone(&self.shared), batch.len());
        match in_task(async move { Ok(append(&shared, &batch).await) }).await {
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
        let query = sqlx::query(
            "SELECT r.last_seq, e.seq, e.at, e.actor_id, e.actor_role, e.visibility, e.kind, e.version, e.body, \
             e.prev_hash, e.hash FROM runs AS r LEFT JOIN run_events AS e ON e.run_key = r.run_key AND e.seq > $2 \
             WHERE r.run_key = $1 ORDER BY e.seq LIMIT $3",
        );
        let query = query.bind(run.uuid()).bind(int(after_seq)).bind(int(limit as u64));
        read_events(run, after_seq, limit, &self.shared.readers.all("read events", query).await?)
    }

    async fn head(&self, run: RunKey) -> Result<Option<RunHead>, StoreError> {
        let query = sqlx::query(concat!("SELECT ", run_columns!(), " FROM runs WHERE run_key = $1")).bind(run.uuid());
        let row = self.shared.readers.first("read the row of a run", query).await?;
        row.map(|row| run_row(&row).map(|run| run.head)).transpose()
    }

    async fn find(&self, tenant: &TenantId, run: RunId) -> Result<Option<RunHead>, StoreError> {
        let query = sqlx::query(FIND).bind(tenant.as_str()).bind(run.uuid());
        let row = self.shared.readers.first("find a run", query).await?;
        row.map(|row| run_row(&row).map(|run| run.head)).transpose()
    }

    async fn put_snapshot(&self, run: RunKey, seq: u64, fold_version: u32, bytes: Vec<u8>) -> Result<(), StoreError> {
        let shared = Arc::clone(&self.shared);
        in_task(async move {
            let mut attempts = Attempts::new();
            loop {
                let put = put_snapshot(&shared, run, seq, fold_version, &bytes).await;
                if let Some(()) = attempts.settle_repeatable(put).await? {
                    return Ok(());
                }
            }
        })
        .await
    }

    async fn snapshot(&self, run: RunKey, fold_version: u32) -> Result<Option<(u64, Vec<u8>)>, StoreError> {
        let query = sqlx::query("SELECT seq, bytes FROM run_snapshots WHERE run_key = $1 AND fold_version = $2")
            .bind(run.uuid())
            .bind(i64::from(fold_version));
        let row = self.shared.readers.first("read a snapshot", query).await?;
        // A snapshot is only a short cut: one that cannot be read is as good as none.
        Ok(row.and_then(|row| Some((count(&row, "seq").ok()?, row.bytes("bytes").ok()?.to_vec()))))
    }
}

const FIND: &str = concat!("SELECT ", run_columns!(), " FROM runs WHERE tenant = $1 AND run_id = $2");

async fn create(shared: &Shared, run: &NewRun) -> Result<Created, StoreError> {
    let mut attempts = Attempts::new();
    let mut lost = None;
    loop {
        match attempts.settle(create_once(shared, run).await).await? {
            None => {}
            // The same run under the same key: it is the one whose commit was not answered.
            Some(Ended::Committed(Created::Exists(head))) if head.run_key == run.run_key => {
                return Ok(lost.unwrap_or(Created::Exists(head)));
            }
            Some(Ended::Committed(created)) => return Ok(created),
            Some(Ended::Lost(created, why)) => {
                attempts.was_lost(why).await?;
                // An attempt that only found the run there has written nothing: what was written before it stands.
                if !matches!(&created, Created::Exists(head) if head.run_key == run.run_key) {
                    lost = Some(created);
                }
            }
        }
    }
}

async fn create_once(shared: &Shared, run: &NewRun) -> Result<Ended<Created>, Problem> {
    let mut transaction = shared.journal.begin(GovernanceLock::None).await?;
    let conn = transaction.conn()?;
    let outcome = in_time(async {
        if let Some(head) = find(conn, run).await? {
            return Ok(Created::Exists(head));
        }
        let now = shared.clock.now(conn).await?;
        if let Some(created) = insert(conn, run, now).await? {
            return Ok(created);
        }
        // Somebody else was faster; the insertion has waited for them.
        match find(conn, run).await? {
            Some(head) => Ok(Created::Exists(head)),
            None => Err(StoreError::Poison("the run key is taken".into()).into()),
        }
    });
    let outcome = outcome.await;
    transaction.end(outcome).await
}

async fn find(conn: &mut PgConnection, run: &NewRun) -> Result<Option<RunHead>, Problem> {
    let found = sqlx::query(FIND).bind(run.tenant_id.as_str()).bind(run.run_id.uuid()).fetch_optional(conn).await;
    Ok(found.map_err(failed("find a run"))?.map(|row| run_row(&row).map(|run| run.head)).transpose()?)
}

/// Writes a run; `None` if its id or its key is there already.
pub(super) async fn insert(conn: &mut PgConnection, run: &NewRun, now: UnixMicros) -> Result<Option<Created>, Problem> {
    let (head, events) = run.first_rows(now)?;
    let submitted = run.submitted()?;
    let inserted = sqlx::query(
        "INSERT INTO runs (run_key, tenant, run_id, owner_incarnation, lease_epoch, last_seq, last_hash, last_at, \
         control_seq, inbox_len, wake_at_ms, parked, closed, format, parent_key) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 0, 0, $9, FALSE, $10, $11, $12) ON CONFLICT DO NOTHING",
    )
    .bind(head.run_key.uuid())
    .bind(head.tenant_id.as_str())
    .bind(head.run_id.uuid())
    .bind(head.owner.map(|owner| owner.uuid()))
    .bind(int(head.lease_epoch))
    .bind(int(head.last_seq))
    .bind(head.last_hash.0.as_slice())
    .bind(head.last_at.0)
    .bind(run.projection.wake_at.map(|at| at.0))
    .bind(head.closed)
    .bind(i64::from(RUN_FORMAT))
    .bind(run.parent().map(|parent| parent.uuid()))
    .execute(&mut *conn)
    .await
    .map_err(failed("write the row of a run"))?;
    if inserted.rows_affected() == 0 {
        return Ok(None);
    }
    sqlx::query(
        "INSERT INTO run_dashboard (run_key, tenant, pipeline_id, root_agent_id, submitted_at, status, \
         total_cost_micros, percent, waiting_for, open_approvals, cost_band, slow_at_ms, warned, words, ended_at, \
         submitted_by) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)",
    )
    .bind(head.run_key.uuid())
    .bind(head.tenant_id.as_str())
    .bind(submitted.pipeline_id.as_ref().map(|pipeline| pipeline.as_str()))
    .bind(submitted.root_agent_id.as_str())
    .bind(now.0)
    .bind(run.projection.status.as_str())
    .bind(run.projection.total_cost_micros)
    .bind(i64::from(run.projection.percent))
    .bind(run.projection.waiting_for.as_ref().map(String::as_bytes))
    .bind(approvals_json(&run.projection.open_approvals))
    .bind(cost_band(&run.projection))
    .bind(run.projection.slow_at.map(|at| at.0))
    .bind(run.projection.has_warnings)
    .bind(run.projection.words.as_bytes())
    .bind(ended_at(&run.projection, head.last_at))
    .bind(submitted.listed_under().as_str())
    .execute(&mut *conn)
    .await
    .map_err(failed("write the dashboard"))?;
    if let Some(routing) = &submitted.routing {
        sqlx::query("INSERT INTO rollout_runs (run_key, rollout_id, arm, min_score_micros) VALUES ($1, $2, $3, $4)")
            .bind(head.run_key.uuid())
            .bind(routing.rollout_id.as_str())
            .bind(routing.arm.as_str())
            .bind(routing.min_evaluation_score.0)
            .execute(&mut *conn)
            .await
            .map_err(failed("write the side of a run"))?;
    }
    insert_events(conn, &events).await?;
    let told = told_of_run(&head, &events, run.events.iter().map(|new| &new.event), |_| None);
    webhooks::tell(conn, &told, head.last_at.ms()).await?;
    let open: Vec<_> = run.projection.open_approvals.iter().map(|open| (run.run_key, &run.tenant_id, open)).collect();
    insert_approvals(conn, &open).await?;
    Ok(Some(Created::New { head, events }))
}

async fn put_snapshot(
    shared: &Shared,
    run: RunKey,
    seq: u64,
    fold_version: u32,
    bytes: &[u8],
) -> Result<Ended<()>, Problem> {
    let mut transaction = shared.journal.begin(GovernanceLock::None).await?;
    let conn = transaction.conn()?;
    let outcome = in_time(async {
        let known: bool = sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM runs WHERE run_key = $1)")
            .bind(run.uuid())
            .fetch_one(&mut *conn)
            .await
            .map_err(failed("find a run"))?;
        if !known {
            return Err(StoreError::Poison("there is no such run".into()).into());
        }
        sqlx::query(
            "INSERT INTO run_snapshots AS kept (run_key, seq, fold_version, bytes) VALUES ($1, $2, $3, $4) \
             ON CONFLICT (run_key) DO UPDATE \
             SET seq = EXCLUDED.seq, fold_version = EXCLUDED.fold_version, bytes = EXCLUDED.bytes \
             WHERE EXCLUDED.fold_version <> kept.fold_version OR EXCLUDED.seq > kept.seq",
        )
        .bind(run.uuid())
        .bind(int(seq))
        .bind(i64::from(fold_version))
        .bind(bytes)
        .execute(&mut *conn)
        .await
        .map_err(failed("keep a snapshot"))?;
        Ok(())
    });
    let outcome = outcome.await;
    transaction.end(outcome).await
}
