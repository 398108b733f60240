//! Runs above and below one another: sub-runs that begin with an append, and what goes up and down with one.

use rusqlite::params;
use signalbox_domain::handoff::{command_from_above, command_of_end};
use signalbox_domain::ids::{CommandId, RunKey};
use signalbox_domain::run::append::Entry;
use signalbox_domain::time::UnixMicros;
use signalbox_ports::inbox::CommandClass;
use signalbox_ports::journal::{Created, StoreError};
use uuid::Uuid;

use super::create::create;
use super::direct::Transaction;
use crate::batch::{Batch, sub_runs};
use crate::rows::class_number;

/// Which of the sub-runs that entries would begin have an id or a key that is in use.
pub(super) fn load_taken(conn: &Transaction<'_>, part: &[Entry], batch: &mut Batch) -> Result<(), StoreError> {
    let find = "SELECT 1 FROM runs WHERE run_key = ?1 UNION ALL SELECT 1 FROM runs WHERE tenant = ?2 AND run_id = ?3";
    for run in sub_runs(part) {
        let row = params![run.run_key.uuid().into_bytes(), run.tenant_id.as_str(), run.run_id.uuid().into_bytes()];
        let mut taken = false;
        conn.each("find a run", find, row, |_| taken = true)?;
        if taken {
            batch.taken.insert(run.run_key);
        }
    }
    Ok(())
}

/// Writes the sub-runs that begin, and what other runs are told. The rows of the batch's own runs are written by now.
pub(super) fn write(conn: &Transaction<'_>, batch: &Batch, now: UnixMicros) -> Result<(), StoreError> {
    for run in &batch.begun {
        if let Created::Exists(_) = create(conn, run, now)? {
            return Err(StoreError::Poison("the id of a sub-run is taken".into()));
        }
    }
    for telling in &batch.tells {
        tell(conn, telling.run_key, telling.command_id, CommandClass::Other, &telling.body)?;
    }
    for (ended, body) in &batch.below {
        tell_below(conn, *ended, command_of_end(*ended), CommandClass::Control, body)?;
    }
    Ok(())
}

/// Tells every live run below one, top-down; answers which those are. The database has one writer, so that no child begins
/// meanwhile.
pub(super) fn tell_below(
    conn: &Transaction<'_>,
    top: RunKey,
    above: CommandId,
    class: CommandClass,
    body: &[u8],
) -> Result<Vec<RunKey>, StoreError> {
    let mut told = Vec::new();
    let mut parents = vec![top];
    let find = "SELECT run_key FROM runs WHERE parent_key = ?1 AND closed = 0 ORDER BY run_key";
    while let Some(parent) = parents.pop() {
        conn.each("find the children of a run", find, [parent.uuid().into_bytes()], |row| {
            if let Ok(key) = row.get::<_, [u8; 16]>(0) {
                told.push(RunKey::new(Uuid::from_bytes(key)));
                parents.push(RunKey::new(Uuid::from_bytes(key)));
            }
        })?;
    }
    for run in &told {
        tell(conn, *run, command_from_above(*run, above), class, body)?;
    }
    Ok(told)
}

/// A command of the runtime itself: it always gets in, once. A run that is not there is told nothing.
fn tell(
    conn: &Transaction<'_>,
    run: RunKey,
    command: CommandId,
    class: CommandClass,
    body: &[u8],
) -> Result<(), StoreError> {
    let key = run.uuid().into_bytes();
    let put = "INSERT OR IGNORE INTO run_inbox (run_key, command_id, class, body) SELECT run_key, ?2, ?3, ?4 FROM runs \
               WHERE run_key = ?1";
    let row = params![key, command.uuid().into_bytes(), class_number(class), body];
    if conn.execute("tell a run", put, row)? > 0 {
        let count = "UPDATE runs SET inbox_len = inbox_len + 1, control_seq = control_seq + ?2 WHERE run_key = ?1";
        conn.execute("count a command", count, params![key, i64::from(class == CommandClass::Control)])?;
    }
    Ok(())
}
