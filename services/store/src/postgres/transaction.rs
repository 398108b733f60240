//! Transactions, the task each of them lives in, and what is left to do when one fails.
//!
//! A transaction must not end half-way because whoever waited for it has gone: with sqlx a future dropped between BEGIN and
//! COMMIT can leave a connection in the middle. So every writing operation runs in a task of its own ([`in_task`]) that is
//! finished whether or not anybody still waits, and a connection goes back to its pool only after the server has said that
//! no transaction is open on it.

use std::future::Future;
use std::time::Duration;

use signalbox_ports::journal::StoreError;
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, PgConnection, PgPool, Postgres};
use tokio::time::timeout;
use uuid::Uuid;

use super::errors::{Problem, failed, is_connection, is_undone, unread};

/// How long the statements between BEGIN and COMMIT may take. The server gives up on each of them earlier: this is for a
/// server that does not answer at all.
const WORK_WAIT: Duration = Duration::from_secs(10);

/// How long the answer to BEGIN or COMMIT is waited for. A synchronous replica may be slow to confirm.
const ANSWER_WAIT: Duration = Duration::from_secs(5);

/// How long the answer to ROLLBACK is waited for. Without one the connection is closed, which undoes as well.
const UNDO_WAIT: Duration = Duration::from_secs(1);

/// How long a reader waits for what it has asked.
const READ_WAIT: Duration = Duration::from_secs(10);

/// How often something is tried that another transaction was in the way of, or whose outcome was lost.
const ATTEMPTS_MAX: u32 = 6;

/// How the governance lock is held.
#[derive(Debug, Clone, Copy)]
pub(super) enum GovernanceLock {
    /// Not at all: nothing is admitted, and no rule changes.
    None,
    /// With other appends: what is admitted is decided by rules that stand still.
    Shared,
    /// Alone: the rules change.
    Exclusive,
}

/// Does `work` in a task of its own, and waits for what it gives.
pub(super) async fn in_task<T: Send + 'static>(
    work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
) -> Result<T, StoreError> {
    let ended = tokio::spawn(work).await;
    ended.unwrap_or_else(|_| Err(StoreError::Unknown("the task that wrote ended before it answered".into())))
}

/// A pool whose connections write.
pub(super) struct Writers {
    pool: PgPool,
    governance_key: i64,
}

impl Writers {
    pub(super) const fn new(pool: PgPool, governance_key: i64) -> Self {
        Self { pool, governance_key }
    }

    pub(super) async fn close(&self) {
        self.pool.close().await;
    }

    /// Begins a transaction. Only inside [`in_task`]; [`Transaction::end`] must follow.
    ///
    /// One message to the server, but a statement each: what the lock guards is read by a later one. The limits belong to
    /// the transaction, so a node that stops within one holds its locks for a second at most. `synchronous_commit` is on
    /// whatever the role or the database says.
    pub(super) async fn begin(&self, lock: GovernanceLock) -> Result<Transaction, Problem> {
        let lock = match lock {
            GovernanceLock::None => String::new(),
            GovernanceLock::Shared => format!("; SELECT pg_advisory_xact_lock_shared({})", self.governance_key),
            GovernanceLock::Exclusive => format!("; SELECT pg_advisory_xact_lock({})", self.governance_key),
        };
        let begin = format!(
            "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; \
             SET LOCAL idle_in_transaction_session_timeout = '1s'; SET LOCAL statement_timeout = '2s'; \
             SET LOCAL synchronous_commit = on{lock}"
        );
        // Connections that waited in the pool may have died meanwhile. Nothing has begun on those, so the next one is
        // tried, until one that is new has failed.
        let mut left = self.pool.options().get_max_connections();
        loop {
            let conn = self.pool.acquire().await.map_err(failed("get a connection"))?;
            let mut transaction = Transaction { conn: Some(conn) };
            let begun = sqlx::raw_sql(AssertSqlSafe(begin.clone())).execute(transaction.conn()?);
            match timeout(ANSWER_WAIT, begun).await {
                Ok(Ok(_)) => return Ok(transaction),
                Ok(Err(error)) if left > 0 && is_connection(&error) => left -= 1,
                Ok(Err(error)) => {
                    // The governance lock was waited for in vain, for instance.
                    transaction.undo().await;
                    return Err(failed("begin a transaction")(error));
                }
                Err(_) => return Err(no_answer("BEGIN").into()),
            }
        }
    }
}

/// An open transaction. One that is dropped takes its connection with it, and so is undone.
pub(super) struct Transaction {
    conn: Option<PoolConnection<Postgres>>,
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if let Some(conn) = self.conn.take() {
            // Never back to the pool: nobody knows in which state it is.
            drop(conn.detach());
        }
    }
}

impl Transaction {
    /// The connection, for the statements of this transaction.
    pub(super) fn conn(&mut self) -> Result<&mut PgConnection, Problem> {
        match &mut self.conn {
            Some(conn) => Ok(conn),
            None => Err(StoreError::Unavailable("the transaction has ended".into()).into()),
        }
    }

    /// Commits what went well, undoes what did not.
    pub(super) async fn end<T>(mut self, outcome: Result<T, Problem>) -> Result<Ended<T>, Problem> {
        let done = match outcome {
            Ok(done) => done,
            Err(problem) => {
                self.undo().await;
                return Err(problem);
            }
        };
        match timeout(ANSWER_WAIT, sqlx::raw_sql("COMMIT").execute(self.conn()?)).await {
            Ok(Ok(_)) => {
                // No transaction is open, so the pool may have it back.
                drop(self.conn.take());
                Ok(Ended::Committed(done))
            }
            Ok(Err(error)) if is_undone(&error) => {
                self.undo().await;
                Err(failed("commit")(error))
            }
            Ok(Err(error)) => Ok(Ended::Lost(done, format!("commit: {error}"))),
            Err(_) => Ok(Ended::Lost(done, "commit: the server does not answer".into())),
        }
    }

    async fn undo(&mut self) {
        let Ok(conn) = self.conn() else { return };
        if matches!(timeout(UNDO_WAIT, sqlx::raw_sql("ROLLBACK").execute(conn)).await, Ok(Ok(_))) {
            drop(self.conn.take());
        }
    }
}

/// How a transaction ended that had done its work.
#[derive(Debug)]
pub(super) enum Ended<T> {
    /// Durable.
    Committed(T),
    /// The answer to COMMIT was lost; with what there will be if it was committed, and why.
    Lost(T, String),
}

/// Waits for the work of a transaction, but not for ever.
pub(super) async fn in_time<T>(work: impl Future<Output = Result<T, Problem>>) -> Result<T, Problem> {
    timeout(WORK_WAIT, work).await.unwrap_or_else(|_| Err(no_answer("a statement").into()))
}

fn no_answer(to: &str) -> StoreError {
    StoreError::Unavailable(format!("the server does not answer to {to}"))
}

/// How often one operation may still be tried.
pub(super) struct Attempts {
    left: u32,
    /// Why the outcome of an earlier attempt is not known.
    lost: Option<String>,
}

impl Attempts {
    pub(super) const fn new() -> Self {
        Self { left: ATTEMPTS_MAX - 1, lost: None }
    }

    /// What became of an attempt; `None` if it is to be made again.
    pub(super) async fn settle<T>(&mut self, outcome: Result<T, Problem>) -> Result<Option<T>, StoreError> {
        match outcome {
            Ok(done) => Ok(Some(done)),
            Err(Problem::Store(error)) => Err(self.unless_lost(error)),
            Err(Problem::InTheWay(why)) => {
                tracing::debug!(why, "another transaction was in the way");
                self.pause(StoreError::Unavailable(why)).await?;
                Ok(None)
            }
        }
    }

    /// The same for an operation that may be done twice: if the answer to its COMMIT was lost, it is done again.
    pub(super) async fn settle_repeatable<T>(
        &mut self,
        outcome: Result<Ended<T>, Problem>,
    ) -> Result<Option<T>, StoreError> {
        match self.settle(outcome).await? {
            None => Ok(None),
            Some(Ended::Committed(done)) => Ok(Some(done)),
            Some(Ended::Lost(_, why)) => {
                self.was_lost(why).await?;
                Ok(None)
            }
        }
    }

    /// Notes that the outcome of an attempt is not known, so that a later failure is not taken for "nothing was written".
    pub(super) async fn was_lost(&mut self, why: String) -> Result<(), StoreError> {
        tracing::warn!(why, "the answer to a commit was lost");
        self.lost = Some(why.clone());
        self.pause(StoreError::Unknown(why)).await
    }

    fn unless_lost(&self, error: StoreError) -> StoreError {
        match (&self.lost, error) {
            (Some(why), StoreError::Unavailable(problem)) => StoreError::Unknown(format!("{why}; then: {problem}")),
            (_, error) => error,
        }
    }

    /// Lets whoever was in the way pass; gives up after some times.
    async fn pause(&mut self, giving_up: StoreError) -> Result<(), StoreError> {
        if self.left == 0 {
            return Err(self.unless_lost(giving_up));
        }
        self.left -= 1;
        // Two that collided must not collide again in step.
        let tried = u64::from(ATTEMPTS_MAX - self.left);
        let jitter = Uuid::new_v4().as_u64_pair().1 % (5 * tried);
        tokio::time::sleep(Duration::from_millis(2 * tried + jitter)).await;
        Ok(())
    }
}

/// A pool whose connections read, one statement at a time.
pub(super) struct Readers {
    pool: PgPool,
}

impl Readers {
    pub(super) const fn new(pool: PgPool) -> Self {
        Self { pool }
    }

    pub(super) async fn close(&self) {
        self.pool.close().await;
    }

    /// All rows of a query.
    pub(super) async fn all(
        &self,
        doing: &'static str,
        query: Query<'_, Postgres, PgArguments>,
    ) -> Result<Vec<PgRow>, StoreError> {
        let mut conn = self.pool.acquire().await.map_err(unread(doing))?;
        match timeout(READ_WAIT, query.fetch_all(&mut *conn)).await {
            Ok(rows) => rows.map_err(unread(doing)),
            Err(_) => {
                // What is still to come on this connection is nobody's any more.
                drop(conn.detach());
                Err(no_answer(doing))
            }
        }
    }

    /// The first row of a query, if there is one.
    pub(super) async fn first(
        &self,
        doing: &'static str,
        query: Query<'_, Postgres, PgArguments>,
    ) -> Result<Option<PgRow>, StoreError> {
        Ok(self.all(doing, query).await?.into_iter().next())
    }
}
