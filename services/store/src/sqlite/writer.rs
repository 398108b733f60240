//! The connections that write, and the task that owns them.
//!
//! A transaction must not end half-way because whoever waited for it has gone: a future that is dropped between BEGIN and
//! COMMIT would leave the connection in the middle. So the connections live in a task that nobody drops; callers hand
//! work over and wait for the answer, and if they stop waiting, the work is finished all the same. One piece of work is
//! done at a time, but that runs which wait to be created are created together.
//!
//! What goes straight to the journal's own thread does not go through the task: it only waits for its turn, which the thread
//! gives back when it has done the work.

use std::fs::File;
use std::sync::Arc;

use futures::future::BoxFuture;
use signalbox_ports::clock::Clock;
use signalbox_ports::journal::{Created, NewRun, StoreError};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection as _};
use tokio::sync::{Mutex, mpsc, oneshot};

use super::create::create_all;
use super::direct::{Direct, DirectHandle};
use super::rows::failed;

/// Most pieces of work that wait for the connection; further callers wait at the door.
const WAITING_MAX: usize = 256;

type Work = Box<dyn for<'c> FnOnce(&'c mut Connections) -> BoxFuture<'c, ()> + Send>;

type Creation = (NewRun, oneshot::Sender<Result<Created, StoreError>>);

enum Message {
    Work(Work),
    Create(Box<Creation>),
    Close(oneshot::Sender<()>),
}

/// A handle to the writing task.
pub(super) struct Writer {
    messages: mpsc::Sender<Message>,
    direct: Arc<DirectHandle>,
    /// Whoever writes has it.
    turn: Arc<Mutex<()>>,
}

impl Writer {
    /// Starts the task. The lock of the data directory is let go after the connections are closed.
    pub(super) fn start(connection: Connection, direct: DirectHandle, clock: Arc<dyn Clock>, lock: File) -> Self {
        let (messages, received) = mpsc::channel(WAITING_MAX);
        let (direct, turn) = (Arc::new(direct), Arc::<Mutex<()>>::default());
        let connections = Connections { connection, direct: Arc::clone(&direct), turn: Arc::clone(&turn) };
        tokio::spawn(serve(connections, clock, received, lock));
        Self { messages, direct, turn }
    }

    /// Has `work` done on the journal's connection and waits for what it gives.
    pub(super) async fn direct<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Direct) -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        let turn = Arc::clone(&self.turn).lock_owned().await;
        let done = self.direct.run(move |direct| {
            let done = work(direct);
            drop(turn);
            done
        });
        done.await
    }

    /// Creates a run, together with whatever other runs wait to be created.
    pub(super) async fn create(&self, run: NewRun) -> Result<Created, StoreError> {
        let (answer, answered) = oneshot::channel();
        let closed = |_| StoreError::Unavailable("the store is closed".into());
        self.messages.send(Message::Create(Box::new((run, answer)))).await.map_err(closed)?;
        answered.await.map_err(|_| StoreError::Unknown("the writer stopped before it answered".into()))?
    }

    async fn hand_over<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut Connections) -> BoxFuture<'c, T> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let work: Work = Box::new(move |connections| {
            Box::pin(async move {
                // Whoever asked may be gone; the work is done all the same.
                let _ = answer.send(work(connections).await);
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
        let transaction = self.hand_over(move |Connections { connection, .. }| {
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

/// Both connections. Each piece of work has them for itself while it is its turn.
struct Connections {
    connection: Connection,
    direct: Arc<DirectHandle>,
    turn: Arc<Mutex<()>>,
}

async fn serve(mut connections: Connections, clock: Arc<dyn Clock>, mut received: mpsc::Receiver<Message>, lock: File) {
    let mut asked_to_close = None;
    // What came behind the last run that was created with others.
    let mut next = None;
    while let Some(message) = match next.take() {
        Some(message) => Some(message),
        None => received.recv().await,
    } {
        let turn = Arc::clone(&connections.turn).lock_owned().await;
        match message {
            Message::Work(work) => work(&mut connections).await,
            Message::Create(creation) => {
                let mut creations = vec![*creation];
                while creations.len() < WAITING_MAX && next.is_none() {
                    match received.try_recv() {
                        Ok(Message::Create(creation)) => creations.push(*creation),
                        Ok(other) => next = Some(other),
                        Err(_) => break,
                    }
                }
                create(&connections.direct, creations, clock.clone()).await;
            }
            Message::Close(closed) => {
                asked_to_close = Some(closed);
                break;
            }
        }
        drop(turn);
    }
    drop(received);
    let Connections { connection, direct, turn: _ } = connections;
    direct.close().await;
    connection.close().await;
    drop(lock);
    if let Some(closed) = asked_to_close {
        // Whoever asked may be gone; it is closed all the same.
        let _ = closed.send(());
    }
}

async fn create(direct: &DirectHandle, creations: Vec<Creation>, clock: Arc<dyn Clock>) {
    let (runs, answers): (Vec<_>, Vec<_>) = creations.into_iter().unzip();
    let created = direct.run(move |direct| create_all(direct, &runs, clock.as_ref())).await;
    match created {
        Ok(created) => {
            for (answer, created) in answers.into_iter().zip(created) {
                // Whoever asked may be gone; the run is there all the same.
                let _ = answer.send(created);
            }
        }
        Err(error) => {
            for answer in answers {
                let _ = answer.send(Err(error.clone()));
            }
        }
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

    async fn close(mut self) {
        if let Some(conn) = self.open.take()
            && let Err(error) = conn.close().await
        {
            tracing::warn!(%error, "closing the database failed; it will be recovered when it is opened");
        }
    }
}
