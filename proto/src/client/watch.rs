//! Following a run: one stream of items that survives a server that restarts or lets a slow reader go.

use std::time::Duration;

use tonic::Streaming;

use super::{ClientError, Item, Retry, Wire};
use crate::v1;
use crate::v1::run_service_client::RunServiceClient;

/// What is repeated unless something else is said: a server may take a while to come back.
const RETRY: Retry = Retry { tries_max: 8, wait_max: Duration::from_secs(5) };

/// A watch that goes on behind the last event it has seen when it is cut: none is missing and none comes twice.
#[derive(Debug)]
pub struct Watch {
    runs: RunServiceClient<Wire>,
    run_id: String,
    cursor: u64,
    stream: Option<Streaming<v1::WatchRunResponse>>,
    retry: Retry,
    told: u32,
}

impl Watch {
    /// Follows a run from after an event.
    pub fn new(runs: RunServiceClient<Wire>, run_id: &str, after_seq: u64) -> Self {
        Self { runs, run_id: run_id.to_owned(), cursor: after_seq, stream: None, retry: RETRY, told: 0 }
    }

    /// The same, with at least as much patience as this.
    pub(super) fn with_retry(mut self, retry: Retry) -> Self {
        self.retry = if retry == Retry::NEVER {
            retry
        } else {
            Retry { tries_max: retry.tries_max.max(RETRY.tries_max), wait_max: retry.wait_max.max(RETRY.wait_max) }
        };
        self
    }

    /// The last event that was seen: where another watch would go on.
    pub const fn cursor(&self) -> u64 {
        self.cursor
    }

    /// The next item; `None` once the run is closed and everything was seen.
    ///
    /// # Errors
    /// What the server refuses, by its code; a server that stays away for longer than the retries last.
    pub async fn next(&mut self) -> Result<Option<Item>, ClientError> {
        loop {
            match self.step().await {
                Ok(Some(v1::WatchRunResponse { item: Some(Item::Event(event)) })) => {
                    self.told = 0;
                    if event.seq > self.cursor {
                        self.cursor = event.seq;
                        return Ok(Some(Item::Event(event)));
                    }
                }
                Ok(Some(v1::WatchRunResponse { item: Some(item) })) => {
                    self.told = 0;
                    return Ok(Some(item));
                }
                // An item of a kind that this version does not know.
                Ok(Some(v1::WatchRunResponse { item: None })) => {}
                Ok(None) => return Ok(None),
                Err(status) => {
                    self.stream = None;
                    let Some(pause) = self.retry.pause(&status, self.told) else { return Err(status.into()) };
                    self.told += 1;
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }

    async fn step(&mut self) -> Result<Option<v1::WatchRunResponse>, tonic::Status> {
        if self.stream.is_none() {
            let request = v1::WatchRunRequest { run_id: self.run_id.clone(), after_seq: self.cursor };
            self.stream = Some(self.runs.watch_run(request).await?.into_inner());
        }
        match &mut self.stream {
            Some(stream) => stream.message().await,
            None => Ok(None),
        }
    }
}
