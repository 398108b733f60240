//! The one connection that writes, and the task that owns it.
//!
//! A transaction must not end half-way because whoever waited for it has gone: a future that is dropped between BEGIN and
//! COMMIT would leave the connection in the middle. So the connection lives in a task that nobody drops; callers hand
//! work over and wait for the answer, and if they stop waiting, the work is finished all the same.

use std::fs::File;

use futures::future::BoxFuture;
use signalbox_ports::journal::StoreError;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection as _};
use tokio::sync::{mpsc, oneshot};

use super::rows::failed;

/// Most pieces of work that wait for the connection; further callers wait at the door.
const WAITING_MAX: usize = 256;

type Work = Box<dyn for<'c> FnOnce(&'c mut Connection) -> BoxFuture<'c, ()> + Send>;

enum Message {
    Work(Work),
    Close(oneshot::Sender<()>),
}

/// A handle to the writing task.
pub(super) struct Writer {
    messages: mpsc::Sender<Message>,
}

impl Writer {
    /// Starts the task. The lock of the data directory is let go after the connection is closed.
    pub(super) fn start(connection: Connection, lock: File) -> Self {
        let (messages, received) = mpsc::channel(WAITING_MAX);
        tokio::spawn(serve(connection, received, lock));
        Self { messages }
    }

    /// Has `work` done on the connection and waits for what it gives.
    pub(super) async fn run<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut Connection) -> BoxFuture<'c, T> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let work: Work = Box::new(move |connection| {
            Box::pin(async move {
                // Whoever asked may be gone; the work is done all the same.
                let _ = answer.send(work(connection).await);
            })
        });
        let closed = |_| StoreError::Unavailable("the store is closed".into());
        self.messages.send(Message::Work(work)).await.map_err(closed)?;
        answered.await.map_err(|_| StoreError::Unknown("the writer stopped before it answered".into()))
    }

    /// Has `work` done in one transaction, which is undone if it fails.
    pub(super) async fn transact<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<T, StoreError>> + Send + 'static,
    {
        let transaction = self.run(move |connection| {
            Box::pin(async move {
                let outcome = work(connection.begin().await?).await;
                connection.end(outcome).await
            })
        });
        transaction.await?
    }

    /// Finishes what was handed over before, and closes.
    pub(super) async fn close(&self) {
        let (closed, is_closed) = oneshot::channel();
        if self.messages.send(Message::Close(closed)).await.is_ok() {
            // Without an answer the task has ended some other way, and with it the connection.
            let _ = is_closed.await;
        }
    }
}

async fn serve(mut connection: Connection, mut received: mpsc::Receiver<Message>, lock: File) {
    let mut asked_to_close = None;
    while let Some(message) = received.recv().await {
        match message {
            Message::Work(work) => work(&mut connection).await,
            Message::Close(closed) => {
                asked_to_close = Some(closed);
                break;
            }
        }
    }
    drop(received);
    connection.close().await;
    drop(lock);
    if let Some(closed) = asked_to_close {
        // Whoever asked may be gone; it is closed all the same.
        let _ = closed.send(());
    }
}

/// The connection, opened when it is needed and opened anew after it has failed in a way that leaves its state in doubt.
pub(super) struct Connection {
    options: SqliteConnectOptions,
    open: Option<SqliteConnection>,
}

impl Connection {
    pub(super) const fn new(options: SqliteConnectOptions) -> Self {
        Self { options, open: None }
    }

    /// Begins a transaction that has the write lock from the start. [`end`](Self::end) must follow.
    pub(super) async fn begin(&mut self) -> Result<&mut SqliteConnection, StoreError> {
        let mut conn = match self.open.take() {
            Some(conn) => conn,
            None => self.options.connect().await.map_err(failed("open the database"))?,
        };
        sqlx::query("BEGIN IMMEDIATE").execute(&mut conn).await.map_err(failed("begin a transaction"))?;
        Ok(self.open.insert(conn))
    }

    /// Commits what went well, undoes what did not.
    pub(super) async fn end<T>(&mut self, outcome: Result<T, StoreError>) -> Result<T, StoreError> {
        let Some(mut conn) = self.open.take() else {
            return Err(StoreError::Unavailable("there is no transaction to end".into()));
        };
        let outcome = match outcome {
            Ok(done) => match sqlx::query("COMMIT").execute(&mut conn).await {
                Ok(_) => {
                    self.open = Some(conn);
                    return Ok(done);
                }
                // SQLite has said no: nothing of it is to be seen, and a full disk can be the reason as before.
                Err(error @ sqlx::Error::Database(_)) => Err(failed("commit")(error)),
                Err(error) => Err(StoreError::Unknown(format!("commit: {error}"))),
            },
            Err(error) => Err(error),
        };
        // A connection that cannot undo is in doubt and is not used again. After some errors SQLite has undone everything
        // by itself; opening anew then costs little.
        if sqlx::query("ROLLBACK").execute(&mut conn).await.is_ok() {
            self.open = Some(conn);
        }
        outcome
    }

    async fn close(&mut self) {
        if let Some(conn) = self.open.take()
            && let Err(error) = conn.close().await
        {
            tracing::warn!(%error, "closing the database failed; it will be recovered when it is opened");
        }
    }
}
