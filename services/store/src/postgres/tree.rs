//! Runs above and below one another: sub-runs that begin with an append, and what goes up and down with one.

use signalbox_domain::handoff::{command_from_above, command_of_end};
use signalbox_domain::ids::{CommandId, RunKey};
use signalbox_domain::run::append::Entry;
use signalbox_domain::time::UnixMicros;
use signalbox_ports::inbox::CommandClass;
use signalbox_ports::journal::StoreError;
use sqlx::PgConnection;
use uuid::Uuid;

use super::errors::{Problem, failed};
use super::journal::insert;
use crate::batch::{Batch, sub_runs};
use crate::rows::class_number;

/// Which of the sub-runs that entries would begin have an id or a key that is in use.
pub(super) async fn load_taken(conn: &mut PgConnection, part: &[Entry], batch: &mut Batch) -> Result<(), Problem> {
    let keys: Vec<_> = sub_runs(part).map(|run| run.run_key.uuid()).collect();
    if keys.is_empty() {
        return Ok(());
    }
    let taken: Vec<Uuid> = sqlx::query_scalar(
        "SELECT n.run_key FROM UNNEST($1::uuid[], $2::text[], $3::uuid[]) AS n (run_key, tenant, run_id) \
         WHERE EXISTS (SELECT 1 FROM runs AS r WHERE r.run_key = n.run_key) \
         OR EXISTS (SELECT 1 FROM runs AS r WHERE r.tenant = n.tenant AND r.run_id = n.run_id)",
    )
    .bind(keys)
    .bind(sub_runs(part).map(|run| run.tenant_id.as_str()).collect::<Vec<_>>())
    .bind(sub_runs(part).map(|run| run.run_id.uuid()).collect::<Vec<_>>())
    .fetch_all(conn)
    .await
    .map_err(failed("find a run"))?;
    batch.taken.extend(taken.into_iter().map(RunKey::new));
    Ok(())
}

/// Writes the sub-runs that begin, and what other runs are told. The rows of the batch's own runs, and of those that are told
/// something, are locked, and the former are written by now.
pub(super) async fn write(conn: &mut PgConnection, batch: &Batch, now: UnixMicros) -> Result<(), Problem> {
    for run in &batch.begun {
        if insert(conn, run, now).await?.is_none() {
            return Err(StoreError::Poison("the id of a sub-run is taken".into()).into());
        }
    }
    for telling in &batch.tells {
        tell(conn, &[telling.run_key], |_| telling.command_id, CommandClass::Other, &telling.body).await?;
    }
    for (ended, body) in &batch.below {
        tell_below(conn, *ended, command_of_end(*ended), CommandClass::Control, body).await?;
    }
    Ok(())
}

/// Tells every live run below one whose row is locked: level by level, each row locked before its children are read, so that a
/// child which is being begun is seen here, or its parent sees what it is told before it begins it (HND-015).
pub(super) async fn tell_below(
    conn: &mut PgConnection,
    top: RunKey,
    above: CommandId,
    class: CommandClass,
    body: &[u8],
) -> Result<Vec<RunKey>, Problem> {
    let mut told = Vec::new();
    let mut level = vec![top.uuid()];
    while !level.is_empty() {
        level = sqlx::query_scalar(
            "SELECT run_key FROM runs WHERE parent_key = ANY($1) AND NOT closed ORDER BY run_key FOR UPDATE",
        )
        .bind(&level)
        .fetch_all(&mut *conn)
        .await
        .map_err(failed("lock the children of a run"))?;
        let keys: Vec<_> = level.iter().copied().map(RunKey::new).collect();
        tell(conn, &keys, |run| command_from_above(run, above), class, body).await?;
        told.extend(keys);
    }
    Ok(told)
}

/// A command of the runtime itself: it always gets in, once. A run that is not there is told nothing.
async fn tell(
    conn: &mut PgConnection,
    runs: &[RunKey],
    command: impl Fn(RunKey) -> CommandId,
    class: CommandClass,
    body: &[u8],
) -> Result<(), Problem> {
    if runs.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "WITH put AS (INSERT INTO run_inbox (run_key, command_id, class, body) \
         SELECT r.run_key, n.command_id, $3, $4 FROM UNNEST($1::uuid[], $2::uuid[]) AS n (run_key, command_id) \
         JOIN runs AS r ON r.run_key = n.run_key ON CONFLICT (run_key, command_id) DO NOTHING RETURNING run_key) \
         UPDATE runs AS r SET inbox_len = inbox_len + 1, control_seq = control_seq + $5 FROM put \
         WHERE r.run_key = put.run_key",
    )
    .bind(runs.iter().map(|run| run.uuid()).collect::<Vec<_>>())
    .bind(runs.iter().map(|run| command(*run).uuid()).collect::<Vec<_>>())
    .bind(class_number(class))
    .bind(body)
    .bind(i64::from(class == CommandClass::Control))
    .execute(conn)
    .await
    .map_err(failed("tell runs"))?;
    Ok(())
}
