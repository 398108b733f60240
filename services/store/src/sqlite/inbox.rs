//! What waits for a run.

use std::sync::Arc;

use async_trait::async_trait;
use signalbox_domain::handoff::command_from_above;
use signalbox_domain::ids::{CommandId, RunKey};
use signalbox_domain::run::append::CommandAnswer;
use signalbox_domain::time::UnixMs;
use signalbox_ports::inbox::{ANSWER_KEPT_MS, CommandClass, Delivered, Inbox, InboxCommand, WAITING_COMMANDS_MAX};
use signalbox_ports::journal::StoreError;
use sqlx::sqlite::SqliteConnection;

use super::SqliteStore;
use super::direct::Transaction;
use super::rows::{blob, failed};
use crate::cells::Cells as _;
use crate::rows::{WaitingCommands, class_number, count, inbox_command, json};

/// Most outdated answers that one delivery removes on the way.
const FORGOTTEN_MAX: i64 = 100;

#[async_trait]
impl Inbox for SqliteStore {
    async fn deliver(&self, run: RunKey, command: InboxCommand) -> Result<Delivered, StoreError> {
        let clock = Arc::clone(&self.clock);
        self.writer
            .transact(move |conn| Box::pin(async move { Ok(deliver(conn, run, &command, clock.now()).await?.0) }))
            .await
    }

    async fn deliver_down(
        &self,
        run: RunKey,
        command: InboxCommand,
        below: Vec<u8>,
    ) -> Result<(Delivered, Vec<RunKey>), StoreError> {
        let clock = Arc::clone(&self.clock);
        let deliver_all = async move |conn: &mut SqliteConnection| {
            let (delivered, is_new) = deliver(conn, run, &command, clock.now()).await?;
            let told = if is_new { tell_below(conn, run, &command, &below).await? } else { Vec::new() };
            Ok((delivered, told))
        };
        self.writer.transact(move |conn| Box::pin(async move { deliver_all(conn).await })).await
    }

    async fn pending(&self, run: RunKey) -> Result<(Vec<InboxCommand>, u64), StoreError> {
        // One statement, so that the count and the commands are of one moment.
        let find = "SELECT r.control_seq, i.command_id, i.class, i.body FROM runs AS r LEFT JOIN run_inbox AS i \
                    ON i.run_key = r.run_key AND i.answer IS NULL WHERE r.run_key = ?1 ORDER BY i.class, i.arrival";
        let look = move |conn: &Transaction<'_>| {
            let mut waiting = WaitingCommands::of(run);
            conn.each("read an inbox", find, [run.uuid().into_bytes()], |row| waiting.take(row))?;
            waiting.finish()
        };
        self.reading.look(look).await
    }

    async fn answer(&self, run: RunKey, command: CommandId) -> Result<Option<CommandAnswer>, StoreError> {
        let row = sqlx::query(
            "SELECT answer FROM run_inbox WHERE run_key = ? AND command_id = ? AND answered_at_ms > ? \
             AND answer IS NOT NULL",
        )
        .bind(blob(run.uuid()))
        .bind(blob(command.uuid()))
        .bind(self.clock.now().0 - ANSWER_KEPT_MS)
        .fetch_optional(&self.readers)
        .await
        .map_err(failed("read an answer"))?;
        row.map(|row| json(&row, "answer").map_err(StoreError::Unavailable)).transpose()
    }
}

/// Tells every live run below one, top-down; answers which those are.
async fn tell_below(
    conn: &mut SqliteConnection,
    top: RunKey,
    command: &InboxCommand,
    body: &[u8],
) -> Result<Vec<RunKey>, StoreError> {
    let mut told = Vec::new();
    let mut parents = vec![top];
    while let Some(parent) = parents.pop() {
        let found = sqlx::query("SELECT run_key FROM runs WHERE parent_key = ? AND closed = 0 ORDER BY run_key")
            .bind(blob(parent.uuid()))
            .fetch_all(&mut *conn)
            .await
            .map_err(failed("find the children of a run"))?;
        for row in &found {
            let key = RunKey::new(row.id("run_key").map_err(StoreError::Unavailable)?);
            let below = InboxCommand {
                command_id: command_from_above(key, command.command_id),
                class: command.class,
                body: body.to_vec(),
            };
            put(conn, key, &below).await?;
            told.push(key);
            parents.push(key);
        }
    }
    Ok(told)
}

/// Says whether the command was not there before.
async fn deliver(
    conn: &mut SqliteConnection,
    run: RunKey,
    command: &InboxCommand,
    now: UnixMs,
) -> Result<(Delivered, bool), StoreError> {
    let head = sqlx::query("SELECT inbox_len FROM runs WHERE run_key = ?")
        .bind(blob(run.uuid()))
        .fetch_optional(&mut *conn)
        .await
        .map_err(failed("find a run"))?;
    let Some(head) = head else { return Ok((Delivered::NoSuchRun, false)) };
    forget_answers(conn, run, command.command_id, now).await?;

    let known =
        sqlx::query("SELECT command_id, class, body, answer FROM run_inbox WHERE run_key = ? AND command_id = ?")
            .bind(blob(run.uuid()))
            .bind(blob(command.command_id.uuid()))
            .fetch_optional(&mut *conn)
            .await
            .map_err(failed("read an inbox"))?;
    if let Some(row) = known {
        if inbox_command(&row).as_ref() != Ok(command) {
            return Ok((Delivered::Mismatch, false));
        }
        return match row.bytes_or_null("answer") {
            Ok(None) => Ok((Delivered::Waiting, false)),
            _ => {
                json(&row, "answer").map(|answer| (Delivered::Answered(answer), false)).map_err(StoreError::Unavailable)
            }
        };
    }

    command.check_size()?;
    let waiting = count(&head, "inbox_len").unwrap_or_default();
    if command.class == CommandClass::Other && waiting >= WAITING_COMMANDS_MAX as u64 {
        return Err(StoreError::Unavailable("too many commands wait for this run".into()));
    }
    put(conn, run, command).await?;
    Ok((Delivered::Waiting, true))
}

/// Puts a command into the inbox of a run that is there, unless it lies there already.
async fn put(conn: &mut SqliteConnection, run: RunKey, command: &InboxCommand) -> Result<(), StoreError> {
    let put = sqlx::query("INSERT OR IGNORE INTO run_inbox (run_key, command_id, class, body) VALUES (?, ?, ?, ?)")
        .bind(blob(run.uuid()))
        .bind(blob(command.command_id.uuid()))
        .bind(class_number(command.class))
        .bind(command.body.clone())
        .execute(&mut *conn)
        .await
        .map_err(failed("deliver a command"))?;
    if put.rows_affected() == 0 {
        return Ok(());
    }
    // In the same transaction, so that a committed kill, cancel or pause stops the next admission by itself.
    sqlx::query("UPDATE runs SET inbox_len = inbox_len + 1, control_seq = control_seq + ? WHERE run_key = ?")
        .bind(i64::from(command.class == CommandClass::Control))
        .bind(blob(run.uuid()))
        .execute(conn)
        .await
        .map_err(failed("count a command"))?;
    Ok(())
}

/// Removes this command's answer if its day is over, and a few others' on the way, so that the table does not grow.
async fn forget_answers(
    conn: &mut SqliteConnection,
    run: RunKey,
    command: CommandId,
    now: UnixMs,
) -> Result<(), StoreError> {
    let oldest_kept = now.0 - ANSWER_KEPT_MS;
    sqlx::query(
        "DELETE FROM run_inbox WHERE run_key = ? AND command_id = ? AND answer IS NOT NULL AND answered_at_ms <= ?",
    )
    .bind(blob(run.uuid()))
    .bind(blob(command.uuid()))
    .bind(oldest_kept)
    .execute(&mut *conn)
    .await
    .map_err(failed("forget an old answer"))?;
    sqlx::query(
        "DELETE FROM run_inbox WHERE arrival IN \
         (SELECT arrival FROM run_inbox WHERE answer IS NOT NULL AND answered_at_ms <= ? LIMIT ?)",
    )
    .bind(oldest_kept)
    .bind(FORGOTTEN_MAX)
    .execute(conn)
    .await
    .map_err(failed("forget old answers"))?;
    Ok(())
}
