//! Appending a batch: load the rows it touches, judge each entry, write what comes back, in one transaction.
//!
//! Each table is read and written by one statement per batch, however many entries there are. If a statement fails for a
//! reason that lies in what is written, the batch is split and tried again until the bad entry stands alone.

use serde_json::{Value, json};
use signalbox_domain::governance::budget::EndedWindow;
use signalbox_domain::ids::{RunKey, TenantId};
use signalbox_domain::run::append::{Entry, OpenApproval};
use signalbox_domain::run::chain::StoredEvent;
use signalbox_domain::time::{UnixMicros, UnixMs};
use signalbox_ports::clock::Clock;
use signalbox_ports::journal::StoreError;
use sqlx::QueryBuilder;
use sqlx::sqlite::SqliteConnection;

use super::governance::changes_after;
use super::rows::{blob, failed, hex_id};
use super::writer::Connection;
use crate::batch::{Answer, Batch, Parts, answered_commands, approvals_json, budgets, oldest_epoch, run_keys};
use crate::rows::{int, run_columns};

/// Most rows of one multi-row statement: SQLite takes 32 766 arguments, and no row here has more than 11.
const ROWS_MAX: usize = 2_900;

/// Appends a batch; one answer for each entry, in order.
pub(super) async fn append(connection: &mut Connection, batch: &[Entry], clock: &dyn Clock) -> Vec<Answer> {
    let mut parts = Parts::of(batch);
    while let Some(part) = parts.next() {
        let outcome = append_part(connection, part, clock).await;
        parts.settle(part, outcome);
    }
    parts.into_answers()
}

async fn append_part(
    connection: &mut Connection,
    part: &[Entry],
    clock: &dyn Clock,
) -> Result<Vec<Answer>, StoreError> {
    let conn = connection.begin().await?;
    let outcome = judge_and_write(conn, part, clock).await;
    connection.end(outcome).await
}

async fn judge_and_write(
    conn: &mut SqliteConnection,
    part: &[Entry],
    clock: &dyn Clock,
) -> Result<Vec<Answer>, StoreError> {
    let mut batch = load(conn, part).await?;
    // Read after the lock was taken: windows and `at` move forward in the order of the transactions.
    let now = clock.now_micros();
    let answers = part.iter().map(|entry| batch.judge(entry, now)).collect();
    save(conn, &batch, now).await?;
    Ok(answers)
}

async fn load(conn: &mut SqliteConnection, part: &[Entry]) -> Result<Batch, StoreError> {
    let mut batch = Batch::default();
    load_runs(conn, part, &mut batch).await?;
    load_waiting(conn, part, &mut batch).await?;
    load_governance(conn, part, &mut batch).await?;
    load_meters(conn, part, &mut batch).await?;
    Ok(batch)
}

async fn load_governance(conn: &mut SqliteConnection, part: &[Entry], batch: &mut Batch) -> Result<(), StoreError> {
    let epoch: i64 = sqlx::query_scalar("SELECT epoch FROM store_meta")
        .fetch_one(&mut *conn)
        .await
        .map_err(failed("read the epoch"))?;
    batch.epoch = u64::try_from(epoch).unwrap_or_default();
    if let Some(seen) = oldest_epoch(part)
        && int(seen) < epoch
    {
        batch.changes = changes_after(conn, seen).await?;
    }
    Ok(())
}

async fn load_meters(conn: &mut SqliteConnection, part: &[Entry], batch: &mut Batch) -> Result<(), StoreError> {
    let budgets = budgets(part);
    if budgets.is_empty() {
        return Ok(());
    }
    let found = sqlx::query("SELECT * FROM meters WHERE budget_id IN (SELECT value FROM json_each(?))")
        .bind(json!(budgets).to_string())
        .fetch_all(conn)
        .await
        .map_err(failed("read meters"))?;
    found.iter().for_each(|row| batch.load_meter(row));
    Ok(())
}

async fn save(conn: &mut SqliteConnection, batch: &Batch, now: UnixMicros) -> Result<(), StoreError> {
    insert_events(conn, &batch.events).await?;
    save_meters(conn, batch).await?;
    keep_windows(conn, batch.windows.iter()).await?;
    save_runs(conn, batch).await?;
    save_projections(conn, batch).await?;
    save_answers(conn, batch, now.ms()).await
}

async fn save_meters(conn: &mut SqliteConnection, batch: &Batch) -> Result<(), StoreError> {
    let booked = batch.booked_meters().map(|metered| {
        let meter = &metered.meter;
        json!([
            metered.budget.budget_id,
            meter.window_start_unix_seconds,
            meter.consumed.0,
            meter.reserved.0,
            meter.grace_end_unix_seconds,
        ])
    });
    let sql = "UPDATE meters SET window_start_seconds = j.value->>1, consumed = j.value->>2, \
               reserved = j.value->>3, grace_end_seconds = j.value->>4 \
               FROM json_each(?) AS j WHERE budget_id = j.value->>0";
    execute_for(conn, sql, booked.collect(), "book on meters").await
}

/// Keeps windows of budgets that are over. One that is there already ended before: a clock may have stepped back.
pub(super) async fn keep_windows(
    conn: &mut SqliteConnection,
    windows: impl Iterator<Item = &EndedWindow>,
) -> Result<(), StoreError> {
    let rows = windows.map(|window| {
        json!([
            window.budget_id,
            window.window_start_unix_seconds,
            window.ended_unix_seconds,
            window.consumed.0,
            window.limit.0,
        ])
    });
    let sql = "INSERT OR IGNORE INTO meter_windows (budget_id, starts, ended, consumed, limit_micros) \
               SELECT value->>0, value->>1, value->>2, value->>3, value->>4 FROM json_each(?)";
    execute_for(conn, sql, rows.collect(), "keep windows").await
}

async fn save_runs(conn: &mut SqliteConnection, batch: &Batch) -> Result<(), StoreError> {
    let touched = batch.touched_runs().map(|run| {
        json!([
            hex_id(run.head.run_key.uuid()),
            run.head.owner.map(|owner| hex_id(owner.uuid())),
            run.head.last_seq,
            run.head.last_hash,
            run.head.last_at,
            run.head.inbox_len,
            run.wake_at,
            u8::from(run.parked),
            u8::from(run.head.closed),
        ])
    });
    let sql = "UPDATE runs SET owner_incarnation = unhex(j.value->>1), last_seq = j.value->>2, \
               last_hash = unhex(j.value->>3), last_at = j.value->>4, inbox_len = j.value->>5, \
               wake_at_ms = j.value->>6, parked = j.value->>7, closed = j.value->>8 \
               FROM json_each(?) AS j WHERE run_key = unhex(j.value->>0)";
    execute_for(conn, sql, touched.collect(), "write the rows of runs").await
}

async fn save_projections(conn: &mut SqliteConnection, batch: &Batch) -> Result<(), StoreError> {
    if batch.projections.is_empty() {
        return Ok(());
    }
    let changed: Vec<_> = batch.projections.iter().collect();
    for chunk in changed.chunks(ROWS_MAX) {
        let mut query = QueryBuilder::new(
            "UPDATE run_dashboard SET status = v.column2, total_cost_micros = v.column3, percent = v.column4, \
             waiting_for = v.column5, open_approvals = v.column6, killed_by = v.column7 FROM (",
        );
        query.push_values(chunk, |mut row, (key, projection)| {
            row.push_bind(blob(key.uuid()))
                .push_bind(projection.status.as_str())
                .push_bind(projection.total_cost_micros)
                .push_bind(i64::from(projection.percent))
                .push_bind(projection.waiting_for.clone())
                .push_bind(approvals_json(&projection.open_approvals))
                .push_bind(projection.killed_by.as_ref().map(ToString::to_string));
        });
        query.push(") AS v WHERE run_key = v.column1");
        query.build().persistent(false).execute(&mut *conn).await.map_err(failed("write the dashboard"))?;
    }
    let keys = batch.projections.keys().map(|key| json!(hex_id(key.uuid()))).collect();
    let sql = "DELETE FROM approvals WHERE run_key IN (SELECT unhex(value) FROM json_each(?))";
    execute_for(conn, sql, keys, "write approvals").await?;
    insert_approvals(conn, &batch.open_approvals()).await
}

async fn save_answers(conn: &mut SqliteConnection, batch: &Batch, now: UnixMs) -> Result<(), StoreError> {
    for chunk in batch.answered.chunks(ROWS_MAX) {
        let mut query = QueryBuilder::new("UPDATE run_inbox SET answer = v.column3, answered_at_ms = v.column4 FROM (");
        query.push_values(chunk, |mut row, (run, command, answer)| {
            row.push_bind(blob(run.uuid()))
                .push_bind(blob(command.uuid()))
                .push_bind(json!(answer).to_string().into_bytes())
                .push_bind(now.0);
        });
        query.push(") AS v WHERE run_key = v.column1 AND command_id = v.column2");
        query.build().persistent(false).execute(&mut *conn).await.map_err(failed("answer commands"))?;
    }
    Ok(())
}

async fn load_runs(conn: &mut SqliteConnection, part: &[Entry], batch: &mut Batch) -> Result<(), StoreError> {
    let arguments: Vec<_> = run_keys(part).iter().map(|key| hex_id(key.uuid())).collect();
    let found = sqlx::query(concat!(
        "SELECT ",
        run_columns!(),
        " FROM runs WHERE run_key IN (SELECT unhex(value) FROM json_each(?))"
    ))
    .bind(json!(arguments).to_string())
    .fetch_all(conn)
    .await
    .map_err(failed("read the rows of runs"))?;
    found.iter().for_each(|row| batch.load_run(row));
    Ok(())
}

async fn load_waiting(conn: &mut SqliteConnection, part: &[Entry], batch: &mut Batch) -> Result<(), StoreError> {
    let arguments: Vec<_> =
        answered_commands(part).map(|(run, command)| json!([hex_id(run.uuid()), hex_id(command.uuid())])).collect();
    if arguments.is_empty() {
        return Ok(());
    }
    let found = sqlx::query(
        "SELECT i.run_key, i.command_id FROM json_each(?) AS j JOIN run_inbox AS i \
         ON i.run_key = unhex(j.value->>0) AND i.command_id = unhex(j.value->>1) WHERE i.answer IS NULL",
    )
    .bind(Value::Array(arguments).to_string())
    .fetch_all(conn)
    .await
    .map_err(failed("read inboxes"))?;
    found.iter().for_each(|row| batch.load_waiting(row));
    Ok(())
}

/// Writes events that are stamped and hashed.
pub(super) async fn insert_events(conn: &mut SqliteConnection, events: &[StoredEvent]) -> Result<(), StoreError> {
    for chunk in events.chunks(ROWS_MAX) {
        let mut query = QueryBuilder::new(
            "INSERT INTO run_events (run_key, seq, at, actor_id, actor_role, visibility, kind, version, body, \
             prev_hash, hash) ",
        );
        query.push_values(chunk, |mut row, event| {
            row.push_bind(blob(event.run_key.uuid()))
                .push_bind(int(event.seq))
                .push_bind(event.at.0)
                .push_bind(event.actor.actor_id.to_string())
                .push_bind(event.actor.role.as_str())
                .push_bind(event.visibility.as_str())
                .push_bind(event.kind.clone())
                .push_bind(event.version)
                .push_bind(event.body.clone())
                .push_bind(event.prev_hash.0.to_vec())
                .push_bind(event.hash.0.to_vec());
        });
        query.build().persistent(false).execute(&mut *conn).await.map_err(failed("write events"))?;
    }
    Ok(())
}

/// Writes open questions; those of the same runs were removed before.
pub(super) async fn insert_approvals(
    conn: &mut SqliteConnection,
    open: &[(RunKey, &TenantId, &OpenApproval)],
) -> Result<(), StoreError> {
    for chunk in open.chunks(ROWS_MAX) {
        let mut query =
            QueryBuilder::new("INSERT INTO approvals (run_key, approval_id, tenant, requested_at_ms, body) ");
        query.push_values(chunk, |mut row, (run, tenant, approval)| {
            row.push_bind(blob(run.uuid()))
                .push_bind(blob(approval.approval_id.uuid()))
                .push_bind(tenant.to_string())
                .push_bind(approval.requested_at_unix_ms.0)
                .push_bind(json!(approval).to_string().into_bytes());
        });
        query.build().persistent(false).execute(&mut *conn).await.map_err(failed("write approvals"))?;
        let mut query = QueryBuilder::new("INSERT OR IGNORE INTO approval_runs (approval_id, run_key) ");
        query.push_values(chunk, |mut row, (run, _, approval)| {
            row.push_bind(blob(approval.approval_id.uuid())).push_bind(blob(run.uuid()));
        });
        query.build().persistent(false).execute(&mut *conn).await.map_err(failed("note whose approvals they are"))?;
    }
    Ok(())
}

/// Executes a statement whose only argument is a JSON array of rows, if there are any.
async fn execute_for(
    conn: &mut SqliteConnection,
    sql: &'static str,
    rows: Vec<Value>,
    doing: &'static str,
) -> Result<(), StoreError> {
    if rows.is_empty() {
        return Ok(());
    }
    sqlx::query(sql).bind(Value::Array(rows).to_string()).execute(conn).await.map_err(failed(doing))?;
    Ok(())
}
