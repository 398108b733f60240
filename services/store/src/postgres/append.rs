//! Appending a batch: lock and load the rows it touches, judge each entry, write what comes back, in one transaction.
//!
//! The round trips of a batch: BEGIN with the governance lock; the rows of runs; what has changed in governance, where
//! something is asked; meters, where any is touched; events; everything else; COMMIT. Each table is written by one statement
//! for the whole batch.

use signalbox_domain::ids::{RunKey, SwitchId, TenantId};
use signalbox_domain::run::append::{Entry, OpenApproval};
use signalbox_domain::run::chain::StoredEvent;
use signalbox_domain::time::UnixMicros;
use signalbox_ports::journal::StoreError;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row as _};
use uuid::Uuid;

use super::Shared;
use super::errors::{Problem, failed};
use super::governance::changes_after;
use super::store_clock::{StoreClock, server_now};
use super::transaction::{Attempts, Ended, GovernanceLock, in_time};
use super::tree;
use crate::batch::{Answer, Batch, Parts, answered_commands, approvals_json, budgets, oldest_epoch, run_keys};
use crate::dashboard::{cost_band, ended_at};
use crate::rows::{int, run_columns};
use crate::webhooks::run_of;

/// Most bytes of bodies that one statement carries, and beyond which a transaction takes no further entry, unless a single
/// body or entry has more. The server ends a transaction whose node thinks for a second, a statement has two, and a message
/// of a gigabyte is none.
const BYTES_MAX: usize = 1_024 * 1_024;

/// Appends a batch; one answer for each entry, in order. Only inside a task that is never dropped.
pub(super) async fn append(shared: &Shared, batch: &[Entry]) -> Vec<Answer> {
    let mut parts = Parts::of(batch);
    while let Some(part) = parts.next() {
        let outcome = append_part(shared, part).await;
        parts.settle(part, outcome);
    }
    parts.into_answers()
}

/// One answer for each entry, or for the first few if all would be too much for one transaction.
async fn append_part(shared: &Shared, part: &[Entry]) -> Result<Vec<Answer>, StoreError> {
    let mut attempts = Attempts::new();
    loop {
        match attempts.settle(append_once(shared, part).await).await? {
            None => {}
            Some(Ended::Committed(answers)) => return Ok(answers),
            Some(Ended::Lost(answers, why)) => return find_out(shared, answers, why).await,
        }
    }
}

async fn append_once(shared: &Shared, part: &[Entry]) -> Result<Ended<Vec<Answer>>, Problem> {
    let mut transaction = shared.journal.begin(GovernanceLock::Shared).await?;
    let outcome = in_time(judge_and_write(transaction.conn()?, part, &shared.clock)).await;
    transaction.end(outcome).await
}

async fn judge_and_write(conn: &mut PgConnection, part: &[Entry], clock: &StoreClock) -> Result<Vec<Answer>, Problem> {
    let mut batch = Batch::default();
    let runs_locked = lock_runs(conn, part, &mut batch).await?;
    load_waiting(conn, part, &mut batch).await?;
    tree::load_taken(conn, part, &mut batch).await?;
    load_governance(conn, part, &mut batch).await?;
    let meters_locked = lock_meters(conn, part, &mut batch).await?;
    // Windows and `at` move forward in the order of the transactions. Without any row there is nothing to stamp either.
    let now = clock.after_locks(runs_locked.max(meters_locked).unwrap_or(UnixMicros(0)));
    let mut answers = Vec::with_capacity(part.len());
    let mut bytes = 0;
    for entry in part {
        if bytes > BYTES_MAX {
            break;
        }
        let answer = batch.judge(entry, now);
        bytes += answer.iter().flat_map(|accepted| &accepted.events).map(|event| event.body.len()).sum::<usize>();
        answers.push(answer);
    }
    insert_events(conn, &batch.events).await?;
    save(conn, &batch, now).await?;
    tree::write(conn, &batch, now).await?;
    Ok(answers)
}

/// Answers for a batch whose COMMIT was not answered: a locking read of a run's row waits for the lost transaction, and then
/// its event is there or it is not, for the batch as a whole.
async fn find_out(shared: &Shared, answers: Vec<Answer>, why: String) -> Result<Vec<Answer>, StoreError> {
    let accepted = answers.iter().filter_map(|answer| answer.as_ref().ok());
    let Some(last) = accepted.filter_map(|accepted| accepted.events.last()).next_back().cloned() else {
        return Err(StoreError::Unknown(why));
    };
    let mut attempts = Attempts::new();
    attempts.was_lost(why.clone()).await?;
    loop {
        match attempts.settle_repeatable(has_landed(shared, &last).await).await {
            Ok(None) => {}
            Ok(Some(true)) => return Ok(answers),
            Ok(Some(false)) => return Err(StoreError::Unavailable(format!("nothing was written; {why}"))),
            // The server may be back in a moment.
            Err(StoreError::Unknown(problem)) => attempts.was_lost(problem).await?,
            Err(error) => return Err(error),
        }
    }
}

async fn has_landed(shared: &Shared, event: &StoredEvent) -> Result<Ended<bool>, Problem> {
    let mut transaction = shared.journal.begin(GovernanceLock::None).await?;
    let conn = transaction.conn()?;
    let outcome = in_time(async {
        sqlx::query("SELECT 1 FROM runs WHERE run_key = $1 FOR UPDATE")
            .bind(event.run_key.uuid())
            .execute(&mut *conn)
            .await
            .map_err(failed("lock the row of a run"))?;
        sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM run_events WHERE run_key = $1 AND seq = $2 AND hash = $3)")
            .bind(event.run_key.uuid())
            .bind(int(event.seq))
            .bind(event.hash.0.as_slice())
            .fetch_one(&mut *conn)
            .await
            .map_err(failed("look for an event"))
    });
    let outcome = outcome.await;
    transaction.end(outcome).await
}

/// Locks runs in the order of their keys; gives the server's time after the last lock.
async fn lock_runs(conn: &mut PgConnection, part: &[Entry], batch: &mut Batch) -> Result<Option<UnixMicros>, Problem> {
    let keys: Vec<_> = run_keys(part).iter().map(|key| key.uuid()).collect();
    let found = sqlx::query(concat!(
        "SELECT locked.*, ",
        server_now!(),
        " AS locked_at FROM (SELECT ",
        run_columns!(),
        " FROM runs WHERE run_key = ANY($1) ORDER BY run_key FOR UPDATE) AS locked"
    ))
    .bind(keys)
    .fetch_all(conn)
    .await
    .map_err(failed("lock the rows of runs"))?;
    found.iter().for_each(|row| batch.load_run(row));
    Ok(locked_at(&found))
}

/// Locks meters in the order of their budgets' ids; gives the server's time after the last lock.
async fn lock_meters(
    conn: &mut PgConnection,
    part: &[Entry],
    batch: &mut Batch,
) -> Result<Option<UnixMicros>, Problem> {
    let budgets: Vec<_> = budgets(part).into_iter().map(|id| id.as_str()).collect();
    if budgets.is_empty() {
        return Ok(None);
    }
    let found = sqlx::query(concat!(
        "SELECT locked.*, ",
        server_now!(),
        " AS locked_at FROM (SELECT * FROM meters WHERE budget_id = ANY($1) ORDER BY budget_id FOR UPDATE) AS locked"
    ))
    .bind(budgets)
    .fetch_all(conn)
    .await
    .map_err(failed("lock meters"))?;
    found.iter().for_each(|row| batch.load_meter(row));
    Ok(locked_at(&found))
}

fn locked_at(rows: &[PgRow]) -> Option<UnixMicros> {
    rows.iter().filter_map(|row| row.try_get("locked_at").ok()).max().map(UnixMicros)
}

async fn load_waiting(conn: &mut PgConnection, part: &[Entry], batch: &mut Batch) -> Result<(), Problem> {
    let (runs, commands): (Vec<_>, Vec<_>) =
        answered_commands(part).map(|(run, command)| (run.uuid(), command.uuid())).unzip();
    if runs.is_empty() {
        return Ok(());
    }
    let found = sqlx::query(
        "SELECT i.run_key, i.command_id FROM UNNEST($1::uuid[], $2::uuid[]) AS n (run_key, command_id) \
         JOIN run_inbox AS i ON i.run_key = n.run_key AND i.command_id = n.command_id WHERE i.answer IS NULL",
    )
    .bind(runs)
    .bind(commands)
    .fetch_all(conn)
    .await
    .map_err(failed("read inboxes"))?;
    found.iter().for_each(|row| batch.load_waiting(row));
    Ok(())
}

/// Reads what has changed since the asks were decided. The shared governance lock is held, so nothing can change any more.
async fn load_governance(conn: &mut PgConnection, part: &[Entry], batch: &mut Batch) -> Result<(), Problem> {
    let Some(seen) = oldest_epoch(part) else { return Ok(()) };
    let epoch: i64 = sqlx::query_scalar("SELECT epoch FROM store_meta")
        .fetch_one(&mut *conn)
        .await
        .map_err(failed("read the epoch"))?;
    batch.epoch = u64::try_from(epoch).unwrap_or_default();
    if seen < batch.epoch {
        batch.changes = changes_after(conn, seen).await?;
    }
    Ok(())
}

/// Writes events that are stamped and hashed.
pub(super) async fn insert_events(conn: &mut PgConnection, events: &[StoredEvent]) -> Result<(), Problem> {
    let mut rest = events;
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = |event: &&StoredEvent| {
            bytes += event.body.len();
            bytes <= BYTES_MAX
        };
        let (chunk, later) = rest.split_at(rest.iter().take_while(fits).count().max(1));
        insert_chunk(conn, chunk).await?;
        rest = later;
    }
    Ok(())
}

async fn insert_chunk(conn: &mut PgConnection, events: &[StoredEvent]) -> Result<(), Problem> {
    let column = |of: fn(&StoredEvent) -> &str| events.iter().map(of).collect::<Vec<_>>();
    let numbers = |of: fn(&StoredEvent) -> i64| events.iter().map(of).collect::<Vec<_>>();
    let bytes = |of: fn(&StoredEvent) -> &[u8]| events.iter().map(of).collect::<Vec<_>>();
    sqlx::query(
        "INSERT INTO run_events (run_key, seq, at, actor_id, actor_role, visibility, kind, version, body, prev_hash, hash) \
         SELECT * FROM UNNEST($1::uuid[], $2::int8[], $3::int8[], $4::text[], $5::text[], $6::text[], $7::text[], \
         $8::int8[], $9::bytea[], $10::bytea[], $11::bytea[])",
    )
    .bind(events.iter().map(|event| event.run_key.uuid()).collect::<Vec<Uuid>>())
    .bind(numbers(|event| int(event.seq)))
    .bind(numbers(|event| event.at.0))
    .bind(column(|event| event.actor.actor_id.as_str()))
    .bind(column(|event| event.actor.role.as_str()))
    .bind(column(|event| event.visibility.as_str()))
    .bind(column(|event| &event.kind))
    .bind(numbers(|event| i64::from(event.version)))
    .bind(bytes(|event| &event.body))
    .bind(bytes(|event| &event.prev_hash.0))
    .bind(bytes(|event| &event.hash.0))
    .execute(conn)
    .await
    .map_err(failed("write events"))?;
    Ok(())
}

/// Every table but the events, in one round trip. The parts see the same snapshot and touch different rows: of approvals,
/// those that are open are put, and the others of their runs removed. A row of the dashboard that shows what it is to show
/// stays as it is.
const SAVE: &str = "WITH \
    booked AS (UPDATE meters AS m SET window_start_seconds = n.starts, consumed = n.consumed, reserved = n.reserved, \
        grace_end_seconds = n.grace FROM UNNEST($1::text[], $2::int8[], $3::int8[], $4::int8[], $5::int8[]) \
        AS n (budget_id, starts, consumed, reserved, grace) WHERE m.budget_id = n.budget_id), \
    moved AS (UPDATE runs AS r SET owner_incarnation = n.owner, last_seq = n.last_seq, last_hash = n.last_hash, \
        last_at = n.last_at, inbox_len = n.inbox_len, wake_at_ms = n.wake_at, parked = n.parked, closed = n.closed \
        FROM UNNEST($6::uuid[], $7::uuid[], $8::int8[], $9::bytea[], $10::int8[], $11::int8[], $12::int8[], \
        $13::bool[], $14::bool[]) AS n (run_key, owner, last_seq, last_hash, last_at, inbox_len, wake_at, parked, closed) \
        WHERE r.run_key = n.run_key), \
    shown AS (UPDATE run_dashboard AS d SET status = n.status, total_cost_micros = n.cost, percent = n.percent, \
        waiting_for = n.waiting_for, open_approvals = n.open, killed_by = n.killed_by, cost_band = n.cost_band, \
        slow_at_ms = n.slow_at, warned = n.warned, words = n.words, ended_at = COALESCE(d.ended_at, n.ended_at) \
        FROM UNNEST($15::uuid[], $16::text[], $17::int8[], $18::int8[], $19::bytea[], $20::bytea[], $30::text[], \
        $36::int8[], $37::int8[], $38::bool[], $39::bytea[], $40::int8[]) AS n (run_key, status, cost, percent, \
        waiting_for, open, killed_by, cost_band, slow_at, warned, words, ended_at) WHERE d.run_key = n.run_key \
        AND (d.status, d.total_cost_micros, d.percent, d.waiting_for, d.open_approvals, d.killed_by, d.slow_at_ms, \
        d.warned, d.words) IS DISTINCT FROM (n.status, n.cost, n.percent, n.waiting_for, n.open, n.killed_by, n.slow_at, \
        n.warned, n.words)), \
    gone AS (DELETE FROM approvals AS a WHERE a.run_key = ANY($15::uuid[]) AND NOT EXISTS (SELECT 1 \
        FROM UNNEST($21::uuid[], $22::uuid[]) AS n (run_key, approval_id) \
        WHERE n.run_key = a.run_key AND n.approval_id = a.approval_id)), \
    put AS (INSERT INTO approvals (run_key, approval_id, tenant, requested_at_ms, body) \
        SELECT * FROM UNNEST($21::uuid[], $22::uuid[], $23::text[], $24::int8[], $25::bytea[]) \
        ON CONFLICT (run_key, approval_id) DO UPDATE SET requested_at_ms = EXCLUDED.requested_at_ms, body = EXCLUDED.body), \
    asked AS (INSERT INTO approval_runs (run_key, approval_id) SELECT * FROM UNNEST($21::uuid[], $22::uuid[]) \
        ON CONFLICT DO NOTHING), \
    answered AS (UPDATE run_inbox AS i SET answer = n.answer, answered_at_ms = $29::int8 \
        FROM UNNEST($26::uuid[], $27::uuid[], $28::bytea[]) AS n (run_key, command_id, answer) \
        WHERE i.run_key = n.run_key AND i.command_id = n.command_id), \
    ended AS (INSERT INTO meter_windows (budget_id, starts, ended, consumed, limit_micros) \
        SELECT * FROM UNNEST($31::text[], $32::int8[], $33::int8[], $34::int8[], $35::int8[]) ON CONFLICT DO NOTHING), \
    told AS (INSERT INTO webhook_deliveries (webhook_id, run_key, subject, seq, part, event_type, tenant, hash, once, \
        queued_at_ms, state, attempts, next_at_ms) SELECT w.webhook_id, n.run_key, '', n.seq, n.part, n.event_type, \
        n.tenant, n.hash, n.once, $29::int8, 0, 0, $29::int8 FROM UNNEST($41::uuid[], $42::int8[], $43::int8[], \
        $44::text[], $45::text[], $46::bytea[], $47::text[]) AS n (run_key, seq, part, event_type, tenant, hash, once) \
        JOIN webhook_wants AS w ON w.event_type = n.event_type AND (w.tenant = '' OR w.tenant = n.tenant) \
        ON CONFLICT DO NOTHING) \
    SELECT 1";

async fn save(conn: &mut PgConnection, batch: &Batch, now: UnixMicros) -> Result<(), Problem> {
    let runs: Vec<_> = batch.touched_runs().collect();
    if runs.is_empty() {
        // Every entry was refused.
        return Ok(());
    }
    let meters: Vec<_> = batch.booked_meters().collect();
    let shown: Vec<_> = batch.projections.iter().collect();
    let approvals = Approvals::of(&batch.open_approvals());
    let answered = &batch.answered;
    sqlx::query(SAVE)
        .bind(meters.iter().map(|metered| metered.budget.budget_id.as_str()).collect::<Vec<_>>())
        .bind(meters.iter().map(|metered| metered.meter.window_start_unix_seconds).collect::<Vec<_>>())
        .bind(meters.iter().map(|metered| metered.meter.consumed.0).collect::<Vec<_>>())
        .bind(meters.iter().map(|metered| metered.meter.reserved.0).collect::<Vec<_>>())
        .bind(meters.iter().map(|metered| metered.meter.grace_end_unix_seconds).collect::<Vec<_>>())
        .bind(runs.iter().map(|run| run.head.run_key.uuid()).collect::<Vec<_>>())
        .bind(runs.iter().map(|run| run.head.owner.map(|owner| owner.uuid())).collect::<Vec<_>>())
        .bind(runs.iter().map(|run| int(run.head.last_seq)).collect::<Vec<_>>())
        .bind(runs.iter().map(|run| run.head.last_hash.0.as_slice()).collect::<Vec<_>>())
        .bind(runs.iter().map(|run| run.head.last_at.0).collect::<Vec<_>>())
        .bind(runs.iter().map(|run| int(run.head.inbox_len)).collect::<Vec<_>>())
        .bind(runs.iter().map(|run| run.wake_at.map(|at| at.0)).collect::<Vec<_>>())
        .bind(runs.iter().map(|run| run.parked).collect::<Vec<_>>())
        .bind(runs.iter().map(|run| run.head.closed).collect::<Vec<_>>())
        .bind(shown.iter().map(|(key, _)| key.uuid()).collect::<Vec<_>>())
        .bind(shown.iter().map(|(_, (projection, _))| projection.status.as_str()).collect::<Vec<_>>())
        .bind(shown.iter().map(|(_, (projection, _))| projection.total_cost_micros).collect::<Vec<_>>())
        .bind(shown.iter().map(|(_, (projection, _))| i64::from(projection.percent)).collect::<Vec<_>>())
        .bind(
            shown
                .iter()
                .map(|(_, (projection, _))| projection.waiting_for.as_ref().map(String::as_bytes))
                .collect::<Vec<_>>(),
        )
        .bind(shown.iter().map(|(_, (projection, _))| approvals_json(&projection.open_approvals)).collect::<Vec<_>>())
        .bind(approvals.runs)
        .bind(approvals.ids)
        .bind(approvals.tenants)
        .bind(approvals.requested)
        .bind(approvals.bodies)
        .bind(answered.iter().map(|(run, _, _)| run.uuid()).collect::<Vec<_>>())
        .bind(answered.iter().map(|(_, command, _)| command.uuid()).collect::<Vec<_>>())
        .bind(
            answered
                .iter()
                .map(|(_, _, answer)| serde_json::json!(answer).to_string().into_bytes())
                .collect::<Vec<_>>(),
        )
        .bind(now.ms().0)
        .bind(
            shown
                .iter()
                .map(|(_, (projection, _))| projection.killed_by.as_ref().map(SwitchId::as_str))
                .collect::<Vec<_>>(),
        )
        .bind(batch.windows.iter().map(|window| window.budget_id.as_str()).collect::<Vec<_>>())
        .bind(batch.windows.iter().map(|window| window.window_start_unix_seconds).collect::<Vec<_>>())
        .bind(batch.windows.iter().map(|window| window.ended_unix_seconds).collect::<Vec<_>>())
        .bind(batch.windows.iter().map(|window| window.consumed.0).collect::<Vec<_>>())
        .bind(batch.windows.iter().map(|window| window.limit.0).collect::<Vec<_>>())
        .bind(shown.iter().map(|(_, (projection, _))| cost_band(projection)).collect::<Vec<_>>())
        .bind(shown.iter().map(|(_, (projection, _))| projection.slow_at.map(|at| at.0)).collect::<Vec<_>>())
        .bind(shown.iter().map(|(_, (projection, _))| projection.has_warnings).collect::<Vec<_>>())
        .bind(shown.iter().map(|(_, (projection, _))| projection.words.as_bytes()).collect::<Vec<_>>())
        .bind(shown.iter().map(|(_, (projection, last_at))| ended_at(projection, *last_at)).collect::<Vec<_>>())
        .bind(batch.told.iter().map(|told| run_of(&told.place)).collect::<Vec<_>>())
        .bind(batch.told.iter().map(|told| int(told.place.seq)).collect::<Vec<_>>())
        .bind(batch.told.iter().map(|told| i64::from(told.place.part)).collect::<Vec<_>>())
        .bind(batch.told.iter().map(|told| told.event_type.as_str()).collect::<Vec<_>>())
        .bind(batch.told.iter().map(|told| told.tenant_id.as_ref().map(TenantId::as_str)).collect::<Vec<_>>())
        .bind(batch.told.iter().map(|told| told.hash.0.as_slice()).collect::<Vec<_>>())
        .bind(batch.told.iter().map(|told| told.once.as_deref()).collect::<Vec<_>>())
        .execute(conn)
        .await
        .map_err(failed("write what a batch has changed"))?;
    Ok(())
}

/// Open questions as columns.
struct Approvals<'a> {
    runs: Vec<Uuid>,
    ids: Vec<Uuid>,
    tenants: Vec<&'a str>,
    requested: Vec<i64>,
    bodies: Vec<Vec<u8>>,
}

impl<'a> Approvals<'a> {
    fn of(open: &[(RunKey, &'a TenantId, &OpenApproval)]) -> Self {
        Self {
            runs: open.iter().map(|(run, _, _)| run.uuid()).collect(),
            ids: open.iter().map(|(_, _, approval)| approval.approval_id.uuid()).collect(),
            tenants: open.iter().map(|(_, tenant, _)| tenant.as_str()).collect(),
            requested: open.iter().map(|(_, _, approval)| approval.requested_at_unix_ms.0).collect(),
            bodies: open.iter().map(|(_, _, approval)| serde_json::json!(approval).to_string().into_bytes()).collect(),
        }
    }
}

/// Writes the questions a new run begins with.
pub(super) async fn insert_approvals(
    conn: &mut PgConnection,
    open: &[(RunKey, &TenantId, &OpenApproval)],
) -> Result<(), Problem> {
    if open.is_empty() {
        return Ok(());
    }
    let open = Approvals::of(open);
    sqlx::query(
        "WITH asked AS (INSERT INTO approval_runs (run_key, approval_id) SELECT * FROM UNNEST($1::uuid[], $2::uuid[]) \
            ON CONFLICT DO NOTHING) \
         INSERT INTO approvals (run_key, approval_id, tenant, requested_at_ms, body) \
         SELECT * FROM UNNEST($1::uuid[], $2::uuid[], $3::text[], $4::int8[], $5::bytea[])",
    )
    .bind(open.runs)
    .bind(open.ids)
    .bind(open.tenants)
    .bind(open.requested)
    .bind(open.bodies)
    .execute(conn)
    .await
    .map_err(failed("write approvals"))?;
    Ok(())
}
