//! Appending a batch: load the rows it touches, judge each entry, write what comes back, in one transaction.
//!
//! Each table is read and written by one statement per batch, however many entries there are. If a statement fails for a
//! reason that lies in what is written, the batch is split and tried again until the bad entry stands alone.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use signalbox_domain::governance::budget::{Meter, MeteredBudget};
use signalbox_domain::governance::change::EpochChange;
use signalbox_domain::ids::{BudgetId, CommandId, RunKey, TenantId};
use signalbox_domain::quantity::Micros;
use signalbox_domain::run::append::{Accepted, CommandAnswer, Entry, Ground, OpenApproval, RunProjection, judge};
use signalbox_domain::run::chain::StoredEvent;
use signalbox_domain::time::{UnixMicros, UnixMs};
use signalbox_ports::clock::Clock;
use signalbox_ports::journal::{AppendError, StoreError, check_events};
use sqlx::QueryBuilder;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use super::governance::changes_after;
use super::rows::{RunRow, blob, cell, failed, hex_id, int, json as json_cell, run_columns, run_row, uuid};
use super::writer::Connection;

/// Most rows of one multi-row statement: SQLite takes 32 766 arguments, and no row here has more than 11.
const ROWS_MAX: usize = 2_900;

type Answer = Result<Accepted, AppendError>;

/// Appends a batch; one answer for each entry, in order.
pub(super) async fn append(connection: &mut Connection, batch: &[Entry], clock: &dyn Clock) -> Vec<Answer> {
    let mut answers = Vec::with_capacity(batch.len());
    // Parts still to be written, the next one last.
    let mut parts = vec![batch];
    while let Some(part) = parts.pop() {
        match append_part(connection, part, clock).await {
            Ok(part_answers) => answers.extend(part_answers),
            Err(StoreError::Poison(_)) if part.len() > 1 => {
                let (first, second) = part.split_at(part.len() / 2);
                parts.extend([second, first]);
            }
            Err(error) => answers.extend(part.iter().map(|_| Err(error.clone().into()))),
        }
    }
    answers
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
    let mut rows = Rows::load(conn, part).await?;
    // Read after the lock was taken: windows and `at` move forward in the order of the transactions.
    let now = clock.now_micros();
    let answers = part.iter().map(|entry| rows.judge(entry, now)).collect();
    rows.save(conn, now).await?;
    Ok(answers)
}

/// The rows a batch touches, and what has changed in them.
struct Rows {
    /// A row that cannot be read fails its own run's entries alone.
    runs: BTreeMap<RunKey, Result<RunRow, StoreError>>,
    waiting: BTreeSet<(RunKey, CommandId)>,
    epoch: u64,
    changes: Vec<EpochChange>,
    meters: BTreeMap<BudgetId, MeteredBudget>,
    retired: BTreeSet<BudgetId>,
    unreadable_meters: BTreeSet<BudgetId>,

    touched: BTreeSet<RunKey>,
    events: Vec<StoredEvent>,
    projections: BTreeMap<RunKey, RunProjection>,
    answered: Vec<(RunKey, CommandId, CommandAnswer)>,
    booked: BTreeSet<BudgetId>,
}

impl Rows {
    async fn load(conn: &mut SqliteConnection, part: &[Entry]) -> Result<Self, StoreError> {
        let epoch: i64 = sqlx::query_scalar("SELECT epoch FROM store_meta")
            .fetch_one(&mut *conn)
            .await
            .map_err(failed("read the epoch"))?;
        let oldest = part.iter().filter(|entry| !entry.asks.is_empty()).map(|entry| entry.governance_epoch).min();
        let mut rows = Self {
            runs: load_runs(conn, part).await?,
            waiting: load_waiting(conn, part).await?,
            epoch: u64::try_from(epoch).unwrap_or_default(),
            changes: match oldest {
                Some(seen) if int(seen) < epoch => changes_after(&mut *conn, seen).await?,
                Some(_) | None => Vec::new(),
            },
            meters: BTreeMap::new(),
            retired: BTreeSet::new(),
            unreadable_meters: BTreeSet::new(),
            touched: BTreeSet::new(),
            events: Vec::new(),
            projections: BTreeMap::new(),
            answered: Vec::new(),
            booked: BTreeSet::new(),
        };
        rows.load_meters(conn, part).await?;
        Ok(rows)
    }

    async fn load_meters(&mut self, conn: &mut SqliteConnection, part: &[Entry]) -> Result<(), StoreError> {
        let budgets: BTreeSet<_> = part.iter().flat_map(Entry::budgets).collect();
        if budgets.is_empty() {
            return Ok(());
        }
        let found = sqlx::query("SELECT * FROM meters WHERE budget_id IN (SELECT value FROM json_each(?))")
            .bind(json!(budgets).to_string())
            .fetch_all(conn)
            .await
            .map_err(failed("read meters"))?;
        for row in &found {
            let id = cell::<String>(row, "budget_id").ok().and_then(|id| BudgetId::new(id).ok());
            let Some(id) = id else { continue };
            match metered(row) {
                Ok((metered, retired)) => {
                    self.meters.insert(id.clone(), metered);
                    if retired {
                        self.retired.insert(id);
                    }
                }
                Err(problem) => {
                    tracing::error!(budget = %id, problem, "a meter cannot be read");
                    self.unreadable_meters.insert(id);
                }
            }
        }
        Ok(())
    }

    fn judge(&mut self, entry: &Entry, now: UnixMicros) -> Answer {
        let run = match self.runs.get(&entry.run_key) {
            Some(Err(corrupt)) => return Err(corrupt.clone().into()),
            Some(Ok(run)) => Some(run),
            None => None,
        };
        if let Some(id) = entry.budgets().find(|id| self.unreadable_meters.contains(*id)) {
            return Err(StoreError::Unavailable(format!("the meter of budget `{id}` cannot be read")).into());
        }
        // The entry works on copies, so that one that is refused for its size leaves nothing behind.
        let mut meters: BTreeMap<_, _> =
            entry.budgets().filter_map(|id| Some((id.clone(), self.meters.get(id)?.clone()))).collect();
        let waits = |id: &CommandId| self.waiting.contains(&(entry.run_key, *id));
        let waiting: BTreeSet<_> = entry.answers.iter().map(|(id, _)| *id).filter(waits).collect();
        let accepted = judge(
            Ground {
                head: run.map(|run| &run.head),
                changes: &self.changes,
                epoch: self.epoch,
                meters: &mut meters,
                retired: &self.retired,
                waiting: &waiting,
                now,
            },
            entry,
        )?;
        check_events(&accepted.events)?;
        self.accept(entry, &accepted, meters);
        Ok(accepted)
    }

    fn accept(&mut self, entry: &Entry, accepted: &Accepted, meters: BTreeMap<BudgetId, MeteredBudget>) {
        for (id, metered) in meters {
            if self.meters.get(&id) != Some(&metered) {
                self.booked.insert(id.clone());
                self.meters.insert(id, metered);
            }
        }
        if let Some(Ok(run)) = self.runs.get_mut(&entry.run_key) {
            run.parked |= accepted.head.owner.is_none();
            run.head = accepted.head.clone();
            if let Some(projection) = &accepted.projection {
                run.wake_at = projection.wake_at;
                self.projections.insert(entry.run_key, projection.clone());
            }
        }
        self.touched.insert(entry.run_key);
        self.events.extend(accepted.events.iter().cloned());
        for (command, answer) in &entry.answers {
            if self.waiting.remove(&(entry.run_key, *command)) {
                self.answered.push((entry.run_key, *command, answer.clone()));
            }
        }
    }

    async fn save(&self, conn: &mut SqliteConnection, now: UnixMicros) -> Result<(), StoreError> {
        insert_events(conn, &self.events).await?;
        self.save_meters(conn).await?;
        self.save_runs(conn).await?;
        self.save_projections(conn).await?;
        self.save_answers(conn, now.ms()).await
    }

    async fn save_meters(&self, conn: &mut SqliteConnection) -> Result<(), StoreError> {
        let booked = self.booked.iter().filter_map(|id| self.meters.get(id)).map(|metered| {
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

    async fn save_runs(&self, conn: &mut SqliteConnection) -> Result<(), StoreError> {
        let touched = self.touched.iter().filter_map(|key| self.runs.get(key)?.as_ref().ok()).map(|run| {
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

    async fn save_projections(&self, conn: &mut SqliteConnection) -> Result<(), StoreError> {
        if self.projections.is_empty() {
            return Ok(());
        }
        let changed: Vec<_> = self.projections.iter().collect();
        for chunk in changed.chunks(ROWS_MAX) {
            let mut query = QueryBuilder::new(
                "UPDATE run_dashboard SET status = v.column2, total_cost_micros = v.column3, percent = v.column4, \
                 waiting_for = v.column5, open_approvals = v.column6 FROM (",
            );
            query.push_values(chunk, |mut row, (key, projection)| {
                row.push_bind(blob(key.uuid()))
                    .push_bind(projection.status.as_str())
                    .push_bind(projection.total_cost_micros)
                    .push_bind(i64::from(projection.percent))
                    .push_bind(projection.waiting_for.clone())
                    .push_bind(approvals_json(&projection.open_approvals));
            });
            query.push(") AS v WHERE run_key = v.column1");
            query.build().persistent(false).execute(&mut *conn).await.map_err(failed("write the dashboard"))?;
        }
        let keys = self.projections.keys().map(|key| json!(hex_id(key.uuid()))).collect();
        let sql = "DELETE FROM approvals WHERE run_key IN (SELECT unhex(value) FROM json_each(?))";
        execute_for(conn, sql, keys, "write approvals").await?;
        let open = self.projections.iter().filter_map(|(key, projection)| {
            let run = self.runs.get(key)?.as_ref().ok()?;
            Some(projection.open_approvals.iter().map(|approval| (*key, &run.head.tenant_id, approval)))
        });
        insert_approvals(conn, &open.flatten().collect::<Vec<_>>()).await
    }

    async fn save_answers(&self, conn: &mut SqliteConnection, now: UnixMs) -> Result<(), StoreError> {
        for chunk in self.answered.chunks(ROWS_MAX) {
            let mut query =
                QueryBuilder::new("UPDATE run_inbox SET answer = v.column3, answered_at_ms = v.column4 FROM (");
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
}

async fn load_runs(
    conn: &mut SqliteConnection,
    part: &[Entry],
) -> Result<BTreeMap<RunKey, Result<RunRow, StoreError>>, StoreError> {
    let keys: BTreeSet<_> = part.iter().map(|entry| entry.run_key).collect();
    let arguments: Vec<_> = keys.iter().map(|key| hex_id(key.uuid())).collect();
    let found = sqlx::query(concat!(
        "SELECT ",
        run_columns!(),
        " FROM runs WHERE run_key IN (SELECT unhex(value) FROM json_each(?))"
    ))
    .bind(json!(arguments).to_string())
    .fetch_all(conn)
    .await
    .map_err(failed("read the rows of runs"))?;
    Ok(found.iter().filter_map(|row| Some((RunKey::new(uuid(row, "run_key").ok()?), run_row(row)))).collect())
}

async fn load_waiting(
    conn: &mut SqliteConnection,
    part: &[Entry],
) -> Result<BTreeSet<(RunKey, CommandId)>, StoreError> {
    let answers = part.iter().flat_map(|entry| entry.answers.iter().map(|(command, _)| (entry.run_key, command)));
    let arguments: Vec<_> = answers.map(|(run, command)| json!([hex_id(run.uuid()), hex_id(command.uuid())])).collect();
    if arguments.is_empty() {
        return Ok(BTreeSet::new());
    }
    let found = sqlx::query(
        "SELECT i.run_key, i.command_id FROM json_each(?) AS j JOIN run_inbox AS i \
         ON i.run_key = unhex(j.value->>0) AND i.command_id = unhex(j.value->>1) WHERE i.answer IS NULL",
    )
    .bind(Value::Array(arguments).to_string())
    .fetch_all(conn)
    .await
    .map_err(failed("read inboxes"))?;
    let waiting = found.iter().filter_map(|row| {
        Some((RunKey::new(uuid(row, "run_key").ok()?), CommandId::new(uuid(row, "command_id").ok()?)))
    });
    Ok(waiting.collect())
}

/// A meter's row: the budget with its figures, and whether it is retired.
pub(super) fn metered(row: &SqliteRow) -> Result<(MeteredBudget, bool), String> {
    let meter = Meter {
        window_start_unix_seconds: cell(row, "window_start_seconds")?,
        consumed: Micros(cell(row, "consumed")?),
        reserved: Micros(cell(row, "reserved")?),
        grace_end_unix_seconds: cell(row, "grace_end_seconds")?,
    };
    Ok((MeteredBudget { budget: json_cell(row, "budget")?, meter }, cell(row, "retired")?))
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
    }
    Ok(())
}

/// Open questions as the dashboard keeps them.
pub(super) fn approvals_json(open: &[OpenApproval]) -> Vec<u8> {
    json!(open).to_string().into_bytes()
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
