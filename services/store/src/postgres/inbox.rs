//! What waits for a run.

use std::sync::Arc;

use async_trait::async_trait;
use signalbox_domain::ids::{CommandId, RunKey};
use signalbox_domain::run::append::CommandAnswer;
use signalbox_domain::time::UnixMs;
use signalbox_ports::inbox::{ANSWER_KEPT_MS, CommandClass, Delivered, Inbox, InboxCommand, WAITING_COMMANDS_MAX};
use signalbox_ports::journal::StoreError;
use sqlx::PgConnection;

use super::errors::{Problem, failed};
use super::store_clock::server_now;
use super::transaction::{Attempts, Ended, GovernanceLock, in_task, in_time};
use super::tree::tell_below;
use super::{PostgresStore, Shared};
use crate::cells::Cells as _;
use crate::rows::{class_number, count, inbox_command, json, waiting_commands};

/// Most outdated answers that one delivery removes on the way.
const FORGOTTEN_MAX: i64 = 100;

#[async_trait]
impl Inbox for PostgresStore {
    async fn deliver(&self, run: RunKey, command: InboxCommand) -> Result<Delivered, StoreError> {
        Ok(self.deliver_to(run, command, None).await?.0)
    }

    async fn deliver_down(
        &self,
        run: RunKey,
        command: InboxCommand,
        below: Vec<u8>,
    ) -> Result<(Delivered, Vec<RunKey>), StoreError> {
        self.deliver_to(run, command, Some(below)).await
    }

    async fn pending(&self, run: RunKey) -> Result<(Vec<InboxCommand>, u64), StoreError> {
        // One statement, so that the count and the commands are of one moment.
        let query = sqlx::query(
            "SELECT r.control_seq, i.command_id, i.class, i.body FROM runs AS r LEFT JOIN run_inbox AS i \
             ON i.run_key = r.run_key AND i.answer IS NULL WHERE r.run_key = $1 ORDER BY i.class, i.arrival",
        );
        waiting_commands(run, &self.shared.readers.all("read an inbox", query.bind(run.uuid())).await?)
    }

    async fn answer(&self, run: RunKey, command: CommandId) -> Result<Option<CommandAnswer>, StoreError> {
        let query = sqlx::query(concat!(
            "SELECT answer FROM run_inbox WHERE run_key = $1 AND command_id = $2 AND answer IS NOT NULL \
             AND answered_at_ms > COALESCE($3::int8, ",
            server_now!(),
            ") / 1000 - $4"
        ));
        let query = query.bind(run.uuid()).bind(command.uuid());
        let query = query.bind(self.shared.clock.injected()).bind(ANSWER_KEPT_MS);
        let row = self.shared.readers.first("read an answer", query).await?;
        row.map(|row| json(&row, "answer").map_err(StoreError::Unavailable)).transpose()
    }
}

impl PostgresStore {
    async fn deliver_to(
        &self,
        run: RunKey,
        command: InboxCommand,
        below: Option<Vec<u8>>,
    ) -> Result<(Delivered, Vec<RunKey>), StoreError> {
        let shared = Arc::clone(&self.shared);
        in_task(async move {
            let mut attempts = Attempts::new();
            loop {
                let delivered = deliver_once(&shared, run, &command, below.as_deref()).await;
                if let Some(delivered) = attempts.settle_repeatable(delivered).await? {
                    return Ok(delivered);
                }
            }
        })
        .await
    }
}

async fn deliver_once(
    shared: &Shared,
    run: RunKey,
    command: &InboxCommand,
    below: Option<&[u8]>,
) -> Result<Ended<(Delivered, Vec<RunKey>)>, Problem> {
    let mut transaction = shared.journal.begin(GovernanceLock::None).await?;
    let conn = transaction.conn()?;
    let outcome = in_time(async {
        let head = sqlx::query("SELECT inbox_len FROM runs WHERE run_key = $1 FOR UPDATE")
            .bind(run.uuid())
            .fetch_optional(&mut *conn)
            .await
            .map_err(failed("lock the row of a run"))?;
        let Some(head) = head else { return Ok((Delivered::NoSuchRun, Vec::new())) };
        let now = shared.clock.now(conn).await?.ms();
        let waiting = count(&head, "inbox_len").unwrap_or_default();
        let (delivered, is_new) = deliver(conn, run, command, waiting, now).await?;
        let told = match below.filter(|_| is_new) {
            Some(body) => tell_below(conn, run, command.command_id, command.class, body).await?,
            None => Vec::new(),
        };
        Ok((delivered, told))
    });
    let outcome = outcome.await;
    transaction.end(outcome).await
}

/// Delivers to a run whose row is locked, and so is its inbox; says whether the command was not there before.
async fn deliver(
    conn: &mut PgConnection,
    run: RunKey,
    command: &InboxCommand,
    waiting: u64,
    now: UnixMs,
) -> Result<(Delivered, bool), Problem> {
    forget_answers(conn, run, command.command_id, now).await?;
    let known =
        sqlx::query("SELECT command_id, class, body, answer FROM run_inbox WHERE run_key = $1 AND command_id = $2")
            .bind(run.uuid())
            .bind(command.command_id.uuid())
            .fetch_optional(&mut *conn)
            .await
            .map_err(failed("read an inbox"))?;
    if let Some(row) = known {
        if inbox_command(&row).as_ref() != Ok(command) {
            return Ok((Delivered::Mismatch, false));
        }
        return match row.bytes_or_null("answer") {
            Ok(None) => Ok((Delivered::Waiting, false)),
            _ => json(&row, "answer")
                .map(|answer| (Delivered::Answered(answer), false))
                .map_err(|e| StoreError::Unavailable(e).into()),
        };
    }

    command.check_size()?;
    if command.class == CommandClass::Other && waiting >= WAITING_COMMANDS_MAX as u64 {
        return Err(StoreError::Unavailable("too many commands wait for this run".into()).into());
    }
    sqlx::query("INSERT INTO run_inbox (run_key, command_id, class, body) VALUES ($1, $2, $3, $4)")
        .bind(run.uuid())
        .bind(command.command_id.uuid())
        .bind(class_number(command.class))
        .bind(command.body.as_slice())
        .execute(&mut *conn)
        .await
        .map_err(failed("deliver a command"))?;
    // In the same transaction, so that a committed kill, cancel or pause stops the next admission by itself.
    sqlx::query("UPDATE runs SET inbox_len = inbox_len + 1, control_seq = control_seq + $2 WHERE run_key = $1")
        .bind(run.uuid())
        .bind(i64::from(command.class == CommandClass::Control))
        .execute(conn)
        .await
        .map_err(failed("count a command"))?;
    Ok((Delivered::Waiting, true))
}

/// Removes this command's answer if its day is over, and a few others' on the way, so that the table does not grow. Those
/// that another delivery is removing are left to it: nobody waits here.
async fn forget_answers(conn: &mut PgConnection, run: RunKey, command: CommandId, now: UnixMs) -> Result<(), Problem> {
    sqlx::query(
        "DELETE FROM run_inbox WHERE arrival = ANY(ARRAY(\
         SELECT arrival FROM run_inbox WHERE answer IS NOT NULL AND answered_at_ms <= $1 LIMIT $2 \
         FOR UPDATE SKIP LOCKED))",
    )
    .bind(now.0 - ANSWER_KEPT_MS)
    .bind(FORGOTTEN_MAX)
    .execute(&mut *conn)
    .await
    .map_err(failed("forget old answers"))?;
    sqlx::query(
        "DELETE FROM run_inbox WHERE run_key = $1 AND command_id = $2 AND answer IS NOT NULL AND answered_at_ms <= $3",
    )
    .bind(run.uuid())
    .bind(command.uuid())
    .bind(now.0 - ANSWER_KEPT_MS)
    .execute(conn)
    .await
    .map_err(failed("forget an old answer"))?;
    Ok(())
}
