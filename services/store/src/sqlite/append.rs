//! Appending a batch: load the rows it touches, judge each entry, write what comes back, in one transaction.
//!
//! All of it happens on the journal's own thread, with statements that are prepared once: there is neither
//! a message nor parsing between two of them. If one fails for a reason that lies in what is written, the
//! batch is split and tried again until the bad entry stands alone.

use rusqlite::{Row, params};
use serde_json::json;
use signalbox_domain::ids::{RunKey, SwitchId, TenantId};
use signalbox_domain::run::append::{Entry, OpenApproval};
use signalbox_domain::run::chain::StoredEvent;
use signalbox_domain::time::UnixMs;
use signalbox_ports::clock::Clock;
use signalbox_ports::journal::StoreError;

use super::direct::{Direct, Transaction};
use super::{tree, webhooks};
use crate::batch::{Answer, Batch, Parts, answered_commands, approvals_json, budgets, oldest_epoch, run_keys};
use crate::dashboard::{cost_band, ended_at};
use crate::governance::{epoch_change, unreadable_change};
use crate::rows::{int, run_columns};

/// Appends a batch; one answer for each entry, in order.
pub(super) fn append(direct: &mut Direct, batch: &[Entry], clock: &dyn Clock) -> Vec<Answer> {
    let mut parts = Parts::of(batch);
    while let Some(part) = parts.next() {
        let outcome = direct.transact(|conn| judge_and_write(conn, part, clock));
        parts.settle(part, outcome);
    }
    parts.into_answers()
}

fn judge_and_write(conn: &Transaction<'_>, part: &[Entry], clock: &dyn Clock) -> Result<Vec<Answer>, StoreError> {
    let mut batch = load(conn, part)?;
    // Read after the lock was taken: windows and `at` move forward in the order of the transactions.
    let now = clock.now_micros();
    let answers = part.iter().map(|entry| batch.judge(entry, now)).collect();
    insert_events(conn, &batch.events)?;
    webhooks::tell(conn, &batch.told, now.ms())?;
    save_meters(conn, &batch)?;
    keep_windows(conn, &batch)?;
    save_runs(conn, &batch)?;
    save_projections(conn, &batch)?;
    save_answers(conn, &batch, now.ms())?;
    tree::write(conn, &batch, now)?;
    Ok(answers)
}

fn load(conn: &Transaction<'_>, part: &[Entry]) -> Result<Batch, StoreError> {
    let mut batch = Batch::default();
    let find = concat!("SELECT ", run_columns!(), " FROM runs WHERE run_key = ?1");
    for key in run_keys(part) {
        conn.each("read the rows of runs", find, [key.uuid().into_bytes()], |row| batch.load_run(row))?;
    }
    let find = "SELECT run_key, command_id FROM run_inbox WHERE run_key = ?1 AND command_id = ?2 AND answer IS NULL";
    for (run, command) in answered_commands(part) {
        let (run, command) = (run.uuid(), command.uuid());
        conn.each("read inboxes", find, [run.into_bytes(), command.into_bytes()], |row| batch.load_waiting(row))?;
    }
    tree::load_taken(conn, part, &mut batch)?;
    load_governance(conn, part, &mut batch)?;
    for budget in budgets(part) {
        let find = "SELECT * FROM meters WHERE budget_id = ?1";
        conn.each("read meters", find, [budget.as_str()], |row| batch.load_meter(row))?;
    }
    Ok(batch)
}

fn load_governance(conn: &Transaction<'_>, part: &[Entry], batch: &mut Batch) -> Result<(), StoreError> {
    let Some(seen) = oldest_epoch(part) else { return Ok(()) };
    let mut epoch: i64 = 0;
    conn.each("read the epoch", "SELECT epoch FROM store_meta", [], |row| epoch = row.get(0).unwrap_or_default())?;
    batch.epoch = u64::try_from(epoch).unwrap_or_default();
    if seen >= batch.epoch {
        return Ok(());
    }
    let mut changes = Ok(Vec::new());
    let later = "SELECT epoch, at_ms, body FROM governance_changes WHERE epoch > ?1 ORDER BY epoch";
    conn.each("read governance changes", later, [int(seen)], |row: &Row<'_>| {
        if let Ok(known) = &mut changes {
            match epoch_change(row) {
                Ok(change) => known.push(change),
                Err(problem) => changes = Err(unreadable_change(problem)),
            }
        }
    })?;
    batch.changes = changes?;
    Ok(())
}

fn save_meters(conn: &Transaction<'_>, batch: &Batch) -> Result<(), StoreError> {
    let sql = "UPDATE meters SET window_start_seconds = ?2, consumed = ?3, reserved = ?4, grace_end_seconds = ?5 \
               WHERE budget_id = ?1";
    for metered in batch.booked_meters() {
        let meter = &metered.meter;
        let (starts, ends) = (meter.window_start_unix_seconds, meter.grace_end_unix_seconds);
        let row = params![metered.budget.budget_id.as_str(), starts, meter.consumed.0, meter.reserved.0, ends];
        conn.execute("book on meters", sql, row)?;
    }
    Ok(())
}

/// Keeps a window of a budget that is over. One that is there already ended before: a clock may have stepped back.
pub(super) const KEEP_WINDOW: &str = "INSERT OR IGNORE INTO meter_windows (budget_id, starts, ended, consumed, \
    limit_micros) VALUES (?, ?, ?, ?, ?)";

fn keep_windows(conn: &Transaction<'_>, batch: &Batch) -> Result<(), StoreError> {
    for window in &batch.windows {
        let (starts, ended) = (window.window_start_unix_seconds, window.ended_unix_seconds);
        let row = params![window.budget_id.as_str(), starts, ended, window.consumed.0, window.limit.0];
        conn.execute("keep windows", KEEP_WINDOW, row)?;
    }
    Ok(())
}

/// SQLite writes an index anew if a column of it is set, also to what it was: so what indexes are over is set only when it
/// has changed.
fn save_runs(conn: &Transaction<'_>, batch: &Batch) -> Result<(), StoreError> {
    let grow = "UPDATE runs SET last_seq = ?2, last_hash = ?3, last_at = ?4 WHERE run_key = ?1";
    let mut grow = conn.prepare("write the rows of runs", grow)?;
    let sql = "UPDATE runs SET owner_incarnation = ?2, last_seq = ?3, last_hash = ?4, last_at = ?5, inbox_len = ?6, \
               wake_at_ms = ?7, parked = ?8, closed = ?9 WHERE run_key = ?1";
    for run in batch.touched_runs() {
        let head = &run.head;
        let key = head.run_key.uuid().into_bytes();
        if run.has_only_grown() {
            let row = params![key, int(head.last_seq), head.last_hash.0, head.last_at.0];
            grow.execute(row)?;
            continue;
        }
        let row = params![
            key,
            head.owner.map(|owner| owner.uuid().into_bytes()),
            int(head.last_seq),
            head.last_hash.0,
            head.last_at.0,
            int(head.inbox_len),
            run.wake_at.map(|at| at.0),
            run.parked,
            head.closed,
        ];
        conn.execute("write the rows of runs", sql, row)?;
    }
    Ok(())
}

/// Columns that no index is over change with every call, the others a few times in a run. A row that shows what it is to
/// show stays as it is.
fn save_projections(conn: &Transaction<'_>, batch: &Batch) -> Result<(), StoreError> {
    let show = "UPDATE run_dashboard SET total_cost_micros = ?2, percent = ?3, waiting_for = ?4, slow_at_ms = ?5, \
                status = ?6, open_approvals = ?7, killed_by = ?8, cost_band = ?9, warned = ?10, words = ?11, \
                ended_at = COALESCE(ended_at, ?12) WHERE run_key = ?1 AND (status, open_approvals, killed_by, cost_band, \
                warned, words) IS NOT (?6, ?7, ?8, ?9, ?10, ?11)";
    let count = "UPDATE run_dashboard SET total_cost_micros = ?2, percent = ?3, waiting_for = ?4, slow_at_ms = ?5 \
                 WHERE run_key = ?1 AND (total_cost_micros, percent, waiting_for, slow_at_ms) IS NOT (?2, ?3, ?4, ?5)";
    let forget = "DELETE FROM approvals WHERE run_key = ?1";
    let mut show = conn.prepare("write the dashboard", show)?;
    let mut count = conn.prepare("write the dashboard", count)?;
    let mut forget = conn.prepare("write approvals", forget)?;
    for (key, (projection, last_at)) in &batch.projections {
        let key = key.uuid().into_bytes();
        let (cost, percent) = (projection.total_cost_micros, projection.percent);
        let slow_at = projection.slow_at.map(|at| at.0);
        let row = params![
            key,
            cost,
            percent,
            projection.waiting_for,
            slow_at,
            projection.status.as_str(),
            approvals_json(&projection.open_approvals),
            projection.killed_by.as_ref().map(SwitchId::as_str),
            cost_band(projection),
            projection.has_warnings,
            projection.words.as_bytes(),
            ended_at(projection, *last_at),
        ];
        if show.execute(row)? == 0 {
            count.execute(params![key, cost, percent, projection.waiting_for, slow_at])?;
        }
        forget.execute([key])?;
    }
    insert_approvals(conn, &batch.open_approvals())
}

fn save_answers(conn: &Transaction<'_>, batch: &Batch, now: UnixMs) -> Result<(), StoreError> {
    let sql = "UPDATE run_inbox SET answer = ?3, answered_at_ms = ?4 WHERE run_key = ?1 AND command_id = ?2";
    for (run, command, answer) in &batch.answered {
        let answer = json!(answer).to_string().into_bytes();
        let row = params![run.uuid().into_bytes(), command.uuid().into_bytes(), answer, now.0];
        conn.execute("answer commands", sql, row)?;
    }
    Ok(())
}

/// Writes events that are stamped and hashed.
pub(super) fn insert_events(conn: &Transaction<'_>, events: &[StoredEvent]) -> Result<(), StoreError> {
    let sql = "INSERT INTO run_events (run_key, seq, at, actor_id, actor_role, visibility, kind, version, body, \
               prev_hash, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
    let mut insert = conn.prepare("write events", sql)?;
    for event in events {
        let row = params![
            event.run_key.uuid().into_bytes(),
            int(event.seq),
            event.at.0,
            event.actor.actor_id.as_str(),
            event.actor.role.as_str(),
            event.visibility.as_str(),
            event.kind,
            event.version,
            event.body,
            event.prev_hash.0,
            event.hash.0,
        ];
        insert.execute(row)?;
    }
    Ok(())
}

/// Writes open questions; those of the same runs were removed before.
pub(super) fn insert_approvals(
    conn: &Transaction<'_>,
    open: &[(RunKey, &TenantId, &OpenApproval)],
) -> Result<(), StoreError> {
    let put = "INSERT INTO approvals (run_key, approval_id, tenant, requested_at_ms, body) VALUES (?, ?, ?, ?, ?)";
    let note = "INSERT OR IGNORE INTO approval_runs (approval_id, run_key) VALUES (?, ?)";
    for (run, tenant, approval) in open {
        let (run, id) = (run.uuid(), approval.approval_id.uuid());
        let body = json!(approval).to_string().into_bytes();
        let at = approval.requested_at_unix_ms.0;
        conn.execute("write approvals", put, params![run.into_bytes(), id.into_bytes(), tenant.as_str(), at, body])?;
        conn.execute("note whose approvals they are", note, [id.into_bytes(), run.into_bytes()])?;
    }
    Ok(())
}
